"""The traces that the project carries are what data/traces/README.md says."""

import gzip
import json
import re
from pathlib import Path

import pytest

from tests.emulator import Job, Profiler, simulate, write
from tests.rows import GPU, File, read

SAMPLES = Path(__file__).parent.parent / "data" / "traces"
GENERATED = Job(ranks=4, layers=2, steps=3, sleep_rank=2, sleep_ns=2_000_000)


def test_the_generated_sample_is_what_the_emulator_writes(tmp_path: Path) -> None:
    for made in write(simulate(GENERATED), Profiler(), tmp_path):
        stored = SAMPLES / "gpu_generated" / made.name
        assert read(stored) == read(made), "made anew by the command in data/traces/README.md?"
        assert stored.stat().st_size < 150_000


@pytest.mark.parametrize("rank", [0, 1])
def test_the_recorded_sample_is_a_whole_job_of_two_ranks_that_names_no_machine(rank: int) -> None:
    path = SAMPLES / "cpu_ddp" / f"rank{rank}.json.gz"
    text = gzip.decompress(path.read_bytes()).decode()
    assert path.stat().st_size < 300_000
    assert not re.search(r'"(host_name|traceName)"|/(home|root|tmp|work|usr|opt|Users)/', text)
    trace = json.loads(text)
    assert (trace["distributedInfo"]["rank"], trace["distributedInfo"]["world_size"]) == (rank, 2)
    assert trace["distributedInfo"]["backend"] == "gloo"
    file = File(rank, trace["traceEvents"])
    assert [step["name"] for step in file.steps()] == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
    assert len(file.named("nn.Module: Block_1")) == 3
    assert file.named("gloo:all_reduce")
    assert any(event["name"] == "[memory]" for event in file.events)
    assert not file.rows(*GPU)
