"""What becomes of operators and lags where there are only durations: small graphs, written out."""

import numpy as np

from lumos_df.export.nodes import ExportedEdges, ExportedOperators, Nodes, nodes

HOST, CALL, GPU, PYTHON = "host", "call", "gpu", "python"
Row = tuple[str, int, int, int, int]  # (what it is, lane, parent, ts, dur)
Edge = tuple[int, int, str, str, int]  # (src, dst, kind, binds, lag)


def made(rows: list[Row], edges: list[Edge]) -> Nodes:
    what, lane, parent, ts, dur = zip(*rows, strict=True)
    src, dst, kind, binds, lag = zip(*edges, strict=True) if edges else ((),) * 5
    return nodes(
        ExportedOperators(
            parent=np.array(parent),
            ts=np.array(ts),
            dur=np.array(dur),
            lane=np.array(lane),
            host=np.array([one != GPU for one in what]),
            call=np.array([one == CALL for one in what]),
            node=np.array([one != PYTHON for one in what]),
        ),
        ExportedEdges(
            src=np.array(src, np.int64),
            dst=np.array(dst, np.int64),
            lag=np.array(lag, np.int64),
            thread=np.array([one == "thread" for one in kind], bool),
            launch=np.array([one == "launch" for one in kind], bool),
            sync=np.array([one == "sync" for one in kind], bool),
            to_end=np.array([one == "end-end" for one in binds], bool),
        ),
    )


def table(of: Nodes) -> list[tuple[int, int, int, int, list[int]]]:
    """Return (id, start, duration, caller, dependencies) of every node."""
    needs = [part.tolist() for part in np.split(of.needs, of.bounds[1:-1])]
    columns = (of.id.tolist(), of.ts.tolist(), of.dur.tolist(), of.caller.tolist(), needs)
    return list(zip(*columns, strict=True))


def test_a_launch_a_kernel_and_a_wait_for_it() -> None:
    rows = [
        (HOST, 1, -1, 0, 100),  # 0: an operator around a launch
        (CALL, 1, 0, 20, 10),  # 1: the launch
        (GPU, 2, 1, 50, 130),  # 2: the kernel
        (HOST, 1, -1, 110, 30),  # 3: an operator that launches nothing
        (HOST, 1, 3, 115, 5),  # 4: and one in it
        (CALL, 1, -1, 150, 40),  # 5: waits for the kernel
        (CALL, 1, -1, 200, 7),  # 6: another call
        (HOST, 1, -1, 210, 5),  # 7: the end of the thread
    ]
    edges = [
        (1, 5, "thread", "end-start", 120),
        (5, 6, "thread", "end-start", 10),
        (1, 2, "launch", "end-start", 15),
        (2, 5, "sync", "end-end", 3),
    ]
    work = len(rows) + 1
    assert table(made(rows, edges)) == [
        (1, 0, 20, 0, []),  # until the launch begins
        (2, 20, 10, 1, [1]),
        (3, 50, 130, 2, [2]),
        (work, 30, 80, 0, [2]),  # from the launch to the next operator
        (4, 110, 5, 0, [work]),
        (5, 115, 35, 4, [4]),
        (6, 150, 10, 0, [3, 5]),  # goes on for 10 ns after the kernel
        (work + 1, 190, 10, 0, [6]),
        (7, 200, 7, 0, [work + 1]),
        (8, 210, 5, 0, [7]),
    ]


def test_a_copying_call_does_not_last_as_long_as_its_copy() -> None:
    rows = [
        (CALL, 1, -1, 0, 100),  # 0: copies, and waits for that
        (GPU, 2, 0, 10, 80),  # 1
        (CALL, 1, -1, 100, 5),  # 2
    ]
    edges = [
        (0, 2, "thread", "end-start", 0),
        (0, 1, "launch", "start-start", 10),
        (1, 2, "sync", "end-start", 10),
    ]
    assert table(made(rows, edges)) == [(1, 0, 10, 0, []), (2, 10, 80, 1, [1]), (3, 100, 5, 0, [1, 2])]


def test_a_thread_that_slept_works_only_as_long_as_its_lag_says() -> None:
    rows = [
        (CALL, 1, -1, 0, 10),  # 0
        (HOST, 1, -1, 500, 100),  # 1: begins while the thread still waits
        (HOST, 1, 1, 560, 40),  # 2: the graph lets the thread go on here
        (CALL, 1, 2, 590, 10),  # 3
    ]
    edges = [(0, 2, "thread", "end-start", 20), (2, 3, "thread", "end-start", 30)]
    assert table(made(rows, edges)) == [
        (1, 0, 10, 0, []),
        (2, 500, 20, 0, [1]),
        (3, 560, 0, 2, [2]),
        (5, 560, 30, 3, [3]),
        (4, 590, 10, 3, [5]),
    ]


def test_rows_without_edges_follow_one_another_and_last_until_the_next_begins() -> None:
    rows = [
        (HOST, 1, -1, 0, 100),
        (PYTHON, 1, 0, 1, 98),
        (HOST, 1, 1, 10, 10),
        (HOST, 2, -1, 15, 1),
        (HOST, 1, 1, 50, 10),
        (HOST, 1, -1, 200, 5),
    ]
    assert table(made(rows, [])) == [
        (1, 0, 10, 0, []),
        (3, 10, 40, 1, [1]),
        (4, 15, 1, 0, []),
        (5, 50, 50, 1, [3]),
        (6, 200, 5, 0, [5]),
    ]


def test_whole_microseconds_add_up_on_every_lane() -> None:
    rows = [(GPU, lane, -1, 1000 * k, dur) for k, (lane, dur) in enumerate([(1, 700), (2, 999), (1, 700), (1, 700)])]
    of = made(rows, [])
    assert of.dur.tolist() == [700, 999, 700, 700]
    assert of.micros.tolist() == [0, 1, 1, 1]


def test_nothing_gives_nothing() -> None:
    of = made([(PYTHON, 1, -1, 0, 5)], [])
    assert (of.id.tolist(), of.bounds.tolist(), of.needs.tolist()) == ([], [0], [])
