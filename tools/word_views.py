"""The element types and kinds of collective of `lumos_df.schema` as internal views, so that SQL alone knows them."""

from collections.abc import Iterable, Mapping

from lumos_df.schema.collective_kinds import COLLECTIVE_KINDS
from lumos_df.schema.dtypes import DTYPE_OF_WORD, ELEMENT_TYPES, SPELLINGS

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
-- Generated from lumos_df/schema/collectives.py by `make docs`; edit that file.
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


def element_types() -> str:
    """Return the text of the view of element types."""
    spellings = {spelling: kind.name for spelling, kind in SPELLINGS.items()}
    sizes = {kind.name: kind.bytes for kind in ELEMENT_TYPES}
    return f"{_ELEMENT_TYPES}{_listed((_map(spellings), _map(DTYPE_OF_WORD), _map(sizes)))}"


def collective_kinds() -> str:
    """Return the text of the view of kinds of collective."""
    rows = (f"('{kind.word}', {kind.rounds}, {str(kind.together).lower()})" for kind in COLLECTIVE_KINDS)
    return f"{_COLLECTIVE_KINDS}{_listed(rows)}"


def _listed(parts: Iterable[str]) -> str:
    """Return parts, each on lines of its own, as the end of a statement."""
    return ",\n".join(f"  {part}" for part in parts) + ";\n"


def _map(values: Mapping[str, object]) -> str:
    """Return a MAP, an entry a line: a change of one shows as one."""
    entries = (f"    '{key}': {value!r}" for key, value in values.items())
    return "MAP {\n" + ",\n".join(entries) + "\n  }"
