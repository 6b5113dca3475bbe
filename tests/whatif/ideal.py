"""Traces in which every layer takes the same and the host is always ahead, and the schedule's arithmetic of them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from lumos_df.graph.job import groups
from lumos_df.model.hardware import Hardware, ScaleOut, ScaleUp
from lumos_df.schema.codes import COMMUNICATION, KERNEL
from lumos_df.schema.plan_words import DUALPIPE
from lumos_df.whatif.changed_job import ChangedJob
from lumos_df.whatif.estimate import estimated
from lumos_df.whatif.job.recorded_gpu import RecordedGpu
from lumos_df.whatif.job.recorded_job import load
from lumos_df.whatif.job.settings import parse
from tests.model.pipeline import Pipeline, twin
from tests.model.roofs import GPU
from tests.structure.made import Made, Rank, Truth
from tests.whatif.conftest import ingested

FORWARD_US, INPUT_US, WEIGHT_US = 1000.0, 1200.0, 700.0
"""What a layer takes: its forward, and its gradients of inputs and of weights."""
SENT_US = 300.0
"""What sends and receives take that name their route."""
_REST_US = 0.5
"""What each other kernel outside the layers takes."""

LINKS: Final = replace(GPU, name="pairs", scale_up=ScaleUp(2, 163.84e6), scale_out=ScaleOut(65.536e6))
"""GPUs joined in pairs by links so slow that a send counts."""
ACTIVATION_BYTES: Final = 128 * 256 * 2
"""What a stage of `Made` sends: 128 tokens of 256 in 16 bits."""
NEAR_US, FAR_US = ACTIVATION_BYTES / 163.84 + 1, ACTIVATION_BYTES / 65.536 + 2
"""401 and 1002: what that takes to the other GPU of a pair, and to another pair, with a us or two to start it."""


def corpus(folder: Path, job: Made, ranks: tuple[int, ...] = (0,)) -> Path:
    """Write some ranks of a job and return the corpus of them."""
    traces(folder / "job", job, ranks)
    return ingested(folder / "corpus", folder / "job")


def traces(folder: Path, job: Made, ranks: tuple[int, ...]) -> None:
    """Write some ranks of a job."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in ranks:
        rank = Rank(job, number)
        document = rank.document()
        _timed(document["traceEvents"], rank.truth, SENT_US if job.routes else _REST_US)
        (folder / f"rank{number}.json").write_text(json.dumps(document))


def _timed(events: list[dict[str, Any]], truth: list[Truth], sent_us: float) -> None:
    """Give kernels their durations, one after another on each stream; `sent_us`: those of sends and receives."""
    counts: dict[tuple[int | None, int | None, str], int] = {}
    kinds = [_kind(kernel) for kernel in truth]
    for kernel, kind in zip(truth, kinds, strict=True):
        key = (kernel.layer, kernel.micro_batch, kind)
        counts[key] = counts.get(key, 0) + 1
    usual_us = {"forward": FORWARD_US, "inputs": INPUT_US, "weights": WEIGHT_US}
    free: dict[int, float] = {}
    kernels = [event for event in events if event["cat"] == "kernel"]
    steps = max(1, sum(event["name"].startswith("ProfilerStep") for event in events))
    for event, kernel, kind in zip(kernels, truth, kinds, strict=True):
        inside = kernel.layer is not None and kind in usual_us
        lasts = sent_us if "SendRecv" in kernel.name else _REST_US
        if inside:
            lasts = usual_us[kind] * steps / counts[kernel.layer, kernel.micro_batch, kind]
        start = max(event["ts"], free.get(event["tid"], 0.0))
        event["ts"], event["dur"] = start, lasts
        free[event["tid"]] = start + lasts
        if "grad_" in kernel.name and kernel.name.startswith("gemm"):
            # One name for both, so that nothing but the place tells whose gradient it is.
            event["name"] = "ampere_bf16_s16816gemm"


def _kind(kernel: Truth) -> str:
    if kernel.phase == "backward":
        return "weights" if kernel.name.startswith("gemm_wgrad") else "inputs"
    return kernel.phase


def span_us(changed: ChangedJob) -> float:
    """Time from the first compute kernel of any rank to the end of the last."""
    start, end = [], []
    for replay in changed.after.replays:
        rows = replay.graph.rows
        row = replay.graph.gpu.row
        row = row[(rows.kind[row] == KERNEL) & (rows.family[row] != COMMUNICATION)]
        start.append(int(replay.start[row].min()))
        end.append(int(replay.end[row].max()))
    return float(max(end) - min(start)) / 1e3


def on_links(corpus: Path, text: str, known: Mapping[str, int] | None = None, gpu: Hardware = LINKS) -> ChangedJob:
    """Return the job of a corpus, as if it had run on `gpu`, after a change; `known`: what its traces do not say."""
    (ids,) = groups(corpus)
    anchor = replace(load(corpus, ids, known or {}), gpu=RecordedGpu(gpu))
    return estimated(anchor, parse(text.split()), force=True)


def sends_us(changed: ChangedJob) -> list[float]:
    """Return what each send and receive between stages takes without waiting."""
    every: list[float] = []
    for graph in changed.job.graphs:
        names = [f"{what} {way}" for what in ("send", "receive") for way in ("forward", "backward")]
        duration = graph.own[np.isin(graph.rows.name, [graph.rows.names.index(name) for name in names])]
        every += (duration / 1000).tolist()
    return every


def arithmetic_us(schedule: int, pp: int, batches: int, layers: list[int], send: float) -> float:
    """The schedule's own step; `layers`: those of every part of the model, which are one behind another.

    `send` is what passes between a task and the next stage's, us. DualPipe's pairs run one after the other.
    """
    both = schedule == DUALPIPE
    place = np.array(layers + layers[::-1] if both else layers)
    forward, inputs, weights = (us * place for us in (FORWARD_US, INPUT_US, WEIGHT_US))
    free, delay = np.zeros(pp), np.full(pp, send)
    vp = len(place) // pp
    return twin(Pipeline(schedule, pp, vp, batches, forward, inputs, weights, 0 * forward, delay, free, False)).makespan
