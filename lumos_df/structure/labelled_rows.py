"""Operators of one trace as arrays: those of the graph, and what else tells layers and shapes."""

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lumos_df.base.errors import CorpusError
from lumos_df.base.files import unreadable
from lumos_df.corpus.layout import trace_folder
from lumos_df.graph.rows import Rows, coded, numbers, read
from lumos_df.schema import PHASES
from lumos_df.schema.codes import NONE, OTHER_PHASE
from lumos_df.structure.early_rows import twins
from lumos_df.structure.read_tensors import read_tensors
from lumos_df.structure.texts import Texts

_SIZES: Final = re.compile(r"\s*\[(\s*\d{1,10}\s*(?:,\s*\d{1,10}\s*){0,2})\]\s*")
"""One to three whole numbers in brackets, as CUDA has them of grids and blocks."""
_WORDS: Final = ("phase", "grid", "block", "input_dims", "input_types", "dtype")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Columns of n operators, in the order of op_id."""

    rows: Rows
    """What the graph needs of them."""
    phase: NDArray[np.int8]
    """Place in `schema.PHASES`."""
    layer: NDArray[np.int32]
    """As module names say it; NONE is null."""
    grid: Texts
    """Launch grid of kernels, as recorded."""
    block: Texts
    """Thread block of kernels."""
    dims: Texts
    """Shapes of the inputs, as JSON; of products those alone that they read."""
    types: Texts
    """Their types."""
    dtype: Texts
    """Element type of collectives."""
    group_ranks: dict[str, tuple[str | None, tuple[int, ...] | None, int | None]]
    """Description, global ranks and size of each process group."""
    twin: NDArray[np.int32]
    """Row that tells the work of each: itself, but of a GPU row that was issued before the recording its twin."""

    def __len__(self) -> int:
        """Return n."""
        return len(self.rows)

    @property
    def blocks(self) -> NDArray[np.float64]:
        """Blocks of each kernel's launch grid [n]; 0 where it was not recorded."""
        return _sizes(self.grid)

    @property
    def threads(self) -> NDArray[np.float64]:
        """Threads of each kernel's block [n]; 0 where it was not recorded."""
        return _sizes(self.block)


def load(corpus: Path, trace_id: str) -> Trace:
    """Read one trace. Raise `CorpusError` when it cannot be read."""
    return extend(corpus, read(corpus, trace_id))


def extend(corpus: Path, rows: Rows) -> Trace:
    """Add to the rows of the graph what else is needed of their trace. Raise `CorpusError` when it cannot be read."""
    folder = trace_folder(corpus, rows.trace_id)
    try:
        file = pq.ParquetFile(folder / "operators.parquet", read_dictionary=list(_WORDS))
        table = file.read([*_WORDS, "layer"])
        # A trace that names no group has no such file.
        named = folder / "process_groups.parquet"
        groups = pq.ParquetFile(named).read().to_pylist() if named.exists() else []
    except (OSError, pa.ArrowInvalid) as error:
        raise CorpusError(unreadable(folder / "operators.parquet", error, "ingest the trace again")) from None
    texts = {name: Texts(*coded(table[name])) for name in _WORDS}
    place = np.array([*(PHASES.index(word) for word in texts["phase"].words), OTHER_PHASE], np.int8)
    dims, types = read_tensors(rows, texts["input_dims"], texts["input_types"])
    return Trace(
        rows=rows,
        twin=twins(rows, texts["grid"].code, texts["block"].code),
        phase=place[texts["phase"].code],
        layer=numbers(table["layer"], pa.int32(), NONE),
        grid=texts["grid"],
        block=texts["block"],
        dims=dims,
        types=types,
        dtype=texts["dtype"],
        group_ranks={
            str(group["group"]): (
                group["description"],
                tuple(group["ranks"]) if group["ranks"] is not None else None,
                group["size"],
            )
            for group in groups
        },
    )


def _sizes(shapes: Texts) -> NDArray[np.float64]:
    """Return the product of the sizes that each row tells [n], 0 where it tells none: Triton's launcher writes code."""
    told = map(_SIZES.fullmatch, shapes.words)
    return np.array([*(float(prod(map(int, match[1].split(",")))) if match else 0.0 for match in told), 0.0])[
        shapes.code
    ]
