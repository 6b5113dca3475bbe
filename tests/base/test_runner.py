import io
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumos_df.base.errors import LumosError
from lumos_df.base.outcome import WorkerError
from lumos_df.base.runner import Engine, Progress, map_items, parse_shard, progress, shard
from tests.base.items import (
    chatter,
    cpus,
    die_at_three,
    die_the_first_time,
    exhaust_memory_at_two,
    leave_at_three,
    note_or_return,
    process_id,
    raise_what_does_not_unpickle,
    refuse_seven,
    square,
)

ROOT = Path(__file__).parents[2]
WORKERS = pytest.mark.parametrize("workers", [1, 2], ids=["in this process", "in two"])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@WORKERS
def test_every_item_has_its_outcome(workers: int) -> None:
    outcomes = list(map_items(square, range(20), workers=workers))
    assert sorted((outcome.index, outcome.value) for outcome in outcomes) == [(n, n * n) for n in range(20)]


def test_workers_share_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMOS_DF_CPUS", "6")
    assert {outcome.value for outcome in map_items(cpus, range(4), workers=2)} == {3}
    assert {outcome.value for outcome in map_items(cpus, range(8), workers=8)} == {1}
    assert {outcome.value for outcome in map_items(cpus, range(4), workers=1)} == {6}


@WORKERS
def test_an_exception_is_the_outcome_of_its_item(workers: int) -> None:
    outcomes = {outcome.index: outcome for outcome in map_items(refuse_seven, range(10), workers=workers)}
    assert isinstance(outcomes[7].error, EOFError)
    assert str(outcomes[7].error) == "seven"
    assert [outcomes[n].value for n in range(10) if n != 7] == [n for n in range(10) if n != 7]


@WORKERS
def test_no_memory_is_the_outcome_of_its_item(workers: int) -> None:
    errors = {outcome.index: outcome.error for outcome in map_items(exhaust_memory_at_two, range(4), workers=workers)}
    assert isinstance(errors.pop(2), MemoryError)
    assert set(errors.values()) == {None}


def test_a_killed_worker_takes_only_its_item_with_it() -> None:
    outcomes = {outcome.index: outcome for outcome in map_items(die_at_three, range(8), workers=2)}
    assert isinstance(outcomes[3].error, WorkerError)
    assert "was killed (out of memory?); use fewer workers" in str(outcomes[3].error)
    assert [outcomes[n].value for n in range(8) if n != 3] == [n for n in range(8) if n != 3]


def test_an_item_whose_worker_was_killed_goes_to_another_one(tmp_path: Path) -> None:
    items = [str(tmp_path / name) for name in "abcd"]
    outcomes = sorted((outcome.index, outcome.value) for outcome in map_items(die_the_first_time, items, workers=2))
    assert outcomes == list(enumerate(items))


def test_a_worker_that_leaves_says_its_exit_status() -> None:
    errors = {outcome.index: outcome.error for outcome in map_items(leave_at_three, range(5), workers=2)}
    assert "exit status 5" in str(errors.pop(3))
    assert set(errors.values()) == {None}


def test_an_exception_that_cannot_travel_is_told() -> None:
    errors = [outcome.error for outcome in map_items(raise_what_does_not_unpickle, range(2), workers=2)]
    assert [str(error) for error in errors] == ["TwoPartError: one, two"] * 2


def test_an_item_that_cannot_travel_fails_alone() -> None:
    items: list[Any] = [1, lambda: 2, 3]
    errors = {outcome.index: outcome.error for outcome in map_items(square, items, workers=2)}
    assert isinstance(errors[1], AttributeError | pickle.PicklingError)
    assert errors[0] is errors[2] is None


def test_what_a_function_prints_or_reads_does_not_disturb_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert {outcome.value for outcome in map_items(chatter, range(4), workers=2)} == set(range(4))
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "from below Python" in printed.err


def test_workers_are_other_processes_and_no_more_than_asked_for() -> None:
    ids = {outcome.value for outcome in map_items(process_id, range(12), workers=3)}
    assert os.getpid() not in ids
    assert len(ids) <= 3


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no process to a CPU")
def test_as_many_workers_as_the_process_may_use_cpus() -> None:
    code = """
import os
from lumos_df.base.runner import available_cpus, map_items
from tests.base.items import process_id
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(available_cpus(), {outcome.value for outcome in map_items(process_id, range(4))} == {os.getpid()})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["1", "True"]


def test_one_item_runs_here() -> None:
    assert [outcome.value for outcome in map_items(process_id, [0], workers=4)] == [os.getpid()]


def test_no_items_no_outcomes() -> None:
    assert list(map_items(square, [])) == []


def test_fewer_workers_than_one_are_refused() -> None:
    with pytest.raises(LumosError, match="workers is 0: it must be at least 1"):
        list(map_items(square, [1], workers=0))


def test_workers_end_with_the_iterator(tmp_path: Path) -> None:
    notes = [str(tmp_path / name) for name in ("a", "b")]
    outcomes = map_items(note_or_return, ["return", *notes], workers=3)
    assert next(outcomes).value is None
    ids = [_wait_for_number(Path(note)) for note in notes]
    outcomes.close()  # type: ignore[attr-defined]  # a generator
    for process in ids:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def _wait_for_number(path: Path) -> int:
    for _ in range(200):
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.05)
    raise AssertionError(f"{path} was not written")


@WORKERS
def test_progress_counts_every_item(workers: int) -> None:
    seen: list[Progress] = []
    list(map_items(square, [5, 6, 7], workers=workers, report=seen.append))
    assert [(state.done, state.total) for state in seen] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert {state.item for state in seen} == {"", "5", "6", "7"}


def test_progress_is_a_line_an_item_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with progress(stream) as report:
        list(map_items(square, [5, 6], workers=1, report=report))
    assert stream.getvalue() == "[1/2] 5\n[2/2] 6\n"


def test_progress_is_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    stream = Terminal()
    with progress(stream) as report:
        report(Progress(0, 2, ""))
        report(Progress(1, 2, "[a] file"))
        print("a result")
    shown = stream.getvalue()
    assert "1/2" in shown
    assert "[a] file" in shown
    assert capsys.readouterr().out == "a result\n"


@given(st.lists(st.integers()), st.integers(1, 9))
def test_shards_are_the_items_dealt_out(items: list[int], count: int) -> None:
    parts = [shard(items, index, count) for index in range(count)]
    assert sorted(item for part in parts for item in part) == sorted(items)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_shard_is_counted_from_one() -> None:
    assert parse_shard("1/8") == (0, 8)
    assert parse_shard("8/8") == (7, 8)


@pytest.mark.parametrize("text", ["", "2", "0/8", "9/8", "a/b", "1/0", "-1/2", "1/2/3", "\N{SUPERSCRIPT TWO}/3"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(LumosError, match="part i of n counted from 1, such as 2/8"):
        parse_shard(text)


def test_a_ray_node_that_does_not_start_in_time_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: object) -> None:
        raise Exception("The current node timed out during startup. This could happen ...\nmore")  # noqa: TRY002 - Ray's

    exceptions = SimpleNamespace(RayError=ConnectionError)
    ray = SimpleNamespace(init=init, exceptions=exceptions, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(
        LumosError, match=r"^engine ray: no cluster starts here \(The current node timed out.*; wait until"
    ):
        list(map_items(square, [1, 2], engine=Engine.RAY))
