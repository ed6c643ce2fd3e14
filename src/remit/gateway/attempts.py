"""One attempt: intent on record, sent, answer on record (SPEC 4.2, steps 6 to 10)."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from remit.gateway.auth import Identity
from remit.gateway.billing import Bill, Billing, estimate, thinks_unseen
from remit.gateway.breaker import Permit
from remit.gateway.budget import Amount
from remit.gateway.config import RouterConfig
from remit.gateway.inflight import Claim, FinishCall, FinishedCall, InFlightCalls, StartCall
from remit.gateway.records import (
    Attempt,
    Failure,
    dispatch_entry,
    exchange_entry,
    prepare_exchange,
    warning_entry,
)
from remit.gateway.routed import RequestRouter, Routed
from remit.gateway.sending import StreamTap, finite, send
from remit.gateway.validation import Sent, check_output, response_schema
from remit.gateway.writes import CancelledAfterWriteError, finish_write
from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome
from remit.ledger import LedgerClient, LedgerEntry, utc_now
from remit.providers import (
    CODES,
    AsyncProvider,
    Provider,
    ProviderError,
    ProviderRequest,
    ProviderResponse,
    StreamingProvider,
)

__all__ = ["Attempts", "Call"]

_log = logging.getLogger("remit.gateway")

_NOTHING = Sent((), b"", "", 0)
_MS_PER_HOUR = 3_600_000


@dataclass(slots=True)
class Call:
    """One request on its way through the gateway.

    Attributes:
        path: accounts that pay.
        amount: most that the candidate now asked can use; ``bound`` is the same in tokens.
        claim: caller and idempotency key; ``claimed`` once they are taken.
        asked_model_id: the model that the request means.
        attempts: how many have been begun.
        last: what the latest of them came to.
        routed: what a router says of it, which chose the model.
        handed_on: the router that answers it, where it names a route.
    """

    request: PromptRequest
    tap: StreamTap
    identity: Identity | None = None
    sent: Sent = _NOTHING
    path: tuple[str, ...] = ()
    amount: Amount = field(default_factory=lambda: Amount(0))
    bound: tuple[int, int] = (0, 0)
    claim: Claim | None = None
    claimed: bool = False
    asked_model_id: str = ""
    attempts: int = 0
    last: PromptResponse | None = None
    routed: Routed | None = None
    handed_on: RequestRouter | None = None

    @property
    def model_named(self) -> str | None:
        """What the caller named: a model, a route, or nothing."""
        return self.request.model_id if self.routed is None else self.routed.asked_model_id


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
        self,
        call: Call,
        provider: Provider | AsyncProvider | StreamingProvider,
        provider_id: str,
        model_id: str,
        permit: Permit,
        last: PromptResponse | None,
    ) -> tuple[PromptResponse, BaseException | None]:
        """One attempt: the response, and what was raised when it failed.

        Raises:
            BudgetRefusedError: the reservation was refused; nothing is on record.
            IdempotencyKeyUsedError: likewise.
            CancelledError: the caller went away; the pair is complete.
        """
        attempt = Attempt(
            call.attempts + 1, provider_id, model_id, call.asked_model_id or model_id, call.bound
        )
        if last is not None:
            attempt.retry_of = last.exchange_entry_id
        if (routed := call.routed) is not None:
            attempt.number, attempt.retry_of = routed.number, routed.retry_of
            attempt.decision_id = routed.decision_id
        await self._dispatch(call, attempt, permit)
        call.attempts += 1
        call.tap.dispatched(attempt.dispatch_entry_id)
        result, error = await self._send(call, provider, attempt, permit)
        response = call.last = await self._record(call, attempt, result)
        if call.routed is not None and call.routed.on_record is not None:
            call.routed.on_record(response)
        if isinstance(error, asyncio.CancelledError):
            raise error
        return response, error

    async def _dispatch(self, call: Call, attempt: Attempt, permit: Permit) -> None:
        """Reservation, in-flight row and ``DISPATCH``: durable together, before a byte goes out."""
        request, config = call.request, self._config
        try:
            prepared = self._ledger.prepare(
                dispatch_entry(request, attempt.provider_id, attempt.model_id)
            )
            step = StartCall(
                prepared=(prepared,),
                path=call.path,
                amount=call.amount,
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
            )
            attempt.dispatch_entry_id, attempt.hold = await self._in_flight.begin(step)
            call.claimed = call.claim is not None
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
        """The longest that an attempt may take; and its first piece, where that is less."""
        longest = self._config.default_timeout_ms / 1000
        if call.routed is None or call.routed.timeout_s >= longest:
            return longest, None
        if call.tap.wanted:
            return longest, call.routed.timeout_s
        return call.routed.timeout_s, None

    def _warning(self, request: PromptRequest) -> Callable[[str, str], LedgerEntry] | None:
        return functools.partial(warning_entry, request) if self._warns else None

    async def _send(
        self,
        call: Call,
        provider: Provider | AsyncProvider | StreamingProvider,
        attempt: Attempt,
        permit: Permit,
    ) -> tuple[ProviderResponse | Failure, BaseException | None]:
        """One answer or the reason why there is none; reports to the breaker."""
        request, tap = call.request, call.tap
        timeout_s, first_s = self._limits_s(call)
        order = ProviderRequest(
            model_id=attempt.model_id,
            messages=call.sent.messages,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            timeout_s=timeout_s,
            tools=tuple(request.tools or ()),
            response_schema=response_schema(request),
            parameters=request.parameters or {},
            dialect=request.dialect,
        )
        # What a stream had begun to say was produced, and is paid for; what never began
        # is unknown.
        unknown = "bound"
        failure: Failure
        cause: BaseException
        started = time.perf_counter()
        try:
            answer = await send(provider, order, tap, first_s)
            permit.succeed()
            return answer, None
        except TimeoutError as error:
            # A model that is still talking is not ill, however long it talks.
            (permit.succeed if tap.pieces else permit.fail)()
            within = timeout_s if tap.pieces or first_s is None else first_s
            message = f"no answer within {within:g} s"
            billing: Any = "arrived" if tap.pieces else unknown
            failure = Failure(RouteOutcome.TIMEOUT, "TIMEOUT", message, billing)
            cause = error
        except ProviderError as error:
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
            )
            cause = error
        except asyncio.CancelledError as error:
            permit.release()
            billing = "arrived" if tap.pieces else unknown
            failure = Failure(RouteOutcome.ERROR, "CANCELLED", "the caller went away", billing)
            cause = error
        except Exception as error:  # noqa: BLE001 - whatever a provider object does is on record
            _log.warning(
                "provider %s broke its protocol: %s", attempt.provider_id, type(error).__name__
            )
            _log.debug("where it broke:\n%s", "".join(traceback.format_tb(error.__traceback__)))
            permit.fail()
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
        return failure, cause

    def _bill(self, call: Call, attempt: Attempt, result: ProviderResponse | Failure) -> Bill:
        provider_id, model_id, tap = attempt.provider_id, attempt.model_id, call.tap
        if isinstance(result, ProviderResponse):
            if result.usage_reported:
                return self._billing.measured(provider_id, model_id, result)
            return self._billing.assumed(provider_id, model_id, attempt.bound, "upper_bound")
        if result.billing == "nothing":
            return self._billing.nothing(model_id)
        if result.billing == "bound":
            return self._billing.assumed(provider_id, model_id, attempt.bound, "upper_bound")
        if thinks_unseen(self._config, call.request, attempt.model_id):
            # What was thought and not shown is billed like what arrived.
            return self._billing.assumed(provider_id, model_id, attempt.bound, "upper_bound")
        reported = tap.usage.input_tokens if tap.usage is not None else attempt.bound[0]
        tokens = estimate(self._config, call.sent, reported, tap.size, tap.pieces, attempt.bound)
        return self._billing.assumed(provider_id, model_id, tokens, "estimated")

    async def _record(
        self, call: Call, attempt: Attempt, result: ProviderResponse | Failure
    ) -> PromptResponse:
        """``EXCHANGE``, settlement and the end of the in-flight row, in one transaction."""
        request = call.request
        bill = self._bill(call, attempt, result)
        usage = bill.usage
        charging = self._in_flight.charging
        entry = exchange_entry(
            request, call.sent, attempt, result, (usage.input_tokens, usage.output_tokens),
            bill.metadata(charged=charging), call.identity, call.model_named,
        )  # fmt: skip
        hold = attempt.hold
        if hold is not None:
            entry.metadata.update(hold.overrun(usage))
        answered = None
        if call.claim is not None and isinstance(result, ProviderResponse):
            answered = (call.claim, int(self._config.idempotency_hours * _MS_PER_HOUR))
        step = FinishCall(
            prepared=(prepare_exchange(self._ledger, entry, request.subject_id),),
            dispatch_entry_id=attempt.dispatch_entry_id,
            hold=hold,
            usage=usage,
            answered=answered,
        )
        try:
            write = self._ledger.step(self._in_flight.stage, step)
            finished: FinishedCall = await finish_write(write)
        except CancelledAfterWriteError as late:
            raise asyncio.CancelledError from late
        common: dict[str, Any] = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "model_id": entry.metadata["model_id"],
            "provider_id": attempt.provider_id,
            "latency_ms": attempt.latency_ms,
            "timestamp": utc_now(),
            "exchange_entry_id": finished.exchange_entry_id,
            "dispatch_entry_id": attempt.dispatch_entry_id,
            "context_hash": call.sent.context_hash,
            "budget_remaining": finished.remaining,
            "cost_incurred": (usage.cost_nano or 0) / 1e9 if charging else 0.0,
            "cost_certainty": bill.certainty if charging else "",
            "cost_known": charging and usage.cost_nano is not None,
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
            wire=result.wire,
            **common,
        )
