"""Display of the running step and its seconds on a terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import click

from remit.cli.output import printable

_AFTER_S = 1.0  # A shorter wait needs no message.
_EVERY_S = 0.5


class Activity:
    """A line on standard error with the name of the running step and its seconds.

    As long as the object is entered as a context, the terminal does not echo typed characters. They
    do not mix with the answer, and the next prompt receives them. A step of less than a second is
    not shown. If input, output or error is no terminal, or ``TERM`` is ``dumb``, the object does
    nothing.
    """

    def __init__(self) -> None:
        self._on = os.environ.get("TERM") != "dumb" and all(
            stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)
        )
        self._lock = threading.Lock()
        self._step = ""
        self._since = 0.0
        self._shown = False
        self._ended = threading.Event()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Activity:
        if self._on:
            self._stack.enter_context(_without_echo())
            threading.Thread(target=self._tick, name="remit-activity", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.hide()
        self._stack.close()

    def show(self, step: str) -> None:
        """Set the name of the running step to ``step`` and restart its clock."""
        with self._lock:
            self._step, self._since = step, time.monotonic()

    def hide(self) -> None:
        """Clear the line, and print nothing until the next :meth:`show`."""
        with self._lock:
            self._step = ""
            if self._shown:
                self._shown = False
                click.echo("\r\x1b[K", nl=False, err=True)

    def _tick(self) -> None:
        while not self._ended.wait(_EVERY_S):
            with self._lock:
                passed = time.monotonic() - self._since
                if self._step and passed >= _AFTER_S and not self._ended.is_set():
                    self._shown = True
                    line = f"[{self._step}, {passed:.0f} s]"
                    click.echo(f"\r\x1b[K{printable(line)}", nl=False, err=True)


@contextlib.contextmanager
def _without_echo() -> Iterator[None]:
    """Turn off the echo of a terminal during the block; the next prompt still reads typed lines."""
    try:
        import termios
    except ImportError:  # Windows has no termios; typed text is shown at the cursor.
        yield
        return
    before: list[Any] = termios.tcgetattr(sys.stdin)
    silent = [*before]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
