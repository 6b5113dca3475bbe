"""Tensors that products read, of those that were recorded as their inputs."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos_df.graph.job import groups
from lumos_df.structure import labelled_rows
from lumos_df.structure.describe import Description, of_traces
from lumos_df.structure.shapes import operations
from lumos_df.trace.ingest import ingest
from tests.emulator import Job, Profiler, simulate, write

ROWS, INNER, COLUMNS, BATCH = 512, 64, 256, 8
LEFT, RIGHT, RESULT = [ROWS, INNER], [INNER, COLUMNS], [ROWS, COLUMNS]


def written(event: dict[str, Any]) -> None:
    """Give a product its result's tensor, as code of torch.compile does."""
    dims, types = event["args"]["Input Dims"], event["args"].get("Input type", [])
    bias = event["name"] in ("aten::addmm", "aten::baddbmm")
    left, right = dims[bias : bias + 2]
    event["args"]["Input Dims"] = [*dims, [*left[:-1], right[-1]]]
    event["args"]["Input type"] = [*types, types[bias] if types else "float"]


def described(folder: Path) -> Description:
    corpus = folder.parent / f"{folder.name}_corpus"
    assert not ingest([folder], corpus, workers=1).failed
    return of_traces([labelled_rows.load(corpus, trace) for trace in groups(corpus)[0]], {})


def test_a_job_that_hands_its_products_their_results_is_what_it_is_without(tmp_path: Path) -> None:
    write(simulate(Job(ranks=2, layers=3)), Profiler(memory=False, stacks=False), tmp_path / "plain")
    (tmp_path / "compiled").mkdir()
    changed = 0
    for file in (tmp_path / "plain").glob("*.gz"):
        trace = json.loads(gzip.decompress(file.read_bytes()))
        for event in trace["traceEvents"]:
            if event["name"] in ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm"):
                written(event)
                changed += 1
        (tmp_path / "compiled" / file.name).write_bytes(gzip.compress(json.dumps(trace).encode()))
    assert changed
    plain, compiled = (described(tmp_path / name) for name in ("plain", "compiled"))
    assert {name: fact.value for name, fact in compiled.facts.items()} == {
        name: fact.value for name, fact in plain.facts.items()
    }
    assert plain.facts["ffn"].value


@pytest.mark.parametrize(
    ("name", "dims", "types", "product"),
    [
        ("aten::mm", [LEFT, RIGHT], ["float"] * 2, (ROWS, INNER, COLUMNS)),
        ("aten::mm", [LEFT, RIGHT, RESULT], ["float"] * 3, (ROWS, INNER, COLUMNS)),
        # A bias of a whole matrix, numbers in between, and the result.
        ("aten::addmm", [RESULT, LEFT, RIGHT, [], [], RESULT], ["float"] * 6, (ROWS, INNER, COLUMNS)),
        # Scales of each row and column, and a bias.
        (
            "aten::_scaled_mm",
            [LEFT, RIGHT, [ROWS, 1], [1, COLUMNS], [COLUMNS]],
            ["c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float", "float", "c10::BFloat16"],
            (ROWS, INNER, COLUMNS),
        ),
        ("aten::bmm", [[BATCH, *each] for each in (LEFT, RIGHT, RESULT)], ["float"] * 3, (ROWS, INNER, COLUMNS)),
    ],
)
def test_a_product_is_of_what_it_reads(
    tmp_path: Path, name: str, dims: list[Any], types: list[str], product: tuple[int, int, int]
) -> None:
    event = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1.0, "dur": 5.0, "name": name}
    event["args"] = {"Input Dims": dims, "Input type": types}
    file = tmp_path / "one.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    ingest([file], tmp_path / "corpus", workers=1)
    trace = labelled_rows.load(tmp_path / "corpus", groups(tmp_path / "corpus")[0][0])
    (operation,) = operations(trace, np.zeros(1, np.int8), np.full(1, -1, np.int32))
    assert operation.multiplies()
    assert operation.product == product
    assert json.loads(trace.types.words[trace.types.code[0]])[:2] == types[:2]
