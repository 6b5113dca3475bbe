"""Parameters cast to 16 bits again for each micro-batch of a step: what if they were cast once."""

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.advice.advised_job import AdvisedJob
from lumos_df.advice.host_stretches import without_stretches
from lumos_df.advice.remedy import Known, Remedy
from lumos_df.advice.torch_names import NODE
from lumos_df.base.units import format_count, format_ns
from lumos_df.graph.packed_keys import packed
from lumos_df.graph.simulate.forward import inherited
from lumos_df.schema.words import GRADIENT, OPTIMIZER_STEP

_CASTS: Final = "aten::to"
_SINGLE: Final = "float"
"""How the profiler spells float32."""


def remedies(advised: AdvisedJob) -> Iterator[Remedy]:
    """Propose that passes behind the first of a step take the parameters as that has cast them."""
    if not any(calls.half_precisions() for calls in advised.kernel_calls):
        return
    found = [_again(advised, place) for place in range(len(advised.ranks))]
    count = sum(map(len, found))
    if not count:
        return
    taken, apply = without_stretches(advised, found, [np.arange(len(call)) for call in found])
    yield Remedy(
        rule="repeated_casts",
        what=f"parameters in float32 are cast again for each micro-batch behind the first, "
        f"{format_ns(taken // len(advised.steps_ns))} of the GPU a step: keep them in 16 bits beside those that the "
        "optimizer updates, or let one torch.autocast hold all micro-batches",
        known=Known.REPLAYED,
        rests_on=format_count(count, "cast"),
        apply=apply,
    )


def _again(advised: AdvisedJob, place: int) -> NDArray[np.int64]:
    """Return the casts of parameters in a rank's steps that their first pass has, too [k].

    They stand behind the first node of the backward pass and in none, as what is recomputed does, and before the
    optimizer changes parameters. Under autocast each lies in the operator that multiplies.
    """
    rows = advised.ranks[place]
    shape, words = advised.texts(place, "input_dims")
    types, spelled = advised.input_types(place)
    sizes = [_first(json.loads(word)) for word in words]
    given = rows.named(lambda text: text == GRADIENT) & (shape >= 0)
    parameters = {sizes[code] for code in np.unique(shape[given]).tolist()}
    of_parameter = np.array([*(size in parameters for size in sizes), False])[shape]
    single = np.array([*(json.loads(word)[:1] == [_SINGLE] for word in spelled), False])[types]
    nodes = rows.named(lambda text: text.startswith(NODE))
    casts = rows.named(lambda text: text == _CASTS) & of_parameter & single & (rows.step >= 0)
    call = np.flatnonzero(casts & ~inherited(nodes, rows.parent))
    node = np.flatnonzero(nodes & (rows.step >= 0))
    updates = np.flatnonzero(rows.named(lambda text: text.startswith(OPTIMIZER_STEP)) & (rows.step >= 0))
    steps, never = int(rows.step.max(initial=-1)) + 1, np.iinfo(np.int64).max
    first, update = np.full(steps, never), np.full(steps, never)
    np.minimum.at(first, rows.step[node], rows.ts[node])
    np.minimum.at(update, rows.step[updates], rows.ts[updates])
    call = call[np.lexsort((rows.ts[call], rows.thread[call]))]
    call = call[rows.ts[call] < update[rows.step[call]]]
    later = rows.ts[call] > first[rows.step[call]]
    key = packed(rows.step[call], shape[call])
    return call[later & np.isin(key, key[~later])]


def _first(dims: Any) -> tuple[int, ...]:
    """Return the sizes of the first tensor of some inputs."""
    return tuple(size for size in dims[0] if isinstance(size, int)) if dims and isinstance(dims[0], list) else ()
