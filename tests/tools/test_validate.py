"""Which change makes one recorded run of another: what is told of it changes as the names of their folders do."""

from dataclasses import replace
from typing import Final

import pytest

from lumos_df.whatif.job.settings import Sizes
from tools.validate import Run

_SIZES: Final = Sizes(
    layers=3,
    hidden=128,
    ffn=344,
    heads=8,
    kv_heads=4,
    head_dim=16,
    seq=96,
    micro_batch=5,
    batch=1,
    vocab=2000,
    tp=1,
    dp=1,
    pp=1,
)
_RUN: Final = Run("net", 3, 128, 5, 96)


def test_what_is_told_of_a_run_changes_as_its_name_does() -> None:
    # Told are twice the layers of the name, of windows of sixteen tokens, 30 a sequence.
    told = replace(_SIZES, layers=6, seq=16, micro_batch=150)
    assert _RUN.settings(Run("net", 6, 128, 5, 96), told, told).numbers == {"layers": 12}
    assert _RUN.settings(Run("net", 3, 128, 20, 96), told, told).numbers == {"micro_batch": 600}
    assert _RUN.settings(Run("net", 3, 128, 5, 192), told, told).numbers == {"seq": 32}


@pytest.mark.parametrize(("heads", "more"), [(16, {"heads": 16, "kv_heads": 8}), (8, {"heads": 8, "kv_heads": 4})])
def test_a_wider_run_has_more_heads_unless_it_is_told_to_have_as_many(heads: int, more: dict[str, int]) -> None:
    wider = replace(_SIZES, hidden=256, heads=heads)
    assert _RUN.settings(Run("net", 3, 256, 5, 96), _SIZES, wider).numbers == {"hidden": 256, "ffn": 688, **more}


def test_what_is_not_told_changes_to_what_the_name_says() -> None:
    told = replace(_SIZES, hidden=None, ffn=None, heads=None, kv_heads=None)
    assert _RUN.settings(Run("net", 3, 256, 5, 96), told, told).numbers == {"hidden": 256}
