"""Summaries of many traces: every answer is as without them, and they end with what they are made of."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from lumos_df.advice import on_demand
from lumos_df.base.errors import CorpusError
from lumos_df.base.locks import is_held
from lumos_df.corpus import summaries, table_files
from lumos_df.corpus.catalog import connect
from lumos_df.corpus.folder import open_for_writing, trace_ids, traces_without
from lumos_df.corpus.layout import STAGING, SUMMARIES, trace_folder
from lumos_df.corpus.trace_rows import unanswered
from lumos_df.corpus.view_files import views
from lumos_df.graph.job import jobs
from lumos_df.schema import COLLECTIVE_MEMBERS, TRACES
from lumos_df.trace.ingest import ingest
from tests.trace.corpora import small

TABLES = ("traces", "collectives", "job_advice")
NAMES = (*TABLES, *(view.name for view in views() if summaries.helps({view.name}) and view.folder != "trace"))


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take four traces for many, and three for a file's."""
    monkeypatch.setattr(summaries, "_AT_LEAST", 4)
    monkeypatch.setattr(summaries, "_OF_A_FILE", 3)


@pytest.fixture
def corpus(tmp_path: Path, sample_corpus: Path) -> Path:
    return Path(shutil.copytree(sample_corpus, tmp_path / "corpus"))


def answers(corpus: Path, names: Iterable[str] = ("traces", "kernel_summary", "_step")) -> dict[str, Any]:
    with connect(corpus) as connection:
        return {name: (connection.execute(f"DESCRIBE {name}").fetchall(), _rows(connection, name)) for name in names}


def _rows(connection: duckdb.DuckDBPyConnection, name: str) -> list[str]:
    return sorted(map(repr, connection.execute(f"FROM {name}").fetchall()))


def _matched(corpus: Path) -> str:
    return min(trace_ids(corpus) - traces_without(corpus, COLLECTIVE_MEMBERS))


def reads_summaries(corpus: Path) -> bool:
    with connect(corpus) as connection:
        plan = connection.execute("EXPLAIN ANALYZE FROM _step").fetchall()[0][1]
    return "operators.parquet" not in plan and bool(summaries.current(corpus)[0])


@pytest.mark.usefixtures("many")
def test_every_view_says_what_it_says_without_them(corpus: Path) -> None:
    plain = answers(corpus, NAMES)
    assert not summaries.current(corpus)[0]
    assert summaries.keep(corpus) == len(trace_ids(corpus))
    assert reads_summaries(corpus)
    assert answers(corpus, NAMES) == plain
    assert summaries.keep(corpus) == 0, "they are there"


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("change", ["a trace more", "a trace less", "a table written", "a table removed", "moved"])
def test_they_end_with_what_they_are_made_of(corpus: Path, tmp_path: Path, change: str) -> None:
    ingest([small(tmp_path / "job/rank0.json"), small(tmp_path / "job/rank1.json")], corpus, workers=1)
    summaries.keep(corpus)
    first = min(trace_ids(corpus))
    if change == "a trace more":
        ingest([small(tmp_path / "job/rank2.json", "late")], corpus, workers=1)
    elif change == "a trace less":
        shutil.rmtree(trace_folder(corpus, first))
    elif change == "a table written":
        rows = pq.ParquetFile(trace_folder(corpus, first) / "traces.parquet").read().to_pydict()
        rows["job"] = ["renamed"]
        table_files.write(corpus, first, TRACES, rows)
    elif change == "a table removed":
        assert table_files.remove(corpus, _matched(corpus), COLLECTIVE_MEMBERS)
    else:
        corpus = corpus.rename(tmp_path / "elsewhere")
        assert reads_summaries(corpus)
        return
    assert not summaries.current(corpus)[0]
    told = answers(corpus)
    shutil.rmtree(corpus / SUMMARIES)
    assert answers(corpus) == told
    summaries.keep(corpus)
    assert len(list((corpus / SUMMARIES).iterdir())) == 1
    assert answers(corpus) == told


@pytest.mark.usefixtures("many")
def test_jobs_and_who_lacks_a_table_are_read_from_them(corpus: Path) -> None:
    first = min(trace_ids(corpus))
    table_files.remove(corpus, first, COLLECTIVE_MEMBERS)
    found, missing = jobs(corpus), unanswered(corpus, COLLECTIVE_MEMBERS)
    assert first in missing
    assert trace_ids(corpus) == {trace_id for job in found for trace_id in job.trace_ids}
    summaries.keep(corpus)
    # In place, so that the folder stays as it was: whoever reads a file a trace stumbles over it.
    (trace_folder(corpus, first) / "traces.parquet").write_bytes(b"no Parquet")
    assert jobs(corpus) == found
    assert unanswered(corpus, COLLECTIVE_MEMBERS) == missing
    shutil.rmtree(corpus / SUMMARIES)
    with pytest.raises(CorpusError, match="cannot be read"):
        jobs(corpus)
    assert unanswered(corpus, COLLECTIVE_MEMBERS) == missing, "who reads it says what is wrong with it"


def test_a_few_traces_have_none(corpus: Path) -> None:
    assert summaries.keep(corpus) == 0
    assert not (corpus / SUMMARIES).exists()


@pytest.mark.usefixtures("many")
def test_a_trace_that_changes_meanwhile_drops_them(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, changes = summaries._write, [True]  # noqa: SLF001 - the moment between reading and publishing

    def while_another_ingests(*arguments: Any) -> None:
        write(*arguments)
        if changes:
            changes.clear()
            ingest([small(tmp_path / "rank0.json", "late")], corpus, workers=1)

    monkeypatch.setattr(summaries, "_write", while_another_ingests)
    assert summaries.keep(corpus) == 0
    assert not summaries.current(corpus)[0]
    assert not list((corpus / STAGING).iterdir())


@pytest.mark.usefixtures("many")
def test_a_writer_that_dies_leaves_what_the_next_ingest_removes(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        """The process ends here, without any clearing up."""

    def dies(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(summaries, "publish_folder", dies)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(Killed):
            summaries.keep(corpus)
    assert not summaries.current(corpus)[0]
    assert list((corpus / STAGING).iterdir())
    open_for_writing(corpus)
    assert not [left for left in (corpus / STAGING).iterdir() if not is_held(left)]


@pytest.mark.usefixtures("many")
def test_a_report_keeps_them_and_says_so(corpus: Path) -> None:
    told: list[str] = []
    on_demand.prepare_query(corpus, "FROM operators", told.append)
    assert not (corpus / SUMMARIES).exists()
    on_demand.prepare_query(corpus, "FROM breakdown", told.append)
    assert told[-1].startswith(f"summaries of {len(trace_ids(corpus))} traces are kept")
    corpus.chmod(0o500)
    on_demand.prepare_query(corpus, "FROM breakdown", told.append)


@pytest.mark.usefixtures("many")
def test_a_table_that_cannot_be_read_is_said_by_who_asks_for_it(corpus: Path) -> None:
    (trace_folder(corpus, min(trace_ids(corpus))) / "operators.parquet").write_bytes(b"PAR1")
    on_demand.prepare_query(corpus, "SELECT * FROM gpu_time", lambda _: None)
    assert not (corpus / SUMMARIES).exists()
