"""The commands of tutorial and README run, and print what is shown."""

import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import Run
from tools.tutorial import PAGES, StepError, plain_commands, rewritten

TUTORIAL, README = PAGES


def test_the_page_shows_what_its_commands_print(lumos: Run, tmp_path: Path) -> None:
    page = TUTORIAL.read_text("utf-8")
    assert rewritten(page, tmp_path, lumos) == page, "written anew by python -m tools.tutorial?"


def test_the_commands_of_the_readme_run(sample_corpus: Path, lumos: Run, tmp_path: Path) -> None:
    shutil.copytree(sample_corpus, tmp_path / "corpus")  # so its ingest has only to see that all is in
    page = README.read_text("utf-8")
    assert rewritten(page, tmp_path, lumos) == page, "written anew by python -m tools.tutorial?"
    assert (tmp_path / "page.html").exists()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_box_of_a_page_is_run_or_is_what_one_printed(path: Path) -> None:
    page = path.read_text("utf-8")
    boxes = re.findall(r"^```(\w+)$", page, re.MULTILINE)
    assert set(boxes) == {"sh", "python", "text"}
    pairs = zip(["text", *boxes], boxes, strict=False)
    assert not [before for before, box in pairs if box == "text" and before == "text"]
    assert page.count("\n```text\n") == page.count("\n```\n\n```text\n"), "text that no box right before it printed"


def test_the_readme_begins_with_what_the_tool_says() -> None:
    before, printed, _ = README.read_text("utf-8").partition("```text\n")
    assert printed
    assert "lumos-df advise" in before
    assert not re.search(r"^[A-Z!]", before, re.MULTILINE), "nothing but the commands comes first"


def test_what_is_no_longer_printed_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    page = (
        "# A\n\n```sh\necho now; touch made\n```\n\n```text\nthen\n```\n\nB\n\n```python\nopen('made').close()\n```\n"
    )
    assert rewritten(page, tmp_path) == page.replace("then", "now")


@pytest.mark.parametrize(
    ("code", "commands"),
    [
        ("lumos-df advise\n", [["advise"]]),
        (
            "lumos-df sql \"FROM a\n  WHERE b < 'c'\"\nlumos-df report # all\n",
            [["sql", "FROM a\n  WHERE b < 'c'"], ["report"]],
        ),
        ("lumos-df replay --scale 'family=gemm:0.5'\n", [["replay", "--scale", "family=gemm:0.5"]]),
        ("lumos-df report | head -n 1\n", []),
        ('lumos-df report >> "$SUMMARY"\n', []),
        ('lumos-df sql "FROM $TABLE"\n', []),
        (
            "lumos-df report \\\n    --html page.html\nlumos-df sql 'FROM gap'\n",
            [["report", "--html", "page.html"], ["sql", "FROM gap"]],
        ),
        ("# as ever \\\nlumos-df report\n", [["report"]]),
        ("lumos-df report '\\\n'\n", [["report", "\\\n"]]),
        ("rm -rf corpus\nlumos-df report\n", []),
        ("lumos-df report\nrm -rf corpus\n", []),
        ("lumos-df export --output *.json\n", []),
    ],
)
def test_only_what_no_shell_is_needed_for_is_run_without_one(code: str, commands: list[list[str]]) -> None:
    assert plain_commands(code) == commands


def test_a_box_that_fails_here_is_named_with_its_complaint(lumos: Run, tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"(?s)lumos-df report.*no corpus"):
        rewritten("```sh\nlumos-df report --corpus nowhere\nlumos-df --version\n```\n", tmp_path, lumos)


def test_a_box_that_fails_is_named_with_its_complaint(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"(?s)lumos-df report.*no corpus"):
        rewritten("```sh\nlumos-df report --corpus nowhere | head -n 1\n```\n", tmp_path)
