"""What a generated benchmark holds: which operators it calls, with which inputs, and what it owns up to."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lumos_df import connect
from lumos_df.base.errors import LumosError, QueryError
from lumos_df.corpus.folder import trace_ids
from lumos_df.generate.benchmark_folder import generate
from lumos_df.trace.ingest import ingest
from tests.conftest import Run
from tests.generate.benchmarks import (
    GRADIENT,
    IMAGE,
    KERNEL,
    MM,
    STEP,
    called,
    generated,
    names,
    needs_torch,
    on_gpu,
    read,
    run_benchmark,
    two_ranks,
    vendors,
)
from tests.real import ABSENT, SETS, jobs
from tests.trace.literal import annotation, corpus_of, op, x


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


def test_of_several_runs_of_a_rank_one_is_named_by_its_trace(tmp_path: Path) -> None:
    corpus_of(tmp_path, STEP, "one/job/rank0.json")
    corpus_of(tmp_path, [*STEP, *on_gpu(6, 82)], "two/job/rank0.json")
    with pytest.raises(LumosError, match="'job' is several runs of one rank; name one by its trace: --job TRACE"):
        generate(tmp_path / "corpus", tmp_path / "benchmark")
    runs = sorted(trace_ids(tmp_path / "corpus"))
    made = [generate(tmp_path / "corpus", tmp_path / run, job=run).share_pct for run in runs]
    assert made[0] != made[1]


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
        "replayed_step.py",
        "manifest.json",
        "plan.json",
    }


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
