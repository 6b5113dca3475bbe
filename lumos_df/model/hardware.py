"""The hardware: a GPU and the links around it."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import HardwareError
from lumos_df.model import fitted
from lumos_df.model.figures import Complaint, flag, make, real, refuse, text, whole
from lumos_df.model.library import read_document
from lumos_df.model.records import REAL, Column, record, row_type
from lumos_df.schema.collective_kinds import FITTED_COLLECTIVES
from lumos_df.schema.dtypes import BF16, FP4, FP8_BLOCK, FP32, OPERAND_BYTES, PRECISIONS

GENERATIONS: Final = (
    *("volta", "ampere", "ada", "hopper", "blackwell", "cdna2", "cdna3", "cdna4"),
    *("gaudi3", "tpu-v5", "tpu-v6", "trainium2"),
)
"""Architectures that a record tells apart."""

HARDWARE_COLUMNS: Final = (
    Column("generation", "place in GENERATIONS; -1: another"),
    Column(
        "peak_flops", "dense FLOP/s of matrix products by PRECISIONS; 0: the GPU has no such", REAL, (len(PRECISIONS),)
    ),
    Column("borrowed", "1: its kernels are those of another architecture, for nothing of its own was measured"),
    Column("hbm_bytes", "memory of a GPU that programs can have", REAL),
    Column("hbm_bandwidth", "bytes/s of that memory", REAL),
    Column("sms", "streaming multiprocessors (AMD: compute units)"),
    Column("scale_up_gpus", "GPUs that fast links join: 8 of an HGX node, 72 of an NVL72 rack"),
    Column("scale_up_bandwidth", "bytes/s of a GPU in one direction inside that domain", REAL),
    Column("scale_out_bandwidth", "bytes/s of a GPU in one direction between domains", REAL),
    Column("scale_out_nics", "network cards a GPU; below 1 where GPUs share one", REAL),
    Column("pcie_bandwidth", "bytes/s to the host in one direction", REAL),
    Column("tdp_w", "power limit of a GPU", REAL),
    Column("idle_w", "power of a GPU that waits", REAL),
    Column(
        "flash2_factor",
        "time of FlashAttention-2 over that of the best fused attention; 0: it does not run there",
        REAL,
    ),
    Column(
        "power_factor",
        "time of matrix products and attention at its power limit over that of the GPU that its kernels are of",
        REAL,
    ),
    Column("gemm", "fitted: matrix products by PRECISIONS, and at FP8_BLOCK", REAL, (len(PRECISIONS) + 1, 16)),
    Column("attention", "fitted: attention by PRECISIONS", REAL, (len(PRECISIONS), 16)),
    Column("memory", "fitted: memory-bound kernels", REAL, (8,)),
    Column(
        "scale_up", "fitted: collectives inside a domain by FITTED_COLLECTIVES", REAL, (len(FITTED_COLLECTIVES), 16)
    ),
    Column("scale_out", "fitted: what crossing domains adds to a collective", REAL, (8,)),
)
"""What a kernel knows of a hardware."""

HARDWARE_ROW: Final = row_type(HARDWARE_COLUMNS)
"""Structured dtype of `Hardware.row()`."""

_FITTED_COLUMNS: Final = ("gemm", "attention", "memory", "scale_up", "scale_out")

FITTED: Final = ("gemm", "attention", "memory", "network")
"""Tables of a hardware file that a fit to measurements writes."""


@dataclass(frozen=True)
class PeakFlops:
    """Dense FLOP/s of matrix products; 0 where the GPU has no such format."""

    fp32: float
    """32 bits in the vector units, not TF32."""
    fp16: float = 0.0
    """16 bits, IEEE half precision."""
    bf16: float = 0.0
    """16 bits, bfloat16."""
    fp8: float = 0.0
    """8 bits, either kind."""
    fp4: float = 0.0
    """4 bits, with a scale for each 16 (NVFP4) or 32 (MXFP4)."""


@dataclass(frozen=True)
class ScaleUp:
    """The fast links of a GPU: NVLink, xGMI, or PCIe where it has no other."""

    gpus: int
    """GPUs that the links join: 8 of an HGX node, 72 of an NVL72 rack."""
    bandwidth: float
    """Bytes/s of a GPU in one direction, all its links together."""


@dataclass(frozen=True)
class ScaleOut:
    """The network between domains of fast links."""

    bandwidth: float
    """Bytes/s of a GPU in one direction."""
    nics: float = 1.0
    """Network cards a GPU; below 1 where GPUs share one."""


@dataclass(frozen=True)
class Hardware:
    """A GPU and the links around it. Raises `HardwareError` for figures that cannot be. SI units throughout."""

    name: str
    """What to call it."""
    vendor: str
    """Who makes it: nvidia, amd."""
    generation: str
    """Its architecture: one of `GENERATIONS`, or another, of which nothing was measured."""
    peak_flops: PeakFlops
    """Dense FLOP/s of matrix products."""
    hbm_bytes: float
    """Memory that programs can have: what the driver reports, a little below the nominal size."""
    hbm_bandwidth: float
    """Bytes/s of that memory, nominal."""
    sms: int
    """Streaming multiprocessors (AMD: compute units)."""
    scale_up: ScaleUp
    """The fast links."""
    scale_out: ScaleOut
    """The network."""
    pcie_bandwidth: float
    """Bytes/s to the host in one direction."""
    tdp_w: float
    """Power limit in watts."""
    idle_w: float
    """Power in watts of a GPU that waits."""
    fitted_from: str
    """The GPU whose fitted kernel and network figures hold for this one: itself, or another of its vendor."""
    fitted: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Fitted tables of its own (`FITTED`), which go before those of `fitted_from`."""
    flash2_factor: float = 1.0
    """Time of FlashAttention-2 over that of the best fused attention: 1 up to Ampere, for which it was written; 0 where
    it does not run, so that frameworks take the best: no `attention_factor` of theirs holds there."""
    power_factor: float = 1.0
    """Time of matrix products and attention at its power limit over that of the GPU that its kernels are of. Power
    above the idle one goes with the cube of the clock (voltage with the clock), so this is the cube root of the ratio
    of what either may take above that."""
    borrowed: bool = False
    """Whether its kernels are those of another architecture, for nothing of its own was measured."""
    source: str = ""
    """Where the figures are from."""

    def __post_init__(self) -> None:
        refuse(HardwareError, f"hardware '{self.name}'", self._complaints())

    @classmethod
    def read(cls, name_or_path: str | os.PathLike[str]) -> Self:
        """Return a hardware by a name or alias of `data/hardware`, or from a TOML file of the same keys.

        Raises `HardwareError` for an unknown name (with the nearest), and for a file that does not read, lacks a
        figure or says what cannot be.
        """
        name, figures = read_document(name_or_path, "hardware", HardwareError)
        what = f"hardware '{name}'"
        parts = {"peak_flops": PeakFlops, "scale_up": ScaleUp, "scale_out": ScaleOut}
        for key, part in parts.items():
            if key in figures:
                if not isinstance(figures[key], dict):
                    raise HardwareError(f"{what}: {key} must be a table")
                figures[key] = make(part, figures[key], f"{what}, table '{key}'", HardwareError)
        fitted = {key: figures.pop(key) for key in FITTED if key in figures}
        return make(cls, {"name": name, **figures, "fitted": fitted}, what, HardwareError)

    def row(self) -> np.void:
        """Return the hardware as one `HARDWARE_ROW`."""
        peak = asdict(self.peak_flops)
        values = {
            **vars(self),
            "generation": GENERATIONS.index(self.generation) if self.generation in GENERATIONS else -1,
            "peak_flops": tuple(peak[precision] for precision in PRECISIONS),
            "scale_up_gpus": self.scale_up.gpus,
            "scale_up_bandwidth": self.scale_up.bandwidth,
            "scale_out_bandwidth": self.scale_out.bandwidth,
            "scale_out_nics": self.scale_out.nics,
            **self._fitted_columns(),
        }
        return record(HARDWARE_ROW, values)

    def _fitted_columns(self) -> dict[str, NDArray[np.float64]]:
        """Return the fitted columns of a record: the figures of `fitted_from`, those of `fitted` over them."""
        parameters = fitted.load(self.fitted_from, self.fitted)
        wide = parameters.gemm["bf16"]
        # Training converts to 8 bits in kernels of its own, so the conversion inside the measured ones goes.
        narrow = {
            precision: products.converted(wide.floor_s)
            for precision, products in parameters.gemm.items()
            if precision in PRECISIONS and OPERAND_BYTES[PRECISIONS.index(precision)] < OPERAND_BYTES[BF16]
        }
        columns = {name: np.zeros(HARDWARE_ROW[name].shape) for name in _FITTED_COLUMNS}
        eight = narrow.get("fp8", wide)
        if self.generation == "hopper" and "fp8_block" in parameters.gemm:
            # What training adds was fitted to runs with one scale.
            blocks = replace(parameters.gemm["fp8_block"], training_factor=eight.training_factor)
            eight = blocks.converted(wide.floor_s)
        blocks_of_eight = fitted.vector(eight)
        columns["gemm"][FP8_BLOCK, : len(blocks_of_eight)] = blocks_of_eight
        for place, precision in enumerate(PRECISIONS):
            # Nothing of 4 bits was measured: as large a share of its peak as of 8 bits.
            products = narrow.get(precision, narrow.get("fp8", wide) if place == FP4 else wide)
            attention = parameters.attention["bf16"]
            if place == FP32:
                # CUDA cores multiply. A tile starts in the same time on either, in which they get through fewer keys.
                products = parameters.gemm[precision]
                slower = min(self.peak_flops.fp32 / max(self.peak_flops.bf16, self.peak_flops.fp16, 1.0), 1.0)
                attention = replace(attention, overhead_keys=slower * attention.overhead_keys)
            for column, figures in (("gemm", fitted.vector(products)), ("attention", fitted.vector(attention))):
                columns[column][place, : len(figures)] = figures
        memory, links = fitted.vector(parameters.memory), parameters.scale_up_table()
        columns["memory"][: len(memory)] = memory
        columns["scale_up"][:, : links.shape[1]] = links
        across = fitted.vector(parameters.scale_out)
        columns["scale_out"][: len(across)] = across
        return columns

    def _complaints(self) -> Iterator[Complaint]:
        values = vars(self)
        yield from text(values, "name", "vendor", "generation", "fitted_from", "source")
        yield from real(values, 0, "flash2_factor")
        yield from real(values, 0, "power_factor", above=True)
        yield from real(values, 0, "hbm_bytes", "hbm_bandwidth", "pcie_bandwidth", "tdp_w", above=True)
        yield from real(values, 0, "idle_w")
        yield from whole(values, 1, "sms")
        yield from flag(values, "borrowed")
        peak = {f"peak_flops.{key}": value for key, value in vars(self.peak_flops).items()}
        yield from real(peak, 0, "peak_flops.fp32", above=True)
        yield from real(peak, 0, *(name for name in peak if name != "peak_flops.fp32"))
        links = {
            **{f"scale_up.{key}": value for key, value in vars(self.scale_up).items()},
            **{f"scale_out.{key}": value for key, value in vars(self.scale_out).items()},
        }
        yield from whole(links, 1, "scale_up.gpus")
        yield from real(links, 0, "scale_up.bandwidth", "scale_out.bandwidth", "scale_out.nics", above=True)
