"""Jobs with experts: what the traces tell of them, and changes held against the emulator's own run."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.base.errors import QueryError
from lumos_df.structure.describe import describe
from lumos_df.structure.experts import distinct
from tests.emulator import Job, Profiler, simulate, write
from tests.whatif.conftest import emulate, ingested
from tests.whatif.test_emulated import answers

ROUTED = Job(ranks=4, layers=2, steps=2, experts=16, top_k=2)


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return emulate(tmp_path_factory.mktemp("routed"), ROUTED)


def test_experts_are_told_by_router_and_grouped_products(routed: Path) -> None:
    facts = {row["name"]: (row["value"], row["evidence"]) for row in describe(routed).to_pylist()}
    assert facts["experts"] == (16, "shape")
    assert facts["top_k"] == (2, "shape")
    assert facts["expert_tokens"] == (2 * ROUTED.tokens, "shape")
    assert facts["ffn"] == (4 * ROUTED.hidden, "shape")
    assert {name: facts[name][0] for name in ("tp", "ep", "dp", "pp")} == {"tp": 1, "ep": 4, "dp": 4, "pp": 1}


@pytest.mark.parametrize("kernel", ["deep_ep::intranode::dispatch<768, 8>(int4*)", "hybrid_ep::combine_kernel<4>(int)"])
def test_all_to_alls_of_experts_are_told_by_their_kernels(tmp_path: Path, kernel: str) -> None:
    job = replace(ROUTED, layers=1)
    write(simulate(job), Profiler(memory=False, stacks=False, collective_args=False), tmp_path / "four")
    for file in (tmp_path / "four").glob("*.gz"):
        text = gzip.decompress(file.read_bytes()).decode()
        text = text.replace("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", f"void {kernel}")
        file.write_bytes(gzip.compress(text.replace("aten::topk", "aten::relu").encode()))
    facts = {row["name"]: row for row in describe(ingested(tmp_path / "corpus", tmp_path / "four")).to_pylist()}
    assert "experts" not in facts
    # There and back, in each of two steps.
    assert facts["ep"]["reason"].startswith("all_to_all in the forward pass, 4 times")


@pytest.mark.parametrize(
    ("change", "truth"),
    [
        (("dp=8", "ep=8"), replace(ROUTED, ranks=8)),
        (("top_k=4",), replace(ROUTED, top_k=4)),
        (("capacity=2",), replace(ROUTED, top_k=4)),
        (("experts=32",), replace(ROUTED, experts=32)),
        (("micro_batch=8",), replace(ROUTED, batch=8)),
    ],
)
def test_changed_experts_take_what_they_take_when_they_run(
    routed: Path, tmp_path: Path, change: tuple[str, ...], truth: Job
) -> None:
    estimated, ran = answers(routed, *change)[0], answers(emulate(tmp_path, truth))[0]
    for part in ("step_ns", "gpu_busy_ns"):
        assert estimated[part] == pytest.approx(ran[part], rel=0.05), part


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("ep=3", "ep=3 does not divide experts=16; the nearest that does is ep=2"),
        ("ep=8", "ep=8 does not divide the 4 ranks of dp x tp; give dp=8, too"),
        ("top_k=17", "top_k=17 is more than experts=16"),
    ],
)
def test_experts_that_cannot_be_are_refused(routed: Path, change: str, why: str) -> None:
    with pytest.raises(QueryError, match=why):
        answers(routed, change)


def test_a_model_without_a_router_has_no_experts_to_change(emulated: Path) -> None:
    with pytest.raises(QueryError, match="no router was found"):
        answers(emulated, "top_k=2")


@pytest.mark.parametrize(
    ("experts", "places", "top_k", "expected"),
    [(8, 1, 2, 1.0), (8, 8, 2, 2.0), (8, 2, 2, 2 * (1 - 6 / 28)), (4, 2, 3, 2.0)],
)
def test_a_token_that_is_forwarded_goes_once_to_each_place(
    experts: int, places: int, top_k: int, expected: float
) -> None:
    assert distinct(experts, places, top_k) == pytest.approx(expected)
