"""How much hosts of runs of one program on one machine differ: `python -m tests.bench.host_runs`, a line a kind.

Of tests/recordings and of LUMOS_TRACES: the standard deviation of the median call's time, as a logarithm; what 8 of 10
pairs of runs differ by at most; the jitter of a run's calls; what that says of each run as the other kinds have it, and
how many pairs are no further apart.
"""

import tempfile
from itertools import combinations, permutations
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.host_speed import jitter, of_jitter, slowness
from lumos_df.graph.job import groups, load
from lumos_df.trace.ingest import ingest
from tests.real import SETS

_RECORDINGS: Final = Path(__file__).parents[1] / "recordings"
_EIGHT_OF_TEN: Final = 1.28 * 2**0.5
"""Standard deviations of a normal distribution, of one run, that two differ by."""


def kinds() -> dict[str, list[Path]]:
    """Return the files of each kind of runs."""
    folders = {f"recordings/{name}": [_RECORDINGS / name] for name in ("grid", "plain", "captured")}
    folders |= {
        f"h200/grid, {how}": sorted((_RECORDINGS / "h200" / "grid").glob(f"*_{how}")) for how in ("eager", "compiled")
    }
    folders |= {"batch sweep": [traces / "transformer_batch_sweep" for traces in SETS]}
    segment = ("eager", "compile_graph32", "graph1", "triton")
    folders |= {"segment anything": [traces / f"sam_{name}_a100" for traces in SETS for name in segment]}
    return {
        name: [file for folder in every for file in sorted(folder.rglob("*.json*"))] for name, every in folders.items()
    }


def measured(files: list[Path]) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return by how much the host of each run was slower than on average, and its jitter, as logarithms [runs].

    None where nothing tells.
    """
    if len(files) <= 1:
        return None
    with tempfile.TemporaryDirectory() as folder:
        ingest(files, Path(folder), workers=1)
        graphs = [load(Path(folder), [trace]).graphs[0] for ids in groups(Path(folder)) for trace in ids]
    slow = slowness(graphs)
    return None if slow is None else (slow, np.array([jitter(graph) or np.nan for graph in graphs]))


def main() -> None:
    """Print a line a kind, and what all say together."""
    told = {name: said for name, files in kinds().items() if (said := measured(files)) is not None}
    factor = {name: of_square(slow, apart) for name, (slow, apart) in told.items()}
    for name, (slow, apart) in told.items():
        pairs = np.array([abs(one - other) for one, other in combinations(slow, 2)])
        others = _EIGHT_OF_TEN * together([each for other, each in factor.items() if other != name])
        wide = np.minimum(others * apart**2, of_jitter(np.inf))
        held = np.mean([abs(slow[one] - slow[other]) <= wide[one] for one, other in permutations(range(len(slow)), 2)])
        line = (
            f"{name:20} {len(slow)} runs  deviation {slow.std(ddof=1):.3f}  8 of 10 pairs {np.quantile(pairs, 0.8):.3f}"
        )
        print(f"{line}  jitter {np.median(apart):.3f}  by the others {wide.mean():.3f}, which hold {100 * held:3.0f} %")
    print(f"all kinds alike: {_EIGHT_OF_TEN * together([*factor.values()]):.1f} times the square of the jitter")


def of_square(slow: NDArray[np.float64], apart: NDArray[np.float64]) -> float:
    """Return the deviation of runs from the mean of their kind, in squares of their jitter."""
    return float(np.sqrt(np.mean((slow / apart**2) ** 2) * len(slow) / (len(slow) - 1)))


def together(factors: list[float]) -> float:
    """Return the deviation of kinds of these deviations."""
    return float(np.sqrt(np.mean(np.square(factors))))


if __name__ == "__main__":
    main()
