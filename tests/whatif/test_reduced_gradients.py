"""What collectives of gradients and parameters carry after a change, held against the emulator's own run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumos_df.graph.job import groups
from lumos_df.schema.plan_words import DP
from lumos_df.whatif.durations import operator_times, payloads
from lumos_df.whatif.job.changed_sizes import changed_sizes
from lumos_df.whatif.job.recorded_job import load
from lumos_df.whatif.job.settings import parse
from tests.emulator import Job, hardware
from tests.whatif.conftest import emulate
from tests.whatif.test_emulated import answers

SMALL = Job(ranks=2, layers=4, steps=1, hidden=512, heads=8, vocabulary=16384, sequence=256)
"""A layer's gradients are 6.3 MB, those of both tables 33.6 MB: over slow links they are most of the step."""
OF_A_LAYER = replace(SMALL, bucket_bytes=6_000_000)
BUCKETS = (
    (OF_A_LAYER, 0.03),
    (replace(SMALL, bucket_bytes=8_000_000), 0.03),
    # None of the layers between has a bucket: what more of them have is reduced at the end, and no longer beside them.
    (replace(SMALL, bucket_bytes=20_000_000), 0.1),
    (replace(SMALL, zero=1, bucket_bytes=6_000_000), 0.03),
    # Parameters of the first layers are gathered before the first layer begins.
    (replace(SMALL, zero=3), 0.03),
)


@pytest.mark.parametrize("layers", [2, 10])
@pytest.mark.parametrize(("job", "within"), BUCKETS)
def test_gradients_outside_of_layers_are_those_that_no_layer_reduces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: Job, within: float, layers: int
) -> None:
    """Taken for all parameters of the rank, the tables' bucket grows with the layers: 4 to 37 % too long."""
    monkeypatch.setattr(hardware, "BUS_BYTES_PER_NS", 6)
    row = answers(emulate(tmp_path / "base", job), f"layers={layers}")[0]
    ran = answers(emulate(tmp_path / "other", replace(job, layers=layers)))[0]
    assert row["step_ns"] == pytest.approx(ran["step_ns"], rel=within)


def test_a_larger_vocabulary_makes_the_buckets_of_the_tables_as_much_longer(tmp_path: Path) -> None:
    corpus = emulate(tmp_path, OF_A_LAYER)
    anchor = load(corpus, groups(corpus)[0], {})
    settings = parse(["vocab=65536"])
    plan = operator_times.plan(anchor, changed_sizes("job", anchor.sizes, settings), settings)
    row, degree = operator_times.collectives(anchor, 0)
    sent = anchor.job.graphs[0].rows.in_bytes[row]
    grown = sent * payloads.payload_ratio(anchor, plan, 0, row, degree)
    assert (grown - sent).sum() == pytest.approx(2 * 2 * (65536 - 16384) * 512, rel=0.01)


@pytest.mark.parametrize(
    ("change", "experts", "alike", "replicas"), [("dp=8", 4, 2, 8), ("ep=2", 8, 2, 4), ("ep=1", 16, 4, 4)]
)
def test_experts_that_several_ranks_have_are_reduced_among_these(
    tmp_path: Path, change: str, experts: int, alike: int, replicas: int
) -> None:
    """Each of four ranks has 4 of 16 experts, and reduces the gradients of all else."""
    job = Job(ranks=4, layers=2, steps=1, experts=16, top_k=2, bucket_bytes=10**9)
    corpus = emulate(tmp_path, job)
    anchor = load(corpus, groups(corpus)[0], {})
    settings = parse([change])
    plan = operator_times.plan(anchor, changed_sizes("job", anchor.sizes, settings), settings)
    row, degree = operator_times.collectives(anchor, 0)
    grown = payloads.payload_ratio(anchor, plan, 0, row, degree)[degree == DP]
    attention, expert, tables = 4 * 1024**2, 2 * 4 * 1024**2, 2 * 8192 * 1024
    # Over a ring of n each byte is sent 2 (n - 1) / n times.
    rings = ((alike - 1) / alike) / ((replicas - 1) / replicas)
    dense = job.layers * attention + tables
    assert grown == pytest.approx(np.full(len(grown), 1 + job.layers * experts * expert * rings / dense), rel=0.01)
