"""DuckDB without its relations, most of what `import duckdb` takes; who builds queries of them imports that instead."""

try:
    import _duckdb as engine
except ImportError:  # a later version may call it otherwise
    import duckdb as engine  # type: ignore[no-redef]

__all__ = ["engine"]
