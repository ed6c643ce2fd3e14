"""What is going on while one waits: a step and its seconds, on a terminal only."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import click

from remit.cli.shared import printable

_AFTER_S = 1.0  # A shorter wait needs no message.
_EVERY_S = 0.5


class Activity:
    """One line on standard error that says what runs, and for how long.

    As long as it is entered, what somebody types is not echoed: it does not mix with the answer,
    and is there at the next prompt. Where input, output or error is no terminal it does nothing.
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
        """Say from now on that ``step`` runs."""
        with self._lock:
            self._step, self._since = step, time.monotonic()

    def hide(self) -> None:
        """Say nothing any more, and clear the line for what is printed next."""
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
    """Keep a terminal from echoing what is typed; the lines themselves are kept for a reader."""
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
