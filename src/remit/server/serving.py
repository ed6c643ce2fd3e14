"""``remit serve``, with a single process or several."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.server.listener import Options, listen, require_loopback, url_of
from remit.server.server_processes import Workers
from remit.server.temporary_folders import scratch_folder

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
