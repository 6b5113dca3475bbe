"""The files of fitted parameters: each of them reads, and what cannot be is refused by name."""

from pathlib import Path

import pytest

from lumos_df.base.errors import HardwareError
from lumos_df.model import fitted
from lumos_df.model.fitted import folder, load
from lumos_df.schema.collective_kinds import FITTED_COLLECTIVES

NAMES = sorted(file.stem for file in folder().glob("*.toml"))


@pytest.mark.parametrize("name", NAMES)
def test_every_file_has_every_table(name: str) -> None:
    found = load(name)
    assert "bf16" in found.gemm
    assert "bf16" in found.attention
    assert found.scale_up_table().shape[0] == len(FITTED_COLLECTIVES)


def test_a_gpu_inherits_what_its_file_does_not_say() -> None:
    own, relative = load("mi300x"), load("h100-sxm")
    assert own.memory == relative.memory
    assert own.gemm["bf16"].efficiency < relative.gemm["bf16"].efficiency
    assert own.gemm["bf16"].overhead_k == relative.gemm["bf16"].overhead_k


def test_an_unknown_gpu_is_named_with_the_nearest() -> None:
    with pytest.raises(HardwareError, match="'h100-sxmm'; did you mean 'h100-sxm'"):
        load("h100-sxmm")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[gemm.bf16]\nefficiency = 1.5", r"\[gemm.bf16\] efficiency = 1.5: not between 0.2 and 1.0"),
        ("[memory]\nspeed = 3", r"\[memory\]: .*'speed'"),
        ('inherits = ""\n[memory]\nfloor_s = 1e-6', "no fitted parameters for GPU ''"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, complaint: str) -> None:
    for file in folder().glob("*.toml"):
        (tmp_path / file.name).write_text(file.read_text())
    inherits = "" if text.startswith("inherits") else 'inherits = "h100-sxm"\n'
    (tmp_path / "mine.toml").write_text(inherits + text)
    monkeypatch.setattr(fitted, "folder", lambda: tmp_path)
    with pytest.raises(HardwareError, match=complaint):
        load("mine")
