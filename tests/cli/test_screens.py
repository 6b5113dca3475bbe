"""What every command shows when nobody asks for rows: one screen, never wider than the terminal, 100 columns piped."""

import gzip
import io
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lumos_df.cli.app import app
from lumos_df.cli.screens.replay_screen import say_doubts
from lumos_df.cli.screens.terminal import change_of, say_command, say_headline, say_notes, with_words_cut
from lumos_df.corpus.catalog import connect
from lumos_df.corpus.folder import trace_ids
from lumos_df.graph.job import groups
from lumos_df.trace.ingest import ingest
from tests import emulator
from tests.calibrate.tables import write
from tests.conftest import SAMPLES, Run
from tests.trace.literal import corpus_of, kernel, launch, x

JOB = ("--model", "llama-3-8b", "--hardware", "h100-sxm")
ON_CORPUS = {
    "report": ("report",),
    "replay": ("replay",),
    "replay, changed": ("replay", "--scale", "family=gemm:0.5"),
    "critical-path": ("critical-path", "--gains"),
    "advise": ("advise",),
    "describe": ("describe",),
    "diff": ("diff", "cpu_ddp", "gpu_generated"),
    "estimate --set": ("estimate", "--job", "gpu_generated", "--set", "dp=8"),
    "sql": ("sql", "FROM operators LIMIT 3"),
    "tables": ("sql", ".tables"),
    "schema": ("sql", ".schema kernel"),
    "a view": ("report", "--view", "replay_error"),
}
ALONE = {
    "estimate": ("estimate", *JOB, "--plan", "tp=2,dp=4,batch=32"),
    "sweep": ("sweep", *JOB, "--gpus", "8", "--batch", "32"),
}
RUNS: list[dict[str, object]] = [
    {},
    {"tp": 4, "dp": 2, "iteration_time_s": 12.0},
    {"tp": 1, "pp": 1, "dp": 16, "sp": "", "iteration_time_s": 9.0},
    {"gbs": 256, "iteration_time_s": 19.0},
    {"task": "DPO"},
]
WIDTHS = (80, 160, None)
"""A pipe, without a width, is 100 columns wide."""
LINES = 60
"""A screen scrolls a little where a corpus has two jobs, and never by hundreds of lines."""
LISTED = 80
"""A list of all tables and views has a line for each."""


@pytest.fixture(scope="module")
def corpus(sample_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus that commands may write to."""
    return Path(shutil.copytree(sample_corpus, tmp_path_factory.mktemp("screens") / "corpus"))


def shown(command: tuple[str, ...], columns: int | None) -> list[str]:
    """Return the lines that a command prints on a terminal so wide, or into a pipe."""
    done = CliRunner().invoke(app, command, env={"COLUMNS": None if columns is None else str(columns)})
    assert done.exit_code == 0, done.output
    return [line.rstrip() for line in done.stdout.splitlines()]


def without_spaces(lines: list[str]) -> str:
    """Return lines as one text, in which a command that went on below is whole."""
    return "".join("".join(line.removesuffix("\\") for line in lines).split())


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", [*ON_CORPUS, *ALONE])
def test_no_line_is_wider_than_the_screen(name: str, columns: int | None, corpus: Path) -> None:
    command = (*ON_CORPUS[name], "--corpus", str(corpus)) if name in ON_CORPUS else ALONE[name]
    lines = shown(command, columns)
    assert max(map(len, lines)) <= (columns or 100)
    assert 1 < len(lines) <= (LISTED if name == "tables" else LINES)


def test_no_line_of_a_command_that_writes_is_wider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SAMPLES / "gpu_generated", "job")
    for command in (
        ("ingest", "job", "--workers", "1"),
        ("replay",),
        ("export", "--output", "timeline.json.gz"),
        ("export", "--what", "chakra", "--output", "chakra"),
        ("generate", "--output", "benchmark"),
        ("report", "--html", "page.html"),
        ("sweep", *JOB, "--gpus", "8", "--batch", "32", "--html", "sweep.html"),
    ):
        done = CliRunner().invoke(app, command, env={"COLUMNS": "80"})
        assert done.exit_code == 0, done.output
        lines = done.output.splitlines()
        assert lines
        assert max(map(len, lines)) <= 80, command


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some measured runs, in a file that is a set's, too; one cannot be estimated."""
    return write(tmp_path_factory.mktemp("truth") / "published_training_runs.csv", RUNS)


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_scoreboard_says_first_how_far_estimates_are_off(columns: int | None, measured: Path) -> None:
    lines = shown(("scoreboard", "--truth", str(measured.parent), "--dataset", "published"), columns)
    assert max(map(len, lines)) <= (columns or 100)
    assert re.fullmatch(r"4 of 5 measured runs estimated, \d+\.\d% off on average", lines[0])
    assert re.match(r"published_training_runs +4 +\d+\.\d% ", lines[2])
    assert lines[3:5] == ["  1 run said not to fit", "  1 not estimated: training that is not modelled: DPO"]
    assert "next: lumos-df scoreboard" in "\n".join(lines)


def test_a_scoreboard_shows_the_most_frequent_reasons(tmp_path: Path) -> None:
    refused = [("mbs", ""), ("precision", "INT4"), ("precision", "INT8"), ("task", "DPO"), ("task", "DPO")]
    runs: list[dict[str, object]] = [{}] + [{name: value} for name, value in refused]
    truth = write(tmp_path / "published_training_runs.csv", runs)
    lines = shown(("scoreboard", "--truth", str(truth.parent), "--dataset", "published"), 100)
    assert lines[3] == "  2 not estimated: training that is not modelled: DPO"
    assert [line[:20] for line in lines[4:6]] == ["  1 not estimated: d", "  1 not estimated: p"]
    assert lines[6] == "  1 not estimated for 1 other reason"


def test_an_estimate_says_all_of_where_the_step_goes() -> None:
    lines = shown(("estimate", *JOB, "--plan", "tp=8"), 100)
    assert any(line.endswith("  8,192 tokens a sequence") for line in lines[:2])
    (line,) = [line for line in lines if line.startswith(" compute ")]
    parts = re.findall(r"(?:compute|communication|overlapped|bubble|host) (\d+)%", line)
    assert len(parts) == 5
    assert abs(sum(map(int, parts)) - 100) <= 2


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_calibration_says_what_to_expect_of_a_run_that_was_not_measured(
    columns: int | None, measured: Path, tmp_path: Path
) -> None:
    output = tmp_path / "mine.toml"
    lines = shown(("calibrate", str(measured), "--hardware", "h100-sxm", "--output", str(output)), columns)
    assert max(map(len, lines)) <= (columns or 100)
    assert re.match(r"4 runs: \d+\.\d% off as they are, \d\.\d% calibrated; expect \d+\.\d% of a run", lines[0])
    assert any(line.startswith("time of ") for line in lines[1:3])
    assert f"next:lumos-dfestimate--modelNAME--hardware{output}" in without_spaces(lines)


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_calibration_on_a_corpus_says_which_figures_it_sets(
    columns: int | None, corpus: Path, tmp_path: Path
) -> None:
    output = tmp_path / "mine.toml"
    lines = shown(("calibrate", "--corpus", str(corpus), "--output", str(output)), columns)
    assert max(map(len, lines)) <= (columns or 100)
    assert re.fullmatch(r"[\d,]+ kernels set \d+ figures?", lines[0])
    assert any(line.startswith("gemm.") for line in lines)
    assert f"--hardware{output}" in without_spaces(lines)


def test_a_table_names_the_columns_that_it_leaves_out(corpus: Path) -> None:
    command = ("report", "--view", "breakdown", "--corpus", str(corpus))
    text = "\n".join(shown(command, 80))
    left = re.search(r"left out: ([\w, \n]+); every", text)
    assert left
    assert "trace_id" in left[1]
    heads = {name for line in text.splitlines() if line.startswith("│") for name in re.findall(r"[a-z_]+", line)}
    with connect(corpus) as connection:
        columns = connection.sql("FROM breakdown").columns
    assert {name for name in columns if name not in heads} == set(left[1].replace("\n", " ").split(", "))
    assert "left out" not in "\n".join(shown(command, 300))


def test_a_report_has_no_blanks_at_the_end_of_a_line_and_no_command_that_breaks(corpus: Path) -> None:
    for name in ("report", "advise", "diff"):
        done = CliRunner().invoke(app, (*ON_CORPUS[name], "--corpus", str(corpus)), env={"COLUMNS": "80"})
        lines = done.stdout.splitlines()
        assert [line for line in lines if line != line.rstrip()] == []
        begins = [place for place, line in enumerate(lines) if "lumos-df " in line]
        assert begins
        for place in begins:
            end = next(k for k in range(place, len(lines)) if not lines[k].endswith("\\"))
            command = "".join(f"{line} " for line in lines[place : end + 1]).replace("\\ ", "")
            words = shlex.split(command[command.index("lumos-df ") :])
            assert words[-2:] == ["--corpus", str(corpus)]


def first_lines(corpus: Path, name: str, lines: int = 1) -> str:
    return "\n".join(shown((*ON_CORPUS[name], "--corpus", str(corpus)), 160)[:lines])


def test_replay_says_first_how_far_it_is_off(corpus: Path) -> None:
    assert "76.6 ms a step, replayed 76.6 ms: within 0.0% (worst 0.0%)" in first_lines(corpus, "replay", 2)


def test_a_changed_replay_says_old_new_and_the_difference(corpus: Path) -> None:
    text = "\n".join(shown((*ON_CORPUS["replay, changed"], "--corpus", str(corpus)), 100))
    assert re.search(r"gpu_generated, 5\.69 ms a step -> 4\.66 ms  \(-1\.03 ms, -18%\)", text)


def test_the_path_says_what_it_is_made_of_and_on_which_rank(corpus: Path) -> None:
    text = "\n".join(shown((*ON_CORPUS["critical-path"], "--corpus", str(corpus)), 100))
    assert re.search(r"gpu_generated, step \d .*decided by rank 2", text)
    assert re.search(r"35\.\d%    2\.00 ms   rank 2   host: sleep\(\)", text)
    said = " ".join(text.split())
    assert re.search(r"what would help most: rank 2 without silences, at most -\d\d% lumos-df replay --no-wait", said)
    assert re.search(r"gemm twice as fast, -18% replayed lumos-df replay --scale family=gemm:0.5", said)


@pytest.mark.parametrize("command", [("estimate", "--set", "layers=4"), ("replay", "--scale", "name=aten::mm:0.5")])
def test_a_changed_job_without_gpus_names_none(command: tuple[str, ...], corpus: Path) -> None:
    said = "\n".join(shown((*command, "--job", "cpu_ddp", "--corpus", str(corpus)), 100))
    assert "cpu_ddp, " in said
    assert not re.search(r"exposed communication|\b0 ns\b|\d GPU|/GPU", said)
    assert ("2 ranks " in said) == (command[0] == "estimate")


def test_a_replay_says_once_that_no_gpu_was_recorded(corpus: Path) -> None:
    said = "\n".join(shown(("replay", "--job", "cpu_ddp", "--corpus", str(corpus)), 100))
    assert len(re.findall("GPU", said)) == 1


def test_ranks_without_gpus_decide_nothing_of_one_another(corpus: Path) -> None:
    said = " ".join(shown((*ON_CORPUS["critical-path"], "--corpus", str(corpus)), 100))
    assert re.search(r"cpu_ddp, step \d [^,]*: 73\.8 ms, its own path: ranks without GPUs are not joined", said)


def test_advice_is_the_top_of_a_report(corpus: Path) -> None:
    assert "rank 2 is waited for" in first_lines(corpus, "report", 6)


def test_a_screen_leaves_nothing_of_the_step_out(corpus: Path) -> None:
    lines = shown((*ON_CORPUS["diff"], "--corpus", str(corpus)), 100)
    assert re.match(r"step 69\.\d ms -> 5\.\d+ ms  \(-6\d\.\d ms, -9\d%\)", lines[0])


def test_full_shows_every_row_as_text(corpus: Path) -> None:
    short, full = (shown(("critical-path", *more, "--corpus", str(corpus)), 100) for more in ((), ("--full",)))
    assert len(full) > len(short) + 40
    assert not any("more: --full" in line for line in full)


@pytest.mark.parametrize(("slower", "limit", "status"), [("cpu_ddp", "3%", 1), ("gpu_generated", "3%", 0)])
def test_a_slower_step_fails_a_gate(corpus: Path, slower: str, limit: str, status: int) -> None:
    faster = {"cpu_ddp": "gpu_generated", "gpu_generated": "cpu_ddp"}[slower]
    gated = CliRunner().invoke(app, ["diff", faster, slower, "--fail-above", limit, "--corpus", str(corpus)])
    assert gated.exit_code == status
    assert gated.stdout.startswith("step ")
    if status:
        assert re.search(r"cpu_ddp takes \d+\.\d\d% longer than gpu_generated; .*3%", str(gated.exception))


def test_a_sweep_of_gpus_finds_plans_by_itself() -> None:
    lines = shown(("sweep", *JOB, "--gpus", "64", "--batch", "256", "--top", "3"), 100)
    assert re.match(r"[\d,]+ configurations; [\d,]+ legal and estimated; [\d,]+ fit", lines[0])
    assert lines[1].split()[:4] == ["#", "tp", "pp", "dp"]
    (told,) = [line for line in lines if "within each other's range" in line]
    alike, hidden = map(int, re.findall(r"\d+", told))
    measure = f"the first {alike} lie within each other's range: measure some, then lumos-df calibrate"
    assert told == f"{measure} ({hidden} more: --full)"
    assert alike - hidden == 3
    every = shown(("sweep", *JOB, "--gpus", "64", "--batch", "256", "--full"), 100)
    assert [line for line in every if "within each other's range" in line] == [measure]
    assert sum(line[:4].strip().isdigit() for line in every) > alike
    assert any(
        line.startswith("next: lumos-df estimate --model llama-3-8b --hardware h100-sxm --plan") for line in lines
    )


@pytest.mark.parametrize(
    "plan", ["lora=8|16", "lora=8,lora_targets=all|attention", "dp_replicate=1|2,zero=3", "lora=8,offload=on|off"]
)
def test_plans_of_a_sweep_that_differ_are_told_apart(plan: str) -> None:
    lines = shown(("sweep", *JOB, "--plan", f"gpus=8,tp=2,batch=32,{plan}"), 100)
    field, _, values = next(part for part in plan.split(",") if "|" in part).partition("=")
    (place,) = [place for place, line in enumerate(lines) if line.split()[:1] == ["#"]]
    column = lines[place].split().index(field)
    assert {line.split()[column] for line in lines[place + 1 : place + 3]} == set(values.split("|"))


def test_the_sweep_after_an_estimate_keeps_software_and_precision() -> None:
    plan = ("--plan", "tp=8,dp=8,batch=256,sp=on,precision=fp8,software=megatron")
    said = " ".join(" ".join(shown(("estimate", *JOB, *plan), 100)).split())
    next_command = said.partition("next: ")[2].replace("\\ ", "")
    assert next_command.endswith("--gpus 64 --batch 256 --plan precision=fp8,software=megatron")
    lines = shown((*next_command.split()[1:], "--top", "1"), 160)
    assert any(line.endswith("precision=fp8,software=megatron") for line in lines)


@pytest.mark.parametrize("recompute", ["products", "light"])
def test_the_sweep_after_an_estimate_tries_what_that_computes_again(recompute: str) -> None:
    plan = ("--plan", f"dp=64,batch=256,precision=fp8,recompute={recompute}")
    said = " ".join(" ".join(shown(("estimate", *JOB, *plan), 100)).split())
    command = shlex.split(said.partition("next: lumos-df ")[2].replace("\\ ", ""))
    assert command[-1] == f"precision=fp8,recompute=none|selective|full|{recompute}"
    best = shown((*command, "--top", "40"), 160)
    assert {"none", recompute} <= {word for line in best for word in line.split()}


@pytest.mark.parametrize(
    ("plan", "where", "says"),
    [
        ("dp=8,batch=64", (), ["1 legal and estimated; 0 fit", "no plan fits into the memory; --where true shows"]),
        ("dp=8,batch=64", ("--where", "true"), ["1 legal and estimated; 1 meets the condition"]),
        ("dp=8,batch=64", ("--where", "gpus > 9"), ["0 meet the condition", "no plan meets the condition; --where"]),
        (
            "tp=7,batch=64",
            (),
            ["0 legal and estimated; 0 fit", "refused 1 by tp, such as llama-3-8b, tp = 7: does not"],
        ),
    ],
)
def test_a_sweep_says_why_no_plan_is_left(plan: str, where: tuple[str, ...], says: list[str]) -> None:
    lines = shown(("sweep", *JOB, "--plan", plan, *where), 100)
    assert all(text in line for text, line in zip(says, lines, strict=False))
    assert len(lines) >= len(says)


def test_dot_commands_work_as_a_query(corpus: Path) -> None:
    assert any(line.startswith("straggler ") for line in shown(("sql", ".tables", "--corpus", str(corpus)), 100))
    assert any(line.startswith("gain_pct") for line in shown(("sql", ".schema gain", "--corpus", str(corpus)), 100))


def test_a_schema_of_nothing_is_that_of_all(corpus: Path) -> None:
    lines = shown(("sql", ".schema;", "--corpus", str(corpus)), 100)
    assert any(line.split()[:3] == ["straggler", "job,", "step,"] for line in lines)
    assert lines[-1].endswith(".schema NAME")


def test_one_rank_of_many_says_first_what_may_be_due_to_the_others(tmp_path: Path) -> None:
    """Rank 2 sleeps, and is not here."""
    corpus = tmp_path / "corpus"
    ingest([SAMPLES / "gpu_generated" / "rank1.json.gz"], corpus, workers=1)
    for command in ("advise", "critical-path"):
        lines = shown((command, "--corpus", str(corpus)), 100)
        assert lines[0].startswith("1 of 4 ranks is here")
        assert "29% of the critical path waits for ranks that are not here" in lines
    path = shown(("critical-path", "--corpus", str(corpus)), 100)
    helps = path[next(place for place, line in enumerate(path) if line.startswith("what would help")) :]
    assert "communication twice as fast, at most -17%" in helps[0]


def test_two_corpora_are_not_compared_but_told_how(corpus: Path) -> None:
    done = CliRunner().invoke(app, ["diff", str(corpus), str(corpus), "--corpus", str(corpus)])
    assert done.exit_code == 1
    assert "a corpus, not a job: steps are compared within one" in str(done.exception)


def test_an_estimate_of_nothing_is_refused() -> None:
    done = CliRunner().invoke(app, ["estimate"])
    assert done.exit_code == 2
    assert "say what to estimate" in done.output


@pytest.mark.parametrize("name", ["replay", "replay, changed", "critical-path", "advise", "describe"])
def test_a_job_is_chosen_by_its_name(name: str, corpus: Path) -> None:
    text = "\n".join(shown((*ON_CORPUS[name], "--job", "gpu_generated", "--corpus", str(corpus)), 100))
    assert "gpu_generated" in text
    assert "cpu_ddp" not in text


def test_describe_goes_on_behind_a_job_in_which_nothing_ran(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "rank0.json").write_text('{"traceEvents": []}')
    assert not ingest([tmp_path / "empty", SAMPLES / "gpu_generated"], tmp_path / "corpus", workers=1).failed
    begun = {line.split(" ")[0] for line in shown(("describe", "--corpus", str(tmp_path / "corpus")), 100)}
    assert {"empty", "gpu_generated"} <= begun


def test_describe_counts_one_layer_as_one_and_names_no_world_that_is_unknown(tmp_path: Path) -> None:
    module = {"ph": "X", "pid": 1, "tid": 1, "cat": "python_function", "name": "nn.Module: Block_0", "ts": 1, "dur": 90}
    shapes = {"Input Dims": [[8, 16], [16, 16]], "Input type": ["float", "float"]}
    operator = {**module, "cat": "cpu_op", "name": "aten::mm", "ts": 5, "dur": 50, "args": shapes}
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "rank0.json").write_text(json.dumps({"traceEvents": [module, operator]}))
    assert not ingest([tmp_path / "job"], tmp_path / "corpus", workers=1).failed
    line, *rest = shown(("describe", "--corpus", str(tmp_path / "corpus")), 100)
    assert " 1 layer x 16" in line
    assert line.endswith("   1 rank here")
    assert any("world (the trace states no world size" in said for said in rest)


@pytest.mark.parametrize(
    ("told", "world"),
    [((), "world 4 = dp4"), (("world=8", "tp=2", "ep=4"), "world 8 = tp2 x dp4, ep4")],
)
def test_a_description_makes_a_world_only_of_degrees_that_are_one(
    told: tuple[str, ...], world: str, corpus: Path
) -> None:
    words = [word for each in told for word in ("--set", each)]
    line, *_ = shown(("describe", "--job", "gpu_generated", *words, "--corpus", str(corpus)), 200)
    assert line.endswith(f"   {world}")


def test_degrees_that_are_not_all_of_a_world_are_not_equal_to_it(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for file in (SAMPLES / "gpu_generated").glob("rank*.json.gz"):
        text = gzip.decompress(file.read_bytes()).decode()
        assert text.count('"world_size":4') == 1
        (tmp_path / "job" / file.stem).write_text(text.replace('"world_size":4', '"world_size":8'))
    assert not ingest([tmp_path / "job"], tmp_path / "corpus", workers=1).failed
    line, *_ = shown(("describe", "--corpus", str(tmp_path / "corpus")), 200)
    assert line.endswith("   world 8, dp4")


def test_names_in_traces_cannot_steer_the_terminal(tmp_path: Path, lumos: Run) -> None:
    steers = "\x1b[31m\n\u202e"
    operator = {"ph": "X", "pid": 1, "tid": 1, "cat": "cpu_op", "name": f"aten::{steers}mm", "ts": 1, "dur": 90}
    kernel = {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": f"gemm{steers}", "ts": 9, "dur": 50}
    folder = tmp_path / f"job{steers}"
    folder.mkdir()
    (folder / "rank0.json").write_text(json.dumps({"traceEvents": [operator, kernel]}))
    corpus = ("--corpus", str(tmp_path / "corpus"))
    commands = [("ingest", str(folder)), ("report",), ("replay",), ("critical-path",), ("advise",), ("describe",)]
    commands += [("estimate", "--set", "batch_scale=2", "--force"), ("estimate", "--job", "another")]
    printed = [lumos(*command, *corpus, COLUMNS="100") for command in commands]
    said = [done.stdout + done.stderr for done in printed]
    assert not any(character in text for text in said for character in "\x1b\u202e")
    assert all(r"job\e[31m" in text for text in said[1:])


def commands_of(lines: list[str]) -> list[list[str]]:
    """Return the commands on a screen, as a shell splits them."""
    text = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [shlex.split(found)[1:] for found in re.findall(r"lumos-df .*", text)]


ABOUT_ONE: Final = [("replay",), ("replay", "--scale", "kind=host:0.5"), ("critical-path",), ("describe",)]
"""Commands whose screens name others about the same job."""


@pytest.mark.parametrize("words", ABOUT_ONE)
def test_the_commands_after_one_job_of_several_are_about_it(
    words: tuple[str, ...], corpus: Path, tmp_path: Path
) -> None:
    told = commands_of(shown((*words, "--job", "gpu_generated", "--corpus", str(corpus)), 160))
    assert told
    assert all("--job gpu_generated" in " ".join(command) for command in told)
    assert not any("--job" in command for command in commands_of(shown(("replay", "--corpus", str(corpus)), 160)))
    assert not ingest([SAMPLES / "gpu_generated"], tmp_path, workers=1).failed
    assert not any("--job" in command for command in commands_of(shown((*words, "--corpus", str(tmp_path)), 160)))


@pytest.mark.parametrize("words", ABOUT_ONE)
def test_the_commands_after_one_run_of_several_of_a_name_are_about_that_run(
    words: tuple[str, ...], two_runs: tuple[Path, str]
) -> None:
    corpus, run = two_runs
    told = commands_of(shown((*words, "--trace", run[:8], "--corpus", str(corpus)), 160))
    assert told
    assert all(f"--trace {run}" in " ".join(command) for command in told)
    assert "--trace" not in commands_of(shown((*words, "--corpus", str(corpus)), 160))[-1]


def test_a_report_tells_what_to_change_in_each_run_of_a_name(two_runs: tuple[Path, str]) -> None:
    lines = shown(("report", "--corpus", str(two_runs[0])), 100)
    advice = lines[lines.index("what to change") + 1 :]
    (end,) = [place for place, line in enumerate(advice) if "with intervals and commands" in line]
    told = [re.findall(r"  job \((\w{16})\): ", line) for line in advice[:end]]
    assert sorted(found for names in told for found in names) == sorted(trace_ids(two_runs[0]))


def test_what_an_estimate_was_asked_for_is_in_the_command_after_it(two_runs: tuple[Path, str]) -> None:
    """Without what was told of the job and which run it is about it would be another estimate, or a refusal."""
    corpus, run = two_runs
    asked = ["estimate", "--trace", run, "--set", "layers=3", "--scale", "name~aten::.*mm:0.5", "--known", "heads=4"]
    asked += ["--keep-stalls", "--step", "2", "--force"]
    (told,) = commands_of(shown((*asked, "--corpus", str(corpus)), 300))
    assert told == [*asked, "--format", "csv", "--corpus", str(corpus)]


def test_every_command_has_short_help() -> None:
    assert CliRunner().invoke(app, ["replay", "-h"]).exit_code == 0


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A corpus of two runs of one rank, which have one name, and the trace of one."""
    folder = tmp_path_factory.mktemp("two_runs")
    for batch in (2, 4):
        job = emulator.Job(ranks=1, layers=2, steps=1, hidden=256, batch=batch)
        emulator.write(emulator.simulate(job), emulator.Profiler(memory=False), folder / f"{batch}" / "job")
        result = ingest([folder / f"{batch}" / "job"], folder / "corpus", workers=1)
        assert not result.failed
    return folder / "corpus", min(trace_ids(folder / "corpus"))


def test_ranks_of_one_file_ran_together_where_another_file_has_them_again(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    for batch in (2, 4):
        job = emulator.Job(ranks=2, layers=2, steps=1, hidden=256, batch=batch)
        emulator.write(emulator.simulate(job), emulator.Profiler(memory=False), tmp_path / f"{batch}")
        events = []
        for rank, file in enumerate(sorted((tmp_path / f"{batch}").glob("*.json*"))):
            packed = file.read_bytes()
            recorded = json.loads(gzip.decompress(packed) if file.suffix == ".gz" else packed)["traceEvents"]
            events += [event | {"args": event.get("args", {}) | {"rank": rank}} for event in recorded]
        (runs / f"{batch}.json").write_text(json.dumps({"traceEvents": events}))
    corpus = tmp_path / "corpus"
    assert not ingest([runs], corpus, workers=1).failed
    assert [len(ids) for ids in groups(corpus)] == [2, 2]
    text = "\n".join(shown(("report", "--corpus", str(corpus)), 300))
    assert f"several runs of one name are one line above (runs); each:\n  lumos-df replay --corpus {corpus}" in text
    replayed = shown(("replay", "--corpus", str(corpus)), 200)
    assert sum(line.startswith("runs (") for line in replayed) == 2
    changed = tmp_path / "changed"
    shown(("estimate", "--set", "batch_scale=2", "--corpus", str(corpus), "--into", str(changed)), 200)
    assert [len(ids) for ids in groups(changed)] == [2, 2]


def test_jobs_of_one_name_are_not_averaged_but_have_a_line_each(two_runs: tuple[Path, str]) -> None:
    lines = shown(("estimate", "--corpus", str(two_runs[0]), "--set", "layers=3"), 200)
    assert [line.count(" a step -> ") for line in lines[1:3]] == [1, 1]
    assert len({line.split(",")[0] for line in lines[1:3]}) == 2
    assert lines[3].startswith("next: lumos-df estimate --trace ID --set layers=3")


def test_of_runs_of_one_name_that_which_can_change_is_named_and_why_others_cannot_is_told_once(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    for batch, shapes in ((2, b"Input Dims"), (4, b"Not recorded"), (6, b"Not recorded")):
        job = emulator.Job(ranks=1, layers=2, steps=1, hidden=256, batch=batch)
        [file] = emulator.write(emulator.simulate(job), emulator.Profiler(memory=False), tmp_path / f"{batch}")
        file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()).replace(b"Input Dims", shapes)))
        assert not ingest(file, corpus, job="job", workers=1).failed
    done = CliRunner().invoke(app, ["estimate", "--corpus", str(corpus), "--set", "hidden=512"])
    assert done.exit_code == 1
    [run] = re.findall(r"^job \((\w{16})\), .* -> ", done.stdout, re.MULTILINE)
    assert re.search(rf"^next: lumos-df estimate --trace {run} --set hidden=512 ", done.stdout, re.MULTILINE)
    [told] = done.stderr.splitlines()
    assert told.startswith("lumos-df: job: hidden cannot change, because ")


def test_what_is_left_out_of_jobs_is_said_of_each(corpus: Path) -> None:
    lines = shown(("estimate", "--corpus", str(corpus), "--set", "layers=3"), 100)
    [at] = [place for place, line in enumerate(lines) if line.startswith("cpu_ddp, ")]
    assert re.match(r"  left out, came once +[\d.]+ ms$", lines[at + 1])


@pytest.mark.parametrize("words", ABOUT_ONE)
def test_every_screen_tells_the_runs_of_one_name_apart(words: tuple[str, ...], two_runs: tuple[Path, str]) -> None:
    lines = shown((*words, "--corpus", str(two_runs[0])), 200)
    told = [found for line in lines for found in re.findall(r"^job \((\w{16})\)", line)]
    assert sorted(told) == sorted(trace_ids(two_runs[0]))


def test_a_narrow_terminal_and_a_job_of_a_long_name_keep_to_the_edge(tmp_path: Path) -> None:
    job = emulator.Job(ranks=2, layers=1, steps=1, hidden=256, batch=2)
    emulator.write(emulator.simulate(job), emulator.Profiler(memory=False), tmp_path / "job")
    corpus = tmp_path / "corpus"
    assert not ingest([tmp_path / "job"], corpus, job="j" * 200, workers=1).failed
    for command in (("report",), ("advise",), ("replay",), ("report", "--view", "breakdown"), ("sql", "FROM traces")):
        assert max(map(len, shown((*command, "--corpus", str(corpus)), 60))) <= 60
    most = shown(("report", "--corpus", str(corpus)), 60)
    first = most[most.index("most GPU time") + 1]
    assert re.match(r" *\d+\.\d% +\S+ \S+ +\d+ x \w{8}", first)


def printed(screen: Console) -> list[str]:
    return screen.export_text().splitlines()


def test_a_headline_breaks_between_its_parts() -> None:
    screen = Console(width=31, record=True, file=io.StringIO())
    say_headline(screen, ("16.2 s a step", "bold"), " (13.6 s to 18.1 s)", "    MFU 49%", "    fits: 42 of 85 GB")
    assert printed(screen) == ["16.2 s a step", "  (13.6 s to 18.1 s)    MFU 49%", "  fits: 42 of 85 GB"]
    say_headline(screen, ("16.2 s a step", "bold"), ",  known", "")
    say_headline(screen, ("j" * 20, "bold"), " one two three four five six seven")
    assert printed(screen) == ["16.2 s a step,  known", "j" * 20, "  one two three four five six", "  seven"]


@pytest.mark.parametrize(
    "command",
    [
        """sql "FROM advice_evidence WHERE job = 'gpu_generated' AND place = 2\"""",
        f"estimate --job a --hardware {'/long' * 20}.toml",
        f"estimate --job '{'a name ' * 12}' --set dp=8",
    ],
)
@pytest.mark.parametrize("columns", [3, 40])
def test_a_command_of_several_lines_is_the_same_to_a_shell(command: str, columns: int) -> None:
    screen = Console(width=columns, record=True, file=io.StringIO())
    say_command(screen, command, before="next: ", program="printf '%s,' ")
    text = screen.export_text()
    assert columns < 8 or max(map(len, text.splitlines())) <= columns
    done = subprocess.run(["/bin/sh", "-c", text.removeprefix("next: ")], capture_output=True, text=True, check=True)
    assert done.stdout.split(",")[:-1] == shlex.split(command)


def test_a_path_that_fits_the_screen_stays_whole() -> None:
    screen = Console(width=40, record=True, file=io.StringIO())
    say_command(screen, f"replay --corpus {'/long' * 7} --job a", before="    next: ")
    assert printed(screen) == ["    next: lumos-df replay --corpus \\", f"   {'/long' * 7} \\", "            --job a"]


def test_a_query_goes_on_behind_a_blank() -> None:
    screen = Console(width=40, record=True, file=io.StringIO())
    say_command(screen, """sql "FROM advice_evidence WHERE job = 'gpu' AND place = 2\"""")
    assert printed(screen) == [
        "lumos-df sql \\",
        """  "FROM advice_evidence WHERE job = \\""",
        """'gpu' AND place = 2\"""",
    ]


@pytest.mark.parametrize("full", [False, True])
def test_notes_that_are_not_shown_are_counted(*, full: bool) -> None:
    """`a` and `b 1` are said of two steps of a trace each."""
    screen = Console(width=80, record=True, file=io.StringIO())
    say_notes(screen, ["a", "b 1", "b 2", "c", "d", "e", "a", "b 1"], full=full)
    shown, more = ["b 1 (and 1 more like it)", "a", "c"], ["d", "e"]
    kept = [f"  note: {note}" for note in (shown + more if full else shown)]
    assert printed(screen) == kept + ([] if full else ["  and 2 more notes: --full"])


def test_of_several_jobs_the_doubtful_one_is_named() -> None:
    screen = Console(width=100, record=True, file=io.StringIO())
    say_doubts(screen, "slow", "rank 3", 7.0, 30.0)
    say_doubts(screen, "fast", "rank 3", 0.1, 0.2)
    assert printed(screen) == [
        "careful: of slow the replay of rank 3 is 7.0% off; trust no change of it further",
        "careful: nothing recorded explains 30% of the critical path of slow; it stays as recorded",
    ]


def test_a_path_has_one_line_for_all_that_copies(tmp_path: Path) -> None:
    copy = x("Memcpy DtoD (Device -> Device)", "gpu_memcpy", 100, 200, 7, device=0, stream=7, correlation=2)
    call = x("cudaMemcpyAsync", "cuda_runtime", 12, 5, correlation=2)
    kernels = [kernel("direct_copy_kernel", 300, 300, correlation=3), kernel("gemm", 20, 80, correlation=1)]
    corpus_of(tmp_path, [launch(1, 5, 1), call, copy, launch(20, 5, 3), *kernels])
    lines = shown(("critical-path", "--corpus", str(tmp_path / "corpus")), 100)
    (copies,) = [line for line in lines if line.endswith("   copy")]
    assert copies.split()[1:3] == ["500", "us"]


def test_a_path_names_kernels_of_no_known_family_and_what_they_would_bring(tmp_path: Path) -> None:
    kernels = [kernel("advection", 20, 500, correlation=1), kernel("viscosity", 520, 200, correlation=3)]
    corpus_of(tmp_path, [launch(1, 5, 1), launch(8, 5, 3), *kernels])
    lines = shown(("critical-path", "--gains", "--corpus", str(tmp_path / "corpus")), 100)
    assert [line.split("   ")[-1] for line in lines if "%  " in line][:2] == ["kernel advection", "kernel viscosity"]
    assert any("advection in half the time" in line and line.endswith(" replayed") for line in lines)
    assert ["replay", "--scale", "name=advection:0.5", "--corpus", str(tmp_path / "corpus")] in commands_of(lines)


def test_what_does_not_differ_is_counted_once(corpus: Path) -> None:
    lines = shown(("diff", "gpu_generated", "gpu_generated", "--corpus", str(corpus)), 100)
    assert re.fullmatch(r" +0 ns   \d+ within 0\.1%: --full", lines[1])


def test_a_word_that_is_longer_than_a_line_loses_its_end() -> None:
    screen = Console(width=40)
    assert with_words_cut(screen, "idle before Cijk_" + "A" * 90 + ", and on", " 1 ") == (
        "idle before Cijk_" + "A" * 31 + "\N{HORIZONTAL ELLIPSIS} and on"
    )
    assert with_words_cut(screen, "short  words", " 1 ") == "short  words"


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (0.5, "-50%"),
        (1.004, "+0.4%"),
        (9.9, "+890%"),
        (10.0, "10 times as long"),
        (4_367_965.0, "4,370,000 times as long"),
    ],
)
def test_what_takes_ten_times_as_long_is_said_in_words(new: float, said: str) -> None:
    assert change_of(1.0, new) == said
