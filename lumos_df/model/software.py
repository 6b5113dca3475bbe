"""The software: what a training framework adds to the GPU's own work, and what it does unless told otherwise."""

import os
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from lumos_df.base.errors import SoftwareError
from lumos_df.model.figures import flag, make, real, refuse, share, text, whole, word, words
from lumos_df.model.hardware import GENERATIONS
from lumos_df.model.records import REAL, Column, record, row_type
from lumos_df.model.software_files import software_figures
from lumos_df.schema.dtypes import PRECISIONS
from lumos_df.schema.plan_words import ATTENTION_KERNELS

SOFTWARE_COLUMNS: Final = (
    Column("launch_s", "host time of one operator of the forward pass, launch included, in seconds", REAL),
    Column(
        "backward_launch_s",
        "host time of one operator of the backward pass, in seconds; the autograd engine has no Python in it",
        REAL,
    ),
    Column(
        "collective_s",
        "host time of one tensor-, context- or expert-parallel collective beside its launch, in seconds",
        REAL,
    ),
    Column(
        "skew_s",
        "seconds that each doubling of its ranks adds to such a collective: it waits for the host that comes last",
        REAL,
    ),
    Column(
        "routing_s",
        "seconds for which the GPU waits in a pass of a layer with experts, until the host knows what goes where",
        REAL,
    ),
    Column("hop_s", "latency that each further node adds to such a collective, in seconds", REAL),
    Column(
        "piped_hops",
        "1: whether, in a pipeline over several nodes, such a collective pays `hop_s` for every rank but the first",
    ),
    Column(
        "network_share",
        "share of a network of 50 GB/s a GPU that reductions and gathers between nodes reach; of another, the same time"
        " a byte is lost",
        REAL,
    ),
    Column("micro_batch_s", "host time a micro-batch beside operators, in seconds", REAL),
    Column("step_s", "host time a step beside micro-batches (data, logging, optimizer), in seconds", REAL),
    Column(
        "step_waits",
        "1: the host waits for the GPU once a step, to read a loss or a norm, so what it does a step shows; 0: that"
        " runs ahead as its launches do",
    ),
    Column("layer_step_s", "host time a step of each layer of a rank (optimizer, gradient norm), in seconds", REAL),
    Column("send_s", "host time of a send to the next stage, in seconds", REAL),
    Column("slow_node", "chance that a node makes the messages between a pipeline's stages slow", REAL),
    Column("slow_message_s", "seconds by which each message of the pipeline is longer then", REAL),
    Column("blocking_send", "1: a stage waits until what it sends is there"),
    Column(
        "run_ahead",
        "how sharply the slower of host and GPU sets the pace: exponent of their norm, 1 (one after the other) or more",
        REAL,
    ),
    Column(
        "passes",
        "memory traffic of element-wise operators over that of fused ones: 1 fused, 2 and more where each runs alone",
        REAL,
    ),
    Column("norm_passes", "passes of a norm without biases (RMSNorm) over those of other operators", REAL),
    Column("scan_passes", "memory traffic of a state-space scan over the bytes of its operands and states", REAL),
    Column("dropout", "1: the model is trained with dropout"),
    Column(
        "held_gathered",
        "tensors as wide as what sequence parallelism gathers that its communication holds, as the host runs ahead",
        REAL,
    ),
    Column("keep_ffn", "tensors as wide as the MLP that are kept beside those its products read", REAL),
    Column(
        "keep_products",
        "1: selective recomputation keeps every second matrix product and attention, and computes all else of a layer"
        " again (torchtitan); 0: it computes attention's core again (Megatron)",
    ),
    Column("balanced", "1: a pipeline's chunks are cut at equal compute, head included, instead of equal layers"),
    Column("gradient_bytes", "bytes a parameter in which gradients are kept: 2 or 4", REAL),
    Column("reduce_bytes", "bytes a parameter in which gradients are reduced over data-parallel ranks", REAL),
    Column(
        "add_bytes",
        "bytes a parameter that adding a micro-batch's gradients to those before moves, beside the product that makes"
        " them: 10 for a pass of its own into 4 bytes, 6 into 2 bytes or by the product into 4, 2 by it into 2",
        REAL,
    ),
    Column(
        "optimizer_bytes",
        "bytes a parameter of the optimizer's state: 12 for Adam with fp32 master weights and moments",
        REAL,
    ),
    Column(
        "step_bytes", "bytes a parameter of its shard that a sharded optimizer's step holds beside its states", REAL
    ),
    Column("gather_bytes", "bytes a parameter in which ZeRO 1 and 2 gather weights beside themselves", REAL),
    Column("optimizer_traffic", "bytes a parameter that the optimizer's step reads and writes", REAL),
    Column(
        "compute_factor",
        "time of this software's matrix products over that of the kernels the hardware was fitted to",
        REAL,
    ),
    Column(
        "attention_factor",
        "time of this software's fused attention over that of the kernels the hardware was fitted to",
        REAL,
    ),
    Column("expert_factor", "time of its experts' grouped products over that of batched products", REAL),
    Column("token_once", "1: a token goes once to a rank or node, however many of its experts are there (DeepEP)"),
    Column("fp8_dispatch", "1: where products run in fp8, tokens and gradients go to experts in 8 bits (DeepSeek)"),
    Column("fp8_blocks", "1: products in fp8 have a scale for each 128 elements instead of one (DeepSeek)"),
    Column(
        "zigzag",
        "1: context-parallel ranks take pieces of the sequence with equal parts of the causal half, and pass keys on in"
        " a ring behind attention; 0: they take pieces in order, and gather all keys first",
    ),
    Column("attention", "place in ATTENTION_KERNELS: which kernel its fused attention is"),
    Column(
        "last_again",
        "share of a layer's last matrix product that recomputation of whole layers runs again: 1 it runs the layer, 0"
        " it ends where the backward pass has all it reads",
        REAL,
    ),
    Column("memory_factor", "the same of its memory-bound kernels", REAL),
    Column(
        "tp_hidden",
        "share of tensor-parallel communication that hides behind matrix products where the plan overlaps it",
        REAL,
    ),
    Column(
        "tp_backward_hidden",
        "share of it that hides in the backward pass in any case, behind the weight gradients",
        REAL,
    ),
    Column("dp_hidden", "share of the last micro-batch's backward pass behind which gradients can be reduced", REAL),
    Column("overlaps_sharded", "1: gradient reduction overlaps with ZeRO 1 and 2, too"),
    Column("slowdown", "compute time added a second of communication that runs beside it", REAL),
    Column("overlap_tp", "1: tensor-parallel communication runs beside matrix products unless the plan says otherwise"),
    Column("overlap_dp", "1: gradient and parameter communication runs beside compute unless the plan says otherwise"),
    Column("overlap_pp", "1: pipeline communication runs beside compute unless the plan says otherwise"),
    Column("logits_bytes", "bytes a logit that the loss keeps: half, single precision and gradient", REAL),
    Column(
        "loss_bytes",
        "bytes a logit that the loss reads and writes in both passes: 52 where each of its operators runs alone, 28 in"
        " Megatron's fused one, 8 in one kernel",
        REAL,
    ),
    Column("reserve_bytes", "memory a GPU that is never a tensor: context, libraries, communication buffers", REAL),
    Column("reserve_fraction", "memory lost to the allocator's fragments, as a share of what tensors take", REAL),
    Column(
        "low_ratio",
        "lower end of the interval over the estimate: 8 runs of 10 lay above it and below `high_ratio`",
        REAL,
    ),
    Column("high_ratio", "upper end of the interval over the estimate", REAL),
    Column("compute_spread", "logarithm of a ratio that the time of matrix products is within, 8 times of 10", REAL),
    Column("memory_spread", "the same of attention, memory-bound kernels and the optimizer", REAL),
    Column("communication_spread", "the same of communication that nothing hides", REAL),
    Column("bubble_spread", "the same of waiting for other stages", REAL),
    Column("host_spread", "the same of waiting for the host", REAL),
    Column("expert_spread", "the same of the whole step of a model with experts, for what they add", REAL),
    Column("generations", "architectures it was measured on: bit i stands for `hardware.GENERATIONS[i]`"),
    Column("precisions", "precisions it was measured in: bit i stands for PRECISIONS[i]"),
    Column("experts", "1: it was measured with experts"),
    Column("most_gpus", "GPUs of its largest measured job"),
    Column("longest_seq", "tokens of its longest measured sequence"),
)
"""What a kernel knows of a software."""

_WORDS: Final = ("attention", "generations", "precisions", "most_gpus", "longest_seq")

_SHARES: Final = ("network_share", "slow_node", "last_again", "tp_hidden", "tp_backward_hidden", "dp_hidden")

SOFTWARE_ROW: Final = row_type(SOFTWARE_COLUMNS)
"""Structured dtype of `Software.row()`."""


@dataclass(frozen=True)
class Software:
    """A training framework as it was run. Raises `SoftwareError` for figures that cannot be."""

    name: str
    """What to call it."""
    launch_s: float
    """Host time of one operator of the forward pass, launch included, in seconds."""
    backward_launch_s: float
    """Host time of one operator of the backward pass, in seconds; the autograd engine has no Python in it."""
    collective_s: float
    """Host time of one tensor-, context- or expert-parallel collective beside its launch, in seconds."""
    skew_s: float
    """Seconds that each doubling of its ranks adds to such a collective: it waits for the host that comes last, and of
    hosts whose delays have an exponential tail the last is later by the logarithm of their number."""
    routing_s: float
    """Seconds for which the GPU waits in a pass of a layer with experts, until the host knows what goes where."""
    hop_s: float
    """Latency that each further node adds to such a collective, in seconds."""
    piped_hops: bool
    """Whether, in a pipeline over several nodes, such a collective pays `hop_s` for every rank but the first."""
    network_share: float
    """Share of 50 GB/s a GPU that reductions and gathers between nodes reach; other rates lose as much time a byte."""
    micro_batch_s: float
    """Host time a micro-batch beside operators, in seconds."""
    step_s: float
    """Host time a step beside micro-batches (data, logging, optimizer), in seconds."""
    step_waits: bool
    """Whether the host waits for the GPU once a step, to read a loss or a gradient's norm, so that what it does a step
    shows; in a loop that reads nothing of the GPU it runs ahead, as launches do."""
    layer_step_s: float
    """Host time a step of each layer of a rank (optimizer, gradient norm), in seconds."""
    send_s: float
    """Host time of a send to the next stage, in seconds."""
    slow_node: float
    """Chance that a node makes the messages between a pipeline's stages slow."""
    slow_message_s: float
    """Seconds by which each message of the pipeline is longer then."""
    blocking_send: bool
    """Whether a stage waits until what it sends is there."""
    run_ahead: float
    """How sharply the slower of host and GPU sets the pace: exponent of their norm, 1 (one after the other) or more."""
    passes: float
    """Memory traffic of element-wise operators over that of fused ones: 1 fused, 2 and more where each runs alone."""
    norm_passes: float
    """Passes of a norm without biases (RMSNorm) over those of other operators: 1 where either is fused or neither is.
    Norms with biases (LayerNorm) are a kernel of PyTorch's own, others in models' source a chain of operators."""
    scan_passes: float
    """Memory traffic of a state-space scan over the bytes of its operands and states."""
    dropout: bool
    """Whether the model is trained with dropout."""
    held_gathered: float
    """Tensors as wide as what sequence parallelism gathers that its communication holds. What a collective reads on its
    own stream PyTorch's allocator gives to nobody else before the GPU is there, and the host runs ahead of it by as
    many launches as its queue takes: so by as many tensors, however many layers a stage has."""
    keep_ffn: float
    """Tensors as wide as the MLP that are kept beside those its products read: 0 where activations are fused."""
    keep_products: bool
    """Whether selective recomputation keeps every second matrix product and attention, and computes all else of a layer
    again (torchtitan's), instead of attention's core alone (Megatron's)."""
    balanced: bool
    """Whether a pipeline's chunks are cut at equal compute, head included, instead of equal layers."""
    gradient_bytes: float
    """Bytes a parameter in which gradients are kept: 2 or 4."""
    reduce_bytes: float
    """Bytes a parameter in which gradients are reduced over data-parallel ranks."""
    add_bytes: float
    """Bytes a parameter that adding a micro-batch's gradients to those before moves, beside the product that makes
    them.

    A pass of its own reads them in 2 bytes, and reads and writes the sum: 10 with a sum of 4 bytes, 6 of 2. A product
    that adds (Megatron-LM's `gradient_accumulation_fusion`) reads the sum, and writes it instead of 2 bytes: 6 or 2.
    """
    optimizer_bytes: float
    """Bytes a parameter of the optimizer's state: 12 for Adam with fp32 master weights and moments."""
    step_bytes: float
    """Bytes a parameter of its shard that a sharded optimizer's step holds beside its states: 6 in DeepSpeed, whose
    gradients become one tensor in 16 bits, and then one in 32 (stage_1_and_2.py). Activations are given back by then,
    but none was so large, so the allocator asks for more."""
    gather_bytes: float
    """Bytes a parameter in which ZeRO 1 and 2 gather weights after a step, before these are copied where they belong:
    2 where lists of tensors are gathered (NCCL's process group makes one tensor of each), 0 where they lie in one."""
    optimizer_traffic: float
    """Bytes a parameter that the optimizer's step reads and writes."""
    compute_factor: float
    """Time of this software's matrix products over that of the kernels the hardware was fitted to."""
    attention_factor: float
    """Time of this software's fused attention over that of the kernels the hardware was fitted to."""
    expert_factor: float
    """Time of its experts' grouped products over that of batched products."""
    token_once: bool
    """Whether a token goes once to a rank or node, however many of its experts are there (DeepEP, HybridEP)."""
    fp8_dispatch: bool
    """Whether, where products run in fp8, what is sent to experts has 8 bits and a scale for each 128 elements: tokens
    in the forward pass, gradients of their outputs in the backward pass. What comes back has 16 bits in both
    (DeepSeek-V3, arXiv 2412.19437, 3.3.3). Megatron gives DeepEP 16 bits in any precision (Megatron-LM issue 3578)."""
    fp8_blocks: bool
    """Whether products in fp8 have a scale for each 128 elements of a row and each 128x128 of a weight, instead of one
    a tensor (DeepSeek-V3, DeepGEMM). On Hopper those are other kernels; elsewhere they are taken to be the same."""
    zigzag: bool
    """Whether context-parallel ranks take pieces of the sequence with equal parts of the causal half, one early, one
    late, and pass keys on in a ring while they attend to those before (zigzag ring attention, `cp_comm_type = "p2p"` of
    Megatron-Core); else the last rank has the most, and all keys are gathered first."""
    attention: str
    """Which kernel fused attention is, of ATTENTION_KERNELS. FlashAttention-2 has no code of its own for Hopper, and on
    Blackwell frameworks take cuDNN's."""
    last_again: float
    """Share of a layer's last matrix product that recomputation of whole layers runs again. The backward pass does not
    read its result: PyTorch's checkpoints without reentry and XLA end before it (0), Megatron and DeepSpeed do not (1).
    """
    memory_factor: float
    """The same of its memory-bound kernels."""
    tp_hidden: float
    """Share of tensor-parallel communication that hides behind matrix products where the plan overlaps it."""
    tp_backward_hidden: float
    """Share of it that hides in the backward pass in any case, behind the weight gradients."""
    dp_hidden: float
    """Share of the last micro-batch's backward pass behind which gradients can be reduced."""
    overlaps_sharded: bool
    """Whether gradient reduction overlaps with ZeRO 1 and 2, too."""
    slowdown: float
    """Compute time added a second of communication that runs beside it."""
    overlap_tp: bool
    """Whether tensor-parallel communication runs beside matrix products unless the plan says otherwise."""
    overlap_dp: bool
    """Whether gradient and parameter communication runs beside compute unless the plan says otherwise."""
    overlap_pp: bool
    """Whether pipeline communication runs beside compute unless the plan says otherwise."""
    logits_bytes: float
    """Bytes a logit that the loss keeps: half, single precision and gradient."""
    loss_bytes: float
    """Bytes a logit that the loss reads and writes in both passes: 52 where each of its operators runs alone
    (vocab_parallel_cross_entropy and nanotron's copy of it, PyTorch's), 28 in Megatron's `cross_entropy_loss_fusion`
    (to single precision and maximum 6, exponential and sum 8, divided 8, gradient 6), 8 in one kernel or compiled."""
    reserve_bytes: float
    """Memory a GPU that is never a tensor: context, libraries, communication buffers."""
    reserve_fraction: float
    """Memory lost to the allocator's fragments, as a share of what tensors take."""
    low_ratio: float
    """Lower end of the interval over the estimate: 8 runs of 10 lay above it and below `high_ratio`."""
    high_ratio: float
    """Upper end of the interval over the estimate, for plans that are like what was measured."""
    compute_spread: float
    """Logarithm of a ratio that the time of matrix products is within, 8 times of 10; beside `low_ratio`."""
    memory_spread: float
    """The same of attention, memory-bound kernels and the optimizer."""
    communication_spread: float
    """The same of communication that nothing hides."""
    bubble_spread: float
    """The same of waiting for other stages."""
    host_spread: float
    """The same of waiting for the host."""
    expert_spread: float
    """The same of the whole step of a model with experts, for what they add."""
    generations: tuple[str, ...]
    """Architectures it was measured on."""
    precisions: tuple[str, ...]
    """Precisions it was measured in."""
    experts: bool
    """Whether it was measured with experts."""
    most_gpus: int
    """GPUs of its largest measured job; 0: none was measured."""
    longest_seq: int
    """Tokens of its longest measured sequence; 0: none was measured."""
    release_of: str = ""
    """The profile that this one is a later release of."""
    source: str = ""
    """Where the figures are from."""

    def __post_init__(self) -> None:
        values = vars(self)
        flags = (column.name for column in SOFTWARE_COLUMNS if column.kind is not REAL and column.name not in _WORDS)
        refuse(
            SoftwareError,
            f"software '{self.name}'",
            [
                *text(values, "name", "release_of", "source"),
                *flag(values, *flags),
                *word(values, "attention", ATTENTION_KERNELS),
                *words(values, "generations", GENERATIONS),
                *words(values, "precisions", PRECISIONS),
                *whole(values, 0, "most_gpus", "longest_seq"),
                *real(values, 0, *(column.name for column in SOFTWARE_COLUMNS if column.kind is REAL)),
                *real(values, 1, "run_ahead"),
                *share(values, *_SHARES),
            ],
        )

    @classmethod
    def read(cls, name_or_path: str | os.PathLike[str]) -> Self:
        """Return a software by a name or alias of `data/software`, or from a TOML file of the same keys.

        Raises `SoftwareError` for an unknown name (with the nearest), and for a file that does not read, lacks a
        figure that the profile which it `inherits` has not either, or says what cannot be.
        """
        name, figures = software_figures(name_or_path, SOFTWARE_COLUMNS)
        told = {key: tuple(value) if isinstance(value, list) else value for key, value in figures.items()}
        return make(cls, {"name": name, **told}, f"software '{name}'", SoftwareError)

    def row(self) -> np.void:
        """Return the software as one `SOFTWARE_ROW`."""
        generations = sum(1 << GENERATIONS.index(name) for name in self.generations)
        precisions = sum(1 << PRECISIONS.index(name) for name in self.precisions)
        kernel = ATTENTION_KERNELS.index(self.attention)
        told = {"attention": kernel, "generations": generations, "precisions": precisions}
        return record(SOFTWARE_ROW, {**vars(self), **told})
