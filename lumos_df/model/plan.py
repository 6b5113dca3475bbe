"""The plan: how a training job is spread over GPUs, and what it does to fit and to overlap."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from math import prod
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from lumos_df.base.errors import PlanError, nearest
from lumos_df.model.figures import Complaint, closest, flag, refuse, text, whole, word
from lumos_df.model.hardware import Hardware
from lumos_df.model.kernels.legality import MOST_GPUS, first_broken, violated, violations
from lumos_df.model.records import Column, record, row_type
from lumos_df.model.rules import RULES
from lumos_df.model.software import Software
from lumos_df.model.transformer import Model
from lumos_df.schema.dtypes import PRECISION_OF_WORD, PRECISIONS
from lumos_df.schema.plan_words import DIMENSIONS, LORA_TARGETS, RECOMPUTATIONS, SCHEDULES, ZERO_STAGES

PLAN_COLUMNS: Final = (
    Column("tp", "tensor-parallel ranks"),
    Column("pp", "pipeline stages"),
    Column("vp", "virtual stages (model chunks) of a stage"),
    Column("dp", "data-parallel ranks"),
    Column("cp", "context-parallel ranks"),
    Column("ep", "expert-parallel ranks, out of tp * cp * dp"),
    Column("etp", "tensor-parallel ranks of an expert"),
    Column("sequence_parallel", "1: norms and dropout are split over tp along the sequence"),
    Column("micro_batch", "sequences of a micro-batch of one data-parallel rank"),
    Column("batch", "sequences of a step, all ranks together"),
    Column("recompute", "place in RECOMPUTATIONS"),
    Column("schedule", "place in SCHEDULES"),
    Column(
        "zero",
        "what dp * cp shards, place in ZERO_STAGES: 0 nothing, 1 the optimizer, 2 gradients, too, 3 parameters, too",
    ),
    Column("dp_replicate", "groups of ranks, each of which holds all that `zero` shards"),
    Column("precision", "place in PRECISIONS"),
    Column("flash", "1: attention never stores its scores"),
    Column("overlap_tp", "1: tensor-parallel communication runs beside GEMMs"),
    Column("overlap_dp", "1: gradient and parameter communication runs beside compute"),
    Column("overlap_pp", "1: pipeline communication runs beside compute"),
    Column("offload_optimizer", "1: optimizer states and step on the host"),
    Column("lora", "rank of the adapters that alone are trained; 0: every parameter is"),
    Column("lora_targets", "place in LORA_TARGETS"),
    Column("placement", "order of DIMENSIONS on ranks: a base-8 digit each, innermost lowest"),
    Column("software", "row of the sweep's software table"),
)
"""What a kernel knows of a plan."""

PLAN_ROW: Final = row_type(PLAN_COLUMNS)
"""Structured dtype of `Plan.row()`."""

_ALIASES: Final = {
    "mbs": "micro_batch",
    "gbs": "batch",
    "global_batch": "batch",
    "vpp": "vp",
    "sp": "sequence_parallel",
    "offload": "offload_optimizer",
    "hsdp": "dp_replicate",
}
SHORT: Final = {"micro_batch": "mbs", "sequence_parallel": "sp", "offload_optimizer": "offload"}
"""What screens call fields with long names."""
_SCHEDULE_ALIASES: Final = {
    "afab": "gpipe",
    "zb": "zb-h1",
    "zbh1": "zb-h1",
    "zb1p": "zb-h1",
    "interleaved-1f1b": "interleaved",
}
_SAID: Final = {"1": True, "true": True, "on": True, "yes": True, "0": False, "false": False, "off": False, "no": False}
OVERLAPS: Final = ("overlap_tp", "overlap_dp", "overlap_pp")
"""Flags that are those of the software unless a plan says otherwise."""
FLAGS: Final = ("sequence_parallel", "flash", *OVERLAPS, "offload_optimizer")
"""Fields that are true or false."""

WORDS: Final = {
    "recompute": RECOMPUTATIONS,
    "schedule": SCHEDULES,
    "precision": PRECISIONS,
    "lora_targets": LORA_TARGETS,
}
"""Fields that are words, and which words they may be; a record holds the place."""


@dataclass(frozen=True)
class Plan:
    """How a job is spread. Raises `PlanError` for fields that cannot be; `check` says what does not go together."""

    tp: int = 1
    """Tensor-parallel ranks."""
    pp: int = 1
    """Pipeline stages. Layers that do not divide: `chunk_layers`."""
    vp: int = 1
    """Virtual stages (model chunks) of each stage; more than 1 with `interleaved` only."""
    dp: int = 1
    """Data-parallel ranks."""
    cp: int = 1
    """Context-parallel ranks: parts of a sequence."""
    ep: int = 1
    """Expert-parallel ranks, out of tp * cp * dp: they need no further GPUs."""
    etp: int = 1
    """Tensor-parallel ranks of an expert, of the same GPUs."""
    sequence_parallel: bool = False
    """Whether norms and dropout are split over tp along the sequence."""
    micro_batch: int = 1
    """Sequences of a micro-batch of one data-parallel rank."""
    batch: int = 1
    """Sequences of a step, all ranks together."""
    recompute: str = "none"
    """What the backward pass computes again: one of `RECOMPUTATIONS`."""
    schedule: str = "1f1b"
    """One of `SCHEDULES`. Without a pipeline, `1f1b` and `gpipe` run micro-batches one after the other."""
    zero: int = 0
    """What dp * cp shards: 0 nothing, 1 the optimizer, 2 gradients, too, 3 parameters, too (FSDP)."""
    dp_replicate: int = 1
    """Groups of neighbouring ranks, out of dp * cp, each of which holds all that `zero` shards (HSDP): 1, one group."""
    precision: str = "bf16"
    """Number format of matrix products: one of `PRECISIONS`."""
    flash: bool = True
    """Whether attention never stores its scores."""
    overlap_tp: bool = False
    """Whether tensor-parallel communication runs beside GEMMs."""
    overlap_dp: bool = True
    """Whether gradient and parameter communication runs beside compute."""
    overlap_pp: bool = False
    """Whether pipeline communication runs beside compute."""
    offload_optimizer: bool = False
    """Whether optimizer states and step are on the host."""
    lora: int = 0
    """Rank of the adapters that alone are trained (LoRA); 0: every parameter is."""
    lora_targets: str = "attention"
    """What the adapters are beside: one of `LORA_TARGETS`."""
    placement: str = "tp-cp-ep-dp-pp"
    """Order of `DIMENSIONS` on ranks, innermost first."""
    software: str = "generic"
    """Name of a software profile, or its file."""

    def __post_init__(self) -> None:
        refuse(PlanError, "plan", self._complaints())

    @classmethod
    def parse(cls, written: str) -> Self:
        """Return the plan that a text such as `tp=8,pp=4,dp=8,micro_batch=1,batch=1536` says.

        Also understood: mbs, gbs, vpp, sp, offload; flags as 1/0, true/false, on/off, yes/no, or their name alone. What
        is not said has its default, but the schedule is interleaved when vp is above 1, and the overlaps are those of
        the software. Raises `PlanError`, and `SoftwareError` for an unknown software.
        """
        values = {name: value_of(name, said) for name, said in words(written)}
        if values.get("vp", 1) != 1:
            values.setdefault("schedule", "interleaved")
        software = Software.read(str(values.get("software", cls.software)))
        for name in OVERLAPS:
            values.setdefault(name, getattr(software, name))
        return cls(**values)  # type: ignore[arg-type]  # refused by __post_init__ where they are of another kind

    @property
    def gpus(self) -> int:
        """GPUs of the job."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step that each pipeline runs (gradient accumulation)."""
        return self.batch // (self.dp * self.micro_batch)

    def text(self) -> str:
        """Return what `parse` reads as this plan: each field that is not as it would be unsaid."""
        software = Software.read(self.software)
        unsaid = {field.name: field.default for field in fields(self)} | {
            name: getattr(software, name) for name in OVERLAPS
        }
        if self.vp != 1:
            unsaid["schedule"] = "interleaved"
        said = {name: value for name, value in vars(self).items() if value != unsaid[name]}
        return ",".join(
            f"{SHORT.get(name, name)}={('off', 'on')[value] if isinstance(value, bool) else value}"
            for name, value in said.items()
        )

    def row(self, software: int = 0) -> np.void:
        """Return the plan as one `PLAN_ROW`; `software` is its profile's row in the table that goes with it."""
        values = {
            **vars(self),
            **{name: choices.index(getattr(self, name)) for name, choices in WORDS.items()},
            "placement": placement_code(self.placement),
            "software": software,
        }
        return record(PLAN_ROW, values)

    def check(self, model: Model, hardware: Hardware) -> None:
        """Raise `PlanError` unless the plan goes with the model and the GPU: every rule broken, in one line.

        Each complaint names the field, why, and the nearest value of that field alone that breaks no rule of its own.
        """
        refuse(PlanError, "plan", self._broken(model, hardware))

    def _broken(self, model: Model, hardware: Hardware) -> Iterator[Complaint]:
        model_row, hardware_row = model.row(), hardware.row()
        row = self.row()
        broken = int(violated(row, model_row, hardware_row))
        for name in dict.fromkeys(rule.field for rule in RULES):
            of_field = sum(1 << number for number, rule in enumerate(RULES) if rule.field == name)
            if not broken & of_field:
                continue
            rule = RULES[first_broken(broken & of_field) - 1]
            others = self._others(row, name)
            still = violations(others, model_row, hardware_row)
            # Best what breaks no further rule; else what at least mends those of its own field.
            strict, lax = (others[name][still & rules == 0].tolist() for rules in (of_field | ~broken, of_field))
            why = rule.text.format(plan=self, model=model, hardware=hardware)
            yield Complaint(name, f"= {getattr(self, name)}: {why}; {_remedy(row, name, strict or lax)}")

    def _others(self, row: np.void, name: str) -> NDArray[np.void]:
        """Return the plan with every value of one field that may come into question: PLAN_ROW [n]."""
        if name in WORDS:
            values = np.arange(len(WORDS[name]))
        elif name == "zero":
            values = np.arange(len(ZERO_STAGES))
        else:
            most = max(2 * getattr(self, name), 4 * self.pp * self.dp * self.micro_batch, 256)
            values = np.arange(1, most + 1)
        others = np.full(len(values), row, PLAN_ROW)
        others[name] = values
        return others

    def _complaints(self) -> Iterator[Complaint]:
        values = vars(self)
        many = list(too_many({name: values[name] for name in ("tp", "pp", "dp", "cp")}))
        counts = ("tp", "pp", "vp", "dp", "cp", "ep", "etp", "micro_batch", "batch", "dp_replicate")
        # Of too many GPUs the smaller bound is said.
        yield from whole(values, 1, *(name for name in counts if all(name != complaint.field for complaint in many)))
        yield from whole(values, 0, "zero", "lora")
        most = len(ZERO_STAGES) - 1
        if type(self.zero) is int and self.zero > most:
            yield Complaint("zero", f"= {self.zero}: must be 0 to {most}; nearest is {most}")
        yield from many
        yield from flag(values, *FLAGS)
        for name, choices in WORDS.items():
            yield from word(values, name, choices)
        yield from text(values, "placement", "software")
        if type(self.placement) is str and sorted(self.placement.split("-")) != sorted(DIMENSIONS):
            yield Complaint("placement", f"= {self.placement!r}: must name each of {'-'.join(DIMENSIONS)} once")


def too_many(degrees: Mapping[str, Any]) -> Iterator[Complaint]:
    """Complain of the largest degree where all of them together make more than `MOST_GPUS`."""
    if not all(type(degree) is int and degree >= 1 for degree in degrees.values()):
        return
    gpus = prod(degrees.values())
    if gpus > MOST_GPUS:
        name = max(degrees, key=lambda degree: int(degrees[degree]))
        legal = max(MOST_GPUS // (gpus // degrees[name]), 1)
        why = f"makes {gpus:,} GPUs, and a job has at most {MOST_GPUS:,}; nearest is {legal}"
        yield Complaint(name, f"= {degrees[name]}: {why}")


def _remedy(row: np.void, name: str, fits: list[int]) -> str:
    """Say which of the values that fit is nearest; of schedules, which have no distance, the first."""
    if not fits:
        return "no other value alone is legal"
    if name == "precision":  # Of two as near the narrower: bf16 for fp16.
        return f"nearest is {PRECISIONS[min(fits, key=lambda place: (abs(place - int(row[name])), -place))]}"
    if name in WORDS:
        return f"nearest is {WORDS[name][fits[0] if name == 'schedule' else closest(int(row[name]), fits)]}"
    return f"nearest is {closest(int(row[name]), fits)}"


def placement_code(written: str) -> int:
    """Return an order of `DIMENSIONS`, such as `tp-cp-ep-dp-pp`, as a record holds it: a base-8 digit each."""
    return sum(DIMENSIONS.index(dimension) << (3 * place) for place, dimension in enumerate(written.split("-")))


def placement_text(code: int) -> str:
    """Return the order that `placement_code` made a number of."""
    return "-".join(DIMENSIONS[code >> (3 * place) & 7] for place in range(len(DIMENSIONS)))


def words(written: str, more: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Give the fields that a text names, by their full names, and what it says of each. Raises `PlanError`.

    Args:
        written: such as `tp=8,pp=4,sp`.
        more: names that the text may have besides those of a plan.
    """
    seen = set()
    for part in filter(None, (part.strip() for part in written.split(","))):
        spelled, equals, value = (piece.strip() for piece in part.partition("="))
        name = field_name(spelled, more)
        if name in seen:
            raise PlanError(f"plan: '{name}' is said twice")
        if not equals and name not in FLAGS:
            raise PlanError(f"plan: '{spelled}' needs a value: {spelled}=...")
        seen.add(name)
        yield name, value if equals else "true"


def field_name(spelled: str, more: tuple[str, ...] = ()) -> str:
    """Return the full name of a plan's field, or of one of `more`. Raises `PlanError` with the nearest name."""
    known = [*(field.name for field in fields(Plan)), *more]
    plain = spelled.casefold().replace("-", "_")
    name = _ALIASES.get(plain, plain)
    if name not in known:
        hint = nearest(name, [*known, *_ALIASES]) or f"; there are {', '.join(known)}"
        raise PlanError(f"plan: there is no field '{spelled}'{hint}")
    return name


def value_of(name: str, said: str) -> object:
    """Return what a text stands for in a field; the text itself where it stands for nothing, for `Plan` to refuse."""
    if name in FLAGS:
        return _SAID.get(said.casefold(), said)
    if name == "schedule":
        return _SCHEDULE_ALIASES.get(said.casefold(), said.casefold())
    if name == "precision":
        known = PRECISION_OF_WORD.get(said.casefold())
        return known.name if known else said.casefold()
    if name in WORDS or name == "placement":
        return said.casefold()
    return int(said) if name != "software" and said.isdecimal() else said
