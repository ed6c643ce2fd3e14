"""``remit serve``: its processes, and the application of each (SPEC 12, 15)."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.server.listening import http_config, limit_headers, listen, require_loopback, url_of

_OPTIONS = "REMIT_SERVE_OPTIONS"
_METRICS = "PROMETHEUS_MULTIPROC_DIR"


_GC_THRESHOLD = 50_000
_SWITCH_S = 0.001


def serve(root: Path, *, dev: bool, flags: Mapping[str, Any], ready: Any) -> None:
    """Serve a root until SIGTERM or SIGINT; then let calls end, and return.

    Args:
        root: an existing root.
        dev: let everybody in; on loopback only.
        flags: settings by dotted key.
        ready: called with the server's URL once the socket listens.

    Raises:
        ServerError: the address cannot be listened on, or must not be.
    """
    from uvicorn import Server
    from uvicorn.supervisors import Multiprocess

    settings = load_settings(Root(root).config, flags=flags).settings.server
    if dev:
        require_loopback(settings.host)
    listening = listen(settings.host, settings.port, settings.max_connections)
    os.environ[_OPTIONS] = json.dumps({"root": str(root), "dev": dev, "flags": dict(flags)})
    if settings.workers > 1 and _METRICS not in os.environ:
        os.environ[_METRICS] = tempfile.mkdtemp(prefix="remit-metrics-")
    config = http_config(
        "remit.server.serving:application", settings, factory=True, workers=settings.workers
    )
    if settings.workers > 1:
        ready(url_of(listening))
        Multiprocess(config, sockets=[listening]).run()
    else:
        server = Server(config)
        config.load()  # what is wrong with the root shows before the URL is announced
        ready(url_of(listening))
        server.run(sockets=[listening])


def application() -> Any:
    """The application of one process, with the options of :func:`serve`."""
    from remit.runtime import Runtime
    from remit.server.app import App
    from remit.server.telemetry import set_up_logging

    options = json.loads(os.environ[_OPTIONS])
    runtime = Runtime.open(Path(options["root"]), flags=options["flags"])
    settings = runtime.loaded.settings.server
    set_up_logging(settings.log_level, settings.log_format)
    limit_headers(settings)
    app = App(runtime, dev=options["dev"])
    # What exists now stays: the collector need not scan it again, and what a call leaves behind
    # is freed by reference counts.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    # Bounds how long the ledger's thread waits for the event loop to release the interpreter.
    sys.setswitchinterval(_SWITCH_S)
    return app
