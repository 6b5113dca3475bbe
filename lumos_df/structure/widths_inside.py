"""Widths that the layers of a model without attention tell themselves: channels, states, and what leads to them."""

from collections import Counter
from math import prod

from lumos_df.structure.facts import Fact
from lumos_df.structure.shapes import Operation, Shape, most


def own(operations: list[Operation]) -> Fact | None:
    """Return the width that convolutions or recurrent layers tell themselves, None where layers have neither.

    A filter for each channel alone leads from no width to another: the products around it tell more. So they do where
    they read what a normalization ends in, and no convolution has such channels: what these mix are tokens.
    """
    convolved = channels(operations)
    multiplies = any(operation.inside and operation.is_product() for operation in operations)
    mixes = bool(_normalized(operations) - convolved.keys())
    if convolved and not mixes and not (multiplies and _filters_each(operations)):
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
    return of_states([operation for operation in operations if operation.inside])


def of_states(operations: list[Operation]) -> Fact | None:
    """Return the width of a recurrent net, None where nothing recurs."""
    states = Counter[int]()
    for operation in operations:
        if operation.state:
            states[operation.state[1]] += operation.count
    return Fact(most(states), "shape", "the width of most recurrent layers' states") if states else None


def of_stages(operations: list[Operation]) -> Fact | None:
    """Return the width of a convolutional net in stages, None where nothing convolves: its first channels."""
    weights = _weights(operations)
    how = "the channels that the first convolution writes; all others but those of images and classes grow along"
    return Fact(weights[0][0], "shape", how) if weights else None


def between(operations: list[Operation]) -> set[int]:
    """Return all widths of a convolutional net but those of its images and classes.

    Classes are what the last product leads to, or the last convolution where it writes fewer channels than any other,
    or alone so many, and a softmax runs over them. One that is a filter for each channel alone reads one.
    """
    weights = _weights(operations)
    if not weights:
        return set()
    written, read = [weight[0] for weight in weights], [weight[1] for weight in weights]
    image = {read[0]} - {*written}
    scored = {each.tensor[1] for each in operations if each.is_score() and each.tensor and len(each.tensor) > 1}
    fewest = written[-1] < min(written[:-1], default=0)
    classes = {written[-1]} if fewest or written[-1] in scored.difference(written[:-1]) else set()
    channels = {*written, *read} - image - classes - {1}
    products = [{*operation.product[1:]} for operation in operations if operation.is_product()][:-1]
    return channels.union(*(sizes for sizes in products if sizes & channels))


def _weights(operations: list[Operation]) -> list[Shape]:
    """Return the weights of convolutions, in the order of their first; each calls others of other names."""
    convolutions = [each for each in operations if each.is_convolution() and len(each.weight) > 1]
    names = Counter(each.name for each in convolutions).most_common(1)
    usual = {name for name, _ in names}
    return [each.weight for each in convolutions if each.name in usual]


def multiples(operations: list[Operation], hidden: int) -> set[int]:
    """Return the multiples of a width that products in layers lead to from it, such as six for scales and shifts."""
    inside = [operation.product[1:] for operation in operations if operation.inside and operation.is_product()]
    return {wide for inner, wide in inside if inner == hidden < wide and wide % hidden == 0}


def recurrent(operations: list[Operation], hidden: int) -> set[int]:
    """Return the gates and the states of recurrent layers, and what they read that is wider than a state.

    Both directions of a layer are read side by side. What is narrower may be features of the input.
    """
    inside = [operation for operation in operations if operation.inside and operation.state]
    states = {operation.state[1] for operation in inside if operation.state}
    read = {operation.tensor[-1] for operation in inside if operation.tensor}
    return states | {size for size in read if size > hidden} | {each.gates for each in inside if each.gates}


def flattened(operations: list[Operation], widths: set[int]) -> set[int]:
    """Return the sizes of products' inner or last axes that are all elements of a sample's map of some channels.

    A linear layer reads the maps in a row, or writes what is cut into maps again.

    Args:
        operations: forward operators of one rank.
        widths: the channels.
    """
    maps = {operation.tensor for operation in operations if operation.tensor and len(operation.tensor) > 2}
    whole = {prod(shape[1:]) for shape in maps if shape[1] in widths}
    return whole & {size for each in operations if each.is_product() for size in each.product[1:]}


def beside(operations: list[Operation], hidden: int) -> set[int]:
    """Return the sizes that products in layers lead to from a width, or come from to it."""
    sizes = [operation.product[1:] for operation in operations if operation.inside and operation.is_product()]
    return {other for pair in sizes if hidden in pair for other in pair if other != hidden}


def _normalized(operations: list[Operation]) -> set[int]:
    """Return the sizes that normalizations in layers end in, if products there read them."""
    inside = [operation for operation in operations if operation.inside]
    read = {operation.product[1] for operation in inside if operation.is_product()}
    return {each.tensor[-1] for each in inside if each.is_norm() and each.tensor and each.tensor[-1] in read}


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
