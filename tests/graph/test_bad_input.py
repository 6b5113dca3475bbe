"""Recordings in which something is missing or odd: told in the result, the rest computed; no hang, no circle."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lumos_df
from lumos_df.base.errors import CorpusError
from lumos_df.cli.app import app
from lumos_df.graph import run as graph
from lumos_df.trace.ingest import ingest
from tests.conftest import SAMPLES
from tests.graph.circles import goes_round
from tests.rows import GPU, Event, end, read, start

Replay = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def sample() -> list[Event]:
    """Four ranks that trained for steps 2, 3 and 4."""
    return [read(SAMPLES / "gpu_generated" / f"rank{rank}.json.gz") for rank in range(4)]


@pytest.fixture
def replay(tmp_path: Path) -> Replay:
    """Write traces, replay them with their critical paths, check what holds for any input, return its rows."""

    def run(traces: Sequence[Event]) -> list[dict[str, Any]]:
        files, corpus = tmp_path / "job", tmp_path / "corpus"
        files.mkdir()
        for place, trace in enumerate(traces):
            (files / f"{place}.json").write_text(json.dumps(trace))
        assert not ingest([files], corpus, workers=1).failed
        graph.replay(corpus, path=True)
        stored = lumos_df.connect(corpus)
        rows: list[dict[str, Any]] = stored.sql("SELECT * FROM replay_error").pl().to_dicts()
        steps = stored.sql("SELECT trace_id, step, dur FROM step").fetchall()
        assert set(steps) <= {(row["trace_id"], row["step"], row["recorded_ns"]) for row in rows}
        paths = stored.sql("SELECT trace_id, step, sum(dur)::BIGINT FROM critical_path GROUP BY ALL").fetchall()
        assert set(paths) == {(row["trace_id"], row["step"], row["recorded_ns"]) for row in rows}
        assert not goes_round(stored.sql("SELECT (src_trace_id, src), (trace_id, dst) FROM edges").fetchall())
        return rows

    return run


def again(trace: Event) -> Event:
    """Return a copy of all of a trace; `copy.deepcopy` takes five times as long."""
    copied: Event = json.loads(json.dumps(trace))
    return copied


def changed(trace: Event, keep: Callable[[Event], bool]) -> Event:
    """Return a trace with those of its events that have a time and are to be kept."""
    return trace | {"traceEvents": [event for event in trace["traceEvents"] if event["ph"] == "M" or keep(event)]}


def mark(trace: Event, number: int) -> Event:
    found: Event = next(
        event
        for event in trace["traceEvents"]
        if event["name"] == f"ProfilerStep#{number}" and event["cat"] == "user_annotation"
    )
    return found


def middle(trace: Event, number: int) -> int:
    step = mark(trace, number)
    return (start(step) + end(step)) // 2


def is_mark(event: Event) -> bool:
    return str(event["name"]).startswith("ProfilerStep#")


def warned(rows: list[dict[str, Any]], step: int | None, text: str) -> bool:
    return any(text in warning for row in rows if row["step"] == step for warning in row["warnings"])


def close(rows: list[dict[str, Any]]) -> bool:
    return all(abs(row["error_pct"]) < 3 for row in rows)


def test_a_whole_job_has_nothing_to_warn_of(replay: Replay, sample: list[Event]) -> None:
    rows = replay(sample)
    assert [row["warnings"] for row in rows] == [[]] * 12


def test_a_first_step_without_its_beginning(replay: Replay, sample: list[Event]) -> None:
    step = mark(sample[0], 2)
    late = start(step) + 3 * (end(step) - start(step)) // 4
    rows = replay([changed(sample[0], lambda event: start(event) >= late or is_mark(event))])
    assert warned(rows, 2, "the step is cut off")
    assert not warned(rows, 3, "cut off")
    assert [row["step"] for row in rows] == [2, 3, 4]


def test_gpu_work_whose_launch_was_before_the_recording(replay: Replay, sample: list[Event]) -> None:
    late = middle(sample[0], 2)
    rows = replay([changed(sample[0], lambda event: start(event) >= late or is_mark(event) or event.get("cat") in GPU)])
    assert warned(rows, 2, "issued before the recording began")


def test_a_last_step_without_its_end(replay: Replay, sample: list[Event]) -> None:
    step = mark(sample[0], 4)
    early = start(step) + (end(step) - start(step)) // 4
    rows = replay([changed(sample[0], lambda event: start(event) < early)])
    assert warned(rows, 4, "the step is cut off")
    assert not warned(rows, 3, "cut off")


def test_launches_whose_kernels_were_not_recorded_any_more(replay: Replay, sample: list[Event]) -> None:
    early = middle(sample[0], 4)
    rows = replay([changed(sample[0], lambda event: start(event) < early or event.get("cat") not in GPU)])
    assert warned(rows, 4, "launch calls at the end have no GPU operator")
    assert not warned(rows, 3, "launch calls")


@pytest.mark.parametrize(("number", "kept", "says"), [(2, 3, "before this first step"), (4, 3, "after this last step")])
def test_a_step_whose_mark_was_cut_off(replay: Replay, sample: list[Event], number: int, kept: int, says: str) -> None:
    rows = replay([changed(sample[0], lambda event: event["name"] != f"ProfilerStep#{number}")])
    assert warned(rows, kept, says)
    assert close(rows)


def test_a_step_without_length(replay: Replay, sample: list[Event]) -> None:
    trace = again(sample[0])
    for event in trace["traceEvents"]:
        if event["name"] == "ProfilerStep#3":
            event["dur"] = 0
    rows = replay([trace])
    (empty,) = [row for row in rows if row["step"] == 3]
    assert (empty["recorded_ns"], empty["error_pct"]) == (0, None)
    assert warned(rows, 3, "the step has no length")
    assert close([row for row in rows if row["step"] != 3])


def test_a_trace_without_any_launch(replay: Replay, sample: list[Event]) -> None:
    rows = replay([changed(sample[0], lambda event: event.get("cat") in GPU)])
    assert [row["step"] for row in rows] == [None]
    assert warned(rows, None, "no launch call in the trace")
    assert close(rows)


def test_a_trace_without_a_gpu(replay: Replay, sample: list[Event]) -> None:
    rows = replay([changed(sample[0], lambda event: event.get("cat") not in GPU)])
    assert warned(rows, 3, "no GPU operator in the trace")
    assert close(rows)


def test_calls_that_wait_for_streams_without_any_gpu_operator(replay: Replay, sample: list[Event]) -> None:
    trace = changed(sample[0], lambda event: event.get("cat") not in GPU)
    begin, lane = start(mark(trace, 3)), {key: mark(trace, 3)[key] for key in ("pid", "tid")}
    called = (1, "cudaEventRecord"), (3, "cudaStreamWaitEvent"), (5, "cudaStreamWaitEvent"), (7, "cudaFree")
    trace["traceEvents"] += [
        lane
        | {"ph": "X", "name": call, "cat": "cuda_runtime", "ts": (begin + 1000 * at) / 1000, "dur": 1}
        | {"args": {"correlation": 900_000 + at}}
        for at, call in called
    ]
    waits = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 900_001, "correlation": 900_003, "stream": 20}
    trace["traceEvents"] += [
        {"ph": "X", "name": name, "cat": "cuda_sync", "pid": 0, "tid": args["stream"], "ts": (begin + 3000) / 1000}
        | {"dur": 1, "args": {"device": 0, **args}}
        for name, args in (("Stream Wait Event", waits), ("Context Sync", {"stream": 7, "correlation": 900_005}))
    ]
    rows = replay([trace])
    assert warned(rows, 3, "no GPU operator in the trace")
    assert close(rows)


def test_a_trace_of_a_single_operator(replay: Replay, sample: list[Event]) -> None:
    alone = next(event for event in sample[0]["traceEvents"] if event.get("cat") == "cpu_op")
    (row,) = replay([changed(sample[0], lambda event: event is alone)])
    assert row["replayed_ns"] == row["recorded_ns"]


def test_a_rank_that_is_missing(replay: Replay, sample: list[Event]) -> None:
    rows = replay([sample[0], sample[2], sample[3]])
    assert {row["rank"] for row in rows} == {0, 2, 3}
    assert all(warned([row], row["step"], "replayed without 1 of 4 ranks (1)") for row in rows)
    assert close(rows)


def test_several_traces_of_one_rank_say_why_the_others_are_left_out(replay: Replay, sample: list[Event]) -> None:
    rows = replay([*sample[:2], changed(sample[1], lambda event: start(event) < middle(sample[1], 4))])
    assert len(rows) == 9
    assert all(warned([row], row["step"], "several traces of rank 1 of this job") for row in rows)
    assert not any(warned([row], row["step"], "of 4 ranks") for row in rows)


def test_collectives_that_are_missing_on_one_rank(replay: Replay, sample: list[Event]) -> None:
    late = middle(sample[3], 4)
    ranks = [*sample[:3], changed(sample[3], lambda event: event["name"][:4] != "nccl" or start(event) < late)]
    rows = replay(ranks)
    assert {row["rank"] for row in rows} == {0, 1, 2, 3}
    assert close([row for row in rows if row["step"] < 4])


def test_ranks_and_streams_of_any_number(replay: Replay, sample: list[Event]) -> None:
    """Routes are read from names, and streams are numbered with their devices."""
    ranks = [renamed(trace, {"aten::layer_norm": f"nccl:send {10**20}->{1 << 30}"}) for trace in sample[:2]]
    for trace in ranks:
        for event in trace["traceEvents"]:
            if event.get("args", {}).get("stream") == 7:
                event["args"]["stream"] += 1 << 44
    assert close(replay(ranks))


def test_collectives_of_different_sizes(replay: Replay, sample: list[Event]) -> None:
    other = again(sample[1])
    for event in other["traceEvents"]:
        if "In msg nelems" in event.get("args", {}):
            event["args"]["In msg nelems"] += 8
    rows = replay([sample[0], other])
    assert warned(rows, 3, "rank 0: 9 collectives that no other rank has: as long as recorded")
    assert warned(rows, 3, "rank 1: 9 collectives that no other rank has: as long as recorded")
    assert close(rows)


def test_steps_that_are_numbered_otherwise_than_those_of_other_ranks_are_told(
    replay: Replay, sample: list[Event]
) -> None:
    counted = renamed(sample[1], {f"ProfilerStep#{number}": f"ProfilerStep#{number - 1}" for number in (2, 3, 4)})
    rows = replay([sample[0], counted])
    told = "rank 1: its steps have other numbers than rank 0's, most by 1: what is said of one step is of several"
    assert [row["rank"] for row in rows if warned([row], row["step"], told)] == [1, 1, 1]
    assert close(rows)


def test_collectives_numbered_in_opposite_orders_make_no_circle(replay: Replay, sample: list[Event]) -> None:
    rows = replay([numbered(sample[0], 1), numbered(sample[1], -1)])
    assert {row["step"] for row in rows} == {2, 3, 4}
    assert warned(rows, 3, "collectives do not fit the order of the others; they last as long as recorded")


def numbered(trace: Event, by: int) -> Event:
    """Return a trace whose collectives are alike but for their sequence numbers, which grow or fall."""
    trace = again(trace)
    found = [event for event in trace["traceEvents"] if event["name"].startswith("ncclDev")]
    for place, event in enumerate(sorted(found, key=start)):
        event["args"] |= {
            "In msg nelems": 1 << 20,
            "Out msg nelems": 1 << 20,
            "Seq": 100 + by * (place - len(found) // 2),
        }
    return trace


def renamed(trace: Event, names: dict[str, str]) -> Event:
    """Return a trace with other names for some of its events."""
    trace = again(trace)
    for event in trace["traceEvents"]:
        event["name"] = names.get(event["name"], event["name"])
    return trace


def test_two_steps_of_one_number(replay: Replay, sample: list[Event]) -> None:
    rows = replay([renamed(sample[0], {"ProfilerStep#4": "ProfilerStep#2"})])
    assert [row["step"] for row in rows] == [2, 3]
    assert warned(rows, 2, "2 marks bear this step's number")
    assert not warned(rows, 3, "marks bear")
    assert close(rows)


@pytest.mark.parametrize("odd", ["\N{SUPERSCRIPT TWO}", "99999999999", "", "-3", " 3", "x"])
def test_a_mark_whose_number_is_none(replay: Replay, sample: list[Event], odd: str) -> None:
    rows = replay([renamed(sample[0], {"ProfilerStep#3": f"ProfilerStep#{odd}"})])
    assert [row["step"] for row in rows] == [2, 4]
    assert close(rows)


@pytest.mark.parametrize(
    ("category", "said"), [("", ""), ("Trace", ", only 1 row of the operating system and the profiler")]
)
def test_a_trace_in_which_nothing_ran_is_not_replayed(
    tmp_path: Path, replay: Replay, sample: list[Event], category: str, said: str
) -> None:
    span = [{"ph": "X", "cat": category, "name": "PyTorch Profiler (0)", "ts": 1, "dur": 9, "pid": "Spans", "tid": "s"}]
    trace = changed(sample[0], lambda _: False)
    trace["traceEvents"] += span if category else []
    with pytest.raises(
        CorpusError, match=f"nothing to replay: no operator, call or GPU row was recorded{said}; record"
    ):
        replay([trace])
    for command in ("critical-path", "advise", "describe"):
        result = CliRunner().invoke(app, [command, "--corpus", str(tmp_path / "corpus")])
        assert (result.exit_code, result.stdout) == (1, "")
        assert "nothing to replay" in str(result.exception)
    result = CliRunner().invoke(app, ["report", "--corpus", str(tmp_path / "corpus")])
    assert result.stdout.startswith(
        "nothing can be said of steps and GPUs: no operator, call or GPU row was recorded\n"
    )
    assert "what to change" not in result.stdout
    page = ["report", "--html", str(tmp_path / "page.html"), "--corpus", str(tmp_path / "corpus")]
    assert CliRunner().invoke(app, page).exit_code == 0


def test_a_rank_without_any_operator_leaves_the_others_alone(replay: Replay, sample: list[Event]) -> None:
    rows = replay([sample[0], changed(sample[1], lambda _: False), sample[2]])
    assert close([row for row in rows if row["rank"] != 1])
    assert [row["step"] for row in rows if row["rank"] == 1] == [None]


def test_an_instant_in_which_everything_happens(tmp_path: Path, replay: Replay, sample: list[Event]) -> None:
    trace = again(sample[0])
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            event["ts"], event["dur"] = 1000.0, 0
    assert all(row["recorded_ns"] == 0 for row in replay([trace]))
    for command in ("replay", "critical-path", "advise"):
        shown = CliRunner().invoke(app, [command, "--corpus", str(tmp_path / "corpus")]).stdout
        assert "nothing to replay: no step has a length" in shown
        assert "0 ns" not in shown
        assert "next:" not in shown


def odd(sample: list[Event], name: str, change: Callable[[Event], list[Event]]) -> list[Event]:
    """Return the trace of rank 0 with its first call of that name in the third step changed."""
    trace, seen = again(sample[0]), False
    events: list[Event] = []
    for event in trace["traceEvents"]:
        found = not seen and event.get("name") == name and start(event) > start(mark(trace, 3))
        events += change(event) if found else [event]
        seen |= found
    return [trace | {"traceEvents": events}]


def correlated(event: Event, correlation: int) -> Event:
    return event | {"args": event["args"] | {"correlation": correlation}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda call: [correlated(call, -5)], "1 calls and GPU operators have a correlation id below 1"),
        (lambda call: [correlated(call, 0)], "1 calls and GPU operators have a correlation id below 1"),
        (lambda call: [call, call | {"ts": call["ts"] + call["dur"] + 1, "dur": 0}], "correlation id of another one"),
        (lambda call: [correlated(call, 1 << 40)], "1 GPU operator without a launch call in the trace"),
        (
            lambda call: [call, correlated(call, 1 << 40) | {"name": "cudaGraphLaunch", "dur": 0}],
            "1 launches of CUDA graphs have no GPU operator",
        ),
    ],
)
def test_a_call_that_does_not_fit_the_work_of_the_gpu_costs_a_warning(
    replay: Replay, sample: list[Event], change: Callable[[Event], list[Event]], says: str
) -> None:
    rows = replay(odd(sample, "cudaLaunchKernel", change))
    assert all(sum(says in text for text in row["warnings"]) == 1 for row in rows)
    assert close(rows)


def test_a_call_that_two_interfaces_recorded_is_one(replay: Replay, sample: list[Event]) -> None:
    def again_inside(call: Event) -> list[Event]:
        return [call, call | {"ts": call["ts"] + 0.1, "dur": call["dur"] - 0.2, "name": "cuLaunchKernel"}]

    rows = replay(odd(sample, "cudaLaunchKernel", again_inside))
    assert not any("correlation id of another one" in text for row in rows for text in row["warnings"])
    assert close(rows)


def test_one_of_several_ranks_that_was_cut_off(replay: Replay, sample: list[Event]) -> None:
    cut = middle(sample[1], 3)
    rows = replay([sample[0], changed(sample[1], lambda event: start(event) < cut), *sample[2:]])
    of_rank = [row for row in rows if row["rank"] == 1]
    assert warned(of_rank, 3, "the step is cut off") or warned(of_rank, 3, "launch calls at the end")
    assert {row["rank"] for row in rows} == {0, 1, 2, 3}
    assert close([row for row in rows if row["rank"] != 1])
