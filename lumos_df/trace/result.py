"""What became of the files of an ingest."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ingested:
    """A file that went in."""

    path: str
    trace_ids: tuple[str, ...]
    events: int
    operators: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file whose content was in already."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A file that could not go in."""

    path: str
    message: str
    """One line: file, place, remedy."""


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What became of every file."""

    done: tuple[Ingested, ...]
    skipped: tuple[Skipped, ...]
    failed: tuple[Failed, ...]
