"""The pipeline of a model call: its steps in order, its refusals, its retries."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from remit.gateway.answer_store import CannotContinueError
from remit.gateway.attempts import Attempts
from remit.gateway.auth import AuthProvider, Identity, KeyStore
from remit.gateway.batches import Batches, Planner, Results
from remit.gateway.billing import Billing, estimate, input_bound
from remit.gateway.breaker import CircuitState
from remit.gateway.breakers import Breakers, CircuitBreaker
from remit.gateway.budget import Amount, TokenBudgeter
from remit.gateway.call import Call, CallReport, Candidate, OnRecord
from remit.gateway.callers import authenticate, path_of
from remit.gateway.candidates import Candidates, speaks
from remit.gateway.config import RouterConfig
from remit.gateway.failover import Asking
from remit.gateway.inflight import InFlightCalls
from remit.gateway.leases import LeaseLostError
from remit.gateway.memory import LARGE_BYTES, run_large
from remit.gateway.naming import Names
from remit.gateway.objects import Objects
from remit.gateway.request_router import RequestRouter, Routed
from remit.gateway.stream_tap import StreamTap
from remit.gateway.tenancy import NotYoursError, named_by
from remit.gateway.transport import AnyProvider
from remit.gateway.validation import MAX_TOKENS, Sent, check_request, encode_sent
from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.exchange import (
    ModelCapabilities,
    PromptRequest,
    PromptResponse,
    RouteOutcome,
    TextSink,
)
from remit.kernel.loops import run_blocking
from remit.ledger import LedgerClient, LedgerError
from remit.providers import EventSink, Outgoing, WireProvider
from remit.providers.prices import PriceTable

__all__ = ["CallReport", "LLMGateway"]

_log = logging.getLogger("remit.gateway")

BudgetMode = Literal["enforce", "warn", "off"]


_NOTHING = Amount(0, 0)


class LLMGateway:
    """Every model call goes through here.

    Args:
        ledger_client: where calls are recorded.
        budgeter: holds the limits; without one calls are not limited.
        config: defaults, timeouts, retries.
        auth_provider: authenticates callers; required outside dev mode.
        dev_mode: skip authentication.
        budget_mode: ``enforce`` refuses, ``warn`` records and goes on, ``off`` counts what is
            spent and does neither.
        prices: what models cost; the shipped table when left out.
    """

    def __init__(
        self,
        ledger_client: LedgerClient,
        budgeter: TokenBudgeter | None = None,
        config: RouterConfig | None = None,
        auth_provider: AuthProvider | None = None,
        dev_mode: bool = False,
        budget_mode: BudgetMode = "enforce",
        *,
        prices: PriceTable | None = None,
    ) -> None:
        if budget_mode not in ("enforce", "warn", "off"):
            raise InvalidInputError(f"budget_mode is {budget_mode!r}; use enforce, warn or off.")
        self._config = config = config or RouterConfig()
        self._outage = ledger_client.outage
        self._auth = auth_provider
        self._keys = KeyStore(ledger_client)
        self._dev_mode = dev_mode
        self._providers: dict[str, AnyProvider] = {}
        self._names = Names(config, self._providers)
        keeper = budgeter or TokenBudgeter(ledger_client)
        self._breakers = Breakers(
            ledger_client,
            config.circuit_breaker,
            trial_ms=config.default_timeout_ms + config.lease_margin_ms,
        )
        # Recovery settles what an earlier process reserved, also where this one charges nothing.
        self._in_flight = InFlightCalls(
            ledger_client,
            keeper,
            charging=budgeter is not None,
            wait_ms=config.budget_wait_ms,
            beside=self._breakers.refresh,
        )
        self._billing = Billing(prices or PriceTable.shipped(), config)
        candidates = Candidates(
            self._names, self._providers, Objects(ledger_client), self._billing, config,
            enforce=budgeter is not None and budget_mode == "enforce",
        )  # fmt: skip
        self._attempts = Attempts(ledger_client, self._in_flight, config, mode=budget_mode)
        self._asking = Asking(
            ledger_client, candidates, self._breakers, self._attempts, self._in_flight,
            budgeter if budget_mode == "enforce" else None, config,
        )  # fmt: skip
        self.batches = Batches(
            ledger_client,
            Planner(ledger_client, self._billing, self._names),
            Results(
                ledger_client, keeper, self._billing, self._providers,
                charging=budgeter is not None, freed=self._in_flight.waiting_room.freed,
                epoch=config.policy_epoch,
            ),
            self._providers,
            config,
        )  # fmt: skip
        self.observers: list[Callable[[CallReport], None]] = []

    def register_provider(self, provider_id: str, provider: AnyProvider) -> None:
        """Make ``provider`` reachable under ``provider_id``."""
        self._providers[provider_id] = provider
        self._names.forget()

    def register_router(self, router: RequestRouter) -> None:
        """Have requests whose ``model_id`` is one of the router's names answered by it."""
        self._names.router = router
        self._names.forget()

    @property
    def policy_epoch(self) -> int:
        """Which each exchange names, where it is above 0."""
        return self._config.policy_epoch

    @property
    def providers(self) -> Mapping[str, AnyProvider]:
        """Those that are registered, by id."""
        return self._providers

    @property
    def model_prefixes(self) -> Mapping[str, str]:
        """Model name prefix → provider."""
        return self._config.model_prefixes

    @property
    def in_flight(self) -> InFlightCalls:
        """The calls that are out."""
        return self._in_flight

    def capabilities(self, request: PromptRequest) -> ModelCapabilities:
        """What the model that would get ``request`` can do; all, where it is unknown."""
        router = self._names.router_of(request)
        if router is not None:
            return router.capabilities(request)
        provider_id, model_id = self._names.left(request)[0]
        capabilities = getattr(self._providers.get(provider_id), "capabilities", None)
        answer = capabilities(model_id) if callable(capabilities) else None
        return answer if isinstance(answer, ModelCapabilities) else ModelCapabilities()

    def next_best(self, model: str) -> list[str]:
        """The fallbacks of a ``provider/model``, in the same form; the best first."""
        provider_id, _, model_id = model.partition("/")
        return ["/".join(one) for one in self._names.next_best(provider_id, model_id)]

    def speaks(self, request: PromptRequest) -> bool:
        """Return False if the provider that would get a request is sent a translation of it."""
        provider = self._providers.get(self._names.left(request)[0][0])
        return provider is None or speaks(provider, request.body)

    def how_to_set_up(self, provider_id: str) -> str:
        """Return the variable, setting or command that sets a provider up."""
        return self._names.how_to_set_up(provider_id)

    def name_of(self, provider_id: str, model_id: str) -> str:
        """What a provider's model is called here: its own name, where that leads to it."""
        if self._names.leads_to(model_id) == (provider_id, model_id):
            return model_id
        return f"{provider_id}/{model_id}"

    def input_bound(self, request: PromptRequest) -> int:
        """Most input tokens that ``request`` can be billed for, as budgets reserve them.

        Raises:
            InvalidInputError: the request has no canonical form.
        """
        return input_bound(self._config, request, encode_sent(request))

    def cost_bound(self, request: PromptRequest, provider_id: str, model_id: str) -> int | None:
        """The most that one model can bill for ``request``, in nano-dollars; ``None``: unbounded.

        Raises:
            InvalidInputError: the request has no canonical form.
        """
        amount = self._billing.of(provider_id, model_id).bound(request, encode_sent(request)).amount
        return amount.nano if amount.bounded else None

    def estimate_tokens(self, request: PromptRequest) -> int:
        """About how many input tokens ``request`` has; rather too many than too few.

        Raises:
            InvalidInputError: the request has no canonical form.
        """
        return estimate(self._config, encode_sent(request), None, 0, 0, (MAX_TOKENS, 0))[0]

    def breaker(self, provider_id: str, model_id: str) -> CircuitBreaker:
        """The circuit breaker of one provider and model, of all who open this ledger."""
        return CircuitBreaker(self._breakers, (provider_id, model_id))

    @property
    def breakers(self) -> dict[tuple[str, str], CircuitBreaker]:
        """Of those that were asked here or failed anywhere, by provider and model.

        May read the database: not for the event loop.
        """
        return self._breakers.known()

    def is_closed(self, provider_id: str, model_id: str) -> bool:
        """Whether the circuit of one provider and model is known to be closed, without waiting."""
        return self._breakers.is_closed((provider_id, model_id))

    async def circuit(self, provider_id: str, model_id: str) -> tuple[CircuitState, float | None]:
        """The state of one provider and model's circuit; takes no leave to call.

        Returns:
            Its state, and in how many seconds an open circuit may be tried; ``None`` when it may
            be called, or tried, now.
        """
        return await self._breakers.circuit(provider_id, model_id)

    def recover(self) -> list[str]:
        """Settle calls whose process died; returns the ids of their ``EXCHANGE_ORPHANED``."""
        settled = self._in_flight.recover(
            self._config.orphan_policy,
            self._config.default_timeout_ms + self._config.lease_margin_ms,
        )
        self._breakers.prune()
        return settled

    def route(self, request: PromptRequest, *, on_text: TextSink | None = None) -> PromptResponse:
        """:meth:`aroute` for callers without an event loop."""
        return run_blocking(self.aroute(request, on_text=on_text))

    async def aroute(
        self,
        request: PromptRequest,
        *,
        on_text: TextSink | None = None,
        sink: EventSink | None = None,
        identity: Identity | None = None,
        routed: Routed | None = None,
    ) -> PromptResponse:
        """Send one request and record it; a call that fails is an outcome, not an exception.

        Args:
            request: what to send.
            on_text: receives the answer's text as it comes.
            sink: receives all that a stream brings, and is waited for.
            identity: who asks, where the caller has authenticated them itself.
            routed: the decision that chose the model, where a router did.

        Raises:
            LedgerWriteError: the record could not be made. Before the call: nothing was sent.
                After it: the call stays in flight and is settled by recovery.
            LeaseLostError: the answer came after the call had been settled as an orphan.
        """
        began = time.monotonic_ns()
        call = Call(request, StreamTap(on_text, sink), identity, routed=routed)
        try:
            response = await self._route(call)
        except BaseException:
            if call.last is not None:  # the caller went away; what was recorded is reported
                self._tell(call, call.last, began)
            raise
        # A router reports its own calls; a refusal of the request is reported here.
        refused = routed is not None and response.outcome is RouteOutcome.REJECTED
        if call.handed_on is None and not refused:
            self._tell(call, response, began)
        return response

    def _tell(self, call: Call, response: PromptResponse, began: int) -> None:
        """Notify the observers of how a call ended."""
        if not self.observers:
            return
        # From the end on: a clock that was set meanwhile does not change how long it took.
        started_ns = time.time_ns() - (time.monotonic_ns() - began)
        report = CallReport(
            call.request, response, call.identity, started_ns, call.tap.first_after_ms,
            call.attempts,
        )  # fmt: skip
        for observer in self.observers:
            try:
                observer(report)
            except Exception:  # noqa: BLE001 - who watches does not change what happens
                _log.exception("an observer of calls failed")

    def _route(self, call: Call) -> Awaitable[PromptResponse]:
        """Steps 1 and 2, and who goes on with the call."""
        request = call.request
        if call.routed is None:  # A router's request passed the check before it was routed.
            self._outage.check()
        if problem := check_request(request):
            return self._asking.reject(call, "INVALID_INPUT", problem)
        try:
            sent = encode_sent(request)
        except InvalidInputError as error:
            return self._asking.reject(call, "INVALID_INPUT", error.message)
        call.request_hash = sent.context_hash
        if problem := authenticate(call, self._auth, self._dev_mode, self._keys):
            return self._asking.reject(call, "AUTH_ERROR", problem)
        try:
            call.named = named_by(call.identity, request.session_id, request.work_order_id or "")
        except NotYoursError as error:
            return self._asking.reject(call, "SESSION_NOT_YOURS", error.message)
        call.path = path_of(call)
        if call.routed is None:
            call.handed_on = self._names.router_of(request)
        if call.handed_on is not None:
            return self._hand_on(call, call.handed_on)
        if request.keeper is not None:
            return self._in_own_session(call, sent)
        if request.idempotency_key:
            return self._asking.ask_once(call, sent, request.idempotency_key)
        return self._asking.ask(call, sent)

    async def _in_own_session(self, call: Call, sent: Sent) -> PromptResponse:
        """A call that begins with reading what belongs to its session."""
        try:
            await self._asking.make_sure(call)
        except NotYoursError as error:
            return await self._asking.reject(call, "SESSION_NOT_YOURS", error.message)
        if call.request.idempotency_key:
            return await self._asking.ask_once(call, sent, call.request.idempotency_key)
        return await self._asking.ask(call, sent)

    async def pass_on(
        self,
        request: PromptRequest,
        provider_id: str,
        outgoing: Outgoing,
        *,
        identity: Identity | None,
        amount: Amount = _NOTHING,
        on_record: OnRecord | None = None,
        sink: EventSink | None = None,
        agent: tuple[str, WireProvider] | None = None,
    ) -> PromptResponse:
        """Send what is no call of a model to a provider, once, and record it.

        Args:
            request: whose it is; ``body`` is that of ``outgoing``.
            outgoing: what.
            identity: who asks.
            amount: what is held until the answer is on record.
            on_record: what a success changes beside the record.
            sink: receives a stream as it comes, and is waited for.
            agent: another agent's name and address, instead of a provider; ``amount`` is its price.

        Raises:
            LedgerWriteError, LeaseLostError: as :meth:`aroute`.
        """
        self._outage.check()
        raw = outgoing.body.raw
        hashed = (
            hashlib.sha256(raw) if len(raw) < LARGE_BYTES else await run_large(hashlib.sha256, raw)
        )
        sent = Sent((), b"", hashed.hexdigest(), len(raw))
        call = Call(request, StreamTap(None, sink), identity, sent.context_hash)
        call.on_record = on_record
        if problem := check_request(request):
            return await self._asking.reject(call, "INVALID_INPUT", problem)
        if problem := authenticate(call, self._auth, self._dev_mode, self._keys):
            return await self._asking.reject(call, "AUTH_ERROR", problem)
        call.path = path_of(call)
        name, provider = agent or ("", self._providers[provider_id])
        call.asked_model_id = name
        tariff = self._billing.of(provider_id, "")
        if agent is not None:
            tariff = self._billing.per_call((provider_id, name), amount.nano or 0)
        to = Candidate(
            provider_id, name, provider, tariff, request, sent, outgoing, amount,
            (amount.tokens, 0),
        )  # fmt: skip
        began = time.monotonic_ns()
        response = await self._asking.once(call, to, name or outgoing.body.endpoint.name)
        if response.outcome is not RouteOutcome.REJECTED:
            self._tell(call, response, began)
        return response

    async def _hand_on(self, call: Call, router: RequestRouter) -> PromptResponse:
        """Have a router answer: it calls back for each model that it asks."""
        tap = call.tap
        try:
            await self._asking.make_sure(call)
            return await router.aroute(
                call.request, on_text=tap.on_text, sink=tap.sink, identity=call.identity
            )
        except (LedgerError, LeaseLostError):
            raise
        except NotYoursError as error:
            call.handed_on = None
            return await self._asking.reject(call, "SESSION_NOT_YOURS", error.message)
        except CannotContinueError as error:
            return await self._asking.reject(call, error.code, error.message, param=error.param)
        except RemitError as error:  # The request or the configuration of its route is invalid.
            return await self._asking.reject(call, "INVALID_INPUT", error.message)

    async def reject(
        self,
        request: PromptRequest,
        code: str,
        message: str,
        *,
        retry_after_s: float | None = None,
        identity: Identity | None = None,
    ) -> PromptResponse:
        """Refuse a request before anything is sent, on record: for routers."""
        call = Call(request, StreamTap(None, None), identity, encode_sent(request).context_hash)
        response = await self._asking.reject(call, code, message, retry_after_s=retry_after_s)
        self._tell(call, response, time.monotonic_ns())
        return response
