"""Modules captured as CUDA graphs, one for the forward pass and one for the backward."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tests.emulator.job import Captured
from tests.emulator.model import Function, Graph, Module, Operator, Work, functions


def captured(model: Module, what: Captured) -> Module:
    """Return the model as it runs with `what` of it captured."""
    if what == "model":
        return Module(model.kind, (_graphed(model),))
    if what == "layer":
        parts = (
            Module(part.kind, (_graphed(part),)) if isinstance(part, Module) and part.kind == "Block" else part
            for part in model.parts
        )
        return Module(model.kind, tuple(parts))
    return model


def _graphed(module: Module) -> Function:
    """Return what `torch.cuda.make_graphed_callables` makes of a module."""
    forward = functions(module)
    backward = forward[::-1]
    called = (operator for function in backward for operator in function.backward)
    return Function(
        wrappers=(),
        forward=Operator("Graphed", (), (_graph(function.forward for function in forward),)),
        node="GraphedBackward",
        backward=(Operator("GraphedBackward", (), (_graph(called),)),),
        output_bytes=sum(function.output_bytes for function in forward),
        gradient_bytes=sum(function.gradient_bytes for function in backward),
        parameters=tuple(shape for function in backward for shape in function.parameters),
    )


def _graph(operators: Iterable[Operator]) -> Graph:
    """Return the graph of all work of some operators. Each node has a name of its own, as compiled kernels have."""
    nodes = (work for operator in operators for work in _works(operator))
    return Graph(tuple(replace(work, name=f"{work.name}_node{place:03}") for place, work in enumerate(nodes)))


def _works(operator: Operator) -> Iterator[Work]:
    for called in operator.calls:
        if isinstance(called, Work):
            yield called
        elif isinstance(called, Operator):
            yield from _works(called)
