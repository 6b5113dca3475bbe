"""A GPU whose figures are round and are reached, and a software that adds nothing: times on it are worked out by hand.

Fitted figures have bounds, so nothing is quite free: what is large and regular takes what its roof says within 0.2 %.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from lumos_df.model.hardware import Hardware, PeakFlops, ScaleOut, ScaleUp
from lumos_df.model.software import Software
from lumos_df.schema.collective_kinds import FITTED_COLLECTIVES

FP32_FLOPS, BF16_FLOPS, FP8_FLOPS = 10e12, 100e12, 200e12
"""FLOP/s."""
MEMORY_RATE: Final = 1e12
"""Bytes/s of the GPU's memory."""
DOMAIN: Final = 8
"""GPUs that fast links join."""
NEAR_RATE, FAR_RATE = 100e9, 10e9
"""Bytes/s of a GPU in one direction: inside a domain, and between domains."""
WITHIN: Final = 2e-3
"""Relative."""

_LINK: Final = {
    **{f"{protocol}_base_s": 1e-6 for protocol in ("low_latency", "medium", "simple")},
    **{f"{protocol}_step_s": 4e-8 for protocol in ("low_latency", "medium", "simple")},
    **{f"{protocol}_rate": 1.0 for protocol in ("low_latency", "medium", "simple")},
    "own_share": 1e-3,
    "switch_group": 1e9,
}
_PRODUCT: Final = {
    "floor_s": 2e-7,
    "efficiency": 1.0,
    "efficiency_128": 1.0,
    "efficiency_64": 1.0,
    "overhead_k": 1.0,
    "quantisation": 1e-4,
    "load_ratio": 30.0,
    "memory_efficiency": 1.0,
    "exposed": 1e-3,
    "split_ratio": 20.0,
    "split_s": 2e-5,
    "throttle": 1e-4,
    "throttle_s": 0.1,
    "training_factor": 1.0,
}

GPU: Final = Hardware(
    name="round",
    vendor="nvidia",
    generation="ampere",
    peak_flops=PeakFlops(FP32_FLOPS, BF16_FLOPS, BF16_FLOPS, FP8_FLOPS),
    hbm_bytes=80e9,
    hbm_bandwidth=MEMORY_RATE,
    sms=100,
    scale_up=ScaleUp(DOMAIN, NEAR_RATE),
    scale_out=ScaleOut(FAR_RATE),
    pcie_bandwidth=10e9,
    tdp_w=400,
    idle_w=100,
    fitted_from="a100-sxm-80",
    fitted={
        "gemm": {"fp32": _PRODUCT, "bf16": _PRODUCT, "fp8": _PRODUCT},
        "attention": {
            "bf16": {
                "floor_s": 1e-6,
                "efficiency": 1.0,
                "half_head": 1.0,
                "overhead_keys": 1.0,
                "exposed": 1e-3,
                "tail": 1e-3,
                "training_factor": 1.0,
            },
        },
        "memory": {"floor_s": 5e-7, "efficiency": 1.0, "half_bytes": 1e3, "training_factor": 1.0},
        "network": {
            "scale_up": dict.fromkeys(FITTED_COLLECTIVES, _LINK),
            "scale_out": {
                "base_s": 1e-6,
                "ring_hop_s": 1e-6,
                "tree_hop_s": 1e-6,
                "simple_s": 1e-6,
                "low_rate": 1.0,
                "simple_rate": 1.0,
                "exposed": 1e-3,
            },
        },
    },
)

BARE: Final = replace(
    Software.read("megatron"),
    name="bare",
    launch_s=0.0,
    backward_launch_s=0.0,
    collective_s=0.0,
    skew_s=0.0,
    routing_s=0.0,
    hop_s=0.0,
    network_share=1.0,
    token_once=False,
    zigzag=False,
    fp8_dispatch=False,
    fp8_blocks=False,
    micro_batch_s=0.0,
    step_s=0.0,
    step_waits=True,
    layer_step_s=0.0,
    send_s=0.0,
    blocking_send=True,
    passes=1.0,
    norm_passes=1.0,
    balanced=False,
    gradient_bytes=4.0,
    reduce_bytes=4.0,
    add_bytes=0.0,
    optimizer_bytes=12.0,
    compute_factor=1.0,
    attention_factor=1.0,
    expert_factor=1.0,
    memory_factor=1.0,
    tp_hidden=0.0,
    tp_backward_hidden=0.0,
    slowdown=0.0,
    logits_bytes=8.0,
    loss_bytes=16.0,
    reserve_bytes=0.0,
    reserve_fraction=0.0,
)


def document(gpu: Hardware) -> str:
    """Return a GPU as a file of `--set hardware=FILE`."""
    figures = asdict(gpu)
    return "".join(_tables("", figures | figures.pop("fitted")))


def _tables(name: str, figures: Mapping[str, Any]) -> Iterator[str]:
    if name:
        yield f"[{name}]\n"
    plain = {key: value for key, value in figures.items() if not isinstance(value, dict)}
    yield from (f"{key} = {json.dumps(value)}\n" for key, value in plain.items())
    for key in figures.keys() - plain.keys():
        yield from _tables(f"{name}.{key}".removeprefix("."), figures[key])
