"""What replicas, tensor- and context-parallel ranks share out, against the emulator's own run of the other job."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos_df.base.errors import QueryError
from lumos_df.graph.job import groups
from lumos_df.structure.describe import describe
from lumos_df.whatif.estimate import estimated
from lumos_df.whatif.job.recorded_job import load
from lumos_df.whatif.job.settings import parse
from tests.bench.paper import record
from tests.emulator import Job
from tests.emulator.megatron import Megatron
from tests.whatif.conftest import emulate
from tests.whatif.test_emulated import answers

REPLICAS = Job(ranks=4, layers=2, steps=1)


@pytest.fixture(scope="module")
def shared_out(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Corpora of a job by what its replicas share out: nothing, the optimizer's work, gradients, parameters."""
    folder = tmp_path_factory.mktemp("shared")
    return {zero: emulate(folder / str(zero), replace(REPLICAS, zero=zero)) for zero in (0, 1, 2, 3)}


@pytest.mark.parametrize(("zero", "told"), [(0, 0), (1, 1), (2, 1), (3, 3)])
def test_collectives_tell_what_replicas_share_out(shared_out: dict[int, Path], zero: int, told: int) -> None:
    (ids,) = groups(shared_out[zero])
    assert load(shared_out[zero], ids, {}).sizes.zero == told


@pytest.mark.parametrize(("zero", "wanted"), [(0, 1), (0, 2), (0, 3), (1, 0), (1, 3), (3, 0), (3, 1)])
def test_other_shares_take_what_they_take_when_they_run(shared_out: dict[int, Path], zero: int, wanted: int) -> None:
    for row, ran in zip(answers(shared_out[zero], f"zero={wanted}"), answers(shared_out[wanted]), strict=True):
        assert row["step_ns"] == pytest.approx(ran["step_ns"], rel=0.04)
        assert row["gpu_busy_ns"] == pytest.approx(ran["gpu_busy_ns"], rel=0.04)
        for part in ("overlapped_ns", "exposed_communication_ns"):
            assert abs(row[part] - ran[part]) < 0.05 * ran["step_ns"], part
        if wanted != 2:
            assert row["memory_gb"] == pytest.approx(ran["memory_gb"])
        # Fewer parts of the optimizer, or all.
        assert row["optimizer_s"] == pytest.approx(ran["optimizer_s"], rel=0.1)
        assert any(f"zero={wanted} is modelled" in said for said in row["warnings"]) == (wanted > 0)


def test_an_optimizer_of_many_kernels_goes_through_its_part_of_the_parameters(tmp_path: Path) -> None:
    whole = replace(REPLICAS, unfused_optimizer=True)
    corpora = emulate(tmp_path / "whole", whole), emulate(tmp_path / "part", replace(whole, zero=1))
    estimated_row, ran = answers(corpora[0], "zero=1")[0], answers(corpora[1])[0]
    assert estimated_row["step_ns"] == pytest.approx(ran["step_ns"], rel=0.05)
    # Each goes through whole tensors, some through more elements than others: together through all.
    for row, ran in zip(answers(corpora[1], "zero=0"), answers(corpora[0]), strict=True):
        assert row["step_ns"] == pytest.approx(ran["step_ns"], rel=0.05)
        assert row["optimizer_s"] == pytest.approx(ran["optimizer_s"], rel=0.05)


def test_one_replica_becomes_four_that_share_out_the_optimizer(shared_out: dict[int, Path], tmp_path: Path) -> None:
    row = answers(emulate(tmp_path, replace(REPLICAS, ranks=1)), "dp=4", "zero=1")[0]
    ran = answers(shared_out[1])[0]
    assert row["step_ns"] == pytest.approx(ran["step_ns"], rel=0.1)
    assert row["low_s"] < ran["iteration_time_s"] < row["high_s"]


def test_a_stored_job_shows_what_it_shares_out(shared_out: dict[int, Path], tmp_path: Path) -> None:
    for zero, told in ((1, 1), (3, 3)):
        row = answers(shared_out[0], f"zero={zero}", into=tmp_path / str(zero))[0]
        stored = answers(tmp_path / str(zero))[0]
        assert stored["step_ns"] == row["step_ns"]
        (ids,) = groups(tmp_path / str(zero))
        assert load(tmp_path / str(zero), ids, {}).sizes.zero == told


def test_gradients_of_earlier_micro_batches_are_scattered_where_parameters_are_shared(
    shared_out: dict[int, Path],
) -> None:
    (ids,) = groups(shared_out[0])
    job = estimated(load(shared_out[0], ids, {}), parse(["zero=3", "batch=3"]))
    rows = job.job.graphs[0].rows
    names = np.array(rows.names)[rows.name[job.sources[0] < 0]].tolist()
    # Of each micro-batch both layers, each way, and what lies around them.
    assert names.count("all_gather of parameters (modelled)") == 3 * (2 * 2 + 1)
    assert names.count("reduce_scatter of gradients (modelled)") == 2 * 2


NARROW: dict[str, Any] = {"hidden": 1024, "ffn": 4096, "heads": 8}
WIDE = Megatron(layers=2, hidden=2048, ffn=8192, heads=16, micro_batches=2, sequence=4096)


@pytest.mark.parametrize(
    ("recorded", "texts", "wanted", "within"),
    [
        ({"tp": 2}, ("sp=on",), {"tp": 2, "sp": True}, 0.04),
        ({"tp": 2, "sp": True}, ("sp=off",), {"tp": 2}, 0.02),
        ({}, ("tp=2", "sp=on"), {"tp": 2, "sp": True}, 0.1),
        ({"dp": 2}, ("cp=2",), {"dp": 2, "cp": 2}, 0.04),
        ({}, ("cp=2",), {"cp": 2}, 0.1),
        ({"dp": 2, "cp": 2}, ("dp=4",), {"dp": 4, "cp": 2}, 0.03),
        ({**NARROW, "cp": 2}, ("seq=8192",), {**NARROW, "cp": 2, "sequence": 8192}, 0.03),
    ],
)
def test_shared_tokens_take_what_they_take_when_they_run(
    tmp_path: Path, recorded: dict[str, Any], texts: tuple[str, ...], wanted: dict[str, Any], within: float
) -> None:
    row = answers(record(replace(WIDE, **recorded), tmp_path / "recorded"), *texts)[0]
    ran = answers(record(replace(WIDE, **wanted), tmp_path / "ran"))[0]
    assert row["step_ns"] == pytest.approx(ran["step_ns"], rel=within)
    assert row["gpu_busy_ns"] == pytest.approx(ran["gpu_busy_ns"], rel=within)
    assert row["gpus"] == replace(WIDE, **wanted).ranks
    exposed = "cp_exposed_s" if "cp" in wanted else "tp_exposed_s"
    assert row[exposed] > 0
    if "tp" not in recorded:
        assert row["low_s"] < ran["iteration_time_s"] < row["high_s"]


def test_a_description_tells_that_ranks_share_a_sequence(tmp_path: Path) -> None:
    corpus = record(replace(WIDE, micro_batches=1, cp=2, dp=2, **NARROW), tmp_path)
    facts = {row["name"]: row["value"] for row in describe(corpus).to_pylist()}
    assert (facts["cp"], facts["dp"], facts["world"], facts["sequence"]) == (2, 2, 4, 4096)
    with pytest.raises(QueryError, match="cp cannot change from 2, because nothing tells how it exchanged keys"):
        answers(corpus, "cp=4")


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["zero=4"], "write one of zero=0, zero=1, zero=2, zero=3"),
        (["zero=1", "dp=1"], "shares out nothing, because dp is 1"),
        (["sp=on"], "shares out nothing, because tp is 1"),
        (["sp=maybe"], "write one of sp=on, sp=off"),
        (["zero=0"], "zero=0 changes nothing, because it was 0 already"),
        (["cp=3"], "twice cp=3 does not divide seq=512; the nearest that does is cp=2"),
    ],
)
def test_shares_that_cannot_be_are_refused(shared_out: dict[int, Path], texts: list[str], says: str) -> None:
    with pytest.raises(QueryError, match=says):
        answers(shared_out[0], *texts)
