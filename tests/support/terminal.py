"""A program at a terminal of its own."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
import termios
import time
from typing import Self

_START = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is a signal
signal.signal(signal.SIGINT, signal.SIG_DFL)  # also when the tests run in the background
os.execv(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """A program at a terminal of its own."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._near, far = pty.openpty()
        termios.tcsetwinsize(far, (40, 120))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, *command], stdin=far, stdout=far, stderr=far,
            env={**environment, "TERM": "xterm"}, start_new_session=True,
        )  # fmt: skip
        os.close(far)
        self._seen = self.whole = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._near)

    def wait_for(self, text: str) -> None:
        """Read until ``text`` is there, from where the last one was found."""
        end = time.monotonic() + 60
        while text not in self._seen:
            assert time.monotonic() < end, self._seen
            try:
                self._seen += self._read()
            except OSError as error:
                raise AssertionError(f"{text!r} did not come: {self._seen}") from error
        self._seen = self._seen.split(text, 1)[1]

    def type(self, text: str) -> None:
        os.write(self._near, text.encode())

    def end(self, text: str) -> int:
        """Type the last thing; the exit code."""
        self.type(text)
        end = time.monotonic() + 60
        while self.process.poll() is None:
            assert time.monotonic() < end, self._seen
            with contextlib.suppress(OSError):
                self._read()
        return self.process.returncode

    def _read(self) -> str:
        if not select.select([self._near], [], [], 0.1)[0]:
            return ""
        text = os.read(self._near, 65536).decode("utf-8", "replace")
        if "\x1b[6n" in text:  # asks where the cursor stands; a terminal answers
            self.type("\x1b[1;1R")
        self.whole += text
        return text
