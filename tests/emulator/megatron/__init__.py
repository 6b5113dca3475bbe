"""An emulated Megatron-style training job: tensor, pipeline and data parallel, on nodes of eight H100-like GPUs.

outcome = simulate(Megatron(tp=2, pp=2, dp=4, layers=8, hidden=2048))
write(outcome, Profiler(memory=False, stacks=False), directory)
outcome.steps[0].step_ns
"""

from tests.emulator.megatron.job import Megatron
from tests.emulator.megatron.run import Outcome, simulate

__all__ = ["Megatron", "Outcome", "simulate"]
