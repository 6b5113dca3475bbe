"""What a generated benchmark holds: which operators it calls, when, with which inputs, and what it owns up to."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from lumos_df import connect
from lumos_df.base.errors import LumosError, QueryError
from lumos_df.corpus.diff import Grouping, diff
from lumos_df.generate.benchmark_folder import generate
from lumos_df.generate.operator_script import SCRIPT, write_family, write_operator
from lumos_df.generate.recorded_rows import RecordedRows
from lumos_df.generate.replayed_calls import replay
from lumos_df.trace.ingest import ingest
from tests.conftest import ROOT, SAMPLES, Run
from tests.real import ABSENT, SETS, jobs
from tests.trace.literal import Event, annotation, corpus_of, kernel, launch, op, stated, write, x

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (extra: capture)")


def called(dims: list[Any], types: list[str], concrete: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """Return what the profiler writes of an operator's inputs."""
    given = {"Input_Dims": dims, "Input_type": types, **more}
    return given | ({"Concrete_Inputs": concrete} if concrete else {})


MM = called([[64, 32], [32, 16]], ["float", "float"], ["", ""], Input_Strides=[[32, 1], [1, 32]])
ADD = called([[64, 16], [64, 16], []], ["float", "float", "Scalar"], ["", "", "2"])


def on_gpu(
    correlation: int, ts: float, name: str = "ampere_sgemm_128x64_tn", dur: float = 10, **more: Any
) -> list[Event]:
    """Return a launch and its kernel, which starts 2 us after it."""
    return [launch(ts, 1, correlation), kernel(name, ts + 2, dur, correlation=correlation, **more)]


STEP = [
    annotation("ProfilerStep#5", 0, 100),
    op("autograd::engine::evaluate_function: MmBackward0", 10, 20),
    op("aten::mm", 12, 8, **MM),
    op("aten::fill_", 13, 1, **called([[64, 16], []], ["float", "Scalar"], ["", "0"])),
    *on_gpu(1, 15),
    op("aten::add", 35, 5, **ADD),
    *on_gpu(2, 36, "vectorized_elementwise_kernel", 4),
    op("mylib::flash_attn_fwd", 50, 6, **called([[2, 64, 4, 32]] * 3, ["c10::Half"] * 3)),
    *on_gpu(3, 52, "flash_fwd_kernel", 20),
    op("triton_poi_own", 60, 6, **called([[1024], [1024]], ["float", "float"])),
    *on_gpu(4, 62, "triton_poi_0", 6),
    op("aten::index", 70, 6, **called([[512, 8], []], ["float", ""])),
    *on_gpu(5, 72, "index_kernel", 3),
    op("no_shapes", 80, 6),
    *on_gpu(6, 82, "unknown_kernel", 5),
]


def generated(tmp_path: Path, events: list[Event], **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the plan and the manifest of a trace of `events`."""
    corpus_of(tmp_path, events)
    generate(tmp_path / "corpus", tmp_path / "benchmark", **options)
    return read(tmp_path / "benchmark")


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    plan, manifest = (json.loads((folder / f"{name}.json").read_text()) for name in ("plan", "manifest"))
    return plan, manifest


def names(rank: dict[str, Any]) -> list[str]:
    return [rank["operators"][number]["name"] for number in rank["calls"]["operator"]]


def test_outermost_operators_are_called_once_and_wrappers_are_not(tmp_path: Path) -> None:
    plan, _ = generated(tmp_path, STEP)
    assert names(plan["ranks"]["0"]) == [
        "aten::mm",
        "aten::add",
        "mylib::flash_attn_fwd",
        "triton_poi_own",
        "aten::index",
    ]


CAST = ["c10::BFloat16", "c10::BFloat16"]


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        (("aten::linear", ["float", "c10::BFloat16"]), ("aten::linear", CAST), ["aten::to", "aten::linear"]),
        (("aten::linear", CAST), ("aten::linear", CAST), ["aten::linear"]),
        (("aten::embedding_bag", CAST), ("aten::_embedding_bag", CAST), ["aten::to", "aten::_embedding_bag"]),
        (("aten::layer_norm", CAST), ("aten::native_layer_norm", CAST), ["aten::layer_norm"]),
    ],
    ids=["autocast", "the same types", "chosen since a gradient is asked for", "which results are read is not known"],
)
def test_an_operator_that_would_do_something_else_in_a_benchmark_is_a_wrapper(
    tmp_path: Path, outer: tuple[str, list[str]], inner: tuple[str, list[str]], expected: list[str]
) -> None:
    assert names(wrapped(tmp_path, outer, inner)) == expected


def test_an_operator_that_keeps_what_is_read_later_is_a_wrapper_where_that_is_known(tmp_path: Path) -> None:
    inner = ("aten::native_layer_norm", CAST)
    rank = wrapped(tmp_path, ("aten::layer_norm", CAST), inner, Input_Storages=[64, 96])
    assert names(rank) == ["aten::to", "aten::native_layer_norm"]


def wrapped(tmp_path: Path, outer: tuple[str, list[str]], inner: tuple[str, list[str]], **told: Any) -> dict[str, Any]:
    """Return the plan of an operator with a cast and another one inside; each is its name and its types."""
    dims = [[64, 32], [16, 32]]
    events = [
        annotation("ProfilerStep#1", 0, 100),
        op(outer[0], 10, 22, **called(dims, outer[1]), **told),
        op("aten::to", 12, 4, **called([[64, 32]], ["float"])),
        op(inner[0], 20, 10, **called(dims, inner[1])),
    ]
    plan, _ = generated(tmp_path, events)
    rank: dict[str, Any] = plan["ranks"]["0"]
    return rank


@needs_torch
def test_an_operator_of_several_types_runs_under_autocast_in_every_call(tmp_path: Path) -> None:
    mixed = called([[64, 32], [32, 16]], ["float", "c10::BFloat16"])
    generated(tmp_path, [annotation("ProfilerStep#1", 0, 100), *(op("aten::mm", at, 8, **mixed) for at in (10, 30))])
    assert run_benchmark(tmp_path / "benchmark", "--iterations", 2, "--warmup", 0)["copied_instead"] == {}


def test_inputs_are_as_recorded(tmp_path: Path) -> None:
    plan, _ = generated(tmp_path, STEP)
    product, addition, *_ = plan["ranks"]["0"]["operators"]
    assert product["inputs"] == [
        {"dims": [64, 32], "dtype": "float32", "strides": [32, 1]},
        {"dims": [32, 16], "dtype": "float32", "strides": [1, 32]},
    ]
    assert addition["inputs"][2] == {"value": 2}


def test_what_torch_does_not_have_is_replaced_and_said_so(tmp_path: Path) -> None:
    plan, manifest = generated(tmp_path, STEP)
    by = {each["name"]: each.get("by") for each in plan["ranks"]["0"]["operators"]}
    assert by["mylib::flash_attn_fwd"] == "attention"
    assert by["triton_poi_own"] == "copy"
    assert by["aten::index"] == "copy"  # which rows it took is not recorded
    rows = {row["name"]: row for row in manifest["operators"]}
    assert rows["mylib::flash_attn_fwd"]["how"] == "replaced"
    assert rows["aten::mm"]["how"] == "replayed"
    assert rows["no_shapes"]["how"] == "left out"
    assert rows["no_shapes"]["reason"] == "its shapes were not recorded"


IMAGE, KERNEL, GRADIENT = [8, 16, 12, 12], [32, 4, 3, 3], [8, 32, 6, 6]
OLD = called([IMAGE, GRADIENT, KERNEL, *[[]] * 8], ["float"] * 3 + [""] * 8)
VENDOR = called([[4, 8, 6, 6]] * 2 + [[8]] * 5 + [[]], ["float"] * 7 + ["Scalar"], [*[""] * 7, "0.001"])


def vendors(tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Generate a benchmark of a backward convolution of old torch, and a normalization of AMD's library."""
    events = [
        annotation("ProfilerStep#1", 0, 100),
        op("aten::cudnn_convolution_backward", 10, 5, **OLD),
        *on_gpu(1, 11, "cudnn_convolve_wgrad", 30),
        op("aten::miopen_batch_norm_backward", 50, 5, **VENDOR),
        *on_gpu(2, 51, "MIOpenBatchNormBwdSpatial", 10),
    ]
    return generated(tmp_path, events)


def test_an_operator_that_torch_no_longer_has_is_replaced_by_the_one_it_has_now(tmp_path: Path) -> None:
    """Nothing of the numbers was recorded: the stride and the groups are those that the shapes have."""
    plan, manifest = vendors(tmp_path)
    convolution = plan["ranks"]["0"]["operators"][0]
    assert convolution["name"] == "aten::cudnn_convolution_backward"
    assert convolution["by"] == "aten::convolution_backward"
    assert [each and each["dims"] for each in convolution["inputs"][:3]] == [GRADIENT, IMAGE, KERNEL]
    assert [each and each["value"] for each in convolution["inputs"][3:]] == [
        None, [2, 2], [1, 1], [1, 1], False, [0, 0], 4, [True, True, False],
    ]  # fmt: skip
    row = next(row for row in manifest["operators"] if row["name"] == convolution["name"])
    assert (row["how"], row["by"]) == ("replaced", "aten::convolution_backward")


def test_an_operator_of_one_vendor_is_replayed_and_has_another_for_elsewhere(tmp_path: Path) -> None:
    plan, manifest = vendors(tmp_path)
    norm = plan["ranks"]["0"]["operators"][1]
    assert norm["otherwise"]["name"] == "aten::native_batch_norm_backward"
    assert norm["otherwise"]["inputs"][7:] == [{"value": True}, {"value": 0.001}, {"value": [True] * 3}]
    assert next(row["how"] for row in manifest["operators"] if row["name"] == norm["name"]) == "replayed"


@needs_torch
def test_operators_of_old_torch_and_of_vendors_run_here_as_others(tmp_path: Path) -> None:
    vendors(tmp_path)
    result = run_benchmark(tmp_path / "benchmark", "--iterations", 1, "--warmup", 0)
    assert result["copied_instead"] == {}
    assert result["replaced_instead"] == {
        "aten::miopen_batch_norm_backward": {"share_pct": 25.0, "by": "aten::native_batch_norm_backward"}
    }


def test_an_operator_on_a_tensor_that_was_not_described_is_not_replayed(tmp_path: Path) -> None:
    """Compilers hand tensors to operators of which the profiler writes neither type nor shape; zeros need none."""
    undescribed = called([[], [64, 16], []], ["", "float", "Scalar"], ["", "", "1"])
    zeros = called([[], [], []], ["ScalarList", "Scalar", ""], ["[64, 16]", "6", ""])
    events = [
        annotation("ProfilerStep#1", 0, 100),
        op("aten::add", 10, 5, **undescribed),
        *on_gpu(1, 11, "vectorized_elementwise_kernel", 4),
        op("aten::zeros", 40, 5, **zeros),
        *on_gpu(2, 41, "vectorized_elementwise_kernel", 4),
    ]
    _, manifest = generated(tmp_path, events)
    assert {row["name"]: row["how"] for row in manifest["operators"]} == {
        "aten::add": "replaced",
        "aten::zeros": "replayed",
    }


def test_an_operator_on_a_sparse_tensor_is_not_replayed_on_one_of_its_whole_size(tmp_path: Path) -> None:
    """It has sizes and no strides; what is inside, on the values that are there, is called."""
    kinds, dims = ["float", "float"], [[20000, 32], [20000, 32]]
    events = [
        annotation("ProfilerStep#1", 0, 100),
        op("aten::add_", 10, 20, **called(dims, kinds, Input_Strides=[[32, 1], []])),
        op("aten::index_add", 12, 16, **called([[64, 32], [64, 32]], kinds, Input_Strides=[[32, 1], [32, 1]])),
        op("aten::mul_", 40, 20, **called([[], [64, 32]], kinds, Input_Strides=[[], [32, 1]])),
    ]
    plan, _ = generated(tmp_path, events)
    assert names(plan["ranks"]["0"]) == ["aten::index_add", "aten::mul_"]


@needs_torch
def test_bags_of_an_embedding_begin_in_their_order(tmp_path: Path) -> None:
    """Else torch refuses: the first has to begin at the first index."""
    bag = called([[500, 32], [64], [16], [], [], []], ["float", "long int", "long int", *["Scalar"] * 3])
    bag["Concrete_Inputs"] = ["", "", "", "False", "0", "False"]
    generated(tmp_path, [annotation("ProfilerStep#1", 0, 100), op("aten::_embedding_bag", 10, 80, **bag)])
    assert run_benchmark(tmp_path / "benchmark", "--iterations", 1, "--warmup", 0)["copied_instead"] == {}


BAGS = """
import json
from recorded_operators import Maker
kinds = [([16, 32], "float32"), *(([size], "int64") for size in (64, 16, 64, 16, 16))]
inputs = [{"dims": dims, "dtype": dtype} for dims, dtype in kinds]
inputs += [{"value": each} for each in (500, False, 1, False)]
operator = {"name": "aten::_embedding_bag_backward", "family": "embedding", "inputs": inputs, "below": 500}
_, indices, begins, bag_of, sizes, *_ = Maker("cpu").call(operator).positional
print(json.dumps([indices.max().item(), *(each.tolist() for each in (begins, bag_of, sizes))]))
"""


@needs_torch
def test_indices_are_in_bags_that_are_there() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "data" / "benchmark")}
    done = subprocess.run([sys.executable, "-c", BAGS], capture_output=True, text=True, check=False, env=environment)
    largest, *bags = json.loads(done.stdout)
    assert 400 < largest < 500
    assert bags == [list(range(0, 64, 4)), [index // 4 for index in range(64)], [4] * 16]


def test_a_view_is_of_no_family_of_work(tmp_path: Path) -> None:
    """Whatever is inside it took most of its time."""
    events = [
        annotation("ProfilerStep#1", 0, 100),
        op("aten::t", 10, 10, **MM),
        op("aten::transpose", 11, 8, **MM),
        op("aten::mm", 40, 20, **MM),
    ]
    plan, _ = generated(tmp_path, events)
    assert plan["ranks"]["0"]["families_ns"] == {"gemm": 20_000, "other": 10_000}


def test_families_of_the_same_time_are_by_name(tmp_path: Path) -> None:
    named = ["add", "convolution", "copy_", "embedding", "mm", "softmax", "sum"]
    calls = [op(f"aten::{name}", 10 * place, 5, **MM) for place, name in enumerate(named)]
    plan, _ = generated(tmp_path, [annotation("ProfilerStep#1", 0, 100), *calls])
    families = list(plan["ranks"]["0"]["families_ns"])
    assert families == sorted(families)
    assert len(families) > 4


def test_shares_are_of_the_gpu_time_and_add_up(tmp_path: Path) -> None:
    _, manifest = generated(tmp_path, STEP)
    whole = 10 + 4 + 20 + 6 + 3 + 5
    assert manifest["share_pct"] == pytest.approx(100 * (whole - 5) / whole, abs=0.01)
    assert sum(row["gpu_pct"] for row in manifest["operators"]) == pytest.approx(100, abs=0.01)
    assert manifest["share_of_gpu_time_with_shapes_pct"] == 100


def test_the_hosts_own_time_is_kept_between_calls(tmp_path: Path) -> None:
    plan, _ = generated(tmp_path, STEP)
    rank = plan["ranks"]["0"]
    assert rank["calls"]["gap_ns"] == [12_000, 15_000, 10_000, 4_000, 4_000]
    assert rank["last_gap_ns"] == 24_000
    assert rank["step_ns"] == 100_000


def alike(pauses: dict[int, float]) -> list[Event]:
    """Return five steps of two calls, the second 10 us after the first, and in some steps a pause more."""
    return [
        each
        for step in range(5)
        for each in (
            annotation(f"ProfilerStep#{step}", 1000 * step, 100 + pauses.get(step, 0)),
            op("aten::mm", 1000 * step + 10, 8, **MM),
            op("aten::add", 1000 * step + 28 + pauses.get(step, 0), 5, **ADD),
        )
    ]


def test_a_pause_in_the_chosen_step_is_none_of_the_hosts_own_time(tmp_path: Path) -> None:
    """What one step waits is no time of the job; what most of them do, is."""
    plan, manifest = generated(tmp_path, alike({2: 400, 3: 70}), step=2)
    assert plan["ranks"]["0"]["calls"]["gap_ns"] == [10_000, 10_000]
    assert plan["ranks"]["0"]["last_gap_ns"] == 67_000
    assert manifest["host_gaps_of_steps"] == {"0": 5}
    assert manifest["host_gaps_longer_in_step_ns"] == {"0": 400_000}


def test_a_pause_that_most_steps_have_is_kept(tmp_path: Path) -> None:
    plan, _ = generated(tmp_path, alike({0: 70, 2: 70, 3: 70}), step=1)
    assert plan["ranks"]["0"]["calls"]["gap_ns"] == [10_000, 80_000]


def test_gaps_of_steps_with_other_calls_do_not_count(tmp_path: Path) -> None:
    other = [each | {"name": "aten::sub"} if each["name"] == "aten::add" else each for each in alike({2: 400})]
    events = [*alike({2: 400})[6:9], *other[:6], *other[9:]]
    plan, manifest = generated(tmp_path, events, step=2)
    assert plan["ranks"]["0"]["calls"]["gap_ns"] == [10_000, 410_000]
    assert manifest["host_gaps_of_steps"] == {"0": 1}


def captured(profiled_us: float, *unprofiled_us: float) -> dict[str, Any]:
    """Return what `lumos-df capture` writes into a trace of what steps take with and without the profiler."""
    unprofiled = [round(us * 1000) for us in unprofiled_us]
    times = {"unprofiledBeforeNs": unprofiled[:1], "unprofiledAfterNs": unprofiled[1:]}
    return {"lumosCapture": {"profiledNs": [round(profiled_us * 1000)], "complete": True, **times}}


WRAPPED = [
    annotation("ProfilerStep#1", 0, 100),
    op("a_wrapper", 10, 20),
    op("a_wrapper_in_it", 12, 17),
    op("aten::mm", 15, 10, **MM),
    op("aten::fill_", 16, 2, **called([[64, 16], []], ["float", "Scalar"], ["", "0"])),
    op("aten::fill_", 20, 2, **called([[64, 16], []], ["float", "Scalar"], ["", "0"])),
    op("aten::add", 35, 5, **ADD),
    op("of_another_thread", 36, 1, tid=9),
    op("behind_the_last", 50, 1),
]
WRITTEN_DOWN = 8
"""Rows of the thread that makes the calls, the step's own among them."""


@pytest.mark.parametrize(
    ("times", "each_us", "unprofiled_ns"),
    [
        (captured(100 + WRITTEN_DOWN / 2, 98, 100, 102), 0.5, 100_000),
        (captured(90, 100), 0, 100_000),
        (captured(100), 0, None),
        ({}, 0, None),
    ],
    ids=["longer by 4 us", "no longer", "not timed without", "not by capture"],
)
def test_what_the_profiler_took_between_calls_goes_by_the_rows_that_begin_there(
    tmp_path: Path, times: dict[str, Any], each_us: float, unprofiled_ns: int | None
) -> None:
    """Before the first call begin the step, two wrappers and the call; what is inside it costs nothing outside."""
    corpus_of(tmp_path, WRAPPED, **times)
    generate(tmp_path / "corpus", tmp_path / "benchmark")
    rank = read(tmp_path / "benchmark")[0]["ranks"]["0"]
    assert names(rank) == ["aten::mm", "aten::add"]
    assert rank["calls"]["gap_ns"] == [15_000, 10_000]
    assert rank["calls"]["profiler_ns"] == [4 * 1000 * each_us, 1000 * each_us]
    assert rank["last_profiler_ns"] == 1000 * each_us
    assert rank["unprofiled_step_ns"] == unprofiled_ns


@needs_torch
def test_a_step_without_the_profiler_is_held_against_the_recorded_one_without_it(tmp_path: Path) -> None:
    """Of gaps of 200 ms the profiler took 150: they are there again under a profiler only."""
    calls = [op("aten::mm", 100_000, 10, **MM), op("aten::add", 200_000, 10, **ADD)]
    corpus_of(tmp_path, [annotation("ProfilerStep#1", 0, 200_010), *calls], **captured(200_000, 50_000))
    generate(tmp_path / "corpus", tmp_path / "benchmark")
    result = run_benchmark(tmp_path / "benchmark", "--iterations", 3, "--warmup", 1)
    assert (result["recorded_step_ms"], result["recorded_without_profiler_step_ms"]) == (200.01, 50)
    # A step that a busy machine made late is made up for by the next.
    assert 49 <= result["step_ms"] < 150
    assert result["profiled_step_ms"] >= 199


LATE = """
import argparse, json, pathlib
from benchmark import Step
plan = json.loads((pathlib.Path(__file__).parent / "plan.json").read_text())
step = Step(plan, 0, argparse.Namespace(small=1, seed=0, host_gaps="keep"))
step.late[0] = {late}
print(*step.timed(1), step.late[0])
"""


@needs_torch
@pytest.mark.parametrize(("late_ns", "least_ms", "most_ms"), [(0, 199, None), (150e6, 49, 150), (10e9, 0, 150)])
def test_what_a_step_was_late_by_is_taken_off_the_gaps_of_the_next(
    tmp_path: Path, late_ns: float, least_ms: float, most_ms: float | None
) -> None:
    """Of a pause longer than a step, one step is made up for."""
    calls = [op("aten::mm", 100_000, 10, **MM), op("aten::add", 200_000, 10, **ADD)]
    generated(tmp_path, [annotation("ProfilerStep#1", 0, 200_010), *calls])
    (tmp_path / "benchmark" / "late.py").write_text(LATE.format(late=late_ns))
    command = [sys.executable, str(tmp_path / "benchmark" / "late.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    step_ms, late = map(float, done.stdout.split())
    assert least_ms <= step_ms < (most_ms or sys.maxsize)
    assert late <= 200e6


WAITING = """
import argparse, json, pathlib
from statistics import mean, median
from benchmark import Step
plan = json.loads((pathlib.Path(__file__).parent / "plan.json").read_text())
step = Step(plan, 0, argparse.Namespace(small=1, seed=0, host_gaps="keep"))
times = step.timed(20)
print([row[2] is None for row in step.times[2][0]], mean(times), median(times))
"""


@needs_torch
def test_calls_in_a_graph_wait_as_long_as_recorded(tmp_path: Path) -> None:
    """Before each of 20 calls lie 0.2 ms; gaps of 1 us before as many others are waited for with the next."""
    near = [op("aten::add", 200 * turn + 11, 10, **ADD) for turn in range(1, 21)]
    calls = [op("aten::add", 200 * turn, 10, **ADD) for turn in range(1, 21)] + near
    corpus_of(tmp_path, [annotation("ProfilerStep#1", 0, 4100), *sorted(calls, key=lambda call: call["ts"])])
    generate(tmp_path / "corpus", tmp_path / "benchmark")
    joined, mean_ms, median_ms = run_beside(tmp_path / "benchmark", WAITING).split()
    assert joined == "[True]"
    assert float(mean_ms) > 3.7
    assert float(median_ms) < 7  # 20 x (179 + 1) us, 79 behind the last, and what 40 additions take


PAUSED = """
import argparse, json, pathlib, torch
from benchmark import Step
plan = json.loads((pathlib.Path(__file__).parent / "plan.json").read_text())
step = Step(plan, 0, argparse.Namespace(small=1, seed=0, host_gaps="cut"))
(number, run, *others), *rest = step.threads[0]
steps, large = iter(range(100)), torch.ones(1000, 1000)
def once_long():
    if next(steps) == 3:
        for _ in range(10):
            torch.mm(large, large)
    return run()
step.threads[0] = [(number, once_long, *others), *rest]
print(step.by_family(5)["gemm"])
"""


@needs_torch
def test_a_pause_in_one_step_is_no_time_of_a_family(tmp_path: Path) -> None:
    """Ten large products in one of five steps take 30 ms or more, a mean of 6; the step's own takes microseconds."""
    generated(
        tmp_path, [annotation("ProfilerStep#1", 0, 100), op("aten::mm", 10, 10, **MM), op("aten::add", 35, 5, **ADD)]
    )
    (tmp_path / "benchmark" / "paused.py").write_text(PAUSED)
    command = [sys.executable, str(tmp_path / "benchmark" / "paused.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 0 < float(done.stdout) < 3


def test_a_call_of_another_thread_begins_after_the_call_before_it(tmp_path: Path) -> None:
    backward = [op("aten::mm", 40, 8, tid=2, **MM), *on_gpu(2, 41), op("aten::mm", 60, 8, **MM), *on_gpu(3, 61)]
    plan, _ = generated(
        tmp_path, [annotation("ProfilerStep#1", 0, 100), op("aten::mm", 10, 8, **MM), *on_gpu(1, 11), *backward]
    )
    calls = plan["ranks"]["0"]["calls"]
    assert calls["thread"] == [0, 1, 0]
    assert calls["after"] == [None, 0, 1]
    assert calls["gap_ns"] == [10_000, 22_000, 12_000]


def test_work_on_another_stream_is_waited_for_once_it_had_ended(tmp_path: Path) -> None:
    events = [
        annotation("ProfilerStep#1", 0, 100),
        op("aten::mm", 1, 4, **MM),
        *on_gpu(1, 2, dur=30),
        op("aten::add", 6, 4, **ADD),
        *on_gpu(2, 7, "vectorized_elementwise_kernel", stream=20),
        op("aten::mm", 40, 4, **MM),
        *on_gpu(3, 41),
    ]
    calls = generated(tmp_path, events)[0]["ranks"]["0"]["calls"]
    assert calls["stream"] == [0, 1, 0]
    assert calls["waits"] == [[], [], [1]]


def test_what_a_collective_of_the_hosts_threads_took_is_no_time_of_the_hosts_own(tmp_path: Path) -> None:
    """The call behind it waits for it, and then for what the host did from its end on; a call before it does not."""
    said = stated("allreduce", 1000, 1000, Group_size=2, Process_Group_Name="7", Process_Group_Ranks="[0, 1]")
    events = [
        annotation("ProfilerStep#1", 0, 100),
        op("aten::mm", 10, 4, **MM),
        op("c10d::allreduce_", 20, 3, **called([[[1000]]], ["TensorList"])),
        op("record_param_comms", 21, 1, **called([[[1000]]], ["TensorList"]), **said),
        annotation("gloo:all_reduce", 24, 46, tid=9),
        op("aten::mm", 30, 4, **MM),
        op("aten::add", 75, 5, **ADD),
    ]
    calls = generated(tmp_path, events)[0]["ranks"]["0"]["calls"]
    assert calls["waits"] == [[], [], [], [1]]
    assert calls["gap_ns"] == [10_000, 6_000, 7_000, 5_000]


def test_a_trace_without_steps_begins_with_its_first_row(tmp_path: Path) -> None:
    plan, manifest = generated(tmp_path, [op("aten::mm", 5000, 8, **MM), *on_gpu(1, 5001)])
    assert plan["ranks"]["0"]["calls"]["gap_ns"] == [0]
    assert manifest["recorded_step_ns"] == {"0": 13_000}


def memory(ts: float, address: int, change: int) -> Event:
    """Return what the profiler writes of a block that is taken or released."""
    told = {"Addr": address, "Bytes": change, "Device_Type": 0, "Device_Id": -1}
    return x("[memory]", "cpu_instant_event", ts, 0, **told) | {"ph": "i", "s": "t"}


def test_results_live_as_long_as_their_memory_did(tmp_path: Path) -> None:
    """The first result lives until behind the second call, the second one into the next step, the third not at all."""
    events = [
        annotation("ProfilerStep#1", 0, 100),
        *(op("aten::mm", 10 * (1 + number), 8, **MM) for number in range(3)),
        memory(12, 64, 4096),
        memory(13, 96, 256),
        memory(14, 96, -256),
        memory(22, 128, 4096),
        memory(29, 64, -4096),
        memory(32, 160, 4096),
        memory(34, 160, -4096),
        annotation("ProfilerStep#2", 100, 100),
        memory(119, 128, -4096),
        op("aten::mm", 130, 8, **MM),
    ]
    plan, _ = generated(tmp_path, events, step=1)
    assert plan["memory"] is True
    assert plan["ranks"]["0"]["calls"]["releases"] == [[1], [0], []]


def test_where_tensors_come_from_is_told_by_their_addresses(tmp_path: Path) -> None:
    """500 and 700 are there in every step; 64 is a result, then other memory that no call took, then a result again."""

    def product(ts: float, *storages: int | None) -> Event:
        return op("aten::mm", ts, 8, **MM, Input_Storages=list(storages))

    events = [
        memory(-5, 500, 4096),
        annotation("ProfilerStep#1", 0, 100),
        product(10, 500, 700),
        memory(12, 64, 4096),
        product(20, 64, 500),
        memory(29, 64, -4096),
        memory(30, 64, 4096),
        product(40, 64, 64),
        memory(49, 64, -4096),
        product(50, None, 700),
        memory(52, 64, 4096),
        memory(53, 1000, 256),
        memory(54, 1064, 256),
        memory(55, 1128, 256),
        product(60, 64, 700),
        product(65, 1128, 1000),
        op("aten::mm", 75, 5, **MM),
        product(80, 64),
        op("aten::mm", 90, 8, **MM, Input_Storages={"of": "another maker"}),
    ]
    plan, _ = generated(tmp_path, events)
    first, second, third, fourth, fifth, several, *others = plan["ranks"]["0"]["calls"]["sources"]
    old, parameter = first
    (between,) = set(third)
    assert (second, fourth, fifth, others) == ([0, old], [None, parameter], [3, parameter], [[]] * 3)
    assert len({old, parameter, between}) == 3
    assert max(old, parameter, between) < 0
    assert several == [3 + 9, 3]  # of the two that are read the second and the first, of nine calls


def test_shapes_of_a_captured_region_are_none_of_its_kernels(tmp_path: Path) -> None:
    region = [
        op("CompiledFunction", 50, 20, **called([[64, 32]], ["float"])),
        x("cudaGraphLaunch", "cuda_runtime", 55, 1, correlation=9),
    ]
    events = [annotation("ProfilerStep#1", 0, 100), op("aten::mm", 1, 4, **MM), *on_gpu(1, 2, dur=30)]
    _, manifest = generated(tmp_path, [*events, *region, kernel("gemm", 60, 10, correlation=9)])
    assert manifest["share_pct"] == 75
    assert manifest["share_of_gpu_time_with_shapes_pct"] == 100
    row = next(row for row in manifest["operators"] if row["how"] == "left out")
    assert row["reason"].startswith("launched by a CUDA graph: recorded are the shapes of the whole region")


def test_a_synchronisation_is_called_and_is_no_time_of_the_hosts_own(tmp_path: Path) -> None:
    events = [
        annotation("ProfilerStep#1", 0, 100),
        op("aten::mm", 1, 4, **MM),
        *on_gpu(1, 2, dur=30),
        x("cudaDeviceSynchronize", "cuda_runtime", 6, 30, correlation=9),
    ]
    rank = generated(tmp_path, events)[0]["ranks"]["0"]
    assert names(rank) == ["aten::mm", "synchronize"]
    assert rank["calls"]["gap_ns"] == [1_000, 1_000]


def two_ranks(tmp_path: Path, second: str = "allreduce") -> Path:
    """Ingest two ranks with a collective each: the same, or not."""
    for rank, name in enumerate(("allreduce", second)):
        said = stated(name, 1000, 1000, Group_size=2, Process_Group_Name="7", Process_Group_Ranks="[0, 1]")
        events = [
            annotation("ProfilerStep#1", 0, 100),
            op("aten::mm", 1, 4, **MM),
            *on_gpu(1, 2),
            op(f"c10d::{name}_", 20, 6, **called([[[1000]]], ["TensorList"])),
            op("record_param_comms", 21, 4, **called([[[1000]]], ["TensorList"]), **said),
            *on_gpu(2, 22, f"ncclDevKernel_{name}_Sum_bf16_RING_LL", **said),
        ]
        write(tmp_path / "job" / f"rank{rank}.json", events, distributedInfo={"rank": rank, "world_size": 2})
    assert not ingest([tmp_path / "job"], tmp_path / "corpus", workers=1).failed
    return tmp_path / "corpus"


def test_collectives_run_among_their_ranks(tmp_path: Path) -> None:
    generate(two_ranks(tmp_path), tmp_path / "benchmark")
    plan, manifest = read(tmp_path / "benchmark")
    collective = plan["ranks"]["1"]["operators"][1]
    assert (collective["collective"], collective["bytes"], collective["dtype"]) == (
        "all_reduce",
        [2000, 2000],
        "bfloat16",
    )
    assert plan["groups"][collective["group"]] == [0, 1]
    assert manifest["missing_ranks"] == []


@pytest.mark.parametrize(("second", "ranks", "missing"), [("allreduce", "0", [1]), ("broadcast", "all", [])])
def test_a_collective_without_its_ranks_is_a_copy(tmp_path: Path, second: str, ranks: str, missing: list[int]) -> None:
    generate(two_ranks(tmp_path, second), tmp_path / "benchmark", ranks=ranks)
    plan, manifest = read(tmp_path / "benchmark")
    collective = plan["ranks"]["0"]["operators"][1]
    assert len(plan["groups"][collective["group"]]) == 1
    assert manifest["missing_ranks"] == missing
    row = next(row for row in manifest["operators"] if row["name"] == "c10d::allreduce_")
    assert (row["how"], row["by"]) == ("replaced", "a copy of as many bytes")


def test_less_than_half_is_refused_without_force(tmp_path: Path) -> None:
    events = [annotation("ProfilerStep#1", 0, 100), op("no_shapes", 10, 6), *on_gpu(6, 12)]
    corpus_of(tmp_path, events)
    with pytest.raises(QueryError, match=r"0\.0% of the GPU time can be replayed, the rest is no_shapes .*--force"):
        generate(tmp_path / "corpus", tmp_path / "benchmark")
    assert not (tmp_path / "benchmark").exists()
    assert generate(tmp_path / "corpus", tmp_path / "benchmark", force=True).operators == 0


def test_names_of_modules_are_kept_by_a_flag_only(tmp_path: Path) -> None:
    events = [x("nn.Module: Hidden_0", "python_function", 5, 60), *STEP]
    plan, _ = generated(tmp_path, events)
    texts = "".join(file.read_text() for file in (tmp_path / "benchmark").iterdir())
    assert "Hidden" not in texts
    assert str(tmp_path) not in texts
    plan, _ = generated(tmp_path, events, modules=True)
    assert plan["ranks"]["0"]["calls"]["module"][0] == "Hidden_0"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"job": "other"}, "no job or trace 'other'"),
        ({"step": 9}, "no step 9 on all ranks asked for; they have 5"),
        ({"ranks": "3"}, "no rank '3'; recorded are 0"),
    ],
)
def test_what_is_not_there_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    corpus_of(tmp_path, STEP)
    with pytest.raises(LumosError, match=message):
        generate(tmp_path / "corpus", tmp_path / "benchmark", **options)


def op_id_of(tmp_path: Path, name: str) -> int:
    """Return the id of the first row of a name."""
    with connect(tmp_path / "corpus") as connection:
        ((op_id,),) = connection.execute("SELECT min(op_id) FROM operators WHERE name = $1", [name]).fetchall()
    return int(op_id)


@pytest.mark.parametrize(
    ("asked", "operator", "recorded_ns"),
    [
        ("aten::mm", "aten::mm", 10_000),
        ("aten::fill_", "aten::fill_", 1_000),  # which is inside another that is called in the step
        ("vectorized_elementwise_kernel", "aten::add", 4_000),
        ("triton_poi_0", "triton_poi_own", 6_000),
    ],
)
def test_one_operator_is_a_script(tmp_path: Path, asked: str, operator: str, recorded_ns: int) -> None:
    corpus_of(tmp_path, STEP)
    assert write_operator(tmp_path / "corpus", tmp_path / "one", op_id_of(tmp_path, asked)) == 1
    text = (tmp_path / "one" / SCRIPT).read_text()
    assert f"RECORDED, RECORDED_US = {operator!r}, {recorded_ns / 1e3}\n" in text
    assert len(text.splitlines()) <= PAGE


def test_what_is_no_operator_with_inputs_is_no_script(tmp_path: Path) -> None:
    corpus_of(tmp_path, STEP)
    with pytest.raises(QueryError, match=r"unknown_kernel, whose inputs are not known.*record with shapes"):
        write_operator(tmp_path / "corpus", tmp_path / "one", op_id_of(tmp_path, "unknown_kernel"))
    with pytest.raises(QueryError, match="no operator 999 in the trace; name its trace with --job"):
        write_operator(tmp_path / "corpus", tmp_path / "one", 999)
    assert not (tmp_path / "one").exists()


def test_a_collective_alone_is_refused(tmp_path: Path) -> None:
    corpus = two_ranks(tmp_path)
    with pytest.raises(QueryError, match="c10d::allreduce_, a collective, which one process cannot run"):
        write_operator(corpus, tmp_path / "one", op_id_of(tmp_path, "c10d::allreduce_"))


def test_a_wait_for_the_gpu_is_no_time_of_the_operators(tmp_path: Path) -> None:
    sync = x("cudaDeviceSynchronize", "cuda_runtime", 90, 5000)
    _, manifest = generated(tmp_path, [*STEP, sync])
    assert sum(row["host_pct"] for row in manifest["operators"]) <= 100


def test_a_family_is_its_distinct_shapes(tmp_path: Path) -> None:
    again = [op("aten::mm", 88, 4, **MM), *on_gpu(7, 89, dur=20)]
    corpus_of(tmp_path, [*STEP, *again])
    assert write_family(tmp_path / "corpus", tmp_path / "sweep", "gemm") == 1
    assert cases(tmp_path / "sweep" / SCRIPT)[0]["recorded_ns"] == 15_000
    with pytest.raises(QueryError, match="no operators of family 'gem'; did you mean 'gemm'"):
        write_family(tmp_path / "corpus", tmp_path / "sweep", "gem")


PAGE = 85  # lines


@needs_torch
@pytest.mark.parametrize(
    ("asked", "called_"),
    [
        ("aten::mm", "aten::mm"),
        ("aten::add", "aten::add"),
        ("mylib::flash_attn_fwd", "aten::scaled_dot_product_attention"),
        ("triton_poi_own", "aten::copy_"),
    ],
)
def test_the_script_of_an_operator_runs_and_says_what_it_calls(tmp_path: Path, asked: str, called_: str) -> None:
    corpus_of(tmp_path, STEP)
    write_operator(tmp_path / "corpus", tmp_path / "one", op_id_of(tmp_path, asked))
    done = subprocess.run([sys.executable, tmp_path / "one" / SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["operator"], said["called"]) == (asked, called_)
    assert said["median_us"] > 0


@needs_torch
def test_the_script_of_an_embedding_takes_rows_that_are_there(tmp_path: Path) -> None:
    """Its integers are drawn below the rows of its table, also where these are fewer than any other size."""
    lookup = called([[5, 64], [32, 16]], ["float", "long int"])
    corpus_of(tmp_path, [annotation("ProfilerStep#1", 0, 100), op("aten::embedding", 10, 8, **lookup)])
    write_operator(tmp_path / "corpus", tmp_path / "one", op_id_of(tmp_path, "aten::embedding"))
    assert "torch.int64, below=5)" in (tmp_path / "one" / SCRIPT).read_text()
    done = subprocess.run([sys.executable, tmp_path / "one" / SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def cases(script: Path) -> list[dict[str, Any]]:
    """Return what a script has for CASES."""
    tree = ast.parse(script.read_text())
    value = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "CASES"
    )
    found: list[dict[str, Any]] = ast.literal_eval(value)
    return found


def test_the_command_says_how_to_run_it(lumos: Run, tmp_path: Path) -> None:
    two_ranks(tmp_path)
    done = lumos("generate", "--corpus", "corpus", "--output", "benchmark", "--ranks", "0", COLUMNS="100")
    assert done.returncode == 0
    said = "benchmark: 1 rank, 2 operators for 100.0% of the GPU time, 50.0% by others that stand for them"
    assert f"{said}\nrun: python benchmark/benchmark.py\n" in done.stderr
    assert "without 1 rank (1)" in done.stderr
    assert {path.name for path in (tmp_path / "benchmark").iterdir()} == {
        "benchmark.py",
        "joined_calls.py",
        "recorded_operators.py",
        "recorded_results.py",
        "recorded_state.py",
        "manifest.json",
        "plan.json",
    }


def run_benchmark(folder: Path, *options: object, ranks: int = 1) -> dict[str, Any]:
    """Run a benchmark with torch and return what it prints."""
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks) if ranks > 1 else ()
    command = [str(word) for word in (sys.executable, *launch, folder / "benchmark.py", *options)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@needs_torch
def test_a_benchmark_of_gpus_runs_here_and_names_what_it_copies(tmp_path: Path) -> None:
    unknown = op("aten::of_another_torch", 88, 4, **called([[8, 8]], ["float"]))
    generated(tmp_path, [*STEP, unknown, *on_gpu(7, 89, dur=2)])
    result = run_benchmark(tmp_path / "benchmark", "--small", 2, "--iterations", 2, "--warmup", 0)
    assert list(result["copied_instead"]) == ["aten::of_another_torch"]
    said = result["copied_instead"]["aten::of_another_torch"]
    assert (said["share_pct"], result["copied_instead_pct"]) == (pytest.approx(100 * 2 / 50), pytest.approx(4))
    assert "of_another_torch" in said["reason"]
    assert {"gemm", "attention"} <= set(result["families_ms"])


@needs_torch
def test_a_script_names_what_this_torch_does_not_run(tmp_path: Path) -> None:
    unknown = op("aten::of_another_torch", 88, 4, **called([[8, 8]], ["float"]))
    corpus_of(tmp_path, [*STEP, unknown, *on_gpu(7, 89, dur=2)])
    write_operator(tmp_path / "corpus", tmp_path / "one", op_id_of(tmp_path, "aten::of_another_torch"))
    done = subprocess.run([sys.executable, tmp_path / "one" / SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.match(r"aten::of_another_torch does not run with torch \S+ on \w+: .*of_another_torch", done.stderr)
    assert len(done.stderr.splitlines()) == 1


@needs_torch
def test_two_ranks_run_over_gloo_and_their_own_trace_compares_with_the_recording(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    assert not ingest([SAMPLES / "cpu_ddp"], corpus, job="recorded", workers=1).failed
    generate(corpus, tmp_path / "benchmark")
    result = run_benchmark(
        tmp_path / "benchmark", "--iterations", 3, "--warmup", 1, "--trace", tmp_path / "again", ranks=2
    )
    assert result["copied_instead"] == {}
    assert not ingest([tmp_path / "again"], corpus, job="benchmark", workers=1).failed
    rows, *_ = diff(corpus, "recorded", "benchmark", [Grouping.OPERATOR])
    both = {row["value"] for row in rows.to_pylist() if row["a_ns"] and row["b_ns"]}
    assert {"aten::addmm", "aten::mm"} <= both
    # What keeps ranks together in the recording does so here: no barrier is in a step.
    assert not [row["value"] for row in rows.to_pylist() if "barrier" in str(row["value"])]


def benchmark_of_script(tmp_path: Path, script: str) -> None:
    """Record two steps of a training script and write a benchmark of one."""
    (tmp_path / "train.py").write_text(script)
    capture = ("lumos_df", "capture", "--warmup", 1, "--unprofiled", 0, "--steps", 2, "--output", tmp_path / "traces")
    command = [str(word) for word in (sys.executable, "-m", *capture, "--", sys.executable, tmp_path / "train.py")]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert not ingest([tmp_path / "traces"], tmp_path / "corpus", workers=1).failed
    generate(tmp_path / "corpus", tmp_path / "benchmark")


def run_beside(benchmark: Path, program: str) -> str:
    """Run a program that imports a benchmark's, and return what it prints."""
    (benchmark / "beside.py").write_text(program)
    command, environment = [sys.executable, str(benchmark / "beside.py")], os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


EVERY_NET = """
import torch
from torch.nn.functional import cross_entropy
from tools.plain_nets import NETS
sizes = {
    "gpt": (1, 32, 2, 8), "encoder": (1, 32, 2, 8), "mixer": (1, 16, 2, 9), "conv": (1, 8, 2, 8), "lstm": (1, 16, 2, 8),
    "vit": (1, 16, 2, 8), "resnet": (1, 8, 2, 32), "dlrm": (1, 16, 8, 3), "bf16": (1, 32, 2, 8),
}
nets = [NETS[net][0](*map(size.__getitem__, (0, 1, 3))) for net, size in sizes.items()]
inputs = [NETS[net][1](size) for net, size in sizes.items()]
optimizer = torch.optim.AdamW([each for net in nets for each in net.parameters()])
for _ in range(8):
    for net, given in zip(nets, inputs):
        logits = net(given).flatten(0, -2)
        cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64)).backward()
    optimizer.step(); optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def every_net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a recording of all plain nets in one step, and of its benchmark."""
    folder = tmp_path_factory.mktemp("every-net")
    benchmark_of_script(folder, EVERY_NET)
    return folder


@needs_torch
def test_a_benchmark_of_the_benchmark_makes_the_same_calls(every_net: Path) -> None:
    """Of attention, convolutions, recurrent layers, bags, normalizations and optimizers; `diff` pairs all of them."""
    printed = run_benchmark(every_net / "benchmark", "--iterations", 1, "--warmup", 0, "--trace", every_net / "again")
    assert printed["copied_instead"] == {}
    assert not ingest([every_net / "again"], every_net / "corpus", job="again", workers=1).failed
    with connect(every_net / "corpus") as connection:
        (job,) = {name for (name,) in connection.execute("SELECT job FROM traces").fetchall()} - {"again"}
        steps = "SELECT trace_id, max(step) FROM step JOIN traces USING (trace_id) WHERE step.job = $1 GROUP BY 1"
        recorded, again = (
            replay(RecordedRows.read(connection, *connection.execute(steps, [each]).fetchall()[0])).calls["name"]
            for each in (job, "again")
        )
    assert len(recorded) > 1000
    assert recorded.to_list() == again.to_list()
    rows, *_ = diff(every_net / "corpus", job, "again", [Grouping.OPERATOR])
    times = {row["value"]: (row["a_ns"], row["b_ns"]) for row in rows.to_pylist()}
    assert not [name for name in set(recorded) if not all(times[name])]


JOINED = """
import argparse, json, pathlib, torch
from benchmark import Step
plan = json.loads((pathlib.Path(__file__).parent / "plan.json").read_text())
options = argparse.Namespace(small=1, seed=0, host_gaps="cut")
together, one_by_one = Step(plan, 0, options), Step(plan, 0, options)
rows = together.times[2][0]
print(len(rows), len(together.threads[0]))
one_by_one.times = *one_by_one.times[:2], one_by_one.threads
for step in (together, one_by_one):
    step.timed(3)
pairs = [(first, one_by_one.maker.state.pool[place]) for place, first in together.maker.state.pool.items()]
print(len(pairs), all(bool(pair[0].isfinite().all()) and torch.equal(*pair) for pair in pairs))
kept = [{number: len(results) for number, results in step.results.held.items()} for step in (together, one_by_one)]
print(len(together.results.kept), kept[0] == kept[1])
"""


@needs_torch
def test_calls_in_a_graph_do_what_they_do_one_by_one(every_net: Path) -> None:
    """All are in one, of lists and of what asks for gradients, too; weights and states become what they become."""
    (rows, calls), (tensors, same), (kept, as_long) = (
        line.split() for line in run_beside(every_net / "benchmark", JOINED).splitlines()
    )
    assert (int(rows), same, as_long) == (1, "True", "True")
    assert int(calls) > 1000
    assert int(tensors) > 100
    assert int(kept) > 0


INDEXED = """
import torch
w = torch.nn.Parameter(torch.randn(64, 64)); which = torch.tensor([3, 1, 7, 5])
optimizer = torch.optim.SGD([w], lr=0.01)
for _ in range(6):
    (w[which] @ w @ w).sum().backward()
    optimizer.step(); optimizer.zero_grad()
"""


@needs_torch
def test_an_execution_trace_beside_the_profile_makes_the_benchmark_exact(tmp_path: Path) -> None:
    """With it the list of indices is known, and the parameter that three operators read is one tensor; else neither."""
    (tmp_path / "train.py").write_text(INDEXED)
    capture = ("lumos_df", "capture", "--warmup", 1, "--unprofiled", 0, "--steps", 2, "--execution-trace")
    script = ("--output", tmp_path / "with", "--", sys.executable, tmp_path / "train.py")
    command = (sys.executable, "-m", *capture, *script)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    (tmp_path / "without").mkdir()
    shutil.copy(tmp_path / "with" / "rank0.json.gz", tmp_path / "without")
    indexes, storages = {}, {}
    for name in ("with", "without"):
        assert not ingest([tmp_path / name], tmp_path / f"{name}-corpus", workers=1).failed
        generate(tmp_path / f"{name}-corpus", tmp_path / f"{name}-benchmark")
        plan = json.loads((tmp_path / f"{name}-benchmark" / "plan.json").read_text())
        operators = next(iter(plan["ranks"].values()))["operators"]
        read = [
            each for one in operators if one["name"] in {"aten::matmul", "aten::index"} for each in one["inputs"][:2]
        ]
        storages[name] = [each.get("storage") for each in read if each.get("dims") == [64, 64]]
        indexes[name] = [one["inputs"][1]["list"][0]["dtype"] for one in operators if one["name"] == "aten::index"]
    assert (indexes["with"], indexes["without"]) == (["int64"], [])
    assert len(storages["with"]) == 3
    assert len(set(storages["with"])) == 1
    assert set(storages["without"]) == {None}
    assert run_benchmark(tmp_path / "with-benchmark", "--iterations", 1, "--warmup", 0)["copied_instead"] == {}


READ_LATER = """
import torch
bag, layer = torch.nn.EmbeddingBag(50, 16, mode="sum"), torch.nn.LSTM(16, 8)
rows, offsets = torch.randint(50, (40,)), torch.arange(0, 40, 2)
optimizer = torch.optim.Adam([*bag.parameters(), *layer.parameters()], foreach=False)
for _ in range(8):
    layer(bag(rows, offsets)[:, None])[0].sum().backward()
    optimizer.step(); optimizer.zero_grad()
"""
STATES = """
import argparse, json, pathlib
from benchmark import Step
plan = json.loads((pathlib.Path(__file__).parent / "plan.json").read_text())
step = Step(plan, 0, argparse.Namespace(small=1, seed=0, host_gaps="cut"))
step.timed(3)
states = [call["run"].positional[0] for call in step.calls if "sqrt" in str(getattr(call["run"], "run", ""))]
print(json.dumps([[*state.shape, float((state > 0).float().mean())] for state in states]))
"""


@needs_torch
def test_what_the_backward_pass_reads_of_a_layer_and_of_indices_is_what_the_forward_pass_made(tmp_path: Path) -> None:
    """Else gradients, and what an optimizer keeps of them, are zero: of zeros a root takes 20 times as long."""
    benchmark_of_script(tmp_path, READ_LATER)
    states = json.loads(run_beside(tmp_path / "benchmark", STATES))
    assert [shape for *shape, _ in states] == [[50, 16], [32, 16], [32, 8], [32], [32]]
    rows, *weights = (share for *_, share in states)
    assert 0.4 < rows < 0.7  # of 50 rows 40 draws hit 28
    assert min(weights) > 0.9


IN_PLACE = """
import torch
w = torch.nn.Parameter(torch.randn(64, 32)); given = torch.randn(16, 64)
optimizer = torch.optim.SGD([w], lr=0.01, momentum=0.9, foreach=False)
for _ in range(8):
    torch.relu_(given @ w).sum().backward()
    optimizer.step(); optimizer.zero_grad()
"""
SAME = """
import argparse, json, pathlib, torch
from benchmark import Step
plan = json.loads((pathlib.Path(__file__).parent / "plan.json").read_text())
step = Step(plan, 0, argparse.Namespace(small=1, seed=0, host_gaps="cut"))
calls = {step.plan["operators"][call["operator"]]["name"]: n for n, call in enumerate(step.calls)}  # the last of each
product, relu = calls["aten::matmul"], calls["aten::relu_"]
(_, place, _, maker, which), = step.results.reads[relu]
print((place, maker, which) == (0, product, 0))
written = [call["run"] for call in step.calls if step.plan["operators"][call["operator"]]["name"] == "aten::add_"][-1]
print(written.positional[0].data_ptr() == step.calls[product]["run"].positional[1].data_ptr())
step.maker.state.reset()
decayed, _ = next(call["run"] for call in step.calls if "mul_" in str(call["run"].run)).positional
print(bool((decayed == 0).all()))  # the momentum
weight = step.calls[product]["run"].positional[1]
print(bool(weight.min() < 0 < weight.max() < (3 / 32) ** 0.5))
for _ in range(20):
    step.timed(1)
print(all(bool(each.isfinite().all()) for each in step.maker.state.pool.values()))
"""


@needs_torch
def test_a_capture_tells_which_tensors_operators_share(tmp_path: Path) -> None:
    """What is changed in place is what the call before it made; an optimizer changes the parameter that was read."""
    benchmark_of_script(tmp_path, IN_PLACE)
    assert run_beside(tmp_path / "benchmark", SAME).split() == ["True"] * 5
    assert run_benchmark(tmp_path / "benchmark", "--iterations", 1, "--warmup", 0)["copied_instead"] == {}


@needs_torch
def test_smaller_sizes_still_fit_each_other_in_a_normalization_of_groups(tmp_path: Path) -> None:
    """Groups divide the channels, and a product of sizes is one of the smaller ones."""
    given = [[32, 64, 30, 30], [64], [64]]
    forward = called([given[0], [], *given[1:], [], []], ["float", "Scalar", "float", "float", "Scalar", "Scalar"])
    forward["Concrete_Inputs"] = ["", "32", "", "", "1e-05", "False"]
    back = called(
        [given[0], given[0], [32, 32], [32, 32], [64], [], [], [], [], []],
        [*["float"] * 5, *["Scalar"] * 4, "ScalarList"],
        [*[""] * 5, "32", "64", "900", "32", "[True, True, True]"],
    )
    calls = [op("aten::group_norm", 10, 30, **forward), op("aten::native_group_norm_backward", 50, 40, **back)]
    generated(tmp_path, [annotation("ProfilerStep#1", 0, 100), *calls])
    printed = run_benchmark(tmp_path / "benchmark", "--iterations", 1, "--warmup", 0, "--small", 16)
    assert printed["copied_instead"] == {}


PARTS = """
import torch
from recorded_operators import Maker
from recorded_state import State
changed = [{"name": "aten::mul_", "inputs": [{"dims": [size], "dtype": "float32"}]} for size in (4, 2, 3)]
state = State(Maker("cpu"), changed, [0, 1, 2], [[-1], [-1], [-2]])
four, two, whole = (
    state.tensor(one["inputs"][0], source, one["inputs"][0]["dims"], [1])
    for one, source in zip(changed, (-1, -1, -2))
)
state.reset()
print(bool((four != 0).all()), bool((two != 0).all()), bool((whole == 0).all()))
two.zero_()
print(bool((four != 0).all()))
"""


@needs_torch
def test_parts_of_a_bucket_do_not_write_over_one_another() -> None:
    """Where each begins is not recorded; what only an optimizer changes, and as a whole, begins at zero."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "data" / "benchmark")}
    done = subprocess.run([sys.executable, "-c", PARTS], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split() == ["True"] * 4, done.stderr


LARGEST_BYTES = 1e6  # of a job, so that the test stays short
SMALL_JOBS = [
    job for traces in SETS for job in jobs(traces) if sum(file.stat().st_size for file in job.iterdir()) < LARGEST_BYTES
]
PRIVATE = re.compile(r"(/[\w.-]+){2,}|\.py\b|nn\.Module|\w+\.(?:com|net|local)\b|@")
"""Paths, files, modules, hosts."""


@pytest.mark.skipif(not SMALL_JOBS, reason=ABSENT)
@pytest.mark.parametrize("job", SMALL_JOBS, ids=lambda job: job.parent.name + "/" + job.name)
def test_real_benchmarks_hold_no_paths_hosts_or_modules(tmp_path: Path, job: Path) -> None:
    assert not ingest([job], tmp_path / "corpus", workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        first, *_ = connection.execute("SELECT trace_id FROM traces ORDER BY rank, trace_id").fetchall()
        modules = {text for (text,) in connection.execute("SELECT DISTINCT module FROM operators").fetchall() if text}
    generate(tmp_path / "corpus", tmp_path / "benchmark", job=first[0], force=True)
    plan, manifest = read(tmp_path / "benchmark")
    texts = set(_texts(plan)) | set(_texts(manifest))
    assert not [text for text in texts if PRIVATE.search(text)]
    assert not modules & texts


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
