"""Convolutions on the host: channels are multiplied in blocks as wide as a register, which no trace tells."""

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
    dims = [[4, width, 16, 16], [width, width, 3, 3]]
    args = {"Input Dims": dims, "Input type": ["float"] * 2}
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mkldnn_convolution",
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "dur": 900,
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
    assert grown == pytest.approx((with_8 * with_16) ** 0.5, rel=0.05)
    assert grown * (1 + error) >= 0.99 * max(with_8, with_16)
    assert grown / (1 + error) <= 1.01 * min(with_8, with_16)
