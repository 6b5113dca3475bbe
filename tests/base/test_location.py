"""A URL where only a local path will do: refused in one line before it becomes the folder `./s3:`."""

import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from lumos_df.base.errors import LumosError
from lumos_df.base.location import is_url
from lumos_df.capture import profile
from lumos_df.cli.app import app
from lumos_df.corpus import report
from tests.conftest import Run

REFUSED = "{}: a URL where only a local path will do; name a local file or folder, and copy it from or to the store"


def path_options() -> Iterator[tuple[str, ...]]:
    """Give the command of every path, and of an option its name: what is written before the value."""
    for name, command in getattr(typer.main.get_command(app), "commands", {}).items():
        types = get_type_hints(inspect.unwrap(command.callback))
        for parameter in command.params:
            if Path in (types[parameter.name], *get_args(types[parameter.name])) and parameter.metavar != "DIR|URL":
                yield (name, *parameter.opts[:1]) if parameter.param_type_name == "option" else (name,)


@pytest.mark.parametrize("option", [*path_options()], ids=" ".join)
def test_every_path_of_every_command_is_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*option, "s3://bucket/place.toml"])
    assert isinstance(done.exception, LumosError)
    assert str(done.exception).startswith(REFUSED.format("s3://bucket/place.toml"))
    assert not list(tmp_path.iterdir())


def test_commands_have_paths() -> None:
    options = {*path_options()}
    assert {("report", "--html"), ("sql", "--file"), ("sweep",), ("calibrate",)} < options
    assert not {("ingest", "--corpus"), ("estimate", "--into")} & options
    assert sum(option[1:] == ("--output",) for option in options) == len({name for name, *_ in options})


@pytest.mark.parametrize("command", [("ingest", "g", "--corpus"), ("report", "--corpus"), ("report", "--output")])
def test_a_name_that_is_not_utf_8_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*command, os.fsdecode(b"c\xff")])
    assert isinstance(done.exception, LumosError)
    assert "its name is not UTF-8" in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_a_refusal_is_one_line_and_a_status(lumos: Run, tmp_path: Path) -> None:
    done = lumos("report", "--html", "s3://bucket/page.html")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("lumos-df: " + REFUSED.format("s3://bucket/page.html"))
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


CALLS: dict[str, Callable[[Path, str], object]] = {
    "export": report.export,
    "profile": lambda _, url: profile(url).__enter__(),
}


@pytest.mark.parametrize("call", CALLS)
def test_in_python_too(tmp_path: Path, sample_corpus: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LumosError, match="a URL where only a local path will do"):
        CALLS[call](sample_corpus, "s3://bucket/place")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [("ingest", "trace.json"), ("report",), ("report", "--output", "s3:/b/c")])
def test_a_url_that_lost_a_slash_becomes_no_folder(lumos: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    place = () if "--output" in command else ("--corpus", "s3:/b/c")
    done = lumos(*command, *place)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "lumos-df: s3:/b/c: a URL that lost a slash; write s3://b/c, as text and not as a path\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("place", "elsewhere"),
    [
        ("s3://b/c", True),
        ("abfs+x.y-z://c", True),
        ("S3://b", True),
        ("s3:/b", False),
        ("c:d", False),
        ("/a://b", False),
    ],
)
def test_what_has_a_scheme_is_a_url(place: str, elsewhere: bool) -> None:  # noqa: FBT001 - a column of the table
    assert is_url(place) == elsewhere
