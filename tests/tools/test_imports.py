import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SAMPLES
from tools.imports import PACKAGE, violations

HEAVY = ("duckdb", "fsspec", "numba", "numpy", "polars", "pyarrow", "torch")


def test_imports_run_one_way() -> None:
    assert violations() == []


@pytest.mark.parametrize(
    ("file", "code", "complaint"),
    [
        (
            "base/errors.py",
            "from lumos_df.schema import TABLES",
            "'base' may not import 'schema'; it may import nothing",
        ),
        ("trace/scan.py", "import lumos_df.graph.sweep", "'trace' may not import 'graph'"),
        ("graph/sweep.py", "from lumos_df import trace", "'graph' may not import 'trace'"),
        ("corpus/report.py", "def f():\n    from lumos_df.cli.app import app", "'corpus' may not import 'cli'"),
        ("trace/scan.py", "import torch.profiler", "torch is imported only in capture"),
        ("loose.py", "", "'loose' stands on no floor"),
    ],
)
def test_an_import_the_wrong_way_is_named(tmp_path: Path, file: str, code: str, complaint: str) -> None:
    package = tmp_path / "lumos_df"
    (package / file).parent.mkdir(parents=True)
    (package / file).write_text(code)
    (found,) = violations(package)
    assert complaint in found
    assert f"{package / file}:" in found


def test_the_right_way_is_not_named(tmp_path: Path) -> None:
    package = tmp_path / "lumos_df"
    (package / "trace").mkdir(parents=True)
    (package / "trace" / "ingest.py").write_text(
        "from lumos_df import __version__\nfrom lumos_df.base.errors import X\n"
    )
    assert violations(package) == []


def test_modules_that_import_one_another_are_named(tmp_path: Path) -> None:
    package = tmp_path / "lumos_df"
    (package / "trace").mkdir(parents=True)
    for name, other in (("scan", "tokens"), ("tokens", "simd"), ("simd", "scan")):
        (package / "trace" / f"{name}.py").write_text(f"def f():\n    from lumos_df.trace.{other} import g")
    (found,) = violations(package)
    assert found.startswith("modules import one another: lumos_df.trace.")
    assert all(f"lumos_df.trace.{name}" in found for name in ("scan", "tokens", "simd"))


@pytest.mark.parametrize(
    "start", ["import lumos_df", "import sys; sys.argv[1:] = ['--help']; from lumos_df.cli.main import main; main()"]
)
def test_nothing_heavy_is_imported_before_it_is_needed(start: str) -> None:
    assert _imported(start) == []


def test_sql_needs_duckdb_alone(sample_corpus: Path) -> None:
    arguments = ["sql", "FROM gpu_time", "--corpus", str(sample_corpus), "--format", "json"]
    code = f"import sys; sys.argv[1:] = {arguments}; from lumos_df.cli.main import main; main()"
    assert _imported(code) == ["duckdb"]


def test_a_report_is_written_without_what_builds_queries(sample_corpus: Path, tmp_path: Path) -> None:
    arguments = ["report", "--corpus", str(shutil.copytree(sample_corpus, tmp_path / "corpus"))]
    report = f"import sys; sys.argv[1:] = {[*arguments, '--output', str(tmp_path / 'report')]}"
    code = f"{report}; from lumos_df.cli.main import main; main()"
    assert "numpy" in _imported(code)  # of what to change, which is known from then on
    assert _imported(code) == []


def test_a_file_is_read_without_what_builds_queries(tmp_path: Path) -> None:
    arguments = ["ingest", str(SAMPLES / "gpu_generated/rank0.json.gz"), "--corpus", str(tmp_path / "corpus")]
    assert _imported(f"import sys; sys.argv[1:] = {arguments}; from lumos_df.cli.main import main; main()") == [
        "numpy",
        "pyarrow",
    ]


@pytest.mark.parametrize("command", [("describe",), ("estimate", "--set", "dp=8")])
def test_what_a_recorded_job_is_and_would_be_needs_no_data_frames(
    command: tuple[str, ...], sample_corpus: Path, tmp_path: Path
) -> None:
    corpus = shutil.copytree(sample_corpus, tmp_path / "corpus")
    arguments = [*command, "--job", "gpu_generated", "--corpus", str(corpus)]
    assert "polars" not in _imported(
        f"import sys; sys.argv[1:] = {arguments}; from lumos_df.cli.main import main; main()"
    )


def test_an_estimate_of_a_plan_needs_compiled_kernels_alone() -> None:
    arguments = ["estimate", "--model", "llama-3-8b", "--hardware", "h100-sxm", "--plan", "tp=8,batch=8"]
    code = f"import sys; sys.argv[1:] = {arguments}; from lumos_df.cli.main import main; main()"
    assert "numpy" in _imported(code)  # compiled, where this state of the sources has not been
    assert _imported(code) == ["numpy"]


def _imported(code: str) -> list[str]:
    """Return which of the heavy modules a fresh process has imported after running `code`."""
    report = (
        f"import atexit, sys; atexit.register(lambda: print('\\n' + ' '.join(m for m in {HEAVY} if m in sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{report}; {code}"], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    return done.stdout.splitlines()[-1].split()
