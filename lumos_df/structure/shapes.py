"""What the recorded shapes of forward operators say: matrix products, attention, lookups, convolutions."""

import json
import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.packed_keys import packed
from lumos_df.schema.codes import CPU_OP, FORWARD
from lumos_df.structure.labelled_rows import Trace

Shape = tuple[int, ...]

PRODUCT: Final = re.compile(r"aten::(?:mm|addmm|_addmm_activation|_scaled_mm|_int_mm)$")
BATCHED: Final = re.compile(r"aten::(?:bmm|baddbmm)$")
GROUPED: Final = re.compile(r"(?i).*(?:group(?:ed)?_?(?:mm|gemm)|grouped_?experts)")
_CHOICE: Final = re.compile(r"aten::topk$")
ATTENDS: Final = re.compile(r"(?i)attention|attn|sdpa")
_NORM: Final = re.compile(r"(?i)(?:layer|rms)_?norm")
_LOOKUP: Final = re.compile(r"aten::(?:embedding|index_select|index)$")
_CONVOLUTION: Final = re.compile(
    r"aten::(?:convolution|_convolution|cudnn_convolution|miopen_convolution|mkldnn_convolution)$"
)
_SCORE: Final = re.compile(r"aten::_?log_softmax$")
_ADDS: Final = re.compile(r"aten::add_?$")
_STATE: Final = {
    "aten::mkldnn_rnn_layer": 5,
    "aten::_cudnn_rnn": 4,
    "aten::miopen_rnn": 3,
    **dict.fromkeys(("aten::gru", "aten::rnn_tanh", "aten::rnn_relu"), 1),
}
"""Which input of a recurrent operator is its first state, (batch, width) or (layers, batch, width): PyTorch's
native_functions.yaml."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Forward operators of one name and input shapes."""

    name: str
    shapes: tuple[Shape | None, ...]
    """Of each input; None where it is no tensor, and of a list of tensors."""
    types: tuple[str, ...]
    count: int
    first: int
    """op_id of the first one."""
    inside: bool
    """Whether it is part of the layers, where layers are known."""

    def is_product(self) -> bool:
        """Whether it multiplies two matrices."""
        return bool(PRODUCT.match(self.name)) and len(self._matrices(2)) >= 2

    def is_batched(self) -> bool:
        """Whether it multiplies a batch of matrices."""
        return bool(BATCHED.match(self.name)) and len(self._matrices(3)) >= 2

    def is_grouped(self) -> bool:
        """Whether it multiplies groups of rows by a matrix each, those of experts."""
        return bool(GROUPED.match(self.name)) and self._rows_of_groups() is not None

    def multiplies(self) -> bool:
        """Whether it multiplies matrices, one, a batch or groups of them."""
        return self.is_product() or self.is_batched() or self.is_grouped()

    def is_choice(self) -> bool:
        """Whether it takes the largest of every row."""
        return bool(_CHOICE.match(self.name)) and self.tensor is not None and len(self.tensor) == 2

    def is_attention(self) -> bool:
        """Whether it is fused attention, of (batch, heads, sequence, width) or (batch, sequence, heads, width)."""
        return bool(ATTENDS.search(self.name)) and len(self._matrices(4)) >= 3

    def is_norm(self) -> bool:
        """Whether it normalizes activations."""
        return bool(_NORM.search(self.name)) and self.tensor is not None

    def is_lookup(self) -> bool:
        """Whether it takes rows of a table."""
        return bool(_LOOKUP.match(self.name)) and self.tensor is not None and len(self.tensor) == 2

    def is_convolution(self) -> bool:
        """Whether it convolves."""
        return bool(_CONVOLUTION.match(self.name)) and self.tensor is not None

    def is_score(self) -> bool:
        """Whether it turns scores of classes into logarithms of probabilities."""
        return bool(_SCORE.match(self.name)) and self.tensor is not None

    def is_sum_of_maps(self) -> bool:
        """Whether it adds two tensors of (batch, channels, height, width), element by element."""
        return bool(_ADDS.match(self.name)) and len(self._matrices(4)) > 1 and len(set(self._matrices(4))) == 1

    def joins(self) -> bool:
        """Whether it adds two activations of one shape, such as what goes around a layer and what comes out of it."""
        alike = [shape for shape in self.shapes if shape is not None]
        return bool(_ADDS.match(self.name)) and len(alike) > 1 and alike[0] == alike[1] and len(alike[0]) > 1

    @property
    def state(self) -> tuple[int, int] | None:
        """Return sequences and width of a recurrent layer's state; None of another operator."""
        place = _STATE.get(self.name, len(self.shapes))
        state = self.shapes[place] if place < len(self.shapes) else None
        return (state[-2], state[-1]) if state and len(state) > 1 else None

    @property
    def gates(self) -> int | None:
        """Return the rows of a recurrent layer's matrices: its width for each gate; None of another operator."""
        matrices = self._matrices(2)
        return matrices[0][0] if self.state and matrices else None

    @property
    def tensor(self) -> Shape | None:
        """Shape of the first input."""
        return self.shapes[0] if self.shapes else None

    @property
    def weight(self) -> Shape:
        """Shape of a convolution's weight: channels out, channels in of a group, and the kernel's sides."""
        return next((shape for shape in self.shapes[1:] if shape is not None and len(shape) > 2), ())

    @property
    def product(self) -> tuple[int, int, int]:
        """Return (m, k, n) of a matrix product, those of each matrix in a batched or grouped one."""
        if self.is_grouped():
            rows, weights = self.operands
            if len(weights) == 2:
                return rows[0], max(1, rows[1] // self.groups), weights[1]
            return max(1, rows[0] // weights[0]), rows[1], weights[2 if rows[1] == weights[1] else 1]
        left, right = self._matrices(2 if self.is_product() else 3)[-2:]
        return left[-2], left[-1], right[-1]

    @property
    def groups(self) -> int:
        """Return how many matrices a grouped product has, or makes: experts of this rank."""
        weights = self.operands[1]
        ends = self._matrices(1)
        # Gradients of matrices are not recorded, but where the rows of each group end.
        return weights[0] if len(weights) == 3 else ends[0][0] if ends else 1

    @property
    def operands(self) -> list[Shape]:
        """The tensors that attention or a batched or grouped product reads."""
        if GROUPED.match(self.name) and (grouped := self._rows_of_groups()):
            return list(grouped)
        return self._matrices(4) if self.is_attention() else self._matrices(3)[-2:]

    def _rows_of_groups(self) -> tuple[Shape, Shape] | None:
        """Return the rows of all groups together, and the matrices, one a group, or the rows of another tensor."""
        pairs = [
            (rows, weights)
            for rows in self._matrices(2)
            for weights in self._matrices(3)
            if rows[1] in weights[1:] and rows[0] >= weights[0]
        ]
        matrices = self._matrices(2)
        # Gradients of the matrices: the rows of each group by those of the other tensor.
        pairs += [(left, right) for left, right in pairwise(matrices) if left[1] == right[0] and not self._matrices(3)]
        return pairs[0] if pairs else None

    def _matrices(self, rank: int) -> list[Shape]:
        return [shape for shape in self.shapes if shape is not None and len(shape) == rank]


def operations(trace: Trace, phase: NDArray[np.int8], layer: NDArray[np.int32]) -> list[Operation]:
    """Return the forward operators with shapes, one for each name and shapes, by first appearance.

    One that only calls itself with the same shapes casts its inputs, as autocast does, and is left out.

    Args:
        trace: the trace.
        phase: phase of every operator [n].
        layer: its layer, NONE outside [n].
    """
    rows = trace.rows
    row = np.flatnonzero((rows.kind == CPU_OP) & (phase == FORWARD) & (trace.dims.code >= 0))
    if not len(row):
        return []
    called = row[rows.parent[row] >= 0]
    caller = rows.parent[called]
    itself = (rows.name[caller] == rows.name[called]) & (trace.dims.code[caller] == trace.dims.code[called])
    row = np.setdiff1d(row, caller[itself])
    key = packed(rows.name[row], trace.dims.code[row])
    _, first, inverse, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    inside = np.bincount(inverse, layer[row] >= 0) * 2 > count
    known = bool((layer >= 0).any())
    distinct = []
    for number in np.argsort(first).tolist():
        example = int(row[first[number]])
        types = json.loads(trace.types.words[trace.types.code[example]]) if trace.types.code[example] >= 0 else []
        distinct.append(
            Operation(
                rows.names[rows.name[example]],
                tuple(_shape(shape) for shape in json.loads(trace.dims.words[trace.dims.code[example]])),
                tuple(kind if isinstance(kind, str) else "" for kind in types),
                int(count[number]),
                example,
                bool(inside[number]) if known else True,
            )
        )
    return distinct


def _shape(value: object) -> Shape | None:
    if not isinstance(value, list) or not value or not all(type(size) is int and size >= 0 for size in value):
        return None
    return tuple(value)


def most(values: Counter[int]) -> int | None:
    """Return the commonest value; of several the largest."""
    return max(values, key=lambda value: (values[value], value)) if values else None
