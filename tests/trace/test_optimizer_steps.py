"""Steps of a job under a plain `profile()`, told by the calls of its optimizer."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.trace.ingest import ingest
from tests.real import ABSENT, REAL
from tests.trace.literal import Event, annotation, corpus_of, kernel, launch, op, rows

GRADIENT = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
STEP, CLEAR = "Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad"


def work(at: float, gradients: int = 2) -> list[Event]:
    """Return a pass forward and backward in [at + 10, at + 80], with the gradients of so many parameters."""
    return [op("aten::mm", at + 10, 30), *(op(GRADIENT, at + 50 + 5 * n, 4, tid=2) for n in range(gradients))]


def update(at: float, name: str = STEP) -> list[Event]:
    return [annotation(name, at + 80, 15), op("aten::_foreach_add_", at + 82, 10)]


def steps(folder: Path, events: Sequence[Event]) -> list[tuple[int, int, int]]:
    """Return number, start and length of each step, us from the first event's start."""
    origin = min(event["ts"] for event in events)
    query = """SELECT step, ts - (SELECT min(ts) FROM operators) AS ts, dur FROM operators
        WHERE name LIKE 'ProfilerStep#%' ORDER BY step"""
    found = rows(corpus_of(folder, events), query)
    return [(row["step"], round(origin + row["ts"] / 1000), round(row["dur"] / 1000)) for row in found]


def test_a_step_ends_with_the_optimizer_and_the_next_begins_there(tmp_path: Path) -> None:
    events = [each for at in (0, 100, 200) for each in (annotation(CLEAR, at + 2, 5), *work(at), *update(at))]
    assert steps(tmp_path, events) == [(0, 2, 93), (1, 95, 100), (2, 195, 100)]
    query = "SELECT step, count(*) FROM operators WHERE kind = 'cpu_op' GROUP BY step ORDER BY step"
    inside = corpus_of(tmp_path / "again", events).execute(query).fetchall()
    assert inside == [(0, 4), (1, 4), (2, 4)]


def test_what_clears_gradients_behind_the_optimizer_belongs_to_its_step(tmp_path: Path) -> None:
    events = [each for at in (0, 100) for each in (*work(at), *update(at), annotation(CLEAR, at + 97, 3))]
    assert steps(tmp_path, events) == [(0, 10, 90), (1, 100, 100)]


def test_a_range_of_the_job_around_one_step_bounds_it_and_one_around_several_does_not(tmp_path: Path) -> None:
    turns = [each for at in (0, 100) for each in (annotation("train_step", at + 1, 98), *work(at), *update(at))]
    assert steps(tmp_path, turns) == [(0, 1, 98), (1, 99, 100)]
    epochs = [annotation("epoch", 0, 200), annotation("epoch", 300, 200)]
    several = [each for at in (0, 100, 300, 400) for each in (*work(at), *update(at))]
    assert steps(tmp_path / "epochs", [*epochs, *several]) == [(0, 0, 95), (1, 95, 100), (2, 300, 95), (3, 395, 100)]


def test_optimizers_that_share_out_the_parameters_end_a_step_together(tmp_path: Path) -> None:
    both = [
        [*work(at), annotation("Optimizer.step#Muon.step", at + 80, 6), annotation(STEP, at + 88, 7)] for at in (0, 100)
    ]
    assert steps(tmp_path, [each for events in both for each in events]) == [(0, 10, 85), (1, 95, 100)]
    clears = [[annotation(CLEAR, at + 87, 1), annotation(CLEAR, at + 97, 3)] for at in (0, 100)]
    events = [each for pair in zip(both, clears, strict=True) for part in pair for each in part]
    assert steps(tmp_path / "cleared", events) == [(0, 10, 90), (1, 100, 100)]


def test_one_call_of_the_optimizer_makes_one_step(tmp_path: Path) -> None:
    assert steps(tmp_path, [*work(0), *update(0)]) == [(0, 10, 85)]


def test_where_two_optimizers_take_turns_a_step_is_a_turn_of_both(tmp_path: Path) -> None:
    turns = [[*work(at, 2), *update(at, "Optimizer.step#Adam.step"), *work(at + 100, 3)] for at in (0, 200, 400)]
    first, second, third = ([*each, *update(at + 100)] for each, at in zip(turns, (0, 200, 400), strict=True))
    expected = [(0, 10, 185), (1, 195, 200)]
    assert steps(tmp_path / "whole", [*first, *second, *third]) == [*expected, (2, 395, 200)]
    # What an exception cuts off is no step.
    assert steps(tmp_path / "cut", [*first, *second, *turns[2]]) == expected
    around = [annotation("train_step", 1, 198), *first, annotation("train_step", 201, 198), *second]
    assert steps(tmp_path / "around", around) == [(0, 1, 198), (1, 199, 200)]
    epochs = [annotation("epoch", 5, 400), *first, *second, annotation("epoch", 405, 395), *third]
    again = [*epochs, *(dict(event, ts=event["ts"] + 600) for event in first)]
    assert steps(tmp_path / "epochs", again) == [(0, 5, 190), (1, 195, 200), (2, 405, 190), (3, 595, 200)]


def test_what_runs_before_the_first_step_is_in_none(tmp_path: Path) -> None:
    turns = [each for at in (100, 200, 300) for each in (*work(at), *update(at))]
    evaluation = [annotation("validate", 1, 98), *(op("aten::mm", 10 * n, 5) for n in range(1, 9))]
    assert steps(tmp_path / "evaluation", [*evaluation, *turns]) == [(0, 110, 85), (1, 195, 100), (2, 295, 100)]
    # Steps that differ may do so in the first, too.
    longer = [op("aten::mm", 142 + 100 * n + 2 * k, 1) for n, more in enumerate((6, 0, 3)) for k in range(more)]
    assert steps(tmp_path / "dynamic", [*longer, *turns]) == [(0, 110, 85), (1, 195, 100), (2, 295, 100)]
    # A loader does more for its first batch, which is a part of the step.
    loads = [annotation("next", at + 1, 8) for at in (100, 200, 300)]
    first = [op("aten::randperm", 103, 2), op("aten::random_", 106, 2)]
    assert steps(tmp_path / "loader", [*loads, *first, *turns]) == [(0, 101, 94), (1, 195, 100), (2, 295, 100)]


def test_a_step_that_the_recording_cuts_is_none(tmp_path: Path) -> None:
    whole = [each for at in (100, 200) for each in (*work(at, 3), *update(at))]
    assert steps(tmp_path / "first", [*work(0, 2), *update(0), *whole]) == [(0, 95, 100), (1, 195, 100)]
    assert steps(tmp_path / "last", [*whole, *work(300, 2)]) == [(0, 110, 85), (1, 195, 100)]


def test_a_step_whose_forward_pass_the_recording_cuts_is_none(tmp_path: Path) -> None:
    def passes(at: float, first: int) -> list[Event]:
        forward = [
            op("aten::mm", at + 10 + 10 * n, 9, Sequence_number=at + n, Fwd_thread_id=0) for n in range(first, 3)
        ]
        back = [op("MmBackward0", at + 48 - 4 * n, 3, tid=2, Sequence_number=at + n, Fwd_thread_id=1) for n in range(3)]
        return [*forward, *back, op(GRADIENT, at + 60, 4, tid=2), *update(at)]

    whole = [*passes(100, 0), *passes(200, 0)]
    assert steps(tmp_path / "whole", [*passes(0, 0), *whole]) == [(0, 10, 85), (1, 95, 100), (2, 195, 100)]
    assert steps(tmp_path / "cut", [*passes(0, 2), *whole]) == [(0, 95, 100), (1, 195, 100)]
    # A node that no operator makes is in every step.
    made_by_none = [
        op("FunctionBackward", at + 55, 3, tid=2, Sequence_number=900, Fwd_thread_id=1) for at in (0, 100, 200)
    ]
    alike = steps(tmp_path / "custom", [*passes(0, 0), *whole, *made_by_none])
    assert alike == [(0, 10, 85), (1, 95, 100), (2, 195, 100)]


def test_work_of_the_gpu_is_in_the_step_that_launched_it(tmp_path: Path) -> None:
    launched = [
        each
        for at in (0, 100)
        for each in (launch(at + 20, 2, at + 1), kernel("gemm", at + 90, 20, correlation=at + 1))
    ]
    events = [each for at in (0, 100) for each in (*work(at), *update(at))]
    corpus = corpus_of(tmp_path, [*events, *launched])
    assert corpus.execute("SELECT step FROM operators WHERE name = 'gemm' ORDER BY ts").fetchall() == [(0,), (1,)]


def test_a_second_optimizer_of_the_same_gradients_ends_the_step(tmp_path: Path) -> None:
    muon = [annotation("Optimizer.step#Muon.step", at + 81, 4) for at in (0, 100)]
    events = [*work(0), muon[0], *update(6), *work(100), muon[1], *update(106)]
    assert steps(tmp_path, events) == [(0, 10, 91), (1, 101, 100)]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([*work(0, 2), *update(0), *work(100, 3), *update(100)], id="nothing comes twice"),
        pytest.param(
            [*work(0), launch(20, 2, 1), kernel("gemm", 30, 500, correlation=1), *update(0)], id="one of a GPU"
        ),
        pytest.param([op("aten::mm", 0, 5), annotation(STEP, 10, 5)], id="no gradients"),
        pytest.param(work(0), id="no optimizer"),
    ],
)
def test_elsewhere_nothing_is_marked(tmp_path: Path, events: list[Event]) -> None:
    assert steps(tmp_path, events) == []


def test_steps_that_the_profiler_marks_stay_alone(tmp_path: Path) -> None:
    events = [annotation("ProfilerStep#7", 0, 200), *work(0), *update(0), *work(100), *update(100)]
    assert steps(tmp_path, events) == [(7, 0, 200)]


@pytest.mark.parametrize("job", ["resnet50_2021", "resnet50_ddp", "rocm_mi300_resnet", "single_gpu_ns"])
def test_steps_of_a_recorded_job_are_found_without_its_marks(tmp_path: Path, job: str) -> None:
    """The marks and the optimizer's calls end a step with some Python code between them."""
    if not REAL.is_dir():
        pytest.skip(ABSENT)
    (recorded,) = (REAL / job).glob("*.json.gz")
    trace = json.loads(gzip.decompress(recorded.read_bytes()))
    trace["traceEvents"] = [event for event in trace["traceEvents"] if "ProfilerStep" not in event.get("name", "")]
    (tmp_path / "unmarked.json").write_text(json.dumps(trace))
    lengths = []
    for path in (recorded, tmp_path / "unmarked.json"):
        ingest([path], tmp_path / path.stem, workers=1)
        with connect(tmp_path / path.stem) as corpus:
            lengths.append(corpus.execute("SELECT step_ns FROM breakdown ORDER BY step").fetchall())
    marked, found = ([length for (length,) in each] for each in lengths)
    # The first step begins with its first work, as nothing says when the program came to it.
    assert found[1:] == pytest.approx(marked[1:], rel=0.01)
    assert found[0] == pytest.approx(marked[0], rel=0.03)
