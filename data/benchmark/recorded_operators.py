"""Operators as they were recorded, called with torch alone; `python recorded_operators.py` times those of CASES.

An operator is its name and its inputs in the order of its schema: a tensor is {"dims", "strides", "dtype"}, several are
{"list": [...]}, anything else {"value": ...}; null was not recorded and takes the schema's default.
"""

import argparse
import json
import math
import re
import sys
import time
from collections import Counter
from functools import partial
from math import inf, nan  # noqa: F401 - inputs of CASES
from statistics import median

import torch

CASES = []  # what `lumos-df generate --family` writes here

KEPT_SIZE = 8  # sizes up to this are kernels' windows, heads and the like; --small leaves them

# What takes another time, or refuses, where its inputs are zero, negative or no numbers: it reads fresh ones always.
OF_VALUES = re.compile(
    r"(_foreach_)?(r?sqrt|pow|exp|exp2|expm1|log\d*p?|a?sinh?|a?cosh?|a?tanh?|erfc?|erfinv)"
    r"|(?P<refuses>multinomial|bernoulli|normal|linalg_(?!vector_norm)\w+|cholesky\w*)"
)
# What keeps nothing for the backward pass while nobody can ask for a gradient: aten/src/ATen/native/mkldnn/RNN.cpp.
LOOKS_AT_GRAD_MODE = {"mkldnn_rnn_layer"}
LARGEST_CACHE = 64 << 20  # bytes; equal tensors that are more than this together are not found in a cache again


class Call:
    """What runs, and on what."""

    def __init__(self, run, make, turn=0, sources=(), operator=None):
        """`make` gives the arguments of a turn, positional and named, and where those stand that others may make.

        `operator` is the overload that runs, where there is no more around it than whether gradients can be asked for.

        Of each it is a list, the place in it and whose result it is, where that is known.
        """
        self.run, self.make, self.operator = run, make, operator
        self.instead = None  # the operator that stands for one that does not run here
        self.positional, self.named, self.reads = make(turn, sources)

    def __call__(self):
        return self.run(*self.positional, **self.named)

    def direct(self, changed):
        """Return the call without functions in between, longer than many gaps; `changed`: arguments come later."""
        # What autocast wraps has the attributes of the operator that it is around.
        run = self.run._op if isinstance(self.run, torch._ops.OpOverload) else self.run
        if changed:
            return lambda: run(*self.positional, **self.named)
        return partial(run, *self.positional, **self.named)

    def again(self, turn, sources=()):
        """Return the same with other tensors of the same kind, or with those that it was recorded with."""
        return Call(self.run, self.make, turn, sources, self.operator)


class Seen:
    """The tensors of one call: whose turn it is, how many of each kind there are, and where they come from.

    A source is below 0 for a tensor that is there in every step; else it says which result of which call it is.
    """

    def __init__(self, turn, values=False, sources=()):
        self.turn, self.values, self.of = turn, values, Counter()
        self.sources = iter(sources)

    def source(self):
        """Return the next tensor's source; None where it is not known."""
        return next(self.sources, None)


class Maker:
    """Makes inputs from a seed. Tensors of one call are different ones.

    Without an execution trace nobody knows which calls read the same tensor. The first calls of all operators are taken
    to share theirs, and so are the second ones: as layers have weights. There are not more than a cache cannot hold.
    """

    def __init__(self, device, small=1, seed=0):
        self.device, self.small = torch.device(device), small
        self.pool = {}
        self.state = None  # the tensors that are there in every step, where those were recorded
        self.trained = False  # whether the step has a backward pass
        # Each draws where its tensors are: a host draws and sends a billion of numbers in six seconds.
        self.numbers = {place: torch.Generator(place).manual_seed(seed) for place in {"cpu", self.device.type}}

    def size(self, size):
        """Return a size as --small has it: equal ones stay equal."""
        return size if self.small == 1 or abs(size) <= KEPT_SIZE else math.ceil(size / self.small)

    def call(self, operator):
        """Return a call of an operator, or of what stands for it. Raises where torch cannot."""
        by, otherwise = operator.get("by"), operator.get("otherwise")
        if by == "copy":
            return self.copy(operator)
        if by == "matmul":
            return self.matmul(operator)
        if by == "attention":
            return self.attention(operator)
        try:
            return self.one(operator | {"name": by or operator["name"]})
        except Exception:  # whatever an operator raises
            if not otherwise:
                raise
        call = self.one(otherwise)
        call.instead = otherwise["name"]
        return call

    def one(self, operator):
        """Return a call of an operator, under autocast where it does not run without."""
        try:
            return self.recorded(operator)
        except Exception as error:  # whatever an operator raises
            try:
                return self.mixed(operator)
            except Exception:  # the first error says more
                raise error from None

    def recorded(self, operator):
        """Return a call of the overload that fits the recorded types best."""
        name = operator["name"].removeprefix("aten::")
        packet = getattr(torch.ops.aten, name)
        overloads = [getattr(packet, overload) for overload in packet.overloads()]
        fits = [(misfit(overload._schema, operator["inputs"]), place) for place, overload in enumerate(overloads)]
        failure = None
        for cost, place in sorted(fits):
            if cost == inf:
                break
            overload = overloads[place]
            try:
                run = torch.enable_grad()(overload) if self.trained and name in LOOKS_AT_GRAD_MODE else overload
                call = Call(run, partial(self.arguments, overload._schema, name, operator), operator=overload)
                call()
            except Exception as error:  # whatever an operator raises, the next overload may take it
                failure = failure or error
                continue
            return call
        raise failure or ValueError("no overload takes the recorded inputs")

    def mixed(self, operator):
        """Return a call under autocast, which an operator needs whose tensors are of several types."""
        types = {each["dtype"] for each in tensors(operator["inputs"])} & {"float16", "bfloat16"}
        if not types:
            raise ValueError("its tensors are of one type")
        autocast = torch.autocast(self.device.type, dtype=getattr(torch, min(types)), cache_enabled=False)
        with autocast:
            call = self.recorded(operator)
        call.run, call.operator = autocast(call.run), None
        return call

    def arguments(self, schema, name, operator, turn, sources):
        """Return the positional and the named arguments of an overload, and where tensors stand that others may make.

        Where it is not known which these are, they are those that it only reads.
        """
        inputs = operator["inputs"]
        of_values = OF_VALUES.fullmatch(name)
        refuses = bool(of_values and of_values["refuses"])
        seen = Seen(turn, bool(of_values) and (refuses or not sources), () if refuses else sources)
        bound, positional, named, reads = self.below(operator), [], {}, []
        given = inputs + [None] * (len(schema.arguments) - len(inputs))
        from_calls = iter(() if refuses else sources)
        for argument, recorded in zip(schema.arguments, given):
            value = self.argument(argument, recorded, inputs, bound, seen)
            makers = [next(from_calls, None) for _ in in_order([recorded])] or [None]
            if argument.kwarg_only:
                named[argument.name] = value
                continue
            positional.append(value)
            written = bool(argument.alias_info and argument.alias_info.is_write)
            listed = value if isinstance(value, list) else positional
            first = 0 if isinstance(value, list) else len(positional) - 1
            reads += [
                (listed, first + place, maker)
                for place, maker in enumerate(makers)
                if first + place < len(listed) and (maker is not None if sources else not written)
            ]
        if name == "mkldnn_rnn_layer_backward":
            positional[-1] = self.workspace(positional)
        reads = [each for each in reads if is_data(each[0][each[1]], each[2]) and not seen.values]
        return positional, named, [each for each in reads if each[2] is None or each[2] >= 0]

    def workspace(self, positional):
        """Return what oneDNN's layer keeps for its backward pass: another torch keeps more and reads all."""
        reverse, mode, width, layers, biases, train, both, batches, first = positional[13:22]
        options = (reverse, batches, mode, width, layers, biases, both, first, train)
        with torch.enable_grad():
            return torch.ops.aten.mkldnn_rnn_layer(*positional[:7], *options)[3]

    def argument(self, argument, recorded, inputs, bound, seen):
        """Return one argument."""
        kind = str(argument.type)
        if "Device" in kind:
            return self.device
        if recorded is None or recorded.get("value", "") is None:
            return self.unknown(argument, kind, inputs)
        written = bool(argument.alias_info and argument.alias_info.is_write)
        if "list" in recorded:
            return [self.tensor(each, bound, written, seen) for each in recorded["list"]]
        if "dims" in recorded:
            tensor = self.tensor(recorded, bound, written, seen)
            if argument.name in ("offsets", "offset2bag", "bag_size"):
                tensor = self.bags(argument.name, tensor, inputs)
            return [tensor] if kind.startswith("List[") else tensor
        if "group" in argument.name and type(recorded["value"]) is int and inputs[0] and inputs[0].get("dims", ())[1:]:
            return math.gcd(self.size(recorded["value"]), self.size(inputs[0]["dims"][1]))  # it divides channels
        return self.scaled(recorded["value"], inputs)

    def bags(self, what, like, inputs):
        """Return where bags begin among the indices, in which one each index is, or how many one has: evenly."""
        sizes = [self.size(each["dims"][0]) for each in inputs[:2] if each and each.get("dims")] or [0]
        if what == "bag_size":
            return torch.full_like(like, max(1, sizes[-1] // max(1, len(like))))
        # A gradient, the first input of what reads `offset2bag`, has a row a bag.
        most = sizes[-1] if what == "offsets" else sizes[0]
        return (torch.arange(len(like)) * most // max(1, len(like))).to(like)

    def scaled(self, value, inputs):
        """Return a recorded number, or a list of them, as --small has it: also one that is a product of sizes."""
        if isinstance(value, list):
            return [self.scaled(each, inputs) for each in value]
        if type(value) is not int:
            return value
        for each in tensors(inputs) if self.small > 1 else ():
            for place in range(len(each["dims"]) - 1):
                if value > KEPT_SIZE and math.prod(each["dims"][place:]) == value:
                    return math.prod(map(self.size, each["dims"][place:]))
        return self.size(value)

    def unknown(self, argument, kind, inputs):
        """Return what stands for an argument that was not recorded."""
        first, *others = [each["dims"] for each in inputs if each and "dims" in each] or [[]]
        kernel = others[0] if others and len(others[0]) > 2 else []
        pooled = kernel[:2] == first[:2] and kernel > first  # what was pooled, and no kernel
        if argument.name == "padding" and kernel and not pooled:  # a convolution keeps the image's size
            return [size // 2 for size in kernel[2:]]
        if argument.has_default_value():
            return argument.default_value
        if kind.startswith("Optional") or kind == "Tensor":  # where it takes none, torch says so
            return None
        if kind == "List[int]":
            named = {"dims": list(range(len(first))), "output_size": [1, 1], "normalized_shape": [self.size(first[-1])]}
            named |= {"kernel_size": [2, 2], "stride": [2, 2], "padding": [0, 0], "dilation": [1, 1]}  # of pooling
            return named.get(argument.name) or [self.size(size) for size in first]
        stand_in = {"int": 0, "bool": False, "float": 1.0, "number": 1.0, "List[bool]": [True] * 3, "str": ""}
        if kind not in stand_in:
            raise ValueError(f"input {argument.name} was not recorded")
        return stand_in[kind]

    def below(self, operator):
        """Return what integers in the tensors stay below: the recorded bound, or the smallest size."""
        if "below" in operator:
            return max(1, self.size(operator["below"]))
        sizes = [self.size(size) for each in operator["inputs"] if each for size in each.get("dims", ())]
        return max(1, min(sizes, default=1))

    def tensor(self, recorded, bound, written, seen):
        """Return a tensor like the recorded one."""
        dims = [self.size(size) for size in recorded["dims"]]
        strides = self.strides(dims, recorded.get("strides"))
        source = seen.source()
        if self.state and self.state.holds(recorded, source):
            return self.state.tensor(recorded, source, dims, strides)
        where = [recorded.get(name) for name in ("at", "storage", "offset")]
        # What is written is read by other calls, too, but not as an index, and not by what takes another time then.
        apart = (written and "int" in recorded["dtype"]) or seen.values
        key = (*dims, *strides, recorded["dtype"], bound, apart, *where)
        if recorded.get("storage") is None:
            seen.of[key] += 1
            # Other integers may be none that the operator takes: a divisor of zero.
            turn = seen.turn if "float" in recorded["dtype"] else 0
            key = (*key, turn % (1 + LARGEST_CACHE // max(1, self.bytes(recorded))), seen.of[key])
        if key not in self.pool:
            self.pool[key] = self.new(dims, strides, recorded, bound)
        return self.pool[key]

    def strides(self, dims, recorded):
        """Return the recorded strides, or for other sizes those of the same order in memory."""
        if recorded and len(recorded) == len(dims) and self.small == 1:
            return recorded
        order = range(len(dims) - 1, -1, -1)
        if recorded and len(recorded) == len(dims):
            order = sorted(order, key=lambda place: recorded[place])
        strides, length = [0] * len(dims), 1
        for place in order:
            strides[place] = 0 if recorded and len(recorded) == len(dims) and recorded[place] == 0 else length
            length *= dims[place] if strides[place] else 1
        return strides

    def new(self, dims, strides, recorded, bound):
        """Return a tensor over a buffer that is just large enough, expanded and overlapping ones included."""
        dtype, at = getattr(torch, recorded["dtype"]), recorded.get("at")
        length = extent(dims, strides)
        device = self.device if at is None else torch.device("cpu")
        where = {"generator": self.numbers[device.type], "device": device}
        if dtype is torch.bool:
            buffer = torch.rand(length, **where) < 0.5
        elif dtype in (torch.float64, torch.int64) and not recorded["dims"]:
            # A number of Python's: 1 neither lets numbers grow nor shrink.
            buffer = torch.ones(length, dtype=dtype, device=device)
        elif dtype.is_floating_point or dtype.is_complex:
            buffer = torch.rand(length, **where).to(dtype)
        else:
            wide = bound > 127 and dtype in (torch.int32, torch.int64)
            buffer = torch.randint(bound if wide else min(bound, 127), (length,), **where).to(dtype)
        if at == "pinned" and self.device.type == "cuda":
            buffer = buffer.pin_memory()
        return buffer.as_strided(dims, strides)

    def copy(self, operator):
        """Return a copy of as many bytes as an operator's tensors have."""
        length = max(1, sum(self.bytes(each) for each in tensors(operator["inputs"])))
        key = ("copy", length)
        if key not in self.pool:
            self.pool[key] = torch.zeros((2, length), dtype=torch.uint8, device=self.device)
        source, target = self.pool[key]
        return Call(target.copy_, lambda *_: ([source], {}, []))

    def bytes(self, recorded):
        """Return the bytes of a tensor; an expanded one has those of what is there."""
        strides = recorded.get("strides") or [1] * len(recorded["dims"])
        elements = math.prod(self.size(size) for size, stride in zip(recorded["dims"], strides) if stride)
        return elements * torch.empty((), dtype=getattr(torch, recorded["dtype"])).element_size()

    def matmul(self, operator):
        """Return a square matrix product of as many FLOP."""
        side = self.size(max(1, round((operator["flops"] / 2) ** (1 / 3))))
        first = next((each for each in tensors(operator["inputs"]) if "float" in each["dtype"]), {})
        dtype = first.get("dtype", "float32")
        square = {"dims": [side, side], "dtype": "bfloat16" if dtype.startswith("float8") else dtype}
        pair = [self.new(square["dims"], [side, 1], square, 1) for _ in range(2)]
        return Call(torch.mm, lambda *_: (pair, {}, []))

    def attention(self, operator):
        """Return torch's attention over the first three tensors of real numbers."""
        seen = Seen(0)
        query, key, value = (
            self.tensor(each, 1, False, seen)
            for each in [each for each in tensors(operator["inputs"]) if "float" in each["dtype"]][:3]
        )
        if query.dim() == 3:  # (tokens of all sequences, heads, width)
            query, key, value = (each[None] for each in (query, key, value))
        if "flash_attn" in operator["name"] or len(operator["inputs"][0]["dims"]) == 3:  # tokens before heads
            query, key, value = (each.transpose(1, 2) for each in (query, key, value))
        attend = torch.nn.functional.scaled_dot_product_attention
        grouped = {"enable_gqa": query.shape[1] != key.shape[1]}
        call = Call(attend, lambda *_: ([query, key, value], grouped, []))
        call()
        return call


def is_data(value, maker):
    """Return whether a value is a tensor that may be another call's result: without a maker it holds no integers."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or maker is not None)


def extent(dims, strides):
    """Return how many elements lie between the first and the last one of a tensor, both included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(dims, strides)) if all(dims) else 0


def tensors(inputs):
    """Return all tensors of inputs, those in lists included."""
    given = [each for each in inputs if each]
    return [each for each in given if "dims" in each] + [each for many in given for each in many.get("list", ())]


def in_order(inputs):
    """Return all tensors of inputs in their order."""
    return [one for each in inputs if each for one in ([each] if "dims" in each else each.get("list", ()))]


def misfit(schema, inputs):
    """Return how badly an overload fits the recorded inputs; infinite where it cannot take them."""
    if len(inputs) > len(schema.arguments):
        return inf
    cost = len(schema.arguments) - len(inputs)
    for argument, recorded in zip(schema.arguments, inputs):
        kind = str(argument.type)
        if recorded is None or recorded.get("value", "") is None:
            cost += 0 if argument.has_default_value() or kind.startswith("Optional") else 2
        elif "dims" in recorded:
            cost += 0 if kind in ("Tensor", "Optional[Tensor]") else 4 if kind.startswith("List[Tensor") else inf
        elif "list" in recorded:
            cost += 0 if kind.startswith("List[") and "Tensor" in kind else inf
        elif "Tensor" in kind or ("List" in kind) != isinstance(recorded["value"], list):
            # A scalar where a tensor is wanted: torch wraps numbers, and one number stands for a list of equal ones.
            cost += inf if "Tensor" in kind else 3
        elif ("bool" in kind) != (type(recorded["value"]) is bool) and "number" not in kind:
            cost += 1
    return cost


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=1, metavar="K", help="divide all sizes by K")
    parser.add_argument(
        "--iterations", type=int, default=50, metavar="N", help="timed calls of each; the median counts"
    )
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    maker = Maker(device, options.small)
    unable = 0
    for case in CASES:
        line = {"operator": case["name"], "dims": [each["dims"] for each in tensors(case["inputs"])]}
        line |= {"instead": case["by"]} if "by" in case else {}
        try:
            line["median_us"] = timed(maker, case, options.iterations)
        except Exception as error:  # an operator that this torch does not know, or not on this device
            line["not_run"] = (str(error).splitlines() or ["unknown"])[0]
            unable += 1
        print(json.dumps(line | {"recorded_us": case.get("recorded_ns", 0) / 1e3}))
    if unable:
        sys.exit(f"{unable} of {len(CASES)} operators do not run with torch {torch.__version__} on {device}")


@torch.no_grad()
def timed(maker, case, iterations):
    """Return the median time of a call, us."""
    call, taken = maker.call(case), []
    for _ in range(5 + iterations):
        start = time.perf_counter_ns()
        call()
        if maker.device.type == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter_ns() - start)
    return median(taken[5:]) / 1e3


if __name__ == "__main__":
    main()
