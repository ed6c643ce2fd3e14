"""Emitters of decisions: optional, and unable to delay or change the call."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from remit.gateway import DecisionStep
from remit.kernel.canonical import canonical_json
from remit.kernel.loops import abandon, call_in_thread
from remit.ledger import Content, LedgerClient, utc_now
from remit.routing.decision import RoutingDecision, RoutingDecisionRecord, new_decision_id
from remit.routing.trail import (
    ThoughtInput,
    ThoughtRecord,
    acreate_thought_record,
    thought_to_note,
)

_log = logging.getLogger("remit.routing")

_MAX_IN_RECORD = 8_192  # bytes of one list, of the 65,535 that a record may have

DecisionEmitter = Callable[[RoutingDecisionRecord], Any]
"""Takes a decision's 8 fields. A coroutine function is awaited; other callables run in a thread."""


def NO_OP_DECISION_EMITTER(record: RoutingDecisionRecord) -> None:  # noqa: N802 - a public name
    """Do nothing with a decision."""


def create_thought_record_emitter(
    ledger: LedgerClient, *, task_id: str, agent_id: str
) -> ThoughtRecordEmitter:
    """Return an emitter that appends each decision to the trail of a task.

    The thought's ``content`` is the canonical JSON of the 8 fields and its id is the decision's.
    Its ledger entry also contains the data to explain and replay the decision.

    Args:
        ledger: the ledger of the trail.
        task_id: the task whose chain gets the decisions: a work order, a session.
        agent_id: the agent for which models are chosen.
    """

    return ThoughtRecordEmitter(ledger, task_id, agent_id)


class ThoughtRecordEmitter:
    """An emitter that appends each decision to the trail of a task.

    :func:`create_thought_record_emitter` returns one.

    Args:
        ledger: the ledger of the trail.
        task_id: the task whose chain gets the decisions.
        agent_id: the agent for which models are chosen.
    """

    def __init__(self, ledger: LedgerClient, task_id: str, agent_id: str) -> None:
        self._ledger = ledger
        self._task_id = task_id
        self._agent_id = agent_id

    async def __call__(self, record: RoutingDecisionRecord) -> ThoughtRecord:
        """Append the 8 fields alone under a new id, for programs without the rest of a decision.

        Raises:
            TrailError: the chain of the task cannot be continued.
            LedgerWriteError: the thought cannot be written.
        """
        thought = ThoughtInput(
            type="decision",
            task_id=self._task_id,
            agent_id=self._agent_id,
            content=canonical_json(record.to_dict()).decode(),
        )
        return await acreate_thought_record(
            self._ledger, thought, id_fn=new_decision_id, tier="hot"
        )

    async def record(self, decision: RoutingDecision) -> ThoughtRecord:
        """Append a decision with the data to explain and replay it; return its durable record.

        Raises:
            InvalidThoughtError: the decision is recorded already.
            TrailError: the chain of the task cannot be continued.
            LedgerWriteError: the thought cannot be written.
        """
        return await acreate_thought_record(
            self._ledger,
            self._thought(decision),
            id_fn=lambda: decision.decision_id,
            metadata=_replayable(decision, decision.attempts),
            tier="hot",
            subject_id=decision.subject_id,
        )

    def with_answer(self, decision: RoutingDecision) -> DecisionStep:
        """Return the step that records a decision together with the answer of its last call.

        Nothing is written here.

        Args:
            decision: the decision; its last attempt has no ``exchange_entry_id`` yet.
        """

        def extra(exchange_entry_id: str) -> dict[str, Any]:
            answered = {**decision.attempts[-1], "exchange_entry_id": exchange_entry_id}
            metadata = _replayable(decision, [*decision.attempts[:-1], answered])
            metadata["scope"] = {"tier": "hot"}
            return metadata

        record = ThoughtRecord(
            decision.decision_id, "decision", self._task_id, self._agent_id, decision.text,
            utc_now(), "", "", decision.session_id,
        )  # fmt: skip
        return thought_to_note(self._ledger, record, extra, decision.subject_id)

    def _thought(self, decision: RoutingDecision) -> ThoughtInput:
        return ThoughtInput(
            type="decision",
            task_id=self._task_id,
            agent_id=self._agent_id,
            content=decision.text or canonical_json(decision.record.to_dict()).decode(),
            session_id=decision.session_id,
        )


async def emit(emitter: DecisionEmitter, decision: RoutingDecision, timeout_s: float) -> Any:
    """Pass a decision to an emitter and return its result; None if it failed or took too long.

    A failure is logged. An emitter that took too long is cancelled; in a thread it continues
    unheard.

    Args:
        emitter: the emitter.
        decision: the decision; only a :class:`ThoughtRecordEmitter` gets more than its 8 fields.
        timeout_s: longest wait in seconds.
    """
    if emitter is NO_OP_DECISION_EMITTER:
        return None
    task = asyncio.ensure_future(_call(emitter, decision))
    try:
        await asyncio.wait({task}, timeout=timeout_s)
    finally:
        is_late = not task.done()
        if is_late:
            task.cancel()
            abandon(task)
    problem = ""
    if is_late:
        problem = f"did not end within {timeout_s:g} s"
    elif task.cancelled():
        problem = "was cancelled"
    elif (error := task.exception()) is not None:
        problem = f"raised {type(error).__name__}"
    if problem:
        _log.error("the emitter of decisions %s; %s is not emitted", problem, decision.decision_id)
        return None
    return task.result()


async def _call(emitter: DecisionEmitter, decision: RoutingDecision) -> Any:
    if isinstance(emitter, ThoughtRecordEmitter):
        return await emitter.record(decision)
    call = emitter if inspect.isfunction(emitter) else getattr(emitter, "__call__", emitter)  # noqa: B004
    try:
        if inspect.iscoroutinefunction(emitter) or inspect.iscoroutinefunction(call):
            return await emitter(decision.record)
        result: Any = await call_in_thread("decision-emitter", lambda: emitter(decision.record))
        return await result if inspect.isawaitable(result) else result
    except (KeyboardInterrupt, SystemExit) as error:  # raised in a task, it would end the loop
        raise RuntimeError(type(error).__name__) from error


def _replayable(decision: RoutingDecision, attempts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the metadata of a decision's thought. Prompt and context are content."""
    metadata: dict[str, Any] = {
        "decision_id": decision.decision_id,
        "prompt": Content.exact_list(decision.exact) if decision.exact else decision.prompt,
        "context": Content(decision.context, decision.encoded.get("context")),
        "profiles": Content(decision.profiles, decision.encoded.get("profiles")),
        "skipped": _listed(decision.skipped) if decision.skipped else [],
        "attempts": _listed(attempts),
        "scoring": decision.scoring,
        **decision.drawn,
        "model_id": decision.record.chosen_model_id,
        "outcome": "error" if decision.record.routing_mode == "fail" else "success",
    }
    if decision.route:
        metadata["route"] = decision.route
    if decision.stages:
        metadata["stages"] = _listed(decision.stages)
    return metadata


def _listed(items: Sequence[Mapping[str, Any]]) -> Any:
    """Return a list as metadata, or as content if it is too long for a record."""
    listed = list(map(dict, items))
    return listed if len(orjson.dumps(listed)) <= _MAX_IN_RECORD else Content(listed)
