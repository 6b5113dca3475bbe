"""What names and arguments of GPU rows mean: families and collectives."""

import time
from pathlib import Path
from typing import Any

import pytest

from lumos_df.schema.collective_kinds import COLLECTIVES
from lumos_df.trace import classify
from lumos_df.trace.communication_kernels import COMMUNICATION_KERNELS
from tests.trace.literal import Event, column, kernel, launch, op, operators, stated, x

# --- families


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long)", "communication"),
        ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nt", "gemm"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "gemm"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT", "gemm"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT128x128x32", "gemm"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128>", "gemm"),
        ("void gemv2T_kernel_val<int, int, float>", "gemm"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64>>(Flash_fwd_params)", "attention"),
        ("void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<>", "attention"),
        ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "attention"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>", "normalization"),
        ("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float>", "normalization"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512>", "normalization"),
        ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>", "softmax"),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>", "softmax"),
        ("void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>", "loss"),
        ("void at::native::(anonymous namespace)::embedding_backward_feature_kernel<c10::BFloat16>", "embedding"),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float, float, int>>", "optimizer"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimizer"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "elementwise"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>", "fill"),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>",
            "reduction",
        ),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64>", "copy"),
        ("void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>", "copy"),
        ("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>", "copy"),
        ("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>", "index"),
        ("void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long>", "index"),
        ("void cub::DeviceRadixSortOnesweepKernel<>", "sort"),
        ("void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float>", "random"),
        ("void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<>", "random"),
        ("triton_poi_fused_add_mul_0", "fused"),
        ("cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>", "copy"),
        ("ampere_scudnn_128x64_relu_xregs_large_nn_v1", "convolution"),
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>", "convolution"),
        ("void at::native::(anonymous namespace)::max_pool_forward_nchw<float>", "reduction"),
        ("Memcpy DtoH (Device -> Pinned)", "copy"),
        ("Memset (Device)", "fill"),
        ("__amd_rocclr_copyBuffer", "copy"),
        ("__amd_rocclr_fillBufferAligned", "fill"),
        ("my_kernel", "other"),
    ],
)
def test_families(name: str, family: str) -> None:
    assert classify.family(name) == family


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("rccl_main_kernel(ncclDevComm*, unsigned long, ncclWork*)", "unknown"),
        ("ncclSymkDevKernel_ReduceScatter_RailA2A_LsaLD_sum_bf16(ncclSymkDevWorkArgs4K)", "reduce_scatter"),
        ("mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)", "unknown"),
        ("void mscclpp::collective::allreducePacket<__half>(__half*, __half*)", "all_reduce"),
        ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)", "all_to_all"),
        ("void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(__nv_bfloat16*)", "all_to_all"),
        ("void deep_ep::internode_ll::dispatch<true, false, 7168>(void*, void*)", "all_to_all"),
        ("void dpsk::ep::internode::combine_ll<7168>(void*)", "all_to_all"),
        ("void deep_ep::intranode::notify_dispatch<8>(int const*, int*)", "unknown"),
        ("void deep_ep::intranode::barrier<8>(int**, int)", "barrier"),
        ("void hybrid_ep::dispatch_kernel<unsigned short>(hybrid_ep::dispatch_kernel_param_t)", "all_to_all"),
        ("hybrid_ep::device_sync_kernel(unsigned int*, unsigned int*)", "unknown"),
        ("nccl_ep_jit_ht_dispatch_kernel(hybrid_ep::dispatch_kernel_param_t<unsigned short, 8>)", "all_to_all"),
        ("nvshmemi_proxy_rma_entrypoint(void*, void*, rma_bytesdesc, int)", "unknown"),
        ("void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)", "barrier"),
        ("void rdxn_on_stream_kernel<float, (rdxn_ops)4>(int, float*, float const*, unsigned long)", "all_reduce"),
        ("void fcollect_on_stream_kernel<char>(int, char*, char const*, unsigned long)", "all_gather"),
        ("void alltoall_on_stream_kernel<char>(int, char*, char const*, unsigned long)", "all_to_all"),
        ("void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16**)", "all_reduce"),
        (
            "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(c10::BFloat16**)",
            "all_reduce",
        ),
        (
            "void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16, 8, false, false>(int)",
            "all_reduce",
        ),
        (
            "void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16, 8, true, false>(int)",
            "reduce_scatter",
        ),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<float, 16>(float*)", "all_reduce"),
        ("void (anonymous namespace)::multimem_all_gather_kernel<16>(char*, char*)", "all_gather"),
        ("void (anonymous namespace)::multimem_one_shot_reduce_kernel<float, 16>(float*)", "unknown"),
        ("c10d::symmetric_memory::put_signal_kernel(unsigned int**, int, int, int, int)", "unknown"),
        ("c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int)", "barrier"),
        ("c10d::nvshmem_extension::exchangeSplitAndOffset(long*, int, int)", "all_to_all"),
        ("c10d::symmetric_memory::allToAllV(void*, void*, long*)", "all_to_all"),
        ("_mxfp8_all_to_all_expert_major_kernel", "all_to_all"),
        ("_combine_all_to_all_kernel", "all_to_all"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)", "all_reduce"),
        ("void aiter::cross_device_reduce_2stage<__hip_bfloat16, 8>(aiter::RankData*)", "all_reduce"),
        ("void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half>, __half>(int)", "all_reduce"),
        ("void userbuffers_fp16_sum_inplace_gpu_rw_ag<2>(int, int, int)", "all_gather"),
        ("void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int, int)", "reduce_scatter"),
        ("void userbuffers_fp16_sum_inplace_gpu_mc<8>(int, int, int)", "all_reduce"),
        ("kuserbuffers_pullsend(int, int, int*, int*)", "send"),
        ("kuserbuffers_pushrecv(int, int, int, int*)", "recv"),
        ("kuserbuffers_pushsendrecv(int*, int*, int4*, int4*)", "send_recv"),
        ("moeA2ADispatchKernel(int const*, DispatchKernelPointers)", "all_to_all"),
        ("void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8, true>(AllReduceParams)", "all_reduce"),
        (
            "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<(unsigned char)8, __nv_bfloat16>()",
            "all_reduce",
        ),
        (
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<float, 8>(int)",
            "all_reduce",
        ),
        ("EpDispatchIntraNodeKernel_bf16", "all_to_all"),
        ("void executor_kernel<true>(ucc_ec_cuda_executor volatile*, int)", "unknown"),
    ],
)
def test_kernels_that_communicate_and_which_collective_their_name_tells(name: str, collective: str) -> None:
    assert classify.family(name) == "communication"
    assert classify.kernel_collective(name) == collective


@pytest.mark.parametrize(
    "name",
    [
        "_precompute_combine_offsets_kernel",
        "triton_poi_fused_add_all_reduce_0",
        "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long)",
        "smallGatherKernel(float*)",
        "void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*>::Policy600>(long*)",
        "void moe::dispatch_tokens<8>(int const*)",
        "void combine_kernel<deep_epilogue>(float*)",
        "void at::native::elementwise_kernel<128, all_reduce_of_one_gpu>(int)",
    ],
)
def test_kernels_that_only_sound_as_if_they_communicated(name: str) -> None:
    assert classify.family(name) != "communication"
    assert classify.kernel_collective(name) is None


@pytest.mark.parametrize(
    "word",
    [
        "cunn_softmax",
        "scaled_",
        "cudnn_volta",
        "split_forward_",
        "nccl_ep_jit_",
        "userbuffers_fp16_sum_inplace_gpu_",
        "deep_ep::",
        "two_shot_all_reduce_kernel<",
        "elementwise_kernel<",
    ],
)
def test_a_name_four_times_as_long_takes_about_four_times_as_long(word: str) -> None:
    def least_s(times: int) -> float:
        name, took = word * times, []
        for _ in range(3):
            begin = time.process_time()
            classify.family(name)
            took.append(time.process_time() - begin)
        return min(took)

    assert least_s(1600) < 8 * least_s(400)


def test_every_row_of_the_table_names_a_collective_that_is_known() -> None:
    assert {kernels.collective for kernels in COMMUNICATION_KERNELS} <= {"", *COLLECTIVES}


def test_only_gpu_rows_have_a_family_and_nccl_arguments_make_it_communication(tmp_path: Path) -> None:
    found = operators(
        tmp_path,
        [
            op("gemm on the host", 1, 2),
            kernel("a gemm", 5, 2),
            kernel("nobody knows", 8, 2, Collective_name="allreduce", dtype="Float"),
            x("Memset (Device)", "gpu_memset", 11, 1, 7, stream=7, device=0),
        ],
    )
    assert column(found, "family") == {
        "gemm on the host": None,
        "a gemm": "gemm",
        "nobody knows": "communication",
        "Memset (Device)": "fill",
    }


# --- collectives

FIELDS = ("collective", "group", "group_size", "seq", "seq_evidence", "dtype", "in_bytes", "out_bytes")


def collective_fields(folder: Path, events: list[Event]) -> dict[str, tuple[Any, ...]]:
    return {row["name"]: tuple(row[name] for name in FIELDS) for row in operators(folder, events)}


def test_collectives_from_nccl_arguments(tmp_path: Path) -> None:
    found = collective_fields(
        tmp_path,
        [
            kernel("ncclA", 1, 2, **stated("_allgather_base", 10, 80, Seq=4)),
            kernel("ncclB", 5, 2, **stated("_reduce_scatter_base", 80, 10, Seq=5)),
            kernel("ncclC", 9, 2, **stated("allreduce", 10, 10, dtype="Float")),
            kernel("ncclD", 13, 2, **stated("all_to_allv", 10, 12, dtype="Long", Process_Group_Name="9")),
            kernel("ncclE", 17, 2, **stated("send", 10, 10, dtype="Byte")),
        ],
    )
    assert found == {
        "ncclA": ("all_gather", "3", 8, 4, "recorded", "bfloat16", 20, 160),
        "ncclB": ("reduce_scatter", "3", 8, 5, "recorded", "bfloat16", 160, 20),
        "ncclC": ("all_reduce", "3", 8, 2, "inferred", "float32", 40, 40),
        "ncclD": ("all_to_all", "9", 8, 0, "inferred", "int64", 80, 96),
        "ncclE": ("send", "3", 8, 3, "inferred", "uint8", 10, 10),
    }


def around(name: str, dims: list[Any], types: list[str], kernel_name: str, **comms: Any) -> list[Event]:
    """Return a kernel launched inside `name`, inside `record_param_comms` with the arguments `comms`."""
    return [
        op("record_param_comms", 1, 10, **comms),
        op(name, 2, 8, Input_Dims=dims, Input_type=types),
        launch(4, 2, correlation=1),
        kernel(kernel_name, 20, 5, correlation=1),
    ]


@pytest.mark.parametrize(
    ("name", "dims", "expected"),
    [
        ("nccl:all_reduce", [[4, 8]], ("all_reduce", None, None, 0, "inferred", "float32", 128, 128)),
        ("nccl:_all_gather_base", [[4, 8]], ("all_gather", None, None, 0, "inferred", "float32", 128, None)),
        ("nccl:reduce_scatter", [[[4], [8], []]], ("reduce_scatter", None, None, 0, "inferred", "float32", 52, None)),
        ("nccl:broadcast", [[3]], ("broadcast", None, None, 0, "inferred", "float32", 12, 12)),
        # As torch.distributed.pipelining sends activations.
        ("nccl:send 0->1", [[3]], ("send", None, None, 0, "inferred", "float32", 12, 12)),
        ("nccl:recv 1<-0", [[3]], ("recv", None, None, 0, "inferred", "float32", 12, 12)),
    ],
)
def test_collectives_from_the_operator_around_the_launch(
    tmp_path: Path, name: str, dims: list[Any], expected: tuple[Any, ...]
) -> None:
    found = collective_fields(tmp_path, around(name, dims, ["float"], "ncclKernel_Generic(ncclWork)"))
    assert found["ncclKernel_Generic(ncclWork)"] == expected


def test_what_a_collective_says_holds_for_those_inside_it_however_deep(tmp_path: Path) -> None:
    wrappers = [op("record_param_comms", depth, 40 - 2 * depth) for depth in range(2, 10)]
    kernels = [launch(15, 2, correlation=1), kernel("ncclKernel_Generic(ncclWork)", 50, 5, correlation=1)]
    said = op("nccl:all_reduce", 1, 40, Input_Dims=[[4, 8]], Input_type=["float"])
    expected = ("all_reduce", None, None, 0, "inferred", "float32", 128, 128)
    assert collective_fields(tmp_path, [said, *wrappers, *kernels])["ncclKernel_Generic(ncclWork)"] == expected


def test_a_gpu_clock_ahead_of_the_host_changes_no_collective(tmp_path: Path) -> None:
    events = around("nccl:all_to_all", [[4, 8]], ["float"], "ncclDevKernel_SendRecv()")
    early = [event | {"ts": 3} if event["cat"] == "kernel" else event for event in events]
    expected = ("all_to_all", None, None, 0, "inferred", "float32", 128, 128)
    for number, some in enumerate((events, early)):
        assert collective_fields(tmp_path / str(number), some)["ncclDevKernel_SendRecv()"] == expected


def test_gather_and_scatter_bytes_follow_from_the_group_size(tmp_path: Path) -> None:
    for name, given, taken in (("nccl:_all_gather_base", 128, 512), ("nccl:_reduce_scatter_base", 128, 32)):
        events = around(name, [[4, 8]], ["float"], "ncclKernel", Group_size=4, Process_Group_Name="1")
        found = collective_fields(tmp_path / name.replace(":", "_"), events)
        assert found["ncclKernel"][1:3] == ("1", 4)
        assert found["ncclKernel"][-2:] == (given, taken)


@pytest.mark.parametrize("written", ["66", "(66, False)"])
def test_the_sequence_number_is_the_second_input_of_record_param_comms(tmp_path: Path, written: str) -> None:
    inputs = ["", written, "0", "allreduce"]
    found = collective_fields(
        tmp_path, around("nccl:all_reduce", [[4]], ["float"], "ncclKernel", Concrete_Inputs=inputs)
    )
    assert found["ncclKernel"][3:5] == (66, "recorded")


@pytest.mark.parametrize(
    ("name", "collective", "dtype"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce", "float32"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduce_scatter", "bfloat16"),
        ("ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)", "all_reduce", "float16"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", "all_gather", None),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv", None),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage)", "broadcast", None),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "unknown", None),
    ],
)
def test_collectives_from_the_kernel_name_alone(tmp_path: Path, name: str, collective: str, dtype: str | None) -> None:
    found = collective_fields(tmp_path, [kernel(name, 1, 2), kernel(name + " again", 5, 2)])
    for number, row in enumerate(found.values()):
        assert row[:5] == (collective, None, None, number, "inferred")
        assert row[6:] == (None, None)
        if dtype is not None:
            assert row[5] == dtype
