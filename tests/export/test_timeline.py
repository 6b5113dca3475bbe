"""The timelines, as ui.perfetto.dev reads them."""

import gzip
import json
import shutil
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import lumos_df
from lumos_df.base.errors import LumosError
from lumos_df.export import ExportKind
from lumos_df.export.job_ranks import HIDDEN_KINDS
from lumos_df.export.timeline import export
from lumos_df.graph import run
from lumos_df.graph.switches import scale
from lumos_df.structure.describe import describe
from lumos_df.trace.ingest import ingest
from tests.conftest import SAMPLES, Run
from tests.trace.literal import Event, corpus_of, kernel, launch, stated, x

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


SIDES = {
    ExportKind.PERFETTO: ["recorded"],
    ExportKind.REPLAY: ["recorded", "replayed"],
    ExportKind.CRITICAL_PATH: ["recorded", "replayed", "critical path"],
}


@pytest.fixture(scope="module", params=list(SIDES))
def timeline(corpus: Path, request: pytest.FixtureRequest) -> Timeline:
    file = corpus.parent / f"{request.param}.json.gz"
    written = export(corpus, request.param, file)
    events: Timeline = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert len(events) == written
    return events


def test_a_packed_timeline_says_neither_a_name_nor_when_it_was_written(corpus: Path) -> None:
    file = corpus.parent / "packed.json.gz"
    export(corpus, ExportKind.PERFETTO, file)
    assert file.read_bytes()[:10] == gzip.compress(b"", 4, mtime=0)[:8] + b"\x00\xff"


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


def processes(events: Timeline) -> dict[int, str]:
    return {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}


def test_every_lane_and_process_has_one_name(timeline: Timeline, request: pytest.FixtureRequest) -> None:
    lanes = [(event["pid"], event["tid"]) for event in timeline if event["name"] == "thread_name"]
    assert sorted(lanes) == sorted(slices(timeline))
    sides = SIDES[request.node.callspec.params["timeline"]]
    assert list(processes(timeline).values()) == [f"rank {rank} {side}" for rank in range(4) for side in sides]


def test_a_number_means_one_lane_or_one_process_and_none_is_0(timeline: Timeline) -> None:
    pids = list(processes(timeline))
    tids = [tid for _, tid in slices(timeline)]
    assert len({0, *pids, *tids}) == 1 + len(pids) + len(tids)
    # Of ranks and sides in their order, as the test above has them.
    assert pids == sorted(pids)
    order = {event["pid"]: event["args"]["sort_index"] for event in timeline if event["name"] == "process_sort_index"}
    assert sorted(pids, key=lambda pid: order[pid]) == pids
    assert {(event["pid"], event["tid"]) for event in timeline} <= {*slices(timeline), *((pid, pid) for pid in pids)}


def test_every_side_shows_every_operator(timeline: Timeline, corpus: Path) -> None:
    kinds = ("cpu_op", "runtime", "kernel", "memcpy", "memset", "annotation")
    query = f"SELECT rank, name, count(*) FROM operators WHERE kind IN {kinds} GROUP BY ALL"
    wanted = {(rank, name): many for rank, name, many in lumos_df.connect(corpus).sql(query).fetchall()}
    for process, label in processes(timeline).items():
        if "critical" not in label:
            rank = int(label.split()[1])
            shown = Counter(event["name"] for event in timeline if event["ph"] == "X" and event["pid"] == process)
            assert shown == {name: many for (of, name), many in wanted.items() if of == rank}


def test_names_of_processes_and_lanes_come_in_order(timeline: Timeline) -> None:
    """So that the same job gives the same file."""
    names = [(event["pid"], event["name"], event["tid"]) for event in timeline if event["ph"] == "M"]
    assert names == sorted(names)


def test_an_arrow_leads_from_every_launch_to_what_it_launched(corpus: Path) -> None:
    file = corpus.parent / "launches.json"
    export(corpus, ExportKind.PERFETTO, file)
    events: Timeline = json.loads(file.read_text())["traceEvents"]
    begun = {(e["pid"], e["tid"], e["ts"]): e for e in events if e["ph"] == "X"}
    ends: dict[int, dict[str, Any]] = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            ends[event["id"]][event["ph"]] = begun[event["pid"], event["tid"], event["ts"]]
    rank = {process: int(label.split()[1]) for process, label in processes(events).items()}
    pairs = {(rank[e["s"]["pid"]], e["s"]["args"]["op_id"], e["f"]["args"]["op_id"]) for e in ends.values()}
    query = "SELECT rank, parent_id, op_id FROM operators WHERE kind IN ('kernel', 'memcpy', 'memset')"
    assert pairs == set(lumos_df.connect(corpus).sql(query).fetchall())


def test_counters_say_what_queues_what_runs_what_moves_and_what_is_held(tmp_path: Path) -> None:
    corpus_of(
        tmp_path,
        [
            launch(1, 1, correlation=1),
            launch(2, 1, correlation=2),
            launch(3, 1, correlation=3),
            launch(4, 1, correlation=4),
            launch(5, 1, correlation=5),
            memory(1, device_type=1, change=512, allocated=1512, reserved=2048),
            kernel("gemm", 3, 3, correlation=1),
            memory(6, device_type=0, change=64),
            x("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 10, 4, 7, stream=7, device=0, bytes=6000, correlation=2),
            x("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 12, 4, 9, stream=9, device=0, bytes=3000, correlation=3),
            x("Memset (Device)", "gpu_memset", 16, 0, 7, stream=7, device=0, bytes=64, correlation=4),
            kernel("ncclDevKernel_AllGather", 20, 4, correlation=5, **stated("allgather", 500, 4000)),
            memory(21, device_type=1, change=-512, allocated=1000, reserved=2048),
            # What does not say how much, or of which GPU, is no counter.
            {
                "ph": "i",
                "cat": "cpu_instant_event",
                "name": "[memory]",
                "ts": 0.5,
                "pid": 1,
                "tid": 1,
                "args": {"Device Type": 0},
            },
            {
                "ph": "i",
                "cat": "cpu_instant_event",
                "name": "[memory]",
                "ts": 3,
                "pid": 1,
                "tid": 1,
                "args": {"Device Type": 1},
            },
        ],
    )
    export(tmp_path / "corpus", ExportKind.PERFETTO, tmp_path / "out.json")
    events: Timeline = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    counted = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            ((series, value),) = event["args"].items()
            counted[event["name"], series].append((event["ts"], value))
    assert {event["pid"] for event in events if event["ph"] == "C"} == set(processes(events))
    assert counted == {
        ("GPU", "a kernel runs %"): [(2, 0.7), (1002, 0)],
        ("GPU 0", "Memcpy HtoD GB/s"): [(9, 1.5), (11, 2.25), (13, 0.75), (15, 0)],
        # Of the 8000 bytes that eight ranks hold together each receives seven eighths.
        ("GPU 0", "all_gather busbw GB/s"): [(19, 1.75), (23, 0)],
        ("GPU 0", "allocated bytes"): [(0, 1512), (20, 1000)],
        ("GPU 0", "reserved bytes"): [(0, 2048), (20, 2048)],
        ("host", "allocated bytes"): [(5, 64)],
        ("GPU 0 stream 7", "queue depth"): [(0, 1), (1, 2), (2, 1), (3, 2), (4, 3), (9, 2), (15, 1), (19, 0)],
        ("GPU 0 stream 9", "queue depth"): [(2, 1), (11, 0)],
    }


def test_bytes_beyond_what_fits_are_no_counter(tmp_path: Path) -> None:
    most = (1 << 63) - 1
    events = [
        launch(1, 1, correlation=1),
        kernel("ncclDevKernel_AllGather", 20, 4, correlation=1, **stated("allgather", most, most)),
        memory(1, device_type=1, change=most),
        memory(2, device_type=1, change=most),
    ]
    corpus_of(tmp_path, events)
    export(tmp_path / "corpus", ExportKind.PERFETTO, tmp_path / "out.json")
    written: Timeline = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    counted = {(event["name"], *event["args"].items()) for event in written if event["ph"] == "C"}
    assert ("GPU 0", ("allocated bytes", most)) in counted
    assert not any("busbw" in series for _, (series, _) in counted)


def memory(
    ts: float, device_type: int, change: int, allocated: int | None = None, reserved: int | None = None
) -> Event:
    said = {"Device Type": device_type, "Device Id": 0 if device_type else -1, "Addr": 1, "Bytes": change}
    totals = {"Total Allocated": allocated, "Total Reserved": reserved}
    said |= {name: total for name, total in totals.items() if total is not None}
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "args": said,
    }


def test_busbw_counts_what_moves_after_the_wait(corpus: Path) -> None:
    file = corpus.parent / "busbw.json"
    export(corpus, ExportKind.PERFETTO, file)
    events: Timeline = json.loads(file.read_text())["traceEvents"]
    rank = {process: int(label.split()[1]) for process, label in processes(events).items()}
    moved: dict[tuple[int, str], float] = defaultdict(float)
    since: dict[tuple[int, str], tuple[int, float]] = {}
    for event in events:
        for series, value in event["args"].items() if event["ph"] == "C" else ():
            if "busbw" in series:
                begin, rate = since.get((rank[event["pid"]], series), (0, 0.0))
                moved[rank[event["pid"]], series] += rate * (ns(event["ts"]) - begin)
                since[rank[event["pid"]], series] = ns(event["ts"]), value
    query = "SELECT rank, collective, sum(busbw_gbps * transfer_ns) FROM collective_summary GROUP BY ALL"
    wanted = {
        (rank, f"{name} busbw GB/s"): moved for rank, name, moved in lumos_df.connect(corpus).sql(query).fetchall()
    }
    assert wanted
    assert moved == pytest.approx(wanted, rel=1e-3)


def test_a_slice_says_what_is_known_of_its_operator(corpus: Path) -> None:
    describe(corpus)
    file = corpus.parent / "args.json"
    export(corpus, ExportKind.REPLAY, file)
    events: Timeline = json.loads(file.read_text())["traceEvents"]
    label = processes(events)
    said = {
        (int(label[event["pid"]].split()[1]), label[event["pid"]].split()[2], event["args"]["op_id"]): event["args"]
        for event in events
        if event["ph"] == "X"
    }
    for side, waiting, known in (
        ("recorded", "o.dur - c.transfer_ns", "measured"),
        ("replayed", "c.waiting_replayed_ns", "replayed"),
    ):
        query = f"""
            SELECT o.rank, o.op_id, o.step, coalesce(l.phase, o.phase), coalesce(l.layer, o.layer), o.input_dims,
              o.in_bytes, o.out_bytes, ({waiting}) / 1000
            FROM operators o
            LEFT JOIN layers l USING (trace_id, op_id)
            LEFT JOIN collectives c USING (trace_id, op_id)
        """
        names = ("step", "phase", "layer", "shapes", "in_bytes", "out_bytes", "waiting_us")
        seen: Counter[str] = Counter()
        for rank, op_id, *values in lumos_df.connect(corpus).sql(query).fetchall():
            args = said.get((rank, side, op_id))
            if args is not None:
                assert tuple(args.get(name) for name in names) == tuple(values)
                assert args["known"] == known
                seen.update(args.keys())
        assert {*names, "layer_evidence"} <= seen.keys()


def test_an_estimated_slice_says_how_its_duration_is_known(lumos: Run, corpus: Path, tmp_path: Path) -> None:
    done = lumos("estimate", "--corpus", corpus, "--set", "layers=3", "--into", "changed")
    assert done.returncode == 0, done.stderr
    changed = tmp_path / "changed"
    export(changed, ExportKind.PERFETTO, tmp_path / "out.json")
    events: Timeline = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    known = Counter(event["args"]["known"] for event in events if event["ph"] == "X")
    query = f"""
        SELECT provenance, count(*) FROM operators JOIN operator_sources USING (trace_id, op_id)
        WHERE kind NOT IN {HIDDEN_KINDS}
        GROUP BY ALL
    """
    assert known == dict(lumos_df.connect(changed).sql(query).fetchall())
    assert len(known) > 1


def test_a_changed_job_is_shown_with_the_recorded_one(corpus: Path) -> None:
    file = corpus.parent / "changed.json"
    export(corpus, ExportKind.PERFETTO, file, changes=[scale("family=gemm:0.5")])
    events: Timeline = json.loads(file.read_text())["traceEvents"]
    sides = processes(events)
    assert list(sides.values()) == [f"rank {rank} {side}" for rank in range(4) for side in ("recorded", "changed")]
    lasted: dict[str, Counter[str]] = {"recorded": Counter(), "changed": Counter()}
    for event in events:
        if event["ph"] == "X" and event["cat"] == "kernel":
            what = "gemm" if "gemm" in event["name"] else "nccl" if "nccl" in event["name"] else "rest"
            lasted[sides[event["pid"]].split()[-1]][what] += ns(event["dur"])
    many = sum(1 for event in events if "gemm" in event["name"])
    assert abs(lasted["changed"]["gemm"] - lasted["recorded"]["gemm"] / 2) <= many
    assert lasted["changed"]["rest"] == lasted["recorded"]["rest"] > 0


def test_a_change_that_means_nothing_is_refused(corpus: Path) -> None:
    with pytest.raises(LumosError, match="no operator is meant by 'name=nobody'"):
        export(corpus, ExportKind.PERFETTO, corpus.parent / "nothing.json", changes=[scale("name=nobody:0.5")])
    assert not (corpus.parent / "nothing.json").exists()


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
    export(corpus, ExportKind.CRITICAL_PATH, file)
    events: Timeline = json.loads(file.read_text())["traceEvents"]
    arrows = defaultdict(list)
    for event in events:
        if event["ph"] in "sf" and event["cat"] == "critical path":
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
    assert export(corpus, ExportKind.REPLAY, file, trace_id[:8]) == export(corpus, ExportKind.REPLAY, file)


@pytest.mark.parametrize("place", ["", "rank0.json/x.json"])
def test_a_place_that_holds_no_file_is_refused_and_nothing_is_left(corpus: Path, place: str) -> None:
    before = sorted(corpus.parent.rglob("*"))
    with pytest.raises((LumosError, OSError)):
        export(corpus, ExportKind.REPLAY, corpus.parent / place)
    assert sorted(corpus.parent.rglob("*")) == before


@pytest.mark.parametrize("what", ["perfetto", "chakra"])
def test_a_table_that_does_not_read_is_one_line(corpus: Path, tmp_path: Path, lumos: Run, what: str) -> None:
    damaged = shutil.copytree(corpus, tmp_path / "corpus")
    for file in damaged.glob("trace_id=[0-9a-f]*/collectives.parquet"):
        file.write_bytes(b"not parquet")
    done = lumos("export", "--what", what, "--corpus", damaged, "--output", tmp_path / "made.json")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("lumos-df: ")
    assert "collectives.parquet" in done.stderr
