"""The steps that begin and end calls; all steps of one transaction run together in a stage."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from remit.gateway.budget import Accounts, Amount, BudgetRefusedError, Hold, TokenUsage
from remit.gateway.budget.account import bound_of, busy
from remit.gateway.budget.wait_queue import WaitingRoom, Waits
from remit.gateway.erasures import check_erasures, newest_entry
from remit.gateway.key_queries import FIND_CACHED, CachedAnswer, select_in
from remit.gateway.leases import LeaseLostError
from remit.gateway.leases.renewal import Renewal
from remit.gateway.session_owners import Ownership, Sessions
from remit.gateway.stored_response import KeptId, write_ids
from remit.gateway.values import Claim, DecisionStep
from remit.kernel.errors import RemitError
from remit.ledger import LedgerError, Prepared, Transaction

_log = logging.getLogger("remit.gateway")

FIELDS = (
    "dispatch_entry_id", "owner", "lease_until_ms", "session_id", "work_order_id", "agent_id",
    "contract_id", "reserved_tokens", "hold", "key_id", "attempt",
)  # fmt: skip
"""Columns of ``in_flight``."""

_INSERT = f"INSERT INTO in_flight ({', '.join(FIELDS)}) VALUES ({', '.join('?' * len(FIELDS))})"
_DELETE = "DELETE FROM in_flight WHERE dispatch_entry_id = ?"
_FIND = "SELECT dispatch_entry_id FROM in_flight WHERE dispatch_entry_id IN ({marks})"
_FIND_CLAIMS = (
    "SELECT i.caller, i.idempotency_key, i.exchange_entry_id, i.until_ms, i.token "
    "FROM (VALUES {rows}) AS k JOIN idempotency AS i "
    "ON i.caller = k.column1 AND i.idempotency_key = k.column2"
)
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
_RELEASE = (
    "DELETE FROM idempotency WHERE caller = ? AND idempotency_key = ? AND token = ? "
    "AND exchange_entry_id = ''"
)


class IdempotencyKeyUsedError(RemitError):
    """Another call has this idempotency key.

    Args:
        exchange_entry_id: the ``EXCHANGE`` of that call; empty while the call is in flight.

    Attributes:
        exchange_entry_id: the same id.
    """

    def __init__(self, exchange_entry_id: str) -> None:
        super().__init__("A call with this idempotency key was made or is in flight.")
        self.exchange_entry_id = exchange_entry_id


class CircuitChangedError(RemitError):
    """The circuit of a model was opened since the call got its permit."""

    def __init__(self) -> None:
        super().__init__("The circuit of the model was opened in the meantime.")


class StartCall(Struct, gc=False):
    """The step that makes a call durable before it is sent. Returns the dispatch id and its hold.

    Attributes:
        prepared: the encoded ``DISPATCH``.
        path: accounts that pay.
        amount: upper bound of the call.
        turns: number of calls to count: 0 for a retry.
        enforce: whether an exceeded limit refuses the call.
        lease_ms: duration of the lease in milliseconds.
        attribution: session, work order, agent, contract and key id of the call.
        attempt: number of the attempt.
        waits: the call, to which each wait for money is added.
        claim: caller, idempotency key and the call's token; None without a key. Each attempt renews
            it.
        warn: makes the entry for a limit that would have refused the call; None for no entry.
        queue_behind: True if other calls already wait for this budget; the step is then refused
            as busy.
        response_ids: ids that lead to the ``DISPATCH`` until the answer is recorded.
        ownership: session and work order that must be the caller's own, or become so.
        is_current: returns False if the circuit of the model was opened since the call got its
            permit; None for a permit of :meth:`Breakers.acquire`, which is not checked again.
        since: id of the entry after which an erasure that may reach the request refuses the call;
            empty for a request that no attempt recorded and that never waited.
        read_after: id of the newest entry when the history was read; any later erasure refuses the
            call. Empty without a history.
        out: the dispatch id, set by the stage; its lease is renewed from then on.
        busy_at: id of the newest entry when the call was refused as busy, set by the stage.

    Raises:
        NotYoursError, IdempotencyKeyUsedError, BudgetRefusedError, CircuitChangedError,
            ErasedMeanwhileError: the call is not begun.
    """

    prepared: tuple[Prepared]
    path: tuple[str, ...]
    amount: Amount
    turns: int
    enforce: bool
    lease_ms: int
    attribution: tuple[str, str, str, str, str]
    attempt: int
    waits: Waits
    claim: Claim | None = None
    warn: Callable[[str, str], Prepared] | None = None
    queue_behind: bool = False
    response_ids: Sequence[KeptId] = ()
    ownership: Ownership | None = None
    is_current: Callable[[], bool] | None = None
    since: str = ""
    read_after: str = ""
    out: str = ""
    busy_at: str = ""


class FinishCall(Struct):
    """The step that records an answer, settles the call and deletes its in-flight row.

    Attributes:
        prepared: the encoded ``EXCHANGE``; for a recorded answer, also an error with the
            request and no answer.
        dispatch_entry_id: the call.
        hold: the reservation; None without budgets.
        usage: charged usage.
        answered: the claim that gets this answer, and how long in milliseconds; None without a
            claim.
        response_ids: ids that lead to the ``EXCHANGE``.
        write_rows: called in the transaction with the id of the ``EXCHANGE``; uses
            ``execute_many`` only.
        cached: the recorded answer that the entry gives. If it was erased or replaced meanwhile,
            the second entry of ``prepared`` is recorded, and ``is_gone`` is set.
        keeps_hold: True if the reservation stays, for the rows that ``write_rows`` writes.
        decision: the step that records the routing decision, run right after this one; None for
            none.

    Raises:
        LeaseLostError: the call was settled as an orphan.
    """

    prepared: tuple[Prepared, ...]
    dispatch_entry_id: str
    hold: Hold | None
    usage: TokenUsage
    answered: tuple[Claim, int] | None = None
    response_ids: Sequence[KeptId] = ()
    write_rows: Callable[[Transaction, str], None] | None = None
    keeps_hold: bool = False
    decision: DecisionStep | None = None
    cached: CachedAnswer | None = None
    is_gone: bool = False


class FinishedCall(Struct, frozen=True):
    """The result of a :class:`FinishCall`.

    Attributes:
        exchange_entry_id: id of the ``EXCHANGE``.
        timestamp: its timestamp.
        remaining: tokens left on the narrowest token limit; None without one.
    """

    exchange_entry_id: str
    timestamp: str
    remaining: int | None


Step = StartCall | FinishCall | Ownership | Claim
"""A call that begins or ends; a session to claim ahead of a call; or the claim of a failed call,
whose idempotency key is released."""


@dataclass(eq=False, slots=True)
class CallStages:
    """The stages of one gateway's calls, and the state that they share.

    Attributes:
        allow_unpriced: let models without a price pass a limit in US dollars.
        charging: whether calls that begin here are charged.
        renewal: renews the leases of calls that begin here.
        owner: the owner of the rows in flight.
        waiting_room: the calls that wait for money; woken if some becomes free.
        refresh: called in each transaction in which calls begin or end; None for no call.
        known: owners of sessions and orders that need not be read, because they never change.
        unplanned: how far the entries of a work order were read and none planned it; see
            :class:`~remit.gateway.session_owners.Sessions`.
    """

    allow_unpriced: bool
    charging: bool
    renewal: Renewal
    owner: str
    waiting_room: WaitingRoom
    refresh: Callable[[Transaction], None] | None
    known: set[tuple[str, str]] = field(default_factory=set)
    unplanned: dict[str, int] = field(default_factory=dict)

    def open(self, tx: Transaction, steps: Sequence[Step]) -> Calls:
        """Return the stage that runs all steps of a transaction, after ``refresh``.

        Args:
            tx: the transaction.
            steps: its steps.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if self.refresh is not None:
            self.refresh(tx)
        return Calls(tx, steps, self)


class Calls:
    """The stage of all calls that begin or end in one transaction.

    Making the object reads all rows that the steps need. :meth:`do` runs the steps in order and
    appends their entries; :meth:`write` then writes the rows. An object lives as long as its
    transaction.

    Args:
        tx: the transaction.
        steps: the steps of the transaction.
        stages: what the stages of one gateway share.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """

    def __init__(self, tx: Transaction, steps: Sequence[Step], stages: CallStages) -> None:
        self._tx = tx
        self._accounts = accounts = Accounts.of(tx, allow_unpriced=stages.allow_unpriced)
        self._stages = stages
        self._begun: list[tuple[Any, ...]] = []
        self._ended: list[tuple[str]] = []
        self._claims: dict[tuple[str, str], tuple[str, int, str] | None] = {}
        self._changed_claims: list[tuple[str, tuple[Any, ...]]] = []
        self._response_ids: list[tuple[KeptId, str]] = []
        self._row_writers: list[tuple[Callable[[Transaction, str], None], str]] = []
        known = stages.known
        scopes: list[str] = []
        bounds: list[tuple[str, ...]] = []
        ends: list[str] = []
        named: list[Ownership] = []
        decisions: list[DecisionStep] | None = None
        for step in steps:
            if isinstance(step, StartCall):
                scopes += step.path
                if (bound := bound_of(step.path, step.amount)) is not None:
                    bounds.append(bound)
                own = step.ownership
                if own is not None and (own.order or not known.issuperset(own.owned)):
                    named.append(own)
                if step.claim is not None:
                    self._claims[step.claim[:2]] = None
            elif isinstance(step, FinishCall):
                ends.append(step.dispatch_entry_id)
                if step.hold is not None:
                    scopes += step.hold.scopes
                if step.decision is not None:
                    decisions = [*(decisions or ()), step.decision]
            elif isinstance(step, Ownership):
                named.append(step)
        # All is asked before anything is looked at.
        self._in_flight: set[str] = tx.cache.setdefault("in_flight", set())
        unknown = {*ends}.difference(self._in_flight)
        there = select_in(tx, _FIND, [*unknown]) if unknown else ()
        claims = select_in(tx, _FIND_CLAIMS, list(self._claims)) if self._claims else ()
        self._sessions = Sessions(tx, known, stages.unplanned) if named else None
        note_sessions = self._sessions.ask(named) if self._sessions is not None else None
        if stages.charging:
            accounts.load(scopes, bounds)
        self._in_flight.update(*there)
        if claims:
            self._note_claims(claims)
        if note_sessions is not None:
            note_sessions()
        self._others = _NO_STAGES if decisions is None else _stages(tx, decisions)

    def do(self, step: Step) -> Any:
        """Run one step in the transaction and return its result.

        A :class:`StartCall` gives the dispatch id and the hold, a :class:`FinishCall` a
        :class:`FinishedCall`, other steps None. Entries are appended here; rows are written by
        :meth:`write`. A step that is refused changes nothing.

        Args:
            step: the step; one of those that the object was made with.

        Raises:
            NotYoursError: the session or work order belongs to another caller.
            IdempotencyKeyUsedError, BudgetRefusedError, CircuitChangedError, ErasedMeanwhileError:
                the call is not begun.
            LeaseLostError: the call to finish was settled as an orphan.
            InvalidInputError: an entry cannot be recorded.
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        if isinstance(step, StartCall):
            return self._start(step)
        if isinstance(step, FinishCall):
            return self._finish(step)
        if isinstance(step, Ownership):
            return self._sessions_of(step).begun(step.session[1], step)
        return self._release(step)

    def _sessions_of(self, own: Ownership) -> Sessions:
        """Return the sessions of the transaction, after a check of one in the database."""
        if self._sessions is None:
            self._sessions = Sessions(self._tx, self._stages.known, self._stages.unplanned)
        self._sessions.check(own)
        return self._sessions

    def _start(self, step: StartCall) -> tuple[str, Hold | None]:
        # What may refuse comes first, what changes anything after it: an entry that does not
        # fit raises before it is collected, and then the hold is given back.
        if step.out:  # An earlier transaction of the step was rolled back.
            self._stages.renewal.ended(step.out)
            step.out = ""
        own = step.ownership
        if own is not None and (own.order or not self._stages.known.issuperset(own.owned)):
            self._sessions_of(own)
        if step.claim is not None:
            self._check_claim(step.claim)
        if step.is_current is not None and not step.is_current():
            raise CircuitChangedError
        if step.since or step.read_after:
            check_erasures(self._tx, step.attribution[0], step.since, step.read_after)
        hold, refused = None, None
        if self._stages.charging:
            try:
                if step.queue_behind:
                    raise self._accounts.refusal(step.path, step.amount, step.turns) or busy(
                        step.path
                    )
                if step.warn is not None:
                    refused = self._accounts.refusal(step.path, step.amount, step.turns)
                hold = self._accounts.reserve(
                    step.path, step.amount, turns=step.turns, enforce=step.enforce
                )
            except BudgetRefusedError as error:
                if error.busy:  # The call may wait, and an erasure may come meanwhile.
                    step.busy_at = newest_entry(self._tx.execute)
                raise
        try:
            held = hold.encode() if hold is not None else ""
            dispatch_id = self._tx.append(step.prepared[0])
        except BaseException:
            if hold is not None:
                self._accounts.cancel(hold)
            raise
        until = self._tx.now_ms + step.lease_ms
        step.out = dispatch_id
        self._in_flight.add(dispatch_id)
        self._stages.renewal.began(dispatch_id, step.lease_ms)
        session_id, work_order_id, agent_id, contract_id, key_id = step.attribution
        self._begun.append(
            (
                dispatch_id, self._stages.owner, until, session_id, work_order_id, agent_id,
                contract_id, hold.tokens if hold else step.amount.tokens,
                held, key_id, step.attempt,
            )
        )  # fmt: skip
        if self._sessions is not None:
            self._sessions.begun(session_id, own)
        if step.claim is not None:
            self._claims[step.claim[:2]] = ("", until, step.claim[2])
            self._changed_claims.append((_CLAIM, (*step.claim, self._stages.owner, until)))
        if step.response_ids:
            self._response_ids += [(one, dispatch_id) for one in step.response_ids]
        if refused is not None and step.warn is not None:
            self._tx.append(step.warn(refused.code, refused.message))
        return dispatch_id, hold

    def _finish(self, step: FinishCall) -> FinishedCall:
        dispatch_id = step.dispatch_entry_id
        row = (dispatch_id,)
        if dispatch_id not in self._in_flight and (
            row in self._ended or not list(select_in(self._tx, _FIND, row))
        ):
            raise LeaseLostError(
                f"The call {dispatch_id} was settled as an orphan before its answer came.",
                next_step="Raise [gateway] lease_margin_ms if the machine sleeps.",
            )
        if step.cached is not None:
            found = self._tx.execute(FIND_CACHED, (*step.cached.name, self._tx.now_ms))
            step.is_gone = (step.cached.exchange_entry_id,) not in found
        exchange_id = self._tx.append(step.prepared[step.is_gone])
        timestamp = self._tx.last_timestamp
        self._in_flight.discard(dispatch_id)
        self._ended.append(row)
        remaining = None
        if step.hold is not None and not step.keeps_hold:
            self._accounts.settle(step.hold, step.usage)
            if self._stages.waiting_room.queues:
                self._stages.waiting_room.freed(step.hold.scopes)
            remaining = self._accounts.remaining(step.hold.scopes)
        if step.answered is not None:
            claim, kept_ms = step.answered
            until = self._tx.now_ms + kept_ms
            self._changed_claims.append((_ANSWERED, (exchange_id, until, *claim)))
        if step.response_ids:
            self._response_ids += [(one, exchange_id) for one in step.response_ids]
        if step.write_rows is not None:
            self._row_writers.append((step.write_rows, exchange_id))
        if step.decision is not None:
            self._decide(step.decision, exchange_id)
        return FinishedCall(exchange_id, timestamp, remaining)

    def _decide(self, decision: DecisionStep, exchange_id: str) -> None:
        """Record a routing decision. A failure to do so is logged: the answer is kept."""
        decision.exchange_entry_id, decision.result = exchange_id, None
        try:
            decision.result = self._others[decision.opener].do(decision.step)
        except LedgerError:  # the transaction itself has failed
            raise
        except Exception as error:  # noqa: BLE001 - see above
            _log.error("no decision was recorded with %s: %s", exchange_id, type(error).__name__)

    def _note_claims(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for caller, key, *known in rows:
            self._claims[(caller, key)] = (known[0], known[1], known[2])

    def _check_claim(self, claim: Claim) -> None:
        name = claim[:2]
        if name not in self._claims:
            self._claims[name] = None
            self._note_claims(select_in(self._tx, _FIND_CLAIMS, [name]))
        known = self._claims[name]
        if known is None or known[2] == claim[2]:
            return
        # Of a call without an answer it is recovery that says that it is dead, not the time.
        if not known[0] or known[1] >= self._tx.now_ms:
            raise IdempotencyKeyUsedError(known[0])

    def _release(self, claim: Claim) -> None:
        known = self._claims.get(claim[:2])
        if known is not None and (known[0], known[2]) == ("", claim[2]):
            self._claims[claim[:2]] = None
        self._changed_claims.append((_RELEASE, claim))

    def write(self) -> None:
        """Write all changed rows: calls in flight, claims, response ids, owners, accounts and
        decisions.

        See :class:`~remit.ledger.Stage`. A second call writes only what changed since.

        Raises:
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        if self._begun:
            self._tx.execute_many(_INSERT, self._begun)
            self._begun = []
        if self._ended:
            self._tx.execute_many(_DELETE, self._ended)
            self._ended = []
        if self._changed_claims:
            # In order: a key may be given up and taken within one transaction.
            for sql, group in itertools.groupby(self._changed_claims, key=lambda item: item[0]):
                self._tx.execute_many(sql, [row for _, row in group])
            self._changed_claims = []
        if self._response_ids:
            write_ids(self._tx, self._response_ids)
            self._response_ids = []
        for write_rows, exchange_id in self._row_writers:
            write_rows(self._tx, exchange_id)
        self._row_writers = []
        if self._sessions is not None:
            self._sessions.write()
        self._accounts.write()
        for stage in self._others.values():
            stage.write()


_NO_STAGES: Mapping[Any, Any] = {}


def _stages(tx: Transaction, decisions: Sequence[DecisionStep]) -> Mapping[Any, Any]:
    """Return the stages of other rooms that take part in a transaction, keyed by their opener."""
    steps: dict[Any, list[Any]] = {}
    for one in decisions:
        steps.setdefault(one.opener, []).append(one.step)
    return {opener: opener(tx, own) for opener, own in steps.items()}
