"""Plans of batches: checks, upper bounds, and the rows that a created batch gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from remit.gateway.auth import Identity
from remit.gateway.batches.lines import Place, id_of, place, read_line, require_unique
from remit.gateway.batches.rows import (
    BOUNDS,
    NO_PRICE,
    LineRow,
    Row,
    caller_text,
    hold_name,
    line_name,
)
from remit.gateway.billing import Billing
from remit.gateway.budget import Amount
from remit.gateway.budget.account import row_of
from remit.gateway.choice import Names
from remit.gateway.provider_objects import KeptObject, Objects, keep, objects_named
from remit.gateway.session_owners import owner_of
from remit.gateway.values import Attempt, Model
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import PromptRequest
from remit.ledger import Content, LedgerClient, Transaction, is_plain_text
from remit.providers import Body, ProviderResponse
from remit.providers.wire import RESPONSES, BodyError, Dialect, is_reference

_MAX_LINES = 100_000
_LINE_MEMBERS = ("custom_id", "method", "url", "body", "params")


class BatchRefusedError(InvalidInputError):
    """A batch that cannot be sent.

    Nothing was sent or written.

    Args:
        code: the error code, as in the refusals of calls.
        message: the fault, with its line.
        param: the field at fault.

    Attributes:
        code: the error code.
        param: the field at fault.
    """

    def __init__(self, code: str, message: str, param: str) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A checked batch. Once its provider accepts it, the plan writes its rows.

    Immutable. The gateway calls the plan itself in the transaction that records the accepted batch;
    see :class:`~remit.gateway.values.OnRecord`.

    Attributes:
        provider_id: the provider.
        caller: the session, agent and caller, encoded for the batch's row.
        owner: the owner of the batch, as :func:`~remit.gateway.session_owners.owner_of` returns it.
        rows: the custom id and the :class:`LineRow` fields of each request.
        amount: upper bound of all requests together, at the price of batches.
        unpriced: the first request whose model has no price, for people; empty without one.
    """

    provider_id: str
    caller: str
    owner: str
    rows: Sequence[tuple[Any, ...]]
    amount: Amount
    unpriced: str

    @property
    def stated(self) -> dict[str, Any]:
        """Metadata of the batch's ``EXCHANGE``: the upper bound of each request."""
        return {BOUNDS: Content([list(row) for row in self.rows])}

    def keeps_hold(self, answer: ProviderResponse) -> bool:
        """Return True if the reservation stays, because the provider named the batch it created."""
        return bool(id_of(answer))

    def __call__(
        self, tx: Transaction, exchange_id: str, attempt: Attempt, answer: ProviderResponse
    ) -> None:
        """Insert the rows of the batch, its owner, its requests and its hold.

        Nothing is written if the provider named no batch.

        Args:
            tx: the transaction that records the ``EXCHANGE``.
            exchange_id: id of the ``EXCHANGE``.
            attempt: the attempt that created the batch.
            answer: the provider's answer.

        Raises:
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        batch_id = id_of(answer)
        if not batch_id:
            return
        batch_id = f"{exchange_id}/{batch_id}"
        keep(tx, [KeptObject(batch_id, "batch", self.provider_id, self.owner, exchange_id)])
        row = (batch_id, self.provider_id, self.caller, exchange_id, attempt.dispatch_entry_id,
               tx.now_ms)  # fmt: skip
        tx.execute_many(
            f"INSERT INTO batches ({', '.join(Row._fields)}) VALUES (?, ?, ?, ?, ?, ?)", [row]
        )
        tx.execute_many(
            f"INSERT INTO batch_lines (batch_id, custom_id, {', '.join(LineRow._fields)}) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(batch_id, line_name(batch_id, custom_id), *row) for custom_id, *row in self.rows],
        )
        if attempt.hold is not None:
            hold = structs.replace(attempt.hold, turns=0, model=None)
            tx.execute_many(
                "INSERT INTO holds VALUES (?, ?)", [(hold_name(batch_id), hold.encode())]
            )


class Planner:
    """Plans batches before they are sent.

    :meth:`plan` is the only method. Nothing is cached.

    Args:
        ledger: the ledger that knows raised bounds, files and responses.
        billing: computes bounds.
        names: resolves the names of models and knows who may use them.
    """

    def __init__(self, ledger: LedgerClient, billing: Billing, names: Names) -> None:
        self._ledger = ledger
        self._billing = billing
        self._names = names
        self._objects = Objects(ledger)

    def plan(
        self,
        request: PromptRequest,
        identity: Identity,
        provider_id: str,
        dialect: Dialect,
        texts: Mapping[int, bytes],
        endpoint_path: str = "",
    ) -> BatchPlan:
        """Check the requests of a batch and return its plan. Blocks. Writes and sends nothing.

        Requests without an upper bound or a price are not refused here; the plan names the first.

        Args:
            request: the attribution of the batch: session, agent, contract and so on.
            identity: the caller.
            provider_id: the provider.
            dialect: the provider's dialect.
            texts: the exact JSON text of each request, keyed by its place from 0: its place in
                the list, or of its line in the file.
            endpoint_path: the path that OpenAI's batch names for all its requests; empty without
                one.

        Raises:
            BatchRefusedError: there are no requests or more than 100,000, a request is malformed,
                two have one custom id, a model is a route or another provider's, the key may not
                use a model, a provider is not set up, or a request names a file or response of
                another owner or continues a conversation.
            LedgerError: the ledger cannot be read.
        """
        if not texts or len(texts) > _MAX_LINES:
            where = "requests" if dialect == "anthropic" else "input_file_id"
            said = f"A batch contains 1 to {_MAX_LINES:,} requests, not {len(texts):,}."
            raise BatchRefusedError("INVALID_INPUT", said, where)
        payer = f"key:{identity.key_id}" if identity.key_id else f"session:{request.session_id}"
        raised: dict[tuple[str, str], int] = {
            (provider, model): percent
            for provider, model, percent in self._ledger.select(
                "SELECT provider_id, model_id, percent FROM raised_bounds"
            )
        }
        rows: list[tuple[Any, ...]] = []
        tokens = total = 0
        seen: set[str] = set()
        unbounded = unpriced = ""
        for number, text in texts.items():
            at = place(dialect, number)
            try:
                custom_id, body = read_line(dialect, text, endpoint_path)
                require_unique(text, _LINE_MEMBERS)
            except BodyError as error:
                raise _refused("INVALID_INPUT", at, error.message, error.param) from error
            if custom_id in seen:
                said = "another request has the same custom_id."
                raise _refused("INVALID_INPUT", at, said, "custom_id")
            seen.add(custom_id)
            self._check_model(request, identity, provider_id, body.model, at)
            self._check_own(owner_of(identity), body, at)
            bound = self._billing.of(provider_id, body.model).batch_bound(body)
            name = row_of((*(bound.amount.model or (provider_id, body.model)), payer))
            amount = bound.amount.raised(raised.get(name, 100))
            if not amount.bounded:
                unbounded = unbounded or f"{amount.unbounded} in {at.said}"
            if amount.nano is None:
                unpriced = unpriced or f"{at.said}: {body.model} has no price"
            nano = NO_PRICE if amount.nano is None else amount.nano
            rows.append((custom_id, number, body.endpoint.name, body.model, amount.tokens,
                         bound.tokens[0], nano))  # fmt: skip
            tokens += amount.tokens
            total += amount.nano or 0
        return BatchPlan(
            provider_id, caller_text(request, identity), owner_of(identity), rows,
            Amount(tokens, None if unpriced else total, not unbounded, unbounded), unpriced,
        )  # fmt: skip

    def _check_model(
        self, request: PromptRequest, identity: Identity, provider_id: str, model: str, at: Place
    ) -> None:
        asked = replace(request, model_id=model, provider_id=None, body=None)
        named = self._names.candidates(asked)[0]
        routed = self._names.router_of(asked) is not None
        if not routed and (missing := self._names.not_set_up(*named)):
            raise _refused("PROVIDER_NOT_FOUND", at, missing[:300], "model")
        if routed or named != (provider_id, model):
            said = f"{model[:100]} is not the name of a model of {provider_id}."
            raise _refused("INVALID_INPUT", at, said, "model")
        if not self._names.may_use(identity, asked, None, Model(provider_id, model, model)):
            said = f"this key may not use {provider_id}/{model[:100]}"
            raise _refused(
                "MODEL_NOT_ALLOWED", at, f"{said}; `GET /v1/models` lists its models", "model"
            )

    def _check_own(self, owner: str, body: Body, at: Place) -> None:
        """Raise BatchRefusedError if a request names a file or response of another owner.

        A batch is sent as it is, so a request that continues a conversation is refused too.
        """
        names = objects_named(body)
        if names and (other := self._objects.of_others(names, owner)):
            said = f"the object {other[:100]} does not exist"
            raise _refused(
                "FILE_NOT_FOUND", at, f"{said}; `GET /v1/files` lists the files of the key",
                "body.file_id",
            )  # fmt: skip
        if body.endpoint is not RESPONSES:
            return
        asked = body.value.get("input")
        items = asked if type(asked) is list else []
        if body.value.get("conversation") is not None:  # Remit keeps them, no provider
            said = "a request of a batch cannot continue a conversation"
            raise _refused("INVALID_INPUT", at, said, "body.conversation")
        kept = [("previous_response_id", body.value.get("previous_response_id"))]
        kept += [
            (f"input[{n}].id", item.get("id")) for n, item in enumerate(items) if is_reference(item)
        ]
        for param, name in kept:
            if name is not None and not self._is_own(name, owner):
                said = "the earlier response does not exist"
                raise _refused("PREVIOUS_RESPONSE_NOT_FOUND", at, said, f"body.{param}")

    def _is_own(self, name: Any, owner: str) -> bool:
        if type(name) is not str or not is_plain_text(name):
            return False
        sql = "SELECT 1 FROM response_ids WHERE response_id = ? AND owner = ?"
        return bool(self._ledger.select(sql, (name, owner)))


def _refused(code: str, at: Place, why: str, param: str | None) -> BatchRefusedError:
    """Return (not raise) the refusal of a batch for a field of the request at ``at``."""
    return BatchRefusedError(code, f"{at.said}: {why}", at.field(param))
