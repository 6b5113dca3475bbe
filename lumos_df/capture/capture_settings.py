"""What to record, as it travels to the processes of a job."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from lumos_df.base.errors import CaptureError
from lumos_df.base.files import unwritable

ENVIRONMENT: Final = "LUMOS_DF_CAPTURE"
"""Name of the environment variable that holds the settings of a process that `lumos-df capture` started."""


@dataclass(frozen=True)
class CaptureSettings:
    """What to record. Raises `CaptureError` for counts that cannot be."""

    output: str
    """Folder of the files."""
    warmup: int = 5
    """Steps that pass before anything is measured."""
    steps: int = 3
    """Steps that are recorded."""
    unprofiled: int = 5
    """Steps that are timed without the profiler, before the recorded ones and again after them."""
    stacks: bool = False
    """Record every Python call."""
    execution_trace: bool = False
    """Also write a PyTorch execution trace: what every operator was called with."""
    fake_world: int = 0
    """Ranks of the plan that a single process stands for, with torch's fake process group; 0: the ranks are real."""
    run: str = ""
    """Marks the files of one `lumos-df capture`: the folder may hold those of another."""

    def __post_init__(self) -> None:
        for name, least in (("warmup", 0), ("steps", 1), ("unprofiled", 0), ("fake_world", 0)):
            if getattr(self, name) < least:
                raise CaptureError(f"{name} = {getattr(self, name)}: must be at least {least}")

    @property
    def recorded_after(self) -> int:
        """Return how many steps end before the first one that is recorded: the profiler itself warms up for one."""
        return self.warmup + self.unprofiled + 1

    def make_folder(self) -> None:
        """Make the folder. Raises `CaptureError` where nothing can be written to it."""
        folder = Path(self.output)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / f".probe-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise CaptureError(unwritable(folder, error)) from None

    def to_environment(self) -> str:
        """Return the value of the environment variable."""
        return json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Self:
        """Return the settings that `lumos-df capture` gave to this process."""
        return cls(**json.loads(os.environ[ENVIRONMENT]))
