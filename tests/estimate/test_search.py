"""Searches of a grid: against estimates one by one, against slow ways of ranking, and when they are stopped."""

import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumos_df.base.errors import LumosError
from lumos_df.base.runner import Engine
from lumos_df.estimate.answer import ANSWERS
from lumos_df.estimate.configuration import estimate
from lumos_df.estimate.grid import Grid
from lumos_df.estimate.ranking import fastest, pareto_front
from lumos_df.estimate.search import STRETCH, Found, Search
from lumos_df.model.kernels.legality import violated
from lumos_df.model.plan import PLAN_COLUMNS, Plan
from lumos_df.model.rules import RULES
from lumos_df.schema.rankings import RankBy

SMALL = Grid.make(
    ["llama-3-8b", "mixtral-8x7b"],
    ["h100-sxm", "v100-sxm2-32"],
    [
        (
            "tp=1|2|3|8,pp=1|2|4,vp=1|2,gpus=16|24|64,batch=64,mbs=1|8,recompute=none|full,precision=fp16|bf16,"
            "schedule=1f1b|interleaved|zb-h1|gpipe"
        ),
        "dp=8|16,batch=64,schedule=fsdp,zero=2|3,precision=fp16,software=torchtitan",
    ],
)
LARGE = Grid.make(
    ["llama-3-8b"],
    ["h100-sxm"],
    [
        (
            "tp=1|2|4|8,pp=1|2|4|8,cp=1|2,gpus=32|64|128|256,batch=256|512|768,mbs=1|4,sp=0|1,zero=0|3,"
            "recompute=none|full,flash=0|1,overlap_tp=0|1,overlap_dp=0|1,precision=fp16|bf16|fp8"
        )
    ],
)


@pytest.fixture(scope="module")
def everything() -> pl.DataFrame:
    """Every legal row of the small grid."""
    return Search(SMALL, where="true", top=len(SMALL)).run().best.sort("number")


@pytest.fixture(scope="module")
def large() -> Found:
    return Search(LARGE).run()


def test_a_row_is_the_single_estimate_bit_for_bit(everything: pl.DataFrame) -> None:
    names = [column.name for column in PLAN_COLUMNS]
    for row in everything.sample(60, seed=1).to_dicts():
        plan = Plan(**{name: row[name] for name in names})
        single = estimate(row["model"], row["hardware"], plan)
        assert {name: row[name] for name, _ in ANSWERS} == single.answers


def test_what_is_refused_is_counted_by_the_first_rule_that_it_breaks(everything: pl.DataFrame) -> None:
    found = Search(SMALL).run()
    stretch = SMALL.stretch(0, len(SMALL))
    jobs = stretch.jobs
    models, gpus = ([made.row() for made in each] for each in (jobs.models, jobs.hardware))
    expected: Counter[str] = Counter()
    for row in range(len(SMALL)):
        if stretch.uneven[row]:
            expected["gpus"] += 1
            continue
        broken = int(violated(jobs.plans[row], models[jobs.model_of[row]], gpus[jobs.hardware_of[row]]))
        if broken:
            expected[RULES[(broken & -broken).bit_length() - 1].field] += 1
    assert {field: each.count for field, each in found.refused.items()} == expected
    assert found.configurations == len(SMALL)
    assert found.legal == len(everything)
    assert found.refused["tp"].example == "llama-3-8b, tp = 3: does not divide the model's 32 heads"
    assert found.refused["gpus"].example == "llama-3-8b, gpus: no multiple of tp * pp * cp"
    assert "v100-sxm2-32 has no bf16" in found.refused["precision"].example


def test_the_filter_keeps_what_meets_it(everything: pl.DataFrame) -> None:
    found = Search(SMALL, where="fits AND gpus <= 16 AND schedule = 'zb-h1' AND NOT sequence_parallel", top=1000).run()
    kept = everything.filter(
        pl.col("fits") & (pl.col("gpus") <= 16) & (pl.col("schedule") == "zb-h1") & ~pl.col("sequence_parallel")
    )
    assert found.kept == len(kept) > 0
    assert found.best.equals(kept.sort("iteration_time_s", "number"))


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("fitz", "filter 'fitz': .*fitz"),
        ("gpus", "filter 'gpus': .*Boolean"),
        ("gpus >", "filter 'gpus >'"),
        ("gpus > schedule", "cannot compare string"),
    ],
)
def test_a_filter_that_is_no_condition_is_refused(where: str, why: str) -> None:
    with pytest.raises(LumosError, match=why):
        Search(SMALL, where=where).run()


ROWS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6), st.sampled_from([8, 16, 64])), max_size=40)


@settings(deadline=None)  # the first example compiles
@given(ROWS)
def test_the_front_is_what_nothing_beats(rows: list[tuple[int, int, int]]) -> None:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    frame = pl.DataFrame(
        {
            "number": np.arange(len(rows)),
            "iteration_time_s": np.array(columns[0], np.float64),
            "memory_gb": np.array(columns[1], np.float64),
            "gpus": np.array(columns[2], np.int64),
        }
    )
    expected = [
        place
        for place, row in enumerate(rows)
        if row not in rows[:place]
        and not any(other != row and all(a <= b for a, b in zip(other, row, strict=True)) for other in rows)
    ]
    assert sorted(pareto_front(frame)["number"].to_list()) == expected
    ordered = sorted(range(len(rows)), key=lambda place: (rows[place][0], place))
    assert fastest(frame, 5)["number"].to_list() == ordered[:5]


def test_stretches_are_one_grid(large: Found) -> None:
    assert large.configurations == len(LARGE) > 2 * STRETCH
    parts = [Search(LARGE).run(part=(part, 3)) for part in range(3)]
    assert sum(part.configurations for part in parts) == len(LARGE)
    assert sum(part.kept for part in parts) == large.kept
    together = pl.concat([part.best for part in parts])
    assert fastest(together, 10).equals(large.best)
    front = Search(LARGE, pareto=True).run().best
    every = Search(LARGE, top=len(LARGE)).run().best
    assert front.equals(pareto_front(every))


def test_a_stopped_search_goes_on_where_it_was(large: Found, tmp_path: Path) -> None:
    search = Search(LARGE, folder=tmp_path / "rows")
    first = search.run()
    files = sorted((tmp_path / "rows").glob("*.parquet"))
    assert len(files) == -(-len(LARGE) // STRETCH)
    stored = pl.concat([pl.read_parquet(file) for file in files])
    assert len(stored) == large.kept
    assert stored["number"].is_sorted()
    written = {file: file.stat().st_mtime_ns for file in files}
    files[1].unlink()
    again = search.run()
    after = {file: file.stat().st_mtime_ns for file in files}
    assert [file for file in files if written[file] != after[file]] == [files[1]]
    for found in (first, again):
        assert found.best.equals(large.best)
        assert (found.configurations, found.kept, found.refused) == (
            large.configurations,
            large.kept,
            large.refused,
        )


def test_a_folder_of_which_another_job_only_begins_to_say_whose_it_is_is_taken(tmp_path: Path) -> None:
    draft = tmp_path / ".grid.json.01234567"
    draft.touch()
    assert Search(SMALL, folder=tmp_path).run().configurations == len(SMALL)
    assert not draft.exists()


def test_another_search_is_refused_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    Search(SMALL, folder=folder).run()
    with pytest.raises(LumosError, match=r"rows of another search \(other filter\)"):
        Search(SMALL, where="true", folder=folder).run()
    other = Grid.make(["llama-3-8b", "mixtral-8x7b"], ["h100-sxm"], ["tp=1"])
    with pytest.raises(LumosError, match=r"\(other hardware, software, plans\)"):
        Search(other, folder=folder).run()
    (folder / "grid.json").write_text("{")
    with pytest.raises(LumosError, match=r"grid.json: does not read"):
        Search(SMALL, folder=folder).run()
    (folder / "grid.json").unlink()
    with pytest.raises(LumosError, match="not empty, and no search's"):
        Search(SMALL, folder=folder).run()


def test_a_file_that_was_damaged_is_named(tmp_path: Path) -> None:
    search = Search(SMALL, folder=tmp_path / "rows")
    search.run()
    (tmp_path / "rows" / "part-000000.parquet").write_bytes(b"no parquet")
    with pytest.raises(LumosError, match=r"part-000000\.parquet: does not read"):
        search.run()


ENGINES = [
    Engine.PROCESSES,
    pytest.param(
        Engine.RAY, marks=pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: the extra 'ray'")
    ),
]


@pytest.mark.filterwarnings("ignore")  # Ray's own, of many kinds
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_finds_the_same(engine: Engine, large: Found, tmp_path: Path) -> None:
    found = Search(LARGE, folder=tmp_path / "rows").run(engine=engine, workers=2)
    assert found.best.equals(large.best)
    assert (found.configurations, found.kept, found.refused) == (large.configurations, large.kept, large.refused)
    assert json.loads((tmp_path / "rows" / "grid.json").read_text())["filter"] == "fits"


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: the extra 'ray'")
@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "here:there"])
def test_a_cluster_that_is_not_there_is_named(address: str) -> None:
    with pytest.raises(LumosError, match=f"no cluster at '{address}'"):
        Search(SMALL).run(engine=Engine.RAY, address=address)


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_remedy_is_named() -> None:
    with pytest.raises(LumosError, match=r"pip install 'lumos-df\[ray\]'"):
        Search(SMALL).run(engine=Engine.RAY)


def test_plans_are_ranked_by_what_is_expected_of_them(everything: pl.DataFrame) -> None:
    """Slow messages cost the first most, more than it is faster by."""
    rows = everything.head(3).with_columns(
        iteration_time_s=pl.Series([1.0, 2.0, 3.0]), expected_s=pl.Series([5.0, 2.5, 3.0])
    )
    by_time, by_expected = (fastest(rows, 3, by)["iteration_time_s"].to_list() for by in (RankBy.TIME, RankBy.EXPECTED))
    assert (by_time, by_expected) == ([1.0, 2.0, 3.0], [2.0, 3.0, 1.0])
