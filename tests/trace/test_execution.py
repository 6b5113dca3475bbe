"""Execution traces beside Kineto files: a literal pair, files that do not fit, and a real pair where torch is."""

import gzip
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from lumos_df import connect, ingest
from lumos_df.trace.execution_pairing import pair

A, B, C, LISTED = ([number, 10 * number, 0, 8, 4, "cpu"] for number in (1, 2, 3, 4))
"""Tensors as execution traces write them, each with a storage of its own."""


def node(
    number: int, rf_id: int, inputs: list[Any], outputs: list[Any], dims: list[Any], kinds: list[str]
) -> dict[str, Any]:
    side = {"shapes": dims, "types": kinds, "strides": [[1]] * len(dims)}
    attributes = [{"name": "rf_id", "type": "uint64", "value": rf_id}]
    attributes.append({"name": "op_schema", "type": "string", "value": f"op{rf_id}() -> Tensor"})
    return {
        "id": number,
        "name": f"op{rf_id}",
        "ctrl_deps": 1,
        "inputs": {"values": inputs, **side},
        "outputs": {"values": outputs, **side},
        "attrs": attributes,
    }


NODES = [
    node(5, 1, [[4, 16], "<None>"], [A], [[[], []], []], ["GenericList[Int,Int]", "None"]),
    node(6, 2, [A, 0.5], [B], [[8], []], ["Tensor(float)", "Double"]),
    node(7, 3, [A], [B], [[8]], ["Tensor(float)"]),  # inside op 2, and writes what it writes
    node(8, 4, [[A, B]], [C], [[[8], [8]]], ["GenericList[Tensor(float),Tensor(float)]"]),
    node(9, 5, [LISTED], [], [[8]], ["Tensor(c10::BFloat16)"]),
]
TIMES = {1: (0, 10), 2: (20, 30), 3: (22, 20), 4: (60, 10), 5: (80, 5)}


def kineto(dims: object) -> dict[str, Any]:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"aten::op{rf}", "pid": 1, "tid": 1, "ts": ts, "dur": dur}
        | {"args": {"Record function id": rf} | ({"Input Dims": dims} if dims else {})}
        for rf, (ts, dur) in TIMES.items()
    ]
    return {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": events}


def write(folder: Path, execution: object, name: str = "rank0.et.json", dims: object = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "rank0.json").write_text(json.dumps(kineto(dims)))
    text = execution if isinstance(execution, str) else json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": execution})
    (folder / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return folder


def rows(corpus: Path, query: str) -> list[tuple[Any, ...]]:
    with connect(corpus) as connection:
        return connection.sql(query).fetchall()


@pytest.mark.parametrize("name", ["rank0.et.json", "execution_0.json.gz"])
def test_operators_gain_inputs_shapes_and_what_they_read_from(name: str, tmp_path: Path) -> None:
    result = ingest([write(tmp_path / "job", NODES, name)], tmp_path / "corpus", workers=1)
    assert (len(result.done), result.done[0].warnings) == (1, ())
    found = rows(
        tmp_path / "corpus", "SELECT op_id, node, reads_from, inputs, op_schema FROM execution_nodes ORDER BY op_id"
    )
    # Of ops 2 and 3, which wrote B, the outer one had ended last; op 3 ran inside op 2 and so reads from op 1 alone.
    assert [(op, number, reads) for op, number, reads, *_ in found] == [
        (0, 5, None),
        (1, 6, [0]),
        (2, 7, [0]),
        (3, 8, [0, 1]),
        (4, 9, None),
    ]
    assert json.loads(found[1][3]) == [A, 0.5]
    assert found[1][4] == "op2() -> Tensor"
    shapes = rows(tmp_path / "corpus", "SELECT input_dims, input_types FROM operators ORDER BY op_id")
    assert [(json.loads(dims), json.loads(kinds)) for dims, kinds in shapes[1:]] == [
        ([[8], []], ["float", "Double"]),
        ([[8]], ["float"]),
        ([[[8], [8]]], ["TensorList"]),
        ([[8]], ["c10::BFloat16"]),
    ]


def test_shapes_that_the_kineto_file_has_stay(tmp_path: Path) -> None:
    ingest([write(tmp_path / "job", NODES, "rank0.et.json", [[2]])], tmp_path / "corpus", workers=1)
    assert rows(tmp_path / "corpus", "SELECT DISTINCT input_dims FROM operators") == [("[[2]]",)]


@pytest.mark.parametrize(
    ("execution", "complaint"),
    [
        ('{"schema": "1.1.1", "nodes": [', "no execution trace of schema 1.1"),
        ('{"schema": "1.0.1", "nodes": [{"id": 1, "rf_id": 1}]}', "has no operator of the trace beside it"),
        ([], "has no operator of the trace beside it"),
    ],
)
def test_one_that_does_not_fit_costs_a_warning(execution: object, complaint: str, tmp_path: Path) -> None:
    result = ingest([write(tmp_path / "job", execution)], tmp_path / "corpus", workers=1)
    (warning,) = (text for text in result.done[0].warnings if "rank0.et.json" in text)
    assert complaint in warning
    assert rows(tmp_path / "corpus", "SELECT count(*) FROM operators") == [(5,)]


def test_one_without_a_kineto_file_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "job", NODES)
    (folder / "rank7.et.json").write_bytes((folder / "rank0.et.json").read_bytes())
    result = ingest([folder], tmp_path / "corpus", workers=1)
    assert [failed.path for failed in result.failed] == [f"{folder}/rank7.et.json"]
    assert "an execution trace without its Kineto file" in result.failed[0].message
    assert len(result.done) == 1


def test_pairs_go_by_number_then_by_being_the_only_ones(tmp_path: Path) -> None:
    names = {"a": ["rank0.json", "rank1.json", "et_rank1.json", "et_rank0.json"], "b": ["trace.json", "et.json"]}
    for folder, files in names.items():
        (tmp_path / folder).mkdir()
        for name in files:
            head = '{ "schema": "1.1.1"' if "et" in name else '{ "schemaVersion": 1'
            (tmp_path / folder / name).write_text(head)
    files = [str(tmp_path / folder / name) for folder, found in names.items() for name in found]
    traces, found, alone = pair(files)
    relative = {Path(a).relative_to(tmp_path).as_posix(): Path(b).name for a, b in found.items()}
    assert relative == {"a/rank0.json": "et_rank0.json", "a/rank1.json": "et_rank1.json", "b/trace.json": "et.json"}
    assert (sorted(traces), alone) == (sorted(found), [])


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (extra: capture)")
def test_a_real_pair(tmp_path: Path) -> None:
    script = f"""
import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile
layer = torch.nn.Linear(16, 8)
observer = ExecutionTraceObserver()
observer.register_callback({str(tmp_path / "job" / "rank0.et.json")!r})
with profile(activities=[ProfilerActivity.CPU], execution_trace_observer=observer) as profiler:
    layer(torch.randn(4, 16)).relu().sum().backward()
profiler.export_chrome_trace({str(tmp_path / "job" / "rank0.json")!r})
"""
    (tmp_path / "job").mkdir()
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    result = ingest([tmp_path / "job"], tmp_path / "corpus", workers=1)
    assert not [text for text in result.done[0].warnings if "et.json" in text]
    query = """SELECT own.name, own.flops, list(writer.name ORDER BY writer.op_id)
      FROM operators AS own JOIN execution_nodes AS node USING (op_id), operators AS writer
      WHERE own.name IN ('aten::addmm', 'aten::relu') AND list_contains(node.reads_from, writer.op_id)
      GROUP BY ALL ORDER BY ALL"""
    assert rows(tmp_path / "corpus", query) == [
        ("aten::addmm", 2 * 4 * 16 * 8, ["aten::randn", "aten::t"]),
        ("aten::relu", None, ["aten::linear"]),
    ]
