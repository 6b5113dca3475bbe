"""Fit the kernel and collective models to measured tables: `python -m tools.fit_kernels --truth DIR [--gpu NAME]`.

Reads DIR/kernels/{gemm,attention_forward,nccl}.parquet and DIR/nccl_collectives.csv, prints the error on what the fit
did not see, and writes data/hardware/fitted/<gpu>.toml.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lumos_df.model import fitted
from lumos_df.model.fitted import (
    AttentionParameters,
    GemmParameters,
    MemoryParameters,
    ScaleOutParameters,
    ScaleUpParameters,
    vector,
)
from lumos_df.model.kernels.kernel_columns import passes, products
from lumos_df.model.toml import dump
from lumos_df.schema.collective_kinds import COLLECTIVES, FITTED_COLLECTIVES
from lumos_df.schema.dtypes import OPERAND_BYTES, PRECISIONS
from tools import columns, deepgemm
from tools.least_deviations import fit
from tools.measured_gpus import GPUS, Gpu

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Fold = NDArray[np.int64]

FOLDS: Final = 5


_UNFITTED: Final = ("training_factor", "weight_gradient", "backward_efficiency", "switch_group")


@dataclass(frozen=True)
class Measured:
    """A table of measurements and the model of it."""

    parameters: type[Any]
    """Class of the parameters."""
    start: Array
    """Where the search starts."""
    free: tuple[str, ...]
    """Fields that are fitted."""
    seconds: Callable[[Array, Mask], Array]
    """The model's seconds for parameters, of the rows that a mask picks."""
    measured_s: Array
    """Seconds [rows]."""
    weight: Array
    """[rows]."""
    regions: dict[str, Mask]
    """Rows by the name of a region, to report errors of."""
    left_out: dict[str, Fold]
    """By way of leaving rows out: the fold of each row."""

    def fit(self, rows: Mask) -> Array:
        """Return the parameters that fit `rows` best."""
        return fit(
            self.start,
            self.parameters,
            self.free,
            lambda parameters: self.seconds(parameters, rows),
            self.measured_s[rows],
            self.weight[rows],
        )

    def report(self, name: str) -> Array:
        """Print the error on rows that the fit did not see, for each way of leaving out; return the fit to all."""
        every = np.ones(len(self.measured_s), np.bool_)
        for way, fold in self.left_out.items():
            ratio = np.empty(len(fold))
            for number in np.unique(fold):
                out = fold == number
                ratio[out] = self.seconds(self.fit(~out), out) / self.measured_s[out]
            for region, rows in self.regions.items():
                if rows.any():
                    print(f"{name:24} left out by {way:8} {region:28} {error(ratio[rows])}")
        return self.fit(every)


def error(ratio: Array) -> str:
    """Return rows, median and 90th percentile of the error and the median bias, in percent, as one line."""
    off = 100 * np.abs(ratio - 1)
    return (
        f"rows {len(ratio):6}  median {np.median(off):5.1f} %  p90 {np.quantile(off, 0.9):5.1f} %  "
        f"bias {100 * (np.median(ratio) - 1):+5.1f} %"
    )


def free(kind: type[Any], *fixed: str) -> tuple[str, ...]:
    """Return the names of the fields that a fit may change."""
    return tuple(field.name for field in fields(kind) if field.name not in {*_UNFITTED, *fixed})


def pairs(n: Array, k: Array) -> Fold:
    """Return the fold of each row such that all rows of a pair (n, k) are in the same one."""
    return np.unique(n + 1j * k, return_inverse=True)[1] * 7 % 11 % FOLDS


def octaves(payload: Array) -> Fold:
    """Return the fold of each row such that neighbouring powers of two are in different ones."""
    return np.round(np.log2(payload)).astype(np.int64) % FOLDS


def gemm(table: pl.DataFrame, gpu: Gpu, dtype: str, like: GemmParameters | None = None) -> Measured:
    """Return the matrix products of one GPU and data type; the power limit, which is the GPU's, as `like` has it."""
    rows = table.filter(gpu=gpu.table, dtype=gpu.gemm[dtype])
    if dtype == "fp8":  # cuBLAS's 8-bit products, and Transformer Engine's, need a multiple of 16; others are emulated
        rows = rows.filter(pl.col("m") % 16 == 0)
    fixed = ("throttle", "throttle_s") if like else ("cast_bytes",)
    start = GemmParameters(
        floor_s=3e-6,
        efficiency=0.8,
        efficiency_128=1.0,
        efficiency_64=1.0,
        overhead_k=150.0,
        quantisation=0.2,
        load_ratio=4.0,
        memory_efficiency=0.85,
        exposed=0.3,
        split_ratio=1.5,
        split_s=3e-6,
        throttle=like.throttle if like else 0.05,
        throttle_s=like.throttle_s if like else 1e-3,
        cast_bytes=3.0 if dtype == "fp8" else 1e-3,
    )
    return _products(rows, gpu, dtype, start, free(GemmParameters, *fixed))


_HOST_US: Final = 100.0
"""Threshold, microseconds. A product with scales of blocks is not fitted where it takes less with one scale. Evidence:
those that take 0 to 20, 20 to 40, 40 to 60, 60 to 80 us take 87, 88, 89, 91 in the median: the engine's host."""


def block_scaled(table: pl.DataFrame, gpu: Gpu, like: GemmParameters) -> Measured:
    """Return the products in fp8 with a scale for each 128 elements; what is not fitted is as with one scale, `like`.

    Sums go to float32 registers each 128 elements of k (the rate), and the kernels start a tile while they end another.
    """
    one_scale = table.filter(gpu=gpu.table, dtype=gpu.gemm["fp8"]).select("m", "n", "k", one_scale_us="latency_us")
    rows = (
        table.filter(pl.col("m") % 16 == 0, gpu=gpu.table, dtype=gpu.block_scaled)
        .join(one_scale, on=["m", "n", "k"], maintain_order="left")
        .filter(pl.col("one_scale_us") > _HOST_US)
    )
    return _products(rows, gpu, "fp8", like, ("efficiency", "overhead_k", "cast_bytes"))


def _products(rows: pl.DataFrame, gpu: Gpu, dtype: str, start: GemmParameters, moving: tuple[str, ...]) -> Measured:
    m, n, k = (rows[name].to_numpy().astype(np.float64) for name in "mnk")
    size = OPERAND_BYTES[PRECISIONS.index(dtype)]
    training = (m >= 1024) & (n >= 512) & (k >= 512)
    batch = np.ones(len(m))
    return Measured(
        GemmParameters,
        vector(start),
        moving,
        lambda p, r: products(m[r], n[r], k[r], batch[r], size, gpu.peak_flops[dtype], gpu.hbm_bandwidth, gpu.sms, p),
        rows["latency_us"].to_numpy() * 1e-6,
        np.where(training & (m >= 8192), 9.0, np.where(training, 3.0, 1.0)),
        {
            "all": m > 0,
            "m <= 64": m <= 64,
            "64 < m < 1024": (m > 64) & (m < 1024),
            "m >= 1024": m >= 1024,
            "m >= 1024, n, k >= 512": training,
            "m >= 8192, n, k >= 512": training & (m >= 8192),
        },
        {
            "(n, k)": pairs(n, k),
            "m range": np.digitize(m, [32, 256, 1024, 3000]),
        },
    )


def memory(table: pl.DataFrame, gpu: Gpu) -> Measured:
    """Return the products with few rows that move bytes fastest, a tenth of those of similar size.

    They read one large operand once. What the best of them reach is what memory gives; others wait for something else.
    """
    moved = 2.0 * (pl.col("n") * pl.col("k") + pl.col("m") * (pl.col("n") + pl.col("k")))
    rate = pl.col("moved") / pl.col("latency_us")
    rows = (
        table.filter(pl.col("m") <= 256, gpu=gpu.table, dtype="bfloat16")
        .with_columns(moved=moved)
        .filter(pl.col("moved") >= 1e6)
        .filter(rate >= rate.quantile(0.9).over(pl.col("moved").log(2).floor()))
    )
    n, k, bytes_moved = (rows[name].to_numpy().astype(np.float64) for name in ("n", "k", "moved"))
    return Measured(
        MemoryParameters,
        vector(MemoryParameters(3e-6, 0.85, 1e6)),
        free(MemoryParameters),
        lambda p, r: passes(bytes_moved[r], gpu.hbm_bandwidth, p),
        rows["latency_us"].to_numpy() * 1e-6,
        np.ones(len(n)),
        {"all": n > 0, ">= 64 MB": bytes_moved >= 64e6},
        {"(n, k)": pairs(n, k)},
    )


def attention(table: pl.DataFrame, gpu: Gpu) -> Measured:
    """Return the forward passes of causal attention in bf16, of all keys."""
    rows = table.filter(
        pl.col("window_size").fill_null(0) == 0, gpu=gpu.table, attn_dtype="bfloat16", kv_cache_dtype="bfloat16"
    )
    names = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim")
    shape = np.stack([rows[name].to_numpy().astype(np.float64) for name in names])
    length, size = shape[1], shape[4]
    fixed = () if len(np.unique(size)) > 1 else ("half_head",)
    return Measured(
        AttentionParameters,
        vector(AttentionParameters(1.3e-5, 0.7, 20.0, 200.0, 0.5, 0.2)),
        free(AttentionParameters, *fixed),
        lambda p, r: columns.attention(shape[:, r], gpu.peak_flops["bf16"], gpu.hbm_bandwidth, gpu.sms, p),
        rows["latency"].to_numpy() * 1e-3,
        np.where(length >= 1024, 3.0, 1.0),
        {
            "all": length > 0,
            "length >= 1024": length >= 1024,
            "length >= 2048, 64 heads up": (length >= 2048) & (shape[0] * shape[2] >= 64),
        },
        {
            "length": np.unique(length, return_inverse=True)[1] % FOLDS,
            "heads": np.unique(shape[2], return_inverse=True)[1] % FOLDS,
        },
    )


def scale_up(table: pl.DataFrame, gpu: Gpu, collective: str) -> Measured:
    """Return the collectives of one kind inside a node: of 2-byte elements, which the switch can reduce."""
    name, kind = collective.replace("all_to_all", "alltoall"), COLLECTIVES.index(collective)
    rows = table.filter(gpu=gpu.table, op_name=name, nccl_dtype="half")
    payload = rows["message_size"].to_numpy() * 2.0
    group = rows["num_gpus"].to_numpy().astype(np.float64)
    switch = gpu.switch_reduces and collective == "all_reduce"
    start = ScaleUpParameters(
        *(5e-6, 1e-6, 0.1),
        *(1e-5, 1e-6, 0.4),
        *(3e-5, 5e-6, 0.75),
        own_share=0.4,
        **({"switch_base_s": 2.5e-5, "switch_rate": 0.6, "switch_group": 8.0} if switch else {}),
    )
    return Measured(
        ScaleUpParameters,
        vector(start),
        free(ScaleUpParameters, *(() if switch else ("switch_base_s", "switch_rate"))),
        lambda p, r: columns.inside_node(kind, payload[r], group[r], gpu.link_bandwidth, p),
        rows["latency"].to_numpy() * 1e-3,
        np.ones(len(payload)),
        {"all": group > 0, ">= 1 MiB": payload >= 2**20, "8 GPUs": group == 8},
        {"group": group.astype(np.int64), "size": octaves(payload)},
    )


def scale_out(table: pl.DataFrame, gpu: Gpu, network: tuple[str, float], up: Array) -> Measured:
    """Return the all-reduces of two nodes of eight GPUs; what a hop takes is NCCL's own figure."""
    rows = table.filter(pl.col("time_us").is_not_null(), gpu=network[0], nodes=2).sort("bytes")
    payload = rows["bytes"].to_numpy().astype(np.float64)
    return Measured(
        ScaleOutParameters,
        vector(NCCL_NETWORK),
        ("base_s", "exposed"),
        lambda p, r: columns.across_nodes(payload[r], 16.0, 8.0, gpu.link_bandwidth, network[1], up, p),
        rows["time_us"].to_numpy() * 1e-6,
        np.ones(len(payload)),
        {"all": payload > 0, ">= 16 MiB": payload >= 2**24},
        {"size": octaves(payload)},
    )


NCCL_NETWORK: Final = ScaleOutParameters(
    base_s=2.3e-5, ring_hop_s=2.7e-6, tree_hop_s=5e-6, simple_s=5e-5, low_rate=0.5, simple_rate=0.9, exposed=0.1
)
"""Starting takes what was fitted to two H200 nodes. Hops of protocol LL over the network, its half rate: NVIDIA/nccl,
src/graph/tuning.cc. 0.9: InfiniBand's efficiency in Calculon (github.com/calculon-ai/calculon, systems/)."""


def tables_of(name: str, gpu: Gpu, truth: Path) -> dict[str, Any]:
    """Fit everything that was measured of one GPU, print the errors, return the tables of its file."""
    kernels = {file: pl.read_parquet(truth / "kernels" / f"{file}.parquet") for file in _KERNELS}
    tables: dict[str, Any] = {}
    for dtype in gpu.gemm:
        measured = gemm(kernels["gemm"], gpu, dtype, tables.get("gemm.bf16"))
        tables[f"gemm.{dtype}"] = GemmParameters(*measured.report(f"{name} gemm {dtype}"))
    if gpu.block_scaled:
        measured = block_scaled(kernels["gemm"], gpu, tables["gemm.fp8"])
        blocks = GemmParameters(*measured.report(f"{name} gemm fp8_block"))
        blocks = tables["gemm.fp8_block"] = deepgemm.with_weight_gradient(blocks, tables["gemm.bf16"].floor_s)
        for source in deepgemm.PUBLISHED:
            ratio = deepgemm.ratios(source, blocks, tables["gemm.bf16"].floor_s)
            print(f"{name} gemm fp8_block, DeepGEMM's {source:40} {error(ratio)}")
    tables["attention.bf16"] = gpu.attention or AttentionParameters(
        *attention(kernels["attention_forward"], gpu).report(f"{name} attention")
    )
    tables["memory"] = MemoryParameters(*memory(kernels["gemm"], gpu).report(f"{name} memory"))
    for collective in FITTED_COLLECTIVES:
        measured = scale_up(kernels["nccl"], gpu, collective)
        tables[f"network.scale_up.{collective}"] = ScaleUpParameters(*measured.report(f"{name} {collective}"))
    tables["network.scale_out"] = NCCL_NETWORK
    if gpu.networks:
        up = np.array([astuple(tables[f"network.scale_up.{collective}"]) for collective in FITTED_COLLECTIVES])
        table = pl.read_csv(truth / "nccl_collectives.csv", infer_schema_length=None)
        fitted_one, *others = (scale_out(table, gpu, network, up) for network in gpu.networks)
        tables["network.scale_out"] = ScaleOutParameters(*fitted_one.report(f"{name} two nodes"))
        for other in others:
            for region, rows in other.regions.items():
                ratio = other.seconds(vector(tables["network.scale_out"]), rows) / other.measured_s[rows]
                print(f"{name} two nodes of another network, not fitted: {region:28} {error(ratio)}")
    return tables


_KERNELS: Final = ("gemm", "attention_forward", "nccl")


def main() -> int:
    """Fit the GPUs that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=Path, required=True, help="folder of the measured tables")
    parser.add_argument("--gpu", choices=list(GPUS), action="append", help="only this one; may be repeated")
    parser.add_argument("--output", type=Path, default=fitted.folder(), help="folder of the files that are written")
    asked = parser.parse_args()
    for file in _KERNELS:
        if not (path := asked.truth / "kernels" / f"{file}.parquet").is_file():
            print(f"{path}: no such file; --truth names the folder that holds kernels/{file}.parquet", file=sys.stderr)
            return 1
    asked.output.mkdir(parents=True, exist_ok=True)
    for name in asked.gpu or GPUS:
        tables = tables_of(name, GPUS[name], asked.truth)
        figures = {table: asdict(parameters) for table, parameters in tables.items()}
        (asked.output / f"{name}.toml").write_text(dump({"source": SOURCE, **figures}, digits=4), "utf-8")
    return 0


SOURCE: Final = "python -m tools.fit_kernels on tables of ai-dynamo/aiconfigurator 095f58a (Apache-2.0) and nccl-tests"

if __name__ == "__main__":
    sys.exit(main())
