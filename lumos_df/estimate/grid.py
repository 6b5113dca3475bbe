"""A grid: models x hardware x values of a plan's fields, numbered, and any stretch of it as arrays.

Configurations are never listed: number i is the digits of i in the mixed radix of the grid's axes.
"""

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import LumosError, PlanError, nearest
from lumos_df.estimate.answer import Jobs
from lumos_df.estimate.sensible_plans import sensible_plans
from lumos_df.model.figures import refuse, whole
from lumos_df.model.hardware import Hardware
from lumos_df.model.plan import (
    OVERLAPS,
    PLAN_ROW,
    WORDS,
    Plan,
    field_name,
    placement_code,
    value_of,
    words,
)
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model
from lumos_df.schema.plan_words import INTERLEAVED, ONE_F_ONE_B

_DERIVED: Final = {"gpus": "dp", "micro_batches": "batch"}
"""Axes that say a plan's field by another: dp = gpus / (tp * pp * cp), batch = micro_batches * dp * micro_batch."""

_OF_GPUS: Final = ("gpus", "dp", "batch", "micro_batches")
"""What a grid of all plans of some GPUs says by itself."""

_CHOSEN: Final = frozenset(("tp", "pp"))
"""What the blocks of sensible plans have one value of, each."""

_KEYS: Final = ("model", "hardware", "plan")

Axes = Mapping[str, tuple[Any, ...]]
"""Values by name of a plan's field, `gpus` or `micro_batches`."""


@dataclass(frozen=True)
class Stretch:
    """Some configurations of a grid, legal or not."""

    jobs: Jobs
    uneven: NDArray[np.bool_]
    """[n]: `gpus` is no multiple of tp * pp * cp, so the plan has no dp; it stands as 1."""


@dataclass(frozen=True)
class Grid:
    """All plans of every block, for every model on every hardware. Raises `LumosError` for what cannot be read."""

    models: tuple[Model, ...]
    """The models."""
    hardware: tuple[Hardware, ...]
    """The GPUs."""
    software: tuple[Software, ...]
    """The software profiles that the blocks name."""
    blocks: tuple[Axes, ...]
    """Axes of each block, their values as records hold them."""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Return the grid of a TOML file: `model`, `hardware` and `plan`.

        `model` and `hardware` are a name or file, or a list of them. `plan` is a table of fields, each with a value or
        a list of values; or texts as `make` takes them.
        """
        try:
            said = tomllib.loads(Path(path).read_text("utf-8"))
        except OSError as error:
            raise LumosError(f"{os.fspath(path)}: {error.strerror}") from None
        except ValueError as error:
            raise LumosError(f"{os.fspath(path)}: does not read: {error}") from None
        for key in said:
            if key not in _KEYS:
                raise LumosError(f"{os.fspath(path)}: there is no '{key}'{nearest(key, list(_KEYS))}")
        for key in _KEYS:
            if key not in said:
                raise LumosError(f"{os.fspath(path)}: needs '{key}'")
        return cls.make(*(_listed(said[key]) for key in _KEYS))

    @classmethod
    def make(
        cls,
        models: Iterable[Model | str | os.PathLike[str]],
        hardware: Iterable[Hardware | str | os.PathLike[str]],
        plans: Iterable[str | Mapping[str, Any]],
    ) -> Self:
        """Return the grid of models and hardware by name, by file or ready-made, and of plans.

        Args:
            models, hardware: names, files, or what they stand for.
            plans: texts such as `tp=1|2|4,pp=1|2,gpus=64,batch=512`, or tables of lists. Each is a block of its own.
        """
        models, hardware, plans = list(models), list(hardware), list(plans)
        for key, values in (("model", models), ("hardware", hardware), ("plan", plans)):
            if not values:
                raise LumosError(f"{key} = []: a grid needs at least one {key}")
        for key, values in (("model", models), ("hardware", hardware)):
            for value in values:
                if not isinstance(value, str | os.PathLike | Model | Hardware):
                    raise LumosError(f"{key} = {value!r}: must be a name or a file")
        profiles: dict[str, int] = {}
        blocks = tuple(_block(plan, profiles) for plan in plans)
        return cls(
            tuple(name if isinstance(name, Model) else Model.read(name) for name in models),
            tuple(name if isinstance(name, Hardware) else Hardware.read(name) for name in hardware),
            tuple(Software.read(name) for name in profiles),
            blocks,
        )

    @classmethod
    def of_gpus(
        cls,
        models: Iterable[str | os.PathLike[str]],
        hardware: Iterable[str | os.PathLike[str]],
        gpus: int,
        batch: int,
        same: str = "",
    ) -> Self:
        """Return the grid of every sensible plan of some GPUs, as `sensible_plans` lists them for model and GPU.

        Args:
            models, hardware: names or files.
            gpus: how many.
            batch: sequences of a step.
            same: what all plans have, as `make` takes it: `software=megatron,precision=fp8`. What it says of `tp` and
                `pp` chooses among the sensible ones; other fields are as it says.

        Raises `LumosError` for what cannot be read, and where no plan uses that many GPUs.
        """
        pairs = [(Model.read(model), Hardware.read(gpu)) for model in models for gpu in hardware]
        plans = [plan for model, gpu in pairs for plan in sensible_plans(model, gpu, gpus, batch)]
        if same:
            plans = _with(plans, dict(_said(same)))
        distinct = {repr(sorted(plan.items())): plan for plan in plans}
        return cls.make(dict.fromkeys(models), dict.fromkeys(hardware), distinct.values())

    def __len__(self) -> int:
        return int(self._ends()[-1])

    def stretch(self, first: int, last: int) -> Stretch:
        """Return the configurations `first` to `last` (not included)."""
        ends = self._ends()
        parts: list[tuple[NDArray[np.void], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]] = []
        for place in range(int(np.searchsorted(ends, first, "right")), len(self.blocks)):
            start = int(ends[place - 1]) if place else 0
            if parts and start >= last:
                break
            low, high = max(first, start) - start, min(last, int(ends[place])) - start
            parts.append(self._part(self.blocks[place], np.arange(low, high)))
        plans, model_of, hardware_of, uneven = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        jobs = Jobs(
            models=self.models,
            hardware=self.hardware,
            software=self.software,
            plans=plans,
            model_of=model_of,
            hardware_of=hardware_of,
        )
        return Stretch(jobs, uneven)

    def _ends(self) -> NDArray[np.int64]:
        """Return, for each block, the number after that of its last configuration."""
        pairs = len(self.models) * len(self.hardware)
        return np.cumsum([pairs * int(np.prod([len(values) for values in axes.values()])) for axes in self.blocks])

    def _part(
        self, axes: Axes, numbers: NDArray[np.int64]
    ) -> tuple[NDArray[np.void], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        shape = (len(self.models), len(self.hardware), *(len(values) for values in axes.values()))
        model_of, hardware_of, *digits = np.unravel_index(numbers, shape)
        said = {
            name: np.array(values, np.int64)[digit] for (name, values), digit in zip(axes.items(), digits, strict=True)
        }
        plans = np.full(len(numbers), Plan().row(), PLAN_ROW)
        for name in axes.keys() - _DERIVED.keys():
            plans[name] = said[name]
        if "schedule" not in said:
            plans["schedule"] = np.where(plans["vp"] > 1, INTERLEAVED, ONE_F_ONE_B)
        profiles = np.array([profile.row() for profile in self.software])
        for name in OVERLAPS:
            if name not in said:
                plans[name] = profiles[name][plans["software"]]
        uneven = np.zeros(len(numbers), np.bool_)
        if "gpus" in said:
            replica = plans["tp"] * plans["pp"] * plans["cp"]
            uneven = said["gpus"] % replica != 0
            plans["dp"] = np.where(uneven, 1, said["gpus"] // replica)
        if "micro_batches" in said:
            plans["batch"] = said["micro_batches"] * plans["dp"] * plans["micro_batch"]
        return plans, model_of, hardware_of, uneven


def _with(plans: list[dict[str, list[Any]]], same: Mapping[str, list[str]]) -> list[dict[str, list[Any]]]:
    """Return sensible plans with fields that all of them have."""
    for name in _OF_GPUS:
        if name in same:
            raise PlanError(f"plan: '{name}' follows from the number of GPUs and the batch; leave it out")
    for name in _CHOSEN.intersection(same):
        wanted = [value_of(name, text) for text in same[name]]
        sensible = sorted({plan[name][0] for plan in plans})
        plans = [plan for plan in plans if plan[name][0] in wanted]
        if not plans:
            raise PlanError(f"plan: '{name}' is none of the sensible ones: {', '.join(map(str, sensible))}")
    return [{**plan, **same} for plan in plans]


def _listed(said: Any) -> list[Any]:
    return list(said) if isinstance(said, list | tuple) else [said]


def _block(plan: str | Mapping[str, Any], profiles: dict[str, int]) -> Axes:
    """Return the axes of one block; software profiles that it names are added to `profiles` with their places."""
    axes = {}
    for name, texts in _said(plan):
        values = tuple(dict.fromkeys(value_of(name, text) for text in texts))
        if not values:
            raise PlanError(f"plan: '{name}' has no value")
        for value in values:
            if name in _DERIVED:
                refuse(PlanError, "plan", whole({name: value}, 1, name))
            else:
                Plan(**{name: value})  # type: ignore[arg-type]  # refuses what cannot be
        axes[name] = tuple(_code(name, value, profiles) for value in values)
    for name, field in _DERIVED.items():
        if name in axes and field in axes:
            raise PlanError(f"plan: '{name}' says what '{field}' is; give one of them")
    if "software" not in axes:
        axes["software"] = (_code("software", Plan().software, profiles),)
    return axes


def _said(plan: str | Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Give the fields of a plan and the texts of their values."""
    more = tuple(_DERIVED)
    if isinstance(plan, str):
        for name, text in words(plan, more):
            yield name, [piece.strip() for piece in text.split("|")]
    elif isinstance(plan, Mapping):
        for spelled, values in plan.items():
            yield field_name(spelled, more), [str(value) for value in _listed(values)]
    else:
        raise PlanError(f"plan = {plan!r}: must be a text such as 'tp=1|2,pp=4', a table, or a list of them")


def _code(name: str, value: Any, profiles: dict[str, int]) -> int:
    """Return a value as records hold it."""
    if name in WORDS:
        return WORDS[name].index(value)
    if name == "placement":
        return placement_code(value)
    if name == "software":
        return profiles.setdefault(value, len(profiles))
    return int(value)
