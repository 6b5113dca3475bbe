"""Small steps of known rounds, written out as a profiler would."""

from collections.abc import Iterable

from tests.trace.literal import Event, annotation, kernel, launch, x

ROUNDS = 5
ROUND_US = 1000
"""Of which 359 are these: 3 to launch, 300 of one kernel, 50 of the next one, 6 to wake up."""
PROMPT = 4
"""Kernels a round that start as soon as they are launched, so that the others are seen to be late."""


def round_at(at: float, number: int, stream: int = 7, late: float = 0, longer: float = 0) -> list[Event]:
    """Return one round: two kernels one after the other, a call that waits for both, and prompt kernels; times in us.

    Args:
        at: when it begins.
        number: its number in the trace.
        stream: that of the second kernel, which waits for the first one on whatever stream.
        late: how much later than it might the first kernel begins.
        longer: how much longer it takes, and the round with it.
    """
    issued = number * (2 + PROMPT)
    begin, rest = at + 8 + late, at + 600 + longer
    return [
        launch(at, 5, issued),
        x("cudaEventRecord", "cuda_runtime", at + 10, 5),
        x("cudaStreamWaitEvent", "cuda_runtime", at + 20, 5),
        launch(at + 30, 5, issued + 1),
        kernel("producer", begin, 300 + longer, correlation=issued),
        kernel("consumer", begin + 300 + longer, 50, stream=stream, correlation=issued + 1),
        x("cudaDeviceSynchronize", "cuda_runtime", at + 40, 324 + late + longer),
        *(launch(rest + 20 * place, 5, issued + 2 + place) for place in range(PROMPT)),
        *(kernel("prompt", rest + 8 + 20 * place, 2, correlation=issued + 2 + place) for place in range(PROMPT)),
    ]


def step(number: int, begin: float, more: float, events: Iterable[list[Event]]) -> list[Event]:
    """Return a step of five rounds that lasts `more` than they do, and its rounds."""
    mark = annotation(f"ProfilerStep#{number}", begin, ROUNDS * ROUND_US + more)
    return [mark, *(event for part in events for event in part)]
