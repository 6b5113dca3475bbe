"""The time of collectives: against their slow twin, the bandwidth of links, and each other."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.model.fitted import load, vector
from lumos_df.model.kernels.network import collective_seconds
from lumos_df.schema.collective_kinds import COLLECTIVES, FITTED_COLLECTIVES, FITTED_ROW, MODELLED_AS
from tests.model import kernels
from tests.model.kernels import GPUS, H100, STEPS, Gpu, Place

KINDS = tuple(STEPS)
LIKE = {"broadcast": "all_gather", "send": "all_to_all"}
GPU = st.sampled_from(GPUS)
PAYLOAD = st.floats(1, 1e11)


def seconds(kind: str, payload: float, group: int, per_node: int, gpu: Gpu, out_bandwidth: float = 50e9) -> float:
    fitted = load(gpu.name)
    tables = (fitted.scale_up_table(), vector(fitted.scale_out))
    return float(collective_seconds(MODELLED_AS[kind], payload, group, per_node, gpu.link, out_bandwidth, *tables))


def test_what_has_a_cost_function_has_a_row_of_parameters_and_the_twin_has_it() -> None:
    assert {COLLECTIVES[place] for place in MODELLED_AS.values()} == set(KINDS)
    rows = {kind: FITTED_COLLECTIVES[FITTED_ROW[MODELLED_AS[kind]]] for kind in KINDS}
    assert rows == {kind: LIKE.get(kind, kind) for kind in KINDS}
    assert MODELLED_AS["recv"] == MODELLED_AS["send_recv"] == MODELLED_AS["send"]


@settings(deadline=None)  # the first call compiles
@given(st.sampled_from(KINDS), PAYLOAD, st.integers(2, 1024), st.integers(1, 72), GPU, st.floats(1e9, 1e12))
def test_the_compiled_function_is_its_twin(
    kind: str, payload: float, group: int, per_node: int, gpu: Gpu, out_bandwidth: float
) -> None:
    fitted = load(gpu.name)
    place = Place(group, per_node, gpu.link, out_bandwidth)
    expected = kernels.collective(kind, payload, place, fitted.scale_up[LIKE.get(kind, kind)], fitted.scale_out)
    assert seconds(kind, payload, group, per_node, gpu, out_bandwidth) == pytest.approx(expected, rel=1e-9)


@settings(deadline=None)  # the first call compiles
@given(st.sampled_from(KINDS), PAYLOAD, st.integers(2, 1024), st.sampled_from((1, 2, 4, 8)), GPU)
def test_more_bytes_and_slower_links_never_take_less(
    kind: str, payload: float, group: int, per_node: int, gpu: Gpu
) -> None:
    one = seconds(kind, payload, group, per_node, gpu)
    assert seconds(kind, 2 * payload, group, per_node, gpu) >= one
    assert seconds(kind, payload, group, per_node, gpu, out_bandwidth=25e9) >= one


@settings(deadline=None)  # the first call compiles
@given(st.sampled_from(FITTED_COLLECTIVES), PAYLOAD, GPU)
def test_a_group_on_one_node_is_faster_than_across(kind: str, payload: float, gpu: Gpu) -> None:
    assert seconds(kind, payload, 8, 8, gpu) < seconds(kind, payload, 8, 1, gpu)


def test_nobody_to_talk_to_takes_no_time() -> None:
    assert seconds("all_reduce", 1e9, 1, 1, H100) == 0
    assert seconds("all_reduce", 0, 8, 8, H100) == 0


@pytest.mark.parametrize(
    ("gpu", "kind", "busbw"),
    [
        (GPUS[0], "all_reduce", 222e9),
        (GPUS[0], "all_gather", 205e9),
        (H100, "all_reduce", 445e9),
        (H100, "reduce_scatter", 336e9),
        (GPUS[2], "all_reduce", 704e9),
        (GPUS[2], "all_gather", 617e9),
    ],
)
def test_eight_gpus_reach_the_measured_bus_bandwidth(gpu: Gpu, kind: str, busbw: float) -> None:
    """nccl-tests' bus bandwidth at 512 MiB, in ai-dynamo/aiconfigurator 095f58a."""
    payload = 2**29
    found = STEPS[kind] * payload * 7 / 8 / seconds(kind, payload, 8, 8, gpu)
    assert found == pytest.approx(busbw, rel=0.05)


def test_many_nodes_are_bound_by_their_network() -> None:
    payload = 2**34
    ring = 2 * payload * 15 / 16 / 8 / 50e9
    assert ring < seconds("all_reduce", payload, 128, 8, H100) < 1.3 * ring
    assert payload / 50e9 < seconds("send", payload, 2, 1, H100) < 1.2 * payload / 50e9


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize(("nodes", "busbw"), [(2, 360e9), (4, 360e9), (8, 345e9), (16, 320e9)])
def test_a_ring_over_nodes_is_no_faster_than_its_links_between_them(kind: str, nodes: int, busbw: float) -> None:
    """Bus bandwidths of H100 with 400 Gb/s each: NVIDIA/nccl issue 1229; of two nodes, what no ring can pass."""
    group = 8 * nodes
    found = 2**33 * (group - 1) / group / seconds(kind, 2**33, group, 8, H100)
    assert found == pytest.approx(busbw, rel=0.08)
    assert found < 400e9


def test_an_all_reduce_of_two_nodes_passes_the_rate_of_their_links_and_of_more_nodes_does_not() -> None:
    """Two nodes of eight H200: 485 GB/s (nccl_collectives.csv of the measured runs); NVIDIA/nccl-tests issue 196."""
    two, four = (2 * 2**33 * (n - 1) / n / seconds("all_reduce", 2**33, n, 8, H100) for n in (16, 32))
    assert two > 400e9 > four
