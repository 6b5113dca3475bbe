"""A corpus: a folder of Parquet tables, a folder a trace, and DuckDB over it."""
