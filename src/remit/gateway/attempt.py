"""The attempts of a call: begin, send and settle.

Two commits frame each request to a provider. :meth:`Attempts.begin` commits the ``DISPATCH`` with
the reservation and the row in flight. :meth:`Attempts.settle` commits the ``EXCHANGE`` with the
settlement, and deletes the row in flight. A failed attempt has the same pair of entries.

Cancellation: a caller that is cancelled before the first commit has begun nothing. After it, the
attempt is settled in any case: ``begin``, ``send`` and ``settle`` store the cancellation in
``attempt.error`` or a local variable, and ``settle`` raises it after the second commit. A commit
that has begun cannot be cancelled (:mod:`remit.ledger.group_commit`): the wait for it ends only
with its outcome.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import structs

from remit.gateway.billing import Bill
from remit.gateway.call_transactions import FinishCall, FinishedCall, StartCall
from remit.gateway.circuit_breakers import Permit
from remit.gateway.config import RouterConfig
from remit.gateway.failures import cancelled, failure_of
from remit.gateway.inflight import InFlightCalls
from remit.gateway.memory import LARGE_BYTES, run_to_the_end
from remit.gateway.neutral_calls import send
from remit.gateway.outgoing_requests import LOWERED, lowered, neutral_order
from remit.gateway.provider_objects import notes_made, untold_labels
from remit.gateway.records import (
    bill_of,
    dispatch_entry,
    exchange_entry,
    prepare_exchange,
    prepare_warning,
)  # fmt: skip
from remit.gateway.stored_response import KeptId
from remit.gateway.transport import raise_if_failed, send_body
from remit.gateway.validation import check_output
from remit.gateway.values import Attempt, Call, Candidate, Failure, Model
from remit.kernel.budget_values import Amount
from remit.kernel.errors import let_go
from remit.kernel.exchange import PromptResponse, RouteOutcome
from remit.kernel.json_text import dump
from remit.kernel.loops import call_in_thread
from remit.ledger import Content, LedgerClient, LedgerEntry, Prepared
from remit.providers import ProviderError, ProviderResponse, Timeouts

if TYPE_CHECKING:
    from remit.gateway.answer_cache import AnswerCache

_log = logging.getLogger("remit.gateway")

_MS_PER_HOUR = 3_600_000
_KNOWN_DISPATCHES = 1_024
_GONE = Failure(
    RouteOutcome.ERROR, "SERVER_ERROR", "the recorded answer was erased meanwhile", "nothing"
)


class Attempts:
    """Runs the attempts of calls.

    Each attempt writes one ``DISPATCH`` and exactly one ``EXCHANGE``.

    Call :meth:`begin`, :meth:`send` and :meth:`settle` for each attempt, in this order; an attempt
    that was begun must be settled. :meth:`answer_recorded` takes the place of all three.

    Args:
        ledger: records the attempts.
        in_flight: begins and ends calls.
        config: timeouts.
        report: reports an attempt of a routed call to the observers.
        is_current: returns False if the circuit of a permit was opened since.
        mode: the effect of an exhausted budget: ``enforce`` refuses the call, ``warn`` records a
            warning, ``off`` does neither.

    Attributes:
        cache: the answer cache; None if no key and no contract allows it.
    """

    def __init__(
        self,
        ledger: LedgerClient,
        in_flight: InFlightCalls,
        config: RouterConfig,
        report: Callable[[Call, PromptResponse, int, int], None],
        is_current: Callable[[Permit], bool],
        *,
        mode: Literal["enforce", "warn", "off"],
    ) -> None:
        self._ledger = ledger
        self._in_flight = in_flight
        self._config = config
        self._report = report
        self._is_current = is_current
        self._longest_s = config.default_timeout_ms / 1000
        self._timeouts = Timeouts(
            min(config.connect_timeout_ms / 1000, self._longest_s),
            self._longest_s,
            config.idle_timeout_ms / 1000,
        )
        self._lease_ms = config.default_timeout_ms + config.lease_margin_ms
        self._kept_ms = int(config.idempotency_hours * _MS_PER_HOUR)
        # All that an agent sends a model in one session begins with the same words.
        self._dispatch = functools.lru_cache(_KNOWN_DISPATCHES, typed=True)(
            lambda *ids: ledger.prepare(dispatch_entry(*ids))
        )
        self.cache: AnswerCache | None = None
        self._enforce = mode == "enforce"
        self._warns = mode == "warn"

    async def begin(
        self, call: Call, model: Model | None, to: Candidate, permit: Permit
    ) -> Attempt:
        """Commit the ``DISPATCH`` of an attempt, its reservation and its row in flight.

        The session and the idempotency key are claimed for the caller in the same commit. With the
        mode ``warn``, an exceeded budget adds a warning. Nothing is sent yet.

        Args:
            call: the call; its ``attempts``, ``claimed`` and ``since`` are updated.
            model: the model as the call's choice names it; None without a choice.
            to: the model and the request to send.
            permit: the circuit breaker's permit for this attempt; released if nothing is begun.

        Returns:
            The attempt. If the caller was cancelled after the commit, the attempt has a failure.

        Raises:
            NotYoursError, BudgetRefusedError, IdempotencyKeyUsedError, CircuitChangedError,
                ErasedMeanwhileError: nothing is recorded.
            LedgerError: an entry could not be written; recovery settles a call that was begun.
            CancelledError: the caller was cancelled and nothing was begun.
        """
        attempt = Attempt(
            call.attempts + 1, to, to.model_id, "" if call.last is None else
            call.last.exchange_entry_id, fallback_from=call.passed_over, model=model,
            began_ns=time.monotonic_ns(),
        )  # fmt: skip
        choice = call.choice
        if choice is not None and model is not None:
            attempt.asked_model_id = choice.asked_model_id or model.name
            if choice.is_routed:
                attempt.decision_id = choice.decision_id
                attempt.drawn = choice.drawn(model, attempt.number)
        step: StartCall | None = None
        try:
            request = call.request
            session_id, contract_id = request.session_id, request.contract_id
            prepared = self._dispatch(
                to.provider_id, to.model_id, contract_id, request.agent_id, session_id,
                request.prompt_pack_id,
            )  # fmt: skip
            attribution = (
                session_id, request.work_order_id or "", request.agent_id or "", contract_id,
                call.identity.key_id if call.identity else "",
            )  # fmt: skip
            step = StartCall(
                (prepared,), call.path, to.amount, 1 if attempt.number == 1 else 0, self._enforce,
                self._lease_ms, attribution, attempt.number, call, call.claim,
                ownership=call.ownership, since=call.since, read_after=call.read_after,
            )  # fmt: skip
            if self._warns:
                step.warn = functools.partial(prepare_warning, self._ledger, request)
            if request.keeper is not None:
                step.response_ids = request.keeper.ids_ahead(to)
            if permit.needs_check:
                step.is_current = functools.partial(self._is_current, permit)
            in_flight, ahead = self._in_flight, request.ahead
            if ahead is None and not in_flight.waiting_room.queues:
                write = in_flight.submit(step)
                try:
                    begun = (*await write, None)
                except BaseException as raised:  # noqa: BLE001 - raised there, or begun all the same
                    begun = await in_flight.begin(step, None, (write, raised))
                else:
                    named = step.ownership
                    if named is not None and not in_flight.known.issuperset(named.owned):
                        in_flight.note_begun(step)
            else:
                begun = await in_flight.begin(step, ahead)
            attempt.dispatch_entry_id, attempt.hold, attempt.error = begun
        except BaseException as raised:
            permit.report("nothing")
            if step is not None:
                call.since = step.since
                if isinstance(raised, asyncio.CancelledError) and not step.lease_ms:
                    call.attempts += 1  # It may be begun; recovery settles it.
            raise
        if attempt.error is not None:
            # The dispatch is durable and needs its exchange, although nothing is sent.
            permit.report("nothing")
            attempt.result = cancelled(attempt.error, suffix=" before sending")
        call.claimed, call.since = call.claim is not None, attempt.dispatch_entry_id
        call.attempts += 1
        return attempt

    async def answer_recorded(self, call: Call, model: Model, to: Candidate) -> bool:
        """Answer a call from the record; return False if the record has no answer.

        False too if the settings do not let the call take part. The pair of entries costs nothing.
        If the answer is erased before the second commit, the second entry is an error with the
        request and no answer, and False is returned. Any erasure does this, because each one
        empties the cache.

        Args:
            call: the admitted call; its ``last`` is the response.
            model: the model as the call's choice names it.
            to: the request that would be sent.

        Raises:
            NotYoursError, BudgetRefusedError, LedgerError, LeaseLostError, CancelledError: as
                :meth:`begin` and :meth:`settle`.
            IdempotencyKeyUsedError, ErasedMeanwhileError: as :meth:`begin`.
            JsonTextError, NotCanonicalError: as :meth:`AnswerCache.find`.
        """
        cache = self.cache
        if cache is None or not cache.allows(call, to):
            return False
        if (cached := await cache.find(call, to)) is None:
            return False
        free = structs.replace(to, amount=Amount(0, 0), uses=0)
        attempt = await self.begin(call, model, free, Permit(lambda *_: None))
        if attempt.result is None:
            attempt.cached, attempt.result = cached, cached.answer
        return (await self.settle(call, attempt)).error_code is None

    async def send(self, call: Call, attempt: Attempt, permit: Permit) -> None:
        """Send the request of a begun attempt and store its answer or failure in
        ``attempt.result``.

        Does nothing if the attempt has a result already. Also sets ``sent``, ``error``,
        ``latency_ms`` and ``first_after_ms`` of the attempt, and lowers its output limit to what
        the reservation allows. Failures, timeouts and the cancellation of the caller become a
        :class:`Failure` and are not raised. The result is reported to the circuit breaker through
        ``permit``.

        Args:
            call: the call, whose listener receives the stream.
            attempt: the attempt that :meth:`begin` returned.
            permit: the circuit breaker's permit for this attempt.

        Raises:
            BaseException: an error that is none of the call's, such as a closing event loop;
                recovery settles the call.
        """
        if attempt.result is not None:
            return
        tap = call.tap
        if (hold := attempt.hold) is not None and hold.output is not None:
            attempt.to = lowered(attempt.to, hold.output)
        started = time.perf_counter()
        try:
            if tap.sink is not None:
                tap.records = self._config.record_streams and call.request.body is not None
                await tap.dispatched(attempt.dispatch_entry_id, attempt.to.outgoing)
                started = time.perf_counter()
            attempt.sent = True
            to, timeouts = attempt.to, self._timeouts
            if to.outgoing is None:
                timeout_s, first_s = self._limits_s(call)
                order = neutral_order(
                    to.request, to.model_id, to.sent, timeout_s, stream=tap.wanted
                )
                result = await send(to.provider, order, tap, first_s)
            else:
                if call.choice is not None and call.choice.timeout_s is not None:
                    timeout_s, first_s = self._limits_s(call)
                    connect_s = min(timeouts.connect_s, timeout_s)
                    timeouts = Timeouts(connect_s, first_s or timeout_s, timeouts.idle_s)
                provider: Any = to.provider
                body = call.request.body
                called = "" if body is None else body.endpoint.name
                result = await send_body(provider, to.outgoing, tap, timeouts, called=called)
            if result.failure:
                raise_if_failed(result)
            permit.report("ok")
            attempt.result = result
        except BaseException as error:  # noqa: BLE001 - `failure_of` re-raises the end of the loop
            attempt.error = error
            if isinstance(error, ProviderError):
                tap.failed(error)
            try:
                attempt.result = failure_of(tap, attempt, permit, error, self._limits_s(call))
            finally:
                if attempt.result is None:
                    self._in_flight.ended(attempt.dispatch_entry_id)
                    tap.release()
            let_go(error)
        attempt.latency_ms = round((time.perf_counter() - started) * 1000, 3)
        attempt.first_after_ms = tap.first_after_ms

    async def settle(self, call: Call, attempt: Attempt) -> PromptResponse:
        """Commit the ``EXCHANGE`` of an attempt with the settlement and the decision, if any.

        Returns the response to the caller, and stores it in ``call.last``. The lease is no longer
        renewed afterwards, also after an error. A text answer is checked against the request's
        output schema; the response says whether it fits. A routed attempt is reported to the choice
        and the observers. While the ledger is unavailable, the commit is retried without end.

        Args:
            call: the call.
            attempt: the attempt, with its result.

        Raises:
            LedgerWriteError: the ledger refused the answer; recovery settles the call.
            LeaseLostError: the call was settled as an orphan before its answer came.
            CancelledError: the caller was cancelled; both entries are recorded.
        """
        result = attempt.result
        assert result is not None
        gone = None
        try:
            outgoing, reply, tap = attempt.to.outgoing, result.reply, call.tap
            size = tap.kept + tap.came + (0 if reply is None else len(reply.body))
            if size + (0 if outgoing is None else len(outgoing.body.raw)) > LARGE_BYTES:
                # The record of a large attempt is made off the event loop.
                recorded, gone = await run_to_the_end(self._record, call, attempt, result)
            else:
                recorded = self._record(call, attempt, result)
            entry, bill, prepared, kept = recorded
            step = self._finish(call, attempt, result, bill, prepared, kept)
            if attempt.cached is not None and isinstance(result, ProviderResponse):
                gone_as = self._record(call, attempt, _GONE)
                step.prepared, step.cached = (prepared, gone_as[2]), attempt.cached
            finishing, also_gone = self._in_flight.submit(step), None
            try:
                finished = await finishing
            except BaseException as raised:  # noqa: BLE001 - raised there, or tried again
                finished, also_gone = await self._in_flight.finish(step, (finishing, raised))
        finally:
            self._in_flight.ended(attempt.dispatch_entry_id)
            if call.tap.holding is not None:
                call.tap.release()
        error = also_gone or gone or attempt.error
        if step.is_gone:
            result, entry = _GONE, gone_as[0]
        try:
            call.last = response = self._response(call, attempt, result, entry, bill, finished)
            try:
                schema = call.request.output_schema
                if schema is not None and response.error_code is None:
                    # No check may hold up the loop.
                    check = functools.partial(check_output, schema, response.content)
                    problems = await call_in_thread("remit-output", check)
                    response.output_validation_errors = problems
                    response.output_valid = not problems
            finally:  # A caller that is cancelled during the check does not change the record.
                choice = call.choice
                if choice is not None and choice.is_routed and attempt.model is not None:
                    choice.note_recorded(attempt.model, response)
                    self._report(call, response, attempt.began_ns, 1)
            if isinstance(error, asyncio.CancelledError):
                attempt.error = None
                raise error
            return response
        finally:
            # Break the reference cycle: the traceback keeps the call and its buffers alive.
            error = None

    def _limits_s(self, call: Call) -> tuple[float, float | None]:
        """Return the longest wait in seconds for the whole answer, and for a stream's first piece.

        The second value is None if the first piece has no shorter limit.
        """
        longest = self._longest_s
        limit_s = None if call.choice is None else call.choice.timeout_s
        if limit_s is None or limit_s >= longest:
            return longest, None
        return (longest, limit_s) if call.tap.wanted else (limit_s, None)

    def _record(
        self, call: Call, attempt: Attempt, result: ProviderResponse | Failure
    ) -> tuple[LedgerEntry, Bill, Prepared, Sequence[KeptId]]:
        """Return the ``EXCHANGE`` of an attempt, its bill, its encoded form, and the ids that name
        it.

        Any thread may call this method.
        """
        request, hold, tap = call.request, attempt.hold, call.tap
        if isinstance(result, Failure) and attempt.sent:
            had = result.answer.content if result.answer is not None else ""
            attempt.streamed = tap.text or had
            if (total := tap.sum) is not None:
                attempt.arrived = dump(total.answer())
        bill = bill_of(call, attempt, result, self._config)
        usage = bill.usage
        entry = exchange_entry(
            call, attempt, result, (usage.input_tokens, usage.output_tokens),
            bill.metadata(charged=self._in_flight.charging), self._config.policy_epoch,
        )  # fmt: skip
        if hold is not None:
            if hold.exceeded_by(usage):
                entry.metadata.update(hold.overrun(usage))
            if hold.output is not None and request.body is None:
                changed = entry.metadata.get("changed", Content([])).value
                lowered = {"path": "/max_tokens", "reason": LOWERED}
                entry.metadata["changed"] = Content([*changed, lowered])
        if (body := request.body) is not None and "store" in body.value:
            entry.metadata.update(untold_labels(body, entry.metadata.get("wire")))
        kept: Sequence[KeptId] = ()
        if request.keeper is not None:
            kept = request.keeper.on_record(entry.metadata, attempt, result)
        if call.on_record is not None:
            entry.metadata.update(call.on_record.stated)
        prepared = prepare_exchange(self._ledger, entry, request.subject_id)
        return entry, bill, prepared, kept

    def _finish(
        self,
        call: Call,
        attempt: Attempt,
        result: ProviderResponse | Failure,
        bill: Bill,
        prepared: Prepared,
        kept: Sequence[KeptId],
    ) -> FinishCall:
        """Return the step that commits the ``EXCHANGE``, settles, and ends the row in flight."""
        step = FinishCall(
            (prepared,), attempt.dispatch_entry_id, attempt.hold, bill.usage, response_ids=kept
        )
        if isinstance(result, ProviderResponse):
            if attempt.cached is not None:
                return step
            if call.claim is not None:
                step.answered = (call.claim, self._kept_ms)
            if (on_record := call.on_record) is not None:
                step.write_rows = functools.partial(on_record, attempt=attempt, answer=result)
                step.keeps_hold = on_record.keeps_hold(result)
            elif (reply := result.reply) is not None and (
                b'"container' in reply.body
                or (
                    (body := call.request.body) is not None
                    and ("store" in body.value or "thread" in body.value)
                )
            ):
                step.write_rows = notes_made(call.identity, attempt, reply.body)
            elif self.cache is not None:
                step.write_rows = self.cache.remember(call, result)
            choice, model = call.choice, attempt.model
            if choice is not None and choice.is_routed and model is not None:
                try:
                    step.decision = choice.decide(model, attempt.latency_ms, prepared)
                except Exception:  # noqa: BLE001 - the answer is recorded in any case
                    _log.exception("a decision cannot be recorded with its answer")
        return step

    def _response(
        self,
        call: Call,
        attempt: Attempt,
        result: ProviderResponse | Failure,
        entry: LedgerEntry,
        bill: Bill,
        finished: FinishedCall,
    ) -> PromptResponse:
        """Return the caller's response for a recorded attempt."""
        request, to, usage = call.request, attempt.to, bill.usage
        response = PromptResponse(
            "", RouteOutcome.SUCCESS, usage.input_tokens, usage.output_tokens,
            entry.metadata["model_id"], to.provider_id, attempt.latency_ms, finished.timestamp,
            finished.exchange_entry_id, attempt.dispatch_entry_id,
            context_hash=to.sent.context_hash,
            budget_remaining=finished.remaining,
            attempts=1 if call.choice is not None and call.choice.is_routed else call.attempts,
        )  # fmt: skip
        if attempt.fallback_from:
            response.fallback_from = tuple(attempt.fallback_from)
        if request.body is not None:
            response.reply = result.reply
            if to.outgoing is not None:
                response.dropped = to.outgoing.dropped
        if self._in_flight.charging:
            response.cost_incurred = (usage.cost_nano or 0) / 1e9
            response.cost_certainty = bill.certainty
            response.cost_known = usage.cost_nano is not None
        if isinstance(result, Failure):
            response.content, response.outcome = attempt.streamed, result.outcome
            response.error_code, response.error_message = result.code, result.message
            response.retry_after_s, response.cause = result.retry_after_s, result.cause
            return response
        response.replayed = attempt.cached is not None
        response.content, response.finish_reason = result.content, result.finish_reason
        response.content_blocks = result.content_blocks or None
        response.cached_input_tokens = result.cached_input_tokens or 0
        response.reasoning_tokens = result.reasoning_tokens or 0
        return response
