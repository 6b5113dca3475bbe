"""Put small faults into a copy of the sources and see whether tests notice: `python -m tools.mutants [--only NAME]`.

A fault is a file `tests/mutants/NAME.patch`: a line `# what is wrong; tests: FOLDER ...`, then one unified diff. The
tests of these folders run against it in `build/mutants`, without any real trace. Kernels that were compiled there stay
for the next fault and the next run. Exits with 1 where fewer than 90 % are caught.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

NEEDED_SHARE: Final = 0.9
"""Share of the faults that tests must catch."""

TIMEOUT_S: Final = 900
"""Tests that take longer with a fault hang: it is caught."""

_LEFT_OUT: Final = shutil.ignore_patterns(".git", ".venv*", ".*_cache", ".hypothesis", "build", "dist", "__pycache__")
_HEAD: Final = re.compile(r"# (?P<wrong>.+); tests: (?P<tests>.+)")
_FILE: Final = re.compile(r"^\+\+\+ b/(?P<path>\S+)$", re.MULTILINE)


class MutantError(Exception):
    """A fault that cannot be tried: which, and why."""


class Ended(IntEnum):
    """How pytest ends."""

    PASSED = 0
    FAILED = 1
    INTERRUPTED = 2
    """Among others, by a module that cannot be imported."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A small fault in the sources."""

    name: str
    """Of its file, without `.patch`."""
    wrong: str
    """What is wrong, in words."""
    tests: tuple[str, ...]
    """Files and folders of the tests of its part, from the root of the tree."""
    path: str
    """The file that it changes, from the root of the tree."""
    before: str
    """Lines of that file: what the diff removes, with the lines around it."""
    after: str
    """The lines that stand there instead."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests said of a fault."""

    caught: bool
    by: str
    """The first test that failed; empty where none did."""


def read(file: Path) -> Mutant:
    """Return the mutant of a patch; raises `MutantError` where it is none."""
    if not file.is_file():
        raise MutantError(f"{file.stem}: there is no {file}")
    name, text = file.stem, file.read_text("utf-8")
    head = _HEAD.fullmatch(text.partition("\n")[0])
    if head is None:
        raise MutantError(f"{name}: the first line is not '# what is wrong; tests: FOLDER ...'")
    paths = _FILE.findall(text)
    if len(paths) != 1 or text.count("\n@@ ") != 1:
        raise MutantError(f"{name}: a mutant changes one place of one file, and this patch changes {', '.join(paths)}")
    lines = text.partition("\n@@ ")[2].splitlines(keepends=True)[1:]
    before, after = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
    return Mutant(name, head["wrong"], tuple(head["tests"].split()), paths[0], before, after)


def mutated(mutant: Mutant, tree: Path) -> str:
    """Return the source with the fault in it; raises `MutantError` where its place is not found, or found twice."""
    file = tree / mutant.path
    source = file.read_text("utf-8") if file.is_file() else ""
    places = source.count(mutant.before)
    if places != 1:
        raise MutantError(f"{mutant.name}: the patch does not apply: its lines stand {places} times in {mutant.path}")
    return source.replace(mutant.before, mutant.after)


def try_mutant(mutant: Mutant, tree: Path, number: int) -> Verdict:
    """Run the tests of a fault's part with the fault in the tree, and take it out again."""
    file = tree / mutant.path
    times, source = file.stat(), file.read_text("utf-8")
    file.write_text(mutated(mutant, tree), "utf-8")
    # Python takes a module as unchanged that has the size and the second of the compiled one.
    later = int(times.st_mtime) + 1 + number
    os.utime(file, (later, later))
    try:
        return run_tests(mutant.tests, tree)
    finally:
        file.write_text(source, "utf-8")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def run_tests(tests: tuple[str, ...], tree: Path, timeout_s: float | None = TIMEOUT_S) -> Verdict:
    """Run tests of the tree until one fails or the time is over; raises `MutantError` where pytest cannot."""
    left_out = ("LUMOS_", "PYTEST_", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    process = subprocess.Popen(  # noqa: S603 - pytest, with the folders that a patch names
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
        cwd=tree,
        env=environment | {"PYTHONPATH": str(tree), "NUMBA_CACHE_DIR": str(tree.parent / "kernels")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Verdict(caught=True, by=f"no end after {timeout_s} s")
    if process.returncode not in {*Ended}:
        raise MutantError(f"pytest cannot run {' '.join(tests)}:\n{output}")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return Verdict(process.returncode != Ended.PASSED, failed[1] if failed else "")


def copied_tree(root: Path) -> Path:
    """Return a fresh copy of the sources, always in the same place: kernels are compiled for the place of a file."""
    tree = root / "build" / "mutants" / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(root, tree, ignore=_LEFT_OUT)
    return tree


def try_all(root: Path, names: list[str]) -> int:
    """Say of each fault whether it is caught, of all faults where `names` is empty; return 0 where enough are."""
    patches = root / "tests" / "mutants"
    files = [patches / f"{name}.patch" for name in names] or sorted(patches.glob("*.patch"))
    mutants = [read(file) for file in files]
    tree = copied_tree(root)
    for mutant in mutants:
        mutated(mutant, tree)
    # All of them, with every kernel compiled, take as long as they take.
    clean = run_tests(tuple(sorted({folder for mutant in mutants for folder in mutant.tests})), tree, timeout_s=None)
    if clean.caught:
        raise MutantError(f"without any fault, a test fails: {clean.by}")
    caught = 0
    for number, mutant in enumerate(mutants):
        start = time.monotonic()
        verdict = try_mutant(mutant, tree, number)
        caught += verdict.caught
        word, by = ("caught", f" ({verdict.by})") if verdict.caught else ("MISSED", "")
        print(f"{word} {mutant.name}, {time.monotonic() - start:.0f} s: {mutant.wrong}{by}", flush=True)
    share = caught / len(mutants)
    print(f"{caught} caught, {len(mutants) - caught} missed ({share:.0%}; at least {NEEDED_SHARE:.0%} are needed)")
    return int(share < NEEDED_SHARE)


def main() -> int:
    """Try all faults, or those that are named; return 0 where enough are caught, 2 where one cannot be tried."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="faults to try: files without .patch")
    try:
        return try_all(ROOT, parser.parse_args().only)
    except MutantError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
