"""What an operator of a job without a GPU multiplies and moves, by its name and shapes."""

import re
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.structure.shapes import Operation, Shape

_ELEMENT_BYTES: Final = 4
"""Only ratios matter: that of bytes and operations is read from the trace."""
_BLOCKS: Final = (8, 16)
"""Channels that are multiplied together where there are as many: floats in an AVX2 or an AVX-512 register, and in a
block of oneDNN's layouts nChw8c and nChw16c (https://uxlfoundation.github.io/oneDNN/dev_guide_understanding_memory_formats.html).
No trace tells which of them the core had."""
_CONVOLVES: Final = re.compile(r"aten::\w*convolution\w*$")
_RECURS: Final = re.compile(r"aten::mkldnn_rnn_layer(?:_backward)?$")
"""A layer that goes through a sequence, (tokens, batch, width), one token after another, with two matrices."""


def operations(name: str, tensors: tuple[Shape, ...]) -> NDArray[np.float64]:
    """Return the operations of products, attention, recurrent layers and convolutions, else 0, for either block [2]."""
    return np.array([_operations(name, tensors, block) for block in _BLOCKS])


def _operations(name: str, tensors: tuple[Shape, ...], block: int) -> float:
    operation = Operation(name, tensors, (), 1, 0, inside=True)
    if operation.is_product():
        return 2.0 * prod(operation.product)
    if operation.is_batched():
        return 2.0 * operation.operands[0][0] * prod(operation.product)
    if operation.is_attention():
        query, key = operation.operands[:2]
        return 4.0 * prod(query) * sorted(key[1:3])[1]
    if recurs(name, tensors):
        # States have two axes as well, and come behind the matrices. Backward both are multiplied twice.
        matrices = [shape for shape in tensors if len(shape) == 2][:2]
        return 2.0 * (1 + name.endswith("backward")) * prod(tensors[0][:2]) * sum(map(prod, matrices))
    if convolves(name):
        read = maps(tensors)
        # Every place of the input meets the weight, which comes last; backward it does so twice.
        return (
            2.0 * (len(read) - 1) * read[0][0] * prod(read[0][2:]) * _in_blocks(read[-1], block)
            if len(read) > 1
            else 0.0
        )
    return 0.0


def made(name: str, tensors: tuple[Shape, ...]) -> float:
    """Return the bytes of what a product of matrices gives, 0 for other operators."""
    operation = Operation(name, tensors, (), 1, 0, inside=True)
    if not (operation.is_product() or operation.is_batched()):
        return 0.0
    rows, _, columns = operation.product
    return float((operation.operands[0][0] if operation.is_batched() else 1) * rows * columns) * _ELEMENT_BYTES


def _in_blocks(weight: Shape, block: int) -> int:
    """Return the elements of a convolution's weight as they are multiplied: channels in whole blocks."""
    blocks = (-(-channels // block) * block if channels >= block else channels for channels in weight[:2])
    return prod(blocks) * prod(weight[2:])


def convolves(name: str) -> bool:
    """Return whether an operator convolves, forward or backward."""
    return bool(_CONVOLVES.match(name))


def maps(tensors: tuple[Shape, ...]) -> list[Shape]:
    """Return what a convolution reads: maps, and its weight, which comes last."""
    return [shape for shape in tensors if len(shape) > 2]


def sums_channels(name: str, tensors: tuple[Shape, ...]) -> bool:
    """Return whether an operator is a convolution that is no filter for each channel alone."""
    read = maps(tensors)
    return convolves(name) and len(read) > 1 and read[-1][1] > 1


def recurs(name: str, tensors: tuple[Shape, ...]) -> bool:
    """Return whether an operator is a recurrent layer with all that its operations are told by."""
    return bool(_RECURS.match(name)) and tuple(map(len, tensors[:3])) == (3, 2, 2)


def beside_products(name: str, before: tuple[Shape, ...], after: tuple[Shape, ...]) -> float:
    """Return how many times as long a recurrent layer takes for what it does beside products; 0 for other operators.

    It calls operations for every token, whatever their size, and bends the gates of each: half of that time either.
    Evidence: in two LSTMs twice the samples took 1.0 to 1.4 times as long beside products, a width three times as large
    1.9 times and one twice as large 3.5 times.
    """
    if not recurs(name, before):
        return 0.0
    return (after[0][0] / before[0][0] + _gates(after) / _gates(before)) / 2


def _gates(tensors: tuple[Shape, ...]) -> int:
    return prod(tensors[0][:2]) * tensors[1][0]


def touched(name: str, tensors: tuple[Shape, ...]) -> float:
    """Return the bytes that an operator reads: its operands, and of a lookup only the rows that it takes, and gives."""
    sizes = [float(prod(shape)) for shape in tensors]
    if Operation(name, tensors, (), 1, 0, inside=True).is_lookup() and len(tensors) > 1:
        return 2 * sizes[1] * tensors[0][-1] * _ELEMENT_BYTES
    if _RECURS.match(name):
        # What one keeps for its backward pass is a vector that no size of the model tells.
        sizes = [size for size, shape in zip(sizes, tensors, strict=True) if len(shape) > 1]
    return sum(sizes) * _ELEMENT_BYTES
