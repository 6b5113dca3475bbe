"""The errors a user can meet: one base class, one line each."""

from difflib import get_close_matches


class LumosError(Exception):
    """Bad input. The message is one line: what is wrong, where, and the remedy or the nearest valid choice."""


class TraceError(LumosError):
    """A trace file that cannot be read."""


class CorpusError(LumosError):
    """A corpus that cannot be opened or written."""


class UnwritableError(CorpusError):
    """A corpus that can be read and not written."""


class QueryError(LumosError):
    """A query, view or option that the corpus does not have."""


class ModelError(LumosError):
    """A model that cannot be: an unknown name, a file that does not read, a figure that does not fit."""


class HardwareError(LumosError):
    """A GPU that cannot be: an unknown name, a file that does not read, a missing figure."""


class PlanError(LumosError):
    """A plan that cannot be, or not with this model on this hardware."""


class SoftwareError(LumosError):
    """A software profile that cannot be: an unknown name, a file that does not read, a missing figure."""


class TruthError(LumosError):
    """A table of measured runs that cannot be read: an unknown set, a missing file or column."""


class CaptureError(LumosError):
    """A recording or a measurement that cannot be made: no torch, no device, a folder that cannot be written."""


def nearest(word: str, choices: list[str]) -> str:
    """Return `"; did you mean 'x'?"` for the choice most like `word`, or `""` when none is close."""
    match = get_close_matches(word, choices, n=1)
    return f"; did you mean '{match[0]}'?" if match else ""
