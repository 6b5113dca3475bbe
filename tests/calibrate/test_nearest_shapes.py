"""Kernels of new shapes by measured relatives: SQL and polars say the same, and what must hold of both."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from lumos_df.base.errors import QueryError
from lumos_df.calibrate.nearest_shapes import estimate_kernels
from lumos_df.corpus.catalog import connect
from lumos_df.trace.ingest import ingest
from tests.real import REAL

ROOT = Path(__file__).parent.parent.parent
SAMPLES = ROOT / "data" / "traces" / "gpu_generated"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample traces, and real ones where they are at hand."""
    folder = tmp_path_factory.mktemp("relatives") / "corpus"
    real = [REAL / name for name in ("megatron_tp8_forward/rank0.json.gz", "transformer_batch_sweep", "dlrm_8gpu")]
    ingest([SAMPLES, *(path for path in real if path.exists())], folder, workers=1)
    return folder


def shapes(corpus: Path, count: int, seed: int) -> pl.DataFrame:
    """Random shapes of every kind, near to and far from what was measured, and some of the measured ones themselves."""
    rng = np.random.default_rng(seed)

    def sizes(high: float) -> list[int]:
        return [int(2**power) for power in rng.uniform(2, high, count)]

    types = rng.choice(["bf16", "fp16", "float32", "fp8", "float64"], count).tolist()
    products = pl.DataFrame(
        {
            "family": rng.choice(["gemm", "attention"], count, p=[0.8, 0.2]).tolist(),
            "dtype": types,
            "operator": rng.choice(np.array(["aten::mm", "aten::bmm", "attention_backward", None]), count).tolist(),
            **{name: sizes(14) for name in ("m", "n", "k", "batch")},
            "count": rng.integers(0, 99, count).tolist(),
        }
    )
    memory = pl.DataFrame(
        {
            "family": rng.choice(["elementwise", "normalization", "copy", "reduction", "fill"], count).tolist(),
            "operator": rng.choice(np.array(["aten::add", "aten::copy_", None]), count).tolist(),
            "dtype": types,
            "bytes": sizes(30),
        }
    )
    collectives = pl.DataFrame(
        {
            "family": ["communication"] * count,
            "operator": rng.choice(["all_reduce", "all_gather", "send"], count).tolist(),
            "ranks": rng.integers(1, 64, count).tolist(),
            "bytes": sizes(30),
        }
    )
    with connect(corpus) as connection:
        measured: pl.DataFrame = connection.sql(
            "SELECT family, operator, dtype, m, n, k, batch, ranks, bytes FROM kernel_efficiency "
            "WHERE (m IS NOT NULL OR bytes IS NOT NULL) AND (family <> 'communication' OR ranks IS NOT NULL) "
            "AND least(m, n, k, batch, ranks, bytes) >= 1"
        ).pl()
    some = measured.sample(min(count, len(measured)), seed=seed)
    return pl.concat([products, memory, collectives, some, memory.with_columns(n=1024)], how="diagonal_relaxed")


@pytest.mark.parametrize("hardware", [None, "H100", "a100-sxm-80"])
def test_sql_and_python_say_the_same(corpus: Path, hardware: str | None) -> None:
    asked = shapes(corpus, 60, seed=1)
    ours = estimate_kernels(corpus, asked, hardware)
    with connect(corpus) as connection:
        connection.register("shapes", asked)
        theirs = connection.sql("FROM estimate_kernels('shapes', hardware := $1)", params=[hardware]).pl()
    assert ours.drop("octaves").rows() == theirs.drop("octaves").rows()
    assert ours["octaves"].to_list() == pytest.approx(theirs["octaves"].to_list(), abs=1e-6)
    assert set(ours["provenance"]) >= {"rescaled", "modelled"}


def test_what_was_measured_keeps_its_time(corpus: Path) -> None:
    with connect(corpus) as connection:
        rows = connection.sql(
            "SELECT * FROM _kernel_efficiency WHERE of_all_jobs AND p50_ns > 0 "
            "AND (m IS NOT NULL OR bytes IS NOT NULL) AND operator IS NOT NULL AND n IS NOT NULL "
            "AND gpu IS NOT NULL AND least(m, n, k, batch, bytes) >= 1"
        ).pl()
    assert len(rows) > 10
    asked = rows.select("family", "operator", "dtype", "m", "n", "k", "batch", "bytes")
    for gpu in rows["gpu"].unique():
        of_gpu = rows["gpu"] == gpu
        found = estimate_kernels(corpus, asked.filter(of_gpu), gpu)
        assert set(found["provenance"]) == {"measured"}
        assert found["kernel_ns"].to_list() == rows.filter(of_gpu)["p50_ns"].to_list()


def test_more_work_of_the_same_kind_takes_longer_and_lies_between_its_neighbours(corpus: Path) -> None:
    with connect(corpus) as connection:
        family, dtype, gpu, *_ = connection.sql(
            "SELECT family, dtype, gpu, n FROM kernel_efficiency WHERE family = 'gemm' AND m IS NOT NULL "
            "AND gpu IS NOT NULL ORDER BY calls * p50_ns DESC, m, n, k LIMIT 1"
        ).fetchall()[0]
    asked = pl.DataFrame(
        {"family": family, "dtype": dtype, "m": [1 << power for power in range(17, 24)], "n": 4096, "k": 4096}
    )
    found = estimate_kernels(corpus, asked, gpu)["kernel_ns"].to_list()
    assert found == sorted(found)
    assert found[-1] == pytest.approx(2 * found[-2], rel=0.05)  # far beyond all that was measured: the same efficiency


def test_a_faster_gpu_rescales_by_its_roofline(corpus: Path) -> None:
    asked = pl.DataFrame({"family": ["gemm"], "dtype": ["bf16"], "m": [65536], "n": [8192], "k": [8192]})
    a100, h200 = (estimate_kernels(corpus, asked, name).row(0, named=True) for name in ("a100", "h200"))
    assert h200["provenance"] == "rescaled"
    assert 2.4 < a100["kernel_ns"] / h200["kernel_ns"] < 3.5  # 312 to 989 TFLOP/s


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"m": 3}, "need a column 'family'"),
        ({"family": None, "m": 3}, "a shape has no family"),
        ({"family": "gemm", "m": 3, "k": 4}, "gemm: a shape has some of m, n and k: give all three, or bytes"),
        ({"family": "gemm", "m": 3, "n": 4, "k": 4, "bytes": 4}, "gemm: a shape needs m, n and k, or bytes, and not"),
        ({"family": "copy"}, "copy: a shape needs m, n and k, or bytes, and not both"),
        ({"family": "copy", "bytes": 0}, "copy: sizes of a shape must be at least 1"),
        ({"family": "copy", "bytes": 5, "count": -1}, "copy: sizes of a shape must be at least 1"),
        ({"family": "copy", "m": 1, "n": 1, "k": 1}, "copy: only gemm and attention have m, n and k; give bytes"),
        ({"family": "communication", "bytes": 5}, "communication: a shape needs the operator"),
    ],
)
def test_what_is_no_shape_is_refused(corpus: Path, shape: dict[str, object], message: str) -> None:
    asked = pl.DataFrame([shape])
    with pytest.raises(QueryError, match=message):
        estimate_kernels(corpus, asked)
    if "family" in shape:
        with connect(corpus) as connection:
            connection.register("shapes", asked)
            with pytest.raises(Exception, match=message.partition("m, n and k, or")[0]):
                connection.execute("FROM estimate_kernels('shapes')").fetchall()


def test_an_unknown_gpu_is_refused(corpus: Path) -> None:
    with pytest.raises(QueryError, match="no GPU 'zx81' in the corpus or in data/hardware"):
        estimate_kernels(corpus, pl.DataFrame({"family": ["copy"], "bytes": [5]}), "zx81")


def calls_of(corpus: Path) -> pl.DataFrame:
    """The kernels of a corpus whose shape is known, and how long each took."""
    with connect(corpus) as connection:
        calls: pl.DataFrame = connection.sql(
            "SELECT family, operator, dtype, m, n, k, batch, bytes, dur FROM _kernel_call "
            "WHERE m IS NOT NULL OR bytes IS NOT NULL"
        ).pl()
    return calls


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real traces at {REAL}; name their folder in LUMOS_TRACES")
@pytest.mark.parametrize("known", [(8,), (32,), (128,), (8, 32), (8, 128), (32, 128)])
def test_batches_of_a_transformer_follow_from_others(tmp_path: Path, known: tuple[int, ...]) -> None:
    folder = REAL / "transformer_batch_sweep"
    files = {batch: folder / f"bs{batch}.json.gz" for batch in (8, 32, 128)}
    assert not ingest([files[batch] for batch in known], tmp_path / "known", workers=1).failed
    for batch in files.keys() - set(known):
        assert not ingest([files[batch]], tmp_path / f"{batch}").failed
        calls = calls_of(tmp_path / f"{batch}")
        found = estimate_kernels(tmp_path / "known", calls.drop("dur"))
        assert found["kernel_ns"].sum() == pytest.approx(calls["dur"].sum(), rel=0.12 if len(known) == 1 else 0.08)
