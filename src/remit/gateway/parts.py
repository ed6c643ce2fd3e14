"""The calls of a routed request that are combined into one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from remit.gateway.cancellation import TOO_LATE, cancel_calls
from remit.gateway.values import Call, Part, Parts, Refusal, RefusedError
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptResponse, RouteOutcome
from remit.ledger import parse_entry_id

Answer = Callable[[Call], Awaitable[PromptResponse]]


async def make_parts(answer: Answer, call: Call, parts: Parts) -> PromptResponse | None:
    """Make the calls that a choice asks for, and return the response that the choice makes.

    Args:
        answer: answers a call and records it.
        call: the call.
        parts: yields calls to make at once; receives the response of each that succeeded.

    Returns:
        The response; None if nothing was sent.

    Raises:
        RefusedError: the request of a part cannot be made.
    """
    answers: Any = None  # starts the generator
    while True:
        try:
            at_once, limit_s = parts.send(answers)
        except StopIteration as end:
            response: PromptResponse | None = end.value
            return response
        except RemitError as error:
            raise RefusedError(Refusal("INVALID_INPUT", error.message)) from error
        answers = await _answers(answer, call, at_once, limit_s)


async def _answers(
    answer: Answer, call: Call, parts: Sequence[Part], limit_s: float | None
) -> list[PromptResponse | None]:
    """Make calls at once and return their responses; None for each that failed or was late.

    Args:
        answer: answers a call and records it.
        call: the request that the calls are parts of.
        parts: the calls; ``is_late`` is set for those that the limit has cancelled.
        limit_s: the limit in seconds; None for no limit.

    Raises:
        LedgerError, LeaseLostError, ErasedMeanwhileError: as for a call; all have ended.
    """
    calls = [call.part(part) for part in parts]
    tasks = [asyncio.ensure_future(answer(made)) for made in calls]
    try:
        _, late = await asyncio.wait(tasks, timeout=limit_s)
        await cancel_calls(late, TOO_LATE)
    except asyncio.CancelledError as cancelled:
        await cancel_calls(tasks, *cancelled.args)
        raise
    finally:  # An erasure since then may reach the decision.
        begun = [made.since for made in calls if made.since]
        call.since = min(begun, key=lambda since: parse_entry_id(since) or 0, default="")
        call.waited_s = max(made.waited_s for made in calls)
        call.is_recorded |= any(made.attempts for made in calls)
    answers, errors = list[PromptResponse | None](), list[BaseException]()
    for part, task in zip(parts, tasks, strict=True):
        found = None
        if task.cancelled():
            part.is_late = True
        elif (error := task.exception()) is not None:
            errors.append(error)
        elif task.result().outcome is RouteOutcome.SUCCESS:
            found = task.result()
        answers.append(found)
    if errors:
        raise errors[0]
    return answers
