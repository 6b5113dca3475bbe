"""Options that several commands have, and what they mean."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lumos_df.base.errors import CorpusError, LumosError
from lumos_df.base.location import local_path
from lumos_df.base.runner import Engine, parse_shard
from lumos_df.corpus.object_store import as_named, stored
from lumos_df.corpus.output import Format

if TYPE_CHECKING:
    from lumos_df.graph.switches import Change

DEFAULT_CORPUS: Final = Path("corpus")
"""Where a corpus is unless a command is told."""

_READ: Final = frozenset({"calibrate", "diff", "export", "generate", "report", "sql"})
"""Commands that add to a corpus only what they compute by the way."""
_on_stores: Final = ExitStack()
"""Corpora that the command was given by their URLs."""


def corpus_folder(place: str) -> Path:
    """Return the folder of a corpus, of a URL that of its copy; what the command adds to it is stored after it."""
    return _on_stores.enter_context(stored(place))


def store_corpora(command: str | None) -> None:
    """Store what the command of that name has added to corpora that it was given by their URLs.

    Raises `CorpusError` where the store does not take it. A command that only reads has answered: it says so.
    """
    try:
        _on_stores.close()
    except CorpusError as error:
        if command not in _READ:
            raise
        typer.echo(as_named(f"warning: what was computed for the answer stays on this machine: {error}"), err=True)


Corpus = Annotated[Path, typer.Option(parser=corpus_folder, metavar="DIR|URL", help="The corpus.")]
Form = Annotated[
    Format | None,
    typer.Option("--format", help="How to write the result; by default what the file's name ends in, else a table."),
]
Output = Annotated[
    Path | None, typer.Option(parser=local_path, metavar="FILE", help="Write to a file instead of standard output.")
]
Full = Annotated[bool, typer.Option("--full", help="Every row as text, not one screen.")]

Trace = Annotated[
    str | None, typer.Option(metavar="ID", help="Only the job of this trace: its trace_id, or the beginning of it.")
]
JobName = Annotated[str | None, typer.Option("--job", metavar="NAME", help="Only the job of this name.")]
Step = Annotated[int | None, typer.Option(min=0, metavar="N", help="Only step N.")]
Scale = Annotated[
    list[str] | None,
    typer.Option(metavar="WHAT:FACTOR", help="Multiply a time: family=gemm:0.5, name~flash.*:0.8, kind=host:0.7."),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(metavar="WHAT", help="Remove operators and what they launched: name~aten::dropout."),
]
NoWait = Annotated[
    list[str] | None,
    typer.Option(metavar="rank=N", help="Shorten a rank's silences to what other ranks have before the same row."),
]

Where = Annotated[Engine, typer.Option("--engine", help="Where to run: here, in processes, or on a Ray cluster.")]
WhereIfMany = Annotated[
    Engine | None,
    typer.Option("--engine", help="Where to run: here, in processes, or on a Ray cluster; by default what fits."),
]
Workers = Annotated[int | None, typer.Option(min=1, metavar="N", help="Processes at once; by default one a CPU.")]
Address = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="With --engine ray: the cluster to join; else one starts here."),
]


def check_cluster(engine: Engine | None, address: str | None) -> None:
    """Refuse an --address that --engine has no use for."""
    if address is not None and engine is not Engine.RAY:
        raise typer.BadParameter("joins a Ray cluster; give --engine ray", param_hint="--address")


def switches(scale: list[str] | None, drop: list[str] | None, no_wait: list[str] | None) -> "list[Change]":
    """Return the changes that --scale, --drop and --no-wait mean."""
    from lumos_df.graph import switches  # noqa: PLC0415 - slow to import

    changes: list[Change] = []
    for switch, read, texts in (
        ("--scale", switches.scale, scale),
        ("--drop", switches.drop, drop),
        ("--no-wait", switches.no_wait, no_wait),
    ):
        try:
            changes += map(read, texts or [])
        except LumosError as error:
            raise typer.BadParameter(str(error), param_hint=switch) from None
    return changes


def part_of(shard: str | None) -> tuple[int, int]:
    """Return the part and the number of parts that --shard means."""
    try:
        return parse_shard(shard) if shard else (0, 1)
    except LumosError as error:
        raise typer.BadParameter(str(error), param_hint="--shard") from None


def percent(text: str, option: str) -> float:
    """Return the number of `3%` or `3`, percent; `option` is named where it is none."""
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise typer.BadParameter(f"'{text}': write a percentage of at least 0, such as 3%", param_hint=option)
    return value
