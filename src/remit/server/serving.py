"""``remit serve``, with a single process or several; folders that outlive no process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.server.listener import Options, listen, require_loopback, url_of
from remit.server.server_processes import Workers

_METRICS = "PROMETHEUS_MULTIPROC_DIR"
_ENDED_AT_ONCE = 128 + signal.SIGTERM


def serve(
    root: Path,
    *,
    dev: bool,
    flags: Mapping[str, Any],
    ready: Callable[[str], None],
    by: str = "local operator",
) -> None:
    """Serve a root until SIGTERM or SIGINT; then let calls end, and return. Blocks.

    After the signal new calls are still taken for ``server.notice_s`` seconds. Calls in flight may
    then end within ``server.drain_s`` seconds; after that they are cancelled and recorded. SIGHUP
    reads the configuration again, and is ignored until the server runs.
    ``PROMETHEUS_MULTIPROC_DIR`` is set during the call if there are several workers and the
    variable is not set. The socket is closed at the end. Call it in the main thread.

    Args:
        root: directory of an existing root.
        dev: authenticate nobody; only on a loopback address.
        flags: settings, keyed by dotted name.
        ready: called with the server's URL once it answers.
        by: the user who runs the server, for the record.

    Raises:
        RemitError: the configuration or the root cannot be used; the server cannot listen on the
            address, or may not in dev mode; or workers cannot start, as by :meth:`Workers.run`.
        SystemExit: a second signal cancelled the calls in flight; the status is 143.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # No server is there yet to reload.
    settings = load_settings(Root(root).config, flags=flags).settings.server
    if dev:
        require_loopback(settings.host)
    with ExitStack() as stack:
        listening = stack.enter_context(
            listen(settings.host, settings.port, settings.max_connections)
        )
        if (
            settings.workers > 1 and _METRICS not in os.environ
        ):  # The metrics library reads the variable on import.
            os.environ[_METRICS] = stack.enter_context(scratch_folder("remit-metrics-"))
            stack.callback(os.environ.pop, _METRICS)
        options = Options(str(root), dev, dict(flags), by)
        if settings.workers > 1:
            workers = Workers(settings.workers, options, listening)
            by_itself = workers.run(lambda: ready(url_of(listening)))
        else:
            from remit.server.current_application import Current
            from remit.server.http_server import HttpServer

            server = HttpServer(Current(options), started=lambda: ready(url_of(listening)))
            server.run([listening])
            by_itself = not server.ended_at_once
    if not by_itself:
        sys.exit(_ENDED_AT_ONCE)


_LOCK = ".in-use"


@contextlib.contextmanager
def scratch_folder(prefix: str) -> Iterator[str]:
    """Make a temporary directory, yield its path, and remove the directory after the block.

    The directory holds a lock file while in use. Directories with the same prefix whose processes
    have died are removed first.

    Args:
        prefix: beginning of the directory's name, in the system's temporary directory.

    Raises:
        OSError: the directory or its lock cannot be made.
    """
    for place in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        _remove_unused(place)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        with open(folder / f"{_LOCK}.new", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # The system releases the lock of a dead process.
            os.rename(lock.name, folder / _LOCK)  # Others must not find the file before its lock.
            yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_unused(folder: Path) -> None:
    with contextlib.suppress(OSError):  # The directory may be in use, deleted, or another user's.
        lock = os.open(folder / _LOCK, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
