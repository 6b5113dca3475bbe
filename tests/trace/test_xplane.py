"""XSpaces: literal ones, damaged ones, recorded ones; and the wire format beside a slow reading of it."""

import random
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from lumos_df.cli.app import app
from lumos_df.corpus import profiler_overhead
from lumos_df.corpus.catalog import connect
from lumos_df.graph.job import groups
from lumos_df.graph.run import replay
from lumos_df.trace.hlo_texts import instruction, own_group, replica_groups
from lumos_df.trace.ingest import ingest
from lumos_df.trace.kernels.protobuf_fields import fields
from tests.trace.nsight_files import PROFILES

Field = tuple[int, Any]


def varint(number: int) -> bytes:
    parts = []
    while number >= 128:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def message(*fields_: Field) -> bytes:
    """Encode fields: a number as a varint, a float as fixed64, texts and messages by their length."""
    out = b""
    for number, value in fields_:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        elif isinstance(value, float):
            out += varint(number << 3 | 1) + struct.pack("<d", value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(raw)) + raw
    return out


def event(name: int, start: int, duration: int, *stats: bytes) -> Field:
    """Times in nanoseconds."""
    return 4, message((1, name), (2, 1000 * start), (3, 1000 * duration), *((4, stat) for stat in stats))


def line(name: str, *events: Field, number: int = 5, begins: int = 0) -> Field:
    return 3, message((1, number), (2, name), (3, begins), *events)


def named(field: int, names: dict[int, str], stats: Mapping[int, bytes] = MappingProxyType({})) -> list[Field]:
    """Return a map of metadata; those in `stats` have a stat."""
    return [
        (field, message((1, key), (2, message((1, key), (2, text), *([(5, stats[key])] if key in stats else [])))))
        for key, text in names.items()
    ]  # fmt: skip


def plane(name: str, *parts: Field) -> Field:
    return 1, message((2, name), *parts)


STATS = named(5, {1: "correlation_id", 2: "kernel_details", 3: "grid:80,2,1 block:256,1,1", 4: "memcpy_details",
                  5: "kind:pinned size:64 dest:0", 6: "hlo_category", 7: "all-reduce", 8: "profile_start_time",
                  9: "step_num", 10: "flops"})  # fmt: skip
GPU = plane(
    "/device:GPU:1",
    line(
        "Stream #7(Compute,MemcpyH2D)",
        event(1, 50, 20, message((1, 1), (4, 3)), message((1, 2), (7, 3))),
        event(2, 80, 5, message((1, 1), (3, 4)), message((1, 4), (7, 5))),
        begins=1000,
    ),
    line("XLA Ops", event(1, 50, 20), begins=1000),
    *named(4, {1: "Cijk_Ailk.kd", 2: "MemcpyH2D"}),
    *STATS,
)
HOST = plane(
    "/host:CPU",
    line(
        "main/12",
        event(1, 0, 100, message((1, 9), (4, 6))),
        event(2, 10, 10, message((1, 1), (4, 3))),
        event(3, 30, 10, message((1, 1), (4, 4))),
        (4, message((1, 4), (2, 5000))),
        number=12,
        begins=1000,
    ),
    *named(4, {1: "train", 2: "hipLaunchKernel", 3: "hipMemcpyAsync", 4: "$a.py:1 f"}),
    *STATS,
)
BEGUN = plane("Task Environment", (6, message((1, 8), (3, 1_700_000_000_000_000_000))), *STATS)
ALL_REDUCE = "%all-reduce.3 = f32[8,4]{1,0} all-reduce(f32[8,4]{1,0} %x), channel_id=1, replica_groups={{0,1},{2,3}}"


def asked(folder: Path, query: str, *planes: Field) -> list[tuple[Any, ...]]:
    path = folder / "host.xplane.pb"
    path.write_bytes(message(*planes))
    result = ingest([path], folder / "corpus", rank=0, workers=1)
    assert not result.failed, result.failed
    with connect(folder / "corpus") as connection:
        return connection.sql(query).fetchall()


def test_streams_of_a_gpu_lie_below_the_calls_of_the_host(tmp_path: Path) -> None:
    query = """
      SELECT own.kind, own.name, around.name, own.ts, own.dur, own.thread, own.device, own.stream, own.grid,
      own.in_bytes
      FROM operators AS own LEFT JOIN operators AS around ON around.op_id = own.parent_id ORDER BY own.op_id"""
    found = asked(tmp_path, query, HOST, GPU, BEGUN)
    assert [row for row in found if row[0] != "annotation"] == [
        ("cpu_op", "train", None, 1000, 100, 12, None, None, None, None),
        ("runtime", "hipLaunchKernel", "ProfilerStep#6", 1010, 10, 12, None, None, None, None),
        ("runtime", "hipMemcpyAsync", "ProfilerStep#6", 1030, 10, 12, None, None, None, None),
        ("kernel", "Cijk_Ailk", "hipLaunchKernel", 1050, 20, None, 1, 7, "[80, 2, 1]", None),
        ("memcpy", "Memcpy HtoD", "hipMemcpyAsync", 1080, 5, None, 1, 7, None, 64),
    ]
    with connect(tmp_path / "corpus") as connection:
        traces = connection.sql("SELECT clock_origin_ns, dialect, instants, warnings FROM traces").fetchall()
        steps = connection.sql("SELECT step, count(*) FROM operators WHERE device >= 0 GROUP BY 1").fetchall()
    assert traces == [(1_700_000_000_000_000_000, "xplane", 1, ["left out: XLA Ops (1 row)"])]
    assert steps == [(6, 2)]


def test_calls_on_a_line_of_their_own_are_those_of_the_thread_whose_work_is_around_them(tmp_path: Path) -> None:
    """Both threads have work around the calls of 583, and 16 the least; a call of 600 goes on when any work is over."""
    host = plane(
        "/host:CPU",
        line("Host Threads/600", event(2, 95, 10), number=600),
        line("Host Threads/583", event(2, 20, 5), event(2, 60, 5), number=583),
        line("Host Threads/586", event(2, 21, 2), number=586),
        line("py_xla_execute/15", event(1, 0, 100), event(3, 18, 12), number=1 << 60 | 15),
        line("py_xla_execute/16", event(1, 1, 98), event(3, 19, 8), event(3, 58, 9), number=1 << 60 | 16),
        *named(4, {1: "Execute", 2: "hipLaunchKernel", 3: "ExecuteThunks"}),
    )
    query = """
      SELECT own.thread, own.name, around.name, list(own.ts ORDER BY own.ts)
      FROM operators AS own LEFT JOIN operators AS around ON around.op_id = own.parent_id GROUP BY ALL ORDER BY ALL"""
    assert asked(tmp_path, query, host) == [
        (3, "Execute", None, [0]),
        (3, "ExecuteThunks", "Execute", [18]),
        (3, "hipLaunchKernel", "ExecuteThunks", [21]),
        (4, "Execute", None, [1]),
        (4, "ExecuteThunks", "Execute", [19, 58]),
        (4, "hipLaunchKernel", "ExecuteThunks", [20, 60]),
        (600, "hipLaunchKernel", None, [95]),
    ]


@pytest.mark.parametrize("numbered_first", [True, False], ids=["TensorFlow", "JAX and PyTorch/XLA"])
def test_a_host_without_a_device_as_cpu_builds_write_it(tmp_path: Path, *, numbered_first: bool) -> None:
    """As JAX 0.10, TensorFlow 2.21 and PyTorch/XLA 2.9 write: tests/recipes/record_xplane.py. A line is a hash."""
    is_step = message((1, 11), (4, 1))
    steps = [
        event(1, 100 * number, 90, *[message((1, 9), (4, number)), is_step][:: 1 if numbered_first else -1])
        for number in range(2)
    ]
    host = plane(
        "/host:CPU",
        line("python", *steps, event(2, 10, 20), number=2**64 - 7),
        line("tf_XLAEigen/9", event(3, 20, 40), (4, message((1, 4), (2, 60_000))), number=2**64 - 9),
        *named(4, {1: "train", 2: "TFE_Py_Execute", 3: "dot.3", 4: "end: dot.3"}),
        *STATS,
        *named(5, {11: "_r"}),
    )
    rows = asked(
        tmp_path,
        "SELECT kind, name, ts, dur, thread, step FROM operators ORDER BY ts, kind",
        host,
        plane("/host:metadata"),
        BEGUN,
    )
    assert rows == [
        ("annotation", "ProfilerStep#0", 0, 90, 0, 0),
        ("cpu_op", "train", 0, 90, 0, None),
        ("cpu_op", "TFE_Py_Execute", 10, 20, 0, 0),
        ("cpu_op", "dot.3", 20, 40, 1, 0),
        ("annotation", "ProfilerStep#1", 100, 90, 0, 1),
        ("cpu_op", "train", 100, 90, 0, None),
    ]


def test_what_runs_while_the_profiler_starts_is_its_own(tmp_path: Path) -> None:
    host = plane(
        "/host:CPU",
        line(
            "main", event(1, 0, 900), event(2, 10, 5), event(2, 950, 20), event(3, 980, 15), event(2, 985, 5), number=7
        ),
        line("worker", event(2, 20, 30), number=8),
        *named(4, {1: "$profiler.py:101 start_trace", 2: "CollectGarbage", 3: "$profiler.py:9 start_tracer"}),
    )
    query = "SELECT kind, name, ts FROM operators ORDER BY ts"
    assert asked(tmp_path, query, host) == [
        ("other", "$profiler.py:101 start_trace", 0),
        ("other", "CollectGarbage", 10),
        ("cpu_op", "CollectGarbage", 20),  # another thread's
        ("cpu_op", "CollectGarbage", 950),
        ("python", "$profiler.py:9 start_tracer", 980),
        ("cpu_op", "CollectGarbage", 985),
    ]


def test_a_tpu_has_operations_modules_and_steps_and_hlo_says_what_a_collective_moves(tmp_path: Path) -> None:
    tpu = plane(
        "/device:TPU:2",
        line("XLA Modules", event(1, 0, 90), number=2),
        line("XLA Ops", event(2, 10, 20), event(3, 40, 30), number=3),
        line("Async XLA Ops", event(4, 15, 40), event(4, 20, 30), event(4, 56, 2), number=4),
        line("Steps", event(5, 0, 100), number=6),
        line("XLA TraceMe", event(1, 0, 1), number=7),
        *named(4, {1: "jit_f(7)", 2: "%fusion.1 = f32[8] fusion(f32[8] %a)", 3: ALL_REDUCE,
                   4: "%copy-start = f32[8] copy-start(f32[8] %a)",
                   5: "41"}, {3: message((1, 6), (5, "all-reduce")), 2: message((1, 10), (4, 12))}),
        *STATS,
    )  # fmt: skip
    query = """
      SELECT kind, name, ts, dur, device, family, collective, "group", group_size, dtype, in_bytes, step
      FROM operators ORDER BY op_id"""
    assert asked(tmp_path, query, tpu) == [
        ("annotation", "ProfilerStep#41", 0, 100, *[None] * 7, 41),
        ("gpu_annotation", "jit_f(7)", 0, 90, *[None] * 7, 41),
        ("kernel", "fusion.1", 10, 20, 2, "other", *[None] * 5, 41),
        ("memcpy", "copy-start", 15, 40, 2, "copy", *[None] * 5, 41),
        ("memcpy", "copy-start", 20, 30, 2, "copy", *[None] * 5, 41),
        ("kernel", "all-reduce.3", 40, 30, 2, "communication", "all_reduce", "{{0,1},{2,3}}", 2, "float32", 128, 41),
        ("memcpy", "copy-start", 56, 2, 2, "copy", *[None] * 5, 41),
    ]
    with connect(tmp_path / "corpus") as connection:
        streams = connection.sql(
            "SELECT dense_rank() OVER (ORDER BY stream) FROM operators WHERE kind = 'memcpy' ORDER BY ts"
        )
        assert streams.fetchall() == [(1,), (2,), (1,)]
        (raw,) = connection.sql(
            "SELECT args->>'$.flops' FROM args JOIN operators USING (event) WHERE name = 'fusion.1'"
        ).fetchall()
    assert raw == ("12",)


def test_a_sparse_core_is_a_stream_of_its_tpu(tmp_path: Path) -> None:
    names = named(4, {1: "%fusion.1 = f32[8] fusion(f32[8] %a)", 2: "sparse_gather", 3: "jit_f(7)"})
    planes = [
        plane("/device:TPU:0", line("XLA Ops", event(1, 10, 20), number=3), *names),
        plane("/device:TPU:0 SparseCore 1", line("Sparse Core Modules", event(3, 15, 30), number=2),
              line("Sparse Core Ops", event(2, 15, 25), number=3),
              line("Sparse Core Steps", event(3, 0, 90), number=4), *names),
    ]  # fmt: skip
    query = "SELECT kind, name, ts, device, dense_rank() OVER (ORDER BY stream) FROM operators ORDER BY ts, name"
    assert asked(tmp_path, query, *planes) == [
        ("kernel", "fusion.1", 10, 0, 1),
        ("gpu_annotation", "jit_f(7)", 15, None, 3),
        ("kernel", "sparse_gather", 15, 0, 2),
    ]
    with connect(tmp_path / "corpus") as connection:
        ((devices, warnings),) = connection.sql("SELECT device_count, warnings FROM traces").fetchall()
    assert devices == 1
    assert "left out: Sparse Core Steps (1 row)" in warnings


def test_calls_that_cupti_saw_are_those_of_the_threads_of_the_host(tmp_path: Path) -> None:
    names = {1: "cuLaunchKernel", 2: "$a.py:3 step", 3: "EagerExecute"}
    host = plane("/host:CPU", line("main", event(3, 0, 100), number=12), *named(4, names))
    python = plane("/host:python-tracer", line("main", event(2, 0, 200), number=12), *named(4, names))
    call = event(1, 30, 10, message((1, 1), (4, 3)))
    calls = plane("/host:CUPTI", line("12", call, number=12), *named(4, names), *STATS)
    query = """
      SELECT own.kind, own.name, around.name, own.thread
      FROM operators AS own LEFT JOIN operators AS around ON around.op_id = own.parent_id ORDER BY own.op_id"""
    assert asked(tmp_path, query, host, calls, python) == [
        ("python", "$a.py:3 step", None, 12),
        ("cpu_op", "EagerExecute", "$a.py:3 step", 12),
        ("runtime", "cuLaunchKernel", "EagerExecute", 12),
    ]


@pytest.mark.parametrize(
    ("text", "category", "collective", "elements", "size"),
    [
        (ALL_REDUCE, None, "all_reduce", (32, 32), 2),
        (
            "%ag = bf16[16,4] all-gather-start(bf16[4,4] %x), replica_groups=[2,4]<=[8], dimensions={0}",
            *(None, "all_gather", (16, 64), 4),
        ),
        ("%p = f32[4] collective-permute(f32[4] %x), source_target_pairs={{0,1},{1,0}}", None, "send_recv", (4, 4), 2),
        ("reduce-scatter.7", "reduce-scatter", "reduce_scatter", (None, None), None),
        ("%reduce.7 = f32[] reduce(f32[8] %x, f32[] %c), dimensions={0}", "reduce", None, (None, None), None),
        ("all-reduce-fusion", "fusion", None, (None, None), None),
    ],
)  # fmt: skip
def test_hlo(
    text: str, category: str | None, collective: str | None, elements: tuple[Any, Any], size: int | None
) -> None:
    found = instruction(text, category)
    assert (found.collective, (found.elements_in, found.elements_out), found.group_size) == (collective, elements, size)


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,1},{2,3}}", [[0, 1], [2, 3]]),
        ("{{0},{1,2}}", [[0], [1, 2]]),
        ("[2,4]<=[8]", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("[4,2]<=[2,4]T(1,0)", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("[2,2]<=[8]", []),
        ("[4,2]<=[2,4]T(1,2)", []),
        ("[99999999,2]<=[199999998]", []),
        ("{}", []),
    ],
)
def test_replica_groups(text: str, groups: list[list[int]]) -> None:
    assert replica_groups(text) == groups


@pytest.mark.parametrize(
    ("text", "device", "devices", "name"),
    [
        ("{{0,1},{2,3}}", 2, 4, "{2,3}"),
        ("[2,4]<=[8]", 2, 4, "{0,1,2,3} of [2,4]<=[8]"),  # a group a host
        ("[4,2]<=[2,4]T(1,0)", 2, 4, "{2} of [4,2]<=[2,4]T(1,0)"),  # with that of the other host
        ("{{0,1,4,5},{2,3},{6,7}}", 0, 4, "{0,1} of {{0,1,4,5},{2,3},{6,7}}"),
        ("{{0,1,2,3},{4,5},{6,7}}", 0, 4, None),  # which of them says the host
        ("{{0,1}}", 0, 4, None),  # ids of replicas, of several devices each
        ("{{0,2}}", 0, 1, None),
    ],
)
def test_the_group_of_a_device(text: str, device: int, devices: int, name: str | None) -> None:
    assert own_group(text, device, devices) == name


def tpus(groups: str) -> list[Field]:
    """Four TPUs of a host, which reduce at once."""
    texts = {1: f"%all-reduce.3 = f32[8] all-reduce(f32[8] %x), channel_id=1, replica_groups={groups}"}
    return [
        plane(f"/device:TPU:{device}", line("XLA Ops", event(1, 10, 20), number=3), *named(4, texts), *STATS,
              (6, message((1, 1), (5, "TPU v6 Lite"))), *named(5, {1: "device_type_string"}))
        for device in range(4)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("groups", "world_size", "members"),
    [("{{0,1},{2,3}}", 4, [2, 2, 2, 2]), ("[4,2]<=[2,4]T(1,0)", 8, [1, 1, 1, 1]), ("[2,4]<=[8]", 8, [4, 4, 4, 4])],
)
def test_devices_meet_those_of_their_group(tmp_path: Path, groups: str, world_size: int, members: list[int]) -> None:
    assert asked(tmp_path, "SELECT DISTINCT world_size, device_name FROM traces", *tpus(groups)) == [
        (world_size, "TPU v6 Lite")
    ]
    replay(tmp_path / "corpus")
    with connect(tmp_path / "corpus") as connection:
        found = connection.sql("SELECT members FROM collectives ORDER BY rank").fetchall()
    assert [number for (number,) in found] == members


def test_a_tpu_that_stands_still_is_called_one_and_no_gpu_is_its_measure(tmp_path: Path) -> None:
    texts = {1: "fusion.1"}
    of_host = plane(
        "/device:TPU:0",
        line("XLA Ops", event(1, 10, 20), event(1, 90, 20), number=3),
        *named(4, texts),
        *STATS,
        (6, message((1, 1), (5, "TPU v6 Lite"))),
        *named(5, {1: "device_type_string"}),
    )
    asked(tmp_path, "SELECT 1", of_host)
    (ids,) = groups(tmp_path / "corpus")
    (note,) = profiler_overhead.told(tmp_path / "corpus", ids)
    assert note == (
        "the TPU stands still 60% of the time, and the profiler slows the host: no step here was timed without it"
    )


def test_files_copied_as_text_and_empty_ones_are_one_line(tmp_path: Path) -> None:
    copied = tmp_path / "copied.xplane.pb"
    copied.write_bytes(message(GPU, HOST).decode("utf-8", "replace").encode())
    empty = tmp_path / "empty.xplane.pb"
    empty.write_bytes(message(plane("/host:CPU")))
    failed = ingest([copied, empty], tmp_path / "corpus", workers=1).failed
    assert [failure.message.removeprefix(failure.path) for failure in failed] == [
        ": bytes of it were replaced, as when a binary file is copied as text; copy it again",
        ": an XSpace in which nothing lasts; record it again",
    ]


def test_of_a_damaged_file_what_can_be_read_is_read(tmp_path: Path) -> None:
    data, chance = message(HOST, GPU, BEGUN), random.Random(2)  # noqa: S311  # which bytes are damaged is no secret
    files = []
    for number in range(60):
        damaged = bytearray(data)
        for _ in range(3):
            damaged[chance.randrange(20, len(data))] = chance.randrange(256)
        files.append(tmp_path / f"rank{number}.xplane.pb")
        files[-1].write_bytes(bytes(damaged[: chance.randrange(200, len(data))] if number % 2 else damaged))
    result = ingest(files, tmp_path / "corpus", workers=1)
    assert result.done
    assert not [failed.message for failed in result.failed if "fault of lumos-df" in failed.message]


def slow(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (number, bits or beginning, length or -1) of each field, until one is none."""
    at = 0

    def number() -> int:
        nonlocal at
        bits = 0
        for turn in range(10):
            byte = data[at]
            at += 1
            bits |= (byte & 127) << 7 * turn
            if byte < 128:
                return bits
        raise IndexError

    while at < len(data):
        key = number()
        kind, field = key & 7, key >> 3
        if field == 0 or kind not in {0, 1, 2, 5}:
            raise IndexError
        if kind == 0:
            yield field, number(), -1
        elif kind == 2:
            size = number()
            if size > len(data) - at:
                raise IndexError
            yield field, at, size
            at += size
        else:
            size = 8 if kind == 1 else 4
            if size > len(data) - at:
                raise IndexError
            yield field, int.from_bytes(data[at : at + size], "little"), -1
            at += size


def test_the_wire_format_is_read_as_by_a_slow_reading() -> None:
    chance = random.Random(3)  # noqa: S311  # any bytes will do
    samples = [
        message((1, 1 << 40), (2, "text"), (3, 0.5), (200, b"")),
        *(chance.randbytes(chance.randrange(12)) for _ in range(300)),
    ]
    data = np.frombuffer(b"".join(samples), np.uint8)
    end = np.cumsum([len(sample) for sample in samples])
    begin = end - [len(sample) for sample in samples]
    owner, number, value, length, broken = fields(data, begin, end)
    for place, sample in enumerate(samples):
        wanted: list[tuple[int, int, int]] = []
        whole = True
        try:
            wanted.extend(slow(sample))
        except IndexError:
            wanted, whole = _before_the_damage(sample), False
        mine = owner == place
        found = zip(number[mine].tolist(), value[mine].tolist(), length[mine].tolist(), strict=True)
        shifted = [
            (field, bits - int(begin[place]) if size >= 0 else bits % (1 << 64), size) for field, bits, size in found
        ]
        assert shifted == [(field, bits % (1 << 64), size) for field, bits, size in wanted]
        assert bool(broken[place]) is not whole


def _before_the_damage(sample: bytes) -> list[tuple[int, int, int]]:
    found = []
    try:
        for field in slow(sample):
            found.append(field)  # noqa: PERF402  # what came before the error counts
    except IndexError:
        pass
    return found


RECORDED = ["jax_conv_8gpu_mi300x", "jax_gemm_mi300x", "jax_te_attention", "tpu_inference"]


def _values(data: bytes, number: int) -> list[Any]:
    return [data[bits : bits + size] if size >= 0 else bits for field, bits, size in slow(data) if field == number]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_planes_add_up_and_their_replay_takes_as_long(tmp_path: Path, name: str) -> None:
    file = PROFILES / "xplane" / f"{name}.xplane.pb"
    if not file.exists():
        pytest.skip(f"no recorded files at {PROFILES}; see LUMOS_PROFILES")
    wanted = {}
    for own in _values(file.read_bytes(), 1):
        (title,) = _values(own, 2)
        if not title.startswith((b"/device:GPU:", b"/device:TPU:")):
            continue
        lines = [(one, (_values(one, 2) or [b""])[0], (_values(one, 3) or [0])[0]) for one in _values(own, 3)]
        spans = [
            (1000 * begins + (_values(event, 2) or [0])[0], (_values(event, 3) or [0])[0])
            for one, text, begins in lines
            if text.startswith(b"Stream #") or text in {b"XLA Ops", b"Async XLA Ops"}
            for event in _values(one, 4)
        ]
        if spans:
            length = sum((start + dur) // 1000 - start // 1000 for start, dur in spans)
            wanted[int(title.split(b":")[2])] = (len(spans), length, min(start for start, _ in spans) // 1000)
    assert not ingest([file], tmp_path / "corpus", rank=0, workers=1).failed
    query = "SELECT device, count(*), sum(dur)::BIGINT, min(ts) FROM operators WHERE device >= 0 GROUP BY 1 ORDER BY 1"
    with connect(tmp_path / "corpus") as connection:
        assert connection.sql(query).fetchall() == [(device, *sums) for device, sums in sorted(wanted.items())]
    replay(tmp_path / "corpus")
    with connect(tmp_path / "corpus") as connection:
        assert connection.sql("SELECT max(abs(error_pct)) < 5 FROM replay_error").fetchall() == [(True,)]
    if name == "tpu_inference":
        # Its only collective joins pairs of eight devices, of which four are on another host.
        command = ["estimate", "--scale", "kind=kernel:0.5", "--corpus", str(tmp_path / "corpus")]
        assert "\n  8 TPUs\n" in CliRunner().invoke(app, command).stdout
