"""The transformer as what the framework does with it: modules, operators, GPU work, and the backward of each."""

from dataclasses import dataclass, replace
from math import ceil, prod, sin
from typing import Final, Literal, TypeAlias

from tests.emulator.hardware import (
    FLOAT32_FLOPS_PER_NS,
    FLOPS_PER_NS,
    MULTIPROCESSORS,
    TF32_FLOPS_PER_NS,
    copy_ns,
    kernel_ns,
)
from tests.emulator.job import DTYPE_BYTES, Job, Products

Shape: TypeAlias = tuple[int, ...]

THREADS: Final = 128
"""Threads a block, in every kernel."""

_TYPES: Final[dict[Products, str]] = {"bf16": "c10::BFloat16", "tf32": "float", "fp32": "float"}
_PRODUCTS: Final[dict[Products, tuple[str, float, int]]] = {
    "bf16": ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", FLOPS_PER_NS, 2),
    "tf32": ("ampere_tf32_s1688gemm_tf32_128x128_ldg8_f2f_stages_32x5_tn", TF32_FLOPS_PER_NS, 4),
    "fp32": ("ampere_sgemm_128x128_tn", FLOAT32_FLOPS_PER_NS, 4),
}
"""Kernel, rate, and bytes of an element."""
_UNALIGNED: Final = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>"
"""The kernel of bfloat16 whose rows do not begin at multiples of 16 bytes."""


@dataclass(frozen=True, slots=True)
class Work:
    """One row of a GPU stream."""

    kind: Literal["kernel", "gpu_memcpy", "gpu_memset"]
    name: str
    ns: float
    blocks: int = 0
    moved_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Graph:
    """A CUDA graph: one call launches all of its work, which runs one after another."""

    nodes: tuple[Work, ...]


@dataclass(frozen=True, slots=True)
class Exchange:
    """An all-to-all of all ranks, on a stream of its own, for which what comes next waits."""

    rows: int
    width: int


@dataclass(frozen=True, slots=True)
class Operator:
    """A framework operator, and what it calls in turn."""

    name: str
    shapes: tuple[Shape, ...]
    calls: "tuple[Operator | Work | Graph | Exchange, ...]" = ()
    indices: tuple[int, ...] = ()
    """Which inputs are int64 tensors."""
    dtype: str = "c10::BFloat16"
    """Type of the others, as the profiler spells it."""


@dataclass(frozen=True, slots=True)
class Function:
    """A differentiable operator, and the node that its backward is in the autograd graph."""

    wrappers: tuple[str, ...]
    """Operators around the one that autograd sees, outermost first."""
    forward: Operator
    node: str
    backward: tuple[Operator, ...]
    output_bytes: int
    gradient_bytes: int
    """What the backward makes, gradients of parameters that have a bucket aside."""
    parameters: tuple[Shape, ...] = ()
    """Those whose gradients the backward makes."""
    own_parameters: tuple[Shape, ...] = ()
    """The same, of parameters that no other rank has."""


@dataclass(frozen=True, slots=True)
class Module:
    """An nn.Module: its class, and what its forward goes through."""

    kind: str
    parts: "tuple[Module | Function, ...]"


def functions(module: Module) -> tuple[Function, ...]:
    """Return every differentiable operator of the module, in the order of the forward pass."""
    return tuple(
        function for part in module.parts for function in (functions(part) if isinstance(part, Module) else (part,))
    )


def parameter_count(module: Module, *, own: bool = False) -> int:
    """Return the number of parameters of the module; `own`: of those that no other rank has."""
    return sum(
        prod(shape)
        for function in functions(module)
        for shape in (function.own_parameters if own else function.parameters)
    )


def transformer(job: Job) -> Module:
    """Return the model that the job trains, loss included."""
    return Module(
        "GPT",
        (
            Module("Embedding", (_embedding(job),)),
            *(_block(job) for _ in range(job.layers)),
            Module("LayerNorm", (_layer_norm(job),)),
            Module("Linear", (linear(job, job.hidden, job.vocabulary),)),
            Module("CrossEntropyLoss", (_log_softmax(job), _nll_loss(job))),
        ),
    )


def _block(job: Job) -> Module:
    hidden, wide = job.hidden, 4 * job.hidden
    qkv, projection = (Module("Linear", (linear(job, hidden, outputs),)) for outputs in (3 * hidden, hidden))
    rise, fall = (Module("Linear", (linear(job, *widths),)) for widths in ((hidden, wide), (wide, hidden)))
    fused = _single_attention if job.single_attention else _attention
    scores = _unfused_attention(job) if job.unfused_attention else (fused(job),)
    attention = Module("Attention", (qkv, *scores, projection))
    gelu = _unfused_gelu(job, wide) if job.unfused_gelu else (_gelu(job, wide),)
    experts = _looped_experts if job.looped else _experts
    mlp = Module("MLP", experts(job, wide) if job.experts else (rise, Module("GELU", gelu), fall))
    norm = Module("LayerNorm", (_layer_norm(job),))
    return Module("Block", (norm, attention, _add(job), norm, mlp, _add(job)))


def _experts(job: Job, wide: int) -> tuple[Module | Function, ...]:
    """Return the router, the way to the experts of all ranks, their products, and the way back."""
    rows, token_bytes = job.tokens * job.top_k, job.hidden * DTYPE_BYTES
    scores, chosen = (job.tokens, job.experts), (job.tokens, job.top_k)
    tokens, routed, inner = (job.tokens, job.hidden), (rows, job.hidden), (rows, wide)
    order = native("indexSelectLargeIndex", 2 * rows * job.hidden, rows)
    add = native("indexFuncLargeIndex", 3 * rows * job.hidden, rows)
    pick = Operator("aten::topk", (scores, (), (), (), ()), (native("sbtopk::gatherTopK", prod(scores), job.tokens),))
    weigh = Operator(
        "aten::gather", (scores, (), chosen, ()), (native("gather_kernel", prod(chosen), 1),), indices=(2,)
    )
    spread = Operator("aten::scatter", (scores, (), chosen, chosen), (native("scatter_kernel", prod(scores), 1),))
    send = Operator("_c10d_functional::all_to_all_single", (routed, (), (), ()), (Exchange(rows, job.hidden),))
    gelu, slope = (elementwise(name, rows * wide, n) for name, n in (("Gelu", 2), ("GeluBackward", 3)))
    gather = Operator("aten::index_select", (tokens, (), (rows,)), (order,), indices=(2,))
    combine = Operator("aten::index_add_", (tokens, (), (rows,), routed, ()), (add,), indices=(2,))
    size = rows * token_bytes
    into, out = (_grouped_linear(job, *widths) for widths in ((job.hidden, wide), (wide, job.hidden)))
    return (
        Module("Router", (linear(job, job.hidden, job.experts),)),
        Function((), pick, "TopkBackward0", (spread,), prod(chosen) * 8, prod(scores) * DTYPE_BYTES),
        Function((), weigh, "GatherBackward0", (spread,), prod(chosen) * DTYPE_BYTES, prod(scores) * DTYPE_BYTES),
        Function((), gather, "IndexSelectBackward0", (combine,), size, job.tokens * token_bytes),
        Function((), send, "AllToAllBackward", (send,), size, size),
        into,
        Function(
            (),
            Operator("aten::gelu", (inner,), (gelu,)),
            "GeluBackward0",
            (Operator("aten::gelu_backward", (inner, inner), (slope,)),),
            prod(inner) * DTYPE_BYTES,
            prod(inner) * DTYPE_BYTES,
        ),
        out,
        Function((), send, "AllToAllBackward", (send,), size, size),
        Function((), combine, "IndexAddBackward0", (gather,), job.tokens * token_bytes, size),
    )


def _looped_experts(job: Job, wide: int) -> tuple[Module | Function, ...]:
    """Return the router, and of each expert the rows that are taken, its two products, and where they are added."""
    shares = [1.0 if job.even else 1.5 + sin(expert) for expert in range(job.experts)]
    parts: list[Module | Function] = [Module("Router", (linear(job, job.hidden, job.experts),))]
    for share in shares:
        count = round(job.tokens * job.top_k * share / sum(shares))
        tokens, rows = (job.tokens, job.hidden), (count, job.hidden)
        size, all_rows = prod(rows) * DTYPE_BYTES, prod(tokens) * DTYPE_BYTES
        mine = replace(job, batch=1, sequence=count)
        take = Operator("aten::index", (tokens, ()), (native("index_elementwise_kernel", 2 * prod(rows), count),))
        add = Operator(
            "aten::index_add_",
            (tokens, (), (count,), rows, ()),
            (native("indexFuncLargeIndex", 3 * prod(rows), count),),
            indices=(2,),
        )
        parts += [
            Function((), take, "IndexBackward0", (add,), size, all_rows),
            linear(mine, job.hidden, wide),
            _gelu(mine, wide),
            linear(mine, wide, job.hidden),
            Function((), add, "IndexAddBackward0", (take,), all_rows, size),
        ]
    return tuple(parts)


def _grouped_linear(job: Job, inputs: int, outputs: int) -> Function:
    """Return the product of each expert's rows and its matrix."""
    rows, groups = job.tokens * job.top_k, job.local_experts
    x, w, y = (rows, inputs), (groups, inputs, outputs), (rows, outputs)
    transposed = groups, outputs, inputs

    def product(*shapes: Shape) -> Operator:
        work = _gemm(rows // groups, outputs, inputs, batch=groups)
        return Operator("aten::_grouped_mm", (*shapes, (groups,), (), ()), (work,), indices=(2,))

    return Function(
        wrappers=(),
        forward=product(x, w),
        node="GroupedMmBackward0",
        backward=(product(y, transposed), product((inputs, rows), y)),
        output_bytes=prod(y) * DTYPE_BYTES,
        gradient_bytes=(prod(x) + prod(w)) * DTYPE_BYTES,
        own_parameters=(w,),
    )


def _embedding(job: Job) -> Function:
    weight, ids = (job.vocabulary, job.hidden), (job.batch, job.sequence)
    elements = job.tokens * job.hidden
    clear = memset(prod(weight) * DTYPE_BYTES)
    scatter = native("embedding_backward_feature_kernel", 2 * elements, ceil(job.hidden / 32))
    gather = native("indexSelectLargeIndex", 2 * elements, job.tokens)
    return Function(
        wrappers=("aten::embedding",),
        forward=Operator("aten::index_select", (weight, (), (job.tokens,)), (gather,), indices=(2,)),
        node="EmbeddingBackward0",
        backward=(
            Operator("aten::embedding_dense_backward", ((*ids, job.hidden), ids), (clear, scatter), indices=(1,)),
        ),
        output_bytes=elements * DTYPE_BYTES,
        gradient_bytes=prod(weight) * DTYPE_BYTES,
        parameters=(weight,),
    )


def linear(job: Job, inputs: int, outputs: int) -> Function:
    tokens, dtype = job.tokens, _TYPES[job.products]
    x, w, y = (tokens, inputs), (outputs, inputs), (tokens, outputs)
    sum_rows = _kernel(
        "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16>>", prod(y), ceil(outputs / 32)
    )
    return Function(
        wrappers=("aten::linear",),
        forward=Operator(
            "aten::addmm",
            ((outputs,), x, (inputs, outputs), (), ()),
            (_gemm(tokens, outputs, inputs, job.products),),
            dtype=dtype,
        ),
        node="AddmmBackward0",
        backward=(
            Operator("aten::mm", (y, w), (_gemm(tokens, inputs, outputs, job.products),), dtype=dtype),
            Operator("aten::mm", ((outputs, tokens), x), (_gemm(outputs, inputs, tokens, job.products),), dtype=dtype),
            Operator("aten::sum", (y, (), (), ()), (sum_rows,)),
        ),
        output_bytes=prod(y) * DTYPE_BYTES,
        gradient_bytes=prod(x) * DTYPE_BYTES,
        parameters=(w, (outputs,)),
    )


def _single_attention(job: Job) -> Function:
    """Return attention of float32 without a mask, whose tensors are [batch, sequence, heads, width]."""
    heads = (job.batch, job.sequence, job.heads, job.hidden // job.heads)
    elements = prod(heads)
    flops = 4 * job.sequence * elements

    def kernel(way: str, tensors: int, operations: int) -> Work:
        ns = kernel_ns(operations, 2 * DTYPE_BYTES * tensors * elements, FLOAT32_FLOPS_PER_NS)
        return Work("kernel", f"fmha_cutlass{way}_f32_aligned_64x64_rf_sm80", ns, blocks=job.batch * job.heads)

    return Function(
        wrappers=("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_efficient_attention"),
        forward=Operator("aten::_efficient_attention_forward", (heads,) * 3, (kernel("F", 4, flops),), dtype="float"),
        node="ScaledDotProductEfficientAttentionBackward0",
        backward=(
            Operator(
                "aten::_efficient_attention_backward", (heads,) * 5, (kernel("B", 8, 5 * flops // 2),), dtype="float"
            ),
        ),
        output_bytes=elements * DTYPE_BYTES,
        gradient_bytes=3 * elements * DTYPE_BYTES,
    )


def _attention(job: Job) -> Function:
    heads = (job.batch, job.heads, job.sequence, job.hidden // job.heads)
    elements = prod(heads)
    blocks = job.batch * job.heads * ceil(job.sequence / THREADS)
    # Two products of sequence x sequence a head, of which a causal mask leaves half.
    flops = 2 * job.sequence * elements
    return Function(
        wrappers=("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention"),
        forward=Operator(
            "aten::_flash_attention_forward", (heads,) * 3, (_flash("flash_fwd_kernel", 4 * elements, blocks, flops),)
        ),
        node="ScaledDotProductFlashAttentionBackward0",
        backward=(
            Operator(
                "aten::_flash_attention_backward",
                (heads,) * 5,
                (
                    _flash("flash_bwd_dot_do_o_kernel", 2 * elements, blocks),
                    _flash("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", 8 * elements, blocks, 5 * flops // 2),
                    _flash("flash_bwd_convert_dq_kernel", 2 * elements, blocks),
                ),
            ),
        ),
        output_bytes=elements * DTYPE_BYTES,
        gradient_bytes=3 * elements * DTYPE_BYTES,
    )


def _unfused_attention(job: Job) -> tuple[Function, ...]:
    """Return queries times keys, their scale, the mask, the softmax, and its result times values."""
    batch, sequence, width = job.batch * job.heads, job.sequence, job.hidden // job.heads
    scores, heads, across = (batch, sequence, sequence), (batch, sequence, width), (batch, width, sequence)
    written = prod(scores) * DTYPE_BYTES
    onto_keys = _bmm(heads, across)
    scale = Operator("aten::div", (scores, ()), (elementwise("DivFunctor", prod(scores), 2),))
    mask = Operator("aten::masked_fill", (scores, scores[1:], ()), (elementwise("masked_fill", prod(scores), 2),))
    softmax, slope = (native(name, n * prod(scores), batch) for name, n in (("softmax", 2), ("softmax_backward", 3)))
    return (
        Function(
            ("aten::matmul",), onto_keys, "BmmBackward0", (_bmm(scores, heads), _bmm(across, scores)), written, written
        ),
        Function((), scale, "DivBackward0", (scale,), written, written),
        Function((), mask, "MaskedFillBackward0", (mask,), written, written),
        Function(
            ("aten::softmax",),
            Operator("aten::_softmax", (scores, (), ()), (softmax,)),
            "SoftmaxBackward0",
            (Operator("aten::_softmax_backward_data", (scores, scores, (), ()), (slope,)),),
            written,
            written,
        ),
        Function(
            ("aten::matmul",),
            _bmm(scores, heads),
            "BmmBackward0",
            (_bmm(heads, across), _bmm(scores, heads)),
            prod(heads) * DTYPE_BYTES,
            written,
        ),
    )


def _bmm(left: Shape, right: Shape) -> Operator:
    batch, rows, inner = left
    return Operator("aten::bmm", (left, right), (_gemm(rows, right[2], inner, batch=batch),))


def _unfused_gelu(job: Job, width: int) -> tuple[Function, ...]:
    """Return 0.5 x (1 + tanh(a (x + b x^3))), one operation at a time, as far as it takes the result before."""
    shape = (job.batch, job.sequence, width)
    size = prod(shape) * DTYPE_BYTES

    def unary(name: str, functor: str, tensors: int) -> Operator:
        return Operator(f"aten::{name}", (shape,) * (tensors - 1), (elementwise(functor, prod(shape), tensors),))

    steps = (("pow", 2), ("mul", 2), ("add", 2), ("mul", 2), ("tanh", 2), ("add", 2), ("mul", 2))
    return tuple(
        Function(
            (),
            unary(name, f"{name}_functor", tensors),
            f"{name.title()}Backward0",
            (unary("mul", "mul_functor", tensors),),
            size,
            size,
        )
        for name, tensors in steps
    )


def _layer_norm(job: Job) -> Function:
    activation, width = (job.batch, job.sequence, job.hidden), (job.hidden,)
    elements = prod(activation)
    by_token = native("layer_norm_grad_input_kernel_vectorized", 3 * elements, job.tokens)
    by_column = native("GammaBetaBackwardCUDAKernel", 2 * elements, ceil(job.hidden / 32))
    return Function(
        wrappers=("aten::layer_norm",),
        forward=Operator(
            "aten::native_layer_norm",
            (activation, (), width, width, ()),
            (native("vectorized_layer_norm_kernel", 2 * elements, job.tokens),),
        ),
        node="NativeLayerNormBackward0",
        backward=(
            Operator("aten::native_layer_norm_backward", (activation, activation, (), width), (by_token, by_column)),
        ),
        output_bytes=elements * DTYPE_BYTES,
        gradient_bytes=elements * DTYPE_BYTES,
        parameters=(width, width),
    )


def _gelu(job: Job, width: int) -> Function:
    shape = (job.batch, job.sequence, width)
    elements = prod(shape)
    slope = elementwise("GeluBackwardCUDAKernelImpl", elements, 3)
    return Function(
        wrappers=(),
        forward=Operator("aten::gelu", (shape,), (elementwise("GeluCUDAKernelImpl", elements, 2),)),
        node="GeluBackward0",
        backward=(Operator("aten::gelu_backward", (shape, shape), (slope,)),),
        output_bytes=elements * DTYPE_BYTES,
        gradient_bytes=elements * DTYPE_BYTES,
    )


def _add(job: Job) -> Function:
    shape = (job.batch, job.sequence, job.hidden)
    elements = prod(shape)
    return Function(
        wrappers=(),
        forward=Operator("aten::add", (shape, shape, ()), (elementwise("CUDAFunctor_add", elements, 3),)),
        node="AddBackward0",
        backward=(),
        output_bytes=elements * DTYPE_BYTES,
        gradient_bytes=elements * DTYPE_BYTES,
    )


def _log_softmax(job: Job) -> Function:
    logits = (job.tokens, job.vocabulary)
    elements = prod(logits)
    backward = native("cunn_SoftMaxBackward", 3 * elements, job.tokens)
    return Function(
        wrappers=("aten::log_softmax",),
        forward=Operator(
            "aten::_log_softmax", (logits, (), ()), (native("cunn_SoftMaxForward", 2 * elements, job.tokens),)
        ),
        node="LogSoftmaxBackward0",
        backward=(Operator("aten::_log_softmax_backward_data", (logits, logits, (), ()), (backward,)),),
        output_bytes=elements * DTYPE_BYTES,
        gradient_bytes=elements * DTYPE_BYTES,
    )


def _nll_loss(job: Job) -> Function:
    logits, target = (job.tokens, job.vocabulary), (job.tokens,)
    pick = native("nll_loss_forward_reduce_cuda_kernel_2d", 2 * job.tokens, 1)
    scatter = native("nll_loss_backward_reduce_cuda_kernel_2d", 2 * job.tokens, 1)
    clear = memset(prod(logits) * DTYPE_BYTES)
    return Function(
        wrappers=("aten::nll_loss_nd", "aten::nll_loss"),
        forward=Operator("aten::nll_loss_forward", (logits, target), (pick,), indices=(1,)),
        node="NllLossBackward0",
        backward=(Operator("aten::nll_loss_backward", ((), logits, target), (clear, scatter), indices=(2,)),),
        output_bytes=DTYPE_BYTES,
        gradient_bytes=prod(logits) * DTYPE_BYTES,
    )


def elementwise(functor: str, elements: int, tensors: int) -> Work:
    """Return the kernel that applies `functor` to that many elements of that many tensors, results included."""
    name = f"void at::native::vectorized_elementwise_kernel<4, at::native::{functor}<c10::BFloat16>>"
    return _kernel(name, tensors * elements, ceil(elements / (4 * THREADS)))


def memset(moved_bytes: int) -> Work:
    """Return the clearing of that many bytes of GPU memory."""
    return Work("gpu_memset", "Memset (Device)", kernel_ns(0, moved_bytes), moved_bytes=moved_bytes)


def memcpy(direction: str, moved_bytes: int) -> Work:
    """Return a copy between host and GPU, such as `HtoD (Pinned -> Device)`."""
    ns = copy_ns(moved_bytes, pageable="Pageable" in direction)
    return Work("gpu_memcpy", f"Memcpy {direction}", ns, moved_bytes=moved_bytes)


def fused_adamw(parameters: int) -> Work:
    """Return the kernel that updates that many parameters: it reads four tensors and writes three."""
    return native("multi_tensor_apply_kernel<FusedAdamMathFunctor<c10::BFloat16>>", 7 * parameters, MULTIPROCESSORS)


def adamw(shape: Shape) -> tuple[Operator, ...]:
    """Return the operators that update one parameter: decay, the two moments, the step."""
    operations = (("mul_", 1), ("lerp_", 2), ("mul_", 1), ("addcmul_", 3), ("sqrt", 1), ("div", 1), ("add_", 1))
    return tuple(
        Operator(f"aten::{name}", (shape,) * read, (elementwise(f"{name}functor", prod(shape), read + 1),))
        for name, read in (*operations, ("addcdiv_", 3))
    )


def _gemm(rows: int, columns: int, inner: int, products: Products = "bf16", batch: int = 1) -> Work:
    name, flops_per_ns, element_bytes = _PRODUCTS[products]
    if products == "bf16" and (rows % 8 or columns % 8 or inner % 8):
        name = _UNALIGNED
    moved_bytes = batch * (rows * inner + inner * columns + rows * columns) * element_bytes
    blocks = batch * ceil(rows / 128) * ceil(columns / 128)
    return Work("kernel", name, kernel_ns(2 * batch * rows * columns * inner, moved_bytes, flops_per_ns), blocks)


def _flash(name: str, elements: int, blocks: int, flops: int = 0) -> Work:
    return _kernel(f"void pytorch_flash::{name}", elements, blocks, flops)


def native(name: str, elements: int, blocks: int) -> Work:
    return _kernel(f"void at::native::(anonymous namespace)::{name}", elements, blocks)


def _kernel(name: str, elements: int, blocks: int, flops: int = 0) -> Work:
    return Work("kernel", name, kernel_ns(flops, elements * DTYPE_BYTES), blocks=blocks)
