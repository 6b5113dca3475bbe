"""The catalogue of a corpus: what any DuckDB client finds in it, and when the corpus moves or grows."""

import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lumos_df.base.errors import CorpusError, QueryError
from lumos_df.corpus import catalog, catalog_file, definitions, layout, view_files
from lumos_df.schema import TABLES, TRACES, Table, TableColumn
from lumos_df.schema.arrow import arrow_schema
from tests.corpus.traces import put_trace

ROOT = Path(__file__).parent.parent.parent
TRACE = "0123456789012345"  # all digits: must stay text


def add_trace(corpus: Path, trace_id: str, *, kernels: int) -> None:
    """Put a trace into the corpus: kernels of 10 ns, one every 20 ns, and no other rows."""
    row = {"rank": 0, "kind": "kernel", "name": "gemm", "dur": 10}
    put_trace(corpus, trace_id, operators=[row | {"op_id": number, "ts": 20 * number} for number in range(kernels)])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    layout.write_manifest(folder)
    add_trace(folder, TRACE, kernels=3)
    return folder


@pytest.fixture(scope="module")
def shared(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus with its catalogue; read it only."""
    folder = tmp_path_factory.mktemp("shared") / "corpus"
    shutil.copytree(files, folder)
    catalog.write_catalog(folder)
    return folder


@pytest.fixture
def corpus(files: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    shutil.copytree(files, folder)
    catalog.write_catalog(folder)
    return folder


def busy(connection: duckdb.DuckDBPyConnection, schema: str = "") -> list[tuple[str, int]]:
    return connection.execute(f"SELECT trace_id, busy_ns FROM {schema}gpu_time").fetchall()


def plain(corpus: Path) -> duckdb.DuckDBPyConnection:
    """Open the catalogue as a client would that knows nothing of lumos_df."""
    return duckdb.connect(corpus / layout.CATALOG, read_only=True)


def attach(client: duckdb.DuckDBPyConnection, corpus: Path) -> None:
    path = str(corpus / layout.CATALOG).replace("'", "''")
    client.execute(f"ATTACH '{path}' AS mine (READ_ONLY)")


def test_the_catalogue_explains_every_table_view_and_column(shared: Path) -> None:
    documented = {(table.name, column.name): column.doc for table in TABLES for column in table.columns} | {
        (view.name, column.name): column.doc for view in view_files.views() for column in view.columns
    }
    said = {table.name: table.doc for table in TABLES} | {view.name: view.doc for view in view_files.views()}
    with plain(shared) as client:
        columns = client.execute(
            "SELECT (table_name, column_name), comment FROM duckdb_columns() WHERE NOT internal"
        ).fetchall()
        tables = client.execute("SELECT view_name, comment FROM duckdb_views() WHERE NOT internal").fetchall()
    assert dict(columns) == documented
    assert dict(tables) == said


NOTEBOOK = """
import sys, types
ipython = types.ModuleType("IPython")
ipython.get_ipython = lambda: types.SimpleNamespace(config={"IPKernelApp": {}})
sys.modules |= {"IPython": ipython, "ipywidgets": None}  # None: the import fails
"""


@pytest.mark.parametrize("around", ["", NOTEBOOK], ids=["interactive", "notebook without ipywidgets"])
def test_no_progress_bar_is_drawn_between_rows_nor_asked_for_where_there_is_none(shared: Path, around: str) -> None:
    code = f"""{around}
import lumos_df
with lumos_df.connect({str(shared)!r}) as connection:
    print(connection.execute("SELECT current_setting('enable_progress_bar')").fetchall())
"""
    # DuckDB tells a session of a person by a main module without a file.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[(False,)]\n", "")


def test_stored_columns_have_the_types_of_the_schema(shared: Path) -> None:
    types = "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal"
    with plain(shared) as client, catalog.blank() as blank:
        assert set(client.execute(types).fetchall()) == set(blank.execute(types).fetchall())


def test_every_view_answers_any_client(shared: Path) -> None:
    for opened in (plain(shared), catalog.connect(shared)):
        with opened as client:
            assert busy(client) == [(TRACE, 30)]
            for view in view_files.views():
                client.execute(f"SELECT * FROM {view.name}").fetchall()
            client.execute("CREATE TEMP TABLE shapes AS SELECT 'copy' AS family, 1000 AS bytes")
            assert client.execute(
                "SELECT gpu, provenance FROM estimate_kernels('shapes', hardware := 'H100')"
            ).fetchall() == [("h100-sxm", "modelled")]


def test_the_last_rows_of_one_trace_are_found(shared: Path) -> None:
    query = f"SELECT op_id FROM operators WHERE trace_id = '{TRACE}' ORDER BY ts DESC LIMIT 2"
    with catalog.connect(shared) as connection:
        assert connection.execute(query).fetchall() == [(2,), (1,)]


def test_it_opens_by_a_relative_path_from_any_folder(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, path in ((corpus.parent, "corpus/catalog.duckdb"), (corpus, "catalog.duckdb")):
        monkeypatch.chdir(folder)
        with duckdb.connect(path, read_only=True) as client:
            assert busy(client) == [(TRACE, 30)]


def test_it_attaches_to_another_database(shared: Path) -> None:
    with duckdb.connect() as client:
        attach(client, shared)
        assert busy(client, "mine.") == [(TRACE, 30)]


def test_a_moved_corpus_opens_at_once_and_attaches_after_connect(corpus: Path) -> None:
    moved = corpus.rename(corpus.with_name("moved"))
    with plain(moved) as client:
        assert busy(client) == [(TRACE, 30)]
    with catalog.connect(moved) as connection:
        assert busy(connection) == [(TRACE, 30)]
    with duckdb.connect() as client:
        attach(client, moved)
        assert busy(client, "mine.") == [(TRACE, 30)]


@pytest.mark.parametrize("name", ["it's", "[a]*b", "rank=7", "a b,{c}"])
def test_the_path_of_the_corpus_is_only_a_path(corpus: Path, name: str) -> None:
    (corpus.parent / name).mkdir()
    moved = corpus.rename(corpus.parent / name / "corpus")
    with plain(moved) as client:
        if "=" in name:  # the catalogue still takes keys from paths
            with pytest.raises(duckdb.Error, match="below a folder with = in its name: open it once with lumos-df sql"):
                client.execute("FROM operators")
        else:
            assert client.execute("SELECT DISTINCT rank FROM operators").fetchall() == [(0,)]
    with catalog.connect(moved) as connection:
        assert busy(connection) == [(TRACE, 30)]
    with plain(moved) as client:
        assert client.execute("SELECT DISTINCT rank FROM operators").fetchall() == [(0,)]
    with duckdb.connect() as client:
        attach(client, moved)
        assert client.execute("SELECT DISTINCT rank FROM mine.operators").fetchall() == [(0,)]


def test_an_open_connection_sees_a_trace_that_arrives(corpus: Path) -> None:
    with catalog.connect(corpus) as connection:
        add_trace(corpus, "b", kernels=1)
        assert busy(connection) == [(TRACE, 30), ("b", 10)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM operators WHERE trace_id = (SELECT trace_id FROM traces WHERE job = 'a')",
        "SELECT count(*) FROM operators WHERE trace_id IN (SELECT trace_id FROM traces WHERE job = 'a')",
        "SELECT count(*) FROM operators JOIN traces USING (trace_id) WHERE job = 'a'",
        "SELECT count(*) FROM operators WHERE trace_id IN (SELECT trace_id FROM traces WHERE rank = 3)",
        "SELECT count(*) FROM operators JOIN traces USING (trace_id) WHERE traces.rank = 3",
    ],
)
def test_a_join_by_trace_opens_no_other_trace(corpus: Path, query: str) -> None:
    assert _beside_a_trace_that_cannot_be_read(corpus, query) == [(3,)]


@pytest.mark.parametrize("view", ["kernel", "launch", "idle"])
def test_a_view_opens_no_other_trace_where_the_id_is_in_a_variable(corpus: Path, view: str) -> None:
    known = "SET VARIABLE trace = (SELECT trace_id FROM traces WHERE rank = 3)"
    of_one = f"SELECT DISTINCT trace_id FROM {view} WHERE trace_id = getvariable('trace')"
    assert _beside_a_trace_that_cannot_be_read(corpus, f"{known}; {of_one}") in ([(TRACE,)], [])
    with catalog.connect(corpus) as connection, pytest.raises(duckdb.Error):
        connection.execute(f"FROM {view} WHERE rank = 3").fetchall()


def _beside_a_trace_that_cannot_be_read(corpus: Path, query: str) -> list[tuple[object, ...]]:
    add_trace(corpus, "other", kernels=3)
    for trace_id, known in ((TRACE, {"job": "a", "rank": 3}), ("other", {"job": "b", "rank": 4})):
        row = {field.name: [known.get(field.name)] for field in arrow_schema(TRACES)}
        pq.write_table(
            pa.table(row, schema=arrow_schema(TRACES)), layout.trace_folder(corpus, trace_id) / "traces.parquet"
        )
    (layout.trace_folder(corpus, "other") / "operators.parquet").write_bytes(b"no Parquet")
    with catalog.connect(corpus) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("view", ["launch", "queue_depth"])
def test_a_query_is_planned_alike_whatever_the_trace_is_called(tmp_path: Path, view: str) -> None:
    plans = []
    for number, trace_id in enumerate(("0123456789abcdef", "f123456789abcdef")):  # before and after the empty files
        folder = tmp_path / str(number)
        folder.mkdir()
        layout.write_manifest(folder)
        add_trace(folder, "__HIVE_DEFAULT_PARTITION__", kernels=0)
        add_trace(folder, trace_id, kernels=500)
        catalog.write_catalog(folder)
        with catalog.connect(folder) as connection:
            plans.append(connection.execute(f"EXPLAIN FROM {view}").fetchall()[0][1])
    assert plans[0] == plans[1]


def test_a_catalogue_can_be_replaced_while_others_read_it(corpus: Path) -> None:
    hold = "import duckdb, sys; held = duckdb.connect(sys.argv[1], read_only=True); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, corpus / layout.CATALOG], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        moved = corpus.rename(corpus.with_name("moved"))
        catalog.write_catalog(moved)
        with catalog.connect(moved) as connection:
            assert busy(connection) == [(TRACE, 30)]
        process.communicate("\n")
    assert process.returncode == 0


def test_a_catalogue_that_fits_is_left_alone(shared: Path) -> None:
    before = (shared / layout.CATALOG).stat()
    catalog.write_catalog(shared)
    catalog.connect(shared).close()
    after = (shared / layout.CATALOG).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("content", [b"", b"not a database", None])
def test_connect_mends_a_missing_or_broken_catalogue(corpus: Path, content: bytes | None) -> None:
    (corpus / layout.CATALOG).unlink()
    if content is not None:
        (corpus / layout.CATALOG).write_bytes(content)
    with catalog.connect(corpus) as connection:
        assert busy(connection) == [(TRACE, 30)]
    with plain(corpus) as client:
        assert busy(client) == [(TRACE, 30)]


_THEIRS = "CREATE OR REPLACE VIEW gpu_time AS SELECT 'theirs' AS trace_id, 1 AS busy_ns"


def test_a_catalogue_of_another_user_is_made_anew(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.connect(corpus).close()
    before = (corpus / layout.SIGNATURE).read_bytes()
    monkeypatch.setattr(catalog_file, "cache_folder", lambda: tmp_path)
    catalog_file.signing_key.cache_clear()
    with catalog.connect(corpus) as connection:
        assert busy(connection) == [(TRACE, 30)]
    assert (corpus / layout.SIGNATURE).read_bytes() != before
    assert (tmp_path / "catalog.key").stat().st_mode & 0o077 == 0
    catalog_file.signing_key.cache_clear()


def test_views_that_came_later_are_never_run(corpus: Path) -> None:
    """Whoever may write to the corpus sees what this user signed, and writes other views below it."""
    with duckdb.connect(corpus / layout.CATALOG) as theirs:
        theirs.execute(_THEIRS)
    with catalog.connect(corpus) as connection:
        assert busy(connection) == [(TRACE, 30)]
    with plain(corpus) as client:
        assert busy(client) == [(TRACE, 30)]


def test_changes_beside_the_catalogue_are_not_taken_in(corpus: Path, tmp_path: Path) -> None:
    copy = shutil.copy(corpus / layout.CATALOG, tmp_path / layout.CATALOG)
    with duckdb.connect(copy) as theirs:
        theirs.execute("PRAGMA disable_checkpoint_on_shutdown")
        theirs.execute(_THEIRS)
    shutil.copy(f"{copy}.wal", corpus)
    with catalog.connect(corpus) as connection:
        assert busy(connection) == [(TRACE, 30)]
    with plain(corpus) as client:
        assert busy(client) == [(TRACE, 30)]


def test_no_view_of_a_foreign_catalogue_is_asked_who_made_it(corpus: Path) -> None:
    """A view that would take days, under the name that was once asked."""
    (corpus / layout.CATALOG).unlink()
    with duckdb.connect(corpus / layout.CATALOG) as theirs:
        theirs.execute(
            "CREATE VIEW _catalog AS SELECT sum(i % 7)::VARCHAR AS fingerprint FROM range(1_000_000_000_000_000) t(i)"
        )
    code = (
        f"import lumos_df; print(lumos_df.connect({str(corpus)!r}).execute('SELECT busy_ns FROM gpu_time').fetchall())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("[(30,)]\n", "")


def test_no_query_fetches_code(shared: Path) -> None:
    with catalog.connect(shared) as connection:
        for setting in ("autoinstall_known_extensions", "autoload_known_extensions"):
            assert connection.execute(f"SELECT current_setting('{setting}')").fetchall() == [(False,)]


def test_where_the_catalogue_cannot_be_written_the_views_live_in_memory(corpus: Path) -> None:
    (corpus / layout.CATALOG).unlink()
    (corpus / layout.CATALOG).mkdir()  # stands in for a read-only corpus, which does not stop root
    with catalog.connect(corpus) as connection:
        assert busy(connection) == [(TRACE, 30)]
    with pytest.raises(CorpusError, match=r"catalog\.duckdb: cannot be written"):
        catalog.write_catalog(corpus)
    assert [path for path in corpus.iterdir() if path.name.startswith(".")] == []


def test_a_table_that_the_corpus_was_made_without_is_empty_until_it_arrives(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(
        "later",
        "A table to come.",
        (TableColumn("trace_id", "string", "Trace."), TableColumn("x", "list<int32>", "X.")),
    )
    for module in (catalog, definitions):
        monkeypatch.setattr(module, "TABLES", (*TABLES, table))
    with catalog.connect(corpus) as connection:
        described = connection.execute("DESCRIBE later").fetchall()
        assert [row[:2] for row in described] == [("trace_id", "VARCHAR"), ("x", "INTEGER[]")]
        assert connection.execute("SELECT * FROM later").fetchall() == []
    with duckdb.connect() as client:
        client.execute(f"COPY (SELECT [1, 2] AS x) TO '{layout.trace_folder(corpus, TRACE) / 'later.parquet'}'")
    with catalog.connect(corpus) as connection:
        assert connection.execute("SELECT * FROM later").fetchall() == [(TRACE, [1, 2])]


def kept_catalogs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the catalogue's views be kept in a folder of the test."""
    folder.mkdir()
    for module in (catalog, catalog_file):
        monkeypatch.setattr(module, "cache_folder", lambda: folder)
    return folder


def test_a_catalogue_is_made_of_the_one_that_is_kept_as_of_nothing(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kept_catalogs(tmp_path / "kept", monkeypatch)
    everything = (
        "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal",
        "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() WHERE NOT internal",
        "SELECT function_name, parameters FROM duckdb_functions() WHERE NOT internal",
    )
    told = []
    for name in ("first", "second"):
        shutil.copytree(files, tmp_path / name)
        catalog.write_catalog(tmp_path / name)
        assert len(list(kept.glob("views-*.duckdb"))) == 1
        with plain(tmp_path / name) as client:
            told.append([set(map(repr, client.execute(sql).fetchall())) for sql in everything])
    assert told[0] == told[1]
    add_trace(tmp_path / "second", "b", kernels=1)
    shutil.rmtree(tmp_path / "first")
    with duckdb.connect() as client:
        attach(client, tmp_path / "second")
        assert busy(client, "mine.") == [(TRACE, 30), ("b", 10)]


@pytest.mark.parametrize("name", ["it's [a]*b ü", "x" * 200])
def test_the_catalogue_of_a_new_corpus_is_a_copy_that_duckdb_and_connect_take(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kept_catalogs(tmp_path / "kept", monkeypatch)
    first, second = tmp_path / "first", tmp_path / name / "second"
    for folder in (first, second):
        shutil.copytree(files, folder)
    assert not catalog_file.publish_kept(first)
    catalog.write_catalog(first, new=True)
    assert catalog_file.publish_kept(second)
    shutil.rmtree(first)
    before = (second / layout.CATALOG).stat()
    for opened in (plain(second), catalog.connect(second)):
        with opened as client:
            assert busy(client) == [(TRACE, 30)]
    assert (second / layout.CATALOG).stat().st_ino == before.st_ino
    with duckdb.connect() as client:
        attach(client, second)
        assert busy(client, "mine.") == [(TRACE, 30)]


def test_a_kept_catalogue_that_was_damaged_is_not_copied(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kept_catalogs(tmp_path / "kept", monkeypatch)
    shutil.copytree(files, tmp_path / "corpus")
    catalog.write_catalog(tmp_path / "corpus", new=True)
    (file,) = kept.glob("views-*.duckdb")
    content = file.read_bytes()
    file.write_bytes(content[:20_000] + b"x" + content[20_001:])
    assert not catalog_file.publish_kept(tmp_path / "corpus")


@pytest.mark.parametrize("name", ["rank=7", "x" * 200 + "/" + "y" * 200 + "/" + "z" * 200])
def test_a_new_corpus_whose_folder_is_no_such_text_gets_no_copy(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kept_catalogs(tmp_path / "kept", monkeypatch)
    first, second = tmp_path / "first", tmp_path / name / "second"
    for folder in (first, second):
        shutil.copytree(files, folder)
    catalog.write_catalog(first, new=True)
    assert not catalog_file.publish_kept(second)
    assert not (second / layout.CATALOG).exists()


def test_a_kept_catalogue_that_does_not_read_is_made_again(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kept_catalogs(tmp_path / "kept", monkeypatch)
    for number, content in enumerate((b"", b"not a database", b"")):
        corpus = tmp_path / str(number)
        shutil.copytree(files, corpus)
        catalog.write_catalog(corpus)
        with plain(corpus) as client:
            assert busy(client) == [(TRACE, 30)]
        (file,) = kept.glob("views-*.duckdb")
        assert len(file.read_bytes()) > 10_000
        file.write_bytes(content)


def test_no_corpus_and_a_corpus_of_another_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no corpus here"):
        catalog.connect(tmp_path)
    (tmp_path / layout.MANIFEST).write_text('{"format": 99, "made_by": "lumos-df 9.9"}')
    with pytest.raises(CorpusError, match=r"format 99, made by lumos-df 9\.9"):
        catalog.connect(tmp_path)


def test_a_broken_table_is_named(corpus: Path) -> None:
    (layout.trace_folder(corpus, TRACE) / "traces.parquet").write_bytes(b"not parquet")
    (corpus / layout.CATALOG).unlink()
    for make in (catalog.write_catalog, catalog.connect):  # with the views of other corpora at hand
        with pytest.raises(
            CorpusError,
            match=r"^catalogue: cannot create view traces \(.*traces\.parquet.*\); .*ingest the traces again",
        ):
            make(corpus)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM gpu_tme", "query: no table or view 'gpu_tme'; did you mean 'gpu_time'?"),
        ("SELECT busy FROM gpu_time", 'query: Binder Error: Referenced column "busy" not found'),
        ("SELEC 1", 'query: Parser Error: syntax error at or near "SELEC"'),
    ],
)
def test_a_refused_query_is_one_line(shared: Path, sql: str, message: str) -> None:
    with catalog.connect(shared) as connection, pytest.raises(QueryError) as caught:
        catalog.query(connection, sql)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_an_unknown_view_like_no_other_gets_the_list(shared: Path) -> None:
    with (
        catalog.connect(shared) as connection,
        pytest.raises(
            QueryError,
            match=r"; there are advice, advice_evidence, advice_rows, advised_jobs, annotation_summary, .*waited_for$",
        ),
    ):
        catalog.query(connection, "SELECT * FROM xyzzy")


def test_a_long_query_gets_its_line_number(shared: Path) -> None:
    with catalog.connect(shared) as connection, pytest.raises(QueryError, match=r"\(line 3\)$"):
        catalog.query(connection, "SELECT *\nFROM gpu_time\nWHERE nowhere = 1")


def test_rows_that_are_not_those_of_the_file_s_columns_are_told_with_what_to_do(corpus: Path) -> None:
    """So it looks where another file takes the place of one: DuckDB reads its columns, and opens it again for rows."""
    file = layout.trace_folder(corpus, TRACE) / "operators.parquet"
    content = file.read_bytes()
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    file.write_bytes(content[:4] + bytes(end - 4) + content[end:])
    with catalog.connect(corpus) as connection, pytest.raises(QueryError) as raised, catalog.one_line_errors():
        connection.execute("SELECT * FROM operators").fetchall()
    remedy = "; if another command is changing the corpus, ask again; else ingest its traces into a new folder"
    assert str(raised.value).startswith("query: ")
    assert str(raised.value).endswith(remedy)


def test_an_error_while_rows_stream_is_one_line_too(shared: Path) -> None:
    sql = "SELECT CASE i WHEN 3000000 THEN ('x' || i)::INTEGER ELSE i END FROM range(4000000) AS many(i)"
    with catalog.connect(shared) as connection:
        rows = catalog.query(connection, sql)
        with pytest.raises(QueryError, match=r"^query: Conversion Error: .*x3000000"), catalog.one_line_errors():
            rows.fetchall()


VIEW = """\
-- What it
-- holds.
CREATE VIEW sample(
  -- One.
  a,
  -- Two.
  "group"
) AS
SELECT 1, 2;
"""


def write_view(folder: Path, text: str, name: str = "sample") -> Path:
    path = folder / f"{name}.sql"
    path.write_text(text)
    return path


def test_a_view_file_is_read(tmp_path: Path) -> None:
    view = view_files.read_view(write_view(tmp_path, VIEW))
    assert (view.name, view.folder, view.doc, view.internal) == ("sample", tmp_path.name, "What it holds.", False)
    assert [(column.name, column.doc) for column in view.columns] == [("a", "One."), ("group", "Two.")]
    with duckdb.connect() as client:
        assert client.execute(f"{view.sql}; SELECT * FROM sample").fetchall() == [(1, 2)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-- holds.\n", "", "must be two comment lines"),
        ("-- holds.\n", "-- holds.\n-- A third.\n", "must be two comment lines"),
        ("SELECT 1, 2;", "SELECT 1, 2", "must be two comment lines"),
        ("  -- Two.\n", "", "every column of the view needs one comment line"),
        ("  a,\n", "  a, b,\n", "every column of the view needs one comment line"),
        ("VIEW sample", "VIEW simple", "defines view 'simple'; the file must bear the view's name"),
    ],
)
def test_a_view_file_out_of_form_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = write_view(tmp_path, VIEW.replace(old, new))
    with pytest.raises(ValueError, match=f"sample.sql: {message}"):
        view_files.read_view(path)


MACRO = """\
-- What it computes.
-- More of it.
CREATE MACRO sample(
  -- A table.
  given,
  -- A number.
  most := 3
) AS TABLE
SELECT
  -- One.
  a
FROM (
  SELECT 1 AS a FROM query_table(given) LIMIT most
);
"""


def test_a_macro_file_is_read_with_its_parameters_and_columns(tmp_path: Path) -> None:
    macro = view_files.read_macro(write_view(tmp_path, MACRO))
    assert [(each.name, each.doc) for each in macro.parameters] == [("given", "A table."), ("most", "A number.")]
    assert macro.optional == {"most"}
    assert [(each.name, each.doc) for each in macro.columns] == [("a", "One.")]
    assert macro.doc == "What it computes. More of it."


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (" AS TABLE", "", "must be two comment lines, 'CREATE MACRO sample"),
        ("  -- A number.\n", "", "every column of the view needs one comment line"),
        ("  -- One.\n", "", "every column of the view needs one comment line"),
        ("MACRO sample", "MACRO simple", "defines view 'simple'; the file must bear the view's name"),
    ],
)
def test_a_macro_file_out_of_form_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"sample.sql: {message}"):
        view_files.read_macro(write_view(tmp_path, MACRO.replace(old, new)))


def with_view(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    view = view_files.read_view(write_view(folder, text))
    monkeypatch.setattr(definitions, "views", lambda: (view,))
    monkeypatch.setattr(definitions, "macros", tuple)


def test_a_column_outside_the_list_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_view(tmp_path, monkeypatch, VIEW.replace("1, 2", "1, 2, 3 AS bare"))
    with pytest.raises(ValueError, match=r"column sample\.bare is not in the view's list"):
        catalog.blank()


def test_a_listed_column_that_the_query_lacks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_view(tmp_path, monkeypatch, VIEW.replace("1, 2", "1"))
    with pytest.raises(CorpusError, match=r"catalogue: cannot create view sample .*More VIEW aliases than columns"):
        catalog.blank()


def test_views_come_after_what_they_read_and_not_in_circles(tmp_path: Path) -> None:
    first, second = (
        view_files.read_view(
            write_view(tmp_path, VIEW.replace("sample", name).replace("1, 2", f"a, a FROM {source}"), name)
        )
        for name, source in (("x", "y"), ("y", "operators"))
    )
    assert [view.name for view in view_files.in_order([first, second])] == ["y", "x"]
    loop = view_files.read_view(write_view(tmp_path, VIEW.replace("sample", "y").replace("1, 2", "a, a FROM x"), "y"))
    with pytest.raises(ValueError, match=r"in a circle: (x -> y -> x|y -> x -> y)"):
        view_files.in_order([first, loop])


def test_every_public_view_is_row_by_row_a_report_or_simulated() -> None:
    assert {view.folder for view in view_files.views() if not view.internal} == {"trace", "report", "sim"}
    assert {view.folder for view in view_files.views() if view.internal} == {"base", "sim"}


def test_connect_imports_no_compiler_and_no_data_frames(shared: Path) -> None:
    code = (
        "import sys; from lumos_df import connect; connect(sys.argv[1]).execute('FROM gpu_time').fetchall();"
        "print(sys.modules.keys() & {'numba', 'numpy', 'polars', 'pyarrow', 'pandas'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, shared], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60
    )
    assert done.stdout == "set()\n"
