"""`lumos_df.Corpus`: frames that say what the commands say, for scripts and notebooks."""

import shutil
from pathlib import Path

import polars as pl
import pytest

import lumos_df
from lumos_df import Corpus, LumosError
from lumos_df.trace.ingest import ingest
from tests.trace.literal import write, x


@pytest.fixture(scope="module")
def corpus(sample_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(shutil.copytree(sample_corpus, tmp_path_factory.mktemp("notebook") / "corpus"))


def test_advice_names_the_rank_that_is_waited_for(corpus: Corpus) -> None:
    first = corpus.advise("gpu_generated").row(0, named=True)
    assert first["what"].startswith("rank 2 is waited for")
    assert first["gain_ns"] > 0.3 * first["step_ns"]
    again = lumos_df.advise(corpus.path, "gpu_generated")
    assert again["what"].to_list() == corpus.view("advice", "gpu_generated")["what"].to_list()


def test_advice_on_nothing_says_why(tmp_path: Path) -> None:
    write(
        tmp_path / "job" / "rank0.json", [x("aten::mm", "cpu_op", 0, 5)], distributedInfo={"rank": 0, "world_size": 1}
    )
    ingest([tmp_path / "job"], tmp_path / "corpus", workers=1)
    with pytest.warns(UserWarning, match=r"job: .*") as told:
        assert not len(Corpus(tmp_path / "corpus").advise())
    assert [str(warning.message) for warning in told] == [
        "job: only the host is known: no GPU row was recorded",
        "job: no step is marked: the recording counts as one, from first to last work",
        "job: nothing found that makes the step at least 0.5% shorter",
    ]


@pytest.mark.parametrize("name", ["breakdown", "kernel_summary", "straggler", "gpu_time", "operators"])
def test_every_view_carries_its_job(corpus: Corpus, name: str) -> None:
    rows = corpus.view(name, "gpu_generated")
    assert len(rows)
    assert rows["job"].unique().to_list() == ["gpu_generated"]


def test_parts_of_a_step_add_up(corpus: Corpus) -> None:
    steps = corpus.breakdown()
    parts = pl.sum_horizontal("exposed_compute_ns", "overlapped_ns", "exposed_communication_ns", "other_ns")
    assert steps.select((parts == pl.col("step_ns")).all()).item()


def test_a_replay_and_a_changed_one(corpus: Corpus) -> None:
    assert corpus.replay()["error_pct"].abs().max() < 1  # type: ignore[operator]  # a float
    changed = corpus.replay(scale=["family=gemm:0.5"]).filter(pl.col("job") == "gpu_generated")
    assert (changed["changed_ns"] < changed["replayed_ns"]).all()


def test_a_job_is_chosen_by_its_name(corpus: Corpus) -> None:
    frames = (
        corpus.replay("cpu_ddp"),
        corpus.replay("cpu_ddp", scale=["name=aten::mm:0.5"]),
        corpus.critical_path("cpu_ddp"),
    )
    assert all(rows["job"].unique().to_list() == ["cpu_ddp"] for rows in frames)


def test_the_critical_path_adds_up_to_the_step(corpus: Corpus) -> None:
    path = corpus.critical_path(step=3).group_by("trace_id").agg(pl.col("total_ns").sum())
    recorded = corpus.view("replay_error").filter(pl.col("step") == 3).select("trace_id", "recorded_ns")
    both = path.join(recorded, on="trace_id")
    assert len(both) == 6
    assert (both["total_ns"] == both["recorded_ns"]).all()


def test_an_estimate_and_a_description(corpus: Corpus) -> None:
    assert corpus.estimate("gpu_generated", dp=8)["gpus"].unique().to_list() == [8]
    layers = corpus.describe("gpu_generated").filter(pl.col("name") == "layers")
    assert layers["value"].to_list() == [2]


def test_a_difference_adds_up(corpus: Corpus) -> None:
    rows = corpus.diff("gpu_generated", "cpu_ddp")
    step = rows.row(0, named=True)
    assert rows.filter(pl.col("what") == "phase")["difference_ns"].sum() == step["difference_ns"]


def test_a_query_takes_values(corpus: Corpus) -> None:
    assert corpus.sql("SELECT count(*) AS steps FROM step WHERE step = ?", [3]).item() == 6


def test_only_public_names_are_listed(corpus: Corpus) -> None:
    assert not [name for name in dir(corpus) if name.startswith("_")]
    assert {"advise", "breakdown", "replay", "critical_path", "estimate", "sql", "plot", "path"} <= set(dir(corpus))


def test_a_notebook_shows_jobs_and_their_first_advice(corpus: Corpus) -> None:
    html = corpus._repr_html_()  # what Jupyter and marimo call
    assert "<td>gpu_generated</td><td>4 ranks</td>" in html
    assert "rank 2 is waited for" in html
    assert "built-in function sleep" not in html or "&lt;built-in" in html


def test_what_is_no_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LumosError, match="nowhere"):
        Corpus(tmp_path / "nowhere")


def test_charts_are_objects(corpus: Corpus) -> None:
    pytest.importorskip("altair", reason="charts need the extra 'plots'")
    trace = corpus.sql("SELECT trace_id FROM traces WHERE job = 'gpu_generated' LIMIT 1").item()
    for chart in (
        corpus.plot.breakdown(),
        corpus.plot.timeline(trace, step=3),
        corpus.plot.timeline(),
        corpus.plot.busbw(),
        corpus.plot.roofline(),
    ):
        drawn = chart.to_dict()
        (rows,) = drawn["datasets"].values()
        assert rows
        fields = {of["field"] for of in drawn["encoding"].values() if isinstance(of, dict) and "field" in of}
        assert fields <= set(rows[0])


def test_charts_of_nothing_say_why(corpus: Corpus) -> None:
    pytest.importorskip("altair", reason="charts need the extra 'plots'")
    with pytest.raises(LumosError, match="no GPU row of trace 'xyz'"):
        corpus.plot.timeline("xyz")
