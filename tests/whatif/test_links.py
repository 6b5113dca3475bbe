"""Links as the trace shows them: changes to emulated jobs, held against the emulator's own run over the other links."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from lumos_df.base.errors import QueryError
from lumos_df.graph.job import groups
from lumos_df.graph.replay import Replay
from lumos_df.schema.codes import COMMUNICATION
from lumos_df.schema.collective_kinds import ALL_REDUCE
from lumos_df.schema.dtypes import PRECISION_TABLE
from lumos_df.trace.ingest import ingest
from lumos_df.whatif.answer import step_rows
from lumos_df.whatif.changed_job import ChangedJob
from lumos_df.whatif.durations.collective_times import Links
from lumos_df.whatif.durations.link_laws import GroupLinks, fit
from lumos_df.whatif.estimate import estimated
from lumos_df.whatif.job.recorded_gpu import Machine
from lumos_df.whatif.job.recorded_job import load
from lumos_df.whatif.job.settings import parse
from tests.emulator import Job, Profiler, hardware, simulate, write
from tests.model.roofs import GPU
from tests.trace.literal import annotation, kernel, launch, op, stated
from tests.trace.literal import write as write_trace

LAYERS = 4
BUS = hardware.BUS_BYTES_PER_NS
LATENCY_US = hardware.COLLECTIVE_LATENCY_NS / 1000


def run(folder: Path, job: Job, only: int | None = None) -> Path:
    """Return the corpus of an emulated job, or of one of its ranks."""
    for path in write(simulate(job), Profiler(memory=False, stacks=False), folder / "job"):
        if only is not None and not path.name.startswith(f"rank{only}."):
            path.unlink()
    assert not ingest([folder / "job"], folder / "corpus", workers=1).failed
    return folder / "corpus"


def change(corpus: Path, *texts: str, force: bool = False) -> ChangedJob:
    (ids,) = groups(corpus)
    return estimated(load(corpus, ids, {}), parse([*texts]), force=force)


def transfers_us(changed: ChangedJob) -> NDArray[np.float64]:
    assert changed.job.instances is not None
    return np.sort(changed.job.instances.transfer) / 1000


def kernels_us(replay: Replay) -> NDArray[np.float64]:
    row = replay.graph.gpu.row
    row = row[replay.graph.rows.family[row] == COMMUNICATION]
    lasted: NDArray[np.float64] = (replay.end[row] - replay.start[row]) / 1000
    return lasted


def bytes_of(replay: Replay) -> NDArray[np.int64]:
    row = replay.graph.gpu.row
    sent: NDArray[np.int64] = replay.graph.rows.in_bytes[row[replay.graph.rows.family[row] == COMMUNICATION]]
    return sent


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("four"), Job(ranks=4, layers=LAYERS))


@pytest.mark.parametrize(
    ("texts", "job", "bus"),
    [
        (("network=110e9",), Job(ranks=4, layers=LAYERS), 110),
        (("network=10e9",), Job(ranks=4, layers=LAYERS), 10),
        (("dp=8",), Job(ranks=8, layers=LAYERS), BUS),
        (("dp=8", "network=50e9"), Job(ranks=8, layers=LAYERS), 50),
    ],
)
def test_a_job_over_other_links_takes_what_it_takes_when_it_runs_over_them(
    four: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: tuple[str, ...], job: Job, bus: int
) -> None:
    monkeypatch.setattr(hardware, "BUS_BYTES_PER_NS", bus)
    ran, said = change(run(tmp_path, job)), change(four, *texts)
    assert transfers_us(said) == pytest.approx(transfers_us(ran), rel=0.02)
    for before, after in zip(said.after.replays, ran.after.replays[:4], strict=True):
        assert before.high - before.low == pytest.approx(after.high - after.low, rel=0.02)


@pytest.mark.parametrize("times", [12, 44])
def test_gathers_that_always_came_early_enough_hold_back_what_reads_the_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Blocks wait for parameters, gathered while the one before computes, and reductions go on beside them."""
    job = Job(ranks=4, layers=4, zero=3)
    said = change(run(tmp_path / "fast", job), f"network={1e9 * BUS / times}")
    monkeypatch.setattr(hardware, "BUS_BYTES_PER_NS", BUS / times)
    ran = change(run(tmp_path / "slow", job))
    for before, after in zip(said.after.replays, ran.after.replays, strict=True):
        assert before.high - before.low == pytest.approx(after.high - after.low, rel=0.02)


def test_links_between_nodes_that_no_recorded_group_crossed_are_said_to_be_unknown(four: Path) -> None:
    """Sixteen ranks are two nodes of eight A100s; nothing in a trace of one node tells of the network between."""
    near, far, stated = (
        step_rows.rows(change(four, *texts)).to_pylist()[0]
        for texts in (("dp=8",), ("dp=16",), ("dp=16", "network=25e9"))
    )
    said = (
        "groups come to cross nodes, and the trace shows nothing of the links between: taken for 200 Gb/s a GPU, as of"
    )
    assert [any(said in text for text in row["warnings"]) for row in (near, far, stated)] == [False, True, False]
    assert far["causes"][0].startswith("links ±")
    assert far["high_s"] / far["iteration_time_s"] > 1.05 > near["high_s"] / near["iteration_time_s"]


def test_as_many_steps_of_latency_as_the_ring_has_and_the_start_of_the_software(four: Path) -> None:
    low, high = (transfers_us(change(four, f"network=100e9/{latency}")) for latency in ("0", "1e-3"))
    assert high - low == pytest.approx(np.full(len(low), 2 * (4 - 1) * 1000.0), rel=0.02)


@pytest.mark.parametrize("sleeper", [0, 1])
def test_of_a_lone_rank_only_the_transfer_goes_over_other_links(tmp_path: Path, sleeper: int) -> None:
    """Rank 0 is recorded. It comes last, and waits for nobody; or it waits 6 ms for rank 1."""
    corpus = run(tmp_path, Job(ranks=4, layers=LAYERS, sleep_rank=sleeper, sleep_ns=6_000_000), only=0)
    slow = change(corpus, "network=1e9")
    (before,), (after,) = slow.played.replays, slow.after.replays
    sent_us = 1.5 * bytes_of(before) / 1e3
    took, takes = kernels_us(before), kernels_us(after)
    assert (takes >= sent_us).all()
    waited = took - (1.5 * bytes_of(before) / (1e3 * BUS) + LATENCY_US)
    assert takes - waited == pytest.approx(sent_us + LATENCY_US, rel=0.02)


@pytest.mark.parametrize("recorded", [(0,), (0, 1)])
def test_what_may_be_waiting_for_ranks_that_were_not_recorded_widens_the_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: tuple[int, ...]
) -> None:
    """Rank 2 comes late to each reduction, by its backward pass as well: no link can take that time away."""
    job = Job(ranks=4, layers=LAYERS, sleep_rank=2, sleep_ns=20_000_000)
    for path in write(simulate(job), Profiler(memory=False, stacks=False), tmp_path / "job"):
        if int(path.name[4]) not in recorded:
            path.unlink()
    assert not ingest([tmp_path / "job"], tmp_path / "corpus", workers=1).failed
    row = step_rows.rows(change(tmp_path / "corpus", "network=1e12")).to_pylist()[0]
    monkeypatch.setattr(hardware, "BUS_BYTES_PER_NS", 1000)
    ran = step_rows.rows(change(run(tmp_path / "fast", job))).to_pylist()[0]
    assert row["low_s"] < ran["iteration_time_s"] < row["high_s"]
    # The wait of 20 ms is none of it.
    assert row["high_s"] - row["low_s"] < 0.005


@pytest.mark.parametrize(("reduced_bytes", "times"), [(2, 2), (4, 1)])
def test_gradients_follow_the_type_of_the_products_where_they_have_it(
    tmp_path: Path, reduced_bytes: Literal[2, 4], times: int
) -> None:
    changed = change(run(tmp_path, Job(ranks=2, layers=2, reduced_bytes=reduced_bytes)), "dtype=float32")
    before, _ = changed.played.replays
    sent_us = bytes_of(before) / (1e3 * BUS)
    assert transfers_us(changed).sum() == pytest.approx((times * sent_us + LATENCY_US).sum(), rel=0.03)
    how = "go with it" if times == 2 else "stay so"
    assert any("gradients are reduced in" in text and text.endswith(how) for text in changed.warnings)


def test_a_larger_vocabulary_leaves_the_gradients_of_layers(four: Path) -> None:
    changed = change(four, "vocab=32768")
    for rank, replay in enumerate(changed.after.replays):
        row = replay.graph.gpu.row
        row = row[replay.graph.rows.family[row] == COMMUNICATION]
        inside = changed.anchor.about.ranks[rank].structure.layer[row] >= 0
        grown = replay.graph.own[row] > changed.anchor.job.graphs[rank].own[row]
        assert set(inside.tolist()) == {False, True}
        assert (grown == ~inside).all()


def test_no_wait_of_a_rank_whose_peer_was_not_recorded_is_multiplied(tmp_path: Path) -> None:
    """Ten buckets, 100 MB together, among two: each waits a millisecond or two for the other rank."""
    size, count = 10_000_000, 10
    said = stated("allreduce", size // 4, size // 4, Group_size=2, Process_Group_Name="0", dtype="Float")
    events = [annotation("ProfilerStep#1", 0, 1e6), op("aten::mm", 1, 1)]
    for number in range(count):
        at = 10 + 20_000 * number
        lasts = 1000 + 100 * number
        events += [launch(at, 5, number), kernel("ncclDevKernel_AllReduce", at + 10, lasts, correlation=number, **said)]
    write_trace(
        tmp_path / "job" / "rank0.json", events, distributedInfo={"rank": 0, "world_size": 2, "backend": "nccl"}
    )
    assert not ingest([tmp_path / "job"], tmp_path / "corpus", workers=1).failed
    (after,) = change(tmp_path / "corpus", "network=1e9").after.replays
    sent_us = count * size / 1e3
    assert sent_us < kernels_us(after).sum() < 1.1 * sent_us


def test_what_a_trace_does_not_tell_is_said(tmp_path: Path) -> None:
    events = [annotation("ProfilerStep#1", 0, 1e6), op("aten::mm", 1, 1)]
    for number, name in enumerate(("ncclDevKernel_AllReduce", "ncclDevKernel_Generic")):
        at = 10 + 20_000 * number
        events += [launch(at, 5, number), kernel(name, at + 10, 3000 + 4000 * number, correlation=number)]
    write_trace(
        tmp_path / "job" / "rank0.json", events, distributedInfo={"rank": 0, "world_size": 2, "backend": "nccl"}
    )
    assert not ingest([tmp_path / "job"], tmp_path / "corpus", workers=1).failed
    with pytest.raises(QueryError, match="100% of the GPU time is communication that could not be rescaled") as refused:
        change(tmp_path / "corpus", "network=1e9")
    assert "nearest is --scale family=communication:F, by which it lasts F times as long" in str(refused.value)
    changed = change(tmp_path / "corpus", "network=1e9", force=True)
    assert kernels_us(changed.after.replays[0]).tolist() == [3000, 7000]
    said = [text for text in changed.warnings if "could not be rescaled" in text]
    assert [text.split()[0] for text in said] == ["70%", "30%"]
    # The GPU is taken for an A100: were all of it transfer, over NVLink of 300 GB/s, it would take so much longer.
    (row,) = step_rows.rows(changed).to_pylist()
    assert row["causes"][0].startswith("links ")
    assert 100 < row["high_s"] / 0.010 < 300
    # Over faster links it can only be shorter.
    (row,) = step_rows.rows(change(tmp_path / "corpus", "network=3e15/0", force=True)).to_pylist()
    assert row["high_s"] < 1.01 * row["iteration_time_s"]


LINKS = Links.of(Machine.of(GPU, PRECISION_TABLE[2]))
FOUR = GroupLinks(ALL_REDUCE, 4, 1)
"""Its links have 100 GB/s, and start in 1 us."""


def fitted(payload: list[float], us: list[float], **more: bool) -> tuple[float, float, float, float]:
    """Return latency in us, bandwidth in GB/s, spread and the error of latency to bandwidth of a law."""
    options = {"may_wait": False, "bounded": False} | more
    law = fit(FOUR, LINKS, np.array(payload), 1e-6 * np.array(us), **options)
    links = law.links(LINKS, FOUR)
    return 1e6 * FOUR.seconds(links, 1.0), FOUR.bandwidth(links) / 1e9, law.spread, law.tilt_error


def ring_us(payload: float, latency_us: float, bytes_per_us: float) -> float:
    return latency_us + 1.5 * payload / bytes_per_us


SIZES = [1e4, 1e6, 3e6, 1e7, 1e8]


def test_two_sizes_tell_latency_and_bandwidth() -> None:
    latency, bandwidth, spread, _ = fitted(SIZES[1::3], [ring_us(size, 30, 20e3) for size in SIZES[1::3]])
    assert (latency, bandwidth) == pytest.approx((30, 20), rel=0.02)
    assert spread < 0.01


def test_one_size_that_stands_out_moves_nothing() -> None:
    times = [ring_us(size, 30, 20e3) for size in SIZES]
    times[2] *= 5
    latency, bandwidth, spread, _ = fitted(SIZES, times)
    assert (latency, bandwidth) == pytest.approx((30, 20), rel=0.02)
    assert spread > 0.1


def test_one_size_keeps_the_ratio_of_latency_to_bandwidth_and_is_less_sure() -> None:
    once, _, _, unsure = fitted([1e7], [10 * ring_us(1e7, 1.24, 100e3)])
    assert once == pytest.approx(12.4, rel=0.01)
    *_, sure = fitted(SIZES, [ring_us(size, 30, 20e3) for size in SIZES])
    assert sure < 0.2 * unsure


def test_no_law_surpasses_links_that_are_known() -> None:
    fast = [ring_us(size, 1, 500e3) for size in SIZES]
    assert fitted(SIZES, fast)[1] == pytest.approx(500, rel=0.02)
    assert fitted(SIZES, fast, bounded=True)[1] == pytest.approx(100, rel=0.01)


def test_a_law_lies_below_all_that_may_have_waited() -> None:
    times = [ring_us(size, 5, 20e3) + wait for size, wait in zip(SIZES, (0, 50, 900, 0, 100), strict=True)]
    latency, bandwidth, *_ = fitted(SIZES, times, may_wait=True)
    assert (latency, bandwidth) == pytest.approx((5, 20), rel=0.05)
