"""The sizes of a changed job, checked against what the job was and what a model can be."""

from dataclasses import replace
from typing import Any, Final

from lumos_df.base.errors import QueryError
from lumos_df.model.figures import refuse
from lumos_df.model.plan import too_many
from lumos_df.schema.codes import BACKWARD
from lumos_df.schema.dtypes import PRECISION_OF_WORD
from lumos_df.structure.describe import Description
from lumos_df.structure.experts import Routing
from lumos_df.whatif.job.nearest_setting import PLAIN, cannot, refusal, telling
from lumos_df.whatif.job.settings import ACCUMULATION, FACT_OF, Settings, Sizes

_CUT: Final = {"tp": ("hidden", "heads", "ffn"), "batch_scale": ("micro_batch",)}
"""Dimensions besides itself that a setting depends on."""
_WITHOUT_ATTENTION: Final = ("convolutional", "recommender")
"""Models that no other recording would show heads of."""
_OTHER: Final = "other"
"""A model that multiplies matrices, of which nothing more is told."""
_NAMED_COLLECTIVES: Final = "record it with a PyTorch that names its collectives (2.2 or newer)"


def check_told(about: Description, settings: Settings) -> None:
    """Raise `QueryError` where a change depends on a dimension that may be one of several sizes."""
    for setting in settings.values():
        own = (FACT_OF[setting],) if setting in FACT_OF else ()
        for name in (*own, *_CUT.get(setting, ())):
            fact = about.facts.get(name)
            if fact and fact.choices:
                which = " or ".join(f"--known {name}={value}" for value, _ in fact.readings)
                raise QueryError(f"{about.job}: {name} may be {fact.choices}; tell which with {which}")
    layers = about.facts["layers"]
    if "layers" in settings.numbers and layers.number is None and all(rank.structure.layers for rank in about.ranks):
        raise QueryError(f"{about.job}: layers cannot change ({layers.reason}); tell them with --known layers=N")
    if "layers" in settings.numbers and layers.number is None and any(about.ranks[0].structure.unlike):
        raise QueryError(f"{about.job}: layers cannot change: {layers.reason}")
    if "pp" in settings.numbers and any(rank.structure.stacks > 1 for rank in about.ranks):
        stacks = max(rank.structure.stacks for rank in about.ranks)
        raise QueryError(
            f"{about.job}: pp cannot change, because its layers come in {stacks} stacks, and how stages would share "
            "those out is unknown; dp=N, micro_batch=N and layers=N need not know"
        )


def check_kind(about: Description, settings: Settings, *, shapes: bool) -> None:
    """Raise `QueryError` for a cut of what only a transformer has; `shapes`: whether any were recorded."""
    kind = about.facts["model"].value
    for name, what in (("tp", "heads and FFN"), ("cp", "attention")):
        if settings.numbers.get(name, 1) > 1 and kind in _WITHOUT_ATTENTION:
            why = f"it shares out a layer's {what}, and the model is no transformer ({kind})"
            raise cannot(about.job, name, why, shapes=shapes)
        # What ran in shares already shows what was cut.
        if settings.numbers.get(name, 1) > 1 and kind == _OTHER and (about.facts["tp"].number or 1) == 1:
            why = f"it shares out a layer's {what}, and none of its products is told to be attention"
            raise cannot(about.job, name, why, shapes=shapes)


def changed_sizes(job: str, old: Sizes, settings: Settings, *, shapes: bool = True) -> Sizes:
    """Return the sizes of the changed job. Raise `QueryError` for what the trace cannot support or a model cannot be.

    Args:
        job: what to call the job in messages.
        old: what it was.
        settings: what changes.
        shapes: whether shapes of any operator were recorded.
    """
    _check_experts(job, old, settings, shapes=shapes)
    if unknown := [name for name in settings.numbers if getattr(old, name) is None]:
        # Layers are places in the trace, which no number tells.
        known = " ".join(f"--known {FACT_OF[name]}=N" for name in unknown if name != "layers")
        raise refusal(job, unknown, "the trace does not tell what it was", shapes=shapes, known=known)
    numbers: dict[str, Any] = {**settings.numbers}
    new = replace(old, **numbers)
    new = _shared_out(job, old, new, settings, shapes=shapes)
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
    _check_cut(job, old, new, shapes=shapes)
    degrees = {name: getattr(new, name) or 1 for name in ("tp", "pp", "dp")}
    refuse(QueryError, job, too_many(degrees))
    return new


def check_passes(about: Description, settings: Settings) -> None:
    """Raise `QueryError` for micro-batches of a job that has no passes, or none whose gradients could be added up."""
    if "batch" not in settings.numbers:
        return
    ranks = [rank.structure for rank in about.ranks]
    if all(structure.kind == "none" for structure in ranks):
        raise QueryError(
            f"{about.job}: batch cannot change, because nothing in the trace is told to be a pass of a model; record "
            "one that multiplies matrices"
        )
    if settings.accumulates and not any((structure.phase == BACKWARD).any() for structure in ranks):
        raise QueryError(
            f"{about.job}: {ACCUMULATION} cannot change, because the job has no backward pass, and so no gradients; "
            "batch=N gives as many forward passes a step"
        )


def _shared_out(job: str, old: Sizes, new: Sizes, settings: Settings, *, shapes: bool) -> Sizes:
    """Return the sizes with what ranks share out, and check that they can."""
    if settings.zero is not None:
        if old.zero is None:
            why = "no collective of the trace is told to reduce or gather gradients or parameters"
            raise refusal(job, ["zero"], why, shapes=shapes, known="--known zero=N", record=_NAMED_COLLECTIVES)
        if new.dp is None:
            record = "record it with its process groups initialized"
            raise refusal(job, ["zero"], "dp is unknown", shapes=shapes, known="--known dp=N", record=record)
        new = replace(new, zero=settings.zero)
        if new.replicas == 1:
            raise QueryError(f"{job}: zero={settings.zero} shares out nothing, because dp is 1; give dp=N, too")
    if settings.sp is not None:
        new = replace(new, sp=settings.sp)
        if (new.tp or 1) == 1 and settings.sp:
            raise QueryError(f"{job}: sp=on shares out nothing, because tp is 1; give tp=N, too")
    if new.cp != old.cp > 1:
        raise QueryError(
            f"{job}: cp cannot change from {old.cp}, because nothing tells how it exchanged keys and values; record it "
            "with cp=1"
        )
    if new.cp > 1:
        _check_context(job, new, shapes=shapes)
    return replace(new, sp=new.sp and (new.tp or 1) > 1)


def _check_context(job: str, new: Sizes, *, shapes: bool) -> None:
    """Raise `QueryError` for a sequence that is unknown, or that ranks cannot share."""
    if new.seq is None:
        raise refusal(job, ["cp"], "sequence is unknown", shapes=shapes, known="--known sequence=N")
    # Each rank has a part from both ends, so that a causal mask leaves all as much.
    if new.seq % (2 * new.cp):
        legal = max(each for each in range(1, new.cp + 1) if each == 1 or new.seq % (2 * each) == 0)
        raise QueryError(f"{job}: twice cp={new.cp} does not divide seq={new.seq}; the nearest that does is cp={legal}")


def _check_experts(job: str, old: Sizes, settings: Settings, *, shapes: bool) -> None:
    """Raise `QueryError` for experts of a model that has none, as far as its trace tells."""
    asked = [name for name in ("ep", "experts", "top_k") if name in settings.numbers]
    asked += ["capacity"] * (settings.capacity is not None)
    if asked and old.routing is None:
        why, near = "no router was found that chooses experts for tokens", PLAIN if (old.ep or 1) == 1 else ""
        raise refusal(job, asked[:1], why, shapes=shapes, near=near)
    if asked and old.routing and old.routing.rows is None:
        why = "the experts' products record no shapes of their rows and matrices"
        raise refusal(job, asked[:1], why, shapes=shapes, record="record them as grouped products (aten::_grouped_mm)")
    if settings.numbers.get("ep", 1) > 1 and (old.ep or 1) == 1:
        why = "the job ran no all-to-alls to learn from (ep=1)"
        raise refusal(job, ["ep"], why, shapes=shapes, record="record it with ep=2")
    if settings.capacity is not None and old.top_k is None:
        known = "--known top_k=N"
        raise refusal(job, ["capacity"], "top_k is unknown", shapes=shapes, known=known)


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
    routing = new.routing
    if routing and routing.rows is not None and routing.rows < (routing.local_experts or 1):
        raise QueryError(
            f"{job}: {routing.local_experts} experts of a rank would have {routing.rows} rows together; ask for a "
            "larger micro_batch, or a trace of one so small"
        )
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


def _check_cut(job: str, old: Sizes, new: Sizes, *, shapes: bool) -> None:
    if new.tp and new.tp != old.tp:
        unknown = [name for name in ("heads", "ffn") if getattr(new, name) is None]
        if unknown:
            why = f"{' and '.join(unknown)} {'are' if 'heads' in unknown else 'is'} unknown"
            # From whole layers activations have to be modelled, too.
            also = {"sequence": new.seq, "micro_batch": new.micro_batch, "hidden": new.hidden} if old.tp == 1 else {}
            raise refusal(job, ["tp"], why, shapes=shapes, known=telling({**dict.fromkeys(unknown), **also}))
        for name in ("heads", "ffn"):
            whole = getattr(new, name)
            if whole % new.tp:
                legal = max(each for each in range(1, new.tp + 1) if whole % each == 0)
                raise QueryError(
                    f"{job}: tp={new.tp} does not divide {name}={whole}; the nearest that does is tp={legal}"
                )
    if new.pp and new.layers and new.pp > new.layers:
        raise QueryError(f"{job}: pp={new.pp} stages need as many layers; the model has {new.layers}")
