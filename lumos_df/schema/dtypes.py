"""Element types of tensors and the precisions that matrix products run in: each once, with all that is known of it.

A new precision is one row of `PRECISION_TABLE`, one of `ELEMENT_TYPES` and one code; kernels read the tuples below.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Precision:
    """A number format of matrix products."""

    name: str
    """How plans call it."""
    dtype: str
    """How `--set dtype=` calls it: torch's name, of 8 bits without the kind."""
    bytes: float
    """Of an element that a product reads."""
    written: str
    """Regular expression of how tables of measured runs write it, small letters."""
    aliases: tuple[str, ...] = ()
    """What else users call it."""
    fitted_as: str = ""
    """The precision whose fitted figures of kernels stand for it; empty: its own."""


PRECISION_TABLE: Final = (
    Precision("fp32", "float32", 4, r"^(fp32|float32)$"),
    Precision("fp16", "float16", 2, r"^(fp16|float16|half)$", ("half",), "bf16"),
    Precision("bf16", "bfloat16", 2, r"^(amp_)?(bf16|bfloat16)"),
    # MXFP8 and other kinds of FP8 differ in their scales only.
    Precision("fp8", "float8", 1, r"^(mx|amp_)?(fp8|float8)", ("mxfp8",)),
    # A half byte, and a scale of a byte for each 16 of them.
    Precision("fp4", "float4", 0.5625, r"^(nv|mx)?(fp4|float4)", ("nvfp4",)),
)

PRECISIONS: Final = tuple(precision.name for precision in PRECISION_TABLE)
"""Words for precisions; a record holds the place in this list."""

FP32, FP16, BF16, FP8, FP4 = range(len(PRECISIONS))
"""A precision's place, by PRECISIONS."""

FP8_BLOCK: Final = len(PRECISIONS)
"""Place behind them of kernels in fp8 with a scale for each 128 elements: the same precision, other kernels."""

OPERAND_BYTES: Final = tuple(float(precision.bytes) for precision in PRECISION_TABLE)
"""Bytes of an element that a matrix product reads, by PRECISIONS."""

# Below 16 bits only products run: what lies between them, weights and attention have 16.
STORED_BYTES: Final = tuple(max(size, 2.0) for size in OPERAND_BYTES)
"""Bytes of an activation between products, and of a weight, by PRECISIONS."""

ATTENTION_PRECISION: Final = tuple(place if size >= 2 else BF16 for place, size in enumerate(OPERAND_BYTES))
"""The precision that attention's products run in, by PRECISIONS."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """A type of a tensor's elements."""

    name: str
    """How torch calls it."""
    bytes: int
    """Of one element."""
    spellings: tuple[str, ...]
    """What else traces call it, small letters: C++ types, names in NCCL's arguments and in names of its kernels."""
    precision: str | None = None
    """The precision of products of such elements."""

    @property
    def floating(self) -> bool:
        """Whether it is a real floating-point number."""
        return "float" in self.name


ELEMENT_TYPES: Final = (
    ElementType("float32", 4, ("float", "f32", "c10::float"), "fp32"),
    ElementType("float64", 8, ("double", "f64")),
    ElementType("float16", 2, ("half", "f16", "c10::half", "__half"), "fp16"),
    ElementType("bfloat16", 2, ("bf16", "c10::bfloat16", "__nv_bfloat16"), "bf16"),
    ElementType("int64", 8, ("long", "long int", "i64", "int64_t")),
    ElementType("uint64", 8, ("u64", "unsigned long")),
    ElementType("int32", 4, ("int", "i32", "int32_t")),
    ElementType("uint32", 4, ("u32", "unsigned int")),
    ElementType("int16", 2, ("short", "short int")),
    ElementType("int8", 1, ("char", "signed char", "i8", "int8_t")),
    ElementType("uint8", 1, ("byte", "unsigned char", "u8", "uint8_t")),
    ElementType("bool", 1, ()),
    ElementType("float8_e4m3fn", 1, ("c10::float8_e4m3fn", "f8e4m3"), "fp8"),
    ElementType("float8_e5m2", 1, ("c10::float8_e5m2", "f8e5m2"), "fp8"),
    ElementType("float4_e2m1fn_x2", 1, ("c10::float4_e2m1fn_x2",), "fp4"),
    ElementType("complex64", 8, ("complexfloat", "c10::complex<float>")),
    ElementType("complex128", 16, ("complexdouble", "c10::complex<double>")),
)
"""All types that are told apart; the first of a precision stands for it where one has to be named."""

SPELLINGS: Final = {spelling: kind for kind in ELEMENT_TYPES for spelling in (kind.name, *kind.spellings)}
"""Every spelling, small letters."""

PRECISION_OF_WORD: Final = {
    word: precision for precision in PRECISION_TABLE for word in (precision.name, precision.dtype, *precision.aliases)
}
"""The precision that users name: `bf16`, `bfloat16`, `half`, ..."""

DTYPE_OF_WORD: Final = {
    word: next(kind.name for kind in ELEMENT_TYPES if kind.precision == precision.name)
    for word, precision in PRECISION_OF_WORD.items()
}
"""torch's name of an element type, by what users call a precision."""


def element_type(spelled: str) -> ElementType | None:
    """Return the element type that a trace spells, whatever its case; None when it is no known type."""
    return SPELLINGS.get(spelled.strip().lower())


def precision_of(dtype: str) -> Precision | None:
    """Return the precision of products of an element type by torch's name; None where it has none."""
    kind = element_type(dtype)
    return PRECISION_OF_WORD[kind.precision] if kind and kind.precision else None


def types_of(precision: str) -> tuple[str, ...]:
    """Return torch's names of the element types of a precision."""
    return tuple(kind.name for kind in ELEMENT_TYPES if kind.precision == precision)
