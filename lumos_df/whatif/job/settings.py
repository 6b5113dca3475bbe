"""What becomes of a job: `--set NAME=VALUE`, checked against what the job was."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from lumos_df.base.errors import HardwareError, QueryError, nearest
from lumos_df.model.hardware import Hardware
from lumos_df.model.plan import value_of
from lumos_df.schema.dtypes import FP16, PRECISION_OF_WORD, PRECISION_TABLE, Precision, precision_of
from lumos_df.schema.plan_words import RECOMPUTATIONS, RECOMPUTE_LIGHT, SHARD_NOTHING, SHARD_PARAMETERS, ZERO_STAGES
from lumos_df.structure import shapes, sharding, widths_inside
from lumos_df.structure.describe import Description, parse_overrides, refuse_several, whole_number
from lumos_df.structure.experts import Routing
from lumos_df.structure.facts import CONTEXT, WINDOWS

FACT_OF: Final = {
    "layers": "layers",
    "hidden": "hidden",
    "ffn": "ffn",
    "heads": "heads",
    "kv_heads": "kv_heads",
    "seq": "sequence",
    "micro_batch": "micro_batch",
    "batch": "micro_batches",
    "vocab": "vocabulary",
    "dp": "dp",
    "tp": "tp",
    "pp": "pp",
    "ep": "ep",
    "experts": "experts",
    "top_k": "top_k",
}
"""Which fact of a job each whole number changes; `batch` is micro-batches a step."""
IN_SHAPES: Final = ("seq", "micro_batch", "hidden", "ffn", "heads", "kv_heads", "vocab")
"""Those that are read in recorded shapes."""
_NUMBERS: Final = (*FACT_OF, "vp", "cp")
ACCUMULATION: Final = "gradient_accumulation"
"""Micro-batches of a step of training."""
_SAME_AS: Final = {ACCUMULATION: "batch"}
"""Other names of whole numbers."""

_DTYPES: Final = tuple(precision.dtype for precision in PRECISION_TABLE)
USUAL_PRECISION: Final = PRECISION_TABLE[FP16]
"""What is taken where the trace does not tell."""
_WORDS: Final = ("dtype", "hardware", "network", "schedule", "recompute")
LEVELS: Final = {"zero": SHARD_PARAMETERS}
"""What `--known` may say besides facts of a job, from 0 to the number here."""
_SWITCHES: Final = ("sp", "overlap")
"""Words that are on or off."""
_CHOICES: Final[Mapping[str, Mapping[str, str | int | bool]]] = {
    "recompute": {word: word for word in RECOMPUTATIONS[:RECOMPUTE_LIGHT]},
    "zero": {str(stage): stage for stage in range(len(ZERO_STAGES))},
    **{name: {"on": True, "off": False} for name in _SWITCHES},
}
"""Words of which there are few, and what each stands for."""
_REALS: Final = {"batch_scale": "2", "capacity": "1.25"}
"""Numbers that need not be whole, and one of each for messages."""
NAMES: Final = (*_NUMBERS, *_SAME_AS, "zero", *_REALS, *_WORDS, *_SWITCHES)


@dataclass(frozen=True, slots=True)
class Sizes:
    """A transformer's dimensions and how it is cut; None where the trace does not tell."""

    layers: int | None
    hidden: int | None
    ffn: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    seq: int | None
    micro_batch: int | None
    batch: int | None
    """Micro-batches of a step."""
    vocab: int | None
    tp: int | None
    dp: int | None
    pp: int | None
    element_bytes: float = USUAL_PRECISION.bytes
    vp: int = 1
    """Chunks of layers of a stage; no trace tells what they were."""
    ep: int | None = 1
    experts: int | None = None
    """Of a layer, all ranks; None of a model without, too."""
    top_k: int | None = None
    routing: Routing | None = None
    """How tokens go to experts; None where no router ran."""
    cp: int = 1
    """Ranks that share the sequence; 1 where no group of them is described."""
    zero: int | None = SHARD_NOTHING
    """What data-parallel ranks share out, a place in `plan_words.ZERO_STAGES`."""
    sp: bool = False
    """Whether tensor-parallel ranks share the tokens between their products."""
    channels: tuple[int, ...] = ()
    """Other channels of a convolutional net's layers, gates of a recurrent net's, and what linear layers of either lead
    to and from, that are a part or a multiple of `hidden`, and grow with it; of one in stages all channels inside."""

    windows: int = 1
    """Of a sample, which attention runs over one by one."""

    @property
    def rank_seq(self) -> int | None:
        """Return the tokens of a sequence that a context-parallel rank has."""
        return None if self.seq is None else -(-self.seq // self.cp)

    @property
    def replicas(self) -> int:
        """Return the ranks that reduce the gradients of the same parameters together."""
        return (self.dp or 1) * self.cp

    @property
    def gathers_layers(self) -> bool:
        """Return whether parameters are gathered for each layer, and not once a step."""
        return (self.zero or 0) >= SHARD_PARAMETERS

    def copies(self, stage: int) -> int:
        """Return among how many ranks is shared out what is from a stage of `plan_words.ZERO_STAGES` on."""
        return self.replicas if (self.zero or 0) >= stage else 1

    @classmethod
    def of(cls, about: Description) -> Self:
        """Return what is known of a job."""
        number: dict[str, Any] = {
            name: about.facts[fact].number for name, fact in FACT_OF.items() if fact in about.facts
        }
        shared = sharding.of_rank(about.ranks[0].trace, about.ranks[0].structure, about.given)
        return cls(
            **number,
            head_dim=about.facts["head_dim"].number,
            element_bytes=(told_precision(about) or USUAL_PRECISION).bytes,
            vp=1,
            cp=about.facts[CONTEXT].number or 1 if CONTEXT in about.facts else 1,
            routing=about.routing,
            zero=shared.zero,
            sp=shared.sequence,
            channels=_channels(about),
            windows=(about.facts[WINDOWS].number or 1) if WINDOWS in about.facts else 1,
        )


def _channels(about: Description) -> tuple[int, ...]:
    hidden = about.facts["hidden"].number
    if hidden is None:
        return ()
    trace, structure = about.ranks[0].trace, about.ranks[0].structure
    operations = shapes.operations(trace, structure.phase, structure.layer)
    if about.facts["model"].value == "transformer":
        return tuple(sorted(widths_inside.multiples(operations, hidden)))
    if about.facts["model"].value == "convolutional" and not structure.layers:
        between = widths_inside.between(operations)
        return tuple(sorted((between | widths_inside.flattened(operations, between)) - {hidden}))
    inside = widths_inside.recurrent(operations, hidden)
    convolved = widths_inside.channels(operations).keys()
    # Others are tokens that a convolution mixes. Stages beside that of the layers grow along.
    if about.facts["model"].value == "convolutional" and hidden in convolved:
        inside |= convolved | widths_inside.between(operations)
        inside |= widths_inside.flattened(operations, inside | {hidden})
    for width in (hidden, *inside):
        inside = inside | widths_inside.beside(operations, width)
    # One channel in is a filter of its own for each channel.
    inside -= {1, hidden, about.facts["ffn"].number, about.facts["sequence"].number}
    return tuple(sorted(size for size in inside if 0 in (size % hidden, hidden % size)))


def told_precision(about: Description) -> Precision | None:
    """Return the precision of a job's matrix products, None where its trace does not tell."""
    return precision_of(str(about.facts["dtype"].value))


def parameters(sizes: Sizes, tables: int = 1, *, experts: float = 1.0) -> float:
    """Return the parameters of a rank, near enough for ratios: products of the layers, and tables of the vocabulary.

    Args:
        sizes: the model and how it is cut.
        tables: how many tables of the vocabulary count.
        experts: what an expert's count for.
    """
    hidden = sizes.hidden or 1
    heads = (sizes.heads or 1) * (sizes.head_dim or hidden)
    keys = (sizes.kv_heads or sizes.heads or 1) * (sizes.head_dim or hidden)
    mlps = experts * (sizes.routing.local_experts or 1) if sizes.routing else 1.0
    layer = hidden * (2 * heads + 2 * keys + 2 * mlps * (sizes.ffn or 4 * hidden))
    whole = (sizes.layers or 1) / (sizes.pp or 1) * layer + tables * (sizes.vocab or 0) * hidden
    return whole / (sizes.tp or 1)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asks to change."""

    numbers: Mapping[str, int] = field(default_factory=dict)
    """By name of `Sizes`."""
    batch_scale: float = 1.0
    """Factor of the leading dimension of every activation."""
    capacity: float | None = None
    """Rows of the experts' products over those that tokens need if all experts get as many."""
    dtype: str | None = None
    """One of `schema.dtypes.PRECISION_TABLE`'s."""
    hardware: str | None = None
    """Name or file of a hardware."""
    network: str | None = None
    """Whose links, as a hardware's name, or their bandwidth in bytes/s and perhaps latency in s: `50e9/5e-6`."""
    schedule: str | None = None
    recompute: str | None = None
    """What the backward pass computes again, one of `plan_words.RECOMPUTATIONS`."""
    overlap: bool | None = None
    """Whether gradients are reduced while the backward pass runs."""
    zero: int | None = None
    """What data-parallel ranks share out, a place in `plan_words.ZERO_STAGES`."""
    sp: bool | None = None
    """Whether tensor-parallel ranks share the tokens between their products."""
    accumulates: bool = field(default=False, compare=False)
    """Whether the micro-batches are asked for as those that gradients are added up over."""
    keep_stalls: bool = False
    """Whether what once took far longer than ever else stays in the changed job."""

    def __bool__(self) -> bool:
        """Return whether anything is to change."""
        return replace(self, keep_stalls=False) != Settings()

    def __str__(self) -> str:
        """Return it as it is written."""
        return ",".join(f"{name}={value}" for name, value in self.values().items())

    def without(self, name: str) -> Self:
        """Return the settings but one."""
        if name in self.numbers:
            return replace(self, numbers={other: value for other, value in self.numbers.items() if other != name})
        return replace(self, **{name: getattr(type(self)(), name)})

    def values(self) -> dict[str, str]:
        """Return what is to change, by name, each value as it is written."""
        parts = {name: str(value) for name, value in self.numbers.items()}
        if self.batch_scale != 1:
            parts["batch_scale"] = f"{self.batch_scale:g}"
        if self.capacity is not None:
            parts["capacity"] = f"{self.capacity:g}"
        parts |= {name: str(getattr(self, name)) for name in ("zero", *_WORDS) if getattr(self, name) is not None}
        given = {name: getattr(self, name) for name in _SWITCHES}
        return parts | {name: "on" if is_on else "off" for name, is_on in given.items() if is_on is not None}


def parse(texts: list[str]) -> Settings:
    """Read `--set NAME=VALUE`. Raise `QueryError` for a name or value that cannot be, with the nearest that can."""
    settings = Settings()
    for text, name, value in _said(texts):
        if name in _NUMBERS or name in _SAME_AS:
            settings = _with_number(settings, text, name, value)
        elif name in _REALS:
            real: dict[str, Any] = {name: _real(text, name, value, _REALS[name])}
            settings = replace(settings, **real)
            if settings.batch_scale == 1 and name == "batch_scale":
                raise QueryError(f"--set {text}: changes nothing, because the batch stays as it is")
        else:
            words: dict[str, Any] = {name: _word(text, name, value)}
            settings = replace(settings, **words)
    if settings.batch_scale != 1 and "micro_batch" in settings.numbers:
        raise QueryError("--set batch_scale and micro_batch say the same thing twice: give one of them")
    return settings


def parse_known(texts: list[str], option: str = "--known") -> tuple[dict[str, int], Hardware | None]:
    """Return what is known of a job whatever its traces say: dimensions and degrees, and the GPU that it ran on.

    Args:
        texts: `NAME=VALUE`, among them `hardware=NAME|FILE`.
        option: how the option is called.

    Raises:
        LumosError: one names nothing of a job, or holds no value that can be.
    """
    named = [text for text in texts if text.partition("=")[0].strip() == "hardware"]
    if len(named) > 1:
        raise QueryError(f"{option} {named[1]}: 'hardware' is said twice")
    gpu = Hardware.read(named[0].partition("=")[2].strip()) if named else None
    return parse_overrides([text for text in texts if text not in named], option, LEVELS), gpu


def _said(texts: list[str]) -> Iterator[tuple[str, str, str]]:
    """Give each text, the name in it and its value. Raise `QueryError` for a name that is unknown or said twice."""
    seen: set[str] = set()
    for text in texts:
        name, sign, value = (part.strip() for part in text.partition("="))
        if name not in NAMES:
            raise QueryError(f"--set {text}: no '{name}' to change{nearest(name, [*NAMES])}; one of {', '.join(NAMES)}")
        if not sign:
            raise QueryError(f"--set {text}: '{name}' needs a value: {name}=...")
        if name in seen:
            raise QueryError(f"--set {text}: '{name}' is said twice")
        refuse_several("--set", text, NAMES)
        seen.add(name)
        yield text, name, value


def _with_number(settings: Settings, text: str, name: str, value: str) -> Settings:
    """Return the settings with one number more. Raise `QueryError` where another name of it says otherwise."""
    number, field_name = whole_number(f"--set {text}", name, value), _SAME_AS.get(name, name)
    if settings.numbers.get(field_name, number) != number:
        raise QueryError(
            f"--set {text}: {field_name}={settings.numbers[field_name]} says otherwise, and is the same; give one"
        )
    accumulates = settings.accumulates or name == ACCUMULATION
    return replace(settings, numbers={**settings.numbers, field_name: number}, accumulates=accumulates)


def _word(text: str, name: str, value: str) -> str | int | bool:
    """Return what a word says. Raise `QueryError` where it says nothing."""
    choices = _CHOICES.get(name)
    if choices and value not in choices:
        raise QueryError(f"--set {text}: write one of {', '.join(f'{name}={choice}' for choice in choices)}")
    if choices:
        return choices[value]
    if name == "dtype":
        if value not in PRECISION_OF_WORD:
            raise QueryError(
                f"--set {text}: no dtype '{value}'{nearest(value, [*_DTYPES])}; one of {', '.join(_DTYPES)}"
            )
        return PRECISION_OF_WORD[value].dtype
    if name == "schedule":
        return str(value_of(name, value))
    return _network(text, value) if name == "network" else value


def _real(text: str, name: str, value: str, example: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 < number < 1e18:
        raise QueryError(f"--set {text}: write a number above 0, such as {name}={example}")
    return number


def _network(text: str, value: str) -> str:
    """Return the links that a text names. Raise `QueryError` where it is neither figures nor a hardware."""
    bandwidth, _, latency = value.partition("/")
    try:
        figures = float(bandwidth), float(latency or 0)
    except ValueError:
        try:
            Hardware.read(value)
        except HardwareError as error:
            form = "write bytes/s and perhaps seconds a step, such as 50e9/5e-6, or a hardware"
            raise QueryError(f"--set {text}: no bandwidth, and {error}; {form}") from None
        return value
    if not 1e3 <= figures[0] < 1e18 or not 0 <= figures[1] <= 1:
        raise QueryError(
            f"--set {text}: write at least 1e3 bytes/s, and perhaps at most 1 second a step, such as network=50e9/5e-6"
        )
    return value
