"""Where decisions go: opt-in, and never in the way of the call (SPEC 7.2)."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from remit.kernel.canonical import canonical_json
from remit.kernel.loops import call_in_thread
from remit.ledger import Content, LedgerClient
from remit.routing.decision import RoutingDecision
from remit.routing.trail import ThoughtInput, ThoughtRecord, acreate_thought_record

_log = logging.getLogger("remit.routing")

_MAX_IN_RECORD = 8_192  # bytes of one list, of the 65,535 that a record may have

DecisionEmitter = Callable[[RoutingDecision], Any]
"""Takes a decision. A coroutine function is awaited; any other callable runs in a thread."""


def NO_OP_DECISION_EMITTER(decision: RoutingDecision) -> None:  # noqa: N802 - SPEC 7.2 names it
    """Does nothing."""


def create_thought_record_emitter(
    ledger: LedgerClient, *, task_id: str, agent_id: str
) -> DecisionEmitter:
    """An emitter that puts each decision into the trail of a task.

    The thought's ``content`` is the canonical JSON of the 8 fields; its id is the decision's. Its
    ledger entry holds besides what it takes to explain and to replay the decision.

    Args:
        ledger: where the trail is.
        task_id: whose chain it goes into: a work order, a session.
        agent_id: on whose behalf the model was chosen.
    """

    async def record(decision: RoutingDecision) -> ThoughtRecord:
        return await acreate_thought_record(
            ledger,
            ThoughtInput(
                type="decision",
                task_id=task_id,
                agent_id=agent_id,
                content=canonical_json(decision.record.to_dict()).decode(),
                session_id=decision.session_id,
            ),
            id_fn=lambda: decision.decision_id,
            metadata=_replayable(decision),
            tier="hot",
            subject_id=decision.subject_id,
        )

    return record


async def emit(emitter: DecisionEmitter, decision: RoutingDecision, timeout_s: float) -> Any:
    """What an emitter returns; ``None`` where it failed or took too long, which is logged."""
    if emitter is NO_OP_DECISION_EMITTER:
        return None
    task = asyncio.ensure_future(_call(emitter, decision))
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
    finally:
        if not task.done():
            task.cancel()
            task.add_done_callback(lambda late: late.cancelled() or late.exception())
    problem = ""
    if not done:
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
    call = emitter if inspect.isfunction(emitter) else getattr(emitter, "__call__", emitter)  # noqa: B004
    try:
        if inspect.iscoroutinefunction(emitter) or inspect.iscoroutinefunction(call):
            return await emitter(decision)
        result: Any = await call_in_thread("decision-emitter", lambda: emitter(decision))
        return await result if inspect.isawaitable(result) else result
    except (KeyboardInterrupt, SystemExit) as error:  # raised in a task, it would end the loop
        raise RuntimeError(type(error).__name__) from error


def _replayable(decision: RoutingDecision) -> dict[str, Any]:
    """The keys beside the thought: prompt and context are content, and so is what shows them.

    Attempts quote providers; profiles are the same for many decisions, and stored once.
    """
    metadata: dict[str, Any] = {
        "decision_id": decision.decision_id,
        "prompt": decision.prompt,
        "context": Content(decision.context, decision.encoded.get("context")),
        "profiles": Content(decision.profiles, decision.encoded.get("profiles")),
        "skipped": _listed(decision.skipped),
        "attempts": _listed(decision.attempts),
        "scoring": decision.scoring,
        "model_id": decision.record.chosen_model_id,
        "outcome": "error" if decision.record.routing_mode == "fail" else "success",
    }
    if decision.route:
        metadata["route"] = decision.route
    if decision.stages:
        metadata["stages"] = _listed(decision.stages)
    return metadata


def _listed(items: Sequence[Mapping[str, Any]]) -> Any:
    """A list as the entry's own; a long one as content, for a record has a limit."""
    listed = [dict(item) for item in items]
    return listed if len(canonical_json(listed)) <= _MAX_IN_RECORD else Content(listed)
