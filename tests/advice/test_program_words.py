"""Advice to a program of PyTorch names its options; to any other the calls of the GPU's runtime."""

import gzip
import json
import re
from pathlib import Path

import pytest

from tests.advice.emulated import BRIEF, advice_on
from tests.emulator import Job, simulate, write

KEPT = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "ac2g")
"""Rows that a program has whatever it is written in."""


@pytest.mark.parametrize(
    ("names", "hip", "how"),
    [
        (True, False, "pin it (pin_memory=True) and copy it ahead, with non_blocking=True on a stream"),
        (False, False, "pin it (cudaMallocHost) and copy it ahead, with cudaMemcpyAsync on a stream"),
        (False, True, "pin it (hipHostMalloc) and copy it ahead, with hipMemcpyAsync on a stream"),
    ],
)
def test_copies_are_pinned_in_the_words_of_the_program(tmp_path: Path, names: bool, hip: bool, how: str) -> None:  # noqa: FBT001 - a case
    write(simulate(Job(ranks=1, steps=1, pageable_bytes=10_000_000)), BRIEF, tmp_path / "traces")
    for file in (tmp_path / "traces").glob("*.gz"):
        trace = json.loads(gzip.decompress(file.read_bytes()))
        if not names:
            trace["traceEvents"] = [row for row in trace["traceEvents"] if row.get("cat") in KEPT or row["ph"] == "M"]
        text = json.dumps(trace)
        text = text if names else re.sub(r"at::native|c10", "solver", text)
        file.write_bytes(gzip.compress((text.replace("cuda", "hip") if hip else text).encode()))
    said = [advice.remedy.what for advice in advice_on(tmp_path).advice]
    (pinned,) = (what for what in said if "pageable memory" in what)
    assert how in pinned
    torch_words = ("torch", "expandable_segments", "Python", "non_blocking", "pin_memory", "garbage")
    assert names or not any(word in what for what in said for word in torch_words)


def test_who_has_command_buffers_is_told_that_profilers_keep_them_out(tmp_path: Path) -> None:
    write(simulate(Job(ranks=1, steps=2, python_ns=100_000)), BRIEF, tmp_path / "traces")
    for file in (tmp_path / "traces").glob("*.gz"):
        text = gzip.decompress(file.read_bytes()).decode()
        text = re.sub(r"\b(?:aten|torch|c10d?)::|nn[.]Module|ProfilerStep#|at::native", "PjRtExecutable", text)
        file.write_bytes(gzip.compress(text.encode()))
    said = [advice.remedy.what for advice in advice_on(tmp_path).advice if advice.remedy.rule == "launch_bound"]
    assert said
    assert all("as XLA's command buffers" in what and "torch" not in what for what in said)
