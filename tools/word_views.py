"""Element types, kinds of collective and thresholds of `lumos_df` as internal views, so that SQL alone knows them."""

from collections.abc import Iterable, Mapping

from lumos_df.schema.collective_kinds import COLLECTIVE_KINDS
from lumos_df.schema.dtypes import DTYPE_OF_WORD, ELEMENT_TYPES, SPELLINGS
from tools.thresholds import thresholds

_ELEMENT_TYPES = """\
-- What is known of element types, one row of maps.
-- Generated from lumos_df/schema/dtypes.py by `make docs`; edit that file.
CREATE VIEW _element_types(
  -- torch's name of a type, by every spelling of traces, small letters.
  dtype_of_spelling,
  -- torch's name of a type, by what users call a precision.
  dtype_of_word,
  -- Bytes of an element, by torch's name.
  bytes_of
) AS
SELECT
"""

_COLLECTIVE_KINDS = """\
-- What is known of each kind of collective.
-- Generated from lumos_df/schema/collective_kinds.py by `make docs`; edit that file.
CREATE VIEW _collective_kinds(
  -- What tables call it.
  collective,
  -- nccl-tests' busbw is this times (n-1)/n of algbw; 0: the same.
  rounds,
  -- Whether its members end at the same moment on all ranks.
  together
) AS
VALUES
"""

_THRESHOLDS = """\
-- The thresholds of docs/thresholds.md by which views decide, one row.
-- Generated from the constants themselves by `make docs`; edit those.
CREATE VIEW _thresholds(
"""

_OF_VIEWS = {
    "accident_share": "graph.typical_values.ACCIDENT_SHARE",
    "long_calls": "graph.edges.full_queue._LONG_CALLS",
    "nearing": "calibrate.nearest_shapes._NEARING",
}
"""Which of them, by the name of their column."""


def element_types() -> str:
    """Return the text of the view of element types."""
    spellings = {spelling: kind.name for spelling, kind in SPELLINGS.items()}
    sizes = {kind.name: kind.bytes for kind in ELEMENT_TYPES}
    return f"{_ELEMENT_TYPES}{_listed((_map(spellings), _map(DTYPE_OF_WORD), _map(sizes)))}"


def collective_kinds() -> str:
    """Return the text of the view of kinds of collective."""
    rows = (f"('{kind.word}', {kind.rounds}, {str(kind.together).lower()})" for kind in COLLECTIVE_KINDS)
    return f"{_COLLECTIVE_KINDS}{_listed(rows)}"


def view_thresholds() -> str:
    """Return the text of the view of thresholds."""
    listed = {threshold.key: threshold for threshold in thresholds()}
    columns = {name: listed[key] for name, key in _OF_VIEWS.items()}
    named = ",\n".join(f"  -- {threshold.unit}: {threshold.meaning}\n  {name}" for name, threshold in columns.items())
    values = (f"{threshold.value}::DOUBLE" for threshold in columns.values())
    return f"{_THRESHOLDS}{named}\n) AS\nSELECT\n{_listed(values)}"


def _listed(parts: Iterable[str]) -> str:
    """Return parts, each on lines of its own, as the end of a statement."""
    return ",\n".join(f"  {part}" for part in parts) + ";\n"


def _map(values: Mapping[str, object]) -> str:
    """Return a MAP, an entry a line: a change of one shows as one."""
    entries = (f"    '{key}': {value!r}" for key, value in values.items())
    return "MAP {\n" + ",\n".join(entries) + "\n  }"
