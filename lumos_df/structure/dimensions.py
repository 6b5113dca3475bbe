"""A transformer's dimensions from the shapes of its operators; of any other model the batch.

What a rank computes is its share of the tensor-parallel group: heads, FFN and vocabulary are the rank's times the
degree.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from lumos_df.schema import EVIDENCE
from lumos_df.structure.facts import Fact, unknown
from lumos_df.structure.layers import Structure
from lumos_df.structure.shapes import Operation, Shape, most

_NO_SHAPES: Final = "the trace records no shapes: profile with record_shapes=True"
_TYPES: Final = {
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "float": "float32",
    "double": "float64",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
}


@dataclass(frozen=True, slots=True)
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


def local(structure: Structure, operations: list[Operation]) -> Local:
    """Return what the forward operators of one rank say."""
    products = [one for one in operations if one.is_product()]
    dtype = _dtype(products)
    if not products:
        why = _NO_SHAPES if not operations else "no forward operator is a matrix product with recorded shapes"
        none = unknown(why)
        batch = _leading(structure, operations, why)
        return Local(none, none, none, none, none, none, batch, none, dtype, None, None)
    if structure.kind != "transformer":
        none = unknown(f"the model is no transformer ({structure.kind})")
        batch = _leading(structure, operations, _NO_SHAPES)
        return Local(none, none, none, none, none, none, batch, none, dtype, None, None)
    inner = [one for one in products if one.inside] or products
    hidden = _hidden(inner, operations)
    tokens = most(Counter({one.product[0]: one.count for one in inner if hidden in one.product[1:]}))
    attention = _attention(operations)
    sequence, batch = _sequence(operations, hidden, tokens, attention)
    heads, kv_heads, width = _heads(attention, sequence.number, batch.number)
    projection = _projection(inner, hidden, heads.number, width.number)
    return Local(
        Fact(hidden, "shape", "the dimension that most matrix products of a layer share"),
        heads,
        kv_heads,
        width,
        _ffn(inner, hidden, projection),
        sequence,
        batch,
        _vocabulary(operations, products, hidden, sequence.number),
        dtype,
        projection,
        hidden * tokens if tokens else None,
    )


def _leading(structure: Structure, operations: list[Operation], why: str) -> Fact:
    """Return the batch of a model that is no transformer: the commonest leading dimension of its main operators."""
    convolutions = Counter[int]()
    products = Counter[int]()
    for one in operations:
        if one.is_convolution() and one.tensor:
            convolutions[one.tensor[0]] += one.count
        elif one.is_product():
            products[one.product[0]] += one.count
    both = (convolutions, products) if structure.kind == "convolutional" else (products, convolutions)
    batch = next((found for found in map(most, both) if found is not None), None)
    if batch is None:
        return unknown(why)
    return Fact(batch, "shape", "the commonest leading dimension of convolutions and matrix products")


def _dtype(products: list[Operation]) -> Fact:
    kinds = Counter[str]()
    for one in products:
        tensors = [kind for kind, shape in zip(one.types, one.shapes, strict=False) if shape is not None]
        kinds[_TYPES.get(tensors[-1], "") if tensors else ""] += one.count
    del kinds[""]
    if not kinds:
        return unknown("no matrix product records the type of its inputs")
    return Fact(kinds.most_common(1)[0][0], "shape", "the type of most matrix products' inputs")


def _hidden(inner: list[Operation], operations: list[Operation]) -> int:
    shared: Counter[int] = Counter()
    for one in inner:
        for size in set(one.product[1:]):
            shared[size] += one.count
    norms = {one.tensor[-1] for one in operations if one.is_norm() and one.inside and one.tensor}
    likely = Counter({size: count for size, count in shared.items() if size in norms}) or shared
    return max(likely, key=lambda size: (likely[size], size))


def _attention(operations: list[Operation]) -> Operation | None:
    """Return the layers' fused attention, else the product of its scores with the values."""
    inside = [one for one in operations if one.inside]
    for kind in (Operation.is_attention, Operation.is_batched):
        found = [one for one in inside if kind(one)]
        if found:
            return max(found, key=lambda one: (one.count, -one.first))
    return None


def _sequence(
    operations: list[Operation], hidden: int, tokens: int | None, attention: Operation | None
) -> tuple[Fact, Fact]:
    """Return sequence and micro-batch: an activation is (sequence, batch, hidden) or (batch, sequence, hidden)."""
    pairs = Counter[Shape]()
    for one in operations:
        shape = one.tensor
        if one.inside and shape and len(shape) == 3 and shape[-1] == hidden and shape[0] * shape[1] == (tokens or -1):
            pairs[shape[:2]] += one.count
    if not pairs:
        none = unknown("no operator of a layer reads an activation of three dimensions")
        return none, none
    left, right = max(pairs, key=lambda pair: (pairs[pair], pair))
    how = f"an activation of ({left}, {right}, {hidden})"
    if left == right:
        return Fact(left, "shape", how), Fact(right, "shape", how)
    how += ", told apart by attention"
    batch = None
    if attention is not None and attention.is_attention():
        first = attention.operands[0][0]
        batch = first if first in {left, right} else None
    elif attention is not None:
        sizes = {size for shape in attention.operands for size in shape[1:]}
        if (left in sizes) != (right in sizes):
            batch = right if left in sizes else left
    if batch is None:
        none = unknown(f"{left} and {right} are sequence and micro-batch, and no attention tells which is which")
        return none, none
    return Fact(right if batch == left else left, "shape", how), Fact(batch, "shape", how)


def _heads(attention: Operation | None, sequence: int | None, batch: int | None) -> tuple[Fact, Fact, Fact]:
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
    many = attention.operands[0][0]
    if many % batch:
        none = unknown(f"{many} products at once are no multiple of micro-batch {batch}")
        return none, none, none
    widths = [size for shape in attention.operands for size in shape[1:] if size != sequence]
    width = Fact(widths[-1], "shape", how) if widths else unknown(f"{how} are all the sequence")
    heads = Fact(many // batch, "shape", how)
    return heads, Fact(heads.value, "shape", f"{how}: as many as heads, once expanded"), width


def _projection(inner: list[Operation], hidden: int, heads: int | None, width: int | None) -> int | None:
    if heads is None or width is None:
        return None
    wanted = heads * width
    return wanted if any(one.product[1:] == (wanted, hidden) for one in inner) else None


def _ffn(inner: list[Operation], hidden: int, projection: int | None) -> Fact:
    back = [one for one in inner if one.product[2] == hidden]
    ordered = sorted(back, key=lambda one: one.first)
    # Attention comes first in a layer, so the last product back to the hidden size is the FFN's.
    down = [one for one in ordered if one.product[1] != projection] or ordered[1:]
    if not down:
        return unknown("no matrix product of a layer leads from another size back to the hidden one")
    return Fact(down[-1].product[1], "shape", "the inner size of a layer's last matrix product")


def _vocabulary(operations: list[Operation], products: list[Operation], hidden: int, sequence: int | None) -> Fact:
    tables = [one.tensor[0] for one in operations if one.is_lookup() and one.tensor and one.tensor[1] == hidden]
    heads = [one.product[2] for one in products if one.product[1] == hidden and one.count and not one.inside]
    both = [size for size in heads if size in tables]
    if both:
        return Fact(max(both), "shape", "rows of the embedding table, and columns of the head")
    tables = [size for size in tables if size != sequence] or tables
    if tables:
        return Fact(max(tables), "shape", "rows of the embedding table")
    wide = [size for size in heads if size > 4 * hidden]
    if wide:
        return Fact(max(wide), "shape", "columns of the matrix product after the layers")
    return unknown("no operator looks tokens up in a table of the hidden size, and none leads to a vocabulary")


def layers(structure: Structure) -> Fact:
    """Return the layers of a rank."""
    if structure.layers:
        how = {
            "module": "layers that modules or annotations number",
            "repetition": f"a block of {len(structure.forward.block)} kernels repeats",
        }
        evidence = EVIDENCE[structure.layers_evidence]
        return Fact(structure.layers, evidence, how[evidence])
    if structure.kind in {"convolutional", "recommender"}:
        return unknown(f"the model is no transformer ({structure.kind})")
    if structure.kind == "none":
        return unknown("no kernel runs on a GPU, and no module or annotation numbers a layer")
    return unknown("no block with attention repeats in the forward pass, and no module or annotation numbers a layer")


def times(share: Fact, degree: Fact, what: str) -> Fact:
    """Return the model's size from a rank's share of it."""
    if share.number is None:
        return share
    if degree.number is None:
        return unknown(f"{share.number} on a rank, and the tensor-parallel degree is unknown: {degree.reason}")
    if degree.number == 1:
        return share
    return Fact(
        share.number * degree.number,
        share.evidence,
        f"{share.reason}; {share.number} {what} on each of tp={degree.number} ranks",
    )


def kind(structure: Structure) -> Fact:
    """Return what kind of model it is."""
    how = {
        "transformer": "attention is part of the work",
        "convolutional": "more kernels convolve than multiply matrices",
        "recommender": "embedding tables and no attention",
        "other": "matrix products without attention",
    }
    if structure.kind == "none":
        return unknown("nothing in the trace multiplies matrices")
    if structure.kind == "transformer" and structure.forward.layers:
        return Fact("transformer", "repetition", "attention is part of the block that repeats")
    return Fact(structure.kind, "name", how[structure.kind])


def micro_batches(structure: Structure) -> Fact:
    """Return how many micro-batches a step has."""
    if not structure.micro_batches:
        return unknown("no pass of a micro-batch is told apart")
    known = structure.micro_batch_evidence[structure.micro_batch >= 0]
    evidence = EVIDENCE[int(np.bincount(known).argmax())]
    how = "passes through the layers in a step" if structure.forward.layers else "turns from backward to forward"
    return Fact(structure.micro_batches, evidence, f"{how} in a step")
