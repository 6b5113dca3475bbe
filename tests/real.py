"""Where recorded traces of real jobs lie: LUMOS_TRACES names folders of jobs, one or more as in PATH.

No test needs them: those that read them skip, and say so, where they are absent.
"""

import os
from pathlib import Path
from typing import Final

_SHARED: Final = Path(__file__).parents[2] / "shared"

SETS: Final = tuple(
    Path(folder)
    for folder in os.environ.get(
        "LUMOS_TRACES", os.pathsep.join((str(_SHARED / "traces"), str(_SHARED / "traces_second")))
    ).split(os.pathsep)
)
"""The sets of traces: on the first one rules were chosen, the others came later."""

REAL: Final = SETS[0]

ABSENT: Final = f"no real traces at {REAL}; name their folders in LUMOS_TRACES"
"""Why a test is skipped."""


def jobs(folder: Path) -> list[Path]:
    """Return the jobs of a set, one folder each; none where the set is absent."""
    return sorted(job for job in folder.iterdir() if job.is_dir()) if folder.is_dir() else []
