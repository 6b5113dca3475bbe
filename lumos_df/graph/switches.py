"""Changes to a job that need no new plan: some work faster, slower or gone in the graph that simulates."""

import re
import warnings
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError, nearest
from lumos_df.graph.event_graph import EventGraph
from lumos_df.graph.host_work import host_work
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import inherited
from lumos_df.graph.sleep import awake
from lumos_df.graph.trace_graph import TraceGraph
from lumos_df.schema import FAMILIES, GPU_KINDS, KINDS
from lumos_df.schema.codes import NONE

Field = Literal["family", "name", "kind", "rank"]
_KINDS: Final = ("host", "gpu", *GPU_KINDS)
_SELECTOR: Final = re.compile(r"(family|kind|name|rank)([=~])(.+)")


@dataclass(frozen=True, slots=True)
class Selector:
    """Some operators of a job: `family=gemm`, `name~flash.*` (a regular expression), `kind=host`, `rank=2`."""

    field: Field
    value: str
    pattern: bool

    def __str__(self) -> str:
        """Return it as it is written."""
        return f"{self.field}{'~' if self.pattern else '='}{self.value}"

    def rows(self, graph: TraceGraph) -> NDArray[np.bool_]:
        """Return which rows of a trace are meant."""
        chosen: NDArray[np.bool_] = self._rows(graph.rows)
        return chosen

    def _rows(self, rows: Rows) -> Any:  # numpy's comparisons
        if self.field == "rank":
            return np.full(len(rows), rows.rank == int(self.value))
        if self.field == "family":
            return rows.on_gpu & (rows.family == FAMILIES.index(self.value))
        if self.field == "kind":
            if self.value in ("host", "gpu"):
                return rows.on_gpu if self.value == "gpu" else rows.thread >= 0
            return rows.on_gpu & (rows.kind == KINDS.index(self.value))
        return rows.named(_pattern(self.value).search if self.pattern else lambda name: name == self.value)


def _pattern(text: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        # What a later Python may read in another way, as `[[`, this one reads as it always did.
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(text)


def selector(text: str) -> Selector:
    """Read a selector. Raise `QueryError` for one that cannot mean anything."""
    parts = _SELECTOR.fullmatch(text)
    if not parts:
        raise QueryError(f"'{text}': write family=NAME, kind=NAME, name=NAME, name~PATTERN or rank=N")
    field, sign, value = parts.groups()
    if sign == "~" and field != "name":
        raise QueryError(f"'{text}': only names take a pattern; write {field}={value}")
    choices = {"family": list(FAMILIES), "kind": list(_KINDS)}.get(field, [])
    if choices and value not in choices:
        raise QueryError(f"'{text}': no {field} '{value}'{nearest(value, choices) or '; one of ' + ', '.join(choices)}")
    if field == "rank" and not re.fullmatch("[0-9]+", value):
        raise QueryError(f"'{text}': a rank is a number")
    if sign == "~":
        try:
            _pattern(value)
        except (re.error, OverflowError, RecursionError) as error:
            raise QueryError(f"'{text}': not a regular expression ({error})") from None
    return Selector(field, value, sign == "~")  # type: ignore[arg-type]  # the expression allows only the four


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of some operators."""

    selector: Selector
    factor: float
    """Their time is multiplied by this."""
    sleep_only: bool = False
    """Only long gaps of their threads in which nothing ran are taken away."""
    launched: bool = False
    """Whether the same becomes of what they launched."""


def scale(text: str) -> Change:
    """Read `SELECTOR:FACTOR`, as in `family=gemm:0.5`. Raise `QueryError` for anything else."""
    what, colon, factor = text.rpartition(":")
    try:
        value = float(factor)
    except ValueError:
        value = -1.0
    if not colon or not 0 <= value < 1e6:
        raise QueryError(f"'{text}': write SELECTOR:FACTOR with a factor of at least 0, as in family=gemm:0.5")
    return Change(selector(what), value)


def drop(text: str) -> Change:
    """Read a selector of what goes away, with all that it launched."""
    return Change(selector(text), 0.0, launched=True)


def no_wait(text: str) -> Change:
    """Read `rank=N`, the rank whose sleeping goes away. Raise `QueryError` for anything else."""
    if not text.startswith("rank="):
        raise QueryError(f"'{text}': write rank=N")
    return Change(selector(text), 0.0, sleep_only=True)


def meant(graphs: list[TraceGraph], changes: list[Change]) -> list[bool]:
    """Return which of the changes mean at least one operator."""
    return [any(change.selector.rows(graph).any() for graph in graphs) for change in changes]


def changed(event_graph: EventGraph, graphs: list[TraceGraph], changes: list[Change]) -> EventGraph:
    """Return an event graph with the changes made; the order of execution stays.

    Args:
        event_graph: that of a job.
        graphs: the graphs that it is of.
        changes: made one after another.
    """
    works = [host_work(graph) for graph in graphs]
    own, lag, instance = event_graph.own.copy(), event_graph.lag.copy(), event_graph.instance.copy()
    transfer = event_graph.transfer.copy()
    bounds = np.cumsum([0, *(len(graph.edges) for graph in graphs)])
    for change in changes:
        touched = np.zeros(len(transfer), np.bool_)
        for k, (graph, host) in enumerate(zip(graphs, works, strict=True)):
            rows = slice(int(event_graph.base[k]), int(event_graph.base[k + 1]))
            edges = slice(int(bounds[k]), int(bounds[k + 1]))
            selected = change.selector.rows(graph)
            if change.sleep_only:
                if selected.any():
                    lag[edges] = awake(graph, lag[edges], graphs)
                continue
            work = inherited(selected & ~graph.rows.on_gpu, graph.rows.parent)
            scaled = selected | (work if change.launched else work & ~graph.rows.on_gpu)
            # A kernel that goes away waits for nobody.
            stays = 0 if change.launched else np.minimum(event_graph.waited[rows], own[rows])
            own[rows] = np.where(scaled, multiplied(own[rows], change.factor, stays), own[rows])
            part = host.share(work, everything=change.selector.field in ("kind", "rank"))
            lag[edges] = np.where(lag[edges] > 0, multiplied(lag[edges], 1 - (1 - change.factor) * part), lag[edges])
            if change.launched:
                gone = scaled & graph.rows.on_gpu
                # What is not launched costs no latency and no gap, and no rank waits for it.
                lag[edges] = np.where(gone[graph.edges.dst], np.minimum(lag[edges], 0), lag[edges])
                instance[rows] = np.where(gone, NONE, instance[rows])
            else:
                collective = event_graph.instance[rows][scaled]
                touched[collective[collective >= 0]] = True
        # Once for all ranks: a collective is one transfer, whoever's kernels are meant.
        transfer[touched] = multiplied(transfer, change.factor, event_graph.unseen)[touched]
    return replace(
        event_graph,
        own=own,
        lag=lag,
        transfer=transfer,
        instance=instance,
        members=np.bincount(instance[instance >= 0], minlength=len(transfer)).astype(np.int32),
    )


def multiplied(
    values: NDArray[np.int64], factor: float | NDArray[np.float64], stays: NDArray[np.int64] | int = 0
) -> NDArray[np.int64]:
    """Return times multiplied by a factor of at least 0, but for the part of them that stays; whole ns."""
    return stays + np.round((values - stays) * factor).astype(np.int64)
