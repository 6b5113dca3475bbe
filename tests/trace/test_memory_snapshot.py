"""Memory snapshots: literal ones, damaged ones, and recorded ones."""

import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lumos_df.base.errors import CorpusError
from lumos_df.cli.app import app
from lumos_df.corpus.catalog import connect
from lumos_df.graph.job import doubled
from lumos_df.graph.run import replay
from lumos_df.trace.ingest import ingest
from tests.trace.literal import op
from tests.trace.literal import write as write_trace
from tests.trace.nsight_files import PROFILES


def frame(name: str, file: str = "train.py", line: int = 3) -> dict[str, Any]:
    return {"name": name, "filename": file, "line": line}


FORWARD = [frame("linear", "functional.py"), frame("forward", "model.py", 7)]


def event(action: str, address: int, size: int, time: int, stack: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "frames": stack or []}


def block(address: int, size: int, state: str = "active_allocated") -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": size - 12, "state": state, "frames": FORWARD}


SNAPSHOT: dict[str, Any] = {
    "segments": [
        {"device": 0, "address": 0, "total_size": 2048, "stream": 0, "segment_type": "small", "is_expandable": False,
         "blocks": [block(0, 512), block(512, 1024), block(1536, 512, "inactive")]},
    ],
    "device_traces": [[
        event("alloc", 0, 500, 1_000_010, FORWARD),
        event("alloc", 1536, 100, 1_000_011, FORWARD),
        event("free_requested", 1536, 100, 1_000_012),
        event("free_completed", 1536, 100, 1_000_013),
    ]],
    "allocator_settings": {"expandable_segments": False},
}  # fmt: skip


def write(path: Path, snapshot: object = SNAPSHOT) -> Path:
    path.write_bytes(pickle.dumps(snapshot))
    return path


def told(path: Path) -> str:
    (failed,) = ingest([path], path.parent / "corpus", workers=1).failed
    return failed.message.removeprefix(f"{path}: ")


def test_events_and_blocks_are_rows_and_totals_are_counted_back_from_the_end(tmp_path: Path) -> None:
    assert not ingest([write(tmp_path / "any.name")], tmp_path / "corpus", rank=2, workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        history = connection.sql(
            "SELECT rank, ts, action, bytes, allocated_bytes, reserved_bytes, freed_by, category FROM memory_history"
        ).fetchall()
        (first,) = connection.sql("SELECT stack FROM memory_history LIMIT 1").fetchall()
        blocks = connection.sql("SELECT address, bytes, requested_bytes, state, pool FROM memory_segments").fetchall()
        traces = connection.sql("SELECT dialect, clock_origin_ns, operators, warnings FROM traces").fetchall()
    assert history == [
        (2, 0, "alloc", 500, 1512, 2048, None, "activations"),
        (2, 1000, "alloc", 100, 1612, 2048, 3, "activations"),
        (2, 2000, "free_requested", 100, 1612, 2048, None, "unknown"),
        (2, 3000, "free_completed", 100, 1512, 2048, None, "unknown"),
    ]
    assert first == ("linear (functional.py:3)\nforward (model.py:7)",)
    assert blocks[1:] == [(512, 1024, 1012, "active_allocated", "small"), (1536, 512, 500, "inactive", "small")]
    assert traces == [("memory-snapshot", 1_000_010_000, 0, [])]


@pytest.mark.parametrize(
    ("stack", "category"),
    [
        ([frame("step", "/x/torch/optim/adamw.py")], "optimizer"),
        ([frame("at::cuda::getCurrentCUDABlasHandle()", "??"), *FORWARD], "workspace"),
        ([frame("torch::autograd::THPVariable_einsum", "??"), *FORWARD], "activations"),
        ([frame("torch::autograd::generated::MmBackward0::apply", "??")], "gradients"),
        ([frame("torch::autograd::Engine::thread_init", "??")], "gradients"),
        ([frame("__init__", "linear.py")], "weights"),
        ([frame("main")], "unknown"),
        ([], "unknown"),
    ],
)
def test_a_stack_says_what_memory_is_for(tmp_path: Path, stack: list[dict[str, Any]], category: str) -> None:
    path = write(tmp_path / "a.pickle", {"segments": [], "device_traces": [[event("alloc", 0, 8, 1, stack)]]})
    assert not ingest([path], tmp_path / "corpus", workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        assert connection.sql("SELECT category FROM memory_history").fetchall() == [(category,)]


def test_an_address_that_is_given_out_again_was_not_freed_by_that(tmp_path: Path) -> None:
    events = [event("alloc", 0, 8, 1), event("alloc", 0, 8, 2), event("free_completed", 0, 8, 3)]
    path = write(tmp_path / "a.pickle", {"segments": [], "device_traces": [events]})
    assert not ingest([path], tmp_path / "corpus", workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        found = connection.sql("SELECT freed_by, allocated_bytes FROM memory_history ORDER BY event").fetchall()
    assert found == [(None, 0), (2, 8), (None, 0)]


class Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch called",)


def test_a_pickle_that_would_run_code_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    message = told(write(tmp_path / "a.pickle", {"segments": [Runs()]}))
    assert message == "a pickle that calls posix.system: only plain data is read, as this would run code of it"
    assert not Path("called").exists()


@pytest.mark.parametrize(
    "content",
    [{"segments": 5}, {"segments": [{"blocks": [1]}]}, {"device_traces": [[{"action": "alloc", "addr": 1 << 70}]]},
     {"segments": [], "device_traces": [[]]}],
    ids=["a number", "blocks that are none", "addresses too large", "nothing"],
)  # fmt: skip
def test_a_pickle_of_something_else_is_one_line(tmp_path: Path, content: object) -> None:
    assert told(write(tmp_path / "a.pickle", content)).startswith("a pickle that is no snapshot of torch.cuda.memory (")


def test_a_pickle_of_any_other_object_is_refused_by_name(tmp_path: Path) -> None:
    message = told(write(tmp_path / "model.pt", [Path("weights")]))
    assert message.startswith("a pickle that calls pathlib.")


@pytest.mark.parametrize(
    "content",
    [SNAPSHOT["segments"], {"segments": SNAPSHOT["segments"]}, SNAPSHOT | {"device_traces": [[], []]}],
    ids=["memory_snapshot()", "no list of devices", "history off"],
)
def test_segments_without_history_say_what_is_held(tmp_path: Path, content: object) -> None:
    assert not ingest([write(tmp_path / "a.pickle", content)], tmp_path / "corpus", workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        held = connection.sql("SELECT DISTINCT peak_bytes, category FROM memory_peak").fetchall()
        reserved = connection.sql("SELECT sum(reserved_bytes) FROM memory_fragmentation").fetchall()
    assert (held, reserved) == ([(1512, "activations")], [(2048,)])


def test_a_few_bytes_that_ask_for_much_memory_are_one_line(tmp_path: Path) -> None:
    """A place of 2^31 in the memo: unpickling would set 64 GiB to null."""
    path = tmp_path / "a.pickle"
    path.write_bytes(b"\x80\x02}X\x08\x00\x00\x00segmentsr\xff\xff\xff\x7f]s.")
    assert told(path) == "a damaged pickle (MemoryError: ); save it again"


def test_damaged_pickles_are_one_line(tmp_path: Path) -> None:
    data, chance = pickle.dumps(SNAPSHOT), random.Random(1)  # noqa: S311  # which bytes are damaged is no secret
    files = []
    for number in range(60):
        bytes_ = bytearray(data)
        for _ in range(number % 5 + 1):
            bytes_[chance.randrange(2, len(data))] = chance.randrange(256)
        files.append(tmp_path / f"{number}.pickle")
        files[-1].write_bytes(bytes(bytes_[: chance.randrange(40, len(data) + 1)] if number % 3 == 0 else bytes_))
    result = ingest(files, tmp_path / "corpus", workers=1)
    assert result.failed
    assert not [failed.message for failed in result.failed if "fault of lumos-df" in failed.message]


def _recorded() -> list[Any]:
    files = sorted((PROFILES / "memsnap").glob("*.pickle"))
    absent = pytest.param(None, marks=pytest.mark.skip(reason=f"no snapshots at {PROFILES}; see LUMOS_PROFILES"))
    return [pytest.param(file, id=file.stem) for file in files] or [absent]


@pytest.mark.parametrize("file", _recorded())
def test_recorded_snapshots_add_up(tmp_path: Path, file: Path) -> None:
    data = pickle.loads(file.read_bytes())  # noqa: S301  # checked before: plain data
    changes = {"alloc": 1, "free_completed": -1}
    held = sum(changes.get(event["action"], 0) * event["size"] for event in data["device_traces"][0])
    assert not ingest([file], tmp_path / "corpus", workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        ((change, lowest),) = connection.sql("""
          SELECT arg_max(allocated_bytes, event) - arg_min(allocated_bytes - CASE action WHEN 'alloc' THEN bytes
          WHEN 'free_completed' THEN -bytes ELSE 0 END, event), min(allocated_bytes) FROM memory_history""").fetchall()
        ((reserved,),) = connection.sql("SELECT sum(reserved_bytes)::BIGINT FROM memory_fragmentation").fetchall()
        ((peak, parts),) = connection.sql("SELECT any_value(peak_bytes), sum(bytes) FROM memory_peak").fetchall()
    assert (change, peak) == (held, parts)
    assert lowest >= 0
    assert reserved == sum(segment["total_size"] for segment in data["segments"])


def test_a_job_is_replayed_without_its_snapshots_and_a_snapshot_alone_has_no_job(tmp_path: Path) -> None:
    """The snapshot of rank 0 lies in the same folder as its trace: it is no second run of that rank."""
    trace = write_trace(tmp_path / "rank0.json", [op("aten::mm", 0, 90)])
    snapshot = write(tmp_path / "rank0.pickle")
    assert not ingest([trace, snapshot], tmp_path / "both", workers=1).failed
    assert len(replay(tmp_path / "both")) == 1
    assert doubled(tmp_path / "both") == {replay(tmp_path / "both")[0]: ()}
    assert not ingest([snapshot], tmp_path / "alone", workers=1).failed
    with pytest.raises(CorpusError, match="no trace here has operators; what it holds says: lumos-df report --corpus"):
        replay(tmp_path / "alone")
    shown = CliRunner().invoke(app, ["report", "--corpus", str(tmp_path / "alone")]).stdout
    assert "what memory held at its peak, by category and stack:\n" in shown
    assert "report --view memory_peak" in shown
