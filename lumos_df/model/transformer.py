"""The model: a decoder-only transformer, dense or with a mixture of experts."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from lumos_df.base.errors import ModelError
from lumos_df.model.figures import Complaint, closest, flag, make, real, refuse, text, whole
from lumos_df.model.huggingface import from_hugging_face
from lumos_df.model.library import read_document
from lumos_df.model.records import REAL, Column, record, row_type

MODEL_COLUMNS: Final = (
    Column("layers", "transformer layers"),
    Column("hidden", "width of the residual stream"),
    Column("ffn", "inner width of a dense layer's MLP"),
    Column("heads", "query heads"),
    Column("kv_heads", "key and value heads; as many as heads for MHA and MLA"),
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
    Column("output_gate", "1: attention's output is gated, and the query's projection makes the gate, too"),
    Column("learned_positions", "rows of a learned position table; 0: none"),
    Column("window", "tokens that a layer with a window sees at most; 0: none"),
    Column("window_layers", "layers with that window"),
    Column("chunked", "1: such a layer sees the tokens since the last multiple of the window; 0: the last ones"),
    Column("window_keys", "tokens that such a layer sees, the mean of a sequence's", REAL),
    Column("experts", "routed experts of a layer; 0: dense model"),
    Column("top_k", "routed experts that a token visits"),
    Column("expert_ffn", "inner width of a routed expert"),
    Column("shared_ffn", "inner width of all shared experts together; 0: none"),
    Column("dense_layers", "first layers that are dense although the model has experts; all layers of a dense model"),
    Column("capacity", "rows an expert computes, as a multiple of an even share; 0: all that come (dropless)", REAL),
    Column("latent", "width of what experts read and write; 0: hidden"),
    Column("attention_layers", "layers with attention; all but in hybrid models"),
    Column("mamba_layers", "layers with a state-space mixer (Mamba-2); 0: no hybrid model"),
    Column("state_heads", "heads of a state-space mixer"),
    Column("state_head_dim", "width of such a head"),
    Column("state_size", "states of each of its channels"),
    Column("state_groups", "groups of heads that share the state's input and output"),
    Column("mtp_layers", "layers of multi-token prediction, each with logits of its own"),
    Column("q_rank", "MLA: rank of the query's compression; 0: not compressed"),
    Column("kv_rank", "MLA: rank of the compression of key and value; 0: the model has no MLA"),
    Column("rope_dim", "MLA: part of head_dim that is rotary and shared by all heads; 0 without MLA"),
    Column("index_heads", "heads of the indexer that chooses the keys of each query (DeepSeek-V3.2); 0: all are seen"),
    Column("index_dim", "width of such a head"),
    Column("index_keys", "keys that it chooses for a query"),
    Column("chosen_keys", "keys that a query sees then, the mean of a sequence's", REAL),
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
class ParameterCount:
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
    output_gate: bool = False
    """Whether attention's output is multiplied by a gate, which the query's projection makes, too (Qwen3-Next)."""
    learned_positions: int = 0
    """Rows of a learned position table; 0: rotary or ALiBi positions, which have no parameters."""
    vocab_multiple: int = 1
    """The vocabulary is padded to a multiple of this times tp: 128 in Megatron, 1 where only tp must divide it."""
    window: int = 0
    """Tokens that a layer with a window sees at most; 0: every layer sees all."""
    window_layers: int = 0
    """Layers with that window; 0 with a `window`: all."""
    chunked: bool = False
    """Whether such a layer sees the tokens since the last multiple of the window (Llama 4), not the last ones."""
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
    """Rows of an expert's buffer, as a multiple of an even share, all computed; 0: all tokens that come (dropless)."""
    latent: int = 0
    """Width of what routed experts read and write, between two projections (latent MoE); 0: `hidden`."""
    attention_layers: int = 0
    """Layers with attention; without `mamba_layers` all, whatever is said. A hybrid's layers are counted by MLPs."""
    mamba_layers: int = 0
    """Layers with a state-space mixer (Mamba-2); 0: no hybrid model."""
    state_heads: int = 0
    """Heads of a state-space mixer."""
    state_head_dim: int = 0
    """Width of such a head."""
    state_size: int = 0
    """States of each of its channels."""
    state_groups: int = 0
    """Groups of heads that share the state's input and output."""
    mtp_layers: int = 0
    """Layers of multi-token prediction, each with logits of its own; they share one layer's weights."""
    q_rank: int = 0
    """MLA: rank of the query's compression; 0: not compressed."""
    kv_rank: int = 0
    """MLA: rank of the common compression of key and value; 0: no MLA."""
    rope_dim: int = 0
    """MLA: part of `head_dim` that is rotary, its key common to all heads."""
    v_dim: int = 0
    """Width of a head's value; 0: `head_dim`. Only MLA has another."""
    index_heads: int = 0
    """Heads of the indexer that chooses the keys of each query (DeepSeek-V3.2's sparse attention); 0: all are seen."""
    index_dim: int = 0
    """Width of such a head."""
    index_keys: int = 0
    """Keys that the indexer chooses for a query."""
    source: str = ""
    """Where the figures are from."""

    def __post_init__(self) -> None:
        what = f"model '{self.name}'"
        values = vars(self)
        refuse(ModelError, what, _kinds(values))
        if not self.mamba_layers:
            # Whatever was said, so that a copy with other layers has them.
            object.__setattr__(self, "attention_layers", self.layers)
        for name, value in _implied(values):
            if values[name] == 0:
                object.__setattr__(self, name, value)
        refuse(ModelError, what, _contradictions(self))

    @classmethod
    def read(cls, name_or_path: str | os.PathLike[str]) -> Self:
        """Return a model by a name of `data/models`, from a file of the same keys, or from Hugging Face's config.json.

        Raises `ModelError` for an unknown name (with the nearest), and for a file that does not read, lacks a figure or
        says what cannot be.
        """
        name, figures = read_document(name_or_path, "models", ModelError)
        if "model_type" in figures:
            file = Path(name_or_path).absolute()
            # Downloaded ones have one name, and their folder tells them apart.
            name = figures.get("_name_or_path") or (file.parent.name if file.name == "config.json" else name)
            figures = from_hugging_face(figures, name)
        return make(cls, {"name": name, **figures}, f"model '{name}'", ModelError)

    def row(self) -> np.void:
        """Return the model as one `MODEL_ROW`."""
        count = self.parameters()
        return record(
            MODEL_ROW,
            {
                **vars(self),
                "dense_layers": self.dense_layers if self.experts else self.layers,
                "window_keys": self._window_keys(),
                "chosen_keys": _mean_keys(min(self.index_keys, self.seq), self.seq),
                "parameters": count.total,
                "active_parameters": count.active,
                "embedding_parameters": count.embedding,
                "flops": self.flops_per_token(),
                "causal_flops": self.flops_per_token(causal=True),
            },
        )

    def parameters(self) -> ParameterCount:
        """Count the parameters, before the vocabulary is padded."""
        norm = self.hidden * (2 if self.biases else 1)
        attention = self._attention_weights() + self._attention_vectors() + norm
        mixers = self.attention_layers * attention + self.mamba_layers * self._state_space_parameters()
        dense = norm + self._mlp(self.ffn)
        sparse_layers = self.layers - self.dense_layers if self.experts else 0
        router = self.hidden * (self.experts + 2 * self.latent)
        sparse = norm + router + self._mlp(self.shared_ffn)
        expert = self._mlp(self.expert_ffn) * (self.latent or self.hidden) // self.hidden
        if self.mtp_layers:
            # One more layer, and the projection of both streams into one; each has a norm.
            mixers += attention + 2 * self.hidden**2 + 2 * norm
            sparse_layers += self.experts > 0
        embedding = (1 if self.tied else 2) * self.vocab * self.hidden + self.learned_positions * self.hidden
        dense_layers = self.layers + (self.mtp_layers > 0) - sparse_layers
        core = embedding + norm + mixers + dense_layers * dense + sparse_layers * sparse
        return ParameterCount(
            total=core + sparse_layers * self.experts * expert,
            active=core + sparse_layers * self.top_k * expert,
            embedding=embedding,
        )

    def flops_per_token(self, *, causal: bool = False) -> float:
        """Return the FLOP of a forward pass a token: two for each weight of a matrix product, attention, logits.

        Attention counts 2 * (head_dim + v_dim) * heads for every pair of tokens: all `seq` pairs a token, which is how
        Narayanan et al. (2021, eq. 3) and PaLM (2022, app. B) count model FLOPs; with `causal` half of them. A layer
        with a window has as many causal pairs as it sees. A state-space layer takes a token in and out of every state
        of its channels. Training takes three times as much.
        """
        depths = self.mtp_layers
        sparse_layers = self.layers - self.dense_layers + depths if self.experts else 0
        matrices = 3 if self.gated else 2
        sparse = self.shared_ffn * self.hidden + self.top_k * self.expert_ffn * (self.latent or self.hidden)
        dense_layers = self.layers + depths - sparse_layers
        mlp = matrices * (dense_layers * self.ffn * self.hidden + sparse_layers * sparse)
        router = sparse_layers * self.hidden * (self.experts + 2 * self.latent)
        mixers = (self.attention_layers + depths) * self._attention_weights()
        mixers += self.mamba_layers * (self._state_space_weights() + 2 * self._state_width() * self.state_size)
        heads = (1 + depths) * self.hidden * self.vocab + depths * 2 * self.hidden**2
        weights = float(mixers + mlp + router + heads)
        full_layers = self.attention_layers + depths - self.window_layers
        seen = self.seq / 2
        if 0 < self.index_keys < self.seq:
            # Each pair is scored by the indexer, and those that it chooses are seen.
            weights += full_layers * (1 if causal else 2) * seen * self.index_heads * self.index_dim
            seen = _mean_keys(min(self.index_keys, self.seq), self.seq)
        pairs = full_layers * seen + self.window_layers * self._window_keys()
        return 2 * weights + (1 if causal else 2) * pairs * 2 * self.heads * (self.head_dim + self.v_dim)

    def _window_keys(self) -> float:
        """Return the causal pairs a token of a layer with a window."""
        window = min(self.window, self.seq)
        if self.chunked and window:
            whole, rest = divmod(self.seq, window)
            return (whole * window**2 + rest**2) / (2 * self.seq)
        return _mean_keys(window, self.seq)

    def _attention_weights(self) -> int:
        """Return the weights of one layer's attention projections."""
        out = self.heads * self.v_dim * self.hidden
        if not self.kv_rank:
            columns = (2 if self.output_gate else 1) * self.heads + 2 * self.kv_heads
            return self.hidden * columns * self.head_dim + out
        query = self.heads * self.head_dim
        query_weights = self.q_rank * (self.hidden + query) if self.q_rank else self.hidden * query
        down = self.hidden * (self.kv_rank + self.rope_dim)
        up = self.kv_rank * self.heads * (self.head_dim - self.rope_dim + self.v_dim)
        index = self.q_rank * self.index_heads * self.index_dim + self.hidden * (self.index_dim + self.index_heads)
        return query_weights + down + up + out + (index if self.index_keys else 0)

    def _attention_vectors(self) -> int:
        """Return the parameters of one layer's attention that are no matrices: biases and norms."""
        qkv = ((2 if self.output_gate else 1) * self.heads + 2 * self.kv_heads) * self.head_dim
        biases = (qkv if self.biases or self.qkv_bias else 0) + (self.hidden if self.biases else 0)
        return biases + (2 * self.head_dim if self.qk_norm else 0) + self.q_rank + self.kv_rank + 2 * self.index_dim

    def _state_width(self) -> int:
        """Return the channels of a state-space mixer."""
        return self.state_heads * self.state_head_dim

    def _state_space_weights(self) -> int:
        """Return the weights of a state-space mixer's projections: in to gate, input, states' ends and steps; out."""
        inner = self._state_width()
        return self.hidden * (2 * inner + 2 * self.state_groups * self.state_size + self.state_heads + inner)

    def _state_space_parameters(self) -> int:
        """Return the parameters of a state-space mixer: projections, convolution and its biases, steps, both norms."""
        channels = self._state_width() + 2 * self.state_groups * self.state_size
        return self._state_space_weights() + 5 * channels + 3 * self.state_heads + self._state_width() + self.hidden

    def _mlp(self, width: int) -> int:
        """Return the parameters of an MLP of an inner width; 0 for none."""
        if not width:
            return 0
        inner = 2 if self.gated else 1
        return (inner + 1) * self.hidden * width + (inner * width + self.hidden if self.biases else 0)


def _mean_keys(most: int, seq: int) -> float:
    """Return the keys that a token of `seq` sees of those before it, at most `most` of them: the mean."""
    return most * (1 - most / (2 * seq))


def _kinds(values: dict[str, Any]) -> Iterator[Complaint]:
    """Complain of each value that is of the wrong kind or too small, whatever the others are."""
    yield from text(values, "name", "source")
    yield from whole(values, 1, "layers", "hidden", "heads", "vocab", "seq", "vocab_multiple")
    yield from whole(values, 0, "ffn", "kv_heads", "head_dim", "v_dim", "learned_positions", "window", "window_layers")
    yield from whole(values, 0, "experts", "top_k", "expert_ffn", "shared_ffn", "dense_layers")
    yield from whole(values, 0, "q_rank", "kv_rank", "rope_dim", "latent", "attention_layers", "mamba_layers")
    yield from whole(values, 0, "state_heads", "state_head_dim", "state_size", "state_groups", "mtp_layers")
    yield from whole(values, 0, "index_heads", "index_dim", "index_keys")
    yield from flag(values, "gated", "tied", "biases", "qkv_bias", "qk_norm", "output_gate", "chunked")
    yield from real(values, 0, "capacity")


def _implied(values: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Give what a 0 stands for, by field, each after those it is made of."""
    yield "ffn", 4 * values["hidden"]
    yield "kv_heads", values["heads"]
    yield "head_dim", values["hidden"] // values["heads"]
    yield "v_dim", values["head_dim"]
    if values["window"]:
        yield "window_layers", values["attention_layers"]


def _contradictions(model: Model) -> Iterator[Complaint]:
    """Complain of figures that do not go together."""
    if model.head_dim < 1:
        yield Complaint("heads", f"= {model.heads}: more than hidden = {model.hidden}; nearest is {model.hidden}")
    if model.heads % model.kv_heads:
        legal = closest(model.kv_heads, (n for n in range(1, model.heads + 1) if model.heads % n == 0))
        yield Complaint("kv_heads", f"= {model.kv_heads}: does not divide heads = {model.heads}; nearest is {legal}")
    if model.window_layers > (model.attention_layers if model.window else 0):
        most = model.attention_layers if model.window else 0
        yield Complaint("window_layers", f"= {model.window_layers}: at most {most}; nearest is {most}")
    if model.chunked and not model.window:
        yield Complaint("chunked", "= true: needs a window; nearest is false")
    if model.dense_layers > model.layers:
        yield Complaint("dense_layers", f"= {model.dense_layers}: at most layers; nearest is {model.layers}")
    for name in ("state_heads", "state_head_dim", "state_size", "state_groups"):
        if (getattr(model, name) > 0) != (model.mamba_layers > 0):
            has = "the model has state-space layers" if model.mamba_layers else "the model has no state-space layers"
            yield Complaint(name, f"= {getattr(model, name)}: {has}; nearest is {int(model.mamba_layers > 0)}")
    yield from _expert_contradictions(model)
    yield from _mla_contradictions(model)


def _expert_contradictions(model: Model) -> Iterator[Complaint]:
    if model.experts:
        if not 1 <= model.top_k <= model.experts:
            legal = min(max(model.top_k, 1), model.experts)
            yield Complaint("top_k", f"= {model.top_k}: must be 1 to experts = {model.experts}; nearest is {legal}")
        if model.expert_ffn < 1:
            yield Complaint("expert_ffn", "= 0: a model with experts needs their width; nearest is 1")
        return
    for name in ("top_k", "expert_ffn", "shared_ffn", "dense_layers", "capacity", "latent"):
        if getattr(model, name):
            yield Complaint(name, f"= {getattr(model, name)}: the model has no experts; nearest is 0")


def _mla_contradictions(model: Model) -> Iterator[Complaint]:
    figures = (model.index_heads, model.index_dim, model.index_keys)
    if any(figures) and not (all(figures) and model.q_rank and not model.window):
        told = f"{figures[0]}, index_dim = {figures[1]}, index_keys = {figures[2]}"
        why = "index_heads, index_dim and index_keys go together, with MLA, a q_rank and no window"
        yield Complaint("index_heads", f"= {told}: {why}; nearest is 0 for all three")
    if model.kv_rank:
        if model.output_gate:
            yield Complaint("output_gate", "= true: not with MLA; nearest is false")
        if not 1 <= model.rope_dim < model.head_dim:
            legal = min(max(model.rope_dim, 1), model.head_dim - 1)
            why = f"must be 1 to head_dim - 1 = {model.head_dim - 1}; nearest is {legal}"
            yield Complaint("rope_dim", f"= {model.rope_dim}: {why}")
        if model.kv_heads != model.heads:
            yield Complaint("kv_heads", f"= {model.kv_heads}: MLA has as many as heads; nearest is {model.heads}")
        return
    for name in ("q_rank", "rope_dim"):
        if getattr(model, name):
            yield Complaint(name, f"= {getattr(model, name)}: needs MLA, that is a kv_rank; nearest is 0")
    if model.v_dim != model.head_dim:
        yield Complaint("v_dim", f"= {model.v_dim}: only MLA has another than head_dim; nearest is {model.head_dim}")
