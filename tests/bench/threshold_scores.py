"""What thresholds are judged by: the errors of replays, predictions, matched collectives, structures and changed jobs.

The recorded traces are those of LUMOS_TRACES; what they cannot tell, emulated and made jobs do, whose truth is known.
"""

import gzip
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from lumos_df.advice.ranked_advice import ranked
from lumos_df.advice.rules import RULES
from lumos_df.calibrate.corpus_machine import machine_of
from lumos_df.calibrate.nearest_shapes import estimate_kernels
from lumos_df.calibrate.scoreboard import scoreboard
from lumos_df.graph import replay_warnings
from lumos_df.graph.gains import gains
from lumos_df.graph.host_work import host_work
from lumos_df.graph.job import build, groups, load
from lumos_df.graph.replayed_tables import step_columns
from lumos_df.graph.rows import Rows, read
from lumos_df.graph.steps import steps
from lumos_df.schema import STEP_PARTS
from lumos_df.schema.codes import NONE
from lumos_df.structure import labelled_rows
from lumos_df.structure.describe import DescribedRank, of_traces
from lumos_df.structure.labelled_rows import Trace
from lumos_df.trace.ingest import ingest
from lumos_df.whatif.answer import step_rows
from lumos_df.whatif.estimate import estimate, estimated
from lumos_df.whatif.job import recorded_job
from lumos_df.whatif.job.settings import Settings, parse
from tests.advice import test_fused_elementwise, test_unfused_attention
from tests.advice.emulated import advised, true_gain_ns
from tests.bench import whatif_truth
from tests.calibrate.test_measured_runs import TRUTH
from tests.calibrate.test_nearest_shapes import calls_of
from tests.emulator import Job as Emulated
from tests.emulator import Profiler, simulate, write
from tests.emulator.hardware import DEVICE
from tests.emulator.job import Waits
from tests.emulator.megatron import Megatron
from tests.graph.test_truth import BRIEF, CHANGES, FASTER, FULL_QUEUE, JOBS, NOISY, Change, errors, recorded
from tests.graph.test_truth_recordings import BARRIERS
from tests.graph.test_waiting_calls import BESIDE_ROOM, beside_room, full_queue, step_us
from tests.real import REAL, SETS
from tests.structure import made, test_made, test_real
from tests.structure.test_repetition import BLOCKS, period_of
from tests.whatif.conftest import emulate
from tests.whatif.hosted import HostJob
from tests.whatif.hosted import write as write_hosted
from tests.whatif.test_emulated import cleared_ns
from tests.whatif.test_real import SWEEP

_ROOT: Final = Path(__file__).parents[2]
SAMPLES: Final = ("gpu_generated", "cpu_ddp")
_RUNS: Final = 3
"""Of every set are calibrated on."""
_OFFSETS_NS: Final = (0, 1_000_000, -2_000_000, 400_000)
_WAITS: Final[tuple[Waits, ...]] = ("called", "unseen")
_MODELLED: Final = Emulated(ranks=2, layers=4, steps=2)
_HOST_CHANGES: Final[tuple[tuple[tuple[str, ...], dict[str, Any]], ...]] = (
    (("hidden=256", "ffn=1024", "heads=16"), {"hidden": 256}),
    (("micro_batch=6",), {"batch": 6}),
    (("seq=192",), {"sequence": 192}),
)

_NOISY_CHANGES: Final[tuple[tuple[Emulated | Megatron, list[dict[str, Any]]], ...]] = (
    (whatif_truth.NOISY["four"], [{"dp": 8}, {"layers": 12}, {"micro_batch": 8}, {"network": 0.5}]),
    (whatif_truth.NOISY["host-bound"], [{"dp": 8}, {"layers": 3}]),
    (replace(whatif_truth.NOISY["host-bound"], steps=1), [{"dp": 8}, {"layers": 12}]),
    (whatif_truth.MEGATRON, [{"dp": 4}, {"tp": 4}, {"pp": 2}, {"batch": 8}]),
)

Scores = dict[str, float]


@dataclass(frozen=True, slots=True)
class Score:
    """How a score is called, and what it says."""

    unit: str
    what: str


SCORES: Final = {
    "step": Score("%", "mean error of replayed steps"),
    "worst step": Score("%", "worst error of a replayed step"),
    "unexplained": Score("%", "mean time of a step that no edge explains"),
    "late start": Score("%", "99th percentile of the errors of operators' starts, of the step, mean of all steps"),
    "worst part": Score("%", "worst error of a part of a step, of the step"),
    "second step": Score("%", "mean error of replayed steps of the second set"),
    "second worst step": Score("%", "worst error of such a step"),
    "second unexplained": Score("%", "mean time of such a step that no edge explains"),
    "second late start": Score("%", "99th percentile of the errors of its operators' starts, mean of all steps"),
    "second worst part": Score("%", "worst error of a part of such a step, of the step"),
    "prediction": Score("%", "worst error of any step of emulated jobs that is predicted for a change"),
    "mean prediction": Score("%", "worst error of such a step, mean of the jobs and of what their profilers tell"),
    "queue": Score("%", "worst error of a literal step of long launch calls that is predicted for faster kernels"),
    "device clock": Score("%", "worst error of such a prediction of an emulated job whose GPU's clock is 700 us off"),
    "unmatched": Score("%", "kernels of an emulated job's collectives that are matched wrongly or not at all"),
    "clock": Score("us", "worst error of an emulated clock's offset"),
    "warnings": Score("", "warnings about recorded steps"),
    "gains": Score("", "names and families of which gains are listed, of a sample"),
    "wrong facts": Score("", "dimensions and degrees of made and recorded jobs that are told wrongly"),
    "wrong kernels": Score("%", "kernels of made jobs that are put into a wrong layer or micro-batch"),
    "sweep kernels": Score("%", "mean error of the kernels of a recorded batch, summed, by those of other batches"),
    "worst sweep kernels": Score("%", "worst error of such a sum"),
    "machine": Score("%", "mean error of a trace's products and passes where the machine is calibrated on that trace"),
    "calibrated": Score("%", "mean over the sets of measured runs of their mean error, calibrated on three of a set"),
    "gain": Score("%", "worst error of a gain of the emulated jobs with unfused formulas and attention"),
    "outside": Score("", "such gains that do not lie where the advice says"),
    "advice": Score("", "what is advised on these jobs"),
    "missed blocks": Score("", "literal sequences whose block is not found"),
    "cleared": Score("%", "error of the time in which an emulated job of twice the layers clears its gradients"),
    "batch": Score("%", "mean error of the GPU's time of a recorded batch that others tell"),
    "worst batch": Score("%", "worst error of such a time"),
    "host": Score("%", "worst error of a changed emulated job without a GPU"),
    "changed": Score("%", "mean error of the steps of changed emulated jobs with noise"),
    "held": Score("%", "such steps that lie in the interval that is told of them"),
    "width": Score("%", "half the width of these intervals, mean"),
    "held batch": Score("%", "recorded batch sizes that lie in the interval that another size tells of them"),
    "batch width": Score("%", "half the width of these intervals, mean"),
    "modelled width": Score("%", "the same of emulated jobs on more ranks, whose recordings tell nothing of links"),
    "counted": Score("", "ranks and steps of recorded jobs whose FLOP are counted"),
}

Measure = Callable[[], Scores]


def corpus_of(folder: Path) -> Path:
    """Ingest the samples and the recorded traces into a folder; return the corpus."""
    samples = [_ROOT / "data" / "traces" / name for name in SAMPLES]
    ingest([*samples, *([REAL] if REAL.is_dir() else [])], folder / "recorded", workers=1)
    return folder / "recorded"


def second_of(folder: Path) -> Path:
    """Ingest the second set of recorded traces into a folder; return the corpus."""
    assert not ingest(list(SETS[1:]), folder / "second", workers=1).failed
    return folder / "second"


def replays(corpus: Path, which: str = "") -> Measure:
    """Return what measures the replays of all jobs of a corpus, of the second set if it is `which`."""
    jobs = [[read(corpus, trace_id) for trace_id in ids] for ids in groups(corpus)]

    def measure() -> Scores:
        stepwise: list[dict[str, Any]] = [
            step_columns(replay, []) for ranks in jobs for replay in build(ranks).replay().replays
        ]
        column = {
            name: np.concatenate([columns[name] for columns in stepwise]) for name in stepwise[0] if "_ns" in name
        }
        whole = column["recorded_ns"]
        share = {name: 100 * values[whole > 0] / whole[whole > 0] for name, values in column.items()}
        error = np.abs(share["replayed_ns"] - 100)
        parts = [np.abs(share[f"{part.name}_ns_replayed"] - share[f"{part.name}_ns_recorded"]) for part in STEP_PARTS]
        return {
            f"{which}step": float(error.mean()),
            f"{which}worst step": float(error.max()),
            f"{which}unexplained": float(share["unexplained_ns"].mean()),
            f"{which}late start": float(share["start_error_p99_ns"].mean()),
            f"{which}worst part": float(np.max(parts)),
        }

    return measure


def predictions(folder: Path) -> Measure:
    """Return what measures predictions about emulated jobs against the same jobs with the change."""
    cases: list[tuple[Emulated, list[Change]]] = [
        *((job, CHANGES) for job in (*JOBS.values(), NOISY["late launches"], BARRIERS["prefetch"])),
        (FULL_QUEUE, FASTER),
    ]
    jobs = []
    for number, (job, changes) in enumerate(cases):
        for waits in _WAITS:
            graphs = recorded(folder / f"{number} {waits}", job, waits).graphs
            jobs.append(([graph.rows for graph in graphs], job, changes))

    def measure() -> Scores:
        worst = [max(errors(build(ranks), job, changes).values()) for ranks, job, changes in jobs]
        return {"prediction": 100 * max(worst), "mean prediction": 100 * float(np.mean(worst))}

    return measure


def queues(folder: Path) -> Measure:
    """Return what measures predictions about launch calls that wait for room in a queue, and that take long beside it.

    Kernels that take half their time halve what launches wait for room, and nothing else.
    """
    full = full_queue(folder / "full")
    waiting = 10_100 - 100 * 50
    beside = [beside_room(folder / f"beside {number}", *one) for number, one in enumerate(BESIDE_ROOM)]
    jobs = [(full, waiting), *((job, step_us(job)) for job in beside)]
    ranks = [([graph.rows for graph in job.graphs], truth) for job, truth in jobs]

    def measure() -> Scores:
        told = [(step_us(build(rows), "family=gemm:0.5"), truth) for rows, truth in ranks]
        return {"queue": max(100 * abs(step / truth - 1) for step, truth in told)}

    return measure


def device_clocks(folder: Path) -> Measure:
    """Return what measures predictions about an emulated job whose GPU's clock is far off the host's."""
    job = JOBS["gpu"]
    recorded(folder, job, "called", replace(BRIEF, gpu_offsets_ns=(700_000, -700_000)))
    (ids,) = groups(folder / "corpus")
    # The clock is told where a trace is read.
    return lambda: {"device clock": 100 * max(errors(load(folder / "corpus", ids), job, CHANGES).values())}


def matching(folder: Path) -> Measure:
    """Return what measures how collectives are matched whose clocks differ and of which nothing was numbered.

    Two ranks began or ended their recordings within a step: collectives of theirs are missing, of the one 40 of 100.
    """
    profiler = Profiler(collective_args=False, clock_offsets_ns=_OFFSETS_NS)
    ranks = _emulated(folder, Emulated(ranks=4, layers=4, steps=20), profiler)
    ranks = [
        ranks[0],
        _without_collectives(ranks[1], slice(0, 40)),
        _without_collectives(ranks[2], slice(-4, None)),
        ranks[3],
    ]

    def true_ends(number: int) -> np.ndarray:
        rows = ranks[number]
        return rows.end + rows.clock_origin - _OFFSETS_NS[number]

    kernels = [np.flatnonzero(rows.on_gpu & (rows.collective >= 0)) for rows in ranks]
    ends = np.concatenate([true_ends(number)[row] for number, row in enumerate(kernels)])
    _, group, size = np.unique(np.round(ends / 1000), return_inverse=True, return_counts=True)
    total = int((size[group] > 1).sum())

    def measure() -> Scores:
        instances = build(ranks).instances
        assert instances is not None
        every = [true_ends(number) for number in range(len(ranks))]
        end = np.array([every[trace][row] for trace, row in zip(instances.trace, instances.row, strict=True)])
        first = np.full(len(instances.transfer), np.iinfo(np.int64).max)
        np.minimum.at(first, instances.instance, end)
        right = int((end - first[instances.instance] < 2000).sum())
        apart = [abs(clock.offset_ns - true) for clock, true in zip(instances.clocks, _OFFSETS_NS, strict=True)]
        return {"unmatched": 100 * (1 - right / total), "clock": max(apart) / 1000}

    return measure


def _without_collectives(rows: Rows, which: slice) -> Rows:
    """Make some collectives of a rank kernels like any other."""
    kernels = np.flatnonzero(rows.on_gpu & (rows.collective >= 0))[which]
    collective = rows.collective.copy()
    collective[kernels] = NONE
    return replace(rows, collective=collective)


def _emulated(folder: Path, job: Emulated, profiler: Profiler) -> list[Rows]:
    write(simulate(job), profiler, folder / "traces")
    corpus = folder / "corpus"
    assert not ingest([folder / "traces"], corpus, workers=1).failed
    return [read(corpus, trace_id) for trace_id in groups(corpus)[0]]


def warnings(corpus: Path) -> Measure:
    """Return what counts the warnings about steps of a corpus."""
    traces = [read(corpus, trace_id) for ids in groups(corpus) for trace_id in ids]
    return lambda: {
        "warnings": sum(len(of_step) for rows in traces for of_step in replay_warnings.of_steps(rows, steps(rows)))
    }


def gaining(corpus: Path) -> Measure:
    """Return what counts the gains of a job."""
    ranks = [read(corpus, trace_id) for trace_id in groups(corpus)[0]]

    def measure() -> Scores:
        job = build(ranks)
        works = [host_work(graph) for graph in job.graphs]
        return {"gains": sum(len(of_trace.selectors) for of_trace in gains(job, job.replay(), works))}

    return measure


def structures(folder: Path, corpus: Path) -> Measure:
    """Return what counts what is told wrongly of made and recorded jobs."""
    truths = {name: made.write(job, folder / "traces" / name) for name, job in test_made.JOBS.items()}
    made_corpus = folder / "corpus"
    assert not ingest([folder / "traces"], made_corpus, workers=1).failed
    known = {trace[0].rows.job: trace for trace in _traces(made_corpus)}
    named = {f"{trace[0].rows.job}/{Path(trace[0].rows.path).name.split('.')[0]}": trace for trace in _traces(corpus)}

    def measure() -> Scores:
        wrong, kernels, wrong_kernels = 0, 0, 0
        for name, traces in known.items():
            about = of_traces(traces, {})
            if name in test_made.TOLD:
                wrong += sum(about.facts[fact].value != value for fact, value in test_made.facts_of(name).items())
            for rank in about.ranks:
                truth = truths[name][rank.trace.rows.rank]
                kernels += len(truth)
                wrong_kernels += _wrong_kernels(rank, truth)
        for name, traces in named.items():
            about = of_traces(traces, {})
            wrong += sum(about.facts[fact].value != value for fact, value in test_real.KNOWN.get(name, {}).items())
        missed = sum(period_of(block, repeats) != len(block) for block, repeats in BLOCKS)
        return {"wrong facts": wrong, "wrong kernels": 100 * wrong_kernels / kernels, "missed blocks": missed}

    return measure


def kernels(folder: Path) -> Measure:
    """Return what measures kernels that follow from those of other batches, and a machine calibrated on one's own."""
    files = {name: REAL / "transformer_batch_sweep" / f"{name}.json.gz" for name in SWEEP}
    corpora: dict[tuple[str, ...], Path] = {}
    for names in (*combinations(SWEEP, 1), *combinations(SWEEP, 2)):
        corpora[names] = folder / "-".join(names)
        assert not ingest([files[name] for name in names], corpora[names], workers=1).failed
    calls = {name: calls_of(corpora[name,]) for name in SWEEP}

    def measure() -> Scores:
        apart = []
        for names, corpus in corpora.items():
            for name in SWEEP.keys() - names:
                told = estimate_kernels(corpus, calls[name].drop("dur"))["kernel_ns"].sum()
                apart.append(100 * abs(float(told) / float(calls[name]["dur"].sum()) - 1))
        findings = [finding for name in SWEEP for finding in machine_of(corpora[name,]).findings]
        own = [finding.error_after_pct for finding in findings if finding.error_after_pct is not None]
        mean, machine = float(np.mean(apart)), float(np.mean(own))
        return {"sweep kernels": mean, "worst sweep kernels": max(apart), "machine": machine}

    return measure


def calibrations() -> Measure:
    """Return what measures estimates of measured runs, calibrated on the first draw of three of every set."""
    return lambda: {"calibrated": float(np.mean([score.mape_pct for score in scoreboard(TRUTH, (), _RUNS, 0)]))}


def advising(folder: Path) -> Measure:
    """Return what measures the gains of emulated jobs against the same jobs without what is wrong."""
    wrong = {
        "fused_elementwise": (test_fused_elementwise.CHAIN, test_fused_elementwise.FUSED),
        "unfused_attention": (test_unfused_attention.UNFUSED, test_unfused_attention.FUSED),
    }
    jobs = {rule: advised(folder / rule, job).job for rule, (job, _) in wrong.items()}

    def measure() -> Scores:
        apart, outside, count = [], 0, 0
        for rule, job in jobs.items():
            truth = true_gain_ns(*wrong[rule])
            every = ranked(job, [remedy for remedies in RULES for remedy in remedies(job)])
            count += sum(advice.worthwhile for advice in every)
            gains = [(advice.gain_ns, advice.low_ns, advice.high_ns) for advice in every if advice.remedy.rule == rule]
            gain, low, high = gains[0] if gains else (0.0, 0.0, 0.0)
            apart.append(100 * abs(gain / truth - 1))
            outside += not low <= truth <= high
        return {"gain": max(apart), "outside": outside, "advice": count}

    return measure


def changes(folder: Path) -> Measure:
    """Return what measures changed jobs: batches of a transformer by those of others, and made jobs without a GPU."""
    batches = {name: REAL / "transformer_batch_sweep" / f"{name}.json.gz" for name in SWEEP}
    corpora: dict[tuple[str, ...], Path] = {}
    for names in (*combinations(SWEEP, 1), *combinations(SWEEP, 2)):
        corpora[names] = folder / "-".join(names)
        assert not ingest([batches[name] for name in names], corpora[names], workers=1).failed
    truth = {name: _first(corpora[name,], "gpu_busy_ns") for name in SWEEP}
    hosted = folder / "hosted"
    on_host = HostJob(cached=True)
    assert not ingest([write_hosted(on_host, folder / "job")], hosted, workers=1).failed
    trained = emulate(folder / "six layers", Emulated(ranks=1, layers=6))
    cleared = cleared_ns(emulate(folder / "twelve layers", Emulated(ranks=1, layers=12)))

    def measure() -> Scores:
        apart = []
        for names, corpus in corpora.items():
            for name in SWEEP.keys() - names:
                sequence, batch = SWEEP[name]
                told = _first(corpus, "gpu_busy_ns", f"seq={sequence}", f"micro_batch={batch}")
                apart.append(100 * abs(told / truth[name] - 1))
        host = [
            100 * abs(_first(hosted, "step_ns", *texts) / (1000 * replace(on_host, **changed).step_us()) - 1)
            for texts, changed in _HOST_CHANGES
        ]
        with TemporaryDirectory() as made:
            estimate(trained, parse(["layers=12"]), into=Path(made) / "corpus")
            clearing = 100 * abs(cleared_ns(Path(made) / "corpus") / cleared - 1)
        return {"batch": float(np.mean(apart)), "worst batch": max(apart), "host": max(host), "cleared": clearing}

    return measure


def intervals(folder: Path) -> Measure:
    """Return what measures steps of changed emulated jobs with noise, and whether their intervals hold the truth."""
    jobs = [
        (folder / str(number), whatif_truth.ran(job, changes, folder / str(number)))
        for number, (job, changes) in enumerate(_NOISY_CHANGES)
    ]

    def measure() -> Scores:
        pairs = [whatif_truth.predicted("", corpus, *case) for corpus, truths in jobs for case in truths]
        return {
            "changed": float(np.mean([abs(pair.error("step")) for pair in pairs])),
            "held": 100 * float(np.mean([pair.inside for pair in pairs])),
            "width": float(np.mean([pair.half_width for pair in pairs])),
        }

    return measure


def recorded_intervals() -> Measure:
    """Return what measures whether recorded batch sizes lie in the intervals that other sizes tell of them."""
    anchors = whatif_truth.batch_sizes()

    def measure() -> Scores:
        pairs = whatif_truth.from_one(anchors)
        return {
            "held batch": 100 * float(np.mean([pair.inside for pair in pairs])),
            "batch width": float(np.mean([pair.half_width for pair in pairs])),
        }

    return measure


def modelling(folder: Path) -> Measure:
    """Return what measures intervals of answers that rest on a network model alone.

    Of a job on one GPU that is spread over two, and of one on a GPU that nobody knows, whose collectives tell no bytes.
    """
    write(simulate(replace(_MODELLED, ranks=1)), Profiler(memory=False, stacks=False), folder / "alone")
    write(simulate(_MODELLED), Profiler(memory=False, stacks=False, collective_args=False), folder / "unknown")
    for file in (folder / "unknown").iterdir():
        told = gzip.decompress(file.read_bytes()).replace(DEVICE.name.encode(), b"unheard of")
        file.write_bytes(gzip.compress(told))
    corpora = [folder / name / "corpus" for name in ("alone", "unknown")]
    for corpus in corpora:
        assert not ingest([corpus.parent], corpus, workers=1).failed

    def measure() -> Scores:
        rows = [estimate(corpus, parse(["dp=4"])).to_pylist()[0] for corpus in corpora]
        return {
            "modelled width": float(np.mean([5e10 * (row["high_s"] - row["low_s"]) / row["step_ns"] for row in rows]))
        }

    return measure


def counting(recorded: list[Path]) -> Measure:
    """Return what measures of how many ranks of the recorded jobs of some corpora FLOP are counted."""
    jobs = [recorded_job.load(corpus, ids, {}) for corpus in recorded for ids in groups(corpus)]

    def measure() -> Scores:
        told = [step_rows.rows(estimated(job, Settings()))["flops_from"].to_pylist() for job in jobs]
        return {"counted": sum(ranks.count("recorded") for ranks in told)}

    return measure


def _first(corpus: Path, column: str, *texts: str) -> float:
    """Return a figure of the first step of a corpus's job after a change."""
    return float(estimate(corpus, parse([*texts]))[column][0].as_py())


def _traces(corpus: Path) -> list[list[Trace]]:
    return [[labelled_rows.load(corpus, trace_id) for trace_id in ids] for ids in groups(corpus)]


def _wrong_kernels(rank: DescribedRank, truth: list[made.Truth]) -> int:
    row = test_made.kernels_of(rank)
    layer = np.array([NONE if one.layer is None else one.layer for one in truth])
    batch = np.array([NONE if one.micro_batch is None or one.layer is None else one.micro_batch for one in truth])
    wrong = rank.structure.layer[row] != layer
    return int((wrong | ((batch >= 0) & (rank.structure.micro_batch[row] != batch))).sum())
