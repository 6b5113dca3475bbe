"""Torture a corpus for some minutes: `python -m tests.torture [MINUTES] [SEED]`; exit 1 when anything goes wrong."""

import itertools
import sys
import tempfile
import time
from pathlib import Path

from tests.torture import files, kills

_KILLS_EVERY = 10
"""Wrong files between two kills."""


def main() -> int:
    """Go on until the time is over; print every fault with the seed that makes it again."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    first = int(sys.argv[2]) if len(sys.argv) > 2 else None
    end = time.monotonic() + 60 * minutes
    found, done = 0, 0
    killed = itertools.cycle(kills.COMMANDS)
    with tempfile.TemporaryDirectory() as folder:
        for seed in files.seeds(first):
            if done == 0:
                print(f"from seed {seed}", flush=True)
            faults = list(files.faults(files.wrong(seed), seed))
            if done % _KILLS_EVERY == 0:
                faults += kills.faults(Path(folder) / "killed", next(killed), seed)
            for fault in faults:
                print(fault, flush=True)
            found += len(faults)
            done += 1
            if time.monotonic() > end:
                break
    print(f"{done} wrong files, {-(-done // _KILLS_EVERY)} kills: {found} faults")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
