"""One operator, or a family of them, as a script."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lumos_df import connect
from lumos_df.base.errors import QueryError
from lumos_df.generate.operator_script import SCRIPT, write_family, write_operator
from tests.generate.benchmarks import MM, STEP, called, needs_torch, on_gpu, two_ranks
from tests.trace.literal import annotation, corpus_of, op


def op_id_of(tmp_path: Path, name: str) -> int:
    """Return the id of the first row of a name."""
    with connect(tmp_path / "corpus") as connection:
        ((op_id,),) = connection.execute("SELECT min(op_id) FROM operators WHERE name = $1", [name]).fetchall()
    return int(op_id)


@pytest.mark.parametrize(
    ("asked", "operator", "recorded_ns"),
    [
        ("aten::mm", "aten::mm", 10_000),
        ("aten::fill_", "aten::fill_", 1_000),  # which is inside another that is called in the step
        ("vectorized_elementwise_kernel", "aten::add", 4_000),
        ("triton_poi_0", "triton_poi_own", 6_000),
    ],
)
def test_one_operator_is_a_script(tmp_path: Path, asked: str, operator: str, recorded_ns: int) -> None:
    corpus_of(tmp_path, STEP)
    assert write_operator(tmp_path / "corpus", tmp_path / "one", op_id_of(tmp_path, asked)) == 1
    text = (tmp_path / "one" / SCRIPT).read_text()
    assert f"RECORDED, RECORDED_US = {operator!r}, {recorded_ns / 1e3}\n" in text
    assert len(text.splitlines()) <= PAGE


def test_what_is_no_operator_with_inputs_is_no_script(tmp_path: Path) -> None:
    corpus_of(tmp_path, STEP)
    with pytest.raises(QueryError, match=r"unknown_kernel, whose inputs are not known.*record with shapes"):
        write_operator(tmp_path / "corpus", tmp_path / "one", op_id_of(tmp_path, "unknown_kernel"))
    with pytest.raises(QueryError, match="no operator 999 in the trace; name its trace with --job"):
        write_operator(tmp_path / "corpus", tmp_path / "one", 999)
    assert not (tmp_path / "one").exists()


def test_a_collective_alone_is_refused(tmp_path: Path) -> None:
    corpus = two_ranks(tmp_path)
    with pytest.raises(QueryError, match="c10d::allreduce_, a collective, which one process cannot run"):
        write_operator(corpus, tmp_path / "one", op_id_of(tmp_path, "c10d::allreduce_"))


def test_a_family_is_its_distinct_shapes(tmp_path: Path) -> None:
    again = [op("aten::mm", 88, 4, **MM), *on_gpu(7, 89, dur=20)]
    corpus_of(tmp_path, [*STEP, *again])
    assert write_family(tmp_path / "corpus", tmp_path / "sweep", "gemm") == 1
    assert cases(tmp_path / "sweep" / SCRIPT)[0]["recorded_ns"] == 15_000
    with pytest.raises(QueryError, match="no operators of family 'gem'; did you mean 'gemm'"):
        write_family(tmp_path / "corpus", tmp_path / "sweep", "gem")


PAGE = 85  # lines


@needs_torch
@pytest.mark.parametrize(
    ("asked", "called_"),
    [
        ("aten::mm", "aten::mm"),
        ("aten::add", "aten::add"),
        ("mylib::flash_attn_fwd", "aten::scaled_dot_product_attention"),
        ("triton_poi_own", "aten::copy_"),
    ],
)
def test_the_script_of_an_operator_runs_and_says_what_it_calls(tmp_path: Path, asked: str, called_: str) -> None:
    corpus_of(tmp_path, STEP)
    write_operator(tmp_path / "corpus", tmp_path / "one", op_id_of(tmp_path, asked))
    done = subprocess.run([sys.executable, tmp_path / "one" / SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["operator"], said["called"]) == (asked, called_)
    assert said["median_us"] > 0


@needs_torch
def test_the_script_of_an_embedding_takes_rows_that_are_there(tmp_path: Path) -> None:
    """Its integers are drawn below the rows of its table, also where these are fewer than any other size."""
    lookup = called([[5, 64], [32, 16]], ["float", "long int"])
    corpus_of(tmp_path, [annotation("ProfilerStep#1", 0, 100), op("aten::embedding", 10, 8, **lookup)])
    write_operator(tmp_path / "corpus", tmp_path / "one", op_id_of(tmp_path, "aten::embedding"))
    assert "torch.int64, below=5)" in (tmp_path / "one" / SCRIPT).read_text()
    done = subprocess.run([sys.executable, tmp_path / "one" / SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def cases(script: Path) -> list[dict[str, Any]]:
    """Return what a script has for CASES."""
    tree = ast.parse(script.read_text())
    value = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "CASES"
    )
    found: list[dict[str, Any]] = ast.literal_eval(value)
    return found


@needs_torch
def test_a_script_names_what_this_torch_does_not_run(tmp_path: Path) -> None:
    unknown = op("aten::of_another_torch", 88, 4, **called([[8, 8]], ["float"]))
    corpus_of(tmp_path, [*STEP, unknown, *on_gpu(7, 89, dur=2)])
    write_operator(tmp_path / "corpus", tmp_path / "one", op_id_of(tmp_path, "aten::of_another_torch"))
    done = subprocess.run([sys.executable, tmp_path / "one" / SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.match(r"aten::of_another_torch does not run with torch \S+ on \w+: .*of_another_torch", done.stderr)
    assert len(done.stderr.splitlines()) == 1
