"""What lumos-df is measured against, each run in a process of its own: `python peers.py NAME FILE` prints seconds."""

import importlib
import sys
import time
from pathlib import Path
from typing import Any


def msgspec(path: str) -> float:
    """CPU seconds in which msgspec decodes a trace into typed structs with raw args; reading the file not counted."""
    import msgspec as peer  # noqa: PLC0415  # each peer may be absent

    class Event(peer.Struct):
        ph: str
        name: str = ""
        cat: str = ""
        pid: int | str = 0
        tid: int | str = 0
        ts: float = 0
        dur: float = 0
        id: int | str = 0
        args: peer.Raw = peer.Raw()

    class Trace(peer.Struct):
        traceEvents: list[Event]  # noqa: N815  # Kineto's spelling

    data = Path(path).read_bytes()
    decoder = peer.json.Decoder(Trace)
    start = time.process_time()
    decoder.decode(data)
    return time.process_time() - start


def hta(folder: str) -> float:
    """Wall seconds of HTA's load and its four analyses that lumos-df's report views answer too."""
    from hta.trace_analysis import TraceAnalysis  # noqa: PLC0415  # as above

    start = time.perf_counter()
    analysis: Any = TraceAnalysis(trace_dir=folder)
    analysis.get_temporal_breakdown(visualize=False)
    analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False)
    analysis.get_comm_comp_overlap(visualize=False)
    return time.perf_counter() - start


def hta_path(folder: str) -> float:
    """Processor time of HTA's critical path an event of its graph (two nodes) in s; loading not counted."""
    from hta.trace_analysis import TraceAnalysis  # noqa: PLC0415  # as above

    pandas: Any = importlib.import_module("pandas")  # by name: it comes with HTA, and has no types
    drop = pandas.DataFrame.drop
    # HTA 0.5 names an axis beside the columns to drop, which pandas 3 refuses.
    pandas.DataFrame.drop = lambda frame, *a, axis=0, columns=None, **k: (
        drop(frame, *a, axis=axis, **k) if columns is None else drop(frame, *a, columns=columns, **k)
    )
    analysis: Any = TraceAnalysis(trace_dir=folder)
    names = analysis.t.symbol_table.get_sym_table()
    marks = sorted(name for name in names if name.startswith("ProfilerStep#"))
    start = time.process_time()
    graph, done = analysis.critical_path_analysis(0, "ProfilerStep", (0, len(marks) - 1))
    took = time.process_time() - start
    if not done:
        sys.exit("HTA found no critical path")
    return 2 * took / len(graph.nodes)


if __name__ == "__main__":
    print({"msgspec": msgspec, "hta": hta, "hta_path": hta_path}[sys.argv[1]](sys.argv[2]))
