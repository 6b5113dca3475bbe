"""Tensors that are there in every step, where it was recorded which: weights, states of optimizers, inputs."""

import math

import torch
from recorded_operators import OF_VALUES, extent, in_order


class State:
    """Makes each such tensor once, by its number; calls read the whole of it or parts.

    What operators make of it, others read, and numbers that grow from one to the next end as infinite ones, of which
    some take many times as long. So it is what it is in a net: a weight keeps the size of what it is multiplied with,
    on both sides of zero, and what only an optimizer works on, whose root is asked for, is zero at first.
    """

    def __init__(self, maker, operators, calls, sources):
        """Learn which tensors change in place, which others read, and of which calls have parts."""
        self.maker, self.pool, self.first = maker, {}, {}
        self.changed, self.read, self.parts = set(), set(), set()
        lengths = {}
        for number, given in zip(calls, sources):
            listed, name = in_order(operators[number]["inputs"]), operators[number]["name"].removeprefix("aten::")
            if name.endswith("_"):
                self.changed |= {*given[: len(in_order(operators[number]["inputs"][:1]))]}
            elif not OF_VALUES.fullmatch(name):
                self.read |= {*given}
            for recorded, source in zip(listed, given):
                if self.holds(recorded, source):
                    dims = [maker.size(size) for size in recorded["dims"]]
                    length = extent(dims, maker.strides(dims, recorded.get("strides")))
                    if lengths.setdefault(source, length) != length:
                        self.parts.add(source)

    def holds(self, recorded, source):
        """Return whether a recorded tensor is there in every step, and is no index or mask."""
        return source is not None and source < 0 and "float" in recorded["dtype"]

    def tensor(self, recorded, source, dims, strides):
        """Return one.

        Where a part of one begins was not recorded: of a bucket of gradients those of one shape are the same, and
        others have a tensor of their own.
        """
        length = extent(dims, strides)
        place = (source, recorded["dtype"], recorded.get("at"), length)
        if place not in self.pool:
            self.pool[place] = self.maker.new([length], [1], recorded, 1)
            if source in self.changed:
                fan = math.prod(dims[1:]) if len(dims) > 1 else 0
                only_here = source not in self.read and source not in self.parts
                self.first[place] = 0.0 if only_here else math.sqrt(3 / fan) if fan else 1.0
        return self.pool[place].as_strided(dims, strides)

    def reset(self):
        """Give those that change in a step what they have before the first one."""
        for place, most in self.first.items():
            least = 0.0 if most == 1 else -most
            tensor = self.pool[place]
            numbers = self.maker.numbers[tensor.device.type]
            drawn = torch.rand(tensor.shape, generator=numbers, device=tensor.device) * (most - least) + least
            tensor.copy_(drawn)
