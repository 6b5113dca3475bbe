"""One configuration: its answers, the operators behind them, and where the figures are from."""

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lumos_df.estimate.answer import ANSWERS, Jobs, answers, provenance
from lumos_df.estimate.operators import block_operators
from lumos_df.model.hardware import Hardware
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model

if TYPE_CHECKING:
    import pyarrow as pa

_FOUR = ("exposed_compute_s", "overlapped_s", "exposed_communication_s", "other_s")


@dataclass(frozen=True)
class Estimate:
    """What a job would take, and what it was asked of."""

    model: Model
    """The model."""
    hardware: Hardware
    """The GPU and its links."""
    software: Software
    """The training framework."""
    plan: Plan
    """How the job is spread."""
    answers: dict[str, Any]
    """A value for each of `lumos_df.estimate.answer.ANSWERS`."""

    @cached_property
    def operators(self) -> list[dict[str, Any]]:
        """The operators of one block of each kind: the columns of `schema.ESTIMATE_OPERATORS`."""
        return block_operators(self.model, self.hardware, self.software, self.plan)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the operators, as JSON has it."""
        found = self.answers
        parts = [name for name in found if name.endswith("_s") and name not in {"iteration_time_s", "low_s", "high_s"}]
        sizes = [name for name in found if name.endswith("_gb") and name not in {"memory_gb", "memory_margin_gb"}]
        nested = {*parts, *sizes, "memory_gb", "memory_margin_gb", "memory_stage"}
        return {
            "model": self.model.name,
            "hardware": self.hardware.name,
            "software": self.software.name,
            "plan": vars(self.plan),
            **{name: value for name, value in found.items() if name not in nested},
            "breakdown": {name: found[name] for name in _FOUR},
            "parts": {name: found[name] for name in parts if name not in _FOUR},
            "memory_gb": found["memory_gb"],
            "memory": {
                **{name: found[name] for name in sizes},
                "margin_gb": found["memory_margin_gb"],
                "stage": found["memory_stage"],
            },
            "provenance": provenance(self.model, self.hardware, self.software),
        }

    def row(self) -> "pa.Table":
        """Return the answers as one row, model, hardware and plan before them."""
        import pyarrow as pa  # noqa: PLC0415 - not for JSON, which is to be quick

        return pa.Table.from_pylist(
            [{"model": self.model.name, "hardware": self.hardware.name, **vars(self.plan), **self.answers}]
        )

    def by_name(self) -> "pa.Table":
        """Return the answers as a row each: name, value, meaning."""
        import pyarrow as pa  # noqa: PLC0415 - as above

        shown = (
            (name, f"{value:.6g}" if isinstance(value, float) else str(value)) for name, value in self.answers.items()
        )
        meaning = dict(ANSWERS)
        return pa.Table.from_pylist([{"name": name, "value": value, "meaning": meaning[name]} for name, value in shown])


def estimate(
    model: Model | str | os.PathLike[str], hardware: Hardware | str | os.PathLike[str], plan: Plan | str
) -> Estimate:
    """Estimate a step of a model on a hardware by a plan: by name, by file, or ready-made.

    Raises `LumosError` for unknown names (with the nearest), files that do not read or lack a figure, and a plan that
    does not go with the model or the GPU, with the nearest legal value.
    """
    of = model if isinstance(model, Model) else Model.read(model)
    gpu = hardware if isinstance(hardware, Hardware) else Hardware.read(hardware)
    by = plan if isinstance(plan, Plan) else Plan.parse(plan)
    by.check(of, gpu)
    software = Software.read(by.software)
    first = np.zeros(1, np.int64)
    found = answers(Jobs((of,), (gpu,), (software,), np.array([by.row()]), first, first))
    return Estimate(of, gpu, software, by, {name: column[0].item() for name, column in found.items()})
