"""The commands of docs/capture.md, run as they stand there."""

import re
import sys
from pathlib import Path

from lumos_df import connect
from tests.capture.conftest import Shell, needs_torch
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "capture.md").read_text("utf-8")


@needs_torch
def test_every_command_of_the_page_runs(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) >= 5
    script = 'set -e\nlumos-df() { python -m lumos_df "$@"; }\n' + "".join(blocks)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = shell("bash", "-c", script, cwd=tmp_path, PATH=path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    (query,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    with connect(tmp_path / "corpus") as connection:
        assert connection.execute(query).fetchall() == []  # these traces have no execution traces beside them
