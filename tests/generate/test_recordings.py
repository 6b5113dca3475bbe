"""Benchmarks of real training on an H100 (tests/recordings), whose host runs ahead of the GPU."""

import json
from pathlib import Path

from lumos_df.generate.benchmark_folder import generate
from lumos_df.trace.ingest import ingest

BERT = Path(__file__).parent.parent / "recordings" / "plain" / "bert--base"


def test_kernels_that_were_issued_before_the_recording_are_no_part_of_its_steps(tmp_path: Path) -> None:
    """Of step 3, whose launches are all there, 393 kernels of a step before run in it."""
    assert not ingest([BERT], tmp_path / "corpus", workers=1).failed
    generate(tmp_path / "corpus", tmp_path / "benchmark", step=3)
    manifest = json.loads((tmp_path / "benchmark" / "manifest.json").read_text())
    assert not [each for each in manifest["operators"] if each.get("reason") == "no operator around it"]
    assert manifest["totals"]["replayed"]["gpu_pct"] > 90
