"""Collectives of a changed job: what each kind in each group takes over its links, worked out by hand.

The job is tp=2, dp=2, pp=2, ep=2 in one domain of 8 GPUs with links of 100 GB/s; between domains there are 10 GB/s.
Its rank 0 runs every kind once, 1 GB as nccl-tests count it, as long as these links take.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from lumos_df.graph.job import groups
from lumos_df.model.hardware import ScaleOut, ScaleUp
from lumos_df.trace.ingest import ingest
from lumos_df.whatif.answer.interval import interval
from lumos_df.whatif.estimate import estimated
from lumos_df.whatif.job.recorded_gpu import RecordedGpu
from lumos_df.whatif.job.recorded_job import RecordedJob, load
from lumos_df.whatif.job.settings import parse
from tests.model.roofs import GPU, WITHIN, document
from tests.trace.literal import Event, annotation, kernel, launch, op, stated, write

KNOWN: Final = {
    "tp": 2,
    "dp": 2,
    "pp": 2,
    "ep": 2,
    "world": 8,
    "layers": 4,
    "hidden": 1024,
    "heads": 8,
    "kv_heads": 8,
    "head_dim": 128,
    "ffn": 4096,
    "vocabulary": 32768,
    "sequence": 1024,
    "micro_batch": 1,
    "micro_batches": 1,
}
LAYER, TABLE = 12 * 1024**2, 32768 * 1024
"""Parameters of a layer and of a table of the vocabulary. A rank has two layers and a table, over tp."""
WHOLE: Final = 500_000_000
"""Elements of 2 bytes: 1 GB."""
PART: Final = WHOLE // 2

DESCRIBED: Final = {
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "dp": "DATA_PARALLEL_GROUP",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
}
KINDS: Final = {
    # Kind: what goes in, what comes out, elements.
    "allreduce": (WHOLE, WHOLE),
    "allgather": (PART, WHOLE),
    "reduce_scatter": (WHOLE, PART),
    "broadcast": (WHOLE, WHOLE),
    "all_to_all": (WHOLE, WHOLE),
    "send": (WHOLE, WHOLE),
}
RUN: Final = {
    f"{group} {kind}": (group, kind)
    for group, kinds in {
        "tp": ("allreduce", "allgather", "reduce_scatter"),
        "dp": ("allreduce", "allgather", "reduce_scatter", "broadcast"),
        "ep": ("all_to_all",),
        "pp": ("send",),
    }.items()
    for kind in kinds
}
"""Group and kind of each kernel."""
RECORDED_US: Final = {
    **dict.fromkeys(("allreduce", "broadcast", "send"), 10_000),
    **dict.fromkeys(("allgather", "reduce_scatter", "all_to_all"), 5_000),
}
"""Of two ranks each sends half of the buffer, in an all-reduce twice; or all of it."""


def events() -> list[Event]:
    made = [annotation("ProfilerStep#1", 0, 1e6), op("aten::mm", 1, 1)]
    for number, (name, (group, kind)) in enumerate(RUN.items()):
        at = 10 + 20_000 * number
        said = stated(kind, *KINDS[kind], Group_size=2, Process_Group_Name=group)
        place = {"correlation": number, "stream": 20 + number}
        made += [launch(at, 5, number), kernel(f"ncclDevKernel {name}", at + 10, RECORDED_US[kind], **place, **said)]
    return made


def recorded(folder: Path, *ranks: list[Event]) -> RecordedJob:
    """Return the job of some first ranks, on GPUs of round figures."""
    members = {"tp": [0, 1], "dp": [0, 2], "ep": [0, 2], "pp": [0, 4]}
    named: list[dict[str, Any]] = [
        {"pg_name": name, "pg_desc": text, "pg_size": 2, "ranks": members[name]} for name, text in DESCRIBED.items()
    ]
    for rank, of_rank in enumerate(ranks):
        about = {"backend": "nccl", "rank": rank, "world_size": 8, "pg_config": named}
        write(folder / "job" / f"rank{rank}.json", of_rank, distributedInfo=about)
    assert not ingest([folder / "job"], folder / "corpus", workers=1).failed
    (ids,) = groups(folder / "corpus")
    return replace(load(folder / "corpus", ids, KNOWN), gpu=RecordedGpu(GPU))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> RecordedJob:
    """Rank 0, which runs every kind once."""
    return recorded(tmp_path_factory.mktemp("transfers"), events())


def longer(job: RecordedJob, text: str) -> dict[str, float]:
    """Return how many times as long each kernel of a changed job lasts."""
    (replay,) = estimated(job, parse(text.split())).after.replays
    rows = replay.graph.rows
    row = replay.graph.gpu.row
    lasts = replay.end[row] - replay.start[row]
    names = [rows.names[name].removeprefix("ncclDevKernel ") for name in rows.name[row].tolist()]
    return {name: ns / (1000 * RECORDED_US[RUN[name][1]]) for name, ns in zip(names, lasts.tolist(), strict=True)}


SAME = dict.fromkeys(RUN, 1.0)
ACTIVATIONS = ("tp allreduce", "tp allgather", "tp reduce_scatter", "ep all_to_all", "pp send")
GRADIENTS = ("dp allreduce", "dp allgather", "dp reduce_scatter", "dp broadcast")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Of two ranks each sends half of the buffer, of four 3/4; an all-reduce goes around twice. Half of the
        # parameters a rank, so half of the gradients, whose ranks are 4 apart now. Stages are 8 apart: 10 GB/s; the
        # reduce-scatters cut the sequence, so each rank sends half as much.
        (
            "tp=4",
            {
                **dict.fromkeys(("tp allreduce", "tp allgather", "tp reduce_scatter"), (3 / 4) / (1 / 2)),
                **dict.fromkeys(GRADIENTS, 1 / 2),
                "pp send": 10 / 2,
            },
        ),
        # A quarter of the gradients between domains, and tokens to experts between domains.
        (
            "tp=8",
            {
                **dict.fromkeys(("tp allreduce", "tp allgather", "tp reduce_scatter"), (7 / 8) / (1 / 2)),
                **dict.fromkeys(GRADIENTS, 10 / 4),
                "ep all_to_all": 10,
                "pp send": 10 / 4,
            },
        ),
        # Nobody to talk to in the tensor-parallel group, and all of the gradients.
        (
            "tp=1",
            {
                **dict.fromkeys(("tp allreduce", "tp allgather", "tp reduce_scatter"), 0),
                **dict.fromkeys(GRADIENTS, 2),
                "pp send": 2,
            },
        ),
        # Ranks 0, 2, 4 and 6. A broadcast sends its buffer whatever the group is.
        (
            "dp=4",
            {
                **dict.fromkeys(("dp allreduce", "dp allgather", "dp reduce_scatter"), (3 / 4) / (1 / 2)),
                "pp send": 10,
            },
        ),
        # Four of eight in a domain: each takes a quarter of the buffer over to the other domain. An all-reduce of two
        # sums up in each first, and goes there and back; a ring through all eight carries 7/8 of it over each link.
        (
            "dp=8",
            {
                "dp allreduce": 10 * (1 / 4) * (1 / 2) / (1 / 2),
                **dict.fromkeys(("dp allgather", "dp reduce_scatter"), 10 * (1 / 4) * (7 / 8) / (1 / 2)),
                "dp broadcast": 10 / 4,
                "pp send": 10,
            },
        ),
        ("dp=1", dict.fromkeys(GRADIENTS[:3], 0) | {"dp broadcast": 0}),
        # Twice the tokens are twice the activations.
        ("seq=2048", dict.fromkeys(ACTIVATIONS, 2)),
        ("micro_batch=3", dict.fromkeys(ACTIVATIONS, 3)),
        # Twice the width, by heads of the same size: activations twice; a layer is 4 h^2 + 2 h x 4096, twice.
        (
            "hidden=2048",
            dict.fromkeys(ACTIVATIONS, 2)
            | dict.fromkeys(GRADIENTS, (2 * (4 * 2048**2 + 2 * 2048 * 4096) + 2 * TABLE) / (2 * LAYER + TABLE)),
        ),
        ("vocab=65536", dict.fromkeys(GRADIENTS, (2 * LAYER + 2 * TABLE) / (2 * LAYER + TABLE))),
        ("ffn=8192", dict.fromkeys(GRADIENTS, (2 * 20 / 12 * LAYER + TABLE) / (2 * LAYER + TABLE))),
        # Links of half the rate, wherever they lead.
        ("network=50e9", dict.fromkeys(RUN, 2)),
        # 1 ms a step: an all-reduce of two has two steps in 10 ms, a gather one in 5 ms, a transfer one in 10 ms.
        (
            "network=100e9/1e-3",
            dict.fromkeys(RUN, 1.2) | {"dp broadcast": 1.1, "pp send": 1.1},
        ),
        # Four ranks: an all-reduce has 15 ms of bytes and six steps, a gather 7.5 and three, a broadcast 10 and three.
        (
            "dp=4 network=100e9/1e-3",
            dict.fromkeys(RUN, 1.2)
            | dict.fromkeys(GRADIENTS, (15 + 6) / 10)
            | {"dp broadcast": (10 + 3) / 10, "pp send": 1.1},
        ),
    ],
)
def test_each_kind_in_each_group_takes_its_bytes_over_its_links(
    job: RecordedJob, text: str, expected: dict[str, float]
) -> None:
    assert longer(job, text) == pytest.approx(SAME | expected, rel=2 * WITHIN)


def test_activations_of_four_bytes_are_twice_as_long_on_their_way(job: RecordedJob) -> None:
    ratios = longer(job, "dtype=float32")
    assert {name: ratios[name] for name in ACTIVATIONS} == pytest.approx(dict.fromkeys(ACTIVATIONS, 2), rel=WITHIN)


def test_only_the_transfer_grows_and_not_the_wait_before_it(tmp_path: Path) -> None:
    """Rank 1 comes 4 ms later to an all-reduce that takes 10 ms."""
    said = stated("allreduce", WHOLE, WHOLE, Group_size=2, Process_Group_Name="tp")
    around = [annotation("ProfilerStep#1", 0, 20_000), op("aten::mm", 1, 1)]
    ranks = [
        [
            *around,
            launch(late, 5, 1),
            kernel("ncclDevKernel_AllReduce", late + 10, 14_010 - late, correlation=1, **said),
        ]
        for late in (10, 4010)
    ]
    for text, transfer_ms in (("", 10), ("tp=4", 15), ("seq=2048", 20), ("network=50e9", 20)):
        after = estimated(recorded(tmp_path / (text or "same"), *ranks), parse(text.split())).after
        lasts = [float((replay.end - replay.start)[replay.graph.gpu.row[0]]) / 1e6 for replay in after.replays]
        assert lasts == pytest.approx([4 + transfer_ms, transfer_ms], rel=WITHIN)


def test_links_of_another_gpu_carry_the_same_bytes(job: RecordedJob, tmp_path: Path) -> None:
    """Its domains are of 2 GPUs with 400 GB/s, and between them there are 20: all but tp's pairs cross."""
    file = tmp_path / "pairs.toml"
    file.write_text(document(replace(GPU, name="pairs", scale_up=ScaleUp(2, 400e9), scale_out=ScaleOut(20e9))))
    expected = dict.fromkeys(RUN, 100 / 20) | dict.fromkeys(ACTIVATIONS[:3], 100 / 400)
    assert longer(job, f"hardware={file}") == pytest.approx(expected, rel=WITHIN)


def gathering(*, also_reduces: bool) -> list[Event]:
    """A gather of 10 ms without bytes, and perhaps an all-reduce of 1 GB over the same links, at 50 GB/s."""
    place = {"Group size": 2, "Process Group Name": "tp"}
    made = [annotation("ProfilerStep#1", 0, 1e5), op("aten::mm", 1, 1), launch(10, 5, 1)]
    made += [kernel("ncclDevKernel_AllGather_RING_LL", 20, 10_000, correlation=1, stream=20, **place)]
    if also_reduces:
        said = stated("allreduce", WHOLE, WHOLE, Group_size=2, Process_Group_Name="tp")
        made += [launch(20_000, 5, 2), kernel("ncclDevKernel_AllReduce", 20_010, 20_000, correlation=2, **said)]
    return made


def test_a_law_that_is_measured_wins_over_the_links_of_a_gpu_that_stands_in(tmp_path: Path) -> None:
    for also_reduces, times, cause in ((True, 1.0, "links"), (False, 2.0, f"links as of {GPU.name}")):
        ranks = [gathering(also_reduces=also_reduces)] * 2
        anchor = replace(recorded(tmp_path / cause, *ranks), gpu=RecordedGpu(GPU, 0.31))
        changed = estimated(anchor, parse(["network=50e9"]))
        replay = changed.after.replays[0]
        (gather,) = (number for number, name in enumerate(replay.graph.rows.names) if "AllGather" in name)
        lasts = (replay.end - replay.start)[replay.graph.rows.name == gather]
        assert lasts / 1e7 == pytest.approx(times, rel=3 * WITHIN)
        assert cause in {each.name for each in interval(changed).causes}
