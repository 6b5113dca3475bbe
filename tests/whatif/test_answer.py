"""What an answer says beside times: FLOP, MFU, memory, energy, finer parts; and what it leaves open."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.job_advice import advise
from lumos_df.corpus.catalog import connect
from lumos_df.estimate.answer import ANSWERS
from lumos_df.estimate.configuration import estimate as estimate_plan
from lumos_df.model.hardware import Hardware
from lumos_df.model.transformer import Model
from lumos_df.whatif.answer.step_rows import SCHEMA
from lumos_df.whatif.estimate import estimate
from lumos_df.whatif.job.settings import parse
from tests.conftest import SAMPLES
from tests.emulator import Job, Profiler, simulate, write
from tests.whatif import hosted
from tests.whatif.conftest import emulate, ingested

OF_PLANS_ALONE = {"expected_s", "at_risk"}
"""What may befall messages between nodes, which no trace of a job tells."""
FINER = [name for name, _ in ANSWERS if name.endswith("_s") and name not in OF_PLANS_ALONE][7:]
FOUR = ("exposed_compute_s", "overlapped_s", "exposed_communication_s", "other_s")
MEMORY = ("weights_gb", "gradients_gb", "optimizer_gb", "activations_gb", "logits_gb")


def answers(corpus: Path, *texts: str, **more: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = estimate(corpus, parse([*texts]), **more).to_pylist()
    return rows


def test_it_has_the_fields_of_an_estimate_that_no_trace_is_of_for_both_jobs() -> None:
    names = {name for name, _ in ANSWERS} - OF_PLANS_ALONE
    assert names <= {*SCHEMA.names}
    assert {f"original_{name}" for name in names - {"low_s", "high_s"}} <= {*SCHEMA.names}


def test_it_says_by_how_much_the_profiler_made_the_recorded_step_longer(tmp_path: Path) -> None:
    timed = {"profiledNs": [19_100_000], "unprofiledBeforeNs": [12_000_000], "unprofiledAfterNs": [12_000_000]}
    for name, times, told in (("slow", timed, "59% longer (19.1 ms, without 12.0 ms)"), ("untimed", {}, None)):
        corpus = ingested(tmp_path / name, hosted.write(hosted.HostJob(), tmp_path / "traces" / name, times))
        for warnings in (answers(corpus, "layers=4")[0]["warnings"], advise(corpus)[0].warnings):
            said = [text for text in warnings if "under the profiler" in text]
            assert len(said) == (told is not None)
            assert all(told in text for text in said if told)


@pytest.mark.parametrize("change", [("layers=12",), ("pp=2", "batch=4")])
def test_the_parts_add_up_to_the_step(emulated: Path, change: tuple[str, ...]) -> None:
    for row in answers(emulated, *change):
        for prefix in ("", "original_"):
            step = row[f"{prefix}iteration_time_s"]
            exposed = [row[f"{prefix}exposed_{part}_s"] for part in ("waiting", "transfer", "communication")]
            assert min(exposed) >= 0
            assert exposed[0] + exposed[1] == pytest.approx(exposed[2], abs=1e-9)
            for parts in (FINER, FOUR):
                assert sum(row[f"{prefix}{name}"] or 0 for name in parts) == pytest.approx(step, abs=1e-9)
    assert (row["bubble_s"] > 0) == ("pp=2" in change)
    assert row["original_bubble_s"] == 0


def test_flop_of_a_changed_job_are_those_that_it_records_when_it_runs(emulated: Path, tmp_path: Path) -> None:
    (ran, *_), (row, *_) = (
        answers(corpus, *texts)
        for corpus, texts in (
            (emulate(tmp_path, Job(ranks=4, layers=12, batch=8)), ()),
            (emulated, ("layers=12", "micro_batch=8")),
        )
    )
    assert row["flops_from"] == ran["flops_from"] == "recorded"
    flop = row["tflops_per_s_per_gpu"] * row["iteration_time_s"]
    assert flop == pytest.approx(ran["tflops_per_s_per_gpu"] * ran["iteration_time_s"], rel=1e-9)
    peak = Hardware.read("h100-sxm" if row["mfu_pct"] is None else _gpu(emulated)).peak_flops.bf16
    assert row["mfu_pct"] == pytest.approx(100 * flop * 1e12 / row["iteration_time_s"] / peak)


def _gpu(corpus: Path) -> str:
    with connect(corpus) as connection:
        return str(connection.execute("SELECT any_value(device_name) FROM traces").fetchall()[0][0])


def test_energy_is_the_limit_while_kernels_run_and_idle_power_else(emulated: Path) -> None:
    gpu = Hardware.read("h200")
    for row in answers(emulated, "dp=8", "hardware=h200"):
        other = row["other_s"]
        watts = gpu.tdp_w * (row["iteration_time_s"] - other) + gpu.idle_w * other
        assert row["energy_j"] == pytest.approx(8 * watts, rel=1e-6)
        assert (row["gpus"], row["original_gpus"]) == (8, 4)


def test_memory_is_modelled_where_the_trace_records_none(emulated: Path) -> None:
    row = answers(emulated, "dp=8", "layers=12")[0]
    model = Model("four", layers=12, hidden=1024, heads=16, vocab=8192, seq=512)
    plain = estimate_plan(model, _gpu(emulated), "dp=8,micro_batch=4,batch=32,software=megatron").answers
    # Its optimizer's kernels are of 16 bits throughout, where Megatron's gradients and states are of 32.
    less = {"gradients_gb": 4 / 2, "optimizer_gb": 12 / 4}
    for name in (*MEMORY, "memory_stage", "fits"):
        assert row[name] == pytest.approx(plain[name] / less.get(name, 1)), name
    assert row["memory_from"].startswith("modelled from the dimensions: zero=0, recompute=none")
    assert row["memory_from"].endswith("optimizer in 16 bits")


def test_memory_that_was_recorded_is_the_original_s_and_scales_as_the_model_says(tmp_path: Path) -> None:
    write(simulate(Job(ranks=2, layers=2)), Profiler(memory=True, stacks=False), tmp_path / "two")
    corpus = ingested(tmp_path / "corpus", tmp_path / "two")
    with connect(corpus) as connection:
        query = (
            "SELECT max(coalesce(reserved_bytes, allocated_bytes)) / 1e9 FROM memory_events WHERE device_type = 'gpu'"
        )
        recorded = connection.execute(query).fetchall()[0][0]
    same, twice = answers(corpus)[0], answers(corpus, "micro_batch=8")[0]
    assert same["memory_gb"] == same["original_memory_gb"] == pytest.approx(recorded)
    assert sum(same[name] for name in MEMORY) == pytest.approx(recorded)
    assert twice["activations_gb"] == pytest.approx(2 * same["activations_gb"])
    assert twice["weights_gb"] == pytest.approx(same["weights_gb"])
    assert twice["memory_from"].startswith("recorded by the allocator")


def test_what_nothing_tells_is_left_open(tmp_path: Path) -> None:
    corpus = ingested(tmp_path / "corpus", SAMPLES / "cpu_ddp")
    row = answers(corpus)[0]
    for name in ("mfu_pct", "hfu_pct", "energy_j", "memory_gb", "fits", "original_memory_gb"):
        assert row[name] is None, name
    assert any("unknown, as no GPU ran" in text for text in row["warnings"])
    assert any(text.startswith("memory is unknown: ") for text in row["warnings"])


def test_a_far_change_has_a_wide_interval_that_no_gpu_could_beat_and_a_warning(emulated: Path) -> None:
    near, far = answers(emulated, "hidden=2048", step=3)[0], answers(emulated, "hidden=262144", step=3)[0]
    assert far["high_s"] / far["iteration_time_s"] > 1.2 * near["high_s"] / near["iteration_time_s"]
    assert any(text.startswith("extrapolated: ") for text in far["warnings"])
    assert not any(text.startswith("extrapolated: ") for text in near["warnings"])
    peak = far["tflops_per_s_per_gpu"] / far["mfu_pct"] * 100
    assert far["low_s"] >= far["tflops_per_s_per_gpu"] * far["iteration_time_s"] / peak * (1 - 1e-9)
    assert far["low_s"] < far["iteration_time_s"]


def test_a_gpu_goes_by_any_of_its_names(emulated: Path) -> None:
    first, *others = (answers(emulated, f"hardware={name}", step=3) for name in ("h200-sxm", "h200", "NVIDIA H200"))
    assert all(other == first for other in others)
    assert first[0]["step_ns"] < first[0]["original_step_ns"] or first[0]["rescaled_pct"] > 0
