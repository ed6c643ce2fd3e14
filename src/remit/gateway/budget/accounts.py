"""The accounts of budgets, read and changed in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import orjson

from remit.kernel.budget import Amount, BudgetStatus, TokenUsage, usd_of
from remit.kernel.errors import RemitError

FIELDS = tuple(field.name for field in fields(BudgetStatus))
"""Columns of the table ``budgets``, in the order of :class:`~remit.gateway.budget.BudgetStatus`."""

MAX_COUNT = 1 << 62
"""Counts stop here: it fits the columns."""

_CHANGING = (
    "spent_tokens", "reserved_tokens", "turns", "spent_nano", "reserved_nano", "unpriced_calls",
    "minute", "minute_requests", "minute_tokens", "closed",
)  # fmt: skip
_UPDATE = f"UPDATE budgets SET {', '.join(f'{name} = ?' for name in _CHANGING)} WHERE scope = ?"
_MINUTE_S = 60
_MAX_MARKS = 256

_Execute = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
_ExecuteMany = Callable[[str, Sequence[Sequence[Any]]], None]


class BudgetError(RemitError):
    """Base of the errors of budgets."""


class BudgetRefusedError(BudgetError):
    """A reservation would go over a limit.

    Attributes:
        code: ``BUDGET_EXHAUSTED``, ``TURN_LIMIT``, ``RATE_LIMITED``, ``NOT_ALLOCATED``,
            ``UNPRICED`` (a limit in US dollars, and no price) or ``UNBOUNDED`` (a limit, and no
            bound to what the call may use).
        remaining: tokens left on the scope that refused; ``None`` where it has no token limit.
        retry_after_s: when to try again, in seconds; ``None`` when waiting does not help.
    """

    def __init__(
        self,
        code: str,
        message: str,
        remaining: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.remaining = remaining
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Hold:
    """What one call holds on each of its accounts until it ends.

    Attributes:
        nano: cost in billionths of a US dollar; ``None`` when the model had no price.
        minute: since 1970, for the limits per minute.
    """

    scopes: tuple[str, ...]
    tokens: int
    nano: int | None
    turns: int
    minute: int
    bounded: bool = True

    def exceeded_by(self, usage: TokenUsage) -> list[str]:
        """Which of ``tokens`` and ``cost`` went above this bound."""
        if not self.bounded:
            return []
        cost_over = self.nano is not None and (usage.cost_nano or 0) > self.nano
        return ["tokens"] * (usage.total > self.tokens) + ["cost"] * cost_over

    def encode(self) -> str:
        """JSON, for a column."""
        return orjson.dumps(self).decode()

    @classmethod
    def read(cls, text: str) -> Hold | None:
        """From a column; ``None`` for what is not a hold."""
        try:
            return cls.decode(text)
        except (ValueError, TypeError, KeyError):
            return None

    @classmethod
    def decode(cls, text: str) -> Hold:
        """From :meth:`encode`."""
        fields = orjson.loads(text)
        return cls(**{**fields, "scopes": tuple(fields["scopes"])})


class _Account:
    """One row, changed in memory."""

    __slots__ = (*FIELDS, "dirty")

    def __init__(self, row: Sequence[Any]) -> None:
        (
            self.scope, self.token_limit, self.turn_limit, self.spent_tokens,
            self.reserved_tokens, self.turns, self.nano_limit, self.requests_per_minute,
            self.tokens_per_minute, self.spent_nano, self.reserved_nano, self.unpriced_calls,
            self.minute, self.minute_requests, self.minute_tokens, self.closed,
        ) = row  # fmt: skip
        self.dirty = False

    def status(self) -> BudgetStatus:
        return BudgetStatus(*[getattr(self, name) for name in FIELDS])

    def spend(self, usage: TokenUsage) -> None:
        """Charge what was used."""
        self.spent_tokens = min(self.spent_tokens + usage.total, MAX_COUNT)
        if usage.cost_nano is None:
            self.unpriced_calls += usage.total > 0
        else:
            self.spent_nano = min(self.spent_nano + usage.cost_nano, MAX_COUNT)

    def start_minute(self, minute: int) -> None:
        """Reset the counts of a minute that has passed; a clock set back resets nothing."""
        if minute > self.minute:
            self.minute, self.minute_requests, self.minute_tokens = minute, 0, 0


class Accounts:
    """Loads accounts, reserves and settles on them, and writes them back once.

    All under the ledger's write lock, so no other process changes them in between.

    Args:
        execute: runs a statement of the transaction; to look only, any that reads.
        execute_many: runs one for many rows; left out, nothing can be written.
        allow_unpriced: let a limit in US dollars pass models that have no price.
    """

    def __init__(
        self,
        execute: _Execute,
        execute_many: _ExecuteMany | None = None,
        *,
        allow_unpriced: bool = False,
    ) -> None:
        self._execute = execute
        self._execute_many = execute_many
        self._allow_unpriced = allow_unpriced
        self._accounts: dict[str, _Account | None] = {}

    def load(self, scopes: Iterable[str]) -> None:
        """Read the accounts that are not loaded yet."""
        missing = [key for key in dict.fromkeys(scopes) if key not in self._accounts]
        self._accounts.update(dict.fromkeys(missing))
        for start in range(0, len(missing), _MAX_MARKS):
            part = missing[start : start + _MAX_MARKS]
            # Few statement sizes, so that they stay prepared; the last name fills the rest.
            size = 1 << (len(part) - 1).bit_length()
            marks = ", ".join("?" * size)
            for row in self._execute(
                f"SELECT {', '.join(FIELDS)} FROM budgets WHERE scope IN ({marks})",
                (*part, *[part[-1]] * (size - len(part))),
            ):
                self._accounts[row[0]] = _Account(row)

    def reserve(
        self, path: Sequence[str], amount: Amount, *, turns: int, enforce: bool = True
    ) -> Hold:
        """Hold ``amount`` on every existing account of ``path``, or on none.

        Raises:
            BudgetRefusedError: a limit would be exceeded, or there is no account; nothing is held.
        """
        self.load(path)
        accounts = [account for key in path if (account := self._accounts[key]) is not None]
        minute = int(time.time()) // _MINUTE_S
        if enforce and (refused := self.refusal(path, amount, turns)) is not None:
            raise refused
        for account in accounts:
            account.start_minute(minute)
            account.reserved_tokens += amount.tokens
            account.reserved_nano += amount.nano or 0
            account.turns += turns
            account.minute_requests += turns
            account.minute_tokens += amount.tokens
            account.dirty = True
        return Hold(
            tuple(account.scope for account in accounts),
            amount.tokens,
            amount.nano,
            turns,
            minute,
            amount.bounded,
        )

    def refusal(self, path: Sequence[str], amount: Amount, turns: int) -> BudgetRefusedError | None:
        """Why a reservation would be refused now; ``None`` when it would not."""
        self.load(path)
        minute = int(time.time()) // _MINUTE_S
        accounts = [account for key in path if (account := self._accounts[key]) is not None]
        if not accounts:
            message = f"no budget was allocated for {path[-1]}"
            return BudgetRefusedError("NOT_ALLOCATED", message, None)
        for account in accounts:
            account.start_minute(minute)
            if (found := _refusal(account, amount, turns, self._allow_unpriced)) is not None:
                return found
        return None

    def cancel(self, hold: Hold) -> None:
        """Undo a hold of this transaction."""
        for key in hold.scopes:
            account = self._accounts[key]
            if account is not None:
                account.reserved_tokens -= hold.tokens
                account.reserved_nano -= hold.nano or 0
                account.turns -= hold.turns
                account.minute_requests -= hold.turns
                account.minute_tokens -= hold.tokens

    def settle(self, hold: Hold, usage: TokenUsage) -> None:
        """Replace a hold by the real usage.

        A bill above its bound is charged whole and closes the accounts that have a limit of
        its kind.
        """
        self.load(hold.scopes)
        used = usage.total
        over = hold.exceeded_by(usage)
        for key in hold.scopes:
            account = self._accounts[key]
            if account is None:
                continue
            account.reserved_tokens -= hold.tokens
            account.reserved_nano -= hold.nano or 0
            account.spend(usage)
            if account.minute == hold.minute:
                account.minute_tokens += used - hold.tokens
            if over and (
                ("tokens" in over and account.token_limit is not None)
                or ("cost" in over and account.nano_limit is not None)
            ):
                account.closed = 1
            account.dirty = True

    def charge(self, scopes: Sequence[str], usage: TokenUsage) -> list[BudgetStatus]:
        """Charge usage without a hold; returns the existing accounts of ``scopes``."""
        self.load(scopes)
        minute = int(time.time()) // _MINUTE_S
        charged = []
        for key in scopes:
            account = self._accounts[key]
            if account is not None:
                account.start_minute(minute)
                account.spend(usage)
                account.minute_tokens += usage.total
                account.dirty = True
                charged.append(account.status())
        return charged

    def statuses(self, scopes: Iterable[str]) -> list[BudgetStatus]:
        """The existing accounts of ``scopes``, in that order."""
        wanted = list(scopes)
        self.load(wanted)
        return [account.status() for key in wanted if (account := self._accounts[key]) is not None]

    def remaining(self, scopes: Iterable[str]) -> int | None:
        """Fewest tokens left under any token limit; ``None`` without one."""
        left = []
        for key in scopes:
            account = self._accounts[key]
            if account is not None and account.token_limit is not None:
                left.append(account.token_limit - account.spent_tokens - account.reserved_tokens)
        return min(left) if left else None

    def write(self) -> None:
        """Write the accounts that changed since the last write."""
        changed = [account for account in self._accounts.values() if account and account.dirty]
        if changed:
            assert self._execute_many is not None
            self._execute_many(
                _UPDATE,
                [
                    (*[min(getattr(account, name), MAX_COUNT) for name in _CHANGING], account.scope)
                    for account in changed
                ],
            )
            for account in changed:
                account.dirty = False


def _refusal(
    account: _Account, amount: Amount, turns: int, allow_unpriced: bool
) -> BudgetRefusedError | None:
    """Why ``account``, in its current minute, refuses ``amount``; ``None`` when it does not."""
    scope, left = account.scope, None
    if account.token_limit is not None:
        left = account.token_limit - account.spent_tokens - account.reserved_tokens
    if account.closed:
        message = (
            f"{scope} is closed: a bill went above its bound. Allocate the budget again to open it"
        )
        return BudgetRefusedError("BUDGET_EXHAUSTED", message, left)
    if account.turn_limit is not None and account.turns + turns > account.turn_limit:
        message = f"{scope} has used its {account.turn_limit} calls"
        return BudgetRefusedError("TURN_LIMIT", message, left)
    limit = account.requests_per_minute
    if limit is not None and account.minute_requests + turns > limit:
        message = f"{scope} has made its {limit} calls of this minute"
        return BudgetRefusedError("RATE_LIMITED", message, left, _wait_s())
    if not amount.bounded and (
        left is not None or account.nano_limit is not None or account.tokens_per_minute is not None
    ):
        message = f"{scope} has a limit, and what the call may use has none: name max_tokens"
        return BudgetRefusedError("UNBOUNDED", message, left)
    limit = account.tokens_per_minute
    if limit is not None and account.minute_tokens + amount.tokens > limit:
        message = (
            f"{scope} has {max(0, limit - account.minute_tokens)} of its {limit} tokens of this "
            f"minute left, the call may need {amount.tokens}"
        )
        return BudgetRefusedError("RATE_LIMITED", message, left, _wait_s())
    if left is not None and amount.tokens > left:
        message = f"{scope} has {left} tokens left, the call may need {amount.tokens}"
        return BudgetRefusedError("BUDGET_EXHAUSTED", message, left)
    if account.nano_limit is not None:
        if amount.nano is None:
            if allow_unpriced:
                return None
            message = (
                f"{scope} has a limit in US dollars, and the model has no price. Give it one, or "
                "set [budget] allow_unpriced"
            )
            return BudgetRefusedError("UNPRICED", message, left)
        nano_left = account.nano_limit - account.spent_nano - account.reserved_nano
        if amount.nano > nano_left:
            message = (
                f"{scope} has {usd_of(nano_left):.6f} USD left, the call may cost "
                f"{usd_of(amount.nano):.6f}"
            )
            return BudgetRefusedError("BUDGET_EXHAUSTED", message, left)
    return None


def _wait_s() -> float:
    """Seconds until the next minute begins."""
    return _MINUTE_S - time.time() % _MINUTE_S
