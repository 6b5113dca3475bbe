"""What a view cannot say comes before its rows: what was not recorded, or does not fit, and only where it matters."""

import json
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
from lumos_df.corpus.view_files import views
from lumos_df.schema import DIALECTS
from lumos_df.trace.ingest import ingest
from tests.conftest import ROOT
from tests.trace import nsight_files
from tests.trace.literal import Event, annotation, write
from tests.trace.nsight_files import PROFILES

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


@pytest.mark.parametrize(
    ("world_size", "said"),
    [
        (8, "2 of 8 ranks are here: who is late, and what a change brings to the others, is known of these alone"),
        (None, "2 of 3 files are here: who is late, and what a change brings to the others, is known of these alone"),
    ],
)
def test_a_sample_is_said_to_be_one_until_the_other_files_are_here(
    tmp_path: Path, world_size: int | None, said: str
) -> None:
    for rank in range(3):
        stated = {"distributedInfo": {"rank": rank, "world_size": world_size}} if world_size else {}
        write(
            tmp_path / "job" / f"rank{rank}.json", [STEP, OPERATOR, KERNEL, row(f"rank{rank}", "cpu_op", 40)], **stated
        )
    folder = tmp_path / "corpus"
    ingest([tmp_path / "job"], folder, sample=2, workers=1)
    assert told(folder, "breakdown") == [said]
    assert told(folder, "traces", "kernel_summary") == []
    ingest([tmp_path / "job"], folder, workers=1)
    assert told(folder, "breakdown") == ([said.replace("2 of", "3 of")] if world_size else [])


def test_samples_of_several_jobs_are_listed(tmp_path: Path) -> None:
    for job, files in (("a", 2), ("b", 1200), ("c", 1)):
        for rank in range(files):
            write(tmp_path / job / f"rank{rank}.json", [STEP, OPERATOR, KERNEL, row(f"{job}{rank}", "cpu_op", 40)])
    ingest([tmp_path], tmp_path / "corpus", sample=1, workers=1)
    (line,) = told(tmp_path / "corpus", "breakdown")
    assert line.startswith("not all files are here (a 1 of 2, b 1 of 1,200): who is late")


def test_a_view_says_what_matters_to_it(tmp_path: Path) -> None:
    folder = corpus(tmp_path, [OPERATOR], 8)
    assert told(folder, "kernel_summary") == [HOST]
    assert told(folder, "memory_timeline", "traces") == []


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


def records(folder: Path) -> Path:
    """Write a file of NCCL Inspector."""
    header, done = {"id": "0x1f", "rank": 1, "n_ranks": 8}, {"coll": "AllReduce", "coll_sn": 1, "coll_exec_time_us": 2}
    (folder / "rank1.log").write_text(json.dumps({"header": header, "coll_perf": done}))
    return folder / "rank1.log"


def test_views_and_columns_that_no_file_can_fill_are_said_where_they_are_asked_for(tmp_path: Path) -> None:
    kernel = nsight_files.kernels((0, 9, 0, 7, 1, 5))
    export = nsight_files.write(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=kernel)
    nsight = tmp_path / "nsight"
    assert not ingest([export], nsight, workers=1).failed
    assert told(nsight, "memory_timeline") == ["nothing in files of Nsight Systems fills memory_timeline"]
    asked = told(nsight, "kernel", "occupancy_pct", "collective_hang")
    assert asked[-1] == "nothing in files of Nsight Systems fills collective_hang, occupancy_pct"
    assert not any("nothing in files" in line for line in told(nsight, "kernel", "corpus_summary"))
    # Where another file may have rows, there is nothing to say; where the other is of records alone, there is.
    assert not ingest([records(tmp_path)], nsight, workers=1).failed
    (line,) = told(nsight, "memory_timeline")
    assert line == "nothing in files of NCCL Inspector and Nsight Systems fills memory_timeline"
    assert told(nsight, "host_link") == []
    corpus(tmp_path, [OPERATOR])
    assert not ingest([tmp_path / "job"], nsight, workers=1).failed
    assert told(nsight, "memory_timeline") == []
    assert told(nsight, "memory_peak") == [
        "nothing in files of Kineto, NCCL Inspector and Nsight Systems fills memory_peak"
    ]


def test_what_records_fill_is_not_doubted(tmp_path: Path) -> None:
    assert not ingest([records(tmp_path)], tmp_path / "corpus", workers=1).failed
    assert told(tmp_path / "corpus", "collective_hang") == ["nothing in files of NCCL Inspector fills collective_hang"]
    assert told(tmp_path / "corpus", "host_link", "straggler") == []
    for views_asked in (["straggler", "kernel"], ["corpus_summary", "breakdown"]):
        assert told(tmp_path / "corpus", *views_asked) == [
            "nothing can be said of steps and GPUs: no operator, call or GPU row was recorded"
        ]


@pytest.mark.parametrize("view", ["launch", "launch_latency", "queue_depth"])
def test_launches_of_which_no_call_was_recorded(tmp_path: Path, view: str) -> None:
    said = told(corpus(tmp_path, [STEP, OPERATOR, KERNEL]), view, "kernel")
    assert said == ["no launch is known: no call of CUDA or HIP was recorded"]
    assert told(tmp_path / "corpus", "kernel") == []


PAGES = {
    "Kineto": "kineto",
    "Nsight Systems": "nsight_systems",
    "XPlane": "xplane",
    "rocprofv3": "rocm",
    "rocpd": "rocm",
    "RPD": "rocm",
    "PyTorch's memory snapshots": "memory_snapshots",
    "PyTorch's flight recorder": "flight_recorder",
    "NCCL Inspector": "nccl_inspector",
    "NCCL's profiler plugin": "nccl_profiler",
}


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_a_page_says_the_same_of_a_format(dialect: str) -> None:
    known = DIALECTS[dialect]
    page = (ROOT / "docs" / "formats" / f"{PAGES[known.name]}.md").read_text("utf-8")
    lacks = page.partition("## What views lack")[2] + (ROOT / "docs" / "formats.md").read_text("utf-8")
    columns = {view.name: {column.name for column in view.columns} for view in views()}
    for target in known.unfilled | known.records:
        view, _, column = target.partition(".")
        assert f"`{column or view}`" in lacks, target
        assert not column or column in columns[view], target


@pytest.mark.skipif(not PROFILES.is_dir(), reason=f"no profiles at {PROFILES}; see LUMOS_PROFILES")
@pytest.mark.parametrize(
    "name",
    [
        "nsys/lm_2_7b_nvtx.sqlite",
        "rocm/matmul.rpd",
        "rocm/rocprofv3_mi350.json.gz",
        "xplane/jax_te_attention.xplane.pb",
        "xplane/tpu_inference.xplane.pb",
    ],
)
def test_recorded_files_fill_nothing_that_their_format_is_said_not_to(tmp_path: Path, name: str) -> None:
    assert not ingest([PROFILES / name], tmp_path / "corpus", rank=0, workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        ((dialect,),) = connection.sql("SELECT DISTINCT dialect FROM traces").fetchall()
        for target in DIALECTS[dialect].unfilled:
            view, _, column = target.partition(".")
            counted = f'count("{column}")' if column else "count(*)"
            assert connection.sql(f"SELECT {counted} FROM {view}").fetchall() == [(0,)], target


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
