"""The transport to a server of ``[mcp.NAME]``: its process or its address."""

from __future__ import annotations

from mcp.client.stdio import get_default_environment

from remit.agents.tools.mcp.connection import Transport
from remit.agents.tools.mcp.process import ServerProcess
from remit.agents.tools.mcp.secrets import McpSecrets
from remit.agents.tools.mcp.web import web_streams
from remit.kernel.settings import McpServerSettings


def mcp_transport(
    settings: McpServerSettings, secrets: McpSecrets
) -> tuple[Transport, ServerProcess | None]:
    """Return the transport to a server, and the process that it will start; None for a URL.

    Nothing is started or opened yet.

    Args:
        settings: the server's settings.
        secrets: fills ``env`` and ``headers`` from the environment.

    Raises:
        ToolError: an environment variable is not set, or the program was not found.
    """
    if settings.url:
        headers = secrets.filled(settings.headers)
        limit, connect_s = settings.max_message_bytes, settings.start_timeout_s
        return lambda _: web_streams(settings.url, headers, limit, connect_s), None
    environment = {**get_default_environment(), **secrets.filled(settings.env)}
    process = ServerProcess(settings, environment)
    return process.streams, process
