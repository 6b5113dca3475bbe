"""Write the generated pages of `docs/` and views: `python -m tools.docs`; `--check` names stale ones and exits 1."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import typer

from lumos_df.cli.app import app
from lumos_df.corpus import reference
from tools import gpu_figures, python_reference, thresholds, word_views

ROOT: Final = Path(__file__).parent.parent

_WIDTH: Final = 1000
"""Wider than any usage line: pages must not depend on the terminal."""


def cli_reference(app: typer.Typer = app) -> str:
    """Return the reference of every command as Markdown. Raises `ValueError` where one, or an option, has no help."""
    return "\n".join(_cli_lines(app)) + "\n"


PAGES: Final[dict[str, Callable[[], str]]] = {
    "sql/base/_collective_kinds.sql": word_views.collective_kinds,
    "sql/base/_element_types.sql": word_views.element_types,
    "sql/base/_thresholds.sql": word_views.view_thresholds,
    "sql/sim/_gpu_figures.sql": gpu_figures.view,
    "docs/cli.md": cli_reference,
    "docs/sql.md": reference.sql_reference,
    "docs/python.md": python_reference.python_reference,
    "docs/thresholds.md": thresholds.page,
}
"""Every generated file and what makes it; each after what it is made from."""


def _cli_lines(app: typer.Typer) -> Iterator[str]:
    yield "# The command line"
    yield ""
    yield "Generated from the commands themselves (`make docs`)."
    yield ""
    yield "Results go to standard output and nothing else does; progress and notes go to standard error."
    yield (
        "Exit status: 0 done, 1 the input is bad (one line says what, where and the remedy), 2 usage, 130 stopped by "
        "Ctrl-C. However a command ends, outputs are whole or not there."
    )
    group = typer.main.get_command(app)
    parent = typer.Context(group, info_name="lumos-df", terminal_width=_WIDTH, **group.context_settings)
    yield from _command_lines(parent, "lumos-df")
    for name, command in getattr(group, "commands", {}).items():
        yield from _command_lines(
            typer.Context(command, info_name=name, parent=parent, terminal_width=_WIDTH), f"lumos-df {name}"
        )


def _command_lines(context: typer.Context, name: str) -> Iterator[str]:
    command = context.command
    if not command.help:
        raise ValueError(f"command '{name}' has no help")
    usage = command.get_usage(context).removeprefix("Usage: ")
    yield from ("", f"## {name}", "", command.help, "", f"    {usage}", "", "| | |", "|---|---|")
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or not record[1]:
            raise ValueError(f"'{parameter.name}' of command '{name}' has no help")
        # The type of an argument says nothing that its name does not.
        record = (re.sub(r" <(list\[str\]|str)>", "", record[0]), record[1])
        term, text = (" ".join(cell.split()).replace("|", "\\|") for cell in record)
        yield f"| `{term}` | {text} |"


def _is_current(page: Path, text: str) -> bool:
    return page.is_file() and page.read_text("utf-8") == text


def main() -> int:
    """Write or check the files; return 1 when one that is checked is out of date."""
    checked = "--check" in sys.argv[1:]
    stale = False
    for name, make in PAGES.items():
        text = make()
        if _is_current(ROOT / name, text):
            continue
        stale = True
        if checked:
            print(f"{name} is out of date: make docs")
        else:
            (ROOT / name).write_text(text, "utf-8")
            print(f"wrote {name}")
    return int(checked and stale)


if __name__ == "__main__":
    sys.exit(main())
