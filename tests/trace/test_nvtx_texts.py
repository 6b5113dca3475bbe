"""Texts of NVTX ranges taken apart, beside a slow reading of them."""

import random
import re

import numpy as np
import pyarrow as pa
import pytest

from lumos_df.schema.codes import ANNOTATION, CPU_OP, NULL
from lumos_df.trace.nvtx_texts import parts

PIECES = [
    *("aten::mm", "MulBackward0", "step 3", "Größe", "", ", ", ",", ", seq = 7", ", seq = -3", ", seq = x"),
    *(", seq = 7x", f", seq = {10**17}", f", seq = {10**18}", ", op_id = 5", ", op_id = ", ", sizes = [[2, 3], []]"),
    *(", sizes = ", ", input_op_ids = [(1,0), (2,0)]", ", input_op_ids = ", ", seq = ", ", seq = -"),
]


def slow(text: str) -> tuple[str, int, bool, str | None]:
    """Return name, autograd's number, whether it is numbered, sizes."""
    front, found, rest = text.partition(", sizes = ")
    fields = re.search(r", (?:seq = -?[0-9]|op_id = [0-9]|input_op_ids = )", front)
    sequence = re.search(r", seq = (-?[0-9]{1,18})(?:,|$)", front)
    numbered = sequence is not None or re.search(r", op_id = [0-9]", front) is not None
    name = front[: fields.start()] if fields else front
    return (
        name,
        int(sequence[1]) if sequence else NULL,
        numbered,
        rest.partition(", input_op_ids = ")[0] if found else None,
    )


@pytest.mark.parametrize("seed", range(20))
def test_texts_are_taken_apart_as_a_slow_reading_does(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - test data
    texts = ["".join(rng.choices(PIECES, k=rng.randrange(6))) for _ in range(300)]
    column = pa.array(["before", *texts]).slice(1)
    found = parts(column)
    read = zip(found.name.to_pylist(), found.sequence.tolist(), found.sizes.to_pylist(), strict=True)
    wanted = [slow(text) for text in texts]
    assert [*read] == [(name, sequence, sizes) for name, sequence, _, sizes in wanted]
    operators = [numbered or bool(re.search(r"^\w+::\w|^\w+Backward\d*$", name)) for name, _, numbered, _ in wanted]
    assert found.kind.tolist() == [CPU_OP if operator else ANNOTATION for operator in operators]


def test_ranges_without_a_text_have_no_name() -> None:
    found = parts(pa.array([None, "aten::mm, seq = 4, op_id = 1", None, "AddBackward0"], pa.string()))
    assert found.name.to_pylist() == [None, "aten::mm", None, "AddBackward0"]
    assert found.sequence.tolist() == [NULL, 4, NULL, NULL]
    assert found.sizes.to_pylist() == [None] * 4
    assert np.flatnonzero(found.backward).tolist() == [3]
    assert len(parts(pa.array([], pa.string())).name) == 0
