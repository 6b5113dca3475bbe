"""The model: a decoder-only transformer, dense or with a mixture of experts."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final

import numpy as np

from lumos_df.errors import ModelError
from lumos_df.model.figures import Complaint, flag, refuse, text, whole
from lumos_df.model.rows import REAL, Column, record, row_type

MODEL_COLUMNS: Final = (
    Column("layers", "transformer layers"),
    Column("hidden", "width of the residual stream"),
    Column("ffn", "inner width of a dense layer's MLP"),
    Column("heads", "query heads"),
    Column("kv_heads", "key and value heads; equal to heads for MHA and MLA"),
    Column("head_dim", "width of a head's query and key; with MLA the rotary part is in it"),
    Column("v_dim", "width of a head's value; equal to head_dim but for MLA"),
    Column("vocab", "entries of the vocabulary, before padding"),
    Column("vocab_multiple", "the vocabulary is padded to a multiple of this times tp"),
    Column("seq", "tokens of a sequence"),
    Column("gated", "1: MLPs have a gate (three matrices), 0: two matrices"),
    Column("tied", "1: logits use the embedding's weights"),
    Column("biases", "1: linear layers and norms have biases"),
    Column("qkv_bias", "1: query, key and value projections have biases"),
    Column("qk_norm", "1: queries and keys are normalised"),
    Column("learned_positions", "rows of a learned position table; 0: none"),
    Column("window", "tokens that a layer with a sliding window looks back; 0: none"),
    Column("window_layers", "layers with that window"),
    Column("experts", "routed experts of a layer; 0: dense model"),
    Column("top_k", "routed experts that a token visits"),
    Column("expert_ffn", "inner width of a routed expert"),
    Column("shared_ffn", "inner width of all shared experts together; 0: none"),
    Column("dense_layers", "first layers that are dense although the model has experts; all layers of a dense model"),
    Column("capacity", "tokens an expert takes, as a multiple of an even share; 0: all that come (dropless)", REAL),
    Column("q_rank", "MLA: rank of the query's compression; 0: not compressed"),
    Column("kv_rank", "MLA: rank of the compression of key and value; 0: the model has no MLA"),
    Column("rope_dim", "MLA: part of head_dim that is rotary and shared by all heads; 0 without MLA"),
    Column("parameters", "parameters in all, before padding", REAL),
    Column("active_parameters", "parameters that a token meets", REAL),
    Column("embedding_parameters", "parameters of token and position embeddings and of untied logits", REAL),
    Column("flops", "FLOP a token of one forward pass, all token pairs counted (Megatron's and PaLM's MFU)", REAL),
    Column("causal_flops", "the same, with only the pairs that a causal mask leaves", REAL),
)
"""What a kernel knows of a model."""

MODEL_ROW: Final = row_type(MODEL_COLUMNS)
"""Structured dtype of `Model.row()`."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Number of parameters, before the vocabulary is padded."""

    total: int
    active: int
    """Those that one token meets: all but the routed experts that it does not visit."""
    embedding: int
    """Token and position embeddings, and the logits' weights where they are not tied."""


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer. Raises `ModelError` for figures that cannot be, with the nearest that can."""

    name: str
    """What to call it."""
    layers: int
    """Transformer layers."""
    hidden: int
    """Width of the residual stream."""
    heads: int
    """Query heads."""
    vocab: int
    """Entries of the vocabulary, before padding."""
    seq: int
    """Tokens of a training sequence."""
    ffn: int = 0
    """Inner width of a dense layer's MLP; 0: four times `hidden`."""
    kv_heads: int = 0
    """Key and value heads (MHA: as many as `heads`, GQA: fewer, MQA: 1); 0: as many as `heads`."""
    head_dim: int = 0
    """Width of a head's query and key, with MLA the rotary part included; 0: `hidden` over `heads`."""
    gated: bool = False
    """Whether MLPs have a gate (SwiGLU, GeGLU): three matrices instead of two."""
    tied: bool = False
    """Whether the logits use the embedding's weights."""
    biases: bool = False
    """Whether linear layers and norms have biases."""
    qkv_bias: bool = False
    """Whether the query, key and value projections have biases although other layers have none (Qwen2)."""
    qk_norm: bool = False
    """Whether queries and keys are normalised a head (Qwen3)."""
    learned_positions: int = 0
    """Rows of a learned position table; 0: rotary or ALiBi positions, which have no parameters."""
    vocab_multiple: int = 1
    """The vocabulary is padded to a multiple of this times tp: 128 in Megatron, 1 where only tp must divide it."""
    window: int = 0
    """Tokens that a layer with a sliding window looks back; 0: every layer sees all."""
    window_layers: int = 0
    """Layers with that window; 0 with a `window`: all."""
    experts: int = 0
    """Routed experts of a layer; 0: a dense model."""
    top_k: int = 0
    """Routed experts that a token visits."""
    expert_ffn: int = 0
    """Inner width of a routed expert."""
    shared_ffn: int = 0
    """Inner width of all shared experts together; 0: none."""
    dense_layers: int = 0
    """First layers that are dense although the model has experts."""
    capacity: float = 0.0
    """Tokens an expert takes, as a multiple of an even share; 0: all that come (dropless)."""
    q_rank: int = 0
    """MLA: rank of the query's compression; 0: not compressed."""
    kv_rank: int = 0
    """MLA: rank of the common compression of key and value; 0: no MLA."""
    rope_dim: int = 0
    """MLA: part of `head_dim` that is rotary, its key common to all heads."""
    v_dim: int = 0
    """Width of a head's value; 0: `head_dim`. Only MLA has another."""
    source: str = ""
    """Where the figures are from."""

    def __post_init__(self) -> None:
        self._fill()
        refuse(ModelError, f"model '{self.name}'", self._complaints())

    def _fill(self) -> None:
        """Put the value that it stands for in the place of each 0 that has one."""
        if not all(type(value) is int for value in (self.heads, self.hidden, self.layers, self.head_dim)):
            return
        defaults = {
            "ffn": 4 * self.hidden,
            "kv_heads": self.heads,
            "head_dim": self.hidden // max(self.heads, 1),
        }
        for name, value in defaults.items():
            if getattr(self, name) == 0:
                object.__setattr__(self, name, value)
        if self.v_dim == 0:
            object.__setattr__(self, "v_dim", self.head_dim)
        if self.window and self.window_layers == 0:
            object.__setattr__(self, "window_layers", self.layers)

    def row(self) -> np.void:
        """Return the model as one `MODEL_ROW`."""
        count = self.parameters()
        return record(
            MODEL_COLUMNS,
            {
                **{field.name: getattr(self, field.name) for field in fields(self)},
                "dense_layers": self.dense_layers if self.experts else self.layers,
                "parameters": count.total,
                "active_parameters": count.active,
                "embedding_parameters": count.embedding,
                "flops": self.flops_per_token(),
                "causal_flops": self.flops_per_token(causal=True),
            },
        )
