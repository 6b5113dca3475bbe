"""Files on stores that are in a corpus already, by what their store says of them: they are not read again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from lumos_df.base.location import file_system, is_url
from lumos_df.corpus.object_store import tag_of
from lumos_df.schema import ORIGINS
from lumos_df.schema.arrow import arrow_schema

_WHOLE: Final = f"""
    SELECT url, etag, size_bytes
    FROM {ORIGINS.name} JOIN (SELECT trace_id, ranks_in_file FROM traces) USING (trace_id)
    GROUP BY url, etag, size_bytes
    HAVING count(*) = any_value(ranks_in_file)
"""


def version_of(path: str) -> tuple[str, int] | None:
    """Return a file's ETag, or when it was written, and its size.

    None of a local file, where the store does not say both, and where it refuses: who opens the file says why.
    """
    if not is_url(path):
        return None
    try:
        files, inner = file_system(path)
        info = files.info(inner)
    except Exception:  # noqa: BLE001  # every fsspec back end has exceptions of its own
        return None
    tag, size = tag_of(info), info.get("size")
    return (tag, int(size)) if tag and size is not None else None


def rows(url: str, version: tuple[str, int] | None) -> pa.Table:
    """Return the table `origins` of a trace: one row, none without a version."""
    columns = ([url], [version[0]], [version[1]]) if version else ([], [], [])
    return pa.table([*columns], schema=arrow_schema(ORIGINS))


def unchanged(corpus: Path, paths: Sequence[str]) -> set[str]:
    """Return which of some files are in the corpus with every rank, and look on their store as they did then."""
    from lumos_df.corpus.catalog import connect  # noqa: PLC0415  # DuckDB: most files are not on a store

    urls = set(filter(is_url, paths))
    with connect(corpus) as connection:
        whole = connection.execute(_WHOLE).fetchall()
    read = {(url, (etag, size)) for url, etag, size in whole if url in urls}
    return {url for url in {url for url, _ in read} if (url, version_of(url)) in read}
