"""Routes of feedback on exchanges, work orders, turns and decisions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query

from remit.learning import feedback_on, give_feedback
from remit.learning.judges import is_uncalibrated
from remit.ledger import LedgerClient
from remit.server.api.requests import FeedbackGiven, FeedbackQuery
from remit.server.api.routes import Caller, Context, Routes, name_of, page_of


def feedback_routes(ledger: LedgerClient) -> Routes:
    """Return the routes that record and list feedback in ``ledger``."""
    routes = Routes("feedback")

    @routes.add(
        "POST", "/feedback", "Give feedback",
        needs="give_feedback", shape="FeedbackShape", status=201, fails=[404, 409],
    )  # fmt: skip
    def give(given: FeedbackGiven, caller: Caller, context: Context) -> dict[str, Any]:
        """Grade an exchange, work order, turn or decision; an agent's key only its own.

        A later grade by the same party replaces the earlier one; both stay recorded.
        """
        found = give_feedback(
            ledger, **given.model_dump(), by=name_of(caller), identity=caller,
            subject_id=context.subject_id,
        )  # fmt: skip
        return asdict(found)

    @routes.add(
        "GET",
        "/feedback",
        "List feedback",
        needs="read",
        shape="FeedbackPage",
        fails=[404],
    )
    def listed(query: Annotated[FeedbackQuery, Query()]) -> dict[str, Any]:
        """Return all feedback, or that on one target; replaced feedback is included."""
        found = feedback_on(ledger, query.target, after=query.cursor)
        asks = is_uncalibrated(ledger)
        rows = (
            (one.entry_id, "feedback",
             {**asdict(one), "reason": one.reason, "uncalibrated": asks(one)})
            for one in found
        )  # fmt: skip
        return page_of(rows, query.limit, "feedback")

    return routes
