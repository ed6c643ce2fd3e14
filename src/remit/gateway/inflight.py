"""Calls that are out, and what becomes of those whose process died (SPEC 4.6)."""

from __future__ import annotations

import os
import secrets
import socket
import time
from typing import Literal

from remit.budget import TokenBudgeter, TokenUsage
from remit.errors import RemitError
from remit.exchange import PromptRequest
from remit.ledger import LedgerClient, LedgerEntry, Transaction

__all__ = ["InFlightCalls", "LeaseLostError"]

_TABLE = """CREATE TABLE IF NOT EXISTS in_flight (
    dispatch_entry_id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    lease_until_ms BIGINT NOT NULL,
    session_id TEXT NOT NULL,
    work_order_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    contract_id TEXT NOT NULL,
    reserved_tokens BIGINT NOT NULL
)"""
_FIELDS = "dispatch_entry_id, session_id, work_order_id, agent_id, contract_id, reserved_tokens"


class LeaseLostError(RemitError):
    """The call took so long that it was settled as an orphan before its answer came."""


class InFlightCalls:
    """The rows that say which dispatched calls still wait for their exchange.

    Args:
        ledger: in whose database they lie.
        budgeter: where reservations are settled.
    """

    def __init__(self, ledger: LedgerClient, budgeter: TokenBudgeter) -> None:
        self._ledger = ledger
        self._budgeter = budgeter
        # A pid alone comes back after a restart: the random part does not.
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"
        ledger.transact(lambda tx: tx.execute(_TABLE))

    def add(
        self, tx: Transaction, dispatch_entry_id: str, request: PromptRequest, lease_ms: int,
        reserved_tokens: int,
    ) -> None:  # fmt: skip
        """Note a call that is about to go out."""
        tx.execute(
            "INSERT INTO in_flight VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                dispatch_entry_id, self._owner, _now_ms() + lease_ms, request.session_id,
                request.work_order_id or "", request.agent_id or "", request.contract_id,
                reserved_tokens,
            ),
        )  # fmt: skip

    def consume(self, tx: Transaction, dispatch_entry_id: str) -> None:
        """Take a call off; whoever does it writes the one entry that ends it.

        Raises:
            LeaseLostError: it was taken off before.
        """
        if not tx.execute(
            "DELETE FROM in_flight WHERE dispatch_entry_id = ? RETURNING owner",
            (dispatch_entry_id,),
        ):
            raise LeaseLostError(
                f"The call {dispatch_entry_id} was settled as an orphan before its answer came.",
                next_step="Raise [gateway] lease_margin_ms if the machine sleeps.",
            )

    def recover(self, policy: Literal["charge", "release"]) -> list[str]:
        """Settle every call whose lease has run out; returns the ``EXCHANGE_ORPHANED`` ids."""
        overdue = "SELECT dispatch_entry_id FROM in_flight WHERE lease_until_ms < ?"
        if not self._ledger.select(overdue, (_now_ms(),)):
            return []
        return self._ledger.transact(lambda tx: self._recover(tx, policy))

    def _recover(self, tx: Transaction, policy: Literal["charge", "release"]) -> list[str]:
        rows = tx.execute(
            f"DELETE FROM in_flight WHERE lease_until_ms < ? RETURNING {_FIELDS}", (_now_ms(),)
        )
        ids = []
        for dispatch_id, session_id, work_order_id, agent_id, contract_id, reserved in sorted(rows):
            settled = reserved if policy == "charge" else 0
            self._budgeter.settle(dispatch_id, TokenUsage(settled, 0), tx=tx)
            ids.append(
                tx.append(
                    LedgerEntry(
                        event_type="EXCHANGE_ORPHANED",
                        submission_id=contract_id,
                        decision="ORPHANED",
                        reason="The process that sent the call ended before the answer was on "
                        "record",
                        metadata={
                            "dispatch_entry_id": dispatch_id,
                            "session_id": session_id,
                            "agent_id": agent_id,
                            "contract_id": contract_id,
                            "work_order_id": work_order_id,
                            "settlement": policy,
                            "settled_tokens": settled,
                        },
                    )
                )
            )
        return ids


def _now_ms() -> int:
    return int(time.time() * 1000)
