"""Convolutions that try algorithms out in each step; the gain is that of the job in which they know them."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.rules import algorithm_search
from tests.advice.emulated import BRIEF, advice_on, advised, true_gain_ns
from tests.emulator import FaultyJob, simulate, write

KNOWN = FaultyJob(ranks=2, steps=3, convolves=True)
SEARCHES = replace(KNOWN, searches=True)


def test_a_search_in_each_step_is_the_first_advice(tmp_path: Path) -> None:
    first = advised(tmp_path, SEARCHES).first
    assert first.remedy.rule == "algorithm_search"
    assert "torch.backends.cudnn.benchmark" in first.remedy.what
    true = true_gain_ns(SEARCHES, KNOWN)
    assert first.gain_ns == pytest.approx(true, rel=0.05)
    assert first.low_ns < true < first.high_ns


def test_convolutions_that_wait_for_nothing_search_for_nothing(tmp_path: Path) -> None:
    assert not list(algorithm_search.remedies(advised(tmp_path, KNOWN).job))


def test_a_search_in_one_step_comes_no_more(tmp_path: Path) -> None:
    """Its step is the first; in the others the waits are called otherwise, and wait for nothing."""
    for path in write(simulate(SEARCHES), BRIEF, tmp_path / "traces"):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        events = trace["traceEvents"]
        second = next(event["ts"] for event in events if event["name"] == "ProfilerStep#3")
        for event in events:
            if event["name"] == "cudaEventSynchronize" and event["ts"] > second:
                event["name"] = "cudaEventQuery"
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    assert not list(algorithm_search.remedies(advice_on(tmp_path).job))
