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
    from remit.server.api import api_application
    from remit.server.app import App
    from remit.server.authentication import DEVELOPER, Authenticator, key_provider, open_keys
    from remit.server.telemetry import (
        CallLog,
        CallMetrics,
        set_up_logging,
        set_up_tracing,
        tracing_observer,
    )

    options = json.loads(os.environ[_OPTIONS])
    runtime = Runtime.open(Path(options["root"]), flags=options["flags"])
    settings = runtime.loaded.settings
    set_up_logging(settings.server.log_level, settings.server.log_format)
    limit_headers(settings.server)
    keys = open_keys(runtime)
    provider = None if options["dev"] else key_provider(runtime, keys)
    if options["dev"]:
        runtime.allow_without_limits(DEVELOPER)
    gateway = runtime.gateway
    metrics = CallMetrics(
        max_models=settings.telemetry.max_models,
        known=lambda provider, model: runtime.prices.find(provider, model) is not None,
    )
    metrics.watch(
        breakers=lambda: gateway.breakers,
        in_flight_calls=gateway.in_flight.count,
        ledger_entries=lambda: (runtime.ledger.head() or (-1,))[0] + 1,
    )
    gateway.observers.append(metrics)
    traces = None
    if settings.telemetry.otlp_endpoint:
        traces = set_up_tracing(settings.telemetry.otlp_endpoint, settings.telemetry.service_name)
        observer = tracing_observer(traces, capture_content=settings.telemetry.capture_content)
        if observer is not None:
            gateway.observers.append(observer)
    if settings.server.log_level in ("debug", "info"):
        gateway.observers.append(CallLog())
    authenticator = Authenticator(
        provider, settings.server.contract_id, settings.auth.revocation_s, metrics.refused_key,
        None if provider is None else keys.lookup,
    )  # fmt: skip

    def close() -> None:
        keys.close()
        if traces is not None:
            traces.shutdown()

    # What exists now stays: the collector need not scan it again, and what a call leaves behind
    # is freed by reference counts.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    # Bounds how long the ledger's thread waits for the event loop to release the interpreter.
    sys.setswitchinterval(_SWITCH_S)
    return App(
        runtime,
        authenticator,
        metrics,
        api_application(runtime, keys, authenticator),
        settings.server,
        settings.gateway.recover_every_s,
        on_shutdown=close,
        traced=traces is not None,
        dev=options["dev"],
    )
