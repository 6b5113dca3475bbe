"""Clocks of ranks that differ, on emulated jobs."""

from pathlib import Path

import pytest

from lumos_df.graph.job import groups, load
from lumos_df.trace.ingest import ingest
from tests.emulator import Profiler, write
from tests.emulator.megatron import Megatron, simulate


def test_numbered_collectives_say_where_sends_without_numbers_lie(tmp_path: Path) -> None:
    """Sends come again and again: alone they fit by a micro-batch further off, too."""
    offsets = (0, 7_000_000, -4_000_000, 0, 0, 9_000_000, 0, 0)
    profiler = Profiler(memory=False, stacks=False, clock_offsets_ns=offsets)
    write(simulate(Megatron(tp=2, pp=2, dp=2, layers=2, hidden=256)), profiler, tmp_path / "traces")
    assert not ingest(tmp_path / "traces", tmp_path / "corpus", workers=1).failed
    job = load(tmp_path / "corpus", groups(tmp_path / "corpus")[0])
    assert job.instances is not None
    assert [clock.offset_ns for clock in job.instances.clocks] == pytest.approx(offsets, abs=10_000)
    for replay in job.replay().replays:
        assert replay.high - replay.low == pytest.approx(replay.steps.high - replay.steps.low, rel=0.02)
