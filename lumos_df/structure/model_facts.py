"""What kind of model a rank ran, its layers and its micro-batches: what its structure says, without shapes."""

import numpy as np

from lumos_df.schema import EVIDENCE
from lumos_df.structure.facts import Fact, by_count, unknown
from lumos_df.structure.layers import Structure


def layers(structure: Structure) -> Fact:
    """Return the layers of a rank."""
    what = "kernels" if structure.on_gpu else "operators"
    if structure.layers:
        each = f", as another does in each of {structure.stacks} stacks" if structure.stacks > 1 else ""
        how = {
            "module": "layers that modules or annotations number",
            "repetition": f"a block of {len(structure.forward.block)} {what} repeats{each}",
        }
        evidence = EVIDENCE[structure.layers_evidence]
        return Fact(structure.layers, evidence, how[evidence], by_count(structure.layers_readings))
    if structure.kind == "none":
        return unknown("nothing in the trace multiplies matrices, and no module or annotation numbers a layer")
    if structure.kind == "transformer":
        return unknown(f"no block of {what} repeats in the forward pass, and no module or annotation numbers a layer")
    number, stacks = structure.unlike
    stages = f"; --known layers={number} takes as layers what repeats in each of {stacks} stages" if number else ""
    return unknown(
        f"the model is no transformer ({structure.kind}), and no block of {what} that are alike in their shapes "
        f"repeats through most of the forward pass of a step{stages}"
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
    how = "passes through the layers" if structure.forward.layers else "turns from backward to forward"
    return Fact(structure.micro_batches, evidence, f"{how} in a step")
