"""Copies to the host hold the kernels behind them; the gain is that of the job that copies on another stream."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import advice_on, advised, true_gain_ns
from tests.emulator import Job
from tests.trace.literal import Event, annotation, kernel, launch, op, write, x

HELD = Job(ranks=2, steps=3, batch=8, offloaded_bytes=20_000_000)
APART = replace(HELD, offloads_apart=True)


def test_copies_that_kernels_wait_for_are_the_first_advice(tmp_path: Path) -> None:
    first = advised(tmp_path, HELD).first
    assert first.remedy.rule == "copy_to_host"
    assert first.remedy.what.startswith("19.1 MiB a step are copied to the host while kernels wait")
    assert first.gain_ns == pytest.approx(true_gain_ns(HELD, APART), rel=0.1)


def test_copies_beside_kernels_are_fine(tmp_path: Path) -> None:
    assert not advised(tmp_path, APART).of_rule("copy_to_host")


def test_a_copy_to_pageable_memory_takes_what_the_link_does(tmp_path: Path) -> None:
    """Of steps of 10 ms nine go by in a copy of 64 MB, which the link to the host takes a millisecond for."""
    events: list[Event] = []
    copied = {"device": 0, "stream": 7, "bytes": 64_000_000}
    for step, begin in enumerate(range(0, 50_000, 10_000)):
        call = 2 * step + 1
        events += [
            annotation(f"ProfilerStep#{step}", begin, 9_999),
            op("aten::mm", begin + 1, 20),
            launch(begin + 5, 10, call),
            kernel("gemm", begin + 20, 800, correlation=call, stream=7),
            op("aten::to", begin + 30, 9_800),
            x("cudaMemcpyAsync", "cuda_runtime", begin + 35, 9_790, correlation=call + 1),
            x("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", begin + 821, 9_000, 7, **copied, correlation=call + 1),
        ]
    write(tmp_path / "traces" / "rank0.json", events, deviceProperties=[{"id": 0, "name": "NVIDIA H200"}])
    first = advice_on(tmp_path).first
    assert first.remedy.rule == "copy_to_host"
    assert first.gain_ns == pytest.approx(9_000_000, rel=0.05)
