"""Write the traces of an emulated job: `python -m tests.emulator --ranks 4 --layers 2 --steps 3 --output DIR`."""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, BooleanOptionalAction
from pathlib import Path

from tests.emulator import Job, Profiler, simulate, write


def main() -> None:
    """Parse the command line, run the job, write one file a rank."""
    job, profiler = Job(), Profiler()
    parser = ArgumentParser("python -m tests.emulator", formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for rank<n>.json.gz")
    parser.add_argument("--ranks", type=int, default=job.ranks, help="processes, one GPU each")
    parser.add_argument("--layers", type=int, default=job.layers, help="layers of the transformer")
    parser.add_argument("--steps", type=int, default=job.steps, help="recorded steps")
    parser.add_argument("--seed", type=int, default=job.seed, help="seed of the noise")
    parser.add_argument("--sleep-rank", type=int, default=job.sleep_rank, help="rank that sleeps in each step")
    parser.add_argument("--sleep-ns", type=int, default=job.sleep_ns, help="how long it sleeps")
    parser.add_argument("--clock-offsets-ns", type=int, nargs="*", default=(), help="by rank: how far ahead")
    parser.add_argument("--memory", action=BooleanOptionalAction, default=profiler.memory, help="memory events")
    parser.add_argument("--stacks", action=BooleanOptionalAction, default=profiler.stacks, help="Python functions")
    parser.add_argument(
        "--collective-args", action=BooleanOptionalAction, default=profiler.collective_args, help="sizes and groups"
    )
    given = parser.parse_args()
    outcome = simulate(
        Job(
            ranks=given.ranks,
            layers=given.layers,
            steps=given.steps,
            seed=given.seed,
            sleep_rank=given.sleep_rank,
            sleep_ns=given.sleep_ns,
        )
    )
    recorder = Profiler(
        memory=given.memory,
        stacks=given.stacks,
        collective_args=given.collective_args,
        clock_offsets_ns=tuple(given.clock_offsets_ns),
    )
    for path in write(outcome, recorder, given.output):
        print(path)


if __name__ == "__main__":
    main()
