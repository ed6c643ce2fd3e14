"""One call on its way through the gateway, from what was asked to what is answered."""

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
from remit.gateway.tenancy import Named
from remit.gateway.transport import AnyProvider
from remit.gateway.validation import Sent
from remit.kernel.exchange import PromptRequest, PromptResponse, Reply, RouteOutcome
from remit.ledger import Transaction
from remit.providers import Outgoing, ProviderResponse

__all__ = ["Attempt", "Call", "CallReport", "Candidate", "Failure", "OnRecord"]


class OnRecord(Protocol):
    """What the answer of a call changes beside the record, in the transaction that records it."""

    @property
    def stated(self) -> Mapping[str, Any]:
        """Metadata that the ``EXCHANGE`` has besides its own."""
        ...

    def keeps_hold(self, answer: ProviderResponse) -> bool:
        """Whether what the call held lives on."""
        ...

    def __call__(
        self, tx: Transaction, exchange_id: str, attempt: Attempt, answer: ProviderResponse
    ) -> None:
        """Change it, by ``execute_many`` alone."""
        ...


class Call(Struct):
    """One request, and what has become of it so far.

    Attributes:
        request_hash: SHA-256, 64 hex, of what was asked; the idempotency key belongs to it.
        path: accounts that pay.
        named: what must be the caller's own, where they are held to it.
        claim: caller and idempotency key; ``claimed`` once they are taken.
        asked_model_id: the model that the request means.
        attempts: how many have been begun.
        last: what the latest of them came to.
        passed_over: the models that did not answer, and the error code of each.
        routed: what a router says of it, which chose the model.
        handed_on: the router that answers it, where it names a route.
        on_record: what an answer changes beside the record, in its transaction.
        translated: providers that had no endpoint of the body's form when they were asked.
        tool_uses: how often a tool of the provider's may be used if the request does not say;
            ``None``: as the configuration says.
    """

    request: PromptRequest
    tap: StreamTap
    identity: Identity | None = None
    request_hash: str = ""
    path: tuple[str, ...] = ()
    named: Named | None = None
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
    """What an observer gets when a call has ended.

    Attributes:
        started_ns: when it came in, nanoseconds since 1970.
        first_after_ms: when the first piece of its stream came; ``None`` without a stream.
        attempts: how often something was sent.
    """

    request: PromptRequest
    response: PromptResponse
    identity: Identity | None
    started_ns: int
    first_after_ms: float | None
    attempts: int


class Candidate(Struct):
    """One model that may answer, and what it would be sent.

    Attributes:
        tariff: what the model is billed.
        request: the call's, in neutral form where the provider speaks no dialect.
        outgoing: the body that is sent; ``None`` to providers in neutral form.
        amount: the most that the call can use there; ``bound`` is the same in tokens.
        uses: the limit that the request got for tools of the provider's; 0 without one.
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
    """Why an attempt brought no answer.

    Attributes:
        billing: ``nothing`` where the provider did not bill; ``arrived`` where a stream broke
            off after it had begun; ``bound`` where unknown.
        retry_after_s: when the provider wants to be asked again.
        reply: what the provider answered, where it did.
        answer: what had come of the answer, where the provider reported its usage.
    """

    outcome: RouteOutcome
    code: str
    message: str
    billing: Literal["nothing", "arrived", "bound"] = "nothing"
    retry_after_s: float | None = None
    reply: Reply | None = None
    answer: ProviderResponse | None = None


class Attempt(Struct):
    """One ``DISPATCH`` and its ``EXCHANGE``, as far as they have come.

    Attributes:
        number: from 1.
        sent: whether anything may have gone out.
        asked_model_id: the model that the request means, whichever answers.
        first_after_ms: when the first piece of a stream came.
        streamed: the answer's text as far as a stream brought it.
        arrived: the answer as its stream had added up when it broke off, as JSON text.
        decision_id: of the decision that chose the model.
        fallback_from: the models that were passed over, and the error code of each.
        drawn: metadata that say how the model was drawn.
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
