"""What one step alone tells of what comes once."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos_df.graph.job import groups, load
from lumos_df.graph.rows import shape_codes
from lumos_df.graph.stalls import find, without
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.trace.ingest import ingest

_LONG_US = 2_000
_HUGE_US = 1_000_000


def operator(name: str, ts: int, dur: int, shape: list[int]) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "dur": dur,
        "args": {"Input Dims": [shape], "Input type": ["float"]},
    }


def launch(ts: int, number: int, name: str = "cudaLaunchKernel", dur: int = 5) -> list[dict[str, Any]]:
    call = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}
    if name != "cudaLaunchKernel":
        return [{**call, "args": {}}]
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": ts + 10, "dur": 5}
    args = {"correlation": number}
    return [{**call, "args": args}, {**kernel, "args": {**args, "device": 0, "stream": 7}}]


def recorded(
    folder: Path,
    *,
    slow: int,
    huge: int = -1,
    where: str = "inside",
    mallocs: int = 0,
    books: int = 0,
    free: bool = False,
    graphs: Sequence[int] = (),
) -> TraceGraph:
    """Return one step of forty operators, of shapes that come twice each.

    What `slow` launches takes 2 ms longer, what `huge` launches 1 s. The first `mallocs` get memory, and what they
    launch comes `books` us later. The operators `graphs` make a graph.
    """
    events, ts = [], 0
    for number in range(40):
        malloc = number < mallocs
        late = {slow: _LONG_US, huge: _HUGE_US}.get(number, books * malloc)
        if where == "between":
            ts, late = ts + late, 0
        events.append(operator("aten::mm", ts, 90 + late, [8, 8 + number % 20]))
        events += launch(ts + 40 + late, number + 1)
        if number in graphs:
            events += launch(ts + 60 + late, 0, "cudaGraphInstantiateWithFlags", 20)
        if malloc:
            events += launch(ts + 60 + late, 0, "cudaMalloc", 20)
        ts += 100 + late + 20 * malloc
    events += launch(ts + 10, 0, "cudaFree", 5) if free else []
    folder.mkdir()
    (folder / "trace.json").write_text(json.dumps({"traceEvents": events}))
    ingest([folder / "trace.json"], folder / "corpus", workers=1)
    return load(folder / "corpus", groups(folder / "corpus")[0]).graphs[0]


def lost_us(graph: TraceGraph, folder: Path, *beside: TraceGraph) -> float:
    found = find(graph, shape=shape_codes(folder / "corpus", graph.rows.trace_id), beside=beside)
    return float(found.over.sum()) / 1000


@pytest.mark.parametrize(
    ("slow", "where", "lost"),
    [
        # The first call with these shapes plans; the second one does nothing that the first had not done.
        pytest.param(7, "inside", _LONG_US, id="first call"),
        pytest.param(27, "inside", 0, id="second call"),
        # A data loader that comes in every step looks just so.
        pytest.param(7, "between", 0, id="between operators"),
    ],
)
def test_a_stretch_inside_a_first_call_comes_once(tmp_path: Path, slow: int, where: str, lost: float) -> None:
    graph = recorded(tmp_path / "job", slow=slow, where=where)
    assert lost_us(graph, tmp_path / "job") == pytest.approx(lost, rel=0.05)


@pytest.mark.parametrize(
    ("graphs", "lost"),
    [
        pytest.param((27,), _LONG_US, id="one call of two"),
        # Who makes a graph in every call does so in every step.
        pytest.param((7, 27), 0, id="both calls"),
        pytest.param((28,), 0, id="another operator"),
    ],
)
def test_a_call_that_makes_a_graph_which_others_launch_comes_once(
    tmp_path: Path, graphs: tuple[int, ...], lost: float
) -> None:
    graph = recorded(tmp_path / "job", slow=27, graphs=graphs)
    assert lost_us(graph, tmp_path / "job") == pytest.approx(lost, rel=0.05)


def test_a_huge_stall_hides_no_smaller_one(tmp_path: Path) -> None:
    graph = recorded(tmp_path / "job", slow=7, huge=3)
    assert lost_us(graph, tmp_path / "job") == pytest.approx(_HUGE_US + _LONG_US, rel=0.0005)


def test_what_stalled_in_the_only_step_takes_what_its_like_take_not_the_longest_of_them(tmp_path: Path) -> None:
    graph = recorded(tmp_path / "job", slow=7, mallocs=4, books=800, free=True)
    found = find(graph, shape=shape_codes(tmp_path / "job" / "corpus", graph.rows.trace_id))
    assert found.longest.tolist() == [pytest.approx(880_000, rel=0.02)]
    _, lag = without(graph, found)
    assert lag[found.item].tolist() == [pytest.approx(95_000, rel=0.02)]
    assert np.count_nonzero(lag != graph.edges.lag) == 1


def test_a_stretch_that_no_other_size_has_comes_once(tmp_path: Path) -> None:
    graph = recorded(tmp_path / "job", slow=7, where="between")
    calm, late = (recorded(tmp_path / name, slow=at, where="between") for name, at in (("calm", -1), ("late", 5)))
    assert lost_us(graph, tmp_path / "job", calm) == pytest.approx(_LONG_US, rel=0.05)
    assert lost_us(graph, tmp_path / "job", calm, late) == 0


@pytest.mark.parametrize(
    ("loads", "again", "stalls"),
    [
        pytest.param(range(8), (), 8, id="first launches of many kernels"),
        # So long any launch takes that finds the queue full.
        pytest.param(range(8), (30,), 0, id="a second launch, too"),
        pytest.param((), (22, 24, 26), 0, id="second launches alone"),
    ],
)
def test_a_first_launch_loads_the_code_of_its_kernel(
    tmp_path: Path, loads: Sequence[int], again: Sequence[int], stalls: int
) -> None:
    late = {*loads, *again}
    events, ts = [], 0
    for number in range(40):
        call, kernel = launch(ts, number + 1, dur=5 + _LONG_US * (number in late))
        ts += call["dur"] + 15
        events += [call, {**kernel, "ts": ts, "name": f"kernel {number % 20}"}]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    ingest([tmp_path / "trace.json"], tmp_path / "corpus", workers=1)
    (graph,) = load(tmp_path / "corpus", groups(tmp_path / "corpus")[0]).graphs
    assert lost_us(graph, tmp_path) == pytest.approx(stalls * _LONG_US)


def test_memory_that_only_grows_comes_once(tmp_path: Path) -> None:
    grows = recorded(tmp_path / "grows", slow=-1, mallocs=40)
    assert lost_us(grows, tmp_path / "grows") == pytest.approx(40 * 20)
    found = find(grows, shape=np.full(len(grows.rows), -1, np.int32))
    assert set(found.longest.tolist()) == {0}
    freed = recorded(tmp_path / "freed", slow=-1, mallocs=40, free=True)
    assert lost_us(freed, tmp_path / "freed") == 0


def test_what_growing_memory_costs_beside_its_calls_goes_with_them(tmp_path: Path) -> None:
    grows = recorded(tmp_path / "grows", slow=-1, mallocs=10, books=30)
    # The call comes behind the launch of its operator: it belongs to the launch that follows.
    assert lost_us(grows, tmp_path / "grows") == pytest.approx(10 * 20 + 9 * 30)
    # Where the same work comes before every launch, growing has no part in it.
    every = recorded(tmp_path / "every", slow=-1, mallocs=40, books=30)
    assert lost_us(every, tmp_path / "every") == pytest.approx(40 * 20)
