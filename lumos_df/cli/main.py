"""The command as a process: what it exits with, and the one line that tells why."""

import os
import signal
import sys
from typing import Final, NoReturn

from lumos_df.base.errors import ROOM, LumosError, shortage
from lumos_df.base.files import reason
from lumos_df.base.printable import printable
from lumos_df.cli.app import command_line
from lumos_df.corpus.object_store import as_named

_INTERRUPTED: Final = 128 + signal.SIGINT
"""What a shell calls the status of a command that an interrupt ended."""


def main() -> None:
    """Run the command line: exit 0 done, 1 the input is bad, 2 usage, 130 stopped by Ctrl-C; a closed pipe is quiet."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal that cannot show a name still gets the rest
    try:
        try:
            command_line(sys.argv[1:2])(prog_name="lumos-df")
        except KeyboardInterrupt:  # before typer has made the commands: from then on it exits so by itself
            sys.exit(_INTERRUPTED)
        finally:
            sys.stdout.flush()
    except LumosError as error:
        _fail(str(error))
    except SystemExit as leaving:
        if leaving.code == _INTERRUPTED:
            print("lumos-df: stopped by Ctrl-C", file=sys.stderr)
        raise
    except BrokenPipeError:
        # The reader has left; what Python still holds must not go to the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - what is told of none is raised again
        _fail(_told(error))


def _told(error: Exception) -> str:
    """Return the line that tells of what the system or DuckDB refused; raise any other error again."""
    if short := shortage(error):
        return f"{short}; {ROOM}"
    if isinstance(error, OSError):
        # Where pyarrow refuses, its sentence alone says what.
        what = f"{error.filename}: {reason(error)}" if error.filename else error.strerror or error
        return f"{what}; check the path, its permissions and the disk's space"
    engine = sys.modules.get("_duckdb") or sys.modules.get("duckdb")
    if engine is None or not isinstance(error, engine.Error):
        raise error
    from lumos_df.corpus.catalog import refused  # noqa: PLC0415 - imports DuckDB

    return str(refused(error))


def _fail(message: str) -> NoReturn:
    print(f"lumos-df: {printable(as_named(' '.join(message.split())))}", file=sys.stderr)
    sys.exit(1)
