"""The settings of MCP and A2A: servers and agents of others, and Remit as a server."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, SecretStr, model_validator

from remit.kernel.settings.section import Section


class McpRule(Section):
    """``[[mcp.NAME.rules]]``: whether `remit mcp gateway` lets a key call a tool of the server.

    The first rule whose ``keys``, ``tools`` and ``arguments`` all match decides: the call is
    allowed, denied or left to a person. Without a matching rule the call is allowed, unless rules
    that allow or ask about the tool for this key exist, whose ``arguments`` do not fit.

    ``keys`` and ``tools`` are shell patterns of names, and ``arguments`` is a JSON Schema; an empty
    one matches all. ``price_usd`` is charged for each call, and ``calls_per_minute`` is a limit for
    each user or key; 0 is none.
    """

    effect: Literal["allow", "deny", "ask"] = Field(
        description="ask: every call waits for approval by a person"
    )
    keys: list[str] = Field(default_factory=list, description="patterns of key names; empty: all")
    tools: list[str] = Field(default_factory=list, description="patterns of tool names; empty: all")
    arguments: dict[str, Any] = Field(
        default_factory=dict, description="JSON Schema that the arguments must match; empty: any"
    )
    price_usd: float = Field(
        0.0, ge=0, description="US dollars charged to the key's budgets for each call"
    )
    calls_per_minute: int = Field(
        0, ge=0, description="maximum calls per minute for each user or key; 0: unlimited"
    )


class McpServerSettings(Section):
    """``[mcp.NAME]``: an MCP server whose tools agents may use, given by ``command`` or ``url``.

    The section also holds the server's timeouts and message size, the tools that agents may use
    (empty: all) and may repeat, and the rules of `remit mcp gateway`. A longer message closes the
    connection. Values of ``env`` and ``headers`` may hold ``${VARIABLE}``, taken from the
    environment; a program gets no other variables than ``env``, PATH, HOME and a few more.

    Raises:
        ValueError: both ``command`` and ``url`` are given, or neither.
    """

    command: str = Field("", description="program to start; Remit talks to it over stdio")
    args: list[str] = Field(default_factory=list, description="arguments of the program")
    env: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="environment variables of the program; from Remit's own environment it gets "
        "only PATH, HOME and a few others",
    )
    cwd: str = Field("", description="working directory of the program; empty: that of Remit")
    url: str = Field("", description="URL of a streamable HTTP server")
    headers: dict[str, SecretStr] = Field(
        default_factory=dict, description="headers sent with every request to the server"
    )
    timeout_s: float | None = Field(
        None, gt=0, description="timeout of a tool call; default: tools.timeout_s"
    )
    start_timeout_s: float = Field(
        30.0, gt=0, description="timeout for starting the server, and for listing its tools"
    )
    stop_timeout_s: float = Field(
        2.0, gt=0, description="time to exit before SIGTERM, and again before SIGKILL"
    )
    max_message_bytes: int = Field(
        8388608,
        ge=1024,
        description="maximum size of a message from the server; a longer one closes the connection",
    )
    tools: list[str] = Field(
        default_factory=list, description="tools of the server that agents may use; empty: all"
    )
    idempotent: list[str] = Field(
        default_factory=list,
        description="name patterns of tools that are safe to repeat; they run again after a crash",
    )
    rules: list[McpRule] = Field(
        default_factory=list, description="access rules of `remit mcp gateway`"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("an MCP server needs either a command or a url")
        return self


class McpEndpointSettings(Section):
    """``[mcp_server]``: Remit itself as an MCP server (``remit mcp``).

    The fields are the address, further accepted hosts and origins, and limits of sessions, calls,
    sizes and times. ``calls_at_once`` and ``calls_per_caller`` count calls of ``router_route``, and
    apart from them calls of all other tools. Calls above these limits wait; above
    ``calls_waiting``, which holds for each user or key, they are refused. Longer results are cut.
    """

    host: str = Field(description="address that `remit mcp --http` listens on")
    port: int = Field(ge=0, le=65535, description="port; 0: any free port")
    allowed_hosts: list[str] = Field(
        description="additional host names accepted in the Host header"
    )
    allowed_origins: list[str] = Field(
        description="additional web origins accepted in the Origin header"
    )
    max_message_bytes: int = Field(ge=1024, description="maximum size of a message from a client")
    max_sessions: int = Field(ge=1, description="maximum number of open MCP sessions")
    session_idle_s: float = Field(
        gt=0, description="idle time after which an MCP session is closed"
    )
    sessions_per_caller: int = Field(
        ge=1, description="maximum number of MCP sessions for each user or key"
    )
    calls_at_once: int = Field(
        ge=1,
        description="maximum number of concurrent router_route calls, and of concurrent calls of "
        "all other tools; more calls wait",
    )
    calls_per_caller: int = Field(
        ge=1, description="over HTTP: the same limit for each user or key"
    )
    calls_waiting: int = Field(
        ge=0, description="maximum number of waiting calls for each user or key; more are refused"
    )
    thoughts_per_minute: int = Field(
        ge=0,
        description="maximum thoughts per minute for each user or key with the role agent; 0: "
        "unlimited",
    )
    timeout_s: float = Field(gt=0, description="timeout of tools that call no model")
    route_timeout_s: float = Field(gt=0, description="timeout of router_route")
    max_output_bytes: int = Field(
        ge=1024, description="maximum size of a result; longer texts are truncated"
    )
    max_text_chars: int = Field(ge=1, description="maximum length of a prompt or thought")
    max_unread: int = Field(
        ge=1,
        description="over stdio: maximum number of unread answers; at the limit, no more requests"
        " are read",
    )
    drain_s: float = Field(
        ge=0,
        description="over stdio: time to finish running calls and send answers before exit",
    )


class A2aSettings(Section):
    """``[a2a.NAME]``: another agent, reached over A2A through ``/a2a/NAME`` of `remit serve`.

    The fields are its URL, its agent card (empty: ``/.well-known/agent-card.json`` on the same
    host), an API key that is sent as a bearer token, and a price for each message.
    """

    url: str = Field(min_length=1, description="URL of the agent's JSON-RPC interface")
    card: str = Field(
        "",
        description="URL of the agent card; empty: /.well-known/agent-card.json on the same host",
    )
    api_key: SecretStr = Field(SecretStr(""), description="API key, sent as a bearer token")
    price_usd: float = Field(0.0, ge=0, description="US dollars charged for each message")
