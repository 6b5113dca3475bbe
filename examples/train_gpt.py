"""Train a small GPT on random tokens: something to record, on a CPU with gloo or on GPUs with NCCL.

    python examples/train_gpt.py --layers 2 --width 128 --heads 4
    torchrun --nproc-per-node 4 examples/train_gpt.py --dp 2 --tp 2
    lumos-df capture --output traces -- torchrun --nproc-per-node 2 examples/train_gpt.py
    python examples/train_gpt.py --profile traces      # the same, from within

Data parallel is DistributedDataParallel, or FSDP2 with --shard (and wherever tensor parallel is on, too); tensor
parallel is DTensor's; pipeline parallel is torch.distributed.pipelining's 1F1B. It needs torch and, for --profile,
lumos-df.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):  # type: ignore[misc]  # torch is not installed where mypy runs
    """One transformer layer: causal attention, then a feed-forward net four times as wide."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.attention_norm = nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.projection = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, sequence, width) to the same shape; with tensor parallel these are a rank's own heads."""
        normed = self.attention_norm(hidden)
        heads = (
            each(normed).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        hidden = hidden + self.projection(mixed.transpose(1, 2).flatten(-2))
        out: Tensor = hidden + self.down(nn.functional.gelu(self.up(self.mlp_norm(hidden))))
        return out


class GPT(nn.Module):  # type: ignore[misc]  # as above
    """A stage's part of the model: the first has the embedding, the last the head."""

    def __init__(self, options: argparse.Namespace, stage: int) -> None:
        super().__init__()
        first = stage * options.layers // options.pp
        last = (stage + 1) * options.layers // options.pp
        self.embedding = nn.Embedding(options.vocabulary, options.width) if stage == 0 else None
        self.positions = nn.Embedding(options.sequence, options.width) if stage == 0 else None
        self.blocks = nn.ModuleList(Block(options.width, options.heads) for _ in range(first, last))
        self.norm = nn.LayerNorm(options.width) if stage == options.pp - 1 else None
        self.head = nn.Linear(options.width, options.vocabulary, bias=False) if stage == options.pp - 1 else None

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, sequence) tokens, or the hidden states of the stage before, to hidden states or logits."""
        if self.embedding is not None and self.positions is not None:
            hidden = self.embedding(hidden) + self.positions(torch.arange(hidden.shape[1], device=hidden.device))
        for block in self.blocks:
            hidden = block(hidden)
        if self.norm is not None and self.head is not None:
            hidden = self.head(self.norm(hidden))
        return hidden


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy of (batch, sequence, vocabulary) against (batch, sequence)."""
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def spread(model: GPT, mesh: DeviceMesh | None, options: argparse.Namespace) -> nn.Module:
    """Return the model over the mesh (pp, dp, tp); compiled block by block where that is asked for."""
    if options.compile:
        for block in model.blocks:
            block.compile()
    if mesh is None:
        return model
    if options.tp > 1:
        columns, rows = ("query", "key", "value", "up"), ("projection", "down")
        how = {name: ColwiseParallel() for name in columns} | {name: RowwiseParallel() for name in rows}
        for block in model.blocks:
            parallelize_module(block, mesh["tp"], how)
    if options.dp > 1 and (options.shard or options.tp > 1):
        for block in model.blocks:
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    elif options.dp > 1:
        return DistributedDataParallel(model, process_group=mesh.get_group("dp"))
    return model


def trainer(
    options: argparse.Namespace, mesh: DeviceMesh | None, device: torch.device
) -> tuple[nn.Module, Callable[[Tensor, Tensor], None]]:
    """Return the stage's model and what runs it forward and backward on (batch, sequence) tokens and targets."""
    stage = mesh.get_local_rank("pp") if mesh else 0
    torch.manual_seed(stage)
    kind = getattr(torch, options.dtype)
    model = spread(GPT(options, stage).to(device, kind), mesh, options)
    if mesh is None or options.pp == 1:
        return model, lambda tokens, targets: loss(model(tokens), targets).backward()
    size = options.batch // options.micro_batches
    hidden = torch.empty(size, options.sequence, options.width, device="meta", dtype=kind, requires_grad=True)
    tokens = torch.empty(size, options.sequence, device="meta", dtype=torch.int64)
    logits = torch.empty(size, options.sequence, options.vocabulary, device="meta", dtype=kind, requires_grad=True)
    last = stage == options.pp - 1
    pipeline = PipelineStage(
        model,
        stage,
        options.pp,
        device,
        input_args=(hidden if stage else tokens,),
        output_args=(logits if last else hidden,),
        group=mesh.get_group("pp"),
    )
    schedule = Schedule1F1B(pipeline, options.micro_batches, loss_fn=loss)

    def run(tokens: Tensor, targets: Tensor) -> None:
        inputs: tuple[Tensor, ...] = () if stage else (tokens,)
        schedule.step(*inputs, target=targets if last else None)

    return model, run


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the options; complain about those that do not go together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 4), ("width", 256), ("heads", 4), ("batch", 8), ("sequence", 128), ("steps", 25)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--vocabulary", type=int, default=1024)
    parser.add_argument("--micro-batches", type=int, default=0, help="of a pipeline; by default one a stage")
    parser.add_argument("--dp", type=int, default=0, help="by default the ranks that tp and pp leave")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--shard", action="store_true", help="FSDP2 instead of DistributedDataParallel")
    parser.add_argument("--compile", action="store_true", help="torch.compile every block")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--profile", metavar="DIR", help="record with lumos_df.capture.profile")
    options = parser.parse_args(arguments)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    options.dp = options.dp or max(1, world // (options.tp * options.pp))
    options.micro_batches = options.micro_batches or options.pp
    if options.dp * options.tp * options.pp != world:
        parser.error(f"dp {options.dp} x tp {options.tp} x pp {options.pp} is not the world of {world} ranks")
    if options.width % options.heads or options.heads % options.tp:
        parser.error(f"width {options.width} must divide by heads {options.heads}, and those by tp {options.tp}")
    if options.batch % options.micro_batches or options.layers < options.pp:
        parser.error("batch must divide by the micro-batches, and every stage needs a layer")
    return options


def main(arguments: list[str]) -> None:
    """Train."""
    options = parse(arguments)
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    mesh = None
    if options.dp * options.tp * options.pp > 1:
        dist.init_process_group("nccl" if gpu else "gloo")
        shape = (options.pp, options.dp, options.tp)
        mesh = init_device_mesh(device.type, shape, mesh_dim_names=("pp", "dp", "tp"))
    model, run = trainer(options, mesh, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(mesh.get_local_rank("dp") if mesh else 0)
    text = torch.randint(options.vocabulary, (options.batch, options.sequence + 1), generator=generator).to(device)
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    times: list[float] = []
    with recording(options.profile) as recorder:
        for _ in range(options.steps):
            start = time.perf_counter()
            run(tokens, targets)
            optimizer.step()
            optimizer.zero_grad()
            if recorder:
                recorder.step()
            times.append(time.perf_counter() - start)
    if gpu:
        torch.cuda.synchronize()
    if int(os.environ.get("RANK", "0")) == 0:
        median = sorted(times)[len(times) // 2]
        print(f"{options.steps} steps, median {1e3 * median:.3f} ms")
    if mesh:
        dist.destroy_process_group()


def recording(folder: str | None) -> Any:
    """Return a block that records into `folder`, or one that does nothing."""
    if folder is None:
        return nullcontext()
    from lumos_df.capture import profile  # noqa: PLC0415 - only with --profile

    return profile(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
