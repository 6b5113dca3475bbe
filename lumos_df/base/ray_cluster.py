"""Items on a Ray cluster, one that is there or one that is started here."""

import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from lumos_df.base.errors import LumosError
from lumos_df.base.outcome import Outcome, WorkerError

Item = TypeVar("Item")
Result = TypeVar("Result")

_REACH_S: Final = 10
"""Seconds until a cluster counts as not there."""
_TOKEN: Final = "~/.ray/auth_token"  # noqa: S105 - where Ray keeps it
_REMEDY: Final = "where it asks for a token, set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN as on its head"


def map_on_ray(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int, address: str | None, tries: int
) -> Iterator[Outcome[Result]]:
    """Yield the outcome of every item as `runner.map_items` does.

    Args:
        function: is called with each item, in the folder of this process where the machine has one of that name.
        items: what to call it with.
        workers: CPUs of a cluster that is started here.
        address: HOST:PORT of a cluster that is there, or None.
        tries: how often an item is given to another worker, or node, where one ends before it answers.

    Raises `LumosError` where Ray is not installed, or no cluster answers.
    """
    _offer_token()
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError:
        raise LumosError("engine ray: Ray is not installed; pip install 'lumos-df[ray]'") from None
    here = os.getcwd()  # noqa: PTH109 - only handed on

    def answer(item: Item) -> Result:  # Ray takes no methods
        with suppress(OSError):
            os.chdir(here)
        return function(item)

    # A thread of Ray's says on standard output, which is that of the answer, when a worker ended.
    with redirect_stdout(sys.stderr):
        _join(ray, workers, address)
        try:
            call = ray.remote(max_retries=tries - 1)(answer)
            waiting = {call.remote(item): index for index, item in enumerate(items)}
            while waiting:
                for done in ray.wait(list(waiting))[0]:
                    index = waiting.pop(done)
                    try:
                        yield Outcome(index, ray.get(done), None)
                    except ray.exceptions.RayTaskError as error:
                        yield Outcome(index, None, error.cause if isinstance(error.cause, Exception) else error)
                    except ray.exceptions.RayError as error:
                        yield Outcome(index, None, WorkerError(f"its Ray worker ended {tries} times: {_line(error)}"))
        finally:
            ray.shutdown()


def _join(ray: Any, workers: int, address: str | None) -> None:
    """Start a cluster, or join that at an address. Raises `LumosError` where none starts or answers."""
    if address and ":" in address:
        _reach(address)
    environment = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    # One of its own: without that word Ray joins any cluster that it finds here, and that takes no number of CPUs.
    local: dict[str, Any] = {"address": "local", "num_cpus": max(workers, 1), "include_dashboard": False}
    local["runtime_env"] = {"env_vars": environment}
    try:
        with _silent():
            ray.init(log_to_driver=False, **({"address": address} if address else local))
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise LumosError(f"engine ray: no cluster at '{address}' ({_line(error)}); {_REMEDY}") from None
    except ray.exceptions.RayError as error:
        raise LumosError(f"engine ray: '{address}' refused ({_line(error)}); {_REMEDY}") from None
    except Exception as error:  # noqa: BLE001 - of a node that does not start in time Ray raises one of no kind
        where = f"at '{address}'" if address else "starts here"
        remedy = "wait until this machine is less busy, or give --engine processes"
        raise LumosError(f"engine ray: no cluster {where} ({_line(error)}); {remedy}") from None


def _offer_token() -> None:
    """Let Ray show a cluster the token that this user has.

    From 2.60 on `ray start --head` asks for the one that it finds, but who joins shows it only where told to. Clusters
    that ask for none take it, too.
    """
    known = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ)
    if known or Path(os.path.expanduser(_TOKEN)).is_file():  # noqa: PTH111 - without a home that raises nothing
        os.environ.setdefault("RAY_AUTH_MODE", "token")


@contextmanager
def _silent() -> Iterator[None]:
    """Let nothing reach the standard error stream: of a token that is missing Ray itself says some twenty lines."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _reach(address: str) -> None:
    """Raise `LumosError` where nothing listens at an address: Ray itself would try for many minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_S).close()
    except (OSError, ValueError) as error:
        raise LumosError(f"engine ray: no cluster at '{address}' ({error}); write HOST:PORT of its head") from None


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
