"""Changes to a job: what they touch, by how much, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from lumos_df.base.errors import QueryError
from lumos_df.graph import switches
from lumos_df.graph.event_graph import run
from lumos_df.graph.gains import gains
from lumos_df.graph.host_work import host_work
from lumos_df.graph.job import Job, build, groups, load
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import COLLECTIVE, HANDOFF, LAUNCH, STREAM, THREAD
from lumos_df.trace.ingest import ingest
from tests.trace.literal import annotation, kernel, launch, op, write, x


def test_a_collective_is_scaled_once_whatever_the_number_of_its_ranks(generated: Job) -> None:
    for text in ("family=communication:0.5", "kind=gpu:0.5", "name~^nccl:0.5"):
        changed = switches.changed(generated.event_graph, generated.graphs, [switches.scale(text)])
        assert changed.transfer == pytest.approx(generated.event_graph.transfer / 2, abs=1), text


def test_two_changes_to_the_same_work_multiply(generated: Job) -> None:
    once = [switches.scale(text) for text in ("kind=host:0.5", "family=communication:0.5")]
    twice = [switches.scale(text) for text in ("kind=host:0.25", "family=communication:0.25")]
    a, b = (switches.changed(generated.event_graph, generated.graphs, changes) for changes in (once + once, twice))
    assert a.lag == pytest.approx(b.lag, abs=1)
    assert a.own == pytest.approx(b.own, abs=1)
    assert a.transfer == pytest.approx(b.transfer, abs=1)


def test_nobody_waits_for_a_collective_that_was_dropped(generated: Job) -> None:
    changed = switches.changed(generated.event_graph, generated.graphs, [switches.drop("family=communication")])
    assert (changed.instance < 0).all()
    kernels = np.flatnonzero(generated.event_graph.instance >= 0)
    result = run(changed)
    assert (result.end[kernels] == result.start[kernels]).all()
    low, high = generated.event_graph.base[:2]
    job = build([generated.graphs[0].rows])
    alone = switches.changed(job.event_graph, job.graphs, [switches.drop("family=communication")])
    by_itself, first = run(alone), alone.order[0]
    low, high = generated.event_graph.base[:2].tolist()
    together = result.end[low:high] - result.start[low + first]
    assert (together == by_itself.end - by_itself.start[first])[alone.order].all()


def test_a_dropped_kernel_leaves_no_latency_and_no_gap(generated: Job) -> None:
    graph = generated.graphs[0]
    changed = switches.changed(generated.event_graph, generated.graphs, [switches.drop("family=gemm")])
    gone = switches.selector("family=gemm").rows(graph)[graph.edges.dst]
    lag = changed.lag[: len(graph.edges)]
    assert gone[np.isin(graph.edges.kind, (LAUNCH, STREAM))].any()
    assert (lag[gone] <= 0).all()
    assert (lag[~gone] == graph.edges.lag[~gone]).all()


def test_an_operator_gains_no_more_than_it_takes(generated: Job) -> None:
    for graph in generated.graphs:
        job = build([graph.rows])
        (every,) = gains(job, job.replay(), [host_work(graph) for graph in job.graphs])
        names = [selector.field == "name" for selector in every.selectors]
        assert sum(names) > 10
        none, half, time = (column[names].sum(axis=1) for column in (every.none, every.half, every.time))
        assert (none <= time).all()
        assert (half <= time / 2 + 10).all()


def test_the_share_of_host_work_is_what_the_slow_twin_counts(generated: Job) -> None:
    graph = generated.graphs[2]
    marked = (np.random.default_rng(1).random(len(graph.rows)) < 0.3) & (graph.rows.thread >= 0)
    part = host_work(graph).share(marked)
    found = graph.edges
    assert set(found.kind[part > 0].tolist()) == {THREAD, HANDOFF}
    assert COLLECTIVE not in found.kind[part > 0]
    pass_of = {row: place for place, row in enumerate(graph.handoffs.target.tolist())}
    for edge in np.flatnonzero(np.isin(found.kind, (THREAD, HANDOFF)) & (found.lag > 0)).tolist():
        src, dst = int(found.src[edge]), int(found.dst[edge])
        atom = int(graph.atoms.of_row[src])
        begin, over = int(graph.atoms.ts[atom] + graph.atoms.dur[atom]), int(graph.rows.ts[dst])
        stop = woken = over
        if dst in pass_of:
            place = pass_of[dst]
            woken = int(graph.handoffs.woken[place])
            stop = int((graph.handoffs.idle if found.kind[edge] == THREAD else graph.handoffs.signal)[place])
            woken = max(woken, begin) if found.kind[edge] == THREAD else woken
        worked = covered(graph.rows, marked, int(graph.rows.thread[src]), begin, stop)
        worked += covered(graph.rows, marked, int(graph.rows.thread[dst]), woken, over)
        assert part[edge] == pytest.approx(min(worked / found.lag[edge], 1))


def covered(rows: Rows, marked: np.ndarray, thread: int, low: int, high: int) -> int:
    """Count the time in [low, high] in which a marked row ran on a thread."""
    total, until = 0, low
    for row in np.flatnonzero(marked & (rows.thread == thread)).tolist():
        begin, end = max(int(rows.ts[row]), until), min(int(rows.end[row]), high)
        if end > begin:
            total, until = total + end - begin, end
    return total


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gemm:0.5", "write family=NAME"),
        ("family=gem:0.5", "did you mean 'gemm'"),
        ("kind=hots:0.5", "did you mean 'host'"),
        ("family~gemm:0.5", "only names take a pattern"),
        ("name~(:0.5", "not a regular expression"),
        ("family=gemm:fast", "as in family=gemm:0.5"),
        ("family=gemm:-1", "at least 0"),
        ("rank=two:0", "a rank is a number"),
        ("rank=\N{SUPERSCRIPT TWO}:0", "a rank is a number"),
        ("name~a{99999999999}:0", "not a regular expression"),
    ],
)
def test_a_change_that_means_nothing_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(QueryError, match=says.replace("(", r"\(")) as refused:
        switches.scale(text)
    assert "\n" not in str(refused.value)


def test_a_pattern_that_a_later_python_may_read_otherwise_is_taken_as_it_is() -> None:
    assert switches.selector("name~[[a]").value == "[[a]"


def test_a_thread_is_held_against_the_same_thread_of_other_ranks(tmp_path: Path) -> None:
    """Two threads add numbers; on rank 1 the second of them does so 1.5 ms late, and after the first one."""
    for rank, late in ((0, 0), (1, 1500)):
        events = [
            annotation("ProfilerStep#1", 0, 2000),
            op("aten::add", 1, 10),
            op("aten::add", 1000, 10),
            op("aten::add", 20, 10, tid=2),
            op("aten::add", 100 + late, 10, tid=2),
        ]
        write(tmp_path / f"rank{rank}.json", events, distributedInfo={"rank": rank, "world_size": 2})
    corpus = tmp_path / "corpus"
    assert not ingest([tmp_path / "rank0.json", tmp_path / "rank1.json"], corpus, workers=1).failed
    job = load(corpus, groups(corpus)[0])
    awake = job.replay(switches.changed(job.event_graph, job.graphs, [switches.no_wait("rank=1")])).replays[1]
    assert (awake.start - awake.low).tolist()[1:] == [1_000, 20_000, 1_000_000, 100_000]


def test_a_program_begins_with_what_does_more_than_ask(tmp_path: Path) -> None:
    """A library asks for its settings when it is loaded; 94 ms later the program begins."""
    events = [
        x("cuModuleGetLoadingMode", "cuda_runtime", 0, 1, correlation=9),
        x("cudaMalloc", "cuda_runtime", 94_000, 5, correlation=10),
        launch(94_010, 10, correlation=1),
        kernel("gemm", 94_030, 100, correlation=1),
    ]
    write(tmp_path / "rank0.json", events)
    ingest([tmp_path], tmp_path / "corpus", workers=1)
    (replay,) = load(tmp_path / "corpus", groups(tmp_path / "corpus")[0]).replay().replays
    assert (replay.steps.high - replay.steps.low).tolist() == [130_000]


def test_a_watchdog_holds_no_trace_up(tmp_path: Path) -> None:
    events = [op("aten::mm", 0, 20), launch(5, 10, correlation=1), kernel("gemm", 20, 1000, correlation=1)]
    asks = [x("cudaEventQuery", "cuda_runtime", at, 1, tid=2, correlation=10 + at) for at in range(50, 1100, 100)]
    write(tmp_path / "rank0.json", events + asks)
    ingest([tmp_path], tmp_path / "corpus", workers=1)
    job = load(tmp_path / "corpus", groups(tmp_path / "corpus")[0])
    (recorded,) = job.replay().replays
    (faster,) = job.replay(switches.changed(job.event_graph, job.graphs, [switches.scale("family=gemm:0.5")])).replays
    assert (recorded.steps.high - recorded.steps.low).tolist() == [1_020_000]
    assert (recorded.high - recorded.low) - (faster.high - faster.low) == 500_000
