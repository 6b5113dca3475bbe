"""Dense gradients of embeddings of which few rows were read: what if they had these rows alone."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob, ChangedGraph
from lumos_df.advice.hooked_collectives import HookedCollectives, gradient_reductions
from lumos_df.advice.less_work import less_work
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import NODE, PRODUCT
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.rows import Rows
from lumos_df.graph.simulate.forward import inherited
from lumos_df.schema.codes import MEMSET, NONE
from lumos_df.schema.words import GRADIENT, OPTIMIZER_STEP

_DENSE: Final = ("aten::embedding_dense_backward", "aten::_embedding_bag_dense_backward")
_SPARSE_TRAFFIC: Final = 5
"""So many times as often as a fused AdamW, which reads four tensors and writes three, does torch.optim.SparseAdam go
through a row that it updates: some 35 reads and writes by its operators, with those that add up the same rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    """k gradients of tables, each of one step of a rank."""

    dense: NDArray[np.int64]
    """Rows of the operators that make them [k]."""
    node: NDArray[np.int64]
    """Nodes of the backward pass that take them [k]."""
    elements: NDArray[np.int64]
    """Of each [k]."""
    read: NDArray[np.int64]
    """Elements of the rows that samples of all ranks read, each as often as it is [k]."""
    of_all: NDArray[np.float64]
    """By how much less the optimizer goes through it, as a share of the elements of all gradients of the step [k]."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose sparse gradients, of which nothing is cleared, and as much less is reduced and updated."""
    if not any(name in rows.names for rows in advised.ranks for name in _DENSE):
        return
    shapes = [advised.texts(place, "input_dims") for place in range(len(advised.ranks))]
    # Another stage of a pipeline may have the product that shares a table.
    multiplied = set().union(*(_multiplied(rows, *of) for rows, of in zip(advised.ranks, shapes, strict=True)))
    found = [_tables(rows, *of, multiplied) for rows, of in zip(advised.ranks, shapes, strict=True)]
    count = sum(len(tables.dense) for tables in found)
    if not count or any(rows.of_collective(("reduce_scatter",)).any() for rows in advised.ranks):
        return
    less = less_work(advised, [_parts(rows, tables) for rows, tables in zip(advised.ranks, found, strict=True)])
    reductions = gradient_reductions(advised)
    share = _spared(advised, reductions, found)

    def apply(changed: ChangedGraph) -> None:
        less.apply(changed)
        reductions.add(changed, -np.round(reductions.left(changed) * share).astype(np.int64))

    elements = max(int(tables.elements.max(initial=0)) for tables in found)
    read = max(float((tables.read / tables.elements).max(initial=0)) for tables in found)
    yield Remedy(
        rule="dense_embedding_gradient",
        what=f"gradients of whole embeddings, of {elements:,} elements of which all samples read {read:.1%} or less, "
        f"take {format_ns(_gone_ns(advised, apply))} of the GPU a step: sparse=True of torch.nn.Embedding, SparseAdam",
        known=Known.MODELLED,
        rests_on=format_count(count, "gradient"),
        apply=apply,
    )


def _gone_ns(advised: AdvisedJob, apply: Callable[[ChangedGraph], None]) -> int:
    """Return by how much GPU rows are shorter in a changed job, ns a step: collectives by their transfer."""
    graph = advised.event_graph
    changed = ChangedGraph.of(graph)
    apply(changed)
    transfer = np.append(graph.transfer - changed.transfer, 0)[graph.instance]
    less = np.where(graph.instance == NONE, graph.own - changed.own, transfer)
    on_gpu = np.concatenate([rows.on_gpu for rows in advised.ranks]) & advised.simulated
    return round(int(less[on_gpu].sum()) / len(advised.steps_ns))


def _multiplied(rows: Rows, code: NDArray[np.int32], words: list[str]) -> set[tuple[int, ...]]:
    """Return the sizes of what a rank multiplies in its steps; `code`, `words`: as `_tables` takes them."""
    product = code[(rows.step >= 0) & (code >= 0) & rows.named(PRODUCT.match)]
    return {shape for at in np.unique(product).tolist() for shape in _shapes(json.loads(words[at]))}


def _tables(rows: Rows, code: NDArray[np.int32], words: list[str], multiplied: set[tuple[int, ...]]) -> _Tables:
    """Return the gradients of tables of a rank.

    Args:
        rows: the rows of the rank.
        code: number of the sizes of the inputs of each row, NONE where they were not recorded [n].
        words: these sizes, as recorded.
        multiplied: sizes of what any rank multiplies.
    """
    dense, given = (
        np.flatnonzero((rows.step >= 0) & (code >= 0) & rows.named(says))
        for says in (lambda text: text in _DENSE, lambda text: text == GRADIENT)
    )
    if not len(given):
        dense = given
    ranks = int(rows.group_size[rows.on_gpu & rows.of_collective(("all_reduce",))].max(initial=1))
    given = given[np.argsort(rows.ts[given], kind="stable")]
    taken = np.append(given, given[-1:])[np.searchsorted(rows.ts[given], rows.ts[dense])]
    shapes = [_shapes(json.loads(word)) for word in words]
    sizes = np.array([*(prod(of[0]) if of else 0 for of in shapes), 0], np.int64)[code]
    # A bag has one gradient for all the rows that it read: behind it come their numbers.
    sizes[dense] = np.array([*(prod(of[1]) * of[0][-1] if len(of) > 1 else 0 for of in shapes), 0])[code[dense]]
    # A table that products share gets a dense gradient from these, unless each has one of that shape for itself.
    alone = [
        len(shapes[table]) == 1
        and shapes[table][0][-1:] == shapes[made][0][-1:]
        and (
            multiplied.isdisjoint((shapes[table][0], shapes[table][0][::-1]))
            or int(np.count_nonzero(code[given] == table)) > int(np.count_nonzero(code[taken] == table))
        )
        for made, table in zip(code[dense].tolist(), code[taken].tolist(), strict=True)
    ]
    few = np.array(alone, np.bool_) & (_SPARSE_TRAFFIC * ranks * sizes[dense] < sizes[taken])
    dense, taken = dense[few], taken[few]
    read = ranks * sizes[dense]
    of_step = np.bincount(rows.step[given], sizes[given], int(rows.step.max(initial=0)) + 1)
    return _Tables(
        dense=dense,
        node=rows.nearest(rows.named(lambda text: text.startswith(NODE)), taken.astype(np.int32)),
        elements=sizes[taken],
        read=read,
        of_all=(sizes[taken] - _SPARSE_TRAFFIC * read) / of_step[rows.step[dense]],
    )


def _shapes(dims: Any) -> list[tuple[int, ...]]:
    """Return the sizes of the tensors among some inputs."""
    return [tuple(each) for each in dims if isinstance(each, list) and each and isinstance(each[0], int)]


def _parts(rows: Rows, tables: _Tables) -> NDArray[np.float64]:
    """Return by what the time of each row of a rank is multiplied: nothing is cleared, less taken and updated [n]."""
    numbers = np.arange(len(rows), dtype=np.int32)
    made, of_node = np.zeros(len(rows), np.bool_), np.ones(len(rows) + 1)
    made[tables.dense] = True
    of_node[tables.node] = tables.read / tables.elements
    held = np.zeros(len(rows), np.bool_)
    held[tables.node] = True
    part = np.where(rows.on_gpu, of_node[rows.nearest(held, numbers)], 1)
    part[inherited(made, rows.parent) & (rows.kind == MEMSET)] = 0
    updates = inherited(rows.named(lambda text: text.startswith(OPTIMIZER_STEP)), rows.parent) & rows.on_gpu
    less = np.bincount(rows.step[tables.dense] + 1, tables.of_all, int(rows.step.max(initial=NONE)) + 2)
    return np.where(updates, part * (1 - less[rows.step + 1]), part)


def _spared(advised: AdvisedJob, reductions: HookedCollectives, found: list[_Tables]) -> NDArray[np.float64]:
    """Return the share of each reduction that goes [c]: what grows with its bytes, but for the rows of all ranks.

    A table is in the first one that is called once its gradient is there. All ranks get the rows of all, which takes as
    long as to reduce half as many.
    """
    share = np.zeros(len(reductions))
    grows = 1 - np.nan_to_num(reductions.latency) / np.maximum(reductions.transfer, 1)
    for rows, tables, base in zip(advised.ranks, found, advised.event_graph.base[:-1].tolist(), strict=True):
        mine = np.flatnonzero((reductions.member >= base) & (reductions.member < base + len(rows)))
        kernel = reductions.member[mine] - base
        called = rows.ts[rows.parent[kernel]]
        order = np.argsort(called)
        at = np.searchsorted(called[order], rows.ts[tables.node])
        held = at < len(order)
        of_table = reductions.of_member[mine[order[at[held]]]]
        less = (tables.elements - tables.read / 2)[held] * reductions.element[of_table]
        share[of_table] = np.minimum(less / reductions.moved[of_table], 1) * grows[of_table]
    return share
