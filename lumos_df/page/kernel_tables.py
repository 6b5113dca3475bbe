"""What the GPUs run: views `kernel_summary` and `collective_summary`, the ranks of a job together."""

from typing import Final

import duckdb

from lumos_df.base.units import format_ns
from lumos_df.page.section import MAX_NAME, Columns, Section, by_job, with_plain

_TOP_KERNELS: Final = 60
_MAX_COLLECTIVES: Final = 200


def kernel_rows(connection: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Return each job's kernels, memcpys and memsets by name, those with the most time first."""
    return by_job(
        connection,
        f"""
        SELECT
          job,
          left(name, {MAX_NAME}) AS name,
          family,
          sum(calls)::BIGINT AS calls,
          try_cast(sum(total_ns) AS BIGINT) AS total_ns,
          try_cast(round(sum(total_ns) / sum(calls)) AS BIGINT) AS mean_ns,
          min(min_ns) AS min_ns,
          max(max_ns) AS max_ns,
          count(DISTINCT kernel_summary.trace_id) AS ranks,
          round(100 * sum(total_ns) / nullif(sum(sum(total_ns)) OVER (PARTITION BY job), 0), 2) AS gpu_pct
        FROM kernel_summary
        JOIN page_trace USING (trace_id, job)
        GROUP BY job, kernel_summary.name, family
        QUALIFY row_number() OVER (PARTITION BY job ORDER BY sum(total_ns) DESC, kernel_summary.name) <= {_TOP_KERNELS}
        ORDER BY job, total_ns DESC, kernel_summary.name
        """,
    )


def family_rows(connection: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Return each job's GPU time by family, longest first."""
    return by_job(
        connection,
        """
        SELECT
          job,
          family,
          sum(calls)::BIGINT AS calls,
          try_cast(sum(total_ns) AS BIGINT) AS total_ns,
          round(100 * sum(total_ns) / nullif(sum(sum(total_ns)) OVER (PARTITION BY job), 0), 2) AS gpu_pct
        FROM kernel_summary
        JOIN page_trace USING (trace_id, job)
        GROUP BY job, family
        ORDER BY job, total_ns DESC, family
        """,
    )


def kernels(shown: Columns | None, families: Columns | None) -> Section:
    """Return the section of the kernels."""
    if shown is None or families is None:
        return Section(
            "No kernel in these traces", "Record the GPU, too: `torch.profiler` with `ProfilerActivity.CUDA`."
        )
    gemm = next((pct for name, pct in zip(families["family"], families["gpu_pct"], strict=True) if name == "gemm"), 0)
    first, share = families["family"][0], families["gpu_pct"][0]
    products = f"; matrix products {gemm or 0:.0f}%" if first != "gemm" else ""
    name = {"gemm": "Matrix products"}.get(first, first.capitalize())
    return Section(
        f"{name} {'take' if first == 'gemm' else 'takes'} {share or 0:.0f}% of GPU time{products}",
        f"Durations of all ranks and steps added up, by name; the {len(shown['name'])} longest.",
        {"kernels": with_plain(shown, "name"), "families": families},
    )


def collective_rows(connection: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Return each job's collectives by kind, ranks, element type and size: bandwidths are spread over its ranks."""
    return by_job(
        connection,
        f"""
        SELECT
          job,
          collective,
          group_size,
          dtype,
          greatest(in_bytes, out_bytes) AS size_bytes,
          sum(calls)::BIGINT AS calls,
          try_cast(sum(total_ns) AS BIGINT) AS total_ns,
          try_cast(round(sum(total_ns) / sum(calls)) AS BIGINT) AS mean_ns,
          -- Nothing is said of a sum that lacks one.
          CASE WHEN count(waiting_ns) = count(*) THEN sum(waiting_ns)::BIGINT END AS waiting_ns,
          CASE WHEN count(transfer_ns) = count(*) THEN sum(transfer_ns)::BIGINT END AS transfer_ns,
          min(busbw_gbps) AS min_busbw_gbps,
          quantile_disc(busbw_gbps, 0.5) AS busbw_gbps,
          max(busbw_gbps) AS max_busbw_gbps
        FROM collective_summary
        JOIN page_trace USING (trace_id, job)
        WHERE total_ns IS NOT NULL -- as of recorders that keep no durations
        GROUP BY job, collective, group_size, dtype, size_bytes
        QUALIFY row_number() OVER (PARTITION BY job ORDER BY sum(total_ns) DESC) <= {_MAX_COLLECTIVES}
        ORDER BY job, total_ns DESC, collective, size_bytes
        """,
    )


def collectives(shown: Columns | None) -> Section:
    """Return the section of bandwidth against size."""
    if shown is None:
        return Section("No collective ran on a GPU", "Nothing in these traces is a kernel of NCCL or RCCL.")
    name, time, bandwidth = shown["collective"][0], shown["total_ns"][0], shown["busbw_gbps"][0]
    title = f"{name} takes the most, {format_ns(time)} over all ranks"
    note = (
        "Bus bandwidth of the transfer against message size: the median of the ranks, and from the lowest to the "
        "highest. Waiting for other ranks does not count."
    )
    if all(value is None for value in shown["busbw_gbps"]):
        missing = "sizes were not recorded" if any(shown["transfer_ns"]) else "how long they transferred is unknown"
        return Section(f"{title}; {missing}", note, {"collectives": shown})
    busbw = f", at {bandwidth:.3g} GB/s busbw" if bandwidth is not None else ""
    return Section(f"{title}{busbw}", note, {"collectives": shown})
