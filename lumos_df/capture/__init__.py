"""Record a training job with torch.profiler: one file a rank, and how long steps take without the profiler.

The only part that imports torch (`pip install 'lumos-df[capture]'`); what it writes is read by `lumos-df ingest`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING

from lumos_df.base.errors import CaptureError
from lumos_df.base.location import local_path
from lumos_df.capture.capture_settings import CaptureSettings

if TYPE_CHECKING:
    from lumos_df.capture.recorder import Recorder

__all__ = ["profile"]


@contextmanager
def profile(
    output: str | PathLike[str], *, warmup: int = 5, steps: int = 3, unprofiled: int = 5, stacks: bool = False
) -> Iterator["Recorder"]:
    """Record the training loop in the block, which calls `.step()` on what this gives at the end of each iteration.

    Writes `output/rank<r>.json.gz` after `warmup` + 2 * `unprofiled` + `steps` + 2 iterations, or at the end of the
    block with what was recorded by then, an exception included.

    Args:
        output: the folder; made if it is not there. Every rank gives the same one.
        warmup: iterations that pass first: compilation, allocation.
        steps: iterations that are recorded.
        unprofiled: iterations that are timed without the profiler, before the recorded ones and again after them.
        stacks: also record every Python call, which slows the host down; module names are recorded anyway.

    Raises `CaptureError` without torch, for counts that cannot be and for a folder that cannot be written, and
    `LumosError` for a URL.
    """
    settings = CaptureSettings(
        str(local_path(output)), warmup=warmup, steps=steps, unprofiled=unprofiled, stacks=stacks
    )
    settings.make_folder()
    try:
        from lumos_df.capture.recorder import Recorder  # noqa: PLC0415 - torch
    except ModuleNotFoundError as error:
        raise no_torch(error) from None
    recorder = Recorder(settings)
    try:
        yield recorder
    finally:
        recorder.close()


def no_torch(error: ModuleNotFoundError) -> Exception:
    """Return what to raise for an import that failed: one line where torch is what is missing, else the error."""
    if error.name != "torch":
        return error
    return CaptureError("torch is not installed here; pip install 'lumos-df[capture]', or run where torch is")
