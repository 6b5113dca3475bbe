"""A machine fitted to a corpus: what was put into the kernels is found again, and files say the same as objects."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos_df.base.errors import HardwareError, LumosError, QueryError
from lumos_df.calibrate.corpus_machine import CorpusMachine, calibrate, machine_of, on_corpus_machine
from lumos_df.corpus import layout
from lumos_df.estimate.grid import Grid
from lumos_df.estimate.search import Search
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels import kernel_columns
from lumos_df.model.software import Software
from lumos_df.trace.ingest import ingest
from tests.conftest import Run, full_disk
from tests.corpus.traces import put_trace
from tests.real import REAL

GPU = "NVIDIA A100-SXM4-80GB"
BF16 = 2
PRODUCTS = [(8192, 4096, 4096), (4096, 12288, 4096), (2048, 4096, 16384)]
SIZES = [(4096, 4096), (8192, 8192), (16384, 8192)]
PAYLOADS = [1 << 24, 1 << 28]
FACTORS = {"gemm.bf16": 1.3, "memory": 0.8, "all_reduce": 1.5, "scale_out": 2.0}
LAUNCH_NS, BACKWARD_NS = 20_000, 15_000


def rows(device: str, factors: dict[str, float]) -> Iterator[dict[str, Any]]:
    """Operators whose kernels take `factors` times as long as the model says, launched at the host's pace."""
    hardware = Hardware.read(device)
    gpu = hardware.row()
    bandwidth, sms = gpu["hbm_bandwidth"].item(), gpu["sms"].item()
    m, n, k = np.array(PRODUCTS, np.float64).T
    products = kernel_columns.products(
        m, n, k, np.ones(3), 2.0, gpu["peak_flops"][BF16].item(), bandwidth, sms, gpu["gemm"][BF16]
    )
    moved = np.array([3 * 2.0 * a * b for a, b in SIZES])  # two tensors read, one written
    passes = kernel_columns.passes(moved, bandwidth, gpu["memory"])
    links = (gpu["scale_up_bandwidth"].item(), gpu["scale_out_bandwidth"].item(), gpu["scale_up"], gpu["scale_out"])
    payloads = np.array(PAYLOADS, np.float64)
    inside, across = (kernel_columns.collectives(0, payloads, np.full(2, ranks), 8, *links) for ranks in (8.0, 64.0))
    calls = [
        *(
            ("aten::mm", f"[[{a}, {c}], [{c}, {b}]]", "gemm", seconds * factors["gemm.bf16"])
            for (a, b, c), seconds in zip(PRODUCTS, products, strict=True)
        ),
        *(
            ("aten::gelu", f"[[{a}, {b}], [{a}, {b}]]", "elementwise", seconds * factors["memory"])
            for (a, b), seconds in zip(SIZES, passes, strict=True)
        ),
    ]
    op_id, ts = 0, 0
    for phase, pace in (("forward", LAUNCH_NS), ("backward", BACKWARD_NS)):
        for name, dims, family, seconds in calls:
            host = {"phase": phase, "thread": 1, "ts": ts}
            types = '["c10::BFloat16", "c10::BFloat16"]'
            yield {
                "op_id": op_id,
                "kind": "cpu_op",
                "name": name,
                "input_dims": dims,
                "input_types": types,
                "dur": 9,
                **host,
            }
            yield {"op_id": op_id + 1, "parent_id": op_id, "kind": "runtime", "name": "launch", "dur": 5, **host}
            yield {
                "op_id": op_id + 2, "parent_id": op_id + 1, "kind": "kernel", "name": "k", "family": family,
                "ts": ts + 10, "dur": round(seconds * 1e9), "stream": 7, "device": 0,
            }  # fmt: skip
            op_id, ts = op_id + 3, ts + pace
    for ranks, seconds, factor in ((8, inside, factors["all_reduce"]), (64, across, factors["scale_out"])):
        for payload, one in zip(PAYLOADS, seconds, strict=True):
            for wait_ns in (0, 5_000_000):
                yield {
                    "op_id": op_id, "kind": "kernel", "name": "nccl", "family": "communication", "ts": ts + op_id,
                    "dur": round(one * factor * 1e9) + wait_ns, "stream": 9, "collective": "all_reduce",
                    "group_size": ranks, "dtype": "bfloat16", "in_bytes": payload, "out_bytes": payload,
                }  # fmt: skip
                op_id += 1


def make(corpus: Path, device: str | None, operators: list[dict[str, Any]]) -> Path:
    """Make a corpus of one trace with these operators."""
    corpus.mkdir()
    layout.write_manifest(corpus)
    about = {"path": "a", "job": "b", "rank": 0, "others": 0, "device_name": device, "operators": len(operators)}
    put_trace(corpus, "0" * 16, traces=[about], operators=[{"rank": 0, **row} for row in operators])
    return corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("machine") / "corpus", GPU, list(rows(GPU, FACTORS)))


@pytest.fixture(scope="module")
def machine(corpus: Path) -> CorpusMachine:
    return machine_of(corpus)


def test_what_was_put_in_is_found_again(machine: CorpusMachine) -> None:
    assert machine.gpu == "a100-sxm-80"
    after = {one.figure: one.after / one.before for one in machine.findings if not one.figure.endswith("launch_s")}
    assert after == pytest.approx(FACTORS, rel=0.001)
    host = {one.figure: one.after for one in machine.findings if one.figure.endswith("launch_s")}
    assert host == pytest.approx({"launch_s": LAUNCH_NS * 1e-9, "backward_launch_s": BACKWARD_NS * 1e-9})
    for one in machine.findings:
        if one.error_before_pct is not None and one.error_after_pct is not None:
            assert one.error_after_pct < 0.2 * one.error_before_pct


def test_the_machine_of_a_corpus_models_what_was_measured(machine: CorpusMachine) -> None:
    base = Hardware.read(GPU)
    before, after = base.row(), machine.hardware(base).row()
    for column, fields in (("gemm", {14}), ("memory", {3})):
        changed = {
            place
            for place in range(before[column].shape[-1])
            if not np.array_equal(before[column][..., place], after[column][..., place])
        }
        assert changed == fields, column
    assert after["gemm"][BF16][14] == pytest.approx(before["gemm"][BF16][14] * FACTORS["gemm.bf16"], rel=0.01)
    assert after["scale_out_bandwidth"] == pytest.approx(before["scale_out_bandwidth"] / FACTORS["scale_out"], rel=0.01)
    up = [
        (row["scale_up_bandwidth"].item(), row["scale_out_bandwidth"].item(), row["scale_up"], row["scale_out"])
        for row in (before, after)
    ]
    payload, ranks = np.array(PAYLOADS, np.float64), np.full(2, 8.0)
    slow, fast = (kernel_columns.collectives(0, payload, ranks, 8, *links) for links in (up[1], up[0]))
    assert slow / fast == pytest.approx(FACTORS["all_reduce"], rel=0.1)


def test_another_gpu_takes_the_kernels_factors_and_keeps_its_network(machine: CorpusMachine) -> None:
    base = Hardware.read("h200")
    before, after = base.row(), machine.hardware(base).row()
    assert after["gemm"][BF16][14] == pytest.approx(before["gemm"][BF16][14] * FACTORS["gemm.bf16"], rel=0.01)
    for column in ("scale_up", "scale_out", "scale_up_bandwidth", "scale_out_bandwidth", "peak_flops"):
        assert np.array_equal(before[column], after[column])


def test_the_files_say_the_same(corpus: Path, machine: CorpusMachine, tmp_path: Path) -> None:
    output = tmp_path / "in" / "a new folder" / "mine.toml"
    again, beside = calibrate(corpus, output)
    assert again == machine
    base, software = Hardware.read(GPU), Software.read("megatron")
    assert Hardware.read(output).row() == machine.hardware(base).row()
    assert Software.read(beside).row() == machine.software(software).row()
    assert Software.read(beside).launch_s == pytest.approx(LAUNCH_NS * 1e-9)
    # Once more on its own file there is nothing left to correct.
    for one in machine_of(corpus, Hardware.read(output), Software.read(beside)).findings:
        if one.figure not in {"all_reduce", "scale_out"}:
            assert one.after == pytest.approx(one.before, rel=0.01), one


def test_a_gpu_that_the_traces_do_not_name_is_given(tmp_path: Path) -> None:
    corpus = make(tmp_path / "corpus", "Engineering sample", list(rows(GPU, FACTORS)))
    with pytest.raises(HardwareError, match="its GPU is 'Engineering sample', which is not in data/hardware; give"):
        machine_of(corpus)
    assert machine_of(corpus, Hardware.read(GPU)).gpu == "a100-sxm-80"


def test_a_corpus_that_says_nothing_is_refused(tmp_path: Path) -> None:
    kernel = {"op_id": 0, "kind": "kernel", "name": "k", "family": "gemm", "ts": 0, "dur": 5, "stream": 7}
    corpus = make(tmp_path / "corpus", GPU, [kernel])
    with pytest.raises(QueryError, match="no kernel has a shape, no collective a size"):
        machine_of(corpus)
    with pytest.raises(HardwareError, match="no kernel ran; ingest a trace of a GPU"):
        machine_of(make(tmp_path / "none", GPU, []))


def test_a_folder_that_cannot_be_is_told(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LumosError, match="cannot be written"):
        calibrate(corpus, tmp_path / "file" / "mine.toml")


def test_a_file_that_does_not_fit_on_the_disk_stays_as_it_was(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "mine.toml"
    output.write_text("before")
    with full_disk(100), pytest.raises(LumosError, match="cannot be written"):
        calibrate(corpus, output)
    assert output.read_text() == "before"
    assert list(tmp_path.iterdir()) == [output]


def test_the_command_writes_and_tells(corpus: Path, lumos: Run, tmp_path: Path) -> None:
    output = tmp_path / "mine.toml"
    said = lumos("calibrate", "--corpus", corpus, "--output", output, "--format", "csv")
    assert said.returncode == 0, said.stderr
    table = {row["figure"]: row for row in csv.DictReader(io.StringIO(said.stdout))}
    assert float(table["gemm.bf16"]["after"]) / float(table["gemm.bf16"]["before"]) == pytest.approx(1.3, rel=0.01)
    assert "mine-megatron.toml" in said.stderr
    wrong = lumos("calibrate", "--corpus", corpus, "--output", output, "--hardware", "h200")
    assert wrong.returncode == 0  # the only GPU of the corpus may be called what the user says
    unknown = lumos("calibrate", "--corpus", corpus, "--output", output, "--hardware", "zx81")
    assert unknown.returncode == 1
    assert unknown.stderr.count("\n") == 1


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real traces at {REAL}; name their folder in LUMOS_TRACES")
def test_real_traces_are_near_the_catalogue_and_nearer_as_measured(tmp_path: Path) -> None:
    assert not ingest([REAL / "megatron_tp8_forward", REAL / "h100_qwen_inference"], tmp_path / "corpus").failed
    for gpu in ("a100-sxm-80", "h100-sxm"):
        found = {one.figure: one for one in machine_of(tmp_path / "corpus", Hardware.read(gpu)).findings}
        assert 0.9 < found["gemm.bf16"].after / found["gemm.bf16"].before < 1.1
        assert (found["gemm.bf16"].error_after_pct or 100) < 6
        if gpu == "a100-sxm-80":
            # The gathered all-reduces of eight ranks, 64 MiB: NCCL's table within its spread.
            assert 0.85 < found["all_reduce"].after < 1.15


def test_a_sweep_is_scored_with_what_was_measured(corpus: Path, machine: CorpusMachine) -> None:
    plans = ["tp=1|2,dp=4,batch=8"]
    grid = Grid.make(["gpt3-1.3b"], ["a100-sxm-80", "h100-sxm"], plans)
    shown, unfitted = on_corpus_machine(grid, corpus)
    assert unfitted  # kernels without a job around them
    assert [one.name for one in shown.hardware] == [one.name for one in grid.hardware]
    assert shown.hardware[0].fitted == machine.hardware(Hardware.read("a100-sxm-80")).fitted
    step = [Search(axes, "true", 10).run().best["iteration_time_s"].to_list() for axes in (grid, shown)]
    assert step[0] != step[1]
