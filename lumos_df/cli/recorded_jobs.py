"""The commands on jobs as they were recorded: replay, critical-path, advise, describe, diff, generate."""

from pathlib import Path
from typing import Annotated

import typer

from lumos_df.base import freed_memory
from lumos_df.base.errors import LumosError
from lumos_df.base.location import local_path
from lumos_df.base.units import format_count
from lumos_df.cli import notes
from lumos_df.cli.options import (
    DEFAULT_CORPUS,
    Address,
    Corpus,
    Drop,
    Form,
    Full,
    JobName,
    NoWait,
    Output,
    Scale,
    Step,
    Trace,
    WhereIfMany,
    Workers,
    check_cluster,
    percent,
    switches,
)
from lumos_df.corpus.output import choose_format, write, write_table

app = typer.Typer()


@app.command()
def replay(
    *,
    corpus: Corpus = DEFAULT_CORPUS,
    job: JobName = None,
    trace: Trace = None,
    step: Step = None,
    scale: Scale = None,
    drop: Drop = None,
    no_wait: NoWait = None,
    rank_classes: Annotated[
        bool,
        typer.Option("--rank-classes", help="Of ranks that do the same work in the same time, simulate one for all."),
    ] = False,
    engine: WhereIfMany = None,
    workers: Workers = None,
    address: Address = None,
    full: Full = False,
    form: Form = None,
    output: Output = None,
) -> None:
    """Simulate steps from durations and dependencies, and compare with the recording.

    With --scale, --drop or --no-wait: the new step compared with the old.
    """
    from lumos_df.corpus import catalog, limits  # noqa: PLC0415 - slow to import
    from lumos_df.graph import run  # noqa: PLC0415 - slow to import

    freed_memory.keep()
    check_cluster(engine, address)
    chosen, on_screen = choose_format(form, output), form is None and output is None
    changes = switches(scale, drop, no_wait)
    if changes and rank_classes:
        raise typer.BadParameter("not with --scale, --drop or --no-wait", param_hint="--rank-classes")
    if changes:
        rows = run.what_if(corpus, changes, trace, step, job)
        if not on_screen:
            write_table(rows, chosen, output, "FROM _rows ORDER BY path, rank, step")
            return
        from lumos_df.cli.screens.replay_screen import draw_changed  # noqa: PLC0415 - slow to import

        asked = (("--scale", scale), ("--drop", drop), ("--no-wait", no_wait))
        draw_changed(rows, [f"{switch} {text}" for switch, texts in asked for text in texts or ()], corpus, full=full)
        return
    trace_ids = run.replay(
        corpus, trace, step, job=job, by_class=rank_classes, engine=engine, workers=workers, address=address
    )
    with catalog.connect(corpus) as connection:
        if not on_screen:
            write(connection, _rows_of("replay_error", trace_ids, step), chosen, output)
            return
        from lumos_df.cli.screens.replay_screen import draw  # noqa: PLC0415 - slow to import

        notes.limits(connection, [limits.RECORDING], trace_ids)
        draw(connection, corpus, trace_ids, step, full=full)


@app.command()
def critical_path(
    *,
    corpus: Corpus = DEFAULT_CORPUS,
    job: JobName = None,
    trace: Trace = None,
    step: Step = None,
    gains: Annotated[
        bool,
        typer.Option("--gains", help="Also simulate what faster operators would gain; it is in the view gain."),
    ] = False,
    engine: WhereIfMany = None,
    workers: Workers = None,
    address: Address = None,
    full: Full = False,
    form: Form = None,
    output: Output = None,
) -> None:
    """Say why each step took as long as it did: what its critical path is made of.

    The pieces are in the view critical_path.
    """
    from lumos_df.corpus import catalog, limits  # noqa: PLC0415 - slow to import
    from lumos_df.graph import run  # noqa: PLC0415 - slow to import

    freed_memory.keep()
    check_cluster(engine, address)
    chosen = choose_format(form, output)
    trace_ids = run.replay(
        corpus, trace, step, job=job, path=True, gains=gains, engine=engine, workers=workers, address=address
    )
    with catalog.connect(corpus) as connection:
        if form is not None or output is not None:
            write(connection, _rows_of("critical_path_summary", trace_ids, step), chosen, output)
            return
        from lumos_df.cli.screens.path_screen import draw  # noqa: PLC0415 - slow to import

        notes.limits(connection, [limits.RECORDING], trace_ids)
        draw(connection, corpus, trace_ids, step, full=full)


@app.command()
def advise(
    *,
    corpus: Corpus = DEFAULT_CORPUS,
    job: JobName = None,
    trace: Trace = None,
    full: Full = False,
    form: Form = None,
    output: Output = None,
) -> None:
    """Say what to change, ranked: what each change brings, how that is known, and the command that shows it.

    Every change is made to the replayed job. What would not help is said, too. The view advice has all of it.
    """
    from lumos_df.advice.job_advice import advise as advise_jobs  # noqa: PLC0415 - slow to import
    from lumos_df.corpus import catalog  # noqa: PLC0415 - slow to import

    freed_memory.keep()
    jobs = advise_jobs(corpus, job, trace)
    if form is None and output is None:
        from lumos_df.cli.screens.advice_screen import draw  # noqa: PLC0415 - slow to import

        draw(jobs, corpus, full=full)
        return
    names = ", ".join("'" + name.replace("'", "''") + "'" for name in sorted({found.job for found in jobs}))
    with catalog.connect(corpus) as connection:
        write(connection, f"FROM advice WHERE job IN ({names})", choose_format(form, output), output)


@app.command()
def describe(
    *,
    corpus: Corpus = DEFAULT_CORPUS,
    job: JobName = None,
    trace: Trace = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=N", help="A dimension or degree as you know it: layers=40, tp=8."),
    ] = None,
    full: Full = False,
    form: Form = None,
    output: Output = None,
) -> None:
    """Say what model ran and how it was spread: dimensions and degrees, each with where it is known from.

    Phase, layer, micro-batch and stage of every operator go into the table layers.
    """
    from lumos_df.structure import describe as structure  # noqa: PLC0415 - slow to import

    chosen = choose_format(form, output)
    rows = structure.describe(corpus, trace, job, structure.parse_overrides(change or []))
    if form is not None or output is not None:
        write_table(rows, chosen, output)
        return
    from lumos_df.cli.screens.structure_screen import draw  # noqa: PLC0415 - slow to import

    draw(rows, corpus, full=full)


@app.command()
def diff(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="A job, or the id of a trace or an estimate, or its beginning; `:N` behind it means step N.",
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The same of what is compared with it.")],
    *,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="cause|layer|phase|family|operator",
            help="Only this grouping; may be given several times. By default every one.",
        ),
    ] = None,
    corpus: Corpus = DEFAULT_CORPUS,
    fail_above: Annotated[
        str | None,
        typer.Option(metavar="PCT%", help="Exit with status 1 where B takes longer than A by more than this: 3%."),
    ] = None,
    full: Full = False,
    form: Form = None,
    output: Output = None,
) -> None:
    """Say what made the difference of two steps: kernels, transfers, who was waited for, and in which layers.

    Also by phase, family and operator; each adds up to the difference. Of a job, or a trace, the step of median
    duration is compared.
    """
    from lumos_df.advice import on_demand  # noqa: PLC0415 - slow to import
    from lumos_df.corpus import diff as comparison  # noqa: PLC0415 - as above

    chosen = choose_format(form, output)
    try:
        groupings = [comparison.Grouping(text) for text in by or ()]
    except ValueError as error:
        raise typer.BadParameter(f"{error}: write cause, layer, phase, family or operator", param_hint="--by") from None
    limit = None if fail_above is None else percent(fail_above, "--fail-above")
    on_demand.prepare_views(corpus, [comparison.STEP_PIECE], notes.tell)
    rows, *steps = comparison.diff(corpus, a, b, groupings)
    if form is not None or output is not None:
        write_table(rows, chosen, output)
    else:
        from lumos_df.cli.screens.diff_screen import draw  # noqa: PLC0415 - slow to import

        draw(rows, (steps[0], steps[1]), corpus, asked=bool(groupings), full=full)
    for compared in steps:
        notes.compared(compared, corpus, layers=not groupings or comparison.Grouping.LAYER in groupings)
    before, after = (compared.step_ns for compared in steps)
    if limit is not None and 100 * (after - before) > limit * before:
        raise LumosError(
            f"{b} takes {100 * (after - before) / max(before, 1):.2f}% longer than {a}; --fail-above {limit:g}%"
        )


@app.command()
def generate(
    *,
    corpus: Corpus = DEFAULT_CORPUS,
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="The job, or a trace of it: needed where there are several.")
    ] = None,
    step: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The step; by default that of median duration.")
    ] = None,
    ranks: Annotated[str, typer.Option(metavar="0,1|all", help="The ranks.")] = "all",
    operator: Annotated[
        int | None,
        typer.Option(min=0, metavar="ID", help="Only the operator of this op_id, as one script: operators.py."),
    ] = None,
    family: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only the distinct shapes of a family, as one script: gemm.")
    ] = None,
    modules: Annotated[bool, typer.Option("--modules", help="Keep the names of modules.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also where less than half of the recorded time can be replayed.")
    ] = False,
    output: Annotated[Path, typer.Option(parser=local_path, metavar="DIR", help="The folder.")],
) -> None:
    """Write one step as a benchmark that runs with torch alone: torchrun --nproc-per-node N DIR/benchmark.py.

    It has operators, shapes and times, and no names of modules, paths or hosts. manifest.json says what is replayed,
    replaced and left out.
    """
    from lumos_df.generate import benchmark_folder, operator_script  # noqa: PLC0415 - slow to import

    if operator is not None and family is not None:
        raise typer.BadParameter("give --operator or --family, not both")
    if operator is not None or family is not None:
        if operator is not None:
            cases = operator_script.write_operator(corpus, output, operator, job, ranks)
        else:
            cases = operator_script.write_family(corpus, output, str(family), job, step, ranks)
        notes.tell(f"{output / operator_script.SCRIPT}: {format_count(cases, 'operator')}; run it with python")
        return
    written = benchmark_folder.generate(corpus, output, job=job, step=step, ranks=ranks, modules=modules, force=force)
    notes.generated(written, output)


def _rows_of(view: str, trace_ids: list[str], step: int | None) -> str:
    """Return the query for a view's rows of some traces and a step."""
    chosen = ", ".join(f"'{trace_id}'" for trace_id in trace_ids)
    return f"FROM {view} WHERE trace_id IN ({chosen})" + (f" AND step = {step}" if step is not None else "")
