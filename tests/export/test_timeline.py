"""The timelines, as ui.perfetto.dev reads them."""

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import lumos_df
from lumos_df.errors import LumosError
from lumos_df.export import What, export
from lumos_df.graph import run
from lumos_df.trace.ingest import ingest
from tests.conftest import SAMPLES

Timeline = list[dict[str, Any]]
LATE_NS = 3_000_000
"""What the clock of rank 3 shows more."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four emulated ranks, the clock of one of them ahead, replayed with their critical paths."""
    folder = tmp_path_factory.mktemp("timelines")
    for rank in range(4):
        trace = json.loads(gzip.decompress((SAMPLES / "gpu_generated" / f"rank{rank}.json.gz").read_bytes()))
        trace["baseTimeNanoseconds"] = trace.get("baseTimeNanoseconds", 0) + (LATE_NS if rank == 3 else 0)
        for event in trace["traceEvents"] if rank == 1 else ():
            # On rank 1, every gemm lasts into what follows it on its stream.
            if event.get("cat") == "kernel" and "gemm" in event["name"]:
                event["dur"] += 5
        (folder / f"rank{rank}.json").write_text(json.dumps(trace))
    assert not ingest([folder], folder / "corpus", workers=1).failed
    run.replay(folder / "corpus", path=True)
    return folder / "corpus"


@pytest.fixture(scope="module", params=list(What))
def timeline(corpus: Path, request: pytest.FixtureRequest) -> Timeline:
    file = corpus.parent / f"{request.param}.json.gz"
    written = export(corpus, request.param, file)
    events: Timeline = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert len(events) == written
    return events


def ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def slices(events: Timeline) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return (begin, end) of every slice of every lane, ns."""
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append((ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])))
    return found


def test_slices_of_a_lane_lie_in_one_another_or_apart(timeline: Timeline) -> None:
    for lane in slices(timeline).values():
        around: list[int] = []
        for begin, end in lane:
            while around and around[-1] <= begin:
                around.pop()
            assert not around or end <= around[-1]
            around.append(end)
        assert all(a[0] <= b[0] for a, b in pairwise(lane))


def test_every_lane_and_process_has_one_name(timeline: Timeline) -> None:
    lanes = [(event["pid"], event["tid"]) for event in timeline if event["name"] == "thread_name"]
    assert sorted(lanes) == sorted(slices(timeline))
    sides = [event["args"]["name"].split(" ", 2) for event in timeline if event["name"] == "process_name"]
    assert {int(rank) for _, rank, _ in sides} == {0, 1, 2, 3}
    assert {side for _, _, side in sides} >= {"recorded", "replayed"}


def test_both_sides_show_every_operator(timeline: Timeline, corpus: Path) -> None:
    kinds = ("cpu_op", "runtime", "kernel", "memcpy", "memset", "annotation")
    query = f"SELECT count(*) FROM operators WHERE kind IN {kinds}"
    (many,) = lumos_df.connect(corpus).sql(query).fetchall()[0]
    assert sum(event["ph"] == "X" and "piece" not in event["args"] for event in timeline) == 2 * many


def test_the_clocks_of_the_ranks_are_aligned(timeline: Timeline) -> None:
    recorded = {event["pid"] for event in timeline if event.get("args", {}).get("name", "").endswith("recorded")}
    ends = defaultdict(list)
    for event in timeline:
        if event["pid"] in recorded and event["name"].startswith("ncclDev"):
            ends[event["pid"]].append(ns(event["ts"] + event["dur"]))
    assert min(event["ts"] for event in timeline if event["ph"] == "X") == 0
    assert len(ends) == 4
    for together in zip(*ends.values(), strict=True):
        assert max(together) - min(together) < LATE_NS / 100


def test_arrows_come_in_pairs_each_end_in_a_slice_and_join_the_whole_path(corpus: Path) -> None:
    file = corpus.parent / "arrows.json"
    export(corpus, What.CRITICAL_PATH, file)
    events: Timeline = json.loads(file.read_text())["traceEvents"]
    arrows = defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            arrows[event["id"]].append(event)
    lanes = slices(events)
    for tail, head in arrows.values():
        assert (tail["ph"], head["ph"], head["bp"]) == ("s", "f", "e")
        assert tail["ts"] <= head["ts"]
        for point in (tail, head):
            assert any(begin <= ns(point["ts"]) < end for begin, end in lanes[point["pid"], point["tid"]])
    query = "SELECT count(*) - count(DISTINCT (trace_id, step)) FROM critical_path WHERE dur > 0"
    assert len(arrows) == lumos_df.connect(corpus).sql(query).fetchall()[0][0]


def test_one_trace_chooses_its_job(corpus: Path) -> None:
    trace_id = lumos_df.connect(corpus).sql("SELECT trace_id FROM traces WHERE rank = 2").fetchall()[0][0]
    file = corpus.parent / "job.json"
    assert export(corpus, What.REPLAY, file, trace_id[:8]) == export(corpus, What.REPLAY, file)


@pytest.mark.parametrize("place", ["", "rank0.json/x.json"])
def test_a_place_that_holds_no_file_is_refused_and_nothing_is_left(corpus: Path, place: str) -> None:
    before = sorted(corpus.parent.rglob("*"))
    with pytest.raises((LumosError, OSError)):
        export(corpus, What.REPLAY, corpus.parent / place)
    assert sorted(corpus.parent.rglob("*")) == before
