"""What comes in and goes out, as data. Times are ISO 8601, UTC; money is in US dollars."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from remit.gateway import MAX_ID_CHARS

__all__ = [
    "Audit",
    "Budget",
    "BudgetChange",
    "BudgetPage",
    "BudgetSet",
    "EntryPage",
    "EntryQuery",
    "EntryShape",
    "Error",
    "Flag",
    "Health",
    "KeyMade",
    "KeyPage",
    "KeyQuery",
    "KeyRequest",
    "KeyRevoked",
    "Name",
    "Page",
    "PrefixQuery",
    "Rotation",
    "SessionDetail",
    "SessionPage",
    "Stats",
    "Trace",
]

_DEFAULT_LIMIT = 50
_MOST = 500


def _flag(value: object) -> object:
    if value in ("true", "false"):
        return value == "true"
    if isinstance(value, bool):
        return value
    raise ValueError("write true or false")


def _name(value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise ValueError("it holds a control character, or begins or ends with a space")
    return value


Flag = Annotated[bool, BeforeValidator(_flag)]
"""``true`` or ``false``, and nothing else."""

Name = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS), AfterValidator(_name)]
"""An id, in one printable line."""

Text = str | SkipJsonSchema[None]
_MaybeName = Name | SkipJsonSchema[None]
_Count = Annotated[int, Field(ge=0)] | SkipJsonSchema[None]
_Rate = Annotated[int, Field(ge=1)] | SkipJsonSchema[None]
_Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)] | SkipJsonSchema[None]


class _Question(BaseModel):
    """The query of a URL: a name that is none is an error, not everything."""

    model_config = ConfigDict(extra="forbid")


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: str = Field(description="for programs")
    message: str = Field(description="for people: what happened and why")
    next_step: str | SkipJsonSchema[None] = Field(None, description="what can be done about it")
    param: str | SkipJsonSchema[None] = Field(None, description="the field at fault")


class Error(BaseModel):
    """Every answer that is no success."""

    error: ErrorDetail


class Page(_Question):
    """Which part of a list."""

    limit: int = Field(_DEFAULT_LIMIT, ge=1, le=_MOST, description="most items")
    cursor: Text = Field(None, description="`next_cursor` of the answer before")


class EntryQuery(Page):
    """Which entries; all that is given must hold."""

    event_type: Text = Field(None, description="such as `EXCHANGE`")
    submission_id: Text = None
    session_id: Text = None
    work_order_id: Text = None
    agent_id: Text = None
    tier: Text = Field(None, description="`hot`, `ho2` or `ho1`")
    framework_id: Text = None
    contract_id: Text = None
    model_id: Text = None
    outcome: Text = Field(None, description="`success`, `error` or `timeout`")
    since: Text = Field(None, description="first instant, inclusive; ISO 8601")
    until: Text = Field(None, description="last instant, exclusive; ISO 8601")
    text: Text = Field(
        None, description='words that the content holds, all of them; `"a phrase"` in quotes'
    )
    order: Literal["asc", "desc"] = Field("asc", description="`desc`: newest first")
    content: Flag = Field(False, description="content in place, instead of its commitments")


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


class _Answer(BaseModel):
    next_cursor: str | None = Field(description="where the next page begins; null at the end")


class EntryPage(_Answer):
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


class SessionPage(_Answer):
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


class SessionDetail(SessionShape, _Answer):
    """A session with the turns and model calls of this page, each in ledger order."""

    turn_list: list[TurnShape]
    exchanges: list[ExchangeShape]


class Step(BaseModel):
    """One entry of a work order in a line, with what its event tells."""

    model_config = ConfigDict(extra="allow")

    entry_id: str
    event_type: str
    timestamp: str


class Trace(_Answer):
    """What happened in a work order, in ledger order.

    `state` is null where the order was the caller's own and Remit did not plan it.
    """

    work_order_id: str
    session_id: str
    state: Literal["planned", "dispatched", "executing", "completed", "failed"] | None
    steps: list[Step]


class PrefixQuery(Page):
    """Which budgets."""

    prefix: _MaybeName = Field(
        None, description="how the scope's name begins, such as `key:` or `session:SES-`"
    )


class Budget(BaseModel):
    """One scope as it stands. A limit of null is none."""

    scope: str
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
    closed: bool = Field(description="a bill went above its bound; setting limits opens it")


class BudgetPage(_Answer):
    """Budgets, by scope."""

    scopes: list[Budget]


class BudgetChange(_Body):
    """These limits, and no others, for the one scope that is named."""

    key: _MaybeName = Field(None, description="a virtual key, by name or id")
    session: _MaybeName = None
    user: _MaybeName = None
    team: _MaybeName = None
    organisation: _MaybeName = None
    usd: _Usd = Field(None, description="US dollars")
    tokens: _Count = Field(None, description="tokens, in and out")
    turns: _Count = Field(None, description="model calls")
    rpm: _Count = Field(None, description="calls a minute")
    tpm: _Count = Field(None, description="tokens a minute")


class BudgetSet(BaseModel):
    """The scope as it now stands, and the entry that says so."""

    entry: str
    scope: Budget


class DifferenceShape(BaseModel):
    """A figure that the live state and the ledger tell differently."""

    scope: str
    field: str
    live: float | None
    ledger: float | None


class Audit(BaseModel):
    """The live state of all budgets beside what the ledger says."""

    equal: bool
    scopes: int
    differences: list[DifferenceShape]
    held_tokens: int
    held_calls: int


class KeyQuery(Page):
    """Which keys."""

    revoked: Flag = Field(False, description="those that were revoked as well")


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


class KeyPage(_Answer):
    """Virtual keys, by name."""

    keys: list[KeyShape]


class KeyRequest(_Body):
    """A key to make. A list that is empty excludes nothing."""

    name: str = Field(description="what people call it")
    role: Literal["admin", "operator", "agent", "auditor"] = "agent"
    budget_usd: _Usd = Field(None, description="most US dollars that it may spend")
    budget_tokens: _Count = Field(None, description="most tokens")
    rpm: _Rate = Field(None, description="most calls a minute")
    tpm: _Rate = Field(None, description="most tokens a minute")
    models: list[str] = Field([], description="only these; `gpt-4o*` is a pattern")
    agents: list[str] = Field([], description="only in the name of these agents")
    tiers: list[Literal["hot", "ho2", "ho1"]] = Field([], description="only in these tiers")
    expires: Text = Field(
        None, description="`30d`, `12h`, `15m`, `90s`; or ISO 8601, in UTC where no zone is named"
    )
    user: Text = Field(None, description="id of the user it is for")
    team: Text = Field(None, description="id of the team")
    organisation: Text = Field(None, description="id of the organisation")


class KeyMade(BaseModel):
    """The one time that the secret is told."""

    id: str
    name: str
    key: str


class KeyRevoked(BaseModel):
    """A key that has ended, and the entry that says so."""

    id: str
    name: str
    entry: str


class Rotation(_Body):
    """How a key gets a new secret."""

    grace_s: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="seconds for which the old secret counts too"
    )


class Breaker(BaseModel):
    """The circuit breaker of one provider and model."""

    provider_id: str
    model_id: str
    state: Literal["closed", "open", "half_open"]


class Health(BaseModel):
    """How this process is."""

    version: str
    in_flight: int = Field(description="model calls that are out, of all processes")
    refused: int = Field(description="requests without a good key, since this process began")
    breakers: list[Breaker] = Field(description="of this process; one that is not here is closed")
