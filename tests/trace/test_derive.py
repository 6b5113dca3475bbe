"""What rows imply, on small traces written out here: parents, steps, phases, families, collectives, modules, counts."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.catalog import connect
from lumos_df.trace import classify
from lumos_df.trace.ingest import ingest
from tests.trace.literal import Event, annotation, column, corpus_of, kernel, launch, op, operators, rows, write, x

# --- parents


def test_a_host_row_lies_in_the_innermost_row_around_it(tmp_path: Path) -> None:
    found = operators(
        tmp_path,
        [
            op("outer", 0, 100),
            op("inner", 10, 20),
            op("innermost", 12, 5),
            op("same start", 0, 9),
            op("same end", 90, 10),
            op("touches", 100, 5),
            op("other thread", 10, 5, tid=2),
            op("overlaps", 25, 10),
            op("inside the overlap", 27, 2),
            op("inside the overlapping one", 31, 2),
            op("nothing long", 50, 0),
            x("runtime", "cuda_runtime", 13, 1),
            x("python", "python_function", 40, 1),
        ],
    )
    assert column(found, "parent") == {
        "outer": None,
        "inner": "outer",
        "innermost": "inner",
        "same start": "outer",
        "same end": "outer",
        "touches": None,
        "other thread": None,
        "overlaps": "outer",
        "inside the overlap": "overlaps",
        "inside the overlapping one": "overlaps",
        "nothing long": "outer",
        "runtime": "innermost",
        "python": "outer",
    }


def test_of_two_equal_rows_the_first_in_the_file_is_the_outer_one(tmp_path: Path) -> None:
    found = operators(tmp_path, [op("a", 1, 2), op("b", 1, 2), op("c", 1, 0), op("d", 1, 0)])
    assert column(found, "parent") == {"a": None, "b": "a", "c": "b", "d": "c"}


def test_a_clock_of_microseconds_may_be_one_off(tmp_path: Path) -> None:
    events = [op("outer", 0, 10), op("one longer", 8, 3), op("two longer", 9, 3)]
    whole = column(operators(tmp_path / "us", events), "parent")
    assert (whole["one longer"], whole["two longer"]) == ("outer", "one longer")
    assert column(operators(tmp_path / "ns", [*events, op("fine", 20.5, 1)]), "parent")["one longer"] is None


GPU_ROWS = [
    op("asks", 0, 20, External_id=5),
    launch(2, 5, correlation=11, External_id=5),
    kernel("launched", 30, 4, correlation=11),
    kernel("launched too", 35, 4, correlation=11),
    kernel("by external id", 40, 4, correlation=99, External_id=5),
    kernel("from nowhere", 50, 4),
    kernel("unknown to the trace", 60, 4, correlation=98, External_id=77),
    x("Memcpy HtoD", "gpu_memcpy", 70, 1, 7, correlation=11, stream=7, device=0),
    x("cudaStreamSynchronize", "cuda_runtime", 75, 9, correlation=12),
    x("Stream Synchronize", "cuda_sync", 76, 5, 7, correlation=12, stream=7, device=0),
]


def test_a_gpu_row_comes_from_its_call_or_from_the_operator_of_its_external_id(tmp_path: Path) -> None:
    assert column(operators(tmp_path, GPU_ROWS), "parent") == {
        "asks": None,
        "cudaLaunchKernel": "asks",
        "launched": "cudaLaunchKernel",
        "launched too": "cudaLaunchKernel",
        "by external id": "asks",
        "from nowhere": None,
        "unknown to the trace": None,
        "Memcpy HtoD": "cudaLaunchKernel",
        "cudaStreamSynchronize": None,
        "Stream Synchronize": "cudaStreamSynchronize",
    }


def test_rows_without_a_launch_are_counted(tmp_path: Path) -> None:
    (trace,) = rows(corpus_of(tmp_path, GPU_ROWS), "SELECT warnings FROM traces")
    assert trace["warnings"] == ["3 GPU rows without a launch call"]


def test_host_rows_have_threads_and_gpu_rows_devices_and_streams(tmp_path: Path) -> None:
    found = operators(
        tmp_path,
        [
            op("host", 1, 2, tid=-9187654321),
            kernel("gpu", 5, 2, device=3, stream=70),
            x("Memset", "gpu_memset", 8, 1, "stream 21", device=1),
        ],
    )
    assert [(row["name"], row["thread"], row["device"], row["stream"]) for row in found] == [
        ("host", -9187654321, None, None),
        ("gpu", None, 3, 70),
        ("Memset", None, 1, 21),
    ]


def test_a_thread_of_19_digits_is_not_rounded(tmp_path: Path) -> None:
    (row,) = operators(tmp_path, [op("far", 10, 1, tid=1234567890123456789)])
    assert row["thread"] == 1234567890123456789


def test_a_stream_of_more_than_32_bits_is_not_cut(tmp_path: Path) -> None:
    (row,) = operators(tmp_path, [kernel("k", 1, 2, stream=2**33 + 7)])
    assert row["stream"] == 2**33 + 7


# --- steps


def test_a_row_is_of_the_step_in_which_it_starts_and_a_gpu_row_of_its_launch(tmp_path: Path) -> None:
    found = operators(
        tmp_path,
        [
            op("before", 0, 5),
            annotation("ProfilerStep#7", 10, 90),
            op("in 7", 20, 5),
            op("outlasts 7", 95, 20),
            op("other thread in 7", 30, 5, tid=2),
            launch(21, 1, correlation=1),
            annotation("ProfilerStep#8", 100, 50),
            op("in 8", 110, 5),
            kernel("late from 7", 112, 5, correlation=1),
            kernel("from nowhere", 120, 5),
            op("between", 160, 5),
            annotation("ProfilerStep#12", 200, 10),
            op("in 12", 205, 1),
            op("at the end of 12", 210, 1),
            x("ProfilerStep#8", "gpu_user_annotation", 300, 10, 7),
            op("after", 305, 5),
        ],
    )
    steps = [(row["name"], row["step"]) for row in found if row["kind"] not in ("annotation", "gpu_annotation")]
    assert dict(steps) == {
        "before": None,
        "in 7": 7,
        "outlasts 7": 7,
        "other thread in 7": 7,
        "cudaLaunchKernel": 7,
        "in 8": 8,
        "late from 7": 7,
        "from nowhere": 8,
        "between": None,
        "in 12": 12,
        "at the end of 12": None,
        "after": None,
    }


# --- phases

TRAINING = [
    annotation("ProfilerStep#1", 0, 1000),
    annotation("enumerate(DataLoader)#_Iter.__next__", 1, 8),
    op("load", 2, 3),
    op("aten::to", 12, 3),
    op("aten::linear", 20, 10, Sequence_number=5, Fwd_thread_id=0),
    op("aten::mm", 22, 5),
    launch(23, 1, correlation=1),
    op("autograd::engine::evaluate_function: LinearBackward", 100, 50, tid=2, Sequence_number=5, Fwd_thread_id=1),
    op("LinearBackward", 102, 40, tid=2, Sequence_number=5, Fwd_thread_id=1),
    op("aten::mm backward", 104, 5, tid=2),
    launch(105, 1, correlation=2, tid=2),
    op("CheckpointFunctionBackward", 110, 30, tid=2, Sequence_number=4, Fwd_thread_id=1),
    op("aten::linear again", 112, 5, tid=2, Sequence_number=9, Fwd_thread_id=0),
    op("aten::mm again", 113, 2, tid=2),
    launch(114, 0.5, correlation=3, tid=2),
    op("autograd::engine::evaluate_function: again", 120, 5, tid=2, Sequence_number=9, Fwd_thread_id=2),
    op("_AlltoAll without a backward of its own", 128, 5, tid=2, Sequence_number=10, Fwd_thread_id=0),
    op("nccl:all_reduce", 143, 4, tid=2),
    launch(144, 1, correlation=4, tid=2),
    op("aten::clip", 160, 4),
    annotation("Optimizer.step#Adam.step", 170, 20),
    op("aten::_fused_adam", 172, 10),
    launch(173, 1, correlation=5),
    annotation("Optimizer.zero_grad#Adam.zero_grad", 195, 5),
    op("aten::zero_", 196, 1),
    kernel("k forward", 300, 5, correlation=1),
    kernel("k backward", 310, 5, correlation=2),
    kernel("k recompute", 320, 5, correlation=3),
    kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 330, 5, correlation=4),
    kernel("k optimizer", 340, 5, correlation=5),
]


def test_phases_of_a_training_step(tmp_path: Path) -> None:
    found = operators(tmp_path, TRAINING)
    phases = {row["name"]: row["phase"] for row in found if row["name"] != "cudaLaunchKernel"}
    assert phases == {
        "ProfilerStep#1": "other",
        "enumerate(DataLoader)#_Iter.__next__": "other",
        "load": "other",
        "aten::to": "forward",
        "aten::linear": "forward",
        "aten::mm": "forward",
        "autograd::engine::evaluate_function: LinearBackward": "backward",
        "LinearBackward": "backward",
        "aten::mm backward": "backward",
        "CheckpointFunctionBackward": "backward",
        "aten::linear again": "recompute",
        "aten::mm again": "recompute",
        "autograd::engine::evaluate_function: again": "backward",
        "_AlltoAll without a backward of its own": "backward",
        "nccl:all_reduce": "communication",
        "aten::clip": "other",
        "Optimizer.step#Adam.step": "optimizer",
        "aten::_fused_adam": "optimizer",
        "Optimizer.zero_grad#Adam.zero_grad": "optimizer",
        "aten::zero_": "optimizer",
        "k forward": "forward",
        "k backward": "backward",
        "k recompute": "recompute",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL": "communication",
        "k optimizer": "optimizer",
    }
    calls = {row["correlation"]: row["phase"] for row in found if row["kind"] == "runtime"}
    assert calls == {1: "forward", 2: "backward", 3: "recompute", 4: "communication", 5: "optimizer"}


def test_kernels_that_run_late_say_nothing_about_the_host(tmp_path: Path) -> None:
    """Host and GPU are not in step: what the host does before the optimizer is no forward work."""
    late = kernel("k forward", 230, 20, correlation=1)
    events = [event for event in TRAINING if event["cat"] != "kernel"] + [op("aten::item", 220, 5)]
    for number, some in enumerate((events, [*events, late])):
        phases = column(operators(tmp_path / str(number), some), "phase")
        assert (phases["aten::clip"], phases["aten::item"]) == ("other", "other")


def test_a_gpu_clock_ahead_of_the_host_changes_no_phase(tmp_path: Path) -> None:
    early = [event | {"ts": 0.25} if event["name"] == "k backward" else event for event in TRAINING]
    assert column(operators(tmp_path, early), "phase")["k backward"] == "backward"


def test_a_collective_of_a_backward_operator_is_communication(tmp_path: Path) -> None:
    found = operators(
        tmp_path,
        [
            op("aten::linear", 1, 2, Sequence_number=5, Fwd_thread_id=0),
            op("autograd::engine::evaluate_function: LinearBackward", 10, 50, 2, Sequence_number=5, Fwd_thread_id=1),
            op("c10d::allreduce_", 12, 20, 2, Sequence_number=5, Fwd_thread_id=1),
        ],
    )
    assert column(found, "phase")["c10d::allreduce_"] == "communication"


def test_a_trace_without_a_backward_is_all_forward(tmp_path: Path) -> None:
    events = [op("aten::linear", 1, 5), launch(2, 1, 1), op("aten::item", 10, 5), kernel("k", 20, 5, correlation=1)]
    assert set(column(operators(tmp_path, events), "phase").values()) == {"forward"}


def test_names_with_escaped_slashes_are_the_same_names(tmp_path: Path) -> None:
    events = [
        op("autograd::engine::evaluate_function: X", 0, 90),
        x("torch/utils/checkpoint.py(1000): unpack_hook", "python_function", 1, 50),
        op("aten::mm", 2, 5),
    ]
    plain = column(operators(tmp_path / "plain", events), "phase")
    path = write(tmp_path / "rank0.json", events)
    path.write_text(path.read_text().replace("/", "\\/"))
    assert not ingest([path], tmp_path / "c", workers=1).failed
    with connect(tmp_path / "c") as corpus:
        assert column(rows(corpus, "SELECT name, phase FROM operators"), "phase") == plain


# --- forward operators


def test_a_backward_operator_knows_the_forward_operator_of_its_thread(tmp_path: Path) -> None:
    found = operators(
        tmp_path,
        [
            op("main 5", 0, 5, tid=1, Sequence_number=5, Fwd_thread_id=0),
            op("main 6", 6, 9, tid=1, Sequence_number=6, Fwd_thread_id=0),
            op("main 6 inside", 7, 2, tid=1, Sequence_number=6, Fwd_thread_id=0),
            op("second 5", 0, 5, tid=2, Sequence_number=5, Fwd_thread_id=0),
            op("main 6 back", 100, 5, tid=3, Sequence_number=6, Fwd_thread_id=1),
            op("main 5 back", 110, 5, tid=3, Sequence_number=5, Fwd_thread_id=1),
            op("nobody's back", 120, 5, tid=3, Sequence_number=77, Fwd_thread_id=1),
        ],
    )
    forward = column(found, "forward")
    assert forward["main 6 back"] == "main 6 inside"
    assert forward["main 5 back"] == "main 5"
    assert forward["nobody's back"] is None
    assert column(found, "sequence_number")["main 6 back"] == 6


# --- families


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long)", "communication"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)", "communication"),
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


def stated(name: str, in_elements: int, out_elements: int, **more: Any) -> dict[str, Any]:
    return {
        "Collective_name": name,
        "In_msg_nelems": in_elements,
        "Out_msg_nelems": out_elements,
        "Group_size": 8,
        "dtype": "BFloat16",
        "Process_Group_Name": "3",
        **more,
    }


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
    ],
)
def test_collectives_from_the_operator_around_the_launch(
    tmp_path: Path, name: str, dims: list[Any], expected: tuple[Any, ...]
) -> None:
    found = collective_fields(tmp_path, around(name, dims, ["float"], "ncclKernel_Generic(ncclWork)"))
    assert found["ncclKernel_Generic(ncclWork)"] == expected


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


# --- modules and layers


def test_module_paths_from_python_rows_reach_the_kernels(tmp_path: Path) -> None:
    def module(name: str, ts: float, dur: float) -> Event:
        return x(f"nn.Module: {name}", "python_function", ts, dur)

    found = operators(
        tmp_path,
        [
            module("GPT_0", 0, 100),
            module("Block_0", 10, 30),
            module("Block_1", 50, 40),
            module("Linear_0", 55, 30),
            op("before", 1, 2),
            op("in 0", 12, 2),
            op("in 1", 60, 10, Sequence_number=3, Fwd_thread_id=0),
            launch(62, 1, correlation=1),
            op("outside", 200, 5),
            op("back", 300, 5, 2, Sequence_number=3, Fwd_thread_id=1),
            kernel("k", 400, 5, correlation=1),
        ],
    )
    assert {name: path for name, path in column(found, "module").items() if not name.startswith("nn.")} == {
        "before": "GPT_0",
        "in 0": "GPT_0/Block_0",
        "in 1": "GPT_0/Block_1/Linear_0",
        "cudaLaunchKernel": "GPT_0/Block_1/Linear_0",
        "outside": None,
        "back": "GPT_0/Block_1/Linear_0",
        "k": "GPT_0/Block_1/Linear_0",
    }
    layers = column(found, "layer")
    assert (layers["before"], layers["in 0"], layers["in 1"], layers["k"], layers["back"]) == (None, 0, 1, 1, 1)


def test_module_paths_from_module_hierarchies(tmp_path: Path) -> None:
    found = operators(
        tmp_path,
        [
            op("a", 1, 5, Module_Hierarchy="TOP(Net)::forward.layer_3(Layer)::forward"),
            op("inside", 2, 1),
            op("b", 10, 5, Module_Hierarchy=""),
        ],
    )
    modules = column(found, "module")
    assert modules["a"] == modules["inside"] is not None
    assert modules["b"] is None


# --- numbers


def test_flops(tmp_path: Path) -> None:
    expected: list[tuple[str, list[Any], int | None]] = [
        ("aten::mm", [[2, 3], [3, 5]], 60),
        ("aten::addmm", [[5], [2, 3], [3, 5], [], []], 60),
        ("aten::bmm", [[7, 2, 3], [7, 3, 5]], 420),
        ("aten::linear", [[2, 3], [5, 3], [5]], None),
        ("aten::add", [[2, 3], [2, 3]], None),
        ("aten::mm", [[], []], None),
        (
            "aten::_scaled_dot_product_flash_attention",
            [[2, 4, 8, 16], [2, 4, 6, 16], [2, 4, 6, 16]],
            4 * 2 * 4 * 8 * 6 * 16,
        ),
    ]
    events = [op(name, 10 * k, 2, Input_Dims=dims) for k, (name, dims, _) in enumerate(expected)]
    assert [row["flops"] for row in operators(tmp_path, events)] == [flops for _, _, flops in expected]


def test_bytes_of_copies_and_kernel_shapes(tmp_path: Path) -> None:
    found = operators(
        tmp_path,
        [
            x("hipMemcpyWithStream", "cuda_runtime", 0, 2, correlation=4, size=99),
            x("Memcpy HtoD", "gpu_memcpy", 1, 2, 7, bytes=4096, stream=7, device=0),
            x("Memset", "gpu_memset", 4, 2, 7, bytes=16, stream=7, device=0),
            x("copy by HIP", "gpu_memcpy", 8, 2, 7, correlation=4, stream=7, device=0),
            x("nobody says", "gpu_memcpy", 11, 2, 7, stream=7, device=0),
            kernel("k", 14, 2, grid=[1, 2, 3], block=[128, 1, 1], **{"est. achieved occupancy %": 37}),
        ],
    )
    moved = {row["name"]: (row["in_bytes"], row["out_bytes"]) for row in found}
    assert moved == {
        "hipMemcpyWithStream": (None, None),
        "Memcpy HtoD": (4096, 4096),
        "Memset": (16, 16),
        "copy by HIP": (99, 99),
        "nobody says": (None, None),
        "k": (None, None),
    }
    assert (found[-1]["grid"], found[-1]["block"], found[-1]["occupancy"]) == ("[1, 2, 3]", "[128, 1, 1]", 37.0)


def test_names_are_as_recorded(tmp_path: Path) -> None:
    names = ['a "b"', "tab\there", "caf\u00e9 \U0001f600", '[a "b"]', '{lambda "x"}', "[memory]", "back\\slash"]
    found = operators(tmp_path, [op(name, 10 * k, 2) for k, name in enumerate(names)])
    assert [row["name"] for row in found] == names


# --- the other tables


def test_memory_events(tmp_path: Path) -> None:
    def memory(ts: float, **args: Any) -> Event:
        named = {key.replace("_", " "): value for key, value in args.items()}
        return {
            "ph": "i",
            "s": "t",
            "name": "[memory]",
            "cat": "cpu_instant_event",
            "ts": ts,
            "pid": 1,
            "tid": 5,
            "args": named,
        }

    corpus = corpus_of(
        tmp_path,
        [
            memory(9.5, Addr=140, Bytes=512, Device_Type=1, Device_Id=3, Total_Allocated=1024, Total_Reserved=4096),
            memory(3.5, Addr=7, Bytes=-64, Device_Type=0, Device_Id=-1),
            memory(4.5, Bytes=1, Device_Type=20),
            op("a", 1, 2),
        ],
    )
    found = corpus.execute("SELECT * EXCLUDE (trace_id, rank, event) FROM memory_events ORDER BY ts").fetchall()
    assert found == [
        (3500, 5, "cpu", -1, 7, -64, None, None),
        (4500, 5, "20", -1, None, 1, None, None),
        (9500, 5, "gpu", 3, 140, 512, 1024, 4096),
    ]


def test_counters(tmp_path: Path) -> None:
    def counter(name: str, ts: float, **args: Any) -> Event:
        return {"ph": "C", "name": name, "ts": ts, "pid": 1, "tid": 1, "args": args}

    values = {"a": 0.3, "b": -12.345678, "c": 1e-7, "d": 2**53 + 0.0, "e": 1.7976931348623157e308, "f": 3}
    corpus = corpus_of(
        tmp_path, [counter("one", 1.5, **values), counter("two", 2, x=1, text="no number", none=None), op("a", 1, 2)]
    )
    found = corpus.execute("SELECT name, ts, series, value FROM counters ORDER BY ALL").fetchall()
    assert found == [("one", 1500, series, value) for series, value in values.items()] + [("two", 2000, "x", 1.0)]


def test_counters_with_many_series_keep_them_all(tmp_path: Path) -> None:
    series = {f"s{k}": k for k in range(200)}
    events = [{"ph": "C", "name": "c", "ts": k, "pid": 1, "tid": 1, "args": series} for k in range(1500)]
    corpus = corpus_of(tmp_path, [*events, op("a", 1, 2)])
    assert corpus.execute("SELECT count(*), count(DISTINCT series) FROM counters").fetchall() == [(300_000, 200)]


def test_marks_without_a_time_are_counted_as_skipped(tmp_path: Path) -> None:
    events = [
        {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "args": {"Bytes": 3}},
        {"ph": "C", "name": "c", "pid": 1, "tid": 1, "args": {"a": 1}},
        op("a", 1, 2),
    ]
    corpus = corpus_of(tmp_path, events)
    assert corpus.execute("SELECT ts FROM memory_events UNION ALL SELECT ts FROM counters").fetchall() == []
    assert corpus.execute("SELECT skipped FROM traces").fetchall() == [(2,)]


def test_process_groups(tmp_path: Path) -> None:
    config = [
        {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 4, "ranks": [0, 1, 2, 3]},
        {"pg_name": "5", "pg_desc": "tp", "backend_config": "cuda:nccl", "pg_size": 2},
    ]
    groups = stated("allreduce", 1, 1, Group_size=2)
    corpus = corpus_of(
        tmp_path,
        [
            kernel("ncclA", 1, 2, **{**groups, "Process_Group_Name": "5", "Process_Group_Ranks": "[2, 3]"}),
            kernel("ncclB", 4, 2, **{**groups, "Process_Group_Name": "9", "Process_Group_Description": "dp"}),
        ],
        distributedInfo={"backend": "nccl", "rank": 3, "world_size": 4, "pg_config": config},
    )
    found = corpus.execute('SELECT * EXCLUDE trace_id FROM process_groups ORDER BY "group"').fetchall()
    assert found == [
        (3, "0", "default_pg", "cuda:nccl", 4, [0, 1, 2, 3]),
        (3, "5", "tp", "cuda:nccl", 2, [2, 3]),
        (3, "9", "dp", None, 2, None),
    ]


EVERYTHING = [
    op("a", 1, 2),
    launch(1.5, 0.25, 1),
    kernel("k", 2, 2, correlation=1),
    x("Memcpy", "gpu_memcpy", 5, 1, 7, stream=7),
    x("Memset", "gpu_memset", 7, 1, 7, stream=7),
    x("Sync", "cuda_sync", 9, 1, 7, stream=7),
    annotation("note", 1, 50),
    x("note", "gpu_user_annotation", 1, 50, 7),
    x("f.py(1): f", "python_function", 1, 1),
    x("PyTorch Profiler (0)", "Trace", 0, 100, "PyTorch Profiler"),
    x("?", "from_the_future", 1, 1),
    {"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "ts": 1, "pid": 1, "tid": 1},
    {"ph": "f", "id": 1, "cat": "ac2g", "name": "ac2g", "ts": 2, "pid": 1, "tid": 7, "bp": "e"},
    {"ph": "s", "id": 2, "cat": "fwdbwd", "name": "fwdbwd", "ts": 1, "pid": 1, "tid": 1},
    {"ph": "i", "name": "[memory]", "ts": 3, "pid": 1, "tid": 1, "args": {"Bytes": 4, "Device Type": 0}},
    {"ph": "i", "name": "Iteration Start", "ts": 3, "pid": 1, "tid": 1},
    {"ph": "C", "name": "c", "ts": 3, "pid": 1, "tid": 1, "args": {"x": 1, "y": 2}},
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": "python"}},
    {"ph": "B", "name": "begin", "ts": 3, "pid": 1, "tid": 1},
    {"ph": "X", "name": "no time", "cat": "cpu_op", "pid": 1, "tid": 1},
    op("negative", 60, -3),
    17,
    "text",
]


def test_every_event_is_counted_once(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, EVERYTHING)
    (trace,) = rows(corpus, "SELECT * FROM traces")
    counted = {
        "operators": 12,
        "cpu_ops": 2,
        "runtime_calls": 1,
        "kernels": 1,
        "memcpys": 1,
        "memsets": 1,
        "syncs": 1,
        "annotations": 2,
        "python_functions": 1,
        "others": 2,
        "flows": 3,
        "instants": 1,
        "memory_events": 1,
        "counters": 2,
        "metadata_events": 1,
        "skipped": 4,
        "events": len(EVERYTHING),
    }
    assert {name: trace[name] for name in counted} == counted
    assert (trace["first_ts"], trace["last_ts"], trace["resolution_ns"]) == (0, 100_000, 1)
    for words in ("without a start time", "phase (ph)", "no event", "negative durations"):
        assert any(words in warning for warning in trace["warnings"]), words
    kinds = dict(corpus.execute("SELECT name, kind FROM operators WHERE name <> 'note'").fetchall())
    assert (kinds["?"], kinds["Sync"], kinds["PyTorch Profiler (0)"]) == ("other", "sync", "other")


def test_args_of_every_event_stay(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, EVERYTHING)
    found = corpus.execute("SELECT count(*) FROM args").fetchall()
    assert found == [(sum(isinstance(event, dict) and "args" in event for event in EVERYTHING),)]
    joined = corpus.execute(
        "SELECT args->>'correlation' FROM operators JOIN args USING (trace_id, event) WHERE kind = 'kernel'"
    )
    assert joined.fetchall() == [("1",)]


# --- ranks


@pytest.mark.parametrize(
    ("name", "top", "given", "expected"),
    [
        ("rank3.json", {}, None, (3, "file name")),
        ("worker12.pt.trace.json", {}, None, (12, "file name")),
        ("trace_rank-05_step10.json", {}, None, (5, "file name")),
        ("trace.json", {}, None, (0, "assumed")),
        ("rank3.json", {"distributedInfo": {"rank": 6, "world_size": 8}}, None, (6, "distributedInfo")),
        ("rank3.json", {"distributedInfo": {"backend": "nccl"}}, None, (3, "file name")),
        ("rank3.json", {"distributedInfo": {"rank": 6}}, 1, (1, "option")),
        ("frank2.json", {}, None, (0, "assumed")),
        ("gpu12_4711.1700000000.pt.trace.json", {}, None, (0, "assumed")),  # host_pid.time, as torch.profiler names it
    ],
)
def test_where_the_rank_comes_from(
    tmp_path: Path, name: str, top: dict[str, Any], given: int | None, expected: tuple[int, str]
) -> None:
    path = write(tmp_path / name, [op("a", 1, 2)], **top)
    assert not ingest([path], tmp_path / "c", rank=given, workers=1).failed
    with connect(tmp_path / "c") as corpus:
        assert corpus.execute("SELECT rank, rank_source FROM traces").fetchall() == [expected]
        assert corpus.execute("SELECT DISTINCT rank FROM operators").fetchall() == [expected[:1]]


def test_a_rank_in_the_args_of_every_event(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, [op("a", 1, 2, rank=5), op("b", 4, 2, rank=5)], "trace.json")
    assert corpus.execute("SELECT rank, rank_source FROM traces").fetchall() == [(5, "args")]


@pytest.mark.parametrize(
    "event", [op("nccl:all_reduce", 1, 2), kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1, 2)]
)
def test_collectives_need_a_rank(tmp_path: Path, event: Event) -> None:
    path = write(tmp_path / "trace.json", [event])
    result = ingest([path], tmp_path / "c", workers=1)
    assert [failed.message.split("; give it")[0] for failed in result.failed] == [
        f"{path}: rank unknown: neither distributedInfo nor the file name says it, and the trace has collectives"
    ]
    assert not ingest([path], tmp_path / "c", rank=2, workers=1).failed
