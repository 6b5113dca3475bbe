"""Columns that are encoded in sets: the file is, byte for byte, the one that pyarrow writes of all at once."""

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.corpus.column_sets import encode, write

OPTIONS: dict[str, Any] = {
    "use_dictionary": ["few", "text"],
    "column_encoding": {"climbs": "DELTA_BINARY_PACKED"},
    "write_statistics": ["climbs", "real"],
    "store_schema": False,
    "compression": "snappy",
}
COLUMNS = pa.schema(
    [
        pa.field("climbs", pa.int64(), nullable=False),
        pa.field("few", pa.int32()),
        pa.field("text", pa.dictionary(pa.int32(), pa.string())),
        pa.field("real", pa.float32()),
        pa.field("nothing", pa.int64()),
        *(pa.field(f"more{number}", pa.int16()) for number in range(12)),
    ]
)


def table(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    null = random.random(rows) < 0.3
    words = pa.array([f"word {number}" for number in range(200)])
    arrays = {
        "climbs": pa.array(np.cumsum(random.integers(0, 1 << 40, rows))),
        "few": pa.array(random.integers(0, 3, rows).astype(np.int32), mask=null),
        "text": pa.DictionaryArray.from_arrays(pa.array(random.integers(0, 200, rows).astype(np.int32)), words),
        "real": pa.array(random.random(rows).astype(np.float32), mask=null),
        "nothing": pa.nulls(rows, pa.int64()),
    }
    more = {f"more{number}": pa.array(random.integers(0, 9, rows).astype(np.int16)) for number in range(12)}
    return pa.table({**arrays, **more}, schema=COLUMNS)


def whole(groups: list[pa.Table]) -> bytes:
    content = pa.BufferOutputStream()
    with pq.ParquetWriter(content, COLUMNS, **OPTIONS) as writer:
        for group in groups:
            writer.write_table(group)
    return bytes(content.getvalue())


def of_names(names: list[str]) -> pa.Schema:
    return pa.schema([COLUMNS.field(name) for name in names])


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 2, 129, 3000]), min_size=1, max_size=4),
    sets=st.lists(st.integers(0, 3), min_size=len(COLUMNS), max_size=len(COLUMNS)),
)
def test_sets_of_columns_make_the_file_of_all_at_once(
    sizes: list[int], sets: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    groups = [table(rows, seed) for seed, rows in enumerate(sizes)]
    path = tmp_path_factory.mktemp("sets") / "table.parquet"
    of_sets = [[name for name, own in zip(COLUMNS.names, sets, strict=True) if own == one] for one in set(sets)]
    encoded = [encode(of_names(names), (group.select(names) for group in groups), OPTIONS) for names in of_sets]
    write(path, COLUMNS, encoded, OPTIONS)
    assert path.read_bytes() == whole(groups)


def test_a_row_group_that_repeats_is_encoded_once(tmp_path: Path) -> None:
    full, last = table(3000, 1), table(17, 2)
    once, always = ["climbs", "text", "real", *(f"more{number}" for number in range(12))], ["few", "nothing"]
    others = [table(3000, seed) for seed in (3, 4)]
    alike = [group.set_column(1, COLUMNS.field("few"), full["few"]) for group in (full, *others)]
    encoded = [
        encode(of_names(once), (group.select(once) for group in (*alike, last)), OPTIONS),
        encode(of_names(always), (group.select(always) for group in (full, last)), OPTIONS, repeats=3),
    ]
    write(tmp_path / "table.parquet", COLUMNS, encoded, OPTIONS)
    assert (tmp_path / "table.parquet").read_bytes() == whole([*alike, last])


def test_other_readers_find_the_rows(tmp_path: Path) -> None:
    groups = [table(3000, 5), table(200, 6)]
    path = tmp_path / "table.parquet"
    names = COLUMNS.names
    write(
        path,
        COLUMNS,
        [
            encode(of_names(part), (group.select(part) for group in groups), OPTIONS)
            for part in (names[1::2], names[::2])
        ],
        OPTIONS,
    )
    rows = [tuple(row.values()) for row in pa.concat_tables(groups).to_pylist()]
    assert pl.read_parquet(path).rows() == rows
    assert duckdb.read_parquet(str(path)).fetchall() == rows


@pytest.mark.parametrize("names", [COLUMNS.names[1:], [*COLUMNS.names, "few"]])
def test_a_column_that_no_set_has_or_two_have_is_refused(names: list[str], tmp_path: Path) -> None:
    first, second = names[:8], names[8:]
    encoded = [encode(of_names(part), [table(9, 1).select(part)], OPTIONS) for part in (first, second)]
    with pytest.raises(ValueError, match=r"table\.parquet: its columns are not those of the sets"):
        write(tmp_path / "table.parquet", COLUMNS, encoded, OPTIONS)
    assert not (tmp_path / "table.parquet").exists()
