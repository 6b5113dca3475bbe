"""What is read of real training on an H100 (tests/recordings), which no rule was made for before it was recorded."""

from pathlib import Path

import pytest

import lumos_df
from lumos_df.trace.ingest import ingest

RECORDINGS = Path(__file__).parent.parent / "recordings" / "plain"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> lumos_df.Corpus:
    folder = tmp_path_factory.mktemp("recordings") / "corpus"
    assert not ingest([RECORDINGS], folder, workers=1).failed
    return lumos_df.Corpus(folder)


@pytest.mark.parametrize(
    ("job", "dtype", "sizes"),
    [
        (
            "llama",
            "bfloat16",
            {"layers": 4, "hidden": 2048, "heads": 16, "ffn": 5632, "vocabulary": 32000, "sequence": 2048},
        ),
        # Under autocast.
        (
            "gpt2",
            "bfloat16",
            {"layers": 6, "hidden": 768, "heads": 12, "ffn": 3072, "vocabulary": 50304, "sequence": 512},
        ),
        # 690 kernels of steps before run in the first two recorded ones: no micro-batch of these.
        (
            "bert",
            "float32",
            {"layers": 6, "hidden": 768, "heads": 12, "ffn": 3072, "vocabulary": 30522, "sequence": 256},
        ),
        (
            "moe",
            "bfloat16",
            {"layers": 4, "hidden": 1024, "heads": 16, "experts": 16, "vocabulary": 32000, "sequence": 1024},
        ),
    ],
)
def test_sizes_are_those_that_it_was_made_of(
    corpus: lumos_df.Corpus, job: str, dtype: str, sizes: dict[str, int]
) -> None:
    described = corpus.describe(f"{job}--base")
    numbers = dict(described.select("name", "value").iter_rows())
    words = dict(described.select("name", "word").iter_rows())
    batch = 32 if job == "bert" else 4
    assert words["dtype"] == dtype
    assert {name: numbers[name] for name in (*sizes, "micro_batch", "micro_batches")} == {
        **sizes,
        "micro_batch": batch,
        "micro_batches": 1,
    }
