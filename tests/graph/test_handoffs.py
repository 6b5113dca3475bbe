"""Where the baton goes from thread to thread: as every pair of threads tells, and of thousands soon."""

import random
import time
from pathlib import Path

import numpy as np

from lumos_df.graph import host
from lumos_df.graph import rows as graph_rows
from lumos_df.graph.job import groups, load
from lumos_df.graph.rows import Rows
from lumos_df.schema.codes import CPU_OP
from tests.trace.literal import Event, annotation, corpus_of, op, x

_IDLE_NS = 20_000
_FOR_GOOD = 1 << 60


def read(folder: Path, events: list[Event]) -> Rows:
    ((trace_id,),) = corpus_of(folder, events).execute("SELECT trace_id FROM traces").fetchall()
    return graph_rows.read(folder / "corpus", trace_id)


def boundaries(rows: Rows, thread: int) -> list[tuple[int, int, int | None]]:
    """Return (ns, ns since the one before, next row to begin) of each beginning and end on a thread.

    For rows of which none lies in another, nor begins as another ends.
    """
    own = [row for row in range(len(rows)) if rows.thread[row] == thread]
    found, last = [], -_FOR_GOOD
    for place, row in enumerate(own):
        begin, end = int(rows.ts[row]), int(rows.end[row])
        following = own[place + 1] if place + 1 < len(own) else None
        inside = end - begin if rows.kind[row] == CPU_OP else 0
        found += [(begin, begin - last, row), (end, inside, following)]
        last = end
    return found


def pairwise_handoffs(rows: Rows) -> dict[int, tuple[int, int, int]]:
    """Return (woken, source thread, signal) by target: every pair of threads compared."""
    threads = sorted({int(thread) for thread, kind in zip(rows.thread, rows.kind, strict=True) if kind == CPU_OP})
    on = {thread: boundaries(rows, thread) for thread in threads}
    found: dict[int, tuple[int, int, int]] = {}
    for b in threads:
        for woken, gap, target in on[b]:
            for a in threads:
                before = [place for place, (at, *_) in enumerate(on[a]) if at <= woken]
                if a == b or gap < _IDLE_NS or target is None or not before:
                    continue
                signal, after = on[a][before[-1]][0], on[a][before[-1] + 1 :]
                rest = after[0][1] if after else _FOR_GOOD
                stays = not after or after[0][0] - woken >= _IDLE_NS
                prompt = 2 * (woken - signal) <= min(gap, rest)
                if rest >= _IDLE_NS and stays and prompt and (target not in found or signal > found[target][2]):
                    found[target] = woken, a, signal
    return found


def test_the_baton_is_passed_as_every_pair_of_threads_tells(tmp_path: Path) -> None:
    choose = random.Random(16)  # noqa: S311 - not for secrets
    now, events = dict.fromkeys(range(1, 8), 0), []
    for place in range(400):
        thread = choose.choice([1, 2, 2, 3, 3, 3, 4, 5, 6, 7])
        begin = now[thread] + choose.choice((5, 10, 30, 100, 300, 900))
        lasts = choose.choice((5, 15, 40, 200))
        now[thread] = begin + lasts
        if thread == 7 or choose.random() < 0.2:
            events.append(x(f"call {place}", "cuda_runtime", begin, lasts, thread))
        else:
            events.append(op(f"op {place}", begin, lasts, thread))
    rows = read(tmp_path, events)
    found = host.handoffs(rows)
    columns = (found.target, found.woken, found.source_thread, found.signal)
    passed = {
        int(target): (int(woken), int(source), int(signal))
        for target, woken, source, signal in zip(*columns, strict=True)
    }
    assert passed == pairwise_handoffs(rows)
    assert len(passed) > 20
    assert len(set(found.source_thread.tolist())) > 4


def test_what_few_wakes_of_a_direction_take_is_theirs(tmp_path: Path) -> None:
    """Before autograd's thread goes on, another looks through its graph; on the way back there is nothing to do."""
    events: list[Event] = []
    for step, looks in enumerate((300, 400, 350)):
        at = 2000 * step
        backward = [op("forward", at, 500), op("backward", at + 500 + looks, 400, 2)]
        events += [*backward, op("optimizer", at + 905 + looks, 100), annotation(f"ProfilerStep#{step}", at, 1500)]
    corpus_of(tmp_path, events)
    job = load(tmp_path / "corpus", groups(tmp_path / "corpus")[0])
    (replay,) = job.replay().replays
    assert (replay.start == replay.graph.rows.ts).all()


def test_thousands_of_threads_take_no_time(tmp_path: Path) -> None:
    """Compared in pairs, these took 20 s."""
    rows = read(tmp_path, [op("add", 100 * k + 50 * again, 20, 1 + k) for k in range(2000) for again in (0, 1)])
    few = rows.only(np.arange(4, dtype=np.int32))
    host.handoffs(few)  # compiles
    begin = time.process_time()
    found = host.handoffs(rows)
    assert time.process_time() - begin < 2
    assert len(found.target) == 1999
