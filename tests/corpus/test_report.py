import io
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import duckdb
import polars as pl
import pytest
from typer.testing import CliRunner

import lumos_df
from lumos_df.advice import on_demand
from lumos_df.advice.job_advice import advise
from lumos_df.base.errors import CorpusError, QueryError
from lumos_df.base.runner import Engine
from lumos_df.cli.app import app
from lumos_df.cli.screens.summary_screen import draw
from lumos_df.corpus import report, table_files
from lumos_df.corpus.kept_rows import keep_computed, keep_recorded
from lumos_df.corpus.layout import write_manifest
from lumos_df.corpus.limits import TRUSTED_PCT, Recorded, limits
from lumos_df.corpus.output import Format, write_rows
from lumos_df.corpus.report import CorpusSummary, JobSummary, KernelSummary, StragglerSummary
from lumos_df.corpus.view_files import read_once
from lumos_df.schema import ADVISED_JOBS
from lumos_df.trace.ingest import ingest
from tests.conftest import SAMPLES
from tests.trace.corpora import small

RECORDINGS = Path(__file__).parent.parent / "recordings"

BUSY = JobSummary(
    job="pretrain",
    traces=8,
    ranks=8,
    device_name="H100",
    steps=3,
    operators=1_000_000,
    gpu_rows=200_000,
    mean_step_ns=1_234_000_000,
    exposed_compute_pct=50.0,
    overlapped_pct=25.0,
    exposed_communication_pct=12.5,
    other_pct=12.5,
    repaired=0,
    skipped=0,
    warnings=2,
)
ON_CPU = replace(
    BUSY,
    job="cpu",
    gpu_rows=0,
    exposed_compute_pct=0.0,
    overlapped_pct=0.0,
    exposed_communication_pct=0.0,
    other_pct=100.0,
)
GEMM = KernelSummary("pretrain", "void at::native::a_kernel<" + "x" * 200, "gemm", 12_000, 900_000_000, 61.5)
LATE = StragglerSummary("pretrain", rank=3, collectives=40, times_last=31, made_others_wait_ns=4_500_000)


def drawn(summary: CorpusSummary, monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    draw(summary, stream)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_the_sample_traces_are_summed_up(sample_corpus: Path) -> None:
    found = report.summary(sample_corpus)
    cpu, gpu = found.jobs
    assert (cpu.job, cpu.ranks, cpu.steps, cpu.gpu_rows) == ("cpu_ddp", 2, 3, 0)
    assert (gpu.job, gpu.ranks, gpu.steps, gpu.gpu_rows) == ("gpu_generated", 4, 3, 4 * 333)
    shares = (gpu.exposed_compute_pct, gpu.overlapped_pct, gpu.exposed_communication_pct, gpu.other_pct)
    assert sum(share or 0 for share in shares) == pytest.approx(100, abs=0.05)
    assert found.kernels[0].family == "communication"
    assert [kernel.total_ns for kernel in found.kernels] == sorted((k.total_ns for k in found.kernels), reverse=True)
    assert (gpu.collectives, gpu.matched_collectives) == (9, 9)
    assert (gpu.exposed_waiting_pct or 0) + (gpu.exposed_transfer_pct or 0) == pytest.approx(
        gpu.exposed_communication_pct, abs=0.02
    )
    assert (cpu.collectives, found.notes) == (None, ())
    # The generated job was told that rank 2 sleeps before its backward pass.
    assert [(late.job, late.rank) for late in found.stragglers] == [("gpu_generated", 2)]


def test_what_was_not_matched_is_said_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = tmp_path / "corpus"
    assert not ingest([SAMPLES / "gpu_generated"], corpus, workers=1).failed
    found = report.summary(corpus)
    (job,) = found.jobs
    assert (job.collectives, job.exposed_waiting_pct, found.stragglers) == (None, None, ())
    (note,) = found.notes
    assert note.what == "who waits for whom is not known yet in 1 job (gpu_generated)"
    assert note.command == f"report --corpus {corpus}"
    assert drawn(found, monkeypatch, columns=300)[-2:] == [f"{note.what}:", f"  lumos-df {note.command}"]


def test_the_summary_says_what_waits_and_how_much_was_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    known = replace(
        BUSY, exposed_waiting_pct=9.0, exposed_transfer_pct=3.5, collectives=1_280, matched_collectives=1200
    )
    unknown = replace(known, job="other", exposed_waiting_pct=None, exposed_transfer_pct=None, matched_collectives=0)
    lines = drawn(CorpusSummary("c", (known, unknown, ON_CPU), (GEMM,), ()), monkeypatch)
    assert "pretrain: waiting 9%, transfer 4%; 1,200 of 1,280 collectives matched" in lines
    assert "other: waiting unknown; 0 of 1,280 collectives matched" in lines
    assert not any(line.startswith("cpu:") for line in lines)


def test_the_summary_shows_each_part_of_a_step_by_length(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(CorpusSummary("c", (BUSY,), (GEMM,), (LATE,)), monkeypatch)
    (row,) = [line for line in lines if line.startswith("pretrain ")]
    bar = row.split()[5]
    counts = [bar.count(mark) for mark in "█▓▒░"]
    assert sum(counts) == len(bar)
    for count, share in zip(counts, (50, 25, 12.5, 12.5), strict=True):
        assert count == pytest.approx(share * len(bar) / 100, abs=1)
    assert row.split()[1:5] == ["8", "3", "1.23", "s"]
    assert row.split()[6:] == ["50%", "25%", "12%", "12%"]


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_summary_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    jobs = tuple(replace(BUSY, job=f"a_job_with_a_long_name_{number}") for number in range(40))
    lines = drawn(CorpusSummary("c", jobs, (GEMM,) * 6, (LATE,) * 9), monkeypatch, columns)
    assert max(map(len, lines)) <= columns
    assert len(lines) <= 40


def test_what_cannot_be_said_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = (
        Recorded("host", gpu_rows=0, ranks=2, world_size=2),
        Recorded("part", gpu_rows=1, ranks=1, world_size=16),
        Recorded("off", gpu_rows=1, ranks=2, world_size=None, error_pct=7.25),
        Recorded("whole", gpu_rows=1, ranks=2, world_size=2, error_pct=TRUSTED_PCT),
    )
    alone = "who is late, and what a change brings to the others, is known of these alone"
    said = [
        "only the host of host is known: no GPU row was recorded",
        f"not all ranks are here (part 1 of 16): {alone}",
        "careful: the replay is off the recording (off 7.2%), and so may be every gain",
    ]
    assert list(limits(jobs)) == said
    assert [list(limits([job])) for job in jobs] == [
        ["only the host is known: no GPU row was recorded"],
        [f"1 of 16 ranks is here: {alone}"],
        ["careful: the replay is off the recording (7.2%), and so may be every gain"],
        [],
    ]
    shown = drawn(
        CorpusSummary("c", (BUSY,), (), (), advised=(BUSY.job,), limits=tuple(said)), monkeypatch, columns=300
    )
    assert shown[:3] == said
    assert "nothing found that makes the step at least 0.5% shorter" in shown


def test_a_replay_is_off_by_what_advice_found_also_where_the_host_ran_ahead(tmp_path: Path) -> None:
    # Its GPU takes 84 ms a step, and its host 68.
    assert not ingest([RECORDINGS / "plain" / "bert--base"], tmp_path, workers=1).failed
    (advised,) = advise(tmp_path)
    assert advised.error_pct < 1
    summary = report.summary(tmp_path)
    assert summary.limits == ()
    assert [note.what.partition(" in ")[0] for note in summary.notes] == ["gains are of other steps than the table's"]
    table_files.write(tmp_path, advised.trace_ids[0], ADVISED_JOBS, {"error_pct": [7.25]})
    assert report.summary(tmp_path).limits == (
        "careful: the replay is off the recording (7.2%), and so may be every gain",
    )


def test_the_summary_names_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(drawn(CorpusSummary("c", (BUSY,) * 15, (), ()), monkeypatch))
    assert "and 3 more jobs:\n  lumos-df report --view corpus_summary --corpus c\n" in text
    assert '30 warnings of the files:\n  lumos-df sql "SELECT path, unnest(warnings) FROM traces" --corpus c' in text


def test_a_job_without_a_gpu_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(CorpusSummary("c", (ON_CPU,), (), ()), monkeypatch)
    (row,) = [line for line in lines if line.startswith("cpu ")]
    assert row.split()[5:] == ["no", "GPU", "-", "-", "-", "-"]


def test_a_name_with_markup_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(CorpusSummary("c", (replace(BUSY, job="[red]x[/]"),), (), ()), monkeypatch)
    assert any(line.startswith("[red]x[/] ") for line in lines)


def test_an_empty_corpus_says_how_to_fill_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_manifest(tmp_path)
    lines = drawn(report.summary(tmp_path), monkeypatch, columns=300)
    assert lines[-2:] == [
        "nothing can be said: no trace yet; add some with:",
        f"  lumos-df ingest TRACE... --corpus {tmp_path}",
    ]
    assert CliRunner().invoke(app, ["report", "--corpus", str(tmp_path)]).exit_code == 1


def test_every_view_exports_the_rows_that_sql_gives(sample_corpus: Path, tmp_path: Path) -> None:
    files = report.export(sample_corpus, tmp_path / "out", form=Format.PARQUET)
    assert [file.stem for file in files] == list(report.report_views())
    with lumos_df.connect(sample_corpus) as connection:
        for file in files:
            exported = duckdb.execute(f"FROM '{file}' ORDER BY ALL").fetchall()
            assert exported == connection.execute(f"FROM {file.stem} ORDER BY ALL").fetchall()
            types = duckdb.execute(f"DESCRIBE FROM '{file}'").fetchall()
            assert types == connection.execute(f"DESCRIBE FROM {file.stem}").fetchall()


def test_a_table_calls_texts_by_their_own_type(sample_corpus: Path, tmp_path: Path) -> None:
    for file in report.export(sample_corpus, tmp_path, ["kernel_summary", "kernel_sequence"], Format.TABLE):
        shown = file.read_text("utf-8")
        assert "varchar" in shown
        assert "enum" not in shown


def test_a_report_is_of_the_traces_that_were_there_when_it_began(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    ingest([small(tmp_path / "job/rank0.json")], corpus, workers=1)
    with lumos_df.connect(corpus) as connection:
        keep_recorded(connection, report.report_views())
        keep_computed(connection, report.report_views())
        views = ("operator_summary", "step", "full_queue", "corpus_summary")
        before = [connection.execute(f"FROM {view}").fetchall() for view in views]
        ingest([small(tmp_path / "job/rank1.json")], corpus, workers=1)
        assert [connection.execute(f"FROM {view}").fetchall() for view in views] == before
        assert not connection.execute("FROM operators WHERE trace_id IS NULL").fetchall()
    with lumos_df.connect(corpus) as connection:
        assert connection.execute("SELECT traces FROM corpus_summary").fetchall() == [(2,)]


def test_a_report_reads_once_what_its_views_share() -> None:
    kept = read_once(report.report_views())
    assert {"_gpu", "_gpu_launch", "_gpu_stretch"} <= set(kept)
    assert kept.index("_gpu") < kept.index("_gpu_launch")  # which reads it
    assert read_once(["overlap"]) == ("_gpu", "_step")  # its other sources are read once
    assert read_once(["launch", "operators"]) == ()


def test_workers_write_the_same_files(sample_corpus: Path, tmp_path: Path) -> None:
    names = ["breakdown", "gpu_time"]
    here = report.export(sample_corpus, tmp_path / "here", names)
    there = report.export(sample_corpus, tmp_path / "there", names, engine=Engine.PROCESSES, workers=2)
    assert [file.read_bytes() for file in there] == [file.read_bytes() for file in here]


def test_csv_and_json_hold_the_same_rows(sample_corpus: Path, tmp_path: Path) -> None:
    for form in (Format.CSV, Format.JSON):
        report.export(sample_corpus, tmp_path, ["breakdown"], form)
    rows = json.loads((tmp_path / "breakdown.json").read_text())
    assert rows == pl.read_csv(tmp_path / "breakdown.csv").to_dicts()
    assert len(rows) == 3 * 6


def test_a_stored_table_exports_too(sample_corpus: Path, tmp_path: Path) -> None:
    (file,) = report.export(sample_corpus, tmp_path, ["traces"])
    assert "first_ts_ns" in file.read_text().splitlines()[0].split(",")


def test_a_report_is_on_the_disk_when_it_is_done_and_waits_for_its_names_once(
    sample_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(os.fstat(file).st_ino))
    files = report.export(sample_corpus, tmp_path / "report", ("gpu_time", "breakdown"))
    assert sorted((tmp_path / "report").iterdir()) == sorted(files)
    *contents, names = flushed
    assert sorted(contents) == sorted(file.stat().st_ino for file in files)
    assert names == (tmp_path / "report").stat().st_ino


def test_a_view_that_fails_leaves_the_files_before_it_and_no_draft(
    sample_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = {"gpu_time": "FROM gpu_time", "breakdown": "SELECT error('broken') FROM range(1)"}
    monkeypatch.setattr(report, "select", lambda name, _: queries[name])
    with pytest.raises(QueryError, match="broken"):
        report.export(sample_corpus, tmp_path / "report", tuple(queries))
    assert [file.name for file in (tmp_path / "report").iterdir()] == ["gpu_time.csv"]


def test_views_of_what_was_recorded_are_asked_while_the_rest_is_prepared(
    sample_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    both = Event()

    def writes(connection: duckdb.DuckDBPyConnection, sql: str, *rest: Any) -> None:
        write_rows(connection, sql, *rest)
        asked.append(sql.rpartition(" FROM ")[2])
        if set(asked) == {"step", "operator_summary"}:
            both.set()

    monkeypatch.setattr(report, "write_rows", writes)

    def prepare() -> None:
        assert both.wait(60)
        asked.append("prepared")

    def before(_: duckdb.DuckDBPyConnection) -> None:
        assert not [*(tmp_path / "out").glob("*.csv")]

    names = ["breakdown", "step", "stall", "operator_summary"]
    files = report.export(sample_corpus, tmp_path / "out", names, prepare=prepare, before=before)
    assert asked == ["step", "operator_summary", "prepared", "breakdown", "stall"]
    assert [file.name for file in files] == [f"{name}.csv" for name in names]
    plain = report.export(sample_corpus, tmp_path / "plain", names)
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in plain]


def test_views_see_what_is_prepared_beside_them(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    ingest([small(tmp_path / "job/rank0.json")], corpus, workers=1)
    names = ("corpus_summary", "kernel_summary", "overlap")
    prepare = partial(on_demand.prepare_views, corpus, names, print)
    files = report.export(corpus, tmp_path / "first", names, prepare=prepare)
    again = report.export(corpus, tmp_path / "again", names)
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in again]


@pytest.mark.parametrize("error", [CorpusError("bad"), KeyboardInterrupt()], ids=["bad", "stopped"])
def test_what_cannot_be_prepared_ends_a_report_without_a_file(
    sample_corpus: Path, tmp_path: Path, error: BaseException
) -> None:
    def prepare() -> None:
        raise error

    with pytest.raises(type(error)):
        report.export(sample_corpus, tmp_path / "out", ["step", "stall"], prepare=prepare)
    assert [*tmp_path.glob("out/*")] == []


def test_who_stops_a_report_between_two_of_its_views_waits_for_neither(
    sample_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    between, written = Event(), list[str]()

    def writes(connection: duckdb.DuckDBPyConnection, sql: str, *_: Any) -> None:
        if not between.is_set():
            between.set()
            time.sleep(0.2)
        else:
            connection.execute("SELECT sum(hash(range)) FROM range(500_000_000)").fetchall()
        written.append(sql)

    monkeypatch.setattr(report, "write_rows", writes)

    def prepare() -> None:
        assert between.wait(60)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        report.export(sample_corpus, tmp_path / "out", ["step", "operator_summary"], prepare=prepare)
    assert len(written) == 1


@pytest.mark.parametrize("engine", [Engine.SERIAL, Engine.PROCESSES])
def test_a_report_of_no_corpus_says_how_to_make_one(tmp_path: Path, engine: Engine) -> None:
    corpus, folder = str(tmp_path / "none"), str(tmp_path / "out")
    done = CliRunner().invoke(app, ["report", "--corpus", corpus, "--output", folder, "--engine", engine.value])
    assert isinstance(done.exception, CorpusError)
    assert "make one with: lumos-df ingest" in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_summaries_are_made_before_any_view_of_many_traces_is_asked(
    sample_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lumos_df.corpus.summaries._AT_LEAST", 2)
    order: list[str] = []

    def opened(corpus: Path) -> duckdb.DuckDBPyConnection:
        order.append("asked")
        return lumos_df.connect(corpus)

    monkeypatch.setattr(report, "connect_engine", opened)
    report.export(sample_corpus, tmp_path / "out", ["step"], prepare=lambda: order.append("prepared"))
    assert order == ["prepared", "asked"]


def test_an_unknown_view_writes_nothing(sample_corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="no view 'breakdwn'; did you mean 'breakdown'"):
        report.export(sample_corpus, tmp_path / "out", ["gpu_time", "breakdwn"])
    assert not (tmp_path / "out").exists()


def test_the_public_names(sample_corpus: Path) -> None:
    with lumos_df.connect(sample_corpus) as connection:
        frame = connection.sql("FROM gpu_time").pl()
    assert isinstance(frame, pl.DataFrame)
    assert frame.height == 4
    assert lumos_df.corpus.report is report
    assert dir(lumos_df) == ["Corpus", "LumosError", "__version__", "advise", "connect", "estimate", "ingest", "report"]
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        lumos_df.conect  # noqa: B018 - the point


def test_the_public_names_are_found_in_a_fresh_process() -> None:
    code = "import lumos_df; print(lumos_df.report.__name__, lumos_df.ingest.__name__, lumos_df.LumosError.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["lumos_df.corpus.report", "ingest", "LumosError"]
