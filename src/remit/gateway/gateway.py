"""The pipeline of a model call.

:meth:`LLMGateway.aroute` takes the steps in order: check the request, authenticate the caller,
determine ownership and budget scopes, then hand the call to a router or to
:mod:`remit.gateway.failover`, which asks models in turn. Each attempt is made by
:mod:`remit.gateway.attempts`. A call that fails is an outcome, not an exception.
"""

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
from remit.gateway.failover import Failover
from remit.gateway.inflight import InFlightCalls
from remit.gateway.leases import LeaseLostError
from remit.gateway.memory import LARGE_BYTES, run_large
from remit.gateway.naming import Names
from remit.gateway.objects import Objects
from remit.gateway.request_router import RequestRouter, Routed
from remit.gateway.stream_tap import StreamTap
from remit.gateway.tenancy import NotYoursError, ownership_of
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
    """The gateway through which every model call goes.

    Args:
        ledger_client: records calls; its database stores keys, budgets and calls in flight.
        budgeter: the budgets; None to charge nothing.
        config: defaults, timeouts, retries; None for the defaults.
        auth_provider: authenticates callers; without one, calls outside dev mode are refused.
        dev_mode: skip authentication.
        budget_mode: ``enforce`` refuses calls over a limit, ``warn`` records a warning and sends
            them, ``off`` only counts spending.
        prices: prices of models; None for the shipped table.

    Attributes:
        batches: the batches of providers, polled and settled.
        observers: functions that are called with the report of each ended call, in order. An error
            of an observer is logged.

    Raises:
        InvalidInputError: ``budget_mode`` has another value.
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
        self._failover = Failover(
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
        """Make ``provider`` reachable under ``provider_id``.

        A provider that had this id is replaced and not closed.
        """
        self._providers[provider_id] = provider
        self._names.forget()

    def register_router(self, router: RequestRouter) -> None:
        """Let ``router`` answer requests whose ``model_id`` is one of its names.

        An earlier router is replaced.
        """
        self._names.router = router
        self._names.forget()

    @property
    def policy_epoch(self) -> int:
        """The policy epoch recorded on every exchange; omitted when 0."""
        return self._config.policy_epoch

    @property
    def providers(self) -> Mapping[str, AnyProvider]:
        """Registered providers, keyed by provider id."""
        return self._providers

    @property
    def model_prefixes(self) -> Mapping[str, str]:
        """The provider of model names with a prefix, keyed by prefix."""
        return self._config.model_prefixes

    @property
    def in_flight(self) -> InFlightCalls:
        """The calls that were dispatched and have no recorded answer yet."""
        return self._in_flight

    def capabilities(self, request: PromptRequest) -> ModelCapabilities:
        """Return the capabilities of the model that would get ``request``.

        Unknown capabilities count as present. A router states those of its route.

        Raises:
            NotFoundError: the route that the request names does not exist.
        """
        router = self._names.router_of(request)
        if router is not None:
            return router.capabilities(request)
        provider_id, model_id = self._names.left(request)[0]
        capabilities = getattr(self._providers.get(provider_id), "capabilities", None)
        answer = capabilities(model_id) if callable(capabilities) else None
        return answer if isinstance(answer, ModelCapabilities) else ModelCapabilities()

    def next_best(self, model: str) -> list[str]:
        """Return the fallbacks of a model, best first; empty if it has none.

        Args:
            model: the model as ``provider/model``; the results have the same form.
        """
        provider_id, _, model_id = model.partition("/")
        return ["/".join(one) for one in self._names.next_best(provider_id, model_id)]

    def speaks(self, request: PromptRequest) -> bool:
        """Return True if the provider of a request would be sent its body without translation.

        True if the provider is not registered.

        Args:
            request: the request; it must have a body.
        """
        provider = self._providers.get(self._names.left(request)[0][0])
        return provider is None or speaks(provider, request.body)

    def how_to_set_up(self, provider_id: str) -> str:
        """Return the variable, setting or command that sets a provider up."""
        return self._names.how_to_set_up(provider_id)

    @property
    def default_model(self) -> str:
        """The shortest name of the model for requests that name none."""
        return self.name_of(self._config.default_provider, self._config.default_model)

    def name_of(self, provider_id: str, model_id: str) -> str:
        """Return the shortest name that leads to a provider's model.

        The result is the model's own name if that resolves to the model, else ``provider/model``.

        Args:
            provider_id: the provider.
            model_id: the model.
        """
        if self._names.leads_to(model_id) == (provider_id, model_id):
            return model_id
        return f"{provider_id}/{model_id}"

    def input_bound(self, request: PromptRequest) -> int:
        """Return the most input tokens that ``request`` can be billed for, as budgets reserve them.

        Raises:
            InvalidInputError: the request has no canonical form.
        """
        return input_bound(self._config, request, encode_sent(request))

    def cost_bound(self, request: PromptRequest, provider_id: str, model_id: str) -> int | None:
        """Return the most nano-dollars that a model can bill for ``request``; None if unbounded.

        The result is None too if the model has no price. Nothing is reserved.

        Args:
            request: the request.
            provider_id: the provider.
            model_id: the model.

        Raises:
            InvalidInputError: the request has no canonical form.
        """
        amount = self._billing.of(provider_id, model_id).bound(request, encode_sent(request)).amount
        return amount.nano if amount.bounded else None

    def estimate_tokens(self, request: PromptRequest) -> int:
        """Return an estimate of the input tokens of ``request``, rather too high than too low.

        Raises:
            InvalidInputError: the request has no canonical form.
        """
        return estimate(self._config, encode_sent(request), None, 0, 0, (MAX_TOKENS, 0))[0]

    def breaker(self, provider_id: str, model_id: str) -> CircuitBreaker:
        """Return the circuit breaker of one provider and model.

        All processes of the ledger share its state. The name need not be known.
        """
        return CircuitBreaker(self._breakers, (provider_id, model_id))

    @property
    def breakers(self) -> dict[tuple[str, str], CircuitBreaker]:
        """Known circuit breakers, keyed by (provider, model). May read the database, so it
        blocks.
        """
        return self._breakers.known()

    def is_closed(self, provider_id: str, model_id: str) -> bool:
        """Return True if the circuit of a provider and model is known to be closed.

        A closed circuit lets calls through. Never waits: False also if the state must be read
        first.
        """
        return self._breakers.is_closed((provider_id, model_id))

    async def circuit(self, provider_id: str, model_id: str) -> tuple[CircuitState, float | None]:
        """Return the state of the circuit of a provider and model; takes no permit.

        Reads the database if this process's knowledge is too old.

        Args:
            provider_id: the provider.
            model_id: the model.

        Returns:
            The state, and the seconds until an open circuit may be retried; None if a call is
            possible now.
        """
        return await self._breakers.circuit(provider_id, model_id)

    def recover(self) -> list[str]:
        """Settle calls whose process died, and remove circuits that are no longer needed. Blocks.

        The configured orphan policy charges or releases the reservations. Each settled call gets
        one ``EXCHANGE_ORPHANED`` entry.

        Returns:
            The ids of these entries.
        """
        settled = self._in_flight.recover(
            self._config.orphan_policy,
            self._config.default_timeout_ms + self._config.lease_margin_ms,
        )
        self._breakers.prune()
        return settled

    def route(self, request: PromptRequest, *, on_text: TextSink | None = None) -> PromptResponse:
        """Do as :meth:`aroute` for callers without an event loop. Blocks."""
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
        """Send one request, record it, and return the response.

        A call that fails or is refused is a response with an error code. A refused call is recorded
        as ``PROMPT_REJECTED`` and not sent. Each attempt has a ``DISPATCH`` first, with a
        reservation if budgets are charged, and one ``EXCHANGE`` afterwards. Observers are called at
        the end.

        Args:
            request: the request.
            on_text: receives the answer's text as it comes; None to receive none.
            sink: receives every event of a stream; the stream waits for it. None to receive none.
            identity: the caller, if the caller is already authenticated; None to authenticate here.
            routed: the router's decision, if a router chose the model; else None.

        Raises:
            LedgerUnavailableError: the ledger is known to be away; nothing was sent.
            LedgerWriteError: the record could not be written. Before the call: nothing was sent.
                After the call: it stays in flight and recovery settles it.
            LeaseLostError: the answer came after the call was settled as an orphan.
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
        """Call the observers with the report of an ended call. Their failures are logged."""
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
        """Check and authenticate a call, then return the awaitable that answers it."""
        request = call.request
        if call.routed is None:  # A router's request passed the check before it was routed.
            self._outage.check()
        if problem := check_request(request):
            return self._failover.reject(call, "INVALID_INPUT", problem)
        try:
            sent = encode_sent(request)
        except InvalidInputError as error:
            return self._failover.reject(call, "INVALID_INPUT", error.message)
        call.request_hash = sent.context_hash
        if problem := authenticate(call, self._auth, self._dev_mode, self._keys):
            return self._failover.reject(call, "AUTH_ERROR", problem)
        try:
            call.ownership = ownership_of(
                call.identity, request.session_id, request.work_order_id or ""
            )
        except NotYoursError as error:
            return self._failover.reject(call, "SESSION_NOT_YOURS", error.message)
        call.path = path_of(call)
        if call.routed is None:
            call.handed_on = self._names.router_of(request)
        if call.handed_on is not None:
            return self._hand_on(call, call.handed_on)
        if request.keeper is not None:
            return self._in_own_session(call, sent)
        if request.idempotency_key:
            return self._failover.ask_once(call, sent, request.idempotency_key)
        return self._failover.ask(call, sent)

    async def _in_own_session(self, call: Call, sent: Sent) -> PromptResponse:
        """Claim the session, then answer a call that reads its history."""
        try:
            await self._failover.make_sure(call)
        except NotYoursError as error:
            return await self._failover.reject(call, "SESSION_NOT_YOURS", error.message)
        if call.request.idempotency_key:
            return await self._failover.ask_once(call, sent, call.request.idempotency_key)
        return await self._failover.ask(call, sent)

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
        """Send a body that is not a model call to a provider once, and return the response.

        The call has a ``DISPATCH``, a reservation of ``amount`` and an ``EXCHANGE``. A refusal is
        recorded as ``PROMPT_REJECTED`` and returned as a response; then nothing was sent. Observers
        are called unless the call was refused.

        Args:
            request: the attribution: session, agent, contract and so on.
            provider_id: the provider.
            outgoing: the body to send.
            identity: the caller; None to authenticate the request's token.
            amount: the amount to reserve.
            on_record: rows that a success changes in other tables; None for none.
            sink: receives a stream as it comes; the stream waits for it. None to receive none.
            agent: another agent's name and address to use instead of the provider; ``amount`` is
                then the price of the call. None to use the provider.

        Raises:
            KeyError: the provider is not registered, and ``agent`` is None.
            LedgerUnavailableError, LedgerWriteError, LeaseLostError: as :meth:`aroute`.
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
            return await self._failover.reject(call, "INVALID_INPUT", problem)
        if problem := authenticate(call, self._auth, self._dev_mode, self._keys):
            return await self._failover.reject(call, "AUTH_ERROR", problem)
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
        response = await self._failover.once(call, to, name or outgoing.body.endpoint.name)
        if response.outcome is not RouteOutcome.REJECTED:
            self._tell(call, response, began)
        return response

    async def _hand_on(self, call: Call, router: RequestRouter) -> PromptResponse:
        """Let a router answer. The router calls :meth:`aroute` for each model that it asks."""
        tap = call.tap
        try:
            await self._failover.make_sure(call)
            return await router.aroute(
                call.request, on_text=tap.on_text, sink=tap.sink, identity=call.identity
            )
        except (LedgerError, LeaseLostError):
            raise
        except NotYoursError as error:
            call.handed_on = None
            return await self._failover.reject(call, "SESSION_NOT_YOURS", error.message)
        except CannotContinueError as error:
            return await self._failover.reject(call, error.code, error.message, param=error.param)
        except RemitError as error:  # The request or the configuration of its route is invalid.
            return await self._failover.reject(call, "INVALID_INPUT", error.message)

    async def reject(
        self,
        request: PromptRequest,
        code: str,
        message: str,
        *,
        retry_after_s: float | None = None,
        identity: Identity | None = None,
    ) -> PromptResponse:
        """Record the refusal of a request for a router and return it.

        Appends one ``PROMPT_REJECTED`` entry and calls the observers. Nothing is sent.

        Args:
            request: the request.
            code: the error code.
            message: the reason.
            retry_after_s: seconds until a retry can succeed; None if unknown.
            identity: the caller; None if unauthenticated.

        Raises:
            InvalidInputError: the request has no canonical form.
            LedgerWriteError: the refusal could not be recorded.
        """
        call = Call(request, StreamTap(None, None), identity, encode_sent(request).context_hash)
        response = await self._failover.reject(call, code, message, retry_after_s=retry_after_s)
        self._tell(call, response, time.monotonic_ns())
        return response
