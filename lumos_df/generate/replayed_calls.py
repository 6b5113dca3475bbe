"""Which operators of a step a benchmark calls, and what stands for those that torch alone does not have.

Of each tree of host operators the outermost that torch can call with what is known of its inputs is called; a
wrapper, such as a node of autograd, is passed for what is inside it. What ran on the GPU and is in none of them belongs
to the operator next around it, which is replaced where its tensors are known.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lumos_df.generate.index_bounds import index_bound
from lumos_df.generate.like_operators import as_recorded_or_alike
from lumos_df.generate.listed_tensors import with_listed_tensors
from lumos_df.generate.recorded_inputs import RecordedInputs, recorded_inputs, tensors
from lumos_df.generate.recorded_rows import NO_ROW, RecordedRows
from lumos_df.generate.stand_ins import collective_operator, stand_in
from lumos_df.schema.collective_kinds import UNKNOWN
from lumos_df.trace.classify import COMMUNICATION_OPERATOR, FAMILY_OTHER, family

_KEY: Final = ("name", "dims", "types", "strides", "concrete", "given")
_NOT_AGAIN: Final = (
    "aten::resize_",
    "aten::set_",
    "aten::requires_grad_",
    "aten::record_stream",
    "aten::detach_",
    "aten::pin_memory",
)
"""Operators that change what a tensor is, not what is in it."""
_LOOK_AT_GRADIENTS: Final = ("aten::max_pool1d", "aten::embedding_bag")
"""Operators that call another one where nobody will ask for a gradient, as in a benchmark."""
_KEEP: Final = (
    "aten::layer_norm",
    "aten::batch_norm",
    "aten::_batch_norm_impl_index",
    "aten::group_norm",
    "aten::instance_norm",
    "aten::rms_norm",
    "aten::cross_entropy_loss",
    "aten::nll_loss_nd",
    "aten::nll_loss",
    "aten::scaled_dot_product_attention",
    "aten::max_pool2d",
    "aten::max_pool3d",
    "aten::lstm",
    "aten::gru",
    "aten::rnn_tanh",
    "aten::rnn_relu",
)
"""Operators that return less than what those inside them make and the backward pass reads."""
_COPIES: Final = ("aten::copy_", "aten::_local_scalar_dense")
"""Operators that copy between host and GPU by themselves; of one around them the devices are not recorded."""

_HOST_FAMILIES: Final = {
    # Views, which move nothing: of their time most is spent in one that has a copy's name, or not.
    FAMILY_OTHER: re.compile(
        r"aten::(t|transpose|permute|view|_unsafe_view|as_strided|select|slice|split|chunk|unbind"
        r"|expand|squeeze|unsqueeze|detach|alias|narrow|movedim|unflatten)"
    ),
    "gemm": re.compile(r"aten::(linear|matmul|dot|\w*m[mv])(_backward)?"),
    "elementwise": re.compile(
        r"aten::(_foreach_)?(add|sub|rsub|mul|div|neg|abs|sign|reciprocal|r?sqrt|pow|square|exp\w*|log\d*p?|lerp|addcmul"
        r"|addcdiv|clamp\w*|maximum|minimum|where|threshold|erf|floor|ceil|round)_?(_backward)?"
    ),
    "reduction": re.compile(r"aten::(sum|mean|prod|var|std|norm|linalg_vector_norm|a?max|a?min|logsumexp|any|all)"),
}
"""What operators on the host are that have names unlike those of kernels."""
_COMPILED: Final = "Compiled"
"""In the name of an operator around generated kernels, whose inputs say nothing of what these read and write."""

REPLAYED, REPLACED = "replayed", "replaced"


@dataclass(frozen=True, slots=True)
class ReplayedCalls:
    """The calls of a step, and what they leave out."""

    calls: pl.DataFrame
    """One row a call by its start: op_id, operator (its number in `operators`), name, how, by, family, thread, stream
    (-1: nothing of it ran on one), ts, end, first_ts and last_ts (of its work), gpu_ns, host_ns, module, storages."""
    operators: list[dict[str, Any]]
    """What calls run, each once: name, inputs, and by, flops or what a collective moves."""
    left_out: pl.DataFrame
    """name, reason, calls, gpu_ns, host_ns."""
    gpu_ns: int
    host_ns: int
    """Of the outermost operators."""
    shaped_gpu_ns: int
    """Time on the GPU in operators whose own shapes were recorded, and in collectives whose bytes were."""


def replay(rows: RecordedRows, op_id: int | None = None) -> ReplayedCalls:
    """Choose the calls of a step; with `op_id` only the call of that row, or of the operator that it ran for.

    Of a row that is no operator, or one without known tensors, it is the innermost operator around that has them. There
    is no call where there is none.
    """
    rows = with_listed_tensors(rows)
    frame = rows.frame
    host = (frame["kind"] == "cpu_op").to_numpy()
    keys, distinct = _distinct(frame, host)
    inputs = [recorded_inputs(*row) for row in distinct.select(_KEY).iter_rows()]
    known = _looked_up([each.complete for each in inputs], keys)
    with_tensors = _looked_up([bool(tensors(each.given)) for each in inputs], keys)
    name = frame["name"]
    crossing = rows.gpu & name.str.contains("Memcpy (HtoD|DtoH)").to_numpy()
    callable_ = host & known & name.str.starts_with("aten::").to_numpy() & ~name.is_in(_NOT_AGAIN).to_numpy()
    callable_ &= (rows.sum_inside(crossing) == 0) | name.is_in(_COPIES).to_numpy()
    # Where it is known which results are read, each is to be one of a call.
    passed = name.is_in(_KEEP).to_numpy() & frame["storages"].is_not_null().to_numpy()
    passed |= name.is_in(_LOOK_AT_GRADIENTS).to_numpy()
    callable_ &= ~_casts(rows) & ~(passed & (rows.sum_inside(callable_.astype(np.int64)) > 1))
    moved = rows.most_inside(
        frame.select(pl.max_horizontal("in_bytes", "out_bytes").fill_null(0)).to_series().to_numpy()
    )
    speaks = host & name.str.contains(f"^(?:{COMMUNICATION_OPERATOR.pattern})").to_numpy()
    tells = frame["collective"].is_not_null().to_numpy() & (frame["collective"] != UNKNOWN).fill_null(False).to_numpy()
    collective = speaks & (rows.sum_inside(tells) > 0) & ((moved > 0) | with_tensors)
    runtime = (frame["kind"] == "runtime").to_numpy()
    sync = runtime & name.str.contains("(Device|Stream|Event)Synchronize").to_numpy()
    near = rows.innermost_around(host)
    compiled = name.str.contains(_COMPILED).to_numpy()
    with_tensors &= host & ~compiled
    if op_id is None:
        root = rows.outermost(callable_ | collective | sync)
        stood_for = rows.gpu & (root < 0) & (near >= 0) & with_tensors[near]
        replaced = np.zeros(len(frame), np.bool_)
        replaced[near[stood_for]] = True
        replaced &= root < 0
        root = np.where(stood_for, near, np.where(replaced, np.arange(len(frame)), root))
    else:
        told = callable_ | collective | with_tensors
        around = rows.innermost_around(told)[(frame["op_id"] == op_id).to_numpy()]
        only = np.isin(np.arange(len(frame)), around)
        root, replaced = rows.outermost(only), only & ~callable_ & ~collective

    about = _about(rows, root, keys, crossing)
    about = about.with_columns(
        how=pl.when(pl.Series(replaced[about["place"].to_numpy()])).then(pl.lit(REPLACED)).otherwise(pl.lit(REPLAYED)),
        kind=pl.Series(
            np.select([collective, sync], ["collective", "synchronize"], "operator")[about["place"].to_numpy()]
        ),
    )
    inside = rows.sum_inside((root == np.arange(len(frame))).astype(np.int64)) > 1
    about = about.with_columns(
        end=pl.when(pl.Series(inside[about["place"].to_numpy()])).then("ts").otherwise("end"),
        # A wait for the GPU is as long as the GPU's work, and no operator's time.
        host_ns=pl.when(pl.Series((inside | sync)[about["place"].to_numpy()])).then(0).otherwise("host_ns"),
    )
    calls, operators = _operators(about, inputs)
    gpu_time = frame["dur"].to_numpy()[rows.gpu]
    shapes = (
        host & frame["dims"].is_not_null().to_numpy() & frame["types"].str.contains("[a-z]").fill_null(False).to_numpy()
    )
    launched = frame["name"].str.contains("GraphLaunch").to_numpy()[rows.parent] & (rows.parent >= 0)
    # Of a region that was compiled or captured whole, the shapes are those of the region: none of a kernel's own.
    shaped = ((rows.outermost(shapes) >= 0) & ~launched & ~compiled[near]) | (root >= 0)
    outer = host & (rows.outermost(host) == np.arange(len(frame)))
    return ReplayedCalls(
        calls=_with_gloo(calls, frame),
        operators=operators,
        left_out=_left_out(rows, root, near, outer, launched),
        gpu_ns=int(gpu_time.sum()),
        host_ns=int(frame["dur"].to_numpy()[outer].sum()),
        shaped_gpu_ns=int(gpu_time[shaped[rows.gpu]].sum()),
    )


def _casts(rows: RecordedRows) -> NDArray[np.bool_]:
    """Return which rows are an operator as autocast was asked for it: inside is the same one, on tensors that it cast.

    What it casts it keeps for later calls of the step, so that of the operator alone nobody knows what it cast.
    """
    name, types = rows.frame["name"].to_numpy(), rows.frame["types"].to_numpy()
    inside = np.flatnonzero(rows.parent >= 0)
    above = rows.parent[inside]
    casts = np.zeros(len(name), np.bool_)
    casts[above[(name[inside] == name[above]) & (types[inside] != types[above])]] = True
    return casts


def _distinct(frame: pl.DataFrame, host: NDArray[np.bool_]) -> tuple[NDArray[np.int64], pl.DataFrame]:
    """Return the number of each host operator's name and inputs, -1 for another row, and the distinct ones."""
    operators = frame.select(_KEY).with_row_index("place").filter(pl.Series(host))
    distinct = operators.select(_KEY).unique(maintain_order=True).with_row_index("key")
    keys = np.full(len(frame), NO_ROW, np.int64)
    joined = operators.join(distinct, on=_KEY, nulls_equal=True, maintain_order="left")
    keys[joined["place"].to_numpy()] = joined["key"].to_numpy()
    return keys, distinct


def _looked_up(of_key: list[bool], keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return what is true of each row's key; False without one."""
    return np.array([*of_key, False])[keys]


def _about(
    rows: RecordedRows, root: NDArray[np.int64], keys: NDArray[np.int64], crossing: NDArray[np.bool_]
) -> pl.DataFrame:
    """Return one row a call: its own columns, and what the rows in it say."""
    names = rows.frame["name"].unique()
    families = pl.DataFrame({"name": names, "by_name": [_named_family(each) for each in names]})
    inside = rows.frame.with_columns(
        pl.Series("root", root),
        pl.Series("gpu", rows.gpu),
        crossing=pl.when(pl.Series(crossing)).then(pl.col("name").str.extract("Memcpy (HtoD|DtoH)")),
        pinned=pl.Series(crossing) & pl.col("name").str.contains("Pinned"),
    ).join(families, on="name", how="left", maintain_order="left")
    inside = inside.filter(pl.col("root") >= 0)
    said = pl.col("collective") != UNKNOWN
    on_gpu = pl.col("gpu")
    longest_gpu = pl.col("dur").filter(on_gpu).arg_max()
    told = (pl.col("by_name") != FAMILY_OTHER) & (pl.col("kind") == "cpu_op")
    found = inside.group_by("root").agg(
        pl.col("dur").filter(on_gpu).sum().alias("gpu_ns"),
        pl.col("ts").filter(on_gpu).min().alias("first_ts"),
        (pl.col("ts") + pl.col("dur")).filter(on_gpu).max().alias("last_ts"),
        pl.col("family").filter(on_gpu).get(longest_gpu, null_on_oob=True).alias("gpu_family"),
        pl.col("stream").filter(on_gpu).get(longest_gpu, null_on_oob=True).alias("stream"),
        pl.col("by_name").filter(told).get(pl.col("dur").filter(told).arg_max(), null_on_oob=True).alias("host_family"),
        pl.col("dur").filter(told).max().alias("told_ns"),
        pl.col("collective").filter(said).first().alias("collective"),
        pl.col("group").drop_nulls().first().alias("group"),
        pl.col("dtype").drop_nulls().first().alias("dtype"),
        pl.col("in_bytes").max(),
        pl.col("out_bytes").max(),
        pl.col("flops").max(),
        pl.col("crossing").drop_nulls().first(),
        pl.col("pinned").any(),
    )
    own = rows.frame.join(families.rename({"by_name": "own_family"}), on="name", how="left", maintain_order="left")
    kept = ("op_id", "name", "ts", "thread", "module", "storages", "own_family")
    own = own.select(*kept, host_ns="dur")
    own = own.with_columns(
        pl.Series("place", np.arange(len(root))),
        pl.Series("key", keys),
        (pl.col("ts") + pl.col("host_ns")).alias("end"),
    )
    return (
        own.join(found, left_on="place", right_on="root", maintain_order="left")
        .with_columns(
            # Without a GPU an operator that says nothing is of the family of what it spends most of its time in.
            pl.coalesce(
                "gpu_family",
                pl.when(pl.col("own_family") != FAMILY_OTHER).then("own_family"),
                pl.when(2 * pl.col("told_ns") >= pl.col("host_ns")).then("host_family"),
                pl.lit(FAMILY_OTHER),
            ).alias("family"),
            pl.col("stream").fill_null(NO_ROW),
        )
        .drop("gpu_family", "own_family", "host_family", "told_ns")
        .sort("ts", "op_id")
    )


def _named_family(name: str) -> str:
    """Return the family of a host operator, or of a kernel, by its name."""
    return next((word for word, names in _HOST_FAMILIES.items() if names.fullmatch(name)), family(name))


def _operators(about: pl.DataFrame, inputs: list[RecordedInputs]) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """Return the calls with the number of what each runs, and what that is."""
    same = (
        "kind", "how", "key", "name", "family", "collective", "group", "dtype", "in_bytes", "out_bytes", "flops",
        "crossing", "pinned",
    )  # fmt: skip
    distinct = about.select(same).unique(maintain_order=True).with_row_index("operator")
    operators = [_operator(row, inputs) for row in distinct.iter_rows(named=True)]
    distinct = distinct.with_columns(pl.Series("by", [each.get("by") for each in operators], pl.String))
    calls = about.join(distinct, on=same, nulls_equal=True, maintain_order="left").drop("place")
    stood_for = pl.col("by").is_not_null() | (pl.col("how") == REPLACED)
    return calls.with_columns(how=pl.when(stood_for).then(pl.lit(REPLACED)).otherwise(pl.lit(REPLAYED))), operators


def _operator(row: dict[str, Any], inputs: list[RecordedInputs]) -> dict[str, Any]:
    given = inputs[row["key"]].given if row["key"] >= 0 else []
    if row["kind"] == "synchronize":
        return {"name": "synchronize", "family": FAMILY_OTHER, "inputs": []}
    if row["kind"] == "collective":
        return collective_operator(row, given)
    if row["how"] == REPLACED:
        return stand_in(row, given)
    if row["crossing"] and row["name"] == "aten::copy_":
        place = "pinned" if row["pinned"] else "cpu"
        crossed = 1 if row["crossing"] == "HtoD" else 0
        given = [each | {"at": place} if each and number == crossed else each for number, each in enumerate(given)]
    below = index_bound(row["name"], given)
    operator = {"name": row["name"], "family": row["family"], "inputs": given}
    return as_recorded_or_alike(operator | ({} if below is None else {"below": below}))


def _with_gloo(calls: pl.DataFrame, frame: pl.DataFrame) -> pl.DataFrame:
    """Return calls with the time in which gloo's threads did each collective, where there is one for each."""
    worked = frame.filter(
        (pl.col("kind") == "annotation") & pl.col("name").str.starts_with("gloo:") & pl.col("thread").is_not_null()
    ).sort("ts")
    on_host = ((calls["kind"] == "collective") & (calls["gpu_ns"] == 0)).to_numpy()
    if on_host.sum() != len(worked) or not len(worked):
        return calls
    first, last = calls["first_ts"].to_numpy().copy(), calls["last_ts"].to_numpy().copy()
    first[on_host], last[on_host] = worked["ts"].to_numpy(), (worked["ts"] + worked["dur"]).to_numpy()
    return calls.with_columns(pl.Series("first_ts", first), pl.Series("last_ts", last))


def _left_out(
    rows: RecordedRows,
    root: NDArray[np.int64],
    near: NDArray[np.int64],
    outer: NDArray[np.bool_],
    launched: NDArray[np.bool_],
) -> pl.DataFrame:
    """Return what no call stands for, by name: work on the GPU, and outermost host operators with no call inside."""
    frame = rows.frame
    without = outer & (rows.sum_inside((root >= 0).astype(np.int64)) == 0)
    lost = (rows.gpu & (root < 0)) | without
    around = np.where(near >= 0, near, np.arange(len(frame)))
    shapes = frame["dims"].is_not_null().to_numpy()
    compiled = frame["name"].str.contains(_COMPILED).to_numpy()
    reason = np.select(
        [launched, near < 0, compiled[around], ~shapes[around]],
        [
            "launched by a CUDA graph: recorded are the shapes of the whole region, if any",
            "no operator around it",
            "compiled: recorded are the shapes of the whole region, not of its kernels",
            "its shapes were not recorded",
        ],
        "its inputs are not all known",
    )
    gpu = rows.gpu[lost]
    return (
        pl.DataFrame(
            {
                "name": frame["name"].to_numpy()[around[lost]],
                "reason": reason[lost],
                "gpu_ns": np.where(gpu, frame["dur"].to_numpy()[lost], 0),
                "host_ns": np.where(gpu, 0, frame["dur"].to_numpy()[lost]),
            },
            schema={"name": pl.String, "reason": pl.String, "gpu_ns": pl.Int64, "host_ns": pl.Int64},
        )
        .group_by("name", "reason")
        .agg(pl.len().alias("calls"), pl.col("gpu_ns").sum(), pl.col("host_ns").sum())
        .sort("gpu_ns", "host_ns", "name", descending=[True, True, False])
    )
