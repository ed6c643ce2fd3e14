"""The gateway of a root: its parts, wired together, and what programs ask of it.

:mod:`remit.gateway.call` is the path of a call.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal

from remit.gateway.admission import Admission
from remit.gateway.attempt import Attempts
from remit.gateway.auth import AuthProvider, Identity, KeyStore
from remit.gateway.batches import Batches, Planner, Results
from remit.gateway.billing import Billing, estimated_input, input_bound
from remit.gateway.budget import Amount, TokenBudgeter
from remit.gateway.call import CallPath, tell
from remit.gateway.choice import Chooser, Names
from remit.gateway.circuit import CircuitState
from remit.gateway.circuit_breakers import Breakers, CircuitBreaker
from remit.gateway.config import RouterConfig
from remit.gateway.inflight import InFlightCalls
from remit.gateway.memory import LARGE_BYTES, run_large
from remit.gateway.outgoing_requests import Candidates, speaks
from remit.gateway.provider_objects import Objects
from remit.gateway.stream import StreamTap
from remit.gateway.transport import AnyProvider
from remit.gateway.validation import MAX_TOKENS, Sent, encode_sent
from remit.gateway.values import (
    Call,
    CallReport,
    Candidate,
    Choice,
    OnRecord,
    Refusal,
    RefusedError,
)
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import (
    ModelCapabilities,
    PromptRequest,
    PromptResponse,
    RouteOutcome,
    TextSink,
)
from remit.kernel.loops import run_blocking
from remit.ledger import LedgerClient
from remit.providers import EventSink, Outgoing, WireProvider
from remit.providers.prices import PriceTable

BudgetMode = Literal["enforce", "warn", "off"]


_NOTHING = Amount(0, 0)


class LLMGateway:
    """The gateway through which every model call goes.

    Register providers first (:meth:`register_provider`). :meth:`aroute` makes a model call,
    :meth:`pass_on` another request to a provider, :meth:`reject` records a refusal, :meth:`recover`
    settles calls of dead processes. The gateway closes neither the ledger nor the providers. Making
    it reads the circuit breakers.

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
        LedgerError: the circuit breakers cannot be read.
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
        self.observers: list[Callable[[CallReport], None]] = []
        self._tell = functools.partial(tell, self.observers)
        self._outage = ledger_client.outage
        self._keys = KeyStore(ledger_client)
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
            refresh=self._breakers.refresh,
        )
        self._billing = Billing(prices or PriceTable.shipped(), config)
        self._candidates = candidates = Candidates(
            self._names, self._providers, Objects(ledger_client), self._billing, config,
            enforce=budgeter is not None and budget_mode == "enforce",
        )  # fmt: skip
        self._admission = Admission(auth_provider, dev_mode, self._keys)
        attempts = Attempts(
            ledger_client, self._in_flight, config, self._tell, self._breakers.is_current,
            mode=budget_mode,
        )  # fmt: skip
        if config.cache_keys or config.cache_contracts:
            from remit.gateway.answer_cache import AnswerCache

            attempts.cache = AnswerCache(ledger_client, config)
        self._path = CallPath(
            ledger_client, self._admission, self._names, candidates, self._breakers, attempts,
            self._in_flight, budgeter if budget_mode == "enforce" else None, config, self._tell,
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

    def register_provider(self, provider_id: str, provider: AnyProvider) -> None:
        """Make ``provider`` reachable under ``provider_id``.

        A provider that had this id is replaced and not closed.

        Args:
            provider_id: the id in requests and records.
            provider: an object with ``send``, ``asend``, ``astream`` or ``outgoing``; not checked.
        """
        self._providers[provider_id] = provider
        self._names.forget()

    def register_router(self, router: Chooser) -> None:
        """Let ``router`` choose models for requests whose ``model_id`` is one of its names.

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

        Unknown capabilities count as present. A router states those of its route. Models that the
        session has set aside are passed over.

        Args:
            request: the request; only its names are used.

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

        The number is that of the neutral form, one token for each byte and more.

        Args:
            request: the request.

        Raises:
            InvalidInputError: the request has no canonical form.
        """
        return input_bound(request, encode_sent(request))

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

        Args:
            request: the request; nothing is sent.

        Raises:
            InvalidInputError: the request has no canonical form.
        """
        return min(estimated_input(self._config, encode_sent(request)), MAX_TOKENS)

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

        Args:
            provider_id: the provider.
            model_id: the model.
        """
        return self._breakers.is_closed((provider_id, model_id))

    async def circuit(self, provider_id: str, model_id: str) -> tuple[CircuitState, float | None]:
        """Return the state of the circuit of a provider and model; takes no permit.

        Reads the database if this process's knowledge is too old. If the database cannot be read,
        that is logged and the known state is returned.

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

        Raises:
            LedgerError: the ledger cannot be read or written.
        """
        settled = self._in_flight.recover(
            self._config.orphan_policy,
            self._config.default_timeout_ms + self._config.lease_margin_ms,
        )
        self._breakers.prune()
        return settled

    def route(self, request: PromptRequest, *, on_text: TextSink | None = None) -> PromptResponse:
        """Do as :meth:`aroute` for callers without an event loop.

        Blocks.

        Args:
            request: the request.
            on_text: receives the answer's text as it comes; None to receive none.

        Raises:
            InvalidInputError: the caller is the background loop itself.
            LedgerError, LeaseLostError: as :meth:`aroute`.
        """
        return run_blocking(self.aroute(request, on_text=on_text))

    def aroute(
        self,
        request: PromptRequest,
        *,
        on_text: TextSink | None = None,
        sink: EventSink | None = None,
        identity: Identity | None = None,
        choice: Choice | None = None,
    ) -> Coroutine[Any, Any, PromptResponse]:
        """Send one request, record it, and return the awaitable response.

        A call that fails or is refused is a response with an error code. A refused call is recorded
        as ``PROMPT_REJECTED`` and not sent. Each attempt has a ``DISPATCH`` first, with a
        reservation if budgets are charged, and one ``EXCHANGE`` afterwards. A repeated idempotency
        key gets the recorded answer. Observers are called at the end; for a routed call, after each
        attempt, a refusal or a recorded answer.

        Args:
            request: the request.
            on_text: receives the answer's text as it comes; None to receive none.
            sink: receives every event of a stream; the stream waits for it. None to receive none.
            identity: the caller, if the caller is already authenticated; None to authenticate here.
            choice: the models to ask, if the caller has chosen them; None to choose here.

        Raises:
            LedgerUnavailableError: the ledger is known to be away; nothing was sent. Raised by the
                call itself; the errors below are raised by the awaitable.
            LedgerError: the record could not be written. Before the call: nothing was sent. After
                the call: it stays in flight and recovery settles it.
            LeaseLostError: the answer came after the call was settled as an orphan.
            CancelledError: the caller was cancelled; what was begun is recorded.
        """
        if self._outage.reason:
            self._outage.check()
        began_ns = time.monotonic_ns()
        call = Call(request, StreamTap(on_text, sink), identity, choice, began_ns=began_ns)
        return self._path.answer(call)

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
            LedgerError: the ledger cannot be written.
            CircuitChangedError: the circuit was opened in the meantime; nothing was sent.
            CancelledError: the caller was cancelled; what was begun is recorded.
        """
        self._outage.check()
        raw = outgoing.body.raw
        hashed = (
            hashlib.sha256(raw) if len(raw) < LARGE_BYTES else await run_large(hashlib.sha256, raw)
        )
        sent = Sent((), b"", hashed.hexdigest(), len(raw))
        call = Call(request, StreamTap(None, sink), identity, sent=sent)
        call.on_record = on_record
        try:
            self._admission.admit(call)
        except RefusedError as error:
            return await self._path.refuse(call, error.refusal)
        call.claim = None  # such a call is repeated under another record
        name, provider = agent or ("", self._providers[provider_id])
        tariff = self._billing.of(provider_id, "")
        if agent is not None:
            tariff = self._billing.per_call((provider_id, name), amount.nano or 0)
        to = Candidate(
            provider_id, name, provider, tariff, request, sent, outgoing, amount,
            (amount.tokens, 0, None),
        )  # fmt: skip
        began_ns = time.monotonic_ns()
        response = await self._path.send_once(call, to, name or outgoing.body.endpoint.name)
        if response.outcome is not RouteOutcome.REJECTED:
            self._tell(call, response, began_ns)
        return response

    async def reject(
        self,
        request: PromptRequest,
        code: str,
        message: str,
        *,
        retry_after_s: float | None = None,
        identity: Identity | None = None,
    ) -> PromptResponse:
        """Record the refusal of a request and return it.

        Appends one ``PROMPT_REJECTED`` entry and calls the observers. Nothing is checked or sent.

        Args:
            request: the request.
            code: the error code.
            message: the reason.
            retry_after_s: seconds until a retry can succeed; None if unknown.
            identity: the caller; None if unauthenticated.

        Raises:
            InvalidInputError: the request has no canonical form.
            LedgerWriteError: the refusal could not be recorded.
            LedgerError: the ledger cannot be written.
        """
        call = Call(request, StreamTap(None, None), identity)
        call.request_hash = encode_sent(request).context_hash
        response = await self._path.refuse(call, Refusal(code, message, None, retry_after_s))
        self._tell(call, response, time.monotonic_ns())
        return response


PromptRouter = LLMGateway
"""The name of the gateway in the original design."""
