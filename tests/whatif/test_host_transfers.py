"""Collectives of the host in a changed job: transfers move other bytes, and what is waited for is compute."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lumos_df.base.errors import QueryError
from lumos_df.graph.job import groups
from lumos_df.whatif.estimate import estimate, estimated
from lumos_df.whatif.job.recorded_job import load
from lumos_df.whatif.job.settings import parse
from tests.whatif.conftest import ingested
from tests.whatif.hosted import HostJob, write

REDUCES = HostJob(cached=True, fused=True, collective="all_reduce")
RECEIVES = HostJob(cached=True, collective="recv")
WIDER = (("hidden=256", "ffn=1024", "heads=16"), {"hidden": 256}, 0.05)


def answers(folder: Path, job: HostJob, shares: tuple[float, ...], change: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the answers for two ranks that wait for each other so long, as shares of their passes."""
    for rank, waits in enumerate(shares):
        write(replace(job, waits=waits), folder / "job", rank=rank, ranks=2)
    rows: list[dict[str, Any]] = estimate(ingested(folder / "corpus", folder / "job"), parse([*change])).to_pylist()
    return rows


@pytest.mark.parametrize("shares", [(0.0, 0.0), (1.0, 0.0)])
@pytest.mark.parametrize(
    ("job", "change", "truth", "within"),
    [
        (REDUCES, *WIDER),
        (REDUCES, ("micro_batch=6",), {"batch": 6}, 0.03),
        (REDUCES, ("layers=6",), {"layers": 6}, 0.03),
        (RECEIVES, *WIDER),
        (RECEIVES, ("micro_batch=6",), {"batch": 6}, 0.03),
        # Two stages have twice the layers of one.
        (RECEIVES, ("layers=12",), {"layers": 6}, 0.03),
    ],
)
def test_transfers_grow_with_their_bytes_and_waiting_with_compute(
    tmp_path: Path,
    job: HostJob,
    shares: tuple[float, ...],
    change: tuple[str, ...],
    truth: dict[str, Any],
    within: float,
) -> None:
    for row in answers(tmp_path, job, shares, change):
        wanted = 1000 * replace(job, waits=shares[row["rank"]], **truth).step_us()
        assert row["step_ns"] == pytest.approx(wanted, rel=within)
        assert row["low_s"] <= 1e-9 * wanted <= row["high_s"]


@pytest.mark.parametrize("name", ["aten::div_", "aten::copy_"])
def test_parameters_in_one_row_grow_as_their_shapes_do(tmp_path: Path, name: str) -> None:
    """No size of the model is a factor of the length of a bucket, or of a rank's share of it."""
    for rank in (0, 1):
        write(replace(REDUCES, flat=True), tmp_path / "job", rank=rank, ranks=2)
    corpus = ingested(tmp_path / "corpus", tmp_path / "job")
    (anchor,) = [load(corpus, ids, {}) for ids in groups(corpus)]
    graph = estimated(anchor, parse([*WIDER[0]])).job.graphs[0]
    wanted = dict(replace(REDUCES, flat=True, hidden=256).operators())[name]
    assert graph.own[graph.rows.named(lambda each: each == name)] == pytest.approx([1000 * wanted] * 3, rel=0.25)


@pytest.mark.parametrize("loop", [{"copies_back": True}, {"one_by_one": True}])
@pytest.mark.parametrize(("before", "after"), [(2, 6), (6, 3)])
def test_loops_over_parameters_have_as_many_turns_as_there_then_are(
    tmp_path: Path, loop: dict[str, Any], before: int, after: int
) -> None:
    shares = (1.0, 0.0)
    job = replace(REDUCES, layers=before, **loop)
    for row in answers(tmp_path, job, shares, (f"layers={after}",)):
        wanted = 1000 * replace(job, waits=shares[row["rank"]], layers=after).step_us()
        assert row["step_ns"] == pytest.approx(wanted, rel=0.03)
        assert row["low_s"] <= 1e-9 * wanted <= row["high_s"]


def test_an_interval_holds_that_waiting_stays_as_it_was(tmp_path: Path) -> None:
    """What another rank does meanwhile may not grow along, as where it waits for something else."""
    stays = {row["rank"]: row["original_step_ns"] for row in answers(tmp_path / "same", REDUCES, (1.0, 0.0), ())}
    for row in answers(tmp_path, REDUCES, (1.0, 0.0), ("micro_batch=6",)):
        wider = replace(REDUCES, waits=0.0, batch=6).step_us() - replace(REDUCES, waits=0.0).step_us()
        assert row["low_s"] <= 1e-9 * (stays[row["rank"]] + 1000 * wider) <= row["high_s"]


@pytest.mark.parametrize("zero", [1, 3])
def test_shared_optimizers_of_ranks_without_a_gpu_are_refused(tmp_path: Path, zero: int) -> None:
    with pytest.raises(QueryError, match="zero cannot change, because the job ran on no GPU; record it on one"):
        answers(tmp_path, REDUCES, (0.0, 0.0), (f"zero={zero}",))
