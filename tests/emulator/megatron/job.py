"""What the job trains, and how it is spread over ranks."""

from dataclasses import dataclass

from tests.emulator.records import Group


@dataclass(frozen=True, slots=True)
class Megatron:
    """A GPT of which every dimension is divisible by what it is cut into."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    layers: int = 4
    hidden: int = 2048
    ffn: int = 8192
    heads: int = 16
    vocabulary: int = 51200
    sequence: int = 2048
    micro_batch: int = 1
    micro_batches: int = 4
    steps: int = 1
    bucket: int = 40_000_000
    """Gradients are reduced once this many of them are ready."""
    sp: bool = False
    """Tensor-parallel ranks share the tokens between their products."""
    cp: int = 1
    """Ranks that share a sequence; they are replicas of the parameters, next to one another among `dp` x `cp`."""
    noise: bool = False
    """Kernels, collectives, launches and hosts vary, and GPUs differ in speed."""
    seed: int = 0
    slower: tuple[float, ...] = ()
    """By rank: its kernels take so many times as long; none: as long as usual."""
    slow_links: tuple[tuple[tuple[int, ...], float], ...] = ()
    """(ranks, factor): what exactly these ranks exchange transfers so many times as long."""
    one_replica: bool = False
    """Only the first of the data-parallel replicas runs. Without noise all do the same at the same time, so that the
    collectives between them begin and end as if all ran."""

    def __post_init__(self) -> None:
        if self.noise and self.one_replica:
            raise ValueError("replicas differ with noise: all of them must run")
        cuts = ((self.layers, self.pp), (self.hidden, self.heads), (self.heads, self.tp), (self.ffn, self.tp))
        for whole, parts in (*cuts, (self.vocabulary, self.tp)):
            if whole % parts:
                raise ValueError(f"{whole} cannot be cut into {parts}")

    @property
    def ranks(self) -> int:
        """GPUs of the job."""
        return self.tp * self.pp * self.replicas

    @property
    def replicas(self) -> int:
        """Ranks that reduce gradients together."""
        return self.dp * self.cp

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on a rank."""
        return self.rank_sequence * self.micro_batch

    @property
    def rank_sequence(self) -> int:
        """Tokens of a sequence on a rank."""
        return self.sequence // self.cp

    @property
    def kernel_noise(self) -> float:
        """Kernels take at most this share more or less than usual."""
        return 0.03 if self.noise else 0.0

    @property
    def host_noise(self) -> float:
        """Likewise for what the host does."""
        return 0.2 if self.noise else 0.0

    @property
    def transfer_noise(self) -> float:
        """Likewise for transfers of collectives."""
        return 0.1 if self.noise else 0.0

    @property
    def speed_noise(self) -> float:
        """A GPU is at most this share faster or slower than usual, all the time."""
        return 0.01 if self.noise else 0.0

    @property
    def jitter_ns(self) -> int:
        """A launch reaches the GPU up to this much later than usual."""
        return 3000 if self.noise else 0

    @property
    def barrier_ns(self) -> int:
        """A stream that had to wait for another one goes on at once."""
        return 0

    @property
    def slow_first(self) -> tuple[tuple[str, float], ...]:
        """No work is slower than its like."""
        return ()

    @property
    def queue_depth(self) -> int:
        """How much a stream's queue holds before the host has to wait: what CUDA allows."""
        return 1024

    def factor(self, _name: str, _blocks: int) -> float:
        """Return how many times as long work of that name takes: no kernel is singled out."""
        return 1.0

    def place(self, rank: int) -> tuple[int, int, int]:
        """Return where a rank is along tp, dp and pp: ranks count along tp first and along pp last."""
        return rank % self.tp, rank // self.tp % self.replicas, rank // (self.tp * self.replicas)

    def rank(self, tp: int, dp: int, pp: int) -> int:
        """Return the rank at a place."""
        return tp + self.tp * (dp + self.replicas * pp)

    def groups(self, rank: int) -> dict[str, Group]:
        """Return the groups that a rank is in, by `world`, `dp`, `tp`, `pp`, and `model`: those that share a model.

        Names count all groups of the job in the order in which every rank makes them.
        """
        tp, dp, pp = self.place(rank)
        after_dp = 1 + self.tp * self.pp
        after_model = after_dp + self.replicas
        after_tp = after_model + self.replicas * self.pp
        after_pp = after_tp + self.replicas * self.tp
        first = dp // self.cp * self.cp
        along = {
            "dp": (1 + pp * self.tp + tp, "DATA_PARALLEL_GROUP_WITH_CP", [(tp, at, pp) for at in range(self.replicas)]),
            "model": (
                after_dp + dp,
                "MODEL_PARALLEL_GROUP",
                [(one, dp, other) for other in range(self.pp) for one in range(self.tp)],
            ),
            "tp": (
                after_model + pp * self.replicas + dp,
                "TENSOR_MODEL_PARALLEL_GROUP",
                [(at, dp, pp) for at in range(self.tp)],
            ),
            "pp": (
                after_tp + dp * self.tp + tp,
                "PIPELINE_MODEL_PARALLEL_GROUP",
                [(tp, dp, at) for at in range(self.pp)],
            ),
            "cp": (
                after_pp + (pp * self.tp + tp) * self.dp + dp // self.cp,
                "CONTEXT_PARALLEL_GROUP",
                [(tp, at, pp) for at in range(first, first + self.cp)],
            ),
        }
        return {"world": Group("0", "default_pg", tuple(range(self.ranks)))} | {
            name: Group(str(number), description, tuple(self.rank(*place) for place in places))
            for name, (number, description, places) in along.items()
        }
