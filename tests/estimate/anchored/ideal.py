"""Traces in which every layer takes the same and the host is always ahead, and the schedule's arithmetic of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from lumos_df.estimate.anchored.estimate import Estimated
from lumos_df.graph.rows import COMMUNICATION, KERNEL
from lumos_df.model.schedule import DUALPIPE
from tests.estimate.anchored.conftest import ingested
from tests.model.pipeline import Pipeline, twin
from tests.structure.made import Made, Rank, Truth

FORWARD_US, INPUT_US, WEIGHT_US = 1000.0, 1200.0, 700.0
"""What a layer takes: its forward, and its gradients of inputs and of weights."""
_REST_US = 0.5
"""What each kernel outside the layers takes."""


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
        _timed(document["traceEvents"], rank.truth)
        (folder / f"rank{number}.json").write_text(json.dumps(document))


def _timed(events: list[dict[str, Any]], truth: list[Truth]) -> None:
    """Give kernels their durations, one after another on each stream."""
    many: dict[tuple[int | None, int | None, str], int] = {}
    kinds = [_kind(one) for one in truth]
    for one, kind in zip(truth, kinds, strict=True):
        key = (one.layer, one.micro_batch, kind)
        many[key] = many.get(key, 0) + 1
    each = {"forward": FORWARD_US, "inputs": INPUT_US, "weights": WEIGHT_US}
    free: dict[int, float] = {}
    kernels = [event for event in events if event["cat"] == "kernel"]
    steps = max(1, sum(event["name"].startswith("ProfilerStep") for event in events))
    for event, one, kind in zip(kernels, truth, kinds, strict=True):
        inside = one.layer is not None and kind in each
        lasts = each[kind] * steps / many[one.layer, one.micro_batch, kind] if inside else _REST_US
        start = max(event["ts"], free.get(event["tid"], 0.0))
        event["ts"], event["dur"] = start, lasts
        free[event["tid"]] = start + lasts
        if "grad_" in one.name and one.name.startswith("gemm"):
            # One name for both, so that nothing but the place tells whose gradient it is.
            event["name"] = "ampere_bf16_s16816gemm"


def _kind(one: Truth) -> str:
    if one.phase == "backward":
        return "weights" if one.name.startswith("gemm_wgrad") else "inputs"
    return one.phase


def span_us(found: Estimated) -> float:
    """Time from the first compute kernel of any rank to the end of the last."""
    start, end = [], []
    for replay in found.after.replays:
        rows = replay.graph.rows
        row = replay.graph.gpu.row
        row = row[(rows.kind[row] == KERNEL) & (rows.family[row] != COMMUNICATION)]
        start.append(int(replay.start[row].min()))
        end.append(int(replay.end[row].max()))
    return float(max(end) - min(start)) / 1e3


def send_us(found: Estimated) -> float:
    """What a send takes without waiting."""
    graph = found.job.graphs[0]
    return float(graph.own[graph.rows.name == graph.rows.names.index("send forward")][0]) / 1e3


def arithmetic_us(schedule: int, pp: int, many: int, layers: list[int], send: float) -> float:
    """The schedule's own step; `layers`: those of every part of the model, which are one behind another.

    DualPipe's pairs run one after the other.
    """
    both = schedule == DUALPIPE
    place = np.array(layers + layers[::-1] if both else layers)
    forward, inputs, weights = (one * place for one in (FORWARD_US, INPUT_US, WEIGHT_US))
    free, delay = np.zeros(pp), np.full(pp, send)
    vp = len(place) // pp
    return twin(Pipeline(schedule, pp, vp, many, forward, inputs, weights, 0 * forward, delay, free, False)).makespan
