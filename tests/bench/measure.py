"""Claims, and the peers that they are measured against."""

import subprocess
import sys
from pathlib import Path


def peer(name: str, path: Path, python: str = sys.executable) -> float:
    """Return the seconds a peer takes, as it measures them itself."""
    script = Path(__file__).with_name("peers.py")
    answer = subprocess.run([python, script, name, path], capture_output=True, text=True, check=True)
    return float(answer.stdout.split()[-1])


def claim(what: str, value: float, unit: str, target: float, *, at_least: bool = False) -> None:
    """Print one measured claim."""
    holds = value >= target if at_least else value <= target
    bound = ">=" if at_least else "<="
    print(
        f"{what:<68} {value:9.3f} {unit:<5} target {bound} {target:g} {unit}  {'ok' if holds else 'MISSED'}", flush=True
    )
