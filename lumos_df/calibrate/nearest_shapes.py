"""What kernels of new shapes would take, from the nearest measured ones: SQL's macro `estimate_kernels`, in polars.

A shape that was measured keeps its measured median. Any other borrows from the nearest smaller and the nearest larger
measured shape how much slower than the roofline they ran,

    time = roof(shape) * exp(weighted mean of log(measured / roof)),   weights 1 / octaves,

where octaves are the distance of two shapes, the sum over dimensions of |log2| of their ratio, and roof is the time of
the smallest kernel plus the longer of arithmetic and memory traffic (Williams et al. 2009) at the rates that large
kernels reach. Beyond the largest measured shape the excess over the roof falls with size. Where none was measured
it is the roof itself.
"""

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

import polars as pl

from lumos_df.base.errors import QueryError, UnwritableError
from lumos_df.corpus.catalog import connect
from lumos_df.graph.matching import match_collectives
from lumos_df.schema.collective_kinds import ROUNDS
from lumos_df.schema.dtypes import DTYPE_OF_WORD, ELEMENT_TYPES

_TEXTS: Final = ("family", "operator", "dtype")
_SIZES: Final = ("m", "n", "k", "batch", "ranks", "bytes")
_HALVES: Final = tuple(kind.name for kind in ELEMENT_TYPES if kind.floating and kind.bytes == 2)
"""Types whose kernels are nearly alike."""
_BYTES: Final = {kind.name: float(kind.bytes) for kind in ELEMENT_TYPES}
_ROOFS: Final = """
SELECT
  * REPLACE (
    map_entries(gemm_flops_per_ns) AS gemm_flops_per_ns,
    map_entries(attention_flops_per_ns) AS attention_flops_per_ns
  )
FROM _roof
"""
_NEARING: Final = 0.2
"""Threshold, power of size. So fast kernels that are slower than the roof come nearer to it beyond the largest that was
measured. Evidence: three batches of one model ([kernels.md](kernels.md))."""
_AT_ONCE: Final = 1_000_000
"""Pairs of a new and a measured shape that are compared in one go, to bound memory."""


def estimate_kernels(corpus: Path, shapes: pl.DataFrame, hardware: str | None = None) -> pl.DataFrame:
    """Estimate kernels by those of a corpus.

    Args:
        corpus: the corpus folder.
        shapes: family, dtype and m, n, k (batch) or bytes; count, operator, ranks and of memory-bound
            kernels n, the last dimension, where they matter.
        hardware: the GPU, as traces or `data/hardware` call it; None: every GPU of the corpus.

    Returns:
        One row a shape and GPU, with the columns of the SQL macro `estimate_kernels`.

    Raises:
        LumosError: no such corpus or GPU, or a shape that is not one.
    """
    with suppress(UnwritableError):
        match_collectives(corpus)
    with connect(corpus) as connection:
        measured = connection.sql("FROM _kernel_efficiency WHERE of_all_jobs ORDER BY ALL").pl()
        roofs = connection.sql(_ROOFS).pl()
    return by_nearest(_checked(shapes), measured, roofs, hardware)


def by_nearest(asked: pl.DataFrame, measured: pl.DataFrame, roofs: pl.DataFrame, hardware: str | None) -> pl.DataFrame:
    """Return `estimate_kernels` of checked shapes by rows of all jobs of `_kernel_efficiency`, and those of `_roof`."""
    measured = measured.with_columns(gpu=pl.coalesce("gpu", "device_name"))
    wanted = measured.select("gpu").unique()
    if hardware is not None:
        key = re.sub(r"[^a-z0-9.]", "", hardware.lower())
        wanted = roofs.filter(pl.col("keys").list.contains(key)).select("gpu")
        if wanted.is_empty():
            raise QueryError(f"no GPU '{hardware}' in the corpus or in data/hardware")
    shaped = measured.filter(
        pl.col("m").is_not_null() | pl.col("bytes").is_not_null(),
        pl.col("p50_ns") > 0,
        pl.min_horizontal(*_SIZES) >= 1,
    )
    old = _roofed(shaped, roofs).filter(pl.col("roof_ns") > 0)
    new = _roofed(asked.join(wanted, how="cross"), roofs)
    known = pl.concat([_nearest(new[i : i + _step(old)], old) for i in range(0, max(len(new), 1), _step(old))])
    exact = (pl.col("strangeness") == 0) & (pl.col("octaves") == 0)
    return (
        new.join(known, on=("row", "gpu"), how="left", maintain_order="left")
        .with_columns(
            provenance=pl.when(exact)
            .then(pl.lit("measured"))
            .when(pl.col("roof_ns").is_null())
            .then(pl.lit("unknown"))
            .when(pl.col("slowness").is_null())
            .then(pl.lit("modelled"))
            .when((pl.col("strangeness") <= 1) & (pl.col("sides") == 2))
            .then(pl.lit("interpolated"))
            .otherwise(pl.lit("rescaled")),
            kernel_ns=pl.when(exact)
            .then(pl.col("measured_ns"))
            .otherwise(pl.col("roof_ns") * pl.col("slowness").fill_null(1.0))
            .round(mode="half_away_from_zero")
            .cast(pl.Int64),
        )
        .with_columns(total_ns=pl.col("count") * pl.col("kernel_ns"))
        .sort("gpu", "row")
        .select("gpu", *_TEXTS, *_SIZES, "count", "provenance", "kernel_ns", "total_ns", "octaves")
    )


def _step(old: pl.DataFrame) -> int:
    return max(1, _AT_ONCE // max(len(old), 1))


def _checked(shapes: pl.DataFrame) -> pl.DataFrame:
    """Return the shapes with every column, types by torch's names and numbered rows; refuse what is no shape."""
    if "family" not in shapes.columns:
        raise QueryError("shapes: need a column 'family'")
    kinds = {**dict.fromkeys(_TEXTS, pl.String), **dict.fromkeys((*_SIZES, "count"), pl.Int64)}
    given = shapes.select(
        (pl.col(name) if name in shapes.columns else pl.lit(None)).cast(kind).alias(name)
        for name, kind in kinds.items()
    )
    word = pl.col("dtype").str.to_lowercase()
    filled = given.with_columns(
        dtype=word.replace(DTYPE_OF_WORD),
        batch=pl.coalesce("batch", pl.when(pl.col("m").is_not_null()).then(1)).cast(pl.Int64),
        count=pl.col("count").fill_null(1),
    ).with_row_index("row")
    present = {name: pl.col(name).is_not_null() for name in (*_TEXTS, *_SIZES)}
    collective = pl.col("family") == "communication"
    product = pl.col("family").is_in(["gemm", "attention"])
    for wrong, why in (
        (~present["family"], "a shape has no family: gemm, attention, communication, elementwise, ..."),
        (
            (present["m"] != present["k"]) | (present["m"] & ~present["n"]),
            "a shape has some of m, n and k: give all three, or bytes",
        ),
        (present["m"] == present["bytes"], "a shape needs m, n and k, or bytes, and not both"),
        ((pl.min_horizontal(*_SIZES) < 1) | (pl.col("count") < 0), "sizes of a shape must be at least 1"),
        (present["m"] & ~product, "only gemm and attention have m, n and k; give bytes"),
        (
            collective & ~(present["operator"] & present["ranks"]),
            "a shape needs the operator, such as all_reduce, and ranks",
        ),
    ):
        bad = filled.filter(wrong.fill_null(value=False))
        if len(bad):
            family = bad["family"][0]
            raise QueryError(f"{family}: {why}" if family else why)
    return filled


def _roofed(shapes: pl.DataFrame, roofs: pl.DataFrame) -> pl.DataFrame:
    """Add `work` (FLOP of products, else bytes) and `roof_ns`, the time by the roofline of the row's `gpu`."""
    m, n, k, batch, size = (pl.col(name).cast(pl.Float64) for name in ("m", "n", "k", "batch", "bytes"))
    ranks = pl.col("ranks").cast(pl.Float64)
    family, operator, dtype = pl.col("family"), pl.col("operator"), pl.col("dtype")
    backward = operator.str.to_lowercase().str.contains("backward", literal=True).fill_null(value=False)
    passes = pl.when(family != "attention").then(1.0).when(backward).then(5.0).otherwise(2.0)
    # Most tensors of a type that is not told are of 16 bits.
    element = dtype.replace_strict(_BYTES, default=_BYTES["bfloat16"], return_dtype=pl.Float64)
    rounds = operator.replace_strict(ROUNDS, default=0, return_dtype=pl.Float64)
    moved = (
        pl.when((family == "attention") & m.is_not_null()).then(4.0 * (m + n) * k * batch)
        .when(m.is_not_null()).then((m * k + k * n + m * n) * batch * element)
        .when(family != "communication").then(size)
        .when(rounds > 0).then(size * (rounds * (ranks - 1.0) / ranks))
        .otherwise(size)
    )  # fmt: skip
    peaks = pl.concat(
        roofs.select("gpu", peak=f"{kind}_flops_per_ns")
        .explode("peak")
        .unnest("peak")
        .select(
            "gpu", pl.lit(kind).alias("family"), pl.col("key").alias("dtype"), pl.col("value").alias("flops_per_ns")
        )
        for kind in ("gemm", "attention")
    )
    rate = pl.col("memory_bytes_per_ns")
    floor = pl.when(family == "gemm").then(pl.col("gemm_floor_ns")).otherwise(pl.col("attention_floor_ns"))
    product = floor + pl.max_horizontal(
        pl.col("flops") / pl.col("flops_per_ns"), pl.col("moved_bytes") / rate.fill_null(float("inf"))
    )
    return (
        shapes.with_columns(flops=2.0 * m * n * k * batch * passes, moved_bytes=moved)
        .join(roofs.drop("keys", "gemm_flops_per_ns", "attention_flops_per_ns"), on="gpu", how="left")
        .join(peaks, on=("gpu", "family", "dtype"), how="left")
        .with_columns(
            work=pl.coalesce("flops", "moved_bytes"),
            roof_ns=pl.when(family == "communication")
            .then(pl.col("link_floor_ns") + pl.col("moved_bytes") / pl.col("link_bytes_per_ns"))
            .when(m.is_null())
            .then(pl.col("memory_floor_ns") + pl.col("moved_bytes") / rate)
            .when(pl.col("flops_per_ns").is_not_null())
            .then(product),
        )
        .select(*shapes.columns, "work", "roof_ns")
    )


def _nearest(new: pl.DataFrame, old: pl.DataFrame) -> pl.DataFrame:
    """Return what the nearest measured shapes say of each new one: `slowness` over the roof, and how near they are."""
    pairs = new.with_columns(product=pl.col("m").is_not_null()).join(
        old.with_columns(product=pl.col("m").is_not_null()), on=("family", "product"), suffix="_old"
    )
    same_type = pl.col("dtype").eq_missing(pl.col("dtype_old"))
    halves = pl.col("dtype").is_in(_HALVES) & pl.col("dtype_old").is_in(_HALVES)
    same_kind = (pl.col("family") != "communication") | (pl.col("operator") == pl.col("operator_old"))
    apart = {name: (pl.col(f"{name}_old") / pl.col(name)).log(2).abs() for name in _SIZES}
    groups = ("row", "gpu")
    near = (
        pairs.filter(same_type | halves.fill_null(value=False), same_kind.fill_null(value=False))
        .with_columns(
            # What sets apart more than size does: another GPU, type, operator, width of a memory-bound kernel.
            strangeness=8 * (pl.col("gpu") != pl.col("gpu_old")).cast(pl.Int64)
            + 4 * (~same_type).cast(pl.Int64)
            + 2 * _other("operator").cast(pl.Int64)
            + (~pl.col("product") & _other("n")).cast(pl.Int64),
            octaves=pl.when(pl.col("product"))
            .then(apart["m"] + apart["n"] + apart["k"] + apart["batch"])
            .otherwise(apart["bytes"] + apart["ranks"].fill_null(0.0) + apart["n"].fill_null(0.0))
            .round(6),
            larger=pl.col("work_old") > pl.col("work"),
        )
        .filter(pl.col("strangeness") == pl.col("strangeness").min().over(groups))
        .filter(pl.col("octaves") == pl.col("octaves").min().over(*groups, "larger"))
    )
    slowness, growth = pl.col("p50_ns") / pl.col("roof_ns_old"), pl.col("work") / pl.col("work_old")
    beyond = (
        pl.when((slowness > 1) & (growth > 1)).then(1.0 + (slowness - 1.0) * growth.pow(-_NEARING)).otherwise(slowness)
    )
    weight, calls = 1.0 / pl.max_horizontal("octaves", pl.lit(1e-9)), pl.col("calls")
    return (
        near.group_by(*groups, "larger")
        .agg(
            pl.col("octaves", "strangeness").first(),
            slowness=(calls * slowness).sum() / calls.sum(),
            beyond=(calls * beyond).sum() / calls.sum(),
            measured_ns=(calls * pl.col("p50_ns")).sum() / calls.sum(),
        )
        .group_by(groups)
        .agg(
            pl.col("strangeness").first(),
            sides=pl.len(),
            measured_ns=pl.col("measured_ns").filter(pl.col("octaves") == 0).first(),
            slowness=pl.when(pl.len() == 1)
            .then(pl.col("beyond").first())
            .otherwise(((pl.col("slowness").log() * weight).sum() / weight.sum()).exp()),
            octaves=pl.col("octaves").min(),
        )
    )


def _other(name: str) -> pl.Expr:
    """Whether the new shape says `name` and the measured one says otherwise."""
    return pl.col(name).is_not_null() & pl.col(name).ne_missing(pl.col(f"{name}_old"))
