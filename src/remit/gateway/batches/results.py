"""Recording and settling of the results of batches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from msgspec import structs

from remit.gateway.batches.lines import answer_of, object_of, read_line
from remit.gateway.batches.rows import NO_PRICE, LineRow, Row, caller_of, hold_name, line_name
from remit.gateway.billing import Bill, Billing
from remit.gateway.budget import Accounts, Amount, Hold, TokenBudgeter
from remit.gateway.key_queries import HIDDEN
from remit.gateway.provider_objects import KeptObject, keep, provider_id_of
from remit.gateway.records import dispatch_entry, exchange_entry, prepare_exchange
from remit.gateway.session_owners import owner_of
from remit.gateway.stream import StreamTap
from remit.gateway.transport import AnyProvider
from remit.gateway.validation import Sent
from remit.gateway.values import Attempt, Call, Candidate, Failure
from remit.kernel.exchange import RouteOutcome
from remit.kernel.json_text import load
from remit.ledger import Content, LedgerClient, Transaction
from remit.providers import Body, Outgoing, ProviderResponse
from remit.providers.wire import ENDPOINTS, Dialect, ObjectBody

GROUP = 25
"""Results that are recorded in one transaction: other calls wait for it."""


_Ended = tuple[str, str, Call, Attempt, ProviderResponse | Failure, Bill]
"""A request with its result: custom id, name in ``batch_lines``, call, attempt, answer and bill."""


class Results:
    """Records and settles the results of batches. Every method blocks.

    :meth:`texts` reads the requests, :meth:`record` records results, and :meth:`finish` ends the
    batch.

    Args:
        ledger: records the results.
        budgeter: settles the results.
        billing: computes bills.
        providers: registered providers, keyed by provider id.
        charging: whether calls are charged at all.
        freed: called with the accounts on which money became free, after the commit.
        epoch: the policy epoch recorded on each exchange.
    """

    def __init__(
        self,
        ledger: LedgerClient,
        budgeter: TokenBudgeter,
        billing: Billing,
        providers: Mapping[str, AnyProvider],
        *,
        charging: bool,
        freed: Callable[[Sequence[str]], None],
        epoch: int,
    ) -> None:
        self._ledger = ledger
        self._budgeter = budgeter
        self._billing = billing
        self._providers = providers
        self._charging = charging
        self._freed = freed
        self._epoch = epoch

    def texts(self, row: Row, dialect: Dialect) -> dict[str, bytes]:
        """Return the exact text of each request that is not erased, keyed by custom id.

        Args:
            row: the batch.
            dialect: ignored; the texts have the form of the provider's dialect.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        found: dict[str, bytes] = {}
        texts = self._ledger.exact(row.entry_id).get("prompt")
        for text in texts if isinstance(texts, list) else []:
            if isinstance(text, bytes):
                value = object_of(text)
                found[str(value.get("custom_id"))] = text
        return found

    def finish(self, row: Row, dialect: Dialect, state: str, files: Sequence[str]) -> None:
        """Settle the requests without a result and delete the batch's rows and reservation.

        Each such request gets a ``DISPATCH`` and an ``EXCHANGE`` with the code ``NO_RESULT``, 25 in
        a transaction. The deletion follows in a transaction of its own.

        Args:
            row: the batch.
            dialect: the provider's dialect.
            state: the final state. Requests of a batch that is ``completed``, ``ended``, ``lost``
                or ``deleted`` are charged at their bound; requests of other states cost nothing.
            files: ids of the provider's result files, which now belong to the batch's owner.

        Raises:
            LedgerError: the entries could not be written.
        """
        texts = self.texts(row, dialect)
        # An erased request is settled under the name in its row.
        known = {line_name(row.batch_id, custom_id): custom_id for custom_id in texts}
        rest = self._ledger.select(
            "SELECT custom_id FROM batch_lines WHERE batch_id = ? ORDER BY position",
            (row.batch_id,),
        )
        billing: Literal["nothing", "bound"] = (
            "bound" if state in ("completed", "ended", "lost", "deleted") else "nothing"
        )
        failure = Failure(
            RouteOutcome.ERROR,
            "NO_RESULT",
            f"the batch is {state}, and has no result of this",
            billing,
        )
        for start in range(0, len(rest), GROUP):
            group = [(known.get(name, name), failure) for (name,) in rest[start : start + GROUP]]
            self.record(row, dialect, texts, group)

        def call(tx: Transaction) -> None:
            identity = caller_of(row, None)[1]
            keep(tx, [KeptObject(name, "file", row.provider_id, owner_of(identity), row.entry_id)
                      for name in files])  # fmt: skip
            tx.execute("DELETE FROM batches WHERE batch_id = ?", (row.batch_id,))
            tx.execute("DELETE FROM holds WHERE reservation_id = ?", (hold_name(row.batch_id),))

        self._ledger.transact(call)

    def record(
        self,
        row: Row,
        dialect: Dialect,
        texts: Mapping[str, bytes],
        results: Sequence[tuple[str, bytes | Failure]],
    ) -> None:
        """Record and settle results in one transaction.

        Appends a ``DISPATCH`` and an ``EXCHANGE`` for each result, deletes its row, and lowers the
        hold of the batch. Results that are already recorded, or of no request of the batch, are
        skipped. Accounts on which money became free are reported after the commit.

        Args:
            row: the batch.
            dialect: the provider's dialect.
            texts: the exact request texts, keyed by custom id; a missing one counts as erased.
            results: pairs of custom id and the raw result or a failure.

        Raises:
            LedgerError: the entries could not be written; nothing was settled.
        """
        ended = self._read_results(row, dialect, texts, results)  # not under the write lock
        scopes: list[str] = []

        def call(tx: Transaction) -> None:
            accounts = Accounts.of(tx, allow_unpriced=self._budgeter.allow_unpriced)
            name = hold_name(row.batch_id)
            held = tx.execute("SELECT hold FROM holds WHERE reservation_id = ?", (name,))
            hold = Hold.read(held[0][0]) if held else None
            for one in ended:
                _, line, _, attempt, _, bill = one
                if not tx.execute(
                    "DELETE FROM batch_lines WHERE batch_id = ? AND custom_id = ? RETURNING 1",
                    (row.batch_id, line),
                ):
                    continue
                part = None
                if hold is not None:
                    amount = attempt.to.amount
                    nano = None if hold.nano is None else amount.nano or 0
                    part = structs.replace(hold, tokens=amount.tokens, nano=nano)
                    left = None if hold.nano is None else hold.nano - (nano or 0)
                    hold = structs.replace(hold, tokens=hold.tokens - amount.tokens, nano=left)
                    accounts.settle(part, bill.usage)
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
        row: Row,
        dialect: Dialect,
        texts: Mapping[str, bytes],
        results: Sequence[tuple[str, bytes | Failure]],
    ) -> list[_Ended]:
        """Return the unrecorded results with their requests and bills."""
        about, identity = caller_of(row, self._subject_of(row))
        # An earlier version wrote the custom id itself.
        names = [
            name for custom_id, _ in results
            for name in (custom_id, line_name(row.batch_id, custom_id))
        ]  # fmt: skip
        marks = ", ".join("?" * len(names))
        rows = self._ledger.select(
            f"SELECT custom_id, {', '.join(LineRow._fields)} FROM batch_lines "
            f"WHERE batch_id = ? AND custom_id IN ({marks})",
            (row.batch_id, *names),
        )
        lines = {name: LineRow(*line) for name, *line in rows}
        ended: list[_Ended] = []
        for custom_id, result in results:
            name = line_name(row.batch_id, custom_id)
            name = name if name in lines else custom_id
            line = lines.get(name)
            if line is None:
                continue
            endpoint, text = ENDPOINTS[line.endpoint], texts.get(custom_id)
            tariff = self._billing.of(row.provider_id, line.model_id)
            body: Body
            nano_uses: int | None = line.nano
            if text is None:  # erased since
                body = ObjectBody.without_text(endpoint, {"batch_id": provider_id_of(row.batch_id)})
            else:
                body = read_line(dialect, text, "")[1]
                nano_uses = tariff.batch_bound(body).usage[2]
            request = replace(about, body=body, model_id=line.model_id)
            sent = Sent((), b"", hashlib.sha256(body.raw).hexdigest(), len(body.raw))
            amount = Amount(line.tokens, None if line.nano == NO_PRICE else line.nano)
            bound = (line.tokens_in, line.tokens - line.tokens_in, nano_uses)
            to = Candidate(
                row.provider_id, line.model_id, self._providers[row.provider_id], tariff, request,
                sent, Outgoing(body, {}, stream=False), amount, bound,
            )  # fmt: skip
            answer = result if isinstance(result, Failure) else answer_of(dialect, endpoint, result)
            call = Call(request, StreamTap(None, None), identity, request_hash=sent.context_hash)
            bill = _bill(to, answer)
            if text is None:  # no person's name is left to find an answer by
                custom_id = name if name.startswith(HIDDEN) else line_name(row.batch_id, name)
                answer = _without_content(answer)
            ended.append((custom_id, name, call, Attempt(1, to, line.model_id), answer, bill))
        return ended

    def _subject_of(self, row: Row) -> str | None:
        """Return the person whom a batch names; None if it names nobody or the name is erased."""
        found = self._ledger.exact(row.entry_id, ("subject_id",)).get("subject_id")
        return str(load(found)) if isinstance(found, bytes) else None

    def _write(self, tx: Transaction, row: Row, one: _Ended, part: Hold | None) -> None:
        """Append the ``DISPATCH`` and the ``EXCHANGE`` of one request."""
        custom_id, _, call, attempt, answer, bill = one
        request, usage = call.request, bill.usage
        dispatch = dispatch_entry(
            row.provider_id,
            attempt.to.model_id,
            request.contract_id,
            request.agent_id,
            request.session_id,
            request.prompt_pack_id,
        )
        attempt.dispatch_entry_id = tx.append(dispatch)
        entry = exchange_entry(
            call, attempt, answer, (usage.input_tokens, usage.output_tokens),
            bill.metadata(charged=self._charging), self._epoch,
        )  # fmt: skip
        entry.metadata["batch_id"] = provider_id_of(row.batch_id)
        entry.metadata["batch_dispatch_id"] = row.dispatch_entry_id
        entry.metadata["custom_id"] = Content(custom_id)
        if part is not None:
            entry.metadata.update(part.overrun(usage))
        tx.append(prepare_exchange(self._ledger, entry, request.subject_id))


def _without_content(answer: ProviderResponse | Failure) -> ProviderResponse | Failure:
    """Return a copy of an answer without its texts, for a request that has been erased."""
    if isinstance(answer, Failure):
        return structs.replace(answer, message="the request has been erased", reply=None)
    return structs.replace(answer, content="", content_blocks=(), reply=None)


def _bill(to: Candidate, answer: ProviderResponse | Failure) -> Bill:
    if isinstance(answer, Failure) and answer.billing == "nothing":
        return to.tariff.nothing()
    asked = to.outgoing.body.value if to.outgoing is not None else {}
    bill = None
    if not isinstance(answer, Failure):
        bill = to.tariff.measured(answer, asked, to.bound, in_batch=True)
    return bill or to.tariff.at_bound(to.amount, to.bound)
