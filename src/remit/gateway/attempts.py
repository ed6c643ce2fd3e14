"""One attempt: intent on record, sent, answer on record (SPEC 4.2, steps 6 to 10)."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from remit.gateway.billing import Bill, Billing, estimate
from remit.gateway.breaker import Permit
from remit.gateway.call import Attempt, Call, Candidate, Failure
from remit.gateway.config import RouterConfig
from remit.gateway.inflight import InFlightCalls
from remit.gateway.keeping import KeptId
from remit.gateway.neutral import finite, send
from remit.gateway.records import (
    dispatch_entry,
    exchange_entry,
    prepare_exchange,
    warning_entry,
)
from remit.gateway.sending import has_dialect, send_body
from remit.gateway.steps import FinishCall, StartCall
from remit.gateway.validation import Sent, check_output, response_schema
from remit.gateway.writes import CancelledAfterWriteError
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome
from remit.kernel.json_text import dump
from remit.ledger import Content, LedgerClient, LedgerEntry, utc_now
from remit.providers import (
    CODES,
    ProviderError,
    ProviderRequest,
    ProviderResponse,
    Timeouts,
)

__all__ = ["Attempts"]

_log = logging.getLogger("remit.gateway")

_MS_PER_HOUR = 3_600_000


class Attempts:
    """Runs attempts, each a ``DISPATCH`` and exactly one ``EXCHANGE``.

    Args:
        ledger: where they are recorded.
        in_flight: where calls that are out are noted.
        billing: bounds and bills.
        config: timeouts.
        mode: what a spent budget does: ``enforce`` refuses, ``warn`` records, ``off`` neither.
    """

    def __init__(
        self,
        ledger: LedgerClient,
        in_flight: InFlightCalls,
        billing: Billing,
        config: RouterConfig,
        *,
        mode: Literal["enforce", "warn", "off"],
    ) -> None:
        self._ledger = ledger
        self._in_flight = in_flight
        self._billing = billing
        self._config = config
        self._enforce = mode == "enforce"
        self._warns = mode == "warn"

    async def run(
        self, call: Call, to: Candidate, permit: Permit
    ) -> tuple[PromptResponse, BaseException | None]:
        """One attempt: the response, and what was raised when it failed.

        Raises:
            BudgetRefusedError: the reservation was refused; nothing is on record.
            IdempotencyKeyUsedError: likewise.
            CancelledError: the caller went away; the pair is complete.
        """
        attempt = Attempt(
            call.attempts + 1, to, call.asked_model_id or to.model_id,
            fallback_from=tuple(call.passed_over),
        )  # fmt: skip
        if call.last is not None:
            attempt.retry_of = call.last.exchange_entry_id
        if (routed := call.routed) is not None:
            attempt.number += routed.number - 1
            attempt.retry_of = attempt.retry_of or routed.retry_of
            attempt.decision_id = routed.decision_id
            attempt.fallback_from = routed.fallback_from
        try:
            await self._dispatch(call, attempt, permit)
            call.attempts += 1
            await call.tap.dispatched(attempt.dispatch_entry_id)
            result, error = await self._send(call, attempt, permit)
            response = call.last = await self._record(call, attempt, result)
        finally:
            self._in_flight.ended(attempt.dispatch_entry_id)
        if call.routed is not None and call.routed.on_record is not None:
            call.routed.on_record(response)
        if isinstance(error, asyncio.CancelledError):
            raise error
        return response, error

    async def _dispatch(self, call: Call, attempt: Attempt, permit: Permit) -> None:
        """Reservation, in-flight row and ``DISPATCH``: durable together, before a byte goes out."""
        request, config, to = call.request, self._config, attempt.to
        try:
            prepared = self._ledger.prepare(dispatch_entry(request, to.provider_id, to.model_id))
            step = StartCall(
                prepared=(prepared,),
                path=call.path,
                amount=to.amount,
                turns=1 if attempt.number == 1 else 0,
                enforce=self._enforce,
                lease_ms=config.default_timeout_ms + config.lease_margin_ms,
                about=(
                    request.session_id,
                    request.work_order_id or "",
                    request.agent_id or "",
                    request.contract_id,
                    call.identity.key_id if call.identity else "",
                ),
                attempt=attempt.number,
                claim=call.claim,
                warn=self._warning(request),
                kept=() if request.keeper is None else request.keeper.ids_ahead(to),
                named=call.named,
            )
            attempt.dispatch_entry_id, attempt.hold = await self._in_flight.begin(
                step, request.ahead
            )
            call.claimed = call.claim is not None
            if attempt.hold is not None and attempt.hold.output is not None:
                attempt.to = lowered(to, attempt.hold.output)
        except CancelledAfterWriteError as late:
            # The marker is durable: it needs its exchange, though nothing was sent.
            permit.release()
            attempt.dispatch_entry_id, attempt.hold = late.result
            call.claimed = call.claim is not None
            message = "the caller went away before sending"
            failure = Failure(RouteOutcome.ERROR, "CANCELLED", message)
            response = await self._record(call, attempt, failure)
            if call.routed is not None and call.routed.on_record is not None:
                call.routed.on_record(response)
            raise asyncio.CancelledError from late
        except BaseException:
            permit.release()
            raise

    def _limits_s(self, call: Call) -> tuple[float, float | None]:
        """The longest wait for an answer; and for its first piece, where that is less."""
        longest = self._config.default_timeout_ms / 1000
        if call.routed is None or call.routed.timeout_s >= longest:
            return longest, None
        if call.tap.wanted:
            return longest, call.routed.timeout_s
        return call.routed.timeout_s, None

    def _warning(self, request: PromptRequest) -> Callable[[str, str], LedgerEntry] | None:
        return functools.partial(warning_entry, request) if self._warns else None

    async def _ask(self, call: Call, attempt: Attempt) -> ProviderResponse:
        """The provider's answer, in its own dialect or in neutral form."""
        to, tap = attempt.to, call.tap
        timeout_s, first_s = self._limits_s(call)
        if to.outgoing is not None and has_dialect(to.provider):
            timeouts = Timeouts(
                min(self._config.connect_timeout_ms / 1000, timeout_s),
                first_s or timeout_s,
                self._config.idle_timeout_ms / 1000,
            )
            neutral = call.request.body is None
            return await send_body(to.provider, to.outgoing, tap, timeouts, neutral=neutral)
        order = neutral_order(to.request, to.model_id, to.sent, timeout_s, stream=tap.wanted)
        return await send(to.provider, order, tap, first_s)

    async def _send(
        self, call: Call, attempt: Attempt, permit: Permit
    ) -> tuple[ProviderResponse | Failure, BaseException | None]:
        """One answer or the reason why there is none; reports to the breaker."""
        tap = call.tap
        # What a stream had begun to say was produced, and is paid for; what never began
        # is unknown.
        unknown = "bound"
        failure: Failure
        cause: BaseException
        started = time.perf_counter()
        try:
            answer = await self._ask(call, attempt)
            permit.succeed()
            return answer, None
        except TimeoutError as error:
            # A model that is still talking is not ill, however long it talks.
            (permit.succeed if tap.pieces else permit.fail)()
            longest_s, first_s = self._limits_s(call)
            within = longest_s if tap.pieces or first_s is None else first_s
            message = f"no answer within {within:g} s"
            billing: Any = "arrived" if tap.pieces else unknown
            failure = Failure(RouteOutcome.TIMEOUT, "TIMEOUT", message, billing)
            cause = error
        except ProviderError as error:
            if error.stale:
                permit.release()
            else:
                (permit.fail if error.speaks_of_health else permit.succeed)()
            timed_out = error.code == "TIMEOUT"
            billing = "nothing"
            if error.maybe_billed or timed_out:
                billing = "arrived" if tap.pieces else unknown
            failure = Failure(
                RouteOutcome.TIMEOUT if timed_out else RouteOutcome.ERROR,
                error.code if error.code in CODES else "PROVIDER_ERROR",
                str(error.message),
                billing,
                finite(error.retry_after_s),
                error.reply,
            )
            cause = error
        except asyncio.CancelledError as error:
            permit.release()
            billing = "arrived" if tap.pieces else unknown
            failure = Failure(RouteOutcome.ERROR, "CANCELLED", "the caller went away", billing)
            cause = error
        except Exception as error:  # noqa: BLE001 - whatever a provider object does is on record
            _log.warning(
                "provider %s broke its protocol: %s", attempt.to.provider_id, type(error).__name__
            )
            _log.debug("where it broke:\n%s", "".join(traceback.format_tb(error.__traceback__)))
            # Of a provider that speaks a dialect it is our own fault, not its own.
            (permit.fail if attempt.to.outgoing is None else permit.release)()
            message = f"the provider object raised {type(error).__name__}"
            billing = "arrived" if tap.pieces else unknown
            failure = Failure(RouteOutcome.ERROR, "PROVIDER_ERROR", message, billing)
            cause = error
        except BaseException:  # the loop is closing: recovery will find the call
            permit.release()
            raise
        finally:
            attempt.latency_ms = round((time.perf_counter() - started) * 1000, 3)
            attempt.first_after_ms = tap.first_after_ms
        attempt.streamed = tap.text
        if tap.sum is not None:
            attempt.arrived = dump(tap.sum.answer())
        return failure, cause

    def _bill(self, call: Call, attempt: Attempt, result: ProviderResponse | Failure) -> Bill:
        to, tap = attempt.to, call.tap
        provider_id, model_id = to.provider_id, to.model_id
        held = attempt.hold or to.amount
        asked = to.outgoing.body.value if to.outgoing is not None else {}
        if isinstance(result, ProviderResponse):
            if to.outgoing is not None and to.outgoing.body.endpoint.free:
                # Of a batch that the provider did not name nothing more will be heard.
                named = call.on_record is not None and call.on_record.keeps_hold(result)
                if named or not held.tokens:
                    return self._billing.nothing(model_id)
                return self._billing.at_bound(model_id, held, to.bound)
            if (sound := self._billing.sound(provider_id, model_id, result, asked)) is not None:
                return sound
            if result.usage_reported:
                return self._billing.measured(provider_id, model_id, result, asked)
            return self._billing.at_bound(model_id, held, to.bound)
        if result.billing == "nothing":
            return self._billing.nothing(model_id)
        if result.billing == "bound" or self._billing.thinks_unseen(provider_id, model_id, asked):
            # What was thought and not shown is billed like what arrived.
            return self._billing.at_bound(model_id, held, to.bound)
        reported = tap.input_tokens if tap.input_tokens is not None else to.bound[0]
        tokens = estimate(self._config, to.sent, reported, tap.size, tap.pieces, to.bound)
        return self._billing.assumed(provider_id, model_id, tokens, "estimated", asked)

    async def _record(
        self, call: Call, attempt: Attempt, result: ProviderResponse | Failure
    ) -> PromptResponse:
        """``EXCHANGE``, settlement and the end of the in-flight row, in one transaction."""
        request, to = call.request, attempt.to
        bill = self._bill(call, attempt, result)
        usage = bill.usage
        charging = self._in_flight.charging
        entry = exchange_entry(
            call, attempt, result, (usage.input_tokens, usage.output_tokens),
            bill.metadata(charged=charging),
        )  # fmt: skip
        hold = attempt.hold
        if hold is not None:
            entry.metadata.update(hold.overrun(usage))
            if hold.output is not None and "changed" not in entry.metadata:
                entry.metadata["changed"] = Content([{"path": "/max_tokens", "reason": LOWERED}])
        kept: Sequence[KeptId] = ()
        if request.keeper is not None:
            kept = request.keeper.on_record(entry.metadata, attempt, result)
        answered = None
        if call.claim is not None and isinstance(result, ProviderResponse):
            answered = (call.claim, int(self._config.idempotency_hours * _MS_PER_HOUR))
        step = FinishCall(
            prepared=(prepare_exchange(self._ledger, entry, request.subject_id),),
            dispatch_entry_id=attempt.dispatch_entry_id,
            hold=hold,
            usage=usage,
            answered=answered,
            kept=kept,
        )
        if call.on_record is not None and isinstance(result, ProviderResponse):
            on_record, answer = call.on_record, result
            step.also = lambda tx, entry_id: on_record(tx, entry_id, attempt, answer)
            step.keeps_hold = on_record.keeps_hold(answer)
        finished = await self._in_flight.finish(step)
        common: dict[str, Any] = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "model_id": entry.metadata["model_id"],
            "provider_id": to.provider_id,
            "latency_ms": attempt.latency_ms,
            "timestamp": utc_now(),
            "exchange_entry_id": finished.exchange_entry_id,
            "dispatch_entry_id": attempt.dispatch_entry_id,
            "context_hash": to.sent.context_hash,
            "budget_remaining": finished.remaining,
            "cost_incurred": (usage.cost_nano or 0) / 1e9 if charging else 0.0,
            "cost_certainty": bill.certainty if charging else "",
            "cost_known": charging and usage.cost_nano is not None,
            "fallback_from": tuple(attempt.fallback_from),
            "attempts": call.attempts,
            "reply": result.reply if request.body is not None else None,
        }
        if isinstance(result, Failure):
            return PromptResponse(
                content=attempt.streamed,
                outcome=result.outcome,
                error_code=result.code,
                error_message=result.message,
                retry_after_s=result.retry_after_s,
                **common,
            )
        problems: list[str] = []
        if request.output_schema is not None:
            problems = check_output(request.output_schema, result.content)
        return PromptResponse(
            content=result.content,
            outcome=RouteOutcome.SUCCESS,
            output_valid=None if request.output_schema is None else not problems,
            output_validation_errors=problems,
            finish_reason=result.finish_reason,
            content_blocks=result.content_blocks or None,
            cached_input_tokens=result.cached_input_tokens or 0,
            reasoning_tokens=result.reasoning_tokens or 0,
            **common,
        )


LOWERED = "lowered to what the budget has left"


def lowered(to: Candidate, output: int) -> Candidate:
    """What would be sent, with a lower output limit."""
    outgoing = to.outgoing
    if outgoing is None:
        return replace(to, request=replace(to.request, max_tokens=output))
    body = outgoing.body
    names = [name for name in body.endpoint.output_limit if body.value.get(name) is not None]
    for name in names or body.endpoint.output_limit[:1]:
        body = body.with_member((name,), b"%d" % output, LOWERED)
    return replace(to, outgoing=replace(outgoing, body=body))


def neutral_order(
    request: PromptRequest, model_id: str, sent: Sent, timeout_s: float, *, stream: bool
) -> ProviderRequest:
    """A request in neutral form, for a provider."""
    return ProviderRequest(
        model_id=model_id,
        messages=sent.messages,
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        timeout_s=timeout_s,
        tools=tuple(request.tools or ()),
        response_schema=response_schema(request),
        stream=stream,
    )
