"""A recommender: dense layers on every rank, and embedding tables that each rank has a part of."""

from math import prod
from typing import Final

from tests.emulator.job import DTYPE_BYTES, Job
from tests.emulator.model import Exchange, Function, Module, Operator, Shape, elementwise, linear, native

TABLE_ROWS: Final = 100_000
TABLE_WIDTH: Final = 128


def recommender(job: Job) -> Module:
    """Return the model that the job trains, loss included; `layers` are those behind the tables."""
    pooled = job.tables * TABLE_WIDTH
    joined = job.tokens, job.hidden + pooled
    return Module(
        "DLRM",
        (
            Module("Linear", (linear(job, job.hidden, job.hidden),)),
            _lookup(job),
            _exchange(job),
            _joined(joined),
            Module("Linear", (linear(job, joined[1], job.hidden),)),
            *(Module("Linear", (linear(job, job.hidden, job.hidden),)) for _ in range(job.layers)),
        ),
    )


def _lookup(job: Job) -> Function:
    """Return the sums of rows of the rank's tables, for the samples of all ranks."""
    tables, samples = job.tables // job.ranks, job.tokens * job.ranks
    indices, pooled = tables * samples * job.looked_up, (samples, tables * TABLE_WIDTH)
    begins = (tables,), (tables,), (tables + 1,), (), (), (tables + 1,), ()
    shapes: tuple[Shape, ...] = ((0,), (tables * TABLE_ROWS * TABLE_WIDTH,), (0,), (0, 0), *begins)
    moved = 2 * indices * TABLE_WIDTH
    read = native("split_embedding_codegen_forward_unweighted_kernel", moved, samples)
    update = native("split_embedding_backward_codegen_adagrad_unweighted_kernel_warp_per_row_1", 2 * moved, samples)
    return Function(
        wrappers=(),
        forward=Operator(
            "fbgemm::split_embedding_codegen_lookup_adagrad_function",
            (*shapes, (indices,), (tables * samples + 1,)),
            (read,),
            dtype="float",
        ),
        node="CppNode<SplitLookupFunction_adagrad_Op>",
        backward=(Operator("torch::autograd::CppNode<SplitLookupFunction_adagrad_Op>", (pooled,), (update,)),),
        output_bytes=prod(pooled) * DTYPE_BYTES,
        gradient_bytes=DTYPE_BYTES,
    )


def _exchange(job: Job) -> Function:
    """Return the all-to-all that gives each rank the sums of all tables for its own samples."""
    rows, width = job.tokens, job.tables * TABLE_WIDTH
    send = Operator("c10d::alltoall_base_", ((rows * width,), (rows * width,)), (Exchange(rows, width),))
    size = rows * width * DTYPE_BYTES
    return Function((), send, "All2All_Pooled_ReqBackward", (send,), size, size)


def _joined(shape: Shape) -> Function:
    copy = Operator("aten::cat", (shape, ()), (elementwise("CatArrayBatchedCopy", prod(shape), 2),))
    size = prod(shape) * DTYPE_BYTES
    return Function((), copy, "CatBackward0", (copy,), size, size)
