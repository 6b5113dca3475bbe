"""What stands beside the code says what is true of it: version, licence, files that are there."""

import re

import pytest

import lumos_df
from tests.conftest import ROOT


def test_the_citation_is_of_this_version_and_licence() -> None:
    fields = dict(re.findall(r"^(\S+): (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE))
    assert fields["cff-version"] == "1.2.0"
    assert fields["version"] == lumos_df.__version__
    assert f'license = "{fields["license"]}"' in (ROOT / "pyproject.toml").read_text("utf-8")


def test_the_changelog_knows_this_version_and_what_comes_after() -> None:
    versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert versions[:2] == ["Unreleased", lumos_df.__version__]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "README.md"])
def test_files_that_a_page_names_are_there(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    links = re.findall(r"\]\((?!http)([^)#]+)", text)
    names = re.findall(r"\b(?:docs|tests|data|examples|sql)/[\w/.]*\w", text)
    missing = [name for name in [*links, *names] if not (ROOT / name).exists()]
    assert not missing
