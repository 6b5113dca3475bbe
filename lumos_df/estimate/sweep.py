"""Many configurations at once: the only implementation of an estimate, which is a sweep of one."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.jit import kernel
from lumos_df.model import cost as c
from lumos_df.model import operators as op
from lumos_df.model import schedule as pipeline
from lumos_df.model import stages as st
from lumos_df.model.step import LARGEST_PIPELINE, OPERATORS, RESULTS, evaluate

RESULT_COLUMNS: Final = tuple(name for name, _ in RESULTS)


def evaluate_rows(
    models: NDArray[np.void],
    hardware: NDArray[np.void],
    software: NDArray[np.void],
    plans: NDArray[np.void],
    model_of: NDArray[np.int64],
    hardware_of: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Estimate `plans[i]` for `models[model_of[i]]` on `hardware[hardware_of[i]]` with `software[plans[i]["software"]]`.

    Returns float64 [n, RESULT_COLUMNS]; a plan whose schedule cannot run is a row of nan.
    """
    out = np.empty((len(plans), len(RESULTS)))
    _evaluate_rows(models, hardware, software, plans, model_of, hardware_of, out)
    return out


@kernel
def _evaluate_rows(models, hardware, software, plans, model_of, hardware_of, out):  # type: ignore[no-untyped-def]
    ops = np.zeros((OPERATORS, op.COLUMNS))
    costs = np.zeros((st.BLOCKS, c.PASSES, c.KINDS))
    chunks = np.zeros((st.CHUNK_ROWS + 1, LARGEST_PIPELINE))
    pipe = np.zeros((6, LARGEST_PIPELINE))
    stages = np.zeros((LARGEST_PIPELINE, pipeline.COLUMNS))
    work = np.zeros(13 * LARGEST_PIPELINE)
    for i in range(len(plans)):
        plan = plans[i]
        refused = evaluate(
            models[model_of[i]],
            plan,
            hardware[hardware_of[i]],
            software[plan.software],
            ops,
            costs,
            chunks,
            pipe,
            stages,
            work,
            out[i],
        )
        if refused:
            out[i, :] = np.nan
