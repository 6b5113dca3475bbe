"""Slow twins of the compiled kernel models: the same formulae, by name and without arrays."""

from dataclasses import dataclass
from math import ceil, log2

from lumos_df.model.fitted import (
    AttentionParameters,
    GemmParameters,
    MemoryParameters,
    ScaleOutParameters,
    ScaleUpParameters,
)


@dataclass(frozen=True)
class Gpu:
    name: str
    peak_flops: float
    hbm_bandwidth: float
    sms: float
    link: float


A100 = Gpu("a100-sxm-80", 312e12, 2.039e12, 108, 300e9)
H100 = Gpu("h100-sxm", 989e12, 3.35e12, 132, 450e9)
B200 = Gpu("b200", 2250e12, 7.7e12, 148, 900e9)
GPUS = (A100, H100, B200)


def combined(one: float, other: float, exposed: float) -> float:
    longer, shorter = max(one, other), min(one, other)
    return longer * (1 + exposed * (shorter / longer) ** 3)


def gemm(m: int, n: int, k: int, batch: int, dtype_bytes: int, gpu: Gpu, p: GemmParameters) -> float:
    relative = {(256, 128): 1.0, (128, 256): 1.0, (128, 128): p.efficiency_128}
    relative |= dict.fromkeys([(128, 64), (64, 128), (64, 64), (64, 256)], p.efficiency_64)
    choices = []
    for (rows, columns), share in relative.items():
        multiply_add = 2 / (gpu.peak_flops / gpu.sms * p.efficiency)
        load = (rows + columns) * 64 * dtype_bytes / (p.load_ratio * gpu.hbm_bandwidth / gpu.sms)
        step = max(load, rows * columns * 64 * multiply_add / share)
        start = rows * columns * p.overhead_k * multiply_add
        tiles = ceil(m / rows) * ceil(n / columns) * batch
        for parts in (1, 2, 4, 8, 16):
            if parts > 1 and (tiles * parts > 2 * gpu.sms or k < 64 * parts):
                break
            waves = tiles * parts / gpu.sms
            waves = max(1, waves + p.quantisation * (ceil(waves) - waves))
            seconds = waves * (ceil(k / 64 / parts) * step + start)
            if parts > 1:
                partial_sums = 4 * m * n * batch * parts
                seconds += p.split_s + p.split_ratio * partial_sums / gpu.hbm_bandwidth
            choices.append(seconds)
    moved = batch * (dtype_bytes * k * (m + n) + 2 * m * n)
    busy = combined(min(choices), moved / (gpu.hbm_bandwidth * p.memory_efficiency), p.exposed)
    busy *= 1 + p.throttle * busy / (busy + p.throttle_s)
    cast = p.cast_bytes * m * k * batch / gpu.hbm_bandwidth
    return (p.floor_s + busy + cast) * p.training_factor


@dataclass(frozen=True)
class Rows:
    batch: int
    queries: int
    keys: int
    heads: int
    kv_heads: int
    size: int
    causal: bool
    backward: bool
    window: int = 0

    def seen(self) -> float:
        """Keys that a query sees on average, the last of them itself."""
        return self.window * (1 - self.window / (2 * self.keys)) if self.window < self.keys else self.keys / 2


def attention(rows: Rows, gpu: Gpu, p: AttentionParameters) -> float:
    rate = gpu.peak_flops / gpu.sms * p.efficiency * rows.size / (rows.size + p.half_head)
    rate *= p.backward_efficiency if rows.backward else 1
    operations = 4 * min(128, rows.queries) * rows.size * (2.5 if rows.backward else 1)
    seen: float = rows.keys
    if rows.causal:
        seen = max(rows.keys - rows.queries / 2 + 64, rows.keys / 2)
    last = rows.keys
    if rows.window:
        seen, last = min(seen, rows.seen() + 128), min(last, rows.window + 128)
    tiles = ceil(rows.queries / 128) * rows.heads * rows.batch
    longest = last + p.overhead_keys
    compute = max(tiles / gpu.sms * (seen + p.overhead_keys) + p.tail * longest, longest) * operations / rate
    elements = rows.batch * rows.size * (rows.heads * rows.queries + rows.kv_heads * rows.keys)
    moved = 2 * 2 * elements * (2 if rows.backward else 1)
    return (p.floor_s + combined(compute, moved / gpu.hbm_bandwidth, p.exposed)) * p.training_factor


def elementwise(moved: float, gpu: Gpu, p: MemoryParameters) -> float:
    ramp = moved / (moved + p.half_bytes)
    return max(p.floor_s, moved / (gpu.hbm_bandwidth * p.efficiency * ramp)) * p.training_factor


STEPS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "broadcast": 1, "send": 1}
"""Kinds in the order of their numbers; passes over a ring."""


def inside(kind: str, payload: float, group: int, link: float, p: ScaleUpParameters) -> float:
    steps = STEPS[kind] * (group - 1)
    share = (STEPS[kind] * (group - 1) + p.own_share) / group
    wire = payload if kind in {"broadcast", "send"} else payload * share
    choices = [
        p.low_latency_base_s + steps * p.low_latency_step_s + wire / (link * p.low_latency_rate),
        p.medium_base_s + steps * p.medium_step_s + wire / (link * p.medium_rate),
        p.simple_base_s + steps * p.simple_step_s + wire / (link * p.simple_rate),
    ]
    if group >= p.switch_group and kind in {"all_reduce", "all_gather", "reduce_scatter"}:
        choices.append(p.switch_base_s + payload / (link * p.switch_rate))
    return min(choices)


@dataclass(frozen=True)
class Place:
    group: int
    per_node: int
    link: float
    network: float


def collective(kind: str, payload: float, place: Place, up: ScaleUpParameters, out: ScaleOutParameters) -> float:
    if place.per_node >= place.group:
        return inside(kind, payload, place.group, place.link, up)
    nodes, per_node = ceil(place.group / place.per_node), place.per_node
    ring, tree = (nodes - 1) * out.ring_hop_s, ceil(log2(nodes)) * out.tree_hop_s
    gathered = payload * (place.group - 1) / place.group / per_node
    crossing, hops = {
        "all_reduce": (payload / per_node if nodes == 2 else 2 * gathered, 2 * min(ring, tree)),
        "all_gather": (gathered, ring),
        "reduce_scatter": (gathered, ring),
        "all_to_all": (payload * (1 - per_node / place.group), out.ring_hop_s),
        "broadcast": (payload / per_node, tree),
        "send": (payload, out.ring_hop_s),
    }[kind]
    near = inside(kind, payload, per_node, place.link, up) if per_node > 1 else up.low_latency_base_s
    far = min(crossing / (place.network * out.low_rate), out.simple_s + crossing / (place.network * out.simple_rate))
    starts = out.base_s * (2 if kind == "all_reduce" else 1)
    return starts + hops + max(near, far) + out.exposed * min(near, far)
