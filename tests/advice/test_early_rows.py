"""Work that was issued before the recording began: advice changes it as that of the steps, and counts it for none."""

from pathlib import Path

import numpy as np
import pytest

from lumos_df.advice.advised_job import ChangedGraph
from lumos_df.advice.job_advice import advise
from lumos_df.advice.ranked_advice import Advice
from lumos_df.trace.ingest import ingest
from lumos_df.whatif.estimate import estimate
from lumos_df.whatif.job.settings import parse
from tests.advice.emulated import FIGURE, Advised, advice_on
from tests.emulator import Job
from tests.whatif.test_early_rows import late

RECORDINGS = Path(__file__).parent.parent / "recordings"


def recorded_late(folder: Path, job: Job) -> tuple[Advised, Advised]:
    """Return what is said of a recording of five steps, and of one that has the launches of the last two alone."""
    late(folder, 2, job)
    for name in ("whole", "late"):
        (folder / f"of_{name}").mkdir()
        (folder / name).rename(folder / f"of_{name}" / "traces")
    return advice_on(folder / "of_whole"), advice_on(folder / "of_late")


def shortened_ns(said: Advised, advice: Advice) -> int:
    """Return by how much a change shortens the kernels of the whole recording, ns."""
    changed = ChangedGraph.of(said.job.event_graph)
    advice.remedy.apply(changed)
    on_gpu = np.concatenate([rows.on_gpu for rows in said.job.ranks])
    return int((said.job.event_graph.own - changed.own)[on_gpu].sum())


@pytest.mark.parametrize(
    ("job", "rule"),
    [
        (Job(ranks=1, layers=2, steps=5, batch=32, products="fp32"), "kernel_precision"),
        (Job(ranks=1, layers=2, steps=5, batch=32, unfused_attention=True), "unfused_attention"),
        (Job(ranks=1, layers=2, steps=5, batch=32, unfused_optimizer=True), "unfused_optimizer"),
        (Job(ranks=1, layers=2, steps=5, batch=32, single_attention=True), "attention_precision"),
        (Job(ranks=1, layers=2, steps=5, batch=32, unfused_gelu=True), "fused_elementwise"),
    ],
)
def test_advice_is_that_of_a_recording_with_all_launches(tmp_path: Path, job: Job, rule: str) -> None:
    whole, part = recorded_late(tmp_path, job)
    (of_whole,), (of_part,) = whole.of_rule(rule), part.of_rule(rule)
    taken = [FIGURE.findall(advice.remedy.what)[0].partition(" ") for advice in (of_part, of_whole)]
    assert FIGURE.sub("", of_part.remedy.what) == FIGURE.sub("", of_whole.remedy.what)
    assert float(taken[0][0]) == pytest.approx(float(taken[1][0]), rel=0.01)
    assert taken[0][2] == taken[1][2]
    assert of_part.gain_ns == pytest.approx(of_whole.gain_ns, rel=0.05)
    assert shortened_ns(part, of_part) == pytest.approx(shortened_ns(whole, of_whole), rel=0.01)


@pytest.mark.parametrize("folder", ["plain", "captured"])
def test_advice_and_estimate_say_the_same_of_a_recording_that_began_late(tmp_path: Path, folder: str) -> None:
    """Much of a BERT's work was issued before its recordings; of one, calls wait for more than is in it."""
    corpus = tmp_path / "corpus"
    assert not ingest([RECORDINGS / folder / "bert--base"], corpus, workers=1).failed
    (said,) = advise(corpus)
    first = said.advice[0]
    assert first.remedy.rule == "kernel_precision"
    rows = [row for row in estimate(corpus, parse(["dtype=bf16"])).to_pylist() if not row["waits_unseen"]]
    gain_s = sum(row["original_iteration_time_s"] - row["iteration_time_s"] for row in rows) / len(rows)
    assert first.gain_ns / 1e9 == pytest.approx(gain_s, rel=0.1)
    waited = [text for text in said.warnings if text.startswith("step 1 waited for GPU work")]
    assert len(waited) == (folder == "captured") == (len(rows) < len(said.trace_ids) * said.steps)
