"""Attention to the keys that an indexer chooses: DeepSeek-V3.2 beside DeepSeek-V3, which differ in nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from lumos_df.base.errors import ModelError
from lumos_df.estimate import estimate
from lumos_df.estimate.block_operators import block_operators
from lumos_df.model.hardware import Hardware
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model

FULL, CHOSEN = Model.read("deepseek-v3"), Model.read("deepseek-v3.2")
PLAN = Plan(pp=16, ep=64, dp=128, batch=128 * 32, precision="bf16")


def operators(model: Model, seq: int, plan: Plan = PLAN) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the operators of a layer's attention, by name and phase; no gradients are added up."""
    software = replace(Software.read("megatron"), add_bytes=0.0)
    told = block_operators(replace(model, seq=seq), Hardware.read("h800"), software, plan)
    return {(each["name"], each["phase"]): each for each in told if each["block"] == "attention"}


def test_parameters_are_those_of_the_indexer() -> None:
    """Queries of 64 heads from the compressed query, one key and 64 weights from the stream, the key's norm."""
    each = 1536 * 64 * 128 + 7168 * (128 + 64) + 2 * 128
    assert CHOSEN.parameters().total - FULL.parameters().total == 61 * each


def test_short_sequences_have_nothing_to_choose() -> None:
    assert operators(CHOSEN, 2048) == operators(FULL, 2048)


def test_chosen_keys_are_as_many_whatever_the_sequence_and_scores_are_not() -> None:
    once, twice = operators(CHOSEN, 65536), operators(CHOSEN, 131072)
    for phase in ("forward", "backward"):
        # Of 2,048 keys the first tokens have fewer: 0.984 and 0.992 of them.
        assert twice["attention", phase]["dur"] / once["attention", phase]["dur"] == pytest.approx(2.0, rel=0.01)
        assert twice["index_scores", phase]["dur"] / once["index_scores", phase]["dur"] == pytest.approx(4.0, rel=0.02)


def test_chosen_keys_are_read_compressed_by_all_heads() -> None:
    """576 numbers of a key and 512 of a value, where a head of its own has 192 and 128: 2,032 keys of 65,536 / 2."""
    seq = 131072
    full, chosen = operators(FULL, seq), operators(CHOSEN, seq)
    keys = 2048 * (1 - 2048 / (2 * seq))
    ratio = chosen["attention", "forward"]["dur"] / full["attention", "forward"]["dur"]
    # Wide heads fill more of a multiprocessor.
    assert ratio == pytest.approx(keys / (seq / 2) * (576 + 512) / (192 + 128), rel=0.25)


@pytest.mark.parametrize("seq", [4096, 16384, 131072])
def test_no_sequence_is_slower_for_reading_fewer_keys(seq: int) -> None:
    for phase in ("forward", "backward"):
        assert operators(CHOSEN, seq)["attention", phase]["dur"] <= operators(FULL, seq)["attention", phase]["dur"]


def test_scores_are_one_product_forwards_and_two_backwards_on_every_rank() -> None:
    scores = {phase: operators(CHOSEN, 8192)["index_scores", phase]["flops"] for phase in ("forward", "backward")}
    pairs = 8192 * 8192 * 64 * 128
    assert scores == {"forward": 2 * pairs, "backward": 4 * pairs}
    split = replace(PLAN, tp=2, dp=64, sequence_parallel=True)
    assert operators(CHOSEN, 8192, split)["index_scores", "forward"]["flops"] == 2 * pairs


def test_flop_are_those_of_all_scores_and_of_chosen_keys() -> None:
    seq = 131072
    full, chosen = (replace(model, seq=seq).flops_per_token(causal=True) for model in (FULL, CHOSEN))
    keys = 2048 * (1 - 2048 / (2 * seq))
    scores = 2 * (seq / 2) * 64 * 128 + 2 * (1536 * 64 * 128 + 7168 * (128 + 64))
    attention = 2 * 128 * (192 + 128)
    assert full - chosen == pytest.approx(61 * (attention * (seq / 2 - keys) - scores), rel=1e-9)


def test_long_sequences_train_faster() -> None:
    plan = replace(PLAN, dp=64, batch=64 * 32, cp=2)
    full, chosen = (estimate(replace(model, seq=131072), "h800", plan).answers for model in (FULL, CHOSEN))
    assert chosen["iteration_time_s"] < 0.8 * full["iteration_time_s"]


@pytest.mark.parametrize("changes", [{"index_dim": 0}, {"index_keys": 0}, {"window": 512}, {"q_rank": 0}])
def test_an_indexer_needs_all_its_figures_and_compressed_queries(changes: dict[str, Any]) -> None:
    with pytest.raises(ModelError) as refused:
        replace(CHOSEN, **changes)
    assert str(refused.value).count("index_heads, index_dim and index_keys go together") == 1
