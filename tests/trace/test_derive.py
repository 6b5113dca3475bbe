"""What rows imply, on small traces written out here: parents, steps, phases, forward operators, modules, numbers."""

import time
from pathlib import Path
from typing import Any

import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.trace import derive
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


def test_the_time_in_which_host_rows_beneath_ran_counts_overlaps_once_and_ends_with_the_row(tmp_path: Path) -> None:
    # Clocks of calls and operators differ: two calls overlap from 10 to 20, and the second outlives the operator.
    calls = [x("first", "cuda_runtime", 5, 15, correlation=1), x("second", "cuda_runtime", 10, 21)]
    found = operators(tmp_path, [op("outer", 0, 30), *calls, op("alone", 40, 5), kernel("gemm", 20, 9, correlation=1)])
    assert column(found, "inner_dur") == {"outer": 25_000, "first": None, "second": None, "alone": None, "gemm": None}


def test_a_call_of_no_length_lies_in_no_call_that_began_with_it(tmp_path: Path) -> None:
    calls = [x("cudaLaunchKernel", "cuda_runtime", 5, 3), x("cudaEventRecord", "cuda_runtime", 5, 0)]
    assert column(operators(tmp_path, [op("outer", 0, 10), *calls]), "parent") == {
        "outer": None,
        "cudaLaunchKernel": "outer",
        "cudaEventRecord": "outer",
    }


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


def test_no_call_lies_in_one_that_begins_in_the_same_tick(tmp_path: Path) -> None:
    """The clock ticks in microseconds: calls that took less have no length, and came before or after that one."""
    events = [
        op("asks", 0, 20),
        launch(2, 5, correlation=12),
        x("cudaStreamWaitEvent", "cuda_runtime", 2, 0, correlation=11),
        x("cudaEventRecord", "cuda_runtime", 9, 0, correlation=13),
        x("cudaEventQuery", "cuda_runtime", 9, 0, correlation=14),
    ]
    found = column(operators(tmp_path, events), "parent")
    assert found == {name: None if name == "asks" else "asks" for name in found}


def test_rows_without_a_launch_are_counted(tmp_path: Path) -> None:
    (trace,) = rows(corpus_of(tmp_path, GPU_ROWS), "SELECT warnings FROM traces")
    assert trace["warnings"] == ["3 GPU rows without a launch call"]


@pytest.mark.parametrize(("process", "correlation", "told"), [(2, 11, True), (2, 12, False), (1, 11, False)])
def test_correlations_of_several_processes_are_told(
    tmp_path: Path, process: int, correlation: int, *, told: bool
) -> None:
    other = launch(2, 5, correlation) | {"pid": process}
    events = [launch(2, 5, correlation=11), other, kernel("gemm", 8, 5, correlation=11)]
    (trace,) = rows(corpus_of(tmp_path, events), "SELECT warnings FROM traces")
    several = "calls of several processes have their correlation; record each process by itself"
    assert trace["warnings"] == told * [f"1 GPU row may be another process's: {several}"]


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


def test_of_many_threads_only_those_that_made_a_number_are_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, looked, search = 300, [], derive._last_before  # noqa: SLF001 - counted here

    def counted(*columns: Any) -> Any:
        looked.append(1)
        return search(*columns)

    monkeypatch.setattr(derive, "_last_before", counted)
    made = [op(f"forward {k}", k, 1, tid=k + 1, Sequence_number=k) for k in range(threads)]
    read = [
        op(f"backward {k}", 1000 + k, 1, tid=k + 1, Sequence_number=k, Fwd_thread_id=1 + k % 20) for k in range(threads)
    ]
    found = column(operators(tmp_path, [*made, *read]), "forward")
    # A number of autograd's is one recorded thread's: the first one that explains most is taken.
    assert {found[f"backward {k}"] for k in range(20)} == {f"forward {k}" for k in range(20)}
    assert len(looked) == threads


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


@pytest.mark.parametrize(
    ("node", "grows", "phase"),
    [
        ("AddmmBackward0", False, "recompute"),
        ("LinearWithReductionBackward", False, "backward"),
        ("AddmmBackward0", True, "backward"),
    ],
    ids=["checkpoint without reentry", "custom function", "gradients of gradients"],
)
def test_what_grows_the_graph_in_a_node_of_pytorch_is_computed_again(
    tmp_path: Path, node: str, phase: str, *, grows: bool
) -> None:
    """Nodes of what a hook runs, for the node around it, are never evaluated."""
    found = operators(
        tmp_path,
        [
            op("aten::linear", 1, 2, Sequence_number=5, Fwd_thread_id=0),
            op(f"autograd::engine::evaluate_function: {node}", 10, 50, 2, Sequence_number=5, Fwd_thread_id=1),
            op(node, 12, 45, 2, Sequence_number=5, Fwd_thread_id=1),
            op("aten::linear again", 14, 10, 2, Sequence_number=9, Fwd_thread_id=0),
            op("aten::addmm again", 15, 5, 2),
            op("aten::mm", 30, 10, 2, **({"Sequence_number": 10, "Fwd_thread_id": 0} if grows else {})),
        ],
    )
    phases = column(found, "phase")
    assert (phases["aten::linear again"], phases["aten::addmm again"], phases["aten::mm"]) == (phase, phase, "backward")


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
        *(
            (
                f"aten::_scaled_dot_product_{kind}_attention_backward",
                # The gradient of the output, then query, key and value: two and a half times the forward.
                [[2, 4, 8, 5], [2, 4, 8, 16], [2, 4, 6, 16], [2, 4, 6, 5]],
                10 * 2 * 4 * 8 * 6 * 16,
            )
            for kind in ("flash", "efficient", "cudnn")
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


@pytest.mark.parametrize("word", ["nn.Module: layer", "torch/utils/checkpoint.py", "nn.Module: block_"])
def test_long_names_take_the_time_of_their_letters(tmp_path: Path, word: str) -> None:
    last = word.rpartition(" ")[2]
    long = word + last * (60_000 // len(last))
    functions = [x(f"{long}{number}", "python_function", 100 * number, 50) for number in range(20)]
    begin = time.process_time()
    corpus = corpus_of(tmp_path, [op("aten::mm", 1, 2), *functions])
    assert time.process_time() - begin < 3
    assert corpus.execute("SELECT count(*) FROM operators").fetchall() == [(21,)]
