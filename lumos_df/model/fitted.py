"""Parameters of the kernel and collective models, a GPU: what they mean, and the files that keep them.

Every class is one table of `data/hardware/fitted/<gpu>.toml`; `python -m tools.fit_kernels` writes those files from
measurements. The compiled functions take a class as a vector, its fields in the order in which they stand here.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import HardwareError, nearest
from lumos_df.model.library import data_folder
from lumos_df.schema.collective_kinds import FITTED_COLLECTIVES

Vector = NDArray[np.float64]


def _bounded(low: float, high: float, value: float | None = None) -> Any:
    """Declare a parameter that is at least `low`, at most `high`, and `value` unless a file says otherwise."""
    bounds = {"low": low, "high": high}
    return field(metadata=bounds) if value is None else field(default=value, metadata=bounds)


@dataclass(frozen=True)
class GemmParameters:
    """A matrix product on one GPU in one data type (`lumos_df.model.kernels.gemm`)."""

    floor_s: float = _bounded(2e-7, 2e-5)
    """Time of a kernel that does nothing, in seconds."""
    efficiency: float = _bounded(0.2, 1.0)
    """Share of the peak rate at which the largest tile (256x128) runs its inner loop."""
    efficiency_128: float = _bounded(0.3, 1.3)
    """Rate of a 128x128 tile, relative to the largest tile's."""
    efficiency_64: float = _bounded(0.2, 1.3)
    """Rate of a tile with a side of 64, relative to the largest tile's."""
    overhead_k: float = _bounded(1.0, 2000.0)
    """What starting and ending a tile costs, as a length of the inner loop (elements of k)."""
    quantisation: float = _bounded(1e-4, 1.0)
    """Share of the last, partly filled wave of tiles that is lost: 1 when every wave takes as long as a full one."""
    load_ratio: float = _bounded(0.5, 30.0)
    """Rate at which one multiprocessor loads its operands (mostly from L2), over its share of the memory bandwidth."""
    memory_efficiency: float = _bounded(0.2, 1.0)
    """Share of the memory bandwidth reached by products that are bound by it."""
    exposed: float = _bounded(1e-3, 1.0)
    """Share of the shorter of computing and loading that does not hide behind the longer when both are equal."""
    split_ratio: float = _bounded(0.05, 20.0)
    """Bytes moved a byte of float32 partial sums, when several tiles share one output tile (split k)."""
    split_s: float = _bounded(1e-8, 2e-5)
    """Time that the reduction of a split product adds, in seconds."""
    throttle: float = _bounded(1e-4, 0.5)
    """Share of speed lost to the power limit by a product that runs for long."""
    throttle_s: float = _bounded(1e-5, 1e-1)
    """Run time at which half of `throttle` is lost, in seconds."""
    cast_bytes: float = _bounded(1e-3, 100.0, 1e-3)
    """Bytes moved an element of A to convert it to 8 bits before the product; 0.001, as good as none, where A comes
    converted."""
    training_factor: float = _bounded(0.3, 3.0, 1.0)
    """Time of a training framework's kernel over the measured kernel's; set by a fit to whole training runs."""
    weight_gradient: float = _bounded(0.5, 3.0, 1.0)
    """Time of a product that makes the gradient of a weight over that of another of its sizes."""

    def converted(self, floor_s: float) -> "GemmParameters":
        """Return the parameters of products whose operands come in 8 bits, as one kernel with a floor of `floor_s`.

        Inference engines convert A in a kernel of their own before each product, and that is in what was measured. A
        training framework converts where it writes, so a model of it counts those bytes there.
        """
        return replace(self, cast_bytes=1e-3, floor_s=floor_s)


@dataclass(frozen=True)
class AttentionParameters:
    """Fused (flash) attention on one GPU (`lumos_df.model.kernels.attention`)."""

    floor_s: float = _bounded(1e-6, 5e-5)
    """Time of a kernel that does nothing, in seconds."""
    efficiency: float = _bounded(0.1, 1.0)
    """Share of the peak rate that long rows with a large head reach, forward."""
    half_head: float = _bounded(1.0, 200.0)
    """Head size at which half of that rate is reached (softmax takes the same time for a smaller head)."""
    overhead_keys: float = _bounded(1.0, 4000.0)
    """What starting and ending a tile of 128 queries costs, as a number of keys."""
    exposed: float = _bounded(1e-3, 1.0)
    """Share of the shorter of computing and loading that does not hide behind the longer when both are equal."""
    tail: float = _bounded(1e-3, 1.0)
    """Share of the longest tile's time that passes at the end, when multiprocessors run out of tiles one by one."""
    backward_efficiency: float = _bounded(0.3, 1.5, 0.86)
    """Rate of the backward pass relative to the forward pass, each by the operations it has to do (2.5 to 1)."""
    training_factor: float = _bounded(0.3, 3.0, 1.0)
    """Time of a training framework's kernel over the measured kernel's; set by a fit to whole training runs."""


@dataclass(frozen=True)
class MemoryParameters:
    """A kernel bound by memory (`lumos_df.model.kernels.elementwise`)."""

    floor_s: float = _bounded(5e-7, 2e-5)
    """Time of a kernel that does nothing, in seconds."""
    efficiency: float = _bounded(0.3, 1.0)
    """Share of the memory bandwidth that large kernels reach."""
    half_bytes: float = _bounded(1e3, 1e8)
    """Bytes at which half of that rate is reached."""
    training_factor: float = _bounded(0.3, 3.0, 1.0)
    """Time of a training framework's kernel over that of a good one; set by a fit to whole training runs."""


@dataclass(frozen=True)
class ScaleUpParameters:
    """One kind of collective inside a node (`model.kernels.network`): the cheapest of three protocols, or NVLS.

    A protocol takes base_s + steps * step_s + wire bytes / (rate * bandwidth of the link).
    """

    low_latency_base_s: float = _bounded(5e-7, 1e-4)
    """Protocol LL: time before the first step, in seconds."""
    low_latency_step_s: float = _bounded(1e-8, 2e-5)
    """Protocol LL: time of a step, in seconds."""
    low_latency_rate: float = _bounded(1e-3, 1.0)
    """Protocol LL: share of the link's bandwidth."""
    medium_base_s: float = _bounded(1e-6, 2e-4)
    """Protocol LL128: time before the first step, in seconds."""
    medium_step_s: float = _bounded(1e-8, 4e-5)
    """Protocol LL128: time of a step, in seconds."""
    medium_rate: float = _bounded(1e-2, 1.0)
    """Protocol LL128: share of the link's bandwidth."""
    simple_base_s: float = _bounded(1e-6, 4e-4)
    """Protocol Simple: time before the first step, in seconds."""
    simple_step_s: float = _bounded(1e-8, 4e-5)
    """Protocol Simple: time of a step, in seconds."""
    simple_rate: float = _bounded(2e-2, 1.2)
    """Protocol Simple: share of the link's bandwidth."""
    own_share: float = _bounded(1e-3, 1.5)
    """What a rank's own part of the buffer costs, which it copies locally, as a share of the bytes on the wire."""
    switch_base_s: float = _bounded(1e-6, 1e-3, 1e-3)
    """NVLS (the switch reduces): time before the first byte, in seconds."""
    switch_rate: float = _bounded(1e-3, 1.2, 1e-3)
    """NVLS: payload bytes a second over the link's bandwidth."""
    switch_group: float = _bounded(2.0, 1e9, 1e9)
    """NVLS: smallest group that uses it; 1e9 where the switch cannot reduce."""


@dataclass(frozen=True)
class ScaleOutParameters:
    """What crossing nodes adds to a collective (`lumos_df.model.kernels.network`)."""

    base_s: float = _bounded(1e-6, 5e-4)
    """Time to start crossing nodes, in seconds; an all-reduce does so twice, there and back."""
    ring_hop_s: float = _bounded(1e-6, 1e-4)
    """Time of one step of a ring from node to node, in seconds."""
    tree_hop_s: float = _bounded(1e-6, 1e-4)
    """Time of one level of a tree over nodes, in seconds."""
    simple_s: float = _bounded(1e-6, 5e-3)
    """Time that the protocol with the full rate adds, in seconds."""
    low_rate: float = _bounded(1e-2, 1.0)
    """Share of the network's bandwidth that the protocol for small messages reaches."""
    simple_rate: float = _bounded(0.2, 1.0)
    """Share of the network's bandwidth that the protocol for large messages reaches."""
    exposed: float = _bounded(1e-3, 1.0, 0.1)
    """Share of the faster of the work inside nodes and across them that does not hide behind the slower."""


@dataclass(frozen=True)
class Fitted:
    """All fitted parameters of one GPU."""

    gemm: dict[str, GemmParameters]
    """By data type: fp32, bf16 (also stands for fp16), fp8, and on Hopper fp8_block, a scale for each 128 elements."""
    attention: dict[str, AttentionParameters]
    """By data type."""
    memory: MemoryParameters
    """Kernels bound by memory."""
    scale_up: dict[str, ScaleUpParameters]
    """By kind of collective (`FITTED_COLLECTIVES`)."""
    scale_out: ScaleOutParameters
    """Crossing nodes."""

    def scale_up_table(self) -> Vector:
        """Return float64 [FITTED_COLLECTIVES, fields of ScaleUpParameters], a row a kind."""
        return np.array([vector(self.scale_up[kind]) for kind in FITTED_COLLECTIVES])


Parameters = GemmParameters | AttentionParameters | MemoryParameters | ScaleUpParameters | ScaleOutParameters
_Parameters = TypeVar("_Parameters", bound=Parameters)


def vector(parameters: Parameters) -> Vector:
    """Return the parameters as float64 [fields], in the order of the class."""
    return np.array([getattr(parameters, parameter.name) for parameter in fields(parameters)])


def place_of_factor(kind: type[Parameters]) -> int:
    """Return where a class has its `training_factor`, the factor on the time of its kernels."""
    return [parameter.name for parameter in fields(kind)].index("training_factor")


def folder() -> Path:
    """Return the folder of the fitted parameters: installed with the package, or the repository's `data`."""
    return data_folder() / "hardware" / "fitted"


SINGLE_PRECISION: Final = "h100-sxm"
"""The GPU whose products in single precision were measured. CUDA cores of all are taken to reach as large a share of
their peak as these, which is that of its tensor cores (BERT and Llama of tests/recordings, 0.98 to 1.07 of it)."""

_LIKE = {"gemm.fp4": "gemm.fp8"}
"""Tables that stand for those that were never measured: products of 4 bits do as well beside their peak as of 8."""


def load(gpu: str, instead: Mapping[str, Any] | None = None) -> Fitted:
    """Return the fitted parameters of `gpu`; what its file does not have comes from the GPU that it `inherits`.

    Args:
        gpu: name of a file of `data/hardware/fitted`.
        instead: tables whose numbers stand for those of the file, one by one.

    Raises `HardwareError` for a name without a file, and for a file with a table or number missing or out of bounds.
    """
    tables = _tables(gpu)
    single = SINGLE_PRECISION if (folder() / f"{SINGLE_PRECISION}.toml").is_file() else gpu
    if "gemm.bf16" in tables:
        tables.setdefault("gemm.fp32", _tables(single)["gemm.bf16"])
    for key, numbers in _flat("", dict(instead or {})):
        tables[key] = tables.get(key, tables.get(_LIKE.get(key, ""), {})) | numbers
    return Fitted(
        gemm={key: _read(gpu, f"gemm.{key}", tables, GemmParameters) for key in _below(tables, "gemm")},
        attention={
            key: _read(gpu, f"attention.{key}", tables, AttentionParameters) for key in _below(tables, "attention")
        },
        memory=_read(gpu, "memory", tables, MemoryParameters),
        scale_up={
            kind: _read(gpu, f"network.scale_up.{kind}", tables, ScaleUpParameters) for kind in FITTED_COLLECTIVES
        },
        scale_out=_read(gpu, "network.scale_out", tables, ScaleOutParameters),
    )


def _tables(gpu: str) -> dict[str, dict[str, float]]:
    """Return the tables of a file by dotted name, over those of the files that it inherits from."""
    file = folder() / f"{gpu}.toml"
    if not file.is_file():
        choices = sorted(path.stem for path in folder().glob("*.toml"))
        raise HardwareError(f"no fitted parameters for GPU '{gpu}'{nearest(gpu, choices)}; there are: {choices}")
    figures = _figures(file.read_text("utf-8"))
    inherited = _tables(str(figures["inherits"])) if "inherits" in figures else {}
    tables = dict(_flat("", figures))
    return {name: inherited.get(name, {}) | tables.get(name, {}) for name in inherited | tables}


@cache
def _figures(text: str) -> dict[str, Any]:
    """Return what a file says, which nobody changes: each of many estimates asks for the same GPU."""
    return tomllib.loads(text)


def _flat(prefix: str, table: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
    below = [
        pair for key, value in table.items() if isinstance(value, dict) for pair in _flat(f"{prefix}{key}.", value)
    ]
    numbers = {key: float(value) for key, value in table.items() if isinstance(value, int | float)}
    return [*below, (prefix.removesuffix("."), numbers)] if numbers else below


def _below(tables: dict[str, dict[str, float]], name: str) -> list[str]:
    return [key.removeprefix(f"{name}.") for key in tables if key.startswith(f"{name}.")]


def _read(gpu: str, name: str, tables: dict[str, dict[str, float]], kind: type[_Parameters]) -> _Parameters:
    numbers = tables.get(name)
    if numbers is None:
        raise HardwareError(f"fitted parameters of '{gpu}' have no table [{name}]")
    try:
        parameters = kind(**numbers)
    except TypeError as error:
        raise HardwareError(f"fitted parameters of '{gpu}', [{name}]: {error}") from None
    for parameter in fields(parameters):
        value, low, high = getattr(parameters, parameter.name), parameter.metadata["low"], parameter.metadata["high"]
        if not low <= value <= high:
            raise HardwareError(
                f"fitted parameters of '{gpu}', [{name}] {parameter.name} = {value}: not between {low} and {high}"
            )
    return parameters
