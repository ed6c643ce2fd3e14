"""Recovery of calls whose process is dead, or that no process waits for: settled as orphans."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

import orjson

from remit.gateway.budget import Accounts, Hold, TokenBudgeter, TokenUsage, owners_of, usd_of
from remit.gateway.call_transactions import FIELDS
from remit.gateway.key_queries import HIDDEN, hidden_name
from remit.gateway.leases import Owner
from remit.gateway.leases.renewal import is_out
from remit.kernel.budget_values import charged_beside
from remit.ledger import LedgerClient, LedgerEntry, Transaction

Policy = Literal["charge", "release"]
"""What the reservation of an unanswered call becomes: its bound is charged, or nothing."""

_Settled = tuple[str, str, Sequence[str]]  # the orphan's id, the dispatch's, freed accounts
_MAX_ABANDONED = 1000
_COLUMNS = ", ".join(FIELDS)
# An earlier version wrote the keys of clients as they came.
_SHOWN_KEYS = (
    "SELECT caller, idempotency_key FROM idempotency WHERE exchange_entry_id <> '' "
    f"AND idempotency_key NOT LIKE '{HIDDEN}%'"
)
_HIDE_KEY = (
    "UPDATE idempotency SET idempotency_key = ? WHERE caller = ? AND idempotency_key = ? "
    "AND exchange_entry_id <> '' AND NOT EXISTS (SELECT 1 FROM idempotency AS known "
    "WHERE known.caller = ? AND known.idempotency_key = ?)"
)
_DELETE_KEY = "DELETE FROM idempotency WHERE caller = ? AND idempotency_key = ?"
# An earlier version wrote the names that clients give their requests, and whom a batch speaks of.
_SHOWN_LINES = f"SELECT batch_id, custom_id FROM batch_lines WHERE custom_id NOT LIKE '{HIDDEN}%'"
_HIDE_LINE = "UPDATE batch_lines SET custom_id = ? WHERE batch_id = ? AND custom_id = ?"
_NAMING_BATCHES = 'SELECT batch_id, caller FROM batches WHERE caller NOT LIKE \'%"subject_id":""%\''
_UNNAME_BATCH = "UPDATE batches SET caller = ? WHERE batch_id = ? AND caller = ?"


class Recovery:
    """The recovery of calls that will not be finished, which settles them.

    :meth:`run` is called when a runtime opens, every few seconds by a server
    (:mod:`remit.server.upkeep`) and by a worker, and by ``remit ledger recover``. The lock of the
    transaction keeps two processes from settling the same call.

    Args:
        ledger: the ledger whose database contains the rows.
        budgeter: settles their reservations.
        owner: the owner of this process's own rows.
        freed: called with the accounts on which money became free.
    """

    def __init__(
        self,
        ledger: LedgerClient,
        budgeter: TokenBudgeter,
        owner: str,
        freed: Callable[[Sequence[str]], None],
    ) -> None:
        self._ledger = ledger
        self._budgeter = budgeter
        self._owner = owner
        self._freed = freed
        self._given_up: dict[str, str] = {}

    def give_up(self, dispatch_entry_id: str, why: BaseException) -> None:
        """Note why an answer that came here cannot be recorded, for the reason of its orphan.

        Kept in memory, for at most 1,000 calls; nothing is written.

        Args:
            dispatch_entry_id: the call.
            why: the error; only its type is kept.
        """
        if len(self._given_up) < _MAX_ABANDONED:
            self._given_up[dispatch_entry_id] = (
                f"The answer came, but could not be put on record ({type(why).__name__})"
            )

    def run(self, policy: Policy, lease_ms: int) -> list[str]:
        """Settle dead calls and delete expired idempotency keys; return the orphans' entry ids.

        One transaction appends an ``EXCHANGE_ORPHANED`` for each call of a dead process, and each
        call with an expired lease that no live process works on. The ids are in the order of the
        dispatches; empty for none. Clients' texts that an earlier version stored are replaced by
        hashes.

        Args:
            policy: whether reservations are charged or released.
            lease_ms: for so many milliseconds after an outage, expired leases of other processes
                count as valid.

        Raises:
            LedgerError: the ledger cannot be read or written.
        """
        self._hide_names()
        now = self._ledger.now_ms
        owners = self._ledger.select("SELECT DISTINCT owner FROM in_flight")
        owners += self._ledger.select(
            "SELECT DISTINCT owner FROM idempotency WHERE exchange_entry_id = ''"
        )
        others = {text for (text,) in owners} - {self._owner}
        dead = sorted(text for text in others if self._is_dead(text))
        late = self._ledger.select(
            "SELECT dispatch_entry_id, owner FROM in_flight WHERE lease_until_ms < ?", (now,)
        )
        late = [row for row in late if not _is_at_work(row[1], row[0])]
        stale = self._ledger.select(
            "SELECT DISTINCT owner, exchange_entry_id = '' FROM idempotency WHERE until_ms < ?",
            (now,),
        )
        stale = [row for row in stale if not (row[1] and _is_at_work(row[0]))]
        if (late or stale) and self._ledger.back_for_ms() < lease_ms:
            late = [row for row in late if _is_ours(row[1])]
            stale = [row for row in stale if not row[1] or _is_ours(row[0])]
        overdue = sorted(name for name, _ in late)
        shown = self._ledger.select(_SHOWN_KEYS)
        if not (dead or overdue or stale or shown):
            return []
        settled = self._ledger.transact(
            lambda tx: self._recover(tx, policy, dead, overdue, stale, shown)
        )
        for _, dispatch_entry_id, scopes in settled:
            self._given_up.pop(dispatch_entry_id, None)
            self._freed(scopes)
        return [orphan_id for orphan_id, _, _ in settled]

    def _hide_names(self) -> None:
        """Replace clients' texts in the rows that an earlier version wrote for batches."""
        lines = self._ledger.select(_SHOWN_LINES)
        batches = self._ledger.select(_NAMING_BATCHES)

        def write(tx: Transaction) -> None:
            tx.execute_many(
                _HIDE_LINE, [(hidden_name(batch, name), batch, name) for batch, name in lines]
            )
            tx.execute_many(
                _UNNAME_BATCH,
                [(_without_person(caller), batch, caller) for batch, caller in batches],
            )

        if lines or batches:
            self._ledger.transact(write)

    def _is_dead(self, text: str) -> bool:
        owner = Owner.parse(text)
        return owner is not None and owner.is_surely_dead(
            one_machine=self._ledger.is_of_one_machine
        )

    def _reason(self, dispatch_entry_id: str, owner: str, dead: Collection[str]) -> str:
        """Return the reason of an orphan."""
        if owner in dead:
            return "The process that sent the call ended before the answer was on record"
        return self._given_up.get(dispatch_entry_id) or (
            "The lease of the call ran out: no process is known to wait for its answer"
        )

    def _recover(
        self,
        tx: Transaction,
        policy: Policy,
        dead: list[str],
        overdue: list[str],
        stale: list[tuple[Any, ...]],
        shown: list[tuple[Any, ...]],
    ) -> list[_Settled]:
        rows: list[tuple[Any, ...]] = []
        now = tx.now_ms
        for dispatch_entry_id in overdue:
            rows += tx.execute(
                "DELETE FROM in_flight WHERE dispatch_entry_id = ? AND lease_until_ms < ? "
                f"RETURNING {_COLUMNS}",
                (dispatch_entry_id, now),
            )
        for owner in dead:
            rows += tx.execute(
                f"DELETE FROM in_flight WHERE owner = ? RETURNING {_COLUMNS}", (owner,)
            )
            tx.execute(
                "DELETE FROM idempotency WHERE owner = ? AND exchange_entry_id = ''", (owner,)
            )
        for owner, is_open in stale:
            tx.execute(
                "DELETE FROM idempotency WHERE until_ms < ? AND owner = ? "
                f"AND exchange_entry_id {'=' if is_open else '<>'} ''",
                (now, owner),
            )
        for caller, key in shown:
            hidden = hidden_name(caller, key)
            tx.execute(_HIDE_KEY, (hidden, caller, key, caller, hidden))
            tx.execute(_DELETE_KEY, (caller, key))
        accounts = Accounts.of(tx, allow_unpriced=self._budgeter.allow_unpriced)
        settled = [self._settle(tx, accounts, policy, row, dead) for row in sorted(rows)]
        accounts.write()
        return settled

    def _settle(
        self, tx: Transaction, accounts: Accounts, policy: Policy,
        row: tuple[Any, ...], dead: Collection[str],
    ) -> _Settled:  # fmt: skip
        call = dict(zip(FIELDS, row, strict=True))
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
        scopes = hold.scopes if hold else ()
        if beside := charged_beside(scopes, call["session_id"], call["key_id"]):
            metadata["charged_to"] = beside
        if call["attempt"] > 1:
            metadata["attempt"] = call["attempt"]
        if hold is not None:
            nano = hold.nano if charged else 0
            accounts.settle(hold, TokenUsage(settled, 0, cost_nano=nano))
            metadata["cost_certainty"] = "upper_bound"
            if nano is not None:
                metadata["cost_usd"] = usd_of(nano)
        orphan_id = tx.append(
            LedgerEntry(
                event_type="EXCHANGE_ORPHANED",
                submission_id=call["contract_id"],
                decision="ORPHANED",
                reason=self._reason(call["dispatch_entry_id"], call["owner"], dead),
                metadata=metadata,
            )
        )
        return orphan_id, call["dispatch_entry_id"], scopes


def _is_ours(text: str) -> bool:
    """Return True if a row's owner is this process."""
    owner = Owner.parse(text)
    return owner is not None and owner.is_current_process()


def _is_at_work(text: str, dispatch_entry_id: str = "") -> bool:
    """Return True if a live process will renew this lease, although it may be suspended now."""
    owner = Owner.parse(text)
    if owner is None or not owner.is_surely_alive():
        return False
    return not owner.is_current_process() or is_out(text, dispatch_entry_id)


def _without_person(caller: str) -> str:
    """Return a batch's caller without the person whom an earlier version wrote there."""
    return orjson.dumps({**orjson.loads(caller), "subject_id": ""}).decode()
