"""Advice, the report and the page on traces with little or nothing in them: what can be said, and no more."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lumos_df.advice.job_advice import advise
from lumos_df.advice.on_demand import prepare_page
from lumos_df.base.errors import CorpusError, QueryError
from lumos_df.cli.app import app
from lumos_df.corpus import report
from lumos_df.page.write import write as write_page
from lumos_df.trace.ingest import ingest
from tests.trace.literal import Event, annotation, write

SHAPELESS = {"Input Dims": [[2, 3], [], [None]], "Input type": ["float", "", ""]}


def row(name: str, category: str, ts: float, dur: float, **args: Any) -> Event:
    """Return an event of the host, or of stream 7; times in microseconds."""
    on_gpu = category == "kernel"
    where = {"stream": 7, "device": 0} if on_gpu else {}
    thread = {"pid": 0, "tid": 7} if on_gpu else {"pid": 1, "tid": 1}
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, **thread, "args": {**args, **where}}


def launched(operator: str, kernel: str, ts: float, correlation: int) -> list[Event]:
    return [
        row(operator, "cpu_op", ts, 20, **SHAPELESS),
        row("cudaLaunchKernel", "cuda_runtime", ts + 2, 3, correlation=correlation),
        row(kernel, "kernel", ts + 10, 25, correlation=correlation),
    ]


ODD: dict[str, list[Event]] = {
    "nothing": [],
    "no length": [row("aten::mm", "cpu_op", 0, 0)],
    "one operator": [row("aten::mm", "cpu_op", 0, 5)],
    "only a kernel": [row("gemm", "kernel", 0, 5, correlation=1)],
    "only marks": [annotation("ProfilerStep#1", 0, 100), annotation("ProfilerStep#2", 100, 100)],
    "shapes that say nothing": [
        annotation("ProfilerStep#1", 0, 1000),
        *launched("aten::bmm", "sgemm_128", 10, 5),
        *launched("aten::softmax", "softmax_forward", 60, 6),
        *launched("aten::bmm", "sgemm_128", 110, 7),
        annotation("Optimizer.step#Adam.step", 200, 50),
        row("cudaDeviceSynchronize", "cuda_runtime", 300, 5, correlation=9),
    ],
}


def test_that_no_gpu_row_was_recorded_is_said_once(tmp_path: Path) -> None:
    write(tmp_path / "job" / "rank0.json", ODD["one operator"], distributedInfo={"rank": 0, "world_size": 1})
    ingest([tmp_path / "job"], tmp_path / "corpus", workers=1)
    (said,) = advise(tmp_path / "corpus")
    assert [text for text in (*said.said_first, *said.warnings) if "no GPU" in text] == [
        "only the host is known: no GPU row was recorded"
    ]


@pytest.mark.parametrize("name", ODD)
def test_what_can_be_said_is_said(name: str, tmp_path: Path) -> None:
    about = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 0}]}
    write(tmp_path / "job" / "rank0.json", ODD[name], distributedInfo={"rank": 0, "world_size": 1}, **about)
    corpus = tmp_path / "corpus"
    assert not ingest([tmp_path / "job"], corpus, workers=1).failed
    if ODD[name]:
        (advised,) = advise(corpus)
        assert (advised.job, advised.ranks) == ("job", 1)
        assert all(advice.low_ns <= advice.gain_ns <= advice.high_ns for advice in advised.advice)
    else:
        with pytest.raises(CorpusError, match="nothing to replay: no operator, call or GPU row was recorded"):
            advise(corpus)
    said: list[str] = []
    prepare_page(corpus, said.append)
    write_page(corpus, tmp_path / "page.html")
    assert report.summary(corpus).jobs[0].job == "job"


def test_a_job_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    write(tmp_path / "job" / "rank0.json", ODD["one operator"], distributedInfo={"rank": 0, "world_size": 1})
    ingest([tmp_path / "job"], tmp_path / "corpus", workers=1)
    with pytest.raises(QueryError, match=r"no job 'jop'; did you mean 'job'\?"):
        advise(tmp_path / "corpus", "jop")


def test_an_empty_corpus_says_how_to_fill_it(tmp_path: Path) -> None:
    with pytest.raises(CorpusError):
        advise(tmp_path)


def test_where_nothing_can_be_advised_stands_what_the_step_is_made_of(tmp_path: Path) -> None:
    reduces = {**row("gloo:all_reduce", "user_annotation", 20, 70), "tid": 2}
    events = [annotation("ProfilerStep#1", 0, 100), reduces, row("aten::mm", "cpu_op", 300, 5)]
    write(tmp_path / "job" / "rank0.json", events, distributedInfo={"rank": 0, "world_size": 1})
    assert not ingest([tmp_path / "job"], tmp_path / "corpus", workers=1).failed
    lines = (
        CliRunner()
        .invoke(app, ["advise", "--corpus", str(tmp_path / "corpus")], env={"COLUMNS": "100"})
        .stdout.splitlines()
    )
    at = lines.index("its critical path is made of:")
    assert lines[at - 1] == "nothing found that makes the step at least 0.5% shorter"
    assert lines[at + 1].endswith("nothing recorded, before the end of the step (gloo:all_reduce ran 70.0 us of it)")


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("silent", [30, 900])
def test_beside_little_advice_on_a_host_that_works_stands_what_its_step_is_made_of(
    tmp_path: Path, silent: int, *, on_gpu: bool
) -> None:
    events, last = [], 1000 - silent
    for step, at in enumerate(range(0, 4000, 1000)):
        events += [annotation(f"ProfilerStep#{step}", at, 999), row("aten::mm", "cpu_op", at + 1, last // 2 - 2)]
        events += launched("aten::fill_", "fill", at + 10, step)[-2:] if on_gpu else []
        events.append(row("aten::relu", "cpu_op", at + last // 2 + silent, last // 2 - 2))
    write(tmp_path / "job" / "rank0.json", events, distributedInfo={"rank": 0, "world_size": 1})
    assert not ingest([tmp_path / "job"], tmp_path / "corpus", workers=1).failed
    screen = CliRunner().invoke(app, ["advise", "--corpus", str(tmp_path / "corpus")], env={"COLUMNS": "100"}).stdout
    assert "nothing recorded for" in screen
    # Nine tenths of the step in one advice say what it is about.
    assert ("its critical path is made of:" in screen) == (silent == 30)


def test_one_long_name_takes_the_room_of_one(tmp_path: Path) -> None:
    functions = [row(f"model.py({number}): f", "python_function", 10 * number, 5) for number in range(3000)]
    kernel = "void cutlass::gemm<" + "float, " * 3000
    events = [annotation("ProfilerStep#1", 0, 40_000), *functions, *launched("aten::mm", kernel, 31_000, 5)]
    write(tmp_path / "job" / "rank0.json", events)
    assert not ingest([tmp_path / "job"], tmp_path / "corpus", workers=1).failed
    tracemalloc.start()
    try:
        advise(tmp_path / "corpus")
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()
