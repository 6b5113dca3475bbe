"""Launches that load code in one step; the gain is that of the job in which it was loaded before."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.job_advice import advise
from lumos_df.advice.remedy import Known
from lumos_df.trace.ingest import ingest
from tests.advice.emulated import Advised, advice_on, advised, advised_on_rocm, true_gain_ns
from tests.emulator import Job
from tests.trace.literal import Event, annotation, kernel, launch, op, write

SAMPLE = Path(__file__).parents[2] / "data" / "traces" / "cpu_ddp"
HEALTHY = Job(ranks=2, steps=3, batch=8)


def test_launches_that_load_code_once_are_the_first_advice(tmp_path: Path) -> None:
    stalled = replace(HEALTHY, loading_ns=8_000_000)
    said = advised(tmp_path, stalled)
    assert said.first.remedy.rule == "stall"
    assert said.first.remedy.known is Known.MEASURED
    assert said.first.remedy.what.startswith(
        "cudaLaunchKernel of aten::native_layer_norm, in 1 of 3 steps, takes up to 8.00 ms longer than ever else: code"
    )
    assert said.first.gain_ns == pytest.approx(true_gain_ns(stalled, HEALTHY), rel=0.1)


@pytest.mark.parametrize(
    ("on", "call", "setting"),
    [
        (advised, "cudaLaunchKernel", "set CUDA_MODULE_LOADING=EAGER"),
        (advised_on_rocm, "hipLaunchKernel", "set HIP_ENABLE_DEFERRED_LOADING=0"),
    ],
)
def test_code_is_loaded_early_by_what_the_runtime_knows(
    tmp_path: Path, on: Callable[[Path, Job], Advised], call: str, setting: str
) -> None:
    what = on(tmp_path, replace(HEALTHY, loading_ns=8_000_000)).first.remedy.what
    assert what.startswith(f"{call} of ")
    assert what.endswith(setting)


@pytest.mark.parametrize("calls", [("cudaLaunchKernel",), ("cudaLaunchKernel", "cuLaunchKernel")])
def test_code_that_many_kernels_load_in_the_only_step_is_one_advice(tmp_path: Path, calls: tuple[str, ...]) -> None:
    """Also where PyTorch launches some of them, and Triton others."""
    events, ts = [], 0
    for number in range(40):
        kind, loads = number % 8, 0 < number < 6
        took = 5 + 1000 * (6 - number) * loads
        call = launch(ts + 5, took, number + 1) | {"name": calls[(kind + 1) % len(calls)]}
        events += [op(f"aten::{kind}", ts, took + 10), call]
        ts += took + 20
        events.append(kernel(f"kernel {kind}", ts, 5, correlation=number + 1))
    write(tmp_path / "job" / "rank0.json", events)
    ingest([tmp_path / "job"], tmp_path / "corpus", workers=1)
    (found,) = advise(tmp_path / "corpus")
    first = found.advice[0]
    assert first.remedy.what.startswith(
        "cudaLaunchKernel of aten::1, aten::2, aten::3, ..., once, takes up to 5.00 ms longer than ever else: code"
    )
    assert first.remedy.rests_on == "5 stalls on 1 rank"
    assert first.gain_ns == pytest.approx(15_000_000, rel=0.01)
    assert [advice.remedy.rule for advice in found.found].count("stall") == 1


def of_gloo(*, sleeps: int = 0, waits: int = 0) -> list[Event]:
    """Return five steps of a rank that in the third sleeps before its product, or waits in its collective, us."""
    events, at = [], 0
    for step in range(5):
        begin = at
        at += 10 + (sleeps if step == 2 else 0)
        events.append(op("aten::mm", at, 900))
        wait = 100 + (waits if step == 2 else 0)
        events += [annotation("gloo:all_reduce", at + 905, wait, tid=2), op("aten::add_", at + 910 + wait, 80)]
        at += 1000 + wait
        events.append(annotation(f"ProfilerStep#{step}", begin, at - begin))
    return events


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_that_waits_for_one_that_slept_is_not_blamed(tmp_path: Path, ranks: int) -> None:
    for rank, events in enumerate([of_gloo(waits=3000), of_gloo(sleeps=3000)][:ranks]):
        of_job = {"backend": "gloo", "rank": rank, "world_size": 2}
        write(tmp_path / "traces" / f"rank{rank}.json", events, distributedInfo=of_job)
    (stall,) = advice_on(tmp_path).of_rule("stall")
    if ranks == 1:
        assert stall.remedy.what.startswith("a wait for collectives of the host, before aten::add_, in 1 of 5 steps, ")
        assert stall.remedy.what.endswith(": another rank came late, or the network was busy")
    else:
        assert stall.remedy.what.startswith("a silence before aten::mm, in 1 of 5 steps on rank 1, takes 3.00 ms")
        assert ", and others wait for it: look for checkpoints" in stall.remedy.what
    assert stall.gain_ns == pytest.approx(3_000_000 / 5, rel=0.01)


@pytest.mark.parametrize(("step", "cause"), [(0, "warm up first; "), (2, "look for compilation, ")])
def test_what_stalls_later_is_no_warming_up(tmp_path: Path, step: int, cause: str) -> None:
    events = []
    for place, at in enumerate(range(0, 50_000, 10_000)):
        took = 9000 if place == step else 1000
        events += [annotation(f"ProfilerStep#{place}", at, took + 20), op("aten::mm", at + 10, took)]
    write(tmp_path / "traces" / "rank0.json", events)
    assert f" longer than ever else: {cause}" in advice_on(tmp_path).first.remedy.what


@pytest.mark.parametrize("regular", [HEALTHY, replace(HEALTHY, silence_ns=20_000_000)])
def test_what_every_step_has_is_no_stall(tmp_path: Path, regular: Job) -> None:
    assert not advised(tmp_path, regular).of_rule("stall")


def test_what_hits_any_row_in_any_step_is_no_stall(tmp_path: Path) -> None:
    # Two processes that share the processors of a small machine.
    ingest([SAMPLE], tmp_path / "corpus", workers=1)
    (sample,) = advise(tmp_path / "corpus")
    assert "stall" not in [advice.remedy.rule for advice in sample.advice]
