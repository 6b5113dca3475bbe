"""The architecture page leads to files that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PLACES = [
    ROOT,
    ROOT / "docs",
    ROOT / "lumos_df",
    *(folder for folder in (ROOT / "lumos_df").rglob("*") if folder.is_dir() and folder.name != "__pycache__"),
]


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_0-9/]+(?:\.[a-z]+|/))`", PAGE))))
def test_every_file_that_the_page_names_is_there(name: str) -> None:
    assert any((place / name).exists() for place in PLACES)


def test_the_page_leads_twelve_requests_to_a_few_files_each() -> None:
    (table,) = re.findall(r"\| to add \| touch \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE)
    files = [re.findall(r"`[^`]+`", line.split("|")[2]) for line in table.splitlines()]
    assert len(files) == 12
    assert all(1 <= len(named) <= 4 for named in files)
