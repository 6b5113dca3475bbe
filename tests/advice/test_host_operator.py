"""Long operators on tensors of the host; the gain is that of the job without them."""

from pathlib import Path
from typing import Any

import pytest

from lumos_df.advice.job_advice import JobAdvice, advise
from lumos_df.base.units import format_ns
from lumos_df.notebook.corpus_frames import Corpus
from lumos_df.trace.ingest import ingest
from tests.trace.literal import annotation, kernel, launch, op, write

_SPLITS: int = 3_000
"""How long the host splits in each step, us."""


def recorded(folder: Path, name: str, *, launches: bool = False, hiccups: bool = False) -> JobAdvice:
    """Return the advice on three steps of twenty products, in the middle of which the host works for 3 ms."""
    events: list[dict[str, Any]] = []
    ts = 0
    for step in range(3):
        begin = ts
        for number in range(20):
            call = 100 * step + number + 1
            slow = number == (5 + 4 * step if hiccups else 10)
            took = _SPLITS if slow else 10
            shape = [[1000, 8]] if slow and not hiccups else [[8, 8]]
            events.append(op(name, ts, took, Input_Dims=shape, Input_type=["float"]))
            if slow and launches:
                events += [launch(ts + 2, 5, 50 + call), kernel("split", ts + 20, 5, correlation=50 + call)]
            ts += took + 5
            events += [op("aten::mm", ts, 20), launch(ts + 5, 10, call), kernel("gemm", ts + 30, 15, correlation=call)]
            ts += 40
        events.append(annotation(f"ProfilerStep#{step + 1}", begin, ts - begin))
    write(folder / "job" / "rank0.json", events)
    assert not ingest([folder / "job"], folder / "corpus", workers=1).failed
    (found,) = advise(folder / "corpus")
    return found


def test_long_work_of_the_host_is_the_first_advice(tmp_path: Path) -> None:
    said = recorded(tmp_path, "aten::split").advice[0]
    assert said.remedy.rule == "host_operator"
    assert said.remedy.what.startswith("aten::split works on the host for 3.00 ms a step and launches nothing: ")
    assert said.remedy.rests_on == "3 calls on 1 rank"
    assert said.gain_ns == pytest.approx(1000 * _SPLITS, rel=0.1)
    shown = Corpus(tmp_path / "corpus").view("advice_evidence").filter(place=1)
    assert format_ns(1000 * _SPLITS) in {format_ns(ns) for ns in shown["less_ns"].to_list()}


@pytest.mark.parametrize(
    ("name", "more"),
    [
        pytest.param("aten::split", {"launches": True}, id="it launches"),
        pytest.param("aten::split", {"hiccups": True}, id="others of its shapes are short"),
        pytest.param("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", {}, id="a data loader"),
    ],
)
def test_what_is_another_fault_is_left_to_its_rule(tmp_path: Path, name: str, more: dict[str, bool]) -> None:
    assert "host_operator" not in {advice.remedy.rule for advice in recorded(tmp_path, name, **more).advice}
