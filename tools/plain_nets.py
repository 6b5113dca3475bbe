"""Nets that tools/record_plain.py records: what makes each of a size, and the sizes. It needs torch."""

import argparse
from collections.abc import Callable
from itertools import product
from typing import Final

import torch
from torch import Tensor, nn

from examples.train_gpt import GPT
from tools.more_plain_nets import Convolutions, Gated, InParts, Mixture, StateSpace, Translator

_HEAD_WIDTH: Final = 16
_CLASSES: Final = 10

Size = tuple[int, int, int, int]
"""Layers, width, batch, and tokens, patches or pixels of a side."""


class Encoder(nn.Module):  # type: ignore[misc]  # torch is not installed where mypy runs
    """An encoder as torch has it, normalizations last, and a class of every sequence."""

    def __init__(self, layers: int, width: int, _: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2000, width)
        layer = nn.TransformerEncoderLayer(width, width // _HEAD_WIDTH, 4 * width, 0.0, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, _CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (batch, sequence) tokens to (batch, classes)."""
        out: Tensor = self.head(self.layers(self.embedding(tokens)).mean(1))
        return out


class Mixing(nn.Module):  # type: ignore[misc]  # as above
    """A layer of a mixer: over the patches, then over the width."""

    def __init__(self, width: int, patches: int) -> None:
        super().__init__()
        self.patch_norm, self.width_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.over_patches = nn.Sequential(nn.Linear(patches, 64), nn.GELU(), nn.Linear(64, patches))
        self.over_width = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, patches, width) to the same shape."""
        hidden = hidden + self.over_patches(self.patch_norm(hidden).transpose(1, 2)).transpose(1, 2)
        out: Tensor = hidden + self.over_width(self.width_norm(hidden))
        return out


class Mixer(nn.Module):  # type: ignore[misc]  # as above
    """Linear layers over the patches and over the width in turn."""

    def __init__(self, layers: int, width: int, patches: int) -> None:
        super().__init__()
        self.into = nn.Linear(3 * 16, width)
        self.layers = nn.Sequential(*(Mixing(width, patches) for _ in range(layers)))
        self.head = nn.Linear(width, _CLASSES)

    def forward(self, patches: Tensor) -> Tensor:
        """Map (batch, patches, 48) to (batch, classes)."""
        out: Tensor = self.head(self.layers(self.into(patches)).mean(1))
        return out


class Residual(nn.Module):  # type: ignore[misc]  # as above
    """Two convolutions around which the input goes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.first_norm, self.second_norm = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, width, side, side) to the same shape."""
        inner = torch.relu(self.first_norm(self.first(hidden)))
        return torch.relu(hidden + self.second_norm(self.second(inner)))


class Convolutional(nn.Module):  # type: ignore[misc]  # as above
    """One stage of a residual net."""

    def __init__(self, layers: int, width: int, _: int) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.layers = nn.Sequential(*(Residual(width) for _ in range(layers)))
        self.head = nn.Linear(width, _CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Map (batch, 3, side, side) to (batch, classes)."""
        hidden = self.layers(torch.relu(self.norm(self.stem(images))))
        out: Tensor = self.head(hidden.mean((2, 3)))
        return out


class Recurrent(nn.Module):  # type: ignore[misc]  # as above
    """LSTM layers, and the next token of every one."""

    def __init__(self, layers: int, width: int, _: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2000, width)
        self.layers = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(layers))
        self.head = nn.Linear(width, 2000)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (batch, sequence) tokens to (batch, sequence, vocabulary)."""
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden, _ = layer(hidden)
        out: Tensor = self.head(hidden)
        return out


class Vision(nn.Module):  # type: ignore[misc]  # as above
    """A vision transformer: patches of four by four, normalizations first."""

    def __init__(self, layers: int, width: int, side: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.positions = nn.Parameter(torch.zeros(1, (side // 4) ** 2 + 1, width))
        self.of_class = nn.Parameter(torch.zeros(1, 1, width))
        layer = nn.TransformerEncoderLayer(
            width, width // _HEAD_WIDTH, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, _CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Map (batch, 3, side, side) to (batch, classes)."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        hidden = torch.cat((self.of_class.expand(len(images), -1, -1), patches), 1) + self.positions
        out: Tensor = self.head(self.layers(hidden)[:, 0])
        return out


class Bottleneck(nn.Module):  # type: ignore[misc]  # as above
    """Three convolutions, of which that of places has a quarter of the channels, around which the input goes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = width // 4
        self.into, self.out = (nn.Conv2d(*pair, 1, bias=False) for pair in ((width, inner), (inner, width)))
        self.places = nn.Conv2d(inner, inner, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(map(nn.BatchNorm2d, (inner, inner, width)))

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, width, side, side) to the same shape."""
        inner = torch.relu(self.norms[0](self.into(hidden)))
        inner = torch.relu(self.norms[1](self.places(inner)))
        return torch.relu(hidden + self.norms[2](self.out(inner)))


class Residuals(nn.Module):  # type: ignore[misc]  # as above
    """A residual net of one stage of bottlenecks behind a stem that halves the sides twice."""

    def __init__(self, layers: int, width: int, _: int) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layers = nn.Sequential(*(Bottleneck(width) for _ in range(layers)))
        self.head = nn.Linear(width, _CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Map (batch, 3, side, side) to (batch, classes)."""
        hidden = self.layers(self.pool(torch.relu(self.norm(self.stem(images)))))
        out: Tensor = self.head(hidden.mean((2, 3)))
        return out


class Recommender(nn.Module):  # type: ignore[misc]  # as above
    """Tables that are looked up in, their products with one another, and linear layers of one width."""

    def __init__(self, layers: int, width: int, tables: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(1000, 32, mode="sum") for _ in range(tables))
        self.dense = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.into = nn.Linear(32 + (tables + 1) ** 2, width)
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)))
        self.head = nn.Linear(width, 2)

    def forward(self, features: Tensor) -> Tensor:
        """Map (batch, 13 + tables) features, those behind 13 the rows of tables, to (batch, 2)."""
        dense, rows = self.dense(features[:, :13]), features[:, 13:].long()
        looked_up = [table(rows[:, place : place + 1]) for place, table in enumerate(self.tables)]
        vectors = torch.stack((dense, *looked_up), 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        out: Tensor = self.head(self.layers(torch.relu(self.into(torch.cat((dense, products), 1)))))
        return out


def _gpt(layers: int, width: int, sequence: int) -> nn.Module:
    options = argparse.Namespace(
        layers=layers, width=width, heads=width // _HEAD_WIDTH, sequence=sequence, vocabulary=2000, pp=1
    )
    return GPT(options, 0)


def _tokens(size: Size) -> Tensor:
    return torch.randint(2000, (size[2], size[3]))


NETS: Final[dict[str, tuple[Callable[[int, int, int], nn.Module], Callable[[Size], Tensor], list[Size]]]] = {
    "gpt": (
        _gpt,
        lambda size: torch.randint(2000, (size[2], size[3])),
        [(3, 128, 3, 96), (6, 128, 3, 96), (2, 96, 3, 96), (2, 96, 6, 96)],
    ),
    "encoder": (
        Encoder,
        lambda size: torch.randint(2000, (size[2], size[3])),
        [(3, 128, 3, 96), (6, 128, 3, 96), (2, 96, 6, 96), (4, 96, 6, 96)],
    ),
    "mixer": (
        Mixer,
        lambda size: torch.randn(size[2], size[3], 48),
        [(3, 96, 10, 49), (6, 96, 10, 49), (2, 96, 49, 49), (2, 96, 96, 49)],
    ),
    "conv": (
        Convolutional,
        lambda size: torch.randn(size[2], 3, size[3], size[3]),
        [(3, 24, 10, 16), (6, 24, 10, 16), (2, 32, 32, 16), (2, 32, 16, 16)],
    ),
    "lstm": (
        Recurrent,
        lambda size: torch.randint(2000, (size[2], size[3])),
        [(3, 64, 5, 40)],
    ),
    "vit": (Vision, lambda size: torch.randn(size[2], 3, size[3], size[3]), [(6, 128, 5, 40)]),
    "resnet": (Residuals, lambda size: torch.randn(size[2], 3, size[3], size[3]), [(6, 128, 5, 96)]),
    "dlrm": (
        Recommender,
        lambda size: torch.cat((torch.rand(size[2], 13), torch.randint(1000, (size[2], size[3]))), 1),
        [(6, 256, 300, 12)],
    ),
    "bf16": (
        lambda *size: _gpt(*size).bfloat16(),
        lambda size: torch.randint(2000, (size[2], size[3])),
        [(6, 128, 3, 96)],
    ),
    "translator": (Translator, _tokens, [(3, 128, 3, 80)]),
    "parts": (InParts, _tokens, [(3, 128, 5, 72)]),
    "mixture": (Mixture, _tokens, [(3, 128, 5, 96)]),
    "gru": (Gated, _tokens, [(3, 96, 7, 40)]),
    "scan": (StateSpace, _tokens, [(3, 64, 6, 40)]),
    "convnext": (Convolutions, lambda size: torch.randn(size[2], 3, size[3], size[3]), [(3, 96, 5, 56)]),
    "ddp": (_gpt, _tokens, [(3, 128, 3, 96), (6, 128, 3, 96)]),
}
"""What makes a net of layers, width and tokens; its input; and its sizes beside those of `_GRID`. The last are such
that two of them are alike."""
_GRID: Final[dict[str, tuple[tuple[int, int], tuple[int, int], int]]] = {
    "gpt": ((128, 256), (3, 6), 96),
    "encoder": ((128, 256), (3, 6), 96),
    "mixer": ((96, 192), (10, 20), 49),
    "conv": ((24, 48), (10, 20), 16),
    "lstm": ((64, 192), (5, 10), 40),
    "vit": ((128, 256), (5, 10), 40),
    "resnet": ((128, 256), (5, 10), 96),
    "dlrm": ((256, 512), (300, 600), 12),
    "bf16": ((128, 256), (3, 6), 96),
    "translator": ((128, 256), (3, 6), 80),
    "parts": ((128, 256), (5, 10), 72),
    "mixture": ((128, 256), (5, 10), 96),
    "gru": ((96, 192), (7, 14), 40),
    "scan": ((64, 128), (6, 12), 40),
    "convnext": ((96, 192), (5, 10), 56),
    "ddp": ((128, 256), (3, 6), 96),
}
"""Widths, batches, tokens; each with two and four layers."""


def sizes(kind: str) -> list[Size]:
    """Return what is recorded of a kind of net."""
    widths, batches, tokens = _GRID[kind]
    return [(*size, tokens) for size in product((2, 4), widths, batches)] + NETS[kind][2]
