"""When each call of a step runs: after which others, with how much of the host's own time before it."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lumos_df.generate.recorded_rows import NO_ROW

HOST, BEHIND = -1, -2
"""Lanes beside streams: calls without work of their own elsewhere, and collectives that the host's threads do."""


def ordered(calls: pl.DataFrame, start_ns: int, end_ns: int) -> tuple[pl.DataFrame, int]:
    """Return thread, stream, gap_ns, after and waits of each call, and the host's time behind the last one.

    Threads and streams are numbered from 0, the stream with most time first. Threads that take turns, as autograd's for
    a GPU and the one that waits for it, are one: a profiler follows the thread that starts it. `after` is the call of
    another thread that ended last before this one began, where its own thread had nothing later: the gap begins there.
    `waits` are the last calls of other streams whose work had ended when the work of this one began: what depends on
    what is not recorded, and no dependency that the recording shows is missing among them. A gap in which a collective
    ended that the host's threads do begins there: what came before was waiting, and takes as long as the collective
    will.

    Args:
        calls: those of `replayed_calls`, by their start.
        start_ns, end_ns: of the step, on the trace's clock.
    """
    ts, end = calls["ts"].to_numpy(), calls["end"].to_numpy()
    thread = _threads(calls["thread"].fill_null(0).to_numpy(), ts, end)
    before = _previous(thread)
    own_end = np.where(before >= 0, end[before], start_ns) if len(ts) else ts
    by_end = np.argsort(end, kind="stable")
    last = np.searchsorted(end[by_end], ts, side="right") - 1
    # A call that ends where another begins comes before it, also where both take no time.
    after = np.where(last >= 0, by_end[last], NO_ROW) if len(ts) else ts
    handed = (after >= 0) & (after < np.arange(len(ts))) & (thread[after] != thread) & (end[after] > own_end)
    waits = _waits(calls)
    began = np.maximum(np.where(handed, end[after], own_end), _awaited_end(calls, waits))
    table = pl.DataFrame(
        {
            "operator": calls["operator"],
            "thread": thread,
            "stream": _streams(calls),
            "gap_ns": np.maximum(ts - began, 0),
            "after": pl.Series(after, dtype=pl.Int64).set(pl.Series(~handed), None),
            "waits": waits,
        }
    )
    return table, max(0, int(end_ns - end.max(initial=start_ns)))


def _threads(recorded: NDArray[np.int64], ts: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of each call's thread, calls by their start; the loops are over threads."""
    number = np.full(len(ts), NO_ROW, np.int64)
    for thread in dict.fromkeys(recorded.tolist()):
        own = recorded == thread
        turns = (number == other for other in range(int(number.max()) + 1))
        fits = [other for other, those in enumerate(turns) if _one_by_one(own | those, ts, end)]
        number[own] = fits[0] if fits else number.max() + 1
    return number


def _one_by_one(chosen: NDArray[np.bool_], ts: NDArray[np.int64], end: NDArray[np.int64]) -> bool:
    """Return whether none of these calls begins before all earlier ones have ended."""
    return bool((ts[chosen][1:] >= np.maximum.accumulate(end[chosen])[:-1]).all())


def _awaited_end(calls: pl.DataFrame, waits: pl.Series) -> NDArray[np.int64]:
    """Return when the last collective ended that each call waits for and the host's threads do; 0 without one."""
    ended = np.where(_lanes(calls) == BEHIND, calls["last_ts"].fill_null(0).to_numpy(), 0)
    latest = np.zeros(len(calls), np.int64)
    waiting = np.repeat(np.arange(len(calls)), waits.list.len().to_numpy())
    np.maximum.at(latest, waiting, ended[waits.explode().drop_nulls().to_numpy()])
    return np.where(latest <= calls["ts"].to_numpy(), latest, 0)


def _previous(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each row the row before it in its group, or -1."""
    order = np.argsort(group, kind="stable")
    previous = np.full(len(group), NO_ROW, np.int64)
    same = group[order[1:]] == group[order[:-1]]
    previous[order[1:][same]] = order[:-1][same]
    return previous


def _streams(calls: pl.DataFrame) -> pl.Series:
    """Return the number of each call's stream; a collective is issued from the first."""
    most = (
        calls.filter((pl.col("kind") != "collective") & (pl.col("stream") >= 0))
        .group_by("stream")
        .agg(pl.col("gpu_ns").sum())
        .sort("gpu_ns", "stream", descending=[True, False])
        .select("stream")
        .with_row_index("number")
    )
    found = calls.join(most, on="stream", how="left", maintain_order="left")
    return found.select(
        pl.when(pl.col("kind") == "collective")
        .then(0)
        .otherwise(pl.col("number"))
        .fill_null(0)
        .cast(pl.Int64)
        .alias("stream")
    ).to_series()


def _waits(calls: pl.DataFrame) -> pl.Series:
    """Return the calls whose work each waits for; the loops are over streams."""
    collective = (calls["kind"] == "collective").to_numpy()
    lane = _lanes(calls)
    begins = calls["first_ts"].fill_null(0).to_numpy()
    ends = calls["last_ts"].fill_null(0).to_numpy()
    host_begins = calls["ts"].to_numpy()
    on_gpu = bool((lane >= 0).any())
    found: dict[str, pl.Series] = {}
    for waiting in np.unique(lane[~collective]):
        if waiting == HOST and on_gpu:
            continue
        consumer = np.flatnonzero((lane == waiting) & ~collective)
        start = host_begins[consumer] if waiting == HOST else begins[consumer]
        for awaited in np.unique(lane[(lane != waiting) & (lane != HOST)]):
            producer = np.flatnonzero(lane == awaited)
            done = np.searchsorted(np.maximum.accumulate(ends[producer]), start, side="right") - 1
            last = np.where(done >= 0, producer[np.maximum(done, 0)], NO_ROW)
            last = np.where(last < consumer, last, NO_ROW)
            seen = np.append(NO_ROW, np.maximum.accumulate(last)[:-1])
            new = last > seen
            column = np.full(len(calls), NO_ROW, np.int64)
            column[consumer[new]] = last[new]
            found[f"{waiting} {awaited}"] = pl.Series(column).replace(NO_ROW, None)
    if not found:
        return pl.Series([[]] * len(calls), dtype=pl.List(pl.Int64))
    return pl.DataFrame(found).select(pl.concat_list(pl.all()).list.drop_nulls().alias("waits")).to_series()


def _lanes(calls: pl.DataFrame) -> NDArray[np.int64]:
    """Return where the work of each call runs: a stream, or one of the lanes beside them."""
    behind = (pl.col("kind") == "collective") & pl.col("first_ts").is_not_null()
    return calls.select(
        pl.when(pl.col("stream") >= 0).then("stream").when(behind).then(BEHIND).otherwise(HOST).cast(pl.Int64)
    )["stream"].to_numpy()
