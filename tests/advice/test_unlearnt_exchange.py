"""Parameters or outputs that ranks exchange in each step; the gain is that of the job in which they do not."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.advice.rules import unlearnt_exchange
from tests.advice.emulated import BRIEF, advice_on, advised, true_gain_ns
from tests.emulator import FaultyJob, simulate, write

SOUND = FaultyJob(ranks=4, steps=3)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (replace(SOUND, broadcasts=True), "are sent by one rank to all"),
        (replace(SOUND, gathers_outputs=True), "are gathered, and nothing"),
    ],
)
def test_what_nothing_learns_from_is_the_first_advice(tmp_path: Path, wrong: FaultyJob, said: str) -> None:
    first = advised(tmp_path, wrong).first
    assert first.remedy.rule == "unlearnt_exchange"
    assert said in first.remedy.what
    # What is done with outputs once they are there stays.
    assert first.gain_ns == pytest.approx(true_gain_ns(wrong, SOUND), rel=0.2)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_parameters_that_ranks_share_are_needed(tmp_path: Path, zero: int) -> None:
    assert not list(unlearnt_exchange.remedies(advised(tmp_path, replace(SOUND, zero=zero)).job))


def test_steps_without_a_backward_pass_may_gather_what_they_want(tmp_path: Path) -> None:
    [advice] = advised(tmp_path, replace(SOUND, validates=True, gathers_outputs=True)).of_rule("unlearnt_exchange")
    # Of four ranks in two of three steps.
    assert advice.remedy.rests_on == "8 kernels of all_gather"


def test_what_a_loss_is_made_of_is_needed(tmp_path: Path) -> None:
    """As what others' samples gave is in contrastive learning: an operator of the forward pass takes all of it."""
    tokens, vocabulary = 4 * SOUND.tokens, SOUND.vocabulary
    for path in write(simulate(replace(SOUND, gathers_outputs=True)), BRIEF, tmp_path / "traces"):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        for event in trace["traceEvents"]:
            if event["name"] == "aten::nll_loss_forward":
                event["args"]["Input Dims"][0] = [tokens, vocabulary]
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    assert not list(unlearnt_exchange.remedies(advice_on(tmp_path).job))


def test_what_a_net_without_gradients_takes_or_gives_may_be_needed(tmp_path: Path) -> None:
    """As the keys of momentum contrast, which go into a queue."""
    job = replace(SOUND, gathers_outputs=True, teacher=True)
    assert not list(unlearnt_exchange.remedies(advised(tmp_path, job).job))
