"""Small traces written out in a test, and what they become in a corpus."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lumos_df.corpus.catalog import connect
from lumos_df.trace.ingest import ingest
from tests.connection import Connection

Event = dict[str, Any]
Row = dict[str, Any]


def x(name: str, category: str, ts: float, dur: float, tid: int | str = 1, **args: Any) -> Event:
    """Return a complete event; times in microseconds. An argument `External_id` is written `External id`, and so on."""
    named = {key.replace("_", " ") if key[0].isupper() else key: value for key, value in args.items()}
    return {"ph": "X", "name": name, "cat": category, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": named}


def op(name: str, ts: float, dur: float, tid: int | str = 1, **args: Any) -> Event:
    return x(name, "cpu_op", ts, dur, tid, **args)


def launch(ts: float, dur: float, correlation: int, tid: int | str = 1, **args: Any) -> Event:
    return x("cudaLaunchKernel", "cuda_runtime", ts, dur, tid, correlation=correlation, **args)


def kernel(name: str, ts: float, dur: float, **args: Any) -> Event:
    return x(name, "kernel", ts, dur, 7, **{"device": 0, "stream": 7, **args})


def with_kernels(events: Sequence[Event], *names: str) -> list[Event]:
    """Return events with a kernel for each operator of these names, which lasts 10 us less and ends with it."""
    calling = [event for event in events if event["cat"] == "cpu_op" and event["name"] in names]
    launches = [launch(event["ts"] + 1, 2, number) for number, event in enumerate(calling, 1)]
    kernels = [
        kernel(f"{event['name']}_kernel", event["ts"] + 10, event["dur"] - 10, correlation=number)
        for number, event in enumerate(calling, 1)
    ]
    return [*events, *launches, *kernels]


def annotation(name: str, ts: float, dur: float, tid: int = 1) -> Event:
    return x(name, "user_annotation", ts, dur, tid)


def write(path: Path, events: Sequence[Any], **top: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, **top, "traceEvents": list(events)}))
    return path


def corpus_of(folder: Path, events: Sequence[Any], name: str = "rank0.json", **top: Any) -> Connection:
    """Ingest one trace of `events`; the rest of the file's top level is `top`."""
    result = ingest([write(folder / name, events, **top)], folder / "corpus", workers=1)
    assert not result.failed, result.failed
    return connect(folder / "corpus")


def rows(corpus: Connection, query: str) -> list[Row]:
    """Return a query's rows by column name."""
    found = corpus.execute(query)
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def operators(folder: Path, events: Sequence[Any], name: str = "rank0.json", **top: Any) -> list[Row]:
    """Return the operators of a trace of `events`, in their order, `parent` and `forward` being names."""
    found = rows(corpus_of(folder, events, name, **top), "SELECT * FROM operators ORDER BY op_id")
    for row in found:
        row["parent"] = None if row["parent_id"] is None else found[row["parent_id"]]["name"]
        row["forward"] = None if row["forward_id"] is None else found[row["forward_id"]]["name"]
    return found


def column(found: list[Row], name: str) -> dict[str, Any]:
    """Return one column of `found`, by the operators' names."""
    return {row["name"]: row[name] for row in found}


def stated(name: str, in_elements: int, out_elements: int, **more: Any) -> dict[str, Any]:
    """Return what a kernel of NCCL states about its collective."""
    return {
        "Collective_name": name,
        "In_msg_nelems": in_elements,
        "Out_msg_nelems": out_elements,
        "Group_size": 8,
        "dtype": "BFloat16",
        "Process_Group_Name": "3",
        **more,
    }
