"""Tables of measured runs: what a row means, and why one is refused."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumos_df.base.errors import TruthError
from lumos_df.calibrate.datasets import Dataset, names
from lumos_df.calibrate.measured_runs import GIB, MeasuredRuns, read
from lumos_df.model.plan import PLAN_ROW, Plan
from lumos_df.model.transformer import Model
from lumos_df.schema.plan_words import RECOMPUTATIONS
from tests.calibrate.tables import write
from tests.conftest import ROOT, Run

TRUTH = Path(os.environ.get("LUMOS_TRUTH", ROOT.parent / "shared" / "truth"))

FIGURES = tuple(name for name in PLAN_ROW.names or () if name not in {"software", "placement"})


def published(file: Path, *rows: dict[str, object]) -> MeasuredRuns:
    return read(Dataset.read("published"), write(file, rows))


def plan(truth: MeasuredRuns, row: int = 0) -> dict[str, int]:
    return {name: int(truth.plans[row][name]) for name in FIGURES}


def test_a_row_is_the_plan_that_it_says(tmp_path: Path) -> None:
    truth = published(tmp_path / "runs.csv", {}, {"zero_or_fsdp": "FSDP2", "tp": 1, "pp": 1, "dp": 16, "sp": ""})
    expected = Plan.parse("tp=2,pp=2,dp=4,sp,zero=1,batch=128,software=nemo")
    assert plan(truth) == {name: int(expected.row()[name]) for name in FIGURES}
    sharded = Plan.parse("dp=16,schedule=fsdp,zero=3,batch=128,software=nemo")
    assert plan(truth, 1) == {name: int(sharded.row()[name]) for name in FIGURES}
    assert truth.models[truth.model_of[0]] == Model.read("llama-3-8b").row()
    assert truth.hardware_names == ("h100-sxm",)
    assert truth.measured_s.tolist() == [10.0, 10.0]
    assert truth.measured_bytes[0] == 60 * GIB
    assert truth.refused == {}


def test_a_table_s_own_words_are_understood(tmp_path: Path) -> None:
    truth = published(
        tmp_path / "runs.csv",
        {"precision": "MXFP8", "vp": 4, "recompute": "selective (per op)", "zero_or_fsdp": "FSDP=0"},
        {"precision": "FP8-CS (FP8-MX)", "tp": "2 (4)", "dp": "", "sp": ""},
        {"precision": "float16", "recompute": "full", "zero_or_fsdp": "FSDP SHARD_GRAD_OP", "tp": 1, "pp": 1, "dp": 16},
    )
    mixed, bracketed, half = (plan(truth, row) for row in range(3))
    words = Plan.parse("tp=2,pp=2,vp=4,dp=4,sp,batch=128,precision=fp8,recompute=selective,software=nemo").row()
    assert {**mixed, "zero": 0} == {name: int(words[name]) for name in FIGURES}
    assert (bracketed["precision"], bracketed["tp"], bracketed["dp"], bracketed["sequence_parallel"]) == (3, 2, 4, 0)
    assert (half["precision"], half["recompute"], half["zero"]) == (1, 2, 2)


def test_selective_is_what_the_page_of_a_run_calls_so(tmp_path: Path) -> None:
    """torchtitan's is of operators, whatever profile its runs are estimated with."""
    titan = {"source": "pytorch/torchtitan", "framework": "torchtitan", "tp": 1, "pp": 1, "dp": 16, "sp": ""}
    rows = [{"recompute": said, **whose} for whose in (titan, {}) for said in ("selective (per op)", "selective")]
    truth = read(Dataset.read("published"), write(tmp_path / "runs.csv", rows), "generic")
    said = [RECOMPUTATIONS[place] for place in truth.plans["recompute"].tolist()]
    assert said == ["products", "products", "selective", "selective"]


def test_a_step_s_time_comes_from_what_is_stated(tmp_path: Path) -> None:
    tokens = 128 * 8192 / 16 / 2048
    truth = published(
        tmp_path / "runs.csv",
        {"iteration_time_s": "", "tokens_per_s_per_gpu": 2048},
        {"iteration_time_s": 31.0, "tokens_per_s_per_gpu": 2048},
    )
    assert truth.measured_s.tolist() == [tokens, 31.0]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"task": "DPO"}, "training that is not modelled: DPO"),
        ({"task": "LoRA"}, "does not say lora_rank"),
        ({"recompute": "selective:mlp"}, "recompute selective:mlp is not modelled"),
        ({"iteration_time_s": ""}, "no step time"),
        ({"iteration_time_s": -4}, "no step time"),
        ({"iteration_time_s": "nan"}, "no step time"),
        ({"precision": "INT4"}, "precision INT4 is not modelled"),
        ({"mbs": "", "precision": ""}, "does not say mbs, precision"),
        ({"gpu": "abacus"}, "hardware 'abacus' is not known"),
        ({"model": "Llama3 8C"}, "model 'Llama3 8C' is not known; did you mean 'llama-3-8b'?"),
        ({"framework": "Fortran"}, "software 'Fortran' is not known"),
        ({"dp": 8}, "contradicts itself: num_gpus is not tp * pp * cp * dp"),
        ({"grad_accum": 7}, "contradicts itself: gbs is not mbs * grad_accum * dp"),
        ({"mbs": 0}, "contradicts itself: a degree below 1"),
        (
            {"tp": 16, "pp": 1, "dp": 1, "cp": 1, "model": "mpt-125m", "seq": 2048},
            "illegal plan: tp: does not divide the model's heads",
        ),
        ({"vp": 4, "gbs": 4}, "illegal plan: pp: schedule 'interleaved' needs micro-batches"),
        ({"gpu": "A100", "precision": "fp8"}, "illegal plan: precision: the GPU has no such"),
    ],
)
def test_a_row_that_is_no_plan_is_refused_with_the_reason(tmp_path: Path, row: dict[str, object], reason: str) -> None:
    truth = published(tmp_path / "runs.csv", row, {})
    assert len(truth) == 1
    ((found, rows),) = truth.refused.items()
    assert found.startswith(reason)
    assert rows == 1


def test_a_run_that_trains_adapters_has_their_rank(tmp_path: Path) -> None:
    tuned: dict[str, object] = {"task": "LoRA", "source": "NVIDIA/NeMo@1"}
    truth = published(tmp_path / "runs.csv", tuned, {"task": "SFT"})
    assert truth.plans["lora"].tolist() == [32, 0]
    assert truth.group.tolist()[0] != truth.group.tolist()[1]


def test_a_step_follows_from_the_models_flop_a_second(tmp_path: Path) -> None:
    """Six times the weights of products, and of attention the pairs that a causal mask leaves."""
    file = write(tmp_path / "runs.csv", [{"iteration_time_s": ""}])
    head, row = file.read_text().splitlines()
    file.write_text(f"{head},model_tflops_per_gpu\n{row},500\n")
    truth = read(Dataset.read("published"), file)
    model = replace(Model.read("llama-3-8b"), seq=8192)
    flop = 3 * model.flops_per_token(causal=True) * 128 * 8192
    assert truth.measured_s.tolist() == [pytest.approx(flop / 16 / 500e12)]


def test_a_row_that_contradicts_the_model_it_names_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "runs.csv", [{}])
    lines = file.read_text().splitlines()
    file.write_text(f"{lines[0]},layers\n{lines[1]},31\n{lines[1]},32\n")
    truth = read(Dataset.read("published"), file)
    assert truth.refused == {"contradicts model 'llama-3-8b': layers = 31, not 32": 1}
    assert len(truth) == 1


def test_runs_of_one_job_are_one_group(tmp_path: Path) -> None:
    truth = published(tmp_path / "runs.csv", {}, {"tp": 4, "dp": 2}, {"gbs": 256}, {"gpu": "H200"})
    one, same, batch, gpu = truth.group.tolist()
    assert one == same
    assert len({one, batch, gpu}) == 3


def test_two_names_of_one_software_are_one(tmp_path: Path) -> None:
    truth = published(
        tmp_path / "runs.csv", {"framework": "NeMo"}, {"framework": "Megatron-Bridge"}, {"gpu": "DGX-H100"}
    )
    assert truth.software_names == ("nemo",)
    assert truth.hardware_names == ("h100-sxm",)
    assert truth.plans["software"].tolist() == [0, 0, 0]


def test_a_missing_column_is_named(tmp_path: Path, lumos: Run) -> None:
    write(tmp_path / "published_training_runs.csv", [{}], without="precision")
    done = lumos("scoreboard", "--truth", tmp_path, "--dataset", "published_training_runs")
    assert done.returncode == 1
    assert done.stderr == (f"lumos-df: {tmp_path / 'published_training_runs.csv'}: needs a column 'precision'\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--dataset", "vtrain_mutli"], "dataset 'vtrain_mutli' is not known; did you mean 'vtrain_multi'?"),
        (["--dataset", "mlperf"], "no such file; dataset 'mlperf' is read from it"),
        ([], "has none of "),
    ],
)
def test_what_is_not_there_is_said(tmp_path: Path, lumos: Run, arguments: list[str], complaint: str) -> None:
    done = lumos("scoreboard", "--truth", tmp_path, *arguments)
    assert done.returncode == 1
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("rows", "arguments", "complaint"),
    [
        (0, [], "nothing to score in published_training_runs.csv\n"),
        (1, ["--calibrate", "3"], "each set has fewer than the 6 runs of --calibrate 3\n"),
    ],
)
def test_nothing_to_score_is_said(tmp_path: Path, lumos: Run, rows: int, arguments: list[str], complaint: str) -> None:
    file = write(tmp_path / "published_training_runs.csv", [{}])
    file.write_text("".join(file.read_text().splitlines(keepends=True)[: rows + 1]))
    done = lumos("scoreboard", "--truth", tmp_path, *arguments)
    assert done.returncode == 1
    assert done.stderr.endswith(complaint)
    assert done.stderr.count("\n") == 1


def test_every_set_has_a_file_and_a_source() -> None:
    for name in [*names(), "playbook_h100_failed"]:
        dataset = Dataset.read(name)
        assert dataset.file.endswith(".csv")
        assert dataset.source
    with pytest.raises(TruthError, match="there are vtrain_multi"):
        Dataset.read("x")


@pytest.mark.skipif(not TRUTH.is_dir(), reason="needs the tables of measured runs (LUMOS_TRUTH)")
@pytest.mark.parametrize("name", names())
def test_most_measured_runs_are_understood(name: str) -> None:
    dataset = Dataset.read(name)
    truth = read(dataset, TRUTH / dataset.file)
    out = truth.estimate()[:, 0]
    assert np.isfinite(truth.measured_s).all()
    # Far off is a table that was misread: milliseconds for seconds, a batch a rank for a batch.
    assert np.median(np.abs(np.log(out / truth.measured_s))) < np.log(1.3)
    full_plans = {"mlperf": 60, "published_training_runs": 360}
    assert len(truth) >= full_plans.get(name, sum(truth.refused.values()) * 20)
