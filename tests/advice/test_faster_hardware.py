"""Links twice as fast halve the transfers; the rule says which links they are where the traces tell."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lumos_df.cli.app import app
from tests.advice.emulated import BRIEF, advice_on, advised, true_gain_ns
from tests.emulator import Job, simulate, write

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


def test_transfers_that_may_have_waited_for_a_missing_rank_may_gain_nothing(tmp_path: Path) -> None:
    """The missing rank sleeps, so that the others wait for it in every all-reduce: links would hardly help."""
    wrong = Job(ranks=4, steps=3, sleep_rank=2, sleep_ns=3_000_000)
    write(simulate(wrong), BRIEF, tmp_path / "traces")[2].unlink()
    (links,) = advice_on(tmp_path).of_rule("faster_hardware")
    assert links.low_ns == 0
    assert links.rests_on.endswith(", which may have waited for ranks that are not here")


def test_transfers_of_all_ranks_gain_what_they_gain(tmp_path: Path) -> None:
    (links,) = advised(tmp_path, Job(ranks=4, steps=3, sleep_rank=2, sleep_ns=3_000_000)).of_rule("faster_hardware")
    assert links.low_ns > 0
    assert "waited" not in links.rests_on


def test_where_only_money_helps_stands_what_the_step_is_made_of(tmp_path: Path) -> None:
    advised(tmp_path, JOB)
    asked = ["advise", "--corpus", str(tmp_path / "corpus")]
    said = CliRunner().invoke(app, asked, env={"COLUMNS": "100"}).stdout
    assert said.index("links between the GPUs") < said.index("its critical path is made of:")
