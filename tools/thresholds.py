"""The thresholds of the package, and what each of them does to the errors: `docs/thresholds.md` is made from both.

A threshold is a constant whose documentation begins `Threshold, UNIT.`, then says what it decides and, behind
`Evidence:`, where that is from. What half and double of it do is measured by `python -m tests.bench.thresholds`.
"""

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from lumos_df.base.kernel_cache import PACKAGE

EFFECTS: Final = PACKAGE.parent / "docs" / "threshold_effects.json"
"""What was measured: `scores` as it is, and of each threshold its value and the scores that half and double change."""

CHOSEN: Final = "chosen on recorded traces"

_UNMEASURED: Final = {
    "advice": "on jobs that were recorded before and after the change that is advised",
    "calibrate": "on runs of which is known that too few were given",
    "cli": "on readers",
    "estimate": "on measured runs of GPUs whose kernels were not measured, and of plans that nobody would try",
    "model": "on products and runs that the figures of a GPU were not fitted to",
    "whatif": "on jobs that were recorded with both numbers of stages, layers or micro-batches, and on jobs of which a "
    "warning or a refusal is known to be right",
}
"""On what the thresholds of a part would have to be measured, where they were not."""

_SIGN: Final = "Threshold, "
_EVIDENCE: Final = " Evidence: "


@dataclass(frozen=True, slots=True)
class Threshold:
    """A constant that decides what counts as what."""

    module: str
    """Without the package: `graph.host`."""
    name: str
    value: int | float
    unit: str
    meaning: str
    evidence: str
    """Where the value is from."""

    @property
    def key(self) -> str:
        """How it is called in the table and in what was measured."""
        return f"{self.module}.{self.name}"


@cache
def thresholds(package: Path = PACKAGE) -> tuple[Threshold, ...]:
    """Return every threshold, in the order of modules and lines.

    Raises:
        ValueError: one is no number, has no unit or meaning, or is imported by name, so that no bench could change it.
    """
    trees = {file: ast.parse(file.read_text("utf-8")) for file in sorted(package.rglob("*.py"))}
    declared = [threshold for file, tree in trees.items() for threshold in _of_module(package, file, tree)]
    names = {f"{package.name}.{threshold.key}" for threshold in declared}
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if f"{node.module}.{alias.name}" in names:
                        raise ValueError(f"{file}:{node.lineno}: import the module of the threshold {alias.name}")
    return tuple(declared)


def _of_module(package: Path, file: Path, tree: ast.Module) -> Iterator[Threshold]:
    module = ".".join(file.relative_to(package).with_suffix("").parts)
    for statement, following in pairwise(tree.body):
        text = _text(following)
        if not text.startswith(_SIGN):
            continue
        name = getattr(getattr(statement, "target", None), "id", "")
        value = _number(getattr(statement, "value", None))
        if not name or value is None:
            raise ValueError(f"{file}:{statement.lineno}: write a threshold as `NAME: Final = NUMBER`")
        unit, _, meaning = text.removeprefix(_SIGN).partition(". ")
        meaning, _, evidence = meaning.partition(_EVIDENCE)
        if not unit or not meaning:
            raise ValueError(f"{file}:{following.lineno}: write `Threshold, UNIT. What it decides.`")
        yield Threshold(module, name, value, unit, meaning, evidence or CHOSEN)


def _text(statement: ast.stmt) -> str:
    """Return a string that stands alone, as one line; of any other statement nothing."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return " ".join(text.split())
    return ""


def _number(node: ast.expr | None) -> int | float | None:
    match node:
        case ast.Constant(value=int(number)) | ast.Constant(value=float(number)):
            return number
    return None


def effects() -> dict[str, Any]:
    """Return what was measured."""
    measured: dict[str, Any] = json.loads(EFFECTS.read_text("utf-8"))
    return measured


def page() -> str:
    """Return the table of all thresholds as Markdown."""
    measured = effects()
    return "\n".join(_lines(thresholds(), measured)) + "\n"


def _lines(listed: tuple[Threshold, ...], measured: dict[str, Any]) -> Iterator[str]:
    scores = measured["scores"]
    yield "# Thresholds"
    yield ""
    yield "Generated from the constants themselves and from what was measured (`make docs`)."
    yield ""
    yield "Where a rule of lumos-df decides by a number, the number stands here: what it decides, where it is from, and"
    yield "what half and double of it do to the errors. A number chosen on recorded traces fits the traces of"
    yield "[graph.md](graph.md) and promises nothing for others."
    yield ""
    yield f"Measured by `{measured['command']}` on {measured['inputs']}."
    yield "Scores as they are:"
    yield ""
    yield "| score | as it is |"
    yield "|---|---|"
    for name, score in scores.items():
        yield f"| {name}: {score['what']} | {_figure(score['value'], score['unit'])} |"
    yield ""
    yield "`same` means that no score changes by a hundredth of its unit; `-` that nothing was measured."
    for part in dict.fromkeys(threshold.module.partition(".")[0] for threshold in listed):
        yield ""
        yield f"## {part}"
        yield ""
        if part in _UNMEASURED:
            yield f"Where a row lacks half and double, they would have to be measured {_UNMEASURED[part]}."
            yield ""
        yield "| threshold | value | what it decides | evidence | half | double |"
        yield "|---|---|---|---|---|---|"
        for threshold in listed:
            if threshold.module.partition(".")[0] == part:
                name = f"`{threshold.module.rpartition('.')[2]}.{threshold.name}`"
                value = f"{threshold.value:,} {threshold.unit}"
                cells = (name, value, threshold.meaning, threshold.evidence, *_changes(threshold, measured))
                yield f"| {' | '.join(cells)} |"


def _changes(threshold: Threshold, measured: dict[str, Any]) -> tuple[str, str]:
    """Return what half and double change, as text."""
    effect = measured["thresholds"].get(threshold.key)
    if effect is None or effect["value"] != threshold.value:
        return "-", "-"
    half, double = (_scores(effect[factor], measured["scores"]) for factor in ("half", "double"))
    return half or "same", double or "same"


def _scores(changed: dict[str, float], scores: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_figure(value, scores[name]['unit'])}" for name, value in changed.items())


def _figure(value: float, unit: str) -> str:
    return f"{value:g} {unit}".strip()
