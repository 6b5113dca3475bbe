"""Thirty-two bytes at a time: the vector loads under the scanner.

Each function is one LLVM vector load and a few compares, so the same code becomes AVX2, AVX-512 or NEON.
Callers keep at least `PADDING` readable zero bytes behind their data.
"""

from typing import Final

from llvmlite import ir

from lumos_df.base.jit import intrinsic, numba_types

LANES: Final = 32
PADDING: Final = 64

_BYTE = ir.IntType(8)
_VECTOR = ir.VectorType(_BYTE, LANES)


def _splat(value: int):
    return ir.Constant(_VECTOR, [value] * LANES)


def _load(context, builder, types_of_args, args, kind):
    """Load `kind` from `args[0][args[1]:]`, aligned or not."""
    array = context.make_array(types_of_args[0])(context, builder, args[0])
    pointer = builder.gep(array.data, [args[1]])
    load = builder.load(builder.bitcast(pointer, kind.as_pointer()))
    load.align = 1
    return load


def _first(matches):
    """Make an intrinsic `f(buffer, i) -> offset of the first matching byte in buffer[i:i+32], or 32`."""

    def implementation(typing_context, buffer, i):
        def codegen(context, builder, signature, args):
            lanes = matches(builder, _load(context, builder, signature.args, args, _VECTOR))
            mask = builder.bitcast(lanes, ir.IntType(LANES))
            return builder.zext(builder.cttz(mask, ir.Constant(ir.IntType(1), 0)), ir.IntType(64))

        types = numba_types()
        return types.int64(buffer, types.int64), codegen

    return implementation


def _any_of(builder, vector, values):
    lanes = None
    for value in values:
        hit = builder.icmp_unsigned("==", vector, _splat(value))
        lanes = hit if lanes is None else builder.or_(lanes, hit)
    return lanes


# Inside a string: quote, backslash, a control character, or the first byte of a non-ASCII character (negative as int8).
first_special = intrinsic(
    _first(
        lambda builder, vector: builder.or_(
            _any_of(builder, vector, b'"\\'), builder.icmp_signed("<", vector, _splat(0x20))
        )
    )
)

# Between tokens: anything but white space; a zero byte stops too, so that padding ends the search.
first_token = intrinsic(
    _first(
        lambda builder, vector: builder.or_(
            builder.icmp_unsigned(">", vector, _splat(0x20)), builder.icmp_unsigned("==", vector, _splat(0))
        )
    )
)

# Inside a nested value: brackets, strings, the first letter of NaN and Infinity, the padding, and what is no ASCII.
first_structural = intrinsic(
    _first(
        lambda builder, vector: builder.or_(
            _any_of(builder, vector, b'"{}[]NI\0'), builder.icmp_signed("<", vector, _splat(0))
        )
    )
)


# After a number or a word: comma, closing bracket, white space, padding, or no ASCII (negative as int8).
first_delimiter = intrinsic(
    _first(
        lambda builder, vector: builder.or_(
            _any_of(builder, vector, b",}]"), builder.icmp_signed("<=", vector, _splat(0x20))
        )
    )
)


@intrinsic
def equal_bytes(typing_context, buffer, i, other, j):
    """Return how many of the next `LANES` bytes of two arrays are equal before the first that differ."""

    def codegen(context, builder, signature, args):
        ours = _load(context, builder, signature.args, args, _VECTOR)
        theirs = _load(context, builder, signature.args[2:], args[2:], _VECTOR)
        mask = builder.bitcast(builder.icmp_unsigned("!=", ours, theirs), ir.IntType(LANES))
        return builder.zext(builder.cttz(mask, ir.Constant(ir.IntType(1), 0)), ir.IntType(64))

    types = numba_types()
    return types.int64(buffer, types.int64, other, types.int64), codegen


@intrinsic
def byte_at(typing_context, buffer, i):
    """Return buffer[i] for an i that is not below 0; numba would ask, and count such an i from the end."""

    def codegen(context, builder, signature, args):
        return _load(context, builder, signature.args, args, _BYTE)

    types = numba_types()
    return types.uint8(buffer, types.int64), codegen


@intrinsic
def copy_lanes(typing_context, source, i, target, j):
    """Copy `LANES` bytes from source[i:] to target[j:]."""

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[2])(context, builder, args[2])
        pointer = builder.gep(array.data, [args[3]])
        lanes = _load(context, builder, signature.args, args, _VECTOR)
        builder.store(lanes, builder.bitcast(pointer, _VECTOR.as_pointer())).align = 1
        return context.get_dummy_value()

    types = numba_types()
    return types.none(source, types.int64, target, types.int64), codegen


@intrinsic
def load8(typing_context, buffer, i):
    """Return buffer[i:i+8] as one little-endian uint64."""

    def codegen(context, builder, signature, args):
        return _load(context, builder, signature.args, args, ir.IntType(64))

    types = numba_types()
    return types.uint64(buffer, types.int64), codegen


@intrinsic
def stay_apart(typing_context):
    """Keep the function that calls this out of its callers' bodies: for rare paths beside hot ones."""

    def codegen(context, builder, signature, args):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    types = numba_types()
    return types.none(), codegen
