"""The value objects of a call: the call, its candidates, its attempts and their failures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from remit.gateway.auth import Identity
from remit.gateway.billing import Tariff
from remit.gateway.bounds import UsageBound
from remit.gateway.budget import Amount, Hold
from remit.gateway.key_queries import CachedAnswer
from remit.gateway.session_owners import Ownership
from remit.gateway.stream import StreamTap
from remit.gateway.transport import AnyProvider
from remit.gateway.validation import Sent
from remit.kernel.exchange import PromptRequest, PromptResponse, Reply, RouteOutcome
from remit.ledger import Prepared, Transaction
from remit.providers import Outgoing, ProviderResponse

Claim = tuple[str, str, str]
"""Caller, idempotency key, and the call's own token."""


class OnRecord(Protocol):
    """Rows that a recorded answer changes in other tables, such as those of a batch.

    Called only for an answer, in the transaction that records it.
    """

    @property
    def stated(self) -> Mapping[str, Any]:
        """Metadata to add to the ``EXCHANGE``."""
        ...

    def keeps_hold(self, answer: ProviderResponse) -> bool:
        """Return True if the call's reservation stays after the answer."""
        ...

    def __call__(
        self, tx: Transaction, exchange_id: str, attempt: Attempt, answer: ProviderResponse
    ) -> None:
        """Change the rows in the transaction that records the answer, by ``execute_many`` only.

        Args:
            tx: the transaction.
            exchange_id: id of the ``EXCHANGE``.
            attempt: the attempt that was answered.
            answer: the answer.
        """
        ...


class Model(NamedTuple):
    """A model that a choice names.

    Immutable.

    Attributes:
        provider_id: the provider.
        model_id: the provider's name of the model.
        name: the name under which records list the model.
        obstacle: error code and reason if the model cannot be asked; None if it can.
    """

    provider_id: str
    model_id: str
    name: str
    obstacle: tuple[str, str] | None = None


class Refusal(NamedTuple):
    """Why a call, or a call of one model, is not sent.

    Immutable.

    Attributes:
        code: the error code.
        message: the reason.
        param: the field at fault; None without one.
        retry_after_s: seconds until a retry can succeed; None if unknown.
        remaining: tokens left in the budget; None if no budget was asked.
    """

    code: str
    message: str
    param: str | None = None
    retry_after_s: float | None = None
    remaining: int | None = None


class RefusedError(Exception):
    """A call, or a call of one model, is refused before anything is sent.

    Not a RemitError: the gateway turns it into a recorded refusal.

    Args:
        refusal: the reason.

    Attributes:
        refusal: the same reason.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class DecisionStep(Struct):
    """The step that records a routing decision, run right after the step that records the answer.

    Attributes:
        opener: opens the stage that the step belongs to.
        step: the step, in the stage's own form.
        exchange_entry_id: the ``EXCHANGE`` of the answer, set before the step is run.
        result: the result of the step; None if it failed, which is logged.
    """

    opener: Callable[[Transaction, Sequence[Any]], Any]
    step: Any = None
    exchange_entry_id: str = ""
    result: Any = None


class Part(Struct):
    """A call among several that a choice makes for one request.

    Attributes:
        request: the request of the call.
        choice: the models of the call, in order.
        listens: True if the listeners of the request get the call's stream.
        is_late: True if the call was cancelled at its time limit; set by the gateway.
    """

    request: PromptRequest
    choice: Choice
    listens: bool = False
    is_late: bool = False


Parts = Generator[
    tuple[Sequence[Part], float | None], Sequence[PromptResponse | None], PromptResponse | None
]
"""Yields calls to make at once with their time limit in seconds; receives the response of each that
succeeded; returns the response of the request, or None if nothing was sent."""

IsErased = Callable[[], Awaitable[bool]]
"""Returns True if an erasure may reach the request, so that no decision is recorded by itself."""


class Choice:
    """The models to ask for a call, in order, and the facts to record about the choice.

    This class is the choice by name: the named model, then its fallbacks, with retries. Nothing is
    recorded about it, and one object may serve many calls. A router returns a subclass, made for
    one call, whose methods take notes.

    Args:
        models: the models, best first.
        asked_model_id: the model that the request means; empty for the name of the asked model.
        max_retries: most retries of one model.

    Attributes:
        is_routed: True if a router made the choice.
        is_part: True for a part of a request; refusals of parts are not recorded.
        decision_id: the id of the recorded decision; empty without one.
        timeout_s: longest wait in seconds for the answer of one model, or for the first piece of
            its stream; None for the gateway's limit alone.
        passed_over: models that did not answer parts made before, each with its error code.
    """

    is_routed = False
    is_part = False
    decision_id = ""
    timeout_s: float | None = None
    passed_over: Sequence[tuple[str, str]] = ()

    def __init__(
        self, models: Sequence[Model], asked_model_id: str = "", max_retries: int = 0
    ) -> None:
        self.models = models
        self.asked_model_id = asked_model_id
        self.max_retries = max_retries

    def parts(self) -> Parts | None:
        """Return the generator of the calls to make for the request; None for one call."""
        return None

    def ends_call(self, code: str, *, by_budget: bool, is_first: bool) -> bool:
        """Return True if no other model may be asked after one was refused.

        In this class, a budget's refusal ends the call, and so does a first model whose provider is
        not registered.

        Args:
            code: the error code of the refusal.
            by_budget: True if a budget refused the call.
            is_first: True if no model was passed over before.
        """
        # No other provider may answer for a model that its name or prefix assigns to one provider.
        return by_budget or (is_first and code == "PROVIDER_NOT_FOUND")

    def falls_back(self, code: str) -> bool:
        """Return True if another model may be asked after a sent call failed with this code."""
        return code in _FALLS_BACK

    def circuit_open_text(self, model: Model, retry_after_s: float | None) -> str:
        """Return the reason for passing over a model whose circuit is open.

        This class names the model alone.

        Args:
            model: the model.
            retry_after_s: seconds until the circuit may be tried; None if unknown.
        """
        return circuit_open_text(f"{model.provider_id}/{model.model_id}")

    def pass_over(self, model: Model, refusal: Refusal, response: PromptResponse) -> None:
        """Note a model that did not answer; this class does nothing.

        Args:
            model: the model.
            refusal: the reason.
            response: the response of the call, sent or refused.
        """

    def drawn(self, model: Model, number: int) -> Mapping[str, Any]:
        """Return metadata of the ``EXCHANGE`` that state how the model was drawn at random.

        Empty in this class, which draws nothing.

        Args:
            model: the model.
            number: number of the attempt, from 1.
        """
        return _NO_METADATA

    def decide(self, model: Model, latency_ms: float, exchange: Prepared) -> DecisionStep | None:
        """Return the step that records the decision with an answer; None for no record.

        None in this class. An error is logged by the gateway; the answer is recorded all the same.

        Args:
            model: the model that answered.
            latency_ms: milliseconds until the answer.
            exchange: the encoded ``EXCHANGE``.
        """
        return None

    def note_recorded(self, model: Model, response: PromptResponse) -> None:
        """Note the response of a recorded attempt, also if the caller has gone away."""

    def refusal(self, refusals: Sequence[Refusal]) -> Refusal:
        """Return the refusal of a call that no model could be asked for.

        The result is the last open circuit if there is one, otherwise the first refusal.

        Args:
            refusals: the refusals of the models, in order; at least one.
        """
        open_circuits = [one for one in refusals if one[0] == "CIRCUIT_OPEN"]
        return open_circuits[-1] if open_circuits else refusals[0]

    async def ended(self, response: PromptResponse, is_erased: IsErased) -> PromptResponse:
        """Record the decision unless it was recorded with the answer; return the response."""
        return response

    async def abandon(self, is_erased: IsErased) -> None:
        """Record the decision of a cancelled request if one of its calls was recorded."""

    def close(self) -> None:
        """Release the held resources once all calls have ended."""


_NO_METADATA: Mapping[str, Any] = {}
# Another model may succeed if this one is ill, full, locked or too small.
_FALLS_BACK = frozenset({
    "TIMEOUT", "RATE_LIMITED", "SERVER_ERROR", "PROVIDER_ERROR", "AUTH_ERROR", "CONTEXT_LENGTH",
    "LOCAL_ERROR",
})  # fmt: skip


def circuit_open_text(name: str) -> str:
    """Return the reason for not sending to a provider or model whose circuit is open."""
    return f"{name} failed repeatedly, so its circuit is open; use another model, or retry later"


class Call(Struct):
    """A request and its state in the gateway.

    Mutable; one object for each call.

    Attributes:
        request: the request.
        tap: the listener of the call's stream.
        identity: the caller; None until it is authenticated, and in dev mode.
        choice: the models to ask; None until they are chosen.
        sent: the request, encoded; None until it is admitted.
        request_hash: SHA-256 of the request, 64 hex; the idempotency key belongs to it.
        path: budget scopes that pay.
        ownership: session and work order whose ownership must be checked; None if none must be.
        claim: caller, idempotency key and the call's token; None without an idempotency key.
        claimed: True once the claim is recorded.
        attempts: number of attempts begun.
        is_recorded: True once a refusal, or an attempt of a part, may be recorded.
        last: the response of the latest recorded attempt; None if nothing was sent.
        since: id of the latest ``DISPATCH``, or of the newest entry when the call began to wait for
            money; empty before. A later erasure that may reach the request refuses the call.
        read_after: id of the newest entry when the history was read; empty without a history.
        waited_s: seconds that all attempts waited for money, which has one limit for the call.
        passed_over: the models that did not answer, each with its error code.
        on_record: rows that a recorded answer changes in other tables; None for none.
        translated: providers that lacked an endpoint of the body's form when they were asked.
        unfolded: providers that no longer stored the previous response when they were asked.
        tool_uses: how often a tool of the provider may be used if the request does not say; None
            for the configured number.
        began_ns: time of arrival by the monotonic clock.
        cache_name: the key under which the answer cache stores the answer; None outside the cache.
    """

    request: PromptRequest
    tap: StreamTap
    identity: Identity | None = None
    choice: Choice | None = None
    sent: Sent | None = None
    request_hash: str = ""
    path: tuple[str, ...] = ()
    ownership: Ownership | None = None
    claim: Claim | None = None
    claimed: bool = False
    attempts: int = 0
    is_recorded: bool = False
    last: PromptResponse | None = None
    since: str = ""
    read_after: str = ""
    waited_s: float = 0.0
    passed_over: tuple[tuple[str, str], ...] = ()
    on_record: OnRecord | None = None
    translated: frozenset[str] = frozenset()
    unfolded: frozenset[str] = frozenset()
    tool_uses: int | None = None
    began_ns: int = 0
    cache_name: tuple[str, str] | None = None

    def part(self, part: Part) -> Call:
        """Return the call of one part, with the marks of the content read so far."""
        tap = self.tap
        heard = StreamTap(tap.on_text, tap.sink) if part.listens else StreamTap(None, None)
        made = Call(
            part.request, heard, self.identity, part.choice,
            since=self.since, read_after=self.read_after, waited_s=self.waited_s,
        )  # fmt: skip
        made.passed_over = tuple(part.choice.passed_over)
        return made


class CallReport(Struct):
    """The report of an ended call to observers.

    Attributes:
        request: the request.
        response: the response.
        identity: the caller; None if unauthenticated.
        started_ns: time of arrival, nanoseconds since 1970.
        first_after_ms: milliseconds until the first piece of the stream; None without a stream.
        attempts: number of attempts; 0 if nothing was sent.
    """

    request: PromptRequest
    response: PromptResponse
    identity: Identity | None
    started_ns: int
    first_after_ms: float | None
    attempts: int


class Candidate(Struct):
    """A model that may answer, with the request that it would be sent.

    Not changed once made.

    Attributes:
        provider_id: the provider.
        model_id: the model, as the provider names it.
        provider: the registered provider object.
        tariff: bounds and bills of the model.
        request: the request; in neutral form if the provider speaks no dialect.
        sent: the encoded request.
        outgoing: the body to send; None for providers in neutral form.
        amount: upper bound of the call.
        bound: upper bound of the usage.
        uses: the limit on uses of the provider's tools that was added to the request; 0 without
            one.
    """

    provider_id: str
    model_id: str
    provider: AnyProvider
    tariff: Tariff
    request: PromptRequest
    sent: Sent
    outgoing: Outgoing | None
    amount: Amount
    bound: UsageBound
    uses: int = 0


class Failure(Struct, frozen=True):
    """A failed attempt.

    Immutable.

    Attributes:
        outcome: the outcome to record.
        code: the error code.
        message: the reason.
        billing: ``nothing`` if the provider did not bill; ``arrived`` if a stream broke off after
            its begin; ``bound`` if the cost is unknown.
        retry_after_s: seconds after which the provider wants to be asked again; None if unknown.
        reply: the provider's answer; None without one.
        answer: the partial answer, if the provider reported its usage; else None.
        cause: as of :class:`PromptResponse`.
    """

    outcome: RouteOutcome
    code: str
    message: str
    billing: Literal["nothing", "arrived", "bound"] = "nothing"
    retry_after_s: float | None = None
    reply: Reply | None = None
    answer: ProviderResponse | None = None
    cause: str = ""


class Attempt(Struct):
    """A ``DISPATCH`` and its ``EXCHANGE``.

    Mutable: its steps set the fields.

    Attributes:
        number: the number of the attempt, from 1.
        to: the model and the request to send.
        asked_model_id: the model that the request means.
        retry_of: the ``EXCHANGE`` of the attempt before; empty for the first.
        fallback_from: the models that did not answer, each with its error code.
        decision_id: the routing decision that chose the model; empty without one.
        drawn: metadata that state how the model was drawn at random; None for none.
        model: the model as the choice names it; None if nothing was chosen.
        began_ns: time of the begin by the monotonic clock.
        hold: the reservation; None without budgets.
        dispatch_entry_id: the ``DISPATCH``; empty before it is committed.
        sent: whether anything may have been sent.
        result: the answer or the failure, once the attempt has ended.
        error: the exception that the attempt failed with; None for none.
        latency_ms: milliseconds from sending to the answer.
        first_after_ms: milliseconds until the first piece of a stream; None without one.
        streamed: the answer's text as far as it came.
        arrived: a broken stream's answer as far as it came, as JSON text.
        cached: the recorded answer that is given instead of sending anything; None to send.
    """

    number: int
    to: Candidate
    asked_model_id: str
    retry_of: str = ""
    decision_id: str = ""
    fallback_from: Sequence[tuple[str, str]] = ()
    drawn: Mapping[str, Any] | None = None
    model: Model | None = None
    began_ns: int = 0
    hold: Hold | None = None
    dispatch_entry_id: str = ""
    sent: bool = False
    result: ProviderResponse | Failure | None = None
    error: BaseException | None = None
    latency_ms: float = 0.0
    first_after_ms: float | None = None
    streamed: str = ""
    arrived: bytes = b""
    cached: CachedAnswer | None = None


class Tried(Struct, frozen=True):
    """The result of asking one model.

    Attributes:
        response: the response of the last attempt; None if nothing was sent.
        refusal: the reason why the model does not answer: a failure or a refusal; None if it does.
        by_budget: True if a budget refused the call.
        candidate: the request of the last attempt; None if none could be made.
    """

    response: PromptResponse | None
    refusal: Refusal | None = None
    by_budget: bool = False
    candidate: Candidate | None = None
