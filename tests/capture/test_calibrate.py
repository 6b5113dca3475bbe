"""This machine measured with torch."""

import json
import sys
from pathlib import Path

from lumos_df import ingest
from lumos_df.model.hardware import Hardware
from tests.capture.conftest import EXAMPLE, SHORT, SMALL, Shell, needs_torch

pytestmark = needs_torch

LUMOS = (sys.executable, "-m", "lumos_df")


def test_a_measured_machine_is_a_hardware_file(shell: Shell, tmp_path: Path) -> None:
    measure = ("--measure", "gemm,memory", "--model", "gpt3-125m", "--plan", "tp=12,micro_batch=1,batch=1")
    output = tmp_path / "mine.toml"
    done = shell(*LUMOS, "calibrate", *measure, "--hardware", "h100", "--output", output, "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row["kind"] for row in rows} == {"gemm", "memory"}
    assert all(row["measured_ns"] > 0 for row in rows)
    found = Hardware.read(output)
    assert found.name == "mine"
    # The peak is what the best product reached, over the share that the model lets one reach.
    best = max(
        2 * m * n * k / row["measured_ns"] * 1e9
        for row in rows
        if row["kind"] == "gemm"
        for m, n, k in [map(int, row["size"].split("x"))]
    )
    assert best <= found.peak_flops.fp32 <= 2 * best


def test_a_machine_in_no_data_sheet_needs_a_stand_in(shell: Shell, tmp_path: Path) -> None:
    done = shell(*LUMOS, "calibrate", "--measure", "gemm", "--output", tmp_path / "mine.toml", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1
    assert "this machine's 'cpu' is in no data sheet here; give --hardware NAME" in done.stderr


def test_operators_of_a_recording_run_again(shell: Shell, tmp_path: Path) -> None:
    job = (sys.executable, EXAMPLE, *SMALL)
    assert shell(*LUMOS, "capture", "--output", tmp_path / "traces", *SHORT, "--", *job).returncode == 0
    ingest([tmp_path / "traces"], tmp_path / "corpus", workers=1)
    done = shell(*LUMOS, "calibrate", "--from-corpus", tmp_path / "corpus", "--most", 40, "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    names = {row["name"] for row in rows if row["replayed_ns"]}
    assert {"aten::linear", "aten::mm", "aten::scaled_dot_product_attention", "aten::layer_norm"} <= names
    assert sum(row["replayed_ns"] is not None for row in rows) >= 0.7 * len(rows)
    assert all((row["replayed_ns"] is None) == (row["reason"] is not None) for row in rows)
