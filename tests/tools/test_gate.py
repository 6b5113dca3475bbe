"""The workflow of the documentation: it passes a change that is no slower, fails one that is, and reports on both."""

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run
from tests.emulator import Job, Profiler, simulate, write
from tools.tutorial import StepError, rewritten

PAGE = ROOT / "docs" / "continuous_integration.md"
QUICK = Job(ranks=2, steps=3)
SLEEPY = Job(ranks=2, steps=3, sleep_rank=1, sleep_ns=2_000_000)


def commands() -> list[str]:
    """Return the commands of each step of the workflow."""
    (workflow,) = re.findall(r"^```yaml\n(.*?)^```\n", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [
        "".join(f"{line.strip()}\n" for line in lines.splitlines())
        for lines in re.findall(r"^ +run: (?:\|\n)?((?:.+\n)+)", workflow, re.MULTILINE)
    ]


def gated(before: Job, after: Job, folder: Path, lumos: Run) -> str:
    """Run the workflow on two jobs that are recorded already, and return its summary."""
    record, *steps = commands()
    places = re.findall(r"lumos-df capture --output \.\./(\S+)", record)
    assert len(places) == 2
    for job, place in zip((before, after), places, strict=True):
        write(simulate(job), Profiler(stacks=False, memory=False), folder / place)
    lines = "".join(steps).replace("$GITHUB_STEP_SUMMARY", f"{folder}/summary").splitlines()
    rewritten("\n".join(f"```sh\n{line}\n```\n" for line in lines), folder, lumos)
    return (folder / "summary").read_text("utf-8")


def test_a_quicker_job_passes_and_is_reported(lumos: Run, tmp_path: Path) -> None:
    summary = gated(SLEEPY, QUICK, tmp_path, lumos)
    assert summary.startswith("```\nafter, ")
    assert re.search(r"^step \d.* -> \d", summary, re.MULTILINE)
    assert summary.endswith("```\n")
    assert (tmp_path / "page.html").exists()
    assert (tmp_path / "advice.json").exists()


def test_a_slower_job_fails_behind_its_report(lumos: Run, tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"(?s)--fail-above 3%\n.*after takes \d+\.\d\d% longer than before"):
        gated(QUICK, SLEEPY, tmp_path, lumos)
    assert "rank 1 is waited for" in (tmp_path / "summary").read_text("utf-8")
