"""How far a step may be from its estimate: wider the less a plan is like what was measured of its software."""

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.model.evaluate import RESULT_COLUMNS
from lumos_df.model.library import data_folder
from lumos_df.schema.plan_words import FLASH2

Array = NDArray[np.float64]
Rows = NDArray[np.void]


@dataclass(frozen=True)
class Distance:
    """What each way of being unlike adds to the spread of an estimate: logarithms of ratios that 8 of 10 are within."""

    generation: float
    """GPUs of an architecture that the software was not measured on."""
    kernels: float
    """A GPU of whose architecture no kernel was measured."""
    precision: float
    """A precision that it was not measured in."""
    experts: float
    """Experts, and it was measured with none."""
    doubled_gpus: float
    """Each doubling of GPUs beyond its largest measured job."""
    doubled_seq: float
    """Each doubling of the sequence beyond its longest measured one."""


@cache
def distance() -> Distance:
    """Return the spreads of `data/validation/distance.toml`, from errors of runs of a kind that a fit did not see."""
    figures = tomllib.loads((data_folder() / "validation" / "distance.toml").read_text("utf-8"))
    return Distance(**{field.name: float(figures[field.name]) for field in fields(Distance)})


PARTS: Final = {
    "compute_spread": ("gemm_s", "recompute_s"),
    "memory_spread": ("attention_s", "elementwise_s", "optimizer_s"),
    "communication_spread": ("tp_exposed_s", "cp_exposed_s", "ep_exposed_s", "dp_exposed_s"),
    "bubble_spread": ("pp_exposed_s", "bubble_s"),
    "host_spread": ("host_s",),
}
"""Spreads of a software, and the parts of a step that each is of."""


def shares(results: Array) -> dict[str, Array]:
    """Return the share [n] of the step that each of `PARTS` has in results [n, RESULT_COLUMNS]."""
    column = RESULT_COLUMNS.index
    step = results[:, column("iteration_time_s")]
    return {name: sum(results[:, column(part)] for part in parts) / step for name, parts in PARTS.items()}


def part_ends(share: Array, spread: Array) -> tuple[Array, Array]:
    """Return how far a step may be below and above its estimate because its parts are [n], as logarithms.

    A part that may be off by a spread may vanish at most, however large the spread is, and may take many times as long:
    so the upper end is further away than the lower one. Parts are off together, for a software is tuned or it is not:
    what they may be off by adds up, not their squares.

    Args:
        share: of the step that each part has [n, PARTS].
        spread: logarithm of a ratio that a part is within, 8 times of 10 [PARTS] or [n, PARTS].
    """
    less, more = (np.sum(share * each, 1) for each in (-np.expm1(-spread), np.expm1(spread)))
    return -np.log1p(-np.minimum(less, np.nextafter(1.0, 0.0))), np.log1p(more)


def slower_host(results: Array, spread: Array) -> Array:
    """Return how far a step [n] may be above its estimate because the host is slower than was told: a logarithm.

    A host that the GPU hides may be slow enough to set the pace. What a stage waits for others hides it still.

    Args:
        results: what the estimates are [n, RESULT_COLUMNS].
        spread: logarithm of a ratio that the host's time is within, 8 times of 10 [n].
    """
    step, host, bubble, sends = (
        results[:, RESULT_COLUMNS.index(name)]
        for name in ("iteration_time_s", "host_busy_s", "bubble_s", "pp_exposed_s")
    )
    longer = np.maximum(np.exp(spread) * host - (step - bubble - sends), 0.0)
    above: Array = np.log1p(longer / step)
    return above


def hidden_step(results: Array, plans: Rows, models: Rows, software: Rows) -> Array:
    """Return the share [n] of a step that the host's own time of it has, and that hides where nothing waits.

    Whether a loop reads a loss or a norm in each step is not known of a software that nobody named.

    Args:
        results: what the estimates are [n, RESULT_COLUMNS].
        plans, models, software: records [n], a row a configuration.
    """
    unknown = (software["host_spread"] > 0.0) & (software["step_waits"] > 0)
    own = software["step_s"] + software["layer_step_s"] * np.ceil(models["layers"] / plans["pp"])
    step, host = (results[:, RESULT_COLUMNS.index(name)] for name in ("iteration_time_s", "host_s"))
    share: Array = np.where(unknown, np.minimum(own, host) / step, 0.0)
    return share


def better_attention(results: Array, plans: Rows, hardware: Rows, software: Rows) -> Array:
    """Return how far a step [n] may be below its estimate because attention runs as the best kernel does: a logarithm.

    Where a GPU has FlashAttention-2 and a better kernel, one software has this one and another that. Of a software that
    nobody named it is not known which, so the interval has room for either.

    Args:
        results: what the estimates are [n, RESULT_COLUMNS].
        plans, hardware, software: records [n], a row a configuration.
    """
    # Profiles of a known software have no spreads of parts.
    unknown = (software["memory_spread"] > 0.0) & (software["attention"] == FLASH2)
    better = unknown & (plans["flash"] > 0) & (hardware["flash2_factor"] > 1.0)
    slower = np.where(better, np.maximum(software["attention_factor"] * hardware["flash2_factor"], 1.0), 1.0)
    column = RESULT_COLUMNS.index
    share = results[:, column("attention_s")] / results[:, column("iteration_time_s")]
    shorter: Array = -np.log1p(-share * (1.0 - 1.0 / slower))
    return shorter


AT_RISK: Final = 0.1
"""Threshold, chance. A plan that meets slow messages more often is at risk, and its interval reaches to them. Evidence:
where 8 runs of 10 are within an interval, one is above it."""


def slow_messages(plans: Rows, hardware: Rows, software: Rows) -> tuple[Array, Array]:
    """Return the chance [n] that messages between stages are slow, and the seconds [n] that a step takes longer then.

    One node of the job is enough, and nodes are independent; every micro-batch passes through all stages in turn.

    Args:
        plans, hardware, software: records [n], a row a configuration.
    """
    gpus = plans["tp"] * plans["cp"] * plans["dp"] * plans["pp"]
    nodes = np.ceil(gpus / hardware["scale_up_gpus"])
    chance = np.where((plans["pp"] > 1) & (nodes > 1), 1.0 - (1.0 - software["slow_node"]) ** nodes, 0.0)
    micro_batches = plans["batch"] // (plans["dp"] * plans["micro_batch"])
    return chance, software["slow_message_s"] * (micro_batches + plans["pp"] - 1)


def ends(results: Array, plans: Rows, models: Rows, hardware: Rows, software: Rows) -> tuple[Array, Array]:
    """Return the ends of the interval over the estimate [n], that 8 runs of 10 lie between.

    A plan at risk may take as long as with slow messages.

    Independent errors add up by their squares: those of plans like what was measured, that of the parts of the step by
    their shares, a better kernel of attention, and one for each way of being unlike.

    Args:
        results: what the estimates are [n, RESULT_COLUMNS].
        plans, models, hardware, software: records [n], a row a configuration.
    """
    each = distance()
    gpus = plans["tp"] * plans["cp"] * plans["dp"] * plans["pp"]
    # A profile that was measured on nothing says so by its ratios.
    known = software["most_gpus"] > 0
    generation = np.where(
        hardware["generation"] >= 0, software["generations"] >> np.maximum(hardware["generation"], 0), 0
    )
    routed = models["experts"] > 0
    unlike = (
        hardware["borrowed"] * each.kernels**2
        + known * (generation & 1 == 0) * each.generation**2
        + known * (software["precisions"] >> plans["precision"] & 1 == 0) * each.precision**2
        + (known & routed & (software["experts"] == 0)) * each.experts**2
        + known * (_doublings(gpus, software["most_gpus"]) * each.doubled_gpus) ** 2
        + known * (_doublings(models["seq"], software["longest_seq"]) * each.doubled_seq) ** 2
        + routed * software["expert_spread"] ** 2
    )
    share = np.stack(list(shares(results).values()), 1)
    below, above = part_ends(share, np.stack([software[name] for name in PARTS], 1))
    # Of the part that hides the spread has taken a share already.
    hidden = hidden_step(results, plans, models, software) * np.exp(-software["host_spread"])
    below = -np.log(np.maximum(np.exp(-below) - hidden, np.finfo(float).tiny))
    above = np.maximum(above, slower_host(results, software["host_spread"]))
    shorter = better_attention(results, plans, hardware, software)
    low = np.sqrt(np.log(software["low_ratio"]) ** 2 + unlike + below**2 + shorter**2)
    high = np.sqrt(np.log(software["high_ratio"]) ** 2 + unlike + above**2)
    chance, longer = slow_messages(plans, hardware, software)
    slow = np.where(chance >= AT_RISK, 1.0 + longer / results[:, RESULT_COLUMNS.index("iteration_time_s")], 0.0)
    return np.exp(-low), np.maximum(np.exp(high), slow)


def _doublings(value: NDArray[np.int64], most: NDArray[np.int64]) -> Array:
    """Return how often a value must be halved to be within what was measured."""
    doublings: Array = np.maximum(np.log2(value / np.maximum(most, 1)), 0.0)
    return doublings
