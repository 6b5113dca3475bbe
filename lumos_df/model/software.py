"""The software: what a training framework adds to the GPU's own work, and what it does unless told otherwise."""

import os
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from lumos_df.errors import SoftwareError
from lumos_df.model.figures import flag, make, real, refuse, text
from lumos_df.model.library import read_document
from lumos_df.model.rows import REAL, Column, record, row_type

SOFTWARE_COLUMNS: Final = (
    Column("launch_s", "host time of one operator's launch, in seconds", REAL),
    Column("micro_batch_s", "host time a micro-batch beside launches, in seconds", REAL),
    Column("step_s", "host time a step beside launches and micro-batches, in seconds", REAL),
    Column("extra_operators", "operators that a layer's forward pass launches beside GEMMs, attention and norms", REAL),
    Column("fused", "1: element-wise chains run as one kernel, 0: one kernel each"),
    Column("gradient_bytes", "bytes a parameter in which gradients are kept and reduced", REAL),
    Column("optimizer_bytes", "bytes a parameter of the optimizer's state, master weights included", REAL),
    Column("overlap_tp", "1: tensor-parallel communication runs beside GEMMs unless the plan says otherwise"),
    Column("overlap_dp", "1: gradient and parameter communication runs beside compute unless the plan says otherwise"),
    Column("overlap_pp", "1: pipeline communication runs beside compute unless the plan says otherwise"),
    Column("reserve_bytes", "memory a GPU that is never a tensor: context, libraries, communication buffers", REAL),
    Column("reserve_fraction", "memory lost to the allocator's fragments, as a share of what tensors take", REAL),
)
"""What a kernel knows of a software."""

SOFTWARE_ROW: Final = row_type(SOFTWARE_COLUMNS)
"""Structured dtype of `Software.row()`."""


@dataclass(frozen=True)
class Software:
    """A training framework as it was run. Raises `SoftwareError` for figures that cannot be."""

    name: str
    """What to call it."""
    launch_s: float
    """Host time of one operator's launch, in seconds."""
    micro_batch_s: float
    """Host time a micro-batch beside launches, in seconds."""
    step_s: float
    """Host time a step beside launches and micro-batches (data, logging, optimizer's own), in seconds."""
    extra_operators: float
    """Operators that a layer's forward pass launches beside GEMMs, attention and norms."""
    fused: bool
    """Whether element-wise chains run as one kernel."""
    gradient_bytes: float
    """Bytes a parameter in which gradients are kept and reduced: 2 or 4."""
    optimizer_bytes: float
    """Bytes a parameter of the optimizer's state: 12 for Adam with fp32 master weights and moments."""
    overlap_tp: bool
    """Whether tensor-parallel communication runs beside GEMMs unless the plan says otherwise."""
    overlap_dp: bool
    """Whether gradient and parameter communication runs beside compute unless the plan says otherwise."""
    overlap_pp: bool
    """Whether pipeline communication runs beside compute unless the plan says otherwise."""
    reserve_bytes: float
    """Memory a GPU that is never a tensor: context, libraries, communication buffers."""
    reserve_fraction: float
    """Memory lost to the allocator's fragments, as a share of what tensors take."""
    source: str = ""
    """Where the figures are from."""

    def __post_init__(self) -> None:
        values = vars(self)
        refuse(
            SoftwareError,
            f"software '{self.name}'",
            [
                *text(values, "name", "source"),
                *real(values, 0, "launch_s", "micro_batch_s", "step_s", "extra_operators"),
                *flag(values, "fused", "overlap_tp", "overlap_dp", "overlap_pp"),
                *real(values, 0, "gradient_bytes", "optimizer_bytes", "reserve_bytes", "reserve_fraction"),
            ],
        )

    @classmethod
    def read(cls, name_or_path: str | os.PathLike[str]) -> Self:
        """Return a software by a name or alias of `data/software`, or from a TOML file of the same keys.

        Raises `SoftwareError` for an unknown name (with the nearest), and for a file that does not read, lacks a
        figure or says what cannot be.
        """
        name, figures = read_document(name_or_path, "software", SoftwareError)
        return make(cls, {"name": name, **figures}, f"software '{name}'", SoftwareError)

    def row(self) -> np.void:
        """Return the software as one `SOFTWARE_ROW`."""
        return record(SOFTWARE_ROW, vars(self))
