"""Real traces: what is found in them is what is known of the jobs that left them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos_df.graph.job import groups
from lumos_df.schema.codes import BY_LINK, BY_MODULE, COMMUNICATION, KERNEL
from lumos_df.structure import labelled_rows
from lumos_df.structure.describe import Description, of_traces
from lumos_df.structure.passes import find
from lumos_df.trace.ingest import ingest
from tests.conftest import Run
from tests.real import REAL

FOLDERS = (
    "megatron_tp8_forward",
    "megatron_tp2_train",
    "h100_qwen_inference",
    "transformer_batch_sweep",
    "rocm_mi300_resnet",
    "resnet50_ddp",
    "dlrm_4gpu",
    "alexnet_cuda_sync",
)

KNOWN: dict[str, dict[str, Any]] = {
    # 40 layers, h4096, sequence 2048, micro-batch 4, TP8: the traces' README.
    "megatron_tp8_forward/rank0": {
        "model": "transformer", "dtype": "float16", "layers": 40, "hidden": 4096, "heads": 64, "head_dim": 64,
        "ffn": 16384, "sequence": 2048, "micro_batch": 4, "micro_batches": 1, "vocabulary": 51200,
        "world": 8, "tp": 8, "dp": 1, "pp": 1, "ep": 1,
    },
    # Without shapes.
    "megatron_tp2_train/rank0": {
        "model": "transformer", "layers": 2, "hidden": None, "heads": None, "ffn": None, "sequence": None,
        "vocabulary": None, "micro_batches": 1, "world": 2, "tp": 2, "dp": 1, "pp": 1,
    },
    # Qwen1.5-0.5B, from its published configuration; sequence and batch as in the trace's inputs.
    "h100_qwen_inference/rank0": {
        "model": "transformer", "dtype": "bfloat16", "layers": 24, "hidden": 1024, "heads": 16, "kv_heads": 16,
        "ffn": 2816, "vocabulary": 151936, "sequence": 559, "micro_batch": 16, "micro_batches": 1, "tp": 1, "dp": 1,
    },
    # Eight particle-attention blocks of width 128; particles have no vocabulary.
    "transformer_batch_sweep/bs8": {
        "layers": 8, "hidden": 128, "heads": 8, "ffn": 512, "micro_batch": 8, "vocabulary": None,
    },
    "transformer_batch_sweep/bs32": {
        "layers": 8, "hidden": 128, "heads": 8, "ffn": 512, "micro_batch": 32, "vocabulary": None,
    },
    "transformer_batch_sweep/bs128": {
        "layers": 8, "hidden": 128, "heads": 8, "ffn": 512, "micro_batch": 128, "vocabulary": None,
    },
    "rocm_mi300_resnet/rank0": {"model": "convolutional", "heads": None, "micro_batch": 10, "tp": 1, "dp": 8},
    "resnet50_ddp/rank0": {"model": "convolutional", "layers": None, "tp": 1, "dp": 2, "pp": 1},
    "dlrm_4gpu/worker0": {"model": "recommender", "layers": None, "dp": 4, "pp": 1},
    "alexnet_cuda_sync/rank0": {"model": "other", "layers": None},
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not REAL.is_dir():
        pytest.skip(f"no real traces at {REAL}; name their folder in LUMOS_TRACES")
    made = tmp_path_factory.mktemp("structure") / "corpus"
    assert not ingest([REAL / folder for folder in FOLDERS], made).failed
    return made


@pytest.fixture(scope="module")
def described(corpus: Path) -> dict[str, Description]:
    """By folder and file of the first rank."""
    found = (of_traces([labelled_rows.load(corpus, one) for one in ids], {}) for ids in groups(corpus))
    return {f"{one.job}/{Path(one.ranks[0].trace.rows.path).name.split('.')[0]}": one for one in found}


@pytest.mark.parametrize("name", KNOWN)
def test_dimensions_and_plan(described: dict[str, Description], name: str) -> None:
    facts = described[name].facts
    assert {key: facts[key].value for key in KNOWN[name]} == KNOWN[name]
    for fact in facts.values():
        assert fact.reason
        assert (fact.value is None) == (fact.evidence == "unknown")


def test_every_rank_finds_the_same_layers(described: dict[str, Description]) -> None:
    for name in ("megatron_tp8_forward/rank0", "megatron_tp2_train/rank0"):
        sequences = []
        for rank in described[name].ranks:
            graph = rank.trace.rows
            row = np.flatnonzero((graph.kind == KERNEL) & (graph.family != COMMUNICATION))
            sequences.append([(graph.names[graph.name[one]], int(rank.structure.layer[one])) for one in row])
        assert all(one == sequences[0] for one in sequences)


def test_every_layer_of_a_forward_pass_has_the_same_kernels(described: dict[str, Description]) -> None:
    (rank,) = described["megatron_tp8_forward/rank0"].ranks[:1]
    graph, structure = rank.trace.rows, rank.structure
    row = np.flatnonzero(graph.on_gpu & (structure.layer >= 0))
    layers = [[graph.names[graph.name[one]] for one in row[structure.layer[row] == k]] for k in range(40)]
    assert all(sorted(one) == sorted(layers[0]) for one in layers)
    # Two all-reduces a layer, of activations; the embedding's and the loss's are outside.
    assert sum("AllReduce" in name for name in layers[0]) == 2
    assert layers[0][0].startswith("void cuApplyLayerNorm")


def test_repetition_agrees_with_module_names(described: dict[str, Description]) -> None:
    (rank,) = described["h100_qwen_inference/rank0"].ranks
    structure = rank.structure
    named = structure.layer_evidence == BY_MODULE
    found = find(structure.kernels, structure.forward.place, forward=True)
    row = structure.kernels.row[found.place]
    both = named[row] & (found.layer >= 0)
    assert both.sum() > 900
    assert (rank.trace.layer[row[both]] == found.layer[both]).all()
    # 509 kernels have no launch: ten layers and a part of the pass before, numbered from their end.
    assert set(structure.layer[row[~named[row] & (found.layer >= 0)]].tolist()) == set(range(13, 24))


def test_backward_follows_its_links(described: dict[str, Description]) -> None:
    for rank in described["megatron_tp2_train/rank0"].ranks:
        structure, graph = rank.structure, rank.trace.rows
        backward = structure.backward
        row = structure.kernels.row[backward.place]
        linked = structure.layer_evidence[row] == BY_LINK
        assert linked.sum() > 60
        both = linked & (backward.layer >= 0)
        assert (structure.layer[row[both]] == backward.layer[both]).mean() >= 0.97
        assert backward.layers == 2
        assert len(graph) == len(structure.layer)


def test_describe_prints_and_stores(corpus: Path, lumos: Run) -> None:
    done = lumos(
        "describe", "--corpus", corpus, "--job", "megatron_tp2_train", "--set", "hidden=12", "--format", "json"
    )
    assert done.returncode == 0, done.stderr
    facts = {row["name"]: row for row in json.loads(done.stdout)}
    assert (facts["hidden"]["value"], facts["hidden"]["evidence"]) == (12, "override")
    assert (facts["heads"]["value"], facts["heads"]["evidence"]) == (None, "unknown")
    assert "record_shapes" in facts["heads"]["reason"]
    query = (
        "SELECT layers.layer, count(*) AS many FROM layers JOIN operators USING (trace_id, op_id) "
        "WHERE kind = 'kernel' AND family <> 'communication' AND layers.phase = 'forward' GROUP BY ALL ORDER BY 1"
    )
    rows_of = lumos("sql", query, "--corpus", corpus, "--format", "json")
    assert [row["many"] for row in json.loads(rows_of.stdout)][:2] == [42, 42]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "layer=4"), "did you mean 'layers'?"),
        (("--set", "tp=many"), "whole number of at least 1 and below 2**31, such as tp=8"),
        (("--set", "tp=0"), "whole number of at least 1"),
        (("--set", "tp"), "whole number of at least 1"),
        (("--job", "cpu_dpp"), "no job 'cpu_dpp'; did you mean 'cpu_ddp'?"),
        (("--trace", "ffffff"), "no trace has the id 'ffffff'"),
    ],
)
def test_bad_input_is_one_clear_line(sample_corpus: Path, lumos: Run, arguments: tuple[str, str], message: str) -> None:
    done = lumos("describe", "--corpus", sample_corpus, *arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert message in line


def test_the_samples_are_understood(sample_corpus: Path) -> None:
    found = {
        one.job: one
        for one in (
            of_traces([labelled_rows.load(sample_corpus, one) for one in ids], {}) for ids in groups(sample_corpus)
        )
    }
    generated = {name: fact.value for name, fact in found["gpu_generated"].facts.items()}
    wanted = {"layers": 2, "hidden": 1024, "heads": 16, "ffn": 4096, "sequence": 512, "micro_batch": 4}
    assert generated.items() >= {**wanted, "vocabulary": 8192, "tp": 1, "dp": 4, "pp": 1}.items()
    cpu = {name: fact.value for name, fact in found["cpu_ddp"].facts.items()}
    wanted = {"layers": 2, "hidden": 128, "heads": 4, "ffn": 512, "sequence": 64, "micro_batch": 4}
    assert cpu.items() >= {**wanted, "vocabulary": 512, "tp": 1, "dp": 2, "pp": 1}.items()
