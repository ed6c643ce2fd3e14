"""The pipeline of a model call (SPEC 4.2)."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import traceback
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

from remit.auth import AuthProvider
from remit.blocking import run_blocking
from remit.budget import BudgetRefusedError, BudgetScope, TokenBudgeter, TokenUsage
from remit.errors import InvalidInputError, RemitError
from remit.exchange import (
    ModelCapabilities,
    PromptRequest,
    PromptResponse,
    RouteOutcome,
    TextSink,
)
from remit.gateway.breaker import CircuitBreaker, Permit
from remit.gateway.config import RouterConfig
from remit.gateway.durable import CancelledMeanwhileError, whole
from remit.gateway.inflight import InFlightCalls
from remit.gateway.records import (
    Attempt,
    Failure,
    dispatch_entry,
    exchange_entry,
    prepare_exchange,
    rejection_entry,
    warning_entry,
)
from remit.gateway.sending import send, sink
from remit.gateway.validation import (
    Sent,
    check_output,
    check_request,
    encode_sent,
    response_schema,
)
from remit.ledger import LedgerClient, LedgerEntry, Transaction
from remit.providers import (
    AsyncProvider,
    Provider,
    ProviderError,
    ProviderRequest,
    ProviderResponse,
)

__all__ = ["LLMGateway"]

_log = logging.getLogger("remit.gateway")

BudgetMode = Literal["enforce", "warn", "off"]


class LLMGateway:
    """Every model call goes through here.

    Args:
        ledger_client: where calls are recorded.
        budgeter: holds the limits; without one calls are not limited.
        config: defaults, timeouts, retries.
        auth_provider: tells who asks; required outside dev mode.
        dev_mode: skip authentication.
        budget_mode: ``enforce`` refuses, ``warn`` records and goes on, ``off`` does neither.
    """

    def __init__(
        self,
        ledger_client: LedgerClient,
        budgeter: TokenBudgeter | None = None,
        config: RouterConfig | None = None,
        auth_provider: AuthProvider | None = None,
        dev_mode: bool = False,
        budget_mode: BudgetMode = "enforce",
    ) -> None:
        if budget_mode not in ("enforce", "warn", "off"):
            raise InvalidInputError(f"budget_mode is {budget_mode!r}; use enforce, warn or off.")
        self._ledger = ledger_client
        self._budgeter = budgeter if budget_mode != "off" else None
        # Recovery settles what an earlier process reserved, whatever this one's mode.
        self._enforce = budget_mode == "enforce"
        self._config = config or RouterConfig()
        self._auth = auth_provider
        self._dev_mode = dev_mode
        self._providers: dict[str, Provider | AsyncProvider] = {}
        self._breakers: dict[tuple[str, str], CircuitBreaker] = {}
        self._in_flight = InFlightCalls(ledger_client, budgeter or TokenBudgeter(ledger_client))

    def register_provider(self, provider_id: str, provider: Provider | AsyncProvider) -> None:
        """Make ``provider`` reachable under ``provider_id``."""
        self._providers[provider_id] = provider

    def capabilities(self, request: PromptRequest) -> ModelCapabilities:
        """What the model that would get ``request`` can do; all, where nobody says."""
        provider_id, model_id = self._resolve(request)
        told = getattr(self._providers.get(provider_id), "capabilities", None)
        answer = told(model_id) if callable(told) else None
        return answer if isinstance(answer, ModelCapabilities) else ModelCapabilities()

    def input_bound(self, request: PromptRequest) -> int:
        """Most input tokens that ``request`` can be billed for, as budgets reserve them.

        Raises:
            InvalidInputError: the request has no canonical form.
        """
        return self._input_bound(request, encode_sent(request))

    def breaker(self, provider_id: str, model_id: str) -> CircuitBreaker:
        """The circuit breaker of one provider and model."""
        key = (provider_id, model_id)
        if key not in self._breakers:
            self._breakers.setdefault(key, CircuitBreaker(self._config.circuit_breaker))
        return self._breakers[key]

    def recover(self) -> list[str]:
        """Settle calls whose process died; returns the ids of their ``EXCHANGE_ORPHANED``."""
        return self._in_flight.recover(self._config.orphan_policy)

    def route(self, request: PromptRequest, *, on_text: TextSink | None = None) -> PromptResponse:
        """:meth:`aroute` for callers without an event loop."""
        return run_blocking(self.aroute(request, on_text=on_text))

    async def aroute(
        self, request: PromptRequest, *, on_text: TextSink | None = None
    ) -> PromptResponse:
        """Send one request and record it; a call that fails is an outcome, not an exception.

        Args:
            request: what to send.
            on_text: receives the answer's text as it comes.

        Raises:
            LedgerWriteError: the record could not be made. Before the call: nothing was sent.
                After it: the call stays in flight and is settled by recovery.
            LeaseLostError: the answer came after the call had been settled as an orphan.
        """
        if problem := check_request(request):
            return await self._reject(request, "INVALID_INPUT", problem)
        try:
            sent = encode_sent(request)
        except InvalidInputError as error:
            return await self._reject(request, "INVALID_INPUT", error.message)
        if problem := self._authenticate(request):
            return await self._reject(request, "AUTH_ERROR", problem, sent)
        scope = self._scope(request, sent)
        if self._budgeter is not None:
            check = self._budgeter.check(scope)
            if not check.allowed:
                code, _, message = check.reason.partition(": ")
                if self._enforce:
                    return await self._reject(request, code, message, sent, check.remaining)
                await self._ledger.awrite(warning_entry(request, code, message))
        provider_id, model_id = self._resolve(request)
        provider = self._providers.get(provider_id)
        if provider is None:
            message = f"no provider {provider_id!r} is registered"
            return await self._reject(request, "PROVIDER_NOT_FOUND", message, sent)
        return await self._attempts(request, sent, scope, provider, provider_id, model_id, on_text)

    async def _attempts(
        self,
        request: PromptRequest,
        sent: Sent,
        scope: BudgetScope,
        provider: Provider | AsyncProvider,
        provider_id: str,
        model_id: str,
        on_text: TextSink | None,
    ) -> PromptResponse:
        """Try, and try again what may succeed: each attempt a pair of its own."""
        breaker = self.breaker(provider_id, model_id)
        last: PromptResponse | None = None
        for number in range(1, self._config.max_retries + 2):
            permit = breaker.acquire()
            if permit is None:
                message = f"{provider_id}/{model_id} failed repeatedly and is not asked just now"
                return last or await self._reject(request, "CIRCUIT_OPEN", message, sent)
            attempt = Attempt(number, provider_id, model_id)
            if last is not None:
                attempt.retry_of = last.exchange_entry_id
            try:
                attempt.dispatch_entry_id = await self._dispatch(
                    request, sent, attempt, scope, permit
                )
            except BudgetRefusedError as error:
                return last or await self._reject(
                    request, error.code, error.message, sent, error.remaining
                )
            result, error_ = await self._send(request, sent, provider, attempt, on_text, permit)
            last = await self._record(request, sent, attempt, result)
            if isinstance(error_, asyncio.CancelledError):
                raise error_
            if (
                not isinstance(error_, ProviderError)
                or not error_.retryable
                or attempt.streamed
                or number > self._config.max_retries
            ):
                break
            await asyncio.sleep(self._wait_s(number, error_.retry_after_s))
        assert last is not None
        return last

    # -- the steps ---------------------------------------------------------------------

    def _authenticate(self, request: PromptRequest) -> str:
        if self._dev_mode:
            return ""
        if self._auth is None:
            return "no auth provider is set up, and this is not dev mode"
        try:
            self._auth.authenticate(request.auth_token)
        except RemitError as error:
            return error.message
        except Exception as error:  # noqa: BLE001 - a door that breaks stays shut
            return f"the auth provider failed ({type(error).__name__})"
        return ""

    def _resolve(self, request: PromptRequest) -> tuple[str, str]:
        """Provider and model of a request (SPEC 15, model names)."""
        config = self._config
        if request.provider_id:
            fallback = config.default_models.get(request.provider_id, config.default_model)
            if request.provider_id == config.default_provider:
                fallback = config.default_model
            return request.provider_id, request.model_id or fallback
        if not request.model_id:
            return config.default_provider, config.default_model
        head, slash, tail = request.model_id.partition("/")
        if slash and tail and head in self._providers:
            return head, tail
        for prefix in sorted(config.model_prefixes, key=len, reverse=True):
            owner = config.model_prefixes[prefix]
            if request.model_id.startswith(prefix) and owner in self._providers:
                return owner, request.model_id
        return config.default_provider, request.model_id

    def _scope(self, request: PromptRequest, sent: Sent) -> BudgetScope:
        """Whose budget, and the most the call can use."""
        return BudgetScope(
            request.session_id,
            request.work_order_id or None,
            request.agent_id or None,
            self._input_bound(request, sent) + request.max_tokens,
            request.model_id,
        )

    def _input_bound(self, request: PromptRequest, sent: Sent) -> int:
        """No token is shorter than a byte; the rest is what providers add unseen."""
        config = self._config
        bound = sent.size + config.message_overhead_tokens * (len(sent.messages) + 1)
        bound += config.remote_image_tokens * sent.remote_images
        if request.tools or response_schema(request):
            bound += config.tools_overhead_tokens
        return bound

    async def _dispatch(
        self,
        request: PromptRequest,
        sent: Sent,
        attempt: Attempt,
        scope: BudgetScope,
        permit: Permit,
    ) -> str:
        """Reservation, in-flight row and ``DISPATCH``: durable together, before a byte goes out."""

        def commit(tx: Transaction) -> str:
            dispatch_id = tx.append(prepared)
            if self._budgeter is not None:
                turns = 1 if attempt.number == 1 else 0
                self._budgeter.reserve(
                    scope, dispatch_id, tx=tx, turns=turns, enforce=self._enforce
                )
            self._in_flight.add(tx, dispatch_id, request, lease_ms, scope.requested_tokens)
            return dispatch_id

        try:
            prepared = self._ledger.prepare(
                dispatch_entry(request, attempt.provider_id, attempt.model_id)
            )
            lease_ms = self._config.default_timeout_ms + self._config.lease_margin_ms
            return await whole(self._ledger.atransact(commit))
        except CancelledMeanwhileError as late:
            # The marker is durable: it needs its exchange, though nothing was sent.
            permit.release()
            attempt.dispatch_entry_id = late.result
            failure = Failure(
                RouteOutcome.ERROR, "CANCELLED", "the caller went away before sending"
            )
            await self._record(request, sent, attempt, failure)
            raise asyncio.CancelledError from late
        except BaseException:
            permit.release()
            raise

    async def _send(
        self,
        request: PromptRequest,
        sent: Sent,
        provider: Provider | AsyncProvider,
        attempt: Attempt,
        on_text: TextSink | None,
        permit: Permit,
    ) -> tuple[ProviderResponse | Failure, BaseException | None]:
        """One answer or the reason why there is none; tells the breaker."""
        timeout_s = self._config.default_timeout_ms / 1000
        order = ProviderRequest(
            model_id=attempt.model_id,
            messages=sent.messages,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            timeout_s=timeout_s,
            tools=tuple(request.tools or ()),
            response_schema=response_schema(request),
        )
        bound = (self._input_bound(request, sent), request.max_tokens)
        started = time.perf_counter()
        failure: Failure
        cause: BaseException
        try:
            answer = await send(provider, order, sink(attempt, on_text))
            permit.succeed()
            if not answer.usage_reported:
                answer = replace(answer, input_tokens=bound[0], output_tokens=bound[1])
            return answer, None
        except TimeoutError as error:
            permit.fail()
            message = f"no answer within {timeout_s:g} s"
            failure = Failure(RouteOutcome.TIMEOUT, "TIMEOUT", message, bound, True)
            cause = error
        except ProviderError as error:
            (permit.fail if error.speaks_of_health else permit.succeed)()
            timed_out = error.code == "TIMEOUT"
            failure = Failure(
                RouteOutcome.TIMEOUT if timed_out else RouteOutcome.ERROR,
                error.code,
                error.message,
                bound if error.maybe_billed or timed_out else (0, 0),
                error.maybe_billed or timed_out,
            )
            cause = error
        except asyncio.CancelledError as error:
            permit.release()
            message = "the caller went away"
            failure = Failure(RouteOutcome.ERROR, "CANCELLED", message, bound, True)
            cause = error
        except Exception as error:  # noqa: BLE001 - whatever a provider object does is on record
            _log.warning(
                "provider %s broke its protocol: %s", attempt.provider_id, type(error).__name__
            )
            _log.debug("where it broke:\n%s", "".join(traceback.format_tb(error.__traceback__)))
            permit.fail()
            message = f"the provider object raised {type(error).__name__}"
            failure = Failure(RouteOutcome.ERROR, "PROVIDER_ERROR", message, bound, True)
            cause = error
        finally:
            attempt.latency_ms = round((time.perf_counter() - started) * 1000, 3)
        return failure, cause

    async def _record(
        self,
        request: PromptRequest,
        sent: Sent,
        attempt: Attempt,
        result: ProviderResponse | Failure,
    ) -> PromptResponse:
        """``EXCHANGE``, settlement and the end of the in-flight row, in one transaction."""
        entry = exchange_entry(request, sent, attempt, result)
        prepared = prepare_exchange(self._ledger, entry, request.subject_id)
        usage = TokenUsage(entry.metadata["input_tokens"], entry.metadata["output_tokens"])

        def commit(tx: Transaction) -> tuple[str, int | None]:
            self._in_flight.consume(tx, attempt.dispatch_entry_id)
            remaining = None
            if self._budgeter is not None:
                settled = self._budgeter.settle(attempt.dispatch_entry_id, usage, tx=tx)
                remaining = settled.remaining
            return tx.append(prepared), remaining

        try:
            exchange_id, remaining = await whole(self._ledger.atransact(commit))
        except CancelledMeanwhileError as late:
            raise asyncio.CancelledError from late
        failed = isinstance(result, Failure)
        problems: list[str] = []
        valid: bool | None = None
        if isinstance(result, ProviderResponse) and request.output_schema is not None:
            problems = check_output(request.output_schema, result.content)
            valid = not problems
        return PromptResponse(
            content=attempt.streamed if isinstance(result, Failure) else result.content,
            outcome=result.outcome if isinstance(result, Failure) else RouteOutcome.SUCCESS,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            model_id=entry.metadata["model_id"],
            provider_id=attempt.provider_id,
            latency_ms=attempt.latency_ms,
            timestamp=_now(),
            exchange_entry_id=exchange_id,
            dispatch_entry_id=attempt.dispatch_entry_id,
            output_valid=valid,
            output_validation_errors=problems,
            context_hash=sent.context_hash,
            error_code=result.code if isinstance(result, Failure) else None,
            error_message=result.message if isinstance(result, Failure) else None,
            budget_remaining=remaining,
            **({} if failed else _from_provider(result)),
        )

    async def _reject(
        self,
        request: PromptRequest,
        code: str,
        message: str,
        sent: Sent | None = None,
        remaining: int | None = None,
    ) -> PromptResponse:
        """One ``PROMPT_REJECTED``; nothing held, nothing sent."""
        entry: LedgerEntry = rejection_entry(request, code, message)
        entry_id = await self._ledger.awrite(entry)
        return PromptResponse(
            content="",
            outcome=RouteOutcome.REJECTED,
            input_tokens=0,
            output_tokens=0,
            model_id=request.model_id or "",
            provider_id=request.provider_id or "",
            latency_ms=0.0,
            timestamp=_now(),
            exchange_entry_id=entry_id,
            context_hash=sent.context_hash if sent else "",
            error_code=code,
            error_message=message,
            budget_remaining=remaining,
        )

    def _wait_s(self, number: int, asked_s: float | None) -> float:
        """Full jitter under a doubling bound; what the provider asked for, when that is longer."""
        config = self._config
        bound = min(config.retry_max_ms, config.retry_base_ms * 2 ** (number - 1)) / 1000
        return max(random.uniform(0, bound), min(asked_s or 0.0, config.retry_max_ms / 1000))  # noqa: S311


def _from_provider(result: ProviderResponse | Failure) -> dict[str, Any]:
    assert isinstance(result, ProviderResponse)
    return {
        "finish_reason": result.finish_reason,
        "content_blocks": result.content_blocks or None,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")[:-6] + "Z"
