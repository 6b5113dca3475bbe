"""Traces of a transformer job written from its definition, and which layer, micro-batch and phase each kernel is.

It shares no code with `lumos_df`. Time means nothing here: rows follow one another. What is made is what the order of
work is by definition: embedding, layers, head; GPipe and 1F1B; recomputation before a layer's backward.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Made:
    """A job of pp stages with tp ranks each, times dp; rank = (replica * pp + stage) * tp + shard."""

    layers: int = 4
    """Of a stage."""
    hidden: int = 256
    heads: int = 8
    ffn: int = 1024
    sequence: int = 64
    batch: int = 2
    vocabulary: int = 5000
    micro_batches: int = 1
    steps: int = 1
    tp: int = 1
    dp: int = 1
    pp: int = 1
    schedule: str = "1f1b"
    backward: bool = True
    recompute: bool = False
    host: bool = True
    """Whether operators are recorded, else kernels alone."""
    marks: bool = True
    """Whether steps and the optimizer are annotated."""
    odd: dict[tuple[int, int], str] = field(default_factory=dict)
    """(layer, kernel of the layer) of the forward: `skip`, `extra` or another name for it."""
    descriptions: bool = False
    """Whether process groups are described as Megatron does."""
    unfused: bool = False
    """Whether attention is two products and a softmax between them."""
    links: bool = True
    """Whether backward operators name their forward ones."""
    routes: bool = False
    """Whether sends and receives name both of their ranks, as torch.distributed does."""
    adds: bool = False
    """Whether gradients of matrices are added up, by a kernel each from the second micro-batch on."""

    @property
    def world(self) -> int:
        return self.tp * self.dp * self.pp


@dataclass(frozen=True)
class Truth:
    """Of one kernel."""

    name: str
    phase: str
    layer: int | None
    micro_batch: int | None


class Rank:
    """Writes one rank's events."""

    def __init__(self, job: Made, rank: int) -> None:
        self.job, self.rank = job, rank
        self.stage = rank // job.tp % job.pp
        self.events: list[Event] = []
        self.truth: list[Truth] = []
        self._time = 1000.0
        self._correlation = 0
        self._sequence = 0
        self._thread = 1
        self._now: tuple[str, int | None, int | None] = ("other", None, None)
        self._made: dict[tuple[int, int | None, str], int] = {}
        shard, replica = rank % job.tp, rank // (job.tp * job.pp)
        self._groups = {
            "7": ("TENSOR_MODEL_PARALLEL_GROUP", [rank - shard + k for k in range(job.tp)]),
            "8": (
                "PIPELINE_MODEL_PARALLEL_GROUP",
                [(replica * job.pp + k) * job.tp + shard for k in range(job.pp)],
            ),
            "9": ("DATA_PARALLEL_GROUP", [(k * job.pp + self.stage) * job.tp + shard for k in range(job.dp)]),
        }

    def document(self) -> Event:
        for step in range(self.job.steps):
            with self._annotation(f"ProfilerStep#{step + 3}" if self.job.marks else None):
                self._step()
        groups = [
            {
                "pg_name": name,
                "pg_desc": text if self.job.descriptions else "undefined",
                "backend_config": "cuda:nccl",
                "pg_size": len(ranks),
                "ranks": ranks,
            }
            for name, (text, ranks) in self._groups.items()
        ]
        return {
            "schemaVersion": 1,
            "distributedInfo": {
                "backend": "nccl",
                "rank": self.rank,
                "world_size": self.job.world,
                "pg_count": len(groups),
                "pg_config": groups,
            },
            "traceEvents": self.events,
        }

    def _step(self) -> None:
        for forward, number in self._order():
            if forward:
                self._forward(number)
            else:
                self._backward(number)
        if not self.job.backward:
            return
        self._now = ("communication", None, None)
        if self.job.dp > 1:
            self._collective("allreduce", "9", 12 * self.job.hidden * self.job.hidden)
        self._now = ("optimizer", None, None)
        with self._annotation("Optimizer.step#AdamW.step" if self.job.marks else None):
            for _ in range(3):
                self._launch("multi_tensor_apply_kernel<AdamFunctor>", (320,))

    def _order(self) -> Iterator[tuple[bool, int]]:
        """The passes of the stage: all forwards first, or one backward after one forward as soon as there is one."""
        many = self.job.micro_batches
        if not self.job.backward:
            yield from ((True, k) for k in range(many))
            return
        ahead = many if self.job.schedule == "gpipe" else min(many, self.job.pp - self.stage)
        yield from ((True, k) for k in range(ahead))
        for k in range(many):
            yield False, k
            if k + ahead < many:
                yield True, k + ahead

    def _forward(self, number: int) -> None:
        job = self.job
        if self.stage > 0:
            self._now = ("communication", None, number)
            self._passed_on("recv", -1)
        self._now = ("forward", None, number)
        if self.stage == 0:
            ids = (job.batch, job.sequence)
            with self._operator("aten::embedding", ((job.vocabulary // job.tp, job.hidden), ids)):
                self._launch("indexSelectLargeIndex", (job.sequence,))
            self._product_reduced()
            with self._operator("aten::add", (self._hidden, self._hidden)):
                self._launch("elementwise<add positions>", (64,))
        for layer in range(job.layers):
            self._now = ("forward", layer, number)
            self._layer(layer, number)
        self._now = ("forward", None, number)
        if self.stage == job.pp - 1:
            self._norm("final", number)
            tokens = job.batch * job.sequence
            logits = (tokens, job.vocabulary // job.tp)
            with self._node("head", number):
                self._product((tokens, job.hidden), (job.hidden, logits[1]), (50, 4), "float")
            with self._node("loss", number), self._operator("aten::_log_softmax", (logits,)):
                self._launch("cunn_SoftMaxForward", (tokens,))
        else:
            self._now = ("communication", None, number)
            self._passed_on("send", 1)

    def _layer(self, layer: int, number: int) -> None:
        job, odd = self.job, self.job.odd
        tokens, inner = job.batch * job.sequence, job.hidden // job.tp
        head = (job.batch, job.heads // job.tp, job.sequence, job.hidden // job.heads)
        add = odd.get((layer, 4), "elementwise<add>")
        if odd.get((layer, 0)) != "skip":
            self._norm(f"{layer}.norm", number)
        with self._node(f"{layer}.qkv", number):
            self._product((tokens, job.hidden), (job.hidden, 3 * inner), (12, 4))
        if odd.get((layer, 1)) == "extra":
            with self._operator("aten::isnan", ()):
                self._launch("elementwise<check>", (3,))
        with self._node(f"{layer}.attention", number):
            self._attention(head)
        with self._node(f"{layer}.projection", number):
            self._product((tokens, inner), (inner, job.hidden), (4, 4))
        self._product_reduced()
        with self._node(f"{layer}.add", number), self._operator("aten::add", (self._hidden, self._hidden)):
            self._launch(add, (64,))
        self._norm(f"{layer}.norm2", number)
        with self._node(f"{layer}.up", number):
            self._product((tokens, job.hidden), (job.hidden, job.ffn // job.tp), (16, 4))
        with self._node(f"{layer}.gelu", number), self._operator("aten::gelu", ((tokens, job.ffn // job.tp),)):
            self._launch("elementwise<gelu>", (256,))
        with self._node(f"{layer}.down", number):
            self._product((tokens, job.ffn // job.tp), (job.ffn // job.tp, job.hidden), (4, 4))
        self._product_reduced()
        with self._node(f"{layer}.add2", number), self._operator("aten::add", (self._hidden, self._hidden)):
            self._launch("elementwise<add>", (64,))

    def _backward(self, number: int) -> None:
        job = self.job
        if self.stage < job.pp - 1:
            self._now = ("communication", None, number)
            self._passed_on("recv", 1)
        self._thread = 2
        self._now = ("backward", None, number)
        if self.stage == job.pp - 1:
            self._gradient("loss", number, "cunn_SoftMaxBackward")
            self._gradient("head", number, "gemm_dgrad_head", "gemm_wgrad_head")
            self._gradient("final", number, "layer_norm_grad_input", "layer_norm_GammaBeta")
        for layer in reversed(range(job.layers)):
            for part, *kernels in (
                ("down", "gemm_dgrad_down", "gemm_wgrad_down"),
                ("gelu", "elementwise<gelu backward>"),
                ("up", "gemm_dgrad_up", "gemm_wgrad_up"),
                ("norm2", "layer_norm_grad_input", "layer_norm_GammaBeta"),
                ("projection", "gemm_dgrad_projection", "gemm_wgrad_projection"),
                ("attention", "flash_bwd_kernel"),
                ("qkv", "gemm_dgrad_qkv", "gemm_wgrad_qkv"),
                ("norm", "layer_norm_grad_input", "layer_norm_GammaBeta"),
            ):
                self._now = ("backward", layer, number)
                self._gradient(f"{layer}.{part}", number, *kernels, recompute=job.recompute and part == "down")
        self._now = ("backward", None, number)
        if self.stage == 0:
            self._gradient("embedding", number, "embedding_backward_kernel")
        self._thread = 1
        if self.stage > 0:
            self._now = ("communication", None, number)
            self._passed_on("send", -1)

    @property
    def _hidden(self) -> Shape:
        return (self.job.batch, self.job.sequence, self.job.hidden)

    @property
    def _activation(self) -> int:
        return self.job.batch * self.job.sequence * self.job.hidden

    def _norm(self, name: str, number: int) -> None:
        with self._node(name, number), self._operator("aten::native_layer_norm", (self._hidden,)):
            self._launch("vectorized_layer_norm_kernel", (128,))

    def _product(self, left: Shape, right: Shape, grid: Shape, kind: str = "c10::BFloat16") -> None:
        with self._operator("aten::mm", (left, right), kind):
            self._launch("ampere_bf16_s16816gemm", grid)

    def _attention(self, head: Shape) -> None:
        if not self.job.unfused:
            with self._operator("aten::_scaled_dot_product_attention", (head,) * 3):
                self._launch("flash_fwd_kernel", head[:2])
            return
        count, length, width = head[0] * head[1], head[2], head[3]
        scores = (count, length, length)
        with self._operator("aten::bmm", ((count, length, width), (count, width, length))):
            self._launch("ampere_bf16_s16816gemm_nt", (count,))
        with self._operator("aten::_softmax", (scores,)):
            self._launch("softmax_warp_forward", (count,))
        with self._operator("aten::bmm", (scores, (count, length, width))):
            self._launch("ampere_bf16_s16816gemm_nn", (count,))

    def _product_reduced(self) -> None:
        if self.job.tp > 1:
            phase, layer, number = self._now
            self._now = ("communication", layer, number)
            self._collective("allreduce", "7", self._activation)
            self._now = phase, layer, number

    def _gradient(self, node: str, number: int, *kernels: str, recompute: bool = False) -> None:
        args = {"Fwd thread id": 1, "Sequence number": self._made.get((self._step_number, number, node), 0)}
        if not self.job.links:
            args = {"Fwd thread id": 1, "Sequence number": 0}
        with self._row("cpu_op", f"autograd::engine::evaluate_function: {node}Backward0", args):
            if recompute:
                # Checkpointed, the first node to need an activation computes the whole layer again.
                phase, layer, _ = self._now
                assert layer is not None
                self._now = ("recompute", layer, number)
                with self._frame("torch/utils/checkpoint.py(1100): recompute_fn"):
                    self._layer(layer, number)
                self._now = (phase, layer, number)
            for name in kernels:
                self._launch(name, (32,))
        if self.job.adds and number and "wgrad" in kernels[-1]:
            with self._row("cpu_op", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", {}):
                self._launch("elementwise<add gradient>", (64,))

    @property
    def _step_number(self) -> int:
        return sum(event["name"].startswith("ProfilerStep") for event in self.events)

    @contextmanager
    def _node(self, node: str, number: int) -> Iterator[None]:
        """An operator that autograd sees."""
        self._sequence += 1
        self._made[self._step_number, number, node] = self._sequence
        args = {"Sequence number": self._sequence, "Fwd thread id": 0}
        with self._row("cpu_op", node.rsplit(".", maxsplit=1)[-1], args):
            yield

    @contextmanager
    def _operator(self, name: str, shapes: tuple[Shape, ...], kind: str = "c10::BFloat16") -> Iterator[None]:
        with self._row("cpu_op", name, {"Input Dims": shapes, "Input type": [kind] * len(shapes)}):
            yield

    @contextmanager
    def _frame(self, name: str) -> Iterator[None]:
        with self._row("python_function", name, {}):
            yield

    @contextmanager
    def _annotation(self, name: str | None) -> Iterator[None]:
        if name is None:
            yield
            return
        with self._row("user_annotation", name, {}, always=True):
            yield

    @contextmanager
    def _row(self, category: str, name: str, args: Event, *, always: bool = False) -> Iterator[None]:
        self._time += 1
        start = self._time
        event: Event = {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": 1,
            "tid": self._thread,
            "ts": start,
            "args": args,
        }
        if self.job.host or always:
            self.events.append(event)
        yield
        self._time += 1
        event["dur"] = self._time - start

    def _passed_on(self, name: str, further: int) -> None:
        """Send to, or receive from, the stage that is so much further on."""
        if not self.job.routes:
            self._collective(name, "8", self._activation)
            return
        arrow = "->" if name == "send" else "<-"
        with self._row("cpu_op", f"nccl:{name} {self.stage}{arrow}{self.stage + further}", {}):
            self._collective(name, "8", self._activation)

    def _collective(self, name: str, group: str, elements: int) -> None:
        ranks = self._groups[group][1]
        args = {
            "Collective name": name,
            "In msg nelems": elements,
            "Out msg nelems": elements,
            "Group size": len(ranks),
            "dtype": "BFloat16",
            "Process Group Name": group,
        }
        kernel = "AllReduce_Sum_bf16_RING_LL" if name == "allreduce" else "SendRecv"
        self._launch(f"ncclDevKernel_{kernel}", (24,), 20, args)

    def _launch(self, name: str, grid: Shape, stream: int = 7, args: Event | None = None) -> None:
        self._correlation += 1
        tie = {"correlation": self._correlation}
        with self._row("cuda_runtime", "cudaLaunchKernel", tie):
            pass
        shape = {"grid": [*grid, 1, 1][:3], "block": [128, 1, 1], "stream": stream, "device": 0}
        self.events.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": name,
                "pid": 0,
                "tid": stream,
                "ts": self._time + 5,
                "dur": 1.5,
                "args": {**shape, **tie, **(args or {})},
            }
        )
        phase, layer, number = self._now
        self.truth.append(Truth(name, phase, layer, number))


def write(job: Made, folder: Path, ranks: list[int] | None = None) -> dict[int, list[Truth]]:
    """Write `folder`/rank<n>.json of some ranks, or of all; return the truth about their kernels, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    truth = {}
    for number in ranks if ranks is not None else range(job.world):
        rank = Rank(job, number)
        (folder / f"rank{number}.json").write_text(json.dumps(rank.document()))
        truth[number] = rank.truth
    return truth
