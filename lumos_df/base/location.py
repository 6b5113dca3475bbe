"""What names a place on this machine, and what a place elsewhere."""

import os
import re
from pathlib import Path
from typing import Final

from lumos_df.base.errors import LumosError

_URL: Final = re.compile(r"(?i)[a-z][a-z0-9+.-]*://")


def is_url(place: str) -> bool:
    """Return whether `place` names something outside the local file system."""
    return bool(_URL.match(place))


def local_path(place: str | os.PathLike[str]) -> Path:
    """Return the path of a corpus, or of what is written. Raise `LumosError` for a URL: only traces are read there."""
    text = os.fspath(place)
    if is_url(text):
        # A path of it would be a folder of this machine: ./s3:/bucket.
        raise LumosError(
            f"{text}: a URL where only a local path will do; name a local file or folder, "
            "and copy it from or to the store with the store's own tool"
        )
    return Path(place)
