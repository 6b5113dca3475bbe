"""DuckDB's connection as the tests see it.

A protocol, because DuckDB prints a list of leaks after the tests' closing line where hypothesis has met its own class.
"""

from typing import Any, Protocol


class Connection(Protocol):
    """What runs a query."""

    def execute(self, query: str, /) -> Any: ...

    def sql(self, query: str, /) -> Any: ...
