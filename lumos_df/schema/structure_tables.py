"""Tables of the model behind a trace, written by `lumos-df describe`."""

from typing import Final

from lumos_df.schema.table import table
from lumos_df.schema.words import EVIDENCE

_EVIDENCE: Final = ", ".join(EVIDENCE)

LAYERS: Final = table(
    "layers",
    "One row an operator: what part of the model it is, as `lumos-df describe` found it.",
    ("rank", "int32", "Rank in the job."),
    ("op_id", "int32", "The operator."),
    ("phase", "string", "As in `operators`, and told by repetition where nothing else tells it."),
    ("layer", "int32", "Layer of the model, from 0; null outside the layers, and on host rows that lead to several."),
    ("micro_batch", "int32", "Micro-batch of the step, from 0; null outside the passes."),
    ("stage", "int32", "Pipeline stage of the rank, from 0."),
    ("phase_evidence", "string", f"Where the phase is known from: {_EVIDENCE}."),
    ("layer_evidence", "string", "The same for the layer."),
    ("micro_batch_evidence", "string", "The same for the micro-batch."),
    ("stage_evidence", "string", "The same for the stage."),
)

DIMENSIONS: Final = table(
    "dimensions",
    "One row a dimension of the model or degree of its plan, as `lumos-df describe` found it.",
    ("rank", "int32", "Rank in the job."),
    (
        "name",
        "string",
        "model, dtype, layers, hidden, heads, kv_heads, head_dim, ffn, sequence, micro_batch, micro_batches, vocabulary, world, tp, dp, pp, ep, stage.",
    ),
    ("value", "int64", "The number; null where unknown, or where it is a word."),
    ("word", "string", "The word, of `model` and `dtype`."),
    ("evidence", "string", f"Where it is known from: {_EVIDENCE}."),
    ("reason", "string", "How it was found, or why it was not."),
)
