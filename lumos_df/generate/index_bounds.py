"""How large the integers in an operator's tensors may be, where they point into another one."""

from collections.abc import Callable
from typing import Any, Final

from lumos_df.generate.recorded_inputs import Inputs


def _rows(place: int) -> Callable[[Inputs], Any]:
    return lambda inputs: _dims(inputs, place)[0]


def _classes(place: int) -> Callable[[Inputs], Any]:
    return lambda inputs: _dims(inputs, place)[:2][-1]


def _value(place: int) -> Callable[[Inputs], Any]:
    return lambda inputs: (inputs[place] or {})["value"]


def _along(inputs: Inputs) -> Any:
    return _dims(inputs, 0)[(inputs[1] or {})["value"]]


def _dims(inputs: Inputs, place: int) -> list[int]:
    dims: list[int] = (inputs[place] or {})["dims"]
    return dims


_BOUNDS: Final[dict[str, Callable[[Inputs], Any]]] = {
    "embedding": _rows(0),
    "embedding_bag": _rows(0),
    "_embedding_bag": _rows(0),
    "embedding_dense_backward": _value(2),
    "embedding_backward": _value(2),
    "_embedding_bag_backward": _value(6),
    "_embedding_bag_dense_backward": _value(5),
    "_embedding_bag_sparse_backward": _value(5),
    "_embedding_bag_per_sample_weights_backward": _rows(1),
    "cross_entropy_loss": _classes(0),
    "nll_loss": _classes(0),
    "nll_loss_nd": _classes(0),
    "nll_loss_forward": _classes(0),
    "nll_loss_backward": _classes(1),
    "gather": _along,
    "index_select": _along,
    "index": lambda inputs: min(_dims(inputs, 0)[: len((inputs[1] or {})["list"])]),
}


def index_bound(name: str, inputs: Inputs) -> int | None:
    """Return what integers stay below, so that each is a legal index; None where that is not known."""
    try:
        return int(_BOUNDS[name.removeprefix("aten::")](inputs))
    except (KeyError, IndexError, TypeError, ValueError):
        return None
