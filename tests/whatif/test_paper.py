"""The paper's experiments in small: emulated Megatron jobs, predicted from one of them, and run."""

from pathlib import Path

import numpy as np
import pytest

from lumos_df.graph.job import groups, load
from tests.bench.paper import SMALL, SMALL_TARGETS, Result, compare, record
from tests.whatif.test_rebuild import off_pct


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of the base, all its ranks; read it only."""
    return record(SMALL, tmp_path_factory.mktemp("paper"))


@pytest.fixture(scope="module")
def results(corpus: Path) -> list[Result]:
    return [compare(SMALL, corpus, target) for target in ({}, *SMALL_TARGETS)]


def test_an_unchanged_job_takes_what_it_took(results: list[Result]) -> None:
    assert abs(results[0].error) < 0.5
    assert results[0].worst_part < 0.5


def test_iteration_times_are_within_two_per_cent_on_average_and_four_at_worst(results: list[Result]) -> None:
    errors = [abs(result.error) for result in results[1:]]
    assert np.mean(errors) < 2
    assert max(errors) < 4


def test_each_part_is_within_four_per_cent_of_the_step(results: list[Result]) -> None:
    for result in results:
        assert result.worst_part < 4, result


def test_the_targets_differ_from_the_base_by_far_more(results: list[Result]) -> None:
    for result in results[1:]:
        assert abs(result.true_ms / results[0].true_ms - 1) > 0.05 or result.target.startswith("dp"), result


def test_a_sweep_anchored_on_the_job_is_near_its_graph(corpus: Path) -> None:
    off = off_pct(corpus, "tp=2,pp=2,dp=2,batch=8,mbs=1", "tp=4,pp=2,dp=2,batch=8,mbs=1")
    assert abs(off[2, 2]) < 2
    assert abs(off[4, 2]) < 8


def test_every_send_meets_a_receive_of_the_other_stage(corpus: Path) -> None:
    (ids,) = groups(corpus)
    job = load(corpus, ids)
    assert job.instances
    assert len(job.graphs) == SMALL.ranks
    word = np.array(
        [
            job.graphs[trace].rows.collectives[job.graphs[trace].rows.collective[row]]
            for trace, row in zip(job.instances.trace.tolist(), job.instances.row.tolist(), strict=True)
        ]
    )
    sent, received = (job.instances.instance[word == name] for name in ("send", "recv"))
    assert sorted(sent.tolist()) == sorted(received.tolist())
    # Each pair of ranks passes every micro-batch forward and backward.
    assert len(sent) == 2 * SMALL.micro_batches * SMALL.tp * SMALL.dp
