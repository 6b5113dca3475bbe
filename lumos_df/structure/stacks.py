"""Stacks of layers: as many layers of another block in the same passes, as a decoder has beside an encoder."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.structure import passes
from lumos_df.structure.compute_stream import ComputeKernels
from lumos_df.structure.passes import Passes

_BLOCK_SHARE: Final = 0.5
"""Threshold, share of the work of a layer of the first stack. Layers that hold less are no stack of their own: twice
the same product around the layers is none. Evidence: a decoder's layer has 11 products where the encoder's has 7, and
blocks of a U-Net's levels have as many as one another."""


def beside(
    kernels: ComputeKernels, forward: Passes, backward: Passes, linked: NDArray[np.bool_]
) -> list[tuple[Passes, Passes]]:
    """Return the passes, forward and backward, through each stack beside the one that was found.

    A stack has as many layers, alike in their shapes, in as many passes. It comes down as it went up: where links say
    what is the backward of what, these tell its layers, as gradients of what all of them read are added up on the way.

    Args:
        kernels: the compute kernels.
        forward: the forward passes through the first stack.
        backward: the backward ones.
        linked: which kernels are known to be the backward of a forward operator [k].
    """
    told = links_tell(kernels, backward, linked)
    if forward.layers < 2 or not comes_down(kernels, forward, backward, linked):
        return []
    found: list[tuple[Passes, Passes]] = []
    up, down = forward, backward
    while True:
        up = _next(kernels, up, forward.layers, forward=True)
        down = _next(kernels, down, forward.layers, forward=False)
        if not _like(kernels, up, forward):
            return found
        if not _like(kernels, down, backward):
            if not told:
                return found
            down = passes.nothing(down.place)
        found.append((up, down))


def comes_down(kernels: ComputeKernels, forward: Passes, backward: Passes, linked: NDArray[np.bool_]) -> bool:
    """Return whether as many layers come down as went up: as many repeat, or none does and links tell them."""
    same = backward.layers == forward.layers or not kernels.weight[backward.place].any()
    return same or (not backward.layers and links_tell(kernels, backward, linked))


def links_tell(kernels: ComputeKernels, backward: Passes, linked: NDArray[np.bool_]) -> bool:
    """Return whether all the work of the backward passes is known to be the backward of something."""
    return bool(linked[backward.place[kernels.weight[backward.place] > 0]].all())


def covered(kernels: ComputeKernels, ways: list[Passes]) -> list[float]:
    """Return the share of a phase's products and attention in layers of each stack; `ways`: the first has it all."""
    total = max(int(kernels.weight[ways[0].place].sum()), 1)
    return [float(kernels.weight[way.place[way.layer >= 0]].sum()) / total for way in ways]


def _next(kernels: ComputeKernels, way: Passes, layers: int, *, forward: bool) -> Passes:
    """Return the passes among what is in no layer of a stack before."""
    rest = way.place[way.layer < 0]
    if not kernels.weight[rest].any():
        return passes.nothing(rest)
    return passes.find(kernels, rest, forward=forward, times=layers)


def _like(kernels: ComputeKernels, way: Passes, first: Passes) -> bool:
    same = way.exact and (way.layers, way.count) == (first.layers, first.count)
    return same and _work(kernels, way) >= _BLOCK_SHARE * _work(kernels, first)


def _work(kernels: ComputeKernels, way: Passes) -> float:
    """Return the products and attention of all layers of a stack in one run of them."""
    return float(kernels.weight[way.place[way.layer >= 0]].sum()) / way.stacks
