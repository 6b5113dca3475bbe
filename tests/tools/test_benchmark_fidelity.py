"""What the comparison of benchmarks with their recordings makes of steps that something else broke into."""

import polars as pl
import pytest

from tools.benchmark_fidelity import summary

CALLS = {"gemm": 4_000_000, "loss": 1_000_000, "between calls": 500_000}


def steps(job: str, factor: float, broken_into: int) -> list[tuple[str, str, int, str, str, int, int]]:
    """Return six steps of a job; of every one another call is broken into, for 9 ms."""
    return [
        ("gpt", job, 0, what, what, 0, round(ns * factor) + (9_000_000 if (step + place) % 3 == broken_into else 0))
        for step in range(6)
        for place, (what, ns) in enumerate(CALLS.items())
    ]


def table(rows: list[tuple[str, str, int, str, str, int, int]], turn: int = 0) -> pl.DataFrame:
    calls = pl.DataFrame(rows, schema=["net", "job", "rank", "what", "name", "place", "ns"], orient="row")
    return calls.with_columns(pl.lit(turn).alias("round"))


def test_a_call_broken_into_in_some_steps_takes_what_it_takes_in_the_others() -> None:
    found = summary(table(steps("recorded", 1, 0) + steps("benchmark", 1.1, 1)))
    rows = {row["what"]: row for row in found.to_dicts()}
    assert rows["step"]["recorded"] == pytest.approx(5.5)
    assert {what: row["error_pct"] for what, row in rows.items()} == pytest.approx(
        dict.fromkeys(("step", "gemm", "loss", "between calls"), 10)
    )


def test_a_process_that_differs_in_all_its_steps_is_one_of_the_rounds() -> None:
    """Of three recordings one is faster in every step: neither it nor the slowest one stands for all."""
    recorded = [table(steps("recorded", factor, 0), turn) for turn, factor in enumerate((1, 0.6, 1.2))]
    benchmark = [table(steps("benchmark", 1, 1), turn) for turn in range(3)]
    found = summary(pl.concat([*recorded, *benchmark]))
    assert found.filter(pl.col("what") == "step")["error_pct"].to_list() == pytest.approx([0])


def test_a_call_that_looks_like_another_family_once_counts_once() -> None:
    odd = [("gpt", "recorded", 0, "other", "gemm", 0, 10_000_000)]
    found = summary(table(steps("recorded", 1, 0) + odd + steps("benchmark", 1, 1)))
    assert "other" not in found["what"].to_list()
    assert found.filter(pl.col("what") == "step")["recorded"].to_list() == pytest.approx([5.5])


def test_a_step_with_a_gpu_is_no_sum() -> None:
    whole = [("gpt", job, 0, "step", "", 0, ns) for job, ns in (("recorded", 8_000_000), ("benchmark", 6_000_000))]
    found = summary(table(steps("recorded", 1, 0) + steps("benchmark", 1, 1) + 6 * whole))
    (step,) = found.filter(pl.col("what") == "step").to_dicts()
    assert (step["recorded"], step["error_pct"]) == (8, -25)
