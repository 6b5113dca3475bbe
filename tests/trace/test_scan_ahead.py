"""Blocks that are scanned beside one another say what one scan of the whole file says, wherever they are cut."""

import gzip
import io
import json
import threading
from collections import Counter
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.base.errors import TraceError
from lumos_df.trace.json import scan_ahead, scanned
from lumos_df.trace.json.block_scanner import BlockScanner
from lumos_df.trace.json.file_columns import ScannedTrace
from lumos_df.trace.json.reader import read_trace
from lumos_df.trace.stored_file import StoredFile


def read(data: bytes, cpus: int, chunk_bytes: int) -> Any:
    """Return all that is known of a file: its trace, the args of each event and its size, or why it is refused."""
    file = StoredFile(io.BytesIO(data), "trace.json")
    args: dict[int, bytes] = {}

    def sink(events: Any, offsets: Any, text: Any) -> None:
        ends = zip(events.tolist(), offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        args.update({event: text[start:end].tobytes() for event, start, end in ends})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_ahead, "available_cpus", lambda: cpus)
        try:
            trace = read_trace(file, sink, chunk_bytes=chunk_bytes)
        except TraceError as error:
            return str(error)
    file.drain()
    return trace, args, file.content_bytes


def same(value: Any, other: Any) -> bool:
    """Return whether two values are equal, and arrays in them element by element."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype == other.dtype and np.array_equal(value, other, equal_nan=value.dtype.kind == "f"))
    if isinstance(value, ScannedTrace) and isinstance(other, ScannedTrace):
        return all(same(getattr(value, field.name), getattr(other, field.name)) for field in fields(value))
    if isinstance(value, dict):
        return list(value) == list(other) and all(same(one, other[key]) for key, one in value.items())
    if isinstance(value, tuple) and isinstance(other, tuple):
        return len(value) == len(other) and all(map(same, value, other))
    return bool(value == other)


traps = st.sampled_from(
    [
        "},{",
        '"},\n{"',
        '\\"}, {\\"ph\\": \\"X\\"',
        "}, {",
        "]}, {",
        "\\\\",
        "é",
        "\x01",
        "aten::add",
        "ncclAllReduce",
        "\ud800",
    ]
)
words = st.lists(traps, max_size=4).map("".join)
values = st.recursive(
    st.integers(-5, 10**6) | words | st.just(float("nan")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
known = st.fixed_dictionaries(
    {},
    optional={
        "correlation": st.integers(0, 99),
        "stream": st.integers(0, 9),
        "Input Dims": st.lists(st.lists(st.integers(0, 3), max_size=2), max_size=2),
        "Collective name": words,
        "Sequence number": st.integers(0, 9),
        "rank": st.integers(0, 3),
    },
)
events = st.fixed_dictionaries(
    {"ph": st.sampled_from("XXXXCiMs"), "ts": st.integers(0, 10**6), "name": words},
    optional={
        "dur": st.integers(-1, 100),
        "cat": words,
        "pid": st.integers(0, 3) | words,
        "tid": st.integers(0, 3) | words,
        "args": st.builds(lambda some, other: {**other, **some}, known, st.dictionaries(words, values, max_size=3)),
    },
)


@settings(max_examples=100, deadline=None)
@given(st.lists(events, min_size=1, max_size=8), st.integers(0, 2**32 - 1), st.data())
def test_scanned_beside_one_another_is_scanned_in_order(drawn: list[Any], seed: int, data: st.DataObject) -> None:
    order = np.random.default_rng(seed).integers(len(drawn), size=data.draw(st.sampled_from([100, 400])))
    indent = data.draw(st.sampled_from([None, None, 2]))
    listed = ",\n".join(json.dumps(drawn[k], indent=indent, ensure_ascii=data.draw(st.booleans())) for k in order)
    behind = data.draw(
        st.sampled_from(["]", '], "more": [{"a": 1}, {"b": "}, {"}]', "", f'], "again": [{listed}]', "] {"])
    )
    document = data.draw(
        st.sampled_from(["[", '{"schemaVersion": 1, "traceEvents": [', f'{{"a": [{listed}], "traceEvents": ['])
    )
    text = bytearray((document + listed + behind + ("}" if document != "[" else "")).encode("utf-8", "surrogatepass"))
    for _ in range(data.draw(st.sampled_from([0, 0, 0, 1, 2]))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from([b"", b'"', b"}", b"{", b"\\", b"[", b"\0"])
        )
    whole = bytes(text[: data.draw(st.integers(1, len(text)))] if data.draw(st.booleans()) else text)
    if data.draw(st.booleans()):
        whole = gzip.compress(whole, 1)
        whole = whole[: data.draw(st.integers(1, len(whole)))] if data.draw(st.booleans()) else whole
    chunk_bytes = data.draw(st.sampled_from([512, 2048]))
    assert same(read(whole, 2, chunk_bytes), read(whole, 1, chunk_bytes))


def test_most_blocks_of_a_file_are_scanned_before_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    scan, threads = BlockScanner.scan, Counter[str]()

    def counted(self: BlockScanner, *args: Any) -> int:
        threads[threading.current_thread().name.split("_")[0]] += 1
        return scan(self, *args)

    monkeypatch.setattr(BlockScanner, "scan", counted)
    event = {"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1, "args": {"External id": 1}}
    document = json.dumps({"traceEvents": [event] * 2000}).encode()
    assert read(document, 2, chunk_bytes=8192)[0].counts[scanned.EVENTS] == 2000
    assert threads["lumos-df-scanner"] > 3 * threads["MainThread"]
    threads.clear()
    read(document, 1, chunk_bytes=8192)
    assert set(threads) == {"MainThread"}


@pytest.mark.parametrize("packed", [False, True])
def test_the_size_of_a_file_that_breaks_early_does_not_depend_on_how_far_was_read_ahead(*, packed: bool) -> None:
    event = json.dumps({"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1})
    text = (f'{{"traceEvents": [{", ".join([event] * 200)}, {{1}}, ' + ", ".join([event] * 2000)).encode()
    stored = gzip.compress(text, 1) if packed else text
    sizes = {read(stored, cpus, chunk_bytes=512)[2] for cpus in (1, 2) for _ in range(20)}
    assert len(sizes) == 1
    assert sizes == {len(text)} or (packed and 0 < sizes.pop() - text.index(b"{1}") < 512)
