"""What a job makes of its GPUs: rates, FLOP, memory and energy, of the job as it ran and as it becomes.

A figure that nothing recorded or known leads to is None.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import LumosError
from lumos_df.graph.replay import Replay
from lumos_df.schema.codes import NONE
from lumos_df.structure.shapes import ATTENDS, BATCHED
from lumos_df.whatif.answer import modelled, step_flops
from lumos_df.whatif.changed_job import ChangedJob
from lumos_df.whatif.durations import host_times
from lumos_df.whatif.job.recorded_gpu import Machine
from lumos_df.whatif.job.settings import Sizes
from lumos_df.whatif.rewrite.recomputed_layers import ATTENTIONS, LAYERS

_SIZES: Final = ("memory", "weights", "gradients", "optimizer", "activations", "logits", "reserve")
RATES: Final = ("tokens_per_s_per_gpu", "tflops_per_s_per_gpu", "mfu_pct", "hfu_pct", "energy_j")
"""Figures of a step."""
MEMORY: Final = (*(f"{name}_gb" for name in _SIZES), "memory_margin_gb")
"""Sizes of the fullest GPU, 10^9 bytes."""


@dataclass(frozen=True, slots=True)
class StepFlops:
    """FLOP of a step on one GPU, by step [s]; and where they are known from."""

    asked: NDArray[np.float64]
    """What the model asks for."""
    done: NDArray[np.float64]
    """With what is computed again."""
    source: str
    """`recorded` shapes, or the `dimensions`."""


@dataclass(frozen=True)
class JobOnMachine:
    """A job before or after its change."""

    sizes: Sizes
    machine: Machine
    known_hardware: bool
    """Whether the GPU is the job's, and not one that stands in for it."""
    known_dtype: bool
    results: dict[str, float] | None
    """What the estimator says of it."""
    why: str | None
    """Why it says nothing."""
    replicas: int = 1
    """Parts of the job that no degree tells apart: its ranks over the product of the degrees."""

    @property
    def gpus(self) -> int | None:
        """GPUs of the job."""
        product = _product(self.sizes)
        return None if product is None else product * self.replicas

    @property
    def peak_flops(self) -> float | None:
        """FLOP/s of a GPU at the most."""
        known = self.known_hardware and self.known_dtype
        return float(self.machine.row["peak_flops"][self.machine.precision]) if known else None

    def rates(self, step_ns: int, other_ns: int, asked: float | None, done: float | None) -> dict[str, float | None]:
        """Return `RATES` of one step.

        Args:
            step_ns: its length.
            other_ns: how much of it no kernel runs.
            asked, done: FLOP on a GPU, without and with what is computed again.
        """
        seconds, sizes, peak = step_ns * 1e-9, self.sizes, self.peak_flops
        rates: dict[str, float | None] = dict.fromkeys(RATES)
        if not step_ns:
            return rates
        if sizes.seq and sizes.micro_batch and sizes.batch:
            tokens = sizes.seq * sizes.micro_batch * sizes.batch / ((sizes.tp or 1) * sizes.cp * (sizes.pp or 1))
            rates["tokens_per_s_per_gpu"] = tokens / seconds
        if asked is not None and done is not None:
            rates["tflops_per_s_per_gpu"] = asked / seconds * 1e-12
            if peak:
                rates["mfu_pct"] = 100 * asked / seconds / peak
                rates["hfu_pct"] = 100 * done / seconds / peak
        if self.gpus and self.known_hardware:
            row = self.machine.row
            watts = float(row["tdp_w"]) * (step_ns - other_ns) + float(row["idle_w"]) * other_ns
            rates["energy_j"] = self.gpus * watts * 1e-9
        return rates


def _product(sizes: Sizes) -> int | None:
    """Return the ranks that the degrees of a job make, None where one is unknown."""
    degrees = (sizes.tp, sizes.cp, sizes.dp, sizes.pp)
    return None if None in degrees else int(np.prod([degree or 1 for degree in degrees]))


class JobUsage:
    """The figures of a changed job and of its original."""

    def __init__(self, changed: ChangedJob) -> None:
        """Ask the estimator about both."""
        self._changed = changed
        anchor, plan = changed.anchor, changed.plan
        known = anchor.about.facts["dtype"].value is not None
        self._does = modelled.habits(anchor)
        does = self._does
        if plan.settings.recompute:
            does = replace(does, recompute=plan.settings.recompute)
        does = replace(does, zero=plan.new.zero or 0, sequence_parallel=plan.new.sp)
        self.old = self._side(plan.old, plan.measured_on, (anchor.known_hardware, known), self._does, None)
        ran_on = anchor.known_hardware or bool(plan.settings.hardware), known or bool(plan.settings.dtype)
        self.new = self._side(plan.new, plan.runs_on, ran_on, does, plan.settings.schedule)

    def _side(
        self, sizes: Sizes, machine: Machine, known: tuple[bool, bool], does: modelled.Habits, schedule: str | None
    ) -> JobOnMachine:
        anchor = self._changed.anchor
        why: str | None = f"{anchor.about.job}: the job ran on no GPU"
        if any(host_times.runs_here(graph) for graph in anchor.job.graphs):
            return JobOnMachine(sizes, machine, *known, None, why, self._replicas)
        try:
            results, why = modelled.results(anchor, sizes, machine, does, schedule), None
        except LumosError as error:
            results, why = None, str(error)
        return JobOnMachine(sizes, machine, *known, results, why, self._replicas)

    @cached_property
    def _replicas(self) -> int:
        """Parts of the recorded job that no degree tells apart, 1 where its ranks are no multiple of them."""
        world, product = self._changed.anchor.about.facts["world"].value, _product(self._changed.plan.old)
        return int(world) // product if world and product and int(world) % product == 0 else 1

    @cached_property
    def _recorded(self) -> list[step_flops.OperatorFlops | None]:
        """FLOP of the operators of every recorded rank."""
        plan = self._changed.plan
        return [
            step_flops.recorded(rank, plan.symbols, axes)
            for rank, axes in zip(self._changed.anchor.about.ranks, plan.axes, strict=True)
        ]

    def work(
        self,
        replay: Replay,
        ranks: tuple[int, ...],
        source: NDArray[np.int32] | None = None,
        repeated: NDArray[np.bool_] | None = None,
    ) -> StepFlops | None:
        """Return the FLOP of the steps of one rank, None where nothing tells them.

        Args:
            replay: the rank.
            ranks: places of the recorded ranks that it is made from.
            source: which row of theirs, one rank's behind the other's, each row is from, NONE where none; None: it is
                the recorded rank itself.
            repeated: which rows a setting computes again; None: none.
        """
        told = [each for rank in ranks if (each := self._recorded[rank])]
        numbers = replay.steps.number
        if len(told) == len(ranks):
            flops = np.concatenate([each.before if source is None else each.after for each in told])
            again = np.concatenate([each.again for each in told])
            if source is not None:
                if self._changed.plan.settings.recompute:
                    flops = np.where(again & ~self._still(ranks), 0, flops)
                flops, again = np.append(flops, 0)[source], np.append(again, False)[source]
            if repeated is not None:
                again = again | repeated
            whole = bool(numbers[0] == NONE)
            asked, done = (
                step_flops.by_step(each, replay.graph.rows.step, numbers, whole=whole)
                for each in (np.where(again, 0, flops), flops)
            )
            return StepFlops(asked, done, "recorded")
        side = self.old if source is None else self.new
        if side.results is None or not side.gpus:
            return None
        # The estimator counts three passes; a job that only goes forward has one.
        share = (1 if self._does.trains else 1 / 3) / side.gpus
        each_step = np.ones(len(numbers))
        asked, done = (side.results[name] * share * each_step for name in ("model_flops", "hardware_flops"))
        return StepFlops(asked, done, "dimensions")

    def _still(self, ranks: tuple[int, ...]) -> NDArray[np.bool_]:
        """Return which operators of recorded ranks, one rank's behind the other's, attend, and still do so again."""
        traces = [self._changed.anchor.about.ranks[rank].trace.rows for rank in ranks]
        if self._does.recompute != LAYERS or self._changed.plan.settings.recompute != ATTENTIONS:
            return np.zeros(sum(map(len, traces)), np.bool_)
        return np.concatenate([rows.named(lambda name: ATTENDS.search(name) or BATCHED.match(name)) for rows in traces])

    @cached_property
    def memory(self) -> tuple[dict[str, Any], dict[str, Any], str | None]:
        """`MEMORY`, `memory_stage` and `fits` of the new job and of the old one, and where they are known from."""
        peak = self._changed.anchor.peak_bytes
        old, new = self.old, self.new
        if self._does.trains and old.results and new.results:
            if peak is None:
                return _sizes(new, new.results), _sizes(old, old.results), f"modelled from the dimensions: {self._does}"
            # The allocator does not see what libraries hold, so that is left out on both sides.
            factor = peak / (old.results["memory_bytes"] - old.results["reserve_bytes"])
            how = f"recorded by the allocator, {factor:.3g} times what is modelled ({self._does}), and scaled as that"
            return _sizes(new, _held(new.results, factor)), _sizes(old, _held(old.results, factor)), how
        nothing = dict.fromkeys((*MEMORY, "memory_stage", "fits"))
        if peak is None:
            return nothing, nothing, None
        same = _sizes(old, {"memory_bytes": float(peak)})
        plan = self._changed.plan
        kept = plan.old == plan.new and plan.settings.batch_scale == 1 and plan.settings.recompute is None
        return _sizes(new, {"memory_bytes": float(peak)}) if kept else nothing, same, "recorded"

    def warnings(self) -> list[str]:
        """Say which figures are unknown, and why."""
        unknown = []
        if not self.new.known_hardware:
            on_host = all(map(host_times.runs_here, self._changed.anchor.job.graphs))
            why = "no GPU ran" if on_host else "the GPU is; tell it with --known hardware=NAME|FILE"
            unknown.append(f"MFU, energy and what fits are unknown, as {why}")
        if self.memory[0]["memory_gb"] is None:
            backward = f"{self._changed.anchor.about.job}: the job has no backward pass"
            unknown.append(f"memory is unknown: {(self.new.why or self.old.why) if self._does.trains else backward}")
        return unknown


def _held(results: dict[str, float], factor: float) -> dict[str, float]:
    """Return the sizes of what an allocator holds, all of them times a factor."""
    sizes = {f"{name}_bytes": results[f"{name}_bytes"] * factor for name in _SIZES[1:-1]}
    return {**sizes, "memory_bytes": sum(sizes.values()), "memory_stage": results["memory_stage"]}


def _sizes(side: JobOnMachine, results: dict[str, float]) -> dict[str, Any]:
    """Return the memory of the fullest GPU; sizes that `results` lack are None."""
    in_bytes = {f"{name}_gb": results.get(f"{name}_bytes") for name in _SIZES}
    sizes: dict[str, Any] = {name: None if size is None else size * 1e-9 for name, size in in_bytes.items()}
    margin = None
    if side.known_hardware:
        margin = float(side.machine.row["hbm_bytes"]) * 1e-9 - sizes["memory_gb"]
    stage = results.get("memory_stage")
    return {
        **sizes,
        "memory_margin_gb": margin,
        "memory_stage": None if stage is None else int(stage),
        "fits": None if margin is None else margin >= 0,
    }
