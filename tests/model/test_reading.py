"""Files: Hugging Face's config.json, our own, and those that are broken."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from lumos_df.base.errors import HardwareError, LumosError, ModelError, SoftwareError
from lumos_df.model.hardware import Hardware
from lumos_df.model.library import data_folder, names, read_document
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
QWEN3: dict[str, Any] = {
    "model_type": "qwen3",
    "attention_bias": False,
    "head_dim": 128,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
MPT: dict[str, Any] = {
    "model_type": "mpt",
    "d_model": 8192,
    "expansion_ratio": 4,
    "max_seq_len": 2048,
    "n_heads": 64,
    "n_layers": 80,
    "no_bias": False,
    "vocab_size": 50368,
    "attn_config": {"alibi": False, "attn_type": "multihead_attention"},
}
NEMOTRON: dict[str, Any] = {
    "model_type": "nemotron_h",
    "head_dim": 128,
    "hidden_size": 2688,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "intermediate_size": 1856,
    "mamba_head_dim": 64,
    "mamba_num_heads": 64,
    "max_position_embeddings": 262144,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "n_groups": 8,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_attention_heads": 32,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 52,
    "num_key_value_heads": 2,
    "ssm_state_size": 128,
    "tie_word_embeddings": False,
    "vocab_size": 131072,
}

SAME = {
    "llama-3-8b": LLAMA,
    "nemotron-3-nano": NEMOTRON,
    "mistral-7b": LLAMA | {"model_type": "mistral", "vocab_size": 32000, "sliding_window": 4096},
    "mixtral-8x7b": LLAMA
    | {
        "model_type": "mixtral",
        "vocab_size": 32000,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "sliding_window": None,
    },
    "qwen3-0.6b": QWEN3,
    "qwen3-30b-a3b": QWEN3
    | {
        "model_type": "qwen3_moe",
        "decoder_sparse_step": 1,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "mlp_only_layers": [],
        "moe_intermediate_size": 768,
        "num_attention_heads": 32,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
    },
    "qwen2.5-7b": {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "max_position_embeddings": 131072,
        "max_window_layers": 28,
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "sliding_window": 131072,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "vocab_size": 152064,
    },
    "deepseek-v3": DEEPSEEK,
    "deepseek-v3.2": DEEPSEEK
    | {"model_type": "deepseek_v32", "index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048},
    "kimi-k2": DEEPSEEK
    | {
        "model_type": "kimi_k2",
        "first_k_dense_replace": 1,
        "n_routed_experts": 384,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "vocab_size": 163840,
    },
    "mpt-70b": MPT,
    "nemotron-h-8b": NEMOTRON
    | {
        "hidden_size": 4096,
        "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        "intermediate_size": 21504,
        "mamba_num_heads": 128,
        "num_key_value_heads": 8,
    },
    "gpt-oss-20b": LLAMA
    | {
        "model_type": "gpt_oss",
        "attention_bias": True,
        "head_dim": 64,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "layer_types": 12 * ["sliding_attention", "full_attention"],
        "num_attention_heads": 64,
        "num_experts_per_tok": 4,
        "num_hidden_layers": 24,
        "num_local_experts": 32,
        "sliding_window": 128,
        "vocab_size": 201088,
    },
    "grok-1": LLAMA
    | {
        "model_type": "grok-1",
        "hidden_size": 6144,
        "intermediate_size": 32768,
        "num_attention_heads": 48,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 64,
        "tie_word_embeddings": True,
        "vocab_size": 131072,
    },
    "nemotron-4-340b": LLAMA
    | {
        "model_type": "nemotron",
        "hidden_size": 18432,
        "intermediate_size": 73728,
        "num_attention_heads": 96,
        "num_hidden_layers": 96,
        "vocab_size": 256000,
    },
    "command-r7b": LLAMA
    | {
        "model_type": "cohere2",
        "head_dim": 128,
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
        "tie_word_embeddings": True,
        "vocab_size": 256000,
    },
    "minimax-text-01": LLAMA
    | {
        "model_type": "minimax_text_01",
        "attn_type_list": 10 * [0, 0, 0, 0, 0, 0, 0, 1],
        "head_dim": 128,
        "hidden_size": 6144,
        "intermediate_size": 9216,
        "num_attention_heads": 64,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 80,
        "num_local_experts": 32,
        "shared_intermediate_size": 0,
        "vocab_size": 200064,
    },
    "qwen3-next-80b-a3b": QWEN3
    | {
        "model_type": "qwen3_next",
        "decoder_sparse_step": 1,
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_size": 2048,
        "intermediate_size": 5120,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
        "mlp_only_layers": [],
        "moe_intermediate_size": 512,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "num_hidden_layers": 48,
        "num_key_value_heads": 2,
        "shared_expert_intermediate_size": 512,
        "tie_word_embeddings": False,
    },
    "llama-4-scout": LLAMA
    | {
        "model_type": "llama4_text",
        "attention_chunk_size": 8192,
        "head_dim": 128,
        "hidden_size": 5120,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "interleave_moe_layer_step": 1,
        "no_rope_layers": [],
        "num_attention_heads": 40,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 48,
        "num_local_experts": 16,
        "vocab_size": 202048,
    },
    "qwen3.5-35b-a3b": {
        "model_type": "qwen3_5_moe",
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": "qwen3_5_moe_text",
            "attn_output_gate": True,
            "full_attention_interval": 4,
            "head_dim": 256,
            "hidden_size": 2048,
            "linear_key_head_dim": 128,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 32,
            "linear_value_head_dim": 128,
            "max_position_embeddings": 32768,
            "moe_intermediate_size": 512,
            "num_attention_heads": 16,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "num_hidden_layers": 40,
            "num_key_value_heads": 2,
            "shared_expert_intermediate_size": 512,
            "vocab_size": 248320,
        },
    },
    "falcon-h1-34b": LLAMA
    | {
        "model_type": "falcon_h1",
        "head_dim": 128,
        "hidden_size": 5120,
        "intermediate_size": 21504,
        "mamba_d_head": 128,
        "mamba_d_state": 256,
        "mamba_n_groups": 2,
        "mamba_n_heads": 32,
        "num_attention_heads": 20,
        "num_hidden_layers": 72,
        "num_key_value_heads": 4,
        "vocab_size": 261120,
    },
}
# Hugging Face's counts of gpt2, gpt-neox-20b (without buffers), opt-125m.
COUNTED = {
    124_439_808: {
        "model_type": "gpt2",
        "n_ctx": 1024,
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
    },
    20_554_567_680: {
        "model_type": "gpt_neox",
        "hidden_size": 6144,
        "intermediate_size": 24576,
        "max_position_embeddings": 2048,
        "num_attention_heads": 64,
        "num_hidden_layers": 44,
        "tie_word_embeddings": False,
        "vocab_size": 50432,
    },
    125_239_296: {
        "model_type": "opt",
        "ffn_dim": 3072,
        "hidden_size": 768,
        "max_position_embeddings": 2048,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "vocab_size": 50272,
        "word_embed_proj_dim": 768,
    },
}


def written(folder: Path, figures: object) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(figures))
    return file


@pytest.mark.parametrize("name", SAME)
def test_a_config_json_says_what_the_models_own_file_says(tmp_path: Path, name: str) -> None:
    ours, theirs = (asdict(model) for model in (Model.read(name), Model.read(written(tmp_path, SAME[name]))))
    said = SAME[name].get("text_config", SAME[name])
    assert theirs["seq"] == said.get("max_position_embeddings", said.get("max_seq_len"))
    # A recipe, not the model, says to what the vocabulary is padded.
    free = dict.fromkeys(("name", "source", "seq", "vocab_multiple"), None)
    assert theirs | free == ours | free


@pytest.mark.parametrize(
    ("told", "layers"),
    [
        ({}, 36),
        ({"no_rope_layer_interval": 3}, 32),
        ({"no_rope_layers": 24 * [1, 0]}, 24),
        ({"layer_types": 12 * ["chunked_attention"] + 36 * ["full_attention"]}, 12),
        ({"attention_chunk_size": None}, 0),
    ],
)
def test_which_layers_of_llama_4_see_chunks(tmp_path: Path, told: dict[str, Any], layers: int) -> None:
    read = Model.read(written(tmp_path, SAME["llama-4-scout"] | told))
    assert (read.window_layers, read.chunked, read.window) == (layers, layers > 0, 8192 if layers else 0)


def test_a_dense_qwen_3_5_has_what_its_name_says(tmp_path: Path) -> None:
    """Qwen/Qwen3.5-27B: figures of THUDM/slime's script, heads of values as wide as queries; 26.9e9 parameters."""
    config = QWEN3 | {
        "model_type": "qwen3_5_text",
        "head_dim": 256,
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "num_attention_heads": 24,
        "num_hidden_layers": 64,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
        "vocab_size": 248320,
    }
    read = Model.read(written(tmp_path, config))
    assert read.parameters().total == pytest.approx(27e9, rel=0.01)
    assert (read.experts, read.mamba_layers, read.output_gate) == (0, 48, True)
    assert not Model.read(written(tmp_path, config | {"attn_output_gate": False})).output_gate


@pytest.mark.parametrize("total", COUNTED)
def test_a_config_json_gives_the_published_count(tmp_path: Path, total: int) -> None:
    assert Model.read(written(tmp_path, COUNTED[total])).parameters().total == total


def test_of_a_model_that_sees_the_text_is_read(tmp_path: Path) -> None:
    """Gemma 3's files have the text's part inside, and leave out what is as usual (4B of google/gemma-3-4b-pt)."""
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    read = Model.read(written(tmp_path, {"model_type": "gemma3", "text_config": text, "vision_config": {}}))
    ours = Model.read("gemma-3-4b")
    assert (read.window, read.window_layers, read.tied) == (1024, 29, True)
    free = {"name": "", "source": "", "seq": 1, "vocab": 1}
    assert asdict(read) | free == asdict(ours) | free
    untied = {
        "model_type": "llama4",
        "tie_word_embeddings": True,
        "text_config": LLAMA | {"tie_word_embeddings": False},
    }
    assert not Model.read(written(tmp_path, untied)).tied


def test_a_config_json_of_another_name_is_called_by_it(tmp_path: Path) -> None:
    file = written(tmp_path, LLAMA).rename(tmp_path / "ours-7b.json")
    assert Model.read(file).name == "ours-7b"


def test_a_config_json_is_called_as_its_folder_or_as_it_says(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    assert Model.read(written(folder, LLAMA)).name == "my-llama"
    assert Model.read(written(folder, LLAMA | {"_name_or_path": "us/ours"})).name == "us/ours"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"model_type": "lama"}, "model_type 'lama' is not one of cohere, cohere2, deepseek_v2, "),
        ({"model_type": "lama"}, "did you mean 'llama'?"),
        ({"model_type": "mixtral"}, "config.json of a 'mixtral' needs the key 'num_local_experts'"),
        ({"hidden_size": "big"}, "config.json: hidden_size = 'big': must be a number"),
        ({"num_key_value_heads": True}, "config.json: num_key_value_heads = True: must be a number"),
        (MPT | {"attn_config": "alibi"}, "config.json of a 'mpt' has figures that do not go together"),
        (
            DEEPSEEK | {"model_type": "nemotron_h", "hybrid_override_pattern": {"M": 4}},
            "config.json of a 'nemotron_h' has figures that do not go together",
        ),
        (SAME["minimax-text-01"] | {"attn_type_list": 7}, "'minimax_text_01' has figures that do not go together"),
        (SAME["minimax-text-01"] | {"shared_intermediate_size": 8}, "(shared_intermediate_size) is not modelled"),
        (DEEPSEEK | {"moe_layer_freq": 2}, "dense layers between sparse ones (moe_layer_freq) are not modelled"),
        (COUNTED[125_239_296] | {"word_embed_proj_dim": 512}, "(word_embed_proj_dim) is not modelled"),
    ],
)
def test_a_config_json_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ModelError) as refused:
        Model.read(written(tmp_path, LLAMA | change))
    assert complaint in str(refused.value)


def test_our_own_json_reads(tmp_path: Path) -> None:
    file = written(tmp_path, {"name": "tiny", "layers": 2, "hidden": 64, "heads": 4, "vocab": 100, "seq": 128})
    assert Model.read(file) == Model("tiny", layers=2, hidden=64, heads=4, vocab=100, seq=128)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "does not read"),
        ("[" * 100_000, "does not read"),
        ("[]", "must be a table of figures"),
        ('{"layers": 2}', "needs the figure 'hidden'"),
        ('{"layer": 2}', "there is no figure 'layer'; did you mean 'layers'?"),
    ],
)
def test_a_broken_model_file_is_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "mine.json"
    file.write_text(text)
    with pytest.raises(ModelError) as refused:
        Model.read(file)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("said", "kernel"), [("true", "flash2"), ("false", "best")])
def test_a_software_file_from_before_its_kernel_had_a_name_is_told_what_to_write(
    tmp_path: Path, said: str, kernel: str
) -> None:
    now = (data_folder() / "software" / "megatron.toml").read_text()
    old = re.sub("(?m)^attention = .*$", f"flash2 = {said}", re.sub("(?m)^last_again = .*$", "", now))
    (tmp_path / "mine.toml").write_text(old)
    with pytest.raises(SoftwareError) as refused:
        Software.read(tmp_path / "mine.toml")
    (line,) = str(refused.value).splitlines()
    assert f'write attention = "{kernel}", and last_again' in line
    told = old.replace(f"flash2 = {said}", f'attention = "{kernel}"\nlast_again = 1')
    (tmp_path / "mine.toml").write_text(told)
    assert Software.read(tmp_path / "mine.toml").attention == kernel


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("held_gathered", "keep_gathered = 0.5", "are gone: write held_gathered instead, 0 where you know nothing"),
        ("(?:step|gather|add)_bytes", "keep_rotary = 1", "are gone: write add_bytes, step_bytes, gather_bytes instead"),
        ("zigzag", "zigzag = true\nkeep_rotary = 1", "keep_gathered and keep_rotary are gone: leave them out"),
        ("add_bytes", "", "needs add_bytes, bytes a parameter that adding a micro-batch's gradients to those before"),
        ("(?:step|gather)_bytes", "", "needs step_bytes, gather_bytes; or write inherits = "),
    ],
)
def test_a_software_file_of_before_is_told_what_to_write(tmp_path: Path, text: str, said: str, line: str) -> None:
    now = (data_folder() / "software" / "megatron.toml").read_text()
    (tmp_path / "mine.toml").write_text(re.sub(f"(?m)^{text} = .*$", "", now) + said)
    with pytest.raises(SoftwareError) as refused:
        Software.read(tmp_path / "mine.toml")
    (told,) = str(refused.value).splitlines()
    assert line in told


def test_a_software_file_says_what_differs_from_another(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('inherits = "PyTorch FSDP2"\npasses = 1.25\n')
    assert vars(Software.read(tmp_path / "mine.toml")) == {
        **vars(Software.read("torchtitan")),
        "name": "mine",
        "passes": 1.25,
    }
    (tmp_path / "again.toml").write_text('inherits = "mine.toml"\npasses = 1.5\n')
    assert Software.read(tmp_path / "again.toml").add_bytes == Software.read("torchtitan").add_bytes
    (tmp_path / "mine.toml").write_text(f'inherits = "{tmp_path}/again.toml"\n')
    with pytest.raises(SoftwareError, match="software 'mine': 'again' inherits itself"):
        Software.read(tmp_path / "mine.toml")
    (tmp_path / "mine.toml").write_text('inherits = "torchtita"\n')
    with pytest.raises(SoftwareError, match="'torchtita' is not known; did you mean 'torchtitan'"):
        Software.read(tmp_path / "mine.toml")
    (tmp_path / "mine.toml").write_text('inherits = ["torchtitan"]\n')
    with pytest.raises(SoftwareError, match=r"software 'mine': inherits = .* must be the name or the file"):
        Software.read(tmp_path / "mine.toml")


@pytest.mark.parametrize("name", ["last_again", "tp_hidden", "network_share"])
def test_a_share_of_more_than_the_whole_is_refused(tmp_path: Path, name: str) -> None:
    now = (data_folder() / "software" / "megatron.toml").read_text()
    for told in ("1", "1.5"):
        (tmp_path / "mine.toml").write_text(re.sub(f"(?m)^{name} = .*$", f"{name} = {told}", now))
        if told == "1":
            Software.read(tmp_path / "mine.toml")
            continue
        with pytest.raises(SoftwareError, match=f"{name} = 1.5: must be at most 1$"):
            Software.read(tmp_path / "mine.toml")


@pytest.mark.parametrize(
    ("read", "error", "name", "complaint"),
    [
        (Model.read, ModelError, "lama-3-8b", "model 'lama-3-8b' is not known; did you mean 'llama-3-8b'?"),
        (Model.read, ModelError, "none/such.json", "none/such.json: No such file or directory"),
        (
            Hardware.read,
            HardwareError,
            "h10",
            "hardware 'h10' is not known; did you mean 'h100-nvl' or 'h100-pcie'",
        ),
        (Hardware.read, HardwareError, "xyzzy", "hardware 'xyzzy' is not known; names begin with a100, a10g, b200, "),
        (Software.read, SoftwareError, "megatrn", "software 'megatrn' is not known; did you mean 'megatron'?"),
    ],
)
def test_an_unknown_name_comes_with_the_nearest(read: Any, error: type[LumosError], name: str, complaint: str) -> None:
    with pytest.raises(error) as refused:
        read(name)
    assert str(refused.value).startswith(complaint)


@pytest.mark.parametrize("folder", ["models", "hardware", "software"])
def test_every_name_is_known_and_leads_to_its_own_file(folder: str) -> None:
    known = names(folder)
    assert known
    assert [read_document(name, folder, LumosError)[0] for name in known] == known
