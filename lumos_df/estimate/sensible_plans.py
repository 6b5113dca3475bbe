"""The plans that a planner would try for a model on some GPUs, without being told: blocks for a grid."""

from typing import Any, Final

from lumos_df.base.errors import LumosError
from lumos_df.model.hardware import Hardware
from lumos_df.model.transformer import Model
from lumos_df.schema.plan_words import RECOMPUTATIONS, RECOMPUTE_ATTENTION, RECOMPUTE_LAYERS, RECOMPUTE_NOTHING

_LONG: Final = 32_768
"""Threshold, tokens. Shorter sequences are not split over ranks. Evidence: a convention of every framework's
recipes."""
_MOST_RANKS: Final = 16
"""Threshold, ranks. Neither tensor nor context parallelism is wider. Evidence: a judgement."""
_MOST_CHUNKS: Final = 8
"""Threshold, virtual stages. A stage has no more. Evidence: a judgement."""
_MICRO_BATCHES: Final = (1, 2, 4, 8)

TRIED: Final = frozenset(
    ("tp", "pp", "vp", "dp", "cp", "ep", "sequence_parallel", "micro_batch", "batch", "recompute", "schedule", "zero")
)
"""The plan's fields that these plans differ in, or that follow from them."""

RECOMPUTED: Final = tuple(RECOMPUTATIONS[each] for each in (RECOMPUTE_NOTHING, RECOMPUTE_ATTENTION, RECOMPUTE_LAYERS))
"""What these plans compute again; the rest is tried where it is asked for, since not every framework has it."""


def sensible_plans(model: Model, hardware: Hardware, gpus: int, batch: int) -> list[dict[str, list[Any]]]:
    """Return blocks of plan fields, as `Grid.make` takes them; what is not legal among them the search refuses.

    Tensor parallelism stays where links are fast (`scale_up`, at most 16 ranks) and takes sequence parallelism with it.
    The stages of a pipeline divide the layers, or are a power of two; virtual stages divide the layers of a stage. ZeRO
    shards the optimizer or nothing beside a pipeline, and up to everything without one. Sequences are split from 32k
    tokens.

    Args:
        model: the model.
        hardware: the GPU and its links.
        gpus: how many.
        batch: sequences of a step.

    Raises `LumosError` where no plan uses that many GPUs.
    """
    widths = [
        tp for tp in _powers(min(hardware.scale_up.gpus, _MOST_RANKS)) if model.heads % tp == 0 and gpus % tp == 0
    ]
    stages = [pp for pp in range(1, min(model.layers, gpus) + 1) if gpus % pp == 0]
    depths = [pp for pp in stages if model.layers % pp == 0 or pp & (pp - 1) == 0]
    splits = [cp for cp in _powers(_MOST_RANKS) if gpus % cp == 0] if model.seq >= _LONG else [1]
    experts = [ep for ep in _powers(gpus) if model.experts % ep == 0] if model.experts else [1]
    common: dict[str, list[Any]] = {
        "gpus": [gpus],
        "batch": [batch],
        "cp": splits,
        "ep": experts,
        "micro_batch": [size for size in _MICRO_BATCHES if batch % size == 0],
        "recompute": list(RECOMPUTED),
    }
    blocks: list[dict[str, list[Any]]] = []
    for tp in widths:
        parallel: dict[str, list[Any]] = {"tp": [tp], "sequence_parallel": [tp > 1]}
        blocks.append({**common, **parallel, "pp": [1], "vp": [1], "zero": [0, 1, 2, 3]})
        blocks += [
            {**common, **parallel, "pp": [pp], "vp": _chunks(model.layers, pp), "zero": [0, 1]}
            for pp in depths
            if pp > 1
        ]
    if not any(gpus % (tp * pp) == 0 and batch % (gpus // (tp * pp)) == 0 for tp in widths for pp in [1, *depths]):
        raise LumosError(
            f"no plan spreads a batch of {batch:,} over {gpus:,} GPUs: gpus / (tp * pp) replicas have to divide it"
        )
    return blocks


def _powers(most: int) -> list[int]:
    return [1 << k for k in range(max(most, 1).bit_length())]


def _chunks(layers: int, pp: int) -> list[int]:
    """Return the numbers of virtual stages of a stage: all that divide its layers, up to 8."""
    return [vp for vp in range(1, _MOST_CHUNKS + 1) if layers % (pp * vp) == 0] or [1]
