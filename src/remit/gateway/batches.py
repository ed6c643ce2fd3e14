"""Batches: many calls in one request, reserved together and recorded one by one (SPEC 4.0, 5).

The request that makes a batch is a ``DISPATCH`` and an ``EXCHANGE`` of its own; what it reserves
lives on. Each result becomes a ``DISPATCH`` and its ``EXCHANGE``, both in the transaction that
settles it, so that every exchange has its dispatch and no result is counted twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeGuard
from urllib.parse import quote

import orjson

from remit.gateway.answers import read_result
from remit.gateway.auth import Identity
from remit.gateway.billing import Bill, Billing
from remit.gateway.budget import Amount, Hold, TokenBudgeter
from remit.gateway.call import Attempt, Call, Candidate, Failure
from remit.gateway.config import RouterConfig
from remit.gateway.naming import Names
from remit.gateway.objects import KeptObject, Objects, files_named, keep
from remit.gateway.records import dispatch_entry, exchange_entry, prepare_exchange
from remit.gateway.sending import AnyProvider
from remit.gateway.stream_tap import StreamTap
from remit.gateway.tenancy import owner_of
from remit.gateway.validation import MAX_ID_CHARS, Sent
from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.exchange import PromptRequest, RouteOutcome
from remit.kernel.json_text import JsonTextError, load, value_at
from remit.ledger import Content, LedgerClient, Transaction, is_plain_text
from remit.providers import Outgoing, ProviderError, ProviderResponse, Timeouts, UpstreamProvider
from remit.providers.upstream_errors import error_of
from remit.providers.wire.body import Body, BodyError
from remit.providers.wire.endpoint import (
    BATCHES,
    ENDPOINTS,
    FILES,
    MESSAGES,
    RESPONSES,
    Dialect,
    Endpoint,
)
from remit.providers.wire.form import ObjectBody
from remit.providers.wire.responses import refers

__all__ = ["BatchPlan", "BatchRefusedError", "Batches", "hold_name"]

_log = logging.getLogger("remit.gateway")

_MOST_LINES = 100_000
_GROUP = 25  # results that are recorded in one transaction: other calls wait for it
_LOST_AFTER_S = 31 * 86_400
"""Providers keep results for a month: what is not there by then will never be."""

_ENDED = ("completed", "failed", "expired", "cancelled")
_MOST_TOLD = 1024 * 1024
_LINE_BYTES = 64 * 1024 * 1024
_CALLER = (
    "contract_id", "agent_id", "framework_id", "work_order_id", "session_id", "tier", "subject_id",
)  # fmt: skip
_OWNERS = ("name", "role", "key_id", "user_id", "team_id", "organisation_id")
_NO_PRICE = -1


class BatchRefusedError(InvalidInputError):
    """A batch that cannot be sent.

    Args:
        code: as in the refusals of calls.
        message: what is wrong, with the line.
        param: the field at fault.
    """

    def __init__(self, code: str, message: str, param: str) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class _Line(NamedTuple):
    """One request of a batch, and the most that it can use."""

    custom_id: str
    text: bytes
    body: Body
    amount: Amount
    tokens_in: int


class _Row(NamedTuple):
    """A row of ``batches``."""

    batch_id: str
    provider_id: str
    caller: str
    entry_id: str
    dispatch_entry_id: str
    created_ms: int


class _LineRow(NamedTuple):
    """What a row of ``batch_lines`` says of a request."""

    position: int
    endpoint: str
    model_id: str
    tokens: int
    tokens_in: int
    nano: int


class _Ended(NamedTuple):
    """A request with its result, ready for the record."""

    custom_id: str
    call: Call
    attempt: Attempt
    answer: ProviderResponse | Failure
    bill: Bill


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A batch that may be sent; what its answer changes beside the record.

    Attributes:
        amount: the most that all of it can use, at the price of batches.
        unpriced: the first request whose model has no price, for people; empty without one.
    """

    provider_id: str
    caller: str
    owner: str
    lines: Sequence[_Line]
    amount: Amount
    unpriced: str

    def keeps_hold(self, answer: ProviderResponse) -> bool:
        """Whether what was reserved lives on: the provider said which batch it made."""
        return bool(_id_of(answer))

    def __call__(
        self, tx: Transaction, exchange_id: str, attempt: Attempt, answer: ProviderResponse
    ) -> None:
        """Note the batch, its requests and what it holds."""
        batch_id = _id_of(answer)
        if not batch_id:
            return
        keep(tx, [KeptObject(batch_id, "batch", self.provider_id, self.owner, exchange_id)])
        row = (batch_id, self.provider_id, self.caller, exchange_id, attempt.dispatch_entry_id,
               int(time.time() * 1000))  # fmt: skip
        tx.execute_many(
            f"INSERT INTO batches ({', '.join(_Row._fields)}) VALUES (?, ?, ?, ?, ?, ?)", [row]
        )
        tx.execute_many(
            f"INSERT INTO batch_lines (batch_id, custom_id, {', '.join(_LineRow._fields)}) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (batch_id, line.custom_id, number, line.body.endpoint.name, line.body.model,
                 line.amount.tokens, line.tokens_in,
                 _NO_PRICE if line.amount.nano is None else line.amount.nano)
                for number, line in enumerate(self.lines)
            ],
        )  # fmt: skip
        if attempt.hold is not None:
            hold = replace(attempt.hold, turns=0, model=None)
            tx.execute_many(
                "INSERT INTO holds VALUES (?, ?)", [(hold_name(batch_id), hold.encode())]
            )


def hold_name(batch_id: str) -> str:
    """What a batch holds, in the table ``holds``."""
    return f"batch:{batch_id}"


class Batches:
    """Plans batches, and puts their results on record.

    Args:
        ledger: where both are kept.
        budgeter: where they are settled.
        billing: bounds and bills.
        names: what the names of models mean, and who may use them.
        providers: those that are registered, by id.
        config: timeouts.
        charging: whether calls are charged at all.
        freed: told the accounts on which money came free.
    """

    def __init__(
        self,
        ledger: LedgerClient,
        budgeter: TokenBudgeter,
        billing: Billing,
        names: Names,
        providers: Mapping[str, AnyProvider],
        config: RouterConfig,
        *,
        charging: bool,
        freed: Callable[[Sequence[str]], None],
    ) -> None:
        self._ledger = ledger
        self._budgeter = budgeter
        self._billing = billing
        self._names = names
        self._providers = providers
        self._charging = charging
        self._objects = Objects(ledger)
        self._freed = freed
        self._timeouts = Timeouts(
            config.connect_timeout_ms / 1000, config.default_timeout_ms / 1000,
            config.idle_timeout_ms / 1000,
        )  # fmt: skip
        self._settling: dict[str, asyncio.Task[None]] = {}

    # -- before it is sent --------------------------------------------------------------

    def plan(
        self,
        request: PromptRequest,
        identity: Identity,
        provider_id: str,
        dialect: Dialect,
        texts: Sequence[bytes],
        endpoint_path: str = "",
    ) -> BatchPlan:
        """What a batch can use at most. Blocks.

        Args:
            request: whose it is.
            texts: the exact text of each request.
            endpoint_path: what OpenAI's batch names as the endpoint of all of them.

        Raises:
            BatchRefusedError: one of them cannot be sent, or the key may not use its model.
        """
        if not texts or len(texts) > _MOST_LINES:
            where = "requests" if dialect == "anthropic" else "input_file_id"
            said = f"A batch has 1 to {_MOST_LINES:,} requests, this one has {len(texts):,}."
            raise BatchRefusedError("INVALID_INPUT", said, where)
        raised: dict[tuple[str, str], int] = {
            (provider, model): percent
            for provider, model, percent in self._ledger.select(
                "SELECT provider_id, model_id, percent FROM raised_bounds"
            )
        }
        lines: list[_Line] = []
        seen: set[str] = set()
        unbounded = unpriced = ""
        for number, text in enumerate(texts):
            at = _place(dialect, number)
            try:
                custom_id, body = _read(dialect, text, endpoint_path)
            except BodyError as error:
                raise BatchRefusedError(
                    "INVALID_INPUT", f"{at.said}: {error.message}", at.field(error.param)
                ) from error
            if custom_id in seen:
                said = f"{at.said}: its custom_id is that of another."
                raise BatchRefusedError("INVALID_INPUT", said, at.field("custom_id"))
            seen.add(custom_id)
            self._check_model(request, identity, provider_id, body.model, at)
            self._check_own(owner_of(identity), body, at)
            amount, bound = self._billing.batch_bound(body, provider_id, body.model)
            amount = amount.raised(raised.get((provider_id, body.model), 100))
            if not amount.bounded:
                unbounded = unbounded or f"{amount.unbounded or 'a call'} of {at.said}"
            if amount.nano is None:
                unpriced = unpriced or f"{at.said}: {body.model} has no price"
            lines.append(_Line(custom_id, text, body, amount, bound[0]))
        nano = None if unpriced else sum(line.amount.nano or 0 for line in lines)
        tokens = sum(line.amount.tokens for line in lines)
        caller = {name: getattr(request, name) or "" for name in _CALLER}
        caller["identity"] = {name: getattr(identity, name) for name in _OWNERS}
        return BatchPlan(
            provider_id, orjson.dumps(caller).decode(), owner_of(identity), lines,
            Amount(tokens, nano, not unbounded, unbounded), unpriced,
        )  # fmt: skip

    def _check_model(
        self, request: PromptRequest, identity: Identity, provider_id: str, model: str, at: _Place
    ) -> None:
        asked = replace(request, model_id=model, provider_id=None, body=None)
        field = at.field("model")
        if self._names.router_of(asked) is not None or (
            self._names.candidates(asked)[0] != (provider_id, model)
        ):
            said = f"{at.said}: {model[:100]} is not what {provider_id} calls a model of its own."
            raise BatchRefusedError("INVALID_INPUT", said, field)
        if not self._names.may_use(identity, asked, None, provider_id, model):
            said = f"{at.said}: this key may not use {provider_id}/{model[:100]}"
            raise BatchRefusedError("MODEL_NOT_ALLOWED", said, field)

    def _check_own(self, owner: str, body: Body, at: _Place) -> None:
        """Refuse what names something that another key made.

        A batch is sent as it is: the record adds nothing to it.
        """
        names = files_named(body)
        if names and (other := self._objects.of_others(names, owner)):
            said = f"{at.said}: there is no file {other[:100]}"
            raise BatchRefusedError("FILE_NOT_FOUND", said, at.field("body.file_id"))
        if body.endpoint is not RESPONSES:
            return
        asked = body.value.get("input")
        items = asked if type(asked) is list else []
        kept = [("previous_response_id", body.value.get("previous_response_id"))]
        kept += [(f"input[{n}].id", item.get("id")) for n, item in enumerate(items) if refers(item)]
        for param, name in kept:
            if name is not None and not self._is_own(name, owner):
                said = f"{at.said}: what it goes on from is not there"
                raise BatchRefusedError(
                    "PREVIOUS_RESPONSE_NOT_FOUND", said, at.field(f"body.{param}")
                )
        if body.value.get("conversation") is not None:
            said = f"{at.said}: Remit keeps conversations, and a batch cannot go on from them"
            raise BatchRefusedError("INVALID_INPUT", said, at.field("body.conversation"))

    def _is_own(self, name: Any, owner: str) -> bool:
        if type(name) is not str or not is_plain_text(name):
            return False
        sql = "SELECT 1 FROM response_ids WHERE response_id = ? AND owner = ?"
        return bool(self._ledger.select(sql, (name, owner)))

    # -- afterwards ---------------------------------------------------------------------

    async def poll(self, owner: str = "") -> int:
        """Put on record what batches have come to meanwhile; how many are still out.

        Args:
            owner: whose; all when left out.
        """
        rows = await asyncio.to_thread(self._rows, owner=owner)
        for row in rows:
            try:
                await self.settle(row.batch_id)
            except RemitError as error:
                _log.warning("batch %s is not settled yet: %s", row.batch_id, error.message)
        return len(await asyncio.to_thread(self._rows, owner=owner)) if rows else 0

    async def settle(self, batch_id: str) -> None:
        """Put the results of one batch on record, where it has ended.

        Raises:
            ProviderError: the provider cannot be asked.
        """
        task = self._settling.get(batch_id)
        if task is None:
            task = asyncio.create_task(self._settle(batch_id))
            self._settling[batch_id] = task
            task.add_done_callback(lambda done: self._settled(batch_id, done))
        await asyncio.shield(task)

    async def aclose(self) -> None:
        """Leave off; what is being written is finished."""
        tasks = list(self._settling.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _settled(self, batch_id: str, task: asyncio.Task[None]) -> None:
        self._settling.pop(batch_id, None)
        if not task.cancelled():
            task.exception()  # who waited for it got it

    def _rows(self, batch_id: str = "", *, owner: str = "") -> list[_Row]:
        sql, named = f"SELECT {', '.join(_Row._fields)} FROM batches", batch_id or owner
        if batch_id:
            sql += " WHERE batch_id = ?"
        elif owner:
            sql += " WHERE batch_id IN (SELECT object_id FROM provider_objects WHERE owner = ?)"
        rows = self._ledger.select(f"{sql} ORDER BY created_ms", (named,) if named else ())
        return [_Row(*row) for row in rows]

    async def _settle(self, batch_id: str) -> None:
        rows = await asyncio.to_thread(self._rows, batch_id)
        provider = self._providers.get(rows[0].provider_id) if rows else None
        if not isinstance(provider, UpstreamProvider):
            return
        [row] = rows
        dialect = provider.home.dialect
        endpoint = BATCHES[dialect]
        path = f"{endpoint.path}/{quote(batch_id, safe='')}"
        async with await provider.fetch(path, {}, self._timeouts) as came:
            raw = await came.read(_MOST_TOLD)
        told = _object(raw) if came.status == 200 else {}
        state = told.get("processing_status" if dialect == "anthropic" else "status")
        if state not in ("ended", *_ENDED):
            if time.time() - row.created_ms / 1000 > _LOST_AFTER_S:
                await asyncio.to_thread(self._finish, row, dialect, "lost", [])
            return
        files = [
            name
            for key in ("output_file_id", "error_file_id")
            if isinstance(name := told.get(key), str)
        ]
        paths = [f"{FILES['openai'].path}/{quote(name, safe='')}/content" for name in files]
        texts = await asyncio.to_thread(self._texts, row, dialect)
        for results in [f"{path}/results"] if dialect == "anthropic" else paths:
            async for group in _groups(provider, results, self._timeouts):
                await _to_the_end(self._record, row, dialect, texts, group)
        await _to_the_end(self._finish, row, dialect, str(state), files)

    def _texts(self, row: _Row, dialect: Dialect) -> dict[str, bytes]:
        """By custom id, the exact text of each request, as far as it is not erased."""
        found: dict[str, bytes] = {}
        texts = self._ledger.exact(row.entry_id).get("prompt")
        for text in texts if isinstance(texts, list) else []:
            if isinstance(text, bytes):
                value = _object(text)
                found[str(value.get("custom_id"))] = text
        return found

    def _finish(self, row: _Row, dialect: Dialect, state: str, files: Sequence[str]) -> None:
        """Settle requests that got no result; the batch is over."""
        texts = self._texts(row, dialect)
        rest = self._ledger.select(
            "SELECT custom_id FROM batch_lines WHERE batch_id = ? ORDER BY position",
            (row.batch_id,),
        )
        billing: Literal["nothing", "bound"] = (
            "bound" if state in ("completed", "ended", "lost") else "nothing"
        )
        failure = Failure(
            RouteOutcome.ERROR,
            "NO_RESULT",
            f"the batch {state}, and has no result of this",
            billing,
        )
        for start in range(0, len(rest), _GROUP):
            group = [(custom_id, failure) for (custom_id,) in rest[start : start + _GROUP]]
            self._record(row, dialect, texts, group)

        def call(tx: Transaction) -> None:
            identity = _caller(row)[1]
            keep(tx, [KeptObject(name, "file", row.provider_id, owner_of(identity), row.entry_id)
                      for name in files])  # fmt: skip
            tx.execute("DELETE FROM batches WHERE batch_id = ?", (row.batch_id,))
            tx.execute("DELETE FROM holds WHERE reservation_id = ?", (hold_name(row.batch_id),))

        self._ledger.transact(call)

    def _record(
        self,
        row: _Row,
        dialect: Dialect,
        texts: Mapping[str, bytes],
        results: Sequence[tuple[str, bytes | Failure]],
    ) -> None:
        """Put results on record and settle them; those that are already, stay as they are."""
        ended = self._read_results(row, dialect, texts, results)  # not under the write lock
        scopes: list[str] = []

        def call(tx: Transaction) -> None:
            accounts = self._budgeter.accounts(tx)
            name = hold_name(row.batch_id)
            held = tx.execute("SELECT hold FROM holds WHERE reservation_id = ?", (name,))
            hold = Hold.read(held[0][0]) if held else None
            for one in ended:
                if not tx.execute(
                    "DELETE FROM batch_lines WHERE batch_id = ? AND custom_id = ? RETURNING 1",
                    (row.batch_id, one.custom_id),
                ):
                    continue
                part = None
                if hold is not None:
                    amount = one.attempt.to.amount
                    nano = None if hold.nano is None else amount.nano or 0
                    part = replace(hold, tokens=amount.tokens, nano=nano)
                    left = None if hold.nano is None else hold.nano - (nano or 0)
                    hold = replace(hold, tokens=hold.tokens - amount.tokens, nano=left)
                    accounts.settle(part, one.bill.usage)
                self._write(tx, row, one, part)
            if hold is not None:
                scopes.extend(hold.scopes)
                tx.execute(
                    "UPDATE holds SET hold = ? WHERE reservation_id = ?", (hold.encode(), name)
                )
            accounts.write()

        self._ledger.transact(call)
        if scopes:
            self._freed(scopes)

    def _read_results(
        self,
        row: _Row,
        dialect: Dialect,
        texts: Mapping[str, bytes],
        results: Sequence[tuple[str, bytes | Failure]],
    ) -> list[_Ended]:
        """Results with their requests and bills; those that are on record left out."""
        about, identity = _caller(row)
        marks = ", ".join("?" * len(results))
        rows = self._ledger.select(
            f"SELECT custom_id, {', '.join(_LineRow._fields)} FROM batch_lines "
            f"WHERE batch_id = ? AND custom_id IN ({marks})",
            (row.batch_id, *[custom_id for custom_id, _ in results]),
        )
        lines = {custom_id: _LineRow(*line) for custom_id, *line in rows}
        ended = []
        for custom_id, result in results:
            line = lines.get(custom_id)
            if line is None:
                continue
            endpoint, text = ENDPOINTS[line.endpoint], texts.get(custom_id)
            body: Body
            if text is None:  # erased since
                body = ObjectBody.without_text(endpoint, {"batch_id": row.batch_id})
            else:
                body = _read(dialect, text, "")[1]
            request = replace(about, body=body, model_id=line.model_id)
            sent = Sent((), b"", hashlib.sha256(body.raw).hexdigest(), len(body.raw))
            amount = Amount(line.tokens, None if line.nano == _NO_PRICE else line.nano)
            bound = (line.tokens_in, line.tokens - line.tokens_in)
            to = Candidate(
                row.provider_id, line.model_id, self._providers[row.provider_id], request, sent,
                Outgoing(body, {}, stream=False), amount, bound,
            )  # fmt: skip
            answer = result if isinstance(result, Failure) else _answer(dialect, endpoint, result)
            call = Call(request, StreamTap(None, None), identity, sent.context_hash)
            bill = self._bill(to, answer)
            ended.append(_Ended(custom_id, call, Attempt(1, to, line.model_id), answer, bill))
        return ended

    def _bill(self, to: Candidate, answer: ProviderResponse | Failure) -> Bill:
        if isinstance(answer, Failure) and answer.billing == "nothing":
            return self._billing.nothing(to.model_id)
        if isinstance(answer, Failure) or not answer.usage_reported:
            return self._billing.at_bound(to.model_id, to.amount, to.bound)
        asked = to.outgoing.body.value if to.outgoing is not None else {}
        return self._billing.measured(to.provider_id, to.model_id, answer, asked, in_batch=True)

    def _write(self, tx: Transaction, row: _Row, one: _Ended, part: Hold | None) -> None:
        """``DISPATCH`` and ``EXCHANGE`` of one request."""
        request, usage = one.call.request, one.bill.usage
        dispatch = dispatch_entry(request, row.provider_id, one.attempt.to.model_id)
        one.attempt.dispatch_entry_id = tx.append(dispatch)
        entry = exchange_entry(
            one.call, one.attempt, one.answer, (usage.input_tokens, usage.output_tokens),
            one.bill.metadata(charged=self._charging),
        )  # fmt: skip
        entry.metadata["batch_id"] = row.batch_id
        entry.metadata["batch_dispatch_id"] = row.dispatch_entry_id
        entry.metadata["custom_id"] = Content(one.custom_id)
        if part is not None:
            entry.metadata.update(part.overrun(usage))
        tx.append(prepare_exchange(self._ledger, entry, request.subject_id))


async def _to_the_end(call: Callable[..., None], *args: Any) -> None:
    """Run ``call`` in a thread, and wait for its end also when cancelled."""
    running = asyncio.ensure_future(asyncio.to_thread(call, *args))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


class _Place(NamedTuple):
    """Where in a batch a request is, for people and as a field."""

    said: str
    prefix: str

    def field(self, param: str | None) -> str:
        return f"{self.prefix}.{param}" if param else self.prefix


def _place(dialect: Dialect, number: int) -> _Place:
    if dialect == "anthropic":
        return _Place(f"requests[{number}]", f"requests[{number}]")
    return _Place(f"line {number + 1} of the input file", f"input_file_id[{number}]")


def _read(dialect: Dialect, text: bytes, endpoint_path: str) -> tuple[str, Body]:
    """Custom id and body of one request.

    Raises:
        BodyError: it is none.
    """
    try:
        value = load(text)
    except JsonTextError as error:
        raise BodyError(error.message) from error
    if type(value) is not dict:
        raise BodyError("It is not a JSON object.")
    custom_id = value.get("custom_id")
    if not _is_name(custom_id):
        raise BodyError("custom_id is missing, or is not a short text.", "custom_id")
    member, endpoint = "params", MESSAGES
    if dialect == "openai":
        member, url = "body", value.get("url")
        found = _ENDPOINTS.get(url) if type(url) is str else None
        if found is None or (endpoint_path and url != endpoint_path):
            raise BodyError("url is not the endpoint of the batch.", "url")
        endpoint = found
        if value.get("method") != "POST":
            raise BodyError("method is not POST.", "method")
    raw = value_at(text, (member,))
    if raw is None:
        raise BodyError(f"{member} is missing.", member)
    try:
        body = Body.read(endpoint, raw)
        if not _is_name(body.model):
            raise BodyError("model is not a short text.", "model")
        return custom_id, body
    except BodyError as error:
        field = f"{member}.{error.param}" if error.param else member
        raise BodyError(error.message, field) from error


_ENDPOINTS: dict[str, Endpoint] = {
    f"/v1{endpoint.path}": endpoint
    for endpoint in ENDPOINTS.values()
    if endpoint.dialect == "openai" and not endpoint.form
}
"""By what OpenAI's batches name as their endpoint."""


def _answer(dialect: Dialect, endpoint: Endpoint, text: bytes) -> ProviderResponse | Failure:
    """What one line of results says."""
    value = _object(text)
    if dialect == "anthropic":
        result = value.get("result")
        kind = result.get("type") if isinstance(result, dict) else None
        if kind == "succeeded":
            return read_result(endpoint.name, 200, value_at(text, ("result", "message")) or b"")
        if kind == "errored":
            return _failed(error_of(400, {}, value_at(text, ("result", "error")) or b""))
        return Failure(RouteOutcome.ERROR, f"BATCH_{str(kind).upper()[:40]}", f"the request {kind}")
    response = value.get("response")
    raw = value_at(text, ("response", "body"))
    status = response.get("status_code") if isinstance(response, dict) else None
    if raw is not None and type(status) is int:
        if 200 <= status < 300:
            return read_result(endpoint.name, status, raw)
        return _failed(error_of(status, {}, raw))
    error = value.get("error")
    told = error if isinstance(error, dict) else {}
    code = str(told.get("code") or "PROVIDER_ERROR").upper()[:60]
    return Failure(RouteOutcome.ERROR, code, str(told.get("message") or "no answer")[:500])


def _failed(error: ProviderError) -> Failure:
    return Failure(RouteOutcome.ERROR, error.code, error.message)


async def _groups(
    provider: UpstreamProvider, path: str, timeouts: Timeouts
) -> AsyncIterator[list[tuple[str, bytes | Failure]]]:
    """The lines of a file of results, in groups, each with its custom id."""
    group: list[tuple[str, bytes | Failure]] = []
    rest = bytearray()
    async with await provider.fetch(path, {}, timeouts) as came:
        if came.status != 200:
            raise error_of(came.status, came.headers, await came.read(_MOST_TOLD))
        async for piece in came.chunks():
            rest += piece
            if len(rest) > _LINE_BYTES:
                raise ProviderError("SERVER_ERROR", "a line of the results is too long")
            if b"\n" not in piece:
                continue
            *whole, last = bytes(rest).split(b"\n")
            rest = bytearray(last)
            for line in whole:
                group += _identified(line)
            while len(group) >= _GROUP:
                yield group[:_GROUP]
                del group[:_GROUP]
    group += _identified(bytes(rest))
    if group:
        yield group


def _identified(line: bytes) -> list[tuple[str, bytes | Failure]]:
    custom_id = _object(line).get("custom_id")
    return [(custom_id, line.strip())] if _is_name(custom_id) else []


def _is_name(value: Any) -> TypeGuard[str]:
    """Whether it is a text that rows and records can hold."""
    return (
        type(value) is str
        and 0 < len(value) <= MAX_ID_CHARS
        and "\x00" not in value
        and is_plain_text(value)
    )


def _caller(row: _Row) -> tuple[PromptRequest, Identity]:
    """Whose a batch is."""
    told = orjson.loads(row.caller)
    identity = Identity(**told.pop("identity"))
    subject = told.pop("subject_id") or None
    request = PromptRequest(
        prompt="", prompt_pack_id="", agent_class="", package_id="", max_tokens=None,
        temperature=None, subject_id=subject, **told,
    )  # fmt: skip
    return request, identity


def _object(text: bytes) -> dict[str, Any]:
    """A JSON object; an empty one for anything else."""
    try:
        value = load(text)
    except JsonTextError:
        return {}
    return value if isinstance(value, dict) else {}


def _id_of(answer: ProviderResponse) -> str:
    found = _object(answer.reply.body).get("id") if answer.reply is not None else None
    return found if _is_name(found) else ""
