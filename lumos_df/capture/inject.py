"""A training script that was never changed: count its optimizer's steps, and give it process groups that are fake.

Each function is called by `hook/sitecustomize.py` when the script has imported the module that it takes.
"""

import functools
from types import MethodType, ModuleType
from typing import Any

from lumos_df.capture import foreign_profilers
from lumos_df.capture.capture_settings import CaptureSettings


def count_steps(optimizer_module: ModuleType) -> None:
    """Record the steps of the first optimizer that steps (there may be several a training step).

    A step of it ends a training step. torch's own hook runs inside the range that the profiler draws around
    `Optimizer.step`, so it only finds the optimizer; from then on the end of its `step` is what counts.
    """
    recorders: list[Any] = []

    def first_step(optimizer: Any, _: object, __: object) -> None:
        if recorders:
            return
        from lumos_df.capture.recorder import Recorder  # noqa: PLC0415 - torch is not whole before

        recorder = Recorder(CaptureSettings.from_environment())
        recorders.append(recorder)
        step = optimizer.step

        @functools.wraps(step)
        def step_and_count(_: Any, *arguments: Any, **named: Any) -> Any:
            result = step(*arguments, **named)
            recorder.step()
            return result

        optimizer.step = MethodType(step_and_count, optimizer)  # a method, as schedulers of learning rates expect

    optimizer_module.register_optimizer_step_post_hook(first_step)


def watch_profilers(module: Any) -> None:
    """Know of the script's own profilers, before there can be one."""
    foreign_profilers.watch(module)


def fake_process_groups(module: Any) -> None:
    """Let every process group be torch's fake one, whose collectives do nothing, where a world is to be faked."""
    world = CaptureSettings.from_environment().fake_world
    if not world:
        return
    initialise, new_group = module.init_process_group, module.new_group

    @functools.wraps(initialise)
    def fake_initialise(*_: Any, **named: Any) -> None:
        from torch.testing._internal.distributed import fake_pg  # noqa: PLC0415 - registers the backend

        from lumos_df.capture.recorder import rank_of_this_process  # noqa: PLC0415 - torch is not whole before

        kept = {name: named[name] for name in ("timeout", "group_name") if name in named}
        initialise("fake", rank=rank_of_this_process(), world_size=world, store=fake_pg.FakeStore(), **kept)

    @functools.wraps(new_group)
    def fake_new_group(ranks: Any = None, *_: Any, **named: Any) -> Any:
        kept = {name: value for name, value in named.items() if name not in {"backend", "pg_options", "device_id"}}
        return new_group(ranks, backend="fake", **kept)

    module.init_process_group, module.new_group = fake_initialise, fake_new_group


def fake_gradients(module: Any) -> None:
    """Let DistributedDataParallel average gradients over a fake world: its own way wants results, a fake has none."""
    if not CaptureSettings.from_environment().fake_world:
        return
    initialise = module.DistributedDataParallel.__init__

    @functools.wraps(initialise)
    def make(self: Any, *arguments: Any, **named: Any) -> None:
        initialise(self, *arguments, **named)
        self.register_comm_hook(self.process_group, _average)

    module.DistributedDataParallel.__init__ = make


def _average(group, bucket):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - torch refuses other annotations
    """Reduce by the operator that says in the trace what it moves: that of `all_reduce` hides the type in a list."""
    import torch  # noqa: PLC0415 - whole by now

    gradients = bucket.buffer().div_(group.size())
    torch.ops._c10d_functional.all_reduce_(gradients, "sum", group.group_name)  # noqa: SLF001 - as DTensor calls it
    future: Any = torch.futures.Future()
    future.set_result(gradients)
    return future


def fake_votes(module: Any) -> None:
    """Let a pipeline's stages take their shapes from `input_args` and `output_args` over a fake world.

    From torch 2.13 on the stages vote on that first, and a fake receives no votes.
    """
    if not CaptureSettings.from_environment().fake_world:
        return
    stage = module.PipelineStage
    for name in ("_warmup_forward_vote", "_warmup_backward_result"):
        if hasattr(stage, name):
            setattr(stage, name, _vote)


def _vote(stage: Any, *_: object, **__: object) -> Any:
    import torch  # noqa: PLC0415 - whole by now

    return torch.ones(1, dtype=torch.int32, device=stage.device)
