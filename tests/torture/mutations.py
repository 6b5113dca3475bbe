"""Traces that are wrong somewhere: bytes changed, values of the wrong kind, events lost, doubled or out of order."""

import copy
import gzip
import json
import random
from collections.abc import Callable
from typing import Any, Final

from tests.torture import dialects

VALUES: Final[tuple[Any, ...]] = (
    *(
        None,
        True,
        "",
        "x",
        "7",
        "\u0000",
        "=1",
        "a" * 70_000,
        [],
        [[]],
        [[-1]],
        [["x"]],
        [1, [2, 3]],
        {},
        {"a": {"b": []}},
    ),
    *(0, -1, 1, 2**31, -(2**31), 2**32, 2**53, 2**62, -(2**62), 2**63 - 1, -(2**63), 2**64, 10**40),
    *(0.5, -0.0, 1e-300, 1e18, 1e300, float("nan"), float("inf"), -float("inf")),
)
_BYTES: Final = b'{}[]",:\\0-.eE \x00\xff\xc3n'


def mutated(document: dict[str, Any], seed: int) -> bytes:
    """Return a file made of a trace: the same for the same seed."""
    choose = random.Random(seed)  # noqa: S311 - not for secrets
    document = json.loads(json.dumps(document))
    for _ in range(choose.choice((0, 1, 3, 20))):
        choose.choice(_CHANGES)(document, choose)
    text = bytearray(json.dumps(document).encode())
    damaged(text, choose, _BYTES)
    if choose.random() < 0.2:
        packed = bytearray(gzip.compress(bytes(text), 1))
        for _ in range(choose.choice((0, 0, 1, 3))):
            packed[choose.randrange(len(packed))] = choose.randrange(256)
        return bytes(packed)
    return bytes(text)


def damaged(data: bytearray, choose: random.Random, alphabet: bytes) -> None:
    """Change bytes to some of an alphabet, lose or double them, and some files break off."""
    for _ in range(choose.choice((0, 0, 1, 5, 50))):
        place = choose.randrange(len(data))
        change = choose.randrange(3)
        if change == 0:
            data[place] = choose.choice(alphabet)
        elif change == 1:
            del data[place : place + choose.choice((1, 10, 1000))]
        else:
            data[place:place] = data[place : place + choose.choice((1, 10, 1000))]
        if not data:
            return
    if choose.random() < 0.1:
        del data[choose.randrange(len(data)) :]


def _value(document: dict[str, Any], choose: random.Random) -> None:
    """Give one key of an event, or of its args, another value."""
    event = _event(document, choose)
    args = event.get("args")
    target = args if isinstance(args, dict) and args and choose.random() < 0.6 else event
    if target:
        target[choose.choice(list(target))] = copy.deepcopy(choose.choice(VALUES))


def _lost(document: dict[str, Any], choose: random.Random) -> None:
    event = _event(document, choose)
    if event:
        del event[choose.choice(list(event))]


def _borrowed(document: dict[str, Any], choose: random.Random) -> None:
    """Give an event the args of another."""
    _event(document, choose)["args"] = _event(document, choose).get("args")


def _event_changed(document: dict[str, Any], choose: random.Random) -> None:
    events = document["traceEvents"]
    place = choose.randrange(len(events))
    change = choose.randrange(4)
    if change == 0 and len(events) > 1:
        del events[place : place + choose.choice((1, 10, len(events) // 2))]
    elif change == 1:
        events.insert(place, choose.choice(events))
    elif change == 2:
        events[place] = copy.deepcopy(choose.choice(VALUES))
    else:
        choose.shuffle(events)


def _shifted(document: dict[str, Any], choose: random.Random) -> None:
    """Move an event in time, or make it last longer."""
    event = _event(document, choose)
    key = choose.choice(("ts", "dur"))
    if isinstance(event.get(key), int | float):
        event[key] += choose.choice((-1e9, -1, 0.001, 1, 1e3, 1e9, 7e15))


def _header(document: dict[str, Any], choose: random.Random) -> None:
    keys = [key for key in document if key != "traceEvents"]
    document[choose.choice([*keys, "distributedInfo", "deviceProperties", "baseTimeNanoseconds"])] = choose.choice(
        (*VALUES, {"rank": 2**31, "world_size": -1, "pg_config": [1, {"pg_name": [], "ranks": "[0, x]"}]})
    )


def _event(document: dict[str, Any], choose: random.Random) -> dict[str, Any]:
    events = [event for event in choose.choices(document["traceEvents"], k=4) if isinstance(event, dict)]
    return events[0] if events else {}


_CHANGES: Final[tuple[Callable[[dict[str, Any], random.Random], None], ...]] = (
    *(_value, _value, _value, _lost, _borrowed, _event_changed, _shifted, _header),
    *(dialects.newer_events, dialects.newer_events, dialects.newer_header, dialects.deep_calls),
    *(dialects.several_processes, dialects.numbers_as_texts),
    *(dialects.graph_launches, dialects.communication_args, dialects.counters_and_flows),
)
