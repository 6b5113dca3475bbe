"""The command of an advice, run as it stands, shows the advice's figure.

Those that ask `advice_evidence` are held by every test of a rule.
"""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.job_advice import advise
from lumos_df.advice.links import LinkKind
from lumos_df.advice.ranked_advice import Advice
from lumos_df.advice.rules import faster_hardware
from lumos_df.base.units import format_ns
from lumos_df.cli.app import app
from lumos_df.cli.screens.terminal import change_ns
from lumos_df.trace.ingest import ingest
from tests.advice.emulated import BRIEF, FIGURE
from tests.emulator import Job, Profiler, simulate, write

SLEEPY = Job(ranks=4, steps=3, batch=8, sleep_rank=2, sleep_ns=20_000_000)
SILENT = Job(ranks=1, steps=2, layers=1, batch=1, silence_ns=100_000_000)
STALLED = Job(ranks=2, steps=3, batch=8, loading_ns=8_000_000)
BUCKETS = Job(ranks=2, steps=3, batch=1, captured="layer", bucket_bytes=1)
LINKS = Job(ranks=2, steps=2, factors=(("AllReduce", 8.0),))


def said(folder: Path, job: Job, command: str, profiler: Profiler = BRIEF) -> Advice:
    """Return the first advice on an emulated job that shows a command."""
    write(simulate(job), profiler, folder / "traces")
    ingest([folder / "traces"], folder / "corpus", workers=1)
    (found,) = advise(folder / "corpus")
    return next(
        advice for place, advice in enumerate(found.advice, 1) if advice.remedy.command("traces", place) == command
    )


def screen(folder: Path, command: str) -> str:
    """Return what a command shows, as a person types it."""
    done = CliRunner().invoke(app, [*shlex.split(command), "--corpus", str(folder / "corpus")], env={"COLUMNS": "100"})
    assert done.exit_code == 0, done.output
    return done.stdout


def times(text: str) -> set[str]:
    """Return the times of a table of numbers of ns, as a person writes them."""
    return {format_ns(int(number)) for number in re.findall(r"(?<=[│ ])\d+(?=[│ ])", text)}


@pytest.mark.parametrize(
    ("job", "profiler", "rule", "command"),
    [
        (SLEEPY, replace(BRIEF, stacks=True), "late_rank", "sql \"FROM waited_for WHERE job = 'traces'\""),
        (STALLED, BRIEF, "stall", "sql \"FROM stall WHERE job = 'traces'\""),
        (BUCKETS, BRIEF, "gradient_buckets", "sql \"FROM advice_evidence WHERE job = 'traces' AND place = 1\""),
    ],
)
def test_a_table_has_the_figure(tmp_path: Path, job: Job, profiler: Profiler, rule: str, command: str) -> None:
    remedy = said(tmp_path, job, command, profiler).remedy
    assert remedy.rule == rule
    assert FIGURE.findall(remedy.what)[0] in times(screen(tmp_path, command))


@pytest.mark.parametrize(
    ("job", "rule", "command"),
    [
        (SLEEPY, "late_rank", "replay --job traces --no-wait rank=2"),
        (LINKS, "faster_hardware", "replay --job traces --scale family=communication:0.5"),
        (SILENT, "faster_hardware", "replay --job traces --scale kind=gpu:0.5"),
        (LINKS, "faster_hardware", "replay --job traces --scale kind=host:0.5"),
    ],
)
def test_a_replay_has_the_gain(tmp_path: Path, job: Job, rule: str, command: str) -> None:
    advice = said(tmp_path, job, command)
    assert advice.remedy.rule == rule
    assert f"({change_ns(-advice.gain_ns)}, " in screen(tmp_path, command)


def test_a_command_shows_one_job_of_several(tmp_path: Path) -> None:
    for name, job in (("slow", SLEEPY), ("it's $5 !", STALLED)):
        write(simulate(job), BRIEF, tmp_path / name)
    ingest([tmp_path / "slow", tmp_path / "it's $5 !"], tmp_path / "corpus", workers=1)
    for found in advise(tmp_path / "corpus"):
        for place, advice in enumerate(found.advice, 1):
            text = screen(tmp_path, advice.remedy.command(found.job, place))
            assert found.job in text
            assert ({"slow", "it's $5 !"} - {found.job}).pop() not in text


def test_a_command_shows_one_run_of_several_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "twice").mkdir()
    for name, job in (("quick", replace(STALLED, ranks=1)), ("slow", replace(SILENT, steps=5))):
        (path,) = write(simulate(job), BRIEF, tmp_path / name)
        path.rename(tmp_path / "twice" / f"{name}_{path.name}")
    ingest([tmp_path / "twice"], tmp_path / "corpus", workers=1)
    runs = advise(tmp_path / "corpus")
    assert [run.job for run in runs] == ["twice"] * 2
    for run in runs:
        (other,) = (other.trace_id for other in runs if other is not run)
        for place in range(1, len(run.advice) + 1):
            command = run.command(place)
            text = screen(tmp_path, f"{command} --format csv")
            assert run.trace_id in command + text
            assert other not in text
    # Both replays are exact, and their mean over rows of advice is the mean of no step.
    assert not any("careful" in line for line in screen(tmp_path, "report").splitlines())


def test_what_a_switch_cannot_tell_apart_is_shown_by_its_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_both(job: AdvisedJob) -> NDArray[np.object_]:
        return np.where(np.arange(len(job.waits.row)) % 3 == 0, LinkKind.BETWEEN, LinkKind.INSIDE)

    monkeypatch.setattr(faster_hardware, "links", of_both)
    command = "sql \"FROM advice_evidence WHERE job = 'traces' AND place = 1\""
    remedy = said(tmp_path, LINKS, command).remedy
    (kernels,) = re.findall(r"transfers of (\d+) communication kernels", remedy.rests_on)
    assert f" {kernels} │" in screen(tmp_path, command)
