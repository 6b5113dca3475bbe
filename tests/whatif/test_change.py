"""What may be set, and what is refused with the reason and the remedy."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lumos_df.base.errors import QueryError
from lumos_df.structure.experts import Routing
from lumos_df.whatif.durations.draft_job import DraftJob
from lumos_df.whatif.durations.modelled_activations import with_activations
from lumos_df.whatif.durations.modelled_context import with_context
from lumos_df.whatif.job.changed_sizes import changed_sizes
from lumos_df.whatif.job.nearest_setting import telling
from lumos_df.whatif.job.settings import Sizes, parameters, parse

ROUTED = Routing(experts=64, tokens=8, choices=2, top_k=8, local_experts=32, rows=64)
"""Few tokens: two rows for each expert of the rank."""
OLD = Sizes(40, 4096, 16384, 64, 64, 64, 2048, 4, 1, 51200, 8, 1, 1)


def test_settings_are_read_and_written_alike() -> None:
    text = "dp=16,layers=64,vp=2,batch_scale=2,dtype=bfloat16,hardware=h200-sxm,network=50e9/5e-6,overlap=off"
    assert str(parse(text.split(","))) == text
    assert not parse([])
    assert parse(["dtype=bf16"]).dtype == "bfloat16"
    assert parse(["schedule=ZB1P"]).schedule == "zb-h1"


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["layer=4"], "did you mean 'layers'?"),
        (["layers=0"], "a whole number of at least 1"),
        (["layers"], "'layers' needs a value"),
        (["layers=99999999999999999999"], "below 2\\*\\*31"),
        (["dp=2", "dp=4"], "'dp' is said twice"),
        (["dp=16,layers=8"], "--set dp=16,layers=8: each goes by itself: --set dp=16 --set layers=8"),
        (["overlap=off, dp=4"], "each goes by itself: --set overlap=off --set dp=4"),
        (["dtype=bf61"], "no dtype 'bf61'"),
        (["batch_scale=-1"], "a number above 0"),
        (["overlap=yes"], "write one of overlap=on, overlap=off"),
        (["batch_scale=2", "micro_batch=8"], "twice"),
        (["zero=4"], "write one of zero=0, zero=1, zero=2, zero=3"),
        (["sp=maybe"], "write one of sp=on, sp=off"),
        (["cp=0"], "whole number of at least 1"),
        (["batch=4", "gradient_accumulation=8"], "batch=4 says otherwise"),
        (["network=fast"], "network=fast: no bandwidth, and hardware 'fast' is not known.*such as 50e9/5e-6"),
        (["network=-1"], "write at least 1e3 bytes/s"),
        (["network=nan"], "write at least 1e3 bytes/s"),
        (["network=1e-300"], "write at least 1e3 bytes/s"),
        (["network=50e9/2"], "at most 1 second a step"),
        (["network=50e9/slow"], "no bandwidth"),
    ],
)
def test_what_cannot_be_set_is_refused(texts: list[str], says: str) -> None:
    with pytest.raises(QueryError, match=says.replace("?", r"\?")):
        parse(texts)


@pytest.mark.parametrize(
    ("old", "text", "says"),
    [
        (OLD, "tp=3", "tp=3 does not divide heads=64; the nearest that does is tp=2"),
        (OLD, "tp=128", "does not divide heads=64"),
        (OLD, "kv_heads=3", "kv_heads=3 must divide heads=64 and be a multiple of tp=8; the nearest is kv_heads=8"),
        (replace(OLD, tp=4), "kv_heads=2", "a multiple of tp=4; the nearest is kv_heads=4"),
        (
            replace(OLD, tp=1, heads=None, seq=None),
            "tp=2",
            "heads are unknown; .* --known heads=N --known sequence=N; nearest is batch_scale=1/N, a",
        ),
        (replace(OLD, tp=1, ffn=None), "tp=2", "ffn is unknown; .* --known ffn=N; nearest is batch_scale=1/N, a"),
        (
            replace(OLD, tp=1, heads=None, ffn=None),
            "tp=2",
            "heads and ffn are unknown; .* tell it with --known heads=N --known ffn=N; nearest is batch_scale=1/N, a",
        ),
        (OLD, "pp=64", "need as many layers"),
        (
            replace(OLD, layers=None),
            "layers=3",
            "layers cannot change.*with_modules=True, or name them with .*layer=N; near",
        ),
        (replace(OLD, pp=None), "pp=2", "layer=N, or tell .* nearest is batch_scale=1/N, a stage's share of the work"),
        (replace(OLD, vocab=None), "vocab=3", "tell it with --known vocabulary=N; nearest is batch_scale=N"),
        (replace(OLD, seq=None), "seq=9", "--known sequence=N; nearest is batch_scale=N, which grows"),
        (replace(OLD, dp=None), "dp=3", "says what is missing, or tell it with --known dp=N$"),
        (replace(OLD, vocab=None, seq=None), "vocab=3 seq=9", "--known vocabulary=N --known sequence=N"),
        (replace(OLD, ep=2), "ep=4", "no router was found .* nearest is the step as recorded, with the all-to-alls"),
        (replace(OLD, ep=2), "experts=2", "no router was found .* no other setting is near"),
        (replace(OLD, ep=2), "top_k=2", "no router was found .* nearest is batch_scale=N"),
        (OLD, "top_k=2", "no router was found .* says what is missing; a model with experts can be estimated without"),
        (
            replace(OLD, routing=replace(ROUTED, rows=None)),
            "experts=2",
            r"record them as grouped products \(aten::_grouped_mm\); no other setting is near",
        ),
        (replace(OLD, routing=ROUTED, ep=1), "ep=2", "learn from .* record it with ep=2; nearest is the step as rec"),
        (replace(OLD, routing=ROUTED), "capacity=2", "--known top_k=N; nearest is batch_scale=N"),
        (
            replace(OLD, zero=None),
            "zero=1",
            r"names its collectives \(2.2 or newer\), or tell it with --known zero=N; nearest is --scale family=optimi",
        ),
        (replace(OLD, dp=None), "zero=1", "process groups initialized, or tell it with --known dp=N; nearest is --sc"),
        (
            replace(OLD, routing=ROUTED, experts=64, top_k=8, ep=2, dp=2),
            "top_k=2",
            "32 experts of a rank would have 16 rows together; ask for a larger micro_batch",
        ),
        (OLD, "heads=48", "take a divisor"),
        (OLD, "hidden=100", "no multiple of head_dim=64"),
        (
            replace(OLD, dp=2),
            "dp=2147483647",
            "makes 17,179,869,176 GPUs, and a job has at most 16,777,216; nearest is 2097152",
        ),
    ],
)
def test_what_the_trace_cannot_support_is_refused(old: Sizes, text: str, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        changed_sizes("job", old, parse(text.split()))


def test_a_refusal_for_want_of_shapes_says_how_to_record_them_and_what_needs_none() -> None:
    # To tell a size would not help: no kernel is known to follow it.
    for old, text in (
        (replace(OLD, hidden=None), "hidden=100"),
        (replace(OLD, heads=None), "tp=2"),
        (replace(OLD, seq=None), "cp=2"),
    ):
        with pytest.raises(
            QueryError, match="record_shapes=True; batch, hardware, network, overlap, and dp of what reduces"
        ):
            changed_sizes("job", old, parse([text]), shapes=False)
    with pytest.raises(QueryError, match="or tell it with --known pp=N"):
        changed_sizes("job", replace(OLD, pp=None), parse(["pp=2"]), shapes=False)


@pytest.mark.parametrize(
    ("add", "sizes", "says"),
    [
        (with_context, {"head_dim": None}, "cp cannot .* keys .* with --known head_dim=N; nearest is batch_scale=1/N"),
        (with_activations, {"hidden": None}, "tp cannot .* activation .* with --known hidden=N; nearest is batch"),
    ],
)
def test_communication_of_an_unknown_size_names_the_sizes_that_are_missing(
    add: Callable[[DraftJob], DraftJob], sizes: dict[str, Any], says: str
) -> None:
    anchor = SimpleNamespace(about=SimpleNamespace(job="job"), records_shapes=True)
    change = SimpleNamespace(new=replace(OLD, **sizes), runs_on=SimpleNamespace(element_bytes=2))
    draft: Any = SimpleNamespace(anchor=anchor, change=change)
    with pytest.raises(QueryError, match=says):
        add(draft)


def test_heads_follow_hidden_and_their_width_follows_heads() -> None:
    wider = changed_sizes("job", OLD, parse(["hidden=8192"]))
    assert (wider.heads, wider.head_dim, wider.ffn) == (128, 64, 16384)
    fewer = changed_sizes("job", OLD, parse(["heads=32"]))
    assert (fewer.heads, fewer.kv_heads, fewer.head_dim, fewer.hidden) == (32, 32, 128, 4096)


def test_gradient_accumulation_is_the_micro_batches_of_a_step() -> None:
    assert parse(["gradient_accumulation=4"]) == parse(["batch=4"]) == parse(["batch=4", "gradient_accumulation=4"])


def test_key_heads_are_those_asked_for_and_shrink_the_parameters() -> None:
    fewer = changed_sizes("job", OLD, parse(["kv_heads=8"]))
    assert (fewer.heads, fewer.kv_heads, fewer.head_dim) == (64, 8, 64)
    # Keys and values of each of 40 layers lose 2 x 4096 x (64 - 8) x 64, of which a rank has an eighth.
    assert parameters(OLD) - parameters(fewer) == 40 * 2 * 4096 * 56 * 64 / 8


def test_a_batch_as_large_as_it_is_is_no_change() -> None:
    with pytest.raises(QueryError, match="batch_scale=1: changes nothing"):
        parse(["batch_scale=1"])


def test_only_what_the_trace_does_not_tell_is_asked_for() -> None:
    assert telling({"sequence": None, "micro_batch": 2, "hidden": None}) == "--known sequence=N --known hidden=N"
