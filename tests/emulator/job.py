"""What runs, and what the emulated profiler writes down of it."""

from dataclasses import dataclass
from math import ceil, prod
from typing import Final, Literal, TypeAlias

from tests.emulator.hardware import MULTIPROCESSORS

DTYPE_BYTES: Final = 2
"""Parameters, activations and gradients are bfloat16."""


Products: TypeAlias = Literal["bf16", "tf32", "fp32"]
"""What linear layers multiply in: on tensor cores but for the last; with either of the last two they read float32."""

Captured: TypeAlias = Literal["", "layer", "model"]
"""What runs as one CUDA graph forward and one backward: nothing, each layer, the model."""


@dataclass(frozen=True, slots=True)
class Job:
    """Data-parallel training of a small transformer, one GPU a rank."""

    ranks: int = 4
    layers: int = 2
    steps: int = 3
    seed: int = 0
    sleep_rank: int | None = None
    """The straggler: it sleeps on the host at the start of each step."""
    sleep_ns: int = 0
    hidden: int = 1024
    heads: int = 16
    vocabulary: int = 8192
    sequence: int = 512
    batch: int = 4
    """Sequences a rank and step."""
    longer: int = 0
    """Each step's sequences have so many tokens more than those of the one before."""
    lengths: tuple[int, ...] = ()
    """How long sequences are, by turns: rank r has in step s those of place r + s. None: all `sequence`."""
    bucket_bytes: int = 25_000_000
    """Gradients are all-reduced once this much is ready."""
    reduced_bytes: Literal[2, 4] = DTYPE_BYTES
    """Size of a gradient's elements while it is reduced: bfloat16 or float32."""
    awaited: bool = False
    """Kernels wait for each reduction of gradients before they go on."""
    compressed: bool = False
    """Buckets of float32 gradients are cast to bfloat16, reduced, and cast back on a stream of their own."""
    batch_bytes: int = 0
    """A batch this large is copied from pinned memory, as other work; 0: the tokens."""
    prefetch_bytes: int = 0
    """A batch this large is copied on a stream of its own instead, while gradients are cleared."""
    pageable_bytes: int = 0
    """A batch this large is copied from pageable memory instead, for which the host waits."""
    ahead_bytes: int = 0
    """A batch this large is copied on a stream of its own instead, while the step before runs."""
    offloaded_bytes: int = 0
    """So much is copied to the host between the passes of each step, as other work of the GPU."""
    offloads_apart: bool = False
    """These copies have a stream of their own."""
    apart: bool = False
    """Every function is followed by a small kernel on a stream of its own, for which nothing waits."""
    joined: bool = False
    """Each layer waits for a copy of one stream and a kernel of another, by turns longer for the one or the other."""
    validates: bool = False
    """Every second step runs the forward pass alone."""
    captured: Captured = ""
    recompute: Literal["none", "selective", "full"] = "none"
    """What of a layer the backward pass runs again, as only its output is kept: attention, or the whole layer."""
    zero: int = 0
    """What ranks share out: nothing, the optimizer's work, gradients, too, or parameters as well."""
    gathered_late: bool = False
    """Parameters that are shared out are gathered when a layer needs them, and not while the one before computes."""
    kept_whole: bool = False
    """Parameters that the forward pass gathered stay so for the backward pass."""
    scarce_memory: bool = False
    """Memory runs out after each forward pass: the allocator waits for the GPU and gives back what it kept."""
    emptied: bool = False
    """The program gives memory back there itself, outside of every operator."""
    looks_for_nan: bool = False
    """The host looks for NaN in what each layer with parameters puts out."""
    hot: tuple[int, ...] = ()
    """On these ranks work of the GPU takes 15 % longer in the second half of the steps."""
    reads: bool = False
    """Each layer begins with a number that the host reads from the GPU."""
    blocking: bool = False
    """Launches return when their work is over, as with CUDA_LAUNCH_BLOCKING=1."""
    silence_ns: int = 0
    """All ranks do nothing recorded for so long, at the start of each step."""
    by_turns_ns: int = 0
    """One rank, each step another, does nothing recorded for so long at the start of the step."""
    loader_ns: int = 0
    """How long every rank waits for the data loader before each batch; 0: there is none."""
    loading_ns: int = 0
    """How long the first launch of each layer loads its code in the second step."""
    python_ns: int = 1_500
    """Host time of a module's Python code on each side of what it calls."""
    slow_host: int | None = None
    """Python takes far longer on this rank; None: on no rank."""
    averaged: int = 0
    """So many numbers are averaged over ranks, one after another, before the host reads one at the end of a step."""
    late_metrics_rank: int | None = None
    """Ranks average a number at the end of each step, this one at the beginning of the next; None: no rank does."""
    kernel_noise: float = 0.03
    """Kernels take at most this share more or less than usual."""
    queue_depth: int = 0
    """How much a stream's queue holds before the host has to wait; 0: any number."""
    jitter_ns: int = 0
    """A launch reaches the GPU up to this much later than usual."""
    barrier_ns: int = 0
    """A stream that had to wait for another one goes on so long after it was free to, as on AMD devices."""
    products: Products = "bf16"
    single_rank: int | None = None
    """This rank's linear layers multiply in fp32; None: no rank's."""
    single_attention: bool = False
    """Attention reads and multiplies float32, outside of tensor cores."""
    unfused_attention: bool = False
    """Scores are written to memory, masked and normalized by kernels of their own."""
    unfused_optimizer: bool = False
    """AdamW goes through the parameters one by one, a kernel for every operation."""
    unfused_gelu: bool = False
    """Every operation of GELU's formula is a kernel."""
    experts: int = 0
    """Each block's MLP is so many, spread over all ranks, `top_k` of them for each token; 0: one on every rank."""
    top_k: int = 2
    """Experts of a token; all experts get as many tokens."""
    looped: bool = False
    """Every rank has all experts and runs one after the other on the tokens that chose it, as many as chance has it."""
    even: bool = False
    """Of those that run one after the other each takes as many tokens."""
    paired: bool = False
    """Behind every exchange with other ranks' experts work of another micro-batch is launched, which overlaps it."""
    tables: int = 0
    """The model is a recommender with so many embedding tables, spread over all ranks; 0: it is a transformer."""
    looked_up: int = 20
    """Rows of a table that are summed for each sample."""
    lost_wave: float = 0.0
    """Share that products lose of the time of their last wave of blocks, as far as it is empty."""
    factors: tuple[tuple[str, float], ...] = ()
    """(text, factor): GPU work with that text in its name takes so many times as long."""

    slow_first: tuple[tuple[str, float], ...] = ()
    """(text, factor): of GPU work with that text in its name the first of each step takes so many times as long."""

    def __post_init__(self) -> None:
        if min(self.ranks, self.layers, self.steps) < 1:
            raise ValueError("ranks, layers and steps must be at least 1")
        if self.sleep_rank is not None and not 0 <= self.sleep_rank < self.ranks:
            raise ValueError(f"sleep_rank {self.sleep_rank} is not a rank: 0 to {self.ranks - 1}")
        if self.sleep_ns < 0:
            raise ValueError(f"sleep_ns {self.sleep_ns} is negative")

    def factor(self, name: str, blocks: int) -> float:
        """Return how many times as long GPU work of that name and so many blocks takes."""
        waves = max(blocks / MULTIPROCESSORS, 1.0)
        lost = self.lost_wave * (ceil(waves) - waves) if "gemm" in name else 0.0
        return (waves + lost) / waves * prod(factor for text, factor in self.factors if text in name)

    @property
    def local_experts(self) -> int:
        """Experts of a block on a rank."""
        return self.experts // self.ranks

    @property
    def tokens(self) -> int:
        """Tokens a rank and step."""
        return self.batch * self.sequence


Waits: TypeAlias = Literal["described", "called", "unrecorded", "unseen"]
"""What a profiler tells of a stream that waits for another, from most to least: rows that name both streams and the
event; the calls that record it and wait for it; the call that waits alone; nothing."""


@dataclass(frozen=True, slots=True)
class Profiler:
    """What goes into the files; it never changes what runs."""

    memory: bool = True
    stacks: bool = True
    collective_args: bool = True
    waits: Waits = "called"
    clock_offsets_ns: tuple[int, ...] = ()
    """By rank: how far its clock is ahead of the true time; ranks beyond the end have a true clock."""

    gpu_offsets_ns: tuple[int, ...] = ()
    """By rank: how far the clock of its GPU rows is ahead of that of its host's when the job begins."""
    gpu_drifts_ns: tuple[int, ...] = ()
    """By rank: how much further ahead it is when the job ends."""
    graph_nodes: int = 1
    """Of the nodes of a CUDA graph one of so many is recorded."""
    lost: tuple[tuple[int, int], ...] = ()
    """(rank, number in its group): collectives whose kernel is not recorded."""

    def offset_ns(self, rank: int) -> int:
        """Return how far the clock of `rank` is ahead."""
        return _of_rank(self.clock_offsets_ns, rank)

    def gpu_time_ns(self, rank: int, time: int, job_ns: int) -> int:
        """Return what the GPU's clock shows at a time of the host's, in a job that lasts `job_ns`."""
        drifted = _of_rank(self.gpu_drifts_ns, rank) * time / job_ns
        return time + round(_of_rank(self.gpu_offsets_ns, rank) + drifted)


def _of_rank(values: tuple[int, ...], rank: int) -> int:
    return values[rank] if rank < len(values) else 0
