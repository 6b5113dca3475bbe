"""Products of float32 outside tensor cores; the gain is that of the job in which they run as TF32."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumos_df.advice.advised_job import ChangedGraph
from lumos_df.advice.ranked_advice import ranked
from lumos_df.advice.remedy import Known
from lumos_df.advice.rules import kernel_precision
from lumos_df.schema.codes import GEMM
from tests.advice.emulated import advised, true_gain_ns
from tests.emulator import Job

TF32 = Job(ranks=2, steps=2, layers=1, products="tf32")
FP32 = replace(TF32, products="fp32")


def test_products_without_tensor_cores_are_the_first_advice(tmp_path: Path) -> None:
    said = advised(tmp_path, FP32)
    assert said.first.remedy.rule == "kernel_precision"
    assert said.first.remedy.known is Known.MODELLED
    assert said.first.remedy.what.endswith("let them run in TF32 or bfloat16")
    assert said.first.gain_ns == pytest.approx(true_gain_ns(FP32, TF32), rel=0.1)
    assert said.first.low_ns <= true_gain_ns(FP32, TF32) <= said.first.high_ns


def test_what_another_rank_takes_for_the_same_product_is_measured(tmp_path: Path) -> None:
    # Kernels of the other rank reach a quarter of what figures of the GPU say.
    slow = replace(TF32, factors=(("tf32", 4.0),))
    single = replace(slow, single_rank=1)
    job = advised(tmp_path, single).job
    (alone,) = ranked(job, [*kernel_precision.remedies(job)])
    assert alone.remedy.known is Known.MEASURED
    assert alone.gain_ns == pytest.approx(true_gain_ns(single, slow), rel=0.1)
    changed = ChangedGraph.of(job.event_graph)
    alone.remedy.apply(changed)
    own = np.split(changed.own, job.event_graph.base[1:-1])
    usual, now = (int(ns[rows.family == GEMM].sum()) for ns, rows in zip(own, job.ranks, strict=True))
    assert now == pytest.approx(usual, rel=0.05)


@pytest.mark.parametrize("healthy", [TF32, replace(TF32, products="bf16")])
def test_tensor_cores_are_left_alone(tmp_path: Path, healthy: Job) -> None:
    assert not advised(tmp_path, healthy).of_rule("kernel_precision")
