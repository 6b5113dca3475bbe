"""Is a fault named first, and its gain right? `python -m tests.bench.gpu_faults FOLDER`, a line a pair of runs.

FOLDER holds runs of tools/record_changes.py: each net with one fault, and its cure, which is the net as it is or in
another form. The true gain is the median step without the profiler, less that of the cure for as many samples, each
with the error of such a median, 8 times of 10; it is inside where that reaches the told interval.
Recordings of nets as they are under `CUDA_LAUNCH_BLOCKING=1` are read as `NET--blocking`. The tables in docs/advice.md
are this output.
"""

import sys
import tempfile
from dataclasses import dataclass
from math import hypot
from pathlib import Path
from statistics import median, stdev
from typing import Any, Final

from lumos_df.advice.job_advice import JobAdvice, advise
from lumos_df.advice.ranked_advice import Advice
from lumos_df.capture.publish import read_metadata
from lumos_df.trace.ingest import ingest

_BASE: Final = "base"
_ERROR_OF_MEDIAN: Final = 1.2816 * 1.2533
"""Of a normal distribution, 8 times of 10, in standard deviations over the root of how many there are."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A run with a fault, or as it is, its cure, and the rules that name it."""

    nets: str
    fault: str
    cure: str
    rules: str


PAIRS: Final = (
    Pair("llama gpt2 resnet50", "item_every_step", _BASE, "synchronisation"),
    Pair("llama bert", "item_every_layer", _BASE, "nan_checks synchronisation"),
    Pair("llama gpt2", "sleeping_loader", _BASE, "host_silence"),
    Pair("llama resnet50", "pageable_copy", _BASE, "copy_to_gpu"),
    Pair("llama gpt2", "optimizer_by_tensor", "fused_optimizer", "unfused_optimizer"),
    Pair("llama bert", "eager_attention", _BASE, "unfused_attention"),
    Pair("llama gpt2", "emptied_cache", _BASE, "synchronisation"),
    Pair("resnet50", "channels_first", _BASE, "convolution_layout"),
    Pair("gpt2 llama", "anomaly_detection", _BASE, "anomaly_detection"),
    Pair("gpt2", "asked_norms", _BASE, "parameter_loop synchronisation"),
    Pair("gpt2", "clipped_by_tensor", "clipped_by_list", "parameter_loop"),
    Pair("gpt2 resnet50", "average_by_tensor", "average_by_list", "parameter_loop"),
    Pair("gpt2", "saved_every_step", _BASE, "copy_to_host"),
    Pair("gpt2 bert", "logits_to_host", _BASE, "copy_to_host"),
    Pair("llama", "collected_garbage", _BASE, "host_silence"),
    Pair("llama vit", "extra_forward", _BASE, "validation"),
    Pair("llama", "explicit_mask", _BASE, "unfused_attention"),
    Pair("resnet50 vit", "loader_in_step", "loader_beside", "data_loader"),
    Pair("gpt2", "other_sizes", _BASE, "new_sizes"),
    Pair("gpt2", "uncached_casts", _BASE, "repeated_casts"),
    Pair("dlrm", "dense_tables", "sparse_tables", "dense_embedding_gradient"),
    Pair("gpt2", "decoded_again", "decoded", "growing_cat"),
    Pair("gpt2", "zeroed_gradients", _BASE, "cleared_gradients"),
    Pair("bert", _BASE, "tf32", "kernel_precision"),
    Pair("bert", _BASE, "dtype=bf16", "kernel_precision"),
    Pair("vit llama", "dtype=fp32", _BASE, "kernel_precision"),
    Pair("dlrm lstm", _BASE, "tf32", "kernel_precision"),
    Pair("llama gpt2", "recompute=full", _BASE, "recomputation"),
    Pair("llama gpt2", "micro_batch=1 gradient_accumulation=4", _BASE, "larger_micro_batch"),
    Pair("gpt2 llama", "micro_batch=2", _BASE, "larger_micro_batch"),
    Pair("vit", "micro_batch=16", _BASE, "larger_micro_batch"),
    Pair("resnet50", "micro_batch=32", _BASE, "larger_micro_batch"),
    Pair("gpt2", "vocab=50257", _BASE, "kernel_shapes"),
    Pair("gpt2 resnet50", _BASE, "graphed", "launch_bound"),
    Pair("llama gpt2", _BASE, "compiled", "fused_elementwise launch_bound"),
    Pair("llama gpt2 resnet50", _BASE, "fused_optimizer", "unfused_optimizer"),
    Pair("llama gpt2 resnet50", "blocking", _BASE, "blocking_launches"),
)
"""What was recorded."""


class Runs:
    """Runs of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._advised: dict[str, JobAdvice] = {}

    def step_ms(self, name: str) -> tuple[float, float, int]:
        """Return the median step of a run without the profiler, its error, and how many samples it takes."""
        told: dict[str, Any] = read_metadata(self._file(name))
        steps, sizes = [1e-6 * ns for ns in told["unprofiledBeforeNs"]], told["sizes"]
        error = _ERROR_OF_MEDIAN * stdev(steps) / len(steps) ** 0.5
        return median(steps), error, sizes["micro_batch"] * sizes.get("gradient_accumulation", 1)

    def advised(self, name: str) -> JobAdvice:
        """Return the advice on a run."""
        if name not in self._advised:
            with tempfile.TemporaryDirectory() as folder:
                ingest([self._file(name)], Path(folder) / "corpus", workers=1)
                (self._advised[name],) = advise(Path(folder) / "corpus")
        return self._advised[name]

    def there(self, *names: str) -> bool:
        """Return whether runs are there."""
        return all(self._file(name).exists() for name in names)

    def _file(self, name: str) -> Path:
        return self._folder / name.replace(" ", "+") / "rank0.json.gz"


def line(runs: Runs, net: str, pair: Pair) -> str:
    """Return the line of a pair: what was told of its fault, what is true, and what was told first."""
    fault, cure = f"{net}--{pair.fault}", f"{net}--{pair.cure}"
    (step, error, samples), (cured, of_cured, of_cure) = runs.step_ms(fault), runs.step_ms(cure)
    gain = step - cured * samples / of_cure
    noise = hypot(error, of_cured * samples / of_cure)
    worth = [advice for advice in runs.advised(fault).advice if advice.worthwhile]
    place = next((place for place, each in enumerate(worth, 1) if each.remedy.rule in pair.rules.split()), 0)
    named = worth[place - 1] if place else None
    inside = ""
    if named is not None:
        inside = "in" if named.low_ns <= 1e6 * (gain + noise) and 1e6 * (gain - noise) <= named.high_ns else "out"
    change = f"{net} {pair.fault}" if pair.cure == _BASE else f"{net} {pair.fault}, {pair.cure}"
    first = f"{worth[0].remedy.rule}, {_ms(worth[0])}" if worth and place != 1 else ""
    return f"| {change} | {step:.1f} | {gain:.2f} ± {noise:.2f} | {place or '-'} | {_ms(named)} | {inside} | {first} |"


def _ms(advice: Advice | None) -> str:
    if advice is None:
        return ""
    gain, low, high = (f"{1e-6 * ns:.2f}" for ns in (advice.gain_ns, advice.low_ns, advice.high_ns))
    return f"{gain} ({low} to {high})"


def main(folder: Path) -> None:
    """Print the table."""
    runs = Runs(folder)
    print("| run, cure | step | true gain | place | told | interval | first |\n|---|---|---|---|---|---|---|")
    for pair in PAIRS:
        for net in pair.nets.split():
            if runs.there(f"{net}--{pair.fault}", f"{net}--{pair.cure}"):
                print(line(runs, net, pair), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
