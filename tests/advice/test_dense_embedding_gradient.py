"""Gradients of whole tables of which few rows were read; the gain is that of the job whose ranks gather these rows."""

import gzip
import json
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from lumos_df.advice.rules import dense_embedding_gradient
from tests.advice.emulated import BRIEF, advice_on, advised, true_gain_ns
from tests.advice.test_more_micro_batches import said_of
from tests.emulator import FaultyJob, simulate, write
from tests.emulator.megatron import Megatron

DENSE = FaultyJob(ranks=4, steps=2, vocabulary=65_536, sequence=128)


@pytest.mark.parametrize(("ranks", "share"), [(1, "0.8%"), (4, "3.1%")])
def test_a_table_of_which_few_rows_are_read_is_the_first_advice(tmp_path: Path, ranks: int, share: str) -> None:
    dense = replace(DENSE, ranks=ranks)
    first = advised(tmp_path, dense).first
    assert first.remedy.rule == "dense_embedding_gradient"
    assert f"of 67,108,864 elements of which all samples read {share} or less" in first.remedy.what
    true = true_gain_ns(dense, replace(dense, sparse=True))
    assert first.gain_ns == pytest.approx(true, rel=0.1)


def test_a_bag_reads_as_many_rows_as_its_numbers_are(tmp_path: Path) -> None:
    """Of as many numbers as the job has tokens each four share a gradient."""
    for path in write(simulate(replace(DENSE, ranks=1)), BRIEF, tmp_path / "traces"):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        for event in trace["traceEvents"]:
            if event["name"] == "aten::embedding_dense_backward":
                event["name"] = "aten::_embedding_bag_dense_backward"
                (gradient, numbers, *_), width = event["args"]["Input Dims"], event["args"]["Input Dims"][0][-1]
                event["args"]["Input Dims"][0] = [prod(gradient) // width // 4, width]
                event["args"]["Input Dims"][1] = [prod(numbers)]
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    first = advice_on(tmp_path).first
    assert first.remedy.rule == "dense_embedding_gradient"
    assert "of 67,108,864 elements of which all samples read 0.8% or less" in first.remedy.what


def test_a_table_whose_rows_are_all_read_is_left_alone(tmp_path: Path) -> None:
    said = advised(tmp_path, replace(DENSE, vocabulary=2048))
    assert not list(dense_embedding_gradient.remedies(said.job))


def test_sparse_gradients_are_fine(tmp_path: Path) -> None:
    assert not list(dense_embedding_gradient.remedies(advised(tmp_path, replace(DENSE, sparse=True)).job))


def test_ranks_that_share_gradients_out_are_left_alone(tmp_path: Path) -> None:
    assert not list(dense_embedding_gradient.remedies(advised(tmp_path, replace(DENSE, zero=2)).job))


def test_a_table_that_a_product_shares_gets_a_dense_gradient_anyway(tmp_path: Path) -> None:
    """There is no gradient of the product's own: it was added to the table's before."""
    for path in write(simulate(replace(DENSE, ranks=1)), BRIEF, tmp_path / "traces"):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        given = [
            event
            for event in trace["traceEvents"]
            if event["name"] == "torch::autograd::AccumulateGrad" and event["args"]["Input Dims"] == [[65_536, 1024]]
        ]
        for event in given[::2]:
            event["name"] = "aten::add"
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    assert not list(dense_embedding_gradient.remedies(advice_on(tmp_path).job))


def test_a_table_that_a_product_of_another_stage_may_share_is_left_alone(tmp_path: Path) -> None:
    job = Megatron(pp=2, layers=2, hidden=512, ffn=2048, heads=8, sequence=512, steps=2)
    assert not list(dense_embedding_gradient.remedies(said_of(tmp_path, job).job))
