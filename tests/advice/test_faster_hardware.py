"""Links twice as fast halve the transfers; the rule says which links they are where the traces tell."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job

JOB = Job(ranks=2, steps=2, factors=(("AllReduce", 8.0),))


def test_faster_links_halve_the_transfers(tmp_path: Path) -> None:
    links = advised(tmp_path, JOB).first
    assert links.remedy.rule == "faster_hardware"
    assert links.remedy.what == "links between the GPUs of a node twice as fast"
    assert links.gain_ns == pytest.approx(true_gain_ns(JOB, replace(JOB, factors=(("AllReduce", 4.0),))), rel=0.1)


def test_a_group_on_two_nodes_needs_the_network_between_them(tmp_path: Path) -> None:
    # A node of the emulated machine has 8 GPUs.
    small = replace(JOB, ranks=9, layers=1, hidden=256, heads=4, vocabulary=1024, bucket_bytes=1 << 40)
    (found,) = advised(tmp_path, small).of_rule("faster_hardware")
    assert found.remedy.what == "a network between nodes twice as fast"
