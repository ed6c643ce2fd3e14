"""The settings of MCP and A2A: servers and agents of others, and Remit as a server."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, SecretStr, model_validator

from remit.kernel.settings.section import Section


class McpRule(Section):
    """``[[mcp.NAME.rules]]``: the tools of the server that `remit mcp gateway` lets a key call.

    The first rule whose ``keys``, ``tools`` and ``arguments`` all match decides.
    """

    effect: Literal["allow", "deny", "ask"] = Field(
        description="ask: each call waits until a person approves it"
    )
    keys: list[str] = Field(default_factory=list, description="patterns of keys' names; empty: all")
    tools: list[str] = Field(default_factory=list, description="patterns of tools; empty: all")
    arguments: dict[str, Any] = Field(
        default_factory=dict, description="JSON Schema that the arguments fit; empty: any"
    )
    price_usd: float = Field(0.0, ge=0, description="what one call costs the key's budgets")
    calls_per_minute: int = Field(0, ge=0, description="most calls of one user or key; 0: any")


class McpServerSettings(Section):
    """``[mcp.NAME]``: an MCP server whose tools agents may use, given by ``command`` or ``url``.

    Values of ``env`` and ``headers`` may hold ``${VARIABLE}``, taken from the environment.
    """

    command: str = Field("", description="program that is started and spoken to over its stdio")
    args: list[str] = Field(default_factory=list, description="its arguments")
    env: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="its environment, over PATH, HOME and the like; of ours it gets nothing else",
    )
    cwd: str = Field("", description="directory it runs in; empty: ours")
    url: str = Field("", description="address of a server that speaks streamable HTTP")
    headers: dict[str, SecretStr] = Field(
        default_factory=dict, description="headers sent with each request to it"
    )
    timeout_s: float | None = Field(
        None, gt=0, description="longest call of one of its tools; left out: tools.timeout_s"
    )
    start_timeout_s: float = Field(
        30.0, gt=0, description="longest start, and longest wait for its list of tools"
    )
    stop_timeout_s: float = Field(
        2.0, gt=0, description="time to end by itself, and again after SIGTERM; then SIGKILL"
    )
    max_message_bytes: int = Field(
        8388608, ge=1024, description="longest message from it; a longer one ends the connection"
    )
    tools: list[str] = Field(
        default_factory=list, description="its tools that are let in; empty: all"
    )
    idempotent: list[str] = Field(
        default_factory=list,
        description="name patterns of tools that may run twice: after a crash they are run again",
    )
    rules: list[McpRule] = Field(
        default_factory=list, description="who may call what through `remit mcp gateway`"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("an MCP server needs either a command or a url")
        return self


class McpEndpointSettings(Section):
    """``[mcp_server]``: Remit itself as an MCP server (``remit mcp``)."""

    host: str = Field(description="address that `remit mcp --http` listens on")
    port: int = Field(ge=0, le=65535, description="its port; 0: any that is free")
    allowed_hosts: list[str] = Field(
        description="names besides its address under which it may be reached (Host header)"
    )
    allowed_origins: list[str] = Field(
        description="web pages besides those of this machine that may ask (Origin header)"
    )
    max_message_bytes: int = Field(ge=1024, description="longest message from a client")
    max_sessions: int = Field(ge=1, description="most MCP sessions that are open at once")
    session_idle_s: float = Field(gt=0, description="an MCP session ends when idle this long")
    sessions_per_caller: int = Field(ge=1, description="most MCP sessions of one user or key")
    calls_at_once: int = Field(
        ge=1,
        description="calls of router_route that run side by side, and as many of all other tools; "
        "others wait",
    )
    calls_per_caller: int = Field(ge=1, description="over HTTP, most of each of one user or key")
    calls_waiting: int = Field(
        ge=0, description="most calls of one user or key that wait; one more is refused"
    )
    thoughts_per_minute: int = Field(
        ge=0, description="most thoughts a minute of one user or key of the role agent; 0: any"
    )
    timeout_s: float = Field(gt=0, description="longest call of a tool that asks no model")
    route_timeout_s: float = Field(gt=0, description="longest router_route")
    max_output_bytes: int = Field(ge=1024, description="longest result; longer texts are cut")
    max_text_chars: int = Field(ge=1, description="longest prompt or thought")
    max_unread: int = Field(
        ge=1, description="over stdio, answers that wait to be read; no more is read until they are"
    )
    drain_s: float = Field(
        ge=0,
        description="over stdio, time at the end for running calls, and for answers to be read",
    )


class A2aSettings(Section):
    """``[a2a.NAME]``: another agent, reached over A2A through ``/a2a/NAME`` of `remit serve`."""

    url: str = Field(min_length=1, description="address of its JSON-RPC interface")
    card: str = Field(
        "", description="address of its agent card; empty: /.well-known/agent-card.json there"
    )
    api_key: SecretStr = Field(SecretStr(""), description="key that it wants, as a bearer token")
    price_usd: float = Field(0.0, ge=0, description="US dollars for each message sent to it")
