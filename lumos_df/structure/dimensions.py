"""A transformer's dimensions from the shapes of its operators; of any other model the batch.

What a rank computes is its share of the tensor-parallel group: heads, FFN and vocabulary are the rank's times the
degree.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final

import numpy as np

from lumos_df.schema.codes import FORWARD
from lumos_df.schema.dtypes import element_type
from lumos_df.structure import attention_sizes, widths_inside
from lumos_df.structure.experts import Routing, ffn_of_experts, routing
from lumos_df.structure.facts import Fact, by_count, unknown
from lumos_df.structure.layers import Structure
from lumos_df.structure.shapes import Operation, Shape, most

_NO_SHAPES: Final = "the trace records no shapes: profile with PyTorch's record_shapes=True"
_SHARED_BY_MOST: Final = "the dimension that most matrix products of a layer share"
_FLATTENS: Final = re.compile(r"aten::(?:flatten|view|reshape)$")
_VOCABULARY_TIMES: Final = 4
"""Threshold, hidden sizes. A matrix product after the layers with more columns leads to a vocabulary.
Evidence: an FFN is four times as wide as the hidden size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """What one rank's shapes say, before the plan is known: sizes are the rank's share."""

    hidden: Fact
    heads: Fact
    kv_heads: Fact
    head_dim: Fact
    ffn: Fact
    sequence: Fact
    micro_batch: Fact
    vocabulary: Fact
    dtype: Fact
    projection: int | None
    """Inner size of attention's output product: heads times their width, of this rank."""
    activation: int | None
    """Elements of one activation between layers."""
    routing: Routing | None = None
    """How tokens go to experts; None where no router ran."""
    windows: Fact | None = None
    """How many windows of a sample attention runs over; None where it runs over whole samples."""


def local(structure: Structure, operations: list[Operation], given: Mapping[str, int]) -> Local:
    """Return what the forward operators of one rank say; `given`: dimensions that hold whatever they say."""
    to_experts = routing(operations)
    sizes = _sizes(structure, operations, given)
    # What a router makes is no width of a layer.
    widths = tuple(each for each in sizes.hidden.readings if not to_experts or each[0] != to_experts.experts)
    hidden = replace(sizes.hidden, readings=widths if len(widths) > 1 else ())
    return replace(sizes, hidden=hidden, routing=to_experts)


def _sizes(structure: Structure, operations: list[Operation], given: Mapping[str, int]) -> Local:
    products = [operation for operation in operations if operation.is_product()]
    dtype = _dtype(products)
    convolves = structure.kind == "convolutional" and any(map(Operation.is_convolution, operations))
    if not products and not convolves:
        why = _NO_SHAPES if not operations else "no forward operator is a matrix product with recorded shapes"
        return _only_batch(unknown(why), _leading(structure, operations, why), dtype)
    if structure.kind != "transformer":
        return _of_other(structure, operations, products, dtype, given)
    inner = [operation for operation in products if operation.inside] or products
    alike = _widths(inner, operations)
    hidden = given.get("hidden") or max(alike)
    tokens = _tokens(operations, inner, hidden)
    attention = _attention(operations)
    sequence, batch = _sequence(operations, attention, (hidden, tokens), given)
    heads, kv_heads, width = _heads(attention, sequence, batch)
    projection = _projection(inner, hidden, heads.number, width.number)
    vocabulary = _vocabulary(operations, products, hidden, sequence.number)
    windows = None
    count = attention_sizes.windows(operations, (batch.number or 1, sequence.number or 1, hidden))
    if count > 1 and not given.keys() & {"sequence", "micro_batch"}:
        sequence, batch, windows = attention_sizes.facts(count, sequence, batch)
    return Local(
        hidden=Fact(hidden, "shape", _SHARED_BY_MOST, by_count(alike)),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width,
        ffn=ffn_of_experts(operations, hidden) or _ffn(inner, hidden, projection),
        sequence=sequence,
        micro_batch=batch,
        vocabulary=vocabulary,
        dtype=dtype,
        projection=projection,
        activation=hidden * tokens if tokens else None,
        windows=windows,
    )


def _of_other(
    structure: Structure,
    operations: list[Operation],
    products: list[Operation],
    dtype: Fact,
    given: Mapping[str, int],
) -> Local:
    """Return what is known of a model without attention: its batch, and of layers that are alike their widths."""
    none = unknown(f"the model is no transformer ({structure.kind})")
    batch = _leading(structure, operations, _NO_SHAPES)
    local_sizes = _only_batch(none, batch, dtype)
    if not structure.layers:
        alone = widths_inside.of_stages if structure.kind == "convolutional" else widths_inside.of_states
        return replace(local_sizes, hidden=alone(operations) or none)
    width = widths_inside.own(operations)
    if width:
        return replace(local_sizes, hidden=width)
    inner = [operation for operation in products if operation.inside]
    if not inner:
        return local_sizes
    alike = _widths(inner, operations)
    hidden = given.get("hidden") or max(alike)
    leading = given.get("micro_batch") or batch.number
    pairs = Counter[int]()
    for operation in operations:
        shape = operation.tensor
        if operation.inside and shape and len(shape) == 3 and shape[0] == leading and shape[2] == hidden:
            pairs[shape[1]] += operation.count
    rows = {operation.product[0] for operation in inner}
    # Of what a compiler fuses only the net's answers are recorded.
    pairs = pairs or Counter(shape[1] for shape in _flattened(operations) if prod(shape[:2]) in rows)
    if structure.kind == "convolutional":
        # Stages have parts or multiples of one width: whichever is named, all grow along.
        alike = {size: count for size, count in alike.items() if size == hidden or (size % hidden and hidden % size)}
    heads, width = attention_sizes.heads_apart(operations, hidden, leading or 1) or (none, none)
    return replace(
        local_sizes,
        hidden=Fact(hidden, "shape", _SHARED_BY_MOST, by_count(alike)),
        heads=heads,
        kv_heads=heads,
        head_dim=width,
        ffn=_ffn(inner, hidden, None),
        sequence=_sequence_of_other(structure, operations, (leading, most(pairs), hidden)) if pairs else none,
    )


def _sequence_of_other(
    structure: Structure, operations: list[Operation], activation: tuple[int | None, int | None, int]
) -> Fact:
    """Return the sequence of a model without attention: the middle size of most activations between its layers.

    Where a layer goes through the tokens one after another, operators that read one token each are as many, and no
    shape holds that.
    """
    batch, tokens = activation[0] or 1, activation[1] or 1
    ahead = structure.kernels.phase == FORWARD
    of_kernel = structure.micro_batch[structure.kernels.row]
    passes = np.unique(np.stack((structure.kernels.step, of_kernel))[:, ahead], axis=1).shape[1]
    for operation in operations:
        # Others read all tokens, also as the rows of a matrix.
        rows = operation.product[0] if operation.is_product() else prod((operation.tensor or ())[:-1])
        of_one = operation.tensor and rows % (batch * tokens)
        if operation.inside and of_one and operation.count >= tokens * passes * structure.layers:
            return unknown(f"layers go through {tokens} tokens one after another, and each time run the same operators")
    return Fact(tokens, "shape", f"an activation of {activation}")


def _only_batch(none: Fact, batch: Fact, dtype: Fact) -> Local:
    """Return what is known where no shape tells the sizes of a transformer; `none` says why."""
    return Local(
        hidden=none,
        heads=none,
        kv_heads=none,
        head_dim=none,
        ffn=none,
        sequence=none,
        micro_batch=batch,
        vocabulary=none,
        dtype=dtype,
        projection=None,
        activation=None,
    )


def _leading(structure: Structure, operations: list[Operation], why: str) -> Fact:
    """Return the batch of a model that is no transformer: the commonest leading dimension of its activations."""
    activations = Counter[int]()
    convolutions = Counter[int]()
    recurrences = Counter[int]()
    products = Counter[int]()
    # Parameters of linear layers have two axes at most, and a convolution reads its input first.
    deep = [operation.tensor for operation in operations if operation.tensor and len(operation.tensor) > 2]
    first = {(prod(shape[:-1]), shape[-1]): shape[0] for shape in deep}
    flat = {prod(shape[:-1]): shape[0] for shape in _flattened(operations)}
    # A head of a sample is a matrix of these.
    of_heads = {shape for operation in operations if operation.is_batched() for shape in operation.operands}
    for operation in operations:
        if operation.tensor and len(operation.tensor) > 2 and not (flat and operation.tensor in of_heads):
            activations[operation.tensor[0]] += operation.count
        if operation.is_convolution() and operation.tensor:
            convolutions[operation.tensor[0]] += operation.count
        elif operation.state:
            recurrences[operation.state[0]] += operation.count
        elif operation.is_product():
            # Rows that are all axes of an activation but the last one are no batch.
            rows = operation.product[0]
            products[first.get(operation.product[:2], flat.get(rows, rows))] += operation.count
    if structure.kind == "convolutional":
        counted = [convolutions, products]
    elif recurrences:
        # Their activations lead with time, and what they multiply with one layer.
        counted = [recurrences]
    else:
        counted = [activations, products, convolutions] if structure.layers else [products, convolutions]
    votes = sum(counted, Counter[int]())
    batch = most(votes)
    if batch is None:
        return unknown(why)
    # A multiple of the batch is the batch times positions.
    others = {size: count for size, count in votes.items() if size == batch or size % batch}
    how = "the commonest leading dimension of convolutions and matrix products"
    return Fact(batch, "shape", how, by_count(others))


def _flattened(operations: list[Operation]) -> list[Shape]:
    """Return the activations of three axes that something reads as rows, as a loss does a net's answers."""
    read = (operation.tensor for operation in operations if _FLATTENS.match(operation.name))
    return [shape for shape in read if shape and len(shape) == 3]


def _dtype(products: list[Operation]) -> Fact:
    kinds = Counter[str]()
    for operation in products:
        tensors = [kind for kind, shape in zip(operation.types, operation.shapes, strict=False) if shape is not None]
        kind = element_type(tensors[-1]) if tensors else None
        if kind and kind.floating:
            kinds[kind.name] += operation.count
    if not kinds:
        return unknown("no matrix product records the type of its inputs")
    return Fact(kinds.most_common(1)[0][0], "shape", "the type of most matrix products' inputs")


def _tokens(operations: list[Operation], inner: list[Operation], hidden: int) -> int | None:
    """Return the rows that products of the hidden size have most of: those of an activation of three axes, if any has.

    Where a layer runs its experts one after the other, more products have the rows of one expert.
    """
    rows: Counter[int] = Counter()
    for operation in inner:
        if hidden in operation.product[1:]:
            rows[operation.product[0]] += operation.count * operation.product[0]
    activations = {
        operation.tensor[0] * operation.tensor[1]
        for operation in operations
        if operation.inside and operation.tensor and len(operation.tensor) == 3 and operation.tensor[-1] == hidden
    }
    return most(Counter({size: count for size, count in rows.items() if size in activations}) or rows)


def _widths(inner: list[Operation], operations: list[Operation]) -> dict[int, int]:
    """Return the sizes that most matrix products share, with how many do: several where as many share each.

    What no product reads, such as the gates of a recurrent layer side by side, is the width of no activation. Of layers
    that normalize nothing, what goes around them and is added to what comes out is of the width. Where tensors of
    another size are added inside them as well, what their first product reads is what goes around.
    """
    shared: Counter[int] = Counter()
    read = {operation.product[1] for operation in inner}
    for operation in inner:
        for size in set(operation.product[1:]):
            shared[size] += operation.count
    norms = {
        operation.tensor[-1]
        for operation in operations
        if operation.is_norm() and operation.inside and operation.tensor
    }
    shared = Counter({size: count for size, count in shared.items() if size in read})
    around = {
        operation.tensor[-1] for operation in operations if operation.joins() and operation.inside and operation.tensor
    }
    first = min(inner, key=lambda operation: operation.first).product[1]
    around = {first} & around or around
    told = norms & shared.keys() or around & shared.keys() or shared.keys()
    likely = {size: count for size, count in shared.items() if size in told}
    highest = max(likely.values())
    return {size: count for size, count in likely.items() if count == highest}


def _attention(operations: list[Operation]) -> Operation | None:
    """Return the layers' fused attention, else the product of its scores with the values."""
    inside = [operation for operation in operations if operation.inside]
    for kind in (Operation.is_attention, Operation.is_batched):
        candidates = [operation for operation in inside if kind(operation)]
        if candidates:
            return max(candidates, key=lambda operation: (operation.count, -operation.first))
    return None


def _sequence(
    operations: list[Operation],
    attention: Operation | None,
    sizes: tuple[int, int | None],
    given: Mapping[str, int],
) -> tuple[Fact, Fact]:
    """Return sequence and micro-batch: an activation is (sequence, batch, hidden) or (batch, sequence, hidden)."""
    hidden, tokens = sizes
    pairs = Counter[Shape]()
    for operation in operations:
        shape = operation.tensor
        if (
            operation.inside
            and shape
            and len(shape) == 3
            and shape[-1] == hidden
            and shape[0] * shape[1] == (tokens or -1)
        ):
            pairs[shape[:2]] += operation.count
    if not pairs:
        none = unknown("no operator of a layer reads an activation of three dimensions")
        return none, none
    # Attention may run over pieces of what layers read: those are its batch and its tokens.
    told = [pair for pair in pairs if attention and attention_sizes.attends_over(attention, pair)] or [*pairs]
    left, right = max(told, key=lambda pair: (pairs[pair], pair))
    how = f"an activation of ({left}, {right}, {hidden})"
    if left == right:
        return Fact(left, "shape", how), Fact(right, "shape", how)
    other = {left: right, right: left}
    known = given.get("micro_batch", other.get(given.get("sequence", 0), 0))
    if known in other:
        return Fact(other[known], "shape", how), Fact(known, "shape", how)
    votes = attention_sizes.batches(operations, left, right)
    if votes[left] == votes[right]:
        why = f"{left} and {right} are sequence and micro-batch, and as much says either"
        either = tuple(votes.items())
        return unknown(why, tuple((other[size], count) for size, count in either)), unknown(why, either)
    readings = by_count(votes)
    lengths = tuple((other[size], count) for size, count in readings)
    how += ", told apart by attention and convolutions" if readings else ", told apart by attention"
    batch = max(votes, key=lambda size: votes[size])
    return Fact(other[batch], "shape", how, lengths), Fact(batch, "shape", how, readings)


def _heads(attention: Operation | None, length: Fact, samples: Fact) -> tuple[Fact, Fact, Fact]:
    sequence, batch = length.number, samples.number
    if attention is None:
        none = unknown("no operator is attention with recorded shapes")
        return none, none, none
    if sequence is None or batch is None:
        none = unknown("needs sequence and micro-batch")
        return none, none, none
    how = f"the shapes of {attention.name}"
    if attention.is_attention():
        query, key = attention.operands[:2]
        middle = [(shape[2] if shape[1] == sequence else shape[1]) for shape in (query, key)]
        return Fact(middle[0], "shape", how), Fact(middle[1], "shape", how), Fact(query[-1], "shape", how)
    products = attention.operands[0][0]
    if products % batch:
        none = unknown(f"{products} products at once are no multiple of micro-batch {batch}")
        return none, none, none
    widths = [size for shape in attention.operands for size in shape[1:] if size != sequence] or [sequence]
    each = tuple((products // size, count) for size, count in samples.readings if products % size == 0)
    readings = each if len(each) > 1 else ()
    heads = Fact(products // batch, "shape", how, readings)
    keys = Fact(heads.value, "shape", f"{how}: as many as heads, once expanded", readings)
    return heads, keys, Fact(widths[-1], "shape", how)


def _projection(inner: list[Operation], hidden: int, heads: int | None, width: int | None) -> int | None:
    if heads is None or width is None:
        return None
    wanted = heads * width
    return wanted if any(operation.product[1:] == (wanted, hidden) for operation in inner) else None


def _ffn(inner: list[Operation], hidden: int, projection: int | None) -> Fact:
    back = [operation for operation in inner if operation.product[2] == hidden]
    ordered = sorted(back, key=lambda operation: operation.first)
    # Attention comes first in a layer, so the last product back to the hidden size is the FFN's.
    down = [operation for operation in ordered if operation.product[1] != projection] or ordered[1:]
    if not down:
        return unknown("no matrix product of a layer leads from another size back to the hidden one")
    return Fact(down[-1].product[1], "shape", "the inner size of a layer's last matrix product")


def _vocabulary(operations: list[Operation], products: list[Operation], hidden: int, sequence: int | None) -> Fact:
    tables = [
        operation.tensor[0]
        for operation in operations
        if operation.is_lookup() and operation.tensor and operation.tensor[1] == hidden
    ]
    heads = [
        operation.product[2]
        for operation in products
        if operation.product[1] == hidden and operation.count and not operation.inside
    ]
    both = [size for size in heads if size in tables]
    if both:
        return Fact(max(both), "shape", "rows of the embedding table, and columns of the head")
    # One of as many rows as there are tokens is of their places.
    tables = [size for size in tables if size != sequence]
    if tables:
        return Fact(max(tables), "shape", "rows of the embedding table")
    # What a product reads again is no score of words.
    read = {operation.product[1] for operation in products}
    wide = [size for size in heads if size > _VOCABULARY_TIMES * hidden and size not in read]
    if wide:
        return Fact(max(wide), "shape", "columns of the matrix product after the layers")
    return unknown("no operator looks tokens up in a table of the hidden size, and none leads to a vocabulary")


def times(share: Fact, name: str, degree: Fact, what: str) -> Fact:
    """Return the model's size from a rank's share of it, of so many ranks as the degree of that name says."""
    if share.number is None:
        return share
    if degree.number is None:
        return unknown(f"{share.number} on a rank, and {name} is unknown: {degree.reason}")
    if degree.number == 1:
        return share
    return Fact(
        share.number * degree.number,
        share.evidence,
        f"{share.reason}; {share.number} {what} on each of {name}={degree.number} ranks",
    )
