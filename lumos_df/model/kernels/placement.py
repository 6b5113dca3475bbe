"""Where a plan puts things: the ranks of a group, and the layers of a pipeline's chunk."""

from lumos_df.base.jit import lean_kernel
from lumos_df.schema.plan_words import CP, DP, EP, SHARD_NOTHING, TP


@lean_kernel
def group_stride(plan, dimension):
    """Return the distance between neighbouring ranks of a group of TP, CP, DP or PP.

    Experts aside, EP is no dimension of its own: its ranks are those of dp, cp and tp. `plan` is a PLAN_ROW.
    """
    return _stride(plan.placement, dimension, plan.tp, plan.cp, 1, plan.dp, plan.pp)


@lean_kernel
def expert_group_stride(plan, dimension):
    """Return the distance between neighbouring ranks of an expert's group: TP stands for etp, DP for copies of experts.

    The ranks of a stage are numbered anew for experts, as in Megatron: etp in the place of tp, no cp, then ep and the
    copies of the experts, of which there are tp * cp * dp / (etp * ep).
    """
    copies = plan.tp * plan.cp * plan.dp // (plan.etp * plan.ep)
    return _stride(plan.placement, dimension, plan.etp, 1, plan.ep, copies, plan.pp)


@lean_kernel
def expert_copies(plan):
    """Return how many ranks hold the same experts."""
    return max(plan.tp * plan.cp * plan.dp // (plan.etp * plan.ep), 1)


@lean_kernel
def shard_ranks(plan, copies):
    """Return how many of the ranks that would hold the same parameters share them: those of a group of neighbours.

    Of `copies` ranks `dp_replicate` groups are made (HSDP), as far as there are so many; 1 where nothing is sharded.
    """
    return 1 if plan.zero == SHARD_NOTHING else max(copies // plan.dp_replicate, 1)


@lean_kernel
def members_per_domain(size, stride, gpus):
    """Return how many ranks of a group lie in one domain of fast links.

    Args:
        size: ranks of the group.
        stride: distance between neighbours of it.
        gpus: ranks of a domain.
    """
    return max(1, min(size, gpus // stride))


@lean_kernel
def chunk_layers(layers, chunks, chunk):
    """Return the layers of a chunk, counted along the model; stage s has the chunks s, s + pp, s + 2 pp and so on.

    Layers that do not divide: as even as can be, and the chunks with one layer more begin with the second. So the first
    chunk, which has the embedding, and the last, which has the logits, have a layer less where two are missing, as with
    Megatron's account for them in the split (Llama 3.1 405B: 126 layers in 16 or 64 chunks).
    """
    return layers // chunks + (1 <= chunk <= layers % chunks)


@lean_kernel
def _stride(placement, dimension, tp, cp, ep, dp, pp):
    stride = 1
    while placement & 7 != dimension:
        digit = placement & 7
        if digit == TP:
            stride *= tp
        elif digit == CP:
            stride *= cp
        elif digit == EP:
            stride *= ep
        elif digit == DP:
            stride *= dp
        else:
            stride *= pp
        placement >>= 3
    return stride
