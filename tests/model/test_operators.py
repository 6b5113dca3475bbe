"""The operators of a layer do the FLOP that the model counts, and the communication that its plan asks for."""

from dataclasses import replace

import numpy as np
import pytest

from lumos_df.model.fitted import load, vector
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels import expert_operators
from lumos_df.model.kernels import layer_operators as op
from lumos_df.model.kernels.cost import BACKWARD_WEIGHT, KINDS, LAUNCHES, PASSES, block_cost
from lumos_df.model.kernels.elementwise import elementwise_seconds
from lumos_df.model.kernels.gemm import gemm_seconds
from lumos_df.model.kernels.memory import layer_activation_bytes
from lumos_df.model.kernels.state_space import mixer_block
from lumos_df.model.pipeline.stages import paired_seconds, products_again
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model
from lumos_df.schema.codes import NONE
from lumos_df.schema.dtypes import FP8
from lumos_df.schema.plan_words import GROUPS

MEGATRON = Software.read("megatron").row()


def rows(model: Model, plan: Plan, *, expert: bool = False) -> np.ndarray:
    ops = np.zeros((48, op.COLUMNS))
    end = op.attention_block(model.row(), plan.row(), MEGATRON, ops, 0)
    block = expert_operators.expert_block if expert else op.dense_block
    return ops[: block(model.row(), plan.row(), MEGATRON, ops, end)]


def products(ops: np.ndarray) -> float:
    chosen = ops[np.isin(ops[:, op.FAMILY], [op.GEMM, op.GROUPED_GEMM])]
    return float((2 * chosen[:, op.M] * chosen[:, op.N] * chosen[:, op.K] * chosen[:, op.BATCH]).sum())


def attention(ops: np.ndarray) -> float:
    (row,) = ops[ops[:, op.FAMILY] == op.ATTENTION]
    return float(2 * 2 * row[op.M] * row[op.N] * row[op.K] * row[op.BATCH])


@pytest.mark.parametrize("name", ["gpt3-175b", "llama-3-70b", "qwen3-8b", "mistral-7b"])
@pytest.mark.parametrize(("tp", "gate"), [(1, False), (8, False), (8, True)])
def test_a_dense_models_layers_do_its_flop(name: str, tp: int, gate: bool) -> None:  # noqa: FBT001
    model = replace(Model.read(name), window=0, window_layers=0, output_gate=gate)
    ops = rows(model, Plan(tp=tp, micro_batch=2, batch=2))
    layers = model.layers * tp * (products(ops) + attention(ops))
    logits = 2 * model.hidden * model.vocab * 2 * model.seq
    assert layers + logits == pytest.approx(model.flops_per_token() * 2 * model.seq, rel=1e-9)


@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3"])
def test_a_mixtures_layers_do_its_flop(name: str) -> None:
    model = Model.read(name)
    plan = Plan(ep=8, dp=8, batch=8)
    sparse, dense = rows(model, plan, expert=True), rows(model, plan)
    count = model.layers - model.dense_layers
    layers = count * (products(sparse) + attention(sparse))
    layers += model.dense_layers * (products(dense) + attention(dense))
    logits = 2 * model.hidden * model.vocab * model.seq
    assert layers + logits == pytest.approx(model.flops_per_token() * model.seq, rel=1e-3)


def families(ops: np.ndarray) -> list[tuple[str, str]]:
    return [(op.FAMILIES[int(row[op.FAMILY])], GROUPS[int(row[op.GROUP])]) for row in ops if row[op.GROUP] != NONE]


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
    sent = ops[ops[:, op.FAMILY] == op.FAMILIES.index("all_to_all")][:, op.BYTES]
    model = Model.read("mixtral-8x7b")
    assert sent[0] == sent[1] == model.seq * model.top_k * model.hidden * 2


MIB = 2**20
TINY = Model("tiny", layers=4, hidden=1024, heads=8, kv_heads=4, ffn=4096, vocab=32000, seq=2048)
"""One sequence: activations of 2048 x 1024 elements, 4 MiB in 16 bits; keys, and values, of 2048 x 512, 2 MiB."""
MIXTURE = Model(
    "mixture",
    layers=4,
    hidden=1024,
    heads=8,
    vocab=32000,
    seq=2048,
    experts=8,
    top_k=2,
    expert_ffn=512,
    shared_ffn=256,
)


def payloads(ops: np.ndarray) -> list[tuple[str, str, float]]:
    """Return kind, group and MiB of each collective."""
    moved = ops[ops[:, op.GROUP] != NONE][:, op.BYTES] / MIB
    return [(*kind, mib) for kind, mib in zip(families(ops), moved.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (Plan(tp=2), [("all_reduce", "tp", 4), ("all_reduce", "tp", 4)]),
        # A payload is the whole buffer, however many ranks share it.
        (Plan(tp=4), [("all_reduce", "tp", 4), ("all_reduce", "tp", 4)]),
        (Plan(tp=2, micro_batch=3, batch=3), [("all_reduce", "tp", 12), ("all_reduce", "tp", 12)]),
        (Plan(tp=2, precision="fp32"), [("all_reduce", "tp", 8), ("all_reduce", "tp", 8)]),
        # 8-bit products leave activations in 16 bits.
        (Plan(tp=2, precision="fp8"), [("all_reduce", "tp", 4), ("all_reduce", "tp", 4)]),
        (
            Plan(tp=4, sequence_parallel=True),
            [
                ("all_gather", "tp", 4),
                ("reduce_scatter", "tp", 4),
                ("all_gather", "tp", 4),
                ("reduce_scatter", "tp", 4),
            ],
        ),
        # Keys and values of the whole sequence, 2 x 2 MiB, whatever cp is; activations are those of its part.
        (Plan(cp=2), [("all_gather", "cp", 4)]),
        (Plan(cp=4), [("all_gather", "cp", 4)]),
        (Plan(cp=4, precision="fp32"), [("all_gather", "cp", 8)]),
        # Keys and values are split over tp.
        (Plan(cp=4, tp=2), [("all_gather", "cp", 2), ("all_reduce", "tp", 1), ("all_reduce", "tp", 1)]),
        # Of 4 key heads, 8 ranks have one each.
        (Plan(cp=2, tp=8), [("all_gather", "cp", 1), ("all_reduce", "tp", 2), ("all_reduce", "tp", 2)]),
    ],
)
def test_collectives_of_a_dense_layer_move_what_their_buffers_hold(
    plan: Plan, expected: list[tuple[str, str, float]]
) -> None:
    assert payloads(rows(TINY, plan)) == expected


def test_values_of_mla_are_exchanged_as_wide_as_they_are() -> None:
    """DeepSeek-V3: of 4096 tokens 128 heads of keys 192 wide and of values 128 wide, in two bytes."""
    assert payloads(rows(Model.read("deepseek-v3"), Plan(cp=2))) == [
        ("all_gather", "cp", 128 * (192 + 128) * 4096 * 2 / MIB)
    ]


def experts(plan: Plan) -> np.ndarray:
    """Return the rows of a block with experts, without those of attention."""
    software = replace(Software.read("megatron"), passes=1.0).row()
    ops = np.zeros((48, op.COLUMNS))
    return ops[: expert_operators.expert_block(MIXTURE.row(), plan.row(), software, ops, 0)]


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        # Every one of 2048 tokens visits 2 experts: 8 MiB of copies.
        (Plan(dp=4, ep=4, batch=4), [("all_to_all", "ep", 8), ("all_to_all", "ep", 8)]),
        (Plan(dp=4, ep=2, batch=4), [("all_to_all", "ep", 8), ("all_to_all", "ep", 8)]),
        # A rank of two routes half of the tokens; the two of an expert gather what both have. The shared expert's.
        (
            Plan(tp=2, dp=2, ep=2, etp=2, batch=2),
            [
                ("all_to_all", "ep", 4),
                ("all_gather", "etp", 8),
                ("reduce_scatter", "etp", 8),
                ("all_to_all", "ep", 4),
                ("all_gather", "tp", 4),
                ("reduce_scatter", "tp", 4),
            ],
        ),
        (
            Plan(tp=4, cp=2, etp=4),
            [
                ("all_gather", "etp", 4),
                ("reduce_scatter", "etp", 4),
                ("all_gather", "tp", 2),
                ("reduce_scatter", "tp", 2),
            ],
        ),
    ],
)
def test_collectives_of_experts_move_the_tokens_that_are_routed(
    plan: Plan, expected: list[tuple[str, str, float]]
) -> None:
    assert payloads(experts(plan)) == expected


@pytest.mark.parametrize(
    ("plan", "products", "activated_mib"),
    [
        # Rows of an expert, width, experts of a rank. 2048 tokens x 2 over 8 experts: 512 each.
        (Plan(), (512, 512, 8), 2 * 4096 * 512 * 2 / MIB),
        # Of 4 times the tokens a rank has a quarter of the experts, and each has 4 times the rows.
        (Plan(dp=4, ep=4, batch=4), (2048, 512, 2), 2 * 4096 * 512 * 2 / MIB),
        # A rank of two has half of the tokens: 256 rows each. With etp=2 it has those of both, and half of the width.
        (Plan(tp=2), (256, 512, 8), 2 * 2048 * 512 * 2 / MIB),
        (Plan(tp=2, etp=2), (512, 256, 8), 2 * 4096 * 256 * 2 / MIB),
        (Plan(tp=2, dp=2, ep=2, etp=2, batch=2), (1024, 256, 4), 2 * 4096 * 256 * 2 / MIB),
        (Plan(tp=4, etp=4), (512, 128, 8), 2 * 4096 * 128 * 2 / MIB),
        (Plan(cp=2), (256, 512, 8), 2 * 2048 * 512 * 2 / MIB),
    ],
)
def test_experts_multiply_the_tokens_that_come_by_their_share_of_the_width(
    plan: Plan, products: tuple[int, int, int], activated_mib: float
) -> None:
    found = experts(plan)
    tokens, width, local = products
    grouped = found[found[:, op.FAMILY] == op.GROUPED_GEMM][:, [op.M, op.N, op.K, op.BATCH]]
    # hidden=1024 into the width, and back.
    assert grouped.tolist() == [[tokens, width, 1024, local], [tokens, 1024, width, local]]
    activation = found[found[:, op.NAME] == op.NAMES.index("activation")][0]
    assert activation[op.BYTES] / MIB == activated_mib


def test_experts_multiply_all_rows_that_their_capacity_has_room_for() -> None:
    plan, found = Plan(ep=4, dp=4, batch=4), {}
    for capacity in (0.0, 0.5, 1.0, 2.0):
        model = replace(MIXTURE, capacity=capacity)
        ops = rows(model, plan, expert=True)
        (up,) = ops[ops[:, op.NAME] == op.EXPERT_UP]
        sent = sum(mib for _, group, mib in payloads(ops) if group == "ep")
        found[capacity] = (up[op.M], sent, layer_activation_bytes(model.row(), plan.row(), MEGATRON, True))
    assert found[1.0] == found[0.0]
    assert found[2.0][:2] == tuple(2 * figure for figure in found[1.0][:2])
    assert found[0.5][:2] == tuple(figure / 2 for figure in found[1.0][:2])
    assert found[0.5][2] < found[1.0][2] < found[2.0][2]


@pytest.mark.parametrize(
    ("plan", "embedding", "head"),
    [
        (Plan(), [], []),
        (Plan(tp=2), [("all_reduce", "tp", 4)], []),
        (Plan(tp=2, sequence_parallel=True), [("reduce_scatter", "tp", 4)], [("all_gather", "tp", 4)]),
        (Plan(tp=2, cp=2), [("all_reduce", "tp", 2)], []),
    ],
)
def test_the_embedding_and_the_head_communicate_as_a_layers_ends_do(
    plan: Plan, embedding: list[tuple[str, str, float]], head: list[tuple[str, str, float]]
) -> None:
    first, last = np.zeros((2, 48, op.COLUMNS))
    first = first[: op.embedding_block(TINY.row(), plan.row(), first, 0)]
    last = last[: op.head_block(TINY.row(), plan.row(), MEGATRON, last, 0)]
    assert (payloads(first), payloads(last)) == (embedding, head)
    (product,) = last[last[:, op.FAMILY] == op.GEMM][:, [op.M, op.N, op.K]].tolist()
    assert product == [2048 / plan.cp, 32000 / plan.tp, 1024]


def test_a_gate_is_read_beside_attentions_output() -> None:
    """Qwen3-Next, two ranks: 8 heads of 256, in two bytes; output and gate are read, their product is written."""
    model, plan = Model.read("qwen3-next-80b-a3b"), Plan(tp=2, batch=1)
    plain, gated = (rows(replace(model, output_gate=gate), plan) for gate in (False, True))
    (gate,) = gated[gated[:, op.NAME] == op.NAMES.index("attention_gate")]
    assert gate[op.BYTES] == 3 * model.seq * 8 * 256 * 2 * MEGATRON["passes"]
    assert len(gated) == len(plain) + 1
    narrow, wide = (ops[ops[:, op.NAME] == op.QKV][0, op.N] for ops in (plain, gated))
    assert (narrow, wide) == (8 * 256 + 2 * 256, 2 * 8 * 256 + 2 * 256)


def test_every_operator_has_a_name_and_a_family() -> None:
    ops = rows(Model.read("deepseek-v3"), Plan(tp=2, ep=8, dp=8, sequence_parallel=True, batch=8), expert=True)
    assert {op.NAMES[int(code)] for code in ops[:, op.NAME]} >= {"attention", "dispatch", "shared_up", "key_value_down"}
    assert ((ops[:, op.FAMILY] >= 0) & (ops[:, op.FAMILY] < len(op.FAMILIES))).all()


def test_adapters_are_two_thin_products_beside_attentions_own() -> None:
    """Llama 2 70B: 8192 -> 16 -> 10240 beside query, key and value, 8192 -> 16 -> 8192 beside the output."""
    model = Model.read("llama-2-70b")
    plain, adapted = rows(model, Plan()), rows(model, Plan(lora=16))
    more = products(adapted) - products(plain)
    assert more == 2 * model.seq * 16 * (8192 + 10240 + 8192 + 8192)


def test_adapters_may_be_beside_every_product() -> None:
    """Llama 2 70B: also 8192 -> 16 -> 57344 beside gate and up, 28672 -> 16 -> 8192 beside down.

    DeepSeek-V3: beside those of its 256 experts, for the 8 that a token goes to, and of the shared one.
    """
    model = Model.read("llama-2-70b")
    attention_alone, adapted = rows(model, Plan(lora=16)), rows(model, Plan(lora=16, lora_targets="all"))
    more = products(adapted) - products(attention_alone)
    assert more == 2 * model.seq * 16 * (8192 + 2 * 28672 + 28672 + 8192)
    sparse, plan = Model.read("deepseek-v3"), Plan(lora=16, ep=8, dp=8, batch=8)
    without = products(rows(sparse, plan, expert=True))
    beside = rows(sparse, replace(plan, lora_targets="all"), expert=True)
    assert products(beside) - without == 9 * 2 * sparse.seq * 16 * (2 * 7168 + 3 * 2048)
    grouped = beside[beside[:, op.FAMILY] == op.GROUPED_GEMM]
    assert len(grouped) == 2 + 4


def test_frozen_weights_have_no_gradient() -> None:
    model, gpu = Model.read("llama-2-70b"), Hardware.read("h100-sxm")
    ops = rows(model, Plan(lora=16))
    cost = np.zeros((PASSES, KINDS))
    block_cost(ops, 0, len(ops), model.row(), Plan(lora=16).row(), gpu.row(), MEGATRON, cost)
    trained = ops[ops[:, op.WEIGHT_S] > 0.0]
    assert {op.NAMES[int(row[op.NAME])] for row in trained} == {"adapter_down", "adapter_up"}
    assert cost[BACKWARD_WEIGHT, LAUNCHES] == len(trained) == 4


def test_the_loss_moves_what_its_software_says() -> None:
    """GPT-3 175B's 51,200 logits a token: 52 bytes where each operator runs alone, 38 of them in the forward pass."""
    model, plan, software = Model.read("gpt3-175b"), Plan(tp=8, batch=1), Software.read("megatron")
    assert software.loss_bytes == 52.0
    ops = np.zeros((48, op.COLUMNS))
    fused = replace(software, loss_bytes=8.0)
    moved = []
    for each in (software, fused):
        end = op.head_block(model.row(), plan.row(), each.row(), ops, 0)
        (loss,) = ops[:end][ops[:end, op.NAME] == op.NAMES.index("loss")]
        moved.append(loss[[op.BYTES, op.BACKWARD_BYTES]] / (model.seq * 51200 / 8))
    assert moved[0] == pytest.approx([38.0, 14.0])
    assert moved[1].sum() == pytest.approx(8.0)


def test_every_second_product_is_computed_again() -> None:
    """Llama 3 8B: key 1024, output 4096 and up 14336 of 53,248 columns; GPT 125M: key 1, output 1, down 4 of 12."""
    assert products_again(Model.read("llama-3-8b").row()) == pytest.approx(19456 / 53248, rel=1e-3)
    assert products_again(replace(Model.read("gpt3-125m"), biases=False).row()) == pytest.approx(6 / 12, rel=1e-3)


def test_a_hybrids_layers_do_its_flop() -> None:
    """But for the scans, which are counted by what goes in and out of the states: four a channel and state."""
    model = Model.read("nemotron-3-super")
    ops = np.zeros((48, op.COLUMNS))
    mixer = ops[: mixer_block(model.row(), Plan().row(), MEGATRON, ops, 0)].copy()
    sparse = rows(model, Plan(), expert=True)
    attended = ops[: op.attention_block(model.row(), Plan().row(), MEGATRON, ops, 0)].copy()
    experts = products(sparse) - products(attended)
    both = products(attended) + attention(attended)
    total = (8 + 2) * both + 40 * products(mixer) + (40 + 2) * experts
    scans = 40 * 4 * 8192 * 128 * model.seq
    # Each prediction has logits of its own, and a product of two streams.
    logits = 3 * 2 * 4096 * 131072 * model.seq + 2 * 2 * 2 * 4096**2 * model.seq
    assert total + scans + logits == pytest.approx(model.flops_per_token() * model.seq, rel=1e-9)


def test_experts_of_a_latent_model_exchange_narrow_tokens() -> None:
    """22 copies of 1024 numbers a token, of two bytes."""
    ops = rows(Model.read("nemotron-3-super"), Plan(ep=8, dp=8, batch=8), expert=True)
    sent = ops[ops[:, op.FAMILY] == op.FAMILIES.index("all_to_all")][:, op.BYTES]
    assert sent.tolist() == [8192 * 22 * 1024 * 2] * 2


def seconds(
    name: str,
    precision: str,
    model: str = "llama-3-8b",
    hardware: str = "gb200",
    *,
    blocks: bool = False,
    column: int = op.FORWARD_S,
) -> float:
    """Return the seconds of the named product of a layer or the head, forward unless another column is asked for."""
    read, plan, gpu = Model.read(model), Plan(precision=precision), Hardware.read(hardware)
    software = replace(Software.read("megatron"), fp8_blocks=blocks).row()
    ops = np.zeros((96, op.COLUMNS))
    end = op.attention_block(read.row(), plan.row(), software, ops, 0)
    end = op.head_block(read.row(), plan.row(), software, ops, end)
    block_cost(ops, 0, end, read.row(), plan.row(), gpu.row(), software, np.zeros((PASSES, KINDS)))
    return float(ops[ops[:, op.NAME] == op.NAMES.index(name)][0, column])


def test_logits_have_16_bits_and_narrow_products_convert_what_they_read() -> None:
    assert seconds("head", "fp8") == seconds("head", "bf16")
    gpu = Hardware.read("gb200")
    attended = Model.read("llama-3-8b")
    factor = float(MEGATRON["compute_factor"])
    alone = factor * gemm_seconds(
        attended.seq, 4096, 4096, 1.0, 1.0, gpu.peak_flops.fp8, gpu.hbm_bandwidth, gpu.sms, gpu.row()["gemm"][FP8]
    )
    # Two bytes read, one written, and one turned round.
    converted = elementwise_seconds(attended.seq * 4096 * 4, gpu.hbm_bandwidth, gpu.row()["memory"])
    assert seconds("attention_output", "fp8") == pytest.approx(alone + converted, rel=1e-9)


def test_scales_of_blocks_are_other_kernels_on_hopper_alone() -> None:
    gpu, fitted = Hardware.read("h800"), load("h100-sxm").gemm
    factor = gpu.fitted["gemm"]["fp8"]["training_factor"]
    params = replace(fitted["fp8_block"].converted(fitted["bf16"].floor_s), training_factor=factor)
    product = (8192, 4096, 4096, 1.0, 1.0, gpu.peak_flops.fp8, gpu.hbm_bandwidth, gpu.sms)
    alone = float(MEGATRON["compute_factor"]) * gemm_seconds(*product, vector(params))
    converted = elementwise_seconds(8192 * 4096 * 4, gpu.hbm_bandwidth, gpu.row()["memory"])
    found = seconds("attention_output", "fp8", hardware="h800", blocks=True)
    assert found == pytest.approx(alone + converted, rel=1e-9)
    assert found != seconds("attention_output", "fp8", hardware="h800")
    product = (4096, 4096, 8192, 1.0, 1.0, gpu.peak_flops.fp8, gpu.hbm_bandwidth, gpu.sms)
    alone = float(MEGATRON["compute_factor"]) * gemm_seconds(*product, vector(params))
    gradient = seconds("attention_output", "fp8", hardware="h800", blocks=True, column=op.WEIGHT_S)
    assert gradient == pytest.approx(1.403 * alone, rel=1e-9)
    for name, precision, hardware in [
        ("attention_output", "bf16", "h800"),
        ("head", "fp8", "h800"),
        ("attention_output", "fp8", "gb200"),
        ("attention_output", "fp8", "mi300x"),
    ]:
        with_blocks, without = (seconds(name, precision, hardware=hardware, blocks=each) for each in (True, False))
        assert with_blocks == without


def test_a_hybrid_in_4_bits_keeps_attention_in_16() -> None:
    assert seconds("attention_output", "fp4", "nemotron-3-super") == seconds(
        "attention_output", "bf16", "nemotron-3-super"
    )
    assert seconds("attention_output", "fp4") < seconds("attention_output", "fp8")


def test_a_pair_hides_exchanges_behind_compute() -> None:
    """Passes of 3 and 5 s, of which exchanges take 2: 6 s are left, and a tenth of what is hidden. Of 6, 2 hide."""
    assert paired_seconds(3.0, 5.0, 2.0, 0.1) == pytest.approx(6.0 + 0.2)
    assert paired_seconds(3.0, 5.0, 6.0, 0.0) == pytest.approx(6.0)
