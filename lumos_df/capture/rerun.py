"""Operators of a trace run again, one by one, with the same shapes, types and strides: their time now and then."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from lumos_df.capture.microbenchmarks import measured_device, seconds
from lumos_df.corpus import catalog
from lumos_df.schema import GPU_KINDS
from lumos_df.schema.dtypes import element_type

_NUMBER: Final = re.compile(r"-?\d+(\.\d*)?(e[+-]?\d+)?")

# Outermost ATen operators; where there is a GPU their time is that of the kernels launched inside.
_RECORDED: Final = f"""
WITH RECURSIVE outer_operator AS (
  SELECT called.trace_id, called.op_id, called.name, called.input_dims, called.input_types, called.dur, called.event
  FROM operators AS called
  LEFT JOIN operators AS around ON around.trace_id = called.trace_id AND around.op_id = called.parent_id
  WHERE called.kind = 'cpu_op' AND called.name LIKE 'aten::%' AND called.step IS NOT NULL
    AND called.input_dims IS NOT NULL AND (around.name IS NULL OR around.name NOT LIKE 'aten::%')
),
inside AS (
  SELECT trace_id, op_id AS root, op_id FROM outer_operator
  UNION ALL
  SELECT inside.trace_id, inside.root, operators.op_id
  FROM inside JOIN operators ON operators.trace_id = inside.trace_id AND operators.parent_id = inside.op_id
),
gpu AS (
  SELECT inside.trace_id, inside.root, sum(operators.dur)::BIGINT AS ns
  FROM inside JOIN operators ON operators.trace_id = inside.trace_id AND operators.op_id = inside.op_id
  WHERE operators.kind IN {GPU_KINDS}
  GROUP BY ALL
),
has_gpu AS (SELECT trace_id, kernels > 0 AS yes FROM traces)
SELECT
  outer_operator.name,
  outer_operator.input_dims,
  outer_operator.input_types,
  args.args ->> '$."Input Strides"' AS strides,
  args.args ->> '$."Concrete Inputs"' AS concrete,
  count(*)::BIGINT AS calls,
  median(if(has_gpu.yes, gpu.ns, outer_operator.dur)) AS recorded_ns
FROM outer_operator
JOIN args ON args.trace_id = outer_operator.trace_id AND args.event = outer_operator.event
JOIN has_gpu ON has_gpu.trace_id = outer_operator.trace_id
LEFT JOIN gpu ON gpu.trace_id = outer_operator.trace_id AND gpu.root = outer_operator.op_id
WHERE NOT has_gpu.yes OR gpu.ns > 0
GROUP BY ALL
ORDER BY calls * recorded_ns DESC, outer_operator.name, outer_operator.input_dims
"""


@dataclass(frozen=True)
class RerunOperator:
    """One operator with one set of inputs."""

    name: str
    """aten::mm, ..."""
    input_dims: str
    """JSON list of shapes."""
    input_types: str
    """JSON list of types."""
    calls: int
    """How often the trace has it."""
    recorded_ns: int
    """Median in the trace: of its kernels, or of the operator itself where the trace has no GPU."""
    replayed_ns: int | None
    """Here; null where it cannot be called from what the trace says."""
    ratio: float | None
    """Replayed over recorded."""
    reason: str | None
    """Why it could not be replayed."""


def rerun_operators(corpus: Path, most: int) -> list[RerunOperator]:
    """Return the `most` distinct operators that a corpus spends most time in, run again on this machine."""
    with catalog.connect(corpus) as connection:
        rows = connection.execute(f"{_RECORDED} LIMIT {most}").fetchall()
    return [_rerun(*row) for row in rows]


def _rerun(
    name: str, dims: str, types: str, strides: str | None, concrete: str | None, calls: int, recorded: float
) -> RerunOperator:
    taken, reason = None, None
    try:
        inputs = _inputs(json.loads(dims), json.loads(types), json.loads(strides or "[]"), json.loads(concrete or "[]"))
        with torch.no_grad():
            call = _call(name.removeprefix("aten::"), inputs)
            taken = round(seconds(call, measured_device()) * 1e9)
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
        reason = (str(error).splitlines() or ["unknown"])[0][:120]
    ratio = round(taken / recorded, 3) if taken is not None and recorded else None
    return RerunOperator(name, dims, types, calls, round(recorded), taken, ratio, reason)


def _call(name: str, inputs: list[Any]) -> Callable[[], object]:
    """Return a call of the first overload that takes the inputs. Raises `ValueError` where none does."""
    operator = getattr(torch.ops.aten, name)
    reason = "no overload has as many inputs"
    for overload in (getattr(operator, name_of_overload) for name_of_overload in operator.overloads()):
        wanted = overload._schema.arguments  # noqa: SLF001 - torch's only way to the names of arguments
        if len(wanted) != len(inputs):
            continue
        given = list(zip(wanted, inputs, strict=True))
        positional = [value for argument, value in given if not argument.kwarg_only]
        named = {argument.name: value for argument, value in given if argument.kwarg_only and value is not None}
        try:
            overload(*positional, **named)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            reason = str(error)
            continue
        return partial(overload, *positional, **named)
    raise ValueError(reason)


def _inputs(dims: list[Any], types: list[str], strides: list[Any], concrete: list[str]) -> list[Any]:
    """Return arguments like the recorded ones. Raises `ValueError` for a type that is not known here."""
    count = len(types)
    strides = strides + [[]] * (count - len(strides))
    concrete = concrete + [""] * (count - len(concrete))
    return [_input(*argument) for argument in zip(dims, types, strides, concrete, strict=True)]


def _input(dims: list[Any], kind: str, strides: list[Any], concrete: str) -> Any:
    dtype = element_type(kind)
    if dtype:
        return _tensor(dims, strides, getattr(torch, dtype.name))
    if kind in {"Scalar", "ScalarList", ""}:
        return _value(concrete)
    raise ValueError(f"inputs of type {kind} are not made here")


def _value(text: str) -> Any:
    words = {"": None, "None": None, "True": True, "False": False}
    if text in words:
        return words[text]
    if text.startswith("["):
        return json.loads(text)
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"input '{text}' is not made here")
    return float(text) if "." in text or "e" in text else int(text)


def _tensor(dims: list[int], strides: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor over a buffer that is just large enough: expanded and transposed ones included."""
    if len(strides) != len(dims):
        strides = list(torch.empty(dims, device="meta").stride())
    length = 1 + sum((size - 1) * stride for size, stride in zip(dims, strides, strict=True)) if all(dims) else 0
    if dtype.is_floating_point:
        buffer = torch.randn(length, device=measured_device(), dtype=torch.float32).to(dtype)
    else:
        buffer = torch.zeros(length, device=measured_device(), dtype=dtype)  # 0 is a legal index
    return buffer.as_strided(dims, strides)
