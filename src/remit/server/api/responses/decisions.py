"""The forms of feedback, approvals, orders, and pins of tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field

from remit.agents.queue import OrderStatus
from remit.operations.results import listing


class FeedbackShape(BaseModel):
    """A grade of an answer. Missing values are empty.

    `target_entry_id` and `target_type` name the target; `score`, `label` and `reason` are the
    grade; `source`, `by`, `key_id` and `rater` tell who gave it.
    """

    entry_id: str
    target_entry_id: str
    target_type: Literal["exchange", "work_order", "turn", "decision"]
    source: Literal["person", "program", "judge", "reference", "schema", "test"]
    score: float | None
    label: str
    reason: Any = Field(description="Text, or the marker of erased content.")
    by: str
    key_id: str
    rater: str = Field(
        description="Party to which the grade counts: the user of the key, else the key, else `by`."
    )
    session_id: str
    at: str
    replaces: str = Field(description="Earlier grade by the same party, which this grade replaces.")
    again: bool = Field(description="True if the idempotency key was used before.")
    uncalibrated: bool = Field(
        False,
        description="True for a judge's grade if too few people graded the same targets to "
        "calibrate the judge.",
    )


FeedbackPage = listing("FeedbackPage", "Feedback, oldest first.", feedback=FeedbackShape)


class ApprovalShape(BaseModel):
    """A request for approval of a tool call. Missing values are empty.

    `tool_id` and `arguments` tell the call; `requested_by`, `agent_id`, `session_id` and `wo_id`
    tell who wants it; `state`, `signed_by` and the `decided_` fields tell the decision; `used_by`
    tells its use.
    """

    request_id: str = Field(description="Entry that requests the approval.")
    wo_id: str
    session_id: str
    agent_id: str
    requested_by: str = Field(description="Person or key on whose behalf the tool would run.")
    tool_id: str
    arguments: Any = Field(
        description="Arguments to run the tool with, after any change by an approver: an object, "
        "or "
        "the marker of erased content."
    )
    requested_arguments: Any = Field(description="Arguments that the agent requested.")
    tool_digest: str = Field(description="SHA-256 of the tool's definition, in hex.")
    idempotency_key: str
    kind: Literal["approval", "unknown_outcome"] = Field(
        description="`unknown_outcome` if the tool began and its effect is unknown."
    )
    unknown_because: str = Field(description="Sentence that says why the outcome is unknown.")
    requested_at: str
    people: int = Field(description="Number of people who must grant the request.")
    signed_by: list[str] = Field(
        description="People who granted the request while others have yet to do so."
    )
    state: Literal["pending", "granted", "denied", "void"]
    decided_by: str
    decision_reason: str
    decided_at: str
    expires_at: str = Field(description="Expiry of the approval if it is not used.")
    used_by: str = Field(description="TOOL_INTENT entry that used the approval.")


ApprovalPage = listing(
    "ApprovalPage",
    "Requests: pending ones oldest first, decided ones latest first.",
    approvals=ApprovalShape,
)


class DelegationShape(BaseModel):
    """A recorded delegation.

    `entry_id` is the entry that records it.
    """

    entry_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDetail(OrderStatus):
    """An order with its content.

    Attributes:
        task: a text, or the marker of erased content.
        response: a text, the marker of erased content, or null.
        outcome: empty if the response is the agent's answer and the quality gate accepted it; else
            `notice`, `degraded`, `cancelled` or `abandoned`.
    """

    task: Any
    response: Any
    outcome: str = ""


OrderPage = listing(
    "OrderPage",
    "Orders: open ones in the order in which they will start, ended ones latest first.",
    orders=OrderStatus,
)


class PinShape(BaseModel):
    """A recorded definition of an MCP server's tool.

    `server` and `tool_id` name the tool; `digest` and `definition` are its definition; `origin`,
    `at` and `by` tell when and by whom it was recorded.
    """

    entry_id: str = Field(description="Entry that contains the definition.")
    server: str
    tool_id: str
    digest: str = Field(description="SHA-256 of the definition, in hex.")
    origin: str = Field(description="Command line or URL of the server.")
    at: str
    by: str = Field(
        description="Person or key that accepted the definition; empty if it was pinned on first "
        "use."
    )
    definition: str | None = Field(description="Definition as JSON text; null if it was erased.")


class PinnedToolShape(BaseModel):
    """A tool's pin, and the definition offered since.

    `pin` is in force; if `state` is `changed`, `change` waits, and `diff` shows it line by line.
    """

    server: str
    tool_id: str
    state: Literal["pinned", "changed"]
    pin: PinShape | None = Field(description="Accepted definition, which agents may call.")
    change: PinShape | None = Field(description="Changed definition, which waits for acceptance.")
    diff: list[str] = Field(description="Unified diff from the pin to the change.")


PinPage = listing(
    "PinPage", "Pinned tools, sorted by server and id.", pins=PinnedToolShape, base=BaseModel
)
