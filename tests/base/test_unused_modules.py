import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SAMPLES


@pytest.mark.parametrize("files", [1, 2])
def test_an_ingest_imports_no_pandas_where_it_is_installed(tmp_path: Path, files: int) -> None:
    seen = tmp_path / "seen"
    (tmp_path / "pandas.py").write_text(f"open({str(seen)!r}, 'w')\n")
    paths = sorted((SAMPLES / "gpu_generated").glob("rank*.json.gz"))[:files]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))}
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "lumos_df",
        "ingest",
        *paths,
        "--corpus",
        tmp_path / "corpus",
        "--workers",
        "2",
    ]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    assert not seen.exists()
