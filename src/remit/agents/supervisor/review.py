"""Verifying an answer before it is delivered, and the record of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from remit.agents.sessions import SessionManager
from remit.agents.supervisor.journal import SupervisorJournal
from remit.agents.supervisor.plan import PlanStep
from remit.agents.supervisor.quality import QualityGate, answer_text
from remit.agents.supervisor.scheduler import total_cost
from remit.agents.supervisor.threads import proposals
from remit.agents.supervisor.turn import TurnInProgress
from remit.agents.workorders import WorkOrder, WorkOrderState

__all__ = ["Review"]

_VERIFY = "PRC-VERIFY-001"


class Review:
    """The quality gate of a session: rules first, then, where wanted, a second opinion.

    Args:
        gate: the rules.
        journal: where the verdict is put on record.
        session: whose turns are looked at.
        known_threads: returns the ids of threads that the session may close.
        second_opinion: have what passes the rules judged under PRC-VERIFY-001.
    """

    def __init__(
        self,
        gate: QualityGate,
        journal: SupervisorJournal,
        session: SessionManager,
        known_threads: Callable[[], set[str]],
        *,
        second_opinion: bool,
    ) -> None:
        self._gate = gate
        self._journal = journal
        self._session = session
        self._known_threads = known_threads
        self._second_opinion = second_opinion

    async def check(self, turn: TurnInProgress, order: WorkOrder, attempt: int) -> list[str]:
        """Why an answer must not be delivered; empty when it may, or when the review waits.

        A verdict that is on record already is not made again.
        """
        verdict = turn.before.verdicts.get(order.wo_id) if turn.before else None
        if verdict is not None:
            return list(verdict)
        reasons = self._gate.reasons(order)
        if not reasons and self._second_opinion:
            reasons = await self._ask(turn, order, attempt)
        orders = turn.scheduler.orders
        proposed = proposals(
            _tool_results(order), self._session.session_id, self._session.turn_count + 1
        )
        known = self._known_threads() if proposed else set()
        threads = [
            self._journal.entry(event, **thread)
            for event, thread in proposed
            if event == "THREAD_OPENED" or thread["thread_id"] in known
        ]
        await self._journal.checked(
            order, [one.wo_id for one in orders], total_cost(orders), reasons, attempt,
            [] if reasons else threads,
        )  # fmt: skip
        return reasons

    async def _ask(self, turn: TurnInProgress, order: WorkOrder, attempt: int) -> list[str]:
        """What a reviewer has against the answer. A review that fails is not a yes."""
        context = {
            "user_input": turn.message,
            "answer": answer_text(order),
            "tool_results": _tool_results(order),
            "acceptance_criteria": dict(order.acceptance_criteria),
        }
        review = await turn.scheduler.run(PlanStep("verify", _VERIFY), context, attempt=attempt)
        if review.state is not WorkOrderState.COMPLETED:
            error = review.error or {}
            return [f"the review failed: {error.get('code', '')}: {error.get('message', '')}"]
        verdict: Mapping[str, Any] = review.output_result
        if verdict.get("verdict") == "accept":
            return []
        return [str(reason) for reason in verdict.get("reasons", ())] or ["the reviewer said no"]


def _tool_results(order: WorkOrder) -> list[Mapping[str, Any]]:
    result = order.output_result
    return list(result.get("tool_results", ())) if isinstance(result, Mapping) else []
