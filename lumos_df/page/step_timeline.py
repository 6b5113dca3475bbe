"""Steps of a job in time: rows of GPU streams and host threads of a few ranks, and the critical path of each.

What is shorter than a screen shows is drawn together with its neighbours of the same kind.
"""

from typing import Any, Final

import duckdb

from lumos_df.base.plain_names import plain
from lumos_df.base.units import format_count, format_ns
from lumos_df.corpus.catalog import query
from lumos_df.page.replays import PATH_KINDS
from lumos_df.page.section import MAX_NAME, Budget, Columns, Section, by_job
from lumos_df.schema.codes import LATEST

MAX_RANKS: Final = 8
_LEAST_SLICES: Final = 400
"""Stretches of time that a step is worth drawing with, over all its ranks."""
_MAX_THREADS: Final = 2
"""Host threads of a rank: those with the most time in operators."""


def prepare(connection: duckdb.DuckDBPyConnection, budget: Budget) -> None:
    """Choose the steps and ranks of each job; makes the temporary table `page_window`, a row a step and rank.

    Drawn finest is the typical step: the median of the steps by how long their longest rank takes. The others share as
    much room again; of more than it holds these are left: the longest, the shortest and the last ones. Of more ranks
    than a screen shows these are chosen: the longest and the shortest step, the most and the least exposed
    communication (who waits, who is waited for), and more of them at even distances.

    Ranks stand by their clocks where these were compared, or where the recorded ones give one common stretch; else
    each starts at its own step's start. `shift_ns` brings a trace's times to those of the page.
    """
    others = max(1, budget.slices // 2 // _LEAST_SLICES)
    query(
        connection,
        f"""
        CREATE OR REPLACE TEMP TABLE page_window AS
        WITH
        lasts AS (SELECT job, step, max(step_ns) AS longest_ns, max(ts) AS ts FROM page_step GROUP BY job, step),
        ranked AS (
          SELECT
            *,
            row_number() OVER (PARTITION BY job ORDER BY longest_ns, ts) AS by_length,
            count(*) OVER (PARTITION BY job) AS steps
          FROM lasts
        ),
        drawn AS (
          SELECT job, step, by_length = (steps + 1) // 2 AS typical, least(steps - 1, {others}) AS others
          FROM ranked
          QUALIFY row_number() OVER (
            PARTITION BY job
            ORDER BY
              CASE WHEN by_length = (steps + 1) // 2 THEN 0 WHEN by_length IN (1, steps) THEN 1 ELSE 2 END,
              ts DESC
          ) <= 1 + {others}
        ),
        candidate AS (
          SELECT
            spent.*,
            typical,
            {budget.slices} // CASE WHEN others = 0 THEN 1 WHEN typical THEN 2 ELSE 2 * others END AS slices,
            row_number() OVER (of_step ORDER BY step_ns DESC, place) AS longest,
            row_number() OVER (of_step ORDER BY step_ns, place) AS shortest,
            row_number() OVER (of_step ORDER BY exposed_communication_ns DESC, place) AS waiting,
            row_number() OVER (of_step ORDER BY exposed_communication_ns, place) AS awaited,
            (row_number() OVER (of_step ORDER BY place) - 1)
              % greatest(1, count(*) OVER of_step // {MAX_RANKS}) AS remainder
          FROM page_step AS spent
          JOIN drawn ON drawn.job = spent.job AND drawn.step IS NOT DISTINCT FROM spent.step
          WINDOW of_step AS (PARTITION BY spent.job, spent.step)
        ),
        chosen AS (
          SELECT
            *,
            longest = 1 AS has_path
          FROM candidate
          QUALIFY row_number() OVER (
            PARTITION BY job, step
            ORDER BY
              CASE WHEN longest = 1 THEN 0 WHEN least(shortest, waiting, awaited) = 1 THEN 1 ELSE 2 + remainder END,
              place
          ) <= {MAX_RANKS}
        ),
        -- Steps of a GPU that falls behind its host are those of the replay: begin and end as its path does.
        gpu_step AS (
          SELECT trace_id, step, any_value(recorded_ns) AS step_ns, min(path.ts) AS ts
          FROM replay_steps AS replay
          JOIN page_step USING (trace_id, step)
          JOIN critical_path AS path USING (trace_id, step)
          WHERE replay.recorded_ns != page_step.step_ns
          GROUP BY trace_id, step
        ),
        clocked AS (
          SELECT
            chosen.* REPLACE (
              coalesce(gpu_step.ts, chosen.ts) AS ts,
              coalesce(gpu_step.step_ns, chosen.step_ns) AS step_ns
            ),
            clocks.trace_id IS NOT NULL AS compared,
            coalesce(traces.clock_origin_ns, 0) - coalesce(clocks.offset_ns, 0) AS origin_ns
          FROM chosen
          JOIN traces USING (trace_id)
          LEFT JOIN clocks USING (trace_id)
          LEFT JOIN gpu_step ON gpu_step.trace_id = chosen.trace_id AND gpu_step.step = chosen.step
        ),
        -- Clocks that were compared are believed even if a rank is some steps late; without that, only within a step.
        judged AS (
          SELECT
            *,
            max(ts + origin_ns) OVER everywhere - min(ts + origin_ns) OVER everywhere
              <= CASE WHEN bool_and(compared) OVER everywhere THEN 10 ELSE 1 END * max(step_ns) OVER everywhere
              AS by_clock,
            min(ts + origin_ns) OVER everywhere AS zero_ns
          FROM clocked
          WINDOW everywhere AS (PARTITION BY job, step)
        )
        SELECT
          job,
          (row_number() OVER (PARTITION BY job ORDER BY step, place) - 1)::INTEGER AS number,
          place,
          trace_id,
          step,
          typical,
          ts AS begin_ts,
          ts + step_ns AS window_end,
          step_ns,
          by_clock,
          has_path,
          CASE WHEN by_clock THEN origin_ns - zero_ns ELSE -ts END AS shift_ns,
          greatest(
            1, max(step_ns) OVER (PARTITION BY job, step) * count(*) OVER (PARTITION BY job, step) // slices
          ) AS bin_ns
        FROM judged
        """,
    )


def rank_rows(connection: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Return a row a step and rank that is drawn: where it lies and how long it is; others name it by its number."""
    return by_job(
        connection,
        """
        SELECT job, place, step, typical, begin_ts + shift_ns AS start_ns, step_ns, by_clock, has_path, bin_ns
        FROM page_window
        ORDER BY job, number
        """,
    )


def slice_rows(connection: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Return a row a slice: what one lane of one rank does, cut at the step's ends.

    Columns: number of the step and rank among `rank_rows`; lane, such as `GPU 0 stream 7`; class (compute,
    communication, memory, host); name, of the longest; start_ns; dur_ns, to the end of the last; rows, how many are
    drawn as one; busy_ns, their durations added up; critical, 1 where one of them is on the critical path.
    """
    query(
        connection,
        f"""
        CREATE OR REPLACE TEMP TABLE page_row AS
        WITH
        gpu AS (
          SELECT
            w.*,
            op_id,
            coalesce('GPU ' || device || ' stream ' || stream, 'GPU') AS lane,
            class,
            name,
            ts,
            gpu.end_ts,
            NULL::BIGINT AS thread
          FROM _gpu AS gpu
          JOIN page_window AS w ON w.trace_id = gpu.trace_id AND ts < window_end AND gpu.end_ts > begin_ts
        ),
        host AS (
          SELECT w.*, op_id, parent_id, thread, name, ts, ts + dur AS end_ts
          FROM operators
          JOIN page_window AS w ON w.trace_id = operators.trace_id AND ts < window_end AND ts + dur > begin_ts
          WHERE kind IN ('cpu_op', 'runtime') AND name NOT LIKE 'ProfilerStep#%'
        ),
        call AS (
          SELECT host.*
          FROM host
          LEFT JOIN operators AS above ON above.trace_id = host.trace_id AND above.op_id = host.parent_id
          WHERE above.kind IS NULL OR above.kind NOT IN ('cpu_op', 'runtime') OR above.name LIKE 'ProfilerStep#%'
        ),
        thread AS (
          SELECT trace_id, thread
          FROM call
          GROUP BY trace_id, thread
          QUALIFY row_number() OVER (PARTITION BY trace_id ORDER BY sum(end_ts - ts) DESC, thread) <= {_MAX_THREADS}
        ),
        every AS (
          FROM gpu
          UNION ALL BY NAME
          SELECT call.* EXCLUDE parent_id, 'thread ' || thread AS lane, 'host' AS class
          FROM call
          JOIN thread USING (trace_id, thread)
        )
        SELECT
          job,
          number,
          step,
          trace_id,
          op_id,
          lane,
          class,
          name,
          greatest(ts, begin_ts) + shift_ns AS start_ns,
          least(end_ts, window_end) + shift_ns AS end_ns,
          bin_ns,
          thread,
          ts,
          end_ts
        FROM every
        """,
    )
    # What runs on the path: of a gap or a launch the row only begins after it. DuckDB joins it quickly as a table only.
    query(
        connection,
        """
        CREATE OR REPLACE TEMP TABLE page_running AS
        SELECT DISTINCT w.step, o.trace_id, o.op_id, o.thread, o.ts
        FROM critical_path AS piece
        JOIN page_window AS w ON w.trace_id = piece.trace_id AND w.step IS NOT DISTINCT FROM piece.step
        JOIN operators AS o ON o.trace_id = piece.on_trace_id AND o.op_id = piece.op_id
        WHERE w.has_path AND piece.kind NOT IN ('gap', 'launch')
        """,
    )
    return by_job(
        connection,
        f"""
        WITH
        -- The path names the calls of a thread; the lane shows the operators around them.
        path AS (
          SELECT step, trace_id, op_id, true AS critical FROM page_running WHERE thread IS NULL
          UNION
          SELECT around.step, around.trace_id, around.op_id, true
          FROM page_running AS running
          ASOF JOIN page_row AS around
            ON around.trace_id = running.trace_id AND around.thread = running.thread
              AND around.step IS NOT DISTINCT FROM running.step AND running.ts >= around.ts
          WHERE running.ts < around.end_ts
        )
        SELECT
          job,
          number,
          lane,
          class,
          left(arg_max(name, end_ns - start_ns), {MAX_NAME}) AS name,
          min(start_ns)::BIGINT AS start_ns,
          (max(end_ns) - min(start_ns))::BIGINT AS dur_ns,
          count(*) AS rows,
          sum(end_ns - start_ns)::BIGINT AS busy_ns,
          coalesce(bool_or(critical), false)::INTEGER AS critical
        FROM page_row
        LEFT JOIN path
          ON path.trace_id = page_row.trace_id AND path.op_id = page_row.op_id
            AND path.step IS NOT DISTINCT FROM page_row.step
        GROUP BY
          job, number, lane, class,
          CASE WHEN end_ns - start_ns >= bin_ns THEN -1 - page_row.op_id ELSE start_ns // bin_ns END
        ORDER BY job, number, lane, min(start_ns), class
        """,
    )


def path_rows(connection: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Return the critical path of the longest rank of each step: pieces by time, short ones of a kind together.

    Columns: number of the step and rank among `rank_rows`, kind, name, on_rank, start_ns (in the replay, from that
    step's start), dur_ns, pieces, time_ns.
    """
    return by_job(
        connection,
        f"""
        WITH piece AS (
          SELECT
            w.job,
            number,
            kind,
            on_rank,
            coalesce(operator, kind) AS name,
            piece.ts + shift_ns AS start_ns,
            dur,
            piece,
            bin_ns
          FROM critical_path AS piece
          JOIN page_window AS w ON w.trace_id = piece.trace_id AND w.step IS NOT DISTINCT FROM piece.step
          WHERE w.has_path AND dur > 0
        )
        SELECT
          job,
          number,
          kind,
          left(arg_max(name, dur), {MAX_NAME}) AS name,
          on_rank,
          min(start_ns)::BIGINT AS start_ns,
          -- Simulated times of a damaged file may go beyond what any recorded time does.
          least(max(start_ns::HUGEINT + dur) - min(start_ns), {LATEST})::BIGINT AS dur_ns,
          count(*) AS pieces,
          least(sum(dur), {LATEST})::BIGINT AS time_ns
        FROM piece
        GROUP BY job, number, kind, on_rank, CASE WHEN dur >= bin_ns THEN -1 - piece ELSE start_ns // bin_ns END
        ORDER BY job, number, min(start_ns), kind, on_rank
        """,
    )


def section(
    ranks: Columns | None, slices: Columns | None, path: Columns | None, labels: list[str], steps: int, corpus: str
) -> Section:
    """Return the section of the timeline; `labels` names the job's traces, `steps` counts those of the longest."""
    if ranks is None or slices is None:
        return Section("No step to draw", "These traces hold no operator.")
    typical = [number for number, of_step in enumerate(ranks["typical"]) if of_step]
    longest, place = max((ranks["step_ns"][number], ranks["place"][number]) for number in typical)
    first, drawn = typical[0], len(typical)
    step, chosen = ranks["step"][first], len(set(ranks["step"]))
    what = "The whole trace" if step is None else f"Step {step}"
    typically = ", the median of them" if chosen > 1 else ""
    shown = f" (of {len(labels)})" if drawn < len(labels) else ""
    choice = f" {chosen} of {steps} steps can be chosen." if chosen < steps else ""
    clock = "" if ranks["by_clock"][first] else " The ranks' clocks are apart, so each starts at its own step."
    every_row = f" Every row, for ui.perfetto.dev: `lumos-df export --corpus {corpus} --output step.json.gz`."
    more = every_row if path else f" For the critical path run: `lumos-df critical-path --corpus {corpus}`."
    return Section(
        f"{what}{typically}: {format_ns(longest)}" + (f" at the longest, on rank {labels[place]}" if drawn > 1 else ""),
        f"{format_count(drawn, 'rank')}{shown}; work shorter than {format_ns(ranks['bin_ns'][first])} is drawn "
        f"together.{choice}{clock}{more}",
        {"ranks": ranks, "slices": _named(slices, "name", "lane", "class")}
        | ({"path": _named(path, "name", "kind"), "kinds": PATH_KINDS} if path else {}),
    )


def _named(columns: Columns, *texts: str) -> dict[str, Any]:
    """Say each distinct text once: the columns hold numbers into `names`, and `plain` has each as one says it."""
    names: dict[str, int] = {}
    numbered = {text: [names.setdefault(value, len(names)) for value in columns[text]] for text in texts}
    return {**columns, **numbered, "names": list(names), "plain": list(map(plain, names))}
