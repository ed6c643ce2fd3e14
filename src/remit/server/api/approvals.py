"""Routes of approvals: what waits for a person, and their decision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query, Response

from remit.agents.approvals import Approval, ApprovalError, ApprovalQueue
from remit.ledger import LedgerClient
from remit.server.api.access import Caller, allow, failures, name_of
from remit.server.api.pages import Listed, answer, page_of
from remit.server.api.requests import ApprovalQuery, Decision
from remit.server.api.responses import ApprovalPage, ApprovalShape
from remit.server.refusals import HttpError

__all__ = ["approval_routes"]


def approval_routes(ledger: LedgerClient, queue: ApprovalQueue) -> APIRouter:
    """Requests for approval in ``ledger``, decided through ``queue``."""
    routes = APIRouter(prefix="/api/approvals", tags=["approvals"])

    @routes.get(
        "", response_model=ApprovalPage, responses=failures(), dependencies=[allow("read")],
        summary="List approvals",
    )  # fmt: skip
    def approvals(query: Annotated[ApprovalQuery, Query()]) -> Response:
        """Tool calls that wait for a person, the oldest first; others with `state`."""
        return answer(page_of(_listed(ledger, queue, query), query.limit, "approvals"))

    @routes.get(
        "/{request_id}", response_model=ApprovalShape, responses=failures(404),
        dependencies=[allow("read")], summary="One approval",
    )  # fmt: skip
    def approval(request_id: str) -> Response:
        """A request as it stands, and what became of it."""
        return answer(_found(queue, request_id).to_dict())

    @routes.post(
        "/{request_id}", response_model=ApprovalShape, responses=failures(404, 409),
        dependencies=[allow("manage_keys")], summary="Decide an approval",
    )  # fmt: skip
    def decide(request_id: str, decision: Decision, caller: Caller) -> Response:
        """Grant or deny, once and for all. Operators only; the key that decides is on record.

        The order goes on when its session is resumed.
        """
        _found(queue, request_id)
        queue.decide(request_id, granted=decision.grant, by=name_of(caller), reason=decision.reason)
        return answer(queue.get(request_id).to_dict())

    return routes


def _listed(ledger: LedgerClient, queue: ApprovalQueue, query: ApprovalQuery) -> Iterator[Listed]:
    asked = ledger.query(
        event_type="APPROVAL_REQUESTED",
        order="asc" if query.state == "pending" else "desc",
        after=query.cursor,
        with_content=False,
    )
    for entry in asked:
        found = queue.get(entry.id)
        if query.state in ("all", found.state):
            yield entry.id, "approvals", found.to_dict()


def _found(queue: ApprovalQueue, request_id: str) -> Approval:
    try:
        return queue.get(request_id)
    except ApprovalError as error:
        cause = ApprovalError(error.message, next_step="GET /api/approvals lists what waits.")
        raise HttpError(404, "not_found", error.message) from cause
