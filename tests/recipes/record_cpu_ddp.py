"""Record `data/traces/cpu_ddp`: a small transformer trained by two CPU processes, DistributedDataParallel over gloo.

From the root of the repository, with torch 2.13 (CPU build) and numpy installed:

    python tests/recipes/record_cpu_ddp.py data/traces/cpu_ddp
"""

import gzip
import json
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed import destroy_process_group, init_process_group
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

RANKS = 2
STEPS = 3
UNRECORDED = 2
VOCABULARY, HIDDEN, HEADS, LAYERS, SEQUENCE, BATCH = 512, 128, 4, 2, 64, 4


class Block(nn.Module):  # type: ignore[misc]  # torch is not installed where mypy runs
    """One transformer layer: causal attention, then a feed-forward net four times as wide."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(HIDDEN)
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.projection = nn.Linear(HIDDEN, HIDDEN)
        self.mlp_norm = nn.LayerNorm(HIDDEN)
        self.mlp = nn.Sequential(nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN))

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, sequence, hidden) to the same shape."""
        heads = self.qkv(self.attention_norm(hidden)).view(BATCH, SEQUENCE, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        hidden = hidden + self.projection(mixed.transpose(1, 2).reshape(hidden.shape))
        out: Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return out


def build() -> nn.Module:
    """Return the model: (batch, sequence) token ids to (batch, sequence, vocabulary) logits."""
    blocks = [Block() for _ in range(LAYERS)]
    return nn.Sequential(nn.Embedding(VOCABULARY, HIDDEN), *blocks, nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, VOCABULARY))


def record(rank: int, meeting_point: str, raw: str) -> None:
    """Train for a few steps as `rank` and write the profiler's own file to `raw`/rank<rank>.json."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    init_process_group("gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=RANKS)
    model = DistributedDataParallel(build(), bucket_cap_mb=0.5)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE + 1), generator=torch.Generator().manual_seed(rank))
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=UNRECORDED - 1, warmup=1, active=STEPS),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(f"{raw}/rank{rank}.json"),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        with_modules=True,
    ) as profiler:
        for _ in range(UNRECORDED + STEPS):
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    destroy_process_group()


def main(output: Path) -> None:
    """Record every rank and write `output`/rank<n>.json.gz, without the machine's name and its paths."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        spawn(record, args=(f"{scratch}/meeting_point", scratch), nprocs=RANKS)
        for rank in range(RANKS):
            name = f"rank{rank}.json"
            trace = json.loads(Path(scratch, name).read_text())
            for identifying in ("host_name", "traceName"):
                trace.pop(identifying, None)
            (output / f"{name}.gz").write_bytes(gzip.compress(json.dumps(trace).encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
