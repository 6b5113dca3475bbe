"""What names mean: categories to kinds, kernel names to families, the many spellings of collectives and types."""

import re
from typing import Final

from lumos_df.schema import KINDS

_KIND_OF_CATEGORY: Final = {
    "cpu_op": "cpu_op",
    "operator": "cpu_op",
    "kernel": "kernel",
    "concurrent_kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
    "cuda_sync": "sync",
    "user_annotation": "annotation",
    "gpu_user_annotation": "gpu_annotation",
    "python_function": "python",
}
_RUNTIME: Final = re.compile(r"(?:\w+_)?(?:runtime|driver)")
"""cuda_runtime, cuda_driver, hip_runtime, xpu_runtime, `Runtime` of 2021, ..."""


def kind_code(category: str) -> int:
    """Return the place in `schema.KINDS` of a Kineto category; case does not matter."""
    category = category.lower()
    kind = _KIND_OF_CATEGORY.get(category) or ("runtime" if _RUNTIME.fullmatch(category) else "other")
    return KINDS.index(kind)


# The first pattern that a GPU operator's name contains decides, so the order matters: a fused softmax is a softmax
# before it is elementwise, `multi_tensor_apply` an optimizer before its functor is read.
_FAMILIES: Final = tuple(
    (family, re.compile(pattern))
    for family, pattern in (
        ("communication", r"(?i)nccl|rccl|all_?reduce_kernel|cross_device_reduce|oneshot|twoshot|nvshmem|deep_?ep"),
        ("fill", r"^Memset|(?i:fill_?functor|fillkernel|fillbuffer|memset)"),
        ("copy", r"^Memcpy|(?i:copybuffer)"),
        (
            "optimizer",
            r"(?i)multi_tensor_apply|adam|lamb_|sgd_|distributed_fused|l2norm_?functor|unscale_?grads|amp_non_finite|amp_update_scale",
        ),
        ("loss", r"(?i)nll_?loss|NLLCriterion|cross_?entropy|mse_?loss|bce_|ctc_?loss|smooth_l1|loss_kernel|logit"),
        (
            "attention",
            r"(?i)flash|fmha|attention|attn|mha_|mqa_|paged|sdpa|cunn_softmax.*mask|scaled_.*masked_softmax|aotriton",
        ),
        (
            "convolution",
            (
                r"(?i)conv(?!ert)|winograd|dgrad|wgrad|fprop|miopen|im2col|col2im|implicit_gemm|xdlops_(?:fwd|bwd|wrw)"
                r"|igemm_(?:fwd|bwd|wrw)|compute\w?OffsetsKernel|scudnn|cudnn_(?:volta|turing|ampere).*(?:nhwc|nchw)"
            ),
        ),
        (
            "normalization",
            r"(?i)batch_?norm|layer_?norm|rms_?norm|group_?norm|bn_(?:fw|bw)|_norm_|welford|GammaBeta|RowwiseMoments|cuComputeGradInput",
        ),
        ("softmax", r"(?i)softmax"),
        ("embedding", r"(?i)embedding|split_.*(?:_kernel_)?(?:forward|backward)_.*(?:weighted|unweighted)"),
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
    return next((family for family, pattern in _FAMILIES if pattern.search(name)), FAMILY_OTHER)


_COLLECTIVES: Final = tuple(
    (collective, re.compile(pattern))
    for collective, pattern in (
        ("all_reduce", r"all_?reduce"),
        ("all_gather", r"all_?gather"),
        ("reduce_scatter", r"reduce_?scatter"),
        ("all_to_all", r"all_?to_?all"),
        ("send_recv", r"send_?recv"),
        ("broadcast", r"broadcast"),
        ("barrier", r"barrier"),
        ("scatter", r"scatter"),
        ("gather", r"gather"),
        ("reduce", r"reduce"),
        ("send", r"\bi?send|:send"),
        ("recv", r"\bi?recv|:recv"),
    )
)


def collective(name: str) -> str:
    """Return the normalised collective (see `schema.COLLECTIVES`) that a name or NCCL argument speaks of."""
    name = name.lower()
    return next((word for word, pattern in _COLLECTIVES if pattern.search(name)), "unknown")


COMMUNICATION_OPERATOR: Final = re.compile(
    r"record_param_comms|(?:nccl|gloo|ucc|mpi|xccl|rccl):|_?c10d(?:_functional)?::"
)
"""Host operators that are a collective, seen from its name's start."""


def is_communication(name: str) -> bool:
    """Return whether a name is that of a collective, on the host or as a kernel."""
    if COMMUNICATION_OPERATOR.match(name):
        return collective(name) != "unknown"
    return bool(_KERNEL.search(name))


_KERNEL: Final = re.compile(r"(?i)[nr]ccl\w*kernel")

_TYPES: Final = {
    "float32": ("float", "f32", "c10::float"),
    "float64": ("double", "f64"),
    "float16": ("half", "f16", "c10::half", "__half"),
    "bfloat16": ("bfloat16", "bf16", "c10::bfloat16", "__nv_bfloat16"),
    "int64": ("long", "long int", "i64", "int64_t"),
    "uint64": ("uint64", "u64", "unsigned long"),
    "int32": ("int", "i32", "int32_t"),
    "uint32": ("uint32", "u32", "unsigned int"),
    "int16": ("short", "short int"),
    "int8": ("char", "signed char", "i8", "int8_t"),
    "uint8": ("byte", "unsigned char", "u8", "uint8_t"),
    "bool": ("bool",),
    "float8_e4m3fn": ("float8_e4m3fn", "c10::float8_e4m3fn", "f8e4m3"),
    "float8_e5m2": ("float8_e5m2", "c10::float8_e5m2", "f8e5m2"),
    "complex64": ("complexfloat", "c10::complex<float>"),
    "complex128": ("complexdouble", "c10::complex<double>"),
}
_TYPE_OF: Final = {spelling: name for name, spellings in _TYPES.items() for spelling in (name, *spellings)}
_BYTES: Final = {"bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "bfloat16": 2, "complex64": 8, "complex128": 16}


def dtype(name: str) -> str | None:
    """Return torch's name of an element type, however it is spelled; None when it is no known type."""
    return _TYPE_OF.get(name.strip().lower())


def kernel_dtype(name: str) -> str | None:
    """Return the element type in the name of a collective kernel, such as `ncclDevKernel_AllReduce_Sum_f32_RING_LL`."""
    words = re.split(r"[_(<]", name)
    return next((found for word in words if (found := dtype(word))), None)


def dtype_bytes(name: str) -> int:
    """Return the size of one element, bytes; `name` is torch's."""
    return _BYTES.get(name) or int(re.sub(r"\D", "", name)) // 8
