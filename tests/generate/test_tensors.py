"""Which tensors the calls of a generated benchmark share, and how long their results live."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from lumos_df.generate.benchmark_folder import generate
from lumos_df.trace.ingest import ingest
from tests.conftest import ROOT
from tests.generate.benchmarks import (
    MM,
    benchmark_of_script,
    called,
    generated,
    memory,
    needs_torch,
    on_gpu,
    run_benchmark,
    run_beside,
)
from tests.trace.literal import Event, annotation, kernel, op, x


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


UNDEFINED = """
import torch
from recorded_operators import Maker
half, float32 = ({"dims": [2, 4, 8, 16], "dtype": "bfloat16"}, {"dims": [2, 4, 8, 1], "dtype": "float32"})
seed = {"dims": [], "dtype": "int64"}
numbers = [{"value": each} for each in (8, 8, 0.1, True, 0.25)]
inputs = [*[half] * 5, float32, seed, seed, None, None, None, *numbers]
operator = {"name": "aten::_scaled_dot_product_cudnn_attention_backward", "inputs": inputs}
backward = torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default
maker = Maker("cpu")
positional, named, _ = maker.arguments(backward._schema, "of a GPU", operator, 0, ())
print(positional[8:], named)
away = [each.to("meta") if isinstance(each, torch.Tensor) else each for each in positional]
print(*(tuple(each.shape) for each in backward(*away, **named)))
"""


@needs_torch
def test_a_tensor_of_which_nothing_was_recorded_is_none() -> None:
    """The backward pass of cuDNN's attention reads a mask and lengths of sequences only where there are any."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "data" / "benchmark")}
    done = subprocess.run(
        [sys.executable, "-c", UNDEFINED], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout.splitlines() == [
        "[None, None, None, 8, 8, 0.1, True] {'scale': 0.25}",
        "(2, 4, 8, 16) (2, 4, 8, 16) (2, 4, 8, 16)",
    ], done.stderr
