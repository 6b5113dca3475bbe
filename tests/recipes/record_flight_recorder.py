"""Record dumps of PyTorch's flight recorder: two CPU processes over gloo, of which one misses the last collective.

From the root of the repository, with torch 2.13 (CPU build) installed:

    python tests/recipes/record_flight_recorder.py FOLDER

writes nccl_trace_rank_0 and _1, pickles, and rank0.json and rank1.json.
"""

import os
import socket
import sys
from pathlib import Path

import torch
from torch._C import _distributed_c10d
from torch.distributed import all_gather, all_reduce, barrier, broadcast, init_process_group, new_group
from torch.multiprocessing.spawn import spawn


def record(rank: int, port: int, folder: str) -> None:
    """Run the collectives of one rank, and write what was recorded of them."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCH_FR_BUFFER_SIZE="200")
    init_process_group("gloo", rank=rank, world_size=2)
    beside = new_group([0, 1], group_desc="mine")
    values = torch.ones(1000)
    for _ in range(3):
        all_reduce(values)
    all_gather([torch.empty(10), torch.empty(10)], torch.ones(10), group=beside)
    broadcast(values, 0)
    barrier(group=beside)
    if rank == 0:
        all_reduce(values, async_op=True)
    dump = _distributed_c10d._dump_fr_trace()  # noqa: SLF001  # what PyTorch's own analysis of such dumps calls
    Path(folder, f"nccl_trace_rank_{rank}").write_bytes(dump)
    Path(folder, f"rank{rank}.json").write_bytes(_distributed_c10d._dump_fr_trace_json())  # noqa: SLF001
    barrier(group=beside)
    os._exit(0)  # the last collective never ends


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        chosen = free.getsockname()[1]
    spawn(record, (chosen, sys.argv[1]), nprocs=2)
