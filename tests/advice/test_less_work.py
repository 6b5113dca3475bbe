"""What goes away with GPU rows: their calls, and the operators that launched nothing else."""

from pathlib import Path

import numpy as np

from lumos_df.advice.less_work import LessWork, less_work
from tests.advice.emulated import advised
from tests.emulator import Job


def test_an_operator_goes_with_the_last_of_its_kernels(tmp_path: Path) -> None:
    job = advised(tmp_path, Job(ranks=1, steps=1, layers=1)).job
    rows = job.ranks[0]
    operator = int(np.flatnonzero(rows.name == rows.names.index("aten::native_layer_norm_backward"))[0])
    calls = np.flatnonzero(rows.parent == operator)
    kernels = np.flatnonzero(rows.on_gpu & np.isin(rows.parent, calls))
    assert len(kernels) == 2

    def without(gone: np.ndarray) -> LessWork:
        part = np.ones(len(rows))
        part[gone] = 0
        return less_work(job, [part])

    one, both = without(kernels[:1]), without(kernels)
    assert not one.node_part.any()
    assert set(one.node.tolist()) == {int(kernels[0]), int(rows.parent[kernels[0]])}
    assert {operator, *calls.tolist(), *kernels.tolist()} <= set(both.node.tolist())


def test_what_only_takes_less_is_still_launched(tmp_path: Path) -> None:
    job = advised(tmp_path, Job(ranks=1, steps=1, layers=1)).job
    less = less_work(job, [np.where(job.ranks[0].on_gpu, 0.5, 1.0)])
    assert set(less.node.tolist()) == set(np.flatnonzero(job.ranks[0].on_gpu).tolist())
    assert not len(less.edge)


def test_a_host_row_goes_with_all_that_it_called(tmp_path: Path) -> None:
    job = advised(tmp_path, Job(ranks=2, steps=1, layers=1)).job
    ranks = [rows.name == rows.names.index("c10d::allreduce_") for rows in job.ranks]
    less = less_work(job, [np.where(reduces, 0.0, 1.0) for reduces in ranks])
    assert set(less.collective.tolist()) == set(range(len(job.event_graph.transfer)))
    # A collective is there as long as one rank takes part.
    assert not len(less_work(job, [np.where(ranks[0], 0.0, 1.0), np.ones(len(ranks[1]))]).collective)
