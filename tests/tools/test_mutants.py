"""Faults that are put into a copy of the sources: which are caught, which are missed, and which cannot be tried."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools.mutants import MutantError, mutated, read, try_all

SOURCE = "def larger(a, b):\n    if a > b:\n        return a\n    return b\n\n\ndef unused():\n    return 1\n\n\ndef unseen():\n    return 1\n"  # noqa: E501 - a file in one string
TEST = "from package import larger\n\n\ndef test_larger():\n    assert larger(1, 2) == larger(2, 1) == 2\n"
SWAPPED = "@@ -1,3 +1,3 @@\n def larger(a, b):\n-    if a > b:\n+    if a < b:\n         return a\n"
UNSEEN = "@@ -7,2 +7,2 @@\n def unused():\n-    return 1\n+    return 2\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small tree with tests."""
    (tmp_path / "package.py").write_text(SOURCE)
    (tmp_path / "tests" / "mutants").mkdir(parents=True)
    (tmp_path / "tests" / "test_larger.py").write_text(TEST)
    # Hypothesis takes a second to load, and these tests need none of it.
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:hypothesispytest\n")
    return tmp_path


def patch(root: Path, name: str, hunk: str, head: str = "# wrong; tests: tests/test_larger.py") -> Path:
    file = root / "tests" / "mutants" / f"{name}.patch"
    file.write_text(f"{head}\n--- a/package.py\n+++ b/package.py\n{hunk}")
    return file


def test_a_fault_that_tests_notice_is_caught_and_another_missed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    patch(root, "swapped", SWAPPED)
    patch(root, "unseen", UNSEEN)
    assert try_all(root, []) == 1
    first, second, closing = capsys.readouterr().out.splitlines()
    assert first.startswith("caught swapped, ")
    assert first.endswith(" s: wrong (tests/test_larger.py::test_larger)")
    assert second.startswith("MISSED unseen, ")
    assert closing == "1 caught, 1 missed (50%; at least 90% are needed)"
    assert try_all(root, ["swapped"]) == 0
    assert (root / "package.py").read_text() == SOURCE


def test_tests_must_pass_without_a_fault(root: Path) -> None:
    patch(root, "swapped", SWAPPED)
    (root / "package.py").write_text(SOURCE.replace("return b", "return 0"))
    with pytest.raises(MutantError, match=r"without any fault, a test fails: tests/test_larger\.py::test_larger"):
        try_all(root, [])


@pytest.mark.parametrize(
    ("hunk", "head", "complaint"),
    [
        (SWAPPED.replace("a > b", "a >= b"), "# w; tests: tests", "moved: the patch does not apply: its lines stand 0"),
        ("@@ -3 +3 @@\n-    return\n+    yield\n", "# w; tests: tests", "0 times in package.py"),
        (SWAPPED, "no comment", "moved: the first line is not"),
        (SWAPPED, "# no tests", "moved: the first line is not"),
        (SWAPPED + UNSEEN, "# w; tests: tests", "moved: a mutant changes one place"),
        (SWAPPED, "# w; tests: tests/nowhere", "pytest cannot run tests/nowhere"),
    ],
)
def test_a_patch_that_cannot_be_tried_is_named(root: Path, hunk: str, head: str, complaint: str) -> None:
    patch(root, "moved", hunk, head)
    with pytest.raises(MutantError, match=complaint):
        try_all(root, [])


def test_lines_that_stand_twice_are_no_place(root: Path) -> None:
    twice = read(patch(root, "twice", "@@ -8 +8 @@\n-    return 1\n+    return 2\n"))
    with pytest.raises(MutantError, match="stand 2 times"):
        mutated(twice, root)


def test_every_fault_still_applies() -> None:
    for file in (ROOT / "tests" / "mutants").glob("*.patch"):
        mutant = read(file)
        assert mutated(mutant, ROOT)
        assert [folder for folder in mutant.tests if not (ROOT / folder).exists()] == []


def test_a_name_that_is_no_fault_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.mutants", "--only", "nothing_like_it"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 2
    assert "nothing_like_it: there is no" in done.stderr
    assert len(done.stderr.splitlines()) == 1
