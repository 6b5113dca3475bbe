"""More nets that tools/record_plain.py records, of kinds unlike those of tools/plain_nets.py. It needs torch."""

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

_HEAD_WIDTH: Final = 16
_VOCABULARY: Final = 2000
_EXPERTS: Final = 6


class Attention(nn.Module):  # type: ignore[misc]  # torch is not installed where mypy runs
    """Attention with projections of its own, fused or in single operators, of another sequence where one is given."""

    def __init__(self, width: int, *, fused: bool = True) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.fused = fused

    def forward(self, hidden: Tensor, other: Tensor) -> Tensor:
        """Map (batch, sequence, width) and (batch, another sequence, width) to the shape of the first."""
        query, key, value = (
            part.unflatten(-1, (-1, _HEAD_WIDTH)).transpose(1, 2)
            for part in (self.query(hidden), self.key(other), self.value(other))
        )
        if self.fused:
            mixed = functional.scaled_dot_product_attention(query, key, value)
        else:
            mixed = (query @ key.transpose(-2, -1) / _HEAD_WIDTH**0.5).softmax(-1) @ value
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class Layer(nn.Module):  # type: ignore[misc]  # as above
    """A layer of a transformer, normalizations first, that may attend to another sequence, too."""

    def __init__(self, width: int, *, crosses: bool = False, fused: bool = True) -> None:
        super().__init__()
        self.own, self.cross = Attention(width, fused=fused), Attention(width) if crosses else None
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if crosses else 2))
        self.into, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor, other: Tensor) -> Tensor:
        """Map (batch, sequence, width), and what it attends to, to the same shape."""
        normed = self.norms[0](hidden)
        hidden = hidden + self.own(normed, normed)
        if self.cross is not None:
            hidden = hidden + self.cross(self.norms[2](hidden), other)
        out: Tensor = hidden + self.back(functional.gelu(self.into(self.norms[1](hidden))))
        return out


class Translator(nn.Module):  # type: ignore[misc]  # as above
    """As many layers of an encoder as of a decoder, of half as many tokens, which attends to the encoder's."""

    def __init__(self, layers: int, width: int, _: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(_VOCABULARY, width), nn.Linear(width, _VOCABULARY)
        self.encoder, self.decoder = (
            nn.ModuleList(Layer(width, crosses=crosses) for _ in range(layers)) for crosses in (False, True)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (batch, sequence) tokens to (batch, half of it, vocabulary)."""
        other = self.embedding(tokens)
        hidden = self.embedding(tokens[:, : tokens.shape[1] // 2])
        for layer in self.encoder:
            other = layer(other, other)
        for layer in self.decoder:
            hidden = layer(hidden, other)
        out: Tensor = self.head(hidden)
        return out


class InParts(nn.Module):  # type: ignore[misc]  # as above
    """A transformer whose attention is two products and a softmax."""

    def __init__(self, layers: int, width: int, _: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(_VOCABULARY, width), nn.Linear(width, _VOCABULARY)
        self.layers = nn.ModuleList(Layer(width, fused=False) for _ in range(layers))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (batch, sequence) tokens to (batch, sequence, vocabulary)."""
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden, hidden)
        out: Tensor = self.head(hidden)
        return out


class Experts(nn.Module):  # type: ignore[misc]  # as above
    """Attention, and experts in one product each way, of which each has room for half of the tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width)
        self.router = nn.Linear(width, _EXPERTS, bias=False)
        sides = (width, 2 * width)
        self.into, self.back = (nn.Parameter(torch.randn(_EXPERTS, *pair) * 0.02) for pair in (sides, sides[::-1]))

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, sequence, width) to the same shape."""
        mixed = self.mix(hidden)
        hidden = hidden + self.attention(mixed, mixed)
        tokens = self.norm(hidden).flatten(0, 1)
        share, chosen = self.router(tokens).softmax(-1).topk(2, -1)
        score = torch.zeros_like(tokens[:, :_EXPERTS]).scatter(1, chosen, share)
        weight, which = score.topk(tokens.shape[0] // 2, 0)
        inner = functional.gelu(torch.bmm(tokens[which.T], self.into))
        made = torch.bmm(inner, self.back) * weight.T[..., None]
        out = torch.zeros_like(tokens).index_add(0, which.T.flatten(), made.flatten(0, 1))
        return hidden + out.view_as(hidden)


class Mixture(nn.Module):  # type: ignore[misc]  # as above
    """A transformer of experts."""

    def __init__(self, layers: int, width: int, _: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(_VOCABULARY, width), nn.Linear(width, _VOCABULARY)
        self.layers = nn.Sequential(*(Experts(width) for _ in range(layers)))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (batch, sequence) tokens to (batch, sequence, vocabulary)."""
        out: Tensor = self.head(self.layers(self.embedding(tokens)))
        return out


class Gated(nn.Module):  # type: ignore[misc]  # as above
    """GRU layers of one module, and the next token of every one."""

    def __init__(self, layers: int, width: int, _: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(_VOCABULARY, width), nn.Linear(width, _VOCABULARY)
        self.layers = nn.GRU(width, width, layers, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (batch, sequence) tokens to (batch, sequence, vocabulary)."""
        out: Tensor = self.head(self.layers(self.embedding(tokens))[0])
        return out


class Scan(nn.Module):  # type: ignore[misc]  # as above
    """A layer of a state-space model, whose state goes from token to token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = 2 * width
        self.norm, self.into, self.back = nn.LayerNorm(width), nn.Linear(width, 2 * inner), nn.Linear(inner, width)
        self.near = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
        self.select, self.rate = nn.Linear(inner, 24 + 2 * 8), nn.Linear(24, inner)
        self.decay = nn.Parameter(torch.zeros(inner, 8))

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, sequence, width) to the same shape."""
        inner, gate = self.into(self.norm(hidden)).chunk(2, -1)
        inner = functional.silu(self.near(inner.transpose(1, 2))[..., : hidden.shape[1]].transpose(1, 2))
        rate, into, out = self.select(inner).split((24, 8, 8), -1)
        rate = functional.softplus(self.rate(rate))
        kept = torch.exp(rate[..., None] * -torch.exp(self.decay))
        added = (rate * inner)[..., None] * into[:, :, None]
        state, states = torch.zeros_like(added[:, 0]), []
        for token in range(hidden.shape[1]):
            state = kept[:, token] * state + added[:, token]
            states.append((state * out[:, token, None]).sum(-1))
        made: Tensor = hidden + self.back(torch.stack(states, 1) * functional.silu(gate))
        return made


class StateSpace(nn.Module):  # type: ignore[misc]  # as above
    """A state-space model written in torch's operators."""

    def __init__(self, layers: int, width: int, _: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(_VOCABULARY, width), nn.Linear(width, _VOCABULARY)
        self.layers = nn.Sequential(*(Scan(width) for _ in range(layers)))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (batch, sequence) tokens to (batch, sequence, vocabulary)."""
        out: Tensor = self.head(self.layers(self.embedding(tokens)))
        return out


class Depthwise(nn.Module):  # type: ignore[misc]  # as above
    """A layer of a ConvNeXt."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.places, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.into, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, width, side, side) to the same shape."""
        inner = self.norm(self.places(hidden).permute(0, 2, 3, 1))
        out: Tensor = hidden + self.back(functional.gelu(self.into(inner))).permute(0, 3, 1, 2)
        return out


class Convolutions(nn.Module):  # type: ignore[misc]  # as above
    """A stage of a ConvNeXt, and a class of every image."""

    def __init__(self, layers: int, width: int, _: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, width, 4, stride=4), nn.Linear(width, 10)
        self.layers = nn.Sequential(*(Depthwise(width) for _ in range(layers)))

    def forward(self, images: Tensor) -> Tensor:
        """Map (batch, 3, side, side) to (batch, classes)."""
        out: Tensor = self.head(self.layers(self.stem(images)).mean((2, 3)))
        return out
