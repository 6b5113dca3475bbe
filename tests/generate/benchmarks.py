"""Literal steps, what is generated of them, and how that is run."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from lumos_df.generate.benchmark_folder import generate
from lumos_df.trace.ingest import ingest
from tests.conftest import ROOT
from tests.trace.literal import Event, annotation, corpus_of, kernel, launch, op, stated, write, x

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (extra: capture)")


def called(dims: list[Any], types: list[str], concrete: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """Return what the profiler writes of an operator's inputs."""
    given = {"Input_Dims": dims, "Input_type": types, **more}
    return given | ({"Concrete_Inputs": concrete} if concrete else {})


MM = called([[64, 32], [32, 16]], ["float", "float"], ["", ""], Input_Strides=[[32, 1], [1, 32]])

ADD = called([[64, 16], [64, 16], []], ["float", "float", "Scalar"], ["", "", "2"])


def on_gpu(
    correlation: int, ts: float, name: str = "ampere_sgemm_128x64_tn", dur: float = 10, **more: Any
) -> list[Event]:
    """Return a launch and its kernel, which starts 2 us after it."""
    return [launch(ts, 1, correlation), kernel(name, ts + 2, dur, correlation=correlation, **more)]


STEP = [
    annotation("ProfilerStep#5", 0, 100),
    op("autograd::engine::evaluate_function: MmBackward0", 10, 20),
    op("aten::mm", 12, 8, **MM),
    op("aten::fill_", 13, 1, **called([[64, 16], []], ["float", "Scalar"], ["", "0"])),
    *on_gpu(1, 15),
    op("aten::add", 35, 5, **ADD),
    *on_gpu(2, 36, "vectorized_elementwise_kernel", 4),
    op("mylib::flash_attn_fwd", 50, 6, **called([[2, 64, 4, 32]] * 3, ["c10::Half"] * 3)),
    *on_gpu(3, 52, "flash_fwd_kernel", 20),
    op("triton_poi_own", 60, 6, **called([[1024], [1024]], ["float", "float"])),
    *on_gpu(4, 62, "triton_poi_0", 6),
    op("aten::index", 70, 6, **called([[512, 8], []], ["float", ""])),
    *on_gpu(5, 72, "index_kernel", 3),
    op("no_shapes", 80, 6),
    *on_gpu(6, 82, "unknown_kernel", 5),
]


def generated(tmp_path: Path, events: list[Event], **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the plan and the manifest of a trace of `events`."""
    corpus_of(tmp_path, events)
    generate(tmp_path / "corpus", tmp_path / "benchmark", **options)
    return read(tmp_path / "benchmark")


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    plan, manifest = (json.loads((folder / f"{name}.json").read_text()) for name in ("plan", "manifest"))
    return plan, manifest


def names(rank: dict[str, Any]) -> list[str]:
    return [rank["operators"][number]["name"] for number in rank["calls"]["operator"]]


IMAGE, KERNEL, GRADIENT = [8, 16, 12, 12], [32, 4, 3, 3], [8, 32, 6, 6]

OLD = called([IMAGE, GRADIENT, KERNEL, *[[]] * 8], ["float"] * 3 + [""] * 8)

VENDOR = called([[4, 8, 6, 6]] * 2 + [[8]] * 5 + [[]], ["float"] * 7 + ["Scalar"], [*[""] * 7, "0.001"])


def vendors(tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Generate a benchmark of a backward convolution of old torch, and a normalization of AMD's library."""
    events = [
        annotation("ProfilerStep#1", 0, 100),
        op("aten::cudnn_convolution_backward", 10, 5, **OLD),
        *on_gpu(1, 11, "cudnn_convolve_wgrad", 30),
        op("aten::miopen_batch_norm_backward", 50, 5, **VENDOR),
        *on_gpu(2, 51, "MIOpenBatchNormBwdSpatial", 10),
    ]
    return generated(tmp_path, events)


def memory(ts: float, address: int, change: int) -> Event:
    """Return what the profiler writes of a block that is taken or released."""
    told = {"Addr": address, "Bytes": change, "Device_Type": 0, "Device_Id": -1}
    return x("[memory]", "cpu_instant_event", ts, 0, **told) | {"ph": "i", "s": "t"}


def two_ranks(tmp_path: Path, second: str = "allreduce") -> Path:
    """Ingest two ranks with a collective each: the same, or not."""
    for rank, name in enumerate(("allreduce", second)):
        said = stated(name, 1000, 1000, Group_size=2, Process_Group_Name="7", Process_Group_Ranks="[0, 1]")
        events = [
            annotation("ProfilerStep#1", 0, 100),
            op("aten::mm", 1, 4, **MM),
            *on_gpu(1, 2),
            op(f"c10d::{name}_", 20, 6, **called([[[1000]]], ["TensorList"])),
            op("record_param_comms", 21, 4, **called([[[1000]]], ["TensorList"]), **said),
            *on_gpu(2, 22, f"ncclDevKernel_{name}_Sum_bf16_RING_LL", **said),
        ]
        write(tmp_path / "job" / f"rank{rank}.json", events, distributedInfo={"rank": rank, "world_size": 2})
    assert not ingest([tmp_path / "job"], tmp_path / "corpus", workers=1).failed
    return tmp_path / "corpus"


def run_benchmark(folder: Path, *options: object, ranks: int = 1) -> dict[str, Any]:
    """Run a benchmark with torch and return what it prints."""
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks) if ranks > 1 else ()
    command = [str(word) for word in (sys.executable, *launch, folder / "benchmark.py", *options)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def benchmark_of_script(tmp_path: Path, script: str) -> None:
    """Record two steps of a training script and write a benchmark of one."""
    (tmp_path / "train.py").write_text(script)
    capture = ("lumos_df", "capture", "--warmup", 1, "--unprofiled", 0, "--steps", 2, "--output", tmp_path / "traces")
    command = [str(word) for word in (sys.executable, "-m", *capture, "--", sys.executable, tmp_path / "train.py")]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert not ingest([tmp_path / "traces"], tmp_path / "corpus", workers=1).failed
    generate(tmp_path / "corpus", tmp_path / "benchmark")


def run_beside(benchmark: Path, program: str) -> str:
    """Run a program that imports a benchmark's, and return what it prints."""
    (benchmark / "beside.py").write_text(program)
    command, environment = [sys.executable, str(benchmark / "beside.py")], os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
