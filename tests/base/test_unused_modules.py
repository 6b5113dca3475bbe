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


def test_masked_arrays_are_imported_by_who_wants_one(tmp_path: Path) -> None:
    code = """
import sys
from lumos_df.base import unused_modules
unused_modules.leave_out()
import numpy, pyarrow
print(pyarrow.array(numpy.unique([2, 1, 2])).tolist(), "numpy.ma.core" in sys.modules)
masked = numpy.ma.masked_array([1, 2], [True, False])
print(pyarrow.array(masked).tolist(), isinstance(masked, numpy.ma.MaskedArray), numpy.ma.is_masked(masked))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "[1, 2] False\n[None, 2] True True\n"
