"""Calls that are out: what begins and ends them, whatever becomes of their process (SPEC 4.6)."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from remit.gateway.budget import (
    Accounts,
    Amount,
    Hold,
    TokenBudgeter,
    TokenUsage,
    owners_of,
    usd_of,
)
from remit.gateway.budget.errors import busy
from remit.gateway.budget.waiting import WaitingRoom
from remit.gateway.keeping import KeptId
from remit.gateway.leases import Owner
from remit.gateway.renewal import Renewal
from remit.gateway.writes import CancelledAfterWriteError, finish_write
from remit.kernel.errors import RemitError
from remit.ledger import LedgerClient, LedgerEntry, Prepared, Stage, Transaction

__all__ = [
    "FinishCall",
    "FinishedCall",
    "IdempotencyKeyUsedError",
    "InFlightCalls",
    "LeaseLostError",
    "StartCall",
]

_FIELDS = (
    "dispatch_entry_id", "owner", "lease_until_ms", "session_id", "work_order_id", "agent_id",
    "contract_id", "reserved_tokens", "hold", "key_id", "attempt",
)  # fmt: skip
_INSERT = f"INSERT INTO in_flight ({', '.join(_FIELDS)}) VALUES ({', '.join('?' * len(_FIELDS))})"
_DELETE = "DELETE FROM in_flight WHERE dispatch_entry_id = ?"
_CLAIM = (
    "INSERT INTO idempotency (caller, idempotency_key, token, owner, exchange_entry_id, until_ms) "
    "VALUES (?, ?, ?, ?, '', ?) ON CONFLICT (caller, idempotency_key) DO UPDATE SET "
    "owner = excluded.owner, token = excluded.token, exchange_entry_id = '', "
    "until_ms = excluded.until_ms"
)
_ANSWERED = (
    "UPDATE idempotency SET exchange_entry_id = ?, until_ms = ? "
    "WHERE caller = ? AND idempotency_key = ? AND token = ?"
)
_KEEP = (
    "INSERT INTO response_ids (response_id, owner, session_id, entry_id) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (response_id) DO UPDATE SET owner = excluded.owner, "
    "session_id = excluded.session_id, entry_id = excluded.entry_id"
)
_MAX_MARKS = 256

Claim = tuple[str, str, str]
"""Caller, idempotency key, and the call's own token."""


class LeaseLostError(RemitError):
    """The call took so long that it was settled as an orphan before its answer came."""


class IdempotencyKeyUsedError(RemitError):
    """Another call has, or had, this idempotency key.

    Attributes:
        exchange_entry_id: the ``EXCHANGE`` that answers; empty while the call is out.
    """

    def __init__(self, exchange_entry_id: str) -> None:
        super().__init__("A call with this idempotency key has been made, or is under way.")
        self.exchange_entry_id = exchange_entry_id


@dataclass(slots=True)
class StartCall:
    """The step that makes a call's intent durable.

    Attributes:
        prepared: the ``DISPATCH``, alone.
        path: accounts that pay.
        about: session, work order, agent, contract and key id of the call.
        claim: caller, idempotency key, and what distinguishes this call from another with
            the same, where the call has one. Each attempt renews it.
        warn: makes the entry that says what a limit would have refused; ``None`` says nothing.
        ahead: whether others wait for the same money: then nothing is begun.
        kept: ids that stand for the ``DISPATCH`` until its answer is on record.
    """

    prepared: tuple[Prepared]
    path: tuple[str, ...]
    amount: Amount
    turns: int
    enforce: bool
    lease_ms: int
    about: tuple[str, str, str, str, str]
    attempt: int
    claim: Claim | None = None
    warn: Callable[[str, str], LedgerEntry] | None = None
    ahead: bool = False
    kept: tuple[KeptId, ...] = ()


@dataclass(slots=True)
class FinishCall:
    """The step that puts an answer on record, settles it and takes the call off.

    Attributes:
        prepared: the ``EXCHANGE``, alone.
        hold: what the call held; ``None`` without budgets.
        answered: the claim that this answer is kept for, and how long, in milliseconds.
        kept: ids that stand for the ``EXCHANGE``.
        also: done in the same transaction, with the id of the ``EXCHANGE``; by ``execute_many``
            alone.
        keeps_hold: whether the hold lives on, for what ``also`` notes.
    """

    prepared: tuple[Prepared]
    dispatch_entry_id: str
    hold: Hold | None
    usage: TokenUsage
    answered: tuple[Claim, int] | None = None
    kept: tuple[KeptId, ...] = ()
    also: Callable[[Transaction, str], None] | None = None
    keeps_hold: bool = False


@dataclass(slots=True)
class FinishedCall:
    """The ``EXCHANGE``'s id, and tokens left on the narrowest limit."""

    exchange_entry_id: str
    remaining: int | None


class InFlightCalls:
    """The rows that say which dispatched calls still wait for their exchange.

    Args:
        ledger: in whose database they lie.
        budgeter: where reservations are settled.
        charging: whether calls that begin here are charged at all.
        wait_ms: longest wait for money that other calls only hold.
    """

    def __init__(
        self, ledger: LedgerClient, budgeter: TokenBudgeter, charging: bool, wait_ms: int = 0
    ) -> None:
        self._ledger = ledger
        self._budgeter = budgeter
        self.charging = charging
        self.owner = Owner.current().encode()
        self.waiting_room = WaitingRoom(wait_ms)
        self._renewal = Renewal(ledger, self.owner)

    async def begin(self, step: StartCall) -> tuple[str, Hold | None]:
        """Do a :class:`StartCall`, also when the caller is cancelled meanwhile; wait for its turn
        where money is only held by other calls.

        Raises:
            BudgetRefusedError, IdempotencyKeyUsedError: as :meth:`stage`.
            CancelledAfterWriteError: cancelled, and the call is begun.
            CancelledError: cancelled, and it is not.
        """

        async def reserve(ahead: bool) -> tuple[str, Hold | None]:
            step.ahead = ahead
            try:
                begun: tuple[str, Hold | None] = await finish_write(
                    self._ledger.step(self.stage, step)
                )
            except CancelledAfterWriteError as late:
                self._renewal.began(late.result[0], step.lease_ms)
                raise
            self._renewal.began(begun[0], step.lease_ms)
            return begun

        if not (self.charging and step.enforce):
            return await reserve(False)
        return await self.waiting_room.admit(step.path, reserve)

    def ended(self, dispatch_entry_id: str) -> None:
        """A call that was begun is on record, or given up: its lease is not renewed any more."""
        self._renewal.ended(dispatch_entry_id)

    def stage(self, tx: Transaction, steps: Sequence[StartCall | FinishCall]) -> Stage:
        """The stage for :meth:`~remit.ledger.LedgerClient.step` of both kinds of step.

        A ``StartCall`` returns the dispatch's id and its hold; raises
        :class:`BudgetRefusedError` or :class:`IdempotencyKeyUsedError`. A ``FinishCall``
        returns :class:`FinishedCall`; raises :class:`LeaseLostError`.
        """
        return _Calls(self, self._budgeter.accounts(tx), tx, steps)

    async def release_claim(self, claim: Claim) -> None:
        """Let an idempotency key be used again: its call has failed."""
        await self._ledger.submit(
            lambda tx: tx.execute(
                "DELETE FROM idempotency WHERE caller = ? AND idempotency_key = ? AND token = ? "
                "AND exchange_entry_id = ''",
                claim,
            )
        )

    def count(self) -> int:
        """How many calls are out, of all processes."""
        return int(self._ledger.select("SELECT count(*) FROM in_flight")[0][0])

    def recover(self, policy: Literal["charge", "release"]) -> list[str]:
        """Settle every call whose process is dead, or that nobody is known to wait for any more.

        The lease decides only where it cannot be seen whether the process lives, and of calls
        that this process has given up.

        Returns the ``EXCHANGE_ORPHANED`` ids.
        """
        self._renewal.renew()
        now = _now_ms()
        owners = self._ledger.select("SELECT DISTINCT owner FROM in_flight")
        owners += self._ledger.select(
            "SELECT DISTINCT owner FROM idempotency WHERE exchange_entry_id = ''"
        )
        others = {text for (text,) in owners} - {self.owner}
        dead = sorted(text for text in others if _is_dead(text))
        late = self._ledger.select(
            "SELECT DISTINCT owner FROM in_flight WHERE lease_until_ms < ?", (now,)
        )
        overdue = sorted(text for (text,) in late if not _is_at_work(text))
        stale = self._ledger.select("SELECT 1 FROM idempotency WHERE until_ms < ? LIMIT 1", (now,))
        if not (dead or overdue or stale):
            return []
        return self._ledger.transact(lambda tx: self._recover(tx, policy, dead, overdue))

    def _recover(
        self,
        tx: Transaction,
        policy: Literal["charge", "release"],
        dead: list[str],
        overdue: list[str],
    ) -> list[str]:
        fields = ", ".join(_FIELDS)
        rows: list[tuple[Any, ...]] = []
        for owner in overdue:
            rows += tx.execute(
                f"DELETE FROM in_flight WHERE owner = ? AND lease_until_ms < ? RETURNING {fields}",
                (owner, _now_ms()),
            )
        for owner in dead:
            rows += tx.execute(
                f"DELETE FROM in_flight WHERE owner = ? RETURNING {fields}", (owner,)
            )
            tx.execute(
                "DELETE FROM idempotency WHERE owner = ? AND exchange_entry_id = ''", (owner,)
            )
        tx.execute("DELETE FROM idempotency WHERE until_ms < ?", (_now_ms(),))
        accounts = self._budgeter.accounts(tx)
        ids = [self._settle(tx, accounts, policy, row) for row in sorted(rows)]
        accounts.write()
        return ids

    def _settle(
        self, tx: Transaction, accounts: Accounts, policy: Literal["charge", "release"],
        row: tuple[Any, ...],
    ) -> str:  # fmt: skip
        call = dict(zip(_FIELDS, row, strict=True))
        charged = policy == "charge"
        hold = Hold.read(call["hold"])
        settled = call["reserved_tokens"] if charged else 0
        metadata: dict[str, Any] = {
            "dispatch_entry_id": call["dispatch_entry_id"],
            "session_id": call["session_id"],
            "agent_id": call["agent_id"],
            "contract_id": call["contract_id"],
            "work_order_id": call["work_order_id"],
            "settlement": policy,
            "settled_tokens": settled,
        }
        if call["key_id"]:
            metadata["key_id"] = call["key_id"]
        else:
            metadata |= owners_of(hold.scopes if hold else ())
        if call["attempt"] > 1:
            metadata["attempt"] = call["attempt"]
        if hold is not None:
            nano = hold.nano if charged else 0
            accounts.settle(hold, TokenUsage(settled, 0, cost_nano=nano))
            self.waiting_room.freed(hold.scopes)
            metadata["cost_certainty"] = "upper_bound"
            if nano is not None:
                metadata["cost_usd"] = usd_of(nano)
        return tx.append(
            LedgerEntry(
                event_type="EXCHANGE_ORPHANED",
                submission_id=call["contract_id"],
                decision="ORPHANED",
                reason="The process that sent the call ended before the answer was on record",
                metadata=metadata,
            )
        )


class _Calls:
    """The stage: accounts and rows of all calls that begin or end in one transaction."""

    def __init__(
        self,
        calls: InFlightCalls,
        accounts: Accounts,
        tx: Transaction,
        steps: Sequence[StartCall | FinishCall],
    ) -> None:
        self._calls = calls
        self._accounts = accounts
        self._tx = tx
        self._begun: dict[str, tuple[Any, ...]] = {}
        self._ended: list[tuple[str]] = []
        self._claims: dict[tuple[str, str], tuple[str, int, str]] = {}
        self._changed_claims: list[tuple[str, tuple[Any, ...]]] = []
        self._kept: list[tuple[str, str, str, str]] = []
        self._also: list[Callable[[], None]] = []
        ends = [step.dispatch_entry_id for step in steps if isinstance(step, FinishCall)]
        self._there = {row[0] for row in _select_in(tx, "dispatch_entry_id", ends)}
        claims = {step.claim[:2] for step in steps if isinstance(step, StartCall) and step.claim}
        self._asked = claims
        for caller, key, exchange_id, until, token in _select_claims(tx, sorted(claims)):
            self._claims[(caller, key)] = (exchange_id, until, token)
        if calls.charging:
            paths = [step.path for step in steps if isinstance(step, StartCall)]
            paths += [
                step.hold.scopes for step in steps if isinstance(step, FinishCall) and step.hold
            ]
            accounts.load(key for path in paths for key in path)

    def do(self, step: StartCall | FinishCall) -> Any:
        """See :meth:`InFlightCalls.stage`."""
        return self._start(step) if isinstance(step, StartCall) else self._finish(step)

    def _start(self, step: StartCall) -> tuple[str, Hold | None]:
        now = _now_ms()
        if step.claim is not None:
            self._check_claim(step.claim, now)
        # What may refuse comes first, what changes anything after it: an entry that does not
        # fit raises before it is collected, and then the hold is given back.
        hold, refused = None, None
        if self._calls.charging:
            if step.ahead:
                raise self._accounts.refusal(step.path, step.amount, step.turns) or busy(step.path)
            if step.warn is not None:
                refused = self._accounts.refusal(step.path, step.amount, step.turns)
            hold = self._accounts.reserve(
                step.path, step.amount, turns=step.turns, enforce=step.enforce
            )
        try:
            held = hold.encode() if hold is not None else ""
            dispatch_id = self._tx.append(step.prepared[0])
        except BaseException:
            if hold is not None:
                self._accounts.cancel(hold)
            raise
        until = now + step.lease_ms
        session_id, work_order_id, agent_id, contract_id, key_id = step.about
        self._begun[dispatch_id] = (
            dispatch_id, self._calls.owner, until, session_id, work_order_id, agent_id,
            contract_id, hold.tokens if hold else step.amount.tokens,
            held, key_id, step.attempt,
        )  # fmt: skip
        if step.claim is not None:
            self._claims[step.claim[:2]] = ("", until, step.claim[2])
            self._changed_claims.append((_CLAIM, (*step.claim, self._calls.owner, until)))
        self._kept += [(*kept, dispatch_id) for kept in step.kept]
        if refused is not None and step.warn is not None:
            self._tx.append(step.warn(refused.code, refused.message))
        return dispatch_id, hold

    def _finish(self, step: FinishCall) -> FinishedCall:
        if step.dispatch_entry_id not in self._there:
            rows = _select_in(self._tx, "dispatch_entry_id", [step.dispatch_entry_id])
            if not rows or (step.dispatch_entry_id,) in self._ended:
                raise LeaseLostError(
                    f"The call {step.dispatch_entry_id} was settled as an orphan before its "
                    "answer came.",
                    next_step="Raise [gateway] lease_margin_ms if the machine sleeps.",
                )
        exchange_id = self._tx.append(step.prepared[0])
        self._there.discard(step.dispatch_entry_id)
        self._ended.append((step.dispatch_entry_id,))
        remaining = None
        if step.hold is not None and not step.keeps_hold:
            self._accounts.settle(step.hold, step.usage)
            self._calls.waiting_room.freed(step.hold.scopes)
            remaining = self._accounts.remaining(step.hold.scopes)
        if step.answered is not None:
            claim, kept_ms = step.answered
            until = _now_ms() + kept_ms
            self._changed_claims.append((_ANSWERED, (exchange_id, until, *claim)))
        self._kept += [(*kept, exchange_id) for kept in step.kept]
        if step.also is not None:
            self._also.append(functools.partial(step.also, self._tx, exchange_id))
        return FinishedCall(exchange_id, remaining)

    def _check_claim(self, claim: Claim, now: int) -> None:
        known = self._claims.get(claim[:2])
        if known is None and claim[:2] not in self._asked:
            rows = self._tx.execute(
                "SELECT exchange_entry_id, until_ms, token FROM idempotency "
                "WHERE caller = ? AND idempotency_key = ?",
                claim[:2],
            )
            known = rows[0] if rows else None
        if known is not None and known[1] >= now and known[2] != claim[2]:
            raise IdempotencyKeyUsedError(known[0])

    def write(self) -> None:
        """See :class:`~remit.ledger.Stage`."""
        if self._begun:
            self._tx.execute_many(_INSERT, list(self._begun.values()))
            self._begun.clear()
        if self._ended:
            self._tx.execute_many(_DELETE, self._ended)
            self._ended = []
        if self._changed_claims:
            # In order: a key may be given up and taken within one transaction.
            for sql, group in itertools.groupby(self._changed_claims, key=lambda item: item[0]):
                self._tx.execute_many(sql, [row for _, row in group])
            self._changed_claims = []
        if self._kept:
            self._tx.execute_many(_KEEP, self._kept)
            self._kept = []
        for also in self._also:
            also()
        self._also = []
        self._accounts.write()


def _select_in(tx: Transaction, column: str, values: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows in flight whose ``column`` is one of ``values``, in few sizes of statement."""
    rows: list[tuple[Any, ...]] = []
    for start in range(0, len(values), _MAX_MARKS):
        part = values[start : start + _MAX_MARKS]
        size = 1 << (len(part) - 1).bit_length()
        marks = ", ".join("?" * size)
        rows += tx.execute(
            f"SELECT {column} FROM in_flight WHERE {column} IN ({marks})",
            (*part, *[part[-1]] * (size - len(part))),
        )
    return rows


def _select_claims(tx: Transaction, claims: Sequence[tuple[str, str]]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for start in range(0, len(claims), _MAX_MARKS):
        part = claims[start : start + _MAX_MARKS]
        size = 1 << (len(part) - 1).bit_length()
        marks = ", ".join(["(?, ?)"] * size)
        rows += tx.execute(
            "SELECT caller, idempotency_key, exchange_entry_id, until_ms, token FROM idempotency "
            f"WHERE (caller, idempotency_key) IN (VALUES {marks})",
            [word for claim in (*part, *[part[-1]] * (size - len(part))) for word in claim],
        )
    return rows


def _is_dead(text: str) -> bool:
    owner = Owner.parse(text)
    return owner is not None and owner.is_surely_dead()


def _is_at_work(text: str) -> bool:
    """Whether a process lives that renews its leases as soon as it can: suspended, say."""
    owner = Owner.parse(text)
    return owner is not None and owner.is_surely_alive() and not owner.is_current_process()


def _now_ms() -> int:
    return int(time.time() * 1000)
