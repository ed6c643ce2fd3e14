"""Planning a turn: what it is shown, and which steps it is made of."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime
from typing import Any

from remit.agents.sessions import SessionManager, Turn
from remit.agents.supervisor.attention import Attention, choose
from remit.agents.supervisor.degradation import LoopFailedError
from remit.agents.supervisor.plan import Plan, Planner, PlanStep, TurnContext
from remit.agents.supervisor.ports import ContextPort
from remit.agents.supervisor.threads import open_threads
from remit.agents.supervisor.turn import TurnInProgress
from remit.kernel.errors import InvalidInputError
from remit.kernel.loops import call_in_thread
from remit.kernel.settings import SupervisorSettings
from remit.ledger import LedgerPort

__all__ = ["Planning"]


class Planning:
    """Plans the turns of one session.

    Args:
        ledger: a handle of tier ``ho2``.
        session: the conversation.
        config: how much is shown, and how long a planner may take.
        answer: the step that answers where there is no planner, and what a planner is held to.
        context: what the tier above pushes down; nothing when left out.
        planner: makes the plan of each turn.
    """

    def __init__(
        self,
        ledger: LedgerPort,
        session: SessionManager,
        config: SupervisorSettings,
        answer: PlanStep,
        context: ContextPort | None,
        planner: Planner | None,
    ) -> None:
        self._ledger = ledger
        self._session = session
        self._config = config
        self._answer = answer
        self._context = context
        self._planner = planner

    def attend(self) -> Attention:
        """Choose what the turn is shown."""
        turns = self.recent_turns()
        candidates = []
        if self._config.threads:
            candidates += open_threads(self._ledger, session_id=self._session.session_id)
        if self._context is not None:
            candidates += self._context.pushed(self._session.session_id)
        return choose(
            turns,
            self._session.turn_count - len(turns),
            candidates,
            self._config.attention,
            self._config.context_tokens,
            datetime.now(UTC),
        )

    async def plan(self, turn: TurnInProgress, attention: Attention) -> Plan:
        """The steps of a turn, held to what the agent may use.

        Raises:
            InvalidInputError: the planner gave none, or one that the agent may not carry out.
            LoopFailedError: it took too long.
        """
        if self._planner is None:
            return Plan((self._answer,))
        context = TurnContext(
            turn.message, turn.classification, attention.context(), self._answer.tools
        )
        planner = self._planner
        try:
            async with asyncio.timeout(self._config.planner_timeout_s):
                # In a thread, so that a slow one does not hold up other turns.
                made = await call_in_thread("remit-planner", lambda: planner(context))
                plan = await made if inspect.isawaitable(made) else made
        except TimeoutError as error:
            raise LoopFailedError(
                "planner_timeout",
                f"the planner gave no plan within {self._config.planner_timeout_s:g} s",
            ) from error
        if not isinstance(plan, Plan):
            raise InvalidInputError(f"The planner gave a {type(plan).__name__}, not a Plan.")
        return plan.within(self._answer)

    def input(
        self, turn: TurnInProgress, attention: Attention | None, plan: Plan
    ) -> dict[str, Any]:
        """The context that all orders of the plan have in common."""
        attention = attention or self.attend()
        assembled = attention.context()
        contract_id = plan.answering.contract_id
        if self._context is not None and contract_id:
            required = self._context.required(contract_id, self._session.session_id)
            if required:
                assembled["required"] = dict(required)
        return {
            "user_input": turn.message,
            "classification": turn.classification,
            "assembled_context": assembled,
        }

    def known_threads(self) -> set[str]:
        """Ids of the open threads that this session may know of, and so may close."""
        known = open_threads(self._ledger, session_id=self._session.session_id)
        pushed = self._context.pushed(self._session.session_id) if self._context else ()
        return {one.ref for one in (*known, *pushed)}

    def recent_turns(self) -> list[Turn]:
        """The turns that the model is shown at most, oldest first."""
        return self._session.recent_turns(self._shown_turns())

    def _shown_turns(self) -> int:
        """How many turns the model is shown: at most ``context_turns``, at least half of them.

        The window moves on by half its width at a time. In between the conversation only grows
        at its end, which providers' prompt caches and the ledger's message lists both reward.
        """
        most, there = self._config.context_turns, self._session.turn_count
        if there <= most:
            return there
        step = max(1, most // 2)
        return there - -(-(there - most) // step) * step
