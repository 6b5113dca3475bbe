"""What the pieces of a critical path go by, from literal traces, and what holds for any trace."""

import gzip
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lumos_df
from lumos_df.graph import run as graph
from lumos_df.trace.ingest import ingest
from tests.conftest import SAMPLES
from tests.trace.literal import Event, annotation, corpus_of, kernel, launch, op, rows, x

SILENCE = "nothing recorded, before "
PAUSES = (0, 1, 7, 400, 3000)


def path_of(folder: Path, events: list[Event], end: float) -> list[tuple[str, str, float]]:
    """Return (kind, operator, us) of the pieces of one step from 0 to `end` us."""
    corpus_of(folder, [annotation("ProfilerStep#1", 0, end), *events], distributedInfo={"rank": 0, "world_size": 1})
    graph.replay(folder / "corpus", path=True)
    found = rows(lumos_df.connect(folder / "corpus"), "FROM critical_path WHERE dur != 0 ORDER BY piece")
    assert sum(row["dur"] for row in found) == 1000 * end
    return [(row["kind"], row["operator"], row["dur"] / 1000) for row in found]


def test_a_silence_goes_by_what_it_came_before_and_not_by_the_short_operator_that_ended_it(tmp_path: Path) -> None:
    events = [
        op("aten::empty", 1, 9),
        op("aten::linear", 1_000_010, 40),
        op("aten::mm", 1_000_012, 30),
        launch(1_000_020, 5, 1),
        kernel("gemm", 1_000_030, 5, correlation=1),
    ]
    assert path_of(tmp_path, events, 1_000_100) == [
        ("host", SILENCE + "aten::empty", 1),
        ("host", "aten::empty", 9),
        ("host", SILENCE + "aten::linear", 1_000_000),
        ("host", "aten::linear", 10),
        ("host", "aten::mm", 5),
        ("host", "aten::linear", 25),
        ("host", SILENCE + "the end of the step", 50),
    ]


def test_host_work_goes_by_the_operator_that_covers_it(tmp_path: Path) -> None:
    """Two launches of a loss that takes 5 ms; what lies between them takes 90 % of that, but no less than the time."""
    events = [
        op("loss", 0, 5000),
        launch(100, 10, 1),
        kernel("gemm", 120, 5, correlation=1),
        op("aten::sort", 200, 4300),
        op("aten::add", 4700, 200),
        launch(4800, 10, 2),
        kernel("gemm", 4820, 5, correlation=2),
    ]
    assert path_of(tmp_path, events, 5000) == [
        ("host", "loss", 100),
        ("host", "loss", 10),
        ("host", "loss", 4690),
        ("host", "aten::add", 10),
        ("host", "loss", 190),
    ]


def test_of_operators_in_one_another_the_shortest_that_took_as_long_gives_the_name(tmp_path: Path) -> None:
    events = [
        op("outer", 0, 5000),
        op("aten::sort", 50, 4900),
        launch(100, 10, 1),
        kernel("gemm", 120, 5, correlation=1),
        launch(4800, 10, 2),
        kernel("gemm", 4820, 5, correlation=2),
    ]
    found = path_of(tmp_path, events, 5000)
    assert ("host", "aten::sort", 4690) in found


def test_where_no_operator_took_as_long_host_work_is_cut_at_them(tmp_path: Path) -> None:
    """A loader takes 70 ms of the 75 ms before the first launch, in small operators of its own."""
    loader = [op("aten::stack", 2000 + 1000 * number, 400) for number in range(60)]
    events = [
        op("aten::zeros", 500, 1500),
        op("enumerate(DataLoader)", 2000, 70_000),
        *loader,
        op("aten::to", 74_000, 2000),
        launch(75_000, 10, 1),
        kernel("copy", 75_020, 5, correlation=1),
    ]
    assert path_of(tmp_path, events, 76_000)[:6] == [
        ("host", SILENCE + "aten::zeros", 500),
        ("host", "aten::zeros", 1500),
        ("host", "enumerate(DataLoader)", 70_000),
        ("host", SILENCE + "aten::to", 2000),
        ("host", "aten::to", 1000),
        ("host", "aten::to", 10),
    ]


def test_an_annotation_is_no_record_that_anything_ran_but_a_python_function_is(tmp_path: Path) -> None:
    events = [
        annotation("## forward ##", 0, 9000),
        x("<built-in function sleep>", "python_function", 1000, 4000),
        op("aten::mm", 8000, 100),
        launch(8010, 10, 1),
        kernel("gemm", 8030, 5, correlation=1),
    ]
    assert path_of(tmp_path, events, 9000)[:3] == [
        ("host", SILENCE + "<built-in function sleep>", 1000),
        ("host", "<built-in function sleep>", 4000),
        ("host", SILENCE + "aten::mm", 3000),
    ]


def test_a_frame_around_what_ran_gives_its_name_to_the_rest_only(tmp_path: Path) -> None:
    events = [
        x("train.py(20): step", "python_function", 0, 9000),
        x("<built-in function sleep>", "python_function", 1000, 7000),
        op("aten::mm", 8100, 100),
        launch(8110, 10, 1),
        kernel("gemm", 8130, 5, correlation=1),
    ]
    assert path_of(tmp_path, events, 9000)[:4] == [
        ("host", "train.py(20): step", 1000),
        ("host", "<built-in function sleep>", 7000),
        ("host", "train.py(20): step", 110),
        ("host", "aten::mm", 10),
    ]


def test_the_time_before_a_kernel_begins_is_a_silence_too(tmp_path: Path) -> None:
    events: list[Event] = []
    for number in range(6):
        at = 2200 * number
        events += [
            op("aten::mm", at, 20),
            launch(at + 10, 5, number),
            kernel("gemm", at + 2015, 100, correlation=number),
            x("cudaDeviceSynchronize", "cuda_runtime", at + 30, 2090, correlation=100 + number),
        ]
    assert ("launch", SILENCE + "gemm", 2000) in path_of(tmp_path, events, 6 * 2200)


def test_what_follows_a_wait_that_no_call_shows_is_host_work(tmp_path: Path) -> None:
    """A cudaMalloc fails, its thread is silent until the kernel ends at 1,030 us, and 2 us later it frees memory."""
    events = [
        op("aten::cat", 5, 1_062),
        launch(10, 5, 1),
        kernel("gemm", 30, 1_000, correlation=1),
        x("cudaMalloc", "cuda_runtime", 40, 10, correlation=2),
        x("cudaFree", "cuda_runtime", 1_032, 20, correlation=3),
    ]
    *_, ran, freed, _, _, _ = path_of(tmp_path, events, 1_100)
    assert (ran, freed) == (("kernel", "gemm", 1000), ("host", "aten::cat", 2))
    (step,) = rows(lumos_df.connect(tmp_path / "corpus"), "SELECT host_ns FROM replay_steps")
    assert step["host_ns"] == 1000 * (2 + 20 + 48)


def test_a_wait_goes_by_what_ran_on_the_other_rank(sample_corpus: Path, tmp_path: Path) -> None:
    """Rank 2 sleeps for 2 ms in each step."""
    corpus = tmp_path / "corpus"
    shutil.copytree(sample_corpus, corpus)
    graph.replay(corpus, path=True)
    found = rows(
        lumos_df.connect(corpus),
        "SELECT DISTINCT rank, kind, on_rank, operator FROM critical_path JOIN traces USING (trace_id, rank) "
        "WHERE job = 'gpu_generated' AND dur > 1000000",
    )
    assert {row["rank"] for row in found} == {0, 1, 2, 3}
    assert {row["on_rank"] for row in found} == {2}
    assert {row["operator"] for row in found} == {"<built-in function sleep>"}
    assert {row["kind"] for row in found if row["rank"] != 2} == {"wait"}


def test_a_collective_waits_on_the_path_for_a_rank_that_is_not_here(tmp_path: Path) -> None:
    """Rank 1 alone of four: its all-reduces wait for rank 2, which sleeps; those of fewer bytes than others tell."""
    corpus = tmp_path / "corpus"
    assert not ingest([SAMPLES / "gpu_generated" / "rank1.json.gz"], corpus, workers=1).failed
    graph.replay(corpus, path=True)
    with lumos_df.connect(corpus) as connection:
        waits = rows(
            connection,
            "SELECT step, sum(waiting_unseen_ns)::BIGINT AS ns FROM collectives JOIN operators USING (trace_id, op_id) "
            "GROUP BY step ORDER BY step",
        )
        on_path = rows(
            connection,
            "SELECT step, sum(dur)::BIGINT AS ns FROM critical_path "
            "WHERE kind = 'wait' AND on_rank IS NULL AND family = 'communication' GROUP BY step ORDER BY step",
        )
    assert [row["step"] for row in on_path] == [2, 3, 4]
    for told, found in zip(waits, on_path, strict=True):
        assert 1_500_000 < told["ns"] < 2_000_000
        assert found["ns"] <= told["ns"]
        assert found["ns"] > 0.9 * told["ns"]


def some_work(rng: np.random.Generator) -> list[Event]:
    """Return random host work: operators in one another, calls in them, and silences."""
    events: list[Event] = []

    def inside(begin: int, end: int, depth: int) -> None:
        at = begin + int(rng.choice(PAUSES))
        while at < end - 2:
            lasts = min(int(rng.choice((2, 5, 40, 900, 5000))), end - at)
            if depth < 4 and rng.random() < 0.7:
                events.append(op(f"op{len(events)}", at, lasts))
                inside(at, at + lasts, depth + 1)
            elif lasts > 3:
                events.append(launch(at + 1, lasts - 2, len(events)))
            at += lasts + int(rng.choice(PAUSES))

    inside(1, 40_000, 0)
    return events


@pytest.mark.parametrize("seed", range(6))
def test_every_piece_of_host_work_goes_by_what_was_recorded_then(tmp_path: Path, seed: int) -> None:
    events = some_work(np.random.default_rng(seed))
    found = path_of(tmp_path, events, 41_000)
    (step, *recorded) = rows(lumos_df.connect(tmp_path / "corpus"), "FROM operators ORDER BY op_id")
    assert step["name"] == "ProfilerStep#1"
    recorded_end = {"ts": step["ts"] + step["dur"], "op_id": len(recorded) + 1, "name": "the end of the step"}
    at = int(step["ts"])
    assert {kind for kind, _, _ in found} == {"host"}
    for _, operator, us in found:
        begin, end = at, at + int(1000 * us)
        at = end
        ran = {
            row["op_id"]: min(row["ts"] + row["dur"], end) - max(row["ts"], begin)
            for row in recorded
            if row["ts"] < end and row["ts"] + row["dur"] > begin
        }
        if operator.startswith(SILENCE):
            assert not ran
            begins = [(row["ts"], row["op_id"], row["name"]) for row in [*recorded, recorded_end] if row["ts"] >= end]
            assert operator.removeprefix(SILENCE) == min(begins)[2]
        else:
            by_name = {row["op_id"]: row["dur"] for row in recorded if row["name"] == operator and row["op_id"] in ran}
            assert any(lasts >= end - begin and 2 * ran[key] >= end - begin for key, lasts in by_name.items())


def of_less(corpus: Path) -> dict[str, Any]:
    """Replay a corpus and count the pieces of its paths: all, silences, those that go by what took less than they."""
    graph.replay(corpus, path=True)
    query = f"""
        WITH longest AS (SELECT trace_id, name, max(dur) AS dur FROM operators GROUP BY ALL)
        SELECT count(*) AS pieces, count(*) FILTER (operator LIKE '{SILENCE}%') AS silent,
          count(*) FILTER (operator NOT LIKE '{SILENCE}%' AND (longest.dur IS NULL OR longest.dur < path.dur)) AS short
        FROM critical_path AS path
        LEFT JOIN longest ON longest.trace_id = path.on_trace_id AND longest.name = path.operator
        WHERE op_id IS NOT NULL
    """
    (found,) = rows(lumos_df.connect(corpus), query)
    return found


@pytest.mark.parametrize("share", [0.35, 0.55])
def test_no_piece_of_a_file_that_breaks_off_goes_by_an_operator_that_took_less(tmp_path: Path, share: float) -> None:
    """Calls and GPU rows come last in the file: an operator that waited stands there without what it waited for."""
    text = gzip.decompress((SAMPLES / "gpu_generated" / "rank0.json.gz").read_bytes())
    (tmp_path / "rank0.json").write_bytes(text[: int(share * len(text))])
    assert not ingest([tmp_path / "rank0.json"], tmp_path / "corpus", workers=1).failed
    found = of_less(tmp_path / "corpus")
    assert found["pieces"] > 100
    assert found["short"] == 0


def test_no_piece_of_a_real_trace_goes_by_an_operator_that_took_less(real_corpus: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    shutil.copytree(real_corpus, corpus)
    found = of_less(corpus)
    assert found["pieces"] > 100_000
    assert found["silent"] > 1000
    assert found["short"] == 0
