"""Routes of approvals: pending requests and decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Query

from remit.agents import Approval, ApprovalError, ApprovalQueue
from remit.gateway.auth import expiry_of
from remit.ledger import LedgerClient
from remit.server.api.requests import ApprovalQuery, Decision, Delegation
from remit.server.api.routes import Caller, Context, Listed, Routes, name_of, page_of
from remit.server.refusals import HttpError


def approval_routes(ledger: LedgerClient, queue: ApprovalQueue) -> Routes:
    """Return the routes of requests for approval in ``ledger``, decided through ``queue``.

    The routes list and show requests, decide one, and delegate approvals.

    Args:
        ledger: ledger of the root.
        queue: its requests for approval.
    """
    routes = Routes("approvals")

    @routes.add("GET", "/approvals", "List approvals", needs="read", shape="ApprovalPage")
    def approvals(query: Annotated[ApprovalQuery, Query()]) -> dict[str, Any]:
        """Return tool calls that wait for a person, oldest first; others with `state`."""
        return page_of(_listed(ledger, queue, query), query.limit, "approvals")

    @routes.add(
        "GET",
        "/approvals/{request_id}",
        "One approval",
        needs="read",
        shape="ApprovalShape",
    )
    def approval(request_id: str) -> dict[str, Any]:
        """Return a request with its state and decision."""
        return _found(queue, request_id).to_dict()

    @routes.add(
        "POST", "/approvals/{request_id}", "Decide an approval",
        needs="approve", shape="ApprovalShape", fails=[409],
    )  # fmt: skip
    def decide(
        request_id: str, decision: Decision, caller: Caller, context: Context
    ) -> dict[str, Any]:
        """Grant or deny a request for good. The key that decides is recorded.

        The order continues when its session is resumed. A tool that needs several people stays
        pending until the last of them grants the same arguments. A key counts as the person who
        received its secret: a key that your key made or renewed over the network counts as you.
        """
        _found(queue, request_id)
        queue.decide(
            request_id,
            granted=decision.grant,
            by=name_of(caller),
            reason=decision.reason,
            arguments=decision.arguments,
            until=expiry_of(decision.until) if decision.until else None,
            person=queue.person_behind(caller.key_id, caller.user_id, caller.name),
            subject_id=context.subject_id,
        )
        return queue.get(request_id).to_dict()

    @routes.add(
        "POST", "/delegations", "Delegate approvals",
        needs="approve", shape="DelegationShape", fails=[409], status=201,
    )  # fmt: skip
    def delegate(delegation: Delegation, caller: Caller, context: Context) -> dict[str, Any]:
        """Let another person approve in the caller's place for a time."""
        entry_id = queue.delegate(
            by=queue.person_behind(caller.key_id, caller.user_id, caller.name),
            to=delegation.to,
            until=expiry_of(delegation.until),
            reason=delegation.reason,
            subject_id=context.subject_id,
        )
        return {"entry_id": entry_id}

    return routes


def _listed(ledger: LedgerClient, queue: ApprovalQueue, query: ApprovalQuery) -> Iterator[Listed]:
    requests = ledger.query(
        event_type="APPROVAL_REQUESTED",
        order="asc" if query.state == "pending" else "desc",
        after=query.cursor,
        with_content=False,
    )
    for entry in requests:
        found = queue.get(entry.id)
        if query.state in ("all", found.state):
            yield entry.id, "approvals", found.to_dict()


def _found(queue: ApprovalQueue, request_id: str) -> Approval:
    try:
        return queue.get(request_id)
    except ApprovalError as error:
        cause = ApprovalError(
            error.message, next_step="GET /api/approvals lists the waiting requests."
        )
        raise HttpError(404, "not_found", error.message) from cause
