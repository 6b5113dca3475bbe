"""GPUs and software: the files that come along, and a user's own."""

import csv
import os
from dataclasses import replace
from pathlib import Path

import pytest

from lumos_df.base.errors import HardwareError, SoftwareError
from lumos_df.model.hardware import HARDWARE_ROW, Hardware, PeakFlops, ScaleUp
from lumos_df.model.library import names
from lumos_df.model.software import SOFTWARE_ROW, Software
from lumos_df.schema.dtypes import PRECISIONS
from tests.conftest import ROOT
from tools.fit_population import OF_XLA

TRUTH = Path(os.environ.get("LUMOS_TRUTH", ROOT.parent / "shared" / "truth"))

OWN = """
vendor = "nvidia"
generation = "hopper"
sms = 132
hbm_bytes = 85e9
hbm_bandwidth = 3.35e12
pcie_bandwidth = 64e9
tdp_w = 700
idle_w = 70
fitted_from = "h100-sxm"

[peak_flops]
fp32 = 66.9e12
bf16 = 989e12

[scale_up]
gpus = 8
bandwidth = 450e9

[scale_out]
bandwidth = 12.5e9
nics = 0.25

[gemm.bf16]
efficiency = 0.8
"""


@pytest.mark.parametrize("name", names("hardware"))
def test_every_gpu_reads_and_makes_a_row(name: str) -> None:
    hardware = Hardware.read(name)
    row = hardware.row()
    assert row.dtype == HARDWARE_ROW
    assert hardware.source
    assert row["hbm_bytes"] == hardware.hbm_bytes
    assert row["scale_up_gpus"] == hardware.scale_up.gpus
    for place, precision in enumerate(PRECISIONS):
        assert row["peak_flops"][place] == getattr(hardware.peak_flops, precision)
    # Figures in the units they are meant in: a slip of 1e3 anywhere is out of these.
    assert 20e9 < hardware.hbm_bytes < 320e9
    assert 0.2e12 < hardware.hbm_bandwidth <= 8e12
    peaks = hardware.peak_flops
    assert 1e13 < peaks.fp32 < max(peaks.fp16, peaks.bf16) < 3e15
    assert hardware.scale_out.bandwidth <= hardware.scale_up.bandwidth <= 900e9
    assert hardware.idle_w < hardware.tdp_w / 4
    assert Hardware.read(hardware.fitted_from).name in names("hardware")


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("h100", "h100-sxm"),
        ("h100-80gb", "h100-sxm"),
        ("NVIDIA H100-SXM5-80GB", "h100-sxm"),
        ("DGX-H100", "h100-sxm"),
        ("H100-96GB-HBM2e", "h100-sxm-hbm2e-500w"),
        ("a100_80gb", "a100-sxm-80"),
        ("a100_40gb", "a100-sxm-40"),
        ("A100-SXM4-80GB", "a100-sxm-80"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA Blackwell GPU (GB200)", "gb200"),
        ("NVIDIA H200-SXM5-141GB", "h200-sxm"),
        ("AMD Instinct MI325X 256GB HBM3E DLC", "mi325x"),
        ("DGX-2 (V100)", "v100-sxm2-32"),
    ],
)
def test_a_gpu_is_known_by_the_names_that_people_and_drivers_give_it(spelled: str, name: str) -> None:
    assert Hardware.read(spelled).name == name


def test_no_measured_product_is_faster_than_the_peak() -> None:
    table = TRUTH / "gemm_mamf.csv"
    if not table.is_file():
        pytest.skip(f"no measurements in LUMOS_TRUTH ({TRUTH})")
    checked = 0
    for row in csv.DictReader(table.read_text().splitlines()):
        gpu = row["gpu"].removesuffix(" SXM")
        if "Gaudi" in gpu or "GH200" in gpu:
            continue
        peak = getattr(Hardware.read(gpu).peak_flops, row["dtype"])
        assert 0.5 * peak < float(row["measured_tflops"]) * 1e12 < peak, gpu
        checked += 1
    assert checked > 10


def test_a_users_own_file_reads(tmp_path: Path) -> None:
    file = tmp_path / "ours.toml"
    file.write_text(OWN)
    hardware = Hardware.read(file)
    assert hardware.name == "ours"
    assert hardware.scale_out.nics == 0.25
    assert hardware.fitted == {"gemm": {"bf16": {"efficiency": 0.8}}}
    assert hardware.row()["peak_flops"].tolist() == [66.9e12, 0, 989e12, 0, 0]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("hbm_bandwidth = 3.35e12", "hardware 'ours': needs the figure 'hbm_bandwidth'"),
        ("fp32 = 66.9e12", "hardware 'ours', table 'peak_flops': needs the figure 'fp32'"),
        ("bandwidth = 450e9", "hardware 'ours', table 'scale_up': needs the figure 'bandwidth'"),
        ("[scale_up]\ngpus = 8\nbandwidth = 450e9\n", "hardware 'ours': needs the figure 'scale_up'"),
    ],
)
def test_a_file_without_a_needed_figure_is_one_line_that_names_it(tmp_path: Path, lines: str, complaint: str) -> None:
    file = tmp_path / "ours.toml"
    assert lines in OWN
    file.write_text(OWN.replace(lines, "", 1))
    with pytest.raises(HardwareError) as refused:
        Hardware.read(file)
    assert str(refused.value) == complaint


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"sms": 0}, "sms = 0: must be at least 1; nearest is 1"),
        ({"hbm_bytes": "80 GB"}, "hbm_bytes = '80 GB': must be a number above 0"),
        ({"tdp_w": float("nan")}, "tdp_w = nan: must be a number above 0"),
        ({"peak_flops": PeakFlops(fp32=1e13, bf16=-1.0)}, "peak_flops.bf16 = -1.0: must be a number at least 0"),
        ({"scale_up": ScaleUp(gpus=0, bandwidth=1e9)}, "scale_up.gpus = 0: must be at least 1; nearest is 1"),
    ],
)
def test_figures_that_cannot_be_are_refused(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(HardwareError) as refused:
        replace(Hardware.read("h100"), **change)  # type: ignore[arg-type]
    assert str(refused.value) == f"hardware 'h100-sxm': {complaint}"


@pytest.mark.parametrize(("old", "new"), [("[scale_up]", "[scale-up]"), ("sms = 132", "smms = 132")])
def test_a_key_that_is_not_known_is_named_with_the_nearest(tmp_path: Path, old: str, new: str) -> None:
    file = tmp_path / "ours.toml"
    file.write_text(OWN.replace(old, new))
    wrong, right = new.strip("[]").split(" ")[0], old.strip("[]").split(" ")[0]
    with pytest.raises(HardwareError, match=f"there is no figure '{wrong}'; did you mean '{right}'"):
        Hardware.read(file)


@pytest.mark.parametrize("name", names("software"))
def test_every_software_reads_and_makes_a_row(name: str) -> None:
    software = Software.read(name)
    row = software.row()
    assert row.dtype == SOFTWARE_ROW
    assert software.source
    assert row["launch_s"] == software.launch_s > 1e-6
    assert row["overlap_dp"] == software.overlap_dp


def test_what_is_not_said_of_xla_is_what_sources_have_in_common() -> None:
    """A fit to sources writes both files."""
    xla, generic = vars(Software.read("MaxText")), vars(Software.read("generic"))
    others = {name for name in generic if xla[name] != generic[name]}
    assert others == {*OF_XLA, "name", "source"}
    assert xla["passes"] == 1 < generic["passes"]


def test_software_that_cannot_be_is_refused() -> None:
    with pytest.raises(SoftwareError, match="software 'nemo': dropout = 1: must be true or false; launch_s = -1: must"):
        replace(Software.read("nemo"), launch_s=-1, dropout=1)  # type: ignore[arg-type]
