"""Profiler files read with nothing but the json module: what tests hold every other reading against."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOST = ("cpu_op", "cuda_runtime", "user_annotation", "python_function")
GPU = ("kernel", "gpu_memcpy", "gpu_memset")

Event = dict[str, Any]


def ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def start(event: Event) -> int:
    return ns(event["ts"])


def end(event: Event) -> int:
    return ns(event["ts"]) + ns(event["dur"])


def lane(event: Event) -> tuple[int, int]:
    return event["pid"], event["tid"]


def read(path: Path) -> Event:
    trace: Event = json.loads(gzip.decompress(path.read_bytes()))
    return trace


@dataclass(frozen=True)
class File:
    """One rank's file, its events sorted into kinds."""

    rank: int
    events: list[Event]

    def rows(self, *categories: str) -> list[Event]:
        rows = [event for event in self.events if event["ph"] == "X" and event["cat"] in categories]
        return sorted(rows, key=lambda row: (start(row), -end(row)))

    def named(self, name: str) -> list[Event]:
        return [row for row in self.rows(*HOST, *GPU) if row["name"] == name]

    def steps(self) -> list[Event]:
        return [row for row in self.rows("user_annotation") if row["name"].startswith("ProfilerStep#")]

    def all_reduces(self) -> list[Event]:
        return [row for row in self.rows("kernel") if row["name"].startswith("nccl")]
