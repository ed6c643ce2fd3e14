"""One turn: scope, assemble, plan, dispatch, verify, deliver."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from remit.blocking import run_blocking
from remit.config import SupervisorSettings
from remit.errors import InvalidInputError, RemitError
from remit.exchange import GatewayPort, Message, PromptRequest, RouteOutcome, TextSink
from remit.ledger import LedgerError, LedgerPort
from remit.sessions import SessionManager, Turn
from remit.supervisor.journal import SupervisorJournal
from remit.supervisor.ports import WorkerPort
from remit.supervisor.quality import check_answer
from remit.supervisor.turn import TurnResult
from remit.workorders import (
    AnswerRejected,
    Degraded,
    EventSink,
    TextDelta,
    WorkOrder,
    WorkOrderConstraints,
    WorkOrderCost,
    WorkOrderState,
    WorkOrderType,
)

__all__ = ["HO2Supervisor"]

_log = logging.getLogger("remit.supervisor")

_CLASSIFY = "PRC-CLASSIFY-001"
_SYNTHESIZE = "PRC-SYNTHESIZE-001"

_LOOP_FAILURES = frozenset(
    {
        "contract_not_found",
        "contract_schema_invalid",
        "prompt_pack_not_found",
        "input_schema_invalid",
    }
)
"""Failures of the machinery around the model: a direct call can still answer."""

_HOPELESS = frozenset({"budget_exhausted", "turn_limit_exceeded", "cancelled"})
"""Failures that trying again cannot mend."""


class HO2Supervisor:
    """Answers the messages of one session. Every step is a work order of its own.

    Args:
        worker: executes the orders.
        ledger: a handle of tier ``ho2``.
        session: the conversation.
        config: how turns are planned and checked.
        fallback: the gateway's port, used for one direct call when the loop itself fails.
        tools_allowed: what the answer's order may use.
        work_order_tokens: token budget of each order; 0 for none.
        agent_id: who answers.
    """

    def __init__(
        self,
        worker: WorkerPort,
        ledger: LedgerPort,
        session: SessionManager,
        config: SupervisorSettings,
        *,
        fallback: GatewayPort | None = None,
        tools_allowed: Sequence[str] = (),
        work_order_tokens: int = 0,
        agent_id: str = "admin-001",
    ) -> None:
        self._worker = worker
        self._session = session
        self._config = config
        self._fallback = fallback
        self._tools_allowed = tuple(tools_allowed)
        self._tokens = work_order_tokens
        self._agent_id = agent_id
        self._journal = SupervisorJournal(ledger, session.session_id, agent_id, "ADMIN")

    def handle_turn(self, user_message: str, *, on_event: EventSink | None = None) -> TurnResult:
        """:meth:`ahandle_turn` for callers without an event loop."""
        return run_blocking(self.ahandle_turn(user_message, on_event=on_event))

    async def ahandle_turn(
        self, user_message: str, *, on_event: EventSink | None = None
    ) -> TurnResult:
        """Answer one message and record the turn.

        Args:
            user_message: what the user said.
            on_event: hears text, tools and rejections as they come.

        Raises:
            InvalidInputError: the message is blank.
            LedgerError: the record could not be kept; nothing further was done.
        """
        if not user_message.strip():
            raise InvalidInputError("The message is blank.", next_step="Say something.")
        listen: EventSink = on_event or (lambda _: None)
        turn = _Chain()
        try:
            response, passed = await self._loop(user_message, turn, listen)
        except LedgerError:
            raise
        except Exception as error:  # noqa: BLE001 - the user still gets an answer, and the reason
            failed = _as_loop_failure(error)
            response, passed = await self._degrade(user_message, turn, failed, listen)
        entry_id = await self._session.aadd_turn(user_message, response)
        return TurnResult(
            response=response,
            wo_chain_summary=tuple(_summary(order) for order in turn.orders),
            cost_summary=_cost(turn.orders),
            session_id=self._session.session_id,
            quality_gate_passed=passed,
            tool_results=tuple(turn.tool_results()),
            classification=turn.classification,
            degraded=turn.degraded,
            turn_entry_id=entry_id,
        )

    async def _loop(self, message: str, turn: _Chain, listen: EventSink) -> tuple[str, bool]:
        turns = self._session.recent_turns(self._shown_turns())
        if self._config.classify:
            turn.classification = await self._classify(message, turn)
        context: dict[str, Any] = {
            "user_input": message,
            "classification": turn.classification,
            "assembled_context": {"turns": self._fitting(turns)},
        }
        reasons: list[str] = []
        for attempt in range(1, self._config.max_retries + 2):
            if reasons:
                context["rejected_because"] = reasons
            order = await self._run(
                WorkOrderType.SYNTHESIZE, _SYNTHESIZE, context, turn, listen, self._tools_allowed
            )
            code = (order.error or {}).get("code", "")
            if code in _LOOP_FAILURES:
                raise _LoopFailedError(code, (order.error or {}).get("message", ""))
            reasons = check_answer(order, self._config.error_markers)
            await self._journal.checked(order, turn.ids(), _cost(turn.orders), reasons, attempt)
            if not reasons:
                return str(order.output_result["text"]).strip(), True
            again = attempt <= self._config.max_retries and code not in _HOPELESS
            listen(AnswerRejected(tuple(reasons), again))
            if not again:
                break
        await self._journal.write(
            "ESCALATION", turn.orders[-1].wo_id, reasons=reasons, work_order_ids=turn.ids()
        )
        return f"I have no answer that passes my checks: {'; '.join(reasons)}.", False

    async def _classify(self, message: str, turn: _Chain) -> Mapping[str, Any] | None:
        """What kind of message it is. A failure costs the label, not the turn."""
        context = {"user_input": message}
        order = await self._run(WorkOrderType.CLASSIFY, _CLASSIFY, context, turn, None, ())
        return order.output_result if order.state is WorkOrderState.COMPLETED else None

    async def _run(
        self,
        wo_type: WorkOrderType,
        contract_id: str,
        context: Mapping[str, Any],
        turn: _Chain,
        listen: EventSink | None,
        tools: tuple[str, ...],
    ) -> WorkOrder:
        """Plan and dispatch one order, and wait for it."""
        order = WorkOrder(
            wo_id=self._journal.next_order_id(),
            session_id=self._session.session_id,
            wo_type=wo_type,
            parent_wo_id=turn.orders[0].wo_id if turn.orders else None,
            created_at=datetime.now(UTC).isoformat(timespec="microseconds")[:-6] + "Z",
            created_by=self._agent_id,
            input_context=dict(context),
            constraints=WorkOrderConstraints(
                prompt_contract_id=contract_id, token_budget=self._tokens, tools_allowed=tools
            ),
            acceptance_criteria={"non_empty": True, "no_error_marker": True},
        )
        await self._journal.dispatched(order)
        order = order.moved_to(WorkOrderState.DISPATCHED)
        done = await self._worker.aexecute(order, on_event=listen)
        turn.orders.append(done)
        return done

    async def _degrade(
        self, message: str, turn: _Chain, failed: _LoopFailedError, listen: EventSink
    ) -> tuple[str, bool]:
        """One direct call answers, and the record says why it had to."""
        turn.degraded = True
        await self._journal.write(
            "DEGRADATION",
            turn.orders[-1].wo_id if turn.orders else "",
            error_code=failed.code,
            error_message=failed.message,
        )
        listen(Degraded(f"{failed.code}: {failed.message}"))
        if self._fallback is None:
            return f"I cannot answer: {failed.message}", False
        sink: TextSink = lambda text: listen(TextDelta(text))  # noqa: E731
        response = await self._fallback.aroute(
            PromptRequest(
                prompt=message,
                prompt_pack_id="",
                contract_id=_SYNTHESIZE,
                agent_id=self._agent_id,
                agent_class="ADMIN",
                framework_id="",
                package_id="",
                work_order_id="",
                session_id=self._session.session_id,
                tier="ho2",
                messages=_conversation(self._session.recent_turns(self._shown_turns()), message),
                max_tokens=self._config.degraded_max_tokens,
            ),
            on_text=sink,
        )
        if response.outcome is RouteOutcome.SUCCESS and response.content.strip():
            return response.content, False
        why = response.error_message or "the model gave no answer"
        return f"I cannot answer: {failed.message} The direct call failed too: {why}", False

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

    def _fitting(self, turns: Sequence[Turn]) -> list[dict[str, Any]]:
        """The latest turns that fit the context budget, oldest first (4 bytes for a token)."""
        kept: list[dict[str, Any]] = []
        left = self._config.context_tokens * 4
        for turn in reversed(turns):
            left -= len(turn.user_message.encode()) + len(turn.response.encode())
            if left < 0:
                break
            kept.append({"user_message": turn.user_message, "response": turn.response})
        return kept[::-1]


class _LoopFailedError(RemitError):
    """The machinery of a turn failed, not the model."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _as_loop_failure(error: Exception) -> _LoopFailedError:
    if isinstance(error, _LoopFailedError):
        return error
    _log.warning("the turn's loop failed: %s", type(error).__name__)
    _log.debug("where it failed", exc_info=True)
    if isinstance(error, RemitError):
        return _LoopFailedError(type(error).__name__, error.message)
    return _LoopFailedError("internal_error", f"{type(error).__name__} in the loop")


class _Chain:
    """The work orders of one turn so far."""

    def __init__(self) -> None:
        self.orders: list[WorkOrder] = []
        self.classification: Mapping[str, Any] | None = None
        self.degraded = False

    def ids(self) -> list[str]:
        return [order.wo_id for order in self.orders]

    def tool_results(self) -> list[Mapping[str, Any]]:
        """What tools gave back to the order whose answer counts."""
        last = self.orders[-1].output_result if self.orders else None
        return list(last.get("tool_results", ())) if isinstance(last, dict) else []


def _conversation(turns: Sequence[Turn], message: str) -> list[Message]:
    messages: list[Message] = []
    for turn in turns:
        messages.append({"role": "user", "content": turn.user_message})
        messages.append({"role": "assistant", "content": turn.response or "…"})
    return [*messages, {"role": "user", "content": message}]


def _summary(order: WorkOrder) -> dict[str, Any]:
    return {
        "wo_id": order.wo_id,
        "wo_type": str(order.wo_type),
        "state": str(order.state),
        "error": dict(order.error) if order.error else None,
        "llm_calls": order.cost.llm_calls,
        "tool_calls": order.cost.tool_calls,
        "total_tokens": order.cost.total_tokens,
        "elapsed_ms": order.cost.elapsed_ms,
    }


def _cost(orders: Sequence[WorkOrder]) -> dict[str, Any]:
    total = WorkOrderCost()
    for order in orders:
        total = total.plus(order.cost)
    return total.to_dict()
