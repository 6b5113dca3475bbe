"""Run what tutorial and README show, and write what it prints into them again: `python -m tools.tutorial`.

A block of `sh` or `python` is run; a block of `text` right behind it is what it prints to standard output.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = (ROOT / "docs" / "tutorial.md", ROOT / "README.md")

_BLOCK: Final = re.compile(
    r"^```(?P<language>sh|python)\n(?P<code>.*?)^```\n(?P<output>\n```text\n.*?^```\n)?", re.DOTALL | re.MULTILINE
)
_SHELL: Final = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
_COLUMNS: Final = "80"
"""What a terminal of usual width shows."""
_SHELLS_OWN: Final = re.compile(r"[|<>&;$`\\(){}\[\]*?!~'\"]")
"""What means something to a shell, outside quotes."""

_Done = subprocess.CompletedProcess[str]
Here = Callable[..., _Done]
"""Runs lumos-df with some arguments, and variables of its environment, in this process."""


class StepError(Exception):
    """A block of the page that failed: its code, and what it complained of."""


def rewritten(page: str, folder: Path, here: Here | None = None) -> str:
    """Run a page's blocks in order in `folder`, where `data` is the repository's, and return the page as it now is.

    With `here`, blocks of nothing but commands of lumos-df run in this process, where all is imported.
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
        "COLUMNS": _COLUMNS,
    }

    def in_its_shell(language: str, code: str) -> _Done:
        return subprocess.run(  # noqa: S603 - what our own page shows
            [*_SHELL[language], code], cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False
        )

    def printed_by(language: str, code: str) -> str:
        printed = ""
        if here is not None and language == "sh" and (commands := plain_commands(code)):
            runs: Iterable[_Done] = (here(*command, COLUMNS=_COLUMNS) for command in commands)
        else:
            runs = [in_its_shell(language, code)]
        for done in runs:
            if done.returncode:
                raise StepError(f"{code}{done.stderr}")
            printed += done.stdout
        return printed

    def block(shown: re.Match[str]) -> str:
        lines = printed_by(shown["language"], shown["code"]).rstrip().splitlines()
        printed = "\n".join(line.rstrip() for line in lines)
        text = f"```{shown['language']}\n{shown['code']}```\n"
        return f"{text}\n```text\n{printed}\n```\n" if shown["output"] else text

    return _BLOCK.sub(block, page)


def plain_commands(code: str) -> list[list[str]]:
    """Return the arguments of each command of a block that is nothing but commands of lumos-df; else none."""
    code = re.sub(r"""^(lumos-df [^#'"\n]*)\\\n""", r"\1", code, flags=re.MULTILINE)  # a line that goes on in the next
    unquoted = re.sub(r"""'[^']*'|"[^"$`\\]*"|#.*""", "", code)
    others = [line for line in unquoted.splitlines() if line.strip() and not line.startswith("lumos-df ")]
    if others or _SHELLS_OWN.search(unquoted):
        return []
    _, *commands = re.split(r"^lumos-df ", code, flags=re.MULTILINE)
    return [shlex.split(command, comments=True) for command in commands]


def main() -> None:
    """Write the pages again."""
    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder:
            page.write_text(rewritten(page.read_text("utf-8"), Path(folder)), "utf-8")


if __name__ == "__main__":
    main()
