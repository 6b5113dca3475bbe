"""What attention says of batch and tokens: which is which, and whether it runs over whole samples.

Over windows, each sample's tokens are cut into several, and attention's batch is as many windows, not samples.
"""

from collections import Counter
from math import prod

from lumos_df.structure.facts import Fact, unknown
from lumos_df.structure.shapes import Operation, Shape


def attends_over(attention: Operation, pair: Shape) -> bool:
    """Return whether attention is over two sizes: one in front, or a divisor of what is, and the other behind it.

    Args:
        attention: fused, or a batched product.
        pair: batch and tokens, or the other way round.
    """
    first = attention.operands[0]
    sizes = {size for shape in attention.operands for size in shape[1:]}
    fused = attention.is_attention()
    return any(
        (first[0] == batch if fused else first[0] % batch == 0) and tokens in sizes
        for batch, tokens in (pair, pair[::-1])
    )


def batches(operations: list[Operation], left: int, right: int) -> dict[int, int]:
    """Return how many operators say of either size that it is the micro-batch, the other being the sequence."""
    votes = {left: 0, right: 0}
    other = {left: right, right: left}
    for operation in operations:
        told: list[int] = []
        if operation.is_convolution() or operation.is_attention():
            leading = operation.operands[0][0] if operation.is_attention() else (operation.tensor or (0,))[0]
            told = [size for size in votes if size == leading]
        elif operation.is_batched():
            # As many products as the batch, or a multiple of it, and the sequence among their sizes.
            leading, sizes = operation.operands[0][0], {size for shape in operation.operands for size in shape[1:]}
            told = [size for size in votes if leading % size == 0 and other[size] in sizes]
            if len(told) > 1:
                # Of a head as wide as the batch is large both are there: tokens meet tokens, widths do not.
                (_, rows, inner), (_, _, columns) = operation.operands
                told = [size for size in told if (rows, inner, columns).count(other[size]) > 1]
        if len(told) == 1:
            votes[told[0]] += operation.count
    return votes


def heads_apart(operations: list[Operation], hidden: int, batch: int) -> tuple[Fact, Fact] | None:
    """Return heads and the width of one where layers work head by head without a softmax; None where nothing is so.

    There the width is cut into (heads, width of one), and as many products at once are a multiple of the samples'
    heads, as in linear attention, or each head has one number of each token or node, as in attention along edges.

    Args:
        operations: forward operators of one rank.
        hidden: the model's width.
        batch: samples of a micro-batch.
    """
    inside = [operation for operation in operations if operation.inside]
    batched = [operation for operation in inside if operation.is_batched()]
    shapes = {operation.tensor for operation in inside}
    votes = Counter[Shape]()
    for shape, count in ((operation.tensor or (), operation.count) for operation in inside):
        if len(shape) > 2 and min(shape[-2:]) > 1 and prod(shape[-2:]) == hidden:
            votes[shape] += count
    for (*front, heads, width), _ in votes.most_common():
        how = f"the width cut into ({heads}, {width}), and "
        for product in batched:
            count, sizes = product.operands[0][0], {size for shape in product.operands for size in shape[1:]}
            if count % (batch * heads) == 0 and width in sizes:
                how += f"products of {count} matrices at once"
                return Fact(heads, "shape", how), Fact(width, "shape", how)
        if (*front, heads) in shapes:
            how += f"a number of each head, {(*front, heads)}"
            return Fact(heads, "shape", how), Fact(width, "shape", how)
    return None


def windows(operations: list[Operation], activation: tuple[int, int, int]) -> int:
    """Return how many windows of a sample attention runs over, 1 where it runs over whole samples.

    Layers read the same elements with fewer in front, (3, 16, 16, 96) beside (48, 16, 96): no sample is ever cut apart
    but into windows.

    Args:
        operations: forward operators of one rank.
        activation: what attention's batch is, its tokens, and the width.
    """
    batch = activation[0]
    shapes = {operation.tensor for operation in operations if operation.inside and operation.tensor}
    leading = {shape[0] for shape in shapes if _holds_samples(shape, activation)}
    samples = min((size for size in leading if batch % size == 0), default=batch)
    return batch // samples


def _holds_samples(shape: Shape, activation: tuple[int, int, int]) -> bool:
    batch, tokens, hidden = activation
    if len(shape) < 3 or shape[-1] != hidden or prod(shape[:-1]) != batch * tokens:
        return False
    # Either of both may come first in one tensor, and an axis of one element in front holds nothing: the sum over all
    # tokens as one matrix, too.
    return shape[:2] not in ((tokens, batch), (1, batch), (1, batch * tokens))


def facts(count: int, sequence: Fact, batch: Fact) -> tuple[Fact, Fact, Fact]:
    """Return sequence, micro-batch and windows of a job whose attention runs over `count` windows of each sample.

    Args:
        count: windows of a sample, two or more.
        sequence: what attention's tokens are: those of a window.
        batch: what attention's batch is: the windows of all samples.
    """
    samples = (batch.number or count) // count
    none = unknown(f"attention runs over windows of {sequence.number} tokens, {count} of each sample")
    how = f"attention runs over {batch.number} windows, and layers read as much with {samples} in front"
    return none, Fact(samples, "shape", how), Fact(count, "shape", f"of {sequence.number} tokens, of each sample")
