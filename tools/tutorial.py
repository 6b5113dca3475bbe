"""Run what tutorial and README show, and write what it prints into them again: `python -m tools.tutorial`.

A block of `sh` or `python` is run; a block of `text` right behind it is what it prints to standard output.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = (ROOT / "docs" / "tutorial.md", ROOT / "README.md")

_BLOCK: Final = re.compile(
    r"^```(?P<language>sh|python)\n(?P<code>.*?)^```\n(?P<output>\n```text\n.*?^```\n)?", re.DOTALL | re.MULTILINE
)
_SHELL: Final = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}


class StepError(Exception):
    """A block of the page that failed: its code, and what it complained of."""


def rewritten(page: str, folder: Path) -> str:
    """Run a page's blocks in order in `folder`, where `data` is the repository's, and return the page as it now is.

    Raises `StepError` for the first block that ends with another status than 0.
    """
    (folder / "data").symlink_to(ROOT / "data")
    programs = folder / ".bin"
    programs.mkdir()
    command = programs / "lumos-df"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lumos_df "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONIOENCODING": "utf-8",
        "COLUMNS": "80",  # what a terminal of usual width shows
    }

    def block(shown: re.Match[str]) -> str:
        done = subprocess.run(  # noqa: S603 - what our own page shows
            [*_SHELL[shown["language"]], shown["code"]],
            cwd=folder,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode:
            raise StepError(f"{shown['code']}{done.stderr}")
        printed = "\n".join(line.rstrip() for line in done.stdout.rstrip().splitlines())
        text = f"```{shown['language']}\n{shown['code']}```\n"
        return f"{text}\n```text\n{printed}\n```\n" if shown["output"] else text

    return _BLOCK.sub(block, page)


def main() -> None:
    """Write the pages again."""
    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            page.write_text(rewritten(page.read_text("utf-8"), Path(folder)), "utf-8")


if __name__ == "__main__":
    main()
