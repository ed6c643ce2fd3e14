"""The state of one call in the gateway, from its request to its attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from remit.gateway.auth import Identity
from remit.gateway.billing import Tariff
from remit.gateway.budget import Amount, Hold
from remit.gateway.request_router import RequestRouter, Routed
from remit.gateway.steps import Claim
from remit.gateway.stream_tap import StreamTap
from remit.gateway.tenancy import Ownership
from remit.gateway.transport import AnyProvider
from remit.gateway.validation import Sent
from remit.kernel.exchange import PromptRequest, PromptResponse, Reply, RouteOutcome
from remit.ledger import Transaction
from remit.providers import Outgoing, ProviderResponse

__all__ = ["Attempt", "Call", "CallReport", "Candidate", "Failure", "OnRecord"]


class OnRecord(Protocol):
    """Rows that a recorded answer changes in other tables, such as those of a batch."""

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
        """Change the rows in the transaction that records the answer; uses ``execute_many``
        only.
        """
        ...


class Call(Struct):
    """A request and its state in the gateway.

    Attributes:
        request_hash: SHA-256 of the request, 64 hex; the idempotency key belongs to it.
        path: budget scopes that pay.
        ownership: session and work order whose ownership must be checked; None if none must be.
        claim: caller, idempotency key and the call's token; None without an idempotency key.
        claimed: True once the claim is recorded.
        asked_model_id: the model that the request means.
        attempts: number of attempts begun.
        last: the response of the latest attempt.
        passed_over: the models that did not answer, each with its error code.
        routed: the router's decision for this call; None without a router.
        handed_on: the router that answers the request, if the request names a route.
        on_record: rows that a recorded answer changes in other tables.
        translated: providers that lacked an endpoint of the body's form when they were asked.
        tool_uses: how often a tool of the provider may be used if the request does not say; None
            for the configured number.
    """

    request: PromptRequest
    tap: StreamTap
    identity: Identity | None = None
    request_hash: str = ""
    path: tuple[str, ...] = ()
    ownership: Ownership | None = None
    claim: Claim | None = None
    claimed: bool = False
    asked_model_id: str = ""
    attempts: int = 0
    last: PromptResponse | None = None
    passed_over: list[tuple[str, str]] = []
    routed: Routed | None = None
    handed_on: RequestRouter | None = None
    on_record: OnRecord | None = None
    translated: set[str] = set()
    tool_uses: int | None = None


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

    Attributes:
        tariff: bounds and bills of the model.
        request: the request; in neutral form if the provider speaks no dialect.
        sent: the encoded request.
        outgoing: the body to send; None for providers in neutral form.
        amount: upper bound of the call.
        bound: upper bound of the input and output tokens.
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
    bound: tuple[int, int]
    uses: int = 0


class Failure(Struct, frozen=True):
    """A failed attempt.

    Attributes:
        outcome: the outcome to record.
        code: the error code.
        message: the reason.
        billing: ``nothing`` if the provider did not bill; ``arrived`` if a stream broke off after
            its begin; ``bound`` if the cost is unknown.
        retry_after_s: seconds after which the provider wants to be asked again; None if unknown.
        reply: the provider's answer; None without one.
        answer: the partial answer, if the provider reported its usage; else None.
    """

    outcome: RouteOutcome
    code: str
    message: str
    billing: Literal["nothing", "arrived", "bound"] = "nothing"
    retry_after_s: float | None = None
    reply: Reply | None = None
    answer: ProviderResponse | None = None


class Attempt(Struct):
    """A ``DISPATCH`` and its ``EXCHANGE``.

    Attributes:
        number: the number of the attempt, from 1.
        asked_model_id: the model that the request means.
        hold: the reservation; None without budgets.
        sent: whether anything may have been sent.
        retry_of: the ``EXCHANGE`` of the attempt before.
        first_after_ms: milliseconds until the first piece of a stream.
        streamed: the answer's text as far as it came.
        arrived: a broken stream's answer as far as it came, as JSON text.
        decision_id: the routing decision that chose the model.
        fallback_from: the models that did not answer, each with its error code.
        drawn: metadata that state how the model was drawn at random.
    """

    number: int
    to: Candidate
    asked_model_id: str
    hold: Hold | None = None
    dispatch_entry_id: str = ""
    sent: bool = False
    retry_of: str = ""
    latency_ms: float = 0.0
    first_after_ms: float | None = None
    streamed: str = ""
    arrived: bytes = b""
    decision_id: str = ""
    fallback_from: Sequence[tuple[str, str]] = ()
    drawn: Mapping[str, Any] = {}
