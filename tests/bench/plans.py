"""Estimates against order, physics and published runs: one line a check, `make bench`."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from typing import Final, NamedTuple

from lumos_df.estimate import Estimate, estimate
from lumos_df.model.transformer import Model

ROOFS: Final = tuple(
    product(
        ("gpt3-175b", "llama-3-8b", "llama-3-70b", "mixtral-8x7b", "nemotron-3-nano"),
        ("a100-sxm-80", "h100-sxm", "b200"),
    )
)
"""Models and GPUs of which none may do more than its peak."""


class Pair(NamedTuple):
    """Two plans of one model and GPU, of which the first has no more of something."""

    what: str
    answer: str
    less: str
    more: str
    model: str = "llama-3-70b"
    gpu: str = "h100-sxm"


BASE: Final = "tp=8,pp=4,dp=4,batch=128,sp,zero=1"
EXPERTS: Final = "pp=8,dp=8,ep=8,batch=256"
PAIRS: Final = (
    Pair("half the batch is no longer", "iteration_time_s", BASE.replace("128", "64"), BASE),
    Pair("twice the micro-batch holds more", "memory_gb", BASE, f"{BASE},micro_batch=2"),
    Pair("recomputation takes time", "iteration_time_s", BASE, f"{BASE},recompute=full"),
    Pair("recomputation saves memory", "memory_gb", f"{BASE},recompute=full", BASE),
    Pair("selective lies below none", "memory_gb", f"{BASE},recompute=selective,flash=0", f"{BASE},flash=0"),
    Pair("light lies below none", "memory_gb", f"{BASE},recompute=light", BASE),
    Pair("ZeRO 1 holds less than 0", "memory_gb", BASE, BASE.replace("zero=1", "zero=0")),
    Pair("ZeRO 2 holds less than 1", "memory_gb", BASE.replace("zero=1", "zero=2"), BASE),
    Pair("ZeRO 3 holds less than 2", "memory_gb", BASE.replace("zero=1", "zero=3"), BASE.replace("zero=1", "zero=2")),
    Pair("groups that shard hold more", "memory_gb", BASE, f"{BASE},dp_replicate=2"),
    Pair("and sum up once more", "dp_exposed_s", f"{BASE},overlap_dp=0", f"{BASE},overlap_dp=0,dp_replicate=2"),
    Pair("an optimizer elsewhere holds less", "memory_gb", f"{BASE},offload", BASE),
    Pair("adapters hold less", "memory_gb", f"{BASE},lora=16", BASE),
    Pair("adapters beside every product hold more", "memory_gb", f"{BASE},lora=16", f"{BASE},lora=16,lora_targets=all"),
    Pair("and take more", "iteration_time_s", f"{BASE},lora=16", f"{BASE},lora=16,lora_targets=all"),
    Pair("adapters take less time", "iteration_time_s", f"{BASE},lora=16", BASE),
    Pair("flash attention is faster", "iteration_time_s", BASE, f"{BASE},flash=0"),
    Pair("8 bits are faster", "iteration_time_s", f"{BASE},precision=fp8", BASE),
    Pair("4 bits are faster than 8", "iteration_time_s", f"{BASE},precision=fp4", f"{BASE},precision=fp8", gpu="b200"),
    Pair("hidden communication is faster", "iteration_time_s", f"{BASE},overlap_tp", f"{BASE},overlap_tp=0"),
    Pair("chunks shrink the bubble", "bubble_s", f"{BASE},vp=4,schedule=interleaved", BASE),
    Pair("more micro-batches shrink its share", "bubble_s", BASE, f"{BASE.replace('pp=4', 'pp=8')}"),
    Pair("a split weight gradient shrinks it", "bubble_s", f"{BASE},schedule=zb-h1", BASE),
    Pair(
        "context parallelism holds less", "memory_gb", BASE.replace("dp=4", "dp=2,cp=2"), BASE.replace("dp=4", "dp=2")
    ),
    Pair("experts spread over ranks hold less", "memory_gb", "dp=8,ep=8,batch=64", "dp=8,batch=64", "mixtral-8x7b"),
    Pair("DualPipe hides exchanges", "ep_exposed_s", f"{EXPERTS},schedule=dualpipe", EXPERTS, "mixtral-8x7b"),
)
"""What must not be the other way round."""


_NEAR: Final = 0.3
"""How far an estimate of a run that nothing was fitted to may be off."""


class Published(NamedTuple):
    """A run that was published, and what it did a GPU and second."""

    source: str
    model: str
    gpu: str
    plan: str
    tokens_per_s_per_gpu: float
    seq: int


def _flops(model: str, seq: int, tflops: float) -> float:
    """Return tokens a second of a GPU that does so many of the model's TFLOP/s, attention's pairs under the mask."""
    return tflops * 1e12 / (3 * replace(Model.read(model), seq=seq).flops_per_token(causal=True))


LLAMA: Final = "tp=8,pp=16,vp=8,sp,zero=1,micro_batch=1,software=megatron"
NEMOTRON: Final = "tp=8,pp=12,vp=8,sp,zero=1,micro_batch=1,software=megatron"
MT_NLG: Final = "tp=8,pp=35,micro_batch=1,precision=bf16,recompute=full,flash=0,software=megatron-deepspeed"
DEEPSEEK: Final = (
    "pp=16,dp=128,ep=64,batch=15360,zero=1,schedule=dualpipe,recompute=light,precision=fp8,software=megatron"
)
PUBLISHED: Final = (
    Published(
        "Llama 3, arXiv 2407.21783, table 4",
        "llama-3.1-405b",
        "h100-sxm",
        f"{LLAMA},dp=64,batch=2048",
        _flops("llama-3.1-405b", 8192, 430),
        8192,
    ),
    Published(
        "the same",
        "llama-3.1-405b",
        "h100-sxm",
        f"{LLAMA},dp=128,batch=2048",
        _flops("llama-3.1-405b", 8192, 400),
        8192,
    ),
    Published(
        "the same",
        "llama-3.1-405b",
        "h100-sxm",
        f"{LLAMA},cp=16,dp=8,batch=128",
        _flops("llama-3.1-405b", 131072, 380),
        131072,
    ),
    Published(
        "DeepSeek-V3, arXiv 2412.19437, 14.8e12 tokens in 2.664e6 hours",
        "deepseek-v3",
        "h800",
        DEEPSEEK,
        14.8e12 / 2.664e6 / 3600,
        4096,
    ),
    Published(
        "Nemotron-4 340B, arXiv 2406.11704, table 2",
        "nemotron-4-340b",
        "h100-sxm",
        f"{NEMOTRON},dp=16,batch=768",
        768 * 4096 / 10.3 / 1536,
        4096,
    ),
    Published(
        "the same", "nemotron-4-340b", "h100-sxm", f"{NEMOTRON},dp=32,batch=1536", 1536 * 4096 / 10.3 / 3072, 4096
    ),
    Published(
        "the same", "nemotron-4-340b", "h100-sxm", f"{NEMOTRON},dp=64,batch=2304", 2304 * 4096 / 8.0 / 6144, 4096
    ),
    Published(
        "MT-NLG 530B, arXiv 2201.11990, section 2.3",
        "megatron-530b",
        "a100-sxm-80",
        f"{MT_NLG},dp=8,batch=1920",
        1920 * 2048 / 60.1 / 2240,
        2048,
    ),
    Published(
        "the same", "megatron-530b", "a100-sxm-80", f"{MT_NLG},dp=10,batch=1920", 1920 * 2048 / 50.2 / 2800, 2048
    ),
    Published(
        "the same", "megatron-530b", "a100-sxm-80", f"{MT_NLG},dp=12,batch=1920", 1920 * 2048 / 44.4 / 3360, 2048
    ),
)
"""Runs of no set of the scoreboard."""

ORDER: Final = ("a100-sxm-80", "h100-sxm", "h200-sxm", "b200", "gb200", "gb300")
"""GPUs, none slower than the one before."""


def answers(model: str | Model, gpu: str, plan: str) -> Estimate:
    """Return the estimate of one plan."""
    return estimate(model, gpu, plan)


def checks() -> Iterator[tuple[bool, str]]:
    """Give each check: whether it holds, and what it found."""
    for model, gpu in ROOFS:
        ways = "dp=8,ep=8,batch=64,zero=1" if Model.read(model).experts else "tp=8,dp=2,batch=64,sp,zero=1"
        used = float(answers(model, gpu, ways).answers["hfu_pct"])
        yield 0.0 < used < 100.0, f"{model} on {gpu}: {used:.0f} % of the peak"
    for what, answer, less, more, model, gpu in PAIRS:
        first, second = (float(answers(model, gpu, plan).answers[answer]) for plan in (less, more))
        yield first <= second, f"{what}: {answer} {first:.4g} and {second:.4g}"
    for older, newer in pairwise(ORDER):
        for precision in ("bf16", "fp8"):
            if precision == "fp8" and older.startswith("a100"):
                continue
            plan = f"tp=2,dp=4,batch=64,sp,zero=1,precision={precision}"
            both = (answers("llama-3-8b", gpu, plan).answers for gpu in (older, newer))
            pace = [float(told["tokens_per_s_per_gpu"]) for told in both]
            yield pace[0] <= 1.0001 * pace[1], f"{newer} in {precision} over {older}: {pace[1] / pace[0]:.2f} times"
    for run in PUBLISHED:
        trained = replace(Model.read(run.model), seq=run.seq)
        told = answers(trained, run.gpu, run.plan).answers
        ours = float(told["tokens_per_s_per_gpu"])
        gpus = f"{told['gpus']:,} {run.gpu}"
        said = f"{run.source}: {gpus}, {run.tokens_per_s_per_gpu:.1f} tokens/s a GPU, ours {ours:.1f}"
        off = ours / run.tokens_per_s_per_gpu - 1.0
        yield abs(off) < _NEAR, f"{said} ({100 * off:+.0f} %)"


def main() -> None:
    """Print every check."""
    held = 0
    every = list(checks())
    for holds, found in every:
        held += holds
        print(f"{'holds ' if holds else 'MISSED'}  {found}")
    print(f"{held} of {len(every)} checks of plans hold")


if __name__ == "__main__":
    main()
