"""A grid searched: legal configurations estimated stretch by stretch, filtered, ranked, stored; here or in workers.

A stretch of the grid is a file of its own, written in one step, so a run that was stopped goes on where it was, and
several jobs share a folder by shards.
"""

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lumos_df import __version__
from lumos_df.base.errors import LumosError, QueryError
from lumos_df.base.files import publish_file
from lumos_df.base.runner import Engine, Report, map_items, results, shard
from lumos_df.estimate.answer import ANSWERS, Jobs, WordColumn, answers, labels
from lumos_df.estimate.grid import Grid
from lumos_df.estimate.kernels.configurations import first_rules_broken
from lumos_df.estimate.ranking import NUMBER, fastest, pareto_front
from lumos_df.model.plan import PLAN_COLUMNS, WORDS
from lumos_df.model.rules import RULES
from lumos_df.schema.rankings import RankBy

STRETCH: Final = 1 << 16
"""Configurations that are in memory at once."""

_UNEVEN: Final = ("gpus", "no multiple of tp * pp * cp")
_MANIFEST: Final = "grid.json"
_COUNTS: Final = "lumos_df"


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the grid, to be worked on in one go."""

    number: int
    first: int
    last: int

    def __str__(self) -> str:
        return f"configurations {self.first:,} to {self.last:,}"


@dataclass(frozen=True)
class Refused:
    """Configurations refused for one reason."""

    count: int
    example: str
    """The first of them, in the words of the rule that it breaks."""


@dataclass(frozen=True)
class Found:
    """What a search, or a part of it, has found."""

    configurations: int
    """All that were looked at."""
    refused: Mapping[str, Refused]
    """By the plan's field: the first rule that each breaks."""
    kept: int
    """Those that passed the filter."""
    best: pl.DataFrame
    """The fastest of them, or the Pareto front: `number`, model, hardware, the plan's fields, `ANSWERS`."""

    @property
    def legal(self) -> int:
        """Configurations that were estimated."""
        return self.configurations - sum(refused.count for refused in self.refused.values())


@dataclass(frozen=True)
class Search:
    """What to look for in a grid."""

    grid: Grid
    """The configurations."""
    where: str = "fits"
    """SQL condition over the columns of an answer, which a configuration must meet; `true` for all."""
    top: int = 10
    """How many of the fastest to return."""
    pareto: bool = False
    """Whether to return the Pareto front of time, memory and GPUs instead."""
    rank_by: RankBy = RankBy.TIME
    """By which time the fastest are told."""
    folder: Path | None = None
    """Where to store all that pass the filter: a Parquet file a stretch."""

    def run(
        self,
        *,
        part: tuple[int, int] = (0, 1),
        engine: Engine = Engine.SERIAL,
        workers: int | None = None,
        address: str | None = None,
        report: Report | None = None,
    ) -> Found:
        """Search, and return what was found; what `folder` has already is not computed again.

        Args:
            part: which of how many shards of the grid, from 0.
            engine, workers, address, report: as for `runner.map_items`.

        Raises:
            LumosError: the filter is no condition, or the folder holds another grid's rows.
            OSError: the folder cannot be written.
        """
        self._condition(self._frame(self.grid.stretch(0, 0).jobs, np.zeros(0, np.int64)))
        if self.folder is not None:
            self._claim(self.folder)
        total = len(self.grid)
        parts = [
            Part(number, first, min(first + STRETCH, total)) for number, first in enumerate(range(0, total, STRETCH))
        ]
        found = results(
            map_items(self.work, shard(parts, *part), workers=workers, engine=engine, address=address, report=report)
        )
        return self._together(found)

    def work(self, part: Part) -> Found:
        """Search one stretch of the grid: estimate, filter, store, rank."""
        file = self.folder / f"part-{part.number:06}.parquet" if self.folder is not None else None
        if file is not None and file.exists():
            return self._stored(file)
        jobs, numbers, refused = self.legal(part)
        frame = self._condition(self._frame(jobs, numbers))
        result = Found(part.last - part.first, refused, len(frame), self._best(frame))
        if file is not None:
            counts = {
                "configurations": result.configurations,
                "refused": {field: vars(reason) for field, reason in refused.items()},
            }
            content = io.BytesIO()
            frame.write_parquet(content, compression="zstd", metadata={_COUNTS: json.dumps(counts)})
            publish_file(file, content.getvalue())
        return result

    def legal(self, part: Part) -> tuple[Jobs, NDArray[np.int64], dict[str, Refused]]:
        """Return the legal configurations of a stretch, their numbers, and what was refused."""
        stretch = self.grid.stretch(part.first, part.last)
        jobs = stretch.jobs
        code = first_rules_broken(
            np.array([model.row() for model in jobs.models]),
            np.array([hardware.row() for hardware in jobs.hardware]),
            jobs.plans,
            jobs.model_of,
            jobs.hardware_of,
        )
        code[stretch.uneven] = len(RULES) + 1
        refused: dict[str, Refused] = {}
        for broken in np.unique(code[code > 0]).tolist():
            rows = np.flatnonzero(code == broken)
            field, text = _UNEVEN if broken > len(RULES) else RULES[broken - 1]
            before = refused.get(field)
            example = before.example if before else _example(jobs, int(rows[0]), field, text)
            refused[field] = Refused(len(rows) + (before.count if before else 0), example)
        keep = np.flatnonzero(code == 0)
        legal = replace(jobs, plans=jobs.plans[keep], model_of=jobs.model_of[keep], hardware_of=jobs.hardware_of[keep])
        return legal, part.first + keep, refused

    def _frame(self, jobs: Jobs, numbers: NDArray[np.int64]) -> pl.DataFrame:
        """Return the answers of configurations, as the columns that a filter and a user see."""
        named = {
            name: pl.Series(column.choices, dtype=pl.String).gather(column.codes)
            if isinstance(column, WordColumn)
            else column
            for name, column in labels(jobs).items()
        }
        return pl.DataFrame({NUMBER: numbers, **named, **answers(jobs)})

    def _condition(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that meet the filter. Raises `QueryError` where it is no condition."""
        try:
            return frame.filter(pl.sql_expr(self.where))
        except pl.exceptions.PolarsError as error:
            first = str(error).partition("\n")[0]
            raise QueryError(f"filter '{self.where}': {first}") from None

    def _best(self, frame: pl.DataFrame) -> pl.DataFrame:
        return pareto_front(frame) if self.pareto else fastest(frame, self.top, self.rank_by)

    def _stored(self, file: Path) -> Found:
        """Return what a file of an earlier run says."""
        try:
            counts = json.loads(pl.read_parquet_metadata(file)[_COUNTS])
            frame = pl.read_parquet(file)
        except (pl.exceptions.PolarsError, ValueError, KeyError) as error:
            raise LumosError(f"{file}: does not read ({error}); remove it, and run the same again") from None
        refused = {field: Refused(**reason) for field, reason in counts["refused"].items()}
        return Found(counts["configurations"], refused, len(frame), self._best(frame))

    def _together(self, parts: list[Found]) -> Found:
        """Return several parts' findings, in the order of the grid, as one."""
        refused: dict[str, Refused] = {}
        for field, reason in (pair for part in parts for pair in part.refused.items()):
            before = refused.get(field)
            refused[field] = Refused(before.count + reason.count, before.example) if before else reason
        empty = self._frame(self.grid.stretch(0, 0).jobs, np.zeros(0, np.int64))
        best = self._best(pl.concat([empty, *(part.best for part in parts)]))
        return Found(sum(part.configurations for part in parts), refused, sum(part.kept for part in parts), best)

    def _claim(self, folder: Path) -> None:
        """Say in `folder` whose rows it holds. Raises `LumosError` where they are another search's."""
        said = self._identity()
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / _MANIFEST
        if file.exists():
            try:
                before = json.loads(file.read_text("utf-8"))
                other = [key for key in said if before.get(key) != said[key]]
            except (ValueError, AttributeError, RecursionError):
                raise LumosError(f"{file}: does not read; give a new folder") from None
            if other:
                raise LumosError(
                    f"{folder}: holds the rows of another search (other {', '.join(other)}); give a new folder, or "
                    "search as before to go on"
                )
        # Another job on the folder may be saying it right now, or was killed while it did.
        elif any(not entry.name.startswith(".") for entry in folder.iterdir()):
            raise LumosError(f"{folder}: not empty, and no search's ({_MANIFEST} is missing); give a new folder")
        else:
            publish_file(file, (json.dumps(said, indent=2) + "\n").encode())

    def _identity(self) -> dict[str, Any]:
        """Return what decides the rows of a search: the same for the same rows."""
        return {
            "models": _digests(self.grid.models),
            "hardware": _digests(self.grid.hardware),
            "software": _digests(self.grid.software),
            "plans": [{name: list(values) for name, values in axes.items()} for axes in self.grid.blocks],
            "filter": self.where,
            "stretch": STRETCH,
            "columns": [NUMBER, "model", "hardware", *(column.name for column in PLAN_COLUMNS), *_names()],
            "version": __version__,
        }


def _names() -> Iterator[str]:
    return (name for name, _ in ANSWERS)


def _digests(described: Iterable[Any]) -> dict[str, str]:
    return {each.name: hashlib.sha256(each.row().tobytes()).hexdigest()[:16] for each in described}


def _example(jobs: Jobs, row: int, field: str, text: str) -> str:
    """Return what is wrong with a configuration, in the words of the rule that it breaks."""
    said: dict[str, Any] = {column.name: jobs.plans[column.name][row].item() for column in PLAN_COLUMNS}
    said |= {name: choices[said[name]] for name, choices in WORDS.items()}
    model, hardware = jobs.models[int(jobs.model_of[row])], jobs.hardware[int(jobs.hardware_of[row])]
    why = text.format(plan=SimpleNamespace(**said), model=model, hardware=hardware)
    shown = f" = {said[field]}" if field in said else ""
    return f"{model.name}, {field}{shown}: {why}"
