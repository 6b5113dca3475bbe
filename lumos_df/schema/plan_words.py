"""What a plan can be: the words of its fields, and the codes that records and kernels hold for them."""

from typing import Final

RECOMPUTATIONS: Final = ("none", "selective", "full", "light", "products")
"""What the backward pass computes again: nothing, attention's core, the whole layer, what is had for little (norms,
activations and MLA's projections out of its compressed vectors: DeepSeek-V3, arXiv 2412.19437), or all of a layer but
attention and every second matrix product (torchtitan's selective recomputation of operators)."""

RECOMPUTE_NOTHING, RECOMPUTE_ATTENTION, RECOMPUTE_LAYERS, RECOMPUTE_LIGHT, RECOMPUTE_PRODUCTS = range(
    len(RECOMPUTATIONS)
)
"""`recompute`, by RECOMPUTATIONS."""

SCHEDULES: Final = ("1f1b", "interleaved", "zb-h1", "dualpipe", "gpipe", "fsdp")
"""Order of micro-batches in a pipeline; `fsdp`: no pipeline, parameters gathered where they are needed."""

ONE_F_ONE_B, INTERLEAVED, ZB_H1, DUALPIPE, GPIPE, FSDP = range(len(SCHEDULES))
"""`schedule`, by SCHEDULES."""

LORA_TARGETS: Final = ("attention", "all")
"""What adapters are beside: attention's projections, or feed-forward products, those of experts too, as well."""

LORA_ATTENTION, LORA_ALL = range(len(LORA_TARGETS))
"""`lora_targets`, by LORA_TARGETS."""

ZERO_STAGES: Final = ("nothing", "optimizer", "gradients", "parameters")
"""What data-parallel ranks share out, each stage what the ones before it do, too."""

SHARD_NOTHING, SHARD_OPTIMIZER, SHARD_GRADIENTS, SHARD_PARAMETERS = range(len(ZERO_STAGES))
"""`zero`, by ZERO_STAGES."""

ATTENTION_KERNELS: Final = ("best", "flash2", "triton")
"""Kernels of fused attention: the best that a GPU has (cuDNN's, FlashAttention-3), FlashAttention-2, the Triton one of
before that."""

BEST_ATTENTION, FLASH2, TRITON = range(len(ATTENTION_KERNELS))
"""`attention` of a software, by ATTENTION_KERNELS."""

DIMENSIONS: Final = ("tp", "cp", "ep", "dp", "pp")
"""What ranks are numbered by, innermost first unless a plan says otherwise."""

GROUPS: Final = (*DIMENSIONS, "etp")
"""Groups of ranks: one a dimension, and the tensor-parallel ranks of an expert."""

TP, CP, EP, DP, PP, ETP = range(len(GROUPS))
"""Groups, by GROUPS; the first five are digits of `placement`, too."""
