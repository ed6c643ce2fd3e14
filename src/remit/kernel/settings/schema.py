"""The schema of ``remit.toml``. Defaults stand in a file of PKG-KERNEL-001, not here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from remit.kernel.settings.agent_work import ApprovalSettings, OrderSettings, QueueSettings
from remit.kernel.settings.interop import A2aSettings, McpEndpointSettings, McpServerSettings
from remit.kernel.settings.oidc import OidcSettings
from remit.kernel.settings.routing import RoutingSettings
from remit.kernel.settings.section import Section

_PROSE = "false: the model only selects a tool, and Remit prints the result as the answer"


class LedgerSettings(Section):
    """``[ledger]``: place and unique name of the record, and treatment of its content.

    ``path`` is a file relative to the root, or a URL of a PostgreSQL database. The fields also give
    the wait for other writers, how often checkpoints are signed, and by event type the days after
    which content may be erased; without an entry for a type or ``*``, content stays.
    """

    path: str = Field(
        description="file of the ledger, relative to the root; or a postgresql:// URL (prefer "
        "REMIT_DATABASE_URL)"
    )
    content_keys: list[str] = Field(description="metadata keys whose values are content")
    lock_timeout_s: float = Field(gt=0, description="longest wait for another writer")
    origin: str = Field(
        description="unique name of this log, a URL without a scheme; empty: chosen permanently "
        "by init"
    )
    checkpoint_every_entries: int = Field(
        ge=1, description="sign a checkpoint after this many entries"
    )
    checkpoint_every_s: float = Field(
        gt=0, description="sign a checkpoint of new entries after this many seconds"
    )
    retention_days: dict[str, float] = Field(
        description="days until content may be erased, by event type; '*' for all others"
    )


class ModelSettings(Section):
    """``[model]``: the model of calls that name none, the order in which ``auto`` tries providers,
    and the provider of each prefix of model names.
    """

    default: str = Field(
        description="'auto', a provider id, a model id, or provider/model; auto takes the first "
        "provider of 'auto_order' that has a key or a base URL, else 'local'"
    )
    auto_order: list[str] = Field(description="providers that 'auto' tries, in order")
    prefixes: dict[str, str] = Field(description="model name prefix → provider id")


class ProviderSettings(Section):
    """``[providers.NAME]``: how one provider is reached.

    The fields are its wire format and cloud, base URL and API key with their environment variables,
    its default model, the abilities that its models lack, and the client headers to forward.
    """

    kind: Literal["anthropic", "converse", "gemini", "openai"] = Field(
        description="wire format of the provider"
    )
    cloud: Literal["", "aws", "google"] = Field(
        "",
        description="aws: models on Bedrock; google: models on Vertex AI; without a key, the "
        "cloud's own credentials on this machine are used",
    )
    base_url: str = Field(description="base URL; the environment variable takes precedence")
    api_key: SecretStr = Field(description="API key; prefer the environment variable")
    base_url_env: str = Field(description="environment variable that holds the base URL")
    api_key_env: str = Field(description="environment variable that holds the key")
    default_model: str = Field(description="model for calls that name none; empty: refuse them")
    api_version: str = Field("", description="value of the anthropic-version header")
    max_output_tokens: int = Field(
        4096, ge=1, description="max_tokens sent if the API requires one and the caller sent none"
    )
    send_temperature: bool = Field(description="false for models that reject temperature")
    native_tools: bool = Field(description="false: the worker selects tools through a JSON Schema")
    prose: bool = Field(True, description=_PROSE)
    structured_output: bool = Field(description="false if JSON Schema output is not supported")
    images: bool = Field(
        True,
        description="false if the models accept no images; images in tool results are then "
        "replaced by a note",
    )
    responses: bool = Field(
        True,
        description="false if the server has no Responses API; Responses calls are then translated",
    )
    forward_headers: list[str] = Field(
        default_factory=lambda: ["anthropic-beta", "anthropic-version", "openai-beta"],
        description="client headers that are forwarded",
    )
    max_completion_tokens_models: list[str] = Field(
        default_factory=list,
        description="name prefixes of models that require max_completion_tokens and reject "
        "temperature, in addition to those marked in the price table",
    )


class LocalModelSettings(Section):
    """``[local]``: the model that runs in this process.

    The fields are its name, context window, threads, directory, abilities and penalty for
    repetition.
    """

    model: str = Field(description="name of a downloaded or added model")
    context_tokens: int = Field(ge=256, description="context window")
    threads: int = Field(ge=0, description="number of threads; 0: one per core")
    cache_dir: str = Field(
        description="directory of model weights; empty: the user's cache directory"
    )
    native_tools: bool = Field(description="true if the model's chat template supports tools")
    prose: bool = Field(False, description=_PROSE)
    repeat_penalty: float = Field(
        gt=0, description="penalty for repetition; above 1 keeps small models from looping"
    )


class AnswerCacheSettings(Section):
    """``[gateway.answer_cache]``: equal requests that are answered from the record.

    Only calls of the listed keys or contracts are; without any, none. A recorded answer is used up
    to its greatest age, one hour by default.
    """

    keys: list[str] = Field(
        default_factory=list, description="names or ids of keys whose calls may be answered so"
    )
    contracts: list[str] = Field(
        default_factory=list, description="ids of contracts whose calls may be answered so"
    )
    max_age_s: float = Field(3600.0, gt=0, description="greatest age of a recorded answer")


class GatewaySettings(Section):
    """``[gateway]``: timeouts and retries of a call (in milliseconds), circuit breakers, fallbacks,
    idempotency keys, recorded streams, the answer cache, and the treatment of lost calls.
    """

    timeout_ms: int = Field(gt=0, description="longest wait for the first byte of an answer")
    connect_timeout_ms: int = Field(10_000, gt=0, description="longest wait for a connection")
    idle_timeout_ms: int = Field(
        300_000, gt=0, description="longest wait between bytes of an answer"
    )
    max_retries: int = Field(ge=0, description="maximum number of retries after retryable failures")
    retry_base_ms: int = Field(ge=0, description="first wait before a retry")
    retry_max_ms: int = Field(ge=0, description="longest wait before a retry")
    lease_margin_ms: int = Field(
        ge=0, description="time after the timeout until a call counts as lost"
    )
    failure_threshold: int = Field(
        ge=1, description="number of failures that open a circuit breaker"
    )
    recovery_timeout_ms: int = Field(
        ge=0, description="time until an open circuit breaker allows a trial call"
    )
    orphan_policy: Literal["charge", "release"] = Field(
        description="what happens to the reservation of an unanswered call"
    )
    fallbacks: dict[str, list[str]] = Field(
        description="model → fallback models, tried in order if a failure may not affect them"
    )
    idempotency_hours: float = Field(
        gt=0, description="how long an idempotency key returns the recorded answer"
    )
    record_streams: bool = Field(
        False,
        description="also record each stream's events byte for byte, so that `remit replay` "
        "streams them as they came; uses more disk space",
    )
    answer_cache: AnswerCacheSettings = Field(default_factory=AnswerCacheSettings)  # type: ignore[arg-type]
    recover_every_s: float = Field(
        gt=0, description="how often a server looks for calls of dead processes"
    )


class BudgetSettings(Section):
    """``[budget]``: limits of sessions and work orders, and how costs are estimated and charged.

    0 means no limit of tokens or turns. ``mode`` says whether a spent budget refuses calls.
    A call waits up to ``wait_ms`` for budget that other calls have reserved.
    """

    mode: Literal["enforce", "warn", "off"] = Field(
        description="what happens when a budget is spent"
    )
    session_tokens: int = Field(ge=0, description="token limit of a session")
    session_turns: int = Field(ge=0, description="limit of model calls of a session")
    work_order_tokens: int = Field(ge=0, description="token limit of a work order")
    wait_ms: int = Field(
        30_000,
        ge=0,
        description="longest wait for budget that other calls have reserved; 0: refuse immediately",
    )
    free_providers: list[str] = Field(description="providers whose models are free")
    allow_unpriced: bool = Field(description="allow models without a price despite a dollar limit")
    server_tool_uses: int = Field(
        10,
        ge=1,
        description="assumed maximum uses of provider-run tools, if a call sets no maximum",
    )
    estimated_bytes_per_token: float = Field(
        gt=0, description="bytes per token, to estimate the usage of an interrupted stream"
    )
    thinking_models: list[str] = Field(
        description="name prefixes of models with hidden reasoning, in addition to those marked "
        "in the price table; an interrupted stream is charged at its upper bound"
    )
    prices: str = Field(
        description="file of prices that override the built-in ones, relative to the root; empty:"
        " prices.toml, which `remit price` writes"
    )


class LeaseSettings(Section):
    """``[leases]``: locks on sessions and orders between processes that share a root.

    The fields are the time after which a silent process loses its work, and the longest wait for a
    session that another process uses; 0 refuses at once.
    """

    lasts_s: float = Field(
        gt=0, description="time until the work of an unreachable process is taken over"
    )
    session_wait_s: float = Field(
        ge=0, description="longest wait for another process that uses the same session"
    )


class AuthSettings(Section):
    """``[auth]``: how soon a key revoked elsewhere is refused, and how long keys may be unreadable
    before every call is refused.
    """

    revocation_s: float = Field(
        gt=0, description="time within which a key revoked by another process is refused"
    )
    stale_after_s: float = Field(
        gt=0, description="refuse every call if keys could not be read for this long"
    )


class ServerSettings(Section):
    """``[server]``: the HTTP server.

    The fields are its address and processes, limits of sizes, memory, times, connections and open
    tenants, draining, the default contract, logs, metrics, CORS and sign-in. ``memory_bytes`` and
    ``max_connections`` are for each process. After SIGTERM, calls are accepted for ``notice_s``
    seconds, and running ones may then end within ``drain_s``.
    """

    host: str = Field(description="address to listen on")
    port: int = Field(ge=0, le=65535, description="port to listen on; 0: any free port")
    workers: int = Field(ge=1, description="number of server processes")
    max_body_bytes: int = Field(ge=1024, description="maximum size of a request body")
    max_upload_bytes: int = Field(
        512 * 1024 * 1024,
        ge=1024,
        description="maximum size of a form with files, which is sent on while it arrives",
    )
    memory_bytes: int = Field(
        256 * 1024 * 1024,
        ge=16 * 1024 * 1024,
        description="memory limit for bodies and answers in one process; above the limit, new "
        "bodies are refused and the largest answer is aborted"
    )  # fmt: skip
    max_header_bytes: int = Field(
        ge=1024, description="maximum size of the request line and headers"
    )
    header_timeout_s: float = Field(gt=0, description="timeout for receiving request headers")
    body_timeout_s: float = Field(
        gt=0,
        description="timeout for receiving a request body, and for a client that stops reading",
    )
    keep_alive_s: int = Field(ge=1, description="time until idle connections are closed")
    max_connections: int = Field(ge=1, description="maximum number of connections of one process")
    notice_s: float = Field(
        0.0,
        ge=0,
        description="time after SIGTERM during which calls are still accepted but /readyz reports"
        " not ready, so that load balancers notice"
    )  # fmt: skip
    drain_s: int = Field(
        ge=0, description="time to finish running calls after SIGTERM and notice_s"
    )
    open_tenants: int = Field(
        64,
        ge=1,
        description="maximum number of open tenants in one process; the least recently used is "
        "closed",
    )
    contract_id: str = Field(description="contract for calls that name none")
    log_format: Literal["text", "json"] = Field(description="log format on stderr")
    log_level: Literal["debug", "info", "warning", "error"] = Field(description="minimum log level")
    metrics_open: bool = Field(description="serve /metrics without authentication")
    cors_origins: list[str] = Field([], description="allowed CORS origins, or '*'; default: none")
    oidc: OidcSettings = Field(  # installed defaults of earlier versions have none
        default_factory=lambda: OidcSettings.model_validate({})
    )


class TelemetrySettings(Section):
    """``[telemetry]``: the number of models with own metrics, and where spans go, under which name
    and with what content.

    Other models count as ``other``. An empty address or name comes from the OTEL_ variables.
    """

    max_models: int = Field(
        ge=1,
        description="maximum number of models with their own metrics; all others count as 'other'",
    )
    otlp_endpoint: str = Field(
        description="OTLP/HTTP URL for spans; empty: from the OTEL_ variables, if set"
    )
    service_name: str = Field(
        description="service.name of spans; empty: from the OTEL_ variables, else remit"
    )
    capture_content: bool = Field(description="include prompts and answers in spans")


class WorkerSettings(Section):
    """``[worker]``: bounds of a work order, on model calls, tool calls and time.

    Tool calls above ``tool_limit`` are refused. Also the section ``orders`` of submitted orders,
    and limits of queues by name; a queue that is not named has none.
    """

    turn_limit: int = Field(ge=1, description="maximum number of model calls of one order")
    tool_limit: int = Field(
        ge=1, description="maximum number of tool calls of one order; more are refused"
    )
    tools_at_once: int = Field(
        ge=1, description="maximum number of concurrent tool calls of one order"
    )
    timeout_s: float = Field(gt=0, description="timeout of an order")
    orders: OrderSettings = Field(  # installed defaults of earlier versions have none
        default_factory=lambda: OrderSettings.model_validate({})
    )
    queues: dict[str, QueueSettings] = Field(
        default_factory=dict, description="limits of queues, keyed by queue name"
    )


class ToolSettings(Section):
    """``[tools]``: the timeout and result size of a tool, and limits of ADMIN's tools on entries
    and files.
    """

    timeout_s: float = Field(gt=0, description="timeout of a tool call")
    max_output_bytes: int = Field(ge=256, description="maximum size of a tool result")
    reason_chars: int = Field(
        ge=1, description="maximum characters of an entry's reason in ADMIN's query_ledger"
    )
    hidden_files: list[str] = Field(description="name patterns that ADMIN neither lists nor reads")


class AttentionSettings(Section):
    """``[supervisor.attention]``: context of a turn in addition to the conversation."""

    tokens: int = Field(ge=0, description="maximum estimated tokens of the attention context")


class SupervisorSettings(Section):
    """``[supervisor]``: how a turn is planned and checked.

    The fields are steps to add (``classify``, ``verify``, ``consolidate``, ``threads``), retries
    and the planner's timeout, limits of the context of earlier turns and of attention, and phrases
    that the quality gate rejects or that need a tool's result.
    """

    classify: bool = Field(description="classify each message before answering")
    verify: bool = Field(description="judge every answer under PRC-VERIFY-001")
    consolidate: bool = Field(
        description="at the end of a session, find its open questions under PRC-CONSOLIDATE-001"
    )
    threads: bool = Field(
        description="give models with native tools the tools open_thread and close_thread"
    )
    max_retries: int = Field(ge=0, description="maximum number of retries after a rejected answer")
    planner_timeout_s: float = Field(gt=0, description="timeout of a planner")
    context_turns: int = Field(
        ge=0, description="maximum number of recent turns shown to the model"
    )
    context_tokens: int = Field(ge=0, description="maximum estimated tokens of those turns")
    error_markers: list[str] = Field(description="prefixes that mark a failed answer")
    claim_patterns: list[str] = Field(
        description="regular expressions of sentences that claim to have looked something up; such"
        " sentences are not delivered without a tool result"
    )
    attention: AttentionSettings


class PackageIndexSettings(Section):
    """``[packages.index]``: limits of one refresh or download, and lifetimes of signed metadata.

    The limits are of sizes, versions of the root, redirects and times. Publishers sign the
    lifetimes, in days; readers of an index use the limits only.
    """

    metadata_bytes: int = Field(ge=1, description="maximum size of a metadata file of an index")
    root_rotations: int = Field(
        ge=1, description="maximum number of new root versions in one refresh"
    )
    redirects: int = Field(ge=0, description="maximum number of redirects for one file")
    timeout_s: float = Field(gt=0, description="timeout without data from an index server")
    download_s: float = Field(gt=0, description="timeout of a file download")
    root_days: int = Field(ge=1, description="for publishers: days until a signed root expires")
    targets_days: int = Field(ge=1, description="for publishers: days until a signed list expires")
    snapshot_days: int = Field(ge=1, description="for publishers: days until a snapshot expires")
    timestamp_days: int = Field(ge=1, description="for publishers: days until a timestamp expires")


class PackageSettings(Section):
    """``[packages]``: limits of archives, and the section of package indexes.

    Also the wait for another operation, and how many versions are stored, the present one too.
    """

    compressed_bytes: int = Field(ge=1, description="maximum size of a compressed archive")
    unpacked_bytes: int = Field(
        ge=1, description="maximum size of an unpacked archive, including headers"
    )
    ratio: int = Field(ge=1, description="maximum compression ratio of an archive")
    files: int = Field(
        ge=1, description="maximum number of files in a package, including its manifest"
    )
    file_bytes: int = Field(ge=1, description="maximum size of a file in a package")
    envelope_bytes: int = Field(ge=1, description="maximum size of a signature file of a package")
    lock_timeout_s: float = Field(
        gt=0, description="longest wait for another operation on the same root"
    )
    keep_versions: int = Field(
        ge=1,
        description="number of archives kept of each package for rollback, including the "
        "installed one",
    )
    index: PackageIndexSettings


class GateSettings(Section):
    """``[gates]``: how much the gates read.

    Of a ledger with more than ``full_entries`` entries, only those since the last pass are read
    unless all are requested.
    """

    full_entries: int = Field(
        ge=0, description="ledgers with up to this many entries are always read completely"
    )


class ChatSettings(Section):
    """``[chat]``: the ADMIN shell."""

    agent_id: str = Field(description="agent that answers in `remit chat`")
    tools_allowed: list[str] = Field(description="tools that this agent may use")


class Settings(Section):
    """The whole of ``remit.toml``, with the shipped defaults already merged in.

    A missing section is refused, except ``approvals`` and ``a2a``. Each field is the section of the
    same name; ``providers``, ``mcp`` and ``a2a`` are keyed by the NAME of their tables. The keys in
    ``providers`` are provider ids.
    """

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
