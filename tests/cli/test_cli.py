import csv
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import duckdb
import pytest
import typer

from lumos_df.corpus.report import report_views
from tests.conftest import ROOT, SAMPLES, Run, command, full_disk
from tools.docs import cli_reference

ENDLESS = "SELECT count(*) FROM range(1000000) a, range(10000000) b WHERE (a.range * b.range) % 7 = 3"


# --- ingest


def test_ingest_says_what_it_did_and_skips_what_is_in(lumos: Run) -> None:
    first = lumos("ingest", SAMPLES / "gpu_generated", "--corpus", "c")
    assert first.returncode == 0
    assert re.fullmatch(r"c: read 4 files, 4 traces, [\d,]+ events, [\d,]+ operators\n", first.stdout)
    assert first.stderr.splitlines()[-1].startswith("[4/4] ")

    again = lumos("ingest", SAMPLES / "gpu_generated", "--corpus", "c", "--workers", 1)
    assert again.returncode == 0
    assert "read 0 files" in again.stdout
    assert "skipped 4 files (already in the corpus)" in again.stdout


def test_a_bad_file_is_named_and_the_others_go_in(lumos: Run, tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "gpu_generated" / "rank0.json.gz", tmp_path)
    (tmp_path / "bad.json").write_text("never a trace")
    done = lumos("ingest", "bad.json", "rank0.json.gz", "absent.json", "--corpus", "c", "--workers", 1)
    assert done.returncode == 1
    assert "read 1 file, 1 trace" in done.stdout
    assert "2 files failed" in done.stdout
    complaints = [line for line in done.stderr.splitlines() if line.startswith("lumos-df: ")]
    assert len(complaints) == 2
    assert any("bad.json" in line for line in complaints)
    assert any("absent.json" in line for line in complaints)
    assert "Traceback" not in done.stderr


def test_shards_split_the_files(lumos: Run) -> None:
    parts = [lumos("ingest", SAMPLES, "--corpus", "c", "--shard", f"{part}/2", "--workers", 1) for part in (1, 2)]
    assert all("read 3 files" in part.stdout for part in parts)


def test_rank_and_job_are_set(lumos: Run) -> None:
    lumos("ingest", SAMPLES / "gpu_generated" / "rank0.json.gz", "--corpus", "c", "--rank", 5, "--job", "mine")
    rows = json.loads(lumos("sql", "SELECT job, rank FROM traces", "--corpus", "c", "--format", "json").stdout)
    assert rows == [{"job": "mine", "rank": 5}]


# --- estimate --set


def test_of_several_jobs_those_that_can_change_are_answered_and_the_others_told(
    lumos: Run, sample_corpus: Path
) -> None:
    asked = ("estimate", "--set", "hardware=h200", "--corpus", sample_corpus)
    done = lumos(*asked)
    assert done.returncode == 1
    assert "gpu_generated, " in done.stdout
    assert "next: lumos-df estimate --job gpu_generated --set hardware=h200" in done.stdout
    assert done.stderr.startswith("lumos-df: cpu_ddp: hardware cannot change, because the job ran on no GPU")
    rows = lumos(*asked, "--format", "json")
    assert rows.returncode == 1
    assert {row["job"] for row in json.loads(rows.stdout)} == {"gpu_generated"}


def test_where_none_of_several_jobs_can_change_one_line_says_so(lumos: Run, sample_corpus: Path) -> None:
    done = lumos("estimate", "--set", "dp=4", "--corpus", sample_corpus)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("lumos-df: cpu_ddp: dp=4 changes nothing")
    assert done.stderr.endswith("; 1 more cannot, either: see each by --job NAME, or --trace ID\n")


def test_of_several_runs_of_one_name_the_trace_that_cannot_change_is_told(lumos: Run) -> None:
    for rank in (0, 1):
        recorded = SAMPLES / "cpu_ddp" / f"rank{rank}.json.gz"
        lumos("ingest", recorded, "--corpus", "runs", "--job", "runs", "--rank", 0)
    done = lumos("estimate", "--set", "hardware=h200", "--corpus", "runs")
    listed = lumos("sql", "SELECT trace_id FROM traces", "--corpus", "runs", "--format", "json")
    ids = [row["trace_id"] for row in json.loads(listed.stdout)]
    assert any(f" (trace {trace_id} and 1 more); 1 more cannot, either" in done.stderr for trace_id in ids)


# --- sql

QUERY = "SELECT 'a,b' AS text, 42 AS number, NULL AS nothing, 'nan'::DOUBLE AS nan"


def test_a_query_comes_from_the_argument_a_file_or_standard_input(
    lumos: Run, sample_corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "query.sql").write_text(QUERY + ";\n-- done\n")
    asked = [
        lumos("sql", QUERY, "--corpus", sample_corpus, "--format", "json"),
        lumos("sql", "-f", "query.sql", "--corpus", sample_corpus, "--format", "json"),
        lumos("sql", "--corpus", sample_corpus, "--format", "json", stdin=QUERY),
    ]
    for done in asked:
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout) == [{"text": "a,b", "number": 42, "nothing": None, "nan": None}]


def test_formats(lumos: Run, sample_corpus: Path, tmp_path: Path) -> None:
    def ask(*options: object) -> str:
        done = lumos("sql", QUERY, "--corpus", sample_corpus, *options)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert "│ a,b     │     42 │" in ask()
    assert ask("--format", "csv") == 'text,number,nothing,nan\n"a,b",42,,nan\n'
    assert ask("--output", "deep/in/rows.csv") == ""
    assert (tmp_path / "deep/in/rows.csv").read_text() == ask("--format", "csv")
    ask("--output", "rows.parquet")
    assert duckdb.execute(f"SELECT number FROM '{tmp_path}/rows.parquet'").fetchall() == [(42,)]
    ask("--output", "rows.TXT")
    assert (tmp_path / "rows.TXT").read_text() == ask()
    ask("--output", "rows.anything", "--format", "csv")
    assert (tmp_path / "rows.anything").read_text() == ask("--format", "csv")


@pytest.mark.parametrize("query", ["SELECT * FROM range(0)", "SET threads = 2"])
def test_json_without_rows_is_an_empty_array(lumos: Run, sample_corpus: Path, query: str) -> None:
    assert json.loads(lumos("sql", query, "--corpus", sample_corpus, "--format", "json").stdout) == []


def test_of_several_statements_the_last_is_written(lumos: Run, sample_corpus: Path) -> None:
    done = lumos("sql", "SET threads = 1; SELECT 1 AS a; SELECT 2 AS b", "--corpus", sample_corpus, "--format", "csv")
    assert done.stdout == "b\n2\n"


def test_a_file_is_replaced_only_by_a_whole_one(lumos: Run, sample_corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("before")
    late_error = "SELECT CASE WHEN range = 500000 THEN error('late') END FROM range(1000000)"
    done = lumos("sql", late_error, "--corpus", sample_corpus, "--output", "rows.csv")
    assert done.returncode == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "rows.csv"]
    assert (tmp_path / "rows.csv").read_text() == "before"


# --- report


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_rows_that_do_not_fit_on_the_disk_are_one_line(
    lumos: Run, sample_corpus: Path, tmp_path: Path, form: str
) -> None:
    file = tmp_path / f"rows.{form}"
    file.write_text("before")
    with full_disk(1000):
        for command in (("sql", "FROM operators"), ("report", "--view", "operators")):
            done = lumos(*command, "--corpus", sample_corpus, "--output", file)
            assert done.returncode == 1
            told = f"lumos-df: {file}: File too large; check the path, its permissions and the disk's space"
            assert done.stderr.splitlines()[-1] == told
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_report_without_arguments_is_one_screen(lumos: Run, sample_corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(sample_corpus, corpus := tmp_path / "corpus")
    for advised in corpus.glob("*/job_advice.parquet"):
        advised.unlink()
    done = lumos("report", "--corpus", corpus.name, COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "replayed 2 jobs for what to change\n")
    lines = done.stdout.splitlines()
    assert len(lines) <= 30
    assert "what to change" in done.stdout
    assert max(map(len, lines)) <= 80
    assert "gpu_generated: rank 2, last to 9 of 9 collectives" in done.stdout


def test_the_summary_as_json_is_one_object(lumos: Run, sample_corpus: Path) -> None:
    summary = json.loads(lumos("report", "--corpus", sample_corpus, "--format", "json").stdout)
    assert [job["job"] for job in summary["jobs"]] == ["cpu_ddp", "gpu_generated"]
    assert summary["stragglers"][0]["rank"] == 2


def test_report_writes_one_file_a_view(lumos: Run, sample_corpus: Path, tmp_path: Path) -> None:
    done = lumos("report", "--corpus", sample_corpus, "--output", "out")
    assert (done.returncode, done.stdout) == (0, "")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"{view}.csv" for view in report_views()]


def test_named_views_and_their_format(lumos: Run, sample_corpus: Path, tmp_path: Path) -> None:
    views = ["--view", "gpu_time", "--view", "kernel"]
    lumos("report", "--corpus", sample_corpus, *views, "--output", "out", "--format", "parquet")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["gpu_time.parquet", "kernel.parquet"]


def test_csv_headers_carry_units(lumos: Run, sample_corpus: Path) -> None:
    header = lumos("report", "--view", "step", "--corpus", sample_corpus, "--format", "csv").stdout.splitlines()[0]
    assert header == "job,trace_id,rank,step,ts_ns,dur_ns,gpu_rows,gpu_first_ts_ns,gpu_last_ts_ns"


def test_one_view_goes_to_standard_output(lumos: Run, sample_corpus: Path) -> None:
    printed = lumos("report", "--view", "gpu_time", "--corpus", sample_corpus, "--format", "csv").stdout
    assert [row["gpu_rows"] for row in csv.DictReader(printed.splitlines())] == ["333"] * 4


# --- bad input

BAD_INPUT = {
    "no corpus": (["report", "--corpus", "nowhere"], "nowhere: no corpus here .*; make one with: lumos-df ingest"),
    "no corpus for sql": (["sql", "SELECT 1", "--corpus", "nowhere"], "nowhere: no corpus here"),
    "unknown view": (["report", "--view", "gpu_tim"], "no view 'gpu_tim'; did you mean 'gpu_time'"),
    "unknown view, nothing near": (["report", "--view", "xyz"], "no view 'xyz'; there are .*breakdown"),
    "unknown view for a folder": (["report", "--view", "gpu_tim", "--output", "o"], "did you mean 'gpu_time'"),
    "unknown table": (["sql", "FROM operator"], "no table or view 'operator'; did you mean 'operators'"),
    "bad SQL": (["sql", "SELEC 1"], "syntax error"),
    "empty SQL": (["sql", " ; "], "the query is empty"),
    "absent SQL file": (["sql", "-f", "absent.sql"], "absent.sql: No such file"),
    "output of no known format": (["sql", "SELECT 1", "--output", "rows.anything"], "rows.anything: .* add --format"),
    "output is a folder": (
        ["sql", "SELECT 1", "--output", "empty_folder", "--format", "csv"],
        "empty_folder: a folder",
    ),
    "output in a file": (["sql", "SELECT 1", "--output", "a_file/rows.csv"], "a_file"),
    "nothing to ingest": (["ingest", "empty_folder", "--corpus", "new"], "empty_folder"),
    "corpus is a file": (["ingest", str(SAMPLES), "--corpus", "a_file"], "a_file"),
}


@pytest.mark.parametrize(("arguments", "complaint"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_one_line_and_exit_1(
    lumos: Run, sample_corpus: Path, tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    (tmp_path / "corpus").symlink_to(sample_corpus)
    (tmp_path / "a_file").touch()
    (tmp_path / "empty_folder").mkdir()
    done = lumos(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"lumos-df: .*{complaint}.*\n", done.stderr)


USAGE = {
    "unknown command": (["ingst"], "Did you mean 'ingest'"),
    "unknown option": (["ingest", "x", "--crops", "c"], "--crops"),
    "no path": (["ingest"], "PATH"),
    "unknown format": (["sql", "SELECT 1", "--format", "xml"], "xml"),
    "bad shard": (["ingest", "x", "--shard", "3/2"], "such as 2/8"),
    "no workers": (["ingest", "x", "--workers", "0"], "workers"),
    "two queries": (["sql", "SELECT 1", "-f", "x.sql"], "not both"),
    "several views at once": (["report", "--view", "a", "--view", "b"], "--output DIR"),
    "the summary as CSV": (["report", "--format", "csv"], "name a view"),
}


@pytest.mark.parametrize(("arguments", "complaint"), USAGE.values(), ids=USAGE)
def test_wrong_usage_is_exit_2(lumos: Run, arguments: list[str], complaint: str) -> None:
    done = lumos(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


# --- leaving


@pytest.mark.parametrize(("argument", "status"), [("--version", 0), ("nonsense", 2)])
def test_a_process_ends_with_the_commands_status_and_what_it_registered(argument: str, status: int) -> None:
    code = "import atexit, sys; atexit.register(sys.stderr.write, 'cleared'); from lumos_df.__main__ import run; run()"
    done = subprocess.run([sys.executable, "-c", code, argument], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.endswith("cleared")) == (status, True)
    assert status or done.stdout.startswith("lumos-df ")


def test_a_closed_pipe_is_quiet(sample_corpus: Path) -> None:
    ask = command("sql", "SELECT * FROM range(1000000)", "--corpus", sample_corpus, "--format", "csv")
    with subprocess.Popen(ask, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == b"range\n"
        process.stdout.close()
        assert process.stderr.read() == b""


def test_an_interrupt_is_one_line_and_quick(sample_corpus: Path) -> None:
    ask = command("sql", ENDLESS, "--corpus", sample_corpus)
    # A shell's job in the background ignores interrupts, and its children would, too.
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(ask, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        signal.signal(signal.SIGINT, usual)
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        printed = process.communicate(timeout=5)
    assert (process.returncode, *printed) == (130, b"", b"lumos-df: stopped by Ctrl-C\n")


def test_an_interrupt_before_there_are_commands_is_one_line(lumos: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lumos_df.cli.main.command_line", lambda _: interrupted)
    done = lumos("--version")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "lumos-df: stopped by Ctrl-C\n")


@pytest.mark.parametrize("first", ["ctypes", "typer"])
def test_an_interrupt_while_the_command_is_loaded_is_quiet(tmp_path: Path, first: str) -> None:
    (tmp_path / f"{first}.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = subprocess.run(
            command("--version"),
            capture_output=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            check=False,
        )
    finally:
        signal.signal(signal.SIGINT, usual)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


# --- the prompt


# Ctrl-C reaches a process through the terminal that its session owns, unless a shell's job in the background had it
# ignore that.
OWN_TERMINAL = (
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)


class Terminal:
    """A terminal with `lumos-df sql` in it."""

    def __init__(self, corpus: Path, state: Path) -> None:
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWN_TERMINAL, *command("sql", "--corpus", corpus)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=ROOT,
            start_new_session=True,
            env=os.environ | {"XDG_STATE_HOME": str(state), "TERM": "dumb", "COLUMNS": "100"},
        )
        os.close(theirs)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C until the prompt is new: Python sees one between prompt and keys only with the next key."""
        for _ in range(5):
            self.type("\x03")
            if self.printed("lumos> ", 3):
                return
        self.expect("lumos> ")

    def printed(self, pattern: str, seconds: float) -> bool:
        """Return whether `pattern` appears in time."""
        try:
            self.expect(pattern, seconds)
        except AssertionError:
            return False
        return True

    def expect(self, pattern: str, seconds: float = 30) -> str:
        """Wait until `pattern` appears in what is printed, and drop everything up to its end."""
        until = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen)):
            ready, _, _ = select.select([self.ours], [], [], max(0, until - time.monotonic()))
            assert ready, f"{pattern!r} did not appear in {self.seen!r}"
            self.seen += os.read(self.ours, 65536).decode().replace("\r\n", "\n")
        self.seen = self.seen[found.end() :]
        return found[0]


@pytest.fixture
def terminal(sample_corpus: Path, tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(sample_corpus, tmp_path)
    terminal.expect("lumos> ")
    yield terminal
    terminal.process.kill()
    terminal.process.wait()
    os.close(terminal.ours)


def test_the_prompt_answers_statements_over_several_lines(terminal: Terminal) -> None:
    terminal.type("SELECT 40 +\n")
    terminal.expect(r"   \.\.\.> ")
    terminal.type("2 AS answer;\n")
    terminal.expect(r"answer(.|\n)*42")


def test_the_prompt_explains_itself(terminal: Terminal) -> None:
    terminal.type(".tables\n")
    terminal.expect(r"operators +One row an operator(.|\n)*gpu_time +Time of each rank's GPU")
    terminal.type(".schema gpu_time\n")
    terminal.expect(r"busy_ns +BIGINT +Something ran, ns\.")
    terminal.type(".help\n")
    terminal.expect(r"\.schema \[NAME\]")
    terminal.type(".table\n")
    terminal.expect("no command '.table'; did you mean '.tables'")
    terminal.type(".schema gpu_tim\n")
    terminal.expect("no table or view 'gpu_tim'; did you mean 'gpu_time'")
    terminal.type("SELEC 1;\n")
    terminal.expect("syntax error")
    terminal.expect("lumos> ")


def test_an_interrupt_ends_the_query_and_not_the_prompt(terminal: Terminal) -> None:
    terminal.type(f"{ENDLESS};\n")
    terminal.expect(re.escape(";\n"))
    time.sleep(0.5)
    terminal.type("\x03")
    terminal.expect("interrupted", seconds=5)
    terminal.type("SELECT 40 + 2 AS answer;\n")
    terminal.expect("42")


def test_an_interrupt_drops_a_half_statement(terminal: Terminal) -> None:
    terminal.type("SELECT 'half\n")
    terminal.expect(r"   \.\.\.> ")
    terminal.interrupt()
    terminal.type("SELECT 40 + 2 AS answer;\n")
    terminal.expect("42")


@pytest.mark.parametrize("leave", [".quit\n", "\x04"], ids=["quit", "Ctrl-D"])
def test_leaving_the_prompt_keeps_its_history(terminal: Terminal, tmp_path: Path, leave: str) -> None:
    terminal.type("SELECT 1;\n")
    terminal.expect("1")
    terminal.expect("lumos> ")
    terminal.type(leave)
    assert terminal.process.wait(timeout=5) == 0
    assert "SELECT 1;" in (tmp_path / "lumos-df" / "history").read_text()


# --- documentation


def test_every_command_and_option_is_documented() -> None:
    text = cli_reference()
    for term in ("## lumos-df ingest", "## lumos-df sql", "## lumos-df report", "--shard I/N", "-f, --file FILE"):
        assert term in text


def test_what_has_no_help_is_refused() -> None:
    without = typer.Typer(add_completion=False, rich_markup_mode=None, help="An app.")

    @without.command()
    def documented(*, mute: Annotated[bool, typer.Option("--mute")] = False) -> None:
        """Do nothing."""
        del mute

    @without.callback()
    def group() -> None:
        """Make the command one of a group."""

    with pytest.raises(ValueError, match="'mute' of command 'lumos-df documented' has no help"):
        cli_reference(without)


def test_help_is_quick(lumos_process: Run) -> None:
    def cpu_seconds() -> float:
        before = os.times()
        assert lumos_process("--help").returncode == 0
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    # CPU time, not time on the clock, and the best of three: a busy machine is no slower a program.
    assert min(cpu_seconds() for _ in range(3)) < 0.3


def test_version(lumos_process: Run) -> None:
    assert re.fullmatch(r"lumos-df \d+\.\d+\.\d+\n", lumos_process("--version").stdout)
