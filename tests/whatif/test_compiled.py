"""A net that torch.compile made, recorded on a CPU: what was fused is in no operator, and no gradient inside a pass."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lumos_df.graph.job import groups
from lumos_df.whatif.estimate import estimate
from lumos_df.whatif.job.recorded_job import load
from lumos_df.whatif.job.settings import parse
from tests.whatif.conftest import ingested

WIDTH, TOKENS, BATCH, HEADS, CLASSES = 96, 40, 6, 4, 500
PRODUCT_US, FUSED_US, UPDATE_US = 900.0, 100.0, 10.0


@dataclass
class _Run:
    now: float = 0.0
    events: list[dict[str, Any]] = field(default_factory=list)

    def add(self, name: str, *dims: list[int], us: float = PRODUCT_US, category: str = "cpu_op") -> None:
        args = {"Input Dims": dims, "Input type": ["float"] * len(dims)} if category == "cpu_op" else {}
        head = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1}
        self.events.append({**head, "ts": self.now, "dur": us, "args": args})
        self.now += us

    def region(self, name: str, products: list[tuple[list[int], list[int]]], number: int) -> None:
        """Run what one operator calls: products, and kernels that nothing records before each."""
        begin = self.now
        node = {"Sequence number": number, "Fwd thread id": int(name.endswith("Backward"))}
        for left, right in products:
            self.now += FUSED_US
            self.add("aten::bmm" if len(left) == 3 else "aten::mm", left, right)
        self.now += FUSED_US
        around = {**self.events[-1], "ts": begin, "dur": self.now - begin, "args": node}
        names = [f"autograd::engine::evaluate_function: {name}", name] if node["Fwd thread id"] else [name]
        self.events += [{**around, "name": each} for each in names]


def trained(layers: int, steps: int = 3) -> list[dict[str, Any]]:
    """Return the recording of a few steps."""
    rows, of_head = BATCH * TOKENS, BATCH * HEADS
    sizes = [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
    linear = [([rows, into], [into, out]) for into, out in sizes]
    scores = ([of_head, TOKENS, WIDTH // HEADS], [of_head, WIDTH // HEADS, TOKENS])
    values = ([of_head, TOKENS, TOKENS], [of_head, TOKENS, WIDTH // HEADS])
    down = [pair for into, out in sizes[::-1] for pair in (([out, rows], [rows, into]), ([rows, out], [out, into]))]
    run = _Run()
    for number in range(1, steps + 1):
        begin = run.now
        run.region("CompiledFunction", [linear[0], scores, values, *linear[1:]] * layers, number)
        run.add("aten::flatten", [BATCH, TOKENS, CLASSES], us=20.0)
        run.add("aten::log_softmax", [rows, CLASSES], us=500.0)
        run.region("CompiledFunctionBackward", [*down, values, scores] * layers, number)
        for _ in range(4 * layers):
            for name in (
                "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
                "torch::autograd::AccumulateGrad",
            ):
                run.add(name, [WIDTH, WIDTH], us=UPDATE_US)
            # One calls the other.
            run.now -= UPDATE_US
            run.events[-1]["ts"] -= UPDATE_US
        run.events.append(
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1}
            | {"ts": begin, "dur": run.now - begin}
        )
    return sorted(run.events, key=lambda event: (event["ts"], -event["dur"]))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "trace.json").write_text(json.dumps({"traceEvents": trained(3)}))
    return ingested(tmp_path / "corpus", tmp_path / "job")


def test_its_layers_batch_and_tokens_are_told(corpus: Path) -> None:
    sizes = load(corpus, groups(corpus)[0], {}).sizes
    assert (sizes.layers, sizes.hidden, sizes.micro_batch, sizes.seq) == (3, WIDTH, BATCH, TOKENS)


def test_more_layers_take_what_lies_between_their_products_as_well(corpus: Path) -> None:
    wanted = {layers: max(event["dur"] for event in trained(layers) if "Step" in event["name"]) for layers in (3, 6)}
    (row,) = estimate(corpus, parse(["layers=6"])).to_pylist()[:1]
    grown = wanted[6] / wanted[3]
    assert row["step_ns"] / row["original_step_ns"] == pytest.approx(grown, rel=0.06)


def test_its_products_grow_with_the_samples(corpus: Path) -> None:
    (row,) = estimate(corpus, parse(["micro_batch=12"])).to_pylist()[:1]
    assert row["step_ns"] / row["original_step_ns"] > 1.6
