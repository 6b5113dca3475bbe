"""A part of `make torture`: the rest takes as long as it is given."""

from pathlib import Path

import pytest

from tests.torture import files, kills


@pytest.mark.parametrize("seed", range(4))
def test_a_wrong_file_is_read_or_refused_in_a_line(seed: int) -> None:
    assert list(files.faults(files.wrong(seed), seed)) == []


@pytest.mark.parametrize("command", [kills.COMMANDS[1], kills.COMMANDS[4], kills.COMMANDS[6]], ids=" ".join)
def test_a_killed_writer_leaves_what_the_next_one_completes(tmp_path: Path, command: tuple[str, ...]) -> None:
    assert list(kills.faults(tmp_path / "killed", command, seed=1)) == []
