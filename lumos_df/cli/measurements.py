"""The commands that hold estimates against what was measured: scoreboard and calibrate."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lumos_df.base.location import local_path
from lumos_df.base.units import format_count
from lumos_df.cli import notes
from lumos_df.cli.options import Form, Output, corpus_folder
from lumos_df.corpus.output import Format, choose_format, write_table

if TYPE_CHECKING:
    import polars as pl

app = typer.Typer()


@app.command()
def scoreboard(
    *,
    truth: Annotated[
        Path, typer.Option(parser=local_path, metavar="DIR", help="The folder with the CSVs of measured runs.")
    ],
    dataset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this set; may be given several times.")
    ] = None,
    calibrate: Annotated[
        int | None, typer.Option(min=3, metavar="K", help="Calibrate on K random runs of each set, score the rest.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="S", help="Which K runs; by default the median over several draws is told."),
    ] = None,
    software: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="Estimate every run with this profile, whatever it ran with."),
    ] = None,
    leave_one_source_out: Annotated[
        bool, typer.Option(help="Estimate each source's runs by what the other sources have in common: a minute.")
    ] = False,
    form: Form = None,
    output: Output = None,
) -> None:
    """Compare estimates with measured runs: one row a set, with errors, ranks, memory and what was refused."""
    import polars as pl  # noqa: PLC0415 - slow to import

    from lumos_df.calibrate.scoreboard import scoreboard as score  # noqa: PLC0415 - slow to import
    from lumos_df.calibrate.scoreboard import without_source  # noqa: PLC0415 - slow to import
    from lumos_df.cli.screens.measurement_screen import draw_scores  # noqa: PLC0415 - slow to import

    if seed is not None and calibrate is None:
        raise typer.BadParameter("it draws the runs of --calibrate K", param_hint="--seed")
    if leave_one_source_out and (dataset or calibrate or software):
        raise typer.BadParameter(
            "it fits all sources but one, and goes with neither --dataset, --calibrate nor --software",
            param_hint="--leave-one-source-out",
        )
    chosen = choose_format(form, output)
    if leave_one_source_out:
        scores = without_source(truth)
    else:
        scores = score(truth, dataset or (), calibrate or 0, seed, software or "")
    if chosen is None:
        draw_scores(scores, truth)
        return
    as_text = chosen is Format.TABLE
    hidden = " EXCLUDE (refused_reasons)" if as_text else ""
    write_table(pl.DataFrame(scores), chosen, output, f"SELECT *{hidden} FROM _rows")
    if as_text:
        for dataset_score in scores:
            reasons = {str(refused["reason"]): int(refused["rows"]) for refused in dataset_score.refused_reasons}
            notes.refused(dataset_score.dataset, reasons)


@app.command()
def calibrate(
    runs: Annotated[
        Path | None, typer.Argument(parser=local_path, metavar="[RUNS.csv]", help="Measured runs: 3 to 20 are enough.")
    ] = None,
    *,
    corpus: Annotated[
        Path | None,
        typer.Option(
            parser=corpus_folder, metavar="DIR|URL", help="Instead: the kernels of a corpus, as they were measured."
        ),
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(metavar="KIND,...", help="Instead: measure here: gemm,attention,memory,collectives. Needs torch."),
    ] = None,
    from_corpus: Annotated[
        Path | None,
        typer.Option(
            parser=corpus_folder, metavar="DIR|URL", help="Instead: run a corpus's operators again here. Needs torch."
        ),
    ] = None,
    hardware: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="The GPU; needed for RUNS.csv, elsewhere found.")
    ] = None,
    software: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="The software they ran with, over what the rows say.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME|FILE", help="--measure what this model runs.")] = None,
    plan: Annotated[str | None, typer.Option(metavar="PLAN", help="... by this plan: tp=8,micro_batch=1.")] = None,
    most: Annotated[
        int, typer.Option(min=1, metavar="N", help="--from-corpus: how many operators, those that took longest.")
    ] = 50,
    output: Annotated[
        Path,
        typer.Option(
            parser=local_path, metavar="FILE.toml", help="The hardware file to write, and next to it its software's."
        ),
    ] = Path("hardware.toml"),
    form: Form = None,
) -> None:
    """Fit a machine to what was measured on it, and write it as a hardware file.

    From a few measured runs, whose error is told before and by leaving each run out; from the kernels of a corpus; or
    from kernels that run here and now.
    """
    if sum(source is not None for source in (runs, corpus, measure, from_corpus)) != 1:
        raise typer.BadParameter("give one of RUNS.csv, --corpus DIR, --measure KIND,... and --from-corpus DIR")
    if output.suffix != ".toml":
        raise typer.BadParameter("a hardware file's name ends in .toml", param_hint="--output")
    if runs is not None:
        _fit_runs(runs, hardware, software, output, form)
    elif corpus is not None:
        _fit_corpus(corpus, hardware, software, output, form)
    else:
        write_table(_measure(measure, from_corpus, model, plan, hardware, most, output), form, None)


def _fit_runs(runs: Path, hardware: str | None, software: str | None, output: Path, form: Format | None) -> None:
    import polars as pl  # noqa: PLC0415 - slow to import

    from lumos_df.calibrate import runs_machine  # noqa: PLC0415 - slow to import
    from lumos_df.cli.screens.measurement_screen import draw_calibration  # noqa: PLC0415 - slow to import

    if hardware is None:
        raise typer.BadParameter("names the GPU of the runs; RUNS.csv needs it", param_hint="--hardware")
    calibration = runs_machine.run(runs, hardware, output, software)
    if form is None:
        draw_calibration(calibration)
        return
    notes.refused(str(runs), calibration.refused)
    notes.calibrated(calibration.hardware_file, " or ".join(f"software={file}" for file in calibration.software_files))
    write_table(pl.DataFrame([calibration]).drop("refused"), form, None)


def _fit_corpus(corpus: Path, hardware: str | None, software: str | None, output: Path, form: Format | None) -> None:
    from lumos_df.calibrate import corpus_machine  # noqa: PLC0415 - slow to import
    from lumos_df.cli.screens.measurement_screen import draw_findings  # noqa: PLC0415 - slow to import

    measured, software_file = corpus_machine.calibrate(corpus, output, hardware, software or "megatron")
    if form is None:
        draw_findings(measured.findings, str(output), str(software_file))
        return
    notes.calibrated(str(output), f"software={software_file}")
    write_table(measured.table(), form, None)


def _measure(
    measure: str | None,
    from_corpus: Path | None,
    model: str | None,
    plan: str | None,
    hardware: str | None,
    most: int,
    output: Path,
) -> "pl.DataFrame":
    import polars as pl  # noqa: PLC0415 - slow to import

    from lumos_df.capture import measure as measuring  # noqa: PLC0415 - slow to import

    if from_corpus is not None:
        rows = measuring.compare(from_corpus, most)
    else:
        rows = measuring.calibrate(measuring.parse_kinds(measure or ""), model, plan, hardware, output)
        print(f"{output}: written from {format_count(len(rows), 'measurement')}", file=sys.stderr)
    return pl.DataFrame(rows, infer_schema_length=None)
