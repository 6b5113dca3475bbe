"""What is asked of an estimate, column by column, from what the evaluation returns: one row a configuration.

A single estimate is a row of these columns, so it is the row of a sweep bit for bit.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.model import uncertainty
from lumos_df.model.evaluate import RESULT_COLUMNS, evaluate_rows
from lumos_df.model.fitted import SINGLE_PRECISION
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels.step import RESULTS
from lumos_df.model.plan import FLAGS, PLAN_COLUMNS, WORDS, placement_text
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model
from lumos_df.schema import STEP_PARTS

_COMPUTE: Final = ("gemm_s", "attention_s", "elementwise_s", "recompute_s", "optimizer_s")
_COMMUNICATION: Final = ("tp_exposed_s", "cp_exposed_s", "ep_exposed_s", "pp_exposed_s", "dp_exposed_s")
_MEMORY: Final = (
    ("weights_gb", "weights_bytes", "parameters"),
    ("gradients_gb", "gradients_bytes", "gradients"),
    ("optimizer_gb", "optimizer_bytes", "optimizer states"),
    ("activations_gb", "activations_bytes", "activations at their most"),
    ("logits_gb", "logits_bytes", "logits"),
    ("reserve_gb", "reserve_bytes", "libraries, buffers and fragments"),
)
_PARTS: Final = tuple(
    (name, doc)
    for name, doc in RESULTS
    if name.endswith("_s") and name not in {"iteration_time_s", "overlapped_s", "host_busy_s"}
)

ANSWERS: Final = (
    ("gpus", "GPUs of the job: tp * cp * dp * pp"),
    ("iteration_time_s", "seconds of a step"),
    ("low_s", "lower end of the interval that holds the truth 8 times of 10"),
    ("high_s", "upper end of that interval"),
    (
        "expected_s",
        "mean over steps with messages between stages as they should be and, as often as that is seen, slow",
    ),
    ("at_risk", "whether slow messages are met 1 time in 10 or more"),
    ("tokens_per_s_per_gpu", "tokens a second and GPU"),
    (
        "mfu_pct",
        "FLOP that the model asks for over the peak of its precision, percent; of attention, what a causal mask leaves",
    ),
    ("hfu_pct", "the same with what is computed again"),
    *((f"{part.name}_s", part.modelled[0].lower() + part.modelled[1:]) for part in STEP_PARTS),
    *_PARTS,
    ("memory_gb", "10^9 bytes of the fullest GPU"),
    *((name, f"10^9 bytes of it: {doc}") for name, _, doc in _MEMORY),
    ("memory_margin_gb", "10^9 bytes that are left on it; negative where it does not fit"),
    ("memory_stage", "its pipeline stage"),
    ("fits", "whether the memory is at most that of the GPU"),
    ("energy_j", "joules of all GPUs: tdp_w while they work, idle_w during other_s; not measured"),
)
"""Columns of an answer: name, meaning."""


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """Configurations: row i is `plans[i]` for `models[model_of[i]]` on `hardware[hardware_of[i]]`."""

    models: tuple[Model, ...]
    """The models."""
    hardware: tuple[Hardware, ...]
    """The GPUs."""
    software: tuple[Software, ...]
    """The software profiles; a plan's column `software` is the place of its own."""
    plans: NDArray[np.void]
    """PLAN_ROW [n], all legal."""
    model_of: NDArray[np.int64]
    """[n]."""
    hardware_of: NDArray[np.int64]
    """[n]."""


@dataclass(frozen=True)
class WordColumn:
    """A column of words."""

    codes: NDArray[np.int64]
    """[n]."""
    choices: tuple[str, ...]
    """What they stand for."""


def labels(jobs: Jobs) -> dict[str, NDArray[Any] | WordColumn]:
    """Return what a row is: model, hardware, and the plan's fields as a plan has them."""
    plans = jobs.plans
    distinct, placements = np.unique(plans["placement"], return_inverse=True)
    words = {**WORDS, "software": tuple(software.name for software in jobs.software)}
    return {
        "model": WordColumn(jobs.model_of, tuple(model.name for model in jobs.models)),
        "hardware": WordColumn(jobs.hardware_of, tuple(hardware.name for hardware in jobs.hardware)),
        **{column.name: plans[column.name] for column in PLAN_COLUMNS},
        **{name: plans[name] != 0 for name in FLAGS},
        **{name: WordColumn(plans[name], choices) for name, choices in words.items()},
        "placement": WordColumn(placements, tuple(placement_text(code) for code in distinct.tolist())),
    }


def answers(jobs: Jobs) -> dict[str, NDArray[Any]]:
    """Estimate every row; return the columns of `ANSWERS`, each [n].

    A row whose schedule cannot run is nan throughout, and does not fit.
    """
    models = np.array([model.row() for model in jobs.models])
    hardware = np.array([gpu.row() for gpu in jobs.hardware])
    software = np.array([profile.row() for profile in jobs.software])
    plans, model_of, hardware_of = jobs.plans, jobs.model_of, jobs.hardware_of
    results = evaluate_rows(models, hardware, software, plans, model_of, hardware_of)
    result = dict(zip(RESULT_COLUMNS, np.ascontiguousarray(results.T), strict=True))
    step = result["iteration_time_s"]
    gpus = plans["tp"] * plans["cp"] * plans["dp"] * plans["pp"]
    low, high = uncertainty.ends(results, plans, models[model_of], hardware[hardware_of], software[plans["software"]])
    chance, longer = uncertainty.slow_messages(plans, hardware[hardware_of], software[plans["software"]])
    compute = sum(result[name] for name in _COMPUTE)
    communication = sum(result[name] for name in _COMMUNICATION)
    other = result["bubble_s"] + result["host_s"]
    overlapped = np.minimum(result["overlapped_s"], compute)
    peak = hardware["peak_flops"][hardware_of, plans["precision"]] * gpus * step
    # Fused kernels leave out what the mask does, so all pairs would be more than the hardware could reach.
    causal = models["causal_flops"][model_of] / models["flops"][model_of]
    margin = hardware["hbm_bytes"][hardware_of] - result["memory_bytes"]
    power_s = hardware["tdp_w"][hardware_of] * (step - other) + hardware["idle_w"][hardware_of] * other
    columns: dict[str, NDArray[Any]] = {
        **{name: result[name] for name, _ in _PARTS},
        **{name: result[source] / 1e9 for name, source, _ in _MEMORY},
        "gpus": gpus,
        "iteration_time_s": step,
        "low_s": step * low,
        "high_s": step * high,
        "expected_s": step + chance * longer,
        "at_risk": chance >= uncertainty.AT_RISK,
        "tokens_per_s_per_gpu": plans["batch"] * models["seq"][model_of] / step / gpus,
        "mfu_pct": 100.0 * causal * result["model_flops"] / peak,
        "hfu_pct": 100.0 * causal * result["hardware_flops"] / peak,
        # What nothing is left of may come out as -1e-16.
        "exposed_compute_s": np.maximum(step - overlapped - communication - other, 0.0),
        "overlapped_s": overlapped,
        "exposed_communication_s": communication,
        "other_s": other,
        "memory_gb": result["memory_bytes"] / 1e9,
        "memory_margin_gb": margin / 1e9,
        "memory_stage": np.nan_to_num(result["memory_stage"]).astype(np.int64),
        "fits": margin >= 0.0,
        "energy_j": gpus * power_s,
    }
    return {name: columns[name] for name, _ in ANSWERS}


def provenance(model: Model, hardware: Hardware, software: Software, precision: str) -> dict[str, str]:
    """Return where the figures behind an estimate are from; `precision`: the plan's."""
    single = precision == "fp32" and "fp32" not in hardware.fitted.get("gemm", {})
    measured = ", ".join(table for table in hardware.fitted if not (single and table == "gemm"))
    kernels = f"fitted to measurements of {hardware.fitted_from}" + (f", but its own {measured}" if measured else "")
    if hardware.borrowed:
        kernels = f"those of {hardware.fitted_from}"
    if single and hardware.fitted_from != SINGLE_PRECISION:
        kernels += f", products in single precision of {SINGLE_PRECISION}"
    if hardware.borrowed:
        kernels += ": none of this architecture was measured"
    return {
        "durations": "modelled: nothing of this job was measured",
        "model": model.source,
        "hardware": hardware.source,
        "kernels and collectives": kernels,
        "software": software.source,
        "energy": "gpus * (tdp_w * (iteration_time_s - other_s) + idle_w * other_s); no power was measured",
    }
