"""An emulated multi-rank GPU training job that leaves profiler traces, and the truth about it.

It shares no code with `lumos_df`, so that each can be held against the other:

    outcome = simulate(Job(ranks=4, sleep_rank=2, sleep_ns=2_000_000))
    write(outcome, Profiler(), directory)
    outcome.truth.collectives[0].last_rank == 2
"""

from tests.emulator.faults import FaultyJob, simulate
from tests.emulator.job import Job, Profiler
from tests.emulator.kineto import document, write
from tests.emulator.training import Outcome
from tests.emulator.truth import CollectiveTruth, GpuTruth, StepTruth, Truth

__all__ = [
    "CollectiveTruth",
    "FaultyJob",
    "GpuTruth",
    "Job",
    "Outcome",
    "Profiler",
    "StepTruth",
    "Truth",
    "document",
    "simulate",
    "write",
]
