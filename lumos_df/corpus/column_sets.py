"""A Parquet file whose columns are encoded in sets, each set as soon as its rows are known.

pyarrow encodes the columns of a file one after another, in one thread (apache/arrow#50866). It makes the same of a
column in a file of few columns as in one of many, but for where it says that it lies. So sets are encoded as files in
memory, and their columns go into one file with their places moved: byte for byte what pyarrow writes of all at once.

Numbers of fields are those of parquet.thrift (apache/parquet-format); Thrift's compact protocol writes them.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

_MAGIC: Final = b"PAR1"
_LENGTH_BYTES: Final = 4
"""Of the metadata's length, which stands behind it."""
_NUM_ROWS, _ROW_GROUPS = 3, 4
"""Of FileMetaData."""
_COLUMNS, _TOTAL_BYTES, _GROUP_ROWS, _FILE_OFFSET, _COMPRESSED_BYTES = 1, 2, 3, 5, 6
"""Of RowGroup."""
_META_DATA: Final = 3
"""Of ColumnChunk."""
_CHUNK_BYTES: Final = 7
"""Of ColumnMetaData: the bytes of its pages and their headers."""
_OFFSETS: Final = (9, 11)
"""Of ColumnMetaData: where the pages of data and the dictionary begin; 0 where there are none, for want of rows."""

# Types of the protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _, _, _STRUCT = range(1, 13)
_VARINTS: Final = (_I16, _I32, _I64)
_WIDTHS: Final = {_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: 8}
"""Bytes of fields of other types; a truth is its type."""
_LONG_LIST: Final = 15
"""Stands where the size of a list would, which follows."""
_STOP: Final = b"\0"


class _Number(NamedTuple):
    """A number within encoded metadata."""

    start: int
    stop: int
    value: int


class _Chunk(NamedTuple):
    """A column of a row group."""

    metadata: bytes
    """The encoded ColumnChunk."""
    offsets: list[_Number]
    size: int
    """Bytes of its pages."""

    @property
    def offset(self) -> int:
        """Return where its pages begin."""
        return min((number.value for number in self.offsets if number.value), default=0)

    def moved(self, by: int) -> bytes:
        """Return the metadata of the same pages so many bytes further on."""
        parts, done = [], 0
        for start, stop, value in self.offsets:
            parts += [self.metadata[done:start], _signed(value + by if value else 0)]
            done = stop
        return b"".join((*parts, self.metadata[done:]))


class _Group(NamedTuple):
    """A row group."""

    chunks: list[_Chunk]
    total_bytes: int
    rows: int


class EncodedColumns:
    """Some columns of a table, encoded."""

    def __init__(self, names: Sequence[str], content: pa.Buffer, repeats: int = 1) -> None:
        self._content = memoryview(content)
        self.names = names
        first, *others = _Cursor(_metadata(self._content)).groups()
        self.groups = [first] * repeats + others

    def pages(self, chunk: _Chunk) -> memoryview:
        """Return the pages of a column of a row group."""
        return self._content[chunk.offset : chunk.offset + chunk.size]


def encode(
    columns: pa.Schema, row_groups: Iterable[pa.Table], options: dict[str, Any], *, repeats: int = 1
) -> EncodedColumns:
    """Encode columns.

    Args:
        columns: their names and types.
        row_groups: their rows, at least one table.
        options: those of pyarrow's writer.
        repeats: row groups of the file that are as the first, which is encoded once.
    """
    content = pa.BufferOutputStream()
    with pq.ParquetWriter(content, columns, **options) as writer:
        for rows in row_groups:
            writer.write_table(rows, max(rows.num_rows, 1))
    return EncodedColumns(columns.names, content.getvalue(), repeats)


def write(path: Path, columns: pa.Schema, sets: Sequence[EncodedColumns], options: dict[str, Any]) -> None:
    """Write sets, of which each column of a table is in one, as one file.

    Args:
        path: the file.
        columns: all columns, in the file's order.
        sets: what `encode` made of the same row groups.
        options: those that they were encoded with.

    Raises `OSError` where it cannot be written, `ValueError` where the sets are not the table's.
    """
    place = {name: (index, column) for index, part in enumerate(sets) for column, name in enumerate(part.names)}
    if sorted(columns.names) != sorted(name for part in sets for name in part.names):
        raise ValueError(f"{path.name}: its columns are not those of the sets")
    groups = list(zip(*(part.groups for part in sets), strict=True))
    described = []
    with path.open("wb") as file:
        file.write(_MAGIC)
        for group in groups:
            start = offset = file.tell()
            chunks, begins = [], []
            for name in columns.names:
                index, column = place[name]
                chunk = group[index].chunks[column]
                file.write(sets[index].pages(chunk))
                chunks.append(chunk.moved(offset - chunk.offset))
                begins.append(offset if chunk.offset else 0)
                offset += chunk.size
            described.append(_row_group(chunks, group, begins[0], offset - start))
        metadata = _file_metadata(columns, options, sum(group[0].rows for group in groups), described)
        file.write(metadata + len(metadata).to_bytes(_LENGTH_BYTES, "little") + _MAGIC)


def _row_group(chunks: Sequence[bytes], parts: Sequence[_Group], start: int, size: int) -> bytes:
    """Return a RowGroup of the columns' metadata; the first column's pages begin at `start`."""
    return b"".join(
        (
            *(_header(_COLUMNS, _LIST), _list_header(len(chunks), _STRUCT), *chunks),
            *(_header(_TOTAL_BYTES - _COLUMNS, _I64), _signed(sum(part.total_bytes for part in parts))),
            *(_header(_GROUP_ROWS - _TOTAL_BYTES, _I64), _signed(parts[0].rows)),
            *(_header(_FILE_OFFSET - _GROUP_ROWS, _I64), _signed(start)),
            *(_header(_COMPRESSED_BYTES - _FILE_OFFSET, _I64), _signed(size)),
            _STOP,
        )
    )


def _file_metadata(columns: pa.Schema, options: dict[str, Any], rows: int, row_groups: Sequence[bytes]) -> bytes:
    """Return the FileMetaData of row groups: that of a file without rows, with theirs."""
    content = pa.BufferOutputStream()
    pq.ParquetWriter(content, columns, **options).close()
    empty = _metadata(memoryview(content.getvalue()))
    cursor, spans = _Cursor(empty), {}
    for number, kind in cursor.fields():
        start = cursor.position
        cursor.skip(kind)
        spans[number] = start, cursor.position
    (first, last), (groups, after) = spans[_NUM_ROWS], spans[_ROW_GROUPS]
    of_groups = (_list_header(len(row_groups), _STRUCT), *row_groups)
    return b"".join((empty[:first], _signed(rows), empty[last:groups], *of_groups, empty[after:]))


def _metadata(content: memoryview) -> bytes:
    """Return the FileMetaData at the end of a file."""
    end = len(content) - len(_MAGIC) - _LENGTH_BYTES
    return bytes(content[end - int.from_bytes(content[end : end + _LENGTH_BYTES], "little") : end])


class _Cursor:
    """Reads what the compact protocol wrote."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def groups(self) -> list[_Group]:
        """Return the row groups of the FileMetaData that begins here."""
        groups = []
        for number, kind in self.fields():
            if number == _ROW_GROUPS:
                groups = [self._group() for _ in range(self._list_size())]
            else:
                self.skip(kind)
        return groups

    def _group(self) -> _Group:
        chunks: list[_Chunk] = []
        numbers = {}
        for number, kind in self.fields():
            if number == _COLUMNS:
                chunks = [self._chunk() for _ in range(self._list_size())]
            elif kind == _I64:
                numbers[number] = self._signed()
            else:
                self.skip(kind)
        return _Group(chunks, numbers[_TOTAL_BYTES], numbers[_GROUP_ROWS])

    def _chunk(self) -> _Chunk:
        start, size, places = self.position, 0, []
        for number, kind in self.fields():
            if number != _META_DATA:
                self.skip(kind)
                continue
            for inner, inner_kind in self.fields():
                before = self.position
                if inner in _OFFSETS:
                    value = self._signed()
                    places.append(_Number(before - start, self.position - start, value))
                elif inner == _CHUNK_BYTES:
                    size = self._signed()
                else:
                    self.skip(inner_kind)
        return _Chunk(self._data[start : self.position], places, size)

    def fields(self) -> Iterator[tuple[int, int]]:
        """Give number and type of each field of the struct that begins here; its value is read before the next."""
        number = 0
        while header := self._data[self.position]:
            self.position += 1
            number = number + (header >> 4) if header >> 4 else self._signed()
            yield number, header & 15
        self.position += 1

    def skip(self, kind: int) -> None:
        """Move behind a value."""
        if kind in _VARINTS:
            self._unsigned()
        elif kind == _BINARY:
            size = self._unsigned()
            self.position += size
        elif kind == _LIST:
            inner = self._data[self.position] & 15
            for _ in range(self._list_size()):
                self.skip(inner)
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        else:
            self.position += _WIDTHS[kind]

    def _list_size(self) -> int:
        size = self._data[self.position] >> 4
        self.position += 1
        return self._unsigned() if size == _LONG_LIST else size

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def _unsigned(self) -> int:
        value = shift = 0
        while (byte := self._data[self.position]) >= 128:
            value |= (byte & 127) << shift
            shift += 7
            self.position += 1
        self.position += 1
        return value | byte << shift


def _header(step: int, kind: int) -> bytes:
    """Return the header of a field whose number is `step` above the one before."""
    return bytes((step << 4 | kind,))


def _list_header(size: int, kind: int) -> bytes:
    if size < _LONG_LIST:
        return bytes((size << 4 | kind,))
    return bytes((_LONG_LIST << 4 | kind,)) + _unsigned(size)


def _signed(value: int) -> bytes:
    return _unsigned(value << 1 ^ value >> 63)


def _unsigned(value: int) -> bytes:
    data = bytearray()
    while value >= 128:
        data.append(value & 127 | 128)
        value >>= 7
    data.append(value)
    return bytes(data)
