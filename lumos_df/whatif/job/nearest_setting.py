"""How a refusal ends: what to record, and which other setting is nearest to what was asked."""

from typing import Final

from lumos_df.base.errors import QueryError

KEPT: Final = "batch, dp, network and overlap keep each kernel's work, and need no shapes"
"""What can be asked of kernels of unknown work."""
_SHAPES: Final = "record it with record_shapes=True"
_LAYERS: Final = f"{_SHAPES} and with_modules=True, or name them with annotations layer=N"
_RECORD: Final = dict.fromkeys(("layers", "pp"), _LAYERS)
"""Of what shapes alone do not tell, the recording that does."""
_TOKENS: Final = "nearest is batch_scale=N, which grows every activation"
_SHARE: Final = "nearest is batch_scale=1/N, a rank's share of the work without its collectives"
_WORK: Final = "nearest is batch_scale=N: N times the work of each kernel"
_NEAREST: Final = {
    **dict.fromkeys(("seq", "micro_batch", "top_k", "capacity"), _TOKENS),
    **dict.fromkeys(("tp", "cp"), _SHARE),
    **dict.fromkeys(("hidden", "ffn", "heads", "kv_heads", "vocab", "layers"), _WORK),
}
"""Of settings that change the work of kernels, the one that needs no such size."""


def refusal(job: str, names: list[str], why: str, *, shapes: bool, known: str = "") -> QueryError:
    """Return the refusal of settings because the trace does not tell what they depend on.

    Args:
        job: what to call the job.
        names: the settings.
        why: what is not told.
        shapes: whether shapes of any operator were recorded.
        known: options that tell it; nothing where none does.
    """
    ways = [_RECORD.get(names[0], _SHAPES if not shapes else "lumos-df describe --corpus DIR says what is missing")]
    ways += [f"or tell it with {known}"] * bool(known)
    near = (_NEAREST.get(names[0], "") if shapes else KEPT) if names[0] in _NEAREST else ""
    return QueryError(
        f"{job}: {' and '.join(names)} cannot change, because {why}; {', '.join(ways)}{f'; {near}' if near else ''}"
    )
