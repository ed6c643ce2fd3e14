"""Sockets, limits of connections, and uvicorn's configuration."""

from __future__ import annotations

import contextlib
import errno
import functools
import ipaddress
import logging
import resource
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from uvicorn import Config

from remit.kernel.errors import RemitError
from remit.kernel.settings import ServerSettings
from remit.server.connection import Connection

_log = logging.getLogger("remit.server")

_KEEPALIVE = {
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,
}  # A lost client is detected after a minute.
_OWN_FILES = 64  # Files of the ledger, of logs and of libraries.


@dataclass(frozen=True, slots=True)
class Options:
    """The options of ``remit serve``.

    Immutable, and can be sent to another process.

    Attributes:
        root: directory of the root.
        dev: authenticate nobody.
        flags: settings, keyed by dotted name.
        by: the user who runs the server, for the record.
    """

    root: str
    dev: bool
    flags: Mapping[str, Any] = field(default_factory=dict)
    by: str = ""


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Return a listening socket. Clients can connect before the server runs.

    The socket is inherited by child processes. The caller closes it.

    Args:
        host: an address or name of this machine.
        port: a port; 0 for any free one.
        backlog: number of connections that may wait to be accepted.

    Raises:
        RemitError: the address cannot be used, for example because the port is in use.
    """
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _end_lost(listening)
        listening.bind((host, port))
        listening.listen(backlog)
    except OSError as error:
        listening.close()
        problem = f"The server cannot listen on {host}:{port}: {error.strerror}."
        if error.errno == errno.EADDRINUSE:
            problem = f"Port {port} of {host} is in use."
        step = "Choose another port, or stop the program that uses this one."
        raise RemitError(problem, next_step=step) from error
    listening.set_inheritable(True)
    return listening


def _end_lost(listening: socket.socket) -> None:
    """Enable TCP keepalive, which accepted connections inherit, to detect lost clients."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)


def url_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket: ``http://host:port``, with ``[host]`` for IPv6."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def require_loopback(host: str) -> None:
    """Raise RemitError unless a server in dev mode, which authenticates nobody, is on loopback.

    Args:
        host: an IP address or ``localhost``; other names are not resolved and are refused.

    Raises:
        RemitError: ``host`` is another address.
    """
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise RemitError(
            f"Dev mode requires no keys, so it listens only on loopback, not on {host}.",
            next_step="Start the server without dev mode, and create keys with `remit key create`.",
        )


def http_config(application: Any, settings: ServerSettings) -> Config:
    """Return uvicorn's configuration, with Remit's limits on connections, headers and time.

    The limits are set as by :func:`set_limits`. Uvicorn's own logs, its WebSockets, the ``server``
    header and headers of proxies are off; :class:`Connection` parses requests.

    Args:
        application: the ASGI application.
        settings: ``[server]``.
    """
    config = Config(
        application,
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=settings.max_connections,
    )
    set_limits(config, settings)
    return config


def set_limits(config: Config, settings: ServerSettings) -> None:
    """Set the limits of ``[server]`` for the connections of this process.

    Open connections keep some of the old limits. Header, body and stall limits are set on the class
    :class:`Connection`, so they apply to every server of the process. The soft limit of open files
    may be raised (:func:`most_connections`).

    Args:
        config: uvicorn's configuration, changed in place.
        settings: ``[server]``.
    """
    config.limit_concurrency = most_connections(settings.max_connections)
    config.timeout_keep_alive = settings.keep_alive_s
    config.timeout_graceful_shutdown = settings.drain_s
    Connection.max_header_bytes = settings.max_header_bytes
    Connection.header_timeout_s = settings.header_timeout_s
    Connection.max_socket_bytes = settings.max_body_bytes
    Connection.stalled_s = settings.body_timeout_s


@functools.cache
def most_connections(wanted: int) -> int:
    """Return the number of connections, at most ``wanted``, that file descriptors allow.

    Each client's connection needs a second one to a provider. The soft limit of this process is
    raised to its hard limit first. A lower result than ``wanted`` is logged once. The result is
    cached for each number.

    Args:
        wanted: the configured number.

    Returns:
        At least 1.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # Some systems refuse this number.
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    most = max(1, (soft - _OWN_FILES) // 2) if soft != resource.RLIM_INFINITY else wanted
    if most < wanted:
        _log.warning(
            "this process may open %d files, so it takes %d connections at once, not %d: "
            "raise its limit (ulimit -n, LimitNOFILE=)", soft, most, wanted,
        )  # fmt: skip
    return min(wanted, most)
