"""Tables of runs in our names of columns, with what is known of a set filled in, and why a row is no full plan."""

from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Final

import polars as pl

from lumos_df.base.errors import TruthError, nearest
from lumos_df.calibrate.datasets import Dataset, Figure
from lumos_df.schema.dtypes import PRECISION_TABLE

WHOLE: Final = (
    *("num_gpus", "layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "seq", "gbs", "mbs", "grad_accum"),
    *("tp", "pp", "vp", "dp", "cp", "ep", "etp", "accumulation", "lora_rank"),
)
"""Columns that are whole numbers. `accumulation`: micro-batches of a step, which give a batch that is not said."""

REAL: Final = (
    *("iteration_time_s", "iteration_time_ms", "tokens_per_s_per_gpu", "tokens_per_s", "iteration_time_s_derived"),
    *("hw_tflops_per_gpu_incl_recompute", "model_tflops_per_gpu", "memory_gb", "network_bandwidth"),
)
"""Columns that are numbers above 0; what is none says nothing."""

TEXT: Final = (
    *("source", "notes", "task", "gpu", "model", "framework", "software"),
    *("precision", "recompute", "zero", "sp", "flash", "overlap_tp", "overlap_dp", "overlap_pp"),
    "memory_of",
)
"""Columns that are words. `memory_of`: `allocator` where the memory is what PyTorch's allocator had reserved, without
the context and the libraries of a GPU."""

TIMES: Final = (
    *("iteration_time_s", "tokens_per_s_per_gpu", "tokens_per_s", "iteration_time_s_derived"),
    *("hw_tflops_per_gpu_incl_recompute", "model_tflops_per_gpu"),
)
"""What says how long a step took, the best first."""

_PLAN: Final = ("gpu", "num_gpus", "model", "seq", "gbs", "mbs", "tp", "pp", "precision", "software")
"""What a row must say, or a fact of its set, to be a full plan."""

_ADAPTED: Final = pl.col("task").str.to_lowercase().str.contains("lora").fill_null(False)
"""Whether a run trains adapters alone."""

_PRECISIONS: Final = {precision.name: precision.written for precision in PRECISION_TABLE}

_RECOMPUTED: Final = {
    "full": "^full",
    "selective": "^selective(:core_attn)?$",
    "products": "^products$",
    "none": "^none",
}
"""What tables call recomputation."""

_SHARDED: Final = {
    "3": r"full_shard|^fsdp2|^fsdp=([2-9]|1\d)",
    "2": r"shard_grad_op",
    "1": r"^(1|true)$",
    "0": r"^(0|false|no)$",
}
"""What tables call the stages of ZeRO. `FSDP=0` and `FSDP=1` say only that it is not FSDP."""


def read_runs(dataset: Dataset, file: Path) -> pl.DataFrame:
    """Return a set's rows in our names of columns: `WHOLE`, `REAL`, `TEXT` and `model.x` (text), null where unknown.

    `row` counts the file's rows; `fsdp` is true where parameters are sharded by FSDP. Raises `TruthError` for a file
    that does not read, or lacks a column that the set needs.
    """
    table = _rename(dataset, file).with_row_index("row")
    matching = [pl.col(name).cast(pl.String).str.contains(pattern) for name, pattern in dataset.where.items()]
    enough = [pl.col(name).cast(pl.Float64, strict=False) >= least for name, least in dataset.at_least.items()]
    table = table.filter(*matching, *enough)
    table = table.with_columns(pl.col("zero").replace({"FSDP=0": None, "FSDP=1": None}))
    table = table.with_columns(**dict(_filled(dataset, table)))
    return _typed(table)


def _rename(dataset: Dataset, file: Path) -> pl.DataFrame:
    """Return the file as text, in our names, with every column that we know."""
    try:
        table = pl.read_csv(file, infer_schema=False)
    except FileNotFoundError:
        raise TruthError(f"{file}: no such file; dataset '{dataset.name}' is read from it") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TruthError(f"{file}: does not read: {str(error).splitlines()[0]}") from None
    for name in (*dataset.columns.values(), *dataset.needs):
        if name not in table.columns:
            raise TruthError(f"{file}: needs a column '{name}'{nearest(name, table.columns)}")
    table = table.rename({theirs: ours for ours, theirs in dataset.columns.items()})
    known = (*WHOLE, *REAL, *TEXT)
    table = table.with_columns(
        *(pl.lit(None, pl.String).alias(name) for name in known if name not in table.columns),
    )
    # What the collectors derived from a row comes after what it states, whatever that is.
    derived = [name for name in known if f"{name}_derived" in table.columns and name not in TIMES]
    return table.with_columns(pl.coalesce(name, f"{name}_derived") for name in derived)


def _filled(dataset: Dataset, table: pl.DataFrame) -> Iterator[tuple[str, pl.Expr]]:
    """Give the columns of which more is known than the table says: its value, else a variant's, else the set's."""
    variants = [
        (
            pl.all_horizontal(
                pl.col(name).str.contains(f"(?s){pattern}").fill_null(False) for name, pattern in variant.where.items()
            ),
            variant,
        )
        for variant in dataset.variants
    ]
    told = [name for _, variant in variants for name in (*variant.facts, *variant.instead)]
    for name in dict.fromkeys([*dataset.facts, *told]):
        instead = [pl.when(rows).then(_text(each.instead[name])) for rows, each in variants if name in each.instead]
        said = [pl.col(name)] if name in table.columns else []
        there = [pl.when(rows).then(_text(each.facts[name])) for rows, each in variants if name in each.facts]
        of_set = [_text(dataset.facts[name])] if name in dataset.facts else []
        yield name, pl.coalesce(*instead, *said, *there, *of_set)


def _text(fact: Figure) -> pl.Expr:
    return pl.lit(str(fact).lower() if isinstance(fact, bool) else str(fact))


def _typed(table: pl.DataFrame) -> pl.DataFrame:
    """Return the columns as numbers and as our words; what follows from the others is filled in."""
    # `1 (4)`, `FP8-CS (FP8-MX)`: a second configuration of the same row, in brackets.
    first = {
        name: pl.col(name).str.replace(r" \([^)]*\)$", "").str.strip_chars()
        for name in (*WHOLE, "precision", "recompute", "zero", "model")
    }
    table = table.with_columns(model_said=pl.col("model"), **first)
    whole = [pl.col(name).cast(pl.Float64, strict=False).cast(pl.Int64, strict=False) for name in WHOLE]
    real = {name: pl.col(name).cast(pl.Float64, strict=False) for name in REAL}
    above = [pl.when(value.is_finite() & (value > 0)).then(value).alias(name) for name, value in real.items()]
    table = table.with_columns(*whole, *above)
    table = table.with_columns(pl.col(name).fill_null(1) for name in ("vp", "cp", "ep", "etp"))
    table = table.with_columns(pl.when(_ADAPTED).then("lora_rank").otherwise(0).alias("lora_rank"))
    degree = pl.col("tp") * pl.col("pp") * pl.col("cp")
    table = table.with_columns(
        dp=pl.coalesce("dp", pl.when(pl.col("num_gpus") % degree == 0).then(pl.col("num_gpus") // degree)),
        iteration_time_s=pl.coalesce("iteration_time_s", pl.col("iteration_time_ms") / 1e3),
        software=pl.coalesce("software", "framework"),
        fsdp=pl.col("zero").str.to_lowercase().str.contains("fsdp|shard").fill_null(False),
        precision=_word("precision", _PRECISIONS),
        precision_said=pl.col("precision"),
        zero=_word("zero", _SHARDED).fill_null("0").cast(pl.Int64),
        recompute=_word("recompute", _RECOMPUTED),
        recompute_said=pl.col("recompute"),
        sp=_word("sp", {"1": "^(yes|true|1|1.0)$"}).eq_missing("1")
        | ((pl.col("sp") == "with tp") & (pl.col("tp") > 1)).fill_null(False),
    )
    return table.with_columns(
        num_gpus=pl.coalesce("num_gpus", degree * pl.col("dp")),
        gbs=pl.coalesce("gbs", pl.col("mbs") * pl.col("dp") * pl.col("accumulation")),
        vp=pl.when(pl.col("pp") > 1).then("vp").otherwise(1),
    )


def _word(name: str, words: dict[str, str]) -> pl.Expr:
    """Return our word for what a column says, null where it has none."""
    said = pl.col(name).str.to_lowercase()
    return reduce(
        lambda otherwise, word: pl.when(said.str.contains(word[1])).then(pl.lit(word[0])).otherwise(otherwise),
        reversed(words.items()),
        pl.lit(None, pl.String),
    )


def faults(dataset: Dataset) -> list[pl.Expr]:
    """Return expressions that say why a row of `read_runs` is no full plan that can be estimated, or null."""
    unsaid = pl.concat_str(
        [pl.when(pl.col(name).is_null()).then(pl.lit(f" {name}")).otherwise(pl.lit("")) for name in _PLAN]
    )
    unknown_precision = pl.col("precision").is_null() & pl.col("precision_said").is_not_null()
    gpus = pl.col("tp") * pl.col("pp") * pl.col("cp") * pl.col("dp")
    stepped = pl.col("mbs") * pl.col("grad_accum") * pl.col("dp")
    positive = pl.min_horizontal("num_gpus", "seq", "gbs", "mbs", "tp", "pp", "vp", "cp", "ep", "dp") >= 1
    reasons: list[pl.Expr] = [
        pl.when(unknown_precision).then(
            pl.concat_str(pl.lit("precision "), "precision_said", pl.lit(" is not modelled"))
        ),
        pl.when(pl.col("recompute").is_null() & pl.col("recompute_said").is_not_null()).then(
            pl.concat_str(pl.lit("recompute "), "recompute_said", pl.lit(" is not modelled"))
        ),
        pl.when(unsaid != "").then(
            pl.concat_str(pl.lit("does not say"), unsaid.str.replace_all(" ", ", ").str.slice(1))
        ),
        pl.when(pl.col("dp").is_null() | (gpus != pl.col("num_gpus"))).then(
            pl.lit("contradicts itself: num_gpus is not tp * pp * cp * dp")
        ),
        pl.when(pl.col("lora_rank").is_null()).then(pl.lit("does not say lora_rank")),
        pl.when(stepped != pl.col("gbs")).then(pl.lit("contradicts itself: gbs is not mbs * grad_accum * dp")),
        pl.when(~positive).then(pl.lit("contradicts itself: a degree below 1")),
    ]
    if dataset.ran:
        reasons.insert(
            0, pl.when(pl.all_horizontal(pl.col(name).is_null() for name in TIMES)).then(pl.lit("no step time"))
        )
    if dataset.tasks:
        wrong = ~pl.col("task").is_in(dataset.tasks).fill_null(False)
        task = pl.col("task").fill_null("nothing")
        reasons.insert(0, pl.when(wrong).then(pl.concat_str(pl.lit("training that is not modelled: "), task)))
    return reasons
