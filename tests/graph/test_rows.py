"""Which rows of a trace are told by their names and collectives."""

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lumos_df import connect
from lumos_df.graph.rows import Rows, read
from lumos_df.schema.codes import NONE
from lumos_df.trace.ingest import ingest

_NAMES = ("aten::mm", "aten::view", "aten::mm", "ncclDevKernel_AllReduce_Sum_f32", "ncclDevKernel_SendRecv")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Return three operators and two kernels of collectives, and a last row without a name."""
    folder = tmp_path_factory.mktemp("named")
    events: list[dict[str, Any]] = [
        {
            "ph": "X",
            "cat": "kernel" if "nccl" in name else "cpu_op",
            "name": name,
            "pid": 1,
            "tid": 1,
            "ts": ts,
            "dur": 1,
        }
        for ts, name in enumerate((*_NAMES, "last"))
    ]
    file = folder / "rank0.json"
    file.write_text(json.dumps({"traceEvents": events}))
    assert not ingest([file], folder / "corpus", workers=1).failed
    with connect(folder / "corpus") as corpus:
        ((trace_id,),) = corpus.execute("SELECT trace_id FROM traces").fetchall()
    whole = read(folder / "corpus", trace_id)
    return replace(whole, name=np.append(whole.name[:-1], np.int32(NONE)))


def test_rows_are_told_by_a_pattern_or_any_question(rows: Rows) -> None:
    assert rows.named(re.compile("mm|nccl").match).tolist() == [False, False, False, True, True, False]
    assert rows.named(re.compile("mm|nccl").search).tolist() == [True, False, True, True, True, False]
    assert rows.named(lambda name: name == "aten::view").tolist() == [False, True, False, False, False, False]


def test_a_row_without_a_name_is_never_told_by_one(rows: Rows) -> None:
    # The code of no name would read the last of the names there are.
    assert rows.names[-1] == "last"
    assert rows.named(lambda name: True).tolist() == [True] * 5 + [False]  # noqa: ARG005  # whatever the name


def test_a_question_is_asked_once_a_name(rows: Rows) -> None:
    asked: list[str] = []
    rows.named(asked.append)
    assert sorted(asked) == sorted({*_NAMES, "last"})


def test_rows_are_told_by_their_collective(rows: Rows) -> None:
    assert rows.of_collective(("all_reduce",)).tolist() == [False, False, False, True, False, False]
    assert rows.of_collective({"all_gather", "send_recv", "all_reduce"}).tolist() == [False] * 3 + [True, True, False]
    assert not rows.of_collective(()).any()
