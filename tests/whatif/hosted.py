"""A training job without a GPU, written down operator by operator: times follow from shapes alone.

A product takes its operations at one rate, anything else its bytes at another; between operators the host takes 2 us.
What the core's own cache may hold takes longer the more a micro-batch touches, and the host between operators the more
one of its phase touches, where the job says so.
"""

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

Shapes = Sequence[Sequence[int]]

FLOPS_PER_US, BYTES_PER_US, GAP_US = 50_000.0, 10_000.0, 2.0
SENT_US, SENT_BYTES_PER_US = 100.0, 1_000.0
CACHED_BYTES = 1 << 20
"""What a step touches that is all in the core's own cache."""
FREED_BYTES = 1 << 18
"""What each operator touches where the host takes 2 us between two."""
MAPPED_BYTES = 1 << 17
"""What an operator touches at most where the system has nothing to take back."""


@dataclass(frozen=True)
class HostJob:
    """A small GPT of one head size, its optimizer going through the parameters one by one."""

    layers: int = 2
    hidden: int = 128
    batch: int = 3
    sequence: int = 96
    micro_batches: int = 1
    named: bool = True
    """Whether modules are recorded."""
    cached: bool = False
    """Whether bytes that the core's own cache may hold take longer the more a micro-batch touches, and the host
    between operators the more its phase does."""
    tp: int = 1
    """Ranks of which this is one: each block's output is reduced, in no time."""
    tables: int = 0
    """Tables of one size beside that of tokens, in which each sample is looked up."""
    answers: int = 0
    """Products behind the layers, each with a parameter, that lead to so many answers of 48 numbers."""
    decodes: bool = False
    """Whether as many layers of a decoder come behind: they attend twice, then to half of the tokens, without MLP."""
    at_once: bool = False
    """Whether the optimizer does the same to all parameters before it does the next."""
    fused: bool = False
    """Whether one operator of the optimizer updates all parameters, too many for their shapes to be recorded. Of one
    parameter the rank has an empty part."""
    collective: str = ""
    """What a thread of the host does for the step: `all_reduce` of all gradients behind the backward pass, on a thread
    of its own, or `recv` of activations before the layers. It takes 100 us, and 1 us each 1,000 bytes."""
    flat: bool = False
    """Whether all gradients are divided in one row first, and copied in one for each of two ranks."""
    one_by_one: bool = False
    """Whether each gradient is reduced by itself, and divided then."""
    copies_back: bool = False
    """Whether each gradient is copied back behind the all-reduce of all."""
    waits: float = 0.0
    """How long it waits first for another rank, as a share of what this one's passes take."""

    @property
    def tokens(self) -> int:
        return self.batch * self.sequence

    def step_us(self) -> float:
        """Return what a step takes: its operators and the gaps before them."""
        return _Writer.of(self).step(0)

    def operators(self) -> list[tuple[str, float]]:
        """Return name and us of what a step runs."""
        writer = _Writer.of(self)
        writer.step(0)
        return [(event["name"], event["dur"]) for event in writer.events]


@dataclass
class _Writer:
    job: HostJob
    now: float = 0.0
    number: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    linked: list[int] = field(default_factory=list)
    phase: str = "forward"
    touched: dict[str, list[int]] = field(default_factory=dict)
    """Bytes of each operator so far, by its phase."""
    slower: float = 1.0
    """How much longer a byte takes that the core's own cache may hold."""
    gaps: dict[str, float] = field(default_factory=dict)
    """us between operators, by phase."""

    @classmethod
    def of(cls, job: HostJob) -> "_Writer":
        """Return a writer that knows what a micro-batch of its job touches."""
        if not job.cached:
            return cls(job)
        first = cls(replace(job, micro_batches=1))
        first.step(0)
        touched = sum(map(sum, first.touched.values()))
        gaps = {
            phase: GAP_US * sum((max(each, MAPPED_BYTES) / FREED_BYTES) ** 0.4 for each in touches) / len(touches)
            for phase, touches in first.touched.items()
        }
        return cls(job, slower=(touched / CACHED_BYTES) ** 0.15, gaps=gaps)

    def add(self, name: str, dims: Shapes | None, us: float, node: dict[str, int] | None = None) -> None:
        said = (
            (node or {}) if dims is None else {"Input Dims": dims, "Input type": ["float"] * len(dims)} | (node or {})
        )
        category = "user_annotation" if dims is None and node is None else "cpu_op"
        head = {"ph": "X", "pid": 1, "tid": 1, "cat": category, "name": name}
        self.events.append({**head, "ts": 100 + self.now, "dur": us, "args": said})

    def operator(self, name: str, *dims: Sequence[int], backward: bool = False) -> None:
        """Run one operator; forward ones take the sequence number that the backward one gives back."""
        touched = _bytes(name, dims)
        self.touched.setdefault(self.phase, []).append(touched)
        us = _microseconds(name, dims) + min(touched, 2 << 20) / BYTES_PER_US * (self.slower - 1)
        self.now += self.gaps.get(self.phase, GAP_US)
        if backward:
            node = {"Sequence number": self.linked.pop(), "Fwd thread id": 1}
            self.add(f"autograd::engine::evaluate_function: {name}Backward0", None, us + 1, node)
            self.now += 0.5
            self.add(name, dims, us)
            self.now += us + 0.5
        else:
            self.number += 1
            self.linked.append(self.number)
            self.add(name, dims, us, {"Sequence number": self.number, "Fwd thread id": 0})
            self.now += us

    def block(self, *, backward: bool) -> None:
        job, hidden, tokens, width = self.job, self.job.hidden, self.job.tokens, self.job.hidden // self.job.tp
        heads = (job.batch, width // 16, job.sequence, 16)
        products = [[(tokens, hidden), (hidden, width)]] * 3 + [[(tokens, width), (width, hidden)]]
        products += [[(tokens, hidden), (hidden, 4 * width)], [(tokens, 4 * width), (4 * width, hidden)]]
        parts: list[tuple[str, Shapes]] = [
            ("aten::native_layer_norm", [(job.batch, job.sequence, hidden), (hidden,)]),
            *[("aten::mm", list(product)) for product in products[:3]],
            ("aten::scaled_dot_product_attention", [heads, heads, heads]),
            *[("aten::mm", list(product)) for product in products[3:]],
        ]
        for name, dims in parts[::-1] if backward else parts:
            self.operator(name, *dims, backward=backward)
        if backward and job.fused:
            self.add_up(self.of_layer())
        if job.tp > 1:
            self.reduce()

    def decoded(self, *, backward: bool) -> None:
        job, hidden = self.job, self.job.hidden
        matrix, norm = (hidden, hidden), [(job.batch, job.sequence, hidden), (hidden,)]
        parts: list[tuple[str, Shapes]] = []
        for keys in (job.sequence, job.sequence // 2):
            heads = [(job.batch, hidden // 16, tokens, 16) for tokens in (job.sequence, keys, keys)]
            rows = [job.batch * tokens for tokens in (job.sequence, keys, keys)]
            parts += [("aten::native_layer_norm", norm), *[("aten::mm", [(each, hidden), matrix]) for each in rows]]
            parts += [("aten::scaled_dot_product_attention", heads), ("aten::mm", [(rows[0], hidden), matrix])]
        for name, dims in parts[::-1] if backward else parts:
            self.operator(name, *dims, backward=backward)

    def reduce(self) -> None:
        """Call an all-reduce that returns at once, and wait for it."""
        job = self.job
        for name in ("_c10d_functional::all_reduce", "_c10d_functional::wait_tensor"):
            self.now += GAP_US
            self.add(name, [(job.batch, job.sequence, job.hidden)], 1.0)
            self.now += 1.0

    def passes_us(self) -> float:
        """Return what the passes of a step take."""
        alone = _Writer(replace(self.job, collective=""), slower=self.slower, gaps=self.gaps)
        alone.passes()
        return alone.now

    def communicate(self, name: str, shape: tuple[int, ...], tid: int, waits: float | None = None) -> None:
        """Call a collective of the host and wait for it; `waits`: by default as the job does."""
        self.now += GAP_US
        self.add(f"c10d::{name}_", [shape], 1.0)
        self.now += 1.0 + GAP_US
        waits = self.job.waits if waits is None else waits
        lasts = waits * self.passes_us() + SENT_US + 4 * prod(shape) / SENT_BYTES_PER_US
        said = {"Input Dims": [shape], "Input type": ["float"]}
        head = {"ph": "X", "pid": 1, "tid": tid, "cat": "user_annotation", "name": f"gloo:{name}"}
        self.events.append({**head, "ts": 100 + self.now, "dur": lasts, "args": said})
        self.now += lasts

    def reduce_all(self, elements: int) -> None:
        self.phase = "reduction"
        if self.job.flat:
            self.operator("aten::div_", (elements,))
            self.operator("aten::copy_", (2, elements // 2), (2, elements // 2))
        if self.job.one_by_one:
            for number, gradient in enumerate(self.gradients()):
                self.communicate("all_reduce", gradient, 2, waits=0.0 if number else None)
                self.operator("aten::div_", gradient)
        else:
            self.communicate("all_reduce", (elements,), 2)
        for gradient in self.gradients()[::-1] if self.job.copies_back else []:
            self.operator("aten::copy_", gradient, gradient)

    def passes(self) -> None:
        for _ in range(self.job.micro_batches):
            self.phase = "forward"
            self.forward()
            self.phase = "backward"
            self.backward()

    def forward(self) -> None:
        job = self.job
        self.operator("aten::embedding", (2000, job.hidden), (job.batch, job.sequence))
        for _ in range(job.tables):
            self.operator("aten::embedding", (1000, 32), (job.batch, 1))
        if job.collective == "recv":
            self.communicate("recv", (job.batch, job.sequence, job.hidden), 1)
        for layer in range(job.layers):
            at, started = len(self.events), self.now
            self.block(backward=False)
            if job.named:
                self._around(f"nn.Module: Block_{layer}", at, started)
        for _ in range(job.layers * job.decodes):
            self.decoded(backward=False)
        for _ in range(job.answers):
            self.operator("aten::mm", (job.tokens, job.hidden), (job.hidden, 48))
        self.operator("aten::mm", (job.tokens, job.hidden), (job.hidden, 2000))

    def backward(self) -> None:
        job = self.job
        self.operator("aten::mm", (job.tokens, 2000), (2000, job.hidden), backward=True)
        for _ in range(job.answers):
            self.operator("aten::mm", (job.tokens, 48), (48, job.hidden), backward=True)
        for _ in range(job.layers * job.decodes):
            self.decoded(backward=True)
        for _ in range(job.layers):
            self.block(backward=True)
        for _ in range(job.tables):
            self.operator("aten::embedding_dense_backward", (job.batch, 1, 32), backward=True)
        self.operator("aten::embedding_dense_backward", (job.batch, job.sequence, job.hidden), backward=True)

    def step(self, number: int) -> float:
        begin, job = self.now, self.job
        place = len(self.events)
        self.passes()
        if job.fused:
            self.add_up(self.around_layers())
        if job.collective == "all_reduce":
            self.reduce_all(sum(map(prod, self.parameters())))
        at, started = len(self.events), self.now
        self.phase = "update"
        self.update()
        self._around("Optimizer.step#AdamW.step", at, started)
        self.now += GAP_US
        self._around(f"ProfilerStep#{number}", place, begin)
        return self.now - begin

    def add_up(self, gradients: list[tuple[int, ...]]) -> None:
        for shape in gradients:
            self.now += GAP_US
            self.add("torch::autograd::AccumulateGrad", [shape], 1.0)
            self.now += 1.0

    def of_layer(self) -> list[tuple[int, ...]]:
        hidden = self.job.hidden
        return [(hidden,), *[(hidden, hidden)] * 4, (4 * hidden, hidden), (hidden, 4 * hidden)]

    def around_layers(self) -> list[tuple[int, ...]]:
        hidden = self.job.hidden
        return [(2000, hidden), (2000, hidden), (), (0, hidden), *[(48, hidden)] * self.job.answers]

    def gradients(self) -> list[tuple[int, ...]]:
        first, *others = self.around_layers()
        return [first, *self.of_layer() * self.job.layers, *others]

    def parameters(self) -> list[tuple[int, ...]]:
        hidden, of_layer = self.job.hidden, self.of_layer()
        decoder = [(hidden,), *[(hidden, hidden)] * 4] * 2 * self.job.decodes
        of_layers = [*of_layer * self.job.layers, *decoder * self.job.layers]
        behind = [(48, hidden)] * self.job.answers
        return [(2000, hidden), *[(1000, 32)] * self.job.tables, *of_layers, *behind, (2000, hidden)]

    def update(self) -> None:
        shapes = self.parameters()
        names = ("aten::lerp_", "aten::addcdiv_")
        if self.job.at_once:
            for name in names:
                at, started = len(self.events), self.now + GAP_US / 2
                for shape in shapes:
                    self.operator(name, shape, shape)
                self._around("aten::_foreach" + name.removeprefix("aten::"), at, started, [])
        if self.job.fused:
            self.now += GAP_US
            touched = sum(16 * prod(shape) for shape in shapes)
            self.add("aten::_fused_adamw_", [[]] * 6, touched / BYTES_PER_US, {})
            self.now += touched / BYTES_PER_US
        for shape in () if self.job.at_once or self.job.fused else shapes:
            for name in names:
                self.operator(name, shape, shape)
        self.linked.clear()

    def _around(self, name: str, at: int, begin: float, dims: Shapes | None = None) -> None:
        now, self.now = self.now, begin
        last = len(self.events)
        # Longer than what rounding takes, and an operator ends before the annotation around it.
        self.add(name, dims, now - begin + (GAP_US / 4 if dims is None else GAP_US / 8))
        self.events.insert(at, self.events.pop(last))
        self.now = now


def _microseconds(name: str, dims: Shapes) -> float:
    if name == "aten::mm":
        # What it reads it packs before it multiplies.
        return 2 * prod(dims[0]) * dims[1][1] / FLOPS_PER_US + _bytes(name, dims) / BYTES_PER_US
    if "attention" in name:
        return 4 * prod(dims[0]) * dims[0][2] / FLOPS_PER_US
    return _bytes(name, dims) / BYTES_PER_US


def _bytes(name: str, dims: Shapes) -> int:
    if name == "aten::embedding":
        return 8 * prod(dims[1]) * dims[0][1]
    return 4 * sum(map(prod, dims))


def write(job: HostJob, folder: Path, added: dict[str, Any] | None = None, rank: int = 0, ranks: int = 1) -> Path:
    """Write three steps of a job to a file of a rank; `added`: members of `lumosCapture`."""
    writer = _Writer.of(job)
    for number in range(3):
        writer.step(number)
    folder.mkdir(parents=True, exist_ok=True)
    about = {"backend": "fake", "rank": rank, "world_size": max(job.tp, ranks), "pg_config": []}
    whole = {"lumosCapture": added or {}, "schemaVersion": 1, "distributedInfo": about, "traceEvents": writer.events}
    (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(json.dumps(whole).encode(), mtime=0))
    return folder
