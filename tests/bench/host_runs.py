"""How much hosts of runs of one program on one machine differ: `python -m tests.bench.host_runs`, a line a kind.

Of tests/recordings and of LUMOS_TRACES: the standard deviation of the median call's time, as a logarithm; what 8 of 10
pairs of runs differ by at most; what the other kinds say of that, and how many pairs of this one are no further apart.
"""

import tempfile
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lumos_df.graph.host_speed import slowness
from lumos_df.graph.job import groups, load
from lumos_df.trace.ingest import ingest
from tests.real import SETS

_RECORDINGS: Final = Path(__file__).parents[1] / "recordings"
_EIGHT_OF_TEN: Final = 1.28
"""Standard deviations of a normal distribution."""


def kinds() -> dict[str, list[Path]]:
    """Return the files of each kind of runs."""
    folders = {f"recordings/{name}": [_RECORDINGS / name] for name in ("grid", "plain", "captured")}
    folders |= {"batch sweep": [traces / "transformer_batch_sweep" for traces in SETS]}
    segment = ("eager", "compile_graph32", "graph1", "triton")
    folders |= {"segment anything": [traces / f"sam_{name}_a100" for traces in SETS for name in segment]}
    return {
        name: [file for folder in every for file in sorted(folder.rglob("*.json*"))] for name, every in folders.items()
    }


def measured(files: list[Path]) -> NDArray[np.float64] | None:
    """Return by how much the host of each run was slower than on average, as a logarithm; None where nothing tells."""
    if len(files) <= 1:
        return None
    with tempfile.TemporaryDirectory() as folder:
        ingest(files, Path(folder), workers=1)
        graphs = [load(Path(folder), [trace]).graphs[0] for ids in groups(Path(folder)) for trace in ids]
    return slowness(graphs)


def main() -> None:
    """Print a line a kind, and what all say together."""
    slow = {name: said for name, files in kinds().items() if (said := measured(files)) is not None}
    variance = {name: float(said.var(ddof=1)) for name, said in slow.items()}
    for name, said in slow.items():
        pairs = np.array([abs(one - other) for one, other in combinations(said, 2)])
        others = between([each for other, each in variance.items() if other != name])
        told = f"{name:20} {len(said)} runs  deviation {np.sqrt(variance[name]):.3f}"
        told += f"  8 of 10 pairs {np.quantile(pairs, 0.8):.3f}"
        print(f"{told}  by the others {others:.3f}, which hold {100 * np.mean(pairs <= others):3.0f} %")
    every = [*variance.values()]
    print(f"all kinds alike: deviation {np.sqrt(np.mean(every)):.3f}, two runs {between(every):.3f}")


def between(variances: list[float]) -> float:
    """Return by how much two runs differ at most, 8 times of 10, of kinds with these variances."""
    return float(_EIGHT_OF_TEN * np.sqrt(2 * np.mean(variances)))


if __name__ == "__main__":
    main()
