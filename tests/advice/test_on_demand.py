"""What the page computes by itself, and what it leaves to commands where the corpus is too large for that."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lumos_df.advice import on_demand
from lumos_df.cli.app import app
from lumos_df.graph import rank_outline, rows
from lumos_df.trace.ingest import ingest
from tests.trace.literal import kernel, launch, op, write

SAMPLE = Path(__file__).parents[2] / "data" / "traces" / "gpu_generated"


def test_the_page_of_a_large_corpus_names_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, page = tmp_path / "corpus", tmp_path / "page.html"
    ingest([SAMPLE], corpus, workers=1)
    monkeypatch.setattr(on_demand, "_AT_ONCE", 10)
    done = CliRunner().invoke(app, ["report", "--corpus", str(corpus), "--html", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    for command, unknown in (
        ("advise", "what to change is not known yet"),
        ("critical-path", "critical paths are not known yet"),
    ):
        assert f"{unknown}; with" in done.stderr
        assert f"`lumos-df {command} --corpus {corpus}`" in text


def test_a_first_report_reads_a_job_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its collectives are matched from the rows that it is replayed from."""
    corpus = tmp_path / "corpus"
    ingest([SAMPLE], corpus, workers=1)
    ranks = list[str]()

    def read(corpus: Path, trace_id: str) -> rows.Rows:
        found = read_rows(corpus, trace_id)
        ranks.append(f"{found.job} {found.rank}")
        return found

    read_rows = rows.read
    for module in (rows, rank_outline):
        monkeypatch.setattr(module, "read", read)
    done = CliRunner().invoke(app, ["report", "--corpus", str(corpus)])
    assert done.exit_code == 0, done.output
    assert sorted(ranks) == [f"gpu_generated {rank}" for rank in range(4)]
    assert done.stderr.splitlines()[:2] == [
        "matched 9 of 9 collectives of job gpu_generated on 4 ranks",
        "replayed 1 job for what to change",
    ]


def test_jobs_are_told_in_order(tmp_path: Path) -> None:
    """Of job `one` there are two runs of rank 0, of job `two` two ranks."""
    corpus = tmp_path / "corpus"
    for job, file, rank, ts in (("one", "a", 0, 0), ("one", "b", 0, 5), ("two", "a", 0, 9), ("two", "b", 1, 9)):
        (tmp_path / job).mkdir(exist_ok=True)
        reduce = launch(10 + ts, 5, 1), kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20 + ts, 50, correlation=1)
        write(tmp_path / job / f"{file}.json", [op("aten::mm", ts, 20), *reduce], distributedInfo={"rank": rank})
    ingest([tmp_path / "one", tmp_path / "two"], corpus, workers=1)
    done = CliRunner().invoke(app, ["report", "--corpus", str(corpus)])
    assert done.exit_code == 0, done.output
    told = [line.split()[0] if ":" in line else line for line in done.stderr.splitlines()[:4]]
    assert told == [
        "one:",
        "one:",
        "matched 1 of 1 collective of job two on 2 ranks",
        "replayed 3 jobs for what to change",
    ]


def test_a_job_that_is_matched_after_its_advice_is_advised_again(tmp_path: Path) -> None:
    """Whoever matches a job takes away what was found of it, as of a job that grew."""
    corpus = tmp_path / "corpus"
    ingest([SAMPLE], corpus, workers=1)
    shown = [CliRunner().invoke(app, ["report", "--corpus", str(corpus)]) for _ in range(2)]
    for table in corpus.glob("trace_id=*/collectives.parquet"):
        if "HIVE" not in table.parent.name:
            table.unlink()
    shown.append(CliRunner().invoke(app, ["report", "--corpus", str(corpus)]))
    assert [done.exit_code for done in shown] == [0, 0, 0]
    assert shown[0].stdout == shown[1].stdout == shown[2].stdout
    assert shown[2].stderr == shown[0].stderr
