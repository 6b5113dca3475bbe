"""`lumos-df diff`: the rows add up to the difference exactly, and a known change is found where it was made."""

import csv
import io
import json
import sqlite3
from contextlib import closing
from itertools import combinations
from pathlib import Path

import pytest

from lumos_df.base.errors import QueryError
from lumos_df.corpus.catalog import connect
from lumos_df.corpus.diff import Grouping, diff
from lumos_df.estimate import store
from lumos_df.estimate.configuration import estimate
from lumos_df.structure.describe import describe
from lumos_df.trace.ingest import ingest
from tests.conftest import Run
from tests.emulator import Job, Profiler, simulate, write
from tests.emulator.hardware import kernel_ns
from tests.real import REAL
from tests.trace import nsight_files

STEPS = (2, 3)
GPU_KINDS = {"kernel", "memcpy", "memset"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two emulated jobs, of which the second has matrix products that take three times as long."""
    folder = tmp_path_factory.mktemp("diff")
    job = Job(ranks=1, layers=2, steps=len(STEPS))
    write(simulate(job), Profiler(memory=False, stacks=False), folder / "before")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tests.emulator.model.kernel_ns", lambda flops, *more: kernel_ns(flops, *more) * (3 if flops else 1)
        )
        write(simulate(job), Profiler(memory=False, stacks=False), folder / "after")
    assert not ingest([folder / "before", folder / "after"], folder / "corpus", workers=1).failed
    describe(folder / "corpus")
    return folder / "corpus"


def rows(corpus: Path, a: str, b: str, *by: Grouping) -> list[dict[str, object]]:
    found: list[dict[str, object]] = diff(corpus, a, b, by)[0].to_pylist()
    return found


def adds_up(found: list[dict[str, object]], groups: int) -> None:
    whole = found[0]
    assert (whole["what"], whole["value"]) == ("step", "step")
    names = {row["what"] for row in found[1:]}
    assert len(names) == groups
    for what in names:
        for column in ("a_ns", "b_ns", "difference_ns"):
            assert sum(int(str(row[column])) for row in found if row["what"] == what) == whole[column], (what, column)


def test_a_known_change_is_found_where_it_was_made(corpus: Path) -> None:
    found = rows(corpus, "before:2", "after:2")
    adds_up(found, len(Grouping))
    with connect(corpus) as connection:
        longer = connection.execute(
            "SELECT family, sum(CASE job WHEN 'after' THEN dur ELSE -dur END)::BIGINT AS longer_ns "
            "FROM operators JOIN traces USING (trace_id) WHERE kind = 'kernel' AND step = 2 GROUP BY family"
        ).fetchall()
    changed = {family: ns for family, ns in longer if family in {"gemm", "attention"}}
    families = {str(row["value"]): int(str(row["difference_ns"])) for row in found if row["what"] == "family"}
    assert next(iter(families)) == "gemm"
    assert {family: families[family] for family in changed} == changed
    others = {family: ns for family, ns in families.items() if family not in {*changed, "idle"}}
    assert len(others) > 3
    assert max(map(abs, others.values())) < 0.01 * changed["gemm"]
    operators = {str(row["value"]): int(str(row["difference_ns"])) for row in found if row["what"] == "operator"}
    assert sum(operators[name] for name in ("aten::mm", "aten::addmm") if name in operators) == changed["gemm"]
    assert {str(row["value"]) for row in found if row["what"] == "phase"} >= {"forward", "backward", "optimizer"}


def test_who_is_waited_for_is_a_cause(sample_corpus: Path) -> None:
    found = rows(sample_corpus, "gpu_generated:2", "gpu_generated:3", Grouping.CAUSE)
    adds_up(found, 1)
    with connect(sample_corpus) as connection:
        step = diff(sample_corpus, "gpu_generated:2", "gpu_generated:3")[1]
        told = connection.execute(
            "SELECT collective, sum(piece.waiting_ns)::BIGINT FROM step_piece AS piece "
            "JOIN operators USING (trace_id, op_id) "
            "WHERE trace_id = $1 AND piece.step = 2 AND waits_for = 2 GROUP BY collective",
            [step.trace_id],
        ).fetchall()
    waits = {row["value"]: row["a_ns"] for row in found if str(row["value"]).startswith("waiting for rank 2 in")}
    assert waits == {f"waiting for rank 2 in {collective}": ns for collective, ns in told}
    assert any(waits.values())


def test_a_step_does_not_differ_from_itself(corpus: Path) -> None:
    for row in rows(corpus, "before:3", "before:3"):
        assert row["difference_ns"] == 0
        assert row["a_ns"] == row["b_ns"]


def test_the_largest_difference_comes_first_in_each_grouping(corpus: Path) -> None:
    found = rows(corpus, "before", "after")
    for what in Grouping:
        sizes = [abs(int(str(row["difference_ns"]))) for row in found if row["what"] == what]
        assert sizes == sorted(sizes, reverse=True)


def test_a_trace_and_a_job_stand_for_their_step_of_median_duration(corpus: Path) -> None:
    with connect(corpus) as connection:
        steps = connection.execute("SELECT trace_id, step, dur FROM step WHERE job = 'before' ORDER BY dur").fetchall()
    trace_id, step, dur = steps[(len(steps) - 1) // 2]
    for name in ("before", trace_id, trace_id[:6]):
        _, side, _ = diff(corpus, name, "after")
        assert (side.trace_id, side.step, side.step_ns, side.candidates) == (trace_id, step, dur, len(STEPS))


@pytest.mark.parametrize(
    ("a", "message"),
    [
        ("befor", "no job or trace 'befor'; did you mean 'before'?"),
        ("", "no job or trace ''"),
        ("before:7", "'before' has no step 7; it has 2, 3"),
    ],
)
def test_what_is_not_there_is_refused(corpus: Path, a: str, message: str) -> None:
    with pytest.raises(QueryError) as refused:
        diff(corpus, a, "after")
    assert message in str(refused.value)


def test_the_command_writes_the_rows_and_tells_what_it_compared(corpus: Path, lumos: Run) -> None:
    said = lumos("diff", "before:2", "after", "--by", "family", "--format", "csv", "--corpus", str(corpus))
    assert said.returncode == 0
    table = list(csv.DictReader(io.StringIO(said.stdout)))
    assert {row["what"] for row in table} == {"step", "family"}
    assert "before:2: step 2 of rank 0" in said.stderr
    assert f"after: step {diff(corpus, 'before', 'after')[2].step} of rank 0" in said.stderr
    wrong = lumos("diff", "before", "after", "--by", "size", "--corpus", str(corpus))
    assert wrong.returncode == 2
    assert "write cause, layer, phase, family or operator" in wrong.stderr.replace("\n", " ")


def test_estimates_differ_from_each_other_and_from_traces_by_what_adds_up(corpus: Path, lumos: Run) -> None:
    plans = ("tp=2,pp=2,dp=2,batch=8,recompute=full", "dp=8,batch=8,zero=1")
    one, other = (store.write(corpus, estimate("llama-3-8b", "h100-sxm", plan)) for plan in plans)
    adds_up(rows(corpus, one, other), len(Grouping))
    mixed = rows(corpus, "before:2", one)
    adds_up(mixed, len(Grouping))
    assert mixed[0]["b_ns"] == round(estimate("llama-3-8b", "h100-sxm", plans[0]).answers["iteration_time_s"] * 1e9)
    layers = {row["value"] for row in rows(corpus, one, other, Grouping.LAYER)}
    assert layers == {"step", "outside the layers", *(f"layer {number}" for number in range(32))}
    phases = {row["value"]: row for row in rows(corpus, one, other, Grouping.PHASE)}
    assert int(str(phases["recompute"]["a_ns"])) > 0
    assert phases["recompute"]["b_ns"] == 0
    said = lumos("diff", one, other, "--by", "family", "--corpus", str(corpus))
    assert f"{one}: the step of {one}" in said.stderr
    for name, message in (
        ("estimate-", "2 estimates have an id that begins with 'estimate-'"),
        ("estimate-x", "no estimate 'estimate-x'"),
        (f"{one}:3", "is an estimate, whose steps are all alike; leave out ':3'"),
    ):
        with pytest.raises(QueryError, match=message):
            diff(corpus, name, "before")


def test_without_a_gpu_host_operators_differ(tmp_path: Path) -> None:
    """Worked out by hand: `linear` lasts 50 and holds `addmm`, which lasts 30, then 15 more, then 5 more."""
    events: list[dict[str, object]] = []
    for number, (at, product) in enumerate(((0, 30), (100, 45), (200, 35))):
        rest = product - 30
        events += [
            _event("user_annotation", f"ProfilerStep#{number}", at, 80 + rest),
            _event("cpu_op", "aten::linear", at + 10, 50 + rest),
            _event("python_function", "forward", at + 12, 40 + rest),
            _event("cpu_op", "aten::addmm", at + 15, product),
            # Another thread works when `addmm` has ended, so `linear` has only what came before.
            _event("cpu_op", "gloo", at + 40, 25 + rest, thread=2),
        ]
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "rank0.json").write_text(json.dumps({"traceEvents": events}))
    assert not ingest([tmp_path / "job"], tmp_path / "corpus").failed
    found = rows(tmp_path / "corpus", "job:0", "job:1")
    adds_up(found, len(Grouping))
    said = {row["value"]: (row["a_ns"], row["b_ns"]) for row in found if row["what"] == "operator"}
    assert said == {
        "idle before aten::linear": (10_000, 10_000),
        "aten::linear": (5_000, 5_000),
        "aten::addmm": (30_000, 45_000),
        "gloo": (20_000, 20_000),
        "idle before the end of the step": (15_000, 15_000),
    }
    families = {row["value"]: row["difference_ns"] for row in found if row["what"] == "family"}
    assert families == {"gemm": 15_000, "communication": 0, "idle": 0}
    of_a_step = {row["value"]: row["difference_pct"] for row in found if row["what"] in {"step", "family"}}
    assert of_a_step == {"step": 18.75, "gemm": 18.75, "communication": 0, "idle": 0}
    assert rows(tmp_path / "corpus", "job:1", "job:0")[0]["difference_pct"] == -15.789
    # Neither the first nor the last step, neither the shortest nor the longest.
    _, median, _ = diff(tmp_path / "corpus", "job", "job:0")
    assert (median.step, median.step_ns, median.candidates) == (2, 85_000, 3)


def _event(category: str, name: str, ts: float, dur: float, thread: int = 1) -> dict[str, object]:
    return {"ph": "X", "pid": 1, "tid": thread, "cat": category, "name": name, "ts": ts, "dur": dur, "args": {}}


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real traces at {REAL}; name their folder in LUMOS_TRACES")
def test_real_traces_add_up(tmp_path: Path) -> None:
    names = ("megatron_tp2_train", "single_gpu_ns", "rocm_mi300_resnet", "alexnet_cuda_sync", "cpu_only")
    assert not ingest([REAL / name for name in names], tmp_path / "corpus").failed
    for a, b in combinations(names, 2):
        adds_up(rows(tmp_path / "corpus", a, b), len(Grouping))


def test_one_job_as_kineto_and_as_nsight_wrote_it_differs_in_nothing(corpus: Path, tmp_path: Path) -> None:
    with connect(corpus) as connection:
        told = connection.sql(
            "SELECT kind, ts, ts + dur, coalesce(thread, 1), device, stream, correlation, name, sequence_number, "
            "input_dims FROM operators JOIN traces USING (trace_id) WHERE job = 'before' ORDER BY ts, op_id"
        ).fetchall()
    names = {name: number for number, name in enumerate(sorted({row[7] for row in told}))}
    ranges = [
        (*row[1:3], 1, row[3], f"{row[7]}, seq = {row[8] or -1}, op_id = 1" if row[0] == "cpu_op" else row[7])
        for row in told
        if row[0] in {"cpu_op", "annotation"}
    ]
    columns = "start, end, deviceId, streamId, correlationId, globalPid, demangledName"
    file = nsight_files.write(
        tmp_path / "job.sqlite",
        **{
            nsight_files.KERNELS: (
                columns,
                [(*row[1:3], *row[4:7], nsight_files.gid(1), names[row[7]]) for row in told if row[0] in GPU_KINDS],
            ),
            nsight_files.CALLS: nsight_files.calls(
                *((*row[1:3], 1, row[3], row[6], names[row[7]]) for row in told if row[0] == "runtime")
            ),
            "NVTX_EVENTS": nsight_files.ranges(*ranges),
        },
    )
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("DELETE FROM StringIds")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(number, name) for name, number in names.items()])
    both = tmp_path / "corpus"
    assert not ingest([corpus.parent / "before"], both, workers=1).failed
    assert not ingest([file], both, job="nsight", rank=0, workers=1).failed
    found = rows(both, "before", "nsight", Grouping.FAMILY, Grouping.OPERATOR, Grouping.PHASE)
    assert {row["difference_ns"] for row in found} == {0}
    assert {row["what"] for row in found} == {"step", "family", "operator", "phase"}
