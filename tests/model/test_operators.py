"""The operators of a layer do the FLOP that the model counts, and the communication that its plan asks for."""

from dataclasses import replace

import numpy as np
import pytest

from lumos_df.model import operators as op
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model

MEGATRON = Software.read("megatron").row()


def rows(model: Model, plan: Plan, *, expert: bool = False) -> np.ndarray:
    ops = np.zeros((48, op.COLUMNS))
    end = op.attention_block(model.row(), plan.row(), MEGATRON, ops, 0)
    block = op.expert_block if expert else op.dense_block
    return ops[: block(model.row(), plan.row(), MEGATRON, ops, end)]


def products(ops: np.ndarray) -> float:
    chosen = ops[np.isin(ops[:, op.FAMILY], [op.GEMM, op.GROUPED_GEMM])]
    return float((2 * chosen[:, op.M] * chosen[:, op.N] * chosen[:, op.K] * chosen[:, op.BATCH]).sum())


def attention(ops: np.ndarray, model: Model) -> float:
    (row,) = ops[ops[:, op.FAMILY] == op.ATTENTION]
    return float(2 * row[op.M] * row[op.N] * (model.head_dim + model.v_dim) * row[op.BATCH])


@pytest.mark.parametrize("name", ["gpt3-175b", "llama-3-70b", "qwen3-8b", "mistral-7b"])
@pytest.mark.parametrize("tp", [1, 8])
def test_a_dense_models_layers_do_its_flop(name: str, tp: int) -> None:
    model = replace(Model.read(name), window=0, window_layers=0)
    ops = rows(model, Plan(tp=tp, micro_batch=2, batch=2))
    layers = model.layers * tp * (products(ops) + attention(ops, model))
    logits = 2 * model.hidden * model.vocab * 2 * model.seq
    assert layers + logits == pytest.approx(model.flops_per_token() * 2 * model.seq, rel=1e-9)


@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3"])
def test_a_mixtures_layers_do_its_flop(name: str) -> None:
    model = Model.read(name)
    plan = Plan(ep=8, dp=8, batch=8)
    sparse, dense = rows(model, plan, expert=True), rows(model, plan)
    count = model.layers - model.dense_layers
    layers = count * (products(sparse) + attention(sparse, model))
    layers += model.dense_layers * (products(dense) + attention(dense, model))
    logits = 2 * model.hidden * model.vocab * model.seq
    assert layers + logits == pytest.approx(model.flops_per_token() * model.seq, rel=1e-3)


def families(ops: np.ndarray) -> list[tuple[str, str]]:
    return [
        (op.FAMILIES[int(row[op.FAMILY])], op.GROUPS[int(row[op.GROUP])]) for row in ops if row[op.GROUP] != op.NO_GROUP
    ]


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (Plan(), []),
        (Plan(tp=2), [("all_reduce", "tp")] * 2),
        (Plan(tp=2, sequence_parallel=True), [("all_gather", "tp"), ("reduce_scatter", "tp")] * 2),
        (Plan(cp=2), [("all_gather", "cp")]),
    ],
)
def test_a_layer_communicates_as_its_plan_asks(plan: Plan, expected: list[tuple[str, str]]) -> None:
    assert families(rows(Model.read("llama-3-8b"), plan)) == expected


def test_experts_are_reached_by_two_exchanges() -> None:
    ops = rows(Model.read("mixtral-8x7b"), Plan(ep=8, dp=8, batch=8), expert=True)
    assert families(ops) == [("all_to_all", "ep")] * 2
    sent = ops[ops[:, op.FAMILY] == op.ALL_TO_ALL][:, op.BYTES]
    model = Model.read("mixtral-8x7b")
    assert sent[0] == sent[1] == model.seq * model.top_k * model.hidden * 2


def test_every_operator_has_a_name_and_a_family() -> None:
    ops = rows(Model.read("deepseek-v3"), Plan(tp=2, ep=8, dp=8, sequence_parallel=True, batch=8), expert=True)
    assert {op.NAMES[int(code)] for code in ops[:, op.NAME]} >= {"attention", "dispatch", "shared_up", "key_value_down"}
    assert ((ops[:, op.FAMILY] >= 0) & (ops[:, op.FAMILY] < len(op.FAMILIES))).all()
