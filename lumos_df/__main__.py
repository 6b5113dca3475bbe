"""`python -m lumos_df` is `lumos-df`."""

import atexit
import os
import signal
import sys
from typing import NoReturn


def run() -> NoReturn:
    """Run the command line as all that this process does, and leave it without taking it apart.

    To free every function that numba and pyarrow have made took a fifth of what a small trace takes.
    """
    # Until the command line is there to say it in a line, Ctrl-C ends the process: Python would print where among the
    # imports it was.
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from lumos_df.base import freed_memory, unused_modules  # noqa: PLC0415 - see above
    from lumos_df.cli.main import main  # noqa: PLC0415 - see above

    signal.signal(signal.SIGINT, usual)
    if "capture" not in sys.argv:  # whose job has threads, objects and imports of its own
        freed_memory.collect_rarely()
        unused_modules.leave_out_pandas()
        # Those of numpy's linear algebra spin when they start, and nothing here is large enough for them.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        main()
    except SystemExit as leaving:
        if isinstance(leaving.code, str):
            raise
        status = leaving.code or 0
    else:
        status = 0
    atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing leaves its workers
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    run()
