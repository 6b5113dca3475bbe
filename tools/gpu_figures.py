"""The GPUs of `data/hardware` as an internal view of the catalogue, so that SQL alone knows peaks and bandwidths."""

from collections.abc import Iterator
from typing import Final

from lumos_df.model import fitted
from lumos_df.model.hardware import Hardware
from lumos_df.model.library import keys, names
from lumos_df.schema.dtypes import types_of

_HEAD: Final = """\
-- What is known of each GPU: peak rates, what large kernels reach of them, and the time of a kernel that does nothing.
-- Generated from data/hardware by `make docs`; edit those files.
CREATE VIEW _gpu_figures(
  -- Name.
  name,
  -- How traces may call it: small letters, digits and points of its name and aliases.
  keys,
  -- Dense FLOP/ns of matrix products by element type.
  flops_per_ns,
  -- Bytes/ns of memory.
  memory_bytes_per_ns,
  -- Bytes/ns of the links to the GPUs of its node, one direction.
  link_bytes_per_ns,
  -- Share of the peak that large matrix products reach.
  gemm_efficiency,
  -- Time of the smallest matrix product, ns.
  gemm_floor_ns,
  -- Share of the peak that long attention reaches.
  attention_efficiency,
  -- Time of the smallest attention, ns.
  attention_floor_ns,
  -- Share of the memory's bandwidth that large kernels reach.
  memory_efficiency,
  -- Time of the smallest memory-bound kernel, ns.
  memory_floor_ns,
  -- Share of the links' bandwidth that a large all-reduce reaches.
  link_efficiency,
  -- Time of the smallest all-reduce, ns.
  link_floor_ns
) AS
VALUES
"""


def view() -> str:
    """Return the view file's text."""
    return _HEAD + ",\n".join(_row(name) for name in names("hardware")) + ";\n"


def _row(name: str) -> str:
    hardware = Hardware.read(name)
    parameters = fitted.load(hardware.fitted_from, hardware.fitted)
    gemm, attention, memory = parameters.gemm["bf16"], parameters.attention["bf16"], parameters.memory
    links = parameters.scale_up["all_reduce"]
    called = ", ".join(f"'{key}'" for key in keys("hardware", name))
    values = (
        f"'{name}'",
        f"[{called}]",
        f"MAP {{{', '.join(_peaks(hardware))}}}",
        *(
            _number(value)
            for value in (
                hardware.hbm_bandwidth / 1e9,
                hardware.scale_up.bandwidth / 1e9,
                gemm.efficiency / gemm.training_factor,
                gemm.floor_s * 1e9,
                attention.efficiency / attention.training_factor,
                attention.floor_s * 1e9,
                memory.efficiency / memory.training_factor,
                memory.floor_s * 1e9,
                links.simple_rate,
                links.low_latency_base_s * 1e9,
            )
        ),
    )
    return f"  ({', '.join(values)})"


def _peaks(hardware: Hardware) -> Iterator[str]:
    for precision, peak in vars(hardware.peak_flops).items():
        if peak:
            yield from (f"'{name}': {_number(peak / 1e9)}" for name in types_of(precision))


def _number(value: float) -> str:
    """Return a number that DuckDB takes for a DOUBLE, not for a DECIMAL."""
    return f"{value:.6g}e0" if "e" not in f"{value:.6g}" else f"{value:.6g}"
