"""Where things lie inside a corpus folder, and whether a folder is a corpus this version can read.

corpus/
  manifest.json                   format, maker, and the digest that traces are known by; written once
  catalog.duckdb                  views over the tables, for any DuckDB client
  catalog.hmac                    signature of the user who had it made; others have it made anew
  trace_id=<id>/<table>.parquet   the tables of one trace; a trace appears whole, by one rename
  trace_id=__HIVE_DEFAULT_PARTITION__/<table>.parquet   no rows: gives a table its columns before any trace has it
  .summaries/<state>/             tables and views of many traces in few files; made anew when a trace changes
  .staging/                       traces being written; never read
"""

import json
from pathlib import Path
from typing import Final

from lumos_df import __version__
from lumos_df.base.errors import CorpusError
from lumos_df.base.files import publish_file
from lumos_df.schema import FORMAT

MANIFEST: Final = "manifest.json"
CATALOG: Final = "catalog.duckdb"
SIGNATURE: Final = "catalog.hmac"
SUMMARIES: Final = ".summaries"
"""Folder of what reports of many traces ask first, as `summaries` writes it."""
STAGING: Final = ".staging"
EMPTY_PARTITION: Final = "trace_id=__HIVE_DEFAULT_PARTITION__"
DIGEST: Final = "xxh3_128"
"""What tells files apart, not what proves that nobody changed them: a tenth of SHA-256's time."""
OLD_DIGEST: Final = "sha256"
"""That of corpora whose manifest says none."""
ESTIMATE: Final = "estimate-"
"""How the id of an estimate starts: its folder has no traces."""


def table_glob(table: str) -> str:
    """Return the glob that matches every Parquet file of `table`, from the corpus folder."""
    return f"trace_id=*/{table}.parquet"


def trace_folder(corpus: Path, trace_id: str) -> Path:
    """Return the folder of one trace."""
    return corpus / f"trace_id={trace_id}"


def digest_of_files(corpus: Path) -> str:
    """Return by which digest of its file a trace is known, as its `trace_id` begins: `DIGEST`, or `sha256` of old.

    Raises:
        CorpusError: it is one that this version does not take.
    """
    stated = str(json.loads((corpus / MANIFEST).read_text("utf-8")).get("digest", OLD_DIGEST))
    if stated not in {DIGEST, OLD_DIGEST}:
        raise CorpusError(f"{corpus}: its traces are known by the digest '{stated}', a later version's; upgrade")
    return stated


def check(corpus: Path) -> None:
    """Raise `CorpusError` unless `corpus` is a corpus made by a version with the same format."""
    manifest = corpus / MANIFEST
    try:
        stated = json.loads(manifest.read_text("utf-8"))
        made_by, version = str(stated["made_by"]), int(stated["format"])
    except FileNotFoundError:
        raise CorpusError(
            f"{corpus}: no corpus here (no {MANIFEST}); make one with: lumos-df ingest TRACE... --corpus {corpus}"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise CorpusError(f"{manifest}: not a corpus manifest ({error}); ingest the traces into a new folder") from None
    if version != FORMAT:
        raise CorpusError(
            f"{corpus}: corpus format {version}, made by {made_by}; lumos-df {__version__} reads format {FORMAT}: "
            "ingest the traces again into a new folder"
        )


def write_manifest(corpus: Path) -> None:
    """Write the manifest of a new corpus in one step; a second writer's identical file may win, which is as good."""
    content = {"format": FORMAT, "made_by": f"lumos-df {__version__}", "digest": DIGEST}
    text = json.dumps(content, indent=2) + "\n"
    publish_file(corpus / MANIFEST, text.encode())
