"""Wrong files as large ones are read: in many blocks, scanned by two threads beside one another."""

import gzip
import random
import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from lumos_df.trace.json import scanned
from tests.trace.test_scan_ahead import read, same

_BLOCKS: Final = (2048, 1 << 14, 1 << 17)
_WHOLE: Final = 4 << 20


def faults(data: bytes, seed: int) -> Iterator[str]:
    """Yield what two scanners of blocks that the seed chooses say otherwise than one, or one of large blocks."""
    choose = random.Random(seed)  # noqa: S311 - not for secrets
    size = choose.choice(_BLOCKS)
    stored = gzip.compress(data, 1) if choose.random() < 0.5 else data
    if choose.random() < 0.2:
        stored = stored[: choose.randrange(1, len(stored) + 1)]
    try:
        beside, alone, whole = (read(stored, *how) for how in ((2, size), (1, size), (1, _WHOLE)))
    except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
        yield f"seed {seed}: blocks of {size}: {traceback.format_exc().strip().splitlines()[-1]}"
        return
    if not same(beside, alone):
        yield f"seed {seed}: two scanners of blocks of {size} read it otherwise than one"
    if not same(_content(alone), _content(whole)):
        yield f"seed {seed}: blocks of {size} are read otherwise than blocks of {_WHOLE}"


def _content(said: Any) -> Any:
    """Return what does not depend on the size of blocks, as what is behind the last event that was read does."""
    if isinstance(said, str):
        return said
    trace, args, _ = said
    return replace(trace, counts=np.delete(trace.counts, scanned.POSITION), warnings=()), args
