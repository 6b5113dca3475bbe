"""An optimizer of many kernels; the gain is that of the job in which one kernel updates everything."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.remedy import Known
from tests.advice.emulated import BRIEF, advice_on, advised, true_gain_ns
from tests.emulator import Job, simulate, write

FUSED = Job(ranks=2, steps=2, layers=1)


@pytest.mark.parametrize("hidden", [128, 3072])
def test_an_optimizer_of_many_kernels_is_the_first_advice(tmp_path: Path, hidden: int) -> None:
    """The smaller model waits for the host, which has to launch them all, the larger one for memory."""
    fused = replace(FUSED, hidden=hidden)
    unfused = replace(fused, unfused_optimizer=True)
    said = advised(tmp_path, unfused)
    assert said.first.remedy.rule == "unfused_optimizer"
    assert said.first.remedy.known is Known.MODELLED
    assert said.first.remedy.what.startswith("AdamW takes")
    # 17 parameters of 8 operations.
    assert said.first.remedy.what.endswith("in 136 kernels a step: pass fused=True")
    assert said.first.gain_ns == pytest.approx(true_gain_ns(unfused, fused), rel=0.1)


def test_a_fused_optimizer_is_left_alone(tmp_path: Path) -> None:
    assert not advised(tmp_path, FUSED).of_rule("unfused_optimizer")


@pytest.mark.parametrize("multiplies", [0, 2])
def test_a_step_of_an_optimizer_that_multiplies_matrices_alone_is_left_alone(tmp_path: Path, multiplies: int) -> None:
    """The others, before or after, are still to be fused."""
    (path,) = write(simulate(replace(FUSED, ranks=1, steps=3, unfused_optimizer=True)), BRIEF, tmp_path / "traces")
    trace = json.loads(gzip.decompress(path.read_bytes()))
    events = trace["traceEvents"]
    mark = [event for event in events if event["name"].startswith("Optimizer.step")][multiplies]
    inside = {
        event["args"]["correlation"]
        for event in events
        if event.get("cat") == "cuda_runtime" and mark["ts"] <= event["ts"] < mark["ts"] + mark["dur"]
    }
    for event in events:
        if event.get("cat") == "kernel" and event["args"]["correlation"] in inside:
            event["name"] = "ampere_sgemm_128x64_tn"
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    (remedy,) = [each.remedy for each in advice_on(tmp_path).advice if each.remedy.rule == "unfused_optimizer"]
    assert remedy.rests_on == "272 kernels"
