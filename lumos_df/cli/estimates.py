"""The commands about jobs that never ran: estimate, sweep, and the fits and scores behind them."""

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lumos_df.base.location import local_path
from lumos_df.base.runner import Engine, Report, progress
from lumos_df.base.units import format_bytes
from lumos_df.cli import notes
from lumos_df.cli.options import (
    DEFAULT_CORPUS,
    Address,
    Drop,
    Form,
    Full,
    NoWait,
    Output,
    Scale,
    Step,
    Trace,
    Where,
    Workers,
    check_cluster,
    corpus_folder,
    part_of,
    switches,
)
from lumos_df.corpus.output import Format, choose_format, write_json, write_table
from lumos_df.schema.rankings import RankBy

if TYPE_CHECKING:
    import polars as pl

    from lumos_df.estimate.grid import Grid
    from lumos_df.estimate.search import Found


app = typer.Typer()

_SHOWN: Final = 10
"""The fastest plans that a screen shows."""
_COMPARED: Final = 500
"""The fastest plans among which those are counted that no estimate tells apart; a page shows them, and the front."""


@app.command()
def estimate(
    *,
    model: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="The model: a name, our JSON, or a config.json.")
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="The GPU and its links: a name, or a TOML file.")
    ] = None,
    plan: Annotated[
        str | None, typer.Option(metavar="PLAN", help="How the job is spread: 'tp=8,pp=4,dp=8,batch=1536'.")
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(
            parser=corpus_folder,
            metavar="DIR|URL",
            help="With --model: also store it there. Without: the corpus of the recorded job.",
        ),
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="The job of the corpus that it is an estimate of, or changes.")
    ] = None,
    trace: Trace = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="What becomes of a recorded job: dp=16, layers=64, pp=4."),
    ] = None,
    known: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A dimension, degree or the GPU (hardware=NAME|FILE) of the recorded job, over what its traces say.",
        ),
    ] = None,
    scale: Scale = None,
    drop: Drop = None,
    no_wait: NoWait = None,
    keep_stalls: Annotated[
        bool, typer.Option("--keep-stalls", help="Keep what once took far longer than ever else (the view `stall`).")
    ] = False,
    step: Step = None,
    full: Full = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also estimate what is mostly guessed, and jobs whose replay is far off.")
    ] = False,
    into: Annotated[
        Path | None,
        typer.Option(
            parser=corpus_folder,
            metavar="DIR|URL",
            help="Also store the changed job, replayed, as traces of this corpus.",
        ),
    ] = None,
    form: Form = None,
    output: Output = None,
) -> None:
    """Estimate a training job that never ran: time, breakdown, memory.

    From figures alone, with --model, --hardware and --plan; or from a job that did run: its recorded graph, changed
    with --set and run again: one row a rank and step, old and new. docs/estimates.md and docs/whatif.md say how.
    """
    figures = (model, hardware, plan)
    of_recorded_job = (trace, change, known, scale, drop, no_wait, keep_stalls, step, into, force)
    if any(figure is not None for figure in figures):
        if None in figures:
            raise typer.BadParameter("give all of --model, --hardware and --plan; or --corpus and --set alone")
        if any(of_recorded_job):
            raise typer.BadParameter("--set and what goes with it change a recorded job; leave out --model")
        _estimate_plan(str(model), str(hardware), str(plan), corpus, job, form, output)
        return
    if corpus is None and not any((*of_recorded_job, job)):
        raise typer.BadParameter(
            "say what to estimate: --model, --hardware and --plan; or --corpus DIR, and --set NAME=VALUE for a change"
        )
    from lumos_df.whatif.estimate import estimate as estimate_changed  # noqa: PLC0415 - slow to import
    from lumos_df.whatif.job.settings import parse, parse_known  # noqa: PLC0415 - slow to import

    chosen = choose_format(form, output)
    facts, gpu = parse_known(known or [])
    refusals: list[str] = []
    rows = estimate_changed(
        corpus or DEFAULT_CORPUS,
        replace(parse(change or []), keep_stalls=keep_stalls),
        trace=trace,
        job=job,
        known=facts,
        ran_on=gpu,
        switches=switches(scale, drop, no_wait),
        step=step,
        into=into,
        force=force,
        tell=refusals.append,
    )
    if chosen is not None:
        write_table(rows, chosen, output)
        _tell_refusals(refusals)
        return
    from lumos_df.cli.screens.estimate_screen import draw_changed  # noqa: PLC0415 - slow to import

    asked = (("--set", change), ("--scale", scale), ("--drop", drop), ("--no-wait", no_wait))
    said = [(option, text) for option, texts in asked for text in texts or ()]
    which = [(option, value) for option, value in (("--job", job), ("--trace", trace)) if value]
    more = [*said, *(("--known", text) for text in known or ())]
    words = [word for option in more for word in option] + ["--keep-stalls"] * keep_stalls
    words += (["--step", str(step)] if step is not None else []) + ["--force"] * force
    draw_changed(
        rows,
        [f"{option} {text}" for option, text in said],
        corpus or DEFAULT_CORPUS,
        shlex.join(word for option in which for word in option),
        shlex.join(words),
        some=bool(refusals),
        full=full,
    )
    _tell_refusals(refusals)


def _tell_refusals(refusals: list[str]) -> None:
    """Say why some of several jobs cannot change so; exit 1 where there is one."""
    for refusal in refusals:
        notes.tell(f"lumos-df: {refusal}")
    if refusals:
        raise typer.Exit(1)


def _estimate_plan(
    model: str, hardware: str, plan: str, corpus: Path | None, job: str | None, form: Form, output: Path | None
) -> None:
    from lumos_df.estimate.configuration import estimate as estimate_job  # noqa: PLC0415 - slow to import

    if job is not None and corpus is None:
        raise typer.BadParameter("names a job of a corpus; give --corpus", param_hint="--job")
    chosen = choose_format(form, output)
    estimated = estimate_job(model, hardware, plan)
    stored = None
    if corpus is not None:
        from lumos_df.estimate import store  # noqa: PLC0415 - slow to import

        stored = store.write(corpus, estimated, job)
        notes.tell(f"{corpus}: stored as {stored}")
    if chosen is None:
        from lumos_df.cli.screens.estimate_screen import draw_held, draw_plan  # noqa: PLC0415 - slow to import

        draw_plan(estimated, model, hardware)
        if corpus is not None and stored is not None and job is not None:
            draw_held(corpus, stored)
    elif chosen is Format.JSON:
        write_json(estimated.to_dict(), output)
    else:
        write_table(estimated.by_name() if chosen is Format.TABLE else estimated.row(), chosen, output)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What `sweep` is to look at, as its options say it."""

    grid: Path | None
    models: list[str]
    hardware: list[str]
    plans: list[str]
    gpus: int | None
    batch: int | None
    corpus: Path | None
    job: str | None

    def check(self) -> None:
        """Refuse options that do not go together."""
        one_of = len(self.plans) > 1 or self.grid is not None or self.corpus is not None
        if (self.gpus is None) != (self.batch is None) or (self.gpus is not None and one_of):
            raise typer.BadParameter(
                "--gpus N and --batch B go together, with --model and --hardware, no grid and at most one --plan"
            )
        named = bool(self.models and self.hardware)
        if self.grid is not None and (self.models or self.hardware or self.plans):
            raise typer.BadParameter("give a grid file, or --model, --hardware and --plan")
        if self.grid is None and not (self.plans and (self.corpus or named)) and not (self.gpus and named):
            raise typer.BadParameter("give a grid file, or all of --model, --hardware and --plan (or --gpus, --batch)")

    def one_plan(self) -> str:
        """Return the command that estimates one plan of the grid; empty where model and GPU are not one each."""
        if self.grid is not None or self.corpus is not None or len(self.models) != 1 or len(self.hardware) != 1:
            return ""
        return f"estimate --model {self.models[0]} --hardware {self.hardware[0]}"

    def axes(self) -> "Grid":
        """Return the grid."""
        from lumos_df.estimate.grid import Grid  # noqa: PLC0415 - slow to import

        if self.corpus is not None:
            from lumos_df.calibrate import recorded_grid  # noqa: PLC0415 - slow to import

            figures = (self.models, self.hardware, self.plans)
            axes, unfitted = recorded_grid.of_corpus(self.grid, *figures, self.corpus, self.job)
            notes.software_of_profile(unfitted)
            return axes
        if self.gpus is not None and self.batch is not None:
            return Grid.of_gpus(self.models, self.hardware, self.gpus, self.batch, *self.plans)
        return Grid.read(self.grid) if self.grid is not None else Grid.make(self.models, self.hardware, self.plans)


@app.command()
def sweep(
    grid: Annotated[
        Path | None,
        typer.Argument(
            parser=local_path, metavar="[GRID.toml]", help="`model`, `hardware` and `plan`, each one or a list."
        ),
    ] = None,
    *,
    model: Annotated[
        list[str] | None, typer.Option(metavar="NAME|FILE", help="Without a file: a model; may be given several times.")
    ] = None,
    hardware: Annotated[
        list[str] | None, typer.Option(metavar="NAME|FILE", help="Without a file: a GPU; may be given several times.")
    ] = None,
    plan: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLAN",
            help="Without a file: plans, 'tp=1|2|4,pp=1|2,gpus=64,batch=512'; several add up. "
            "With --gpus: what all plans have, 'software=megatron,precision=fp8'.",
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Without a file, with --batch: all sensible plans of N GPUs."),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, metavar="B", help="Sequences of a step; goes with --gpus.")
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(
            parser=corpus_folder,
            metavar="DIR|URL",
            help="Kernels, collectives and host as this corpus's traces show them; unless given, model and GPU, too.",
        ),
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --corpus: the recorded job that plans are rebuilt from.")
    ] = None,
    rebuild: Annotated[
        int | None,
        typer.Option(min=0, metavar="K", help="With --corpus: rebuild the graphs of the first K; 3 by default."),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            parser=corpus_folder,
            metavar="DIR|URL",
            help="Also store the rebuilt jobs, replayed, as traces of this corpus.",
        ),
    ] = None,
    where: Annotated[
        str, typer.Option(metavar="SQL", help="Only what meets this condition: 'fits AND gpus <= 512'.")
    ] = notes.FITS,
    top: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Write the N fastest; by default 10 on a screen, with --format all."),
    ] = None,
    rank_by: Annotated[
        RankBy, typer.Option(help="The fastest by the estimate, or by what is expected with messages that may be slow.")
    ] = RankBy.TIME,
    pareto: Annotated[
        bool, typer.Option("--pareto", help="Write those that no other beats in time, memory and GPUs at once.")
    ] = False,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Only part I of N of the grid, for N jobs on one folder.")
    ] = None,
    engine: Where = Engine.SERIAL,
    workers: Workers = None,
    address: Address = None,
    html: Annotated[
        Path | None,
        typer.Option(
            parser=local_path, metavar="FILE", help="Also write a page for a browser: plans, front, intervals."
        ),
    ] = None,
    full: Full = False,
    form: Form = None,
    output: Annotated[
        Path | None,
        typer.Option(
            parser=local_path,
            metavar="DIR",
            help="Also store all that meets the condition (Parquet), and what was rebuilt (CSV); again: it goes on.",
        ),
    ] = None,
) -> None:
    """Estimate every legal plan of a grid, and write the fastest, or the Pareto front.

    An axis gpus gives dp = gpus / (tp * pp * cp), an axis micro_batches gives batch = micro_batches * dp * micro_batch.
    With --corpus the first few are rebuilt as graphs of the recorded job, as estimate --set does it.
    """
    from lumos_df.estimate.search import Search  # noqa: PLC0415 - slow to import

    asked = _Asked(grid, model or [], hardware or [], plan or [], gpus, batch, corpus, job)
    asked.check()
    if corpus is None and any(option is not None for option in (job, rebuild, into)):
        raise typer.BadParameter("--job, --rebuild and --into go with --corpus")
    check_cluster(engine, address)
    axes = asked.axes()
    shown = top or (sys.maxsize if full or form is not None else _SHOWN)
    search = Search(axes, where, shown if form is not None else max(shown, _COMPARED), pareto, rank_by, output)

    def run(wanted: Search, report: Report | None = None) -> "Found":
        return wanted.run(part=part_of(shard), engine=engine, workers=workers, address=address, report=report)

    with progress(sys.stderr) as report:
        result = run(search, report)
    if form is not None:
        notes.searched(result, where)
    best = result.best
    if html is not None:
        on_page = (replace(search, top=_COMPARED, pareto=front) for front in (False, True))
        _write_page([run(wanted).best for wanted in on_page], html, notes.counted(result, where))
    if corpus is not None and rebuild != 0:
        from lumos_df.whatif.rebuilt_plans import rebuilt  # noqa: PLC0415 - slow to import

        best = rebuilt(best, axes, corpus, job, rebuild or 3, into)
        if output is not None and shard is None:
            # Not Parquet: whoever reads all Parquet files of the folder means the rows of the search.
            write_table(best.head(rebuild or 3).to_arrow(), Format.CSV, output / "rebuilt.csv")
    if form is not None:
        write_table(best.to_arrow(), form, None)
        return
    from lumos_df.cli.screens.estimate_screen import draw_sweep  # noqa: PLC0415 - slow to import

    if not len(best):
        print(*notes.nothing_kept(result, where), sep="\n")
        return
    draw_sweep(best, shown, notes.counted(result, where), asked.one_plan())


def _write_page(found: "list[pl.DataFrame]", html: Path, counted: str) -> None:
    """Write the page of the plans that some searches of one grid have found."""
    import polars as pl  # noqa: PLC0415 - slow to import

    from lumos_df.page.write import write_sweep  # noqa: PLC0415 - slow to import

    plans = pl.concat(found).unique("number", keep="first", maintain_order=True)
    write_sweep(plans.to_arrow(), html, counted)
    print(f"{html}: {format_bytes(html.stat().st_size)}; open it in a browser", file=sys.stderr)
