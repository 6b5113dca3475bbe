"""How far changed jobs are from jobs that ran, whether intervals hold: `python -m tests.bench.whatif --truth`.

Pairs of recorded jobs, each predicted from the other: the batch sizes of both sets of LUMOS_TRACES, and runs that
tools/validate recorded, where LUMOS_VALIDATE names their folder. And jobs of the emulator with noise, changed and held
against its own run of the changed job, of another seed.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import polars as pl

from lumos_df.base.errors import LumosError
from lumos_df.graph.event_graph import event_graph
from lumos_df.graph.job import groups
from lumos_df.graph.stalls import find, without
from lumos_df.trace.ingest import ingest
from lumos_df.whatif.answer import step_rows
from lumos_df.whatif.answer.settled_steps import settled
from lumos_df.whatif.estimate import estimate, estimated
from lumos_df.whatif.job.recorded_job import RecordedJob, load
from lumos_df.whatif.job.settings import Settings, parse
from tests.emulator import Job, Profiler, StepTruth, hardware, simulate, write
from tests.emulator.megatron import Megatron
from tests.emulator.megatron import simulate as simulate_megatron
from tests.real import ABSENT, SETS
from tools import validate

SWEEP: Final = {8: (43, 8), 16: (66, 16), 32: (71, 32), 64: (64, 64), 128: (128, 128), 512: (128, 512)}
"""Sequence and micro-batch of transformer_batch_sweep, by the name of its files."""
_HEADS: Final = 8
_STALL_NS: Final = 100_000_000
"""A call of the host that takes so long, or a gap between two, happened once: truths are with and without it."""
_ANSWERED: Final = ("step", "gpu_busy")


@dataclass(frozen=True, slots=True)
class Pair:
    """One prediction and what was true; ms."""

    what: str
    predicted: dict[str, float]
    true: dict[str, float]
    low: float
    high: float
    cause: str

    def error(self, figure: str) -> float:
        """Return how far off, %."""
        return 100 * (self.predicted[figure] / self.true[figure] - 1)

    @property
    def half_width(self) -> float:
        """Return half the width of that interval, %."""
        return 50 * (self.high - self.low) / self.predicted["step"]

    @property
    def inside(self) -> bool:
        """Return whether the interval of the step holds the truth."""
        return self.low <= self.true["step"] <= self.high

    def __str__(self) -> str:
        """Return it as one line."""
        times = f"{self.predicted['step']:9.3f} ({self.low:9.3f} to {self.high:9.3f}) true {self.true['step']:9.3f}"
        errors = " ".join(f"{figure} {self.error(figure):+6.1f} %" for figure in _ANSWERED)
        return f"  {self.what:44.44} {times}  {errors}  {'in ' if self.inside else 'out'} {self.cause}"


def summary(name: str, pairs: list[Pair]) -> None:
    """Print what the errors of some pairs come to."""
    if not pairs:
        print(f"{name}: none")
        return
    errors = {figure: np.abs([pair.error(figure) for pair in pairs]) for figure in _ANSWERED}
    parts = [f"{figure} mean {each.mean():5.1f} % worst {each.max():5.1f} %" for figure, each in errors.items()]
    inside = 100 * np.mean([pair.inside for pair in pairs])
    wide = np.mean([pair.half_width for pair in pairs])
    print(f"{name:44.44} {len(pairs):3} pairs  {'  '.join(parts)}  inside {inside:3.0f} %  ±{wide:.1f} %", flush=True)


def sweep(*, told: bool) -> None:
    """Predict every batch size from every other one, and from two. `told`: print every pair."""
    anchors = batch_sizes()
    if not anchors:
        print(ABSENT)
        return
    truths = {size: _recorded(job, stalls=True) for size, job in anchors.items()}
    calm = from_one(anchors)
    pairs = [replace(pair, true=truths[size]) for pair, (_, size) in zip(calm, _ordered(anchors), strict=True)]
    _say("batch sizes, stalls in the truth", pairs, told=False)
    _say("batch sizes, stalls left out of the truth", calm, told=told)
    _say("those without bs512", [pair for pair in calm if "512" not in pair.what], told=False)
    without = {size: _recorded(job, stalls=False) for size, job in anchors.items()}
    both = [
        _pair(f"bs{before} and bs{beside} -> bs{after}", anchors[before], after, [anchors[beside]], without[after])
        for before, beside, after in permutations(sorted(anchors), 3)
    ]
    _say("from two sizes, stalls left out of the truth", both, told=False)
    _say("those without bs512", [pair for pair in both if "512" not in pair.what], told=False)
    _say_of_hosts({size: true["step"] for size, true in without.items() if size != 512})


def _say_of_hosts(steps: dict[int, float]) -> None:
    """Print what steps, ms, by their size tell of one another, that all are as long as the host takes to issue them.

    It does the same at every size. So what is learned of sizes tells a run no better than the others' mean does.
    """
    for count, name in ((1, "one recorded step for another"), (2, "the mean of two for a third")):
        errors = [
            abs(100 * (np.mean([steps[size] for size in sizes]) / steps[after] - 1))
            for *sizes, after in permutations(sorted(steps), count + 1)
        ]
        text = f"{np.mean(errors):5.1f} % worst {max(errors):5.1f} %"
        print(f"{'without bs512, ' + name:44.44} {len(errors):3} pairs  step mean {text}", flush=True)


def batch_sizes() -> dict[int, RecordedJob]:
    """Return the recorded jobs that differ in their batch, by the size in their file's name."""
    files = [file for traces in SETS for file in sorted((traces / "transformer_batch_sweep").glob("bs*.json.gz"))]
    anchors: dict[int, RecordedJob] = {}
    with tempfile.TemporaryDirectory() as folder:
        if files:
            ingest(files, Path(folder), workers=1)
        for ids in groups(Path(folder)) if files else ():
            job = load(Path(folder), ids, {})
            size = int(Path(job.job.graphs[0].rows.path).name.removeprefix("bs").partition(".")[0])
            if job.sizes.seq is None:
                known = dict(zip(("sequence", "micro_batch"), SWEEP[size], strict=True)) | {"heads": _HEADS}
                job = load(Path(folder), ids, known)
            anchors[size] = job
    return anchors


def from_one(anchors: dict[int, RecordedJob]) -> list[Pair]:
    """Predict every batch size from every other one; what came once is left out of the truth."""
    without = {size: _recorded(job, stalls=False) for size, job in anchors.items()}
    return [
        _pair(f"bs{before} -> bs{after}", anchors[before], after, [], without[after])
        for before, after in _ordered(anchors)
    ]


def _ordered(anchors: dict[int, RecordedJob]) -> list[tuple[int, int]]:
    return list(permutations(sorted(anchors), 2))


def _recorded(job: RecordedJob, *, stalls: bool) -> dict[str, float]:
    """Return what a rank's one step took, ms; without `stalls`: replayed without them."""
    graph, replay = job.job.graphs[0], job.job.replay().replays[0]
    busy = step_rows.rows(estimated(job, Settings())).to_pylist()[0]["original_gpu_busy_ns"]
    step = int(replay.steps.high[0] - replay.steps.low[0])
    if not stalls:
        own, lag = without(graph, find(graph, shape=job.about.ranks[0].trace.dims.code))
        own = np.where(~graph.rows.on_gpu & (own > _STALL_NS), 0, own)
        calm = replace(graph, own=own, edges=replace(graph.edges, lag=np.where(lag > _STALL_NS, 0, lag)))
        again = replace(job.job, graphs=[calm], event_graph=event_graph([calm], job.job.instances)).replay()
        after = settled(again.replays[0], replay)
        step = int(after.high[0] - after.low[0])
    return {"step": step * 1e-6, "gpu_busy": busy * 1e-6}


def _pair(what: str, anchor: RecordedJob, size: int, siblings: list[RecordedJob], true: dict[str, float]) -> Pair:
    settings = Settings(numbers=dict(zip(("seq", "micro_batch"), SWEEP[size], strict=True)))
    row = step_rows.rows(estimated(anchor, settings, siblings=siblings)).to_pylist()[0]
    return _of_row(what, row, true)


def _of_row(what: str, row: dict[str, Any], true: dict[str, float]) -> Pair:
    predicted = {figure: row[f"{figure}_ns"] * 1e-6 for figure in _ANSWERED}
    return Pair(what, predicted, true, 1e3 * row["low_s"], 1e3 * row["high_s"], row.get("interval_from") or "")


def _say(name: str, pairs: list[Pair], *, told: bool) -> None:
    summary(name, pairs)
    for pair in pairs if told else ():
        print(pair)


NOISY: Final = {
    "four": Job(ranks=4, layers=6, jitter_ns=3_000),
    "host-bound": Job(ranks=4, layers=6, hidden=256, batch=2, jitter_ns=3_000, python_ns=6_000),
    "unfused": Job(ranks=2, layers=4, jitter_ns=3_000, unfused_attention=True, unfused_optimizer=True),
    "loader": Job(ranks=4, layers=4, jitter_ns=3_000, loader_ns=2_000_000, sleep_rank=1, sleep_ns=1_000_000),
}
_RECORDED_BY: Final = (0, 100, 200)
"""Seeds of the machines that each job is recorded on; other machines run the changed jobs."""
_FIELD_OF: Final = {"dp": "ranks", "layers": "layers", "micro_batch": "batch", "hidden": "hidden", "heads": "heads"}
MEGATRON: Final = Megatron(tp=2, pp=1, dp=2, layers=4, hidden=2048, ffn=8192, heads=16, noise=True, steps=2)
_FIELD_OF_MEGATRON: Final = {"batch": "micro_batches"} | {
    name: name for name in ("dp", "tp", "layers", "hidden", "ffn", "heads", "pp")
}


def emulated(*, told: bool) -> None:
    """Predict changed jobs of the emulator. `told`: print every pair."""
    pairs: list[Pair] = []
    for name, job in ((name, replace(job, seed=seed)) for seed in _RECORDED_BY for name, job in NOISY.items()):
        twice = {"hidden": 2 * job.hidden, "heads": 2 * job.heads, "ffn": 8 * job.hidden}
        changes: list[dict[str, Any]] = [{"dp": 2 * job.ranks}, {"layers": 2 * job.layers}, {"layers": job.layers // 2}]
        changes += [{"micro_batch": 2 * job.batch}, {"micro_batch": job.batch // 2}, twice, {"network": 0.5}, {}]
        pairs += _changed(name, job, changes)
    wide: dict[str, Any] = {"hidden": 3072, "heads": 24}
    changes = [{"dp": 4}, {"layers": 8}, {"layers": 2}, {"batch": 8}, wide, {"ffn": 4096}, {"tp": 4}, {"pp": 2}, {}]
    for seed in _RECORDED_BY:
        pairs += _changed("Megatron", replace(MEGATRON, seed=seed), changes)
    _say("emulated with noise, changed", [pair for pair in pairs if not pair.what.endswith("unchanged")], told=told)
    _say("emulated with noise, unchanged", [pair for pair in pairs if pair.what.endswith("unchanged")], told=told)


def _changed(name: str, job: Job | Megatron, changes: list[dict[str, Any]]) -> Iterator[Pair]:
    with tempfile.TemporaryDirectory() as folder:
        for texts, true in ran(job, changes, Path(folder)):
            try:
                yield predicted(name, Path(folder), texts, true)
            except LumosError as error:
                print(f"  {name}: {' '.join(texts)}: refused: {error}")


def ran(job: Job | Megatron, changes: list[dict[str, Any]], folder: Path) -> list[tuple[list[str], dict[str, float]]]:
    """Ingest a job of the emulator into `folder`, and return (settings, truth) of its own run of each changed job."""
    names = _FIELD_OF if isinstance(job, Job) else _FIELD_OF_MEGATRON
    with tempfile.TemporaryDirectory() as traces, _machines_that_differ():
        run = simulate(job) if isinstance(job, Job) else simulate_megatron(job)
        write(run, Profiler(memory=False, stacks=False), Path(traces) / "job")
        ingest([Path(traces) / "job"], folder, workers=1)
    truths = []
    for seed, change in enumerate(changes, job.seed + 1):
        texts = [f"{each}={value}" for each, value in change.items() if each != "network"]
        changed = replace(job, seed=seed, **{names[each]: change[each] for each in change.keys() & names.keys()})
        with _machines_that_differ(), _slower(change.get("network", 1.0)) as network:
            texts += [f"network={network}"] if "network" in change else []
            steps = simulate(changed).truth.steps if isinstance(changed, Job) else simulate_megatron(changed).steps
        truths.append((texts, _true(steps)))
    return truths


def predicted(name: str, corpus: Path, texts: list[str], true: dict[str, float]) -> Pair:
    """Predict the job of a corpus with settings. Raises as `estimate` does."""
    return _of_row(f"{name}: {' '.join(texts) or 'unchanged'}", _slowest(estimate(corpus, parse(texts))), true)


@contextmanager
def _machines_that_differ() -> Iterator[None]:
    """Let GPUs, and hosts of runs, be as fast as real ones differ, where nothing disturbs their hosts.

    Like kernels of eleven recorded jobs differ between GPUs by a standard deviation of 0.9 %; `tests.bench.host_runs`
    has 2.3 and 0.3 % of the calls of two machines.
    """
    with patch.object(hardware, "GPU_SPREAD", 0.009), patch.object(hardware, "HOST_SPREAD", 0.016):
        yield


@contextmanager
def _slower(share: float) -> Iterator[str]:
    """Give the emulator's links as --set network takes them, while they are so fast."""
    bytes_per_ns = share * hardware.BUS_BYTES_PER_NS
    with patch.object(hardware, "BUS_BYTES_PER_NS", bytes_per_ns):
        yield f"{bytes_per_ns * 1e9:g}"


def _slowest(table: Any) -> dict[str, Any]:
    """Return the rank that takes longest in the step of median length, its GPU's time the mean of all ranks'."""
    rows = pl.DataFrame(table)
    slowest = rows.sort("step_ns").group_by("step", maintain_order=True).last().sort("step_ns")
    row = slowest.row((len(slowest) - 1) // 2, named=True)
    return {**row, "gpu_busy_ns": rows["gpu_busy_ns"].mean()}


def _true(steps: tuple[StepTruth, ...]) -> dict[str, float]:
    table = pl.DataFrame([(step.step, step.step_ns, step.step_ns - step.idle_ns) for step in steps], orient="row")
    longest = table.group_by("column_0").agg(pl.max("column_1"))["column_1"].sort()
    busy = float(table["column_2"].to_numpy().mean())
    return {"step": longest[(len(longest) - 1) // 2] * 1e-6, "gpu_busy": busy * 1e-6}


def validated(*, told: bool) -> None:
    """Predict the runs in LUMOS_VALIDATE, named as tools/validate names them, from one another. `told`: every pair."""
    folder = os.environ.get("LUMOS_VALIDATE")
    if not folder:
        print("runs of tools/validate: none; name their folder in LUMOS_VALIDATE")
        return
    with tempfile.TemporaryDirectory() as corpus:
        ingest([Path(folder)], Path(corpus), workers=1)
        table = validate.predict(Path(corpus))
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_hide_dataframe_shape=True, float_precision=1, tbl_width_chars=200):
        if told:
            print(table)
        print(validate.summary(table))
    answered = table["inside"].drop_nulls()
    inside = 100 * float(answered.to_numpy().mean())
    print(f"runs of tools/validate: {len(answered)} of {len(table)} pairs answered, inside {inside:.0f} %")
