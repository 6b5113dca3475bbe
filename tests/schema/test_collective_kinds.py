"""Kinds of collective: what their rows say of one another."""

from lumos_df.schema.collective_kinds import (
    COLLECTIVE_KINDS,
    COLLECTIVES,
    FITTED_COLLECTIVES,
    FITTED_ROW,
    GROWS,
    MODELLED_AS,
    POINT_TO_POINT,
    ROUNDS,
    TOGETHER,
)


def test_a_cost_function_has_parameters_and_is_its_own() -> None:
    for word, place in MODELLED_AS.items():
        assert FITTED_ROW[place] >= 0, word
        assert MODELLED_AS[COLLECTIVES[place]] == place
    fitted = [kind for kind in COLLECTIVE_KINDS if kind.fitted_as]
    assert {kind.word for kind in fitted} == {COLLECTIVES[place] for place in MODELLED_AS.values()}
    assert {kind.fitted_as for kind in fitted} == set(FITTED_COLLECTIVES)


def test_the_rows_are_those_of_nccl_tests() -> None:
    """nccl-tests, doc/PERFORMANCE.md, gather.cu and scatter.cu: busbw over algbw; what ranks hold before and after."""
    gathers, scatters = {"all_gather", "gather"}, {"reduce_scatter", "scatter"}
    assert {word for word, rounds in ROUNDS.items() if rounds == 2} == {"all_reduce"}
    assert {word for word, rounds in ROUNDS.items() if rounds == 1} == gathers | scatters | {"all_to_all"}
    assert {word for word, grows in GROWS.items() if grows > 0} == gathers
    assert {word for word, grows in GROWS.items() if grows < 0} == scatters


def test_what_ends_together_has_no_single_receiver() -> None:
    assert set(TOGETHER) == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"}
    assert set(POINT_TO_POINT) == {"send", "recv", "send_recv"}
