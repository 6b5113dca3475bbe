"""lumos-df: traces to tables, tables to graphs, graphs to estimates."""

__version__ = "0.1.0"
