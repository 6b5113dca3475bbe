"""What the user says of a job over what its traces say."""

import pytest

from lumos_df.base.errors import QueryError
from lumos_df.structure.describe import parse_overrides


def test_dimensions_and_degrees_are_read() -> None:
    assert parse_overrides(["layers=40", " tp = 8", "vocab=9"]) == {"layers": 40, "tp": 8, "vocabulary": 9}


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["layer=4"], "--known layer=4: no dimension 'layer'; did you mean 'layers'?"),
        (["layers"], "--known layers: write a whole number of at least 1"),
        (["layers=0"], "--known layers=0: write a whole number of at least 1"),
        (["layers=99999999999999999999"], "--known layers=99999999999999999999: write a whole number of at least 1"),
        (["tp=2", "tp=4"], "--known tp=4: 'tp' is said twice"),
        (["tp=2,dp=4"], "--known tp=2,dp=4: each goes by itself: --known tp=2 --known dp=4"),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_of_its_option(texts: list[str], says: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse_overrides(texts, "--known")
    assert str(refused.value).startswith(says)
