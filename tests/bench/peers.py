"""What lumos-df is measured against, each run in a process of its own: `python peers.py NAME FILE` prints seconds."""

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


if __name__ == "__main__":
    print({"msgspec": msgspec, "hta": hta}[sys.argv[1]](sys.argv[2]))
