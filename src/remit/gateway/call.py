"""The path of one call, from its request to its answer.

:meth:`CallPath.answer` is the whole path in order, for calls over the wire, calls of agents,
streams and routed calls. Read on in the modules that the steps name:

1. **admit**: :mod:`remit.gateway.admission` checks the request and its caller;
2. **choose**: :mod:`remit.gateway.choice` resolves a name to a model and its fallbacks; a router
   (:mod:`remit.routing.router`) chooses for the name of a route;
3. **attempt**: :mod:`remit.gateway.attempt` begins (first commit), sends and settles (second
   commit, with the decision in it); the next model follows if this one failed;
4. **answer**: the response of the last attempt, or one recorded refusal; over HTTP written by
   :mod:`remit.server.answers`, with the status of :mod:`remit.server.refusals`.

All state of a call is in its :class:`~remit.gateway.values.Call`. A failed call is a response.

A call is ended from outside by cancelling its task, with a reason of
:data:`remit.gateway.cancellation.ENDED_BY` or with none if the client has gone:
:mod:`remit.server.calls` does so when a key ends, :mod:`remit.server.http_server` when the server
shuts down, :mod:`remit.server.responses.background` then and when the owner cancels a response,
:mod:`remit.server.connection` when the client disconnects or stops reading, and
:mod:`remit.gateway.parts` at the time limit of a route's calls. :mod:`remit.gateway.inflight`
handles an outage of the store during a commit, :mod:`remit.gateway.leases` a process that dies.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from remit.gateway.admission import Admission
from remit.gateway.attempt import Attempts
from remit.gateway.budget import BudgetRefusedError, TokenBudgeter
from remit.gateway.call_transactions import CircuitChangedError, IdempotencyKeyUsedError
from remit.gateway.cancellation import KEY_ENDED
from remit.gateway.choice import Names
from remit.gateway.circuit_breakers import Breakers, Permit
from remit.gateway.config import RouterConfig
from remit.gateway.erasures import ErasedMeanwhileError, not_retried
from remit.gateway.failures import budget_refusal, refusal_of_budget, refusal_of_failure
from remit.gateway.inflight import InFlightCalls
from remit.gateway.leases import LeaseLostError
from remit.gateway.outgoing_requests import Candidates
from remit.gateway.parts import make_parts
from remit.gateway.recorded_answers import recorded_answer
from remit.gateway.records import prepare_refusal, refused_response
from remit.gateway.retries import next_attempt
from remit.gateway.session_owners import NotYoursError
from remit.gateway.stored_response import CannotContinueError
from remit.gateway.values import (
    Call,
    CallReport,
    Candidate,
    Choice,
    Model,
    Refusal,
    RefusedError,
    Tried,
    circuit_open_text,
)
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptResponse, RouteOutcome
from remit.ledger import LedgerClient, LedgerError

_log = logging.getLogger("remit.gateway")


class CallPath:
    """Answers or refuses calls.

    :meth:`answer` is the whole path of a model call, :meth:`send_once` the short path of other
    requests, :meth:`refuse` the end of a refused call. The object holds no state of calls.

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
        before anything is sent, and one ``EXCHANGE``. A failed model is retried, then its fallbacks
        are asked in turn. A call whose idempotency key has an answer gets the recorded answer. The
        key of a call that fails is released. If an erasure may reach a call that waited or was sent
        before, no attempt follows and no decision is recorded; a history that it may reach is read
        again. Observers get a report; for a route, of each attempt, refusal or recorded answer.

        Args:
            call: the call. Its ``choice`` is made here unless it is set, as for part of a route.

        Returns:
            The response; its error code, if it failed, is that of the last attempt that was begun,
            or ``INVALID_INPUT`` if the request cannot be translated for the model that is left.

        Raises:
            LedgerError: an entry could not be written; recovery settles a call that was begun.
            LeaseLostError: the answer came after the call was settled as an orphan.
            ErasedMeanwhileError: an erasure may reach the content of this part of a routed call.
            CancelledError: the caller was cancelled; what was begun is recorded with its decision,
                unless an erasure may reach the call; else only the end of the caller's key is.
        """
        response = None
        try:
            # 1. Admit: request, identity, rights, accounts and idempotency key.
            self._admission.admit(call)

            # 2. Choose: the models, best first; or the calls to combine into one answer.
            choice = call.choice or await self._choose(call)
            parts = choice.parts() if choice.is_routed else None
            if parts is not None:
                response = await make_parts(self.answer, call, parts)
                if response is None:
                    response = await self.refuse(call, choice.refusal(()))

            # 3. Attempt: ask each model until one answers, or none may follow.
            refusals: tuple[Refusal, ...] = ()
            tried = _UNTRIED
            for model in () if parts is not None else choice.models:
                tried = await self._ask(call, choice, model)
                if (refusal := tried.refusal) is None:
                    response = tried.response
                    break
                if tried.response is not None:
                    is_begun = call.tap.was_passed_on or (call.tap.wanted and call.tap.is_paid)
                    is_end = is_begun or not choice.falls_back(refusal.code)
                else:
                    refusals = (*refusals, refusal)
                    is_end = choice.ends_call(
                        refusal.code, by_budget=tried.by_budget, is_first=not call.passed_over
                    )
                if choice.is_routed:
                    failed = tried.response or refused_response(call, refusal)
                    choice.pass_over(model, refusal, failed)
                if is_end:
                    break
                call.passed_over += ((model.name, refusal.code),)

            # 4. Answer: the latest failure, or one recorded refusal if nothing was sent.
            if response is None:
                response = call.last or await self._refuse_all(call, choice, refusals, tried)
        except RefusedError as error:
            response = await self.refuse(call, error.refusal)
        except NotYoursError as error:
            not_yours = Refusal("SESSION_NOT_YOURS", error.message)
            response = call.last or await self.refuse(call, not_yours)
        except ErasedMeanwhileError as error:
            if call.choice is not None and call.choice.is_part:
                raise  # Another part may be recorded; the decision must not be.
            erased = Refusal("INVALID_INPUT", error.message)
            response = not_retried(call.last, erased) or await self.refuse(call, erased)
            return response
        except asyncio.CancelledError as cancelled:
            if cancelled.args == (KEY_ENDED,) and not (call.attempts or call.is_recorded):
                await self.refuse(call, Refusal("AUTH_ERROR", KEY_ENDED))
            if call.choice is not None and call.choice.is_routed:
                await call.choice.abandon(lambda: self._in_flight.is_erased(call))
            raise
        finally:
            await self._close(call, response)
        if call.choice is not None and call.choice.is_routed:
            return await call.choice.ended(response, lambda: self._in_flight.is_erased(call))
        return response

    async def _choose(self, call: Call) -> Choice:
        """Set the call's choice to the models that its request names, or to a router's choice.

        Raises:
            NotYoursError: the session belongs to another caller; a history or a route is read only
                in a session of the caller's own.
            RefusedError: the request, or the configuration of its route, is invalid.
        """
        found = self._names.choose(call)
        if call.request.keeper is not None or not isinstance(found, Choice):
            await self._require_ownership(call)
        if call.request.keeper is not None and call.request.keeper.reads_record:
            call.read_after = await self._in_flight.newest_entry()
        if isinstance(found, Choice):
            call.choice = found
            return found
        try:
            call.choice = await found.choose(call)
        except (LedgerError, LeaseLostError, NotYoursError):
            raise
        except CannotContinueError as error:
            raise RefusedError(Refusal(error.code, error.message, error.param)) from error
        except RemitError as error:
            raise RefusedError(Refusal("INVALID_INPUT", error.message)) from error
        return call.choice

    async def _ask(self, call: Call, choice: Choice, model: Model) -> Tried:
        """Make attempts at one model until it answers, refuses or has no retry left.

        Each attempt is begun (first commit), sent, and settled (second commit).

        Raises:
            NotYoursError: the session belongs to another caller.
            ErasedMeanwhileError, LedgerError, LeaseLostError, CancelledError: see :meth:`answer`.
        """
        to: Candidate | None = None
        failed: PromptResponse | None = None
        body, retries, may_repeat = call.request.body, 0, self._attempts.cache is not None
        is_read = body is not None and (call.request.keeper is not None or body.may_name_objects)
        while True:
            try:
                if model.obstacle is not None:
                    return Tried(failed, Refusal(*model.obstacle))
                if to is None and is_read:
                    to = await self._candidates.read(call, model)
                elif to is None:
                    to = self._candidates.make(call, model)
                if may_repeat and await self._attempts.answer_recorded(call, model, to):
                    return Tried(call.last)
                may_repeat = False
                known = self._breakers.permit(to.provider_id, to.model_id)
                permit = known or await self._acquire(choice, model)
                attempt = await self._attempts.begin(call, model, to, permit)  # commit 1
            except CircuitChangedError:
                continue
            except ErasedMeanwhileError as erased:
                # A routed choice has read the history.
                if not erased.history_erased_at or choice.is_routed:
                    raise
                call.read_after, to = erased.history_erased_at, None
                continue
            except IdempotencyKeyUsedError as used:
                call.claimed = False
                return Tried(await self._replay(call, model, used.exchange_entry_id))
            except RefusedError as error:
                if call.translated and error.refusal.code == "INVALID_INPUT":
                    call.last = failed = None  # The client learns which field stands in the way.
                return Tried(failed, refusal_of_failure(failed) or error.refusal, candidate=to)
            except BudgetRefusedError as error:
                if to is not None and to.uses > 1 and call.last is None:
                    call.tool_uses, to = 1, None  # The budget may be enough for fewer uses.
                    continue
                refusal = refusal_of_failure(failed) or refusal_of_budget(error)
                return Tried(failed, refusal, by_budget=True, candidate=to)
            await self._attempts.send(call, attempt, permit)
            failed = await self._attempts.settle(call, attempt)  # commit 2
            error_of_attempt, attempt.error = attempt.error, None
            if error_of_attempt is None:
                return Tried(failed)
            again = await next_attempt(self._config, call, choice, to, error_of_attempt, retries)
            if again is None:
                return Tried(failed, refusal_of_failure(failed), candidate=to)
            to, retries = again

    async def _refuse_all(
        self, call: Call, choice: Choice, refusals: Sequence[Refusal], tried: Tried
    ) -> PromptResponse:
        """Record and return the refusal of a call that no model could be asked for.

        If only circuits are in the way, return the answer recorded for the idempotency key, if any.

        Args:
            refusals: the refusals of the models, in order.
            tried: the result of the model that was tried last.

        Raises:
            NotYoursError: the session belongs to another caller.
        """
        if tried.by_budget:
            # A budget refuses after the check of ownership.
            refusal = choice.refusal(refusals) if choice.is_routed else refusals[-1]
            return await self.refuse(call, refusal)
        await self._require_ownership(call)
        refusal = choice.refusal(refusals)
        if refusal.code == "CIRCUIT_OPEN" and (
            answered := await self._in_flight.answered(call.claim)
        ):
            return await self._replay(call, choice.models[0], answered)
        short = budget_refusal(self._budgeter, call, tried.candidate)
        return await self.refuse(call, short or refusal)

    async def _close(self, call: Call, response: PromptResponse | None) -> None:
        """Release the idempotency key of a failed call, close its choice, and report the call.

        The attempts of a routed call were reported one by one; of the whole call only a refusal and
        a recorded answer are reported.

        Args:
            call: the call.
            response: its response; None if the call raises.
        """
        if call.claimed and (call.last is None or call.last.outcome is not _SUCCESS):
            assert call.claim is not None
            await self._in_flight.release_claim(call.claim)
        choice, ended = call.choice, call.last if response is None else response
        if choice is not None and choice.is_routed:
            choice.close()
            ended = None if choice.is_part else response
            if ended is not None and ended.outcome is not RouteOutcome.REJECTED:
                ended = ended if ended.replayed else None
        if ended is not None:
            self._report(call, ended, call.began_ns)

    async def send_once(self, call: Call, to: Candidate, circuit: str) -> PromptResponse:
        """Make one attempt at one candidate, without retries, and return its response.

        A refusal by ownership, circuit or budget is recorded as ``PROMPT_REJECTED`` and returned as
        a response with an error code; a failed attempt too.

        Args:
            call: the call, whose request is admitted and encoded already.
            to: the candidate.
            circuit: name of the circuit breaker at the provider.

        Raises:
            CircuitChangedError: the circuit was opened in the meantime; nothing was sent.
            IdempotencyKeyUsedError: another call has the idempotency key of the call, if it has
                one.
            LedgerError: an entry could not be written; recovery settles a call that was begun.
            LeaseLostError: the answer came after the call was settled as an orphan.
            CancelledError: the caller was cancelled; what was begun is recorded.
        """
        try:
            permit = await self._breakers.acquire(to.provider_id, circuit)
            if permit is None:
                await self._require_ownership(call)
                return await self.refuse(
                    call, Refusal("CIRCUIT_OPEN", circuit_open_text(to.provider_id))
                )
            attempt = await self._attempts.begin(call, None, to, permit)
            await self._attempts.send(call, attempt, permit)
            response = await self._attempts.settle(call, attempt)
            attempt.error = None
            return response
        except NotYoursError as error:
            return await self.refuse(call, Refusal("SESSION_NOT_YOURS", error.message))
        except ErasedMeanwhileError as error:
            return await self.refuse(call, Refusal("INVALID_INPUT", error.message))
        except BudgetRefusedError as error:
            return await self.refuse(call, refusal_of_budget(error))

    async def refuse(self, call: Call, refusal: Refusal) -> PromptResponse:
        """Record one ``PROMPT_REJECTED`` and return the refusal as a response; nothing is held or
        sent.

        The writes in ``request.ahead`` are committed in the same transaction. The refusal of a part
        of a routed request is not recorded; the whole request's is.

        Args:
            call: the call.
            refusal: the reason.

        Raises:
            LedgerError: the refusal, or an earlier write of ``ahead``, could not be recorded.
        """
        request, choice = call.request, call.choice
        response = refused_response(call, refusal)
        if choice is not None and choice.is_part:
            return response
        entry = prepare_refusal(
            self._ledger, call, self._candidates.provider_of(request), refusal.code, refusal.message
        )
        ahead = await request.ahead.take() if request.ahead is not None else []
        call.is_recorded = True  # The write is not cancelled with its caller.
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
            reason = choice.circuit_open_text(model, retry_after_s)
            raise RefusedError(Refusal("CIRCUIT_OPEN", reason, None, retry_after_s))
        return permit

    async def _require_ownership(self, call: Call) -> None:
        """Claim the session for the caller if ownership must be checked and no attempt will do so.

        Raises:
            NotYoursError: the session belongs to another caller.
        """
        if call.ownership is not None:
            await self._in_flight.make_sure(call.ownership)

    async def _replay(self, call: Call, model: Model, exchange_entry_id: str) -> PromptResponse:
        """Return the recorded answer of the call with the same idempotency key, or a refusal."""
        if not exchange_entry_id:
            said = (
                "a call with this idempotency key is in flight; repeat the request later to get "
                "its answer"
            )
            return await self.refuse(call, Refusal("IDEMPOTENCY_CONFLICT", said, None, 1.0))
        answer = await asyncio.to_thread(recorded_answer, self._ledger, exchange_entry_id, call)
        if isinstance(answer, tuple):
            return await self.refuse(call, Refusal(*answer))
        if call.choice is not None:
            call.choice.note_recorded(model, answer)
        return answer


_SUCCESS = RouteOutcome.SUCCESS
_UNTRIED = Tried(None)


def tell(
    observers: Sequence[Callable[[CallReport], None]],
    call: Call,
    response: PromptResponse,
    began_ns: int,
    attempts: int | None = None,
) -> None:
    """Call the observers with the report of an ended call. Their failures are logged.

    Args:
        observers: the observers, in order.
        call: the call.
        response: its response.
        began_ns: time of its begin by the monotonic clock.
        attempts: number of attempts to report; None for all of the call.
    """
    if not observers:
        return
    # Counted back from the end: a clock that was set meanwhile does not change the duration.
    started_ns = time.time_ns() - (time.monotonic_ns() - began_ns)
    report = CallReport(
        call.request, response, call.identity, started_ns, call.tap.first_after_ms,
        call.attempts if attempts is None else attempts,
    )  # fmt: skip
    for observer in observers:
        try:
            observer(report)
        except Exception:  # noqa: BLE001 - an observer must not change the result
            _log.exception("an observer of calls failed")
