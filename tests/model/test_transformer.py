"""Models: counts against what is published, and against a twin that lists every matrix."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumos_df.base.errors import ModelError
from lumos_df.model.kernels import layer_operators
from lumos_df.model.library import names
from lumos_df.model.plan import Plan
from lumos_df.model.transformer import MODEL_COLUMNS, MODEL_ROW, Model

# As Hugging Face counts the released weights; llm-foundry's README for MPT.
EXACT = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "deepseek-v2-lite": 15_706_484_224,
    "mpt-30b": 29_975_214_080,
    "mpt-70b": 64_862_437_376,
}

# In the papers, to the digits they print: GPT-3, Narayanan et al., Lumos, DeepSeek, Kimi K2, Nemotron-4, gpt-oss.
PRINTED = {
    "gpt3-125m": "125M",
    "gpt3-350m": "356M",
    "gpt3-13b": "13B",
    "gpt3-175b": "175B",
    "gpt3-15b": "15B",
    "gpt3-44b": "44B",
    "gpt3-117b": "117B",
    "megatron-1.7b": "1.7B",
    "megatron-3.6b": "3.6B",
    "megatron-7.5b": "7.5B",
    "megatron-18b": "18.4B",
    "megatron-39b": "39.1B",
    "megatron-76b": "76.1B",
    "megatron-145b": "145.6B",
    "megatron-310b": "310.1B",
    "megatron-530b": "529.6B",
    "megatron-1t": "1008.0B",
    "megatron-22b": "22B",
    "nanotron-80b": "80.00B",
    "deepseek-v3": "671B",
    "kimi-k2": "1026B",
    "nemotron-4-340b": "341B",
    "gpt-oss-20b": "20.91B",
    "gpt-oss-120b": "116.83B",
    "nemotron-3-nano": "31.6B",
}

ACTIVE = {
    "mixtral-8x7b": "12.9B",
    "qwen3-30b-a3b": "3.4B",
    "qwen3-235b-a22b": "22.2B",
    "deepseek-v3": "37.6B",
    "kimi-k2": "32.9B",
    "llama-3-8b": "8.0B",
    "nemotron-3-nano": "3.6B",
}


# Counts of checkpoints or of the papers, to within 1 %: biases, norms and gates that cost nothing are not told apart.
NEAR = {
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-4b": 3_880_099_328,
    "gemma-3-12b": 11_765_788_416,
    "gemma-3-27b": 27_009_002_240,
    "phi-4": 14_659_507_200,
    "falcon-7b": 6_921_720_704,
    "falcon-40b": 41_303_293_952,
    "falcon-180b": 180e9,
    "falcon-h1-34b": 33.6e9,
    "command-r": 34_980_831_232,
    "command-r-plus": 103_810_674_688,
    "command-r7b": 8_028_033_024,
    "olmo-2-7b": 7.3e9,
    "olmo-2-13b": 13.7e9,
    "olmo-2-32b": 32.2e9,
    "glm-4.5": 355e9,
    "glm-4.5-air": 106e9,
    "deepseek-v2": 236e9,
    "minimax-m2": 230e9,
    "minimax-text-01": 456e9,
    "grok-1": 314e9,
    "llama-4-scout": 108e9,
    "llama-4-maverick": 400e9,
    "nemotron-h-8b": 8.1e9,
    "nemotron-h-56b": 56.3e9,
    "nemotron-3-super": 123.6e9,
    "qwen3-next-80b-a3b": 79.7e9,
    "qwen3.5-35b-a3b": 35e9,
}


def printed(count: int, like: str) -> str:
    """Write a count in the unit and with the digits of another."""
    digits = len(like[:-1].partition(".")[2])
    return f"{count / {'M': 1e6, 'B': 1e9}[like[-1]]:.{digits}f}{like[-1]}"


@pytest.mark.parametrize("name", EXACT)
def test_parameters_are_those_of_the_released_weights(name: str) -> None:
    assert Model.read(name).parameters().total == EXACT[name]


@pytest.mark.parametrize("name", PRINTED)
def test_parameters_are_those_of_the_papers(name: str) -> None:
    assert printed(Model.read(name).parameters().total, PRINTED[name]) == PRINTED[name]


@pytest.mark.parametrize("name", NEAR)
def test_parameters_are_near_the_published(name: str) -> None:
    assert Model.read(name).parameters().total == pytest.approx(NEAR[name], rel=0.01)


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_are_the_published(name: str) -> None:
    assert printed(Model.read(name).parameters().active, ACTIVE[name]) == ACTIVE[name]


@pytest.mark.parametrize("name", ["megatron-22b", "megatron-175b", "megatron-530b", "megatron-1t"])
def test_flops_are_megatrons_formula(name: str) -> None:
    """72 b s L h^2 (1 + s/(6 h) + V/(12 h L)) for forward and backward (Narayanan et al. 2021, eq. 3)."""
    model = Model.read(name)
    h, s, layers, vocab = model.hidden, model.seq, model.layers, model.vocab
    step = 72 * layers * h**2 * (1 + s / (6 * h) + vocab / (12 * h * layers))
    assert 3 * model.flops_per_token() == pytest.approx(step, rel=1e-12)


def matrices(model: Model) -> tuple[list[tuple[int, int]], list[tuple[int, int]], int]:
    """List the matrices that a token is multiplied with, those it is not, and count the rest of the parameters."""
    h, used, idle, rest = model.hidden, [(model.hidden, model.vocab)], [], 0
    if not model.tied:
        idle.append((model.vocab, h))
    idle.append((model.learned_positions, h))
    norm = 2 * h if model.biases else h
    for layer in range(model.layers):
        if model.kv_rank:
            nope = model.head_dim - model.rope_dim
            if model.q_rank:
                used += [(h, model.q_rank), (model.q_rank, model.heads * model.head_dim)]
            else:
                used.append((h, model.heads * model.head_dim))
            used += [(h, model.kv_rank + model.rope_dim), (model.kv_rank, model.heads * (nope + model.v_dim))]
            rest += model.q_rank + model.kv_rank
        else:
            queries = 1 + model.output_gate
            used += [*queries * [(h, model.heads * model.head_dim)], *2 * [(h, model.kv_heads * model.head_dim)]]
        used.append((model.heads * model.v_dim, h))
        if model.biases or model.qkv_bias:
            rest += ((1 + model.output_gate) * model.heads + 2 * model.kv_heads) * model.head_dim
        rest += h * model.biases + 2 * model.head_dim * model.qk_norm + 2 * norm
        sparse = model.experts > 0 and layer >= model.dense_layers
        widths = [model.shared_ffn, *model.experts * [model.expert_ffn]] if sparse else [model.ffn]
        if sparse:
            used.append((h, model.experts))
        for at, width in enumerate(filter(None, widths)):
            visited = at < len([w for w in widths[:1] if w]) + model.top_k if sparse else True
            (used if visited else idle).extend([*(1 + model.gated) * [(h, width)], (width, h)])
            if model.biases:
                bias = (1 + model.gated) * width + h
                rest += bias if visited else 0
                idle += [] if visited else [(bias, 1)]
    return used, idle, rest + norm


@st.composite
def models(draw: st.DrawFn) -> Model:
    heads = draw(st.sampled_from([1, 2, 4, 6]))
    mla = draw(st.booleans())
    experts = draw(st.sampled_from([0, 2, 5]))
    seq = draw(st.integers(1, 64))
    window = draw(st.sampled_from([0, 1, 7, 100]))
    layers = draw(st.integers(1, 5))
    return Model(
        name="random",
        layers=layers,
        hidden=draw(st.integers(6, 40)),
        heads=heads,
        vocab=draw(st.integers(1, 100)),
        seq=seq,
        ffn=draw(st.integers(0, 50)),
        kv_heads=0 if mla else draw(st.sampled_from([n for n in range(1, heads + 1) if heads % n == 0])),
        head_dim=draw(st.integers(2, 9)),
        gated=draw(st.booleans()),
        tied=draw(st.booleans()),
        biases=not mla and draw(st.booleans()),
        qkv_bias=not mla and draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        output_gate=not mla and draw(st.booleans()),
        learned_positions=draw(st.sampled_from([0, 64])),
        window=window,
        window_layers=draw(st.integers(1, layers)) if window else 0,
        chunked=bool(window) and draw(st.booleans()),
        experts=experts,
        top_k=draw(st.integers(1, experts)) if experts else 0,
        expert_ffn=draw(st.integers(1, 9)) if experts else 0,
        shared_ffn=draw(st.integers(0, 9)) if experts else 0,
        dense_layers=draw(st.integers(0, layers)) if experts else 0,
        q_rank=draw(st.integers(0, 5)) if mla else 0,
        kv_rank=draw(st.integers(1, 5)) if mla else 0,
        rope_dim=1 if mla else 0,
        v_dim=draw(st.integers(1, 9)) if mla else 0,
    )


@given(models())
def test_counts_are_those_of_a_list_of_matrices(model: Model) -> None:
    used, idle, rest = matrices(model)
    sizes = [sum(math.prod(shape) for shape in shapes) for shapes in (used, idle)]
    count = model.parameters()
    assert count.total == sum(sizes) + rest
    assert 0 < count.active <= count.total
    assert count.active == count.total or model.experts > model.top_k
    looks_back = min(model.window, model.seq)
    seen = looks_back * (1 - looks_back / (2 * model.seq))
    if model.chunked:
        # Of each chunk half of its square.
        chunks = [min(model.window, model.seq - start) for start in range(0, model.seq, model.window)]
        seen = sum(chunk**2 / 2 for chunk in chunks) / model.seq
    pairs = sum(seen if layer < model.window_layers else model.seq / 2 for layer in range(model.layers))
    if model.window:
        assert model.row()["window_keys"] == pytest.approx(seen)
    attention = 2 * pairs * model.heads * (model.head_dim + model.v_dim)
    assert model.flops_per_token(causal=True) == pytest.approx(2 * sizes[0] + attention)
    assert model.flops_per_token() == pytest.approx(2 * sizes[0] + 2 * attention)


@pytest.mark.parametrize("name", names("models"))
def test_every_model_reads_and_makes_a_row(name: str) -> None:
    model = Model.read(name)
    row = model.row()
    assert row.dtype == MODEL_ROW
    assert model.name == name
    assert model.source
    assert {column.name: getattr(model, column.name) for column in MODEL_COLUMNS if hasattr(model, column.name)} | {
        "parameters": row["parameters"],
        "dense_layers": model.dense_layers if model.experts else model.layers,
    } == {column.name: row[column.name] for column in MODEL_COLUMNS if hasattr(model, column.name)}
    assert row["parameters"] == model.parameters().total
    assert row["causal_flops"] < row["flops"]


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("LLAMA3_70B", "llama-3-70b"),
        ("LLAMA3.1_405B", "llama-3.1-405b"),
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"),
        ("Qwen3_30B_a3B", "qwen3-30b-a3b"),
        ("DeepSeek V3 671B", "deepseek-v3"),
        ("turing-530B", "megatron-530b"),
        ("GPT3-175B", "gpt3-175b"),
        ("nanotron 8B", "nanotron-8b"),
    ],
)
def test_names_are_known_however_they_are_spelled(spelled: str, name: str) -> None:
    assert Model.read(spelled).name == name


@pytest.mark.parametrize(
    ("vocab", "multiple", "tp", "padded"), [(50257, 128, 1, 50304), (50257, 128, 8, 51200), (7, 1, 4, 8)]
)
def test_the_vocabulary_is_padded_as_megatron_does(vocab: int, multiple: int, tp: int, padded: int) -> None:
    model = replace(Model.read("gpt3-125m"), vocab=vocab, vocab_multiple=multiple)
    assert layer_operators.vocabulary(model.row(), Plan(tp=tp).row()) == padded


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"layers": 0}, "layers = 0: must be at least 1; nearest is 1"),
        ({"hidden": "4096"}, "hidden = '4096': must be a whole number of at least 1"),
        ({"seq": True}, "seq = True: must be a whole number"),
        ({"gated": 1}, "gated = 1: must be true or false"),
        ({"capacity": -1.0}, "capacity = -1.0: must be a number at least 0"),
        ({"kv_heads": 7}, "kv_heads = 7: does not divide heads = 32; nearest is 8"),
        ({"heads": 5000, "head_dim": 0, "kv_heads": 0}, "heads = 5000: more than hidden = 4096; nearest is 4096"),
        ({"experts": 8, "top_k": 9, "expert_ffn": 64}, "top_k = 9: must be 1 to experts = 8; nearest is 8"),
        ({"experts": 8, "top_k": 2}, "expert_ffn = 0: a model with experts needs their width"),
        ({"top_k": 2}, "top_k = 2: the model has no experts; nearest is 0"),
        (
            {"experts": 2, "top_k": 1, "expert_ffn": 1, "dense_layers": 40},
            "dense_layers = 40: at most layers; nearest is 32",
        ),
        (
            {"kv_rank": 64, "kv_heads": 32, "rope_dim": 128},
            "rope_dim = 128: must be 1 to head_dim - 1 = 127; nearest is 127",
        ),
        ({"kv_rank": 64, "rope_dim": 64}, "kv_heads = 8: MLA has as many as heads; nearest is 32"),
        ({"q_rank": 64}, "q_rank = 64: needs MLA, that is a kv_rank; nearest is 0"),
        ({"v_dim": 64}, "v_dim = 64: only MLA has another than head_dim; nearest is 128"),
        ({"window_layers": 3}, "window_layers = 3: at most 0; nearest is 0"),
        ({"chunked": True}, "chunked = true: needs a window; nearest is false"),
        (
            {"kv_rank": 64, "kv_heads": 32, "rope_dim": 64, "output_gate": True},
            "output_gate = true: not with MLA; nearest is false",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_nearest(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(ModelError) as refused:
        replace(Model.read("llama-3-8b"), **change)  # type: ignore[arg-type]
    assert str(refused.value).startswith("model 'llama-3-8b': ")
    assert complaint in str(refused.value)


def test_a_prediction_more_is_a_layer_a_projection_and_logits() -> None:
    """DeepSeek-V3's module (arXiv 2412.19437): a layer of 256 experts, two streams into one, and three more norms."""
    plain = Model.read("deepseek-v3")
    predicting = replace(plain, mtp_layers=1)
    layer = replace(plain, layers=62).parameters().total - plain.parameters().total
    assert predicting.parameters().total - plain.parameters().total == layer + 2 * 7168**2 + 2 * 7168
    flops = replace(plain, layers=62).flops_per_token() - plain.flops_per_token()
    more = predicting.flops_per_token() - plain.flops_per_token()
    assert more == pytest.approx(flops + 2 * (7168 * 129280 + 2 * 7168**2), rel=1e-9)


@pytest.mark.parametrize(
    ("figures", "complaint"),
    [
        ({"mamba_layers": 2}, "state_heads = 0: the model has state-space layers; nearest is 1"),
        ({"state_size": 128}, "state_size = 128: the model has no state-space layers; nearest is 0"),
        ({"latent": 64}, "latent = 64: the model has no experts; nearest is 0"),
    ],
)
def test_figures_of_a_hybrid_go_together(figures: dict[str, int], complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        Model(name="m", layers=2, hidden=64, heads=4, vocab=100, seq=64, **figures)  # type: ignore[arg-type]
