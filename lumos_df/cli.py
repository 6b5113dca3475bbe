"""The command line: each command parses, calls one function, prints.

What a command needs is imported in its body, so that `lumos-df --help` answers at once.
"""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from lumos_df import __version__
from lumos_df.errors import LumosError
from lumos_df.output import Format, choose_format, write
from lumos_df.runner import parse_shard, progress
from lumos_df.units import format_count

if TYPE_CHECKING:
    from lumos_df.graph.whatif import Change
    from lumos_df.trace.ingest import IngestResult

app = typer.Typer(
    name="lumos-df",
    help="Profiler traces of training jobs, as tables: ingest them, ask with SQL, report.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

WARNINGS_SHOWN: Final = 10


Corpus = Annotated[Path, typer.Option(metavar="DIR", help="The corpus folder.")]
Form = Annotated[
    Format | None,
    typer.Option("--format", help="How to write the result; by default what the file's name ends in, else a table."),
]

Trace = Annotated[
    str | None, typer.Option(metavar="ID", help="Only the job of this trace: its trace_id, or the beginning of it.")
]
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
    list[str] | None, typer.Option(metavar="rank=N", help="Take away the long gaps in which a rank does nothing.")
]


@app.callback(invoke_without_command=True)
def options(*, version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """Profiler traces of training jobs, as tables: ingest them, ask with SQL, report."""
    if version:
        typer.echo(f"lumos-df {__version__}")
        raise typer.Exit


@app.command()
def ingest(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH", help="Trace files, folders, globs, URLs; `-` is standard input."),
    ],
    *,
    corpus: Corpus = Path("corpus"),
    rank: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Rank of the trace, over what the file says.")
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="Job of the traces; by default the name of each file's folder.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Files read at once; by default one a CPU.")
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Read only part I of N of the files, for N jobs on one corpus."),
    ] = None,
) -> None:
    """Read traces into a corpus.

    What is in already is skipped; a bad file is named and the others go in.
    """
    from lumos_df.trace.ingest import ingest as ingest_files  # noqa: PLC0415 - slow to import

    try:
        part = parse_shard(shard) if shard else (0, 1)
    except LumosError as error:
        raise typer.BadParameter(str(error), param_hint="--shard") from None
    with progress(sys.stderr) as report:
        result = ingest_files(paths, corpus, rank=rank, job=job, workers=workers, shard=part, report=report)
    _tell(result, corpus)
    if result.failed:
        raise typer.Exit(1)


@app.command()
def sql(
    query: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="The query; without it, standard input or an interactive prompt."),
    ] = None,
    *,
    corpus: Corpus = Path("corpus"),
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read the query from a file.")
    ] = None,
    form: Form = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to a file instead of standard output.")
    ] = None,
) -> None:
    """Ask a corpus in SQL.

    Several statements may be given; the rows of the last one are written.
    """
    from lumos_df import catalog, prompt  # noqa: PLC0415 - slow to import

    if query is not None and file is not None:
        raise typer.BadParameter("give a query or --file, not both")
    with catalog.connect(corpus) as connection:
        if query is None and file is None and sys.stdin.isatty():
            if output is not None:
                raise typer.BadParameter(
                    "the prompt writes to the terminal; give a query with it", param_hint="--output"
                )
            prompt.run(connection, choose_format(form, output))
            return
        text = query if query is not None else file.read_text("utf-8") if file else sys.stdin.read()
        write(connection, text, choose_format(form, output), output)


@app.command()
def replay(
    *,
    corpus: Corpus = Path("corpus"),
    trace: Trace = None,
    step: Step = None,
    scale: Scale = None,
    drop: Drop = None,
    no_wait: NoWait = None,
    form: Form = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to a file instead of standard output.")
    ] = None,
) -> None:
    """Simulate steps from durations and dependencies, and compare with the recording.

    With --scale, --drop or --no-wait: the new step beside the old.
    """
    from lumos_df import catalog  # noqa: PLC0415 - slow to import
    from lumos_df.graph import run  # noqa: PLC0415 - slow to import

    chosen = choose_format(form, output)
    changes = _switches(scale, drop, no_wait)
    if changes:
        rows = run.what_if(corpus, changes, trace, step)
        with catalog.connect(corpus) as connection:
            connection.register("_changed", rows)
            write(connection, "SELECT * FROM _changed ORDER BY path, rank, step", chosen, output)
        return
    done = run.replay(corpus, trace, step)
    with catalog.connect(corpus) as connection:
        write(connection, _of("replay_error", done, step), chosen, output)


@app.command()
def describe(
    *,
    corpus: Corpus = Path("corpus"),
    trace: Trace = None,
    job: Annotated[str | None, typer.Option(metavar="NAME", help="Only the job of this name.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=N", help="A dimension or degree as you know it: layers=40, tp=8."),
    ] = None,
    form: Form = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to a file instead of standard output.")
    ] = None,
) -> None:
    """Say what model ran and how it was spread: dimensions and degrees, each with where it is known from.

    Phase, layer, micro-batch and stage of every operator go into the table layers.
    """
    from lumos_df import catalog  # noqa: PLC0415 - slow to import
    from lumos_df.structure import describe as structure  # noqa: PLC0415 - slow to import

    facts = structure.describe(corpus, trace, job, structure.parse_overrides(change or []))
    with catalog.connect(corpus) as connection:
        connection.register("_facts", facts)
        write(connection, "FROM _facts", choose_format(form, output), output)


@app.command()
def estimate(
    *,
    corpus: Corpus = Path("corpus"),
    trace: Trace = None,
    job: Annotated[str | None, typer.Option(metavar="NAME", help="Only the job of this name.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="What becomes of the job: dp=16, layers=64, hardware=h200-sxm."
        ),
    ] = None,
    known: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=N", help="A dimension or degree of the job as it ran, over what its traces say."),
    ] = None,
    scale: Scale = None,
    drop: Drop = None,
    no_wait: NoWait = None,
    step: Step = None,
    into: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also store the new job, replayed, as traces of this corpus."),
    ] = None,
    form: Form = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to a file instead of standard output.")
    ] = None,
) -> None:
    """Estimate a job that never ran from one that did: its recorded graph, changed and run again.

    One row a rank and step, the new job beside the old; the traces need not have run with what --set names.
    """
    from lumos_df import catalog  # noqa: PLC0415 - slow to import
    from lumos_df.estimate.anchored.change import parse  # noqa: PLC0415 - slow to import
    from lumos_df.estimate.anchored.estimate import estimate as estimate_changed  # noqa: PLC0415 - slow to import
    from lumos_df.structure.describe import parse_overrides  # noqa: PLC0415 - slow to import

    chosen = choose_format(form, output)
    found = estimate_changed(
        corpus,
        parse(change or []),
        trace=trace,
        job=job,
        known=parse_overrides(known or []),
        switches=_switches(scale, drop, no_wait),
        step=step,
        into=into,
    )
    with catalog.connect(corpus) as connection:
        connection.register("_estimates", found)
        write(connection, "FROM _estimates", chosen, output)


def _switches(scale: list[str] | None, drop: list[str] | None, no_wait: list[str] | None) -> "list[Change]":
    """Return the changes that --scale, --drop and --no-wait mean."""
    from lumos_df.graph import whatif  # noqa: PLC0415 - slow to import

    changes: list[Change] = []
    for switch, read, texts in (
        ("--scale", whatif.scale, scale),
        ("--drop", whatif.drop, drop),
        ("--no-wait", whatif.no_wait, no_wait),
    ):
        try:
            changes += map(read, texts or [])
        except LumosError as error:
            raise typer.BadParameter(str(error), param_hint=switch) from None
    return changes


@app.command()
def critical_path(
    *,
    corpus: Corpus = Path("corpus"),
    trace: Trace = None,
    step: Step = None,
    form: Form = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to a file instead of standard output.")
    ] = None,
) -> None:
    """Say why each step took as long as it did: what its critical path is made of.

    The pieces are in the view critical_path, what faster operators would gain in the view gain.
    """
    from lumos_df import catalog  # noqa: PLC0415 - slow to import
    from lumos_df.graph import run  # noqa: PLC0415 - slow to import

    chosen = choose_format(form, output)
    done = run.replay(corpus, trace, step, path=True)
    with catalog.connect(corpus) as connection:
        write(connection, _of("critical_path_summary", done, step), chosen, output)


@app.command()
def export(
    *,
    what: Annotated[str, typer.Option(metavar="replay|critical-path", help="Which timeline.")] = "replay",
    corpus: Corpus = Path("corpus"),
    trace: Trace = None,
    output: Annotated[Path, typer.Option(metavar="FILE", help="The file; compressed where its name ends in .gz.")],
) -> None:
    """Write a timeline that ui.perfetto.dev opens: recorded beside replayed, or the critical path with arrows.

    It shows what `lumos-df replay` or `lumos-df critical-path` has stored.
    """
    from lumos_df import export as timelines  # noqa: PLC0415 - slow to import

    try:
        chosen = timelines.What(what)
    except ValueError:
        raise typer.BadParameter(f"'{what}': write replay or critical-path", param_hint="--what") from None
    written = timelines.export(corpus, chosen, output, trace)
    print(f"{output}: {format_count(written, 'event')}", file=sys.stderr)


def _of(view: str, trace_ids: list[str], step: int | None) -> str:
    """Return the query for a view's rows of some traces and a step."""
    chosen = ", ".join(f"'{trace_id}'" for trace_id in trace_ids)
    return f"FROM {view} WHERE trace_id IN ({chosen})" + (f" AND step = {step}" if step is not None else "")


@app.command()
def report(
    *,
    corpus: Corpus = Path("corpus"),
    view: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A view to write; may be given several times with --output."),
    ] = None,
    form: Form = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Write one file a view into a folder (CSV by default): all report views, or those named. "
            "One view may also be given a file's name, with its ending.",
        ),
    ] = None,
) -> None:
    """Say what is in a corpus.

    A summary on one screen, or any view as a table, CSV, JSON or Parquet.
    """
    from lumos_df import report as reports  # noqa: PLC0415 - slow to import

    names = view or []
    if output is not None and len(names) == 1 and output.suffix:
        reports.show(corpus, names[0], choose_format(form, output), output)
    elif output is not None:
        files = reports.export(corpus, output, names, form or Format.CSV)
        typer.echo(f"{output}: wrote {format_count(len(files), 'view')}", err=True)
    elif len(names) > 1:
        raise typer.BadParameter("name one view, or a folder for several with --output DIR", param_hint="--view")
    elif names:
        reports.show(corpus, names[0], form or Format.TABLE)
    elif form is None or form is Format.TABLE:
        from lumos_df.glance import draw  # noqa: PLC0415 - slow to import

        draw(reports.summary(corpus), sys.stdout)
    elif form is Format.JSON:
        typer.echo(reports.summary(corpus).to_json())
    else:
        raise typer.BadParameter(f"the summary is a table or json; for {form} name a view", param_hint="--format")


def main() -> None:
    """Run the command line: exit 0 done, 1 the input is bad, 2 usage; an interrupt and a closed pipe are quiet."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal that cannot show a name still gets the rest
    try:
        try:
            app(prog_name="lumos-df")
        finally:
            sys.stdout.flush()
    except LumosError as error:
        _fail(str(error))
    except BrokenPipeError:
        # The reader has left; what Python still holds must not go to the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}; check the path, its permissions and the disk's space")


def _fail(message: str) -> NoReturn:
    print(f"lumos-df: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(1)


def _tell(result: "IngestResult", corpus: Path) -> None:
    for failed in result.failed:
        print(f"lumos-df: {failed.message}", file=sys.stderr)
    warnings = [f"{done.path}: {warning}" for done in result.done for warning in done.warnings]
    for warning in warnings[:WARNINGS_SHOWN]:
        print(f"warning: {warning}", file=sys.stderr)
    if len(warnings) > WARNINGS_SHOWN:
        more = f'lumos-df sql "SELECT path, unnest(warnings) FROM traces" --corpus {corpus}'
        print(f"warning: and {len(warnings) - WARNINGS_SHOWN} more; see {more}", file=sys.stderr)
    read = {
        "file": len(result.done),
        "trace": sum(len(done.trace_ids) for done in result.done),
        "event": sum(done.events for done in result.done),
        "operator": sum(done.operators for done in result.done),
    }
    skipped = Counter(skip.reason for skip in result.skipped)
    print(
        f"{corpus}: read {', '.join(format_count(number, noun) for noun, number in read.items())}",
        *(f"skipped {format_count(number, 'file')} ({reason})" for reason, number in skipped.items()),
        *([f"{format_count(len(result.failed), 'file')} failed"] if result.failed else []),
        *([format_count(len(warnings), "warning")] if warnings else []),
        sep="; ",
    )
