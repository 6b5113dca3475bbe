"""Lists of an optimizer, of whose tensors nothing was recorded, have the shapes of the gradients."""

from math import ceil, prod
from pathlib import Path
from typing import Any

import pytest

from tests.generate.benchmarks import MM, called, generated, needs_torch, on_gpu, run_benchmark
from tests.trace.literal import Event, annotation, op

APPLY = "void at::native::multi_tensor_apply_kernel<at::native::{}, at::native::{}Functor<{}, 1, 1, 0>, float>"
WEIGHT, TABLE, BIAS = [512, 300], [1000, 130], [512]


def accumulated(*dims: list[int], passes: int = 1, kind: str = "float") -> list[Event]:
    """Return a product, and what autograd writes of gradients, 2 us after one another."""
    names = [op("aten::mm", 10, 4, **MM), *on_gpu(1, 11)]
    many = [each for _ in range(passes) for each in dims]
    for place, each in enumerate(many):
        strides = [[each[1], 1] if len(each) == 2 else [1]]
        given = called([each], [kind], [""], Input_Strides=strides)
        names.append(op("torch::autograd::AccumulateGrad", 20 + 2 * place, 1, **given))
    return names


def updated(name: str, blocks: int, types: list[str], kernel: tuple[str, str, str], *numbers: str) -> list[Event]:
    """Return an operator on lists at 60 us, with as many blocks in two kernels."""
    given = called([[] for _ in types], types, [*("" for _ in types[len(numbers) :]), *numbers])
    described = [op(name, 60, 10, **given, Input_Strides=[[] for _ in types])]
    for number, part in enumerate((blocks - 1, 1)):
        described += on_gpu(5 + number, 61 + 4 * number, APPLY.format(*kernel), 3, grid=[part, 1, 1])
    return described


def lists(tmp_path: Path, events: list[Event]) -> list[Any]:
    """Return the inputs of the operator on lists; nothing where it is left out."""
    plan, _ = generated(tmp_path, [annotation("ProfilerStep#1", 0, 100), *events])
    operators = plan["ranks"]["0"]["operators"]
    return next((each["inputs"] for each in operators if each["name"] != "aten::mm"), [])


def blocks(*dims: list[int]) -> int:
    return sum(ceil(prod(each) / 65_536) for each in dims)


ONE_LIST = ("TensorListMetadata<1>", "BinaryOpScalar", "float")


@pytest.mark.parametrize(
    ("listed", "passes"),
    [((BIAS, WEIGHT, TABLE), 1), ((BIAS, WEIGHT, TABLE), 3), ((WEIGHT, TABLE), 1), ((BIAS,) * 2, 1)],
    ids=["all", "of three micro-batches", "matrices", "the rest"],
)
def test_a_list_is_the_gradients_whose_blocks_its_kernels_have(
    tmp_path: Path, listed: tuple[list[int], ...], passes: int
) -> None:
    gradients = accumulated(TABLE, WEIGHT, BIAS, *([BIAS] if listed == (BIAS,) * 2 else []), passes=passes)
    events = updated("aten::_foreach_mul_", blocks(*listed), ["TensorList", "Scalar"], ONE_LIST, "0.9")
    tensors, factor = lists(tmp_path, [*gradients, *events])
    assert factor == {"value": 0.9}
    assert [each["dims"] for each in tensors["list"]] == [*listed]
    assert {each["dtype"] for each in tensors["list"]} == {"float32"}
    assert all(each["strides"][-1] == 1 for each in tensors["list"])


def test_a_gradient_without_shapes_is_none_of_them(tmp_path: Path) -> None:
    nothing = op("torch::autograd::AccumulateGrad", 50, 1, **called([], [], [], Input_Strides=[]))
    events = updated("aten::_foreach_mul_", blocks(BIAS, WEIGHT), ["TensorList", "Scalar"], ONE_LIST, "0.9")
    tensors, _ = lists(tmp_path, [*accumulated(WEIGHT, BIAS), nothing, *events])
    assert [each["dims"] for each in tensors["list"]] == [BIAS, WEIGHT]


def test_another_number_of_blocks_is_another_list_of_which_nothing_is_known(tmp_path: Path) -> None:
    events = updated("aten::_foreach_mul_", blocks(TABLE, WEIGHT, BIAS) + 1, ["TensorList", "Scalar"], ONE_LIST, "0.9")
    assert lists(tmp_path, [*accumulated(TABLE, WEIGHT, BIAS), *events]) == []


def test_a_kernel_says_of_what_type_its_list_is_and_whether_it_reads_a_number_each(tmp_path: Path) -> None:
    """Weights of an optimizer may be more exact than the gradients."""
    kernel = ("TensorListScalarListMetadata<float, 1>", "BinaryOpScalarList", "float")
    events = updated("aten::_foreach_div_", blocks(TABLE, BIAS), ["TensorList", ""], kernel)
    tensors, divisors = lists(tmp_path, [*accumulated(BIAS, TABLE, kind="c10::BFloat16"), *events])
    assert [(each["dims"], each["dtype"]) for each in tensors["list"]] == [(TABLE, "float32"), (BIAS, "float32")]
    assert divisors == {"value": [1.0, 1.0]}


ADAMW = ["TensorList"] * 6 + ["Scalar"] * 7
NUMBERS = ("1e-05", "0.9", "0.999", "0.01", "1e-08", "False", "False")


def test_fused_adam_has_a_list_of_steps_and_without_amsgrad_an_empty_one(tmp_path: Path) -> None:
    kernel = ("FusedOptimizerTensorListMetadata<4>", "FusedAdamMath", "float")
    events = updated("aten::_fused_adamw_", blocks(TABLE, BIAS), ADAMW, kernel, *NUMBERS)
    inputs = lists(tmp_path, [*accumulated(BIAS, TABLE), *events])
    dims = [[each["dims"] for each in listed["list"]] for listed in inputs[:6]]
    assert dims == [[TABLE, BIAS]] * 4 + [[], [[], []]]


@needs_torch
@pytest.mark.parametrize("name", ["aten::_foreach_addcdiv_", "aten::_fused_adamw_"])
def test_operators_on_such_lists_run(tmp_path: Path, name: str) -> None:
    types = ADAMW if "fused" in name else ["TensorList"] * 3 + [""]
    kernel = ("TensorListScalarListMetadata<float, 3>", "PointwiseOpScalarList", "float")
    kernel = ("FusedOptimizerTensorListMetadata<4>", "FusedAdamMath", "float") if "fused" in name else kernel
    events = updated(name, blocks(TABLE, BIAS), types, kernel, *(NUMBERS if "fused" in name else ()))
    assert lists(tmp_path, [*accumulated(BIAS, TABLE), *events])
    result = run_benchmark(tmp_path / "benchmark", "--iterations", 1, "--warmup", 0)
    assert result["copied_instead"] == {}
    assert {"gemm", "optimizer"} <= set(result["families_ms"])
