"""A recorded or changed job as the estimator's records, where all that it needs is known: its memory and its FLOP."""

import re
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from lumos_df.base.errors import QueryError
from lumos_df.model.evaluate import RESULT_COLUMNS, evaluate_rows
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model
from lumos_df.schema import FAMILIES
from lumos_df.schema.codes import BACKWARD, OPTIMIZER
from lumos_df.schema.dtypes import BF16, PRECISIONS, STORED_BYTES
from lumos_df.structure import shapes
from lumos_df.structure.describe import DescribedRank
from lumos_df.structure.shapes import Operation
from lumos_df.whatif.job.recorded_gpu import Machine
from lumos_df.whatif.job.recorded_job import RecordedJob
from lumos_df.whatif.job.settings import Sizes
from lumos_df.whatif.rewrite import recomputed_layers

_MODEL: Final = ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "seq", "vocab")
_PLAN: Final = ("tp", "cp", "dp", "pp", "vp", "micro_batch", "batch")
_ATTENTION, _GEMM = (FAMILIES.index(name) for name in ("attention", "gemm"))
_SOFTWARE: Final = "megatron"
"""Whose bytes of gradients and optimizer states are taken: mixed-precision Adam."""
_UPDATES_HALF: Final = re.compile(r"(?:Functor\w*<|lambda\()c10::(?:BFloat16|Half)\b(?!, float)")
"""Kernels of PyTorch's optimizers, on lists or on one tensor, whose operands are all of 16 bits."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What a job does that its dimensions do not say, as its trace shows it."""

    trains: bool
    """Whether there is a backward pass."""
    gated: bool
    flash: bool
    recompute: str
    sequence_parallel: bool
    zero: int
    half_states: bool = False
    """Whether gradients and the optimizer's states are of 16 bits, as parameters are, with no copies in 32."""

    def __str__(self) -> str:
        """Return them as a plan has them."""
        states = "optimizer in 16 bits" if self.half_states else f"optimizer as {_SOFTWARE}'s"
        flags = [name for name in ("gated", "flash", "sequence_parallel") if getattr(self, name)]
        return ", ".join([f"zero={self.zero}", f"recompute={self.recompute}", *flags, states])


def habits(anchor: RecordedJob) -> Habits:
    """Return what the first rank of a job shows."""
    rank = anchor.about.ranks[0]
    trace, structure = rank.trace, rank.structure
    kernel = structure.kernels.row
    family = trace.rows.family[kernel]
    operations = shapes.operations(trace, structure.phase, structure.layer)
    return Habits(
        trains=bool((structure.phase == BACKWARD).any()),
        gated=_gated(operations, anchor.sizes),
        flash=bool((family == _ATTENTION).any()),
        recompute=recomputed_layers.recorded(rank),
        sequence_parallel=anchor.sizes.sp,
        zero=anchor.sizes.zero or 0,
        half_states=_half_states(rank),
    )


def _half_states(rank: DescribedRank) -> bool:
    """Return whether most of the optimizer's time is kernels whose names tell parameters and states of 16 bits."""
    rows = rank.trace.rows
    updates = (rank.structure.phase == OPTIMIZER) & rows.on_gpu
    half = updates & rows.named(lambda name: _UPDATES_HALF.search(name) is not None)
    return bool(2 * rows.dur[half].sum() > rows.dur[updates].sum())


def _gated(operations: list[Operation], sizes: Sizes) -> bool:
    """Return whether the MLP has a gate: twice as many columns lead up to its width as rows lead down from it."""
    if not (sizes.hidden and sizes.ffn):
        return False
    width = sizes.ffn // (sizes.tp or 1)
    products = [
        (operation.product[1:], operation.count)
        for operation in operations
        if (operation.is_product() or operation.is_grouped()) and operation.inside
    ]
    up = sum(count * n // width for (k, n), count in products if k == sizes.hidden and n in {width, 2 * width})
    down = sum(count for size, count in products if size == (width, sizes.hidden))
    return bool(down) and up >= 2 * down


def model(anchor: RecordedJob, sizes: Sizes, does: Habits) -> Model:
    """Return a job's model. Raise `LumosError` where the estimator has no such, or not all of it is known."""
    job = anchor.about.job
    if anchor.about.facts["model"].value != "transformer":
        raise QueryError(f"{job}: the model is no transformer")
    _need(job, sizes, _MODEL)
    if (anchor.experts or 1) > 1:
        raise QueryError(f"{job}: the sizes of its experts are unknown")
    figures: dict[str, Any] = {name: getattr(sizes, name) for name in _MODEL}
    # A decoder behind an encoder has as many layers again.
    figures["layers"] *= anchor.about.ranks[0].structure.stacks or 1
    if sizes.experts and sizes.top_k:
        figures |= {"experts": sizes.experts, "top_k": sizes.top_k, "expert_ffn": sizes.ffn}
    return Model(job, **figures, gated=does.gated)


def _need(job: str, sizes: Sizes, names: tuple[str, ...]) -> None:
    missing = [name for name in names if getattr(sizes, name) is None]
    if missing:
        raise QueryError(f"{job}: unknown {', '.join(missing)}; lumos-df describe says why")


def results(
    anchor: RecordedJob,
    sizes: Sizes,
    machine: Machine,
    does: Habits,
    schedule: str | None,
    software: Software | None = None,
) -> dict[str, float]:
    """Return what the estimator says of a job: `model.step.RESULTS` by name.

    Args:
        anchor: the job, for its name and kind.
        sizes: its dimensions and degrees, as they are or as they become.
        machine: the GPU.
        does: what else it does.
        schedule: its pipeline's order of micro-batches; None: 1F1B, interleaved where a stage has several chunks.
        software: what runs it; None: Megatron's profile.

    Raises:
        LumosError: why the estimator knows nothing of such a job.
    """
    job_model = model(anchor, sizes, does)
    _need(anchor.about.job, sizes, _PLAN)
    figures: dict[str, Any] = {name: getattr(sizes, name) for name in _PLAN}
    batches = figures.pop("batch")
    plan = Plan(
        **figures,
        batch=batches * figures["micro_batch"] * figures["dp"],
        sequence_parallel=does.sequence_parallel,
        recompute=does.recompute,
        schedule=(schedule or ("interleaved" if sizes.vp > 1 else "1f1b")) if sizes.pp != 1 else "1f1b",
        zero=does.zero,
        precision=PRECISIONS[machine.precision],
        flash=does.flash,
    )
    plan.check(job_model, machine.hardware)
    profile = software or Software.read(_SOFTWARE)
    size = STORED_BYTES[machine.precision]
    if software is None and does.half_states and size == STORED_BYTES[BF16]:
        # Gradients, and Adam's two means, are of the parameters' type.
        profile = replace(profile, gradient_bytes=size, reduce_bytes=size, optimizer_bytes=2 * size)
    first = np.zeros(1, np.int64)
    models, hardware, profiles, plans = (
        np.array([noun.row()]) for noun in (job_model, machine.hardware, profile, plan)
    )
    values = evaluate_rows(models, hardware, profiles, plans, first, first)[0]
    return dict(zip(RESULT_COLUMNS, values.tolist(), strict=True))
