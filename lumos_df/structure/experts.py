"""Experts: the router that picks some for each token, and the grouped products of those that a rank has."""

from collections import Counter
from dataclasses import dataclass, replace
from math import comb
from typing import Final

from lumos_df.base.units import format_count
from lumos_df.structure.facts import Fact, unknown
from lumos_df.structure.shapes import Operation, Shape, most

_MATRICES: Final = 3
"""Axes of the matrices of several experts."""


@dataclass(frozen=True, slots=True)
class Routing:
    """How the tokens of a rank go to experts, in one layer."""

    experts: int
    """Of all ranks."""
    tokens: int
    """Of this rank."""
    choices: int
    """Forward operators that choose among the experts."""
    top_k: int | None
    """Experts of a token; None where nothing tells."""
    local_experts: int | None
    """Those that this rank has; None where no grouped product has recorded shapes."""
    rows: int | None
    """Rows that their products have together: a token once for each expert, and what is left free."""
    weights: frozenset[Shape] = frozenset()
    """Sizes of an expert's matrices."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return how many rows a tensor has that holds tokens on their way: those of the rank, or of its experts."""
        return tuple(size for size in (self.tokens, self.rows) if size)

    def changed(self, *, experts: float, ep: float, top_k: float, tokens: float, capacity: float) -> "Routing":
        """Return it after a change; each number says by how much something grows."""
        of_rank = tokens * top_k * capacity
        return replace(
            self,
            experts=round(self.experts * experts),
            tokens=round(self.tokens * tokens),
            top_k=self.top_k and round(self.top_k * top_k),
            local_experts=self.local_experts and max(1, round(self.local_experts * experts / ep)),
            rows=self.rows and max(1, round(self.rows * of_rank)),
        )


def routing(operations: list[Operation]) -> Routing | None:
    """Return how forward operators send tokens to experts, None where none does."""
    grouped = [
        operation for operation in operations if operation.is_grouped() and len(operation.operands[1]) == _MATRICES
    ]
    local = most(Counter({operation.groups: operation.count for operation in grouped}))
    widths = {operation.product[2] for operation in operations if operation.is_product() and operation.inside}
    chosen: Counter[Shape] = Counter()
    for operation in operations:
        shape = operation.tensor
        if operation.is_choice() and operation.inside and shape and shape[1] in widths and not shape[1] % (local or 1):
            chosen[shape] += operation.count
    if not chosen:
        return None
    tokens, experts = max(chosen, key=lambda shape: (chosen[shape], -shape[1]))
    rows = most(Counter({operation.operands[0][0]: operation.count for operation in grouped}))
    return Routing(
        experts,
        tokens,
        chosen[tokens, experts],
        _top_k(operations, tokens, experts) or (rows // tokens if rows and rows % tokens == 0 else None),
        local,
        rows,
        frozenset(operation.operands[1][1:] for operation in grouped),
    )


def _top_k(operations: list[Operation], tokens: int, experts: int) -> int | None:
    """Return how many experts operators take of each token: they read its scores and the numbers of some."""
    taken: Counter[int] = Counter()
    for operation in operations:
        matrices = {shape for shape in operation.shapes if shape and len(shape) == 2 and shape[0] == tokens}
        others = [shape[1] for shape in matrices if shape[1] < experts]
        if (tokens, experts) in matrices and len(others) == 1:
            taken[others[0]] += operation.count
    return most(taken)


def facts(known: Routing | None) -> dict[str, Fact]:
    """Return what is said of experts: `experts`, `top_k`, `expert_tokens`; nothing of a model without."""
    if known is None:
        return {}
    choosing = format_count(known.choices, "forward operator")
    how = f"{choosing} of shape ({known.tokens}, {known.experts}) choose among them"
    if known.local_experts:
        how += f"; a grouped product of {known.local_experts} on this rank"
    silent = unknown("no operator reads both the scores of tokens and the numbers of their experts")
    untold = unknown("no grouped product has recorded shapes")
    return {
        "experts": Fact(known.experts, "shape", how),
        "top_k": silent if known.top_k is None else Fact(known.top_k, "shape", "experts that are taken of each token"),
        "expert_tokens": (
            untold
            if known.rows is None
            else Fact(known.rows, "shape", f"rows of the grouped products, for {known.tokens} tokens")
        ),
    }


def ffn_of_experts(operations: list[Operation], hidden: int) -> Fact | None:
    """Return the FFN of the experts that grouped products lead back to the hidden size from, None without any."""
    grouped = [operation for operation in operations if operation.is_grouped() and operation.product[2] == hidden]
    how = "the inner size of the experts' last grouped product"
    return Fact(grouped[-1].product[1], "shape", how) if grouped else None


def distinct(experts: int, places: int, top_k: int) -> float:
    """Return at how many places a token's experts are, on average, if all choices are equally likely.

    Args:
        experts: of a layer.
        places: nodes or ranks that have as many of them each.
        top_k: different experts of a token.
    """
    elsewhere = experts - experts // places
    return places * (1 - comb(elsewhere, top_k) / comb(experts, top_k))
