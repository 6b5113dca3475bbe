"""How long work takes on an H100-like GPU and on its links.

Peak rates are the data sheet's. The rest is of the usual form and size, and no measurement: tiles that fill the
multiprocessors in waves, fixed times, shares of the peak that large work reaches, NCCL's rings and trees.
"""

from itertools import groupby
from math import ceil
from typing import Final

from tests.emulator.device import Device

MULTIPROCESSORS: Final = 132
DEVICE: Final = Device("NVIDIA H100 80GB HBM3", 85_045_477_376, (9, 0), MULTIPROCESSORS)
NODE: Final = 8
"""GPUs that share fast links."""

_FLOPS_PER_NS: Final = 989_000
_BYTES_PER_NS: Final = 3350 * 0.9
_KERNEL_NS: Final = 2_200
"""What the smallest kernel takes."""
_TILES: Final = ((128, 256, 0.77), (128, 128, 0.71), (64, 128, 0.56))
"""Rows and columns of a matrix product's tile, and the share of the peak that full multiprocessors reach with it."""
_TILE_NS: Final = 1_500
"""Filling and draining a tile's pipeline."""
_STREAMED: Final = 0.6
"""Share of a partial last wave that persistent kernels make up for by sharing tiles."""

_RING_BYTES_PER_NS: Final = {2: 318, 4: 350, 8: 360}
"""By ranks in a node: as nccl-tests find it on such GPUs."""
_SWITCH_BYTES_PER_NS: Final = 445
"""Of an all-reduce among all GPUs of a node, in which the switch adds; likewise."""
_WIRE_BYTES_PER_NS: Final = 50 * 0.92
_PAIR_BYTES_PER_NS: Final = 180
_START_NS: Final = 11_000
_NEAR_HOP_NS: Final = 1_100
_FAR_HOP_NS: Final = 6_500
_TREE: Final = 0.92
"""Share of a ring's rate that a tree reaches on the same links."""


def gemm_ns(rows: int, columns: int, inner: int) -> tuple[float, int, int, int]:
    """Return the time of a product of bfloat16 matrices, rows and columns of its tile, and how many tiles there are."""
    return min(_tiled(rows, columns, inner, *tile) for tile in _TILES)


def _tiled(rows: int, columns: int, inner: int, high: int, wide: int, share: float) -> tuple[float, int, int, int]:
    blocks = ceil(rows / high) * ceil(columns / wide)
    waves = _waves(blocks / MULTIPROCESSORS)
    tile_ns = 2 * high * wide * inner / (_FLOPS_PER_NS / MULTIPROCESSORS * share)
    moved = 2 * (rows * inner + inner * columns + rows * columns)
    return max(waves * tile_ns + _TILE_NS, moved / _BYTES_PER_NS) + _KERNEL_NS, high, wide, blocks


def _waves(waves: float) -> float:
    return max(1.0, _STREAMED * waves + (1 - _STREAMED) * ceil(waves))


def memory_ns(moved_bytes: float) -> float:
    """Return the time of a kernel that moves so many bytes and does little else."""
    return _KERNEL_NS + moved_bytes / _BYTES_PER_NS


def attention_ns(batch: int, heads: int, sequence: int, width: int, ranks: int, *, backward: bool) -> float:
    """Return the time of fused causal attention: two products forward, five backward, half of each masked.

    Of ranks that share the sequence each has an even part of the queries, and meets half of the keys.
    """
    products, share = (5, 0.48) if backward else (2, 0.62)
    flops = products * batch * heads * sequence**2 * width / ranks
    tail = sequence / (sequence + 256)
    # Blocks are of different length behind the mask: the short ones fill the last wave.
    waves = batch * heads * ceil(sequence / ranks / 128) / MULTIPROCESSORS
    return _KERNEL_NS + flops / (_FLOPS_PER_NS * share * tail) * _waves(waves) / waves


def all_reduce_ns(payload_bytes: int, ranks: tuple[int, ...]) -> float:
    """Return the time of an all-reduce once every rank is there: the best of what NCCL may choose."""
    many = len(ranks)
    if many == 1:
        return 0.0
    per_node = max(len(list(own)) for _, own in groupby(ranks, lambda rank: rank // NODE))
    nodes = ceil(many / per_node)
    wire = 2 * (many - 1) / many * payload_bytes
    if nodes == 1:
        ring = _START_NS + 2 * (many - 1) * _NEAR_HOP_NS + wire / _RING_BYTES_PER_NS[many]
        if many < NODE:
            return ring
        return min(ring, _START_NS + 14_000 + wire / _SWITCH_BYTES_PER_NS)
    # Each GPU of a node has a network card of its own; a ring or tree enters and leaves the node through each of them.
    near = _RING_BYTES_PER_NS[max(2, per_node)]
    out = min(near, per_node * _WIRE_BYTES_PER_NS)
    hops = 2 * (nodes - 1) * _FAR_HOP_NS + 2 * nodes * (per_node - 1) * _NEAR_HOP_NS
    ring = _START_NS + hops + wire / out
    # Of two nodes each sums up and sends once. Of more each is inner in one of two trees and a leaf of the other: it
    # sends half of the payload up twice, and once to each of two children (NCCL, src/graph/trees.cc).
    up_and_down = min(2, nodes - 1) * payload_bytes / (per_node * _WIRE_BYTES_PER_NS * _TREE)
    inside = 2 * (per_node - 1) / per_node * payload_bytes / (near * _TREE)
    levels = 2 * ((nodes - 1).bit_length() * _FAR_HOP_NS + (per_node - 1) * _NEAR_HOP_NS)
    return min(ring, _START_NS + levels + max(up_and_down, inside))


def one_way_ns(payload_bytes: int, ranks: tuple[int, ...]) -> float:
    """Return the time of an all-gather or a reduce-scatter inside a node once every rank is there."""
    many = len(ranks)
    if many > 1 and ranks[0] // NODE != ranks[-1] // NODE:
        raise ValueError("only inside a node")
    hops = (many - 1) * _NEAR_HOP_NS
    return _START_NS + hops + (many - 1) / many * payload_bytes / _RING_BYTES_PER_NS[many] if many > 1 else 0.0


def send_ns(payload_bytes: int, route: tuple[int, int]) -> float:
    """Return the time of a send and its receive, once both are there."""
    near = route[0] // NODE == route[1] // NODE
    rate = _PAIR_BYTES_PER_NS if near else _WIRE_BYTES_PER_NS
    return _START_NS + (_NEAR_HOP_NS if near else _FAR_HOP_NS) + payload_bytes / rate
