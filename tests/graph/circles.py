"""Circles in a graph, found the slow and obvious way."""

from collections import deque


def goes_round(edges: list[tuple[int, int]]) -> bool:
    """Tell whether some nodes cannot be put in an order in which the edges, (source, target), go forward."""
    follows: dict[int, list[int]] = {}
    waits: dict[int, int] = {}
    for src, dst in edges:
        follows.setdefault(src, []).append(dst)
        waits[dst] = waits.get(dst, 0) + 1
    nodes = {node for edge in edges for node in edge}
    ready = deque(node for node in nodes if node not in waits)
    seen = 0
    while ready:
        seen += 1
        for dst in follows.get(ready.popleft(), []):
            waits[dst] -= 1
            if not waits[dst]:
                ready.append(dst)
    return seen < len(nodes)
