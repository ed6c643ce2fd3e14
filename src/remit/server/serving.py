"""Listening: sockets, processes, a clean end (SPEC 12, 15)."""

from __future__ import annotations

import gc
import ipaddress
import json
import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remit.kernel.errors import RemitError

__all__ = ["ServerError", "application", "serve"]

_OPTIONS = "REMIT_SERVE_OPTIONS"
_METRICS = "PROMETHEUS_MULTIPROC_DIR"


_GC_THRESHOLD = 50_000
_SWITCH_S = 0.001


class ServerError(RemitError):
    """The server cannot begin."""


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
    from uvicorn import Config, Server
    from uvicorn.supervisors import Multiprocess

    from remit.kernel.root import Root
    from remit.kernel.settings import load_settings

    settings = load_settings(Root(root).config, flags=flags).settings.server
    if dev and not _is_loopback(settings.host):
        raise ServerError(
            f"Dev mode lets everybody in, so it listens on loopback only, not on {settings.host}.",
            next_step="Leave out --dev and make keys with `remit key create`.",
        )
    listening = _listen(settings.host, settings.port, settings.max_connections)
    os.environ[_OPTIONS] = json.dumps({"root": str(root), "dev": dev, "flags": dict(flags)})
    if settings.workers > 1 and _METRICS not in os.environ:
        os.environ[_METRICS] = tempfile.mkdtemp(prefix="remit-metrics-")
    config = Config(
        "remit.server.serving:application",
        factory=True,
        http="remit.server.protocol:GuardedProtocol",
        ws="none",
        loop="auto",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        workers=settings.workers,
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=settings.drain_s,
        backlog=settings.max_connections,
    )
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    if settings.workers > 1:
        ready(f"http://{shown}:{port}")
        Multiprocess(config, sockets=[listening]).run()
    else:
        server = Server(config)
        config.load()  # what is wrong with the root shows before anybody is told of a URL
        ready(f"http://{shown}:{port}")
        server.run(sockets=[listening])


def application() -> Any:
    """The application of one process, as :func:`serve` was told to make it."""
    from remit.gateway.auth import (
        AgentTokenProvider,
        AgentTokens,
        AuthLimits,
        ByTokenKind,
        KeyStore,
        agent_secret,
    )
    from remit.runtime import Runtime
    from remit.server.api import api_application
    from remit.server.app import App
    from remit.server.authentication import DEVELOPER, Authenticator
    from remit.server.protocol import GuardedProtocol
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
    GuardedProtocol.max_header_bytes = settings.server.max_header_bytes
    GuardedProtocol.header_timeout_s = settings.server.header_timeout_s
    limits = AuthLimits(settings.auth.revocation_s, settings.auth.stale_after_s)
    keys = KeyStore(runtime.ledger, limits)
    authority = None
    if options["dev"]:
        runtime.allow_without_limits(DEVELOPER)
    else:
        agents = AgentTokenProvider(AgentTokens(agent_secret(runtime.root)), keys)
        authority = ByTokenKind(agents, keys)
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
    door = Authenticator(
        authority, settings.server.contract_id, settings.auth.revocation_s, metrics.refused_key
    )

    def end() -> None:
        keys.close()
        if traces is not None:
            traces.shutdown()

    # What is there now stays: the collector need not look at it again, and what a call leaves
    # behind is freed by reference counts.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    # The ledger's thread waits for the loop's to let go of the interpreter: not for long.
    sys.setswitchinterval(_SWITCH_S)
    return App(
        runtime,
        door,
        metrics,
        api_application(runtime, keys, door),
        settings.server,
        settings.gateway.recover_every_s,
        on_end=end,
        traced=traces is not None,
        dev=options["dev"],
    )


def _listen(host: str, port: int, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(backlog)  # who is told of the URL may come before the server runs
    except OSError as error:
        listening.close()
        raise ServerError(
            f"{host}:{port} cannot be listened on: {error.strerror}.",
            next_step="Choose another --port, or end what listens there.",
        ) from error
    listening.set_inheritable(True)
    return listening


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
