"""Record XPlane files on a CPU: four steps of a small network, of which the first compiles.

From the root of the repository, each in an environment of its own, with jax 0.10.2, tensorflow-cpu 2.21.0, or torch and
torch_xla 2.9.0 installed:

    python tests/recipes/record_xplane.py jax|tensorflow|torch_xla FOLDER

writes FOLDER/plugins/profile/TIME/HOST.xplane.pb.
"""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

STEPS = 4


def jax(folder: str) -> None:
    """Record what `jax.jit` compiles."""
    module, np, profiler = (import_module(name) for name in ("jax", "jax.numpy", "jax.profiler"))
    slope = module.jit(module.grad(lambda weight, x: np.tanh(x @ weight).sum()))
    weight, x = np.ones((256, 256)), np.ones((64, 256))
    with profiler.trace(folder):
        for number in range(STEPS):
            with profiler.StepTraceAnnotation("train", step_num=number):
                weight -= 1e-3 * slope(weight, x)
                weight.block_until_ready()


def tensorflow(folder: str) -> None:
    """Record what `tf.function` traces."""
    tf = import_module("tensorflow")
    weight, x = tf.Variable(tf.ones((256, 256))), tf.ones((64, 256))

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(x @ weight))
        return weight.assign_sub(1e-3 * tape.gradient(loss, weight))

    compiled = tf.function(step)
    tf.profiler.experimental.start(folder)
    for number in range(STEPS):
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            compiled().numpy()
    tf.profiler.experimental.stop()


def torch_xla(folder: str) -> None:
    """Record what lazy tensors become."""
    os.environ["PJRT_DEVICE"] = "CPU"
    torch, xla = import_module("torch"), import_module("torch_xla")
    model, profiler = import_module("torch_xla.core.xla_model"), import_module("torch_xla.debug.profiler")
    device = xla.device()
    weight, x = torch.ones(256, 256, device=device, requires_grad=True), torch.ones(64, 256, device=device)
    profiler.start_trace(folder)
    for number in range(STEPS):
        with profiler.StepTrace("train", step_num=number):
            torch.tanh(x @ weight).sum().backward()
            with torch.no_grad():
                weight.sub_(1e-3 * weight.grad)
            weight.grad = None
            xla.sync(reset_scope=False)  # the scope is that of the step, which is still open
            model.wait_device_ops()
    profiler.stop_trace()


RECORDERS: dict[str, Callable[[str], None]] = {"jax": jax, "tensorflow": tensorflow, "torch_xla": torch_xla}

if __name__ == "__main__":
    RECORDERS[sys.argv[1]](sys.argv[2])
