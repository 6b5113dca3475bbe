"""Measured runs as rows that a sweep can estimate: models, hardware, software, plans, and what was measured.

A row that cannot be estimated is refused and counted, with the reason: nothing of it is guessed.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lumos_df.base.errors import LumosError, ModelError
from lumos_df.calibrate.datasets import Dataset
from lumos_df.calibrate.run_tables import faults, read_runs
from lumos_df.model.evaluate import RESULT_COLUMNS, evaluate_rows
from lumos_df.model.hardware import HARDWARE_ROW, Hardware
from lumos_df.model.kernels.legality import legal
from lumos_df.model.plan import OVERLAPS, PLAN_ROW, Plan
from lumos_df.model.rules import RULES
from lumos_df.model.software import SOFTWARE_ROW, Software
from lumos_df.model.transformer import MODEL_ROW, Model
from lumos_df.model.uncertainty import ends
from lumos_df.schema.dtypes import PRECISIONS
from lumos_df.schema.plan_words import FSDP, INTERLEAVED, ONE_F_ONE_B, RECOMPUTATIONS, RECOMPUTE_NOTHING

GIB: Final = 2.0**30
"""Bytes of what `memory_gb` counts: PyTorch's allocator reports GiB."""

_Input = TypeVar("_Input", Model, Hardware, Software)

_FIGURES: Final = ("layers", "hidden", "heads", "ffn", "kv_heads", "vocab")
"""Figures of a model that a table may state."""

_GROUP: Final = ("model", *_FIGURES, "seq", "gpu", "num_gpus", "gbs", "lora_rank")
"""What runs have in common among which a plan is chosen."""


@dataclass(frozen=True, kw_only=True)
class MeasuredRuns:
    """Measured runs [n] that can be estimated, and why the others cannot."""

    dataset: Dataset
    """The set they are of."""
    models: NDArray[np.void]
    """MODEL_ROW [m]."""
    hardware: NDArray[np.void]
    """HARDWARE_ROW [h]."""
    hardware_names: tuple[str, ...]
    """[h]."""
    software: NDArray[np.void]
    """SOFTWARE_ROW [s]."""
    software_names: tuple[str, ...]
    """[s]."""
    plans: NDArray[np.void]
    """PLAN_ROW [n]."""
    model_of: NDArray[np.int64]
    """Place in `models` [n]."""
    hardware_of: NDArray[np.int64]
    """Place in `hardware` [n]."""
    measured_s: NDArray[np.float64]
    """Seconds of a step [n]; nan for runs that crashed."""
    measured_bytes: NDArray[np.float64]
    """Memory of a GPU [n]; nan where it was not measured."""
    group: NDArray[np.int64]
    """The same for runs of one model, GPU, number of GPUs and batch [n]: what a plan is chosen among."""
    table: pl.DataFrame
    """The rows [n], as `run_tables.read_runs` gives them."""
    refused: dict[str, int]
    """Number of rows by the reason why they were refused, the most first."""

    def __len__(self) -> int:
        return len(self.plans)

    def estimate(
        self, hardware: NDArray[np.void] | None = None, software: NDArray[np.void] | None = None
    ) -> NDArray[np.float64]:
        """Return the estimates, float64 [n, RESULT_COLUMNS], with other hardware [h] or software [s] if given."""
        return evaluate_rows(
            self.models,
            self.hardware if hardware is None else hardware,
            self.software if software is None else software,
            self.plans,
            self.model_of,
            self.hardware_of,
        )

    def ends(self, results: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the ends of the interval over the estimate [n], of results [n, RESULT_COLUMNS]."""
        software = self.software[self.plans["software"]]
        return ends(results, self.plans, self.models[self.model_of], self.hardware[self.hardware_of], software)

    def take(self, places: NDArray[np.int64]) -> "MeasuredRuns":
        """Return the runs at `places`; none of them is refused."""
        picked = {name: getattr(self, name)[places] for name in _PER_ROW}
        return replace(self, **picked, table=self.table[places.tolist()], refused={})


_PER_ROW: Final = ("plans", "model_of", "hardware_of", "measured_s", "measured_bytes", "group")


def read(dataset: Dataset, file: Path, profile: str = "") -> MeasuredRuns:
    """Return the measured runs of a set, from its file.

    Args:
        dataset: the set.
        file: its CSV.
        profile: name or file of the software of every run; empty: as the rows say.

    Raises `TruthError` for a file that does not read or lacks a column that the set needs.
    """
    table = read_runs(dataset, file)
    if profile:
        table = table.with_columns(software=pl.lit(profile))
    told = [name for name in table.columns if name.startswith("model.")]
    figures = ("model", "model_said", *_FIGURES, "seq", *told)
    models, model_of, no_model = _inputs(table, figures, lambda said: _model(dataset, said))
    hardware, hardware_of, no_hardware = _inputs(table, ("gpu", "network_bandwidth"), _hardware)
    software, software_of, no_software = _inputs(table, ("software",), _software)
    table = table.with_columns(fault=pl.coalesce(*faults(dataset), *map(pl.lit, (no_hardware, no_model, no_software))))
    whole = np.flatnonzero(table["fault"].is_null().to_numpy())
    kept = table[whole.tolist()]
    profiles = np.array([each.row() for each in software], SOFTWARE_ROW)
    plans = _plans(kept, profiles, software_of[whole])
    runs = MeasuredRuns(
        dataset=dataset,
        models=np.array([model.row() for model in models], MODEL_ROW),
        hardware=np.array([gpu.row() for gpu in hardware], HARDWARE_ROW),
        hardware_names=tuple(gpu.name for gpu in hardware),
        software=profiles,
        software_names=tuple(each.name for each in software),
        plans=plans,
        model_of=model_of[whole],
        hardware_of=hardware_of[whole],
        measured_s=np.full(len(plans), np.nan),
        measured_bytes=kept["memory_gb"].fill_null(np.nan).to_numpy() * GIB,
        group=_groups(kept),
        table=kept,
        refused={},
    )
    broken = _broken_rules(runs)
    runs = runs.take(np.flatnonzero(broken == 0))
    out = runs.estimate()
    runs = replace(runs, measured_s=_measured_seconds(runs, out))
    run = np.flatnonzero(np.isfinite(out[:, 0]))
    reasons = Counter(table["fault"].drop_nulls().to_list())
    reasons.update(_reason(code) for code in broken[broken > 0].tolist())
    reasons.update(["the schedule cannot run so many micro-batches"] * (len(out) - len(run)))
    return replace(runs.take(run), refused=dict(reasons.most_common()))


def _inputs(
    table: pl.DataFrame, columns: tuple[str, ...], make: Callable[[dict[str, Any]], _Input]
) -> tuple[list[_Input], NDArray[np.int64], pl.Series]:
    """Return the different inputs that columns name, the place of each row's, and why a row has none (null: it has)."""
    said = table.select(columns).unique(maintain_order=True)
    inputs: list[_Input] = []
    places, reasons = [], []
    for key in said.iter_rows(named=True):
        place, reason = 0, None
        if key[columns[0]] is not None:
            try:
                named = make(key)
            except LumosError as error:
                reason = str(error)
            else:
                # Several names may mean the same.
                if named not in inputs:
                    inputs.append(named)
                place = inputs.index(named)
        places.append(place)
        reasons.append(reason)
    told = said.with_columns(pl.Series("place", places, pl.Int64), pl.Series("reason", reasons, pl.String))
    joined = table.select(columns).join(told, on=columns, how="left", nulls_equal=True, maintain_order="left")
    return inputs, joined["place"].to_numpy(), joined["reason"]


def _model(dataset: Dataset, said: dict[str, Any]) -> Model:
    """Return the model that a row names, or describes where its name is not known; with the row's sequence."""
    figures = {name: said[name] for name in (*_FIGURES, "seq") if said[name] is not None}
    told = {
        name.removeprefix("model."): json.loads(value)
        for name, value in said.items()
        if name.startswith("model.") and value is not None
    }
    name = said["model_said"]
    try:
        known = Model.read(dataset.models.get(said["model"], said["model"]))
    except ModelError:
        if not {"layers", "hidden", "heads", "vocab", "seq"} <= figures.keys():
            raise
        model = Model(name=name, **{**figures, **told})
    else:
        for figure in ("layers", "hidden", "heads"):
            if figures.get(figure, getattr(known, figure)) != getattr(known, figure):
                raise ModelError(
                    f"contradicts model '{known.name}': {figure} = {figures[figure]}, not {getattr(known, figure)}"
                )
        model = replace(known, **{"seq": figures.get("seq", known.seq), **told})
    # A learned table has a row a position, of the sequence that is trained.
    return replace(model, learned_positions=model.seq) if model.learned_positions else model


def _hardware(said: dict[str, Any]) -> Hardware:
    hardware = Hardware.read(said["gpu"])
    if said["network_bandwidth"] is None:
        return hardware
    return replace(hardware, scale_out=replace(hardware.scale_out, bandwidth=said["network_bandwidth"]))


def _software(said: dict[str, Any]) -> Software:
    return Software.read(said["software"])


def _plans(table: pl.DataFrame, software: NDArray[np.void], software_of: NDArray[np.int64]) -> NDArray[np.void]:
    """Return PLAN_ROW [n]: what the rows say; what they do not, as `Plan` and the software have it."""
    plans = np.full(len(table), Plan().row(), PLAN_ROW)
    names = {"micro_batch": "mbs", "batch": "gbs", "sequence_parallel": "sp", "lora": "lora_rank"}
    for name in (
        "lora",
        "tp",
        "pp",
        "vp",
        "dp",
        "cp",
        "ep",
        "etp",
        "zero",
        "micro_batch",
        "batch",
        "sequence_parallel",
    ):
        plans[name] = table[names.get(name, name)].to_numpy()
    plans["software"] = software_of
    plans["recompute"] = table["recompute"].replace_strict(
        RECOMPUTATIONS, range(len(RECOMPUTATIONS)), default=RECOMPUTE_NOTHING
    )
    plans["precision"] = table["precision"].replace_strict(PRECISIONS, range(len(PRECISIONS)))
    pipeline = np.where(plans["vp"] > 1, INTERLEAVED, ONE_F_ONE_B)
    fsdp = table["fsdp"].to_numpy() & (plans["pp"] == 1)
    plans["schedule"] = np.where(fsdp, FSDP, pipeline)
    for name in OVERLAPS:
        plans[name] = _flags(table[name], software[name][software_of])
    plans["flash"] = _flags(table["flash"], plans["flash"])
    return plans


def _flags(said: pl.Series, otherwise: NDArray[np.int64]) -> NDArray[np.int64]:
    flags = said.str.to_lowercase().is_in(["true", "1", "yes"]).cast(pl.Int64).to_numpy()
    return np.where(said.is_null().to_numpy(), otherwise, flags)


def _groups(table: pl.DataFrame) -> NDArray[np.int64]:
    said = pl.concat_str(pl.col(_GROUP).cast(pl.String).fill_null("-"), separator="|")
    return np.unique(table.select(said).to_series().to_numpy(), return_inverse=True)[1].astype(np.int64)


def _broken_rules(runs: MeasuredRuns) -> NDArray[np.int8]:
    """Return the first rule that each plan breaks, counted from 1, or 0 [n]."""
    codes = np.zeros(len(runs), np.int8)
    pairs = np.stack([runs.model_of, runs.hardware_of], 1)
    for model, hardware in np.unique(pairs, axis=0):
        rows = np.flatnonzero((pairs == (model, hardware)).all(1))
        codes[rows] = legal(runs.plans[rows], runs.models[model], runs.hardware[hardware])
    return codes


def _reason(code: int) -> str:
    """Return what a rule says of any plan: without the numbers that it would name of one."""
    rule = RULES[code - 1]
    text = rule.text.replace("{hardware.name}", "the GPU").replace("{plan.precision}", "such")
    return f"illegal plan: {rule.field}: {_NUMBERS.sub('', text)}"


_NUMBERS: Final = re.compile(r"( =)?( \*)?( /)? ?'?\{[^}]+\}'?")


def _measured_seconds(runs: MeasuredRuns, out: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the seconds of a step [n]: as stated, from tokens/s, or from FLOP/s.

    Those either count recomputation, or are the model's with the pairs that a causal mask leaves (Megatron-Bridge).
    """
    causal = (runs.models["causal_flops"] / runs.models["flops"])[runs.model_of]
    said = runs.table.select(
        stated="iteration_time_s",
        by_gpu=pl.col("gbs") * pl.col("seq") / pl.col("num_gpus") / pl.col("tokens_per_s_per_gpu"),
        by_job=pl.col("gbs") * pl.col("seq") / pl.col("tokens_per_s"),
        derived="iteration_time_s_derived",
        by_flops=pl.Series(out[:, _HARDWARE_FLOPS])
        / (pl.col("hw_tflops_per_gpu_incl_recompute") * 1e12 * pl.col("num_gpus")),
        by_model_flops=pl.Series(out[:, _MODEL_FLOPS] * causal)
        / (pl.col("model_tflops_per_gpu") * 1e12 * pl.col("num_gpus")),
    )
    return said.select(pl.coalesce(pl.all()).fill_null(np.nan)).to_series().to_numpy()


_MODEL_FLOPS: Final = RESULT_COLUMNS.index("model_flops")
_HARDWARE_FLOPS: Final = RESULT_COLUMNS.index("hardware_flops")
