"""One configuration: its answers, the operators behind them, and where the figures are from."""

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lumos_df.estimate.answer import ANSWERS, Jobs, answers, provenance
from lumos_df.estimate.block_operators import block_operators
from lumos_df.model.hardware import Hardware
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model
from lumos_df.schema import STEP_PARTS

if TYPE_CHECKING:
    import pyarrow as pa

_FOUR: Final = tuple(f"{part.name}_s" for part in STEP_PARTS)


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
        answers = self.answers
        parts = [
            name
            for name in answers
            if name.endswith("_s") and name not in {"iteration_time_s", "low_s", "high_s", "expected_s"}
        ]
        sizes = [name for name in answers if name.endswith("_gb") and name not in {"memory_gb", "memory_margin_gb"}]
        nested = {*parts, *sizes, "memory_gb", "memory_margin_gb", "memory_stage"}
        return {
            "model": self.model.name,
            "hardware": self.hardware.name,
            "software": self.software.name,
            "plan": vars(self.plan),
            **{name: value for name, value in answers.items() if name not in nested},
            "breakdown": {name: answers[name] for name in _FOUR},
            "parts": {name: answers[name] for name in parts if name not in _FOUR},
            "memory_gb": answers["memory_gb"],
            "memory": {
                **{name: answers[name] for name in sizes},
                "margin_gb": answers["memory_margin_gb"],
                "stage": answers["memory_stage"],
            },
            "provenance": provenance(self.model, self.hardware, self.software, self.plan.precision),
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
    model = model if isinstance(model, Model) else Model.read(model)
    hardware = hardware if isinstance(hardware, Hardware) else Hardware.read(hardware)
    plan = plan if isinstance(plan, Plan) else Plan.parse(plan)
    plan.check(model, hardware)
    software = Software.read(plan.software)
    first = np.zeros(1, np.int64)
    jobs = Jobs(
        models=(model,),
        hardware=(hardware,),
        software=(software,),
        plans=np.array([plan.row()]),
        model_of=first,
        hardware_of=first,
    )
    return Estimate(model, hardware, software, plan, {name: column[0].item() for name, column in answers(jobs).items()})
