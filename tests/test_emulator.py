"""The emulator's files, read with nothing but the json module, hold what a real job would and what its truth says."""

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.emulator import Job, Outcome, Profiler, document, simulate, write
from tests.rows import GPU, HOST, Event, File, end, lane, ns, read, start

ROOT = Path(__file__).parent.parent
JOB = Job(ranks=3, layers=2, steps=2, sleep_rank=1, sleep_ns=1_500_000)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return simulate(JOB)


@pytest.fixture(scope="module")
def files(outcome: Outcome, tmp_path_factory: pytest.TempPathFactory) -> list[File]:
    paths = write(outcome, Profiler(), tmp_path_factory.mktemp("job"))
    traces = [read(path) for path in paths]
    return [File(trace["distributedInfo"]["rank"], trace["traceEvents"]) for trace in traces]


def events(outcome: Outcome, profiler: Profiler, rank: int = 0) -> list[Event]:
    found: list[Event] = document(outcome.recordings[rank], outcome.job, profiler)["traceEvents"]
    return found


def test_one_file_a_rank_says_who_it_is_and_that_it_is_generated(outcome: Outcome, tmp_path: Path) -> None:
    paths = write(outcome, Profiler(), tmp_path)
    assert [path.name for path in paths] == ["rank0.json.gz", "rank1.json.gz", "rank2.json.gz"]
    for rank, trace in enumerate(map(read, paths)):
        assert "not recorded" in trace["generated"]
        assert (trace["distributedInfo"]["rank"], trace["distributedInfo"]["world_size"]) == (rank, 3)
        assert trace["distributedInfo"]["pg_config"][0]["ranks"] == [0, 1, 2]
        assert len(trace["deviceProperties"]) == 3


def test_rows_of_one_stream_never_overlap(files: list[File]) -> None:
    for file in files:
        streams = defaultdict(list)
        for row in file.rows(*GPU):
            streams[lane(row)].append(row)
        assert sorted(streams) == [(file.rank, 7), (file.rank, 20)]
        for rows in streams.values():
            assert all(end(before) < start(after) for before, after in pairwise(rows))


def test_rows_of_one_thread_nest(files: list[File]) -> None:
    for file in files:
        open_rows: dict[tuple[int, int], list[Event]] = defaultdict(list)
        for row in file.rows(*HOST):
            around = open_rows[lane(row)]
            while around and end(around[-1]) <= start(row):
                around.pop()
            if around:
                assert end(row) <= end(around[-1]), (row, around[-1])
                assert (start(row), end(row)) != (start(around[-1]), end(around[-1])), "which is inside is unclear"
            around.append(row)
        assert len(open_rows) == 2, "a main thread and an autograd thread"


def test_every_gpu_row_starts_after_the_one_call_that_launched_it(files: list[File]) -> None:
    for file in files:
        calls = {row["args"]["correlation"]: row for row in file.rows("cuda_runtime")}
        operators = {row["args"]["External id"]: row for row in file.rows("cpu_op")}
        assert len(calls) == len(file.rows("cuda_runtime"))
        correlations = [row["args"]["correlation"] for row in file.rows(*GPU)]
        assert len(set(correlations)) == len(correlations)
        for row in file.rows(*GPU):
            call = calls[row["args"]["correlation"]]
            assert start(row) - start(call) >= 5_000
            assert row["args"]["External id"] == call["args"]["External id"]
            issuer = operators[row["args"]["External id"]]
            assert start(issuer) <= start(call)
            assert end(call) <= end(issuer)


def test_launch_flows_tie_each_gpu_row_to_its_call(files: list[File]) -> None:
    for file in files:
        ends = {(event["ph"], event["id"]): event for event in file.events if event.get("cat") == "ac2g"}
        rows = file.rows(*GPU)
        assert len(ends) == 2 * len(rows)
        calls = {row["args"]["correlation"]: row for row in file.rows("cuda_runtime")}
        for row in rows:
            number = row["args"]["correlation"]
            for arrow, place in ((ends["s", number], calls[number]), (ends["f", number], row)):
                assert (start(arrow), lane(arrow)) == (start(place), lane(place))


def test_backward_flows_lead_from_the_forward_operator_to_its_node(files: list[File]) -> None:
    for file in files:
        operators = {(lane(row), start(row)): row for row in file.rows("cpu_op")}
        flows: dict[int, dict[str, Event]] = defaultdict(dict)
        for event in file.events:
            if event.get("cat") == "fwdbwd":
                flows[event["id"]][event["ph"]] = operators[lane(event), start(event)]
        for number, ends in flows.items():
            forward, backward = ends["s"], ends["f"]
            assert forward["args"]["Sequence number"] == backward["args"]["Sequence number"] == number
            assert end(forward) < start(backward)
            assert lane(forward) != lane(backward)
            assert backward["name"].endswith("Backward0")
        nodes = [row for row in file.rows("cpu_op") if re.fullmatch(r"\w+Backward0", row["name"])]
        assert len(flows) == len(nodes) == JOB.steps * (10 * JOB.layers + 5)


def test_collectives_start_when_ready_and_end_together_when_the_last_rank_has_come(
    outcome: Outcome, files: list[File]
) -> None:
    kernels = [file.all_reduces() for file in files]
    assert len({len(rows) for rows in kernels}) == 1
    for truth, members in zip(outcome.truth.collectives, zip(*kernels, strict=True), strict=True):
        assert len({end(member) for member in members}) == 1
        last = max(members, key=start)
        assert members.index(last) == truth.last_rank
        transfer = 20_000 + 2 * 2 / 3 * truth.payload_bytes / 220
        assert ns(last["dur"]) == pytest.approx(transfer, abs=1)
        assert [ns(member["dur"]) - ns(last["dur"]) for member in members] == [
            truth.waited_ns(rank) for rank in range(JOB.ranks)
        ]


def test_an_all_reduce_waits_for_the_gradients_that_it_sums(files: list[File]) -> None:
    for file in files:
        calls = {row["args"]["correlation"]: row for row in file.rows("cuda_runtime")}
        compute = [row for row in file.rows(*GPU) if row["tid"] == 7]
        for reduce in file.all_reduces():
            launched = start(calls[reduce["args"]["correlation"]])
            before = [row for row in compute if start(calls[row["args"]["correlation"]]) < launched]
            assert max(map(end, before)) <= start(reduce)


def test_the_optimizer_waits_for_every_all_reduce(files: list[File]) -> None:
    for file in files:
        updates = [row for row in file.rows("kernel") if "FusedAdam" in row["name"]]
        assert len(updates) == JOB.steps
        buckets = len(file.all_reduces()) // JOB.steps
        assert buckets > 1
        for step, update in enumerate(updates):
            own = file.all_reduces()[step * buckets : (step + 1) * buckets]
            assert max(map(end, own)) < start(update)


def test_synchronising_calls_end_after_what_they_wait_for(files: list[File]) -> None:
    for file in files:
        losses = [row for row in file.rows("gpu_memcpy") if "DtoH" in row["name"]]
        for call, loss in zip(file.named("cudaStreamSynchronize"), losses, strict=True):
            assert start(call) < end(loss) < end(call)
        (last,) = file.named("cudaDeviceSynchronize")
        assert max(map(end, file.rows(*GPU))) < end(last)


def test_all_buckets_of_a_step_add_up_to_the_parameters(files: list[File]) -> None:
    hidden, vocabulary = JOB.hidden, JOB.vocabulary
    layer = 12 * hidden**2 + 13 * hidden
    parameters = vocabulary * hidden + JOB.layers * layer + 2 * hidden + vocabulary * hidden + vocabulary
    for file in files:
        sizes = [row["args"]["In msg nelems"] for row in file.all_reduces()]
        assert sum(sizes) == JOB.steps * parameters
        (described,) = {row["args"]["Process Group Ranks"] for row in file.all_reduces()}
        assert json.loads(described) == [0, 1, 2]


def test_only_the_straggler_sleeps_and_the_others_wait_for_it(outcome: Outcome, files: list[File]) -> None:
    for file in files:
        naps = file.named("<built-in function sleep>")
        assert [ns(nap["dur"]) for nap in naps] == ([JOB.sleep_ns] * JOB.steps if file.rank == JOB.sleep_rank else [])
        for step in file.steps():
            first = min(start(row) for row in file.rows("cpu_op") if start(row) > start(step))
            assert (first - start(step) > JOB.sleep_ns) == (file.rank == JOB.sleep_rank)
    assert {collective.last_rank for collective in outcome.truth.collectives} == {JOB.sleep_rank}
    even = simulate(Job(ranks=3, layers=2, steps=2))
    for delayed, undisturbed in zip(outcome.truth.steps, even.truth.steps, strict=True):
        assert delayed.step_ns == pytest.approx(undisturbed.step_ns + JOB.sleep_ns, rel=0.01)


def busy_sets(rows: list[Event], begin: int, until: int) -> Counter[frozenset[str]]:
    """Return how long each set of activities runs within the window, by looking at every stretch between two edges."""
    activity = {
        id(row): "memory"
        if row["cat"] != "kernel"
        else "communication"
        if row["name"].startswith("nccl")
        else "compute"
        for row in rows
    }
    edges = sorted({begin, until} | {edge for row in rows for edge in (start(row), end(row)) if begin < edge < until})
    spent: Counter[frozenset[str]] = Counter()
    for left, right in pairwise(edges):
        running = frozenset(activity[id(row)] for row in rows if start(row) <= left and right <= end(row))
        spent[running] += right - left
    return spent


def test_the_truth_about_steps_is_what_the_rows_say(outcome: Outcome, files: list[File]) -> None:
    truths = {(truth.rank, truth.step): truth for truth in outcome.truth.steps}
    assert sorted(truths) == [(rank, step) for rank in range(3) for step in (2, 3)]
    for file in files:
        for row in file.steps():
            truth = truths[file.rank, int(row["name"].removeprefix("ProfilerStep#"))]
            spent = busy_sets(file.rows(*GPU), start(row), end(row))
            assert truth.step_ns == ns(row["dur"])
            assert truth.overlapped_ns == spent[frozenset({"compute", "communication"})]
            assert truth.exposed_compute_ns == spent[frozenset({"compute"})]
            alone, with_copies = frozenset({"communication"}), frozenset({"communication", "memory"})
            assert truth.exposed_communication_ns == spent[alone] + spent[with_copies]
            assert truth.memory_ns == spent[frozenset({"memory"})]
            assert truth.idle_ns == spent[frozenset()]
            assert truth.step_ns == spent.total()


def test_the_truth_about_gpus_is_what_the_rows_say(outcome: Outcome, files: list[File]) -> None:
    for truth, file in zip(outcome.truth.gpus, files, strict=True):
        rows = file.rows(*GPU)
        begin, until = min(map(start, rows)), max(map(end, rows))
        spent = busy_sets(rows, begin, until)

        def total(*activities: str, spent: Counter[frozenset[str]] = spent) -> int:
            return sum(duration for running, duration in spent.items() if running.issuperset(activities))

        assert truth.gpu_rows == len(rows)
        assert truth.span_ns == until - begin
        assert truth.idle_ns == spent[frozenset()]
        assert truth.busy_ns + truth.idle_ns == truth.span_ns
        assert truth.compute_ns == total("compute")
        assert truth.communication_ns == total("communication")
        assert truth.memory_ns == total("memory")
        assert truth.overlap_ns == total("compute", "communication")
        assert truth.exposed_communication_ns == truth.communication_ns - truth.overlap_ns


def test_memory_events_keep_their_own_account(files: list[File]) -> None:
    for file in files:
        changes = [event for event in file.events if event["name"] == "[memory]"]
        assert [start(event) for event in changes] == sorted(map(start, changes))
        allocated = changes[0]["args"]["Total Allocated"] - changes[0]["args"]["Bytes"]
        resident, blocks = allocated, {}
        for args in (event["args"] for event in changes):
            allocated += args["Bytes"]
            assert allocated == args["Total Allocated"] <= args["Total Reserved"]
            if args["Bytes"] > 0:
                assert args["Addr"] not in blocks
                blocks[args["Addr"]] = args["Bytes"]
            else:
                assert blocks.pop(args["Addr"]) == -args["Bytes"]
        assert (allocated, blocks) == (resident, {})


def test_modules_nest_as_the_model_does(files: list[File]) -> None:
    rows = {row["args"]["Python id"]: row for row in files[0].rows("python_function")}
    paths = set()
    for row in rows.values():
        path, parent = [row["name"]], row["args"]["Python parent id"]
        while parent is not None:
            path.append(rows[parent]["name"])
            parent = rows[parent]["args"]["Python parent id"]
        paths.add("/".join(name.removeprefix("nn.Module: ") for name in reversed(path) if name.startswith("nn.")))
    assert "DistributedDataParallel_0/GPT_0/Block_1/MLP_1/GELU_1" in paths
    assert "DistributedDataParallel_0/GPT_0/LayerNorm_4" in paths


@pytest.mark.parametrize(
    ("without", "lost"),
    [
        (Profiler(memory=False), lambda event: event["name"] == "[memory]"),
        (Profiler(stacks=False), lambda event: event.get("cat") == "python_function"),
    ],
)
def test_what_the_profiler_leaves_out_changes_nothing_else(
    outcome: Outcome, without: Profiler, lost: Callable[[Event], bool]
) -> None:
    def bare(event: Event) -> Event:
        return event | {"args": {key: value for key, value in event.get("args", {}).items() if key != "Ev Idx"}}

    full = events(outcome, Profiler())
    kept = [event for event in full if not lost(event)]
    assert len(kept) < len(full)
    assert list(map(bare, events(outcome, without))) == list(map(bare, kept))


def test_without_collective_args_only_those_are_missing(outcome: Outcome) -> None:
    keys = {
        "Collective name",
        "In msg nelems",
        "Out msg nelems",
        "Group size",
        "dtype",
        "In split size",
        "Out split size",
        "Process Group Name",
        "Process Group Description",
        "Process Group Ranks",
        "Global rank start",
        "Global rank stride",
        "Rank",
        "Seq",
    }
    for full, without in zip(
        events(outcome, Profiler()), events(outcome, Profiler(collective_args=False)), strict=True
    ):
        missing = full.get("args", {}).keys() - without.get("args", {}).keys()
        carries = full["name"] == "record_param_comms" or (
            full["name"].startswith("nccl") and full.get("cat") == "kernel"
        )
        assert missing <= keys
        assert bool(missing) == carries


def test_a_clock_that_is_off_shifts_every_time_of_its_rank_alone(outcome: Outcome) -> None:
    off = Profiler(clock_offsets_ns=(0, -3_000_001))
    for rank, offset in enumerate((0, -3_000_001, 0)):
        shifts = {
            start(moved) - start(true)
            for true, moved in zip(events(outcome, Profiler(), rank), events(outcome, off, rank), strict=True)
        }
        assert shifts == {offset}


def test_no_time_is_negative(outcome: Outcome) -> None:
    for event in events(outcome, Profiler(clock_offsets_ns=(-10_000_000,))):
        assert event["ts"] >= 0
        assert event.get("dur", 0) >= 0


def test_the_seed_decides_everything() -> None:
    small = Job(ranks=2, layers=1, steps=1)
    assert simulate(small).truth == simulate(small).truth
    assert simulate(small).truth != simulate(Job(ranks=2, layers=1, steps=1, seed=1)).truth


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 0}, "at least 1"),
        ({"steps": 0}, "at least 1"),
        ({"ranks": 2, "sleep_rank": 2}, "not a rank: 0 to 1"),
        ({"sleep_rank": 0, "sleep_ns": -1}, "negative"),
    ],
)
def test_a_job_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Job(**options)


def test_the_command_writes_what_it_is_asked_for_without_lumos_df(tmp_path: Path) -> None:
    code = (
        "import runpy, sys; runpy.run_module('tests.emulator', run_name='__main__');"
        "assert not any(name.startswith('lumos_df') for name in sys.modules)"
    )
    options = ["--ranks", "2", "--layers", "1", "--steps", "1", "--no-memory", "--output", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", code, *options], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(tmp_path / "rank0.json.gz"), str(tmp_path / "rank1.json.gz")]
    traces = [read(tmp_path / f"rank{rank}.json.gz") for rank in (0, 1)]
    assert [trace["distributedInfo"]["world_size"] for trace in traces] == [2, 2]
    assert "[memory]" not in {event["name"] for trace in traces for event in trace["traceEvents"]}
