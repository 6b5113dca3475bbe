"""Runs a job: all of its ranks, or one replica of them where the others do the same."""

from dataclasses import dataclass
from random import Random

from tests.emulator.engine import Engine
from tests.emulator.gpu import Fabric
from tests.emulator.megatron.costs import all_reduce_ns, one_way_ns, send_ns
from tests.emulator.megatron.job import Megatron
from tests.emulator.megatron.trainer import Trainer
from tests.emulator.records import Collective, Recording
from tests.emulator.truth import StepTruth


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened, on every rank that ran."""

    job: Megatron
    recordings: tuple[Recording, ...]
    steps: tuple[StepTruth, ...]


def simulate(job: Megatron) -> Outcome:
    """Run the job."""
    engine = Engine()
    chance = Random(f"{job.seed}/transfers")  # noqa: S311 - noise, not a secret

    def transfer_ns(collective: Collective) -> float:
        payload = collective.elements * collective.element_bytes
        reduces = all_reduce_ns if collective.name == "allreduce" else one_way_ns
        ns = send_ns(payload, collective.route) if collective.route else reduces(payload, collective.ranks)
        ns *= dict(job.slow_links).get(collective.ranks, 1.0)
        return ns * (1 + job.transfer_noise * (2 * chance.random() - 1))

    fabric = Fabric(engine, transfer_ns)
    ranks = [rank for rank in range(job.ranks) if not job.one_replica or job.place(rank)[1] == 0]
    trainers = [Trainer(job, rank, engine, fabric) for rank in ranks]
    for trainer in trainers:
        engine.start(trainer.train())
    engine.run()
    return Outcome(
        job,
        tuple(trainer.recording for trainer in trainers),
        tuple(step for trainer in trainers for step in trainer.steps),
    )
