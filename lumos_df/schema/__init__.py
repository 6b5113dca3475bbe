"""Every stored table: column, Arrow type, and one line that says what it holds and in which unit.

The tables live in a corpus as `trace_id=<id>/<table>.parquet`; `trace_id` is the partition key, read back from the
folder name, so it is listed here for its documentation but not stored inside the files.
"""

from typing import Final

from lumos_df.schema.collective_kinds import COLLECTIVES
from lumos_df.schema.dialects import DIALECTS, RECORD_DIALECTS
from lumos_df.schema.estimate_tables import ESTIMATE_OPERATORS, ESTIMATES, OPERATOR_SOURCES
from lumos_df.schema.graph_tables import (
    ADVICE_ROWS,
    ADVISED_JOBS,
    CLOCKS,
    COLLECTIVE_MEMBERS,
    CRITICAL_PATH,
    EDGES,
    GAINS,
    JOB_ADVICE,
    REPLAY_STEPS,
    REPLAYS,
    STALLS,
)
from lumos_df.schema.parts import STEP_PARTS
from lumos_df.schema.structure_tables import DIMENSIONS, LAYERS
from lumos_df.schema.table import Table, TableColumn, within
from lumos_df.schema.trace_tables import (
    ARGS,
    COLLECTIVE_RECORDS,
    COUNTERS,
    EXECUTION_NODES,
    MEMORY_EVENTS,
    MEMORY_HISTORY,
    MEMORY_SEGMENTS,
    OPERATORS,
    ORIGINS,
    PROCESS_GROUPS,
    TRACES,
)
from lumos_df.schema.words import EVIDENCE, FAMILIES, GPU_KINDS, KINDS, PHASES, STEP_MARK

__all__ = [
    "ADVICE_ROWS",
    "ADVISED_JOBS",
    "ARGS",
    "CLOCKS",
    "COLLECTIVES",
    "COLLECTIVE_MEMBERS",
    "COLLECTIVE_RECORDS",
    "COUNTERS",
    "CRITICAL_PATH",
    "DIALECTS",
    "DIMENSIONS",
    "EDGES",
    "ESTIMATES",
    "ESTIMATE_OPERATORS",
    "EVIDENCE",
    "EXECUTION_NODES",
    "FAMILIES",
    "FORMAT",
    "GAINS",
    "GPU_KINDS",
    "ID_LENGTH",
    "JOB_ADVICE",
    "KINDS",
    "LAYERS",
    "MEMORY_EVENTS",
    "MEMORY_HISTORY",
    "MEMORY_SEGMENTS",
    "OPERATORS",
    "OPERATOR_SOURCES",
    "ORIGINS",
    "PHASES",
    "PROCESS_GROUPS",
    "RECORDED",
    "RECORD_DIALECTS",
    "REPLAYS",
    "REPLAY_STEPS",
    "STALLS",
    "STEP_MARK",
    "STEP_PARTS",
    "TABLES",
    "TRACES",
    "Table",
    "TableColumn",
    "within",
]

FORMAT: Final = 4
"""Version of the corpus layout; a corpus made by another version is refused."""

ID_LENGTH: Final = 16
"""Hex digits of the digest of a file that make its trace_id."""

RECORDED: Final = (
    TRACES,
    ORIGINS,
    OPERATORS,
    ARGS,
    MEMORY_EVENTS,
    COUNTERS,
    PROCESS_GROUPS,
    EXECUTION_NODES,
    MEMORY_SEGMENTS,
    MEMORY_HISTORY,
    COLLECTIVE_RECORDS,
)
"""Tables that are filled when a file is read, and stay as they are."""

TABLES: Final = (
    *RECORDED,
    EDGES,
    COLLECTIVE_MEMBERS,
    CLOCKS,
    REPLAYS,
    REPLAY_STEPS,
    CRITICAL_PATH,
    GAINS,
    STALLS,
    JOB_ADVICE,
    ADVISED_JOBS,
    ADVICE_ROWS,
    LAYERS,
    DIMENSIONS,
    ESTIMATES,
    ESTIMATE_OPERATORS,
    OPERATOR_SOURCES,
)
"""Every stored table, in the order a reader would want them."""
