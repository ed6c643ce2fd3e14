"""Budgets, stored in the ledger's database so that both change in one transaction."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from remit.gateway.budget.account import FIELDS, BudgetRefusedError, Hold, TokenUsage
from remit.gateway.budget.projection import BUDGETS
from remit.gateway.budget.reservations import Accounts, of_now
from remit.gateway.budget.resets import reset_metadata
from remit.kernel.budget_values import (
    Amount,
    BudgetCheckResult,
    BudgetLimits,
    BudgetScope,
    BudgetStatus,
    usd_of,
)
from remit.kernel.budget_windows import window_at
from remit.kernel.canonical import is_countable
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient, LedgerEntry, Transaction, apply

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class DebitResult:
    """The result of a settlement or debit.

    Attributes:
        success: True if the amount was charged; False if the reservation is unknown or settled.
        remaining: the fewest tokens that remain in any scope; ``None`` without a limit.
        total_consumed: tokens spent in the narrowest scope so far.
        cost_incurred: US dollars; 0.0 if no price is known.
        ledger_entry_id: the entry that accounts for it; empty if the caller writes that entry.
    """

    success: bool
    remaining: int | None
    total_consumed: int
    cost_incurred: float = 0.0
    ledger_entry_id: str = ""


class TokenBudgeter:
    """Reserves, settles and reports the budgets of sessions, work orders, agents and keys.

    Limits hold under any concurrency: a reservation is checked and taken under the ledger's write
    lock, in the transaction that also writes the ``DISPATCH``. Each method that takes ``tx`` joins
    that transaction, or makes one and blocks. Threads may share an object. Raised bounds are cached
    for a second.

    Args:
        ledger: records limits and stores the accounts.
        allow_unpriced: let models without a price pass a limit in US dollars.
    """

    def __init__(self, ledger: LedgerClient, *, allow_unpriced: bool = False) -> None:
        self._ledger = ledger
        self.allow_unpriced = allow_unpriced

    def allocate(
        self,
        scope: BudgetScope,
        token_limit: int | None = None,
        *,
        turn_limit: int | None = None,
        limits: BudgetLimits | None = None,
        by: str = "local operator",
        tx: Transaction | None = None,
    ) -> str:
        """Set the limits of the narrowest scope named and return the ``BUDGET_ALLOCATED`` id.

        All earlier limits of the scope are replaced. A change of the window begins a new window
        with no spending; otherwise the spending stays. Limits below the spending are accepted.

        Args:
            scope: the scope.
            token_limit: input and output tokens together; None for ``scope.requested_tokens``, and
                no limit if that is 0.
            turn_limit: model calls; None for no limit.
            limits: all limits at once, instead of the two; None to use the two.
            by: who sets the limits; recorded.
            tx: the transaction to join; None for a new one.

        Raises:
            InvalidInputError: a limit is no whole number or too great, or this machine does not
                know the time zone of the window.
            LedgerError: the ledger cannot be written.
        """
        if limits is None:
            if token_limit is None:
                token_limit = scope.requested_tokens or None
            limits = BudgetLimits(token_limit, turns=turn_limit)
        return self._in(tx, self.allocation(scope, limits, by))

    def allocation(
        self, scope: BudgetScope, limits: BudgetLimits, by: str
    ) -> Callable[[Transaction], str]:
        """Return a function that does as :meth:`allocate` within a transaction that is given to it.

        Args:
            scope: the scope.
            limits: all limits; they replace the earlier ones.
            by: who sets the limits; recorded.
        """
        return lambda tx: _allocate(tx, scope, limits, by)

    def _in(self, tx: Transaction | None, call: Callable[[Transaction], _T]) -> _T:
        """Return the result of ``call`` in a given transaction, or in one of its own."""
        return self._ledger.transact(call) if tx is None else call(tx)

    def check(self, scope: BudgetScope, amount: Amount | None = None) -> BudgetCheckResult:
        """Return whether a call of this size would be allowed now.

        Blocks.

        Holds and writes nothing. The result has the reason of a refusal and the fewest tokens that
        remain.

        Args:
            scope: the scopes that pay; ``requested_tokens`` is the size if ``amount`` is None.
            amount: the size.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return self.check_path(scope.path, amount or Amount(scope.requested_tokens))

    def check_path(self, path: Sequence[str], amount: Amount) -> BudgetCheckResult:
        """Return the result of :meth:`check` for given scopes.

        Blocks.

        Args:
            path: keys of the scopes that pay, the narrowest last.
            amount: the size.

        Raises:
            InvalidInputError: this machine does not know the time zone of an account.
            LedgerError: the ledger cannot be read.
        """
        accounts = Accounts(self._ledger.select, self._ledger, allow_unpriced=self.allow_unpriced)
        refused = accounts.refusal(path, amount, 1)
        reason = "" if refused is None else f"{refused.code}: {refused.message}"
        return BudgetCheckResult(refused is None, accounts.remaining(path), reason)

    def reserve(
        self,
        scope: BudgetScope,
        reservation_id: str,
        *,
        amount: Amount | None = None,
        tx: Transaction | None = None,
        turns: int = 1,
        enforce: bool = True,
    ) -> None:
        """Hold an amount on every existing account of the path, or on none.

        The hold is stored in the table ``holds`` until :meth:`settle` or :meth:`release`. If the
        short scopes allow lowered calls (``on_short``), less may be held.

        Args:
            scope: path and amount.
            reservation_id: names the reservation for :meth:`settle` and :meth:`release`.
            amount: the amount; None for ``scope.requested_tokens``.
            tx: the transaction to join; None for a new one.
            turns: number of calls to count; 0 for a retry of a counted call.
            enforce: False to hold without refusing.

        Raises:
            BudgetRefusedError: a limit would be exceeded, or no scope has a budget; nothing is
                held. Not raised without ``enforce``.
            LedgerError: the ledger cannot be written, or the reservation's id is in use.
            InvalidInputError: this machine does not know the time zone of an account.
        """

        def call(tx: Transaction) -> None:
            accounts = Accounts.of(tx, allow_unpriced=self.allow_unpriced)
            size = amount or Amount(scope.requested_tokens)
            hold = accounts.reserve(scope.path, size, turns=turns, enforce=enforce)
            accounts.write()
            tx.execute("INSERT INTO holds VALUES (?, ?)", (reservation_id, hold.encode()))

        self._in(tx, call)

    def settle(
        self, reservation_id: str, usage: TokenUsage, *, tx: Transaction | None = None
    ) -> DebitResult:
        """Replace a reservation by the real usage on every scope that held it, and delete the hold.

        An unknown or settled reservation changes nothing and gives a failed result. The result has
        the remaining tokens and the narrowest scope's spending.

        Args:
            reservation_id: the id given to :meth:`reserve`.
            usage: tokens and cost.
            tx: the transaction to join; None for a new one.

        Raises:
            InvalidInputError: a number of ``usage`` is negative, too great or no whole number;
                nothing is settled.
            LedgerError: the ledger cannot be written.
            ValueError: the stored hold is damaged.
        """
        _require_countable(usage)

        def call(tx: Transaction) -> DebitResult:
            rows = tx.execute(
                "DELETE FROM holds WHERE reservation_id = ? RETURNING hold", (reservation_id,)
            )
            if not rows:
                return DebitResult(False, None, 0)
            hold = Hold.decode(rows[0][0])
            accounts = Accounts.of(tx, allow_unpriced=self.allow_unpriced)
            accounts.settle(hold, usage)
            accounts.write()
            states = accounts.statuses(hold.scopes)
            spent = states[-1].spent_tokens if states else 0
            cost = usd_of(usage.cost_nano or 0)
            return DebitResult(True, accounts.remaining(hold.scopes), spent, cost)

        return self._in(tx, call)

    def release(self, reservation_id: str, *, tx: Transaction | None = None) -> None:
        """Settle a reservation with no usage. An unknown one is ignored.

        Args:
            reservation_id: the id given to :meth:`reserve`.
            tx: the transaction to join; None for a new one.

        Raises:
            LedgerError: the ledger cannot be written.
        """
        self.settle(reservation_id, TokenUsage(0, 0, cost_nano=0), tx=tx)

    def debit(
        self,
        scope: BudgetScope,
        usage: TokenUsage,
        *,
        enforce: bool = False,
        reason: str = "Tokens spent outside the gateway",
        tx: Transaction | None = None,
    ) -> DebitResult:
        """Charge usage outside the gateway; writes a ``BUDGET_DEBIT``.

        Calls through the gateway are charged there and recorded by their ``EXCHANGE``. No hold is
        involved; turns do not change.

        Args:
            scope: the scopes that pay.
            usage: tokens and cost.
            enforce: refuse usage that exceeds a limit.
            reason: the reason in the entry.
            tx: the transaction to join; None for a new one.

        Raises:
            BudgetRefusedError: the scope has no budget, or, with ``enforce``, a limit would be
                exceeded; nothing is charged.
            InvalidInputError: a number of ``usage`` is negative, too great or no whole number, or
                this machine does not know the time zone of an account.
            LedgerError: the ledger cannot be written.
        """
        _require_countable(usage)
        metadata: dict[str, Any] = {
            "scope": scope.key,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "model_id": usage.model_id,
            **_names(scope),
        }
        if usage.cost_nano is not None:
            metadata["cost_usd"] = usd_of(usage.cost_nano)
        entry = LedgerEntry(
            event_type="BUDGET_DEBIT",
            submission_id=scope.work_order_id or scope.session_id or scope.key,
            decision="DEBITED",
            reason=reason,
            metadata=metadata,
        )

        def call(tx: Transaction) -> DebitResult:
            accounts = Accounts.of(tx, allow_unpriced=self.allow_unpriced)
            if enforce:
                amount = Amount(usage.total, usage.cost_nano)
                if (refused := accounts.refusal(scope.path, amount, 0)) is not None:
                    raise refused
            states = accounts.charge(scope.path, usage)
            if not states:
                raise BudgetRefusedError(
                    "NOT_ALLOCATED", f"no budget was allocated for {scope.path[-1]}", None
                )
            accounts.write()
            return DebitResult(
                True,
                accounts.remaining(scope.path),
                states[-1].spent_tokens,
                usd_of(usage.cost_nano or 0),
                tx.append(entry),
            )

        return self._in(tx, call)

    def paid(
        self,
        scope: BudgetScope,
        nano: int,
        reason: str,
        then: Callable[[Transaction], str],
        *,
        enforce: bool,
    ) -> Callable[[Transaction], str]:
        """Return a function that charges for a piece of work in the transaction that begins it.

        That function returns the reason why nothing was begun or charged; empty on success. On
        success it appends a ``BUDGET_DEBIT``. Without any budget it returns ``not_allocated: …`` if
        ``enforce`` is set; otherwise it raises BudgetRefusedError.

        Args:
            scope: the scopes that pay.
            nano: the price in nano-dollars.
            reason: the reason in the ``BUDGET_DEBIT``.
            then: begins the work and returns an empty text, or returns the reason why not.
            enforce: refuse if a limit would be exceeded.
        """

        def call(tx: Transaction) -> str:
            if enforce:
                refused = Accounts.of(tx, allow_unpriced=self.allow_unpriced).refusal(
                    scope.path, Amount(0, nano), 0
                )
                if refused is not None:
                    return f"{refused.code.lower()}: {refused.message}"
            if problem := then(tx):
                return problem
            self.debit(scope, TokenUsage(0, 0, cost_nano=nano), reason=reason, tx=tx)
            return ""

        return call

    def for_new_key(
        self, limits: BudgetLimits, by: str
    ) -> Callable[[Transaction, str], dict[str, Any]]:
        """Return a function that gives a new key its limits.

        The function fits ``in_transaction`` of KeyStore.create. Each call appends a
        ``BUDGET_ALLOCATED``.

        Args:
            limits: the limits.
            by: who sets them; recorded.
        """

        def allocate(tx: Transaction, key_id: str) -> dict[str, Any]:
            self.allocate(BudgetScope(key_id=key_id), limits=limits, by=by, tx=tx)
            return {}

        return allocate

    def status(self, scope: BudgetScope) -> builtins.list[BudgetStatus]:
        """Return every existing account on the scope's path, widest first.

        Blocks. Writes nothing.

        An account whose window has ended is returned with an empty new window.

        Args:
            scope: the scope.

        Raises:
            InvalidInputError: this machine does not know the time zone of an account.
            LedgerError: the ledger cannot be read.
        """
        return self.states(scope.path)

    def states(self, scopes: Iterable[str]) -> builtins.list[BudgetStatus]:
        """Return the existing accounts of some scopes, in that order. Blocks. Writes nothing.

        An account whose window has ended is returned with an empty new window.

        Args:
            scopes: names of scopes, such as ``key:key-1f``.

        Raises:
            InvalidInputError: this machine does not know the time zone of an account.
            LedgerError: the ledger cannot be read.
        """
        accounts = Accounts(self._ledger.select, self._ledger)
        return of_now(accounts.statuses(scopes), self._ledger)

    def list(self, prefix: str = "") -> builtins.list[BudgetStatus]:
        """Return the accounts whose scope begins with ``prefix``, sorted by scope.

        Blocks.

        An account whose window has ended is returned with an empty new window.

        Args:
            prefix: beginning of the scopes, such as ``key:``; empty for all.

        Raises:
            InvalidInputError: this machine does not know the time zone of an account.
            LedgerError: the ledger cannot be read.
        """
        sql = f"SELECT {', '.join(FIELDS)} FROM budgets"
        if prefix:
            sql += " WHERE substr(scope, 1, ?) = ?"
        rows = self._ledger.select(f"{sql} ORDER BY scope", (len(prefix), prefix) if prefix else ())
        return of_now([BudgetStatus(*row) for row in rows], self._ledger)


def _allocate(tx: Transaction, scope: BudgetScope, limits: BudgetLimits, by: str) -> str:
    """Set limits in a transaction. A change of the window begins a new one."""
    period = limits.window or ""
    columns = ", ".join(FIELDS)
    rows = tx.execute(f"SELECT {columns} FROM budgets WHERE scope = ?", (scope.key,))
    before = BudgetStatus(*rows[0]) if rows else None
    end = before.window_end if before else 0
    if before is None or (before.period, before.time_zone) != (period, limits.time_zone):
        end = window_at(period, limits.time_zone, tx.wall_ms / 1000)[1] if period else 0
    metadata: dict[str, Any] = {
        "scope": scope.key,
        "token_limit": limits.tokens,
        "turn_limit": limits.turns,
        "by": by,
        **_names(scope),
    }
    if limits.nano is not None:
        metadata["usd_limit"] = usd_of(limits.nano)
    for name in ("requests_per_minute", "tokens_per_minute"):
        if (value := getattr(limits, name)) is not None:
            metadata[name] = value
    if period:
        metadata |= reset_metadata(period, limits.time_zone, end)
    if limits.on_short not in ("", "refuse"):
        metadata["on_short"] = limits.on_short
    if before is not None:
        metadata["before"] = before.limits.to_dict()
    entry = LedgerEntry(
        event_type="BUDGET_ALLOCATED",
        submission_id=scope.work_order_id or scope.session_id or scope.key,
        decision="ALLOCATED",
        reason="Budget allocated",
        metadata=metadata,
    )
    return apply(tx, entry, BUDGETS)


def _require_countable(usage: TokenUsage) -> None:
    """Raise InvalidInputError unless usage and cost are whole numbers that a record carries."""
    cost = 0 if usage.cost_nano is None else usage.cost_nano
    numbers = (usage.input_tokens, usage.output_tokens, cost)
    if not (all(map(is_countable, numbers)) and is_countable(usage.total)):
        raise InvalidInputError(
            "Tokens or cost_nano of the usage are negative, above 2**53 - 1, or no whole numbers.",
            next_step="Give the provider's counts as integers; charge the bound for unknown usage.",
        )


def _names(scope: BudgetScope) -> dict[str, Any]:
    names: dict[str, Any] = {"session_id": scope.session_id}
    if scope.charged_to:
        names["charged_to"] = list(scope.charged_to)
    for name in ("work_order_id", "agent_id", "key_id", "user_id", "team_id", "organisation_id"):
        if value := getattr(scope, name):
            names[name] = value
    return names
