"""What library operators do on the host: convolutions in blocks of channels, recurrent layers token by token."""

import json
from pathlib import Path
from typing import Any

import pytest

from lumos_df.graph.job import groups
from lumos_df.trace.ingest import ingest
from lumos_df.whatif.estimate import estimated
from lumos_df.whatif.job.recorded_job import load
from lumos_df.whatif.job.settings import Settings


def convolution(ts: int, width: int) -> dict[str, Any]:
    return operator("aten::mkldnn_convolution", ts, [4, width, 16, 16], [width, width, 3, 3])


def begun(times: float) -> float:
    """Return by how much a convolution of 900 us grows that does so many times as much: 80 us of it do not."""
    return (80 + 820 * times) / 900


def operator(name: str, ts: int, *dims: list[int], dur: int = 900) -> dict[str, Any]:
    args = {"Input Dims": dims, "Input type": ["float"] * len(dims)}
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


@pytest.mark.parametrize(
    ("before", "after", "with_8", "with_16"),
    [
        # 24 channels are three blocks of 8, or two of 16 as 32 are.
        pytest.param(24, 48, 4.0, 2.25, id="blocks differ"),
        pytest.param(32, 64, 4.0, 4.0, id="blocks agree"),
    ],
)
def test_both_widths_of_a_register_lie_in_the_interval(
    tmp_path: Path, before: int, after: int, with_8: float, with_16: float
) -> None:
    events = [convolution(1000 * number, before) for number in range(40)]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    ingest([tmp_path / "trace.json"], tmp_path / "corpus", workers=1)
    anchor = load(tmp_path / "corpus", groups(tmp_path / "corpus")[0], {"hidden": before, "micro_batch": 4})
    changed = estimated(anchor, Settings(numbers={"hidden": after}))
    (time,) = changed.times
    grown = time.own[time.own > 0].sum() / (40 * 900_000)
    error = float(time.error.max())
    # With more channels each multiplication takes less.
    less = (after / before) ** -0.2
    assert grown == pytest.approx(begun((with_8 * with_16) ** 0.5 * less), rel=0.05)
    assert grown * (1 + error) >= 0.99 * begun(max(with_8, with_16) * less)
    assert grown / (1 + error) <= 1.01 * begun(min(with_8, with_16) * less)


@pytest.mark.parametrize(
    ("inputs", "change", "wanted"),
    [
        pytest.param(32, {"hidden": 64}, 4**0.9, id="channels"),
        pytest.param(32, {"micro_batch": 8}, 2, id="batch"),
        pytest.param(1, {"hidden": 64}, 2, id="filters"),
    ],
)
def test_only_more_channels_that_are_summed_take_less_than_they_multiply(
    tmp_path: Path, inputs: int, change: dict[str, int], wanted: float
) -> None:
    dims = [4, 32, 16, 16], [32, inputs, 3, 3]
    events = [operator("aten::mkldnn_convolution", 1000 * number, *dims) for number in range(40)]
    # Something else tells at which rate bytes are moved.
    events += [operator("aten::mul", 1000 * number, [4000, 1000]) for number in range(40, 50)]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    ingest([tmp_path / "trace.json"], tmp_path / "corpus", workers=1)
    anchor = load(tmp_path / "corpus", groups(tmp_path / "corpus")[0], {"hidden": 32, "micro_batch": 4})
    changed = estimated(anchor, Settings(numbers=change))
    (graph,), (time,) = changed.job.graphs, changed.times
    convolves = [graph.rows.names[name] == "aten::mkldnn_convolution" for name in graph.rows.name.tolist()]
    grown = time.own[convolves].sum() / (40 * 900_000)
    assert grown == pytest.approx(begun(wanted), rel=0.04)
    # Or as long as it multiplies.
    assert grown * (1 + float(time.error[convolves].max())) >= (
        0.99 * begun(4) if inputs > 1 and "hidden" in change else grown
    )


@pytest.mark.parametrize(("dur", "grown"), [(160, 2.5), (60, 1.0), (1600, 3.85)])
def test_what_a_convolution_takes_to_begin_is_the_same_for_any_batch(tmp_path: Path, dur: int, grown: float) -> None:
    maps, weight = [4, 32, 16, 16], [32, 32, 3, 3]
    events = [operator("aten::mkldnn_convolution", 4000 * number, maps, weight, dur=dur) for number in range(40)]
    # Backward there are two.
    events += [
        operator("aten::convolution_backward", 4000 * number, maps, maps, weight, dur=2 * dur)
        for number in range(40, 80)
    ]
    events += [operator("aten::mul", 4000 * number, [4000, 1000]) for number in range(80, 90)]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    ingest([tmp_path / "trace.json"], tmp_path / "corpus", workers=1)
    anchor = load(tmp_path / "corpus", groups(tmp_path / "corpus")[0], {"hidden": 32, "micro_batch": 4})
    changed = estimated(anchor, Settings(numbers={"micro_batch": 16}))
    (graph,), (time,) = changed.job.graphs, changed.times
    for name, us in (("aten::mkldnn_convolution", dur), ("aten::convolution_backward", 2 * dur)):
        convolves = [graph.rows.names[number] == name for number in graph.rows.name.tolist()]
        assert time.own[convolves].sum() / (40_000 * us) == pytest.approx(grown, rel=0.03)


def test_a_product_that_ends_in_an_activation_grows_with_its_samples(tmp_path: Path) -> None:
    """PyTorch's encoder multiplies so where nothing is trained; its matrix of 4 MiB does not grow."""
    dims = [1024], [80, 1024], [1024, 1024]
    events = [operator("aten::_addmm_activation", 1000 * number, *dims) for number in range(40)]
    # Something else tells at which rate bytes are moved.
    events += [operator("aten::mul", 1000 * number, [4000, 1000]) for number in range(40, 50)]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    ingest([tmp_path / "trace.json"], tmp_path / "corpus", workers=1)
    anchor = load(tmp_path / "corpus", groups(tmp_path / "corpus")[0], {"micro_batch": 80})
    (time,) = estimated(anchor, Settings(numbers={"micro_batch": 320})).times
    assert time.own[:40].sum() / (40 * 900_000) == pytest.approx(4, rel=0.25)


@pytest.mark.parametrize(
    ("kind", "takes", "grown"),
    [
        pytest.param("c10::BFloat16", "bytes", (1.33, 1.22), id="tiles of 16 bits"),
        pytest.param("c10::BFloat16", "operations", (2, 2), id="converted first"),
        pytest.param("float", "operations", (2, 2), id="float32"),
    ],
)
def test_products_of_16_bits_take_what_explains_the_steps_own(
    tmp_path: Path, kind: str, takes: str, grown: tuple[float, float]
) -> None:
    events: list[dict[str, Any]] = []
    for columns in (256, 2048):
        moved, done = 64 * 256 + 256 * columns + 64 * columns, 64 * 256 * columns
        us = 4e-3 * moved if takes == "bytes" else 1e-4 * done
        events += [operator("aten::mm", 10_000 * len(events), [64, 256], [256, columns], dur=round(us))] * 20
    for number, event in enumerate(events):
        events[number] = {**event, "ts": 10_000 * number, "args": {**event["args"], "Input type": [kind] * 2}}
    # Something else tells at which rate bytes are moved.
    events += [operator("aten::mul", 10_000 * number, [1000, 1000]) for number in range(40, 50)]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    ingest([tmp_path / "trace.json"], tmp_path / "corpus", workers=1)
    anchor = load(tmp_path / "corpus", groups(tmp_path / "corpus")[0], {"micro_batch": 64})
    (time,) = estimated(anchor, Settings(numbers={"micro_batch": 128})).times
    for first, wanted in zip((0, 20), grown, strict=True):
        took = 1000 * sum(event["dur"] for event in events[first : first + 20])
        assert time.own[first : first + 20].sum() / took == pytest.approx(wanted, rel=0.07)


def test_a_recurrent_layer_grows_with_its_samples(tmp_path: Path) -> None:
    # Of what it touches nearly all is parameters, which do not grow.
    dims = [[40, 5, 64], [256, 64], [256, 64], [256], [256], [5, 64], [5, 64]]
    events = [operator("aten::mkldnn_rnn_layer", 1000 * number, *dims) for number in range(40)]
    # Something else tells at which rate bytes are moved.
    events += [operator("aten::mul", 1000 * number, [1000, 1000]) for number in range(40, 50)]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    ingest([tmp_path / "trace.json"], tmp_path / "corpus", workers=1)
    anchor = load(tmp_path / "corpus", groups(tmp_path / "corpus")[0], {"micro_batch": 5})
    changed = estimated(anchor, Settings(numbers={"micro_batch": 10}))
    (graph,), (time,) = changed.job.graphs, changed.times
    recurs = [graph.rows.names[name] == "aten::mkldnn_rnn_layer" for name in graph.rows.name.tolist()]
    assert time.own[recurs].sum() / (40 * 900_000) == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize(
    ("product", "forward", "backward"),
    [
        pytest.param(None, 2 / 3, 1, id="nothing else tells the rate"),
        pytest.param(1800, 1 / 3, 2 / 3, id="of a product"),
        pytest.param(9000, 1, 1, id="of one that is slower"),
    ],
)
def test_a_wider_recurrent_layer_multiplies_at_the_rate_of_products(
    tmp_path: Path, product: int | None, forward: float, backward: float
) -> None:
    """In the rest of its time it bends three times as many gates, and calls each token's operations as often."""

    def dims(width: int) -> list[list[int]]:
        gates, state = [4 * width, width], [5, width]
        return [[40, 5, width], gates, gates, [4 * width], [4 * width], state, state]

    # What it keeps for its backward pass is as long whatever its width.
    events = [operator("aten::mkldnn_rnn_layer", 10_000 * number, *dims(64)) for number in range(40)]
    events += [
        operator("aten::mkldnn_rnn_layer_backward", 10_000 * number, *dims(64), [400_000]) for number in range(40, 80)
    ]
    events += [operator("aten::mul", 10_000 * number, [1000, 1000]) for number in range(80, 90)]
    if product:
        # Six times as many operations as the layer forward.
        events.append(operator("aten::mm", 900_000, [300, 256], [256, 512], dur=product))
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    ingest([tmp_path / "trace.json"], tmp_path / "corpus", workers=1)
    anchor = load(tmp_path / "corpus", groups(tmp_path / "corpus")[0], {"hidden": 64, "micro_batch": 5})
    changed = estimated(anchor, Settings(numbers={"hidden": 192}))
    (graph,), (time,) = changed.job.graphs, changed.times
    for name, share in (("aten::mkldnn_rnn_layer", forward), ("aten::mkldnn_rnn_layer_backward", backward)):
        recurs = [graph.rows.names[number] == name for number in graph.rows.name.tolist()]
        grown = time.own[recurs].sum() / (40 * 900_000)
        assert grown == pytest.approx(9 * share + 2 * (1 - share), rel=0.05)
        error = float(time.error[recurs].max())
        assert grown * (1 + error) >= 0.99 * 9
        # What it reads and writes comes on top of either.
        assert grown / (1 + error) <= 1.05 * (9 * share + 1 - share)


def test_operators_that_touch_no_element_say_nothing_of_caches(tmp_path: Path) -> None:
    events = [operator("aten::mul", 1000 * number, [4, 0, 16]) for number in range(40)]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    ingest([tmp_path / "trace.json"], tmp_path / "corpus", workers=1)
    anchor = load(tmp_path / "corpus", groups(tmp_path / "corpus")[0], {"micro_batch": 4})
    (time,) = estimated(anchor, Settings(numbers={"micro_batch": 8}), force=True).times
    assert time.own.sum() == 40 * 900_000
