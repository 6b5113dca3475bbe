"""What the allocator held at its most, and what of its memory is stuck: `memory_peak`, `memory_fragmentation`."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import duckdb

from lumos_df.base.units import format_bytes
from lumos_df.page.section import MAX_NAME, Columns, Section, by_job, percent

_TOP_STACKS: Final = 60
_FRAMES: Final = 4
"""Innermost frames of Python that stand for a stack."""


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """Rows of memory snapshots by job."""

    categories: dict[str, Columns]
    """A row a rank, device and category."""
    stacks: dict[str, Columns]
    """A row a rank, device and stack, those with the most bytes of each job."""
    pools: dict[str, Columns]
    """A row a rank, device, pool and stream."""


def rows(connection: duckdb.DuckDBPyConnection) -> HeldMemory:
    """Return what snapshots hold of the jobs that are shown."""
    return HeldMemory(
        categories=by_job(
            connection,
            """
            SELECT
              job, place, device, category, any_value(peak_bytes) AS peak_bytes, sum(blocks)::BIGINT AS blocks,
              sum(bytes)::BIGINT AS bytes, round(sum(share_pct), 2) AS share_pct
            FROM memory_peak
            JOIN page_trace USING (trace_id, job)
            GROUP BY job, place, device, category
            ORDER BY job, place, device, bytes DESC, category
            """,
        ),
        stacks=by_job(
            connection,
            f"""
            WITH named AS (
              SELECT *, [line FOR line IN string_split(stack, chr(10)) IF contains(line, '.py:')] AS python
              FROM memory_peak
              JOIN page_trace USING (trace_id, job)
            ),
            summed AS (
              SELECT
                job, place, device, category,
                -- Frames of Python say where in the model it is; the allocator's own are the same everywhere.
                left(if(len(python) > 0, array_to_string(python[:{_FRAMES}], ', in '), stack), {MAX_NAME}) AS stack,
                sum(blocks)::BIGINT AS blocks,
                sum(bytes)::BIGINT AS bytes,
                round(sum(share_pct), 2) AS share_pct
              FROM named
              GROUP BY ALL
            )
            FROM summed
            QUALIFY row_number() OVER (PARTITION BY job ORDER BY bytes DESC, stack, place) <= {_TOP_STACKS}
            ORDER BY job, bytes DESC, stack, place
            """,
        ),
        pools=by_job(
            connection,
            """
            SELECT
              job, place, device, pool, stream, segments, reserved_bytes, allocated_bytes, empty_bytes, stuck_bytes,
              round(stuck_pct, 2) AS stuck_pct
            FROM memory_fragmentation
            JOIN page_trace USING (trace_id, job)
            ORDER BY job, place, device, pool, stream
            """,
        ),
    )


def section(held: HeldMemory, job: str) -> Section | None:
    """Return the section of a job's memory snapshots, None where it has none."""
    categories, pools = held.categories.get(job), held.pools.get(job)
    if categories is None and pools is None:
        return None
    data: dict[str, Any] = {
        name: shown
        for name, shown in (("categories", categories), ("stacks", held.stacks.get(job)), ("pools", pools))
        if shown is not None
    }
    found = [_peak(categories)] if categories else []
    if pools:
        stuck, reserved = sum(pools["stuck_bytes"]), sum(pools["reserved_bytes"])
        found.append(
            f"{format_bytes(stuck)} of {format_bytes(reserved)} reserved are stuck ({percent(stuck, reserved)})"
        )
    return Section(
        "; ".join(found),
        "What is stuck is free in segments that are partly held: it cannot go back to the driver. "
        "Categories are judged by the stack; `unknown` was allocated before the snapshot's first event.",
        data,
    )


def _peak(categories: Columns) -> str:
    """Return what is held most on the rank and device that held most."""
    owner = list(zip(categories["place"], categories["device"], strict=True))
    most = max(range(len(owner)), key=lambda row: categories["peak_bytes"][row])
    of_owner = Counter[str]()
    for row, one in enumerate(owner):
        if one == owner[most]:
            of_owner[categories["category"][row]] = categories["bytes"][row]
    (category, size), *_ = of_owner.most_common(1)
    peak = categories["peak_bytes"][most]
    return f"The allocator held {format_bytes(peak)} at its peak, {percent(size, peak)} of it {category}"
