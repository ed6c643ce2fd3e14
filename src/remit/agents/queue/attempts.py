"""How the attempt of a worker at an order ends; each is one transaction, and only the worker that
holds the order ends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from remit.agents.queue import entries, rows
from remit.agents.queue.order import Row
from remit.agents.sessions.manager import new_session_id
from remit.kernel.settings import OrderSettings
from remit.ledger import LedgerClient, Transaction

__all__ = ["Attempts", "set_aside"]

_T = TypeVar("_T")
_BY = "worker"


class Attempts:
    """Ends attempts. Each method says whether the order was still the claim's: where it was not,
    another worker has taken it over, and nothing is changed.

    Args:
        ledger: holds record and rows.
        settings: when there is another attempt, and how many.
    """

    def __init__(self, ledger: LedgerClient, settings: OrderSettings) -> None:
        self._ledger = ledger
        self._settings = settings

    async def completed(
        self, claim: Row, turn_entry_id: str = "", figures: Mapping[str, Any] | None = None
    ) -> bool:
        """It is done; ``figures`` are what an order that is no turn came to."""

        def act(tx: Transaction, row: Row) -> None:
            rows.delete(tx, row.order_id)
            further = {"turn_entry_id": turn_entry_id, "figures": figures}
            tx.append(entries.ended(row, "COMPLETED", **further))

        return await self._end(claim, act)

    async def cancelled(self, claim: Row, by: str = "") -> bool:
        """Somebody asked it to stop, and it did."""

        def act(tx: Transaction, row: Row) -> None:
            rows.delete(tx, row.order_id)
            tx.append(entries.ended(row, "CANCELLED", by=by))

        return await self._end(claim, act)

    async def failed(
        self, claim: Row, code: str, message: str, *, again: bool, new_session: bool = False
    ) -> bool:
        """It failed: there is another attempt in a while, or it is set aside.

        Args:
            code: of the failure.
            message: of it; content.
            again: whether another attempt can help.
            new_session: whether that is made in a session of its own, as the turn has ended in
                this one.
        """

        def act(tx: Transaction, row: Row) -> None:
            if not again or row.attempts >= row.max_attempts or row.stop:
                set_aside(tx, row, code, message)
                return
            if new_session:
                row = row._replace(session_id=new_session_id())
                tx.append(entries.changed(row, "RETRIED", _BY, code))
            rows.change(
                tx, row, session_id=row.session_id, state="delayed", worker="",
                due_ms=tx.now_ms + self.backoff_ms(row.attempts),
            )  # fmt: skip

        return await self._end(claim, act)

    async def waiting(self, claim: Row, request_ids: Sequence[str]) -> bool:
        """It waits for a person; whoever decides has it go on, on any worker."""

        def act(tx: Transaction, row: Row) -> None:
            attempts = row.attempts - 1
            if row.stop or rows.any_decided(tx, request_ids):  # meanwhile
                rows.change(tx, row, state="delayed", due_ms=0, worker="", attempts=attempts)
            else:
                waits = " ".join(request_ids)
                rows.change(tx, row, state="waiting", worker="", attempts=attempts, waits_for=waits)

        return await self._end(claim, act)

    def backoff_ms(self, attempts: int) -> int:
        """The wait after so many attempts: it doubles each time."""
        longest = self._settings.retry_max_s
        wait = min(self._settings.retry_base_s * 2.0 ** min(attempts - 1, 30), longest)
        return int(wait * 1000)

    async def _end(self, claim: Row, act: Callable[[Transaction, Row], None]) -> bool:
        def work(tx: Transaction) -> bool:
            row = rows.held(tx, claim)
            if row is None:
                return False
            act(tx, row)
            return True

        return await self._ledger.submit(work)


def set_aside(tx: Transaction, row: Row, code: str, message: str) -> None:
    """Keep an order from being tried again until somebody says so."""
    tx.append(entries.ended(row, "FAILED", error_code=code, error_message=message))
    rows.change(tx, row, state="failed", worker="", held_by="")
