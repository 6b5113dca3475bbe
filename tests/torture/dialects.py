"""What profilers of 2024 and later write into a trace: categories, phases, args, headers, several processes."""

import random
from typing import Any, Final

_CATEGORIES: Final = (
    *("cuda_profiler_range", "overhead", "cuda_event", "cuda_sync", "collective_comm", "cpu_instant_event", "ac2g"),
    *("hpu_op", "xpu_runtime", "xpu_driver", "xpu_sync", "mtia_runtime", "mtia_ccp_events", "mtia_insight", "npu_op"),
    *("privateuse1_runtime", "privateuse1_driver", "glow_runtime", "gpu_user_annotation", "Trace", "python_function"),
)
_NAMES: Final = (
    *("ProfilerStep#1", "nccl:all_reduce", "## Call CompiledFxGraph fabc ##", "Torch-Compiled Region: 0/0", ""),
    *("triton_poi_fused_add_0", "CompiledFunctionBackward", "aten::mm", "Memcpy HtoD (Pageable -> Device)"),
    *("Activity Buffer Request", "Context Sync", "Command Buffer Full", "model.py(7): forward", "nn.Module: Linear_0"),
)
_PHASES: Final = "BEbnestfPCSTFpNODRcvVM(),"
_TRITON: Final[dict[str, Any]] = {
    "kernel_file": "/tmp/torchinductor_root/ab/cab.py",  # noqa: S108 - a text
    "kernel_hash": "cab",
    "kernel_backend": "triton",
    "kernel_kwargs": "XBLOCK=1024,RBLOCK=1",
    "num_warps": 4,
    "num_stages": 1,
    "grid": "grid(1024, 1, 1)",
    "stream": 7,
    "debug_handle": [1, 2],
    "Input Strides": [[1024, 1], []],
    "Concrete Inputs": ["", "1", "[1, 2]"],
    "Input type": ["float", "ScalarList"],
    "flops": 123456789012345678901,
    "Call stack": "a.py(1): f;b.py(2): g",
    "Ev Idx": 4,
    "Python parent id": None,
    "Python id": 2**63,
    "Python module id": -1,
    "warps per SM": "inf",
    "wait_on_cuda_event_id": -1,
    "wait_on_stream": -1,
    "sm__cycles_active.avg": "nan",
}
_HEADERS: Final[dict[str, tuple[Any, ...]]] = {
    "baseTimeNanoseconds": ("1727743122000000000", 1.727743122e18, -5, 2**63, None),
    "displayTimeUnit": ("ns", "ms", 7, None),
    "trace_id": ("", {"a": 1}),
    "with_flops": (1, "1"),
    "cuda_runtime_version": (12040, "x", None),
    "deviceProperties": ([{"id": "0", "numSms": "132"}, {"id": 1e3}, {}], {}),
    "distributedInfo": ({"rank": 0, "pg_count": "3", "nccl_version": (2, 21, 5), "pg_config": [{"pg_name": 0}]},),
}
_COMMUNICATION: Final[dict[str, tuple[Any, ...]]] = {
    # Kineto cuts long lists so, and keeps a text of them.
    "Process Group Ranks": ("[0, 1, 2, 3, ...]", "[0, 1, ..., 1023]", [0, 1], "[0, 0]", "[]", "[3, 2, 1, 0]"),
    "In split size": ("[1, 2, ...]", [1, 2], "", "[-1]", 7),
    "Out split size": ("[4294967296, 1]", [[1]], None),
    "Process Group Name": (0, "", "mesh_dp_cp", "5:tp", None),
    "Process Group Description": ("TENSOR_MODEL_PARALLEL_GROUP", "undefined", None),
    "Collective name": ("all_to_allv", "_allgather_base", "send", "recv", "wait", "gather", "coalesced", "", "x" * 300),
    "In msg nelems": (0, -1, 2**40, "12", 1.5),
    "Out msg nelems": (0, 2**62, None),
    "Group size": (1, 0, 2**31, "8"),
    "dtype": ("Float8_e4m3fn", "Float4_e2m1fn_x2", "BFloat16", "ComplexDouble", "Undefined", ""),
    "Src Rank": (0, -1, 7),
    "Dst Rank": (0, "3", 2**31),
    "Global rank start": (-1, 0, 2**32),
    "Global rank stride": (0, -1, 3),
    "Seq": (0, 2**63 - 1, "9", "(9, True)"),
    "Rank": (-1, 5, "x"),
    "comms id": (2**64 - 1, "0x7f"),
}
_COUNTERS: Final = ("GPU utilization", "gpu 0 power (W)", "Queue Length (stream 7)", "DCGM_FI_DEV_SM_ACTIVE", "")
_DEEP: Final = 1500
"""Calls in one another: more than any Python runs by default."""


def newer_events(document: dict[str, Any], choose: random.Random) -> None:
    """Put in some events that are of newer kinds, at moments of others."""
    events = document["traceEvents"]
    for _ in range(choose.choice((1, 5, 30))):
        beside = _event(events, choose)
        added = {key: beside.get(key) for key in ("pid", "tid", "ts")} | {
            "ph": choose.choice(f"XXX{_PHASES}"),
            "cat": choose.choice(_CATEGORIES),
            "name": choose.choice(_NAMES),
            "dur": choose.choice((0, 0.001, 5, 1e5)),
            "id": choose.choice((1, "0x7", None)),
        }
        if choose.random() < 0.7:
            own = beside.get("args")
            added["args"] = (own if isinstance(own, dict) else {}) | dict(choose.sample(sorted(_TRITON.items()), 5))
        events.insert(choose.randrange(len(events) + 1), added)


def newer_header(document: dict[str, Any], choose: random.Random) -> None:
    """Write a value of the file's top level as another version does, or leave it out."""
    key = choose.choice(sorted(_HEADERS))
    document[key] = choose.choice(_HEADERS[key])
    if choose.random() < 0.3:
        del document[key]


def deep_calls(document: dict[str, Any], choose: random.Random) -> None:
    """Put in Python calls that lie in one another."""
    events = document["traceEvents"]
    beside = _event(events, choose)
    first, inside = beside.get("ts"), {"ph": "X", "cat": "python_function", "pid": beside.get("pid")}
    if isinstance(first, int | float):
        inside["tid"] = beside.get("tid")
        calls = ({"ts": first + k, "dur": 2 * (_DEEP - k), "name": f"a.py({k}): f"} for k in range(_DEEP))
        events.extend(inside | call for call in calls)


def several_processes(document: dict[str, Any], choose: random.Random) -> None:
    """Put a part of the events in again, as another process had made them a while later."""
    events = [event for event in document["traceEvents"] if isinstance(event, dict)]
    later = choose.choice((0, 1, 1e6))
    for event in events[: choose.choice((100, 5000))]:
        again = event | {"pid": f"{event.get('pid')}7"}
        if isinstance(event.get("ts"), int | float):
            again["ts"] = event["ts"] + later
        document["traceEvents"].append(again)


def numbers_as_texts(document: dict[str, Any], choose: random.Random) -> None:
    """Write a number of each event as a text."""
    key = choose.choice(("ts", "dur", "pid", "tid"))
    for event in document["traceEvents"]:
        if isinstance(event, dict) and key in event:
            event[key] = str(event[key])


def graph_launches(document: dict[str, Any], choose: random.Random) -> None:
    """Let one launch be that of many GPU rows, as of a CUDA graph, and give these numbers of graph and node."""
    rows = [event for event in document["traceEvents"] if isinstance(event, dict) and _args(event).get("stream")]
    if not rows:
        return
    first = choose.randrange(len(rows))
    correlation, graph = _args(rows[first]).get("correlation"), choose.choice((0, 3, 2**40, -1, "3"))
    for node, row in enumerate(rows[first : first + choose.choice((2, 20, 300))]):
        _args(row).update({"graph id": graph, "graph node id": choose.choice((node, 0, 2**33, None))})
        _args(row)["correlation"] = choose.choice((correlation, correlation, correlation, 0, None))
    for event in document["traceEvents"]:
        if isinstance(event, dict) and _args(event).get("correlation") == correlation and "stream" not in _args(event):
            event["name"] = choose.choice(("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch", "cudaLaunchKernelExC"))


def communication_args(document: dict[str, Any], choose: random.Random) -> None:
    """Write of some collectives what newer versions say of them: lists cut short, groups of no name, other types."""
    named = [event for event in document["traceEvents"] if isinstance(event, dict) and "Group size" in _args(event)]
    for event in choose.choices(named, k=choose.choice((1, 10, 60))) if named else ():
        for key in choose.sample(sorted(_COMMUNICATION), k=choose.choice((1, 4))):
            _args(event)[key] = choose.choice(_COMMUNICATION[key])


def counters_and_flows(document: dict[str, Any], choose: random.Random) -> None:
    """Put in counters as agents beside a profiler write them, and arrows that are doubled, lost or lead back."""
    events = document["traceEvents"]
    for _ in range(choose.choice((1, 40))):
        beside = _event(events, choose)
        counted = {"ph": "C", "name": choose.choice(_COUNTERS), "ts": beside.get("ts"), "pid": beside.get("pid")}
        counted["args"] = choose.choice(({"value": 1}, {"a": 0.5, "b": 2**64}, {"value": "7"}, {"": None}, {}, 3))
        events.insert(choose.randrange(len(events) + 1), counted)
    arrows = [event for event in events if isinstance(event, dict) and event.get("ph") in ("s", "f")]
    for arrow in choose.choices(arrows, k=choose.choice((1, 30))) if arrows else ():
        change = choose.randrange(4)
        if change == 0:
            events.append(arrow | {"ts": choose.choice(arrows).get("ts")})
        elif change == 1:
            arrow["id"] = choose.choice((choose.choice(arrows).get("id"), "0x1f", -1, 2**63, None))
        elif change == 2:
            arrow["ph"] = choose.choice("sft")
        else:
            arrow["bp"] = choose.choice(("e", "x", None))


def _args(event: dict[str, Any]) -> dict[str, Any]:
    """Return the args of an event, or an empty dictionary where it has none that can be changed."""
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _event(events: list[Any], choose: random.Random) -> dict[str, Any]:
    return next((event for event in choose.choices(events, k=4) if isinstance(event, dict)), {}) if events else {}
