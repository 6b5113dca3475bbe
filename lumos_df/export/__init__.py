"""A job for other tools: timelines for ui.perfetto.dev, execution traces for Chakra."""
