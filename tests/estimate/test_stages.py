"""Where embedding and head lie over the stages of a pipeline, tied and untied, and what they weigh there, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from lumos_df.model.evaluate import RESULT_COLUMNS, evaluate_rows
from lumos_df.model.pipeline import stages
from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model
from tests.model.roofs import BARE, GPU

HIDDEN = 1024
LAYER = 12 * HIDDEN**2 + 2 * HIDDEN
"""Parameters of a layer: four products and two norms."""
TABLE = 50_000 * HIDDEN
"""Parameters of the embedding, and of the head."""
FIRST_HEAVY = replace(BARE, logits_bytes=0.0)
"""The first stage keeps most micro-batches; without logits it is the fullest."""
LAST_HEAVY = replace(BARE, logits_bytes=100.0)
"""With logits of 100 bytes the last stage is the fullest."""


def model(*, tied: bool, layers: int = 4, vocab: int = 50_000, positions: int = 0) -> Model:
    return Model("gpt", layers, HIDDEN, heads=8, vocab=vocab, seq=512, tied=tied, learned_positions=positions)


def fullest(of: Model, plan: Plan, software: Software) -> dict[str, float]:
    """Return the results of a plan; memory is that of the fullest stage."""
    first = np.zeros(1, np.int64)
    models, gpus, profiles, plans = (np.array([noun.row()]) for noun in (of, GPU, software, plan))
    (found,) = evaluate_rows(models, gpus, profiles, plans, first, first).tolist()
    return dict(zip(RESULT_COLUMNS, found, strict=True))


@pytest.mark.parametrize(
    ("tied", "plan", "software", "stage", "parameters"),
    [
        # One stage has both tables, or the one that both are.
        (False, Plan(batch=4), BARE, 0, 4 * LAYER + 2 * TABLE),
        (True, Plan(batch=4), BARE, 0, 4 * LAYER + TABLE),
        # Of several the first has the embedding, and the last a table of its own: tied, it is a copy.
        (False, Plan(pp=2, batch=4), FIRST_HEAVY, 0, 2 * LAYER + TABLE),
        (True, Plan(pp=2, batch=4), FIRST_HEAVY, 0, 2 * LAYER + TABLE),
        (False, Plan(pp=2, batch=4), LAST_HEAVY, 1, 2 * LAYER + TABLE),
        (True, Plan(pp=2, batch=4), LAST_HEAVY, 1, 2 * LAYER + TABLE),
        (True, Plan(pp=4, batch=4), LAST_HEAVY, 3, LAYER + TABLE),
        # Chunks 0 and 2 are on the first stage, 1 and 3 on the last.
        (False, Plan(pp=2, vp=2, schedule="interleaved", batch=4), FIRST_HEAVY, 0, 2 * LAYER + TABLE),
        (True, Plan(pp=2, vp=2, schedule="interleaved", batch=4), LAST_HEAVY, 1, 2 * LAYER + TABLE),
        # DualPipe's first device has the first stage of one direction and the last of the other.
        (False, Plan(pp=2, schedule="dualpipe", batch=4), LAST_HEAVY, 0, 4 * LAYER + 2 * TABLE),
        (True, Plan(pp=2, schedule="dualpipe", batch=4), LAST_HEAVY, 0, 4 * LAYER + 2 * TABLE),
        # Tensor-parallel ranks share both.
        (True, Plan(pp=2, tp=2, batch=4), LAST_HEAVY, 1, (2 * LAYER + TABLE) / 2),
        (True, Plan(tp=2, batch=4), BARE, 0, (4 * LAYER + TABLE) / 2),
    ],
)
def test_each_end_of_a_pipeline_has_its_table(
    plan: Plan, software: Software, stage: int, parameters: float, *, tied: bool
) -> None:
    found = fullest(model(tied=tied), plan, software)
    assert found["memory_stage"] == stage
    if stage == 0:
        assert found["first_stage_bytes"] == found["memory_bytes"]
    else:
        assert found["first_stage_bytes"] < found["memory_bytes"]
    # Weights in 16 bits, gradients of 4 bytes, Adam's 12.
    assert found["weights_bytes"] == 2 * parameters
    assert found["gradients_bytes"] == 4 * parameters
    assert found["optimizer_bytes"] == 12 * parameters


def test_a_stage_in_the_middle_has_no_table() -> None:
    # 5 layers over 4 stages are 1, 2, 1 and 1: with a small vocabulary the second stage is the fullest.
    for tied in (False, True):
        found = fullest(model(tied=tied, layers=5, vocab=1000), Plan(pp=4, batch=4), FIRST_HEAVY)
        assert found["memory_stage"] == 1
        assert found["weights_bytes"] == 2 * 2 * LAYER


def test_learned_positions_are_on_the_first_stage() -> None:
    first, last = (
        fullest(model(tied=True, positions=512), Plan(pp=2, batch=4), software)
        for software in (FIRST_HEAVY, LAST_HEAVY)
    )
    assert first["weights_bytes"] == 2 * (2 * LAYER + TABLE + 512 * HIDDEN)
    assert last["weights_bytes"] == 2 * (2 * LAYER + TABLE)


@pytest.mark.parametrize(
    ("plan", "logits"),
    [
        # 100 bytes a logit of every token of a micro-batch; tp shares the vocabulary, cp the tokens.
        (Plan(pp=2, batch=4), 100 * 512 * 50_000),
        (Plan(pp=2, micro_batch=2, batch=4), 100 * 2 * 512 * 50_000),
        (Plan(pp=2, tp=2, batch=4), 100 * 512 * 50_000 / 2),
        (Plan(pp=2, cp=2, batch=4), 100 * 512 * 50_000 / 2),
        (Plan(batch=4), 100 * 512 * 50_000),
    ],
)
def test_logits_are_on_the_last_stage(plan: Plan, logits: float) -> None:
    assert fullest(model(tied=False), plan, LAST_HEAVY)["logits_bytes"] == logits
    if plan.pp > 1:
        assert fullest(model(tied=False), plan, FIRST_HEAVY)["memory_stage"] == 0


def test_a_table_is_padded_so_that_ranks_have_the_same_number_of_rows() -> None:
    # 50,000 entries in multiples of 128 x 2 are 50,176.
    padded = replace(model(tied=True), vocab_multiple=128)
    found = fullest(padded, Plan(tp=2, batch=4), BARE)
    assert found["weights_bytes"] == 2 * (4 * LAYER + 50_176 * HIDDEN) / 2


@pytest.mark.parametrize(("pp", "vp"), [(1, 1), (2, 1), (4, 1), (2, 2), (4, 3)])
def test_the_first_chunk_embeds_and_the_last_has_the_head(pp: int, vp: int) -> None:
    chunks, count = np.zeros((stages.CHUNK_ROWS, 64)), pp * vp
    # Two predictions more have logits of their own.
    predicting = replace(model(tied=False), mtp_layers=2).row()
    for block, place, times in ((stages.EMBEDDING, 0, 1.0), (stages.HEAD, count - 1, 3.0)):
        found = [stages.times_of(predicting, block, chunk, count, chunks) for chunk in range(count)]
        assert found == [times * (chunk == place) for chunk in range(count)]
