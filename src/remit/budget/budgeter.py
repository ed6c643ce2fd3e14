"""Token budgets, kept in the ledger's own database so that both change together or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from remit.budget.errors import BudgetRefusedError
from remit.budget.values import (
    BudgetCheckResult,
    BudgetScope,
    BudgetStatus,
    DebitResult,
    TokenUsage,
)
from remit.errors import InvalidInputError
from remit.ledger import LedgerClient, LedgerEntry, Transaction

__all__ = ["TokenBudgeter"]

_TABLES = (
    """CREATE TABLE IF NOT EXISTS budgets (
        scope TEXT NOT NULL PRIMARY KEY,
        token_limit BIGINT,
        turn_limit BIGINT,
        spent_tokens BIGINT NOT NULL,
        reserved_tokens BIGINT NOT NULL,
        turns BIGINT NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS reservations (
        reservation_id TEXT NOT NULL,
        scope TEXT NOT NULL,
        tokens BIGINT NOT NULL,
        PRIMARY KEY (reservation_id, scope)
    )""",
)
_FIELDS = "scope, token_limit, turn_limit, spent_tokens, reserved_tokens, turns"


class TokenBudgeter:
    """Reserves, settles and reports tokens per session, work order and agent.

    Limits hold under any concurrency: a reservation is checked and taken under the ledger's
    write lock, in the transaction that also writes the ``DISPATCH``.

    Args:
        ledger: where limits are recorded and state is kept.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger
        ledger.transact(_create)

    def allocate(
        self,
        scope: BudgetScope,
        token_limit: int | None = None,
        *,
        turn_limit: int | None = None,
    ) -> str:
        """Set the limits of the narrowest scope named; returns the ``BUDGET_ALLOCATED`` id.

        Args:
            scope: whose limit it is.
            token_limit: tokens, input and output together; ``scope.requested_tokens`` when left
                out; no limit when that is 0.
            turn_limit: model calls; no limit when left out.

        Raises:
            InvalidInputError: a limit is negative.
        """
        if token_limit is None:
            token_limit = scope.requested_tokens or None
        if (token_limit or 0) < 0 or (turn_limit or 0) < 0:
            raise InvalidInputError("A budget's limit is negative.")
        entry = LedgerEntry(
            event_type="BUDGET_ALLOCATED",
            submission_id=scope.work_order_id or scope.session_id,
            decision="ALLOCATED",
            reason="Budget allocated",
            metadata={
                "scope": scope.key,
                "token_limit": token_limit,
                "turn_limit": turn_limit,
                **_names(scope),
            },
        )

        def call(tx: Transaction) -> str:
            tx.execute(
                f"INSERT INTO budgets ({_FIELDS}) VALUES (?, ?, ?, 0, 0, 0) ON CONFLICT (scope) "
                "DO UPDATE SET token_limit = excluded.token_limit, "
                "turn_limit = excluded.turn_limit",
                (scope.key, token_limit, turn_limit),
            )
            return tx.append(entry)

        return self._ledger.transact(call)

    def check(self, scope: BudgetScope) -> BudgetCheckResult:
        """Whether ``scope.requested_tokens`` more would be allowed just now. Holds nothing."""
        states = self._path(scope)
        remaining = _narrowest(states)
        if not states:
            return BudgetCheckResult(
                False, None, f"NOT_ALLOCATED: no budget was allocated for {scope.path[0]}"
            )
        for state in states:
            try:
                _refuse_if_over(state, scope.requested_tokens, turns=1)
            except BudgetRefusedError as error:
                return BudgetCheckResult(False, remaining, f"{error.code}: {error.message}")
        return BudgetCheckResult(True, remaining)

    def reserve(
        self,
        scope: BudgetScope,
        reservation_id: str,
        *,
        tx: Transaction | None = None,
        turns: int = 1,
        enforce: bool = True,
    ) -> None:
        """Hold ``scope.requested_tokens`` on every limited scope of the path, or on none.

        Args:
            scope: path and amount.
            reservation_id: what settles or releases it later.
            tx: the transaction to join; its own when left out.
            turns: model calls to count; 0 for a retry of one already counted.
            enforce: ``False`` records without refusing.

        Raises:
            BudgetRefusedError: a limit would be exceeded; nothing is held.
        """
        if tx is None:
            self._ledger.transact(
                lambda tx: self.reserve(scope, reservation_id, tx=tx, turns=turns, enforce=enforce)
            )
            return
        amount = scope.requested_tokens
        # Read and written under the ledger's write lock: nobody comes in between.
        keys = scope.path
        found = tx.execute(
            f"SELECT {_FIELDS} FROM budgets WHERE scope IN ({_marks(keys)}) ORDER BY scope", keys
        )
        states = [BudgetStatus(*row) for row in found]
        if enforce:
            if not states:
                raise BudgetRefusedError(
                    "NOT_ALLOCATED", f"no budget was allocated for {keys[0]}", None
                )
            for state in states:
                _refuse_if_over(state, amount, turns)
        if not states:
            return
        held = [state.scope for state in states]
        tx.execute(
            "UPDATE budgets SET reserved_tokens = reserved_tokens + ?, turns = turns + ? "
            f"WHERE scope IN ({_marks(held)})",
            (amount, turns, *held),
        )
        tx.execute(
            f"INSERT INTO reservations VALUES {', '.join(['(?, ?, ?)'] * len(held))}",
            [part for key in held for part in (reservation_id, key, amount)],
        )

    def settle(
        self, reservation_id: str, usage: TokenUsage, *, tx: Transaction | None = None
    ) -> DebitResult:
        """Replace a reservation by the real usage, on every scope that held it."""
        if tx is None:
            return self._ledger.transact(lambda tx: self.settle(reservation_id, usage, tx=tx))
        held = tx.execute(
            "DELETE FROM reservations WHERE reservation_id = ? RETURNING scope, tokens",
            (reservation_id,),
        )
        if not held:
            return DebitResult(False, None, 0)
        keys = [key for key, _ in held]
        rows = tx.execute(
            # One reservation holds the same amount on every scope of its path.
            "UPDATE budgets SET reserved_tokens = reserved_tokens - ?, "
            f"spent_tokens = spent_tokens + ? WHERE scope IN ({_marks(keys)}) RETURNING {_FIELDS}",
            (held[0][1], usage.total, *keys),
        )
        states = sorted((BudgetStatus(*row) for row in rows), key=lambda state: state.scope)
        return DebitResult(True, _narrowest(states), states[-1].spent_tokens)

    def release(self, reservation_id: str, *, tx: Transaction | None = None) -> None:
        """Give a reservation back unused."""
        self.settle(reservation_id, TokenUsage(0, 0), tx=tx)

    def debit(self, scope: BudgetScope, usage: TokenUsage) -> DebitResult:
        """Charge tokens that were spent outside the gateway; writes a ``BUDGET_DEBIT``.

        What goes through the gateway is debited there, once, and recorded by its ``EXCHANGE``.
        """
        entry = LedgerEntry(
            event_type="BUDGET_DEBIT",
            submission_id=scope.work_order_id or scope.session_id,
            decision="DEBITED",
            reason="Tokens spent outside the gateway",
            metadata={
                "scope": scope.key,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "model_id": usage.model_id,
                **_names(scope),
            },
        )

        def call(tx: Transaction) -> DebitResult:
            states = []
            for key in scope.path:
                rows = tx.execute(
                    "UPDATE budgets SET spent_tokens = spent_tokens + ? "
                    f"WHERE scope = ? RETURNING {_FIELDS}",
                    (usage.total, key),
                )
                if state := _state(rows):
                    states.append(state)
            if not states:
                raise BudgetRefusedError(
                    "NOT_ALLOCATED", f"no budget was allocated for {scope.path[0]}", None
                )
            return DebitResult(
                True, _narrowest(states), states[-1].spent_tokens, 0.0, tx.append(entry)
            )

        return self._ledger.transact(call)

    def status(self, scope: BudgetScope) -> list[BudgetStatus]:
        """Every limited scope on the path, widest first."""
        return self._path(scope)

    def _path(self, scope: BudgetScope) -> list[BudgetStatus]:
        keys = scope.path
        rows = self._ledger.select(
            f"SELECT {_FIELDS} FROM budgets WHERE scope IN ({_marks(keys)}) ORDER BY scope",
            keys,
        )
        return [BudgetStatus(*row) for row in rows]


def _create(tx: Transaction) -> None:
    for statement in _TABLES:
        tx.execute(statement)


def _state(rows: list[tuple[object, ...]]) -> BudgetStatus | None:
    return BudgetStatus(*rows[0]) if rows else None  # type: ignore[arg-type]


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def _narrowest(states: list[BudgetStatus]) -> int | None:
    left = [state.remaining for state in states if state.remaining is not None]
    return min(left) if left else None


def _refuse_if_over(state: BudgetStatus, tokens: int, turns: int) -> None:
    if state.turn_limit is not None and state.turns + turns > state.turn_limit:
        raise BudgetRefusedError(
            "TURN_LIMIT", f"{state.scope} has used its {state.turn_limit} calls", state.remaining
        )
    if state.remaining is not None and tokens > state.remaining:
        raise BudgetRefusedError(
            "BUDGET_EXHAUSTED",
            f"{state.scope} has {state.remaining} tokens left, the call may need {tokens}",
            state.remaining,
        )


def _names(scope: BudgetScope) -> dict[str, str]:
    names = {"session_id": scope.session_id}
    if scope.work_order_id:
        names["work_order_id"] = scope.work_order_id
    if scope.agent_id:
        names["agent_id"] = scope.agent_id
    return names
