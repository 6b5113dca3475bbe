"""What every command writes, a file each: `python -m tools.snapshot OUT [FOLDER ...]`, by default of the samples.

Run it before a change that must not show and after it, each time into a folder of its own; `diff -r` compares the two.
A FOLDER holds the traces of one job, or folders that do. Results are CSV and JSON; what went to standard error, and the
exit status, stand beside each in a file of its own.
"""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lumos_df.cli.main import main as lumos_df

ROOT: Final = Path(__file__).parent.parent

CHANGES: Final = (
    "layers=24",
    "hidden=2048",
    "seq=1024",
    "dp=4",
    "tp=2",
    "tp=4",
    "pp=2",
    "micro_batch=2",
    "batch_scale=2",
    "batch=8",
    "hardware=h100-sxm",
    "dtype=fp16",
    "network=50e9",
    "overlap=off",
    "schedule=gpipe",
)
"""Settings of `estimate --set`; most jobs refuse some, and what they say is part of the comparison."""

_DENSE: Final = ("--model", "llama-3-70b", "--hardware", "h100-sxm", "--plan", "tp=8,pp=4,dp=4,batch=512")
_EXPERTS: Final = ("--model", "deepseek-v3", "--hardware", "h800", "--plan", "pp=16,ep=64,dp=128,batch=15360")
_GRID: Final = "tp=1|2|4|8,pp=1|2|4,cp=1|2,gpus=64,batch=256,micro_batch=1|2,zero=0|1,recompute=none|full"

FIGURES: Final = {
    "estimate_dense": ["estimate", *_DENSE],
    "estimate_experts": ["estimate", *_EXPERTS],
    "sweep": ["sweep", "--model", "llama-3-8b", "--hardware", "h100-sxm", "--plan", _GRID],
}
"""Commands that need no corpus."""


def commands(corpus: Path, traces: list[str], jobs: list[str], made: Path) -> Iterator[tuple[str, list[str]]]:
    """Give a name and the arguments of every command about one corpus; files go to the folder `made`."""
    at = ["--corpus", str(corpus)]
    yield "summary", ["report", *at, "--format", "json"]
    yield "summary", ["report", *at]
    yield "replay", ["replay", *at]
    yield "critical_path", ["critical-path", "--gains", *at]
    yield "describe", ["describe", *at]
    yield "views", ["report", *at, "--output", str(made / "views")]
    yield "view_json", ["report", *at, "--view", "breakdown", "--format", "json"]
    yield "page", ["report", *at, "--html", str(made / "page.html")]
    yield "sql_edges", ["sql", "SELECT kind, evidence, count(*), sum(lag) FROM edges GROUP BY ALL ORDER BY ALL", *at]
    yield "sql_operators", ["sql", "FROM operators ORDER BY trace_id, op_id", *at]
    for switch, text in (("--scale", "family=gemm:0.5"), ("--drop", "name~aten::add.*"), ("--no-wait", "rank=0")):
        yield f"replay{switch}", ["replay", *at, switch, text]
    for what, file in (("perfetto", "p.json"), ("replay", "r.json"), ("critical-path", "c.json"), ("chakra", "chakra")):
        yield f"export_{what}", ["export", *at, "--what", what, "--trace", traces[0], "--output", str(made / file)]
    for change in CHANGES:
        yield f"set_{change}", ["estimate", *at, "--trace", traces[0], "--set", change]
    yield "into", ["estimate", *at, "--trace", traces[0], "--set", "batch_scale=2", "--into", str(made / "into")]
    yield "diff", ["diff", *at, jobs[0], jobs[-1]]
    yield "calibrate", ["calibrate", *at, "--output", str(made / "hardware.toml")]


def run(arguments: list[str]) -> tuple[str, str]:
    """Return what a command of `lumos_df` writes to standard output, and to standard error with its exit status."""
    out, notes = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    status: object = 0
    before = sys.argv
    sys.argv = ["lumos-df", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(notes):
        try:
            lumos_df()
        except SystemExit as stop:
            status = stop.code
        except Exception as error:  # noqa: BLE001 - a traceback is a result that should show as a difference
            status = f"{type(error).__name__}: {error}"
    sys.argv = before
    out.flush()
    notes.flush()
    texts = [stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, notes)]
    return texts[0], f"{texts[1]}exit {status or 0}\n"


def record(name: str, arguments: list[str], folder: Path) -> None:
    """Run a command and write what it said to `folder`, as CSV where it can write that."""
    tabular = arguments[0] not in {"ingest", "export", "calibrate"} and "--format" not in arguments
    if tabular and name not in {"summary", "views", "page"}:
        arguments = [*arguments, "--format", "csv"]
    result, notes = run(arguments)
    (folder / f"{name}.out").write_text(result, "utf-8")
    (folder / f"{name}.notes").write_text(notes.replace(str(folder), "OUT"), "utf-8")


def column(corpus: Path, name: str) -> list[str]:
    """Return the distinct values of a column of `traces`, in order."""
    query = f"SELECT DISTINCT {name} FROM traces ORDER BY ALL"
    return run(["sql", query, "--corpus", str(corpus), "--format", "csv"])[0].split()[1:]


def main() -> int:
    """Write what all commands say of every folder of traces."""
    os.environ["COLUMNS"] = "100"
    out = Path(sys.argv[1]).resolve()
    for folder in sys.argv[2:] or sorted(map(str, ROOT.glob("data/traces/*/"))):
        here = out / Path(folder).resolve().parent.name / Path(folder).name
        made = here / "made"
        made.mkdir(parents=True)
        corpus = here / "corpus"
        record("ingest", ["ingest", folder, "--corpus", str(corpus), "--workers", "1"], here)
        traces, jobs = column(corpus, "trace_id"), column(corpus, "job")
        if not traces:
            continue
        for name, arguments in commands(corpus, traces, jobs, made):
            record(name, arguments, here)
        print(here, flush=True)
    figures = out / "figures"
    figures.mkdir(parents=True)
    for name, arguments in FIGURES.items():
        record(name, arguments, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
