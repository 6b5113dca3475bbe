"""A job for other tools: timelines for ui.perfetto.dev, execution traces for Chakra."""

from enum import StrEnum


class ExportKind(StrEnum):
    """What to export."""

    REPLAY = "replay"
    CRITICAL_PATH = "critical-path"
    PERFETTO = "perfetto"
    CHAKRA = "chakra"
