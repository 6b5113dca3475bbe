"""How far off estimates are of plain PyTorch on one GPU: `python -m tests.bench.gpu_estimates [--runs]`.

The runs are those of tests/recordings, step and memory as they were measured without a profiler. What a model file and
a plan say of a run is all that an estimate has of it; two figures of the profiles are of kernels of the H100's.
`--table FILE` takes the nets of another `runs.csv` of an H200 (`python -m tools.record_changes FOLDER`).
"""

import argparse
import csv
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from lumos_df.calibrate.population import GENERIC
from lumos_df.estimate import estimate
from lumos_df.model.hardware import Hardware
from lumos_df.model.plan import Plan
from lumos_df.model.transformer import Model

RECORDINGS: Final = Path(__file__).parents[1] / "recordings"

_GPT: Final[dict[str, Any]] = {"biases": True, "vocab_multiple": 1}
_QWEN: Final[dict[str, Any]] = {
    "gated": True,
    "qk_norm": True,
    "head_dim": 64,
    "experts": 16,
    "top_k": 2,
    "vocab": 32000,
}
FIGURES: Final[dict[str, dict[str, Any]]] = {
    "llama": {"gated": True, "layers": 4, "hidden": 2048, "heads": 16, "kv_heads": 8, "ffn": 5632, "vocab": 32000},
    "gpt2": {**_GPT, "tied": True, "layers": 6, "hidden": 768, "heads": 12, "vocab": 50304},
    "bert": {**_GPT, "tied": True, "layers": 6, "hidden": 768, "heads": 12, "ffn": 3072, "vocab": 30522},
    "moe": {**_QWEN, "layers": 4, "hidden": 1024, "heads": 16, "kv_heads": 4, "ffn": 768, "expert_ffn": 768},
}
"""What a model file says of the nets of tools/gpu_nets.py. Those that it cannot say (encoder and decoder, images) are
left out; of BERT it cannot say that a token sees those behind it."""

_RUN: Final = {"llama": (4, 2048), "gpt2": (4, 512), "bert": (32, 256), "moe": (4, 1024)}
"""Sequences and tokens of each."""

_FORMS: Final = {"eager_attention": "flash=0", "recompute=full": "recompute=full", "compiled": ""}
"""What a plan says of a run beside its sizes."""

_PRECISION: Final = {"bf16": "bf16", "autocast": "bf16", "fp32": "fp32"}
"""What a plan calls the type that a run computes in."""


@dataclass(frozen=True)
class Run:
    """A run that was measured, and how it is said to an estimate."""

    kind: str
    """Its rows of the table: net, type and GPU."""
    change: str
    """What sets it apart in them."""
    model: Model
    hardware: str
    plan: str
    profile: str
    """The one of its software."""
    step_s: float
    """Median of its steps without a profiler."""
    held_bytes: float | None
    """The most that its tensors took at once; None where nobody asked."""


@dataclass(frozen=True)
class Told:
    """A run, and what an estimate says of it."""

    run: Run
    answers: dict[str, Any]

    @property
    def step_off(self) -> float:
        """Estimated over measured seconds, less one."""
        step: float = self.answers["iteration_time_s"]
        return step / self.run.step_s - 1.0

    @property
    def inside(self) -> bool:
        """Whether the measured step is within the interval."""
        return bool(self.answers["low_s"] <= self.run.step_s <= self.answers["high_s"])

    @property
    def memory_off(self) -> float:
        """Estimated over measured bytes of tensors, less one."""
        held = 1e9 * (self.answers["memory_gb"] - self.answers["reserve_gb"])
        return held / self.run.held_bytes - 1.0 if self.run.held_bytes else np.nan


def nets(table: Path) -> Iterator[Run]:
    """Give the runs of a runs.csv that a model file and a plan can say."""
    with table.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            net, change, dtype = row["net"], row["change"], row["dtype"]
            if net not in FIGURES or not (change == "base" or "=" in change or change in _FORMS):
                continue
            settings = dict(word.split("=") for word in change.split() if "=" in word and change not in _FORMS)
            settings.pop("dtype", "")
            size, seq = _RUN[net]
            size, seq = int(settings.pop("micro_batch", size)), int(settings.pop("seq", seq))
            count = int(settings.pop("gradient_accumulation", 1))
            figures = FIGURES[net] | {name: int(value) for name, value in settings.items()}
            if net == "moe" and "ffn" in settings:
                figures["expert_ffn"] = figures["ffn"]
            if net in {"gpt2", "bert"}:
                figures["learned_positions"] = seq if net == "gpt2" else 1024
            plan = f"micro_batch={size},batch={size * count},precision={_PRECISION[dtype]}"
            if _FORMS.get(change):
                plan += f",{_FORMS[change]}"
            profile = ("pytorch-compiled" if change == "compiled" else "transformers") + "-bf16" * (dtype == "bf16")
            model = Model(name=net, seq=seq, **figures)
            kind = f"{net}, {dtype}{', compiled' * (change == 'compiled')}, H200"
            step_s, held_bytes = 1e-3 * float(row["median_ms"]), float(row["peak_bytes"])
            yield Run(kind, change, model, "h200-sxm", plan, profile, step_s, held_bytes)


def grid() -> Iterator[Run]:
    """Give the runs of examples/train_gpt.py, of either GPU."""
    for folder, hardware in (("grid", "h100-sxm"), ("h200/grid", "h200-sxm")):
        for file in sorted((RECORDINGS / folder).glob("*/rank0.json.gz")):
            sizes = re.fullmatch(r"l(\d+)_w(\d+)_b(\d+)_s(\d+)_(\w+)", file.parent.name)
            assert sizes
            layers, hidden, size, seq = map(int, sizes.groups()[:4])
            figures = {**_GPT, "layers": layers, "hidden": hidden, "heads": hidden // 64, "vocab": 1024}
            model = Model(name="example", seq=seq, learned_positions=seq, **figures)
            with gzip.open(file) as stream:
                capture = json.load(stream)["lumosCapture"]
            step_s = 1e-9 * median(capture["unprofiledBeforeNs"] + capture["unprofiledAfterNs"])
            kind = f"example, bf16{', compiled' * (sizes[5] == 'compiled')}, {hardware.split('-')[0].upper()}"
            plan = f"micro_batch={size},batch={size},precision=bf16"
            profile = "pytorch-compiled-bf16" if sizes[5] == "compiled" else "pytorch-bf16"
            yield Run(kind, file.parent.name, model, hardware, plan, profile, step_s, None)


def tell(run: Run, profile: str) -> Told:
    """Estimate a run."""
    plan = Plan.parse(f"{run.plan},software={profile}")
    return Told(run, estimate(run.model, Hardware.read(run.hardware), plan).answers)


HEAD: Final = """\
| runs | number | `generic` | bias | within | memory | profile | mean error | bias | within | memory |
|---|---|---|---|---|---|---|---|---|---|---|
"""


def cells(told: list[Told]) -> str:
    """Return mean error of the step, its bias, how many are within the interval, and mean error of the memory."""
    step, memory = (100.0 * np.array([getattr(each, f"{what}_off") for each in told]) for what in ("step", "memory"))
    inside = 100.0 * np.mean([each.inside for each in told])
    held = f"{np.abs(memory).mean():.1f}" if np.isfinite(memory).all() else ""
    return f"{np.abs(step).mean():.1f} | {step.mean():+.1f} | {inside:.0f} | {held}"


def main() -> None:
    """Print the table, or every run of it."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--runs", action="store_true", help="every run")
    asked.add_argument("--table", type=Path, default=RECORDINGS / "h200/runs.csv", help="another runs.csv")
    options = asked.parse_args()
    told = [(tell(run, GENERIC), tell(run, run.profile)) for run in (*nets(options.table), *grid())]
    if options.runs:
        for pair in told:
            run = pair[0].run
            said = (
                f"{1e3 * each.answers['iteration_time_s']:8.2f} ms {100 * each.step_off:+5.0f} %"
                f"{'        ' if each.inside else ' outside'} {100 * each.memory_off:+5.0f} %"
                for each in pair
            )
            print(f"{run.kind:32} {run.change:38} {1e3 * run.step_s:8.2f} ms  {'  '.join(said)}  {run.profile}")
        return
    print(HEAD, end="")
    for kind in dict.fromkeys(each.run.kind for each, _ in told):
        some = [pair for pair in told if pair[0].run.kind == kind]
        generic, own = (cells(list(column)) for column in zip(*some, strict=True))
        print(f"| {kind} | {len(some)} | {generic} | `{some[0][1].run.profile}` | {own} |")


if __name__ == "__main__":
    main()
