"""Pipelines against a slow twin, closed forms, and orders written out by hand."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.model.pipeline import schedule as schedules
from lumos_df.model.pipeline.order import order
from lumos_df.model.pipeline.schedule import BUBBLE, END, IN_FLIGHT, KEPT, REFUSALS
from lumos_df.schema.plan_words import DUALPIPE, FSDP, GPIPE, INTERLEAVED, ONE_F_ONE_B, ZB_H1
from tests.model.pipeline import Outcome, Pipeline, simulate, twin

EVERY = (ONE_F_ONE_B, INTERLEAVED, ZB_H1, DUALPIPE, GPIPE)
TIMES = (
    st.floats(0, 10),
    st.integers(0, 3).map(float),
    st.sampled_from((1.0, 1.0 + 1e-9, 1.1)),
)
"""Stages all different; stages with ties, also of nothing at all; stages that hardly differ, far from a period."""


@st.composite
def pipelines(draw: st.DrawFn, schedule: int) -> Pipeline:
    pp, vp = draw(st.integers(1, 6)), 1
    many = draw(st.integers(1, 40))
    if schedule == INTERLEAVED:
        pp, vp = max(pp, 2), draw(st.integers(2, 4))
        many = pp * draw(st.integers(1, 12))
    if schedule == DUALPIPE:
        pp, vp = 2 * draw(st.integers(1, 4)), 2
        many = 2 * (pp + draw(st.integers(0, 30)))
    time = draw(st.sampled_from(TIMES))

    def times(length: int) -> np.ndarray:
        return np.array(draw(st.lists(time, min_size=length, max_size=length)))

    delay = times(pp)
    busy = delay * draw(st.sampled_from((0.0, 0.5, 1.0)))
    forward, inputs, weights, pair = (times(pp * vp) for _ in range(4))
    return Pipeline(schedule, pp, vp, many, forward, inputs, weights, pair, delay, busy)


def near(found: object, expected: object, scale: float = 1.0) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-9, atol=1e-9 * scale)


def same(one: Outcome, other: Outcome) -> None:
    near(one.makespan, other.makespan, other.makespan)
    near(one.stages, other.stages, other.makespan)
    near(one.gradients, other.gradients, other.makespan)


@pytest.mark.parametrize("schedule", EVERY)
def test_uneven_stages_are_simulated_as_the_slow_twin_does(schedule: int) -> None:
    @given(pipelines(schedule))
    @settings(deadline=None, max_examples=100)
    def compare(pipe: Pipeline) -> None:
        same(simulate(pipe), twin(pipe))

    compare()


@pytest.mark.parametrize("schedule", EVERY)
@pytest.mark.parametrize("delay", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_many_micro_batches_are_a_multiple_of_a_period(schedule: int, delay: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    pp, vp = 4, {INTERLEAVED: 3, DUALPIPE: 2}.get(schedule, 1)
    forward, inputs, weights, pair = 1 + 0.2 * draw.random((4, pp * vp)) * (seed > 0)
    sends = np.full(pp, delay)
    pipe = Pipeline(schedule, pp, vp, 240, forward, inputs, weights, pair, sends, sends / 2)
    same(simulate(pipe), twin(pipe))


@pytest.mark.parametrize(("pp", "many"), [(1, 5), (2, 2), (4, 4), (4, 31), (8, 64), (16, 500)])
def test_1f1b_idles_as_its_formula_says(pp: int, many: int) -> None:
    found = simulate(Pipeline.even(ONE_F_ONE_B, pp, 1, many, (1.0, 1.3, 0.9)))
    near(found.stages[:, BUBBLE], (pp - 1) * (1.0 + 1.3 + 0.9))
    assert found.stages[:, IN_FLIGHT].tolist() == [min(many, pp - s) for s in range(pp)]


@pytest.mark.parametrize(("pp", "vp", "many"), [(2, 2, 4), (4, 2, 8), (4, 3, 32), (8, 4, 64), (8, 6, 256)])
def test_interleaved_idles_as_its_formula_says(pp: int, vp: int, many: int) -> None:
    forward, backward = 1.0, 2.2
    found = simulate(Pipeline.even(INTERLEAVED, pp, vp, many, (forward / vp, 1.3 / vp, 0.9 / vp)))
    near(found.stages[:, BUBBLE], (pp - 1) * (forward + backward) / vp)
    # Korthikanti et al. (2022), 4.2.3: the first stage's memory is 1 + (p-1)/(pv) times that of p whole stages.
    near(found.stages[0, IN_FLIGHT] / (pp * vp), 1 + (pp - 1) / (pp * vp))


@pytest.mark.parametrize(("pp", "many"), [(2, 4), (4, 8), (4, 64), (8, 24), (8, 200)])
@pytest.mark.parametrize(("inputs", "weights"), [(1.0, 1.0), (1.3, 0.9), (2.0, 0.1)])
def test_zb_h1_idles_as_its_formula_says(pp: int, many: int, inputs: float, weights: float) -> None:
    found = simulate(Pipeline.even(ZB_H1, pp, 1, many, (1.0, inputs, weights)))
    # (p-1)(F + B - 2W) with B both gradients; where W is at most the gradients of inputs.
    bubble = (pp - 1) * (1.0 + inputs + weights - 2 * weights)
    near(found.stages[:, BUBBLE], bubble)
    assert found.stages[:, IN_FLIGHT].tolist() == [pp - s for s in range(pp)]
    assert found.stages[:, KEPT].tolist() == [pp] * pp


@pytest.mark.parametrize(("pp", "many"), [(2, 4), (4, 8), (6, 20), (8, 16), (8, 200)])
@pytest.mark.parametrize("pair", [3.0, 2.7, 2.2])
def test_dualpipe_idles_as_its_formula_says(pp: int, many: int, pair: float) -> None:
    found = simulate(Pipeline.even(DUALPIPE, pp, 2, many, (1.0, 1.0, 1.0, pair)))
    # (p/2-1)(F&B + B - 3W) with B both gradients, where F = gradients of inputs = W. The stages in the middle run most
    # pairs; at the ends there is more to do alone, and so less time to idle, where a pair saves time.
    near(found.stages[:, BUBBLE].max(), (pp / 2 - 1) * (pair + 2.0 - 3.0))
    assert (found.stages[:, [IN_FLIGHT, KEPT]] == pp + 1).all()


def test_gpipe_runs_all_forwards_first() -> None:
    found = simulate(Pipeline.even(GPIPE, 4, 1, 8, (1.0, 1.0, 1.0)))
    near(found.stages[:, BUBBLE], 3 * 3.0)
    assert (found.stages[:, IN_FLIGHT] == 8).all()


@pytest.mark.parametrize("schedule", [ONE_F_ONE_B, ZB_H1, GPIPE, FSDP])
def test_one_stage_is_a_sum(schedule: int) -> None:
    found = simulate(Pipeline.even(schedule, 1, 1, 7, (1.0, 0.5, 0.25), delay=9.0))
    assert found.makespan == 7 * 1.75
    assert found.stages[0, END] == found.gradients[0] == found.makespan
    assert found.stages[0, BUBBLE] == 0


def slow(schedule: int, many: int, times: tuple[float, ...], delay: float = 0.0, busy: float = 0.0) -> Pipeline:
    """Stages of one chunk, each with its own time for a forward, and the same for a backward."""
    each = np.array(times)
    ways = np.full(len(times), delay), np.full(len(times), busy)
    return Pipeline(schedule, len(times), 1, many, each, each / 2, each / 2, each, *ways)


@pytest.mark.parametrize(
    ("pipe", "pace", "bubble", "path"),
    [
        # Stage 1 takes twice as long: three times 2 + 2 s, while stage 0 fills and drains for 1 s each.
        (slow(ONE_F_ONE_B, 3, (1.0, 2.0)), 1, 2.0, [2.0, 12.0, 0.0]),
        # Stage 0 does: stage 1 has the first gradients at 4 and the last at 10, when stage 0 is done with others.
        (slow(ONE_F_ONE_B, 3, (2.0, 1.0)), 0, 0.0, [12.0, 0.0, 0.0]),
        # With messages of 1 s it waits for the first gradients from 4 to 6, and for the last from 12 to 14.
        (slow(ONE_F_ONE_B, 3, (2.0, 1.0), delay=1.0), 0, 4.0, [8.0, 4.0, 4.0]),
        # The same that stop both ends: stage 1 has three receives and sends, and waits for F0 B2 of stage 0 only.
        (slow(ONE_F_ONE_B, 3, (1.0, 2.0), delay=1.0, busy=1.0), 1, 2.0, [3.0, 17.0, 0.0]),
        # Stage 0 is done with forwards at 6 and waits for the last one's way through stage 1, and its first gradients.
        (slow(GPIPE, 3, (2.0, 1.0)), 0, 2.0, [12.0, 2.0, 0.0]),
        # F0 F1 by 2, the first gradients at 3; weight gradients fill what 1F1B would wait for the second.
        (Pipeline.even(ZB_H1, 2, 1, 2, (1.0, 1.0, 1.0)), 0, 1.0, [5.0, 2.0, 0.0]),
        # Four forwards by 4; gradients of the first micro-batch come at 5, of the second at 7, a task late each.
        (Pipeline.even(INTERLEAVED, 2, 2, 2, (1.0, 0.5, 0.5)), 0, 2.0, [4.0, 6.0, 0.0]),
        # Three times a message of 1 s comes late: before the second forward, the first pair, the last gradients.
        (Pipeline.even(DUALPIPE, 2, 2, 4, (1.0, 1.0, 1.0), delay=1.0), 0, 3.0, [6.0, 6.0, 3.0]),
    ],
)
def test_what_sets_the_pace_written_out(pipe: Pipeline, pace: int, bubble: float, path: list[float]) -> None:
    found = simulate(pipe)
    assert schedules.pace_stage(pipe.pp, found.stages) == pace
    assert found.stages[pace, BUBBLE] == bubble
    assert twin(pipe).path.tolist() == path


@pytest.mark.parametrize("schedule", EVERY)
@pytest.mark.parametrize("slowest", range(4))
def test_the_critical_path_stays_where_the_pace_is_set(schedule: int, slowest: int) -> None:
    vp = {INTERLEAVED: 2, DUALPIPE: 2}.get(schedule, 1)
    even = Pipeline.even(schedule, 4, vp, 96, (1.0, 1.0, 1.0, 2.5), delay=0.125)
    heavy = np.where(np.arange(4 * vp) % 4 == slowest, 1.5, 1.0)
    pipe = replace(
        even,
        forward=heavy * even.forward,
        backward_input=heavy * even.backward_input,
        backward_weight=heavy * even.backward_weight,
        overlapped=heavy * even.overlapped,
    )
    found, path = simulate(pipe), twin(pipe).path
    pace = schedules.pace_stage(4, found.stages)
    assert pace == slowest
    near(path.sum(), found.makespan)
    # All but filling and draining.
    assert path[pace] > 0.9 * path.sum()


def words(schedule: int, pp: int, vp: int, many: int, stage: int) -> str:
    """An order as text: kind, chunk, micro-batch; `+` between two that run at once."""
    text = ""
    for kind, chunk, mb, paired in order(schedule, pp, vp, many, stage).tolist():
        text += f"{'FIWB'[kind]}{chunk if vp > 1 else ''}{'.' if vp > 1 else ''}{mb}{'+' if paired else ' '}"
    return text.strip()


def test_orders_written_out() -> None:
    assert words(GPIPE, 2, 1, 3, 1) == "F0 F1 F2 B0 B1 B2"
    assert words(ONE_F_ONE_B, 3, 1, 4, 0) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert words(ONE_F_ONE_B, 3, 1, 4, 2) == "F0 B0 F1 B1 F2 B2 F3 B3"
    assert words(ONE_F_ONE_B, 3, 1, 1, 0) == "F0 B0"
    assert words(ZB_H1, 3, 1, 4, 0) == "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3"
    assert words(ZB_H1, 3, 1, 4, 2) == "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3"
    # Narayanan et al. (2021), figure 4, its first and last device with two of its four stages.
    assert words(INTERLEAVED, 2, 2, 4, 0) == (
        "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3"
    )
    assert words(INTERLEAVED, 2, 2, 4, 1) == (
        "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3"
    )
    # DeepSeek's eight steps with two ranks: none of steps 1, 3, 5 and 7.
    assert words(DUALPIPE, 2, 2, 6, 0) == ("F0.0 F1.3 F0.1 B1.3 F1.4+B0.0 F0.2+B1.4 F1.5+B0.1 B1.5 I0.2 W0.2")
    assert words(DUALPIPE, 4, 2, 8, 3) == (
        "F1.4 F1.5 F1.6 F0.0 I0.0 W0.0 F0.1 F1.7+B0.1 F0.2+B1.4 B0.2 F0.3+B1.5 B0.3 I1.6 W1.6 I1.7 W1.7"
    )


def test_no_pipeline_that_may_run_is_ever_stuck() -> None:
    ran = 0
    for schedule, pp, vp, many in itertools.product(range(FSDP + 1), range(1, 7), range(1, 4), range(1, 15)):
        pipe = Pipeline.even(schedule, pp, vp, many, (1.0, 1.0, 1.0))
        found = simulate(pipe)
        assert schedules.refusal(schedule, pp, vp, many) == min(found.makespan, 0)
        if found.makespan > 0:
            same(found, twin(pipe))
            ran += 1
    assert ran > 300


@pytest.mark.parametrize(
    ("schedule", "pp", "vp", "many", "why"),
    [
        (-1, 2, 1, 4, "no such schedule"),
        (FSDP + 1, 2, 1, 4, "no such schedule"),
        (ONE_F_ONE_B, 2, 1, 0, "at least one"),
        (ONE_F_ONE_B, 0, 1, 4, "at least one"),
        (ONE_F_ONE_B, 2, 2, 4, "several chunks"),
        (GPIPE, 2, 2, 4, "several chunks"),
        (ZB_H1, 2, 2, 4, "several chunks"),
        (INTERLEAVED, 2, 1, 4, "two chunks"),
        (INTERLEAVED, 1, 2, 4, "two stages"),
        (INTERLEAVED, 4, 2, 6, "multiple of the stages"),
        (INTERLEAVED, 4, 2, 2, "multiple of the stages"),
        (DUALPIPE, 4, 1, 8, "two chunks"),
        (DUALPIPE, 3, 2, 8, "even number of stages"),
        (DUALPIPE, 4, 2, 6, "at least two a stage"),
        (DUALPIPE, 4, 2, 9, "even number of micro-batches"),
        (FSDP, 2, 1, 8, "one stage"),
    ],
)
def test_what_cannot_run_is_refused_with_a_reason(schedule: int, pp: int, vp: int, many: int, why: str) -> None:
    code = schedules.refusal(schedule, pp, vp, many)
    assert why in REFUSALS[code]
    assert simulate(Pipeline.even(schedule, pp, vp, many, (1.0, 1.0, 1.0))).makespan == code
