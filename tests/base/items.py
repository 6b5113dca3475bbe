"""What tests give workers to do. It imports only what a worker has anyway: each starts in a third of the time."""

import os
import signal
import sys
import time
from pathlib import Path

from lumos_df.base.runner import available_cpus


def square(number: int) -> int:
    return number * number


def refuse_seven(number: int) -> int:
    if number == 7:
        raise EOFError("seven")
    return number


def exhaust_memory_at_two(number: int) -> int:
    if number == 2:
        raise MemoryError
    return number


def die_at_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_the_first_time(path: str) -> str:
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return path


def leave_at_three(number: int) -> int:
    if number == 3:
        os._exit(5)
    return number


def chatter(number: int) -> int:
    print("from Python")
    os.write(1, b"from below Python\n")
    return number + len(sys.stdin.read())


def process_id(_: int) -> int:
    return os.getpid()


def cpus(_: int) -> int:
    return available_cpus()


def note_and_wait(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(60)


class TwoPartError(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first}, {second}")


def raise_what_does_not_unpickle(_: int) -> None:
    raise TwoPartError("one", "two")


def note_or_return(path: str) -> None:
    if path != "return":
        note_and_wait(path)
