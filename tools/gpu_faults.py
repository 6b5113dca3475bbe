"""What tools/record_changes.py does wrong to a net on purpose, and other forms of a run; it needs torch.

A fault changes what a run is made of, what its steps do beside the training, or both. The run without it tells what its
cure gains; where the cure is no training as it is, a form has it.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

_SLEEP_S: Final = 0.02
_PAGEABLE_BYTES: Final = 64 << 20
_TABLE_ROWS: Final = 400_000
_TABLE_WIDTH: Final = 32
_LOADED: Final = 16
"""Images of a batch that a loader makes."""
_DECODED: Final = 16
"""Tokens that are added to prompts."""


class Training(Protocol):
    """What a fault sees of a run."""

    net: nn.Module
    optimizer: Any
    given: Tensor
    device: torch.device
    loss: Callable[[nn.Module, Tensor], Tensor]
    kept: dict[str, Any]
    """What a fault keeps from step to step."""


Act = Callable[[Training], None]


def _nothing(_: Training) -> None:
    pass


def _plainly(_: Training) -> AbstractContextManager[object]:
    return nullcontext()


@dataclass(frozen=True)
class Fault:
    """What differs in a run."""

    nets: tuple[str, ...]
    """Nets that are recorded with it."""
    made: Act = _nothing
    """Once, when the net is made and its optimizer not yet."""
    before: Act = _nothing
    """Before each step."""
    differentiated: Act = _nothing
    """In each step between its backward passes and its optimizer."""
    after: Act = _nothing
    """After each step."""
    around: Callable[[Training], AbstractContextManager[object]] = _plainly
    """What the passes of a step run in."""
    instead: Act | None = None
    """What a step does instead of training."""
    optimizer: dict[str, bool] = field(default_factory=dict)
    """Options of the optimizer."""
    attention: str = "sdpa"
    """Of nets of `transformers`."""
    dropped_gradients: bool = True
    """Gradients are dropped, not set to zero."""
    graphed: bool = False
    """Steps are replayed from a CUDA graph."""
    compiled: bool = False
    """The net is compiled as a whole."""
    sparse: bool = False
    """Gradients are sparse, which AdamW does not take: SGD updates."""


def _look_everywhere(run: Training) -> None:
    for each in run.net.modules():
        if isinstance(each, nn.LayerNorm) or "RMSNorm" in type(each).__name__:
            each.register_forward_hook(_look)


def _look(_: nn.Module, __: object, out: Tensor) -> None:
    if bool(torch.isnan(out).any()):
        raise RuntimeError("not a number")


def _ask_loss(run: Training) -> None:
    run.kept["loss"].item()


def _sleep(_: Training) -> None:
    time.sleep(_SLEEP_S)


def _copy(run: Training) -> None:
    if "bytes" not in run.kept:
        run.kept["bytes"] = torch.empty(_PAGEABLE_BYTES, dtype=torch.uint8)
    run.kept["bytes"].to(run.device)


def _empty_cache(run: Training) -> None:
    run.kept.clear()
    torch.cuda.empty_cache()


def _channels_first(run: Training) -> None:
    run.net.to(memory_format=torch.contiguous_format)


def _detect(_: Training) -> AbstractContextManager[object]:
    detection: AbstractContextManager[object] = torch.autograd.set_detect_anomaly(True)
    return detection


def _ask_norms(run: Training) -> None:
    total = sum(each.grad.norm().item() ** 2 for each in run.net.parameters() if each.grad is not None)
    for each in run.net.parameters() if total**0.5 > 1e9 else ():
        each.grad.zero_()


def _clip(*, by_list: bool) -> Act:
    def clip(run: Training) -> None:
        nn.utils.clip_grad_norm_(run.net.parameters(), 1.0, foreach=by_list)

    return clip


def _average(*, by_list: bool) -> Act:
    def average(run: Training) -> None:
        weights = [each.detach() for each in run.net.parameters()]
        if "average" not in run.kept:
            run.kept["average"] = [each.clone() for each in weights]
        if by_list:
            torch._foreach_lerp_(run.kept["average"], weights, 0.001)
        else:
            for mean, each in zip(run.kept["average"], weights, strict=True):
                mean.mul_(0.999).add_(each, alpha=0.001)

    return average


def _save(run: Training) -> None:
    run.kept["saved"] = {name: each.to("cpu") for name, each in run.net.state_dict().items()}


def _keep_logits(run: Training) -> None:
    def keep(_: nn.Module, __: object, out: Any) -> None:
        run.kept["logits"] = out.logits.detach()

    run.net.register_forward_hook(keep)


def _logits_to_host(run: Training) -> None:
    run.kept.pop("logits").float().cpu()


def _collect(_: Training) -> None:
    gc.collect()


def _forward(run: Training) -> None:
    with torch.no_grad():
        run.loss(run.net, run.given)


def _mask(run: Training) -> None:
    kind = next(run.net.parameters()).dtype
    batch, tokens = run.given.shape
    mask = torch.zeros(batch, 1, tokens, tokens, dtype=kind, device=run.device)
    mask.masked_fill_(torch.ones_like(mask, dtype=torch.bool).triu(1), torch.finfo(kind).min)

    def loss(net: nn.Module, ids: Tensor) -> Tensor:
        told: Tensor = net(input_ids=ids, labels=ids, attention_mask=mask).loss
        return told

    run.loss = loss


def _sizes(run: Training) -> None:
    """Give another number of tokens in each step."""
    whole: Tensor = run.kept.setdefault("whole", run.given)
    turn = run.kept["turn"] = run.kept.get("turn", 0) + 1
    run.given = whole[:, : whole.shape[1] - 8 * (turn % 24)]


class _Crops(Dataset[tuple[Tensor, int]]):  # type: ignore[misc]  # torch is not installed where mypy runs
    """Random crops of images that numpy makes, as a data set that is augmented has them."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        """Return an image (3, 224, 224) and its class."""
        made = np.random.default_rng(place)
        image = made.integers(0, 255, (256, 256, 3), dtype=np.uint8)
        top, left = made.integers(0, 32, 2)
        crop = image[top : top + 224, left : left + 224, :: 1 if place % 2 else -1].astype(np.float32)
        return torch.from_numpy(np.ascontiguousarray(((crop - 118.0) / 58.0).transpose(2, 0, 1))), place % 1000


def _loader(workers: int) -> Act:
    def made(run: Training) -> None:
        several: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": 4} if workers else {}
        batch = len(run.given)
        run.kept["loader"] = iter(
            DataLoader(_Crops(), batch_size=batch, num_workers=workers, pin_memory=workers > 0, **several)
        )

    return made


def _load(run: Training) -> None:
    images, _ = next(run.kept["loader"])
    moved = images.to(run.device, non_blocking=True).to(run.given.dtype)
    run.given = moved.contiguous(memory_format=torch.channels_last)


def _uncached(run: Training) -> AbstractContextManager[object]:
    casts: AbstractContextManager[object] = torch.autocast(run.device.type, torch.bfloat16, cache_enabled=False)
    return casts


def _tf32(_: Training) -> AbstractContextManager[object]:
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    return nullcontext()


def _tables(*, sparse: bool) -> Act:
    def made(run: Training) -> None:
        tables = (nn.EmbeddingBag(_TABLE_ROWS, _TABLE_WIDTH, mode="sum", sparse=sparse) for _ in run.net.tables)
        run.net.tables = nn.ModuleList(tables).to(run.device)

    return made


def _decode(*, with_cache: bool) -> Act:
    def decode(run: Training) -> None:
        prompts = run.given[:, :64]
        run.net.eval()
        with torch.no_grad():
            run.net.generate(prompts, max_new_tokens=_DECODED, min_new_tokens=_DECODED, use_cache=with_cache)

    return decode


FAULTS: Final = {
    "item_every_step": Fault(("llama", "gpt2", "resnet50"), after=_ask_loss),
    "item_every_layer": Fault(("llama", "bert"), made=_look_everywhere),
    "sleeping_loader": Fault(("llama", "gpt2"), before=_sleep),
    "pageable_copy": Fault(("llama", "resnet50"), before=_copy),
    "optimizer_by_tensor": Fault(("llama", "gpt2"), optimizer={"foreach": False}),
    "eager_attention": Fault(("llama", "bert"), attention="eager"),
    "emptied_cache": Fault(("llama", "gpt2"), after=_empty_cache),
    "channels_first": Fault(("resnet50",), made=_channels_first),
    "anomaly_detection": Fault(("gpt2", "llama"), around=_detect),
    "asked_norms": Fault(("gpt2",), differentiated=_ask_norms),
    "clipped_by_tensor": Fault(("gpt2",), differentiated=_clip(by_list=False)),
    "average_by_tensor": Fault(("gpt2", "resnet50"), after=_average(by_list=False)),
    "saved_every_step": Fault(("gpt2",), after=_save),
    "logits_to_host": Fault(("gpt2", "bert"), made=_keep_logits, after=_logits_to_host),
    "collected_garbage": Fault(("llama",), after=_collect),
    "extra_forward": Fault(("llama", "vit"), after=_forward),
    "explicit_mask": Fault(("llama",), made=_mask),
    "loader_in_step": Fault(("resnet50", "vit"), made=_loader(0), before=_load),
    "other_sizes": Fault(("gpt2",), before=_sizes),
    "uncached_casts": Fault(("gpt2",), around=_uncached),
    "dense_tables": Fault(("dlrm",), made=_tables(sparse=False)),
    "decoded_again": Fault(("gpt2",), instead=_decode(with_cache=False)),
    "zeroed_gradients": Fault(("gpt2",), dropped_gradients=False),
}
"""What is wrong in a run, by its name."""
FORMS: Final = {
    "with_stack": Fault(("llama", "resnet50")),
    "with_memory": Fault(("llama", "moe")),
    "fused_optimizer": Fault(("llama", "gpt2", "resnet50"), optimizer={"fused": True}),
    "graphed": Fault(("gpt2", "resnet50"), optimizer={"capturable": True}, dropped_gradients=False, graphed=True),
    "tf32": Fault(("bert", "dlrm", "lstm"), around=_tf32),
    "clipped_by_list": Fault(("gpt2",), differentiated=_clip(by_list=True)),
    "average_by_list": Fault(("gpt2", "resnet50"), after=_average(by_list=True)),
    "loader_beside": Fault(("resnet50", "vit"), made=_loader(8), before=_load),
    "sparse_tables": Fault(("dlrm",), made=_tables(sparse=True), sparse=True),
    "decoded": Fault(("gpt2",), instead=_decode(with_cache=True)),
    "compiled": Fault(("llama", "gpt2"), compiled=True),
}
"""Other forms of a run that are as right as it, some the cure of a fault."""


def of(change: str) -> Fault:
    """Return the fault or form of a name; one that differs in nothing for a run as it is, or with other settings."""
    return (FAULTS | FORMS).get(change, Fault(()))


def names(faults: dict[str, Fault]) -> Iterator[tuple[str, str]]:
    """Return each net with each name that it is recorded with."""
    return ((net, name) for name, fault in faults.items() for net in fault.nets)
