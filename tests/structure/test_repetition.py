"""The search for the repeated block: its loops against slow twins, and sequences whose block is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.schema.codes import NONE
from lumos_df.structure import repetition
from lumos_df.structure.kernels import repeats, spread
from lumos_df.structure.kernels.spread import MIXED, UNKNOWN

SYMBOLS = st.lists(st.integers(-1, 2), min_size=1, max_size=40)
EVERY = settings(deadline=None, max_examples=60)


def array(symbols: list[int]) -> np.ndarray:
    return np.array(symbols, np.int32)


@EVERY
@given(SYMBOLS, st.integers(1, 4))
def test_previous_is_the_nearest_equal_window_before(symbols: list[int], width: int) -> None:
    expected = [0] * len(symbols)
    for i in range(len(symbols) - width + 1):
        window = symbols[i : i + width]
        if min(window) < 0:
            continue
        for j in range(i - 1, -1, -1):
            if symbols[j : j + width] == window:
                expected[i] = i - j
                break
    assert repeats.previous(array(symbols), width).tolist() == expected


@EVERY
@given(SYMBOLS, st.integers(1, 5))
def test_stretches_are_the_longest_that_repeat(symbols: list[int], period: int) -> None:
    many = len(symbols)
    equal = [i >= period and symbols[i] >= 0 and symbols[i] == symbols[i - period] for i in range(many)]
    expected = []
    for i in range(many):
        if equal[i] and not equal[i - 1]:
            end = next((j for j in range(i, many) if not equal[j]), many)
            if end - i >= period:
                expected.append((i - period, end))
    start, end_of = repeats.stretches(array(symbols), period)
    assert list(zip(start.tolist(), end_of.tolist(), strict=True)) == expected


@EVERY
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(0, 40))
def test_like_ends_counts_back_from_every_later_place(symbols: list[int], length: int) -> None:
    length = min(length, len(symbols))
    expected = []
    for place in range(length, len(symbols) + 1):
        count = 0
        while count < length and symbols[place - 1 - count] == symbols[length - 1 - count]:
            count += 1
        expected.append(count)
    assert repeats.like_ends(array(symbols), length).tolist() == expected


@EVERY
@given(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.integers(0, 11), st.integers(0, 2))
def test_phase_of_finds_a_rotation(template: list[int], turn: int, other: int) -> None:
    turned = template[turn % len(template) :] + template[: turn % len(template)]
    found = repeats.phase_of(array(turned), 0, array(template))
    assert template[found:] + template[:found] == turned
    changed = [*turned[:-1], other]
    rotations = [template[k:] + template[:k] for k in range(len(template))]
    assert (repeats.phase_of(array(changed), 0, array(template)) >= 0) == (changed in rotations)


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[int], list[int], list[int], list[bool]]:
    """Value, parent, thread and whether it launches, of rows of which the last ones are on the GPU."""
    hosts = draw(st.integers(1, 8))
    thread = draw(st.lists(st.integers(0, 1), min_size=hosts, max_size=hosts))
    parent = [draw(st.sampled_from([NONE, *(j for j in range(i) if thread[j] == thread[i])])) for i in range(hosts)]
    calls = draw(st.lists(st.integers(0, hosts - 1), max_size=6))
    values = [UNKNOWN] * hosts + [draw(st.integers(NONE, 2)) for _ in calls]
    launches = [i in calls for i in range(hosts)] + [False] * len(calls)
    return values, parent + calls, thread + [NONE] * len(calls), launches


@EVERY
@given(forests())
def test_spread_gives_rows_what_they_lead_to(case: tuple[list[int], list[int], list[int], list[bool]]) -> None:
    value, parent, thread, launches = case
    many = len(value)
    below: list[set[int]] = [set() for _ in range(many)]
    for i in range(many):
        if thread[i] == NONE:
            row = i
            while row != NONE:
                below[row].add(value[i])
                row = parent[row]
    first = [UNKNOWN if not one else min(one) if len(one) == 1 else MIXED for one in below]
    expected = list(first)
    for i in range(many):
        if expected[i] == UNKNOWN:
            above = expected[parent[i]] if parent[i] >= 0 else UNKNOWN
            ahead = (first[j] for j in range(i, many) if thread[j] == thread[i] and launches[j])
            expected[i] = above if above > UNKNOWN else next(ahead, UNKNOWN)
    found = np.array(value, np.int32)
    spread.spread(found, array(parent), array(thread), np.array(launches))
    assert found.tolist() == expected


@pytest.mark.parametrize(("block", "repeats"), [(3, 2), (7, 5), (25, 40)])
@pytest.mark.parametrize("around", [0, 1, 30])
def test_a_block_between_other_symbols_is_found(block: int, repeats: int, around: int) -> None:
    pattern = list(range(block))
    other = list(range(block, block + around))
    symbols = array([*other, *pattern * repeats, *reversed(other)])
    found = repetition.find(symbols, np.ones(len(symbols), np.int64))
    assert found is not None
    assert found.period == block
    inside = np.flatnonzero(found.run >= 0)
    assert inside.tolist() == list(range(around, around + block * repeats))
    assert np.bincount(found.place[inside] % block).tolist() == [repeats] * block


@pytest.mark.parametrize("layers", [2, 3, 12])
@pytest.mark.parametrize("experts", [4, 16])
def test_an_expert_is_no_layer(layers: int, experts: int) -> None:
    """A layer is attention and experts, which are alike: they repeat more often than layers do."""
    attention, expert = [0, 1, 2, 3], [4, 5, 6]
    symbols = array([*attention, *expert * experts] * layers)
    work = np.ones(len(symbols), np.int64)
    found = repetition.find(symbols, work, attends=symbols == 2)
    assert found is not None
    assert found.period == len(attention) + experts * len(expert)
    plain = repetition.find(symbols, work)
    assert plain is not None
    assert plain.period == len(expert) or layers > 2


@pytest.mark.parametrize("layers", [2, 3, 6])
def test_a_layer_may_be_one_operator(layers: int) -> None:
    """One at whose end the next begins, as in PyTorch's encoder where nothing is trained."""
    symbols = array([0, 1, *[2] * layers, 3, 4] * 5)
    work = np.isin(symbols, (2, 4)).astype(np.int64)
    found = repetition.find(symbols, work, attends=symbols == 2, whole=symbols == 2)
    assert found is not None
    assert found.period == 1
    assert np.bincount(found.run[found.run >= 0]).tolist() == [layers] * 5


@pytest.mark.parametrize("attention", [[5, 5], [5, 5, 5, 5], [5, 4, 5, 4, 5, 4]], ids=["two", "four", "merged"])
def test_attention_to_one_part_of_a_sequence_after_another_is_no_layer(attention: list[int]) -> None:
    """As each rank of ring attention attends to the keys of every other one."""
    layer = [1, 2, 3, *attention, 6, 7, 8, 9]
    symbols = array(layer * 12)
    found = repetition.find(symbols, np.isin(symbols, (1, 5, 6, 8)).astype(np.int64), attends=symbols == 5)
    assert found is not None
    assert found.period == len(layer)


BLOCKS = [
    (np.arange(3), 2),
    *((np.random.default_rng(seed).integers(5, size=60), 12) for seed in range(3)),
]
"""A block and how often it comes: two of three kernels, and such of many kernels of few kinds."""


def period_of(block: np.ndarray, repeats: int) -> int:
    """The length of the block that is found in its repetition, 0 where none is."""
    found = repetition.find(array(np.tile(block, repeats).tolist()), np.ones(len(block) * repeats, np.int64))
    return found.period if found else 0


@pytest.mark.parametrize(("block", "repeats"), BLOCKS)
def test_a_block_is_found_however_few_its_kernels_or_their_kinds(block: np.ndarray, repeats: int) -> None:
    assert period_of(block, repeats) == len(block)


PART, OTHER = [1, 2, 5], [1, 6, 7]


@pytest.mark.parametrize(
    ("sequence", "period"),
    [
        ([9, *[*PART * 2, 3] * 4, 8], 7),
        ([9, *[*PART * 2, 3] * 4, NONE, 9, *[*PART * 2, 3] * 4], 7),
        ([9, *[*PART * 2, 4] * 4, 8], 3),
        ([9, *PART * 4, 3, *PART * 4, 8], 3),
        ([9, *[*PART * 3, 3] * 2, 8], 3),
        ([9, *PART * 8, 8], 3),
        ([9, *[*PART * 2, 3, *OTHER * 2, 3] * 2, 8], 3),
    ],
    ids=["halves", "in two steps", "work between", "two stacks", "few groups of many", "no groups", "unlike groups"],
)
def test_parts_that_come_in_groups_are_no_blocks(sequence: list[int], period: int) -> None:
    symbols = array(sequence)
    found = repetition.find(symbols, np.isin(symbols, (1, 4)).astype(np.int64))
    assert found is not None
    assert found.period == period


def test_nothing_repeats_in_a_sequence_of_distinct_symbols_or_of_breaks() -> None:
    for symbols in (np.arange(100, dtype=np.int32), np.full(100, NONE, np.int32), array([])):
        assert repetition.find(symbols, np.ones(len(symbols), np.int64)) is None


@EVERY
@given(st.integers(0, 2**32 - 1))
def test_blocks_with_an_odd_kernel_now_and_then_stay_one_run(seed: int) -> None:
    random = np.random.default_rng(seed)
    block, repeats = 30, 24
    symbols = np.tile(np.arange(block), repeats).tolist()
    for at in sorted(random.choice(np.arange(70, block * repeats - 70, 25), 3, replace=False).tolist(), reverse=True):
        what = random.integers(3)
        symbols[at : at + (what != 0)] = [] if what == 1 else [99]
    found = repetition.find(array(symbols), np.ones(len(symbols), np.int64))
    assert found is not None
    assert found.period == block
    assert (found.run >= 0).all()
    expected = [k for k in symbols if k != 99]
    clean = array(symbols) != 99
    assert (found.template[found.place[clean] % block] == np.array(expected)).mean() > 0.99
