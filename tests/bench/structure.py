"""How fast a trace is understood: `python -m tests.bench.structure`, on one core after the loops are compiled."""

import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from lumos_df.structure import labelled_rows, repetition
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.layers import understand
from lumos_df.structure.texts import Texts
from lumos_df.trace.ingest import ingest
from tests.bench.graph import repeat
from tests.bench.measure import claim
from tests.structure.made import Made, write

_TRIES = 3
"""Each time is the least of this many: what else the machine does only adds."""
_MILLION = 1_000_000
_LAYERS = 32


def longer(trace: Trace, times: int) -> Trace:
    """Return the trace several times, one run of it after another, each in steps of its own."""

    def tiled(texts: Texts) -> Texts:
        return Texts(np.tile(texts.code, times), texts.words)

    graph = repeat(trace.rows, times)
    steps = int(trace.rows.step.max()) + 1
    step = np.where(graph.step < 0, graph.step, graph.step + np.repeat(np.arange(times), len(trace)) * steps)
    return replace(
        trace,
        rows=replace(graph, step=step.astype(np.int32)),
        phase=np.tile(trace.phase, times),
        layer=np.tile(trace.layer, times),
        grid=tiled(trace.grid),
        block=tiled(trace.block),
        dims=tiled(trace.dims),
        types=tiled(trace.types),
        dtype=tiled(trace.dtype),
    )


def seconds(trace: Trace) -> float:
    """Return the time to find phase, layer and micro-batch of every operator."""
    least = float("inf")
    for _ in range(_TRIES):
        start = time.perf_counter()
        found = understand(trace)
        least = min(least, time.perf_counter() - start)
        assert found.layers == _LAYERS
    return least


def search(kernels: int) -> float:
    """Return the time to find the block in passes of layers of 40 kernels, with breaks between passes."""
    one = np.concatenate((np.arange(40, 60), np.tile(np.arange(40), _LAYERS), np.arange(60, 70), [-1]))
    symbols = np.resize(one, kernels).astype(np.int32)
    weight = (symbols == 7).astype(np.int64)
    start = time.perf_counter()
    found = repetition.find(symbols, weight)
    took = time.perf_counter() - start
    assert found is not None
    assert found.period == 40
    return took


def main() -> None:
    """Measure and print."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        write(Made(layers=_LAYERS, micro_batches=8), Path(folder) / "made")
        (done,) = ingest([Path(folder) / "made"], Path(folder) / "corpus", workers=1).done
        trace = labelled_rows.load(Path(folder) / "corpus", done.trace_ids[0])
    seconds(trace)  # compiles
    million = longer(trace, -(-_MILLION // len(trace)))
    took = seconds(million)
    claim("layers and micro-batches of a million operators", took * _MILLION / len(million), "s", 1)
    # Both sizes are beyond the caches: within them the smaller one would gain from those alone.
    least = [min(search(many) for _ in range(_TRIES)) / many for many in (3 * _MILLION, 30 * _MILLION)]
    claim("the search for the block, a million kernels of three", least[0] * _MILLION, "s", 0.2)
    claim("the same for ten times the kernels: time of each over that before", least[1] / least[0], "x", 1.3)


if __name__ == "__main__":
    main()
