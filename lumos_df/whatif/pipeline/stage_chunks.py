"""Which parts of the model each stage of a pipeline runs, and in which order: the schedules of `model.schedule`."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import PlanError, nearest
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels.cost import BACKWARD_WEIGHT
from lumos_df.model.kernels.placement import chunk_layers
from lumos_df.model.pipeline.order import KIND, order
from lumos_df.model.plan import Plan
from lumos_df.model.transformer import Model
from lumos_df.schema.plan_words import DUALPIPE, FSDP, SCHEDULES
from lumos_df.whatif.job.settings import Settings, Sizes

_NAMES: Final = tuple(name for place, name in enumerate(SCHEDULES) if place != FSDP)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline and the schedule that its stages follow."""

    schedule: int
    """One of `model.schedule`'s."""
    stages: int
    chunks: int
    """Parts of the model that a stage has."""
    batches: int
    """Micro-batches of a step."""
    layers: int
    """Of the whole model."""

    @property
    def places(self) -> int:
        """Parts of the model one behind another; of DualPipe's every stage has one from either end."""
        return self.stages if self.schedule == DUALPIPE else self.stages * self.chunks

    @property
    def parts_gradients(self) -> bool:
        """Whether gradients of weights are computed apart from those of inputs."""
        return bool((self.tasks(self.stages - 1)[:, KIND] == BACKWARD_WEIGHT).any())

    def tasks(self, stage: int) -> NDArray[np.int32]:
        """Return what a stage does, in order; see `model.order`."""
        tasks: NDArray[np.int32] = order(self.schedule, self.stages, self.chunks, self.batches, stage)
        return tasks

    def place(self, stage: int, chunk: int) -> int:
        """Return which part of the model a chunk of a stage is."""
        if self.schedule == DUALPIPE:
            return self.stages - 1 - stage if chunk else stage
        return chunk * self.stages + stage

    def direction(self, chunk: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return 0 where micro-batches go from the first stage to the last, 1 where they go the other way [k]."""
        return chunk if self.schedule == DUALPIPE else np.zeros_like(chunk)

    def layers_of(self, place: int) -> NDArray[np.int64]:
        """Return the layers of a part of the model."""
        layer_counts = [int(chunk_layers(self.layers, self.places, number)) for number in range(place + 1)]
        return np.arange(sum(layer_counts[:-1]), sum(layer_counts))


def pipeline(settings: Settings, new: Sizes, layers: int) -> Pipeline:
    """Return the pipeline that is asked for. Raise `PlanError` where it cannot run, with the nearest that can.

    Args:
        settings: what the user asks to change.
        new: sizes of the changed job.
        layers: of the whole model.
    """
    name = settings.schedule or ("interleaved" if new.vp > 1 else "1f1b")
    if name not in _NAMES:
        raise PlanError(f"schedule={name} is not for traces{nearest(name, [*_NAMES])}; one of {', '.join(_NAMES)}")
    plan = Plan(pp=new.pp or 1, vp=new.vp, schedule=name, batch=new.batch or 1)
    # The rules of schedules ask nothing of a model but its layers, and nothing of the GPU.
    plan.check(Model("trace", layers, hidden=64, heads=1, vocab=64, seq=64), Hardware.read("h100-sxm"))
    if plan.pp * plan.vp > layers:
        raise PlanError(
            f"pp = {plan.pp}: a trace's {layers} layers are fewer than pp * vp chunks; nearest is {layers // plan.vp}"
        )
    chunks = 2 if name == "dualpipe" else plan.vp
    return Pipeline(SCHEDULES.index(name), plan.pp, chunks, plan.batch, layers)
