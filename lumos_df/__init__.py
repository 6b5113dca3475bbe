"""lumos-df: profiler traces to tables that answer questions.

`ingest(paths, corpus)` reads trace files into a corpus. `Corpus(path)` answers with polars frames: `.advise()`,
`.breakdown()`, `.replay()`, `.critical_path()`, `.estimate(dp=16)`, `.sql(...)`; `advise(path)` alone says what to
change. `connect(corpus)` opens it for SQL in DuckDB, the module `report` exports views and summarises, and the package
`estimate` says what a job would take that was never run.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lumos_df import estimate
    from lumos_df.base.errors import LumosError
    from lumos_df.corpus import report
    from lumos_df.corpus.catalog import connect
    from lumos_df.notebook.corpus_frames import Corpus, advise
    from lumos_df.trace.ingest import ingest

__all__ = ["Corpus", "LumosError", "__version__", "advise", "connect", "estimate", "ingest", "report"]

_MODULES: Final = {"estimate": "lumos_df.estimate", "report": "lumos_df.corpus.report"}
_PLACES: Final = {
    "Corpus": "lumos_df.notebook.corpus_frames",
    "LumosError": "lumos_df.base.errors",
    "advise": "lumos_df.notebook.corpus_frames",
    "connect": "lumos_df.corpus.catalog",
    "ingest": "lumos_df.trace.ingest",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: `import lumos_df` alone costs nothing."""
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _PLACES:
        raise AttributeError(f"module 'lumos_df' has no attribute '{name}'")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted(__all__)
