"""Real training jobs on this machine's CPU, recorded and read back."""

import gzip
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from lumos_df import connect, ingest
from tests.capture.conftest import EXAMPLE, SHORT, SMALL, Shell, needs_torch, torchrun

CAPTURE = (sys.executable, "-m", "lumos_df", "capture")

pytestmark = needs_torch


def metadata(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))["lumosCapture"]
    return found


def rows(corpus: Path, query: str) -> list[dict[str, Any]]:
    with connect(corpus) as connection:
        found: list[dict[str, Any]] = connection.sql(query).pl().to_dicts()
    return found


@pytest.fixture(scope="module")
def from_outside(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of DistributedDataParallel, recorded by the command; the script was not changed."""
    folder = tmp_path_factory.mktemp("outside") / "traces"
    done = shell(*CAPTURE, "--output", folder, *SHORT, "--", *torchrun(2))
    assert done.returncode == 0, done.stderr
    assert "12 steps, median" in done.stdout
    assert f"{folder}/rank1.json.gz: 2 steps of" in done.stderr
    return folder


@pytest.fixture(scope="module")
def from_within(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same recorded by the context manager, with its own counts of steps."""
    folder = tmp_path_factory.mktemp("within") / "traces"
    done = shell(*torchrun(2, "--profile", folder, "--steps", 21))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(("way", "steps", "unprofiled"), [("from_outside", 2, 2), ("from_within", 3, 5)])
def test_every_rank_is_recorded_and_says_what_recording_cost(
    way: str, steps: int, unprofiled: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder = request.getfixturevalue(way)
    assert sorted(path.name for path in folder.iterdir()) == ["rank0.json.gz", "rank1.json.gz"]
    for rank in range(2):
        found = metadata(folder / f"rank{rank}.json.gz")
        assert (found["rank"], found["worldSize"], found["complete"], found["unmeasured"]) == (rank, 2, True, [])
        assert len(found["profiledNs"]) == steps
        assert len(found["unprofiledBeforeNs"]) == len(found["unprofiledAfterNs"]) == unprofiled
        assert min(found["profiledNs"] + found["unprofiledBeforeNs"] + found["unprofiledAfterNs"]) > 0
    ingest([folder], tmp_path / "corpus", workers=1)
    overhead = rows(tmp_path / "corpus", "FROM profiling_overhead")
    assert [(row["rank"], row["steps"], row["complete"]) for row in overhead] == [(0, steps, True), (1, steps, True)]
    (what,) = rows(
        tmp_path / "corpus",
        """SELECT count(DISTINCT step) AS steps, count(input_dims) > 0 AS shapes, count(module) > 0 AS modules,
           count(*) FILTER (collective = 'all_reduce' AND in_bytes > 0) > 0 AS collectives,
           count(DISTINCT layer) AS layers FROM operators""",
    )
    assert what == {"steps": steps, "shapes": True, "modules": True, "collectives": True, "layers": 2}
    (held,) = rows(tmp_path / "corpus", "SELECT count(*) AS n FROM memory_events")
    assert held["n"] > 0
    groups = rows(
        tmp_path / "corpus", "SELECT DISTINCT size, ranks FROM process_groups WHERE description = 'default_pg'"
    )
    assert groups == [{"size": 2, "ranks": [0, 1]}]


def test_recorded_steps_last_as_long_by_the_trace_as_by_the_clock(from_outside: Path, tmp_path: Path) -> None:
    ingest([from_outside], tmp_path / "corpus", workers=1)
    for row in rows(tmp_path / "corpus", "SELECT rank, list(step_ns ORDER BY step) AS ns FROM breakdown GROUP BY rank"):
        by_clock = metadata(from_outside / f"rank{row['rank']}.json.gz")["profiledNs"]
        # The clock stands outside the profiler's own marks, which may cost what they like, but cover the step.
        assert all(inside <= 1.02 * outside for inside, outside in zip(row["ns"], by_clock, strict=True))
        assert all(inside >= 0.5 * outside for inside, outside in zip(row["ns"], by_clock, strict=True))


def test_a_recording_replays_and_stands_beside_the_unprofiled_step(
    from_outside: Path, shell: Shell, tmp_path: Path
) -> None:
    ingest([from_outside], tmp_path / "corpus", workers=1)
    done = shell(sys.executable, "-m", "lumos_df", "replay", "--corpus", tmp_path / "corpus", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert all(abs(row["error_pct"]) < 1 for row in json.loads(done.stdout))
    for row in rows(tmp_path / "corpus", "FROM profiling_overhead"):
        expected = 100 * (row["replayed_ns"] / row["unprofiled_ns"] - 1)
        assert row["replay_error_pct"] == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("spread", [("--shard",), ("--tp", "2"), ("--pp", "2")], ids=["fsdp2", "tensor", "pipeline"])
def test_other_ways_to_spread_a_model(spread: tuple[str, ...], shell: Shell, tmp_path: Path) -> None:
    done = shell(*CAPTURE, "--output", tmp_path / "traces", *SHORT, "--", *torchrun(2, *spread))
    assert done.returncode == 0, done.stderr
    result = ingest([tmp_path / "traces"], tmp_path / "corpus", workers=1)
    assert len(result.done) == 2
    wanted = {"--shard": {"all_gather", "reduce_scatter"}, "--tp": {"all_reduce"}, "--pp": {"send", "recv"}}
    found = rows(tmp_path / "corpus", "SELECT DISTINCT collective FROM operators WHERE collective IS NOT NULL")
    assert wanted[spread[0]] <= {row["collective"] for row in found}


@pytest.mark.parametrize("spread", [(), ("--shard",), ("--pp", "2", "--tp", "2")], ids=["ddp", "fsdp2", "pipeline"])
def test_one_process_stands_for_eight(spread: tuple[str, ...], shell: Shell, tmp_path: Path) -> None:
    job = (sys.executable, EXAMPLE, *SMALL, *spread)
    done = shell(*CAPTURE, "--output", tmp_path / "traces", *SHORT, "--fake-world", 8, "--rank", 5, "--", *job)
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "traces").iterdir()
    found = metadata(file)
    assert (file.name, found["rank"], found["worldSize"]) == ("rank5.json.gz", 5, 8)
    ingest([tmp_path / "traces"], tmp_path / "corpus", workers=1)
    (trace,) = rows(tmp_path / "corpus", "SELECT rank, world_size, backend FROM traces")
    assert trace == {"rank": 5, "world_size": 8, "backend": "fake"}
    (row,) = rows(tmp_path / "corpus", "SELECT unmeasured FROM profiling_overhead")
    assert json.loads(row["unmeasured"]) == ["collectives"]
    (collectives,) = rows(tmp_path / "corpus", "SELECT count(*) AS n FROM operators WHERE in_bytes > 0")
    assert collectives["n"] > 0


def test_a_rank_of_a_larger_plan_is_estimated_with_its_collectives(shell: Shell, tmp_path: Path) -> None:
    job = (sys.executable, EXAMPLE, *SMALL, "--tp", 2, "--dp", 4)
    done = shell(*CAPTURE, "--output", tmp_path / "traces", *SHORT, "--fake-world", 8, "--rank", 1, "--", *job)
    assert done.returncode == 0, done.stderr
    ingest([tmp_path / "traces"], tmp_path / "corpus", workers=1)
    estimate = (sys.executable, "-m", "lumos_df", "estimate", "--corpus", tmp_path / "corpus", "--format", "json")
    done = shell(*estimate, "--set", "network=1e8/1e-5")
    assert done.returncode == 0, done.stderr
    for row in json.loads(done.stdout):
        # Six all-reduces a layer; of its parameters a gather a pass and a scatter, and one of each for all the rest.
        assert "20 a step take what the network model says" in " ".join(row["warnings"])
        assert row["exposed_communication_ns"] > 0
        assert row["modelled_pct"] > 5
        assert row["step_ns"] > row["original_step_ns"]


def test_the_scripts_exit_status_passes_through_and_what_was_recorded_is_kept(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOOP.format(steps=6, end="raise SystemExit(7)"))
    done = shell(*CAPTURE, "--output", tmp_path / "traces", *SHORT, "--", sys.executable, script)
    assert done.returncode == 7
    assert "ended in recorded step 2 of 2; what was recorded is kept" in done.stderr
    (file,) = (tmp_path / "traces").iterdir()
    assert metadata(file)["complete"] is False
    assert len(metadata(file)["profiledNs"]) == 1
    assert ingest([file], tmp_path / "corpus").done


def test_a_terminated_rank_keeps_what_it_recorded(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOOP.format(steps=6, end="os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)"))
    done = shell(*CAPTURE, "--output", tmp_path / "traces", *SHORT, "--", sys.executable, script)
    assert done.returncode == 128 + signal.SIGTERM
    assert [path.name for path in (tmp_path / "traces").iterdir()] == ["rank0.json.gz"]


def test_a_rank_that_is_terminated_again_while_it_writes_keeps_it_too(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    again = "[(os.kill(os.getpid(), signal.SIGTERM), time.sleep(0.001)) for _ in range(1000)]"
    script.write_text(LOOP.format(steps=6, end=f"threading.Thread(target=lambda: {again}).start(); time.sleep(60)"))
    done = shell(*CAPTURE, "--output", tmp_path / "traces", *SHORT, "--", sys.executable, script)
    assert done.returncode == 128 + signal.SIGTERM
    assert "ended in recorded step 2 of 2; what was recorded is kept" in done.stderr
    (file,) = (tmp_path / "traces").iterdir()
    assert metadata(file)["complete"] is False


def test_a_fork_that_is_terminated_writes_nothing(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    fork = (
        "awake, tell = os.pipe()\n"
        "child = os.fork()\n"
        # Python drops the signals that come before a fork is awake.
        "if not child: os.write(tell, b'.'); time.sleep(60); os._exit(1)\n"
        "os.read(awake, 1)\n"
        "os.kill(child, signal.SIGTERM)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), os.listdir({traces!r}))\n"
        "for _ in range(6): loss(); optimizer.step()"
    )
    script.write_text(LOOP.format(steps=6, end=fork.format(traces=str(tmp_path / "traces"))))
    done = shell(*CAPTURE, "--output", tmp_path / "traces", *SHORT, "--", sys.executable, script)
    assert (done.returncode, done.stdout) == (0, f"{-signal.SIGTERM} []\n"), done.stderr
    assert metadata(tmp_path / "traces" / "rank0.json.gz")["complete"] is True


@pytest.mark.parametrize(
    ("before", "complaint"),
    [
        (5, "a profiler of the script's own begins in recorded step 2 of 2; what was recorded is kept"),
        (2, "a profiler of the script's own runs after 3 steps; recording begins in step 5: give another --warmup"),
        (9, None),
    ],
    ids=["inside", "before", "after"],
)
def test_a_script_that_profiles_itself_goes_on(
    before: int, complaint: str | None, shell: Shell, tmp_path: Path
) -> None:
    """Two profilers at once are a crash of torch; the script's own goes before."""
    script = tmp_path / "train.py"
    own = (
        "profiler = torch.profiler.profile()\nprofiler.start()\n"
        "for _ in range(6): loss(); optimizer.step()\n"
        "profiler.stop()\nprint(len(profiler.events()) > 100)"
    )
    script.write_text(LOOP.format(steps=before + 1, end=own))
    done = shell(*CAPTURE, "--output", tmp_path / "traces", *SHORT, "--", sys.executable, script)
    assert done.stdout == "True\n", done.stderr
    assert "Traceback" not in done.stderr
    files = list((tmp_path / "traces").iterdir())
    assert (done.returncode == 0) == bool(files)
    if complaint:
        assert complaint in done.stderr
    else:
        assert metadata(files[0])["complete"] is True


def test_a_killed_rank_leaves_nothing_half_written(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOOP.format(steps=6, end="os.kill(os.getpid(), signal.SIGKILL)"))
    done = shell(*CAPTURE, "--output", tmp_path / "traces", *SHORT, "--", sys.executable, script)
    assert done.returncode == 128 + signal.SIGKILL
    assert list((tmp_path / "traces").iterdir()) == []


def test_a_full_disk_costs_the_recording_not_the_job(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        + LOOP.format(steps=12, end="print('done')")
    )
    done = shell(*CAPTURE, "--output", tmp_path / "traces", *SHORT, "--", sys.executable, script)
    assert done.stdout == "done\n"
    assert "rank 0: not recorded:" in done.stderr
    assert done.returncode == 1
    assert list((tmp_path / "traces").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_what_the_full_disk_has_no_room_for_is_kept_elsewhere(shell: Shell, tmp_path: Path) -> None:
    small, roomy, script = tmp_path / "small", tmp_path / "roomy", tmp_path / "train.py"
    small.mkdir()
    roomy.mkdir()
    script.write_text(LOOP.format(steps=12, end="print('done')"))
    if shell("mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", small).returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        arguments = ("--output", small / "traces", *SHORT, "--", sys.executable, script)
        done = shell(*CAPTURE, *arguments, TMPDIR=str(roomy))
    finally:
        shell("umount", small)
    (file,) = roomy.glob("*/rank0.json.gz")
    assert (done.returncode, done.stdout) == (1, "done\n")
    assert f"cannot be written (No space left on device); the file is kept: {file}" in done.stderr
    assert metadata(file)["complete"] is True
    assert ingest([file], tmp_path / "corpus", workers=1).done


def test_a_scheduler_of_learning_rates_made_after_the_first_step_still_works(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    after = (
        "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n"
        "for _ in range(9): loss(); optimizer.step(); scheduler.step()\n"
        "print(scheduler.get_last_lr()[0] < 1e-9)"
    )
    script.write_text(LOOP.format(steps=1, end=after))
    done = shell(*CAPTURE, "--output", tmp_path / "traces", *SHORT, "--", sys.executable, "-W", "error", script)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_recording_from_within_keeps_what_an_exception_leaves(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from lumos_df.capture import profile\nimport torch\n"
        f"with profile({str(tmp_path / 'traces')!r}, warmup=0, unprofiled=0, steps=2) as recorder:\n"
        "    for step in range(9):\n        torch.ones(3).sum()\n"
        "        if step == 2:\n            raise KeyError('mine')\n"
        "        recorder.step()\n"
    )
    done = shell(sys.executable, script)
    assert done.stderr.splitlines()[-1] == "KeyError: 'mine'"
    assert metadata(tmp_path / "traces" / "rank0.json.gz")["complete"] is False


LOOP = """
import os, signal, threading, time, torch
layer = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(layer.parameters())
def loss(): layer(torch.ones(2, 4)).sum().backward()
for _ in range({steps}):
    loss(); optimizer.step(); optimizer.zero_grad()
{end}
"""
"""A training script: with SHORT the first step finds the optimizer, and steps 6 and 7 are recorded."""


@pytest.mark.parametrize(
    ("arguments", "job", "complaint"),
    [
        ((), "print('nothing')", "nothing was recorded: no rank came to step 5 of an optimizer of torch.optim"),
        (
            (),
            LOOP.format(steps=3, end=""),
            "rank 0: ended after 2 steps; recording begins in step 5: give fewer --warmup",
        ),
        (("--rank", 1), "", "--fake-world N and --rank r go together"),
        (("--fake-world", 4, "--rank", 4), "", "--rank 4: a world of 4 has ranks 0 to 3"),
    ],
)
def test_what_cannot_be_recorded_is_told_in_one_line(
    arguments: tuple[object, ...], job: str, complaint: str, shell: Shell, tmp_path: Path
) -> None:
    done = shell(*CAPTURE, "--output", tmp_path / "traces", *SHORT, *arguments, "--", sys.executable, "-c", job)
    assert done.returncode == 1
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_with_recordings_is_not_written_over(from_outside: Path, shell: Shell, tmp_path: Path) -> None:
    shutil.copytree(from_outside, tmp_path / "traces")
    done = shell(*CAPTURE, "--output", tmp_path / "traces", "--", sys.executable, "-c", "")
    assert done.returncode == 1
    assert (
        done.stderr == f"lumos-df: {tmp_path / 'traces'}: has rank0.json.gz already; give a new folder with --output\n"
    )
