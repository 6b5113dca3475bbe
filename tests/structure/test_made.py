"""Jobs whose layers, micro-batches, dimensions and plan are known: what is found is what was made."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lumos_df.graph.job import groups
from lumos_df.schema import PHASES
from lumos_df.schema.codes import KERNEL, NONE
from lumos_df.structure import labelled_rows
from lumos_df.structure.describe import DescribedRank, Description, of_traces
from lumos_df.trace.ingest import ingest
from tests.structure.made import Made, Truth, write

JOBS = {
    "one": Made(),
    "two layers": Made(layers=2),
    "many steps": Made(steps=3),
    "micro-batches": Made(layers=3, micro_batches=4, steps=2),
    "gradients added up": Made(layers=3, micro_batches=4, steps=2, adds=True),
    "all forward first": Made(layers=3, micro_batches=4, schedule="gpipe", steps=2),
    "unfused attention": Made(unfused=True, tp=2, micro_batches=2),
    "heads as wide as samples are many": Made(unfused=True, hidden=128, heads=8, sequence=32, batch=16),
    "recompute": Made(layers=5, micro_batches=2, recompute=True),
    "tensor": Made(tp=2),
    "data": Made(dp=2, micro_batches=2),
    "stages": Made(layers=3, pp=3, micro_batches=5),
    "stages, all forward first": Made(layers=3, pp=2, micro_batches=4, schedule="gpipe"),
    "all": Made(layers=2, tp=2, pp=2, dp=2, micro_batches=3, recompute=True, steps=2),
    "forward only": Made(backward=False, layers=6),
    "without links": Made(links=False, micro_batches=2),
    "without marks": Made(marks=False, micro_batches=2),
    "kernels alone": Made(host=False, marks=False, layers=6),
    "kernels alone, recompute": Made(host=False, marks=False, layers=6, recompute=True),
    "odd kernels": Made(
        layers=8, odd={(0, 4): "elementwise<add of another type>", (3, 1): "extra", (5, 4): "unrolled<add>"}
    ),
    "described": Made(layers=2, tp=2, pp=2, dp=2, micro_batches=3, descriptions=True),
}
ALONE = ("kernels alone", "kernels alone, recompute")
TOLD = [name for name in JOBS if name not in ALONE]

Found = tuple[Description, dict[int, list[Truth]]]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    """Every job understood, and the truth about its kernels by rank."""
    folder = tmp_path_factory.mktemp("made")
    truth = {name: write(job, folder / "traces" / name) for name, job in JOBS.items()}
    corpus = folder / "corpus"
    assert not ingest([folder / "traces"], corpus, workers=1).failed
    found = [of_traces([labelled_rows.load(corpus, one) for one in ids], {}) for ids in groups(corpus)]
    return {one.job: (one, truth[one.job]) for one in found}


def understood(folder: Path) -> Description:
    corpus = folder / "corpus"
    assert not ingest([folder / "traces"], corpus, workers=1).failed
    (ids,) = groups(corpus)
    return of_traces([labelled_rows.load(corpus, one) for one in ids], {})


def kernels_of(rank: DescribedRank) -> np.ndarray:
    """The kernels in the order in which they were made."""
    row = np.flatnonzero(rank.trace.rows.kind == KERNEL)
    return row[np.argsort(rank.trace.rows.correlation[row])]


@pytest.mark.parametrize("name", TOLD)
def test_every_kernel_is_in_its_phase_layer_and_micro_batch(jobs: dict[str, Found], name: str) -> None:
    job = JOBS[name]
    found, truth = jobs[name]
    for rank in found.ranks:
        row, expected = kernels_of(rank), truth[rank.trace.rows.rank]
        structure = rank.structure
        phases = [one.phase if job.marks or one.phase != "optimizer" else "other" for one in expected]
        assert [PHASES[code] for code in structure.phase[row].tolist()] == phases
        assert structure.layer[row].tolist() == [NONE if one.layer is None else one.layer for one in expected]
        # Sends, receives and the reduction of gradients are between passes: they go with a neighbour.
        own = [k for k, one in enumerate(expected) if one.micro_batch is not None and one.phase != "communication"]
        assert structure.micro_batch[row[own]].tolist() == [expected[k].micro_batch for k in own]
        outside = [k for k, one in enumerate(expected) if one.phase == "optimizer"]
        assert set(structure.micro_batch[row[outside]].tolist()) <= {NONE}


def facts_of(name: str) -> dict[str, int | str]:
    """What the dimensions and the plan of a job are."""
    job = JOBS[name]
    return {
        "model": "transformer",
        "dtype": "bfloat16",
        "layers": job.layers * job.pp,
        "hidden": job.hidden,
        "heads": job.heads,
        "kv_heads": job.heads,
        "head_dim": job.hidden // job.heads,
        "ffn": job.ffn,
        "sequence": job.sequence,
        "micro_batch": job.batch,
        "micro_batches": job.micro_batches,
        "vocabulary": job.vocabulary,
        "world": job.world,
        "tp": job.tp,
        "dp": job.dp,
        "pp": job.pp,
        "ep": 1,
    }


@pytest.mark.parametrize("name", TOLD)
def test_dimensions_and_plan_are_those_of_the_job(jobs: dict[str, Found], name: str) -> None:
    job = JOBS[name]
    found, _ = jobs[name]
    assert {name: fact.value for name, fact in found.facts.items()} == facts_of(name)
    assert [rank.stage.value for rank in found.ranks] == [k // job.tp % job.pp for k in range(job.world)]
    assert [rank.first_layer for rank in found.ranks] == [k // job.tp % job.pp * job.layers for k in range(job.world)]


@pytest.mark.parametrize("name", ALONE)
def test_kernels_alone_tell_layers_phases_and_recomputation(jobs: dict[str, Found], name: str) -> None:
    found, truth = jobs[name]
    (rank,) = found.ranks
    row = kernels_of(rank)
    assert rank.structure.layer[row].tolist() == [NONE if one.layer is None else one.layer for one in truth[0]]
    inside = [k for k, one in enumerate(truth[0]) if one.layer is not None]
    assert [PHASES[rank.structure.phase[row[k]]] for k in inside] == [truth[0][k].phase for k in inside]


def test_a_rank_of_many_knows_its_stage_and_the_model(tmp_path: Path) -> None:
    write(Made(layers=3, pp=4, tp=2, micro_batches=6), tmp_path / "traces", [4])
    found = understood(tmp_path)
    (rank,) = found.ranks
    assert (rank.stage.value, rank.first_layer) == (2, 6)
    assert [found.facts[name].value for name in ("layers", "tp", "pp", "dp")] == [12, 2, 4, 1]
    # No table of tokens and no head in the middle of the pipeline.
    assert found.facts["vocabulary"].value is None


@pytest.mark.parametrize(("rows", "vocabulary"), [(64, None), (65, 65)])
def test_a_table_of_as_many_rows_as_tokens_is_of_their_places(
    tmp_path: Path, rows: int, vocabulary: int | None
) -> None:
    # The first stage has no head, which would say that they are words.
    write(Made(layers=3, pp=2, sequence=64, vocabulary=rows), tmp_path / "traces", [0])
    assert understood(tmp_path).facts["vocabulary"].value == vocabulary


def test_host_rows_follow_the_kernels_they_lead_to(jobs: dict[str, Found]) -> None:
    found, _ = jobs["micro-batches"]
    (rank,) = found.ranks
    graph, structure = rank.trace.rows, rank.structure
    row = kernels_of(rank)
    call = graph.parent[row]
    assert (structure.layer[call] == structure.layer[row]).all()
    assert (structure.micro_batch[call] == structure.micro_batch[row]).all()
    marks = [k for k, name in enumerate(graph.names) if name.startswith("ProfilerStep")]
    assert (structure.layer[np.isin(graph.name, marks)] == NONE).all()
    flash = graph.names.index("attention")
    assert Counter(structure.layer[graph.name == flash].tolist()) == dict.fromkeys(range(3), 4 * 2)


def test_a_recording_that_begins_in_the_middle_numbers_layers_from_their_end(tmp_path: Path) -> None:
    job = Made(layers=8, backward=False, micro_batches=2, marks=False, host=False)
    truth = write(job, tmp_path / "traces")[0]
    path = tmp_path / "traces" / "rank0.json"
    document = json.loads(path.read_text())
    gone = 35
    document["traceEvents"] = document["traceEvents"][gone:]
    path.write_text(json.dumps(document))
    (rank,) = understood(tmp_path).ranks
    row = kernels_of(rank)
    kept = truth[gone:]
    assert len(kept) == len(row)
    assert rank.structure.layer[row].tolist() == [NONE if one.layer is None else one.layer for one in kept]
