"""How the time of one kind of kernel changes with the shapes of its operator, the type and the GPU.

By the cost functions of `model`: of products and attention those of their own, of other kernels that of moving tensors.
"""

import json
import re
from dataclasses import dataclass, replace
from math import ceil, gcd, log2, prod
from typing import Final

from lumos_df.model.kernels.attention import QUERIES, attention_seconds
from lumos_df.model.kernels.gemm import gemm_seconds, misaligned
from lumos_df.schema import FAMILIES
from lumos_df.schema.dtypes import element_type
from lumos_df.structure.axes import Axes
from lumos_df.structure.axis_labels import Labels, holds_input
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.operator_kinds import tensors
from lumos_df.structure.picked_rows import takes_from_table
from lumos_df.structure.shapes import Operation, Shape
from lumos_df.whatif.durations.symbols import Symbols
from lumos_df.whatif.job.recorded_gpu import Machine

GEMM, ATTENTION, SOFTMAX, NORM, REDUCTION = (
    FAMILIES.index(name) for name in ("gemm", "attention", "softmax", "normalization", "reduction")
)
ELEMENTWISE: Final = FAMILIES.index("elementwise")
BESIDE_ATTENTION: Final = re.compile(
    r"(?i)dot_?do_?o|do_o_dot|ograd_?doto|convert_?(?:dq|dkv|qgrad)|clear_dkvaccum|(?:pre|post)process|combine"
)
"""Kernels of fused attention that multiply nothing: sums of output times its gradient, conversions, sums of parts."""
_CONVOLVES: Final = re.compile(r"aten::\w*conv(?:olution|\d?d)?\w*$")
_HOLDS_RESULT: Final = re.compile(r"aten::(?:copy|fill|zero)_$")
"""Operators whose result is one of their inputs and is not read."""
_OF_A_THREAD: Final = 8
"""Threshold, elements. A thread that has more goes through them in a loop. Evidence: PyTorch's kernels without a loop
give a thread 1 to 8; of more in it, as in its batch norms and reductions, the number of blocks grows by less than the
elements or not at all. Batches of 13 changes of six nets on an H200 are 6.2 % off with 8, 5.5 with 4, 7.8 with 16 and
13 without; the GPU in the batch sweep 4.9, 7.4, 4.6 and 4.6."""
_NORM_WIDTH: Final = 512
"""Elements of a row that one pass of a normalization's block takes: 128 threads of 4."""
_SOFTMAX_WIDTH: Final = 1024
"""Elements of a row up to which PyTorch's softmax works on the next power of two."""


def element_bytes(inputs: list[object], types: list[object]) -> tuple[float, ...]:
    """Return the bytes of an element of each tensor in an operator's inputs, nothing where any is of unknown type."""
    each: list[float] = []
    for entry, name in zip(inputs, types, strict=False):
        if isinstance(entry, list) and entry:
            kind = element_type(str(name))
            if kind is None:
                return ()
            each.append(float(kind.bytes))
    return tuple(each) if len(each) == len(tensors(inputs)) else ()


def operation_of(trace: Trace, operator: int) -> Operation:
    """Return what one operator with shapes does."""
    inputs = json.loads(trace.dims.words[trace.dims.code[operator]])
    shapes = tuple(tuple(entry) if entry and all(type(size) is int for size in entry) else None for entry in inputs)
    return Operation(trace.rows.names[trace.rows.name[operator]], shapes, (), 1, operator, inside=True)


@dataclass(frozen=True, slots=True)
class KernelKind:
    """One kind of kernel launched by one kind of operator."""

    family: int
    """Its place in FAMILIES; a kernel of attention that moves tensors alone is element-wise."""
    operation: Operation | None
    numel: tuple[Shape, ...]
    """All tensors of the operator, those in lists as well."""
    widths: tuple[float, ...]
    """Bytes of an element of each; nothing where their types were not recorded."""
    labels: tuple[Labels, ...]
    """What is known of their axes; nothing where empty."""
    blocks: float
    """Blocks over those that the GPU runs at once, for a GPU with one multiprocessor."""
    threads: float
    """Of all kernels of its name that its operator launches: they share its elements."""
    wide: int
    """What its widths are, a kind of `widths`."""
    backward: bool
    context: float = 1.0
    """How many times as long its keys are as their tensor: those of all context-parallel ranks."""

    @classmethod
    def of(
        cls,
        trace: Trace,
        axes: Axes,
        row: int,
        operator: int,
        *,
        blocks: float,
        threads: float,
        wide: int,
        backward: bool,
    ) -> "KernelKind":
        """Return the kind of a kernel's row below an operator's, NONE for none; the rest as the fields say."""
        rows = trace.rows
        shapes: tuple[Shape, ...] = ()
        element: tuple[float, ...] = ()
        operation = None
        if operator >= 0:
            inputs = json.loads(trace.dims.words[trace.dims.code[operator]])
            shapes = tuple(tensors(inputs))
            operation = operation_of(trace, operator)
            known = int(trace.types.code[operator])
            element = element_bytes(inputs, json.loads(trace.types.words[known])) if known >= 0 else ()
        labels = axes.labels(operator)
        family = int(rows.family[row])
        if family == ATTENTION and BESIDE_ATTENTION.search(rows.names[rows.name[row]]):
            family = ELEMENTWISE
        return cls(family, operation, shapes, element, labels, blocks, threads, wide, backward)

    def kind(self) -> tuple[object, ...]:
        """Return what names it in any trace of the model."""
        name = self.operation.name if self.operation else ""
        return name, self.family, tuple(len(shape) for shape in self.numel), self.backward

    def convolves(self) -> bool:
        """Return whether its operator is a convolution or the backward of one."""
        return self.operation is not None and _CONVOLVES.match(self.operation.name) is not None

    def seconds(self, machine: Machine) -> float:
        """Return the part of its time that grows with work, s; nan where nothing tells the work."""
        operation = self.operation
        if operation is None or not self.numel or takes_from_table(operation.name, self.labels):
            return float("nan")
        if self.family == GEMM and operation.multiplies():
            return _product_seconds(operation.product, _products(operation), machine, over_rows=self._over_rows())
        if self.family == ATTENTION and operation.is_attention():
            return _attention(operation, machine, self.context, backward=self.backward)
        return self._memory(machine)

    def changed(self, symbols: Symbols, old: Machine, new: Machine) -> float:
        """Return the same for the changed job."""
        operation = self.operation
        if operation is None or not self.numel or takes_from_table(operation.name, self.labels):
            return float("nan")
        shapes = symbols.operands(operation.shapes, self.wide, self.labels)
        if operation.is_grouped():
            shapes = symbols.groups(operation.shapes, shapes)
        after = replace(
            self,
            operation=replace(operation, shapes=shapes),
            numel=self._resized(symbols),
            context=self.context * symbols.context,
        )
        if self.family in (GEMM, ATTENTION) and (operation.multiplies() or operation.is_attention()):
            return after.seconds(new)
        ratio = after._units() / max(self._units(), 1.0)  # noqa: SLF001 - of the same class
        rate = old.memory_rate / new.memory_rate * new.element_bytes / old.element_bytes
        return self._memory(old) * ratio * rate

    def flop(self) -> float:
        """Return the floating-point operations of a product, or the fewest of attention; 0 of other kernels."""
        operation = self.operation
        if operation is None or not self.numel:
            return 0.0
        if self.family == GEMM and operation.multiplies():
            return 2.0 * _products(operation) * prod(operation.product)
        if self.family == ATTENTION and operation.is_attention():
            query, key = operation.operands[:2]
            # Both products, of which a causal mask leaves half.
            return 2.0 * prod(query) * sorted(key[1:3])[1]
        return 0.0

    def operations(self, symbols: Symbols) -> float:
        """Return by how much its operations grow; nan where nothing tells them."""
        operation = self.operation
        if operation is None or not self.numel:
            return float("nan")
        after = replace(operation, shapes=symbols.operands(operation.shapes, self.wide, self.labels))
        if self.family == GEMM and operation.is_grouped():
            after = replace(operation, shapes=symbols.groups(operation.shapes, after.shapes))
            whole = operation.groups * prod(operation.product)
            return after.groups * prod(after.product) / max(whole, 1)
        if self.family == GEMM and operation.multiplies():
            batches = after.operands[0][0] / max(operation.operands[0][0], 1) if operation.is_batched() else 1.0
            return batches * prod(after.product) / max(prod(operation.product), 1)
        if self.family == ATTENTION and operation.is_attention():
            was, now = operation.operands[0], after.operands[0]
            return symbols.context * prod(now) * sorted(now[1:3])[1] / max(prod(was) * sorted(was[1:3])[1], 1)
        return replace(self, numel=self._resized(symbols))._units() / max(self._units(), 1.0)  # noqa: SLF001 - of the same class

    def _resized(self, symbols: Symbols) -> tuple[Shape, ...]:
        labels = self.labels or ((),) * len(self.numel)
        return tuple(map(symbols.rescaled, self.numel, (self.wide,) * len(labels), labels))

    def waves(self, machine: Machine) -> float:
        """Return how many waves of blocks it runs in; nan for products and attention, and where nothing tells.

        A block that loops over its elements runs as many as it would without: of as many blocks as have so few.
        """
        operation = self.operation
        multiplies = operation is not None and (operation.multiplies() or operation.is_attention())
        if not self.blocks or not self.numel or (self.family in (GEMM, ATTENTION) and multiplies):
            return float("nan")
        if operation is not None and takes_from_table(operation.name, self.labels):
            return float("nan")
        elements = max(map(prod, self.numel)) / max(self.threads, 1.0)
        return self.blocks / machine.sms * max(elements / _OF_A_THREAD, 1.0)

    def _over_rows(self) -> bool:
        """Whether a product runs over rows of activations, as the gradient of parameters does."""
        operation = self.operation
        if operation is None or not operation.is_product() or not self.labels or not self.labels[-1]:
            return False
        return holds_input(self.labels[-1][0])

    def moved(self, machine: Machine) -> float:
        """Return the time of moving its tensors and its result, s; nan for products and attention.

        The result is as large as the largest tensor. What copies or fills has it among its inputs, and what reduces has
        a small one. A softmax goes over long rows once for the largest element, once for the sum and once for the
        result, its backward pass once less.
        """
        operation = self.operation
        if operation is None or not self.numel or takes_from_table(operation.name, self.labels):
            return float("nan")
        if self.family in (GEMM, ATTENTION) and (operation.multiplies() or operation.is_attention()):
            return float("nan")
        largest = max(self.numel, key=prod)
        if _HOLDS_RESULT.match(operation.name) or self.family == REDUCTION:
            return self._memory(machine)
        result = replace(self, numel=(largest,), widths=(max(self.widths),) if self.widths else ())
        passes = 1
        if self.family == SOFTMAX and largest[-1:] > (_SOFTMAX_WIDTH,):
            passes = 2 if self.backward else 3
        return passes * self._memory(machine) + result._memory(machine)  # noqa: SLF001 - of the same class

    def _memory(self, machine: Machine) -> float:
        """Return the time of moving its tensors, s."""
        each = self.widths or (machine.element_bytes,) * len(self.numel)
        return sum(prod(shape) * width for shape, width in zip(self.numel, each, strict=True)) / machine.memory_rate

    def _elements(self) -> float:
        return float(sum(prod(shape) for shape in self.numel))

    def _units(self) -> float:
        """Return the work in units that keep their time: rows of a width, as the library pads it, or elements."""
        largest = max(self.numel, key=prod)
        width = max(largest[-1], 1)
        if self.family == SOFTMAX:
            return prod(largest) / width * (2 ** ceil(log2(width)) if width <= _SOFTMAX_WIDTH else width)
        if self.family == NORM and self.operation is not None and self.operation.is_norm():
            return prod(largest) / width * ceil(width / _NORM_WIDTH)
        return self._elements()


def _products(operation: Operation) -> int:
    """Return how many matrices a product makes."""
    if operation.is_grouped():
        return operation.groups
    return operation.operands[0][0] if operation.is_batched() else 1


def _product_seconds(size: tuple[int, int, int], batch: int, machine: Machine, *, over_rows: bool) -> float:
    """Return the part of a product's time that grows with work, s; `over_rows`: no row in memory is as long as k."""
    m, k, n = size
    row = machine.row
    seconds = float(
        gemm_seconds(
            max(m, 1),
            max(n, 1),
            max(k, 1),
            max(batch, 1),
            float(machine.element_bytes),
            row["peak_flops"][machine.precision],
            row["hbm_bandwidth"],
            row["sms"],
            row["gemm"][machine.precision],
        )
    )
    grown = max(seconds - float(row["gemm"][machine.precision][0]), 1e-9)
    if machine.element_bytes == 2 and min(m, n) > 1:
        longer = float(misaligned(gcd(m if over_rows else k, n), float(machine.element_bytes)))
        # Hopper's tensor memory accelerator copies no such rows, so its library runs kernels of the GPUs before it.
        grown *= longer * max(float(row["flash2_factor"]), 1.0) if longer > 1 else 1.0
    return grown


def _attention(operation: Operation, machine: Machine, context: float, *, backward: bool) -> float:
    """Return the time of attention; of a shared sequence each rank takes parts of both ends: half the keys."""
    row = machine.row
    query, key = operation.operands[:2]
    # (batch, heads, sequence, width), or the middle two the other way round: the sequence is the longer.
    heads, seq = sorted(query[1:3])
    kv_heads, keys = sorted(key[1:3])
    return float(
        attention_seconds(
            query[0],
            seq,
            keys if context == 1 else 0.5 * (context * keys + QUERIES),
            heads,
            kv_heads,
            query[3],
            context == 1,
            backward,
            float(machine.element_bytes),
            row["peak_flops"][machine.precision],
            row["hbm_bandwidth"],
            row["sms"],
            row["attention"][machine.precision],
        )
        - row["attention"][machine.precision][0]
    )
