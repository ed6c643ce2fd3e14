"""The forms of feedback, approvals, orders, and pins of tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field

from remit.agents.queue import OrderStatus
from remit.server.api.responses.page import listing


class FeedbackShape(BaseModel):
    """A grade. Missing values are empty."""

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


FeedbackPage = listing("FeedbackPage", "Feedback, oldest first.", feedback=FeedbackShape)


class ApprovalShape(BaseModel):
    """A tool call that waits, or waited, for a person. Missing values are empty."""

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
        description="`unknown_outcome`: it began, and it is unknown whether it took effect"
    )
    unknown_because: str = Field(description="why the outcome is unknown, as a sentence")
    requested_at: str
    people: int = Field(description="how many must grant it")
    signed_by: list[str] = Field(description="those who have, where others are needed too")
    state: Literal["pending", "granted", "denied", "void"]
    decided_by: str
    decision_reason: str
    decided_at: str
    expires_at: str = Field(description="when the grant ends, unused")
    used_by: str = Field(description="the TOOL_INTENT that it was used for")


ApprovalPage = listing(
    "ApprovalPage",
    "Requests: pending ones oldest first, decided ones latest first.",
    approvals=ApprovalShape,
)


class DelegationShape(BaseModel):
    """A recorded delegation."""

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
    "Orders: open ones in the order in which they begin, ended ones latest first.",
    orders=OrderStatus,
)


class PinShape(BaseModel):
    """A recorded definition of an MCP server's tool."""

    entry_id: str = Field(description="the entry that holds it")
    server: str
    tool_id: str
    digest: str = Field(description="SHA-256 of the definition, in hex")
    origin: str = Field(description="the server's command line or URL")
    at: str
    by: str = Field(description="who accepted it; empty for the first use")
    definition: str | None = Field(description="JSON text; null when it was erased")


class PinnedToolShape(BaseModel):
    """A tool's pin, and the definition offered since."""

    server: str
    tool_id: str
    state: Literal["pinned", "changed"]
    pin: PinShape | None = Field(description="what may be called")
    change: PinShape | None = Field(description="what waits for a person")
    diff: list[str] = Field(description="from the pin to the change, a unified diff")


PinPage = listing(
    "PinPage", "Pinned tools, sorted by server and id.", pins=PinnedToolShape, base=BaseModel
)
