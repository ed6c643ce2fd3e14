"""Which engine has a root's orders begin."""

from __future__ import annotations

from remit.agents.queue.rows import Engine
from remit.agents.queue.table import TableEngine
from remit.kernel.settings import Settings
from remit.ledger import LedgerClient

__all__ = ["engine_of"]


def engine_of(ledger: LedgerClient, settings: Settings) -> Engine:
    """The engine that ``[worker.orders]`` names.

    Raises:
        InvalidInputError: the ledger's database has none such.
    """
    if settings.worker.orders.engine == "dbos":
        from remit.agents.queue.dbos import DbosEngine  # of an extra

        return DbosEngine(ledger, settings.worker, settings.ledger.path)
    return TableEngine(ledger, settings.worker)
