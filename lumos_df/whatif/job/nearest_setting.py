"""How a refusal ends: what to record, and which other setting is nearest to what was asked."""

from collections.abc import Mapping
from typing import Final

from lumos_df.base.errors import QueryError

KEPT: Final = (
    "batch, hardware, network, overlap, and dp of what reduces gradients keep each kernel's work, and need no shapes"
)
"""What can be asked of kernels of unknown work."""
_SHAPES: Final = "record it with PyTorch's record_shapes=True"
_LAYERS: Final = f"{_SHAPES} and with_modules=True, or name them with annotations layer=N"
_RECORD: Final = dict.fromkeys(("layers", "pp"), _LAYERS)
"""Of what shapes alone do not tell, the recording that does."""
_TOKENS: Final = "nearest is batch_scale=N, which grows every activation"
_SHARE: Final = "nearest is batch_scale=1/N, a rank's share of the work without its collectives"
_WORK: Final = "nearest is batch_scale=N: N times the work of each kernel"
PLAIN: Final = "a model with experts can be estimated without a trace: --model, --hardware and --plan"
"""What can be asked of experts where the trace shows none."""
_RECORDED: Final = "nearest is the step as recorded, with the all-to-alls that it has"
_OPTIMIZER: Final = "nearest is --scale family=optimizer:F with F=1/dp, a rank's share of it without its collectives"
LASTING: Final = "nearest is --scale family=communication:F, by which it lasts F times as long"
"""What can be asked of communication that nothing tells the bytes of."""
_NEAREST: Final = {
    **dict.fromkeys(("seq", "micro_batch", "top_k", "capacity"), _TOKENS),
    **dict.fromkeys(("tp", "cp"), _SHARE),
    "pp": "nearest is batch_scale=1/N, a stage's share of the work without its sends and its waiting",
    **dict.fromkeys(("hidden", "ffn", "heads", "kv_heads", "vocab", "layers"), _WORK),
}
"""Of settings that change the work of kernels, the one that needs no such size."""
_WITHOUT_SHAPES: Final = {
    "ep": _RECORDED,
    "experts": "no other setting is near, since as many rows would meet other matrices",
    "zero": _OPTIMIZER,
}
"""Of settings that change something else, what is near whether or not shapes are recorded."""


def telling(sizes: Mapping[str, int | None]) -> str:
    """Return the options that tell those of some sizes which the trace does not."""
    return " ".join(f"--known {size}=N" for size, value in sizes.items() if not value)


def cannot(job: str, name: str, why: str, *, shapes: bool) -> QueryError:
    """Return the refusal of a setting that no recording of the job supports; the arguments are those of `refusal`."""
    return QueryError(f"{job}: {name} cannot change, because {why}; {_NEAREST[name] if shapes else KEPT}")


def refusal(
    job: str, names: list[str], why: str, *, shapes: bool, known: str = "", record: str = "", near: str = ""
) -> QueryError:
    """Return the refusal of settings because the trace does not tell what they depend on.

    Args:
        job: what to call the job.
        names: the settings.
        why: what is not told.
        shapes: whether shapes of any operator were recorded.
        known: options that tell it; nothing where none does. Kernels without shapes follow no size that is told.
        record: the recording that tells it, where it is another than of shapes.
        near: what else can be asked, where it is another thing than usually for that setting.
    """
    name = names[0]
    usual = "lumos-df describe --corpus DIR says what is missing" if shapes else _SHAPES
    ways = [record or _RECORD.get(name, usual)]
    ways += [f"or tell it with {known}"] * bool(known and (shapes or name not in _NEAREST or name in _RECORD))
    if name in _NEAREST:
        near = near or (_NEAREST[name] if shapes else KEPT)
    near = near or _WITHOUT_SHAPES.get(name, "")
    return QueryError(
        f"{job}: {' and '.join(names)} cannot change, because {why}; {', '.join(ways)}{f'; {near}' if near else ''}"
    )
