"""Steps that waited for GPU work of before the recording that is not in it: what becomes of it, nothing tells."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.edges.full_queue import queue_waits
from lumos_df.graph.replay import Replay


def waits_unseen(replay: Replay) -> NDArray[np.bool_]:
    """Return in which steps launch calls waited for GPU work that was issued before the recording and is not in it [s].

    In a changed job these calls take as long as they did.
    """
    graph = replay.graph
    call = queue_waits(graph.rows, graph.atoms, graph.gpu).unseen
    place = replay.steps.place(graph.rows.step[call])
    return np.isin(np.arange(len(replay.low)), place)


def said(steps: Iterable[int | None], done: str) -> str:
    """Return a note that names such steps, None for one without a mark, and says what is done with them."""
    numbers = sorted(step for step in set(steps) if step is not None)
    named = f"step{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}" if numbers else "its steps"
    return f"{named} waited for GPU work that was issued before the recording and is not in it: {done}"
