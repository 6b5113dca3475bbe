"""Kernels that run exactly at the roofs of a GPU of round figures: what they take in another type or on another GPU."""

import json
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from lumos_df.base.errors import HardwareError
from lumos_df.graph.job import groups
from lumos_df.model.hardware import PeakFlops
from lumos_df.whatif.answer import step_rows
from lumos_df.whatif.estimate import estimated
from lumos_df.whatif.job.recorded_gpu import RecordedGpu
from lumos_df.whatif.job.recorded_job import RecordedJob, load
from lumos_df.whatif.job.settings import parse
from tests.model.roofs import BF16_FLOPS, FP8_FLOPS, FP32_FLOPS, GPU, MEMORY_RATE, document
from tests.structure.made import Made, Rank
from tests.whatif.conftest import ingested

JOB: Final = Made(
    hidden=1024,
    heads=8,
    ffn=4096,
    sequence=1024,
    batch=4,
    vocabulary=32768,
    backward=False,
    odd={(layer, 1): "extra" for layer in range(4)},
)
"""4 layers forward, 4096 tokens; one kernel a layer has no shape."""
FIT_INTO_CACHE: Final = 25e6 * 1.01
"""Bytes of tensors, with a result as large as the largest, that another memory moves no faster."""
FLOOR_US: Final = 2.0
"""What a kernel takes that does nothing: those without a shape do."""


class Roofs(NamedTuple):
    """What binds a kernel."""

    flops: float
    """FLOP/s of products."""
    element_bytes: int
    memory_rate: float
    """Bytes/s."""
    floor_us: float = FLOOR_US

    def us(self, operator: str, shapes: list[list[int]]) -> float:
        """Return what the kernel of an operator takes."""
        if operator == "aten::mm":
            (m, k), (_, n) = shapes
            return self.floor_us + 2 * m * n * k / self.flops * 1e6
        if "attention" in operator:
            batch, heads, tokens, width = shapes[0]
            # A causal mask leaves half of the pairs, and half of a tile of 128 queries.
            pairs = batch * heads * tokens * (tokens / 2 + 64)
            return self.floor_us + 4 * pairs * width / self.flops * 1e6
        sizes = [*map(prod, shapes)]
        cached = (sum(sizes) + max(sizes, default=0)) * RECORDED_BYTES <= FIT_INTO_CACHE
        rate = MEMORY_RATE if cached else self.memory_rate
        return self.floor_us + sum(sizes) * self.element_bytes / rate * 1e6


RECORDED_BYTES: Final = 2
RECORDED: Final = Roofs(BF16_FLOPS, RECORDED_BYTES, MEMORY_RATE)
"""Of the job as it ran: in bfloat16."""


def written(folder: Path) -> list[tuple[str, list[list[int]]]]:
    """Write rank 0 with every kernel at its roof; return the operator and the shapes of each kernel."""
    document_ = Rank(JOB, 0).document()
    document_["deviceProperties"] = [{"id": 0, "name": "round"}]
    operator: tuple[str, list[list[int]]] = ("", [])
    operators, free = [], 0.0
    for event in document_["traceEvents"]:
        if "Input Dims" in event["args"]:
            operator = event["name"], [list(shape) for shape in event["args"]["Input Dims"]]
        if event["cat"] == "kernel":
            operators.append(operator)
            event["dur"] = RECORDED.us(*operator)
            event["ts"] = max(event["ts"], free)
            free = event["ts"] + event["dur"]
    folder.mkdir()
    (folder / "rank0.json").write_text(json.dumps(document_))
    return operators


class Job(NamedTuple):
    """The recorded job."""

    anchor: RecordedJob
    kernels: list[tuple[str, list[list[int]]]]
    """Operator and shapes of each kernel, in order."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("roofs")
    kernels = written(folder / "job")
    corpus = ingested(folder / "corpus", folder / "job")
    return Job(replace(load(corpus, groups(corpus)[0], {}), gpu=RecordedGpu(GPU)), kernels)


def changed_us(job: Job, text: str) -> list[tuple[str, list[list[int]], float]]:
    """Return operator, shapes and us of every kernel of a changed job."""
    (replay,) = estimated(job.anchor, parse(text.split())).after.replays
    row = replay.graph.gpu.row
    lasts = (replay.end[row] - replay.start[row]) / 1000
    return [(*kernel, us) for kernel, us in zip(job.kernels, lasts.tolist(), strict=True)]


def file(folder: Path, **figures: Any) -> Path:
    """Write a GPU that differs from the recorded one."""
    path = folder / "other.toml"
    path.write_text(document(replace(GPU, name="other", **figures)))
    return path


def test_the_job_runs_at_its_roofs(job: Job) -> None:
    facts = {name: fact.value for name, fact in job.anchor.about.facts.items()}
    assert (facts["model"], facts["dtype"], facts["layers"], facts["hidden"]) == ("transformer", "bfloat16", 4, 1024)
    for operator, shapes, us in changed_us(job, ""):
        assert us == pytest.approx(RECORDED.us(operator, shapes), abs=1e-3)
    # 4096 x 1024 by 1024 x 4096: 34.4 GFLOP at 100 TFLOP/s. Two tensors of 4096 x 1024: 16.8 MB at 1 TB/s.
    assert RECORDED.us("aten::mm", [[4096, 1024], [1024, 4096]]) == pytest.approx(2 + 343.6, abs=0.1)
    assert RECORDED.us("aten::add", [[4, 1024, 1024], [4, 1024, 1024]]) == pytest.approx(2 + 16.8, abs=0.1)


def check(job: Job, text: str, roofs: Roofs) -> None:
    for operator, shapes, us in changed_us(job, text):
        # Of what has no shape nothing is known.
        if shapes:
            assert us == pytest.approx(roofs.us(operator, shapes), rel=0.01), (operator, shapes)


def test_single_precision_is_ten_times_the_products_and_twice_the_bytes(job: Job) -> None:
    check(job, "dtype=float32", Roofs(FP32_FLOPS, 4, MEMORY_RATE))


def test_half_precision_is_as_fast_as_bfloat16(job: Job) -> None:
    check(job, "dtype=float16", RECORDED)


def test_8_bits_are_half_the_products(job: Job) -> None:
    for operator, shapes, us in changed_us(job, "dtype=float8"):
        if operator == "aten::mm":
            assert us == pytest.approx(Roofs(FP8_FLOPS, 1, MEMORY_RATE).us(operator, shapes), rel=0.01)


@pytest.mark.parametrize(
    ("figures", "text", "roofs"),
    [
        # Peaks alone, memory alone, both.
        (
            {"peak_flops": PeakFlops(fp32=20e12, fp16=150e12, bf16=250e12)},
            "",
            Roofs(250e12, 2, MEMORY_RATE),
        ),
        ({"hbm_bandwidth": 3e12}, "", Roofs(BF16_FLOPS, 2, 3e12)),
        (
            {"peak_flops": PeakFlops(fp32=20e12, fp16=150e12, bf16=250e12), "hbm_bandwidth": 0.8e12},
            "dtype=float32",
            Roofs(20e12, 4, 0.8e12),
        ),
        (
            {"peak_flops": PeakFlops(fp32=20e12, fp16=150e12, bf16=250e12), "hbm_bandwidth": 0.8e12},
            "dtype=float16",
            Roofs(150e12, 2, 0.8e12),
        ),
        # A kernel that does nothing takes three times as long.
        (
            {"fitted": {**GPU.fitted, "memory": {**GPU.fitted["memory"], "floor_s": 15e-7}}},
            "",
            Roofs(BF16_FLOPS, 2, MEMORY_RATE, 3 * FLOOR_US),
        ),
    ],
)
def test_another_gpu_has_other_roofs(
    job: Job, tmp_path: Path, figures: dict[str, Any], text: str, roofs: Roofs
) -> None:
    check(job, f"hardware={file(tmp_path, **figures)} {text}", roofs)


def test_a_gpu_without_the_type_is_refused(job: Job, tmp_path: Path) -> None:
    path = file(tmp_path, peak_flops=PeakFlops(fp32=20e12, bf16=250e12))
    with pytest.raises(HardwareError, match=r"^other multiplies no float16; it has float32, bfloat16$"):
        changed_us(job, f"hardware={path} dtype=float16")


@pytest.mark.parametrize(
    ("text", "peak"),
    [("", BF16_FLOPS), ("dtype=float32", FP32_FLOPS), ("dtype=float8", FP8_FLOPS)],
)
def test_mfu_is_what_the_model_asks_for_over_the_peak_of_the_type(job: Job, text: str, peak: float) -> None:
    (row,) = step_rows.rows(estimated(job.anchor, parse(text.split()))).to_pylist()
    # 12 h^2 weights a layer and the logits', two FLOP each a token; four a layer, pair of tokens and channel.
    flop = 4096 * (2 * (4 * 12 * 1024**2 + 32768 * 1024) + 4 * 4 * 1024 * 1024)
    step = row["iteration_time_s"]
    assert row["tflops_per_s_per_gpu"] == pytest.approx(flop / step / 1e12)
    assert row["mfu_pct"] == pytest.approx(100 * flop / step / peak)
    assert row["original_mfu_pct"] == pytest.approx(100 * flop / row["original_iteration_time_s"] / BF16_FLOPS)
