"""A Chromium without a window, asked through a pipe in the words of the DevTools protocol."""

import fcntl
import json
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_SECONDS: Final = 120
"""An answer that takes longer than this will not come: a page is drawn in less than one on an idle machine."""
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class DevTools:
    """One tab of one process of Chromium. Closed by `close`."""

    def __init__(self, program: str, folder: Path) -> None:
        """Start `program` with a new profile in `folder`. Raises `TimeoutError` when it does not answer."""
        to_read, self._write = _pipe()
        self._read, to_write = _pipe()
        (folder / "home").mkdir(parents=True)
        self._pid = os.posix_spawn(
            program,
            [program, *_FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
            {**os.environ, "HOME": str(folder / "home"), "XDG_CONFIG_HOME": str(folder / "home")},
            # Chromium reads what it is told from 3 and answers on 4.
            file_actions=[
                (os.POSIX_SPAWN_DUP2, to_read, 3),
                (os.POSIX_SPAWN_DUP2, to_write, 4),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setpgroup=0,
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer = bytearray()
        self._asked = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        """What happened and nobody has looked at yet."""
        tab = next(found for found in self.ask("Target.getTargets")["targetInfos"] if found["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=tab["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer to one command. Raises `RuntimeError` when Chromium refuses it."""
        self._asked += 1
        message = {"id": self._asked, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        for answer in self._messages():
            if answer.get("id") == self._asked:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)
        raise AssertionError

    def wait_for(self, event: str) -> dict[str, Any]:
        """Return the first event of this name that nobody has looked at, when it is there."""
        for number, told in enumerate(self.events):
            if told.get("method") == event:
                return self.events.pop(number)
        for told in self._messages():
            if told.get("method") == event:
                return told
            self.events.append(told)
        raise AssertionError

    def _messages(self) -> Iterator[dict[str, Any]]:
        until = time.monotonic() + _SECONDS
        while True:
            while (end := self._buffer.find(b"\0")) < 0:
                ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
                if not ready:
                    raise TimeoutError(f"Chromium did not answer within {_SECONDS} s")
                if not (block := os.read(self._read, 1 << 20)):
                    raise RuntimeError("Chromium has ended")
                self._buffer += block
            message = json.loads(self._buffer[:end])
            del self._buffer[: end + 1]
            yield message

    def close(self) -> None:
        """End the process and all that it started."""
        os.close(self._write)
        os.close(self._read)
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _pipe() -> tuple[int, int]:
    """Return both ends of a pipe, with numbers that a child's 3 and 4 do not fall on."""
    ends = os.pipe()
    read, write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return read, write
