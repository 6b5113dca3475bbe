"""Rows in which a host asks its data loader for the next batch."""

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import ANNOTATION, CPU_OP, PYTHON

_NEXT_BATCH: Final = re.compile(r"(?i)data_?loader.*next|dali\w*iterator.*next")
"""As in `enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__` or `train_dataloader_next`."""


def loader_rows(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows ask for the next batch [n]."""
    return rows.named(_NEXT_BATCH.search) & (rows.thread >= 0) & rows.of_kind(CPU_OP, ANNOTATION, PYTHON)
