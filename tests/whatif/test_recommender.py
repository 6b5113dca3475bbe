"""Recommenders: tables and what goes between ranks, and changes held against the emulator's own run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos_df.base.errors import QueryError
from lumos_df.graph.job import groups
from lumos_df.structure.describe import describe
from lumos_df.structure.sharding import of_rank
from lumos_df.whatif.durations import operator_times, payloads
from lumos_df.whatif.job.changed_sizes import changed_sizes
from lumos_df.whatif.job.recorded_job import load
from lumos_df.whatif.job.settings import parse
from tests.emulator import Job
from tests.emulator.recommender import TABLE_ROWS, TABLE_WIDTH
from tests.trace.literal import Event, annotation, corpus_of, op
from tests.whatif.conftest import emulate
from tests.whatif.test_emulated import answers

DLRM = Job(ranks=4, layers=1, hidden=128, steps=2, tables=16, looked_up=60, batch=4096, sequence=1)


@pytest.fixture(scope="module")
def dlrm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return emulate(tmp_path_factory.mktemp("dlrm"), DLRM)


def test_tables_and_dense_parameters_are_told(dlrm: Path) -> None:
    facts = {row["name"]: row["value"] for row in describe(dlrm).to_pylist()}
    assert facts["tables"] == 4
    assert facts["table_params"] == 4 * TABLE_ROWS * TABLE_WIDTH
    assert facts["embedding_dim"] == TABLE_WIDTH
    behind = DLRM.hidden + DLRM.tables * TABLE_WIDTH
    square = DLRM.hidden * (DLRM.hidden + 1)
    assert facts["dense_params"] == 2 * square + DLRM.hidden * (behind + 1)


def test_a_lookup_that_calls_another_is_one(tmp_path: Path) -> None:
    """PyTorch's `embedding_bag` calls `_embedding_bag`: three tables, as three modules look them up."""
    dims: dict[str, Any] = {"Input Dims": [[500, 32], [40], [8]], "Input type": ["float", "long int", "long int"]}
    events: list[Event] = [annotation("ProfilerStep#1", 0, 1000), op("aten::mm", 500, 100)]
    for at in (100, 200, 300):
        events += [op("aten::embedding_bag", at, 50, **dims), op("aten::_embedding_bag", at + 10, 30, **dims)]
    corpus_of(tmp_path, events, distributedInfo={"rank": 0, "world_size": 1})
    facts = {row["name"]: row["value"] for row in describe(tmp_path / "corpus").to_pylist()}
    assert (facts["tables"], facts["table_params"], facts["embedding_dim"]) == (3, 3 * 500 * 32, 32)


@pytest.mark.parametrize(
    ("change", "truth"),
    [(("batch_scale=2",), replace(DLRM, batch=8192)), (("dp=8",), replace(DLRM, ranks=8))],
)
def test_a_changed_recommender_takes_what_it_takes_when_it_runs(
    dlrm: Path, tmp_path: Path, change: tuple[str, ...], truth: Job
) -> None:
    estimated, ran = answers(dlrm, *change)[0], answers(emulate(tmp_path, truth))[0]
    for part in ("step_ns", "gpu_busy_ns"):
        assert estimated[part] == pytest.approx(ran[part], rel=0.05), part


@pytest.mark.parametrize(("change", "tables"), [("batch_scale=2", 2.0), ("dp=8", 1.0)])
def test_what_is_looked_up_grows_with_the_batch_and_gradients_do_not(dlrm: Path, change: str, tables: float) -> None:
    anchor = load(dlrm, groups(dlrm)[0], {})
    settings = parse([change])
    plan = operator_times.plan(anchor, changed_sizes("dlrm", anchor.sizes, settings), settings)
    row, degree = operator_times.collectives(anchor, 0)
    rows = anchor.job.graphs[0].rows
    kinds = np.array(rows.collectives)[rows.collective[row]]
    grown = payloads.payload_ratio(anchor, plan, 0, row, degree)
    assert {*grown[kinds == "all_to_all"].tolist()} == {tables}
    assert {*grown[kinds == "all_reduce"].tolist()} == {1.0}


@pytest.mark.parametrize("change", ["tp=2", "cp=2"])
def test_what_only_a_transformer_has_is_not_asked_for(dlrm: Path, change: str) -> None:
    with pytest.raises(QueryError, match=r"the model is no transformer \(recommender\); nearest is batch_scale=1/N"):
        answers(dlrm, change)


def test_what_is_looked_up_is_no_share_of_the_parameters(dlrm: Path) -> None:
    rank = load(dlrm, groups(dlrm)[0], {}).about.ranks[0]
    rows = rank.trace.rows
    gathered = replace(rank.trace, rows=replace(rows, collectives=["reduce_scatter"] * len(rows.collectives)))
    assert of_rank(rank.trace, rank.structure, {}).zero == of_rank(gathered, rank.structure, {}).zero == 0
    assert of_rank(gathered, replace(rank.structure, kind="other"), {}).zero == 1


@pytest.mark.parametrize("change", ["tp=2", "cp=2"])
def test_of_products_without_attention_no_size_is_asked_for(tmp_path: Path, change: str) -> None:
    """With each size that it asked for it asked for another, and was refused in the end."""
    dims: dict[str, Any] = {"Input Dims": [[64, 512], [512, 512]], "Input type": ["float", "float"]}
    corpus_of(tmp_path, [annotation("ProfilerStep#1", 0, 1000), op("aten::mm", 500, 100, **dims)])
    with pytest.raises(QueryError, match="none of its products is told to be attention; nearest is batch_scale") as no:
        answers(tmp_path / "corpus", change)
    assert "--known" not in str(no.value)
