"""What a view cannot say comes before its rows: what was not recorded, or does not fit, and only where it matters."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lumos_df.cli.app import app
from lumos_df.corpus.catalog import connect
from lumos_df.corpus.limits import NOTHING, Recorded, limits, of_views
from lumos_df.trace.ingest import ingest
from tests.trace.literal import Event, annotation, write

HOST = "only the host is known: no GPU row was recorded"
WHOLE = "no step is marked: the recording counts as one, from first to last work"
ONE = "1 of 8 ranks is here: who is late, and what a change brings to the others, is known of these alone"


def row(name: str, category: str, ts: float, **args: Any) -> Event:
    thread = {"pid": 0, "tid": 7} if category == "kernel" else {"pid": 1, "tid": 1}
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": 20, **thread, "args": args}


OPERATOR = row("aten::mm", "cpu_op", 10)
KERNEL = row("gemm", "kernel", 15, correlation=1, stream=7, device=0)
STEP = annotation("ProfilerStep#1", 0, 100)


def corpus(folder: Path, events: list[Event], world_size: int = 1) -> Path:
    write(folder / "job" / "rank0.json", events, distributedInfo={"rank": 0, "world_size": world_size})
    assert not ingest([folder / "job"], folder / "corpus", workers=1).failed
    return folder / "corpus"


def trace_folder_of(folder: Path) -> Path:
    (found,) = folder.glob("trace_id=[0-9a-f]*")
    return found


def told(folder: Path, *views: str) -> list[str]:
    with connect(folder) as connection:
        return of_views(connection, views)


@pytest.mark.parametrize(
    ("events", "world_size", "said"),
    [
        ([STEP, OPERATOR, KERNEL], 1, []),
        ([STEP, OPERATOR], 1, [HOST]),
        ([STEP, OPERATOR, KERNEL], 8, [ONE]),
        ([OPERATOR, KERNEL], 1, [WHOLE]),
        ([OPERATOR], 8, [HOST, ONE, WHOLE]),
        ([], 1, ["nothing can be said of steps and GPUs: no operator, call or GPU row was recorded"]),
    ],
)
def test_a_breakdown_says_what_it_lacks(tmp_path: Path, events: list[Event], world_size: int, said: list[str]) -> None:
    assert told(corpus(tmp_path, events, world_size), "breakdown") == said


def test_a_view_says_what_matters_to_it(tmp_path: Path) -> None:
    folder = corpus(tmp_path, [OPERATOR], 8)
    assert told(folder, "kernel_summary") == [HOST]
    assert told(folder, "memory_peak", "traces") == []


def test_a_corpus_without_traces_says_how_to_add_some(tmp_path: Path) -> None:
    folder = corpus(tmp_path, [OPERATOR])
    shutil.rmtree(trace_folder_of(folder))
    assert told(folder, "breakdown") == [NOTHING]


def test_a_replay_that_is_off_is_said_by_views_of_it(tmp_path: Path) -> None:
    assert [*limits([Recorded("job", 1, 1, 1, error_pct=7.0)])] == [
        "careful: the replay is off the recording (7.0%), and so may be every gain"
    ]
    folder = corpus(tmp_path, [STEP, OPERATOR, KERNEL])
    assert CliRunner().invoke(app, ["replay", "--corpus", str(folder)]).exit_code == 0
    file = trace_folder_of(folder) / "replay_steps.parquet"
    steps = pq.ParquetFile(file).read()
    field = steps.schema.field("replayed_ns")
    doubled = pa.array([2 * ns + 100 for ns in steps["replayed_ns"].to_pylist()], field.type)
    pq.write_table(steps.set_column(steps.column_names.index(field.name), field, doubled), file)
    assert any(line.startswith("careful: the replay is off") for line in told(folder, "replay_error"))
    assert not any(line.startswith("careful") for line in told(folder, "breakdown"))


def test_the_screen_says_it_first_and_a_file_gets_rows_alone(tmp_path: Path) -> None:
    folder = corpus(tmp_path, [STEP, OPERATOR])
    view = ["report", "--view", "breakdown", "--corpus", str(folder)]
    query = ["sql", "FROM breakdown", "--corpus", str(folder)]
    for command in (view, query):
        assert CliRunner().invoke(app, command).stdout.splitlines()[0] == HOST
        as_csv = CliRunner().invoke(app, [*command, "--format", "csv"])
        assert as_csv.stdout.startswith("job,trace_id,")
        assert HOST in as_csv.stderr
    for name in ("replay", "critical-path", "advise", "report"):
        assert CliRunner().invoke(app, [name, "--corpus", str(folder)]).stdout.splitlines()[0] == HOST
