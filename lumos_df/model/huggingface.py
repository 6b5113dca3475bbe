"""Hugging Face's config.json, by its `model_type`, as the figures of a model."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from lumos_df.base.errors import ModelError, nearest


def from_hugging_face(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the figures of `Model` from a config.json; `name` is for its source and for complaints.

    Raises `ModelError` for a `model_type` that is not known, a missing key, and a variant that is not modelled.
    """
    kind = config["model_type"]
    reader = _READERS.get(kind)
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise ModelError(
            f"model '{name}': model_type '{kind}' is not one of {known}{nearest(str(kind), list(_READERS))}"
        )
    try:
        figures = reader(config)
    except KeyError as problem:
        raise ModelError(f"model '{name}': config.json of a '{kind}' needs the key {problem}") from None
    except _NotModelledError as problem:
        raise ModelError(f"model '{name}': {problem}") from None
    return {**figures, "source": f"config.json of {name}, a {kind}"}


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
}
