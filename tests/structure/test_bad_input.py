"""Shapes and launch grids that do not read: whatever asks for them sees a trace that does not have them."""

import copy
import json
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa

from lumos_df.corpus.diff import diff
from lumos_df.export import ExportKind, chakra, timeline
from lumos_df.graph import run as graph
from lumos_df.structure.describe import describe
from lumos_df.trace.ingest import ingest
from lumos_df.whatif.estimate import estimate
from lumos_df.whatif.job.settings import parse
from tests.conftest import SAMPLES
from tests.rows import Event, read

KEYS = ("Input Dims", "Input type", "grid", "block")
MALFORMED = (
    "[[2, 3",
    "[[2, 3]\x1c [4]]",
    "grid(8192,)",
    3,
    [2, [3]],
    [[2, "3"]],
    [[2, [3]]],
    {"2": 3},
    [[-1, 2]],
    [None],
    [[2.5]],
    [True],
)
OF_THE_OPERATOR = {"layers": 2, "hidden": 1024, "ffn": 4096, "heads": 16}


def changed(trace: Event, *, malformed: bool) -> Event:
    """Return a trace in which every third operator and kernel has sizes and types that do not read, or has none."""
    trace, values = copy.deepcopy(trace), cycle(MALFORMED)
    described = [event["args"] for event in trace["traceEvents"] if event.get("args", {}).keys() & set(KEYS)]
    for args in described[::3]:
        for key in args.keys() & set(KEYS):
            args[key] = next(values)
            if not malformed:
                del args[key]
    return trace


def answers(folder: Path, trace: Event) -> dict[str, Any]:
    """Return what the commands say of a trace."""
    (folder / "job").mkdir(parents=True)
    (folder / "job" / "rank0.json").write_text(json.dumps(trace))
    corpus = folder / "corpus"
    assert not ingest([folder / "job"], corpus, workers=1).failed
    graph.replay(corpus, path=True)
    (files, _) = chakra.export(corpus, folder / "chakra")
    timeline.export(corpus, ExportKind.PERFETTO, folder / "perfetto.json")
    return {
        "describe": told(describe(corpus)),
        "estimate": told(estimate(corpus, parse(["hidden=2048", "micro_batch=8"]), known=OF_THE_OPERATOR)),
        "diff": told(diff(corpus, "job:3", "job:4")[0]),
        "chakra": len(files[0].read_bytes()),
        "perfetto": (folder / "perfetto.json").read_text(),
    }


def told(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows without what names the file."""
    names = [name for name in rows.column_names if name not in ("trace_id", "path", "warnings")]
    found: list[dict[str, Any]] = rows.select(names).to_pylist()
    return found


def test_malformed_shapes_and_grids_are_as_if_they_had_not_been_recorded(tmp_path: Path) -> None:
    sample = read(SAMPLES / "gpu_generated" / "rank0.json.gz")
    expected = answers(tmp_path / "without", changed(sample, malformed=False))
    found = answers(tmp_path / "malformed", changed(sample, malformed=True))
    for command, answer in expected.items():
        assert found[command] == answer, command
