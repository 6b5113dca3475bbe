"""Real traces, where they are at hand."""

import pytest

from tests.real import ABSENT, SETS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `real_trace` once a file; skip it, saying so, where there is none."""
    if "real_trace" in metafunc.fixturenames:
        files = [file for folder in SETS for file in sorted(folder.rglob("*.json.gz"))]
        absent = pytest.param(None, marks=pytest.mark.skip(reason=ABSENT))
        names = [f"{file.parent.name}/{file.name.split('.')[0]}" for file in files]
        metafunc.parametrize("real_trace", files or [absent], ids=names or ["absent"])
