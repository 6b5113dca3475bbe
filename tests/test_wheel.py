"""The wheel, installed away from the repository, is whole."""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from lumos_df.base import kernel_cache
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel in it; the dependencies are those of this one."""
    folder = tmp_path_factory.mktemp("elsewhere") / "venv"
    venv.create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    install = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--no-deps", "--quiet", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, text=True)
    return folder


def lend_kernels(kernels: Path) -> None:
    """Put into an installed package's `kernels` what is compiled here of the same sources."""
    assert kernels.name.endswith(kernel_cache.digest())
    for stored in kernel_cache.folder().glob(f"*{kernel_cache.STORED}"):
        shutil.copy(stored, kernels)


def test_the_wheel_holds_sql_and_data_and_no_leftovers(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for folder in ("sql", "data"):
        here = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*") if path.is_file()}
        assert {name.removeprefix("lumos_df/") for name in names if name.startswith(f"lumos_df/{folder}/")} == here
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]


def test_the_wheel_holds_its_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        (about,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        stated = message_from_bytes(files.read(about))
        text = files.read(about.replace("METADATA", "licenses/LICENSE"))
    assert (stated["License-Expression"], stated.get_all("License-File")) == ("Apache-2.0", ["LICENSE"])
    # The text that apache.org publishes.
    assert hashlib.md5(text, usedforsecurity=False).hexdigest() == "3b83ef96387f14655fc854ddc3c6bd57"


def test_the_installed_command_reports_on_its_own_samples(installed: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    # What is compiled anew in its new place: optimized that takes half as long again, and proves nothing here.
    environment["NUMBA_OPT"] = "0"

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    package = run(f"{installed}/bin/python", "-c", "import lumos_df; print(*lumos_df.__path__)").strip()
    assert package.startswith(str(installed))
    cache = "from lumos_df.base.kernel_cache import folder; print(folder())"
    lend_kernels(Path(run(f"{installed}/bin/python", "-c", cache).strip()))
    lumos = f"{installed}/bin/lumos-df"
    assert "read 6 files" in run(lumos, "ingest", f"{package}/data/traces", "--workers", "1")
    assert "gpu_generated: rank 2, last to 9 of 9 collectives" in run(lumos, "report")
    run(lumos, "report", "--html", "page.html")
    assert (tmp_path / "page.html").read_text("utf-8").startswith("<!DOCTYPE html>")

    code = "from lumos_df.model.plan import Hardware, Model, Plan; {}"
    check = (
        "Plan.parse('tp=8,dp=2,batch=2,software=nemo').check(Model.read('llama-3-8b'), Hardware.read('h100')); print(8)"
    )
    assert run(f"{installed}/bin/python", "-c", code.format(check)) == "8\n"
