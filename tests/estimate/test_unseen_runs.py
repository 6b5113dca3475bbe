"""The published runs that nothing was fitted to: each says where it is from, and the page has what was found."""

from typing import Any

import pytest

from lumos_df.model.plan import Plan
from lumos_df.model.software import Software
from tests.bench import unseen, unseen_memory
from tests.conftest import ROOT

SOURCES = unseen.sources()
MEMORY = unseen_memory.sources()


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source["name"])
def test_every_run_has_a_source_and_a_legal_plan(source: dict[str, Any]) -> None:
    assert all(page.startswith("https://") for page in source["pages"])
    Software.read(source["nearest"])
    for jobs in source["jobs"]:
        model, hardware = unseen.model_of(jobs), unseen.hardware_of(jobs)
        runs = {rest: said for figure in unseen.FIGURES for rest, said in jobs.get(figure, {}).items()}
        assert runs
        assert min(runs.values()) > 0.0
        for rest in runs:
            Plan.parse(f"{jobs['plan']},{rest}").check(model, hardware)


def test_a_network_of_the_page_is_shared_by_the_gpus_of_a_node() -> None:
    jobs = next(jobs for jobs in SOURCES[1]["jobs"] if "node_bytes_s" in jobs)
    assert (unseen.hardware_of(jobs).scale_out.bandwidth, unseen.hardware_of(jobs).scale_out.nics) == (6.25e9, 0.5)


def test_a_figure_is_turned_into_seconds_of_a_step() -> None:
    jobs = {"model": "llama-2-7b", "seq": 4096, "gpu": "h100-sxm", "plan": "dp=2,batch=4"}
    flops = 3.0 * unseen.model_of(jobs).flops_per_token()
    said = {"seconds": 0.5, "tokens": 4 * 4096 / 2 / 0.5, "tflops": 4 * 4096 / 2 / 0.5 * flops / 1e12}
    for figure, value in said.items():
        source = {"jobs": [{**jobs, figure: {"micro_batch=2": value}}]}
        assert next(unseen.tell(source, "generic")).measured_s == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["MaxText", "FlashAttention"])
def test_the_page_has_the_rows_of_now(name: str) -> None:
    source = next(source for source in SOURCES if source["name"].startswith(name))
    assert unseen.row(source)[0] in (ROOT / "docs" / "estimator.md").read_text("utf-8"), "python -m tests.bench.unseen"


@pytest.mark.parametrize("source", MEMORY, ids=lambda source: source["name"])
def test_every_run_with_memory_has_a_source_and_a_legal_plan(source: dict[str, Any]) -> None:
    assert all(page.startswith("https://") for page in source["pages"])
    Software.read(source["nearest"])
    for jobs in source["jobs"]:
        model, hardware = unseen.model_of(jobs), unseen.hardware_of(jobs)
        runs = unseen_memory.runs_of(jobs)
        assert min(runs.values()) > 0.0
        for rest in runs:
            Plan.parse(f"{jobs['plan']},{rest}").check(model, hardware)


def test_memory_of_an_allocator_is_held_against_what_it_gives() -> None:
    """A GPU has the context beside; a plan that did not fit is one more told wrongly where we say it fits."""
    job = {"model": "llama-2-7b", "seq": 4096, "gpu": "h100-sxm", "plan": "tp=2,dp=4,batch=4"}
    runs = {"memory": {"zero=1": 40}, "out_of_memory": ["sp"]}
    whole, given = (
        list(unseen_memory.tell({"whole_gpu": whole, "jobs": [{**job, **runs}]}, "megatron")) for whole in (True, False)
    )
    assert whole[0].estimated_bytes - given[0].estimated_bytes == Software.read("megatron").reserve_bytes
    assert whole[0].off == pytest.approx(whole[0].estimated_bytes / (40 * 2**30) - 1.0)
    assert [(each.fits, each.wrong) for each in whole] == [(True, False), (True, True)]


@pytest.mark.parametrize("source", MEMORY[1:], ids=lambda source: source["name"])
def test_the_page_has_the_memory_of_now(source: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "estimator.md").read_text("utf-8")
    assert unseen_memory.row(source)[0] in page, "python -m tests.bench.unseen_memory"
