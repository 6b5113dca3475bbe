"""The seam: a reader of another profiler's file hands over columns, and everything behind it works."""

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lumos_df.corpus.catalog import connect
from lumos_df.schema.codes import NONE, NULL, NULL32
from lumos_df.trace import formats
from lumos_df.trace.ingest import ingest
from lumos_df.trace.recording import RecordedOperators
from lumos_df.trace.stored_file import StoredFile
from tests.trace.corpora import small
from tests.trace.tiny_profiler import TINY, write

GEMM, ALL_REDUCE = "ampere_sgemm_128x64_nn", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def process(pid: int, communication_starts: int) -> list[tuple[object, ...]]:
    """Return six operators and a counter: a step in which an operator launches two kernels on two streams."""
    return [
        (pid, 1, "annotation", "ProfilerStep#3", 0, 1000, None, None, None),
        (pid, 1, "cpu_op", "aten::mm", 100, 300, None, None, None),
        (pid, 1, "runtime", "cudaLaunchKernel", 150, 180, None, 7, None),
        (pid, 0, "kernel", GEMM, 200, 500, 11, 7, None),
        (pid, 1, "runtime", "cudaLaunchKernelExC", 310, 330, None, 8, None),
        (pid, 0, "kernel", ALL_REDUCE, communication_starts, 900, 12, 8, None),
        (pid, 0, "counter", "power", 250, None, None, None, 300.5),
    ]


COLLECTIVES = [(event, "allreduce", "Float", 1 << 20, "dp", 2) for event in (5, 12)]


@pytest.fixture(autouse=True)
def _two_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the table of formats a second entry."""
    monkeypatch.setattr(formats, "FORMATS", (TINY, *formats.FORMATS))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """The corpus of a folder with one tiny file of two processes."""
    (tmp_path / "job").mkdir()
    write(tmp_path / "job" / "both.tiny", [*process(100, 400), *process(200, 600)], COLLECTIVES, p100=0, p200=1)
    result = ingest([tmp_path / "job"], tmp_path / "corpus", workers=1)
    assert [(len(done.trace_ids), done.events, done.operators) for done in result.done] == [(2, 14, 12)]
    assert not result.failed
    return tmp_path / "corpus"


def test_each_process_of_a_file_becomes_a_trace_with_its_operators(corpus: Path) -> None:
    query = """
      SELECT own.rank, own.name, own.kind, own.family, around.name, own.step, own.thread, own.stream
      FROM operators AS own
      LEFT JOIN operators AS around ON around.trace_id = own.trace_id AND around.op_id = own.parent_id
      ORDER BY own.rank, own.op_id"""
    each = [
        ("ProfilerStep#3", "annotation", None, None, 3, 1, None),
        ("aten::mm", "cpu_op", None, "ProfilerStep#3", 3, 1, None),
        ("cudaLaunchKernel", "runtime", None, "aten::mm", 3, 1, None),
        (GEMM, "kernel", "gemm", "cudaLaunchKernel", 3, None, 11),
        ("cudaLaunchKernelExC", "runtime", None, "ProfilerStep#3", 3, 1, None),
        (ALL_REDUCE, "kernel", "communication", "cudaLaunchKernelExC", 3, None, 12),
    ]
    with connect(corpus) as connection:
        assert connection.sql(query).fetchall() == [(rank, *row) for rank in (0, 1) for row in each]


def test_views_hold_on_it(corpus: Path) -> None:
    with connect(corpus) as connection:
        launches = connection.sql("SELECT rank, gpu_name, delay_ns FROM launch ORDER BY rank, gpu_ts").fetchall()
        shares = "rank, step_ns, exposed_compute_ns, exposed_communication_ns, overlapped_ns, other_ns"
        parts = connection.sql(f"SELECT {shares} FROM breakdown ORDER BY rank").fetchall()
        collective = 'rank, collective, "group", group_size, seq, in_bytes'
        moved = connection.sql(f"SELECT {collective} FROM operators WHERE collective IS NOT NULL").fetchall()
    assert launches == [(0, GEMM, 50), (0, ALL_REDUCE, 90), (1, GEMM, 50), (1, ALL_REDUCE, 290)]
    # Rank 0 computes until 500 and communicates from 400; on rank 1 there is a gap between the two.
    assert parts == [(0, 1000, 200, 400, 100, 300), (1, 1000, 300, 300, 0, 400)]
    assert sorted(moved) == [(rank, "all_reduce", "dp", 2, 0, 4 << 20) for rank in (0, 1)]


def test_counters_args_and_what_the_file_says_of_itself_are_stored(corpus: Path) -> None:
    with connect(corpus) as connection:
        counters = connection.sql("SELECT rank, name, series, ts, value FROM counters ORDER BY rank").fetchall()
        args = connection.sql("SELECT args FROM args JOIN operators USING (trace_id, event) WHERE family = 'gemm'")
        stated = "rank, rank_source, ranks_in_file, dialect, device_name, clock_origin_ns, kernels, counters, warnings"
        traces = connection.sql(f"SELECT {stated} FROM traces ORDER BY rank").fetchall()
        assert sorted(args.fetchall()) == [('{"row": 11}',), ('{"row": 4}',)]
    assert counters == [(rank, "power", "value", 250, 300.5) for rank in (0, 1)]
    assert traces == [(rank, "process", 2, "tiny", "Tiny GPU", 10**18, 2, 1, []) for rank in (0, 1)]


def test_a_rank_that_the_file_does_not_state_is_looked_for_in_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "rank4.tiny", process(100, 400), COLLECTIVES[:1])
    assert not ingest([path], tmp_path / "corpus", workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        assert connection.sql("SELECT rank, rank_source FROM traces").fetchall() == [(4, "file name")]


def test_files_of_two_formats_go_into_one_corpus_each_by_its_reader(tmp_path: Path) -> None:
    write(tmp_path / "rank0.tiny", process(100, 400), COLLECTIVES[:1])
    small(tmp_path / "rank1.json")
    (tmp_path / "rank2.json").write_bytes((tmp_path / "rank0.tiny").read_bytes() + bytes(512))  # told by content
    assert not ingest([tmp_path], tmp_path / "corpus", workers=1).failed
    with connect(tmp_path / "corpus") as connection:
        dialects = connection.sql("SELECT rank, dialect FROM traces ORDER BY rank").fetchall()
    assert dialects == [(0, "tiny"), (1, "kineto"), (2, "tiny")]


def test_columns_that_a_format_lacks_are_null_and_take_no_memory() -> None:
    three = np.arange(3, dtype=np.int32)
    columns = RecordedOperators.of(
        event=three, ts=np.arange(3), dur=np.arange(3), kind=np.zeros(3, np.int8), name=three, track=three
    )
    assert (columns.input_dims == NONE).all()
    assert (columns.device == NULL32).all()
    assert (columns.correlation == NULL).all()
    assert columns.correlation.strides == (0,)


def test_columns_of_two_lengths_are_refused() -> None:
    three = np.arange(3, dtype=np.int32)
    with pytest.raises(ValueError, match="'ts': 2"):
        RecordedOperators.of(event=three, ts=np.arange(2), dur=np.arange(3), kind=np.zeros(3, np.int8))


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_look_at_the_head_of_a_file_takes_nothing_from_it(pack: Callable[[bytes], bytes]) -> None:
    text = b"0123456789" * 500
    stored = pack(text)
    file = StoredFile(io.BytesIO(stored), "x")
    assert [file.head(4), file.head(12), file.head(2)] == [text[:4], text[:12], text[:2]]
    target = bytearray(8000)
    assert file.fill(memoryview(target)[:5]) == 5
    assert file.fill(memoryview(target)[5:]) == len(text) - 5
    assert target[: len(text)] == text
    assert (file.taken_bytes, file.size_bytes) == (len(text), len(stored))
