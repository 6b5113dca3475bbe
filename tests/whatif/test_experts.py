"""Jobs with experts: what the traces tell of them, and changes held against the emulator's own run."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.base.errors import QueryError
from lumos_df.graph.job import groups
from lumos_df.schema.plan_words import DP, EP
from lumos_df.structure.describe import describe
from lumos_df.structure.experts import distinct
from lumos_df.whatif.durations import operator_times, payloads
from lumos_df.whatif.job.changed_sizes import changed_sizes
from lumos_df.whatif.job.recorded_job import load
from lumos_df.whatif.job.settings import parse
from tests.emulator import Job, Profiler, simulate, write
from tests.whatif.conftest import emulate, ingested
from tests.whatif.test_emulated import answers

ROUTED = Job(ranks=4, layers=2, steps=2, experts=16, top_k=2)

NCCL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
DEEP_EP = "void deep_ep::intranode::dispatch<768, 8>(int4*)"


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return emulate(tmp_path_factory.mktemp("routed"), ROUTED)


def renamed(folder: Path, job: Job, kernel: str, *, choice: str = "aten::topk", collective_args: bool = True) -> Path:
    """Return the corpus of a job whose all-to-alls are by another kernel, and its choices by another operator."""
    write(simulate(job), Profiler(memory=False, stacks=False, collective_args=collective_args), folder / "four")
    for file in (folder / "four").glob("*.gz"):
        text = gzip.decompress(file.read_bytes()).decode().replace(NCCL, kernel)
        file.write_bytes(gzip.compress(text.replace("aten::topk", choice).encode()))
    return ingested(folder / "corpus", folder / "four")


def test_experts_are_told_by_router_and_grouped_products(routed: Path) -> None:
    facts = {row["name"]: (row["value"], row["evidence"]) for row in describe(routed).to_pylist()}
    assert facts["experts"] == (16, "shape")
    assert facts["top_k"] == (2, "shape")
    assert facts["expert_tokens"] == (2 * ROUTED.tokens, "shape")
    assert facts["ffn"] == (4 * ROUTED.hidden, "shape")
    assert {name: facts[name][0] for name in ("tp", "ep", "dp", "pp")} == {"tp": 1, "ep": 4, "dp": 4, "pp": 1}


@pytest.mark.parametrize("kernel", [DEEP_EP, "void hybrid_ep::combine_kernel<4>(int)"])
def test_all_to_alls_of_experts_are_told_by_their_kernels(tmp_path: Path, kernel: str) -> None:
    corpus = renamed(tmp_path, replace(ROUTED, layers=1), kernel, choice="aten::relu", collective_args=False)
    facts = {row["name"]: row for row in describe(corpus).to_pylist()}
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


@pytest.mark.parametrize("change", ["batch_scale=2", "micro_batch=8"])
def test_tokens_of_experts_that_run_one_after_another_grow_with_the_batch(tmp_path: Path, change: str) -> None:
    """Each takes its own number of rows, which is no product of the model's sizes; taken as constants: -25 %."""
    looped = Job(ranks=1, layers=2, steps=2, experts=8, looped=True)
    estimated = answers(emulate(tmp_path / "four", looped), change)[0]
    ran = answers(emulate(tmp_path / "eight", replace(looped, batch=8)))[0]
    for part in ("step_ns", "gpu_busy_ns"):
        assert estimated[part] == pytest.approx(ran[part], rel=0.08), part


def test_experts_that_take_as_many_tokens_in_every_step_take_more_of_a_larger_batch(tmp_path: Path) -> None:
    even = Job(ranks=1, layers=2, steps=2, batch=16, experts=4, looped=True, even=True)
    row = answers(emulate(tmp_path / "sixteen", even), "batch_scale=2")[0]
    ran = answers(emulate(tmp_path / "thirty-two", replace(even, batch=32)))[0]
    for part in ("step_ns", "gpu_busy_ns"):
        assert row[part] == pytest.approx(ran[part], rel=0.08), part
    assert row["unscaled_gpu_pct"] < 0.1


def test_rows_of_tables_grow_as_the_kernel_before_and_the_answer_says_so(tmp_path: Path) -> None:
    write(simulate(Job(ranks=1, steps=2)), Profiler(memory=False, stacks=False), tmp_path / "four")
    (file,) = (tmp_path / "four").glob("*.gz")
    trace = json.loads(gzip.decompress(file.read_bytes()))
    for event in trace["traceEvents"]:
        if event["name"] == "aten::gelu":
            event["name"] = "aten::index"
            event["args"]["Input Dims"] = [[97, 1021], []]
    file.write_bytes(gzip.compress(json.dumps(trace).encode()))
    corpus = ingested(tmp_path / "corpus", tmp_path / "four")
    row = answers(corpus, "micro_batch=8")[0]
    assert 1 < row["unscaled_gpu_pct"] < 10
    assert any("they take rows of tables, and how many is data" in text for text in row["warnings"])
    assert "unscaled" in " ".join(row["causes"])
    plain = answers(emulate(tmp_path / "plain", Job(ranks=1, steps=2)), "micro_batch=8")[0]
    assert row["gpu_busy_ns"] == pytest.approx(plain["gpu_busy_ns"], rel=0.01)
    # Another GPU takes as many rows.
    assert not any("rows of tables" in text for text in answers(corpus, "hardware=h200-sxm")[0]["warnings"])


def test_tokens_picked_of_each_sample_may_grow_with_the_sequence_and_the_answer_says_so(tmp_path: Path) -> None:
    """Of 512 tokens 37 go on to a product: the estimate keeps them, and its interval holds that they grow."""
    write(simulate(Job(ranks=1, steps=2)), Profiler(memory=False, stacks=False), tmp_path / "four")
    (file,) = (tmp_path / "four").glob("*.gz")
    trace = json.loads(gzip.decompress(file.read_bytes()))
    for event in trace["traceEvents"]:
        if event["name"] == "aten::gelu":
            event["name"] = "aten::index"
            event["args"]["Input Dims"] = [[4, 512, 4096], [], []]
        elif event.get("args", {}).get("Input Dims", [])[1:2] == [[2048, 4096]]:
            event["args"]["Input Dims"] = [[4, 37, 4096], [1024, 4096]]
    file.write_bytes(gzip.compress(json.dumps(trace).encode()))
    corpus = ingested(tmp_path / "corpus", tmp_path / "four")
    longer = answers(corpus, "seq=1024")[0]
    assert longer["unscaled_gpu_pct"] > 5
    assert any("data picks their tokens, always as many here" in text for text in longer["warnings"])
    assert "unscaled" in " ".join(longer["causes"])
    assert answers(corpus, "micro_batch=8")[0]["unscaled_gpu_pct"] < 0.1


def test_exchanges_keep_what_they_overlap(tmp_path: Path) -> None:
    paired = replace(ROUTED, steps=1, paired=True)
    row = answers(emulate(tmp_path / "four", paired), "dp=8", "ep=8")[0]
    ran = answers(emulate(tmp_path / "eight", replace(paired, ranks=8)))[0]
    assert row["step_ns"] == pytest.approx(ran["step_ns"], rel=0.02)
    for part in ("overlapped_ns", "exposed_communication_ns"):
        assert row[part] == pytest.approx(ran[part], rel=0.05), part


def test_reductions_come_behind_exchanges_that_the_backward_pass_waits_for(routed: Path) -> None:
    for before, off in zip(answers(routed), answers(routed, "overlap=off"), strict=True):
        # Both kinds share a stream, and the exchanges overlap nothing.
        assert off["overlapped_ns"] < 0.2 * before["overlapped_ns"]
        assert off["step_ns"] > before["step_ns"]


def test_of_few_tokens_the_experts_of_a_rank_tell_how_long_products_take(tmp_path: Path) -> None:
    few = replace(ROUTED, experts=64, batch=1, sequence=256)
    estimated = answers(emulate(tmp_path / "few", few), "dp=8", "ep=8")[0]
    before, ran = (answers(emulate(tmp_path / str(ranks), replace(few, ranks=ranks)))[0] for ranks in (4, 8))
    assert before["gpu_busy_ns"] > 1.4 * ran["gpu_busy_ns"]
    assert estimated["gpu_busy_ns"] == pytest.approx(ran["gpu_busy_ns"], rel=0.03)


@pytest.mark.parametrize(
    ("kernel", "change", "grown"),
    [
        (NCCL, "top_k=4", 2.0),
        (NCCL, "micro_batch=8", 2.0),
        (NCCL, "capacity=1.5", 1.5),
        (NCCL, "experts=32", 1.0),
        # Of four ranks with 4 of the 16 experts each: those that none of 2, or of 4, different ones is on.
        (DEEP_EP, "top_k=4", (4 * (1 - 495 / 1820)) / (4 * (1 - 66 / 120))),
        (DEEP_EP, "capacity=1.5", 1.0),
    ],
)
def test_all_to_alls_carry_each_token_to_its_experts(tmp_path: Path, kernel: str, change: str, grown: float) -> None:
    corpus = renamed(tmp_path, replace(ROUTED, steps=1), kernel)
    anchor = load(corpus, groups(corpus)[0], {})
    settings = parse([change])
    plan = operator_times.plan(anchor, changed_sizes("routed", anchor.sizes, settings), settings)
    row, degree = operator_times.collectives(anchor, 0)
    ratio = payloads.payload_ratio(anchor, plan, 0, row, degree)
    assert [*ratio[degree == EP]] == pytest.approx([grown] * 8)
    assert {*ratio[degree == DP].tolist()} == {1.0}
    copies = 2 if kernel == NCCL else 4 * (1 - 66 / 120)
    carried = payloads.routed_bytes(anchor, plan, 0, row, degree)
    assert [*carried[degree == EP]] == pytest.approx([ROUTED.tokens * copies * ROUTED.hidden * 2] * 8)


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
