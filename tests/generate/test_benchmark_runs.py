"""Generated benchmarks that run with torch: the calls that were recorded, and no others."""

from pathlib import Path

import pytest

from lumos_df import connect
from lumos_df.corpus.diff import Grouping, diff
from lumos_df.generate.benchmark_folder import generate
from lumos_df.generate.recorded_rows import RecordedRows
from lumos_df.generate.replayed_calls import replay
from lumos_df.trace.ingest import ingest
from tests.conftest import SAMPLES
from tests.generate.benchmarks import (
    STEP,
    benchmark_of_script,
    called,
    generated,
    needs_torch,
    on_gpu,
    run_benchmark,
    run_beside,
    vendors,
)
from tests.trace.literal import annotation, op


@needs_torch
def test_operators_of_old_torch_and_of_vendors_run_here_as_others(tmp_path: Path) -> None:
    vendors(tmp_path)
    result = run_benchmark(tmp_path / "benchmark", "--iterations", 1, "--warmup", 0)
    assert result["copied_instead"] == {}
    assert result["replaced_instead"] == {
        "aten::miopen_batch_norm_backward": {"share_pct": 25.0, "by": "aten::native_batch_norm_backward"}
    }


@needs_torch
def test_a_benchmark_of_gpus_runs_here_and_names_what_it_copies(tmp_path: Path) -> None:
    unknown = op("aten::of_another_torch", 88, 4, **called([[8, 8]], ["float"]))
    generated(tmp_path, [*STEP, unknown, *on_gpu(7, 89, dur=2)])
    result = run_benchmark(tmp_path / "benchmark", "--small", 2, "--iterations", 2, "--warmup", 0)
    assert list(result["copied_instead"]) == ["aten::of_another_torch"]
    said = result["copied_instead"]["aten::of_another_torch"]
    assert (said["share_pct"], result["copied_instead_pct"]) == (pytest.approx(100 * 2 / 50), pytest.approx(4))
    assert "of_another_torch" in said["reason"]
    assert {"gemm", "attention"} <= set(result["families_ms"])


@needs_torch
def test_two_ranks_run_over_gloo_and_their_own_trace_compares_with_the_recording(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    assert not ingest([SAMPLES / "cpu_ddp"], corpus, job="recorded", workers=1).failed
    generate(corpus, tmp_path / "benchmark")
    result = run_benchmark(
        tmp_path / "benchmark", "--iterations", 3, "--warmup", 1, "--trace", tmp_path / "again", ranks=2
    )
    assert result["copied_instead"] == {}
    assert not ingest([tmp_path / "again"], corpus, job="benchmark", workers=1).failed
    rows, *_ = diff(corpus, "recorded", "benchmark", [Grouping.OPERATOR])
    both = {row["value"] for row in rows.to_pylist() if row["a_ns"] and row["b_ns"]}
    assert {"aten::addmm", "aten::mm"} <= both
    # What keeps ranks together in the recording does so here: no barrier is in a step.
    assert not [row["value"] for row in rows.to_pylist() if "barrier" in str(row["value"])]


EVERY_NET = """
import torch
from torch.nn.functional import cross_entropy
from tools.plain_nets import NETS
sizes = {
    "gpt": (1, 32, 2, 8), "encoder": (1, 32, 2, 8), "mixer": (1, 16, 2, 9), "conv": (1, 8, 2, 8), "lstm": (1, 16, 2, 8),
    "vit": (1, 16, 2, 8), "resnet": (1, 8, 2, 32), "dlrm": (1, 16, 8, 3), "bf16": (1, 32, 2, 8),
}
nets = [NETS[net][0](*map(size.__getitem__, (0, 1, 3))) for net, size in sizes.items()]
inputs = [NETS[net][1](size) for net, size in sizes.items()]
optimizer = torch.optim.AdamW([each for net in nets for each in net.parameters()])
for _ in range(8):
    for net, given in zip(nets, inputs):
        logits = net(given).flatten(0, -2)
        cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64)).backward()
    optimizer.step(); optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def every_net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a recording of all plain nets in one step, and of its benchmark."""
    folder = tmp_path_factory.mktemp("every-net")
    benchmark_of_script(folder, EVERY_NET)
    return folder


@needs_torch
def test_a_benchmark_of_the_benchmark_makes_the_same_calls(every_net: Path) -> None:
    """Of attention, convolutions, recurrent layers, bags, normalizations and optimizers; `diff` pairs all of them."""
    printed = run_benchmark(every_net / "benchmark", "--iterations", 1, "--warmup", 0, "--trace", every_net / "again")
    assert printed["copied_instead"] == {}
    assert not ingest([every_net / "again"], every_net / "corpus", job="again", workers=1).failed
    with connect(every_net / "corpus") as connection:
        (job,) = {name for (name,) in connection.execute("SELECT job FROM traces").fetchall()} - {"again"}
        steps = "SELECT trace_id, max(step) FROM step JOIN traces USING (trace_id) WHERE step.job = $1 GROUP BY 1"
        recorded, again = (
            replay(RecordedRows.read(connection, *connection.execute(steps, [each]).fetchall()[0])).calls["name"]
            for each in (job, "again")
        )
    assert len(recorded) > 1000
    assert recorded.to_list() == again.to_list()
    rows, *_ = diff(every_net / "corpus", job, "again", [Grouping.OPERATOR])
    times = {row["value"]: (row["a_ns"], row["b_ns"]) for row in rows.to_pylist()}
    assert not [name for name in set(recorded) if not all(times[name])]


JOINED = """
import argparse, json, pathlib, torch
from benchmark import Step
plan = json.loads((pathlib.Path(__file__).parent / "plan.json").read_text())
options = argparse.Namespace(small=1, seed=0, host_gaps="cut")
together, one_by_one = Step(plan, 0, options), Step(plan, 0, options)
rows = together.times[2][0]
print(len(rows), len(together.threads[0]))
one_by_one.times = *one_by_one.times[:2], one_by_one.threads
for step in (together, one_by_one):
    step.timed(3)
pairs = [(first, one_by_one.maker.state.pool[place]) for place, first in together.maker.state.pool.items()]
print(len(pairs), all(bool(pair[0].isfinite().all()) and torch.equal(*pair) for pair in pairs))
kept = [{number: len(results) for number, results in step.results.held.items()} for step in (together, one_by_one)]
print(len(together.results.kept), kept[0] == kept[1])
"""


@needs_torch
def test_calls_in_a_graph_do_what_they_do_one_by_one(every_net: Path) -> None:
    """All are in one, of lists and of what asks for gradients, too; weights and states become what they become."""
    (rows, calls), (tensors, same), (kept, as_long) = (
        line.split() for line in run_beside(every_net / "benchmark", JOINED).splitlines()
    )
    assert (int(rows), same, as_long) == (1, "True", "True")
    assert int(calls) > 1000
    assert int(tensors) > 100
    assert int(kept) > 0


@needs_torch
def test_smaller_sizes_still_fit_each_other_in_a_normalization_of_groups(tmp_path: Path) -> None:
    """Groups divide the channels, and a product of sizes is one of the smaller ones."""
    given = [[32, 64, 30, 30], [64], [64]]
    forward = called([given[0], [], *given[1:], [], []], ["float", "Scalar", "float", "float", "Scalar", "Scalar"])
    forward["Concrete_Inputs"] = ["", "32", "", "", "1e-05", "False"]
    back = called(
        [given[0], given[0], [32, 32], [32, 32], [64], [], [], [], [], []],
        [*["float"] * 5, *["Scalar"] * 4, "ScalarList"],
        [*[""] * 5, "32", "64", "900", "32", "[True, True, True]"],
    )
    calls = [op("aten::group_norm", 10, 30, **forward), op("aten::native_group_norm_backward", 50, 40, **back)]
    generated(tmp_path, [annotation("ProfilerStep#1", 0, 100), *calls])
    printed = run_benchmark(tmp_path / "benchmark", "--iterations", 1, "--warmup", 0, "--small", 16)
    assert printed["copied_instead"] == {}
