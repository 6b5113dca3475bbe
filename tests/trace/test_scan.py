"""The scanner against Python's own JSON reader: on real traces, on random valid events, on broken files."""

import gzip
import io
import json
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.base.errors import TraceError
from lumos_df.schema.codes import NULL
from lumos_df.trace.json import keys, scanned
from lumos_df.trace.json.file_columns import ScannedTrace
from lumos_df.trace.json.reader import read_trace
from lumos_df.trace.stored_file import StoredFile


def read(data: bytes, chunk_bytes: int = 1 << 16) -> tuple[ScannedTrace, dict[int, str]]:
    """Return the trace and the raw args of each event; they are looked at when all is read, as a sink may do."""
    given: list[tuple[Any, ...]] = []
    raw = read_trace(
        StoredFile(io.BytesIO(data), "trace.json"), lambda *arrays: given.append(arrays), chunk_bytes=chunk_bytes
    )
    args: dict[int, str] = {}
    for events, offsets, text in given:
        for event, start, end in zip(events.tolist(), offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            args[event] = text[start:end].tobytes().decode(errors="replace")  # where it is stored, too
    return raw, args


def nanoseconds(microseconds: str | float | Decimal) -> int:
    return int((Decimal(str(microseconds)) * 1000).quantize(Decimal(1), ROUND_HALF_UP))


def text(raw: ScannedTrace, number: int) -> str | None:
    return None if number < 0 else raw.strings[number]


def same_as_json(raw: ScannedTrace, args: dict[int, str], events: list[Any]) -> None:
    """Compare every column of every event with what `json` read."""
    operators = [(k, event) for k, event in enumerate(events) if event.get("ph") == "X" and "ts" in event]
    assert raw.counts[scanned.EVENTS] == len(events)
    assert raw.narrow[scanned.NARROW_EVENT].tolist() == [k for k, _ in operators]
    assert raw.wide[scanned.WIDE_TS].tolist() == [nanoseconds(event["ts"]) for _, event in operators]
    assert raw.wide[scanned.WIDE_DUR].tolist() == [max(0, nanoseconds(event.get("dur", 0))) for _, event in operators]
    for column, key in ((scanned.NARROW_NAME, "name"), (scanned.NARROW_CATEGORY, "cat")):
        assert [text(raw, number) for number in raw.narrow[column].tolist()] == [
            event.get(key) for _, event in operators
        ]
    inside = [event.get("args", {}) for _, event in operators]
    for values, names in (
        (raw.wide[scanned.WIDE_CORRELATION], ("correlation",)),
        (raw.wide[scanned.WIDE_EXTERNAL_ID], ("External id", "external id")),
    ):
        assert values.tolist() == [next((a[name] for name in names if name in a), NULL) for a in inside]
    for column, key in ((scanned.NARROW_INPUT_DIMS, "Input Dims"), (scanned.NARROW_GRID, "grid")):
        # What JSON writes as a text is that text: Triton's launchers write how they find their grid.
        texts = [text(raw, number) for number in raw.narrow[column].tolist()]
        stated = [a.get(key) for a in inside]
        assert [
            said if isinstance(value, str) or said is None else json.loads(said)
            for said, value in zip(texts, stated, strict=True)
        ] == stated
    assert {k: json.loads(one) for k, one in args.items()} == {
        k: e["args"] for k, e in enumerate(events) if "args" in e
    }


def test_real_traces_read_as_json_reads_them(real_trace: Path) -> None:
    data = gzip.decompress(real_trace.read_bytes())
    document = json.loads(data, parse_float=Decimal)
    events = document if isinstance(document, list) else document["traceEvents"]
    raw, args = read(data, chunk_bytes=1 << 20)
    plain = json.loads(data)
    plain_events = plain if isinstance(plain, list) else plain["traceEvents"]
    for event, exact in zip(plain_events, events, strict=True):
        event.update({key: exact[key] for key in ("ts", "dur") if key in exact})
    same_as_json(raw, args, plain_events)
    assert not raw.truncated
    assert raw.counts[[scanned.NUMBERS, scanned.CONTROLS, scanned.UTF8, scanned.NOT_OBJECTS]].sum() == 0


words = st.text(st.characters(codec="utf-8"), max_size=40)
numbers = st.integers(-(10**6), 10**12)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=8,
)
known_args = st.fixed_dictionaries(
    {},
    optional={
        "correlation": numbers,
        "External id": numbers,
        "Input Dims": st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3),
        "grid": st.lists(st.integers(1, 9), min_size=3, max_size=3),
        "stream": st.integers(0, 100),
        "est. achieved occupancy %": st.integers(0, 100),
    },
)
other_args = st.dictionaries(words.filter(lambda key: key not in keys.KEYS), values, max_size=4)
events = st.fixed_dictionaries(
    {
        "ph": st.sampled_from("XXXXsfiM"),
        "ts": st.decimals(0, 10**15, places=3) | st.integers(0, 10**15),
        "name": words,
        "cat": st.sampled_from(["cpu_op", "kernel", "fwdbwd", "x"]) | words,
    },
    optional={
        "dur": st.decimals(0, 10**9, places=3),
        "pid": st.integers(-5, 5) | words,
        "tid": st.integers(-5, 5) | words,
        "id": numbers,
        "args": st.builds(lambda known, other: {**other, **known}, known_args, other_args),
    },
)


def written(event: dict[str, Any], draw: st.DataObject) -> str:
    """Write one event with its keys in any order and any white space; decimals as decimals, sometimes in quotes."""
    space = st.sampled_from(["", " ", "\n    ", "\t"])
    ascii_only = draw.draw(st.booleans())

    def value(part: Any) -> str:
        if isinstance(part, Decimal):
            return draw.draw(st.sampled_from([f"{part}", f'"{part}"']))
        return json.dumps(part, ensure_ascii=ascii_only)

    order = draw.draw(st.permutations(list(event)))
    gap = draw.draw(space)
    inner = f",{gap}".join(f"{json.dumps(key)}{gap}:{draw.draw(space)}{value(event[key])}" for key in order)
    return f"{{{gap}{inner}{gap}}}"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(events, min_size=1, max_size=12),
    st.sampled_from([256, 1024, 1 << 16]),
    st.sampled_from(["object", "list"]),
    st.data(),
)
def test_random_events_read_as_json_reads_them(
    drawn: list[dict[str, Any]], chunk_bytes: int, shape: str, data: st.DataObject
) -> None:
    listed = ", ".join(written(event, data) for event in drawn)
    document = (
        f"[{listed}]"
        if shape == "list"
        else f'{{"schemaVersion": 1, "traceEvents": [{listed}], "end": {{"a": [1, "]"]}}}}'
    )
    raw, args = read(document.encode(), chunk_bytes)
    same_as_json(raw, args, drawn)
    assert (raw.truncated, raw.warnings) == (False, ())
    assert raw.metadata == ({} if shape == "list" else {"schemaVersion": 1, "end": {"a": [1, "]"]}})


def read_or_refuse(data: bytes) -> ScannedTrace | None:
    """Return the trace, or None for a refusal; any other exception is a fault."""
    try:
        return read(data, chunk_bytes=256)[0]
    except TraceError:
        return None


EXAMPLE = (
    b'{"schemaVersion": 1, "traceEvents": ['
    b'{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2, "args": {"External id": 1}},\n'
    b'{"ph": "X", "cat": "kernel", "name": "b\\u00e9", "pid": 0, "tid": 7, "ts": 2.25, "dur": 1, "args": {"grid": [1]}}'
    b'], "traceName": "t"}'
)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_cut_file_gives_every_complete_event(pack: Any) -> None:
    packed = pack(EXAMPLE)
    complete = [EXAMPLE.index(b"}},\n") + 2, EXAMPLE.index(b"}}]") + 2]
    for size in range(1, len(packed)):
        cut = packed[:size]
        if pack is bytes and size < complete[0]:
            with pytest.raises(TraceError, match=r"^trace\.json: ends"):
                read(cut, chunk_bytes=256)
            continue
        raw = read_or_refuse(cut)
        if raw:
            assert raw.truncated
            assert raw.warnings
        if pack is bytes:
            assert raw
            assert raw.counts[scanned.EVENTS] == sum(size >= end for end in complete)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_broken_files_give_events_or_one_line(data: st.DataObject) -> None:
    broken = bytearray(EXAMPLE)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(broken) - 1))
        broken[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    raw = read_or_refuse(bytes(broken))
    if raw:
        assert raw.counts[scanned.EVENTS] <= len(broken)


def event(body: str) -> bytes:
    return (
        b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 1, '
        + body.encode("latin-1")
        + b"}]}"
    )


@pytest.mark.parametrize(
    ("body", "place", "name", "args"),
    [
        (
            '"name": "a", "args": {"x": NaN, "y": [1, -Infinity], "z": Infinity}',
            scanned.NUMBERS,
            "a",
            {"x": None, "y": [1, None], "z": None},
        ),
        ('"name": "a\x01\n", "args": {"k\t": "v\x02"}', scanned.CONTROLS, "a\x01\n", {"k\t": "v\x02"}),
        ('"name": "caf\xe9", "args": {"k": "\xff"}', scanned.UTF8, "caf\ufffd", {"k": "\ufffd"}),
    ],
    ids=["numbers", "controls", "utf8"],
)
def test_what_json_forbids_is_repaired_and_counted(body: str, place: int, name: str, args: dict[str, Any]) -> None:
    raw, stored = read(event(body))
    assert raw.counts[place] == {scanned.NUMBERS: 3, scanned.CONTROLS: 4, scanned.UTF8: 2}[place]
    assert text(raw, int(raw.narrow[scanned.NARROW_NAME][0])) == name
    assert json.loads(stored[0]) == args
    assert not raw.truncated


@pytest.mark.parametrize(
    ("written_time", "expected"),
    [
        ("1712195495519689.047", 1712195495519689047),
        ("-1.5", -1500),
        ("0.0005", 1),
        ("0.00049", 0),
        ("1e3", 1_000_000),
        ('"12.25"', 12_250),
        ("7258118400000000", 7258118400000000000),
    ],
)
def test_times_keep_every_nanosecond(written_time: str, expected: int) -> None:
    data = f'[{{"ph": "X", "name": "a", "ts": {written_time}}}]'.encode()
    assert read(data)[0].wide[scanned.WIDE_TS].tolist() == [expected]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty file"),
        (b"  \n", "white space"),
        (b"hello", "not JSON"),
        (b"{}", "without traceEvents"),
        (b'{"traceEvent": [], "b": 1}', "did you mean 'traceEvent'"),
        (b'{"traceEvents": 3}', "not a list"),
        (b'{"schemaVersion": 1', "before traceEvents"),
        (b'{"traceEvents": [{"ph": "X"', "before its first event"),
        (gzip.compress(b"", mtime=0), "empty file"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_in_one_line(data: bytes, message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        read(data)
    assert str(caught.value).startswith("trace.json: ")
    assert "\n" not in str(caught.value)


def test_events_larger_than_the_buffer_are_read() -> None:
    long = "x" * 10_000
    data = json.dumps(
        {"traceEvents": [{"ph": "X", "name": long, "ts": 1, "args": {"k": long, "Input Dims": [[1]] * 500}}]}
    )
    raw, args = read(data.encode(), chunk_bytes=256)
    assert raw.strings[raw.narrow[scanned.NARROW_NAME][0]] == long
    assert json.loads(args[0]) == {"k": long, "Input Dims": [[1]] * 500}


def test_many_distinct_names_are_kept_apart() -> None:
    names = [f"name {k}" for k in range(30_000)]
    data = json.dumps([{"ph": "X", "name": name, "ts": k} for k, name in enumerate(names)]).encode()
    raw, _ = read(data)
    assert [raw.strings[k] for k in raw.narrow[scanned.NARROW_NAME].tolist()] == names


@pytest.mark.parametrize("behind", [b"{}", b"x", b" \n" * 300 + EXAMPLE])
def test_what_follows_the_document_is_not_dropped_in_silence(behind: bytes) -> None:
    for document in (EXAMPLE, b'[{"ph": "X", "name": "a", "ts": 1}]'):
        raw, _ = read(document + behind, chunk_bytes=256)
        assert not raw.truncated
        assert "was not read" in raw.warnings[0]


def test_what_stands_between_values_may_change_at_any_event() -> None:
    spaces = ("", " ", "\n" + 30 * " ", 70 * " ")
    events = [
        {
            "ph": "X",
            "name": "n",
            "cat": "c",
            "pid": 1,
            "tid": 2,
            "ts": k,
            "dur": 3,
            "args": {f"key {k}": k, "stream": k},
        }
        for k in range(2 * scanned.PLACES)
    ]
    texts = (
        json.dumps(event, separators=(f"{spaces[k % 4]},", f":{spaces[k // 4 % 4]}")) for k, event in enumerate(events)
    )
    raw, args = read(f'{{"traceEvents": [{",".join(texts)}]}}'.encode())
    same_as_json(raw, args, events)
    assert raw.wide[scanned.WIDE_STREAM].tolist() == list(range(2 * scanned.PLACES))


def test_joined_gzip_members_are_one_file() -> None:
    half = len(EXAMPLE) // 2
    raw, _ = read(gzip.compress(EXAMPLE[:half]) + gzip.compress(EXAMPLE[half:]))
    assert raw.counts[scanned.EVENTS] == 2
    assert not raw.truncated
