"""Element types and precisions: literal spellings, and that no word means two things."""

import re

import pytest

from lumos_df.schema import dtypes
from lumos_df.schema.dtypes import ELEMENT_TYPES, PRECISION_OF_WORD, PRECISION_TABLE, element_type, precision_of


@pytest.mark.parametrize(
    ("spelled", "name", "size", "precision"),
    [
        ("c10::BFloat16", "bfloat16", 2, "bf16"),
        ("Half", "float16", 2, "fp16"),
        ("float", "float32", 4, "fp32"),
        (" double ", "float64", 8, None),
        ("long int", "int64", 8, None),
        ("c10::Float8_e5m2", "float8_e5m2", 1, "fp8"),
        ("signed char", "int8", 1, None),
        ("c10::complex<double>", "complex128", 16, None),
    ],
)
def test_a_trace_may_spell_a_type_in_many_ways(spelled: str, name: str, size: int, precision: str | None) -> None:
    kind = element_type(spelled)
    assert kind is not None
    assert (kind.name, kind.bytes, kind.precision) == (name, size, precision)


def test_what_is_no_type_is_none() -> None:
    assert element_type("TensorList") is element_type("") is None
    assert precision_of("None") is precision_of("int64") is None


def test_no_spelling_and_no_word_means_two_things() -> None:
    spellings = [spelling for kind in ELEMENT_TYPES for spelling in (kind.name, *kind.spellings)]
    words = [word for each in PRECISION_TABLE for word in {each.name, each.dtype, *each.aliases}]
    assert sorted(spellings) == sorted(set(spellings))
    assert sorted(words) == sorted(set(words)) == sorted(PRECISION_OF_WORD)
    assert all(word == word.lower() for word in (*spellings, *words))


def test_runs_are_told_by_the_words_that_tables_use() -> None:
    written = {
        "fp32": ("fp32", "float32"),
        "fp16": ("fp16", "half", "float16"),
        "bf16": ("bf16", "amp_bfloat16", "bf16-mixed"),
        "fp8": ("fp8", "mxfp8", "amp_fp8", "float8_e4m3"),
        "fp4": ("nvfp4", "mxfp4", "fp4"),
        None: ("tf32", "int8"),
    }
    for name, words in written.items():
        for word in words:
            assert [each.name for each in PRECISION_TABLE if re.search(each.written, word)] == ([name] if name else [])


def test_below_sixteen_bits_only_products_run() -> None:
    """Micikevicius et al. 2022 (arXiv 2209.05433), 3: what is between products, and attention, stay in 16 bits."""
    by_name = {name: place for place, name in enumerate(dtypes.PRECISIONS)}
    columns = (dtypes.OPERAND_BYTES, dtypes.STORED_BYTES, dtypes.ATTENTION_PRECISION)
    assert [column[by_name["fp8"]] for column in columns] == [1, 2, by_name["bf16"]]
    for name in ("fp32", "fp16", "bf16"):
        assert columns[0][by_name[name]] == columns[1][by_name[name]]
        assert columns[2][by_name[name]] == by_name[name]
