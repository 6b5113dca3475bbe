"""What is known of an operator's inputs, as a plan says it: tensors, lists of them, values."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from lumos_df.schema.codes import NONE
from lumos_df.schema.dtypes import element_type

_NUMBER: Final = re.compile(r"-?(\d+(\.\d*)?(e[+-]?\d+)?|inf|nan)")
_WORDS: Final = {"None": None, "True": True, "False": False}
_TENSOR_FIELDS: Final = 6
"""Of a tensor in an execution trace: tensor, storage, offset, elements, bytes of one, device."""
_INTEGERS: Final = {8: "int64", 4: "int32", 2: "int16", 1: "bool"}
_HALF: Final = 2
"""Bytes of an element of the usual types of lists that are no float32."""
_NEED_A_LIST: Final = {"aten::index": 1, "aten::index_put_": 1, "aten::_index_put_impl_": 1, "aten::_unsafe_index": 1}
"""Operators whose list of optional tensors a profiler records as nothing, and its place."""

Inputs = list[dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class RecordedInputs:
    """What is known of an operator's inputs."""

    given: Inputs
    """Each {"dims", "strides", "dtype", "storage"}, {"list": [tensors]}, {"value"}, or None where nothing of it is
    known; strides and storage only where they are."""
    complete: bool
    """Whether every tensor is known, so that the operator can be called."""


def recorded_inputs(
    name: str, dims: str | None, types: str | None, strides: str | None, concrete: str | None, given: str | None
) -> RecordedInputs:
    """Return the inputs of an operator.

    Args:
        name: the operator's.
        dims, types, strides, concrete: JSON lists, as the profiler recorded them; the type of a list of tensors may be
            a list, too.
        given: JSON list of values, as an execution trace has them.
    """
    kinds, shapes = _list(types or ""), _list(dims or "")
    if dims is None or types is None or len(shapes) != len(kinds):
        return RecordedInputs([], complete=False)
    steps, texts, values = (_padded(text, len(kinds)) for text in (strides, concrete, given))
    dtypes = [kind.name for text in kinds if (kind := _element_type(str(text)))]
    floating = next((dtype for dtype in dtypes if "float" in dtype), dtypes[0] if dtypes else "float32")
    inputs: Inputs = []
    complete = True
    for place, kind in enumerate(kinds):
        if isinstance(kind, list):
            inputs.append({"list": _of_types(shapes[place], steps[place], kind)})
        elif kind == "TensorList":
            listed = _tensors(
                shapes[place], steps[place], values[place], floating, indices=_NEED_A_LIST.get(name) == place
            )
            inputs.append({"list": listed} if listed else None)
            complete &= bool(listed)
        elif _is_sparse(shapes[place], strides, steps[place]):
            inputs.append(None)
            complete = False
        elif known := _element_type(str(kind)):
            inputs.append(_tensor(shapes[place], steps[place], values[place], known.name))
        elif "::" in str(kind) or str(kind)[:1].islower():  # a tensor of a type that is not known here
            inputs.append(None)
            complete = False
        else:
            inputs.append(_value(texts[place], values[place]))
    if concrete is not None and kinds and inputs[0] is None and not kinds[0]:
        # What an operator works on, and no number or list, which would have a value: a tensor that was not described.
        complete = False
    needed = _NEED_A_LIST.get(name)
    if needed is not None:
        complete &= len(inputs) > needed and "list" in (inputs[needed] or {})
    return RecordedInputs(inputs, complete)


def tensors(inputs: Inputs) -> list[dict[str, Any]]:
    """Return all tensors of inputs, those in lists included."""
    given = [each for each in inputs if each]
    return [each for each in given if "dims" in each] + [each for many in given for each in many.get("list", ())]


def _element_type(kind: str) -> Any:
    """Return the element type of a tensor's type; None of a number's, which old profilers write as `Int`."""
    return None if kind[:1].isupper() else element_type(kind)


def _is_sparse(dims: Any, strides: str | None, of_tensor: Any) -> bool:
    """Return whether a tensor has sizes and, beside others that have them, no strides: what it holds is not told."""
    return bool(strides and dims and isinstance(dims, list) and of_tensor == [] and isinstance(dims[0], int))


def _tensor(dims: Any, strides: Any, given: Any, dtype: str) -> dict[str, Any]:
    tensor: dict[str, Any] = {"dims": dims, "dtype": dtype}
    if isinstance(strides, list) and len(strides) == len(dims) and dims:
        tensor["strides"] = strides
    if isinstance(given, list) and len(given) == _TENSOR_FIELDS:
        tensor["storage"] = given[1]
    return tensor


def _tensors(dims: Any, strides: Any, given: Any, dtype: str, *, indices: bool) -> list[dict[str, Any]]:
    """Return a list's tensors; none where it was recorded as a list without what is in it.

    Of the types of tensors in lists profilers say nothing: `dtype`, unless an execution trace says another size.
    """
    if not isinstance(dims, list) or not all(isinstance(each, list) for each in dims):
        return []
    steps, values = (
        each if isinstance(each, list) and len(each) == len(dims) else [None] * len(dims) for each in (strides, given)
    )
    return [
        _tensor(shape, step, value, _type_of_width(value, dtype, indices=indices))
        for shape, step, value in zip(dims, steps, values, strict=True)
    ]


def _of_types(dims: list[Any], strides: list[Any], types: list[str]) -> list[dict[str, Any]]:
    """Return a list's tensors, of types that torch has."""
    return [
        _tensor(shape, step, None, known.name)
        for shape, step, kind in zip(dims, strides, types, strict=True)
        if (known := element_type(kind))
    ]


def _type_of_width(given: Any, dtype: str, *, indices: bool) -> str:
    """Return an element type of the size that an execution trace says: of indices an integer or a mask."""
    width = given[4] if isinstance(given, list) and len(given) == _TENSOR_FIELDS else NONE
    if indices:
        return _INTEGERS.get(width, "int64")
    known = element_type(dtype)
    if width == NONE or known is None or known.bytes == width:
        return dtype
    return "bfloat16" if width == _HALF else _INTEGERS.get(width, dtype)


def _value(text: Any, given: Any) -> dict[str, Any] | None:
    if isinstance(text, str) and text and not text.startswith("["):
        if text in _WORDS:
            return {"value": _WORDS[text]}
        if not _NUMBER.fullmatch(text):
            return None  # a name, of a device or a reduction: the schema has a default
        return {"value": float(text) if re.search(r"[.en]", text) else int(text)}
    if isinstance(text, str) and text.startswith("["):
        listed = _list(text.replace("True", "true").replace("False", "false"))
        return {"value": listed} if all(isinstance(each, (int, float)) for each in listed) else None
    if isinstance(given, (bool, int, float)) or (
        isinstance(given, list) and given and not isinstance(given[0], (str, list))
    ):
        return {"value": given}
    return None


def _list(text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return []
    return value if isinstance(value, list) else []


def _padded(text: str | None, length: int) -> list[Any]:
    listed = _list(text) if text else []
    return (listed + [None] * length)[:length]
