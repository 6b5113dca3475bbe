"""Which kernels communicate, by their names: a row for each library, with where its names are read."""

from dataclasses import dataclass
from typing import Final

from lumos_df.schema.collective_kinds import UNKNOWN


@dataclass(frozen=True, slots=True)
class CommunicationKernels:
    """Kernels of one library that communicate."""

    library: str
    pattern: str
    """Regular expression that their names contain."""
    source: str
    """Where the names stand."""
    collective: str = ""
    """Which collective they are, one of `schema.COLLECTIVES`; empty: the one whose word the name contains."""


# A name ends where template arguments or parameters begin: those say what a kernel works on.
_OWN_NAME: Final = r"^(?:[^<(]|\(anonymous namespace\)|<unnamed>)*"
_ALL: Final = r"(?:(?<![A-Za-z])all|All|ALL)"  # not `smallGather`
_DEEP_EP_NAMESPACE: Final = r"(?<![\w:])(?>[\w:]*?(?:deep_ep|dpsk::ep|hybrid_ep)::)"
_DEEP_EP: Final = "deepseek-ai/DeepEP csrc/kernels, csrc/hybrid_ep; deepseek-ai/profile-data issue 19"
_USERBUFFERS: Final = "NVIDIA/TransformerEngine transformer_engine/common/comm_gemm_overlap/userbuffers/userbuffers.cu"
_SYMMETRIC_MEMORY: Final = "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem"
_NVSHMEM: Final = (
    "NVIDIA/nvshmem src/include/internal/non_abi/nvshmemi_h_to_d_coll_defs.cuh, nvshmemi_h_to_d_rma_defs.cuh"
)

NO_COMMUNICATION: Final = r"^triton_\w*?fused"
"""Kernels that TorchInductor makes are called by the operators around them, `triton_poi_fused_add_all_reduce_0`: what
they compute goes into a collective or comes out of it."""

COMMUNICATION_KERNELS: Final = (
    CommunicationKernels(
        "NCCL EP", r"\b(?>\w*?nccl_ep_jit_)\w*(?:dispatch|combine)", "NVIDIA/nccl contrib/nccl_ep/device/jit",
        "all_to_all",
    ),
    CommunicationKernels(
        "DeepEP", _DEEP_EP_NAMESPACE + r"(?:\w+::)*(?:hybrid_)?(?:dispatch|combine)(?:_ll|_kernel|_impl)?\b",
        _DEEP_EP, "all_to_all",
    ),
    CommunicationKernels("DeepEP", r"(?i)deep_?ep(?!ilogue)|dpsk::ep|hybrid_?ep(?!ilogue)", _DEEP_EP),
    CommunicationKernels("NCCL, RCCL", r"(?i)nccl|rccl", "NVIDIA/nccl src/device; ROCm/rccl src/device"),
    CommunicationKernels("MSCCL, MSCCL++", r"(?i)msccl", "ROCm/rccl src/device/msccl_kernel_impl.h; microsoft/mscclpp"),
    CommunicationKernels(
        # To one rank, or by each rank to itself.
        "symmetric memory", r"multimem_one_shot_reduce_kernel", _SYMMETRIC_MEMORY, UNKNOWN
    ),
    CommunicationKernels(
        # The fourth argument of the template turns it into a reduce-scatter.
        "symmetric memory", r"\A(?>.*?two_shot_all_reduce_kernel<)(?:[^,>]+,){3} ?(?:true|\(bool\)1)",
        _SYMMETRIC_MEMORY, "reduce_scatter",
    ),
    CommunicationKernels("symmetric memory", r"exchangeSplitAndOffset", _SYMMETRIC_MEMORY, "all_to_all"),
    CommunicationKernels(
        "symmetric memory",
        r"multimem|symm_mem|(?:put|wait)_signal_kernel|\bbarrier_kernel\(unsigned int\*\*", _SYMMETRIC_MEMORY,
    ),
    CommunicationKernels("NVSHMEM", r"\brdxn_\w*on_stream_kernel", _NVSHMEM, "all_reduce"),
    CommunicationKernels("NVSHMEM", r"\bfcollect\w*_on_stream_kernel", _NVSHMEM, "all_gather"),
    CommunicationKernels("NVSHMEM", r"(?i)nvshmem|\b(?:barrier|sync|alltoall|broadcast)\w*_on_stream_kernel", _NVSHMEM),
    CommunicationKernels(
        "vLLM, SGLang, AITER", r"cross_device_reduce_[12]stage",
        "vllm-project/vllm csrc/custom_all_reduce.cuh; sgl-project/sglang; ROCm/aiter", "all_reduce",
    ),
    CommunicationKernels(
        "user buffers", r"\b(?>\w*?userbuffers_fp16_sum_inplace_gpu_)\w*_ag", _USERBUFFERS, "all_gather"
    ),
    CommunicationKernels(
        "user buffers", r"\b(?>\w*?userbuffers_fp16_sum_inplace_gpu_)\w*_rs", _USERBUFFERS, "reduce_scatter"
    ),
    CommunicationKernels("user buffers", r"userbuffers_fp16_sum_inplace_gpu", _USERBUFFERS, "all_reduce"),
    CommunicationKernels("user buffers", r"kuserbuffers_(?:push|pull)send(?!recv)", _USERBUFFERS, "send"),
    CommunicationKernels("user buffers", r"kuserbuffers_(?:push|pull)recv", _USERBUFFERS, "recv"),
    CommunicationKernels("user buffers", r"userbuffers", _USERBUFFERS),
    CommunicationKernels(
        "TensorRT-LLM", r"moeA2A(?:Dispatch|Combine)Kernel",
        "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/communicationKernels/moeAlltoAllKernels.cu", "all_to_all",
    ),
    CommunicationKernels(
        "MORI", r"\bEp(?:Dispatch|Combine)\w*Kernel", "ROCm/mori src/ops/dispatch_combine", "all_to_all"
    ),
    CommunicationKernels("UCC", r"\bucc_", "openucx/ucc src/components/ec/cuda/kernel, src/components/tl/cuda/kernels"),
    CommunicationKernels(
        "any that is called by its collective",
        _OWN_NAME + rf"(?:{_ALL}_?(?:[Rr]educe|[Gg]ather|[Tt]o_?[Aa]ll)|[Rr]educe_?[Ss]catter|[Ss]end_?[Rr]ecv)",
        "all-reduces of NVIDIA/TensorRT-LLM and flashinfer-ai/flashinfer (`allreduce_fusion_kernel_oneshot_lamport`, "
        "`twoshotAllreduceKernel`), vLLM's `quickreduce::allreduce_prototype_twoshot`, PyTorch's "
        "`one_shot_all_reduce_kernel` and `allToAllV`; Triton's `_mxfp8_all_to_all_expert_major_kernel` and "
        "`_combine_all_to_all_kernel` in a trace of AMD-AGI/TraceLens 171dd747",
    ),
)  # fmt: skip
"""The first row whose pattern a name contains says what the kernel is."""
