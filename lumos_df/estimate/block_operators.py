"""The operators behind an estimate: what one block of each kind runs, forward, backward and again, and for how long."""

from typing import Any, Final

import numpy as np

from lumos_df.estimate.kernels.configurations import write_blocks
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels import cost as c
from lumos_df.model.kernels import layer_operators as op
from lumos_df.model.kernels import state_space
from lumos_df.model.kernels.block_costs import OPERATORS
from lumos_df.model.kernels.layer_operators import vocabulary
from lumos_df.model.kernels.memory import (
    attention_parameters,
    feed_forward_parameters,
    layer_parameters,
    mixer_parameters,
)
from lumos_df.model.pipeline.stages import parameter_add_seconds
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model
from lumos_df.schema.codes import NONE
from lumos_df.schema.plan_words import GROUPS

BLOCKS: Final = ("attention", "state_space", "mlp", "experts", "embedding", "head")
"""Parts of a model that repeat: attention and state-space mixers of the layers that have them, the MLP of dense layers,
that of layers with experts."""

_PRODUCTS: Final = ("gemm", "grouped_gemm")
_NS: Final = 1e9


def block_operators(model: Model, hardware: Hardware, software: Software, plan: Plan) -> list[dict[str, Any]]:
    """Return a row an operator and phase, of one micro-batch on one rank: the columns of `schema.ESTIMATE_OPERATORS`.

    The plan is legal for the model and the GPU.
    """
    table = np.zeros((len(BLOCKS) * OPERATORS, op.COLUMNS))
    ends = np.zeros(len(BLOCKS), np.int64)
    rows = [np.array([described.row()]) for described in (model, plan, hardware, software)]
    write_blocks(*rows, table, np.zeros((c.PASSES, c.KINDS)), ends)
    dense = model.dense_layers if model.experts else model.layers
    more = model.mtp_layers
    sparse = model.layers - dense + (more if model.experts else 0)
    dense += 0 if model.experts else more
    times = (model.attention_layers + more, model.mamba_layers, dense, sparse, 1, 1 + more)
    sizes = {name: getattr(plan, name) for name in GROUPS}
    operators: list[dict[str, Any]] = []
    for place, row in enumerate(table[: ends[-1]].tolist()):
        block = int(np.searchsorted(ends, place, "right"))
        family = op.FAMILIES[int(row[op.FAMILY])]
        group = None if row[op.GROUP] == NONE else GROUPS[int(row[op.GROUP])]
        shaped = family in {*_PRODUCTS, "attention"}
        # The last product of a layer, unless the router's gradient reads what experts give.
        last = op.NAMES[int(row[op.NAME])] == "mlp_down" and model.experts == 0
        share = software.last_again if last else 1.0
        for phase, seconds, products in _phases(row, plan, family, BLOCKS[block], share):
            flops = 2 * products * row[op.M] * row[op.N] * row[op.K] * row[op.BATCH] if shaped else 0
            operators.append(
                {
                    "op_id": len(operators),
                    "block": BLOCKS[block],
                    "blocks": times[block],
                    "kind": "kernel",
                    "family": family,
                    "name": op.NAMES[int(row[op.NAME])],
                    "phase": phase,
                    "dur": round(seconds * _NS),
                    "group": group,
                    "group_size": group and sizes[group],
                    **{key: row[column] if shaped else None for key, column in _SHAPE.items()},
                    "bytes": None if shaped else row[op.BACKWARD_BYTES if _passes_back(phase, family) else op.BYTES],
                    "flops": round(flops) if shaped else None,
                }
            )
    each_s = parameter_add_seconds(*(row[0] for row in rows[1:]))
    added = {block: held for block, held in _parameters(rows[0][0], rows[1][0]).items() if held * each_s > 0.0}
    repeats = dict(zip(BLOCKS, times, strict=True)) | {"head": 1}
    return operators + [
        {
            **dict.fromkeys(operators[0]),
            "op_id": len(operators) + place,
            "block": block,
            "blocks": repeats[block],
            "kind": "kernel",
            "family": "elementwise",
            "name": "add_gradients",
            "phase": "backward",
            "dur": round(held * each_s * _NS),
            "bytes": held * software.add_bytes,
        }
        for place, (block, held) in enumerate(added.items())
    ]


def _parameters(model: np.void, plan: np.void) -> dict[str, float]:
    """Return the parameters of a rank that a block of each kind has, where the model has any."""
    t = plan["tp"]
    table = vocabulary(model, plan) * model["hidden"] / t
    held = {"attention": attention_parameters(model) / t} if model["attention_layers"] else {}
    if model["mamba_layers"]:
        held["state_space"] = state_space.mixer_parameters(model) / t
    if model["dense_layers"]:
        held["mlp"] = feed_forward_parameters(model, model["ffn"]) / t
    if model["experts"]:
        held["experts"] = sum(layer_parameters(model, plan, True)) - mixer_parameters(model) / t
    return {**held, "embedding": table, "head": table}


_SHAPE: Final = {"m": op.M, "n": op.N, "k": op.K, "batch": op.BATCH}


def _passes_back(phase: str, family: str) -> bool:
    return phase == "backward" and family == "elementwise"


def _phases(row: list[float], plan: Plan, family: str, block: str, share: float) -> list[tuple[str, float, float]]:
    """Return (phase, seconds, matrix products) of an operator: attention has two forward and five backward.

    Scores of an indexer have one and two. `share` of it is computed again where whole layers are.
    """
    scores = int(row[op.NAME]) == op.INDEX_SCORES
    attends = family == "attention" and not scores
    forward = 2.0 if attends else 1.0
    # A frozen weight has no gradient.
    backward = 5.0 if attends else 2.0 if scores or row[op.WEIGHT_S] > 0.0 else 1.0
    phases = [
        ("forward", row[op.FORWARD_S], forward),
        ("backward", row[op.INPUT_S] + row[op.WEIGHT_S], backward),
    ]
    again = plan.recompute == "full" or (plan.recompute == "selective" and family == "attention")
    again = again or (plan.recompute in {"light", "products"} and family == "elementwise")
    if again and share > 0.0 and block not in {"embedding", "head"}:
        phases.append(("recompute", share * row[op.FORWARD_S], share * forward))
    return phases
