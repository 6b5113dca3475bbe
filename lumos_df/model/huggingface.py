"""Hugging Face's config.json, by its `model_type`, as the figures of a model."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from lumos_df.base.errors import ModelError, nearest
from lumos_df.model.hybrid_layers import NotModelledError, falcon_h1, minimax, nemotron_h, qwen3_next

Config = Mapping[str, Any]
Figures = dict[str, Any]


def from_hugging_face(config: Config, name: str) -> Figures:
    """Return the figures of `Model` from a config.json; `name` is for its source and for complaints.

    Of a model that also sees or hears only the text's part is read (`text_config`).

    Raises `ModelError` for a `model_type` that is not known, a missing key, and a variant that is not modelled.
    """
    kind = str(config["model_type"])
    if isinstance(config.get("text_config"), Mapping):
        outer = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
        config = {"model_type": f"{kind}_text", **outer, **config["text_config"]}
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
    except NotModelledError as problem:
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
        *("shared_expert_intermediate_size", "full_attention_interval", "shared_intermediate_size"),
        *("linear_num_value_heads", "linear_value_head_dim", "linear_num_key_heads", "linear_key_head_dim"),
        *("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups"),
        *("attention_chunk_size", "no_rope_layer_interval"),
        *("index_n_heads", "index_head_dim", "index_topk"),
    }
)
"""Keys of config.json that are numbers."""


def _llama(config: Config) -> Figures:
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


def _windowed(config: Config, figures: Figures, every: int) -> Figures:
    """Add how many layers look back a window: as many as `layer_types` names, else all but each `every`-th."""
    named = config.get("layer_types")
    usual = figures["layers"] - figures["layers"] // (config.get("sliding_window_pattern") or every)
    layers = usual if named is None else list(named).count("sliding_attention")
    if not layers or not figures["window"]:
        return {**figures, "window": 0}
    return {**figures, "window_layers": layers}


def _qwen2(config: Config) -> Figures:
    # `max_window_layers` first layers see all; the files that are published switch the window off.
    figures = _llama({"use_sliding_window": False, **config})
    if figures["window"]:
        figures["window_layers"] = max(config["num_hidden_layers"] - config.get("max_window_layers", 0), 0)
        figures["window"] *= figures["window_layers"] > 0
    return {**figures, "qkv_bias": True}


def _qwen3(config: Config) -> Figures:
    return {**_qwen2(config), "qkv_bias": config.get("attention_bias", False), "qk_norm": True}


def _mixtral(config: Config) -> Figures:
    return {
        **_llama(config),
        "experts": config["num_local_experts"],
        "top_k": config["num_experts_per_tok"],
        "expert_ffn": config["intermediate_size"],
    }


def _qwen3_moe(config: Config) -> Figures:
    if config.get("decoder_sparse_step", 1) != 1 or config.get("mlp_only_layers"):
        raise NotModelledError(
            "dense layers between sparse ones (decoder_sparse_step, mlp_only_layers) are not modelled"
        )
    return {
        **_qwen3(config),
        "experts": config["num_experts"],
        "top_k": config["num_experts_per_tok"],
        "expert_ffn": config["moe_intermediate_size"],
    }


def _qwen3_5_moe(config: Config) -> Figures:
    # No layer of it is dense.
    return _qwen3_moe({"intermediate_size": 0, **config})


def _deepseek(config: Config) -> Figures:
    """DeepSeek V2 and V3. Their config.json calls the rotary part apart, and the first dense layers by number."""
    if config.get("moe_layer_freq", 1) != 1:
        raise NotModelledError("dense layers between sparse ones (moe_layer_freq) are not modelled")
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


def _indexer(config: Config) -> Figures:
    """DeepSeek-V3.2: an indexer chooses the keys of each query."""
    return {
        "index_heads": config["index_n_heads"],
        "index_dim": config["index_head_dim"],
        "index_keys": config["index_topk"],
    }


def _gpt2(config: Config) -> Figures:
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


def _gpt_neox(config: Config) -> Figures:
    return {**_llama(config), "gated": False, "biases": config.get("attention_bias", True)}


def _mpt(config: Config) -> Figures:
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


def _opt(config: Config) -> Figures:
    if config.get("word_embed_proj_dim", config["hidden_size"]) != config["hidden_size"]:
        raise NotModelledError("an embedding narrower than hidden_size (word_embed_proj_dim) is not modelled")
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


def _gemma2(config: Config) -> Figures:
    """Gemma 2: every second layer looks back a window."""
    figures = {**_llama(config), "tied": config.get("tie_word_embeddings", True)}
    return _windowed(config, figures, 2)


def _gemma3(config: Config) -> Figures:
    """Gemma 3: all layers but each sixth look back a window; its queries and keys are normalised."""
    config = {**_GEMMA3, **config}
    figures = {**_llama(config), "tied": config.get("tie_word_embeddings", True), "qk_norm": True}
    return _windowed(config, figures, 6)


_GEMMA3: Final = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
}
"""What Gemma 3's files leave out where it is as usual (transformers 4.57, Gemma3TextConfig)."""


def _olmo2(config: Config) -> Figures:
    return {**_llama(config), "qk_norm": True}


def _cohere(config: Config) -> Figures:
    return {
        **_llama(config),
        "tied": config.get("tie_word_embeddings", True),
        "qk_norm": config.get("use_qk_norm", False),
    }


def _cohere2(config: Config) -> Figures:
    """Command R7B and Command A: all layers but each fourth look back a window."""
    return _windowed(config, _cohere(config), 4)


def _gpt_oss(config: Config) -> Figures:
    """gpt-oss: every second layer looks back a window; everything has a bias."""
    return {**_windowed(config, _mixtral(config), 2), "biases": True}


def _grok(config: Config) -> Figures:
    experts = config.get("num_experts") or config["num_local_experts"]
    return {**_mixtral({**config, "num_local_experts": experts}), "tied": config.get("tie_word_embeddings", True)}


def _nemotron(config: Config) -> Figures:
    """Nemotron-4 and Minitron: squared ReLU, so no gate."""
    return {**_llama(config), "gated": False}


def _glm4_moe(config: Config) -> Figures:
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


def _minimax_m2(config: Config) -> Figures:
    return {**_mixtral(config), "qk_norm": config.get("use_qk_norm", True)}


def _llama4(config: Config) -> Figures:
    """Llama 4's text model: dense layers between sparse ones are counted as its first.

    Layers with rotary positions, all but each fourth, see chunks of the sequence.
    """
    every = config.get("interleave_moe_layer_step", 1)
    figures = _llama(config)
    named, rotary = config.get("layer_types"), config.get("no_rope_layers")
    if named is not None:
        chunked = list(named).count("chunked_attention")
    elif rotary:
        # Its name says the contrary: 1 where a layer has them.
        chunked = sum(rotary)
    else:
        chunked = figures["layers"] - figures["layers"] // config.get("no_rope_layer_interval", 4)
    window = config.get("attention_chunk_size", 8192) or 0
    chunks = {"window": window, "window_layers": chunked, "chunked": True} if window and chunked else {}
    return {
        **figures,
        **chunks,
        "ffn": config["intermediate_size_mlp"],
        "experts": config["num_local_experts"],
        "top_k": config["num_experts_per_tok"],
        "expert_ffn": config["intermediate_size"],
        "shared_ffn": config["intermediate_size"],
        "dense_layers": figures["layers"] - figures["layers"] // every,
    }


def _falcon(config: Config) -> Figures:
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


def _beside(reader: Callable[[Config], Figures], more: Callable[[Config], Figures]) -> Callable[[Config], Figures]:
    """Return a reader that adds to what another reads, or says better."""
    return lambda config: {**reader(config), **more(config)}


_READERS: Final[dict[str, Callable[[Config], Figures]]] = {
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
    "deepseek_v32": _beside(_deepseek, _indexer),
    "kimi_k2": _deepseek,
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
    "nemotron_h": _beside(_llama, nemotron_h),
    "nemotron": _nemotron,
    "qwen3_next": _beside(_qwen3_moe, qwen3_next),
    "qwen3_5_text": _beside(_qwen3, qwen3_next),
    "qwen3_5_moe_text": _beside(_qwen3_5_moe, qwen3_next),
    "cohere2": _cohere2,
    "gpt_oss": _gpt_oss,
    "grok": _grok,
    "grok-1": _grok,
    "minimax": _beside(_mixtral, minimax),
    "minimax_text_01": _beside(_mixtral, minimax),
    "minimax_m1": _beside(_mixtral, minimax),
    "falcon_h1": _beside(_llama, falcon_h1),
}
