"""Many configurations at once: the only implementation of an estimate, which is a sweep of one."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.model.kernels.step import RESULTS, evaluate_all
from lumos_df.model.plan import OVERLAPS, PLAN_COLUMNS

RESULT_COLUMNS: Final = tuple(name for name, _ in RESULTS)
"""Columns of what `evaluate_rows` returns."""

_BEYOND_BLOCKS: Final = {
    *("pp", "vp", "dp", "dp_replicate", "batch"),
    *("schedule", "zero", "recompute", "offload_optimizer", *OVERLAPS),
}
"""Fields of a plan that change nothing of what a block of the model costs, but for how far apart ranks are."""

_BLOCKS_BY: Final = np.array([i for i, column in enumerate(PLAN_COLUMNS) if column.name not in _BEYOND_BLOCKS])
"""Places of the other fields."""


def evaluate_rows(
    models: NDArray[np.void],
    hardware: NDArray[np.void],
    software: NDArray[np.void],
    plans: NDArray[np.void],
    model_of: NDArray[np.int64],
    hardware_of: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Estimate `plans[i]` for `models[model_of[i]]` on `hardware[hardware_of[i]]` with its row of `software`.

    Returns float64 [n, RESULT_COLUMNS]; a plan whose schedule cannot run is a row of nan.
    """
    out = np.empty((len(plans), len(RESULTS)))
    plans = np.ascontiguousarray(plans)
    fields = plans.view(np.int64).reshape(len(plans), len(PLAN_COLUMNS))
    evaluate_all(models, hardware, software, plans, fields, _BLOCKS_BY, model_of, hardware_of, out)
    return out
