"""Take the README's picture anew: `python -m tools.picture`; the page of the generated sample, as Chromium shows it."""

import contextlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from lumos_df.advice.job_advice import advise
from lumos_df.graph.matching import match_collectives
from lumos_df.graph.run import replay
from lumos_df.page.write import write
from lumos_df.trace.ingest import ingest

ROOT: Final = Path(__file__).parent.parent
PICTURE: Final = ROOT / "docs" / "page.png"

_SIZE: Final = "1200,1220"


def main() -> None:
    """Write the picture."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        sys.exit("no chromium on the PATH; on Debian install the package chromium")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        corpus, page = Path("corpus"), Path(folder) / "page.html"  # the page shows the corpus as it was named
        ingest(ROOT / "data" / "traces" / "gpu_generated", corpus)
        match_collectives(corpus)
        advise(corpus)
        replay(corpus, path=True, gains=True)
        write(corpus, page)
        shot = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        shot += [f"--user-data-dir={folder}/browser", f"--window-size={_SIZE}", "--virtual-time-budget=3000"]
        shot += [f"--screenshot={PICTURE}"]
        subprocess.run([*shot, page.as_uri()], check=True, capture_output=True)  # noqa: S603 - our own page


if __name__ == "__main__":
    main()
