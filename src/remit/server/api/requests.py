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
        raise ValueError("it contains a control character, or begins or ends with a space")
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
    """The wanted part of a list.

    Unknown parameters are refused, so that a typo cannot select everything.

    `limit` is 1 to 500 items, 50 by default; `cursor` continues after the previous page.
    """

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(
        _DEFAULT_LIMIT, ge=1, le=_MAX_PAGE, description="Maximum number of items on the page."
    )
    cursor: _Text = Field(None, description="`next_cursor` of the previous page.")


class EntryQuery(Page):
    """Conditions on entries; all must hold.

    Ids and names are compared exactly: `event_type`, `submission_id`, `session_id`,
    `work_order_id`, `agent_id`, `tier`, `framework_id`, `contract_id`, `model_id` and `outcome`.
    `since`, `until` and `text` narrow further; `order` and `content` choose the form of the answer.
    """

    event_type: _Text = Field(None, description="Event type, such as `EXCHANGE`.")
    submission_id: _Text = None
    session_id: _Text = None
    work_order_id: _Text = None
    agent_id: _Text = None
    tier: _Text = Field(None, description="Tier: `hot`, `ho2` or `ho1`.")
    framework_id: _Text = None
    contract_id: _Text = None
    model_id: _Text = None
    outcome: _Text = Field(
        None, description="Outcome of the exchange: `success`, `error` or `timeout`."
    )
    since: _Text = Field(None, description="Start of the range, inclusive, in ISO 8601.")
    until: _Text = Field(None, description="End of the range, exclusive, in ISO 8601.")
    text: _Text = Field(
        None, description="Words that the content must contain; write a phrase in double quotes."
    )
    order: Literal["asc", "desc"] = Field(
        "asc", description="Order by time: `asc` is oldest first, `desc` newest first."
    )
    content: Flag = Field(False, description="Return the content instead of its commitments.")


class ApprovalQuery(Page):
    """Conditions on requests for approval.

    `state` selects requests: pending ones by default, `all` for every one.
    """

    state: Literal["pending", "granted", "denied", "void", "all"] = Field(
        "pending",
        description="State of the requests; `void` means that the order ended before a decision.",
    )


class OrderListed(Page):
    """Conditions on orders.

    `queue` and `state` select orders.
    """

    queue: str = Field("", max_length=100, description="Name of a queue; empty for all queues.")
    state: Literal[""] | OrderState = Field(
        "", description="State of the orders; by default all orders that have not ended."
    )


class OrderGiven(_Body):
    """Work for a worker.

    `agent_id` does `task`; `queue`, `priority` and `after` decide when; `key` makes the request
    idempotent; `for_key`, `user_id`, `tokens`, `usd` and `max_attempts` bound it; `subject_id` is
    for erasure.
    """

    agent_id: _Name = Field(description="Agent that carries out the order.")
    task: str = Field(
        min_length=1, description="Task for the agent; stored as content, which can be erased."
    )
    queue: str = Field("default", max_length=100, description="Queue of the order.")
    priority: int = Field(
        0, ge=-1000, le=1000, description="Priority; orders with lower numbers start first."
    )
    after: str = Field(
        "", max_length=64, description="Earliest start: a duration from now, or a time."
    )
    key: str = Field(
        "",
        max_length=MAX_ID_CHARS,
        description="Idempotency key: only one order is created per key.",
    )
    for_key: str = Field(
        "", max_length=MAX_ID_CHARS,
        description="Name or id of the virtual key whose limits apply; by default the caller's "
        "own key.",
    )  # fmt: skip
    user_id: str = Field("", max_length=MAX_ID_CHARS, description="User whose budget is charged.")
    subject_id: str = Field(
        "", max_length=MAX_ID_CHARS, description="Person whom the content is about, for erasure."
    )
    tokens: int | None = Field(None, ge=0, le=10**12, description="the most of its session")
    usd: float | None = Field(None, ge=0, le=10**9, description="the most of its session")
    max_attempts: int | None = Field(
        None, ge=1, le=1000, description="Number of attempts before the order is set aside."
    )


class Acceptance(_Body):
    """A person's acceptance of a changed tool.

    `digest` identifies the definition that the person has seen.
    """

    digest: str = Field(
        pattern="^[0-9a-f]{64}$",
        description="SHA-256 of the changed definition, in hex, as in `change.digest`.",
    )


class Decision(_Body):
    """A person's decision on a request.

    `grant` decides, `reason` explains, `arguments` replaces the arguments, and `until` ends an
    approval.
    """

    grant: bool = Field(description="True to let the tool run, false to deny it.")
    reason: str = Field(
        "",
        max_length=_MAX_REASON,
        description="Reason, recorded permanently; the model sees the reason of a denial.",
    )
    arguments: dict[str, Any] | None = Field(
        None,
        description="Arguments to run the tool with instead of the requested ones, valid under the "
        "tool's schema.",
    )
    until: str = Field(
        "",
        max_length=64,
        description="End of the approval if it is not used: a duration such as `2h`, or a time. "
        "By default `[approvals] valid_s` applies.",
    )


class Delegation(_Body):
    """A person who may approve in the caller's place, and for how long.

    `to` is the delegate, `until` the end, and `reason` is recorded.
    """

    to: _Name = Field(description="User id or key id of the delegate.")
    until: str = Field(
        max_length=64,
        description="End of the delegation: a duration such as `2d`, or a time; at most 30 days "
        "from now. `0s` ends a delegation.",
    )
    reason: str = Field("", max_length=_MAX_REASON, description="Reason, recorded permanently.")


class FeedbackQuery(Page):
    """Conditions on feedback.

    `target` selects the feedback on one target.
    """

    target: _Text = Field(
        None, description="Id of a target, as in `target` of POST; by default all feedback."
    )


class FeedbackGiven(_Body):
    """Feedback on an exchange, work order, turn or decision: a score, a label, or both.

    `target` is judged by `score`, `label` and `reason`; `source` says who judged; `idempotency_key`
    prevents a second record.
    """

    target: _Name = Field(
        description="Id of the target: `LED-…` of an exchange, turn or work order, `WO-…`, "
        "`DEC-…`, "
        "`SES-…/3` for a turn, or `SES-…` for the latest turn."
    )
    score: float | None = Field(
        None, allow_inf_nan=False, ge=0, le=1, description="Score from 0 (bad) to 1 (good)."
    )
    label: str = Field(
        "",
        max_length=64,
        description="Label, such as `wrong_unit`; equal labels are counted together.",
    )
    reason: str = Field(
        "",
        max_length=_MAX_REASON,
        description="Reason; stored as content, which is erased with its target.",
    )
    source: Literal["person", "program"] = Field(
        "person", description="Whether a person or a program made the judgement."
    )
    idempotency_key: str = Field(
        "",
        max_length=256,
        description="Idempotency key: a repetition with the same key is not recorded again.",
    )


class PrefixQuery(Page):
    """Conditions on budgets.

    `prefix` selects budgets by the beginning of their name.
    """

    prefix: _Prefix = Field(
        None, description="Beginning of the scope's name, such as `key:` or `session:SES-`."
    )


class _Window(_Body):
    """The period of limits, and the treatment of calls that may exceed the rest."""

    window: Literal["day", "week", "month"] | None = Field(
        None,
        description="Period to which the limits of dollars, tokens and turns apply; by default "
        "they never reset.",
    )
    time_zone: str | None = Field(
        None, description="Time zone whose midnight begins the period; UTC by default."
    )
    on_short: Literal["refuse", "clamp"] = Field(
        "refuse",
        description="Treatment of a call that may need more than the rest: `refuse` it, or `clamp` "
        "its output limit to the rest.",
    )


class _Limits(_Window):
    """Limits of a scope."""

    usd: _Usd = Field(None, description="Limit in US dollars.")
    tokens: _Count = Field(None, description="Limit of input and output tokens together.")
    turns: _Count = Field(None, description="Limit of model calls.")
    rpm: _Count = Field(None, description="Limit of calls per minute.")
    tpm: _Count = Field(None, description="Limit of tokens per minute.")


class BudgetChange(_Limits):
    """New limits of one scope, which replace all earlier ones.

    Exactly one of `key`, `session`, `user`, `team` and `organisation` names the scope, and `agent`
    a part of a session; the other fields are limits, or `unlimited`.
    """

    key: _MaybeName = Field(None, description="Name or id of a virtual key.")
    session: _MaybeName = None
    user: _MaybeName = None
    team: _MaybeName = None
    organisation: _MaybeName = None
    agent: _MaybeName = Field(None, description="Agent within the session; requires `session`.")
    unlimited: bool = Field(False, description="No limits at all; cannot be combined with a limit.")


class OwnerRequest(_Limits):
    """A user, team or organisation to declare, with optional limits.

    `id` and `name` declare the owner; the other fields are limits.
    """

    id: _Name = Field(description="Id by which keys and budgets refer to the owner.")
    name: _Name = Field(description="Display name; stored as content, which can be erased.")


class Rename(_Body):
    """A new name.

    `name` replaces the display name.
    """

    name: _Name


class PriceQuery(Page):
    """Conditions on prices; all must hold.

    `provider` and `model` select prices; `own` leaves out shipped ones.
    """

    provider: _Text = None
    model: _Text = Field(None, description="Name of a model, or a pattern such as `gpt-4o*`.")
    own: Flag = Field(False, description="Return only prices set by the operator.")


class KeyQuery(Page):
    """Conditions on keys.

    `revoked` includes revoked keys.
    """

    revoked: Flag = Field(False, description="Include revoked keys.")


class KeyRequest(_Window):
    """A key to create. An empty list allows everything.

    `name` and `role` describe the key; `models`, `agents`, `tiers` and `expires` restrict it;
    `user`, `team` and `organisation` own it; the other fields are limits.
    """

    name: str = Field(description="Display name.")
    role: Literal["admin", "operator", "agent", "auditor"] = "agent"
    budget_usd: _Usd = Field(None, description="Limit in US dollars.")
    budget_tokens: _Count = Field(None, description="Limit of input and output tokens together.")
    rpm: _Rate = Field(None, description="Limit of calls per minute.")
    tpm: _Rate = Field(None, description="Limit of tokens per minute.")
    models: list[str] = Field(
        [], description="Models that the key may call; patterns such as `gpt-4o*` are allowed."
    )
    agents: list[str] = Field([], description="Agents that the key may act for.")
    tiers: list[Literal["hot", "ho2", "ho1"]] = Field(
        [], description="Tiers that the key may act in."
    )
    pass_through: list[str] = Field(
        [],
        description="Requests without a model call that the key may send, such as "
        "`/vector_stores*`; reads are always allowed.",
    )
    pass_through_unpriced: list[str] = Field(
        [],
        description="Requests without a price that the key may send although a limit in US "
        "dollars applies.",
    )
    expires: str | None = Field(
        None,
        description="Expiry: a duration such as `30d`, `12h`, `15m` or `90s`, or a time in ISO "
        "8601 (UTC if no zone is given).",
    )
    user: str | None = Field(None, description="Id of the user who owns the key.")
    team: str | None = Field(None, description="Id of the team that owns the key.")
    organisation: str | None = Field(None, description="Id of the organisation that owns the key.")


class Rotation(_Body):
    """Options of a key's rotation.

    `grace_s` is a time in seconds, 0 by default.
    """

    grace_s: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="Number of seconds for which the old secret stays valid.",
    )


class GateRequest(BaseModel):
    """Gates to check.

    `gates` selects gates, and `full` repeats earlier verification.
    """

    model_config = ConfigDict(extra="forbid")

    gates: list[GateName] = Field([], description="Gates to check; by default all.")
    full: bool = Field(
        False, description="Verify the whole ledger, including entries verified earlier."
    )
