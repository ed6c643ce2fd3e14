"""The attempts of one call: candidates in turn, retries, and idempotency keys."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets

from msgspec.structs import replace

from remit.gateway.attempts import Attempts
from remit.gateway.breakers import Breakers
from remit.gateway.budget import BudgetRefusedError, TokenBudgeter
from remit.gateway.call import Call, Candidate
from remit.gateway.callers import caller_of
from remit.gateway.candidates import Candidates, NoCandidateError, needs_reading
from remit.gateway.config import RouterConfig
from remit.gateway.inflight import InFlightCalls
from remit.gateway.lookup import hidden_name
from remit.gateway.neutral import finite
from remit.gateway.records import prepare_rejection
from remit.gateway.replays import asked_hash, recorded_answer
from remit.gateway.steps import IdempotencyKeyUsedError
from remit.gateway.tenancy import NotYoursError, ownership_of
from remit.gateway.transport import has_dialect
from remit.gateway.validation import Sent
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptResponse, RouteOutcome
from remit.ledger import LedgerClient, utc_now
from remit.providers import ProviderError

__all__ = ["Failover"]

_log = logging.getLogger("remit.gateway")

# Another model may do better where this one is ill, full, locked or too small.
_FALLS_BACK = frozenset(
    {"TIMEOUT", "RATE_LIMITED", "SERVER_ERROR", "PROVIDER_ERROR", "AUTH_ERROR", "CONTEXT_LENGTH"}
)


class Failover:
    """Asks the candidates of a call in turn, or refuses the call.

    Args:
        ledger: records answers and refusals.
        candidates: makes the call's candidates.
        breakers: circuit breakers, asked before each attempt.
        attempts: runs each attempt.
        in_flight: owners of sessions, and idempotency keys.
        budgeter: the enforced budgets; None if none are enforced.
        config: retries.
    """

    def __init__(
        self,
        ledger: LedgerClient,
        candidates: Candidates,
        breakers: Breakers,
        attempts: Attempts,
        in_flight: InFlightCalls,
        budgeter: TokenBudgeter | None,
        config: RouterConfig,
    ) -> None:
        self._ledger = ledger
        self._candidates = candidates
        self._breakers = breakers
        self._attempts = attempts
        self._in_flight = in_flight
        self._budgeter = budgeter
        self._config = config

    async def ask_once(self, call: Call, sent: Sent, key: str) -> PromptResponse:
        """Answer a call under an idempotency key.

        If the key already has an answer, the recorded one is returned and nothing is sent. A call
        is refused (``IDEMPOTENCY_CONFLICT``) while another call with the key is in flight. The key
        of a call that fails is released.

        Args:
            call: the call.
            sent: its request, encoded.
            key: the client's idempotency key.
        """
        call.request_hash = asked_hash(call.request, sent)
        caller = caller_of(call)
        call.claim = (caller, hidden_name(caller, key), secrets.token_hex(8))
        response = None
        try:
            response = await self.ask(call, sent)
        except IdempotencyKeyUsedError as used:
            call.claimed = False
            return await self._replay(call, used.exchange_entry_id)
        finally:
            if call.claimed and (response is None or response.outcome is not RouteOutcome.SUCCESS):
                await self._release(call)
        return response

    async def ask(self, call: Call, sent: Sent) -> PromptResponse:
        """Ask each candidate in turn, with retries; return the first answer or the last failure.

        A budget that is too small for the assumed tool uses is tried again with one use. A call
        that no candidate can take is refused with a ``PROMPT_REJECTED``. Each attempt writes a
        ``DISPATCH`` and an ``EXCHANGE``.

        Args:
            call: the call; its ``passed_over`` gets the models that did not answer.
            sent: its request, encoded.

        Raises:
            IdempotencyKeyUsedError: another call has the idempotency key.
            LedgerError: an entry could not be written.
            LeaseLostError: the call was settled as an orphan before its answer came.
        """
        candidates, reads = self._candidates, needs_reading(call.request)
        refusal: tuple[str, str, str | None] = ("", "", None)
        to: Candidate | None = None
        retry_after_s: float | None = None
        try:
            for provider_id, model_id in candidates.named(call):
                answered: PromptResponse | None = None
                barred = ""
                try:
                    if reads:
                        to = await candidates.read(call, sent, provider_id, model_id)
                    else:
                        to = candidates.make(call, sent, provider_id, model_id)
                    permit = self._breakers.permit(provider_id, model_id)
                    if permit is None:
                        permit = await self._breakers.acquire(provider_id, model_id)
                    if permit is not None:
                        answered, failure = await self._attempts.run(call, to, permit)
                        if failure is None:
                            return answered
                        answered, barred = await self._retried(call, sent, to, answered, failure)
                    else:
                        barred = _barred(f"{to.provider_id}/{to.model_id}")
                except NoCandidateError as error:
                    refusal = refusal if refusal[0] else error.refusal
                    if error.refusal[0] == "PROVIDER_NOT_FOUND" and not call.passed_over:
                        break  # a model that is named is no other provider's to answer
                    call.passed_over.append((model_id, error.refusal[0]))
                    continue
                if barred:
                    refusal = ("CIRCUIT_OPEN", barred, None)
                    retry_after_s = self._breakers.seen(provider_id, model_id)[1]
                code = (answered.error_code if answered is not None else None) or "CIRCUIT_OPEN"
                if answered is not None and (call.tap.began or code not in _FALLS_BACK):
                    return answered
                call.passed_over.append((model_id, code))
            if call.last is not None:
                return call.last
            await self.make_sure(call)
        except BudgetRefusedError as error:
            if call.last is None and to is not None and to.uses > 1:
                call.tool_uses = 1  # The budget may be enough for fewer uses.
                call.passed_over = []
                return await self.ask(call, sent)
            return call.last or await self.reject(
                call, error.code, error.message, error.remaining, error.retry_after_s
            )
        except NotYoursError as error:
            return call.last or await self.reject(call, "SESSION_NOT_YOURS", error.message)
        # A budget that is spent is what is said, also when the way is barred besides.
        if to is not None and (refused_by := self._check(call, to)) is not None:
            code, message, remaining = refused_by
            return await self.reject(call, code, message, remaining)
        code, message, param = refusal
        return await self.reject(call, code, message, retry_after_s=retry_after_s, param=param)

    async def _retried(
        self,
        call: Call,
        sent: Sent,
        to: Candidate,
        answered: PromptResponse,
        failure: BaseException | None,
    ) -> tuple[PromptResponse, str]:
        """Retry a failed candidate; return its last response, and why it is blocked (empty if not).

        A stale connection is replaced without counting a retry.
        """
        most_retries = 0 if call.routed else self._config.max_retries
        tried = 0
        while isinstance(failure, ProviderError) and not call.tap.began:
            if failure.stale and to.outgoing is not None and not to.outgoing.reconnect:
                # Nothing is wrong with the provider: another pair, at once.
                to.outgoing = replace(to.outgoing, reconnect=True)
            else:
                tried += 1
                wait_s = self._wait_s(tried, failure.retry_after_s)
                if not failure.retryable or tried > most_retries or wait_s is None:
                    break
                await asyncio.sleep(wait_s)
                if failure.to_translate:
                    call.translated.add(to.provider_id)
                # The provider may have learnt from the failure how to translate the request.
                if has_dialect(to.provider):
                    to = await self._candidates.read(call, sent, to.provider_id, to.model_id)
            permit = await self._breakers.acquire(to.provider_id, to.model_id)
            if permit is None:
                return answered, _barred(f"{to.provider_id}/{to.model_id}")
            try:
                answered, failure = await self._attempts.run(call, to, permit)
            except BudgetRefusedError:
                break
        return answered, ""

    async def once(self, call: Call, to: Candidate, circuit: str) -> PromptResponse:
        """Make one attempt at one candidate, without retries, and return its response.

        A refusal by ownership, circuit or budget is recorded and returned as a response.

        Args:
            call: the call.
            to: the candidate.
            circuit: name of the circuit breaker at the provider.
        """
        try:
            call.ownership = ownership_of(
                call.identity, call.request.session_id, call.request.work_order_id or ""
            )
            permit = await self._breakers.acquire(to.provider_id, circuit)
            if permit is None:
                await self.make_sure(call)
                return await self.reject(call, "CIRCUIT_OPEN", _barred(to.provider_id))
            return (await self._attempts.run(call, to, permit))[0]
        except NotYoursError as error:
            return await self.reject(call, "SESSION_NOT_YOURS", error.message)
        except BudgetRefusedError as error:
            return await self.reject(
                call, error.code, error.message, error.remaining, error.retry_after_s
            )

    async def make_sure(self, call: Call) -> None:
        """Claim the session for the caller if ownership must be checked and no attempt will do so.

        Raises:
            NotYoursError: the session belongs to another caller.
        """
        if call.ownership is not None:
            await self._in_flight.make_sure(call.ownership)

    def _check(self, call: Call, to: Candidate) -> tuple[str, str, int | None] | None:
        """Return code, message and remaining tokens if the budget would refuse the call now; else
        None.

        A reservation decides for calls that are sent; this check is for calls that no candidate can
        take.
        """
        if self._budgeter is None:
            return None
        check = self._budgeter.check_path(call.path, to.amount)
        if check.allowed or check.code == "BUDGET_BUSY":
            return None
        code, _, message = check.reason.partition(": ")
        return code, message, check.remaining

    async def reject(
        self,
        call: Call,
        code: str,
        message: str,
        remaining: int | None = None,
        retry_after_s: float | None = None,
        param: str | None = None,
    ) -> PromptResponse:
        """Record one ``PROMPT_REJECTED`` and return the refusal; nothing is held or sent.

        For a routed request nothing is recorded here: the router records the refusal.

        Args:
            call: the call.
            code: the error code.
            message: the reason.
            remaining: tokens left in the budget; None if no budget was asked.
            retry_after_s: seconds until a retry can succeed; None if unknown.
            param: the field at fault; None if there is none.

        Raises:
            LedgerWriteError: the refusal could not be recorded.
        """
        request = call.request
        entry_id = ""
        if call.routed is None:
            entry = prepare_rejection(
                self._ledger, call, self._candidates.provider_of(request), code, message
            )
            ahead = await request.ahead.take() if request.ahead is not None else []
            write = self._ledger.submit([*ahead, entry])
            if request.ahead is not None:
                request.ahead.follow(write)
            entry_id = (await write)[-1]
        return PromptResponse(
            content="",
            outcome=RouteOutcome.REJECTED,
            input_tokens=0,
            output_tokens=0,
            model_id=request.model_id or "",
            provider_id=request.provider_id or "",
            latency_ms=0.0,
            timestamp=utc_now(),
            exchange_entry_id=entry_id,
            context_hash=call.request_hash,
            error_code=code,
            error_message=message,
            error_param=param,
            budget_remaining=remaining,
            fallback_from=tuple(call.passed_over),
            retry_after_s=retry_after_s,
        )

    async def _replay(self, call: Call, exchange_entry_id: str) -> PromptResponse:
        """Return the recorded answer of the earlier call under the same idempotency key, or a
        refusal.
        """
        if not exchange_entry_id:
            return await self.reject(
                call, "IDEMPOTENCY_CONFLICT", "a call with this idempotency key is in flight; "
                                              "repeat the request later to get its answer",
                retry_after_s=1.0,
            )  # fmt: skip
        answer = await asyncio.to_thread(recorded_answer, self._ledger, exchange_entry_id, call)
        if isinstance(answer, tuple):
            return await self.reject(call, *answer)
        return answer

    async def _release(self, call: Call) -> None:
        """Release the idempotency key of a failed call. A failure to do so is logged."""
        assert call.claim is not None
        try:
            await self._in_flight.release_claim(call.claim)
        except RemitError as error:
            _log.warning("an idempotency key was not released: %s", error.message)

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


def _barred(name: str) -> str:
    return f"{name} failed repeatedly, so its circuit is open; use another model, or retry later"
