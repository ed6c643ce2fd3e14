"""The forms of requests: URL queries and bodies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from remit.agents.queue import OrderState
from remit.gateway import MAX_ID_CHARS

_DEFAULT_LIMIT = 50
_MAX_PAGE = 500
_MAX_REASON = 2000


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

GateName = Literal["G0B", "G1", "G1-COMPLETE", "G2", "G3", "G4", "G5", "G6"]
_Name = Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS), AfterValidator(_name)]
# A URL has no null: a value is given or left out.
_Text = Annotated[str | None, WithJsonSchema({"type": "string"})]
_Prefix = Annotated[
    _Name | None,
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS}),
]
_MaybeName = _Name | None
_Count = Annotated[int, Field(ge=0)] | None
_Rate = Annotated[int, Field(ge=1)] | None
_Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)] | None


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Page(BaseModel):
    """The wanted part of a list. An unknown name is an error, so no typo selects everything."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(_DEFAULT_LIMIT, ge=1, le=_MAX_PAGE, description="most items")
    cursor: _Text = Field(None, description="`next_cursor` of the answer before")


class EntryQuery(Page):
    """Conditions on entries; all must hold."""

    event_type: _Text = Field(None, description="such as `EXCHANGE`")
    submission_id: _Text = None
    session_id: _Text = None
    work_order_id: _Text = None
    agent_id: _Text = None
    tier: _Text = Field(None, description="`hot`, `ho2` or `ho1`")
    framework_id: _Text = None
    contract_id: _Text = None
    model_id: _Text = None
    outcome: _Text = Field(None, description="`success`, `error` or `timeout`")
    since: _Text = Field(None, description="first instant, inclusive; ISO 8601")
    until: _Text = Field(None, description="last instant, exclusive; ISO 8601")
    text: _Text = Field(
        None, description='words that the content holds, all of them; `"a phrase"` in quotes'
    )
    order: Literal["asc", "desc"] = Field("asc", description="`desc`: newest first")
    content: Flag = Field(False, description="content in place, instead of its commitments")


class ApprovalQuery(Page):
    """Conditions on requests for approval."""

    state: Literal["pending", "granted", "denied", "void", "all"] = Field(
        "pending", description="`void`: the order ended before anybody decided"
    )


class OrderListed(Page):
    """Conditions on orders."""

    queue: str = Field("", max_length=100, description="of one queue")
    state: Literal[""] | OrderState = Field(
        "", description="of one state; what is not done when left out"
    )


class OrderGiven(_Body):
    """Work for a worker."""

    agent_id: _Name = Field(description="who is to do it")
    task: str = Field(min_length=1, description="what is to be done; content")
    queue: str = Field("default", max_length=100, description="where it waits")
    priority: int = Field(0, ge=-1000, le=1000, description="a lower number goes first")
    after: str = Field("", max_length=64, description="not before: a duration or a time")
    key: str = Field("", max_length=MAX_ID_CHARS, description="names the work: there is one order")
    for_key: str = Field(
        "", max_length=MAX_ID_CHARS,
        description="name or id of the virtual key whose limits hold for it; the caller's own when "
        "left out",
    )  # fmt: skip
    user_id: str = Field("", max_length=MAX_ID_CHARS, description="whose budget it counts in")
    subject_id: str = Field("", max_length=MAX_ID_CHARS, description="of whom it speaks")
    tokens: int | None = Field(None, ge=0, le=10**12, description="the most of its session")
    usd: float | None = Field(None, ge=0, le=10**9, description="the most of its session")
    max_attempts: int | None = Field(None, ge=1, le=1000, description="until it is set aside")


class Acceptance(_Body):
    """A person's acceptance of a changed tool."""

    digest: str = Field(
        pattern="^[0-9a-f]{64}$", description="the hash of the definition, as `change` shows it"
    )


class Decision(_Body):
    """A person's decision on a request."""

    grant: bool = Field(description="whether the tool may run")
    reason: str = Field(
        "", max_length=_MAX_REASON, description="for the record, and for the model when denied"
    )
    arguments: dict[str, Any] | None = Field(
        None, description="what the tool is to run with instead, when granted; within its schema"
    )
    until: str = Field(
        "",
        max_length=64,
        description="when the approval ends, unused: a duration such as `2h`, "
        "or a time; as late as `[approvals] valid_s` says when left out",
    )


class Delegation(_Body):
    """A person who may approve in the caller's place, and for how long."""

    to: _Name = Field(description="their user id or key id")
    until: str = Field(
        max_length=64,
        description="a duration such as `2d`, or a time; at most 30 days, `0s` ends it",
    )
    reason: str = Field("", max_length=_MAX_REASON, description="for the record")


class FeedbackQuery(Page):
    """Conditions on feedback."""

    target: _Text = Field(None, description="an id as of `target` of POST; all when left out")


class FeedbackGiven(_Body):
    """Feedback on an exchange, work order, turn or decision: a score, a label, or both."""

    target: _Name = Field(
        description="`LED-…` of an exchange, turn or work order; `WO-…`; `DEC-…`; `SES-…/3` for a "
        "turn, `SES-…` for the latest"
    )
    score: float | None = Field(None, allow_inf_nan=False, ge=0, le=1, description="1 is good")
    label: str = Field("", max_length=64, description="a word for counting: `wrong_unit`")
    reason: str = Field("", max_length=_MAX_REASON, description="content: erased with its target")
    source: Literal["person", "program"] = Field("person", description="whose judgement it is")
    idempotency_key: str = Field("", max_length=256, description="makes two of the same one")


class PrefixQuery(Page):
    """Conditions on budgets."""

    prefix: _Prefix = Field(
        None, description="how the scope's name begins, such as `key:` or `session:SES-`"
    )


class _Window(_Body):
    """The period of limits, and the treatment of calls that may exceed the rest."""

    window: Literal["day", "week", "month"] | None = Field(
        None, description="the period that dollars, tokens and turns are of; left out: for ever"
    )
    time_zone: str | None = Field(None, description="whose midnight begins it; UTC")
    on_short: Literal["refuse", "clamp"] = Field(
        "refuse", description="`clamp` lowers a call's output limit to what is left"
    )


class _Limits(_Window):
    """Limits of a scope."""

    usd: _Usd = Field(None, description="US dollars")
    tokens: _Count = Field(None, description="tokens, in and out")
    turns: _Count = Field(None, description="model calls")
    rpm: _Count = Field(None, description="calls a minute")
    tpm: _Count = Field(None, description="tokens a minute")


class BudgetChange(_Limits):
    """New limits of one scope, which replace all earlier ones."""

    key: _MaybeName = Field(None, description="a virtual key, by name or id")
    session: _MaybeName = None
    user: _MaybeName = None
    team: _MaybeName = None
    organisation: _MaybeName = None
    agent: _MaybeName = Field(None, description="with `session`: an agent in it")
    unlimited: bool = Field(
        False, description="take all limits away; alone, without it a limit has to be given"
    )


class OwnerRequest(_Limits):
    """A user, team or organisation to declare, with optional limits."""

    id: _Name = Field(description="by which keys and budgets name it")
    name: _Name = Field(description="what people call it; content, that can be erased")


class Rename(_Body):
    """A new name."""

    name: _Name


class PriceQuery(Page):
    """Conditions on prices; all must hold."""

    provider: _Text = None
    model: _Text = Field(None, description="a name, or a pattern such as `gpt-4o*`")
    own: Flag = Field(False, description="only the operator's")


class KeyQuery(Page):
    """Conditions on keys."""

    revoked: Flag = Field(False, description="those that were revoked as well")


class KeyRequest(_Window):
    """A key to create. An empty list excludes nothing."""

    name: str = Field(description="what people call it")
    role: Literal["admin", "operator", "agent", "auditor"] = "agent"
    budget_usd: _Usd = Field(None, description="most US dollars that it may spend")
    budget_tokens: _Count = Field(None, description="most tokens")
    rpm: _Rate = Field(None, description="most calls a minute")
    tpm: _Rate = Field(None, description="most tokens a minute")
    models: list[str] = Field([], description="only these; `gpt-4o*` is a pattern")
    agents: list[str] = Field([], description="only in the name of these agents")
    tiers: list[Literal["hot", "ho2", "ho1"]] = Field([], description="only in these tiers")
    pass_through: list[str] = Field(
        [],
        description="requests without a model call, such as `/vector_stores*`; empty: only reads",
    )
    pass_through_unpriced: list[str] = Field(
        [], description="those without a price that a limit in US dollars lets pass"
    )
    expires: str | None = Field(
        None, description="`30d`, `12h`, `15m`, `90s`; or ISO 8601, in UTC where no zone is named"
    )
    user: str | None = Field(None, description="id of the user it is for")
    team: str | None = Field(None, description="id of the team")
    organisation: str | None = Field(None, description="id of the organisation")


class Rotation(_Body):
    """Options of a key's rotation."""

    grace_s: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="seconds for which the old secret counts too"
    )


class GateRequest(BaseModel):
    """Gates to check."""

    model_config = ConfigDict(extra="forbid")

    gates: list[GateName] = Field([], description="which gates; all when left out")
    full: bool = Field(False, description="read the whole ledger, whatever was verified before")
