"""Hugging Face's config.json of models in which not every layer has attention: what such models have instead."""

from collections.abc import Mapping
from typing import Any, Final


class NotModelledError(Exception):
    """A variant of an architecture that has other costs than ours."""


def nemotron_h(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Nemotron-H and 3 have: a layer is a state-space mixer, attention, an MLP or experts."""
    pattern = config.get("hybrid_override_pattern") or [_PATTERN[word] for word in config["layers_block_type"]]
    counts = {kind: pattern.count(kind) for kind in "M*-E"}
    if counts["-"] and counts["E"]:
        raise NotModelledError("MLPs beside experts (hybrid_override_pattern) are not modelled")
    figures = {
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


def falcon_h1(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Falcon-H1 has: attention and a state-space mixer side by side in every layer."""
    return {
        "attention_layers": config["num_hidden_layers"],
        "mamba_layers": config["num_hidden_layers"],
        "state_heads": config["mamba_n_heads"],
        "state_head_dim": config["mamba_d_head"],
        "state_size": config["mamba_d_state"],
        "state_groups": config["mamba_n_groups"],
    }


def minimax(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what MiniMax-01 and M1 have: lightning attention in most layers, with keys as wide as values."""
    if config.get("shared_intermediate_size"):
        raise NotModelledError("an MLP beside experts (shared_intermediate_size) is not modelled")
    named = config.get("layer_types")
    linear = list(config["attn_type_list"]).count(0) if named is None else list(named).count("linear_attention")
    head = config["num_attention_heads"], config["head_dim"]
    return _linear_attention(config, linear, head, head)


def qwen3_next(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Qwen3-Next and 3.5 have: gated attention in each fourth layer, a gated delta rule in the others."""
    named, layers = config.get("layer_types"), config["num_hidden_layers"]
    usual = layers - layers // config.get("full_attention_interval", 4)
    linear = usual if named is None else list(named).count("linear_attention")
    values = config["linear_num_value_heads"], config["linear_value_head_dim"]
    keys = config["linear_num_key_heads"], config["linear_key_head_dim"]
    return {
        **_linear_attention(config, linear, values, keys),
        "output_gate": config.get("attn_output_gate", True),
        "shared_ffn": config["shared_expert_intermediate_size"] if "num_experts" in config else 0,
    }


def _linear_attention(
    config: Mapping[str, Any], layers: int, values: tuple[int, int], keys: tuple[int, int]
) -> dict[str, Any]:
    """Return layers of linear attention as state-space mixers, which are the same with a decay (arXiv 2405.21060).

    Keys bring a token into the state, queries read it; projections are as many: gate, values, keys, queries, out.

    Args:
        config: of which the other layers have attention.
        layers: how many layers have linear attention.
        values, keys: heads, and the width of one.
    """
    return {
        "attention_layers": config["num_hidden_layers"] - layers,
        "mamba_layers": layers,
        "state_heads": values[0],
        "state_head_dim": values[1],
        "state_groups": keys[0],
        "state_size": keys[1],
    }
