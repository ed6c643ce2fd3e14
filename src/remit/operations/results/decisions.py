"""The forms of feedback, approvals, orders, and pins of tools."""

from __future__ import annotations

from typing import Any, Literal

from remit.agents import Approval, queue
from remit.agents.tools import Pin
from remit.learning import Feedback
from remit.operations.results.page import Paged, form

FeedbackShape = form(
    "FeedbackShape", "A grade of an answer. Missing values are empty.", of=Feedback,
    reason=(Any, "Text, or the marker of erased content."),
    rater=(str, "Party to which the grade counts: the user of the key, else the key, else `by`."),
    uncalibrated=(bool, "True for a judge's grade if too few people graded the same targets to "
                  "calibrate the judge.", False),
)  # fmt: skip
FeedbackPage = form("FeedbackPage", "Feedback, oldest first.", base=Paged, feedback=[FeedbackShape])

ApprovalShape = form(
    "ApprovalShape", "A request for approval of a tool call. Missing values are empty.",
    of=Approval,
    arguments=(Any, "Arguments to run the tool with, after any change by an approver: an object, "
               "or the marker of erased content."),
    requested_arguments=(Any, "Arguments that the agent requested."),
    kind=(Literal["approval", "unknown_outcome"],
          "`unknown_outcome` if the tool began and its effect is unknown."),
)  # fmt: skip
ApprovalPage = form("ApprovalPage", "Requests, in order.", base=Paged, approvals=[ApprovalShape])

OrderDetail = form(
    "OrderDetail", "An order with its content.", of=queue.OrderStatus,
    task=(Any, "A text, or the marker of erased content."),
    response=(Any, "A text, the marker of erased content, or null."),
    outcome=(str, "Empty if the response is the agent's answer and the quality gate accepted it; "
             "else `notice`, `degraded`, `cancelled` or `abandoned`."),
)  # fmt: skip
OrderStatus = form("OrderStatus", "The present state of an order.", of=queue.OrderStatus)
OrderPage = form("OrderPage", "Orders, in their order.", base=Paged, orders=[OrderStatus])

PinShape = form("PinShape", "A recorded definition of an MCP server's tool.", of=Pin)
PinnedToolShape = form(
    "PinnedToolShape", "A tool's pin, and the definition offered since.",
    server=str, tool_id=str, state=Literal["pinned", "changed"],
    pin=(PinShape | None, "Accepted definition, which agents may call."),
    change=(PinShape | None, "Changed definition, which waits for acceptance."),
    diff=(list[str], "Unified diff from the pin to the change."),
)  # fmt: skip
PinPage = form("PinPage", "Pinned tools, sorted by server and id.", pins=[PinnedToolShape])
