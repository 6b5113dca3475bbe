"""What a corpus says about its jobs: the command `describe`, and the same for who wants to change a job."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lumos_df import schema
from lumos_df.base.errors import QueryError, nearest
from lumos_df.corpus import table_files
from lumos_df.graph.job import groups
from lumos_df.graph.replayed_tables import numbers, words
from lumos_df.schema import EVIDENCE, PHASES
from lumos_df.schema.codes import BY_ANNOTATION, NONE
from lumos_df.structure import annotations, dimensions, experts, labelled_rows, model_facts, parallelism, shapes, tables
from lumos_df.structure.experts import Routing
from lumos_df.structure.facts import CONTEXT, DEGREES, DIMENSIONS, EXPERTS, SETTING_OF, WINDOWS, Fact, unknown
from lumos_df.structure.labelled_rows import Trace
from lumos_df.structure.layers import Structure, understand

_SHARED: Final = {"heads": "heads", "kv_heads": "heads", "ffn": "of the FFN", "vocabulary": "rows"}
"""Dimensions that tensor parallelism splits, and what a rank has of them."""


@dataclass(frozen=True, slots=True)
class DescribedRank:
    """What is known of one rank."""

    trace: Trace
    """Its operators."""
    structure: Structure
    """What each belongs to."""
    stage: Fact
    """Its pipeline stage."""
    first_layer: int | None
    """The model's number of the rank's first layer; None where earlier stages are not known."""


@dataclass(frozen=True, slots=True)
class Description:
    """What is known of a job."""

    job: str
    ranks: list[DescribedRank]
    """By rank; those of which the corpus has a trace."""
    facts: dict[str, Fact]
    """`model`, `dtype`, `facts.DIMENSIONS`, `facts.EXPERTS` of a model with experts, `facts.TABLES` of a
    recommender, `facts.WINDOWS` where attention runs over windows, `world`, `facts.DEGREES`, `facts.CONTEXT` where
    ranks share a sequence."""
    routing: Routing | None = None
    """How tokens go to experts; None where no router ran."""

    @property
    def given(self) -> dict[str, int]:
        """Dimensions and degrees that the user says."""
        return {name: fact.number for name, fact in self.facts.items() if _given(fact) and fact.number is not None}

    def number(self, name: str) -> int:
        """Return a dimension or degree that must be known. Raise `QueryError` where it is not."""
        value = self.facts[name].number
        if value is None:
            raise QueryError(f"{self.job}: {name} is unknown ({self.facts[name].reason}); give it with --set {name}=N")
        return value


def parse_overrides(
    settings: list[str], option: str = "--set", levels: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return what `NAME=N` of an option say of dimensions and degrees. Raise `QueryError` where one is no such.

    Args:
        settings: the texts.
        option: how the option is called.
        levels: what else may be said, from 0 to the number here.
    """
    levels = levels or {}
    choices = [*DIMENSIONS, *EXPERTS, "world", *DEGREES, *levels]
    overrides: dict[str, int] = {}
    for text in settings:
        name, _, value = (part.strip() for part in text.partition("="))
        name = SETTING_OF.get(name, name)
        if name not in choices:
            raise QueryError(
                f"{option} {text}: no dimension '{name}'{nearest(name, choices)}; one of {', '.join(choices)}"
            )
        if name in overrides:
            raise QueryError(f"{option} {text}: '{name}' is said twice")
        if name in levels and value not in map(str, range(levels[name] + 1)):
            raise QueryError(f"{option} {text}: write {name}=0 to {name}={levels[name]}")
        refuse_several(option, text, choices)
        overrides[name] = int(value) if name in levels else whole_number(f"{option} {text}", name, value)
    return overrides


def refuse_several(option: str, text: str, names: Iterable[str]) -> None:
    """Raise `QueryError` where one option, such as `--set tp=2,dp=4`, says several of the `names`, as a plan does."""
    first, *others = text.split(",")
    if any(sign and name.strip() in names for name, sign, _ in (each.partition("=") for each in others)):
        apart = " ".join(f"{option} {each.strip()}" for each in (first, *others))
        raise QueryError(f"{option} {text}: each goes by itself: {apart}")


def whole_number(said: str, name: str, value: str) -> int:
    """Return a value of `NAME=N` in an option, of which `said` is the text. Raise `QueryError` where it cannot be."""
    if not (value.isascii() and value.isdigit() and len(value) < 20) or not 1 <= int(value) < 1 << 31:
        raise QueryError(f"{said}: write a whole number of at least 1 and below 2**31, such as {name}=8")
    return int(value)


def describe(
    corpus: Path, trace: str | None = None, job: str | None = None, overrides: Mapping[str, int] | None = None
) -> pa.Table:
    """Understand jobs of a corpus, store the tables `layers` and `dimensions`, and return one row a fact.

    Args:
        corpus: the corpus folder.
        trace: only the job of this trace: its id, or the beginning of it.
        job: only the job of this name.
        overrides: values of dimensions and degrees that hold whatever the traces say.

    Raises:
        LumosError: no such corpus, trace or job; an override contradicts another; a file cannot be read or written.
    """
    answer: list[dict[str, Any]] = []
    for ids in groups(corpus, trace, job):
        description = of_traces([labelled_rows.load(corpus, trace_id) for trace_id in ids], overrides or {})
        for rank in description.ranks:
            _store(corpus, description, rank)
        answer += [
            {
                "job": description.job,
                "trace_id": description.ranks[0].trace.rows.trace_id,
                "ranks": len(description.ranks),
                "name": name,
                "value": fact.number,
                "word": None if fact.number is not None else fact.value,
                "evidence": fact.evidence,
                "readings": fact.choices or None,
                "reason": fact.reason,
            }
            for name, fact in description.facts.items()
        ]
    kinds = {"ranks": pa.int32(), "value": pa.int64()}
    names = ("job", "trace_id", "ranks", "name", "value", "word", "evidence", "readings", "reason")
    return pa.Table.from_pylist(answer, pa.schema([(name, kinds.get(name, pa.string())) for name in names]))


def of_traces(traces: list[Trace], overrides: Mapping[str, int]) -> Description:
    """Return what the traces of one job say of it, each rank by itself and then together; overrides hold over both."""
    times = overrides["layers"] // overrides.get("pp", 1) if "layers" in overrides else None
    structures = [understand(trace, times) for trace in traces]
    facts: list[dict[str, Fact]] = []
    stages = []
    routings: list[Routing | None] = []
    for trace, structure in zip(traces, structures, strict=True):
        world = overrides.get("world") or (trace.rows.world_size if trace.rows.world_size > 0 else None)
        if world is None and len(traces) > 1:
            world = len(traces)
        of_rank, stage, routing = _of_rank(trace, structure, world, overrides)
        routings.append(routing)
        facts.append(of_rank)
        stages.append(stage)
    names = list(dict.fromkeys(name for of_rank in facts for name in of_rank))
    together = {name: _agreed(name, [of_rank[name] for of_rank in facts if name in of_rank]) for name in names}
    together["layers"] = _all_layers(structures, stages, together, overrides)
    if overrides:
        _check_given(traces, together)
        _check_layers(traces[0].rows.job, structures, together)
    ranks = [
        DescribedRank(trace, structure, stage, _first_layer(stage, structures, stages))
        for trace, structure, stage in zip(traces, structures, stages, strict=True)
    ]
    return Description(traces[0].rows.job, ranks, together, next((known for known in routings if known), None))


def _check_given(traces: list[Trace], facts: Mapping[str, Fact]) -> None:
    """Raise `QueryError` where what the user says contradicts itself, or the ranks that there are."""
    job, world = traces[0].rows.job, facts["world"]
    degrees = {name: facts[name] for name in ("tp", CONTEXT, "dp", "pp") if _known(facts, name)}
    last = max(trace.rows.rank for trace in traces)
    if _given(world) and last >= (world.number or 1):
        raise QueryError(f"{job}: {_told('world', world)}, but there is a trace of rank {last}")
    if world.number is not None and any(map(_given, (world, *degrees.values()))):
        product, whole = prod(degree.number or 1 for degree in degrees.values()), {"tp", "dp", "pp"} <= degrees.keys()
        if world.number % product or (whole and world.number != product):
            said = " x ".join(_told(name, degree) for name, degree in degrees.items())
            raise QueryError(
                f"{job}: {said} is {product}, and the ranks are {_told('world', world)}; give degrees whose product "
                f"{'is' if whole else 'divides'} that, or world=N, too"
            )
    if _given(facts["ep"]) and (world.number or 0) % (facts["ep"].number or 1):
        raise QueryError(f"{job}: {_told('ep', facts['ep'])} does not divide {_told('world', world)}")
    pp, layers = facts["pp"], facts["layers"]
    if (_given(pp) or _given(layers)) and (pp.number or 1) > (layers.number or pp.number or 1):
        raise QueryError(
            f"{job}: {_told('pp', pp)} stages need as many layers, and there are {_told('layers', layers)}"
        )
    for name in ("heads", "ffn", "vocabulary"):
        size, tp = facts[name], facts["tp"]
        if (_given(size) or _given(tp)) and (size.number or 0) % (tp.number or 1):
            raise QueryError(f"{job}: {_told('tp', tp)} does not divide {_told(name, size)}")


def _check_layers(job: str, structures: list[Structure], facts: Mapping[str, Fact]) -> None:
    """Raise `QueryError` where the layers that the user says are not those of any reading of the traces."""
    found, layers = {structure.layers for structure in structures}, facts["layers"]
    if _given(layers) and facts["pp"].number == 1 and 0 not in found and layers.number not in found:
        shown = " or ".join(map(str, sorted(found)))
        raise QueryError(f"{job}: {_told('layers', layers)}, but the trace shows {shown}, and no block comes so often")


def _known(facts: Mapping[str, Fact], name: str) -> bool:
    return name in facts and facts[name].number is not None


def _given(fact: Fact) -> bool:
    return fact.evidence == "override"


def _told(name: str, fact: Fact) -> str:
    return f"{name}={fact.number} ({fact.reason})"


def _first_layer(stage: Fact, structures: list[Structure], stages: list[Fact]) -> int | None:
    """Return the model's number of a stage's first layer: earlier stages have those before it."""
    if stage.number is None:
        return None
    layers = {other.number: structure.layers for structure, other in zip(structures, stages, strict=True)}
    before = range(stage.number)
    if all(number in layers for number in before):
        return sum(layers[number] for number in before)
    return stage.number * layers[stage.number] if len(set(layers.values())) == 1 else None


def _of_rank(
    trace: Trace, structure: Structure, world: int | None, overrides: Mapping[str, int]
) -> tuple[dict[str, Fact], Fact, Routing | None]:
    operations = shapes.operations(trace, structure.phase, structure.layer)
    local = dimensions.local(structure, operations, overrides)
    given = {name: _overridden(value) for name, value in overrides.items() if name in DEGREES}
    plan, pipeline = parallelism.degrees(trace, structure, local, world, given)
    model = model_facts.kind(structure)
    values = {
        "layers": model_facts.layers(structure),
        "hidden": local.hidden,
        "heads": local.heads,
        "kv_heads": local.kv_heads,
        "head_dim": local.head_dim,
        "ffn": local.ffn,
        "sequence": local.sequence,
        "micro_batch": local.micro_batch,
        "micro_batches": model_facts.micro_batches(structure),
        "vocabulary": local.vocabulary,
    }
    for name, what in _SHARED.items():
        values[name] = dimensions.times(values[name], "tp", plan["tp"], what)
    if CONTEXT in plan:
        values["sequence"] = dimensions.times(values["sequence"], CONTEXT, plan[CONTEXT], "tokens")
    values |= experts.facts(local.routing) | tables.facts(trace, structure)
    values |= {} if local.windows is None else {WINDOWS: local.windows}
    values |= {name: _overridden(value) for name, value in overrides.items() if name in (*values, *EXPERTS)}
    everyone = _overridden(overrides["world"]) if "world" in overrides else _world(world, trace)
    stage = parallelism.stage(trace, plan["pp"], pipeline)
    stated = np.unique(annotations.of_rows(trace, "stage"))
    if len(stated[stated >= 0]) == 1:
        stage = Fact(int(stated[-1]), "annotation", "the stage that annotations name")
    return {"model": model, "dtype": local.dtype, **values, "world": everyone, **plan}, stage, local.routing


def _overridden(value: int) -> Fact:
    return Fact(value, "override", "given")


def _world(world: int | None, trace: Trace) -> Fact:
    if world is None:
        return unknown("the trace states no world size, and the corpus has one rank of the job")
    stated = trace.rows.world_size > 0
    return Fact(world, "group", "as the trace states it" if stated else "ranks of the job in the corpus")


def _agreed(name: str, facts: list[Fact]) -> Fact:
    """Return what most ranks say; where ranks differ, the reason says so."""
    known = [fact for fact in facts if fact.value is not None]
    if not known:
        return facts[0]
    value, count = Counter(fact.value for fact in known).most_common(1)[0]
    best = next(fact for fact in known if fact.value == value)
    if count == len(known):
        return best
    return Fact(
        best.value, best.evidence, f"{best.reason}; {len(known) - count} of {len(known)} ranks say another {name}"
    )


def _all_layers(
    structures: list[Structure], stages: list[Fact], facts: Mapping[str, Fact], overrides: Mapping[str, int]
) -> Fact:
    """Return the layers of the whole model: a stage has a part of them."""
    pp = facts["pp"].number
    if "layers" in overrides or pp == 1 or facts["layers"].value is None:
        return facts["layers"]
    if pp is None:
        return unknown(f"{facts['layers'].value} on a rank, and pp is unknown: {facts['pp'].reason}")
    per_stage: dict[int, int] = {}
    for structure, stage in zip(structures, stages, strict=True):
        if stage.number is not None:
            per_stage[stage.number] = structure.layers
    how = f"{facts['layers'].reason} on each of pp={pp} stages"
    evidence = facts["layers"].evidence
    if len(per_stage) == pp:
        return Fact(sum(per_stage.values()), evidence, how)
    if len(set(per_stage.values())) <= 1:
        return Fact(pp * int(facts["layers"].value), evidence, f"{how}, of which {len(per_stage)} are in the corpus")
    return unknown(f"stages have different numbers of layers, and {len(per_stage)} of {pp} are in the corpus")


def _layer(rank: DescribedRank) -> NDArray[np.int32]:
    """Return the model's layer of every operator; annotations name it themselves."""
    structure = rank.structure
    if not rank.first_layer:
        return structure.layer
    of_rank = (structure.layer >= 0) & (structure.layer_evidence != BY_ANNOTATION)
    return structure.layer + np.where(of_rank, rank.first_layer, 0).astype(np.int32)


def _store(corpus: Path, description: Description, rank: DescribedRank) -> None:
    structure, trace = rank.structure, rank.trace.rows
    count = len(trace)
    stage = NONE if rank.stage.number is None else rank.stage.number
    columns = {
        "rank": np.full(count, trace.rank, np.int32),
        "op_id": np.arange(count, dtype=np.int32),
        "phase": words(structure.phase, PHASES),
        "layer": numbers(_layer(rank)),
        "micro_batch": numbers(structure.micro_batch),
        "stage": numbers(np.full(count, stage, np.int32)),
        "phase_evidence": words(structure.phase_evidence, EVIDENCE),
        "layer_evidence": words(structure.layer_evidence, EVIDENCE),
        "micro_batch_evidence": words(structure.micro_batch_evidence, EVIDENCE),
        "stage_evidence": words(np.full(count, EVIDENCE.index(rank.stage.evidence), np.int8), EVIDENCE),
    }
    table_files.write(corpus, trace.trace_id, schema.LAYERS, columns)
    facts = {**description.facts, "stage": rank.stage}
    table_files.write(
        corpus,
        trace.trace_id,
        schema.DIMENSIONS,
        {
            "rank": [trace.rank] * len(facts),
            "name": list(facts),
            "value": [fact.number for fact in facts.values()],
            "word": [None if fact.number is not None else fact.value for fact in facts.values()],
            "evidence": [fact.evidence for fact in facts.values()],
            "reason": [fact.reason for fact in facts.values()],
        },
    )
