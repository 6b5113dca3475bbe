"""Widths that the layers of a model without attention tell themselves: channels, states, and what leads to them."""

from collections import Counter

from lumos_df.structure.facts import Fact
from lumos_df.structure.shapes import Operation, most


def own(operations: list[Operation]) -> Fact | None:
    """Return the width that convolutions or recurrent layers tell themselves, None where layers have neither.

    A filter for each channel alone leads from no width to another: the products around it tell more.
    """
    convolved = channels(operations)
    multiplies = any(operation.inside and operation.is_product() for operation in operations)
    if convolved and not (multiplies and _filters_each(operations)):
        # What goes around the layers is added to what comes out of them; a bottleneck has fewer channels inside.
        around = Counter[int]()
        for operation in operations:
            if operation.inside and operation.is_sum_of_maps() and operation.tensor:
                around[operation.tensor[1]] += operation.count
        joined = Counter({size: count for size, count in around.items() if size in convolved})
        how = "the channels that most convolutions of a layer share"
        if joined:
            how = "the channels of what goes around the convolutions of a layer"
        return Fact(most(joined or convolved), "shape", how)
    states = Counter[int]()
    for operation in operations:
        if operation.inside and operation.state:
            states[operation.state[1]] += operation.count
    return Fact(most(states), "shape", "the width of most recurrent layers' states") if states else None


def recurrent(operations: list[Operation], hidden: int) -> set[int]:
    """Return the gates and the states of recurrent layers, and what they read that is wider than a state.

    Both directions of a layer are read side by side. What is narrower may be features of the input.
    """
    inside = [operation for operation in operations if operation.inside and operation.state]
    states = {operation.state[1] for operation in inside if operation.state}
    read = {operation.tensor[-1] for operation in inside if operation.tensor}
    return states | {size for size in read if size > hidden} | {each.gates for each in inside if each.gates}


def beside(operations: list[Operation], hidden: int) -> set[int]:
    """Return the sizes that products in layers lead to from a width, or come from to it."""
    sizes = [operation.product[1:] for operation in operations if operation.inside and operation.is_product()]
    return {other for pair in sizes if hidden in pair for other in pair if other != hidden}


def _filters_each(operations: list[Operation]) -> bool:
    """Return whether every convolution in layers reads one channel at a time, as those of state-space layers do."""
    inside = [operation for operation in operations if operation.inside and operation.is_convolution()]
    return all(operation.weight[1:2] == (1,) for operation in inside)


def channels(operations: list[Operation]) -> Counter[int]:
    """Return the channels of the convolutions in layers, with how many have them on either side."""
    channels = Counter[int]()
    for operation in operations:
        if operation.inside and operation.is_convolution():
            for size in set(operation.weight[:2]):
                channels[size] += operation.count
    return channels
