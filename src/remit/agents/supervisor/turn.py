"""The loop of a turn, step by step.

    1. Classify the message, if configured.
    2. Select what to show of the conversation, threads and policy (attention).
    3. Make the plan, or restore the recorded one.
    4. Run the plan's work orders; hand over to other agents if an order asks for it.
    5. Verify the answer at the quality gate; try again a limited number of times.
    6. Deliver the answer, wait for a person, or escalate.

If the loop itself fails, the agent answers directly, without the plan (degradation).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from remit.agents.output_type import OutputType
from remit.agents.supervisor.attention import Candidate, choose
from remit.agents.supervisor.entries import UnfinishedTurn
from remit.agents.supervisor.plan import HANDOFF_STEPS, Plan, PlanStep, Treatment, TurnContext
from remit.agents.supervisor.quality_gate import answer_text
from remit.agents.supervisor.scheduler import Scheduler
from remit.agents.supervisor.services import Services
from remit.agents.supervisor.threads import proposed_entries
from remit.agents.supervisor.turn_result import (
    LOOP_FAILURES,
    PROVIDER_FAILURES,
    TurnFailedError,
    TurnResult,
    can_change,
    loop_failure,
    no_answer,
    summary_of,
)
from remit.agents.workorders import (
    AnswerRejected,
    ApprovalNeeded,
    Degraded,
    EventSink,
    PartialOutput,
    TextDelta,
    TurnEvent,
    WorkOrder,
    WorkOrderState,
    WorkOrderType,
)
from remit.kernel.errors import InvalidInputError
from remit.kernel.loops import call_in_thread
from remit.ledger import LedgerError

_log = logging.getLogger("remit.supervisor")

_CLASSIFY = PlanStep("scope", "PRC-CLASSIFY-001", WorkOrderType.CLASSIFY)
_VERIFY = PlanStep("verify", "PRC-VERIFY-001")

_DIRECT = "direct"


@dataclass(eq=False, repr=False)
class TurnRun:
    """A turn in progress and its intermediate results.

    :meth:`run` answers; if it raises anything but LedgerError, :meth:`degrade` may answer without
    the plan. :meth:`result` is valid afterwards. The caller records the turn and sets ``entry_id``.
    Events go to the listener as they happen; its errors are logged and ignored.

    Args:
        services: the collaborators of the session's supervisor.
        threads: returns the open threads that the session knows.
        message: the user's message.
        files: content blocks of its images and documents.
        scheduler: runs the turn's orders.
        before: the recorded part of the turn; None for a new one.
        output: type of the answer; None for text.
        on_event: receives the events; None for no listener.

    Attributes:
        response: the text for the user, once there is one.
        waiting: True if the turn waits for a person.
        entry_id: id of the ``TURN_RECORDED``; empty before, and while the turn waits.
    """

    _services: Services
    _threads: Callable[[], Sequence[Candidate]]
    message: str
    _files: Sequence[Mapping[str, Any]]
    scheduler: Scheduler
    _before: UnfinishedTurn | None
    _output: OutputType[Any] | None
    _on_event: EventSink | None
    _asked: dict[str, ApprovalNeeded] = field(default_factory=dict, init=False)
    _classification: Mapping[str, Any] | None = field(default=None, init=False)
    response: str = field(default="", init=False)
    waiting: bool = field(default=False, init=False)
    entry_id: str = field(default="", init=False)
    _error: tuple[str, str] = field(default=("", ""), init=False)
    _degraded: bool = field(default=False, init=False)
    _delivered: WorkOrder | None = field(default=None, init=False)
    _treatment: Treatment = field(default_factory=lambda: Treatment(when={}), init=False)
    _withholds: bool = field(
        default=False, init=False
    )  # True: stream the text only after acceptance.
    _has_withheld: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._config = self._services.config
        self._journal = self._services.journal
        self._session = self._services.session

    @property
    def outcome(self) -> str:
        """The recorded ``outcome``: ``notice`` without an answer, ``degraded`` if an agent answered
        directly after a failure of the loop, else empty. Empty also before the turn has ended.
        """
        if self._error[0]:
            return "notice"
        return "degraded" if self._degraded else ""

    async def run(self) -> None:
        """Answer the message, or leave the turn waiting for a person.

        Runs the turn's orders and records verdicts; recorded verdicts are reused. A rejected last
        attempt appends an ``ESCALATION``, once, and leaves a notice as response. At most
        ``max_retries`` further attempts are made, and none if another cannot end differently
        (:func:`~remit.agents.supervisor.turn_result.can_change`) or typed data stayed invalid. A
        failed classification does not fail the turn. An error of the planner is let through.

        Raises:
            TurnFailedError: the machinery around the model failed, the planner took too long, or
                the turn was interrupted after its loop had failed; :meth:`degrade` can still
                answer.
            InvalidInputError: the planner returned no Plan, or a plan that is not valid for the
                agent.
            ContractError: the contract or its required context cannot be loaded.
            RemitError: the guard's error, if this process has lost the turn.
            LedgerError: an entry could not be read or written.
        """
        if self._before is not None and self._before.find(_DIRECT, 1) is not None:
            raise TurnFailedError("interrupted", "The loop failed before the interruption.")
        plan = self._before.plan if self._before is not None else None
        shown, record = None, None
        code, reasons = "", list[str]()
        if self._config.classify:  # A failed classification does not fail the turn.
            order = await self.scheduler.run(_CLASSIFY, {"user_input": self.message})
            done = order.state is WorkOrderState.COMPLETED
            self._classification = order.output_result if done else None
            if not done and order.error is not None:
                code = str(order.error["code"])
                reasons = [f"{code}: {order.error['message']}"]
            if self._classification is not None and self._services.planner is None:
                self._treatment = self._services.rules().treatment(self._classification)
        if plan is None:
            shown, record = self._attend()
            plan = await self._plan(shown)
            if self._output is not None and self._output.schema is not None:
                plan = plan.giving(self._output.schema)
        answering = plan.answering
        self._withholds = bool(answering.acceptance.get("must_not_contain"))
        context = self._input(shown or self._attend()[0], answering)
        rejected: list[str] = []
        for attempt in range(1, self._config.max_retries + 2):
            if attempt == 1:
                order = await self.scheduler.run_plan(plan, context, self.listen, record)
            else:
                again = {**context, "rejected_because": rejected} if rejected else context
                again = self._with_effects(again)
                order = await self.scheduler.retry(answering, order, again, attempt, self.listen)
            order, answering, context = await self._handed_over(order, answering, context, attempt)
            requests = self.scheduler.waiting_for()
            if requests and order.state is not WorkOrderState.FAILED:
                self._park(requests)
                return
            error, cause, before = order.error or {}, code, reasons
            code = str(error.get("code", ""))
            if code in LOOP_FAILURES:
                raise TurnFailedError(code, error.get("message", ""))
            reasons = await self._verify(order, attempt)
            if code == "CIRCUIT_OPEN" and cause in PROVIDER_FAILURES:  # It opened the circuit.
                code, reasons = cause, [*before, *reasons]
            if not reasons:
                self._deliver(order)
                return
            if code not in PROVIDER_FAILURES:  # Only answers can be rejected.
                rejected = reasons
            again_left = attempt <= self._config.max_retries and can_change(order)
            if answering.output_schema is not None and code == "output_schema_invalid":
                again_left = False  # The worker has already asked twice.
            self.listen(AnswerRejected(tuple(reasons), again_left))
            if not again_left:
                break
        ids = self.scheduler.ids
        if self._before is None or not self._journal.has(
            event_type="ESCALATION", submission_id=ids[-1]
        ):
            await self._journal.write("ESCALATION", ids[-1], reasons=reasons, work_order_ids=ids)
        self._fail(code or "answer_rejected", "; ".join(reasons))

    def _with_effects(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Return the context with a report of tool effects that must not be repeated."""
        left = [
            one for one in self.scheduler.remaining_effects(answered=False) if not one.repeatable
        ]
        assembled = dict(context["assembled_context"])
        if left:
            assembled["effects"] = [effect.to_dict() for effect in left]
        return {**context, "assembled_context": assembled}

    async def _handed_over(
        self, order: WorkOrder, step: PlanStep, context: dict[str, Any], attempt: int
    ) -> tuple[WorkOrder, PlanStep, dict[str, Any]]:
        """Return the answer of the agent to which an order handed the session over, if it did.

        The answer must match the turn's output type. The agent sees earlier results of tools.
        """
        first = HANDOFF_STEPS.index(step.name) + 1 if step.name in HANDOFF_STEPS else 0
        for name in HANDOFF_STEPS[first:]:
            output = order.output_result
            to = output.get("handed_to") if isinstance(output, Mapping) else None
            if not to or not self.scheduler.hand_over([to]):
                break
            agent = self.scheduler.agent
            results = [used for used in order.tool_results if used["tool_id"] != agent.tool_id]
            prior = [*context.get("prior_results", ())]
            if results:
                prior.append(
                    {"step": step.name, "wo_id": order.wo_id, "output": {"tool_results": results}}
                )
            step = replace(agent.answer, name=name, output_schema=step.output_schema)
            self._withholds |= bool(step.acceptance.get("must_not_contain"))
            context = {**context, **self._input(self._attend()[0], step), "prior_results": prior}
            order = await self.scheduler.run(step, context, attempt, self.listen)
        return order, step, context

    def _deliver(self, order: WorkOrder) -> None:
        self.response, self._delivered, self._error = answer_text(order), order, ("", "")
        self._withholds = False
        if self._has_withheld:
            typed = order.constraints.output_schema is not None
            data = order.output_result["output"] if typed else None
            self.listen(PartialOutput(data) if typed else TextDelta(self.response))

    def _fail(self, code: str, detail: str) -> None:
        self.response, self._error = no_answer(code), (code, detail)

    async def degrade(self, error: Exception) -> None:
        """Have the agent answer directly after the loop failed, and record the reason.

        Ends unfinished orders and appends a ``DEGRADATION``, once for a turn. Instructions,
        contract and acceptance criteria still apply. Tools that need approval, may not run twice or
        cannot be used are excluded. No direct answer is attempted if this excludes all tools of the
        agent, or if without a planner its contract, prompt pack or input cannot be used. Without an
        accepted answer the response is a notice; errors of the attempt are not raised.

        Args:
            error: the loop's error.

        Raises:
            LedgerError: an entry could not be written.
            OrderRecordError: the entries of an order do not form an order.
        """
        code, message = loop_failure(error)
        self._degraded = True
        await self.scheduler.end_all()
        if self._before is None or self._before.find(_DIRECT, 1) is None:
            ids = self.scheduler.ids
            await self._journal.write(
                "DEGRADATION",
                ids[-1] if ids else "",
                error_code=code,
                error_message=message,
            )
        self.listen(Degraded(f"{code}: {message}"))
        self._fail(code, message)
        agent = self.scheduler.agent.answer
        repeats = self.scheduler.agent.worker.is_repeatable
        tools = tuple(id_ for id_ in agent.tools if id_ not in agent.approve and repeats(id_))
        lost = code in LOOP_FAILURES and self._services.planner is None
        if lost or (agent.tools and not tools):
            return
        try:
            schema = self._output.schema if self._output is not None else None
            step = replace(agent, name=_DIRECT, tools=tools, approve=(), output_schema=schema)
            self._withholds = bool(step.acceptance.get("must_not_contain"))
            self._has_withheld = False
            self.scheduler.carried = tuple(self.scheduler.remaining_effects(answered=False))
            context = self._input(self._attend()[0], step)
            order = await self.scheduler.run(step, context, listen=self.listen)
            reasons = await self._verify(order, 1)
        except LedgerError:
            raise
        except Exception as again:  # noqa: BLE001 - there is no answer, and a word why
            reasons = [loop_failure(again)[1]]
        if reasons:
            self._fail(code, f"{message} Without it: {'; '.join(reasons)}")
        else:
            self._deliver(order)

    def restore(self, before: UnfinishedTurn) -> None:
        """Leave the turn waiting for the same requests, because nobody has decided.

        The orders are restored, the listener gets an :class:`ApprovalNeeded` for each request, and
        ``waiting`` and ``response`` are set. Nothing is written.

        Args:
            before: the interrupted turn.

        Raises:
            LedgerError: the cost of an order cannot be read.
        """
        self.scheduler.restore()
        for entry in before.requests:
            data = entry.metadata
            self.listen(
                ApprovalNeeded(
                    entry.id, entry.submission_id, data["tool_id"], data["arguments"], data["kind"]
                )
            )
        self._park(before.waiting_for)

    def result(self) -> TurnResult:
        """Return the result of a turn that was recorded, or that waits for a person.

        An answer that no longer fits the output type makes the result a failed one with
        ``output_schema_invalid`` and without output; text and recorded turn stay.

        Raises:
            LedgerError: results of tools cannot be read.
        """
        orders = self.scheduler.orders
        requests = self.scheduler.waiting_for() if self.waiting else ()
        output = self._output_of(self._delivered)
        return TurnResult(
            response=self.response,
            wo_chain_summary=tuple(summary_of(order) for order in orders),
            cost_summary=self.scheduler.cost,
            session_id=self._session.session_id,
            quality_gate_passed=not (self.outcome or self.waiting),
            tool_results=self.scheduler.tool_results(),
            classification=self._classification,
            degraded=self._degraded,
            turn_entry_id=self.entry_id,
            turn_number=self._session.turn_count + self.waiting,
            waiting_for=tuple(
                self._asked[request] for request in requests if request in self._asked
            ),
            error_code=self._error[0],
            error_detail=self._error[1],
            _output=output,
        )

    def _output_of(self, order: WorkOrder | None) -> Any:
        """Return the result of the delivered order: a value of the output type, data, or text."""
        if order is None:  # The turn has no new answer.
            return self.response
        if order.constraints.output_schema is not None:
            data = order.output_result["output"]
            try:
                return data if self._output is None else self._output.value(data)
            except ValueError as error:  # An earlier version of the type accepted it.
                self._error = ("output_schema_invalid", str(error))
                return None
        result = order.output_result
        is_text = isinstance(result, Mapping) and "finish_reason" in result
        return self.response if is_text else result

    def listen(self, event: TurnEvent) -> None:
        """Pass an event to the turn's listener; log an error of the listener.

        Text and partial data of an answer that is withheld until its acceptance are dropped; the
        delivered answer repeats them. Other partial data is passed on without the wrapper of the
        output type, not validated. Requests for approval are remembered for :meth:`result`.

        Args:
            event: the event.
        """
        if self._withholds and isinstance(event, TextDelta | PartialOutput):
            self._has_withheld = True
            return
        if isinstance(event, PartialOutput) and self._output is not None:
            event = PartialOutput(self._output.partial(event.data))
        if isinstance(event, ApprovalNeeded):
            self._asked[event.request_id] = event
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except BaseException:  # noqa: BLE001 - only a listener; the function awaits nothing
            _log.exception("a listener to the events of a turn failed")

    def _park(self, requests: tuple[str, ...]) -> None:
        self.waiting = True
        self.response = f"Waiting for a person to decide: {', '.join(requests)}."

    def _attend(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the texts to show in this turn and the record of their selection."""
        turns = self._session.turns_to_show(self._config.context_turns)
        candidates = [*self._threads()]
        if (pushing := self._services.agent.context) is not None:
            candidates += pushing.policies()
        return choose(
            turns,
            self._session.turn_count - len(turns),
            candidates,
            self._config.attention,
            self._config.context_tokens,
            datetime.now(UTC),
        )

    async def _plan(self, shown: Mapping[str, Any]) -> Plan:
        """Return the plan of the turn, limited to the agent's tools and approvals."""
        agent, planner = self.scheduler.agent.answer, self._services.planner
        if planner is None:
            step = self._treatment.applied_to(agent)
            return self.scheduler.agent.plan if step is agent else Plan((step,))
        context = TurnContext(self.message, self._classification, shown, agent.tools)
        try:
            async with asyncio.timeout(self._config.planner_timeout_s) as limit:
                # A slow planner in a thread does not delay other turns.
                made = await call_in_thread("remit-planner", lambda: planner(context))
                plan = await made if inspect.isawaitable(made) else made
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TurnFailedError(
                "planner_timeout",
                f"the planner gave no plan within {self._config.planner_timeout_s:g} s",
            ) from error
        if not isinstance(plan, Plan):
            raise InvalidInputError(
                f"The planner returned a {type(plan).__name__} instead of a Plan."
            )
        return plan.within(agent)

    def _input(self, shown: Mapping[str, Any], step: PlanStep) -> dict[str, Any]:
        """Return the context that all orders of the plan have in common."""
        assembled = dict(shown)
        if self.scheduler.carried:
            assembled["effects"] = [effect.to_dict() for effect in self.scheduler.carried]
        if self._treatment.note:
            assembled["note"] = self._treatment.note
        contract_id, pushing = step.contract_id, self.scheduler.agent.context
        if pushing is not None and contract_id:
            contract = self.scheduler.agent.worker.contracts.load(contract_id)
            self.scheduler.contracts[contract_id] = contract
            required = pushing.required(contract, self._session.session_id)
            if required:
                assembled["required"] = dict(required)
        return {
            "user_input": self.message,
            "classification": self._classification,
            "assembled_context": assembled,
            **({"files": list(self._files)} if self._files else {}),
        }

    async def _verify(self, order: WorkOrder, attempt: int) -> list[str]:
        """Return why an answer must not be delivered; empty if it may.

        The rules are applied first, then a second opinion if configured. A recorded verdict is not
        made again.
        """
        verdict = self._before.verdicts.get(order.wo_id) if self._before else None
        if verdict is not None:
            return list(verdict)
        reasons = self._services.gate.reasons(order, lambda: self._journal.shown(order.wo_id))
        if not reasons and self._config.verify:
            reasons = await self._second_opinion(order, attempt)
        threads = [] if reasons else proposed_entries(self._services, order)
        await self._journal.checked(
            order, self.scheduler.ids, self.scheduler.cost, reasons, attempt, threads
        )
        if reasons:
            self._services.exclusions.observe(order.wo_id, "contract")
        return reasons

    async def _second_opinion(self, order: WorkOrder, attempt: int) -> list[str]:
        """Return a reviewer's objections to the answer; a failed review is an objection."""
        context = {
            "user_input": self.message,
            "answer": answer_text(order),
            "tool_results": [
                *(effect.to_dict() for effect in self.scheduler.carried),
                *order.tool_results,
            ],
            "acceptance_criteria": dict(order.acceptance_criteria),
        }
        review = await self.scheduler.run(_VERIFY, context, attempt)
        if review.state is not WorkOrderState.COMPLETED:
            error = review.error or {}
            return [f"the review failed: {error.get('code', '')}: {error.get('message', '')}"]
        verdict: Mapping[str, Any] = review.output_result
        if verdict.get("verdict") == "accept":
            return []
        return [str(reason) for reason in verdict.get("reasons", ())] or ["the reviewer said no"]
