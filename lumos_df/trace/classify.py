"""What names mean: kernel names to families, the many spellings of collectives."""

import re
from typing import Final

from lumos_df.schema.collective_kinds import COLLECTIVE_KINDS, UNKNOWN
from lumos_df.schema.dtypes import ElementType, element_type
from lumos_df.trace.communication_kernels import COMMUNICATION_KERNELS, NO_COMMUNICATION

# The first pattern that a GPU operator's name contains decides, so the order matters: a fused softmax is a softmax
# before it is elementwise, `multi_tensor_apply` an optimizer before its functor is read. A word that has to come after
# another one is looked for once, behind the first of these: a long name has many places to begin at.
_FAMILIES: Final = tuple(
    (family, re.compile(pattern))
    for family, pattern in (
        ("fill", r"^Memset|(?i:fill_?functor|fillkernel|fillbuffer|memset)"),
        ("copy", r"^Memcpy|(?i:copybuffer)"),
        (
            "optimizer",
            r"(?i)multi_tensor_apply|adam|lamb_|sgd_|distributed_fused|l2norm_?functor|unscale_?grads|amp_non_finite|amp_update_scale",
        ),
        ("loss", r"(?i)nll_?loss|NLLCriterion|cross_?entropy|mse_?loss|bce_|ctc_?loss|smooth_l1|loss_kernel|logit"),
        (
            "attention",
            (
                r"(?i)flash|fmha|attention|attn|mha_|mqa_|paged|sdpa|aotriton"
                r"|\A(?>.*?cunn_softmax).*mask|\A(?>.*?scaled_).*masked_softmax"
            ),
        ),
        (
            "convolution",
            (
                r"(?i)conv(?!ert)|winograd|dgrad|wgrad|fprop|miopen|im2col|col2im|implicit_gemm|xdlops_(?:fwd|bwd|wrw)"
                r"|igemm_(?:fwd|bwd|wrw)|compute\w?OffsetsKernel|scudnn"
                r"|\A(?>.*?cudnn_(?:volta|turing|ampere)).*(?:nhwc|nchw)"
            ),
        ),
        (
            "normalization",
            r"(?i)batch_?norm|layer_?norm|rms_?norm|group_?norm|bn_(?:fw|bw)|_norm_|welford|GammaBeta|RowwiseMoments|cuComputeGradInput",
        ),
        ("softmax", r"(?i)softmax"),
        ("embedding", r"(?i)embedding|\A(?>.*?split_)(?>.*?(?:forward|backward)_).*(?:weighted|unweighted)"),
        (
            "gemm",
            (
                r"(?i)gemm|cutlass|cublas|matmul|_mm_|splitk|nvjet|Cijk_|wgmma|s\d{3,5}(?:cudnn|fprop)|gemv|dot_kernel"
                r"|bmm|sm\d{2,3}_xmma|addmm"
            ),
        ),
        ("random", r"(?i)dropout|philox|distribution_|random|bernoulli|curand"),
        ("sort", r"(?i)sort|topk|radix|bitonic|unique|DeviceSelect|merge_path"),
        ("index", r"(?i)index|gather|scatter|nonzero|masked_(?:select|fill)|take_|DeviceScan|jagged|permute_"),
        ("reduction", r"(?i)reduce|segmented|norm_kernel|cumsum|_sum_|argmax|argmin|max_pool|avg_pool|pool"),
        ("copy", r"(?i)copy|catarray|transpose|nchwToNhwc|nhwcToNchw|tensor_?transform|cast_?kernel|pack|im2row"),
        ("fused", r"(?i)^triton|fused|_poi_|_red_|_per_fused"),
        (
            "elementwise",
            r"(?i)elementwise|pointwise|functor|triu|tril|SubTensorOp|relu|gelu|silu|swiglu|sigmoid|tanh|OpTensor|addcmul|_kernel_impl",
        ),
    )
)
FAMILY_OTHER: Final = "other"


def family(name: str) -> str:
    """Return the family (see `schema.FAMILIES`) of a GPU operator's name."""
    if kernel_collective(name) is not None:
        return "communication"
    return next((family for family, pattern in _FAMILIES if pattern.search(name)), FAMILY_OTHER)


_COLLECTIVES: Final = tuple((kind.word, re.compile(kind.pattern)) for kind in COLLECTIVE_KINDS)


def collective(name: str) -> str:
    """Return the normalised collective (one of `schema.COLLECTIVES`) that a name or NCCL argument speaks of."""
    return kernel_collective(name) or _collective_by_word(name)


_KERNELS: Final = tuple((re.compile(kernels.pattern), kernels.collective) for kernels in COMMUNICATION_KERNELS)
_NO_COMMUNICATION: Final = re.compile(NO_COMMUNICATION)


def kernel_collective(name: str) -> str | None:
    """Return the normalised collective of a kernel that communicates, by its name; None for any other kernel."""
    if _NO_COMMUNICATION.match(name):
        return None
    return next((word or _collective_by_word(name) for pattern, word in _KERNELS if pattern.search(name)), None)


def _collective_by_word(name: str) -> str:
    name = name.lower()
    return next((word for word, pattern in _COLLECTIVES if pattern.search(name)), UNKNOWN)


COMMUNICATION_OPERATOR: Final = re.compile(
    r"record_param_comms|(?:nccl|gloo|ucc|mpi|xccl|rccl):|_?c10d(?:_functional)?::"
)
"""Host operators that are a collective, seen from its name's start."""


def is_collective_operator(name: str) -> bool:
    """Return whether a name is that of a host operator that says which collective it is."""
    return bool(COMMUNICATION_OPERATOR.match(name)) and collective(name) != UNKNOWN


def kernel_dtype(name: str) -> ElementType | None:
    """Return the element type in the name of a collective kernel, such as `ncclDevKernel_AllReduce_Sum_f32_RING_LL`."""
    return next((kind for word in re.split(r"[_(<]", name) if (kind := element_type(word))), None)
