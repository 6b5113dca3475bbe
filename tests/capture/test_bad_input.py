"""What needs no torch: complaints where there is none, folders that cannot be written, files put together."""

import gzip
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lumos_df.base.errors import CaptureError
from lumos_df.capture import profile
from lumos_df.capture.capture_settings import CaptureSettings
from lumos_df.capture.publish import publish, read_metadata
from tests.conftest import Run

without_torch = pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed here")


@without_torch
@pytest.mark.parametrize(
    "arguments",
    [
        ("capture", "--", sys.executable, "-c", ""),
        ("calibrate", "--measure", "gemm"),
        ("calibrate", "--from-corpus", "."),
    ],
)
def test_without_torch_one_line_names_the_extra(arguments: tuple[object, ...], lumos: Run) -> None:
    done = lumos(*arguments)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "pip install 'lumos-df[capture]'" in done.stderr


@without_torch
def test_the_context_manager_says_so_too(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"pip install 'lumos-df\[capture\]'"), profile(tmp_path):
        pass


def test_a_folder_that_cannot_be_written(lumos: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = lumos("capture", "--output", tmp_path / "file" / "traces", "--", sys.executable, "-c", "")
    assert done.returncode == 1
    assert f"{tmp_path}/file/traces: cannot be written (Not a directory); give a folder" in done.stderr


def test_a_program_that_is_not_there(lumos: Run) -> None:
    done = lumos("capture", "--", "no-such-program")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "no-such-program: no such program" in done.stderr


def test_a_kind_of_measurement_that_is_none(lumos: Run) -> None:
    done = lumos("calibrate", "--measure", "gem")
    assert (done.returncode, done.stderr) == (
        1,
        "lumos-df: cannot measure 'gem'; did you mean 'gemm'?; known are gemm, attention, memory, collectives\n",
    )


@pytest.mark.parametrize(
    ("counts", "complaint"),
    [((-1, 3, 5), "warmup = -1: must be at least 0"), ((5, 0, 5), "steps = 0: must be at least 1")],
)
def test_counts_that_cannot_be(counts: tuple[int, int, int], complaint: str) -> None:
    with pytest.raises(CaptureError, match=complaint):
        CaptureSettings("traces", *counts)


def test_the_profiler_warms_up_for_a_step_of_its_own() -> None:
    assert CaptureSettings("traces", warmup=1, unprofiled=2).recorded_after == 4


@pytest.mark.parametrize("head", ["{", "\n {\n "])
def test_a_published_file_is_the_profilers_with_one_member_more(head: str, tmp_path: Path) -> None:
    raw, target = tmp_path / "raw.json", tmp_path / "rank0.json.gz"
    raw.write_text(head + '"traceEvents": [], "schemaVersion": 1}\n')
    publish(raw, target, {"rank": 3, "complete": True})
    assert json.loads(gzip.decompress(target.read_bytes())) == {
        "lumosCapture": {"rank": 3, "complete": True},
        "traceEvents": [],
        "schemaVersion": 1,
    }
    assert read_metadata(target) == {"rank": 3, "complete": True}


def test_operators_are_published_with_the_storages_of_their_tensors(tmp_path: Path) -> None:
    """By their external id, which what they launched has, too; one without tensors stays as it is."""
    raw, target = tmp_path / "raw.json", tmp_path / "rank0.json.gz"
    lines = [
        '{"traceEvents": [',
        '{"name": "aten::mm", "args": {"External id": 7,"Record function id": 0, "Ev Idx": 1}},',
        '{"name": "aten::empty", "args": {"External id": 8,"Record function id": 0, "Ev Idx": 2}},',
        '{"name": "gemm", "args": {"External id": 7, "stream": 7}}',
        "]}",
    ]
    raw.write_text("\n".join(lines))
    publish(raw, target, {}, {7: [4096, None], 9: [64]})
    product, *others = (each["args"] for each in json.loads(gzip.decompress(target.read_bytes()))["traceEvents"])
    assert product == {"External id": 7, "Input Storages": [4096, None], "Record function id": 0, "Ev Idx": 1}
    assert not [each for each in others if "Input Storages" in each]


@pytest.mark.parametrize("text", ["", "[]", '{"traceEvents": [1, 2'])
def test_half_a_file_is_not_published(text: str, tmp_path: Path) -> None:
    raw = tmp_path / "raw.json"
    raw.write_text(text)
    with pytest.raises(OSError, match="profiler's file"):
        publish(raw, tmp_path / "rank0.json.gz", {})
    assert list(tmp_path.iterdir()) == [raw]


def test_a_file_that_the_profiler_could_not_write(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="the profiler could not write its file; is the disk full"):
        publish(tmp_path / "raw.json", tmp_path / "rank0.json.gz", {})


@pytest.mark.parametrize(
    "content", [b"", b"no gzip", gzip.compress(b'{"traceEvents": []}', mtime=0), gzip.compress(b"{", mtime=0)[:-3]]
)
def test_a_file_of_another_maker_has_no_metadata(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "rank0.json.gz").write_bytes(content)
    assert read_metadata(tmp_path / "rank0.json.gz") == {}
