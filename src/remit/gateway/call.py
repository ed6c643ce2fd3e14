"""The path of one call, from its request to its answer.

:meth:`CallPath.answer` is the whole path in order, for calls over the wire, calls of agents,
streams and routed calls. Read on in the modules that the steps name:

1. **admit**: :mod:`remit.gateway.admission` checks the request and its caller;
2. **choose**: :mod:`remit.gateway.choice` resolves a name to a model and its fallbacks; a router
   (:mod:`remit.routing.router`) chooses for the name of a route;
3. **attempt**: :mod:`remit.gateway.attempt` begins (first commit), sends and settles (second
   commit, with the decision in it); the next model follows if this one failed;
4. **answer**: the response of the last attempt, or one recorded refusal.

All state of a call is in its :class:`~remit.gateway.values.Call`. A call that fails is a response
with an error code, not an exception.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import structs

from remit.gateway.admission import Admission
from remit.gateway.attempt import Attempts
from remit.gateway.breakers import Breakers, Permit
from remit.gateway.budget import BudgetRefusedError, TokenBudgeter
from remit.gateway.candidates import Candidates, needs_reading
from remit.gateway.choice import Chooser, Names
from remit.gateway.config import RouterConfig
from remit.gateway.inflight import InFlightCalls
from remit.gateway.leases import LeaseLostError
from remit.gateway.neutral import finite
from remit.gateway.records import prepare_rejection, rejected_response
from remit.gateway.replays import recorded_answer
from remit.gateway.steps import CircuitChangedError, IdempotencyKeyUsedError
from remit.gateway.stream import TOO_LATE, StreamTap
from remit.gateway.tenancy import NotYoursError
from remit.gateway.values import (
    Call,
    Candidate,
    CannotContinueError,
    Choice,
    Model,
    Part,
    Parts,
    Refusal,
    RefusedError,
    barred,
)
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptResponse, RouteOutcome
from remit.ledger import LedgerClient, LedgerError
from remit.providers import ProviderError

__all__ = ["CallPath"]

_log = logging.getLogger("remit.gateway")


class CallPath:
    """Answers or refuses calls.

    Args:
        ledger: records answers and refusals.
        admission: checks requests and callers.
        names: resolves names of models, and knows the router.
        candidates: makes the request for each model.
        breakers: circuit breakers, asked before each attempt.
        attempts: begins, sends and settles each attempt.
        in_flight: owners of sessions, and idempotency keys.
        budgeter: the enforced budgets; None if none are enforced.
        config: retries.
        report: reports an ended call to the observers.
    """

    def __init__(
        self,
        ledger: LedgerClient,
        admission: Admission,
        names: Names,
        candidates: Candidates,
        breakers: Breakers,
        attempts: Attempts,
        in_flight: InFlightCalls,
        budgeter: TokenBudgeter | None,
        config: RouterConfig,
        report: Callable[[Call, PromptResponse, int], None],
    ) -> None:
        self._ledger = ledger
        self._admission = admission
        self._names = names
        self._candidates = candidates
        self._breakers = breakers
        self._attempts = attempts
        self._in_flight = in_flight
        self._budgeter = budgeter
        self._config = config
        self._report = report

    async def answer(self, call: Call) -> PromptResponse:
        """Answer or refuse a call, and record it.

        A refused call has one ``PROMPT_REJECTED`` and is not sent. Each attempt has a ``DISPATCH``
        before anything is sent, and one ``EXCHANGE``. A call whose idempotency key has an answer
        gets the recorded answer. The key of a call that fails is released.

        Args:
            call: the call. Its ``choice`` is set if the models were chosen before, as for a part of
                a routed request; else they are chosen here.

        Raises:
            LedgerError: an entry could not be written; recovery settles a call that was begun.
            LeaseLostError: the answer came after the call was settled as an orphan.
            CancelledError: the caller was cancelled; what was begun is recorded.
        """
        choice, to, model = call.choice, None, None
        response: PromptResponse | None = None
        try:
            # 1. Admit: request, identity, rights, accounts and idempotency key.
            self._admission.admit(call)

            # 2. Choose. A history or a route is only read in a session of the caller's own.
            if choice is None:
                chooser = self._names.router_of(call.request)
                if chooser is not None or call.request.keeper is not None:
                    await self._require_ownership(call)
                if chooser is None:
                    choice = call.choice = self._names.choose(call)
                else:
                    choice = call.choice = await _choose(call, chooser)
            if choice.is_routed and (parts := choice.parts()) is not None:
                response = await self._make_parts(call, parts)
                if response is None:
                    response = await self.refuse(call, choice.refusal(()))
                return await choice.ended(response)

            # 3. Attempt: begin, send and settle; then again, or the next model, if that failed.
            refusals: tuple[Refusal, ...] = ()
            ends = False
            for model in choice.models:
                failed: PromptResponse | None = None
                refusal, by_budget, retries = _NOT_REFUSED, False, 0
                to = None
                while True:
                    try:
                        if model.obstacle is not None:
                            raise RefusedError(Refusal(*model.obstacle))
                        if to is None and needs_reading(call.request):
                            to = await self._candidates.read(call, model)
                        elif to is None:
                            to = self._candidates.make(call, model)
                        permit = self._breakers.permit(to.provider_id, to.model_id)
                        if permit is None:
                            permit = await self._acquire(choice, model)
                        attempt = await self._attempts.begin(call, model, to, permit)  # commit 1
                    except CircuitChangedError:
                        continue
                    except RefusedError as error:
                        refusal = error.refusal
                        break
                    except BudgetRefusedError as error:
                        if to is not None and to.uses > 1 and call.last is None:
                            call.tool_uses, to = 1, None  # The budget may be enough for fewer uses.
                            continue
                        refusal, by_budget = _refusal_of(error), True
                        break
                    await self._attempts.send(call, attempt, permit)
                    response = await self._attempts.settle(call, attempt)  # commit 2
                    error_of_attempt, attempt.error = attempt.error, None
                    if error_of_attempt is None:
                        return await choice.ended(response) if choice.is_routed else response
                    failed = response
                    again = await self._retry(call, choice, to, error_of_attempt, retries)
                    if again is None:
                        break
                    to, retries = again
                if failed is not None:
                    refusal = Refusal(failed.error_code or "", failed.error_message or "")
                    ends = call.tap.began or not choice.falls_back(refusal.code)
                else:
                    refusals = (*refusals, refusal)
                    is_first = not call.passed_over
                    ends = choice.ends_call(refusal.code, by_budget=by_budget, is_first=is_first)
                if choice.is_routed:
                    choice.pass_over(model, refusal, failed or rejected_response(call, refusal))
                if ends:
                    break
                call.passed_over += ((model.name, refusal.code),)

            # 4. Answer: the latest failure, or one recorded refusal if nothing was sent.
            if call.last is not None:
                response = call.last
            else:
                # A spent budget is reported rather than an open circuit.
                is_spent = by_budget and not choice.is_routed
                refusal = refusals[-1] if is_spent else choice.refusal(refusals)
                if not by_budget:  # A budget refuses after the check of ownership.
                    await self._require_ownership(call)
                    refusal = self._budget_refusal(call, to) or refusal
                response = await self.refuse(call, refusal)
        except RefusedError as error:
            response = await self.refuse(call, error.refusal)
        except NotYoursError as error:
            not_yours = Refusal("SESSION_NOT_YOURS", error.message)
            response = call.last or await self.refuse(call, not_yours)
        except IdempotencyKeyUsedError as used:
            call.claimed = False
            response = await self._replay(call, model, used.exchange_entry_id)
        finally:
            if call.claimed and (call.last is None or call.last.outcome is not _SUCCESS):
                await self._release(call)
            if choice is not None and choice.is_routed:
                self._end_routed(call, choice, response)
            elif (ended := call.last if response is None else response) is not None:
                self._report(call, ended, call.began_ns)
        return response if choice is None or not choice.is_routed else await choice.ended(response)

    def _end_routed(self, call: Call, choice: Choice, response: PromptResponse | None) -> None:
        """Close the choice of an ended routed call, and report the call to the observers.

        The attempts were reported one by one; only a refusal and a recorded answer of the whole
        call are reported here.

        Args:
            call: the call.
            choice: its choice.
            response: its response; None if the call raises.
        """
        choice.close()
        if choice.is_part or response is None:
            return
        if response.outcome is RouteOutcome.REJECTED or response.replayed:
            self._report(call, response, call.began_ns)

    async def pass_on(self, call: Call, to: Candidate, circuit: str) -> PromptResponse:
        """Make one attempt at one candidate, without retries, and return its response.

        A refusal by rights, ownership, circuit or budget is recorded and returned as a response.

        Args:
            call: the call, whose request is encoded already.
            to: the candidate.
            circuit: name of the circuit breaker at the provider.
        """
        try:
            permit = await self._breakers.acquire(to.provider_id, circuit)
            if permit is None:
                await self._require_ownership(call)
                return await self.refuse(call, Refusal("CIRCUIT_OPEN", barred(to.provider_id)))
            attempt = await self._attempts.begin(call, None, to, permit)
            await self._attempts.send(call, attempt, permit)
            response = await self._attempts.settle(call, attempt)
            attempt.error = None
            return response
        except NotYoursError as error:
            return await self.refuse(call, Refusal("SESSION_NOT_YOURS", error.message))
        except BudgetRefusedError as error:
            return await self.refuse(call, _refusal_of(error))

    async def refuse(self, call: Call, refusal: Refusal) -> PromptResponse:
        """Record one ``PROMPT_REJECTED`` and return the refusal; nothing is held or sent.

        The refusal of a part of a routed request is not recorded; the whole request's is.

        Args:
            call: the call.
            refusal: the reason.

        Raises:
            LedgerWriteError: the refusal could not be recorded.
        """
        request, choice = call.request, call.choice
        response = rejected_response(call, refusal)
        if choice is not None and choice.is_part:
            return response
        entry = prepare_rejection(
            self._ledger, call, self._candidates.provider_of(request), refusal.code, refusal.message
        )
        ahead = await request.ahead.take() if request.ahead is not None else []
        write = self._ledger.submit([*ahead, entry])
        if request.ahead is not None:
            request.ahead.follow(write)
        response.exchange_entry_id = (await write)[-1]
        return response

    async def _acquire(self, choice: Choice, model: Model) -> Permit:
        """Return a permit of the circuit breaker of a model.

        Raises:
            RefusedError: the circuit is open.
        """
        permit = await self._breakers.acquire(model.provider_id, model.model_id)
        if permit is None:
            _, retry_after_s = self._breakers.seen(model.provider_id, model.model_id)
            reason = choice.barred(model, retry_after_s)
            raise RefusedError(Refusal("CIRCUIT_OPEN", reason, None, retry_after_s))
        return permit

    async def _retry(
        self, call: Call, choice: Choice, to: Candidate, error: BaseException, retries: int
    ) -> tuple[Candidate | None, int] | None:
        """Wait; return the request to send again and the number of retries, or None to stop.

        The request is None if it must be made again: the provider may have learnt from the failure
        how to translate it.

        A stale connection is replaced, a request to a missing endpoint is translated, and a
        conversation that the provider no longer stores is sent whole, without counting a retry.

        Args:
            call: the call.
            choice: its choice.
            to: the request that was sent.
            error: the error of the attempt.
            retries: number of retries of the model so far.
        """
        if not isinstance(error, ProviderError) or call.tap.began:
            return None
        if error.stale and to.outgoing is not None and not to.outgoing.reconnect:
            # Nothing is wrong with the provider: another connection, at once.
            to.outgoing = structs.replace(to.outgoing, reconnect=True)
            return to, retries
        if error.to_translate and to.provider_id not in call.translated:
            # The model has not been asked, so no retry is counted and nothing is waited for.
            call.translated |= {to.provider_id}
            return None, retries
        if error.to_unfold and to.provider_id not in call.unfolded:
            call.unfolded |= {to.provider_id}
            return None, retries
        wait_s = self._wait_s(retries + 1, error.retry_after_s)
        if not error.retryable or retries >= choice.max_retries or wait_s is None:
            return None
        await asyncio.sleep(wait_s)
        return None, retries + 1

    def _wait_s(self, number: int, asked_s: float | None) -> float | None:
        """Return the seconds until retry ``number``; None if the provider asks for a longer wait
        than allowed.

        The wait is random up to a bound that doubles, and at least the provider's ``retry-after``.
        """
        config = self._config
        bound = min(config.retry_max_ms, config.retry_base_ms * 2 ** (number - 1)) / 1000
        asked = finite(asked_s) or 0.0
        if asked > config.retry_max_ms / 1000:
            return None
        return max(random.uniform(0, bound), asked)  # noqa: S311

    async def _require_ownership(self, call: Call) -> None:
        """Claim the session for the caller if ownership must be checked and no attempt will do so.

        Raises:
            NotYoursError: the session belongs to another caller.
        """
        if call.ownership is not None:
            await self._in_flight.make_sure(call.ownership)

    def _budget_refusal(self, call: Call, to: Candidate | None) -> Refusal | None:
        """Return the refusal if the budget would refuse the call now; else None.

        A reservation decides for calls that are sent; this check is for calls that no model can
        take. A spent budget is reported rather than an open circuit.
        """
        if self._budgeter is None or to is None:
            return None
        check = self._budgeter.check_path(call.path, to.amount)
        if check.allowed or check.code == "BUDGET_BUSY":
            return None
        code, _, message = check.reason.partition(": ")
        return Refusal(code, message, remaining=check.remaining)

    async def _make_parts(self, call: Call, parts: Parts) -> PromptResponse | None:
        """Make the calls that a choice asks for, and return the response that the choice makes.

        Args:
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
            answers = await self._answers(call, at_once, limit_s)

    async def _answers(
        self, call: Call, parts: Sequence[Part], limit_s: float | None
    ) -> list[PromptResponse | None]:
        """Make calls at once and return their responses; None for each that failed or was late.

        Args:
            call: the request that the calls are parts of.
            parts: the calls; ``is_late`` is set for those that the limit has cancelled.
            limit_s: the limit in seconds; None for no limit.

        Raises:
            LedgerError, LeaseLostError: a call could not be recorded; all have ended.
        """
        tap, tasks = call.tap, []
        for part in parts:
            heard = StreamTap(tap.on_text, tap.sink) if part.listens else StreamTap(None, None)
            made = Call(part.request, heard, call.identity, part.choice)
            made.passed_over = tuple(part.choice.passed_over)
            tasks.append(asyncio.ensure_future(self.answer(made)))
        try:
            _, late = await asyncio.wait(tasks, timeout=limit_s)
        except asyncio.CancelledError as cancelled:
            await _cancel(tasks, *cancelled.args)
            raise
        await _cancel(late, TOO_LATE)
        answers: list[PromptResponse | None] = []
        errors: list[BaseException] = []
        for part, task in zip(parts, tasks, strict=True):
            answer = None
            if task.cancelled():
                part.is_late = True
            elif (error := task.exception()) is not None:
                errors.append(error)
            elif task.result().outcome is _SUCCESS:
                answer = task.result()
            answers.append(answer)
        if errors:
            raise errors[0]
        return answers

    async def _replay(
        self, call: Call, model: Model | None, exchange_entry_id: str
    ) -> PromptResponse:
        """Return the recorded answer of the earlier call under the same idempotency key, or a
        refusal.
        """
        if not exchange_entry_id:
            said = (
                "a call with this idempotency key is in flight; repeat the request later to get "
                "its answer"
            )
            return await self.refuse(call, Refusal("IDEMPOTENCY_CONFLICT", said, None, 1.0))
        answer = await asyncio.to_thread(recorded_answer, self._ledger, exchange_entry_id, call)
        if isinstance(answer, tuple):
            return await self.refuse(call, Refusal(*answer))
        if call.choice is not None and model is not None:
            call.choice.note_recorded(model, answer)
        return answer

    async def _release(self, call: Call) -> None:
        """Release the idempotency key of a failed call. A failure to do so is logged."""
        assert call.claim is not None
        try:
            await self._in_flight.release_claim(call.claim)
        except RemitError as error:
            _log.warning("an idempotency key was not released: %s", error.message)


_SUCCESS = RouteOutcome.SUCCESS
_NOT_REFUSED = Refusal("", "")


async def _choose(call: Call, chooser: Chooser) -> Choice:
    """Return a router's choice.

    Raises:
        RefusedError: the request, or the configuration of its route, is invalid.
        LedgerError, LeaseLostError, NotYoursError: as the router raises them.
    """
    try:
        return await chooser.choose(call)
    except (LedgerError, LeaseLostError, NotYoursError):
        raise
    except CannotContinueError as error:
        raise RefusedError(Refusal(error.code, error.message, error.param)) from error
    except RemitError as error:
        raise RefusedError(Refusal("INVALID_INPUT", error.message)) from error


def _refusal_of(error: BudgetRefusedError) -> Refusal:
    return Refusal(error.code, error.message, None, error.retry_after_s, error.remaining)


async def _cancel(tasks: Iterable[asyncio.Future[PromptResponse]], *reason: Any) -> None:
    """Cancel calls for a reason of ``ENDED_BY``, and wait until their ends are recorded."""
    for task in tasks:
        task.cancel(*reason)
    await asyncio.gather(*tasks, return_exceptions=True)
