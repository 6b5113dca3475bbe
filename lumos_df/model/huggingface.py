"""Hugging Face's config.json, by its `model_type`, as the figures of a model."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from lumos_df.base.errors import ModelError, nearest


def from_hugging_face(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the figures of `Model` from a config.json; `name` is for its source and for complaints.

    Raises `ModelError` for a `model_type` that is not known, a missing key, and a variant that is not modelled.
    """
    kind = str(config["model_type"])
    reader = _READERS.get(kind)
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise ModelError(f"model '{name}': model_type '{kind}' is not one of {known}{nearest(kind, list(_READERS))}")
    for key in sorted(_NUMBERS & config.keys()):
        # False stands for none of a kind; true for no number.
        if isinstance(config[key], list | dict | str) or config[key] is True:
            raise ModelError(f"model '{name}': config.json: {key} = {config[key]!r}: must be a number")
    try:
        figures = reader(config)
    except KeyError as problem:
        raise ModelError(f"model '{name}': config.json of a '{kind}' needs the key {problem}") from None
    except _NotModelledError as problem:
        raise ModelError(f"model '{name}': {problem}") from None
    except (TypeError, AttributeError, ValueError, ArithmeticError) as problem:
        raise ModelError(
            f"model '{name}': config.json of a '{kind}' has figures that do not go together: {problem}"
        ) from None
    return {**figures, "source": f"config.json of {name}, a {kind}"}


_NUMBERS: Final = frozenset(
    {
        *("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"),
        *("head_dim", "vocab_size", "max_position_embeddings", "sliding_window", "max_window_layers"),
        *("num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"),
        *("n_shared_experts", "num_shared_experts", "first_k_dense_replace", "moe_layer_freq", "decoder_sparse_step"),
        *("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "expansion_ratio"),
        *("n_layer", "n_embd", "n_inner", "n_head", "n_positions", "n_layers", "n_heads", "d_model", "max_seq_len"),
        *("ffn_dim", "word_embed_proj_dim", "num_nextn_predict_layers", "intermediate_size_mlp"),
        *("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "moe_latent_size"),
        *("moe_shared_expert_intermediate_size",),
        *("interleave_moe_layer_step", "sliding_window_pattern", "num_kv_heads", "ffn_hidden_size"),
    }
)
"""Keys of config.json that are numbers."""


class _NotModelledError(Exception):
    """A variant of an architecture that has other costs than ours."""


def _llama(config: Mapping[str, Any]) -> dict[str, Any]:
    """Llama and what follows its keys. `head_dim` and `num_key_value_heads` may be null or missing."""
    window = (config.get("sliding_window") or 0) if config.get("use_sliding_window", True) else 0
    seq = config["max_position_embeddings"]
    return {
        "layers": config["num_hidden_layers"],
        "hidden": config["hidden_size"],
        "ffn": config["intermediate_size"],
        "heads": config["num_attention_heads"],
        "kv_heads": config.get("num_key_value_heads") or 0,
        "head_dim": config.get("head_dim") or 0,
        "vocab": config["vocab_size"],
        "seq": seq,
        "gated": True,
        "tied": config.get("tie_word_embeddings", False),
        "window": window if window < seq else 0,
    }


def _qwen2(config: Mapping[str, Any]) -> dict[str, Any]:
    # `max_window_layers` first layers see all; the files that are published switch the window off.
    figures = _llama({"use_sliding_window": False, **config})
    if figures["window"]:
        figures["window_layers"] = max(config["num_hidden_layers"] - config.get("max_window_layers", 0), 0)
        figures["window"] *= figures["window_layers"] > 0
    return {**figures, "qkv_bias": True}


def _qwen3(config: Mapping[str, Any]) -> dict[str, Any]:
    return {**_qwen2(config), "qkv_bias": config.get("attention_bias", False), "qk_norm": True}


def _mixtral(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_llama(config),
        "experts": config["num_local_experts"],
        "top_k": config["num_experts_per_tok"],
        "expert_ffn": config["intermediate_size"],
    }


def _qwen3_moe(config: Mapping[str, Any]) -> dict[str, Any]:
    if config.get("decoder_sparse_step", 1) != 1 or config.get("mlp_only_layers"):
        raise _NotModelledError(
            "dense layers between sparse ones (decoder_sparse_step, mlp_only_layers) are not modelled"
        )
    return {
        **_qwen3(config),
        "experts": config["num_experts"],
        "top_k": config["num_experts_per_tok"],
        "expert_ffn": config["moe_intermediate_size"],
    }


def _deepseek(config: Mapping[str, Any]) -> dict[str, Any]:
    """DeepSeek V2 and V3. Their config.json calls the rotary part apart, and the first dense layers by number."""
    if config.get("moe_layer_freq", 1) != 1:
        raise _NotModelledError("dense layers between sparse ones (moe_layer_freq) are not modelled")
    expert_ffn = config["moe_intermediate_size"]
    return {
        **_llama(config),
        "kv_heads": 0,
        "head_dim": config["qk_nope_head_dim"] + config["qk_rope_head_dim"],
        "q_rank": config.get("q_lora_rank") or 0,
        "kv_rank": config["kv_lora_rank"],
        "rope_dim": config["qk_rope_head_dim"],
        "v_dim": config["v_head_dim"],
        "experts": config["n_routed_experts"],
        "top_k": config["num_experts_per_tok"],
        "expert_ffn": expert_ffn,
        "shared_ffn": (config.get("n_shared_experts") or 0) * expert_ffn,
        "dense_layers": config.get("first_k_dense_replace", 0),
    }


def _gpt2(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "layers": config["n_layer"],
        "hidden": config["n_embd"],
        "ffn": config.get("n_inner") or 0,
        "heads": config["n_head"],
        "vocab": config["vocab_size"],
        "seq": config["n_positions"],
        "tied": config.get("tie_word_embeddings", True),
        "biases": True,
        "learned_positions": config["n_positions"],
    }


def _gpt_neox(config: Mapping[str, Any]) -> dict[str, Any]:
    return {**_llama(config), "gated": False, "biases": config.get("attention_bias", True)}


def _mpt(config: Mapping[str, Any]) -> dict[str, Any]:
    attention = config.get("attn_config") or {}
    biases = not config.get("no_bias", True)
    return {
        "layers": config["n_layers"],
        "hidden": config["d_model"],
        "ffn": config.get("expansion_ratio", 4) * config["d_model"],
        "heads": config["n_heads"],
        "kv_heads": 1 if attention.get("attn_type") == "multiquery_attention" else attention.get("kv_n_heads") or 0,
        "vocab": config["vocab_size"],
        "seq": config["max_seq_len"],
        "tied": config.get("tie_word_embeddings", True),
        "biases": biases,
        "learned_positions": 0 if attention.get("alibi") or attention.get("rope") else config["max_seq_len"],
    }


def _opt(config: Mapping[str, Any]) -> dict[str, Any]:
    if config.get("word_embed_proj_dim", config["hidden_size"]) != config["hidden_size"]:
        raise _NotModelledError("an embedding narrower than hidden_size (word_embed_proj_dim) is not modelled")
    positions = config["max_position_embeddings"]
    return {
        "layers": config["num_hidden_layers"],
        "hidden": config["hidden_size"],
        "ffn": config["ffn_dim"],
        "heads": config["num_attention_heads"],
        "vocab": config["vocab_size"],
        "seq": positions,
        "tied": config.get("tie_word_embeddings", True),
        "biases": True,
        # The table has two rows before the first position.
        "learned_positions": positions + 2,
    }


def _gemma2(config: Mapping[str, Any]) -> dict[str, Any]:
    """Gemma 2: every second layer looks back a window."""
    figures = {**_llama(config), "tied": config.get("tie_word_embeddings", True)}
    return {**figures, "window_layers": figures["layers"] // 2 if figures["window"] else 0}


def _gemma3(config: Mapping[str, Any]) -> dict[str, Any]:
    """Gemma 3: all layers but each sixth look back a window; its queries and keys are normalised."""
    figures = {**_llama(config), "tied": config.get("tie_word_embeddings", True), "qk_norm": True}
    every = config.get("sliding_window_pattern", 6)
    layers = figures["layers"]
    return {**figures, "window_layers": layers - layers // every if figures["window"] else 0}


def _olmo2(config: Mapping[str, Any]) -> dict[str, Any]:
    return {**_llama(config), "qk_norm": True}


def _cohere(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_llama(config),
        "tied": config.get("tie_word_embeddings", True),
        "qk_norm": config.get("use_qk_norm", False),
    }


def _glm4_moe(config: Mapping[str, Any]) -> dict[str, Any]:
    expert_ffn = config["moe_intermediate_size"]
    return {
        **_llama(config),
        "qkv_bias": config.get("attention_bias", False),
        "qk_norm": config.get("use_qk_norm", False),
        "experts": config["n_routed_experts"],
        "top_k": config["num_experts_per_tok"],
        "expert_ffn": expert_ffn,
        "shared_ffn": (config.get("n_shared_experts") or 0) * expert_ffn,
        "dense_layers": config.get("first_k_dense_replace", 0),
    }


def _minimax_m2(config: Mapping[str, Any]) -> dict[str, Any]:
    return {**_mixtral(config), "qk_norm": config.get("use_qk_norm", True)}


def _llama4(config: Mapping[str, Any]) -> dict[str, Any]:
    """Llama 4's text model: dense layers between sparse ones are counted as its first."""
    every = config.get("interleave_moe_layer_step", 1)
    figures = _llama(config)
    return {
        **figures,
        "ffn": config["intermediate_size_mlp"],
        "experts": config["num_local_experts"],
        "top_k": config["num_experts_per_tok"],
        "expert_ffn": config["intermediate_size"],
        "shared_ffn": config["intermediate_size"],
        "dense_layers": figures["layers"] - figures["layers"] // every,
    }


def _nemotron_h(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nemotron-H and 3: a layer is a state-space mixer, attention, an MLP or experts, as its pattern says."""
    pattern = config.get("hybrid_override_pattern") or [_PATTERN[word] for word in config["layers_block_type"]]
    counts = {kind: pattern.count(kind) for kind in "M*-E"}
    if counts["-"] and counts["E"]:
        raise _NotModelledError("MLPs beside experts (hybrid_override_pattern) are not modelled")
    figures = {
        **_llama(config),
        "gated": False,
        "layers": counts["-"] + counts["E"],
        "attention_layers": counts["*"],
        "mamba_layers": counts["M"],
        "state_heads": config["mamba_num_heads"],
        "state_head_dim": config["mamba_head_dim"],
        "state_size": config["ssm_state_size"],
        "state_groups": config["n_groups"],
        "mtp_layers": config.get("num_nextn_predict_layers") or 0,
    }
    if not counts["E"]:
        return figures
    return {
        **figures,
        "experts": config["n_routed_experts"],
        "top_k": config["num_experts_per_tok"],
        "expert_ffn": config["moe_intermediate_size"],
        "shared_ffn": (config.get("n_shared_experts") or 0) * config["moe_shared_expert_intermediate_size"],
        "latent": config.get("moe_latent_size") or 0,
    }


_PATTERN: Final = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
"""Letters of a hybrid pattern, by the words of newer files."""


def _falcon(config: Mapping[str, Any]) -> dict[str, Any]:
    heads = config["num_attention_heads"]
    shared = 1 if config.get("multi_query", True) else heads
    return {
        "layers": config["num_hidden_layers"],
        "hidden": config["hidden_size"],
        "ffn": config.get("ffn_hidden_size") or 4 * config["hidden_size"],
        "heads": heads,
        "kv_heads": config["num_kv_heads"] if config.get("new_decoder_architecture") else shared,
        "vocab": config["vocab_size"],
        "seq": config.get("max_position_embeddings", 2048),
        "tied": config.get("tie_word_embeddings", True),
        "biases": config.get("bias", False),
    }


_READERS: Final[dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "llama": _llama,
    "mistral": _llama,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "mpt": _mpt,
    "opt": _opt,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "olmo2": _olmo2,
    "cohere": _cohere,
    "phi3": _llama,
    "glm4_moe": _glm4_moe,
    "minimax_m2": _minimax_m2,
    "llama4_text": _llama4,
    "falcon": _falcon,
    "nemotron_h": _nemotron_h,
}
