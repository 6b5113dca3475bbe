"""Chakra execution traces, read back by a decoder of our own, by Google's, and run as a simulator runs them."""

import json
import os
import resource
import shutil
import subprocess
from collections import Counter, defaultdict
from functools import partial
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Final

import pytest

import lumos_df
from lumos_df.base.errors import LumosError
from lumos_df.export.chakra import export
from lumos_df.graph import run
from lumos_df.trace.ingest import ingest
from tests.conftest import ROOT, SAMPLES, Run, command
from tests.export.decode import COLLECTIVES, NODE_TYPES, Node, read
from tests.real import ABSENT, REAL
from tests.trace.literal import Event, kernel, launch, op, write

RECORDED: Final = ("megatron_tp2_train", "dlrm_8rank", "resnet50_ddp")


@pytest.fixture(scope="module", params=["gpu_generated", "cpu_ddp", *RECORDED])
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job, replayed."""
    source = SAMPLES / request.param
    if request.param in RECORDED:
        if not REAL.is_dir():
            pytest.skip(ABSENT)
        source = REAL / request.param
    corpus = tmp_path_factory.mktemp(request.param) / "corpus"
    assert not ingest([source], corpus, workers=1).failed
    run.replay(corpus)
    return corpus


@pytest.fixture(scope="module")
def traces(corpus: Path) -> dict[int, tuple[dict[str, Any], list[Node]]]:
    """(metadata, nodes) of each rank."""
    files, written = export(corpus, corpus.parent / "et" / "job")
    found = {int(file.name.split(".")[1]): read(file) for file in files}
    assert sorted(file.name for file in files) == sorted(f"job.{rank}.et" for rank in found)
    assert sum(len(nodes) for _, nodes in found.values()) == written
    return found


Traces = dict[int, tuple[dict[str, Any], list[Node]]]


def rows(corpus: Path, query: str) -> list[tuple[Any, ...]]:
    with lumos_df.connect(corpus) as connection:
        return connection.sql(query).fetchall()


def finished(nodes: list[Node]) -> dict[int, int]:
    """Return when each node ends if it starts as soon as its dependencies have ended, us. Circles are refused."""
    of = {node.id: node for node in nodes}
    ends: dict[int, int] = {}
    for number in TopologicalSorter({node.id: node.data_deps for node in nodes}).static_order():
        ends[number] = max((ends[need] for need in of[number].data_deps), default=0) + of[number].duration_micros
    return ends


def test_the_metadata_say_schema_rank_and_span(traces: Traces, corpus: Path) -> None:
    ids = dict(rows(corpus, "SELECT rank, trace_id FROM traces"))
    assert sorted(traces) == sorted(ids)
    for rank, (about, nodes) in traces.items():
        assert (about["version"], about["schema"], about["rank"], about["trace_id"]) == (
            "0.0.4",
            "0.0.4",
            rank,
            ids[rank],
        )
        assert about["estimated"] is False
        begun = [node.start_time_micros for node in nodes if node.type != "METADATA_NODE"]
        assert about["start_ts"] == min(begun)
        assert (
            max(begun) <= about["finish_ts"] <= max(node.start_time_micros + node.duration_micros for node in nodes) + 1
        )
    first = min(about["start_ts"] for about, _ in traces.values())
    assert first < 100, "only marks may come earlier"


def test_every_operator_is_a_node_with_its_name_lane_and_inputs(traces: Traces, corpus: Path) -> None:
    query = """
        SELECT rank, op_id, name, thread, stream, input_dims FROM operators
        WHERE kind IN ('cpu_op', 'runtime', 'kernel', 'memcpy', 'memset')
    """
    wanted = rows(corpus, query)
    of = {rank: {node.id: node for node in nodes} for rank, (_, nodes) in traces.items()}
    for rank, op_id, name, thread, stream, dims in wanted:
        node = of[rank][op_id + 1]
        assert (node.name, node.attr.get("tid"), node.attr.get("stream")) == (name, thread, stream)
        assert (node.inputs or {}).get("shapes") == dims
        assert node.attr["is_cpu_op"] is (thread is not None)
    for rank, (_, nodes) in traces.items():
        assert len(of[rank]) == len(nodes), "ids are unique"
    assert len(wanted) > 1000


def test_host_work_computes_on_the_host_and_only_what_has_a_thread_runs_there(traces: Traces) -> None:
    for _, nodes in traces.values():
        work = [node for node in nodes if node.name == "host work"]
        assert work
        assert {(node.type, node.attr["is_cpu_op"]) for node in work} == {("COMP_NODE", True)}
        for node in nodes:
            if node.type != "METADATA_NODE":
                assert node.attr["is_cpu_op"] is ("tid" in node.attr and not node.type.startswith("COMM"))


def test_dependencies_are_the_edges(traces: Traces, corpus: Path) -> None:
    """Between two ends of an edge of a thread there may be operators and host work, in a row; nothing else is added."""
    edges = defaultdict(set)
    query = "SELECT rank, src, dst FROM edges WHERE src_trace_id = trace_id AND kind <> 'collective'"
    for rank, src, dst in rows(corpus, query):
        edges[rank].add((src + 1, dst + 1))
    for rank, (_, nodes) in traces.items():
        of = {node.id: node for node in nodes}
        tied = {end for edge in edges[rank] for end in edge}
        found = set()
        for node in nodes:
            if node.id not in tied:
                assert len(node.data_deps) <= 1
                assert all(of[need].attr.get("tid") == node.attr.get("tid") for need in node.data_deps)
                continue
            for need in node.data_deps:
                before: int | None = need
                while before is not None and before not in tied:
                    before = next(iter(of[before].data_deps), None)
                if before is not None:
                    found.add((before, node.id))
        assert found == edges[rank]


def test_a_simulator_reaches_every_node_and_finds_callers_done(traces: Traces) -> None:
    """ASTRA-sim's feeder refuses a node whose caller (ctrl_deps) has not ended, whatever it issued before."""
    for _, nodes in traces.values():
        of = {node.id: node for node in nodes}
        waits = {node.id: len(node.data_deps) for node in nodes}
        children = defaultdict(list)
        for node in nodes:
            for need in node.data_deps:
                children[need].append(node.id)
        ready = [number for number, many in waits.items() if not many]
        done: set[int] = set()
        while ready:
            number = ready.pop()  # the latest first: as unlike the recorded order as can be
            assert set(of[number].ctrl_deps) <= done
            done.add(number)
            for child in children[number]:
                waits[child] -= 1
                if not waits[child]:
                    ready.append(child)
        assert len(done) == len(nodes)


INTEGERS: Final = ("int32_val", "int64_val", "uint32_val", "uint64_val", "bool_val")
"""What ASTRA-sim's feeder turns into one another; a text it wants as a text."""


def fed(node: Node, attribute: str, *default: Any) -> Any:
    """Return an attribute as ASTRA-sim's feeder does, which refuses a node without one that has no default."""
    if attribute not in node.attr and default:
        return default[0]
    wanted = ("string_val",) if attribute == "pg_name" else INTEGERS
    assert node.kinds[attribute] in wanted, f"{node.name}: {attribute} is {node.kinds[attribute]}"
    return node.attr[attribute]


def test_astra_sim_s_feeder_finds_what_it_asks_of_every_node(traces: Traces) -> None:
    """Its rules, told again: dependencies that are in the file, a node to begin with, attributes by type of node."""
    for rank, (about, nodes) in traces.items():
        known = {node.id for node in nodes}
        assert len(known) == len(nodes)
        for node in nodes:
            dependencies = {*node.data_deps, *node.ctrl_deps}
            assert dependencies <= known
            assert node.id not in dependencies
        assert any(not node.data_deps for node in nodes)
        lists = [node for node in nodes if node.type == "METADATA_NODE"]
        groups = {int(group["pg_name"]) for node in lists for group in json.loads((node.inputs or {})["values"][2:-2])}
        assert groups == {int(group["pg_name"]) for group in json.loads(about["process_groups"]) if group["ranks"]}
        for node in nodes:
            on_host = fed(node, "is_cpu_op")
            assert isinstance(on_host, bool)
            if node.type.startswith("MEM_"):
                assert fed(node, "tensor_size") >= 0
            elif node.type.startswith("COMM_"):
                assert not on_host, "it refuses communication on the host"
                assert fed(node, "comm_size") >= 0
                # It has no group of a number that was not listed before: 0, like no name, means all ranks.
                assert int(fed(node, "pg_name", "0")) in {0, *groups}
            if node.type == "COMM_COLL_NODE":
                assert 0 <= fed(node, "comm_type") < len(COLLECTIVES)
            elif node.type == "COMM_SEND_NODE":
                assert fed(node, "comm_src", rank) == rank
            elif node.type == "COMM_RECV_NODE":
                assert fed(node, "comm_dst", rank) == rank


def test_durations_of_gpu_rows_are_the_recorded_ones(traces: Traces, corpus: Path) -> None:
    query = "SELECT rank, op_id, device, stream, dur FROM operators WHERE stream IS NOT NULL AND kind <> 'sync'"
    of = {rank: {node.id: node for node in nodes} for rank, (_, nodes) in traces.items()}
    recorded, exported = Counter[Any](), Counter[Any]()
    for rank, op_id, device, stream, dur in rows(corpus, query):
        micros = of[rank][op_id + 1].duration_micros
        assert abs(micros - dur / 1000) < 1
        recorded[rank, device, stream] += dur
        exported[rank, device, stream] += micros
    assert all(abs(exported[lane] - dur / 1000) < 1 for lane, dur in recorded.items())


def test_run_as_fast_as_dependencies_allow_a_rank_takes_as_long_as_recorded(traces: Traces, corpus: Path) -> None:
    """But for launch latencies and gaps between kernels, which an execution trace does not have."""
    for rank, (about, nodes) in traces.items():
        took = max(finished(nodes).values())
        span = about["finish_ts"] - about["start_ts"]
        if (corpus.parent.name[:-1], rank) == ("megatron_tp2_train", 0):
            assert took > span / 2  # its launches took 2 ms again and again
        else:
            assert abs(took - span) < 0.03 * span


def test_communication_has_kind_size_and_group_and_ranks_agree(traces: Traces, corpus: Path) -> None:
    names = {"send_recv": "all_to_all"}
    query = """
        SELECT rank, op_id, collective, in_bytes, "group" FROM operators
        WHERE collective NOT IN ('unknown', 'send', 'recv') AND (
          kind = 'kernel' OR kind = 'annotation' AND in_bytes IS NOT NULL AND (SELECT sum(kernels) FROM traces) = 0
        )
    """
    of = {rank: {node.id: node for node in nodes} for rank, (_, nodes) in traces.items()}
    wanted = rows(corpus, query)
    for rank, op_id, collective, in_bytes, group in wanted:
        node = of[rank][op_id + 1]
        assert node.type == "COMM_COLL_NODE"
        assert COLLECTIVES[node.attr["comm_type"]].lower() == names.get(collective, collective)
        assert (node.attr.get("comm_size"), node.attr.get("pg_name")) == (in_bytes, group)
        assert node.attr["is_cpu_op"] is False
        assert (node.kinds["comm_type"], node.kinds["comm_size"]) == ("int64_val", "int64_val")
    kinds = Counter(node.type for _, nodes in traces.values() for node in nodes)
    assert kinds["COMM_COLL_NODE"] == len(wanted) > 0
    groups = {rank: json.loads(about["process_groups"]) for rank, (about, _) in traces.items()}
    assert len({json.dumps(some) for some in groups.values()}) == 1
    for rank, (_, nodes) in traces.items():
        lists = [node for node in nodes if node.type == "METADATA_NODE"]
        listed = [group for group in groups[rank] if group["ranks"]]
        assert [(node.id, node.data_deps) for node in lists] == [(0, [])] * bool(listed)
        for node in lists:
            # As ASTRA-sim reads it: without two characters at each end.
            assert node.inputs is not None
            assert json.loads(node.inputs["values"][2:-2]) == listed
    query = 'SELECT DISTINCT "group", ranks FROM process_groups WHERE ranks IS NOT NULL ORDER BY ALL'
    assert sorted((group["pg_name"], group["ranks"]) for group in groups[min(groups)] if group["ranks"]) == rows(
        corpus, query
    )


def test_copies_between_host_and_gpu_load_and_store(traces: Traces, corpus: Path) -> None:
    query = """
        SELECT rank, op_id, in_bytes, CASE WHEN name LIKE '%HtoD%' THEN 'MEM_LOAD_NODE'
          WHEN name LIKE '%DtoH%' THEN 'MEM_STORE_NODE' ELSE 'COMP_NODE' END
        FROM operators WHERE kind IN ('memcpy', 'memset')
    """
    of = {rank: {node.id: node for node in nodes} for rank, (_, nodes) in traces.items()}
    wanted = rows(corpus, query)
    for rank, op_id, in_bytes, kind in wanted:
        node = of[rank][op_id + 1]
        assert (node.type, node.attr.get("tensor_size")) == (kind, in_bytes)
    kinds = Counter(node.type for _, nodes in traces.values() for node in nodes)
    assert kinds["MEM_LOAD_NODE"] == sum(kind == "MEM_LOAD_NODE" for *_, kind in wanted)
    assert kinds["MEM_STORE_NODE"] == sum(kind == "MEM_STORE_NODE" for *_, kind in wanted)


SCHEMA: Final = {
    "IOInfo": [("values", 1, "s"), ("shapes", 2, "s"), ("types", 3, "s")],
    "AttributeProto": [
        ("name", 1, "s"), ("doc_string", 2, "s"), ("double_val", 3, "d"), ("int32_val", 7, "i"), ("int64_val", 9, "l"),
        ("uint32_val", 11, "j"), ("uint64_val", 13, "u"), ("bool_val", 27, "b"), ("string_val", 29, "s"),
    ],
    "GlobalMetadata": [("version", 1, "s"), ("attr", 2, "*AttributeProto")],
    "Node": [
        ("id", 1, "u"), ("name", 2, "s"), ("type", 3, "i"), ("ctrl_deps", 4, "*u"), ("data_deps", 5, "*u"),
        ("start_time_micros", 6, "u"), ("duration_micros", 7, "u"), ("inputs", 8, "IOInfo"), ("outputs", 9, "IOInfo"),
        ("attr", 10, "*AttributeProto"),
    ],
}  # fmt: skip
"""et_def.proto of schema 0.0.4, as far as it is written; an enumeration is an int32 on the wire."""


def messages_of_google() -> dict[str, Any]:
    """Return Google's own classes for these messages, made without protoc."""
    descriptor = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory  # noqa: PLC0415 - as above

    types = {"d": 1, "l": 3, "u": 4, "i": 5, "b": 8, "s": 9, "j": 13}
    file = descriptor.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            plain = kind.lstrip("*")
            made = message.field.add(
                name=field, number=number, label=3 if plain != kind else 1, type=types.get(plain, 11)
            )
            if plain not in types:
                made.type_name = f".ChakraProtoMsg.{plain}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}")) for name in SCHEMA
    }


def test_google_s_decoder_reads_the_same_and_writes_the_same_length(traces: Traces, corpus: Path) -> None:
    of = messages_of_google()
    rank = min(traces)
    about, nodes = traces[rank]
    data = (corpus.parent / "et" / f"job.{rank}.et").read_bytes()
    at = 0
    read_back: list[Any] = []
    while at < len(data):
        size = shift = 0
        while True:
            size |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 0x80:
                break
        message = of["Node" if read_back else "GlobalMetadata"]()
        message.ParseFromString(data[at : at + size])
        message.DiscardUnknownFields()
        read_back.append(message)
        at += size
    metadata, *found = read_back
    assert metadata.version == about["version"]
    assert {one.name for one in metadata.attr} == about.keys() - {"version"}
    for node, message in zip(nodes, found, strict=True):
        assert (node.id, node.name, node.start_time_micros) == (message.id, message.name, message.start_time_micros)
        assert node.type == NODE_TYPES[message.type]
        assert (node.ctrl_deps, node.data_deps) == (list(message.ctrl_deps), list(message.data_deps))
        assert node.duration_micros == message.duration_micros
        assert node.attr == {one.name: getattr(one, node.kinds[one.name]) for one in message.attr}
        assert (node.inputs or {}).get("shapes", "") == message.inputs.shapes


def transfer(name: str, ts: float, correlation: int, group: str, size: int, **args: Any) -> list[Event]:
    said = {"Collective name": name, "dtype": "Float", "Process Group Name": group, "Group size": size}
    said |= {"In msg nelems": 256 * (name == "send"), "Out msg nelems": 256 * (name == "recv")}
    sent = kernel("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", ts + 10, 30, correlation=correlation)
    sent["args"] |= said | {key.replace("_", " "): value for key, value in args.items()}
    return [launch(ts, 5, correlation), sent]


def pipeline(folder: Path, group: str, ranks: list[int], *, says_peer: bool) -> Path:
    """Two ranks: the first sends twice, the last receives."""
    for rank, name, peer in ((ranks[0], "send", ranks[-1]), (ranks[-1], "recv", ranks[0])):
        said = {"Dst_Rank" if name == "send" else "Src_Rank": peer} if says_peer else {}
        events = [op("aten::mm", 0, 50), launch(10, 5, 1), kernel("sm90_xmma_gemm", 20, 20, correlation=1)]
        events += transfer(name, 60, 2, group, len(ranks), **said) + transfer(name, 100, 3, group, len(ranks), **said)
        listed = [
            {"pg_name": group, "pg_desc": "pp", "backend_config": "cuda:nccl", "pg_size": len(ranks), "ranks": ranks}
        ]
        about = {"backend": "nccl", "rank": rank, "world_size": 8, "pg_config": listed}
        write(folder / "in" / f"rank{rank}.json", events, distributedInfo=about)
    assert not ingest([folder / "in"], folder / "corpus", workers=1).failed
    run.replay(folder / "corpus")
    return folder / "corpus"


@pytest.mark.parametrize(("ranks", "says_peer"), [([1, 6], False), ([1, 6], True), ([1, 3, 4, 6], True)])
def test_sends_and_receives_name_each_other(tmp_path: Path, ranks: list[int], *, says_peer: bool) -> None:
    files, _ = export(pipeline(tmp_path, "3", ranks, says_peer=says_peer), tmp_path / "job")
    assert [file.name for file in files] == ["job.1.et", "job.6.et"]
    sent, received = ([node for node in read(file)[1] if node.type.startswith("COMM")] for file in files)
    for nodes, kind in ((sent, "COMM_SEND_NODE"), (received, "COMM_RECV_NODE")):
        assert [(node.type, node.attr["comm_size"], node.attr["pg_name"]) for node in nodes] == [(kind, 1024, "3")] * 2
        ends = [[node.attr[name] for name in ("comm_src", "comm_dst", "comm_tag")] for node in nodes]
        assert ends == [[1, 6, 0], [1, 6, 1]]
        assert {nodes[0].kinds[name] for name in ("comm_src", "comm_dst", "comm_tag")} == {"int32_val"}


def test_who_the_other_end_is_is_left_out_where_no_one_says(tmp_path: Path) -> None:
    files, _ = export(pipeline(tmp_path, "3", [1, 3, 4, 6], says_peer=False), tmp_path / "job")
    node = next(node for node in read(files[0])[1] if node.type == "COMM_SEND_NODE")
    assert node.attr["comm_src"] == 1
    assert not node.attr.keys() & {"comm_dst", "comm_tag"}


def test_groups_without_numbers_for_names_get_numbers(tmp_path: Path) -> None:
    files, _ = export(pipeline(tmp_path, "mesh_pp", [0, 1], says_peer=False), tmp_path / "job")
    for file in files:
        about, nodes = read(file)
        assert {node.attr["pg_name"] for node in nodes if node.type.startswith("COMM")} == {"1"}
        (group,) = json.loads(about["process_groups"])
        assert (group["pg_name"], group["pg_desc"], group["ranks"]) == ("1", "pp", [0, 1])


def test_an_estimated_job_says_so_and_how_each_duration_is_known(lumos: Run, tmp_path: Path) -> None:
    samples = SAMPLES / "gpu_generated"
    assert not ingest([samples], tmp_path / "corpus", workers=1).failed
    done = lumos("estimate", "--set", "layers=3", "--into", "changed")
    assert done.returncode == 0, done.stderr
    files, _ = export(tmp_path / "changed", tmp_path / "job")
    assert len(files) == 4
    for file in files:
        about, nodes = read(file)
        assert about["estimated"] is True
        assert "layers=3" in about["job"]
        known = Counter(node.attr.get("provenance") for node in nodes if node.attr.get("stream") is not None)
        assert known.keys() <= {"measured", "rescaled", "interpolated", "modelled"}
        assert abs(max(finished(nodes).values()) / (about["finish_ts"] - about["start_ts"]) - 1) < 0.03


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of four ranks, replayed."""
    corpus = tmp_path_factory.mktemp("job") / "corpus"
    assert not ingest([SAMPLES / "gpu_generated"], corpus, workers=1).failed
    run.replay(corpus)
    return corpus


def test_a_job_that_was_not_replayed_is_refused(lumos: Run, tmp_path: Path) -> None:
    corpus = tmp_path / "new"
    assert not ingest([SAMPLES / "cpu_ddp"], corpus, workers=1).failed
    trace = rows(corpus, "SELECT trace_id FROM traces WHERE rank = 1")[0][0]
    done = lumos("export", "--what", "chakra", "--corpus", corpus, "--trace", trace, "--output", "job")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert f"first run: lumos-df replay --corpus {corpus}" in done.stderr
    assert list(tmp_path.iterdir()) == [corpus]


def test_one_job_is_chosen(lumos: Run, sample_corpus: Path) -> None:
    done = lumos("export", "--what", "chakra", "--corpus", sample_corpus, "--output", "job")
    assert done.returncode == 1
    assert "holds 2 jobs; name one with --job NAME" in done.stderr


@pytest.mark.parametrize("options", [["--what", "perfetto"], ["--what", "perfetto", "--drop", "name=aten::mm"], []])
def test_a_job_is_exported_by_its_name(lumos: Run, sample_corpus: Path, tmp_path: Path, options: list[str]) -> None:
    corpus = Path(shutil.copytree(sample_corpus, tmp_path / "corpus"))
    run.replay(corpus)
    at = ("--corpus", corpus, "--job", "cpu_ddp", "--output")
    assert lumos("export", *options, *at, "job.json").returncode == 0
    events = json.loads((tmp_path / "job.json").read_bytes())["traceEvents"]
    named = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {" ".join(name.split()[:2]) for name in named} == {"rank 0", "rank 1"}
    if not options:
        assert lumos("export", "--what", "chakra", *at, "job").returncode == 0
        assert len(list(tmp_path.glob("job.*.et"))) == 2


@pytest.mark.parametrize("options", [["--what", "chakras"], ["--what", "chakra", "--scale", "family=gemm:0.5"]])
def test_what_makes_no_sense_is_usage(lumos: Run, job: Path, tmp_path: Path, options: list[str]) -> None:
    done = lumos("export", *options, "--corpus", job, "--output", "job")
    assert (done.returncode, done.stdout) == (2, "")
    assert "write replay, critical-path, perfetto, chakra" in done.stderr or "only perfetto shows" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("trace", "told"),
    [("ffffffff", "no trace has the id 'ffffffff'"), ("estimate-12", "an estimate of its parts, without a graph")],
)
def test_a_trace_that_is_not_there_is_refused(job: Path, tmp_path: Path, trace: str, told: str) -> None:
    with pytest.raises(LumosError, match=told):
        export(job, tmp_path / "job", trace)
    assert not list(tmp_path.iterdir())


def test_a_folder_is_no_name(job: Path, tmp_path: Path) -> None:
    with pytest.raises(LumosError, match="a folder; give the files' name before the rank"):
        export(job, tmp_path)


def test_files_of_other_ranks_are_in_the_way_and_those_of_the_same_are_replaced(job: Path, tmp_path: Path) -> None:
    (tmp_path / "job.before.9.et").write_bytes(b"of a job of another name")
    first, _ = export(job, tmp_path / "job.et")
    content = [file.read_bytes() for file in first]
    first[2].write_bytes(b"old")
    again, _ = export(job, tmp_path / "job")
    assert [file.read_bytes() for file in again] == content
    (tmp_path / "job.7.et").write_bytes(b"of another job")
    first[0].unlink()
    with pytest.raises(LumosError, match=r"job\.7\.et: of another export"):
        export(job, tmp_path / "job")
    assert not first[0].exists()


def test_a_full_disk_leaves_no_file(job: Path, tmp_path: Path) -> None:
    files, _ = export(job, tmp_path / "before" / "job")
    sizes = [file.stat().st_size for file in files]
    assert max(sizes) > sizes[0], "the first file fits below the limit, a later one does not"
    limit = sizes[0]
    done = subprocess.run(
        command("export", "--what", "chakra", "--corpus", job, "--output", tmp_path / "after" / "job"),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "check the path, its permissions and the disk's space" in done.stderr
    assert not list((tmp_path / "after").iterdir())
