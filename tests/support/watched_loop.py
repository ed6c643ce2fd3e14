"""``python -m tests.support.watched_loop FILE ARGUMENTS…``: `remit`, with its event loop watched.

FILE gets a line for each callback of the loop that took long: its seconds of CPU, and its name.
CPU of the loop's own thread is counted, so that neither a busy machine nor another thread adds to
it. uvloop, whose callbacks cannot be watched, is left out.
"""

from __future__ import annotations

import asyncio.events
import sys
import time
from pathlib import Path

from remit.cli import main

_LONG_S = 0.02


def watch(file: Path) -> None:
    """Have the long callbacks of each event loop of this process written to a file."""
    run = asyncio.events.Handle._run
    out = file.open("a", encoding="utf-8", buffering=1)

    def _run(handle: asyncio.events.Handle) -> None:
        begun = time.thread_time()
        run(handle)
        if (took := time.thread_time() - begun) > _LONG_S:
            callback = getattr(handle, "_callback", None)
            out.write(f"{took:.3f} {getattr(callback, '__qualname__', callback)!s:.200}\n")

    asyncio.events.Handle._run = _run  # type: ignore[method-assign]


def callbacks(file: Path) -> list[tuple[float, str]]:
    """Return the seconds and names that were noted, the longest first."""
    lines = [line.partition(" ") for line in file.read_text(encoding="utf-8").splitlines()]
    return sorted(((float(took), name) for took, _, name in lines), reverse=True)


if __name__ == "__main__":
    sys.modules["uvloop"] = None  # type: ignore[assignment]
    watch(Path(sys.argv[1]))
    sys.argv[1:2] = []
    sys.exit(main())
