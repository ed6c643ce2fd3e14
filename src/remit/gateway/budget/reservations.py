"""The accounts of budgets within one transaction."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any

from msgspec.structs import replace

from remit.gateway.budget.account import (
    CHANGING,
    FIELDS,
    MINUTE_S,
    Account,
    BudgetRefusedError,
    Hold,
    TokenUsage,
    bound_of,
    row_of,
)
from remit.gateway.budget.resets import window_entry
from remit.kernel.budget_values import Amount, BudgetStatus
from remit.ledger import Clock, LedgerEntry, Transaction

_UPDATE = f"UPDATE budgets SET {', '.join(f'{name} = ?' for name in CHANGING)} WHERE scope = ?"
# Each row has an account and a raised bound, independent of each other: one statement reads both.
_FIND = (
    f"SELECT {', '.join(f'b.{name}' for name in FIELDS)}, r.provider_id, r.model_id, r.percent "
    "FROM (VALUES {rows}) AS k LEFT JOIN budgets AS b ON b.scope = k.column1 "
    "LEFT JOIN raised_bounds AS r ON r.provider_id = k.column2 AND r.model_id = k.column3"
)
_NO_BOUND = "", ""
_MAX_ROWS = 256
_MAX_LOADED = 4096  # accounts and bounds

_Ask = Callable[[str, Sequence[Any]], Iterable[tuple[Any, ...]]]
_ExecuteMany = Callable[[str, Sequence[Sequence[Any]]], None]
_Append = Callable[[LedgerEntry], str]
_RAISE = (
    "INSERT INTO raised_bounds (provider_id, model_id, percent) VALUES (?, ?, ?) "
    "ON CONFLICT (provider_id, model_id) DO UPDATE SET percent = excluded.percent "
    "WHERE excluded.percent > raised_bounds.percent"
)


@dataclass(eq=False, repr=False)
class Accounts:
    """Accounts that are loaded, reserved on, settled and written back within one transaction.

    The caller has the ledger's write lock, so no other process changes them in between. All changes
    are in memory until :meth:`write`, except that a new window appends an entry at once. Every
    method that loads an account raises LedgerError if a query fails. :meth:`reserve`,
    :meth:`refusal` and :meth:`charge` begin a new window for an account whose window has ended.

    Args:
        ask: runs a query; results are read lazily.
        clock: the transaction or the ledger.
        execute_many: runs a statement for many rows; None for read-only accounts.
        append: appends an entry, for new windows; None to append none.
        allow_unpriced: let models without a price pass a limit in US dollars.

    Attributes:
        is_full: True if so many are loaded that the next transaction must begin without them.
    """

    is_full = False

    _ask: _Ask
    _clock: Clock
    _execute_many: _ExecuteMany | None = None
    _append: _Append | None = None
    allow_unpriced: bool = False
    _now_s: int = field(default=0, init=False)
    _accounts: dict[str, Account | None] = field(default_factory=dict, init=False)
    # Raised bounds, as `bound_of` names them.
    _percents: dict[tuple[str, ...], int] = field(default_factory=dict, init=False)
    _changed: dict[str, Account] = field(default_factory=dict, init=False)
    _passed: list[tuple[Account, tuple[int, int, int]]] = field(default_factory=list, init=False)
    _to_raise: list[tuple[str, str, int]] = field(default_factory=list, init=False)

    @classmethod
    def of(cls, tx: Transaction, *, allow_unpriced: bool) -> Accounts:
        """Return the accounts of a transaction; the caller calls their :meth:`write`.

        Loaded accounts stay in the transaction's cache.

        Args:
            tx: the transaction, in which the accounts are read and written.
            allow_unpriced: see the class.
        """
        found: Accounts | None = tx.cache.get("accounts")
        if found is None or found.is_full:
            found = tx.cache["accounts"] = cls(
                tx.ask, tx, tx.execute_many, tx.append, allow_unpriced=allow_unpriced
            )
        return found

    def load(self, scopes: Sequence[str], bounds: Sequence[tuple[str, ...]] = ()) -> None:
        """Read the accounts and raised bounds that are not loaded yet, in one statement.

        A scope without an account is remembered as such, and so is a bound that is not raised.

        Args:
            scopes: names of the scopes; duplicates are ignored.
            bounds: the bounds, as :func:`bound_of` names them; duplicates are ignored.

        Raises:
            LedgerError: the query fails.
        """
        accounts, percents = self._accounts, self._percents
        if accounts.keys() >= {*scopes} and percents.keys() >= {*bounds}:
            return
        missing: dict[str, Account | None] = {
            scope: None for scope in scopes if scope not in accounts
        }
        unread = {row_of(bound): bound for bound in bounds if bound not in percents}
        raised = dict.fromkeys(unread.values(), 100)
        wanted: list[tuple[str, ...]] = []
        for scope, name in zip_longest(missing, unread):
            wanted.append((scope or "", *(name or _NO_BOUND)))
        for start in range(0, len(wanted), _MAX_ROWS):
            part = wanted[start : start + _MAX_ROWS]
            # Few statement sizes, so that they stay prepared; the last row fills the rest.
            size = 1 << (len(part) - 1).bit_length()
            part += part[-1:] * (size - len(part))
            sql = _FIND.format(rows=", ".join(["(?, ?, ?)"] * size))
            for *row, provider_id, model_id, percent in self._ask(
                sql, [*chain.from_iterable(part)]
            ):
                if row[0] is not None:
                    missing[row[0]] = Account(row)
                if percent is not None:
                    raised[unread[(provider_id, model_id)]] = percent
        accounts |= missing
        percents |= raised
        self.is_full = len(accounts) + len(percents) > _MAX_LOADED

    def _percent(self, bound: tuple[str, ...] | None) -> int:
        """Return the percentage to which earlier bills raised a bound; 100 if none did."""
        if bound is not None and bound not in self._percents:
            self.load((), (bound,))
        return 100 if bound is None else self._percents[bound]

    def reserve(
        self, path: Sequence[str], amount: Amount, *, turns: int, enforce: bool = True
    ) -> Hold:
        """Hold ``amount`` on every existing account of ``path``, or on none.

        :meth:`write` stores the hold's effect. If every short scope allows lowered calls
        (``on_short``), the output limit is lowered to a value that the remaining amount pays for.
        The hold's ``output`` is then that limit. An ended window of an account is replaced by a new
        one, which appends an entry.

        Args:
            path: scopes that pay.
            amount: upper bound of the call.
            turns: number of calls to count.
            enforce: False to hold without refusing.

        Raises:
            BudgetRefusedError: a limit would be exceeded, or no account exists; nothing is held.
                Not raised without ``enforce``.
            InvalidInputError: this machine does not know the time zone of an account.
            LedgerError: a query or the entry of a window fails.
        """
        accounts = self._open(path)
        model = bound_of(path, amount)
        percent = 100 if model is None else self._percents.get(model) or self._percent(model)
        if percent != 100:
            amount = amount.raised(percent)
        output = None
        admitted = bool(accounts)
        for account in accounts:
            admitted = admitted and account.admits(amount, turns)
        if enforce and not admitted:
            if (lowered := _lowered(accounts, amount)) is not None:
                amount, output = lowered, lowered.output
            if (refused := self._refused(path, accounts, amount, turns)) is not None:
                self._restore_minutes()
                raise refused
        tokens, nano = amount.tokens, amount.nano or 0
        scopes: tuple[str, ...] = ()
        windows: tuple[int, ...] = ()
        for account in accounts:
            scopes += (account.scope,)
            windows += (account.window_number,)
            account.reserved_tokens += tokens
            account.reserved_nano += nano
            account.turns += turns
            account.minute_requests += turns
            account.minute_tokens += tokens
            self._changed[account.scope] = account
        return Hold(
            scopes, tokens, amount.nano, turns, self._now_s // MINUTE_S, amount.bounded,
            windows if any(windows) else (), percent, model, output,
        )  # fmt: skip

    def refusal(self, path: Sequence[str], amount: Amount, turns: int) -> BudgetRefusedError | None:
        """Return the error that a reservation would raise now; None if it would succeed.

        Args:
            path: scopes that pay.
            amount: upper bound of the call.
            turns: number of calls to count.

        Raises:
            InvalidInputError: this machine does not know the time zone of an account.
            LedgerError: a query fails.
        """
        accounts = self._open(path)
        amount = amount.raised(self._percent(bound_of(path, amount)))
        refused = self._refused(path, accounts, _lowered(accounts, amount) or amount, turns)
        self._restore_minutes()
        return refused

    def _refused(
        self, path: Sequence[str], accounts: Sequence[Account], amount: Amount, turns: int
    ) -> BudgetRefusedError | None:
        if not accounts:
            message = f"no budget was allocated for {path[-1]}; run `remit budget set`"
            return BudgetRefusedError("NOT_ALLOCATED", message, None, scope=path[-1])
        busy = None
        for account in accounts:
            found = account.refusal(amount, turns, self.allow_unpriced, self._wait_s)
            if found is not None and not found.busy:
                return found  # no waiting helps, whatever others hold elsewhere
            busy = busy or found
        return busy

    def _wait_s(self) -> float:
        """Return the seconds until the next minute begins."""
        return MINUTE_S - self._clock.now_ms / 1000 % MINUTE_S

    def _open(self, path: Sequence[str]) -> list[Account]:
        """Return the existing accounts of a path, moved to the current minute and window."""
        known, accounts = self._accounts, []
        if not known.keys() >= set(path):
            self.load(path)
        self._now_s = self._clock.now_ms // 1000
        minute = self._now_s // MINUTE_S
        self._passed.clear()
        for key in path:
            if (account := known[key]) is None:
                continue
            accounts.append(account)
            # A clock set back a little begins none; one set back far would stop it for as long.
            if not -1 <= minute - account.minute <= 0:
                passed = account.minute, account.minute_requests, account.minute_tokens
                self._passed.append((account, passed))
                account.minute, account.minute_requests, account.minute_tokens = minute, 0, 0
            if account.window_end:
                self._move_window(account, self._clock.wall_ms // 1000)
        return accounts

    def _restore_minutes(self) -> None:
        """Undo the minutes that :meth:`_open` began: only a call that counts begins one.

        The clock may be ahead for a moment, and the minute before it still counts then.
        """
        for account, passed in self._passed:
            account.minute, account.minute_requests, account.minute_tokens = passed

    def _move_window(self, account: Account, wall_s: int) -> None:
        passed = account.status()
        begun = account.start_window(wall_s)
        if begun or account.end_sooner(wall_s):
            self._changed[account.scope] = account
            if self._append is not None:
                self._append(window_entry(passed, account.status(), begun=begun))

    def cancel(self, hold: Hold) -> None:
        """Undo a hold of this transaction, in memory.

        Call it only before :meth:`write`.

        Args:
            hold: a result of :meth:`reserve`.
        """
        for key in hold.scopes:
            if (account := self._accounts[key]) is not None:
                account.reserved_tokens -= hold.tokens
                account.reserved_nano -= hold.nano or 0
                account.turns -= hold.turns
                account.minute_requests -= hold.turns
                account.minute_tokens -= hold.tokens

    def settle(self, hold: Hold, usage: TokenUsage) -> None:
        """Replace a hold by the real usage, in the window that the hold was reserved in.

        A bill above its bound is charged in full and raises the bound of its cause for its key. If
        the window of an account has ended, only the ledger's entries count the usage. :meth:`write`
        stores the change.

        Args:
            hold: the reservation.
            usage: tokens and cost.

        Raises:
            LedgerError: the ledger cannot be read or written.
        """
        known, windows = self._accounts, hold.windows
        tokens = usage.input_tokens + usage.output_tokens
        if not known.keys() >= set(hold.scopes):
            self.load(hold.scopes)
        for place, key in enumerate(hold.scopes):
            if (account := known[key]) is None:
                continue
            self._changed[key] = account
            if account.minute == hold.minute:
                account.minute_tokens += tokens - hold.tokens
            if account.window_number != (windows[place] if windows else 0):
                continue  # its window has passed, and stands on record alone
            account.reserved_tokens -= hold.tokens
            account.reserved_nano -= hold.nano or 0
            account.spend(tokens, usage.cost_nano)
        percent = hold.raised_by(usage)
        if percent is not None and hold.model is not None:
            self._percents[hold.model] = max(percent, self._percent(hold.model))
            self._to_raise.append((*row_of(hold.model), percent))

    def charge(self, scopes: Sequence[str], usage: TokenUsage) -> list[BudgetStatus]:
        """Charge usage without a hold and return the existing accounts of ``scopes``.

        No limit is checked. :meth:`write` stores the change.

        Args:
            scopes: names of the scopes; those without an account are left out.
            usage: tokens and cost.

        Raises:
            InvalidInputError: this machine does not know the time zone of an account.
            LedgerError: a query fails.
        """
        charged = self._open(scopes)
        for account in charged:
            account.spend(usage.total, usage.cost_nano)
            account.minute_tokens += usage.total
            self._changed[account.scope] = account
        return [account.status() for account in charged]

    def statuses(self, scopes: Iterable[str]) -> list[BudgetStatus]:
        """Return the existing accounts of ``scopes`` in that order, without moving their
        windows.

        Args:
            scopes: keys of the scopes; those without an account are left out.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        wanted = list(scopes)
        self.load(wanted)
        return [account.status() for key in wanted if (account := self._accounts[key]) is not None]

    def remaining(self, scopes: Iterable[str]) -> int | None:
        """Return the fewest tokens remaining under any token limit; None without one.

        Reservations count as used.

        Args:
            scopes: names of loaded scopes.

        Raises:
            KeyError: a scope is not loaded.
        """
        fewest = None
        for key in scopes:
            account = self._accounts[key]
            if account is not None and account.token_limit is not None:
                left = account.token_limit - account.spent_tokens - account.reserved_tokens
                fewest = left if fewest is None else min(fewest, left)
        return fewest

    def write(self) -> None:
        """Write the changed accounts and raised bounds to their tables.

        Does nothing without a change. A second call writes only later changes.

        Raises:
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        if not self._changed and not self._to_raise:
            return
        assert self._execute_many is not None
        if self._changed:
            self._execute_many(_UPDATE, [*map(Account.changing, self._changed.values())])
            self._changed.clear()
        if self._to_raise:
            self._execute_many(_RAISE, self._to_raise)
            self._to_raise = []


def of_now(states: Iterable[BudgetStatus], clock: Clock) -> list[BudgetStatus]:
    """Return the states as of now: a window that has ended is replaced by an empty one.

    Nothing is written.

    Args:
        states: the accounts as they are stored.
        clock: the ledger or a transaction, for the time.

    Raises:
        InvalidInputError: this machine does not know the time zone of an account.
    """
    found = list(states)
    wall_s = clock.wall_ms / 1000 if any(state.window_end for state in found) else 0
    for place, state in enumerate(found):
        if 0 < state.window_end <= wall_s:
            account = Account([getattr(state, name) for name in FIELDS])
            account.start_window(wall_s)
            found[place] = account.status()
    return found


def _lowered(accounts: Sequence[Account], amount: Amount) -> Amount | None:
    """Return ``amount`` with the longest output that the remaining amount pays for.

    None if nothing is short, if a short scope refuses instead, or if not even one token remains.
    """
    short = [account for account in accounts if account.is_short_of(amount)]
    lowered = amount.lowered
    if not short or lowered is None or any(account.on_short != "clamp" for account in short):
        return None
    low = bisect_left(
        range(1, amount.output), True,
        key=lambda output: any(account.is_short_of(lowered(output)) for account in short),
    )  # fmt: skip
    return replace(lowered(low), output=low) if low else None
