"""Chakra execution traces (https://github.com/mlcommons/chakra, schema 0.0.4): one file a rank.

A file is a `GlobalMetadata` and then one `Node` after another, each behind its length as a varint. Names, numbers and
types of the fields are those of `schema/protobuf/et_def.proto`; attributes are written with the types that Chakra's
feeder reads them as. An operator's node has its op_id + 1 for an id: 0 is the node that lists the process groups,
because ASTRA-sim issues what depends on nothing in the order of ids.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import pyarrow as pa

from lumos_df.base.errors import CorpusError, LumosError, QueryError
from lumos_df.base.runner import available_cpus
from lumos_df.corpus import catalog
from lumos_df.corpus.layout import ESTIMATE
from lumos_df.corpus.output import whole_file
from lumos_df.export import messages
from lumos_df.export.job_operators import edges, operator_rows, operators
from lumos_df.export.job_ranks import ExportedRank, ranks
from lumos_df.export.nodes import nodes
from lumos_df.export.process_groups import ProcessGroup, process_groups
from lumos_df.graph.job import groups

if TYPE_CHECKING:
    import duckdb

_BATCH: Final = 1 << 17
"""Nodes that are encoded at once."""


def export(corpus: Path, output: Path, trace: str | None = None, job: str | None = None) -> tuple[list[Path], int]:
    """Write `output`.RANK.et for every rank of a job; return the files and the number of their nodes.

    All files appear, or none.

    Args:
        corpus: the corpus folder.
        output: what the files are called before the rank.
        trace: the job of the trace of this id, or the beginning of it; needed where the corpus has several.
        job: the job of this name, likewise.

    Raises:
        LumosError: the job is not told, not there or was not replayed, or other ranks' files are in the way.
        OSError: a file cannot be written.
    """
    if trace is not None and trace.startswith(ESTIMATE):
        stored = "lumos-df estimate --set NAME=VALUE --into CORPUS"
        raise QueryError(f"{trace}: an estimate of its parts, without a graph; a changed job has one: {stored}")
    jobs = groups(corpus, trace, job)
    if len(jobs) > 1:
        see = f"lumos-df sql 'SELECT job, rank, trace_id FROM traces' --corpus {corpus}"
        named, choose = ("", "name one with --job NAME") if job is None else (" of this name", "choose with --trace ID")
        raise QueryError(f"{corpus}: holds {len(jobs)} jobs{named}; {choose}; see: {see}")
    output = output.with_suffix("") if output.suffix == ".et" else output
    if output.is_dir():
        raise LumosError(f"{output}: a folder; give the files' name before the rank, as in {output}/step")
    with catalog.connect(corpus) as connection, ExitStack() as files:
        members = ranks(connection, jobs[0])
        replayed = {name for (name,) in connection.execute("SELECT DISTINCT trace_id FROM replays").fetchall()}
        if not all(member.trace_id in replayed for member in members):
            raise CorpusError(f"{corpus}: no dependencies are known yet; first run: lumos-df replay --corpus {corpus}")
        paths = [output.with_name(f"{output.name}.{member.rank}.et") for member in members]
        foreign = sorted(
            file for file in output.parent.glob("*.et") if _is_export(file, output.name) and file not in paths
        )
        if foreign:
            raise LumosError(f"{foreign[0]}: of another export, with other ranks; remove it or give another --output")
        groups_by_name = process_groups(connection, jobs[0])
        written = 0
        for member, path in zip(members, paths, strict=True):
            with files.enter_context(whole_file(path)).open("wb") as file:
                written += _write(connection, member, groups_by_name, file)
    return paths, written


def _is_export(file: Path, name: str) -> bool:
    before, _, rank = file.stem.rpartition(".")
    return before == name and rank.isdecimal()


def _write(
    connection: "duckdb.DuckDBPyConnection",
    rank: ExportedRank,
    groups_by_name: dict[tuple[str, str], ProcessGroup],
    file: IO[bytes],
) -> int:
    """Write one rank's trace; return the number of its nodes."""
    rows, estimated = operator_rows(connection, rank)
    rank_nodes = nodes(operators(rows), edges(connection, rank.trace_id))
    numbers = {name: group.number for (trace_id, name), group in groups_by_name.items() if trace_id == rank.trace_id}
    job_groups = list({group.number: group for group in groups_by_name.values()}.values())
    file.write(messages.metadata(rank, rank_nodes, job_groups, estimated=estimated))
    listed = [group for group in job_groups if group.ranks]
    if listed:
        file.write(messages.groups(listed))

    def encoded(begin: int) -> pa.Buffer:
        # Rows ascend, so a batch of nodes is of one stretch of operators.
        row = rank_nodes.row[begin : begin + _BATCH]
        stretch = rows.slice(int(row[0]), int(row[-1] - row[0]) + 1)
        batch = slice(begin, begin + _BATCH)
        return messages.nodes(rank, stretch.take(pa.array(row - row[0])), rank_nodes, batch, numbers)

    # Arrow's and numpy's loops hold no interpreter lock.
    with ThreadPoolExecutor(available_cpus()) as pool:
        for batch in pool.map(encoded, range(0, len(rank_nodes.row), _BATCH)):
            file.write(batch)
    return len(rank_nodes.row) + bool(listed)
