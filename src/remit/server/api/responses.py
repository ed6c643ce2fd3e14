"""The shapes of answers. Times are ISO 8601, UTC; money is in US dollars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from remit.agents.queue import OrderStatus


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: str = Field(description="for programs")
    message: str = Field(description="for people: what happened and why")
    next_step: str | None = Field(None, description="what can be done about it")
    param: str | None = Field(None, description="the field at fault")


class Error(BaseModel):
    """Every answer that is no success."""

    error: ErrorDetail


class EntryShape(BaseModel):
    """One ledger entry. Erased content stands as `{"$erased": ID of the ERASURE entry}`."""

    event_type: str
    submission_id: str
    decision: str
    reason: str
    prompts_used: list[str]
    metadata: dict[str, Any]
    id: str
    timestamp: str
    previous_hash: str
    entry_hash: str


class _Paged(BaseModel):
    next_cursor: str | None = Field(description="where the next page begins; null at the end")


class EntryPage(_Paged):
    """Entries. A page of much content may hold fewer than were asked for."""

    entries: list[EntryShape]


class Head(BaseModel):
    """The last entry."""

    seq: int
    entry_hash: str


class Stats(BaseModel):
    """How many entries of which event type."""

    entries: int
    events: dict[str, int]
    head: Head | None
    location: str


class SessionShape(BaseModel):
    """One session in a line."""

    session_id: str
    agent_id: str
    started_at: str
    turns: int
    last_turn_at: str
    ended: bool


class SessionPage(_Paged):
    """Sessions, the latest first."""

    sessions: list[SessionShape]


class TurnShape(BaseModel):
    """Both sides of one turn; text, or the marker of what was erased."""

    turn_number: Any
    timestamp: str
    entry_id: str
    user_message: Any
    response: Any


class ExchangeShape(BaseModel):
    """One model call in a line; its entry holds prompt and response."""

    model_config = ConfigDict(extra="allow")

    entry_id: str
    timestamp: str


class SessionDetail(SessionShape, _Paged):
    """A session with the turns and model calls of this page, each in ledger order."""

    turn_list: list[TurnShape]
    exchanges: list[ExchangeShape]


class Step(BaseModel):
    """One entry of a work order in a line, with what its event says."""

    model_config = ConfigDict(extra="allow")

    entry_id: str
    event_type: str
    timestamp: str


class Trace(_Paged):
    """What happened in a work order, in ledger order.

    `state` is null where the order was the caller's own and Remit did not plan it.
    """

    work_order_id: str
    session_id: str
    state: Literal["planned", "dispatched", "executing", "completed", "failed"] | None
    steps: list[Step]


class Limits(BaseModel):
    """The limits there are; those there are not are left out."""

    usd_limit: float | None = None
    token_limit: int | None = None
    turn_limit: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    window: Literal["day", "week", "month"] | None = None
    time_zone: str | None = None
    on_short: Literal["clamp"] | None = None


class Budget(BaseModel):
    """One scope as it stands. A limit of null is none."""

    scope: str
    name: str | None = Field(None, description="what its key, user, team or organisation is called")
    token_limit: int | None
    turn_limit: int | None
    limit_usd: float | None
    requests_per_minute: int | None
    tokens_per_minute: int | None
    spent_tokens: int
    reserved_tokens: int
    spent_usd: float
    reserved_usd: float
    turns: int = Field(description="model calls begun")
    unpriced_calls: int = Field(description="calls that ended without a known price")
    minute: int = Field(description="the minute since 1970 that the two counts after it are of")
    minute_requests: int
    minute_tokens: int
    window: Literal["day", "week", "month"] | None = Field(
        description="what limits and spending are of; null: for ever"
    )
    time_zone: str | None
    window_end: str | None = Field(description="when the window ends, UTC")
    on_short: Literal["refuse", "clamp"] = Field(
        description="what becomes of a call that may need more than is left"
    )


class BudgetPage(_Paged):
    """Budgets, by scope."""

    scopes: list[Budget]


class BudgetSet(BaseModel):
    """The scope as it now stands, and the entry that says so."""

    entry: str
    by: str = Field(description="who set them")
    before: Limits | None = Field(description="the limits before; null where there was no budget")
    scope: Budget


class DifferenceShape(BaseModel):
    """A figure in which the live state and the ledger differ."""

    scope: str
    field: str
    live: float | str | None
    ledger: float | str | None


class UsageDifferenceShape(BaseModel):
    """One figure of one row of `usage` that is not what the entries add up to."""

    row: str
    field: str
    live: Any
    ledger: Any


class Audit(BaseModel):
    """The live state of all budgets beside what the ledger says."""

    equal: bool
    scopes: int
    differences: list[DifferenceShape]
    usage: list[UsageDifferenceShape] = Field(
        description="rows of the table `usage` that differ, at most a thousand figures"
    )
    held_tokens: int
    held_calls: int


class KeyShape(BaseModel):
    """A virtual key without its secret. Times that there are not are empty."""

    id: str
    name: str
    state: Literal["live", "expired", "revoked"]
    role: str
    prefix: str
    user_id: str
    team_id: str
    organisation_id: str
    models: list[str]
    agents: list[str]
    tiers: list[str]
    created: str
    expires: str
    rotated: str
    old_until: str
    revoked: str
    revoked_entry: str
    user_name: str = Field(description="as it was declared; empty where it was not")
    team_name: str
    organisation_name: str
    limits: Limits
    budget: Budget | None = Field(description="what it may spend and has spent")


class OwnerKey(BaseModel):
    """A key of a user, team or organisation."""

    id: str
    name: str
    role: str
    state: Literal["live", "expired", "revoked"]


class OwnerShape(BaseModel):
    """A user, team or organisation. What was not declared is null."""

    kind: Literal["user", "team", "organisation"]
    id: str
    name: str | None
    scope: str = Field(description="the name of its budget")
    entry: str | None = Field(description="the entry that gave it its name")
    declared: str | None = Field(description="when")
    by: str | None = Field(description="who declared it")
    keys: list[OwnerKey] = Field(description="those that are not revoked")
    users: list[str] = Field(description="ids of users that its keys name")
    teams: list[str] = Field(description="ids of teams that its keys name")
    budget: Budget | None
    spent_usd: float = Field(description="of its budget; without one, of its keys together")
    spent_tokens: int
    limit_usd: float | None


class OwnerPage(_Paged):
    """Users, teams or organisations, by id."""

    owners: list[OwnerShape]


class TenantHead(BaseModel):
    """The head of a tenant's log that the host took last."""

    entries: int = Field(description="under it")
    root: str = Field(description="of the tree, base64")
    entry: str = Field(description="the host's entry that took it")
    taken: str = Field(description="when")


class TenantRemoval(BaseModel):
    """The host's record of a tenant's removal."""

    entry: str
    at: str
    reason: str
    by: str


class TenantShape(BaseModel):
    """A tenant, as its host sees it."""

    name: str
    state: Literal["served", "moving", "removing", "removed", "unfinished", "damaged"]
    origin: str = Field(description="of its log")
    place: str = Field(description="where its ledger is")
    old_places: list[str] = Field(description="ledgers that it was moved away from, still there")
    entries: int | None = Field(description="in its ledger; null where that does not answer")
    spent_today_usd: float | None = Field(description="since midnight, UTC; likewise")
    head: TenantHead | None
    removed: TenantRemoval | None


class TenantPage(_Paged):
    """Tenants, by name."""

    tenants: list[TenantShape]


class KeyPage(_Paged):
    """Virtual keys, by name."""

    keys: list[KeyShape]


class KeyMade(BaseModel):
    """The only response that shows the secret."""

    id: str
    name: str
    key: str


class KeyRevoked(BaseModel):
    """A key that has ended, and the entry that says so."""

    id: str
    name: str
    entry: str


class FeedbackShape(BaseModel):
    """One word of feedback. What there is not is empty."""

    entry_id: str
    target_entry_id: str
    target_type: Literal["exchange", "work_order", "turn", "decision"]
    source: Literal["person", "program", "judge", "reference", "schema", "test"]
    score: float | None
    label: str
    reason: Any = Field(description="a text, or the marker of what was erased")
    by: str
    key_id: str
    rater: str = Field(description="who counts as one party: the user of the key, the key, `by`")
    session_id: str
    at: str
    replaces: str = Field(description="the same one's earlier word, which no longer counts")
    again: bool = Field(description="the idempotency key was used before")
    uncalibrated: bool = Field(
        False, description="a judge's, and too few people graded the same to tell how good it is"
    )


class FeedbackPage(BaseModel):
    """Feedback, oldest first."""

    feedback: list[FeedbackShape]
    next_cursor: str | None


class ApprovalShape(BaseModel):
    """A tool call that waits, or waited, for a person. What there is not is empty."""

    request_id: str = Field(description="the entry that asks")
    wo_id: str
    session_id: str
    agent_id: str
    requested_by: str = Field(description="the person or key for whom it asks")
    tool_id: str
    arguments: Any = Field(
        description="what the tool is to run with, perhaps as a person changed it: an object, or "
        "the marker of what was erased"
    )
    requested_arguments: Any = Field(description="what was asked for")
    tool_digest: str = Field(description="SHA-256 of the tool's definition, in hex")
    idempotency_key: str
    kind: Literal["approval", "unknown_outcome"] = Field(
        description="`unknown_outcome`: it began before a crash; it is unknown whether it took "
        "effect"
    )
    requested_at: str
    people: int = Field(description="how many must grant it")
    signed_by: list[str] = Field(description="those who have, where others are needed too")
    state: Literal["pending", "granted", "denied", "void"]
    decided_by: str
    decision_reason: str
    decided_at: str
    expires_at: str = Field(description="when the grant ends, unused")
    used_by: str = Field(description="the TOOL_INTENT that it was used for")


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDetail(OrderStatus):
    """An order, with its content.

    Attributes:
        task: a text, or the marker of what was erased.
        response: a text, the marker of what was erased, or null.
    """

    task: Any
    response: Any


class OrderPage(_Paged):
    """Orders, in the order in which they begin; what is done, the latest first."""

    orders: list[OrderStatus]


class DelegationShape(BaseModel):
    """A delegation on record."""

    entry_id: str


class ApprovalPage(_Paged):
    """Requests: what waits, the oldest first; what is decided, the latest first."""

    approvals: list[ApprovalShape]


class PinShape(BaseModel):
    """A definition of an MCP server's tool, as it is on record."""

    entry_id: str = Field(description="the entry that holds it")
    server: str
    tool_id: str
    digest: str = Field(description="SHA-256 of the definition, in hex")
    origin: str = Field(description="the server's command line or URL")
    at: str
    by: str = Field(description="who accepted it; empty for the first use")
    definition: str | None = Field(description="JSON text; null when it was erased")


class PinnedToolShape(BaseModel):
    """A tool's pin, and what was offered since instead of it."""

    server: str
    tool_id: str
    state: Literal["pinned", "changed"]
    pin: PinShape | None = Field(description="what may be called")
    change: PinShape | None = Field(description="what waits for a person")
    diff: list[str] = Field(description="from the pin to the change, a unified diff")


class PinPage(BaseModel):
    """Pinned tools, by server and id."""

    pins: list[PinnedToolShape]


class TierShape(BaseModel):
    """What all of a call costs whose input is longer: US dollars per million tokens."""

    above_input_tokens: int
    input: str
    output: str
    cached_input: str
    cache_write: str
    cache_write_long: str
    reasoning: str


class PriceShape(BaseModel):
    """What a model costs: US dollars per million tokens, as exact text."""

    provider: str
    model: str = Field(description="as the provider calls it")
    origin: Literal["own", "shipped"] = Field(description="the operator's, or a package's")
    date: str = Field(description="the day it was last checked")
    source: str = Field(description="where it comes from")
    input: str
    output: str
    cached_input: str
    cache_write: str
    cache_write_long: str
    reasoning: str
    audio_input: str | None = Field(None, description="left out: as `input`")
    audio_output: str | None = Field(None, description="left out: as `output`")
    per_second: str | None = Field(None, description="of sound, where its length is billed")
    per_million_characters: str | None = Field(None, description="spoken, where these are billed")
    tiers: list[TierShape] = Field([], description="by length of the input, rising")
    max_output_tokens: int | None = Field(description="most of one answer; null: not known")
    context_window: int | None = Field(description="most of one call; null: not known")


class PricePage(_Paged):
    """Prices in force, by provider and model."""

    version: str = Field(description="of the prices, as `price_version` of an EXCHANGE")
    base_version: str = Field(description="of the shipped prices")
    entry: str | None = Field(description="the entry with the operator's prices; null: none")
    prices: list[PriceShape]


class Breaker(BaseModel):
    """The circuit breaker of one provider and model, of all processes of the root."""

    provider_id: str
    model_id: str
    state: Literal["closed", "open", "half_open"]


class Health(BaseModel):
    """How this process is."""

    version: str
    in_flight: int = Field(description="model calls that are out, of all processes")
    refused: int = Field(description="requests without a good key, since this process began")
    breakers: list[Breaker] = Field(description="of the root; one that is not here is closed")


class PermissionsShape(BaseModel):
    """What a package's agents may use; `*` in a name stands for anything."""

    tools: list[str]
    models: list[str]
    paths: list[str]
    budgets: dict[str, int | str]


class PackageShape(BaseModel):
    """An installed package."""

    package_id: str
    version: str
    title: str
    plane_id: str
    spec_id: str
    framework_id: str
    permissions: PermissionsShape
    files: int
    operation: Literal["install", "upgrade", "rollback"]
    installed_at: str
    entry_id: str
    source: str
    archive_sha256: str
    signed: bool
    approved_by: str


class PackagePage(_Paged):
    """Packages by id."""

    packages: list[PackageShape]


class GateState(BaseModel):
    """What a gate said last; `passed` is null when it never was checked."""

    gate: str
    passed: bool | None
    message: str
    checked_at: str | None
    entry_id: str | None


class GateStates(BaseModel):
    """All gates in their order."""

    gates: list[GateState]


class GateShape(BaseModel):
    """What a gate says now."""

    model_config = ConfigDict(extra="allow")

    gate: str
    passed: bool
    message: str
    errors: list[str]


class GateReportShape(BaseModel):
    """All gates that were asked."""

    passed: bool
    gates: list[GateShape]
