"""What the framework does on one rank for one micro-batch: operators, kernels and collectives, forward and backward."""

from dataclasses import dataclass
from math import ceil, prod
from typing import Final, Literal, TypeAlias

from tests.emulator.megatron.costs import attention_ns, gemm_ns, memory_ns
from tests.emulator.megatron.job import Megatron
from tests.emulator.model import Shape, Work

_THREADS: Final = 128
_WIDTH: Final = {"BFloat16": 2, "Float": 4}
_GEMM_NAME: Final = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_{}_n_tilesize{}x{}x64_warpgroupsize2x1x1_execute_segment_k_off_kernel"
    "__5x_cublas"
)


@dataclass(frozen=True, slots=True)
class Reduce:
    """A collective: `shape` is what all ranks of its group have together, or sum up."""

    group: Literal["tp", "dp", "cp", "model"]
    shape: Shape
    dtype: Literal["BFloat16", "Float"] = "BFloat16"
    at_once: bool = True
    """Whether the compute stream waits for it at once, else at the next `Wait`."""
    name: Literal["allreduce", "_reduce_scatter_base", "_allgather_base"] = "allreduce"


@dataclass(frozen=True, slots=True)
class Wait:
    """The compute stream waits for all reductions for which it has not waited yet."""


@dataclass(frozen=True, slots=True)
class Call:
    """A framework operator, and what it does in turn."""

    name: str
    shapes: tuple[Shape | tuple[Shape, ...], ...] = ()
    parts: "tuple[Call | Work | Reduce | Wait, ...]" = ()
    indices: tuple[int, ...] = ()


Part: TypeAlias = Call | Work | Reduce | Wait


@dataclass(frozen=True, slots=True)
class Function:
    """A differentiable operator."""

    forward: Call
    node: str
    """Its backward in the autograd graph."""
    backward: tuple[Call, ...]
    parameters: tuple[Shape, ...] = ()
    """Whose gradients the backward makes."""


def stage(job: Megatron, number: int) -> tuple[Function, ...]:
    """Return what a pipeline stage goes through in a forward pass."""
    layer = _layer(job)
    first = (_embedding(job),) if number == 0 else ()
    last = (_norm(job), _head(job), _cross_entropy(job)) if number == job.pp - 1 else ()
    return (*first, *(layer * (job.layers // job.pp)), *last)


def _layer(job: Megatron) -> tuple[Function, ...]:
    hidden, ffn, heads = job.hidden, job.ffn // job.tp, job.hidden // job.tp
    return (
        _norm(job),
        _column(job, hidden, 3 * heads),
        _attention(job),
        _row(job, heads, hidden),
        _add(job),
        _norm(job),
        _column(job, hidden, ffn),
        _gelu(job, ffn),
        _row(job, ffn, hidden),
        _add(job),
    )


def optimizer(parameters: tuple[Shape, ...]) -> tuple[Call, ...]:
    """Return the gradients' norm, up to where the host needs it, and what comes after it: clipping and the update."""
    lists = tuple(parameters)
    return (
        Call("aten::_foreach_norm", (lists,), _chunks(parameters, "LpNormFunctor<float, (NormType)1>", 4)),
        Call("aten::_foreach_mul_", (lists,), _chunks(parameters, "BinaryOpScalarFunctor<float, 1, 1, 0>", 8)),
        Call("aten::_fused_adamw_", (lists,) * 4, _chunks(parameters, "FusedAdamMathFunctor<float, 4>", 28)),
        Call("aten::_foreach_copy_", (lists,) * 2, _chunks(parameters, "CopyFunctor<c10::BFloat16, float>", 6)),
    )


def parameters(functions: tuple[Function, ...]) -> tuple[Shape, ...]:
    """Return the parameters of a stage."""
    return tuple(shape for function in functions for shape in function.parameters)


def _chunks(parameters: tuple[Shape, ...], functor: str, each_bytes: int) -> tuple[Work, ...]:
    """Return the kernels that go over all parameters: one takes at most 320 blocks of 65536 elements."""
    elements = sum(map(prod, parameters))
    many = ceil(elements / (320 * 65536))
    name = f"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::{functor}>"
    return (Work("kernel", name, memory_ns(each_bytes * elements / many), 320),) * many


def _activation(job: Megatron) -> Shape:
    """Return what a rank has of an activation between its products."""
    return job.rank_sequence // (job.tp if job.sp else 1), job.micro_batch, job.hidden


def _embedding(job: Megatron) -> Function:
    weight, ids = (job.vocabulary // job.tp, job.hidden), (job.micro_batch, job.rank_sequence)
    out = (*ids, job.hidden)
    moved = 2 * prod(out)
    return Function(
        Call(
            "VocabParallelEmbedding",
            (ids, weight),
            (
                Call("aten::lt", (ids, ()), (_elementwise("CompareFunctor<long>", 9 * prod(ids), prod(ids)),), (0,)),
                Call(
                    "aten::embedding",
                    (weight, ids),
                    (
                        Call(
                            "aten::index_select",
                            (weight, (), (job.tokens,)),
                            (_native("indexSelectLargeIndex", 2 * moved, job.tokens),),
                            (2,),
                        ),
                    ),
                    (1,),
                ),
                *_reduced(job, out),
            ),
            (0,),
        ),
        "EmbeddingBackward0",
        (
            *(Call("_GatherFromSequenceParallelRegion", (out,), (each,)) for each in _gathered(job, out)),
            Call(
                "aten::embedding_dense_backward",
                (out, ids),
                (_native("embedding_backward_feature_kernel", 2 * moved + 2 * prod(weight), ceil(job.hidden / 32)),),
                (1,),
            ),
        ),
        (weight,),
    )


def _reduced(job: Megatron, shape: Shape) -> tuple[Part, ...]:
    name: Final = "_reduce_scatter_base" if job.sp else "allreduce"
    return (Call("_ReduceFromModelParallelRegion", (shape,), (Reduce("tp", shape, name=name),)),) if job.tp > 1 else ()


def _gathered(job: Megatron, shape: Shape, *, at_once: bool = True) -> tuple[Part, ...]:
    if not job.sp:
        return ()
    reduce = Reduce("tp", shape, at_once=at_once, name="_allgather_base")
    return (Call("_GatherFromSequenceParallelRegion", (shape,), (reduce,)),)


def _product(x: Shape, w: Shape, layout: str) -> Call:
    ns, high, wide, blocks = gemm_ns(x[0], w[1], x[1])
    return Call("aten::mm", (x, w), (Work("kernel", _GEMM_NAME.format(layout, high, wide), ns, blocks),))


def _matmul(x: Shape, w: Shape, layout: str) -> Call:
    """Return a product of activations, whose leading dimensions are folded, and a matrix."""
    return Call("aten::matmul", (x, w), (_product((prod(x[:-1]), x[-1]), w, layout),))


def _linear(
    job: Megatron,
    inputs: int,
    outputs: int,
    after: tuple[Part, ...],
    reduced: tuple[Part, ...],
    before: tuple[tuple[Part, ...], tuple[Part, ...]],
) -> Function:
    """Return a linear layer.

    Args:
        job: the job.
        inputs, outputs: its widths on this rank.
        after: what follows its product.
        reduced: what follows the product for its input's gradient.
        before: what precedes its product, and the gradients' products.
    """
    x, y = ((job.rank_sequence, job.micro_batch, size) for size in (inputs, outputs))
    weight = (outputs, inputs)
    name = "LinearWithGradAccumulationAndAsyncCommunication"
    own = Call(
        name,
        (x, weight),
        (
            *before[0],
            _matmul(x, (inputs, outputs), "tn"),
        ),
    )
    back = (
        *before[1],
        _matmul(y, weight, "nn"),
        *((Wait(),) if reduced and before[1] else ()),
        *reduced,
        _product((outputs, job.tokens), (job.tokens, inputs), "nt"),
        *((Wait(),) if reduced else ()),
    )
    return Function(
        Call(name + "Layer", (x,), (own, *after)) if after else own,
        f"{name}Backward",
        (Call(f"{name}Backward", (y,), back),),
        (weight,),
    )


def _column(job: Megatron, inputs: int, outputs: int) -> Function:
    shape = job.rank_sequence, job.micro_batch, inputs
    name: Final = "_reduce_scatter_base" if job.sp else "allreduce"
    reduced = (Reduce("tp", shape, at_once=False, name=name),) if job.tp > 1 else ()
    return _linear(job, inputs, outputs, (), reduced, (_gathered(job, shape), _gathered(job, shape, at_once=False)))


def _row(job: Megatron, inputs: int, outputs: int) -> Function:
    shape = job.rank_sequence, job.micro_batch, outputs
    return _linear(job, inputs, outputs, _reduced(job, shape), (), ((), _gathered(job, shape)))


def _attention(job: Megatron) -> Function:
    heads = job.heads // job.tp
    shape = (job.micro_batch, job.rank_sequence, heads, job.hidden // job.heads)
    size = (job.micro_batch, heads, job.sequence, shape[-1], job.cp)
    blocks = job.micro_batch * heads * ceil(job.rank_sequence / 128)
    keys = (2 * job.sequence, job.micro_batch, heads, shape[-1])
    asks, answers = (
        (Call("AttnFuncWithCPAndKVAllGather", (keys,), (Reduce("cp", keys, name=name),)),) if job.cp > 1 else ()
        for name in ("_allgather_base", "_reduce_scatter_base")
    )
    moved = 2 * prod(shape)
    ahead = Work(
        "kernel", "void flash::flash_fwd_kernel<cutlass::bfloat16_t>", attention_ns(*size, backward=False), blocks
    )
    back = Work(
        "kernel",
        "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<cutlass::bfloat16_t>",
        attention_ns(*size, backward=True),
        blocks,
    )
    return Function(
        Call("flash_attn::_flash_attn_forward", (shape,) * 3, (*asks, ahead)),
        "FlashAttnFuncBackward",
        (
            Call(
                "flash_attn::_flash_attn_backward",
                (shape,) * 5,
                (
                    *asks,
                    Work(
                        "kernel",
                        "void flash::flash_bwd_dot_do_o_kernel<cutlass::bfloat16_t>",
                        memory_ns(2 * moved),
                        blocks,
                    ),
                    back,
                    Work(
                        "kernel",
                        "void flash::flash_bwd_convert_dq_kernel<cutlass::bfloat16_t>",
                        memory_ns(3 * moved),
                        blocks,
                    ),
                    *answers,
                ),
            ),
        ),
    )


def _norm(job: Megatron) -> Function:
    shape, width = _activation(job), (job.hidden,)
    moved = 2 * prod(shape)
    return Function(
        Call(
            "FusedLayerNormAffineFunction",
            (shape, width, width),
            (_kernel("void cuApplyLayerNorm<c10::BFloat16, float>", 2 * moved, shape[0] * shape[1]),),
        ),
        "FusedLayerNormAffineFunctionBackward",
        (
            Call(
                "FusedLayerNormAffineFunctionBackward",
                (shape,),
                (
                    _kernel("void cuComputePartGradGammaBeta<c10::BFloat16, float>", 2 * moved, ceil(job.hidden / 32)),
                    _kernel("void cuComputeGradInput<c10::BFloat16, float>", 3 * moved, shape[0] * shape[1]),
                ),
            ),
        ),
        (width, width),
    )


def _add(job: Megatron) -> Function:
    shape = _activation(job)
    moved, size = 2 * prod(shape), prod(shape)
    return Function(
        Call("aten::add", (shape, shape, ()), (_elementwise("CUDAFunctor_add<c10::BFloat16>", 3 * moved, size),)),
        "AddBackward0",
        # The gradient of the residual is added where both ways meet.
        (Call("aten::add_", (shape, shape, ()), (_elementwise("CUDAFunctor_add<c10::BFloat16>", 3 * moved, size),)),),
    )


def _gelu(job: Megatron, width: int) -> Function:
    shape = (job.rank_sequence, job.micro_batch, width)
    moved, size = 2 * prod(shape), prod(shape)
    return Function(
        Call("aten::gelu", (shape,), (_elementwise("GeluCUDAKernelImpl<c10::BFloat16>", 2 * moved, size),)),
        "GeluBackward0",
        (
            Call(
                "aten::gelu_backward",
                (shape, shape),
                (_elementwise("GeluBackwardCUDAKernelImpl<c10::BFloat16>", 3 * moved, size),),
            ),
        ),
    )


def _head(job: Megatron) -> Function:
    return _column(job, job.hidden, job.vocabulary // job.tp)


def _cross_entropy(job: Megatron) -> Function:
    logits, each = (job.rank_sequence, job.micro_batch, job.vocabulary // job.tp), (job.rank_sequence, job.micro_batch)
    moved, size = 4 * prod(logits), prod(logits)

    def reduced() -> tuple[Part, ...]:
        return (Reduce("tp", each, "Float"),) if job.tp > 1 else ()

    return Function(
        Call(
            "_VocabParallelCrossEntropy",
            (logits, each),
            (
                Call(
                    "aten::max",
                    (logits,),
                    (
                        _kernel(
                            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MaxOps>>",
                            moved,
                            job.tokens,
                        ),
                    ),
                ),
                *reduced(),
                Call("aten::sub_", (logits, (*each, 1)), (_elementwise("CUDAFunctor_add<float>", 2 * moved, size),)),
                *reduced(),
                Call("aten::exp_", (logits,), (_elementwise("exp_kernel_cuda<float>", 2 * moved, size),)),
                Call(
                    "aten::sum",
                    (logits,),
                    (
                        _kernel(
                            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, sum_functor>>",
                            moved,
                            job.tokens,
                        ),
                    ),
                ),
                *reduced(),
                Call("aten::div_", (logits, (*each, 1)), (_elementwise("DivFunctor<float>", 2 * moved, size),)),
            ),
            (1,),
        ),
        "_VocabParallelCrossEntropyBackward",
        (
            Call(
                "_VocabParallelCrossEntropyBackward",
                (each,),
                (Call("aten::mul_", (logits, (*each, 1)), (_elementwise("MulFunctor<float>", 2 * moved, size),)),),
            ),
        ),
    )


def accumulate(shape: Shape) -> Call:
    """Return what adds a gradient to that of the micro-batches before it, which is kept in float32."""
    size = prod(shape)
    return Call(
        "torch::autograd::AccumulateGrad",
        (shape,),
        (Call("aten::add_", (shape, shape, ()), (_elementwise("CUDAFunctor_add<float>", 10 * size, size),)),),
    )


def payload(reduce: Reduce) -> tuple[int, int]:
    """Return the elements of a reduction, and the bytes of each."""
    return prod(reduce.shape), _WIDTH[reduce.dtype]


def _elementwise(functor: str, moved: float, elements: int) -> Work:
    name = f"void at::native::vectorized_elementwise_kernel<4, at::native::{functor}>"
    return _kernel(name, moved, ceil(elements / (4 * _THREADS)))


def _native(name: str, moved: float, blocks: int) -> Work:
    return _kernel(f"void at::native::(anonymous namespace)::{name}", moved, blocks)


def _kernel(name: str, moved: float, blocks: int) -> Work:
    return Work("kernel", name, memory_ns(moved), blocks)
