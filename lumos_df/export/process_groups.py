"""The process groups of a job, as its ranks name them and as an execution trace numbers them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A process group of a job."""

    number: str
    """What it goes by in all files of the job: ASTRA-sim reads a number."""
    name: str
    """As recorded."""
    description: str | None
    backend: str | None
    size: int | None
    ranks: tuple[int, ...] | None
    """None where no trace lists them."""


def process_groups(connection: "duckdb.DuckDBPyConnection", job: list[str]) -> dict[tuple[str, str], ProcessGroup]:
    """Return the group that a name means in a trace, by (trace_id, name).

    A group keeps its name where every name of the job is a number that means the same ranks everywhere.
    """
    named = connection.execute(
        """
        SELECT trace_id, "group" AS name, any_value(description) AS description, any_value(backend) AS backend,
          max(size) AS size, any_value(ranks) AS ranks
        FROM (
          SELECT trace_id, "group", description, backend, size, ranks FROM process_groups
          UNION ALL
          SELECT trace_id, "group", NULL, NULL, group_size, NULL FROM operators WHERE "group" IS NOT NULL
        )
        WHERE trace_id IN (SELECT unnest($job))
        GROUP BY ALL
        ORDER BY ALL
        """,
        {"job": job},
    ).fetchall()
    lists: dict[str, set[tuple[int, ...]]] = {}
    for _, name, *_, listed in named:
        lists.setdefault(name, set()).update([tuple(listed)] if listed else [])
    numbered = all(name.isdecimal() and len(memberships) <= 1 for name, memberships in lists.items())
    by_members: dict[tuple[str, tuple[int, ...] | None], ProcessGroup] = {}
    by_name: dict[tuple[str, str], ProcessGroup] = {}
    for trace_id, name, description, backend, size, listed in named:
        # A trace that does not list the ranks means those that further traces list, where they agree.
        members = tuple(listed) if listed else next(iter(lists[name])) if len(lists[name]) == 1 else None
        number = name if numbered else str(len(by_members) + 1)
        group = ProcessGroup(number, name, description, backend, size, members)
        by_name[trace_id, name] = by_members.setdefault((name, members), group)
    return by_name
