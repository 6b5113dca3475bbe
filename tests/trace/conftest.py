"""Real traces, where they are at hand."""

import os
from pathlib import Path

import pytest

TRACES = Path(os.environ.get("LUMOS_TRACES", Path(__file__).parents[3] / "shared" / "traces"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `real_trace` once a file; skip it, saying so, where there is none."""
    if "real_trace" in metafunc.fixturenames:
        files = sorted(TRACES.rglob("*.json.gz"))
        absent = pytest.param(None, marks=pytest.mark.skip(reason=f"no real traces in LUMOS_TRACES ({TRACES})"))
        names = [f"{file.parent.name}/{file.name.split('.')[0]}" for file in files]
        metafunc.parametrize("real_trace", files or [absent], ids=names or ["absent"])
