"""The schema of ``remit.toml``. Defaults stand in a file of PKG-KERNEL-001, not here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from remit.kernel.settings.approvals import ApprovalSettings
from remit.kernel.settings.interop import A2aSettings, McpEndpointSettings, McpServerSettings
from remit.kernel.settings.oidc import OidcSettings
from remit.kernel.settings.orders import OrderSettings, QueueSettings
from remit.kernel.settings.routing import RoutingSettings
from remit.kernel.settings.section import Section

_PROSE = "false where the model may only choose tools: code prints their results as the answer"


class LedgerSettings(Section):
    """``[ledger]``: where the record is and what of it is content."""

    path: str = Field(
        description="file of the ledger, relative to the root; or postgresql://… (better left to "
        "REMIT_DATABASE_URL)"
    )
    content_keys: list[str] = Field(description="metadata keys whose values are content")
    lock_timeout_s: float = Field(gt=0, description="wait this long for another writer")
    origin: str = Field(
        description="unique name of this log, a URL without scheme; empty: made by init, for ever"
    )
    checkpoint_every_entries: int = Field(ge=1, description="sign a checkpoint this often")
    checkpoint_every_s: float = Field(
        gt=0, description="sign a checkpoint of new entries after this many seconds"
    )
    retention_days: dict[str, float] = Field(
        description="days that content is kept, by event type; '*' for all others"
    )


class ModelSettings(Section):
    """``[model]``: which model answers."""

    default: str = Field(
        description="'auto', a provider id, a model id, or provider/model; auto takes the first "
        "provider of 'auto_order' that has a key or a base URL, else 'local'"
    )
    auto_order: list[str] = Field(description="providers that 'auto' looks at, first first")
    prefixes: dict[str, str] = Field(description="model name prefix → provider id")


class ProviderSettings(Section):
    """``[providers.NAME]``: how one provider is reached."""

    kind: Literal["anthropic", "openai"] = Field(description="its wire format")
    base_url: str = Field(description="base URL; the environment variable goes before it")
    api_key: SecretStr = Field(description="key; better left to the environment variable")
    base_url_env: str = Field(description="environment variable that holds the base URL")
    api_key_env: str = Field(description="environment variable that holds the key")
    default_model: str = Field(description="model used when none is named")
    api_version: str = Field("", description="value of the anthropic-version header")
    max_output_tokens: int = Field(
        4096, ge=1, description="sent where an API demands an end and the caller names none"
    )
    send_temperature: bool = Field(description="false for models that refuse a temperature")
    native_tools: bool = Field(description="false makes the worker choose tools by schema")
    prose: bool = Field(True, description=_PROSE)
    structured_output: bool = Field(description="false where JSON Schema output is not supported")
    images: bool = Field(
        True,
        description="false where models take no images; images in tools' results are then "
        "named to the model and left out",
    )
    responses: bool = Field(
        True, description="false where the server has no Responses API: such calls are translated"
    )
    forward_headers: list[str] = Field(
        default_factory=lambda: ["anthropic-beta", "anthropic-version", "openai-beta"],
        description="headers of clients that are passed on",
    )
    max_completion_tokens_models: list[str] = Field(
        default_factory=list,
        description="name prefixes of models that take max_completion_tokens and no temperature, "
        "besides those of which the prices say so",
    )


class LocalModelSettings(Section):
    """``[local]``: the model that runs in this process."""

    model: str = Field(description="name of a pulled model, or of one added by a file")
    context_tokens: int = Field(ge=256, description="context window")
    threads: int = Field(ge=0, description="0: as many as there are cores")
    cache_dir: str = Field(description="directory of weights; empty: the user's cache directory")
    native_tools: bool = Field(description="true when the model's template takes tools")
    prose: bool = Field(False, description=_PROSE)
    repeat_penalty: float = Field(gt=0, description="above 1 keeps small models from looping")


class GatewaySettings(Section):
    """``[gateway]``: limits of a call."""

    timeout_ms: int = Field(gt=0, description="longest wait for an answer to begin")
    connect_timeout_ms: int = Field(10_000, gt=0, description="longest wait for a connection")
    idle_timeout_ms: int = Field(
        300_000, gt=0, description="longest wait between bytes of an answer"
    )
    max_retries: int = Field(ge=0, description="attempts after the first, retryable failures only")
    retry_base_ms: int = Field(ge=0, description="first wait between attempts")
    retry_max_ms: int = Field(ge=0, description="longest wait between attempts")
    lease_margin_ms: int = Field(ge=0, description="a call counts as lost this long after timeout")
    failure_threshold: int = Field(ge=1, description="failures that open a circuit")
    recovery_timeout_ms: int = Field(ge=0, description="time until an open circuit is tried again")
    orphan_policy: Literal["charge", "release"] = Field(
        description="what an unanswered reservation becomes"
    )
    fallbacks: dict[str, list[str]] = Field(
        description="model → models tried in turn when it fails in a way that another may not"
    )
    idempotency_hours: float = Field(
        gt=0, description="how long an idempotency key answers from the record"
    )
    recover_every_s: float = Field(
        gt=0, description="how often a server looks for calls whose process died"
    )


class BudgetSettings(Section):
    """``[budget]``: limits given to what Remit starts itself. 0 means no limit."""

    mode: Literal["enforce", "warn", "off"] = Field(description="what a spent budget does")
    session_tokens: int = Field(ge=0, description="tokens of one session")
    session_turns: int = Field(ge=0, description="model calls of one session")
    work_order_tokens: int = Field(ge=0, description="tokens of one work order")
    wait_ms: int = Field(
        30_000,
        ge=0,
        description="longest wait for money that other calls only hold; 0 refuses at once",
    )
    free_providers: list[str] = Field(description="providers whose models cost nothing")
    allow_unpriced: bool = Field(
        description="let a limit in US dollars pass models that have no price"
    )
    server_tool_uses: int = Field(
        10, ge=1, description="most uses of a tool that the provider runs, where a call names none"
    )
    estimated_bytes_per_token: float = Field(
        gt=0, description="for what arrived of a stream that broke off"
    )
    thinking_models: list[str] = Field(
        description="name prefixes of models that think unseen, besides those of which the prices "
        "say so: a stream of one that broke off is charged at its bound"
    )
    prices: str = Field(
        description="file of prices over the shipped ones, relative to the root; empty: "
        "prices.toml, where `remit price` keeps them"
    )


class LeaseSettings(Section):
    """``[leases]``: locks on sessions and orders between processes that share a root."""

    lasts_s: float = Field(
        gt=0, description="work of a process that cannot be seen from here is taken over after this"
    )
    session_wait_s: float = Field(
        ge=0, description="how long a turn waits for another process that works on its session"
    )


class AuthSettings(Section):
    """``[auth]``: how fresh the view of the keys must be."""

    revocation_s: float = Field(
        gt=0, description="a key revoked by another process is refused here within this time"
    )
    stale_after_s: float = Field(
        gt=0, description="when keys could not be read for this long, every call is refused"
    )


class ServerSettings(Section):
    """``[server]``: the HTTP server."""

    host: str = Field(description="address to listen on")
    port: int = Field(ge=0, le=65535, description="port to listen on; 0: any that is free")
    workers: int = Field(ge=1, description="processes that answer")
    max_body_bytes: int = Field(ge=1024, description="largest request body")
    memory_bytes: int = Field(
        256 * 1024 * 1024, ge=16 * 1024 * 1024, description="most memory for bodies and answers in "
        "one process: above it a body is refused and the largest answer is ended"
    )  # fmt: skip
    max_header_bytes: int = Field(ge=1024, description="largest request line and headers")
    header_timeout_s: float = Field(gt=0, description="longest time for headers to come")
    body_timeout_s: float = Field(
        gt=0, description="longest time for a body to come, and without an answer being read"
    )
    keep_alive_s: int = Field(ge=1, description="idle connections are closed after this time")
    max_connections: int = Field(ge=1, description="most connections of one process")
    notice_s: float = Field(
        0.0, ge=0, description="calls are still taken for this time after SIGTERM, while /readyz "
        "says that it is not ready: for load balancers to notice"
    )  # fmt: skip
    drain_s: int = Field(
        ge=0, description="calls may end within this time after SIGTERM and the notice"
    )
    open_tenants: int = Field(
        64, ge=1, description="most tenants that one process holds open; the idlest is closed"
    )
    contract_id: str = Field(description="contract of calls that name none")
    log_format: Literal["text", "json"] = Field(description="form of the log on stderr")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        description="least that is logged"
    )
    metrics_open: bool = Field(description="let anybody read /metrics, without a key")
    cors_origins: list[str] = Field(
        [], description="origins whose web pages may call the server, or '*'; by default none"
    )
    oidc: OidcSettings = Field(  # installed defaults of earlier versions have none
        default_factory=lambda: OidcSettings.model_validate({})
    )


class TelemetrySettings(Section):
    """``[telemetry]``: metrics and traces."""

    max_models: int = Field(ge=1, description="models with their own metrics; the rest is 'other'")
    otlp_endpoint: str = Field(
        description="OTLP/HTTP URL that spans go to; empty: that of the OTEL_ variables, if any"
    )
    service_name: str = Field(
        description="service.name of the spans; empty: that of the OTEL_ variables, else remit"
    )
    capture_content: bool = Field(description="put prompts and answers into spans")


class SmallModelSettings(Section):
    """``[worker.small_model]``: the prompt of a model without native tools."""

    context_turns: int = Field(ge=0, description="most recent turns shown to it")
    max_tokens: int = Field(ge=1, description="longest answer: small models loop")


class WorkerSettings(Section):
    """``[worker]``: bounds of a work order."""

    turn_limit: int = Field(ge=1, description="most model calls of one order")
    tool_limit: int = Field(ge=1, description="most tool calls of one order; further are refused")
    tools_at_once: int = Field(ge=1, description="tool calls of one order that run side by side")
    timeout_s: float = Field(gt=0, description="longest order")
    small_model: SmallModelSettings
    orders: OrderSettings = Field(  # installed defaults of earlier versions have none
        default_factory=lambda: OrderSettings.model_validate({})
    )
    queues: dict[str, QueueSettings] = Field(
        default_factory=dict, description="by name, what a queue's orders are held to"
    )


class ToolSettings(Section):
    """``[tools]``: bounds of a tool."""

    timeout_s: float = Field(gt=0, description="longest run")
    max_output_bytes: int = Field(ge=256, description="longest result")
    reason_chars: int = Field(
        ge=1, description="characters of an entry's reason that ADMIN's query_ledger shows"
    )
    hidden_files: list[str] = Field(description="name patterns that ADMIN neither lists nor reads")


class AttentionSettings(Section):
    """``[supervisor.attention]``: context of a turn in addition to the conversation."""

    tokens: int = Field(ge=0, description="most tokens of it, estimated")


class SupervisorSettings(Section):
    """``[supervisor]``: how a turn is planned and checked."""

    classify: bool = Field(description="classify each message before answering")
    verify: bool = Field(description="have each answer judged under PRC-VERIFY-001")
    consolidate: bool = Field(
        description="at a session's end, have what it leaves open found under PRC-CONSOLIDATE-001"
    )
    threads: bool = Field(
        description="give models with native tools the tools open_thread and close_thread"
    )
    max_retries: int = Field(ge=0, description="further attempts after a rejected answer")
    planner_timeout_s: float = Field(gt=0, description="how long a planner may take")
    context_turns: int = Field(ge=0, description="most recent turns that are shown to the model")
    context_tokens: int = Field(ge=0, description="most tokens they may take, estimated")
    error_markers: list[str] = Field(description="texts that mark a failed answer at its start")
    claim_patterns: list[str] = Field(
        description="regular expressions of sentences that claim to have looked at something; "
        "without a tool's result they are not delivered"
    )
    attention: AttentionSettings


class PackageIndexSettings(Section):
    """``[packages.index]``: bounds on package indexes, and lifetimes of their signatures."""

    metadata_bytes: int = Field(ge=1, description="largest metadata file of an index")
    root_rotations: int = Field(ge=1, description="new root versions followed in one refresh")
    redirects: int = Field(ge=0, description="redirects followed for one file")
    timeout_s: float = Field(gt=0, description="how long an index's server may be silent")
    download_s: float = Field(gt=0, description="longest download of one file")
    root_days: int = Field(ge=1, description="for publishers: days that a signed root holds")
    targets_days: int = Field(ge=1, description="for publishers: days that a signed list holds")
    snapshot_days: int = Field(ge=1, description="for publishers: days that a snapshot holds")
    timestamp_days: int = Field(ge=1, description="for publishers: days that a timestamp holds")


class PackageSettings(Section):
    """``[packages]``: bounds on reading, storing and changing packages."""

    compressed_bytes: int = Field(ge=1, description="largest archive, as it comes")
    unpacked_bytes: int = Field(ge=1, description="largest archive, unpacked, headers and all")
    ratio: int = Field(ge=1, description="most unpacked bytes for each byte of the archive")
    files: int = Field(ge=1, description="most files of a package, with its manifest")
    file_bytes: int = Field(ge=1, description="largest file in a package")
    envelope_bytes: int = Field(ge=1, description="largest signature file of a package")
    lock_timeout_s: float = Field(
        gt=0, description="how long an operation waits for another one on the same root"
    )
    keep_versions: int = Field(
        ge=1, description="archives kept of one package, for rollback, the installed one included"
    )
    index: PackageIndexSettings


class GateSettings(Section):
    """``[gates]``: how much the gates read."""

    full_entries: int = Field(
        ge=0, description="a ledger of at most so many entries is always read completely"
    )


class ChatSettings(Section):
    """``[chat]``: the ADMIN shell."""

    agent_id: str = Field(description="who answers in `remit chat`")
    tools_allowed: list[str] = Field(description="tools it may use")
    history_file: str = Field(description="file of typed lines, relative to the root")


class Settings(Section):
    """The whole of ``remit.toml``."""

    ledger: LedgerSettings
    model: ModelSettings
    providers: dict[str, ProviderSettings]
    local: LocalModelSettings
    gateway: GatewaySettings
    routing: RoutingSettings
    budget: BudgetSettings
    leases: LeaseSettings
    auth: AuthSettings
    server: ServerSettings
    telemetry: TelemetrySettings
    worker: WorkerSettings
    tools: ToolSettings
    approvals: ApprovalSettings = Field(  # installed defaults of earlier versions have none
        default_factory=lambda: ApprovalSettings.model_validate({})
    )
    mcp_server: McpEndpointSettings
    mcp: dict[str, McpServerSettings]
    a2a: dict[str, A2aSettings] = Field(default_factory=dict)
    supervisor: SupervisorSettings
    packages: PackageSettings
    gates: GateSettings
    chat: ChatSettings
