"""The command line: each command parses, calls one function, prints.

What a command needs is imported in its body, so that `lumos-df --help` answers at once.
"""

import sys
from copy import copy
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from lumos_df import __version__
from lumos_df.advice import on_demand
from lumos_df.base import freed_memory
from lumos_df.base.location import local_path
from lumos_df.base.runner import Engine, progress
from lumos_df.base.units import format_bytes, format_count
from lumos_df.cli import estimates, measurements, notes, recorded_jobs
from lumos_df.cli.options import (
    DEFAULT_CORPUS,
    Address,
    Corpus,
    Drop,
    Form,
    JobName,
    NoWait,
    Output,
    Scale,
    Trace,
    Where,
    Workers,
    check_cluster,
    part_of,
    store_corpora,
    switches,
)
from lumos_df.corpus.output import Format, choose_format, write

app = typer.Typer(
    name="lumos-df",
    help="Profiler traces of training jobs, as tables: ingest them, ask with SQL, report.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Profiler traces of training jobs, as tables: ingest them, ask with SQL, report."""
    context.call_on_close(partial(store_corpora, context.invoked_subcommand))
    if version:
        typer.echo(f"lumos-df {__version__}")
        raise typer.Exit


@app.command()
def ingest(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Trace files, folders, globs, URLs; `-` is standard input."),
    ],
    *,
    corpus: Corpus = DEFAULT_CORPUS,
    rank: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Rank of the trace, over what the file says.")
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="Job of the traces; by default the name of each file's folder.")
    ] = None,
    step_from: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Ranges that are steps, by name, where no profiler marks them: 'Iteration *'."
        ),
    ] = None,
    rank_from: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|path:REGEX",
            help="Ranges whose name says the rank of their process: 'rank *'; or the rank in a file's path: "
            "'path:gpu([0-9]+)'.",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Files read at once; by default one a CPU.")
    ] = None,
    engine: Where = Engine.PROCESSES,
    address: Address = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Read only part I of N of the files, for N jobs on one corpus."),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Read at most N files of each job, spread evenly over its ranks."),
    ] = None,
) -> None:
    """Read traces into a corpus.

    What is in already is skipped. A bad file is named, and the rest go in.
    """
    from lumos_df.trace.ingest import ingest as ingest_files  # noqa: PLC0415 - slow to import

    freed_memory.keep()
    check_cluster(engine, address)
    with progress(sys.stderr) as report:
        result = ingest_files(
            paths,
            corpus,
            rank=rank,
            job=job,
            step_from=step_from,
            rank_from=rank_from,
            workers=workers,
            engine=engine,
            address=address,
            shard=part_of(shard),
            sample=sample,
            report=report,
        )
    notes.ingested(result, corpus)
    if result.failed:
        raise typer.Exit(1)


@app.command()
def sql(
    query: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="The query; without it, standard input or an interactive prompt."),
    ] = None,
    *,
    corpus: Corpus = DEFAULT_CORPUS,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", parser=local_path, metavar="FILE", help="Read the query from a file.")
    ] = None,
    form: Form = None,
    output: Output = None,
) -> None:
    """Ask a corpus in SQL.

    Several statements may be given; the rows of the last one are written.
    """
    from lumos_df.corpus import catalog  # noqa: PLC0415 - slow to import

    if query is not None and file is not None:
        raise typer.BadParameter("give a query or --file, not both")
    at_prompt = query is None and file is None and sys.stdin.isatty()
    if at_prompt or (query is not None and query.startswith(".")):
        from lumos_df.cli import prompt  # noqa: PLC0415 - slow to import

        if at_prompt and output is not None:
            raise typer.BadParameter("the prompt writes to the terminal; give a query with it", param_hint="--output")
        with catalog.connect(corpus) as connection:

            def prepare(text: str) -> None:
                on_demand.prepare_query(corpus, text, notes.tell)
                notes.limits(connection, on_demand.words(text), on_screen=form is None)

            if query is None:
                prompt.run(connection, choose_format(form, output), prepare)
            else:
                prompt.command(connection, query)
        return
    text = query if query is not None else file.read_text("utf-8") if file else sys.stdin.read()
    on_demand.prepare_query(corpus, text, notes.tell)
    # What was found just now may be the first of its table.
    with catalog.connect(corpus) as connection:
        notes.limits(connection, on_demand.words(text), on_screen=form is None and output is None)
        write(connection, text, choose_format(form, output), output)


@app.command()
def export(
    *,
    what: Annotated[
        str, typer.Option(metavar="perfetto|replay|critical-path|chakra", help="Which timeline, or execution traces.")
    ] = "replay",
    corpus: Corpus = DEFAULT_CORPUS,
    job: JobName = None,
    trace: Trace = None,
    scale: Scale = None,
    drop: Drop = None,
    no_wait: NoWait = None,
    output: Annotated[
        Path,
        typer.Option(
            parser=local_path,
            metavar="FILE",
            help="The file; compressed where its name ends in .gz. For chakra what comes before .RANK.et.",
        ),
    ],
) -> None:
    """Write a job for other tools: one timeline of all ranks for ui.perfetto.dev, or a Chakra execution trace a rank.

    perfetto: as recorded or estimated; with --scale, --drop or --no-wait also as changed. replay: also the replay.
    critical-path: also that path, with arrows. chakra: nodes with durations and dependencies. All but perfetto show
    what `lumos-df replay` or `lumos-df critical-path` has stored.
    """
    from lumos_df.export import ExportKind  # noqa: PLC0415 - a command's own

    try:
        chosen = ExportKind(what)
    except ValueError:
        raise typer.BadParameter(f"'{what}': write {', '.join(ExportKind)}", param_hint="--what") from None
    changes = switches(scale, drop, no_wait)
    if changes and chosen is not ExportKind.PERFETTO:
        raise typer.BadParameter("only perfetto shows a changed job", param_hint="--scale, --drop, --no-wait")
    if chosen is ExportKind.CHAKRA:
        from lumos_df.export import chakra  # noqa: PLC0415 - slow to import

        files, nodes = chakra.export(corpus, output, trace, job)
        print(f"{files[0]}: {format_count(len(files), 'file')}, {format_count(nodes, 'node')}", file=sys.stderr)
        return
    from lumos_df.export import timeline  # noqa: PLC0415 - slow to import

    written = timeline.export(corpus, chosen, output, trace, changes, job)
    print(f"{output}: {format_count(written, 'event')}; open it in ui.perfetto.dev", file=sys.stderr)


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def capture(
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND...", help="What starts the training: -- python train.py --its-options."),
    ],
    *,
    output: Annotated[
        Path, typer.Option(parser=local_path, metavar="DIR", help="Folder of the files, one a rank.")
    ] = Path("traces"),
    warmup: Annotated[int, typer.Option(min=0, metavar="N", help="Steps that pass before anything is measured.")] = 5,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Steps that are recorded.")] = 3,
    unprofiled: Annotated[
        int, typer.Option(min=0, metavar="N", help="Steps timed without the profiler, before and again after.")
    ] = 5,
    stacks: Annotated[bool, typer.Option("--stacks", help="Record every Python call; slows the host down.")] = False,
    execution_trace: Annotated[
        bool,
        typer.Option("--execution-trace", help="Also write what every operator was called with, rank<r>.et.json.gz."),
    ] = False,
    fake_world: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Run one rank of N, with collectives that do nothing; see --rank."),
    ] = None,
    rank: Annotated[int | None, typer.Option(min=0, metavar="R", help="The rank of --fake-world to run.")] = None,
) -> None:
    """Run a training command and record a few of its steps, without a change to its script.

    Steps are those of its first optimizer. Its exit status is passed on.
    """
    from lumos_df.capture import command as capturing  # noqa: PLC0415 - a command's own
    from lumos_df.capture.capture_settings import CaptureSettings  # noqa: PLC0415 - as above

    settings = CaptureSettings(str(output), warmup, steps, unprofiled, stacks, execution_trace, fake_world or 0)
    captured = capturing.capture(command, settings, rank)
    capturing.tell(captured)
    raise typer.Exit(captured.status)


@app.command()
def report(
    *,
    corpus: Corpus = DEFAULT_CORPUS,
    view: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A view to write; may be given several times with --output."),
    ] = None,
    form: Form = None,
    output: Annotated[
        Path | None,
        typer.Option(
            parser=local_path,
            metavar="PATH",
            help="Write one file a view into a folder (CSV by default): all report views, or those named. "
            "One view may also be given a file's name, with its ending.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            parser=local_path,
            metavar="FILE",
            help="Write one page for a browser that shows it all; it needs no network.",
        ),
    ] = None,
    plans: Annotated[
        Path | None,
        typer.Option(
            parser=local_path,
            metavar="DIR",
            help="With --html: also the plans that sweep --output DIR has stored, ranked.",
        ),
    ] = None,
    engine: Where = Engine.SERIAL,
    workers: Workers = None,
    address: Address = None,
) -> None:
    """Say what is in a corpus.

    A summary on one screen, any view as a table, CSV, JSON or Parquet, or one page for a browser.
    """
    freed_memory.keep()
    from lumos_df.corpus import catalog  # noqa: PLC0415 - slow to import
    from lumos_df.corpus import report as reports  # noqa: PLC0415 - as above

    names = view or []
    check_cluster(engine, address)
    on_screen = html is None and output is None
    if plans is not None and html is None:
        raise typer.BadParameter("the plans stand on the page; give --html FILE, too", param_hint="--plans")
    if html is not None and (names or form is not None or output is not None):
        raise typer.BadParameter("the page is whole; leave out --view, --format and --output", param_hint="--html")
    if on_screen and len(names) > 1:
        raise typer.BadParameter("name one view, or a folder for several with --output DIR", param_hint="--view")
    if on_screen and not names and form not in {None, Format.TABLE, Format.JSON}:
        raise typer.BadParameter(f"the summary is a table or json; for {form} name a view", param_hint="--format")
    if html is not None:
        on_demand.prepare_page(corpus, notes.tell)
        from lumos_df.page.write import write as write_page  # noqa: PLC0415 - slow to import

        write_page(corpus, html, plans)
        typer.echo(f"{html}: {format_bytes(html.stat().st_size)}; open it in a browser", err=True)
        return
    prepare = partial(on_demand.prepare_views, corpus, names or reports.report_views(), notes.tell)
    # The summary says them itself.
    told = names or (() if on_screen else reports.report_views())
    tell = partial(notes.limits, names=told, on_screen=on_screen and form is None)
    if output is not None and not (len(names) == 1 and output.suffix):
        files = reports.export(
            corpus,
            output,
            names,
            form or Format.CSV,
            engine=engine,
            workers=workers,
            address=address,
            prepare=prepare,
            before=tell,
        )
        typer.echo(f"{output}: wrote {format_count(len(files), 'view')}", err=True)
        return
    prepare()
    with catalog.connect(corpus) as connection:
        tell(connection)
    if output is not None:
        reports.show(corpus, names[0], choose_format(form, output), output)
    elif names:
        reports.show(corpus, names[0], form)
    elif form is Format.JSON:
        typer.echo(reports.summary(corpus).to_json())
    else:
        _draw_summary(corpus)


def _draw_summary(corpus: Path) -> None:
    """Print what a corpus holds on one screen; exit 1 where that is nothing."""
    from lumos_df.cli.screens.summary_screen import draw  # noqa: PLC0415 - slow to import
    from lumos_df.corpus.report import summary  # noqa: PLC0415 - as above

    found = summary(corpus)
    draw(found, sys.stdout)
    if not found.jobs:
        raise typer.Exit(1)


app.add_typer(recorded_jobs.app)
app.add_typer(estimates.app)
app.add_typer(measurements.app)


def command_line(words: list[str]) -> typer.Typer:
    """Return the command line with the command alone that the words name: of each one typer reads all options.

    Of other words all of it, which says what is wrong with them.
    """
    parts = [app, *(group.typer_instance for group in app.registered_groups if group.typer_instance)]
    commands = [command for part in parts for command in part.registered_commands]
    named = [command for command in commands if command.callback and [command.callback.__name__] == words]
    if not named:
        return app
    alone = copy(app)
    alone.registered_commands, alone.registered_groups = named, []
    return alone
