"""What became of the files of an ingest."""

from dataclasses import dataclass

from lumos_df.schema.sampled_files import SAMPLED


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
class Sampled:
    """What `--sample` chose of a job that has more files."""

    job: str
    chosen: int
    files: int
    asked: int

    def __str__(self) -> str:
        """Return what a chosen file's trace is warned of."""
        return SAMPLED.format(chosen=self.chosen, files=self.files, asked=self.asked)


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What became of every file."""

    done: tuple[Ingested, ...]
    skipped: tuple[Skipped, ...]
    failed: tuple[Failed, ...]
    sampled: tuple[Sampled, ...] = ()
    """The jobs of which a sample was chosen; those whose files are all here are left out."""
