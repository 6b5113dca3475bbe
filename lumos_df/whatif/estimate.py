"""From a measured job to one that never ran: the graph that was recorded, changed, and run again."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from lumos_df.base.errors import LumosError, QueryError
from lumos_df.graph import host_speed
from lumos_df.graph.event_graph import event_graph, kept_members
from lumos_df.graph.job import Job, groups, jobs
from lumos_df.graph.switches import Change, meant
from lumos_df.graph.switches import changed as switched
from lumos_df.model.hardware import Hardware
from lumos_df.schema.codes import NONE
from lumos_df.schema.plan_words import DP
from lumos_df.structure import axes
from lumos_df.whatif import answerable
from lumos_df.whatif.answer import estimated_traces as traces
from lumos_df.whatif.answer import step_rows
from lumos_df.whatif.changed_job import ChangedJob
from lumos_df.whatif.durations import operator_times
from lumos_df.whatif.durations.draft_job import DraftJob
from lumos_df.whatif.durations.host_transfers import with_host_lags
from lumos_df.whatif.durations.kernel_times import KernelWork
from lumos_df.whatif.durations.missing_communication import with_missing
from lumos_df.whatif.durations.retimed_job import of_members, retimed
from lumos_df.whatif.durations.symbols import Symbols
from lumos_df.whatif.durations.unscaled import unscaled
from lumos_df.whatif.job import extent
from lumos_df.whatif.job.changed_sizes import changed_sizes, check_kind, check_passes, check_told
from lumos_df.whatif.job.job_warnings import extrapolated, unheard
from lumos_df.whatif.job.recorded_job import RecordedJob, load
from lumos_df.whatif.job.settings import IN_SHAPES, Settings
from lumos_df.whatif.job.usual_job import with_usual_host, without_stalls
from lumos_df.whatif.pipeline.staged_job import staged
from lumos_df.whatif.rewrite import recomputed_layers
from lumos_df.whatif.rewrite.rebuilt_job import rebuilt
from lumos_df.whatif.rewrite.recomputed_layers import without_recomputation
from lumos_df.whatif.rewrite.reduction_overlap import with_overlap
from lumos_df.whatif.rewrite.shared_updates import with_shared_updates


def estimate(  # noqa: PLR0913 - each is an option of the command
    corpus: Path,
    settings: Settings,
    *,
    trace: str | None = None,
    job: str | None = None,
    known: Mapping[str, int] | None = None,
    ran_on: Hardware | None = None,
    switches: Iterable[Change] = (),
    step: int | None = None,
    into: Path | None = None,
    force: bool = False,
    tell: Callable[[str], None] | None = None,
) -> pa.Table:
    """Change the jobs of a corpus and return one row a rank and step: the new job, and beside it the old one.

    Args:
        corpus: the corpus folder.
        settings: what changes.
        trace: only the job of this trace: its id, or the beginning of it.
        job: only the job of this name.
        known: dimensions and degrees of the job that hold whatever its traces say.
        ran_on: the GPU that it ran on, likewise.
        switches: what else changes: those of `lumos-df replay`.
        step: only this step.
        into: a corpus to store the new jobs in; may be the same.
        force: also estimate what is mostly guessed, and jobs whose replay is far off.
        tell: called with why one of several jobs cannot change so, where another can; without it that is raised.

    Raises:
        LumosError: no such corpus, trace, job or step; a change that the trace cannot support, or that changes nothing.
    """
    changed_jobs = estimates(
        corpus, settings, trace, job, known or {}, tuple(switches), ran_on=ran_on, force=force, tell=tell
    )
    tables = [step_rows.rows(changed_job, step) for changed_job in changed_jobs]
    if into is not None:
        for changed_job in changed_jobs:
            traces.write(changed_job, corpus, into, str(settings) or "unchanged")
    table = pa.concat_tables(tables) if tables else step_rows.empty()
    if step is not None and not len(table):
        raise QueryError(
            f"{corpus}: no step {step}; see: lumos-df sql 'SELECT trace_id, step FROM step' --corpus {corpus}"
        )
    return table


def estimates(  # noqa: PLR0913 - as `estimate`
    corpus: Path,
    settings: Settings,
    trace: str | None,
    job: str | None,
    known: Mapping[str, int],
    switches: tuple[Change, ...],
    *,
    ran_on: Hardware | None = None,
    force: bool = False,
    tell: Callable[[str], None] | None = None,
) -> list[ChangedJob]:
    """Return the changed jobs of a corpus; see `estimate`."""
    made: list[ChangedJob] = []
    refused: dict[str, list[str]] = {}
    for ids in groups(corpus, trace, job):
        try:
            anchor, siblings = load(corpus, ids, known, ran_on), _siblings(corpus, ids, known, ran_on)
            made.append(_with_effects(anchor, settings, switches, siblings, force=force))
        except LumosError as refusal:
            if tell is None:
                raise
            # Several runs of one job cannot for the same reason.
            refused.setdefault(str(refusal), []).append(ids[0])
    told = list(_of_runs(corpus, refused)) if refused else []
    if told and not made:
        more = sum(map(len, refused.values())) - 1
        others = f"; {more} more cannot, either: see each by --job NAME, or --trace ID" if more else ""
        raise QueryError(f"{told[0]}{others}")
    if tell is not None:
        for other in told:
            tell(other)
    return made


def _of_runs(corpus: Path, refused: Mapping[str, list[str]]) -> Iterator[str]:
    """Give each refusal of runs, by their first traces, with the first of these where others have their job's name."""
    names = Counter(each.name for each in jobs(corpus))
    alone = {each.trace_ids[0] for each in jobs(corpus) if names[each.name] == 1}
    for why, ids in refused.items():
        more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        yield why if ids[0] in alone else f"{why} (trace {ids[0]}{more})"


def _siblings(corpus: Path, ids: list[str], known: Mapping[str, int], ran_on: Hardware | None) -> list[RecordedJob]:
    """Return the same job at other sizes: traces of the same rank and job that did not run together."""
    if len(ids) > 1:
        return []
    found = jobs(corpus)
    name = next(job.name for job in found if job.trace_ids == ids)
    return [
        load(corpus, job.trace_ids, known, ran_on)
        for job in found
        if job.name == name and len(job.trace_ids) == 1 and job.trace_ids != ids
    ]


def _with_effects(
    anchor: RecordedJob,
    settings: Settings,
    switches: tuple[Change, ...],
    siblings: list[RecordedJob],
    *,
    force: bool,
) -> ChangedJob:
    """Return a changed job that says which settings have no effect. Raise `QueryError` where none has."""
    whole = estimated(anchor, settings, switches, siblings, force=force)
    if anchor.unmeasured:
        return whole
    said = []
    for name in settings.values():
        try:
            one_less = _rescheduled(anchor, settings.without(name), switches, siblings, usual_host=True)
            other = with_missing(one_less).job
        except LumosError:
            continue  # The others cannot be without it.
        if answerable.same(other.event_graph, whole.job.event_graph):
            said.append(answerable.without_effect(anchor, whole.plan, settings, name))
    if said and len(said) == len(settings.values()):
        raise QueryError(f"{anchor.about.job}: {'; '.join(said)}")
    return replace(whole, warnings=[*said, *whole.warnings])


def estimated(
    anchor: RecordedJob,
    settings: Settings,
    switches: tuple[Change, ...] = (),
    siblings: Iterable[RecordedJob] = (),
    *,
    force: bool = False,
) -> ChangedJob:
    """Return a changed job. Raise `QueryError` for a change that its trace cannot support.

    Args:
        anchor: the job.
        settings: what changes.
        switches: what else changes, before everything else.
        siblings: the same model at other sizes.
        force: also what is mostly guessed, and a job whose replay is far off.
    """
    played = anchor.job.replay()
    warnings = list(anchor.warnings)
    if settings or switches:
        warnings += answerable.check_replay(anchor, played, force=force)
    else:
        settings = replace(settings, keep_stalls=True)
    made = _rescheduled(anchor, settings, switches, siblings, usual_host=bool(settings))
    answerable.check_gpu(anchor, settings, force=force)
    warnings += answerable.check_layers(anchor, settings, force=force)
    guessed = [unscaled(anchor, made.change, rank) for rank in range(len(anchor.job.graphs))]
    part = answerable.unscaled(anchor, guessed)
    if made.change.keeps_work:
        warnings = part.by_family(settings.hardware or "") + warnings
        guessed, part = [np.full_like(each, NONE) for each in guessed], answerable.Unscaled(0.0, 0.0, ())
    warnings = answerable.check_unscaled(anchor, part, force=force) + warnings + made.warnings
    answerable.check_transfers(anchor, made.base, made.unscaled_transfers_ns, force=force)
    warnings += extrapolated(made.times, played, made.sources, made.makers) + unheard(anchor, made.change)
    made = with_missing(replace(made, warnings=warnings))
    return ChangedJob(
        anchor=anchor,
        played=played,
        usual=played if made.base is anchor.job else made.base.replay(),
        plan=made.change,
        job=made.job,
        times=made.times,
        transfer_error=made.transfer_error,
        sources=made.sources,
        makers=made.makers,
        again=made.again,
        slowed=made.slowed,
        after=made.job.replay(),
        unscaled=guessed,
        unscaled_share=part,
        between_runs=host_speed.between_runs([made.base.graphs[0], *(other.job.graphs[0] for other in siblings)]),
        warnings=made.warnings,
        stand_in=made.stand_in,
    )


def _rescheduled(
    anchor: RecordedJob,
    settings: Settings,
    switches: tuple[Change, ...],
    siblings: Iterable[RecordedJob],
    *,
    usual_host: bool,
) -> DraftJob:
    about = anchor.about
    check_passes(about, settings)
    check_told(about, settings)
    check_kind(about, settings, shapes=anchor.records_shapes)
    new = changed_sizes(about.job, anchor.sizes, settings, shapes=anchor.records_shapes)
    extent.check(anchor, new, settings.batch_scale)
    change = operator_times.plan(anchor, new, settings)
    shapes = [rank.trace.dims.code for rank in about.ranks]
    beside = [other.job.graphs[0] for other in siblings]
    base, warnings = (anchor.job, []) if settings.keep_stalls else without_stalls(anchor.job, shapes, beside)
    job = _switched(base, switches, about.job)
    if beside and usual_host:
        job, told = with_usual_host(job, anchor.job.graphs[0], beside)
        warnings += told
    others = [_measured(other, change) for other in siblings if _sized_alike(anchor, other)] if settings else []
    times = [operator_times.times(anchor, change, rank, graph.own, others) for rank, graph in enumerate(job.graphs)]
    job, times = with_host_lags(anchor, change, job, times)
    job, transfer_error, each, told, stand_in = retimed(anchor, change, job, times)
    warnings += told
    unscaled_ns = sum(int(graph.own[of.row[of.unscaled]].sum()) for graph, of in zip(base.graphs, each, strict=False))
    before, wanted = recomputed_layers.recorded(about.ranks[0]), settings.recompute or ""
    if wanted and wanted == before != recomputed_layers.NOTHING:
        raise QueryError(
            f"{about.job}: recompute={wanted} changes nothing, because the job computes as much again already"
        )
    # Attention that runs again in whole layers needs not to be added.
    repeats = wanted in (recomputed_layers.ATTENTIONS, recomputed_layers.LAYERS) and before != recomputed_layers.LAYERS
    if wanted and (before != recomputed_layers.NOTHING or not repeats):
        job = without_recomputation(job, about.ranks, wanted if not repeats else recomputed_layers.NOTHING)
        times = [replace(time, own=graph.own) for time, graph in zip(times, job.graphs, strict=True)]
    shared = with_shared_updates(job, anchor, change)
    if shared is not job:
        job = shared
        times = [replace(time, own=graph.own) for time, graph in zip(times, job.graphs, strict=True)]
    if settings.overlap is not None:
        job = _overlapped(anchor, job, on=settings.overlap)
    draft = DraftJob(
        anchor=anchor,
        change=change,
        base=base,
        job=job,
        times=times,
        transfer_error=transfer_error,
        sources=[np.arange(len(graph.rows), dtype=np.int32) for graph in job.graphs],
        makers=[(rank,) for rank in range(len(job.graphs))],
        again=[np.zeros(len(graph.rows), np.bool_) for graph in job.graphs],
        warnings=warnings,
        repeats=repeats,
        unscaled_transfers_ns=unscaled_ns,
        stand_in=stand_in,
    )
    batched = (anchor.sizes.pp or 1) > 1 and new.batch != anchor.sizes.batch
    if (new.pp or 1) != (anchor.sizes.pp or 1) or batched or settings.schedule or new.vp > 1:
        if repeats:
            raise QueryError(
                f"{about.job}: recompute={wanted} goes with no change of a pipeline; ask for one at a time"
            )
        return staged(draft)
    if (new.layers, new.batch) != (anchor.sizes.layers, anchor.sizes.batch) or repeats:
        return rebuilt(draft)
    if job is not anchor.job:
        return replace(draft, job=replace(job, event_graph=event_graph(job.graphs, job.instances)))
    return draft


def _switched(job: Job, switches: tuple[Change, ...], name: str) -> Job:
    """Return a job whose durations and lags the switches of `lumos-df replay` have changed."""
    if not switches:
        return job
    for switch, is_meant in zip(switches, meant(job.graphs, list(switches)), strict=True):
        if not is_meant:
            raise QueryError(f"{name}: no operator is meant by '{switch.selector}'")
    net = switched(job.event_graph, job.graphs, list(switches))
    bounds = np.cumsum([0, *(len(graph.edges) for graph in job.graphs)])
    graphs = [
        replace(
            graph,
            own=net.own[net.base[rank] : net.base[rank + 1]],
            edges=replace(graph.edges, lag=net.lag[bounds[rank] : bounds[rank + 1]]),
        )
        for rank, graph in enumerate(job.graphs)
    ]
    instances = job.instances and of_members(
        replace(job.instances, transfer=net.transfer), kept_members(net, job.instances)
    )
    return Job(graphs, instances, net)


def _overlapped(anchor: RecordedJob, job: Job, *, on: bool) -> Job:
    graphs = []
    for rank, graph in enumerate(job.graphs):
        row, degree = operator_times.collectives(anchor, rank)
        graphs.append(with_overlap(graph, anchor.about.ranks[rank].structure, row[degree == DP], on=on))
    return replace(job, graphs=graphs)


def _sized_alike(anchor: RecordedJob, other: RecordedJob) -> bool:
    """Return whether the same sizes of both jobs are known, and their experts have the same matrices."""
    matrices, others = (job.sizes.routing and job.sizes.routing.weights for job in (anchor, other))
    return matrices == others and all(
        (getattr(anchor.sizes, name) is None) == (getattr(other.sizes, name) is None) for name in (*IN_SHAPES, "tp")
    )


def _measured(other: RecordedJob, change: operator_times.PlannedChange) -> KernelWork:
    """Return what the same model's kernels took at another size, and what becomes of them."""
    about, sizes, batch = other.about.ranks[0], other.sizes, change.symbols.batch
    known = axes.follow(about.trace, about.structure.phase, sizes.micro_batch, sizes.rank_seq)
    symbols = Symbols(sizes, change.new, batch and (sizes.micro_batch or 1, batch[1]))
    return operator_times.work_of(other, change, 0, symbols, known, change.runs_on)
