"""Who is late: view `straggler`, a rank and step."""

from collections import Counter
from typing import Any

import duckdb

from lumos_df.base.units import format_count, format_ns
from lumos_df.page.section import Budget, Columns, Section, by_job, percent


def rows(connection: duckdb.DuckDBPyConnection, budget: Budget) -> dict[str, Columns]:
    """Return a row a rank and step of each job, of as many of its last steps as its budget has bars for."""
    return by_job(
        connection,
        f"""
        WITH placed AS (
          SELECT
            straggler.*,
            dense_rank() OVER (PARTITION BY job ORDER BY step DESC NULLS LAST) AS back,
            (SELECT count(*) FROM page_trace WHERE page_trace.job = straggler.job) AS ranks
          FROM straggler
        )
        SELECT job, rank, step, collectives, times_last, waiting_ns, made_others_wait_ns
        FROM placed
        WHERE ranks > 0 AND back <= greatest(1, {budget.bars} // ranks)
        ORDER BY job, step, rank
        """,
    )


def section(shown: Columns | None, summary: dict[str, Any], corpus: str) -> Section:
    """Return the section of the heat map.

    Args:
        shown: the job's `rows`.
        summary: its row of `corpus_summary`.
        corpus: name of the corpus, ready for a shell.
    """
    collectives, matched = summary["collectives"], summary["matched_collectives"]
    if shown is None:
        why = "One rank has nobody to wait for."
        if summary["ranks"] > 1:
            why = "No collective was matched across ranks."
            if collectives is None and summary["gpu_rows"]:
                why += f" To look for them: `lumos-df report --corpus {corpus}`"
        return Section("No rank waits for another", why)
    made, last, waited = Counter[int](), Counter[int](), sum(shown["waiting_ns"])
    for rank, wait, times in zip(shown["rank"], shown["made_others_wait_ns"], shown["times_last"], strict=True):
        made[rank] += wait
        last[rank] += times
    (worst, wait), *_ = made.most_common(1)
    all_told = sum(last.values())
    title = (
        f"Rank {worst} made the others wait {format_ns(wait)} in all: {percent(wait, waited)} of all waiting, "
        f"last to {last[worst]:,} of {all_told:,} collectives"
        if wait
        else "No rank made another wait"
    )
    known = "Of these ranks there are records of their calls alone."
    if collectives is not None:
        known = f"{matched:,} of {format_count(collectives, 'collective')} matched."
    return Section(
        title,
        "A rank's wait is its kernel's duration less the shortest in the collective, that of the last to arrive; "
        f"the waits of all ranks are added up. {known}",
        {"stragglers": shown},
    )
