"""What names a place on this machine, and what a place elsewhere."""

import os
import re
from pathlib import Path
from typing import Any, Final

from lumos_df.base.errors import LumosError

_URL: Final = re.compile(r"(?i)[a-z][a-z0-9+.-]*://")
_EXTRAS: Final = {"s3": "s3", "gs": "gcs", "gcs": "gcs", "http": "https", "https": "https"}


def is_url(place: str) -> bool:
    """Return whether `place` names something outside the local file system."""
    return bool(_URL.match(place))


def local_path(place: str | os.PathLike[str]) -> Path:
    """Return the path of what is read or written. Raise `LumosError` for a URL: only traces and corpora have them."""
    text = os.fspath(place)
    if is_url(text):
        # A path of it would be a folder of this machine: ./s3:/bucket.
        raise LumosError(
            f"{text}: a URL where only a local path will do; name a local file or folder, "
            "and copy it from or to the store with the store's own tool"
        )
    check_name(text)
    return Path(place)


def check_name(place: str) -> None:
    """Raise `LumosError` for what cannot be the name of a corpus or an output.

    That is what `pathlib` makes of a URL, `s3:/bucket`: nobody means a folder `./s3:`. And bytes that are no text:
    DuckDB does not take them.
    """
    try:
        place.encode()
    except UnicodeEncodeError:
        raise LumosError(f"{place}: its name is not UTF-8, as those of corpora and outputs must be") from None
    scheme, _, rest = place.partition(":/")
    if scheme.lower() in _EXTRAS and not rest.startswith("/") and not Path(f"{scheme}:").exists():
        raise LumosError(f"{place}: a URL that lost a slash; write {scheme}://{rest}, as text and not as a path")


def file_system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path inside it. Raise `LumosError` where there is none."""
    import fsspec  # noqa: PLC0415  # only URLs need it, and it is slow to import

    protocol = url.split("://", 1)[0]
    try:
        files, inner = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        extra = _EXTRAS.get(protocol)
        remedy = f"pip install 'lumos-df[{extra}]'" if extra else "use a local file, s3://, gs:// or https://"
        raise LumosError(f"{url}: cannot open {protocol}:// ({error}); {remedy}") from None
    return files, inner
