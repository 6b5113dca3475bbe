"""What becomes of a job: `--set NAME=VALUE`, checked against what the job was."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from lumos_df.base.errors import HardwareError, QueryError, nearest
from lumos_df.model.figures import refuse
from lumos_df.model.hardware import Hardware
from lumos_df.model.plan import too_many, value_of
from lumos_df.schema.dtypes import FP16, PRECISION_OF_WORD, PRECISION_TABLE, Precision, precision_of
from lumos_df.structure.describe import Description, whole_number
from lumos_df.structure.experts import Routing

_FACT_OF: Final = {
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
_NUMBERS: Final = (*_FACT_OF, "vp")
_SAME_AS: Final = {"gradient_accumulation": "batch"}
"""Other names of whole numbers."""

_DTYPES: Final = tuple(precision.dtype for precision in PRECISION_TABLE)
USUAL_PRECISION: Final = PRECISION_TABLE[FP16]
"""What is taken where the trace does not tell."""
_WORDS: Final = ("dtype", "hardware", "network", "schedule", "recompute", "overlap")
_NOT_FROM_A_TRACE: Final = {
    "zero": "dp=N gives the gradients' all-reduce, which takes as long as its reduce-scatter and all-gather together",
    "sp": "tp=N gives all-reduces that take as long as its all-gathers and reduce-scatters together",
    "cp": "seq=N with a sequence cut by cp gives each rank's share of the products, without the exchange of keys",
}
"""Settings that are refused, and which one gives most of the answer."""
_REALS: Final = {"batch_scale": "2", "capacity": "1.25"}
"""Numbers that need not be whole, and one of each for messages."""
NAMES: Final = (*_NUMBERS, *_SAME_AS, *_REALS, *_WORDS)


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

    @classmethod
    def of(cls, about: Description) -> Self:
        """Return what is known of a job."""
        number = {name: about.facts[fact].number for name, fact in _FACT_OF.items() if fact in about.facts}
        return cls(
            **number,
            head_dim=about.facts["head_dim"].number,
            element_bytes=(told_precision(about) or USUAL_PRECISION).bytes,
            vp=1,
            routing=about.routing,
        )


def told_precision(about: Description) -> Precision | None:
    """Return the precision of a job's matrix products, None where its trace does not tell."""
    return precision_of(str(about.facts["dtype"].value))


def parameters(sizes: Sizes, tables: int = 1, *, reduced: bool = False) -> float:
    """Return the parameters of a rank, near enough for ratios: products of the layers, and tables of the vocabulary.

    Args:
        sizes: the model and how it is cut.
        tables: how many tables of the vocabulary count.
        reduced: only those whose gradients other ranks have, too: experts that no other rank has do not count.
    """
    hidden = sizes.hidden or 1
    heads = (sizes.heads or 1) * (sizes.head_dim or hidden)
    keys = (sizes.kv_heads or sizes.heads or 1) * (sizes.head_dim or hidden)
    mlps = (sizes.routing.local_experts if sizes.routing else None) or 1
    if reduced and sizes.routing and (sizes.ep or 1) >= (sizes.dp or 1) * (sizes.tp or 1):
        mlps = 0
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
    """Whether the backward pass computes each layer's forward pass again (`full`) or nothing (`none`)."""
    overlap: bool | None = None
    """Whether gradients are reduced while the backward pass runs."""
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
        parts |= {name: str(getattr(self, name)) for name in _WORDS[:-1] if getattr(self, name) is not None}
        if self.overlap is not None:
            parts["overlap"] = "on" if self.overlap else "off"
        return parts


def parse(texts: list[str]) -> Settings:
    """Read `--set NAME=VALUE`. Raise `QueryError` for a name or value that cannot be, with the nearest that can."""
    settings = Settings()
    for text, name, value in _said(texts):
        if name in _NUMBERS or name in _SAME_AS:
            settings = _with_number(settings, text, name, value)
        elif name in _REALS:
            real: dict[str, Any] = {name: _real(text, name, value, _REALS[name])}
            settings = replace(settings, **real)
        elif name == "dtype":
            precision = PRECISION_OF_WORD.get(value)
            if precision is None:
                raise QueryError(
                    f"--set {text}: no dtype '{value}'{nearest(value, [*_DTYPES])}; one of {', '.join(_DTYPES)}"
                )
            settings = replace(settings, dtype=precision.dtype)
        elif name == "overlap":
            if value not in ("on", "off"):
                raise QueryError(f"--set {text}: write overlap=on or overlap=off")
            settings = replace(settings, overlap=value == "on")
        else:
            words: dict[str, Any] = {name: _word(text, name, value)}
            settings = replace(settings, **words)
    if settings.batch_scale != 1 and "micro_batch" in settings.numbers:
        raise QueryError("--set batch_scale and micro_batch say the same thing twice: give one of them")
    return settings


def _said(texts: list[str]) -> Iterator[tuple[str, str, str]]:
    """Give each text, the name in it and its value. Raise `QueryError` for a name that is unknown or said twice."""
    seen: set[str] = set()
    for text in texts:
        name, sign, value = (part.strip() for part in text.partition("="))
        if name in _NOT_FROM_A_TRACE:
            raise QueryError(
                f"--set {text}: {name} is not rebuilt from a trace; record the job with it, or estimate it without a "
                f"trace (--model, --hardware and --plan); {_NOT_FROM_A_TRACE[name]}"
            )
        if name not in NAMES:
            raise QueryError(f"--set {text}: no '{name}' to change{nearest(name, [*NAMES])}; one of {', '.join(NAMES)}")
        if not sign:
            raise QueryError(f"--set {text}: '{name}' needs a value: {name}=...")
        if name in seen:
            raise QueryError(f"--set {text}: '{name}' is said twice")
        seen.add(name)
        yield text, name, value


def _with_number(settings: Settings, text: str, name: str, value: str) -> Settings:
    """Return the settings with one number more. Raise `QueryError` where another name of it says otherwise."""
    number, field_name = whole_number(f"--set {text}", name, value), _SAME_AS.get(name, name)
    if settings.numbers.get(field_name, number) != number:
        raise QueryError(
            f"--set {text}: {field_name}={settings.numbers[field_name]} says otherwise, and is the same; give one"
        )
    return replace(settings, numbers={**settings.numbers, field_name: number})


def _word(text: str, name: str, value: str) -> str:
    """Return what a word says. Raise `QueryError` where it says nothing."""
    if name == "schedule":
        return str(value_of(name, value))
    if name == "recompute":
        return _recompute(text, value)
    return _network(text, value) if name == "network" else value


def _recompute(text: str, value: str) -> str:
    """Return what is computed again. Raise `QueryError` for what no trace tells."""
    if value == "selective":
        raise QueryError(
            f"--set {text}: which kernels a layer would run again no trace tells; record it so, or take recompute=none "
            "and recompute=full, between which it lies"
        )
    if value not in ("none", "full"):
        raise QueryError(f"--set {text}: write recompute=none or recompute=full")
    return value


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


def changed(job: str, old: Sizes, settings: Settings) -> Sizes:
    """Return the sizes of the changed job. Raise `QueryError` for what the trace cannot support or a model cannot be.

    Args:
        job: what to call the job in messages.
        old: what it was.
        settings: what changes.
    """
    _check_experts(job, old, settings)
    for name in settings.numbers:
        if getattr(old, name) is None:
            known = f"lumos-df describe --corpus DIR says why; tell it with --known {_FACT_OF[name]}=N"
            raise QueryError(f"{job}: {name} cannot change, because the trace does not tell what it was; {known}")
    numbers: dict[str, Any] = {**settings.numbers}
    new = replace(old, **numbers)
    if settings.dtype:
        new = replace(new, element_bytes=PRECISION_OF_WORD[settings.dtype].bytes)
    if settings.batch_scale != 1 and old.micro_batch:
        new = replace(new, micro_batch=max(1, round(old.micro_batch * settings.batch_scale)))
    new = _with_heads(job, old, new, given="heads" in settings.numbers)
    if "kv_heads" in settings.numbers:
        new = replace(new, kv_heads=settings.numbers["kv_heads"])
        _check_key_heads(job, settings.numbers["kv_heads"], new)
    if old.routing is not None:
        new = replace(new, routing=_routed(old, new, old.routing, settings.capacity))
        _check_routing(job, new)
    _check_cut(job, old, new)
    degrees = {name: getattr(new, name) or 1 for name in ("tp", "pp", "dp")}
    refuse(QueryError, job, too_many(degrees))
    return new


def _check_experts(job: str, old: Sizes, settings: Settings) -> None:
    """Raise `QueryError` for experts of a model that has none, as far as its trace tells."""
    asked = [name for name in ("ep", "experts", "top_k") if name in settings.numbers]
    asked += ["capacity"] * (settings.capacity is not None)
    if asked and old.routing is None:
        raise QueryError(
            f"{job}: {asked[0]} cannot change, because no router was found that chooses experts for tokens; "
            "record it with record_shapes=True"
        )
    if asked and old.routing and old.routing.rows is None:
        raise QueryError(
            f"{job}: {asked[0]} cannot change, because the experts' products record no shapes of their rows and "
            "matrices; record them as grouped products (aten::_grouped_mm)"
        )
    if settings.numbers.get("ep", 1) > 1 and (old.ep or 1) == 1:
        raise QueryError(
            f"{job}: ep={settings.numbers['ep']} adds all-to-alls, and the job ran none to learn from (ep=1); "
            "record it with ep=2"
        )
    if settings.capacity is not None and old.top_k is None:
        raise QueryError(f"{job}: capacity cannot change, because top_k is unknown; tell it with --known top_k=N")


def _routed(old: Sizes, new: Sizes, was: Routing, capacity: float | None) -> Routing:
    """Return how tokens go to experts after a change."""

    def grown(name: str) -> float:
        before, after = getattr(old, name), getattr(new, name)
        return float(after / before) if before and after else 1.0

    free = was.tokens * (old.top_k or 1) / (was.rows or 1)
    return was.changed(
        experts=grown("experts"),
        ep=grown("ep"),
        top_k=grown("top_k"),
        tokens=grown("micro_batch") * grown("seq"),
        capacity=capacity * free if capacity else 1.0,
    )


def _check_routing(job: str, new: Sizes) -> None:
    experts, ep, top_k = new.experts or 1, new.ep or 1, new.top_k or 1
    if experts % ep:
        legal = max(each for each in range(1, ep + 1) if experts % each == 0)
        raise QueryError(f"{job}: ep={ep} does not divide experts={experts}; the nearest that does is ep={legal}")
    if top_k > experts:
        raise QueryError(f"{job}: top_k={top_k} is more than experts={experts}")
    ranks = (new.dp or ep) * (new.tp or 1)
    if ranks % ep:
        raise QueryError(f"{job}: ep={ep} does not divide the {ranks} ranks of dp x tp; give dp={ep}, too")


def _with_heads(job: str, old: Sizes, new: Sizes, *, given: bool) -> Sizes:
    """Return the sizes with heads and their width that go together; `given`: the heads are what the user says."""
    if not (old.heads and old.head_dim and new.heads and new.hidden):
        return new
    if given and new.heads != old.heads:
        whole = old.heads * old.head_dim if new.hidden == old.hidden else new.hidden
        if whole % new.heads:
            raise QueryError(f"{job}: heads={new.heads} does not divide {whole}; take a divisor of it")
        return replace(new, head_dim=whole // new.heads, kv_heads=_kv(old, new.heads))
    if new.hidden == old.hidden or old.heads * old.head_dim != old.hidden:
        return new
    if given:
        return replace(new, head_dim=new.hidden // new.heads)
    if new.hidden % old.head_dim:
        raise QueryError(f"{job}: hidden={new.hidden} is no multiple of head_dim={old.head_dim}; give heads=N, too")
    return replace(new, heads=new.hidden // old.head_dim, kv_heads=_kv(old, new.hidden // old.head_dim))


def _kv(old: Sizes, heads: int) -> int | None:
    """Return the key heads of as many heads: as many queries share one as before."""
    if not old.kv_heads or not old.heads:
        return old.kv_heads
    return max(1, heads * old.kv_heads // old.heads)


def _check_key_heads(job: str, keys: int, new: Sizes) -> None:
    """Raise `QueryError` for key heads that do not serve as many queries each, or that two ranks would share."""
    heads, tp = new.heads or keys, new.tp or 1
    if heads % keys == 0 and keys % tp == 0:
        return
    legal = [each for each in range(tp, heads + 1, tp) if heads % each == 0]
    near = f"; the nearest is kv_heads={min(legal, key=lambda each: abs(each - keys))}" if legal else ""
    raise QueryError(f"{job}: kv_heads={keys} must divide heads={heads} and be a multiple of tp={tp}{near}")


def _check_cut(job: str, old: Sizes, new: Sizes) -> None:
    if new.tp and new.tp != old.tp:
        for name in ("heads", "ffn"):
            whole = getattr(new, name)
            if whole is None:
                raise QueryError(f"{job}: tp cannot change, because {name} is unknown; tell it with --known {name}=N")
            if whole % new.tp:
                legal = max(each for each in range(1, new.tp + 1) if whole % each == 0)
                raise QueryError(
                    f"{job}: tp={new.tp} does not divide {name}={whole}; the nearest that does is tp={legal}"
                )
    if new.pp and new.layers and new.pp > new.layers:
        raise QueryError(f"{job}: pp={new.pp} stages need as many layers; the model has {new.layers}")
