"""In whose words a change is proposed: options of PyTorch or XLA, or the calls of the GPU's runtime.

A program of PyTorch is one that its own names give away: operators, kernels, modules, marks of its profiler.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lumos_df.graph.rows import Rows

_TORCH: Final = re.compile(r"\b(?:aten|at|c10|torch)::|ProfilerStep#|nn\.Module|DataLoader|\btorch[./]")
"""Names that only PyTorch and what is built on it have."""
_XLA: Final = re.compile(r"Pj(?:Rt|it)[A-Z]")
"""Names of what starts the programs that XLA compiled, as JAX does."""
_HIP: Final = re.compile(r"hip[A-Z]")
_HIP_NAMES: Final = {"MallocHost": "HostMalloc"}
"""What HIP calls otherwise than CUDA does."""


@dataclass(frozen=True, slots=True)
class ProgramWords:
    """What gave a recorded program away."""

    torch: bool
    hip: bool
    xla: bool

    @classmethod
    def of(cls, ranks: Iterable[Rows]) -> "ProgramWords":
        """Return what the names of all ranks' rows say."""
        names = {name for rows in ranks for name in rows.names}
        torch, hip, xla = (any(map(says, names)) for says in (_TORCH.search, _HIP.match, _XLA.match))
        return cls(torch, hip, xla and not torch)

    def call(self, name: str) -> str:
        """Return a call of the runtime, `MemcpyAsync` for one, as the GPU's vendor names it."""
        return f"hip{_HIP_NAMES.get(name, name)}" if self.hip else f"cuda{name}"

    @property
    def captures(self) -> str:
        """How passes are launched as graphs."""
        if self.xla:
            flag = "--xla_enable_command_buffers_during_profiling=true"
            return f"XLA's command buffers, which it leaves out under a profiler: XLA_FLAGS={flag} tells what is left"
        how = 'torch.compile in mode "reduce-overhead"' if self.torch else self.call("StreamBeginCapture")
        return f"CUDA graphs with {how}"

    @property
    def pins(self) -> str:
        """How memory of the host is pinned."""
        return "pin_memory=True" if self.torch else self.call("MallocHost")

    @property
    def copies_ahead(self) -> str:
        """How a copy is issued for which the host does not wait."""
        return "non_blocking=True" if self.torch else self.call("MemcpyAsync")

    @property
    def keeps_memory(self) -> str:
        """How memory is had without asking the driver each time; nothing where no setting does it."""
        if self.torch:
            # Most versions of PyTorch have no such segments on ROCm.
            return "" if self.hip else "expandable_segments:True"
        return f"a pool ({self.call('MallocAsync')})"
