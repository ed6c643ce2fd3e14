"""The tokens and cost of exchanges and tools."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from remit.ledger import LedgerEntry, LedgerPort


class Usage:
    """The sum of exchanges, and of the prices of tools.

    Mutable: :meth:`add`, :meth:`count`, :meth:`pay` and :meth:`include` add to the sum. Prices are
    summed exactly, as decimals.

    Args:
        exchanges: ``EXCHANGE`` entries to begin with.

    Attributes:
        calls: number of exchanges.
        input_tokens: sum of input tokens.
        output_tokens: sum of output tokens.
        priced: number of exchanges and tools with a known price.
        unpriced: number of exchanges that used tokens at an unknown price.
    """

    def __init__(self, exchanges: Iterable[LedgerEntry] = ()) -> None:
        self.calls = self.input_tokens = self.output_tokens = self.priced = self.unpriced = 0
        self._usd = Decimal(0)
        for entry in exchanges:
            self.add(entry)

    def add(self, exchange: LedgerEntry) -> None:
        """Add an ``EXCHANGE`` entry: one call, its tokens and its price.

        An exchange without a price counts as unpriced only if it used tokens.

        Args:
            exchange: the entry; its content is not needed.
        """
        data = exchange.metadata
        self.count(data["input_tokens"], data["output_tokens"], data.get("cost_usd"))

    def count(self, input_tokens: int, output_tokens: int, usd: float | None) -> None:
        """Add an exchange by its tokens and price.

        A call without a price counts as unpriced only if it used tokens.

        Args:
            input_tokens: tokens sent.
            output_tokens: tokens received.
            usd: price in US dollars; None if unknown.
        """
        self.calls += 1
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        if usd is not None:
            self._usd += Decimal(str(usd))
            self.priced += 1
        elif input_tokens or output_tokens:
            self.unpriced += 1

    def pay(self, usd: float) -> None:
        """Add the price of a tool, US dollars."""
        self._usd += Decimal(str(usd))
        self.priced += 1

    def include(self, other: Usage) -> None:
        """Add another sum, all its counts and its prices; the other sum is not changed.

        Args:
            other: the sum to add.
        """
        self.calls += other.calls
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.priced += other.priced
        self.unpriced += other.unpriced
        self._usd += other._usd

    @property
    def cost_usd(self) -> float | None:
        """The sum of all prices in US dollars; None if one is unknown, 0 without prices."""
        return None if self.unpriced else float(self._usd)


def tools_usage(ledger: LedgerPort, session_id: str) -> Usage:
    """Return the prices of a session's tools together with the usage of its sub-agents.

    Read from the ``TOOL_INTENT`` entries: a call that began twice is paid twice, and each
    sub-agent's session counts once, with its own sub-agents.

    Args:
        ledger: a handle that may read the session and its sub-agents' sessions.
        session_id: the session.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    used, seen = Usage(), set()
    for entry in ledger.query(session_id=session_id, event_type="TOOL_INTENT", with_content=False):
        if price := entry.metadata.get("price_usd"):
            used.pay(price)
        name = entry.metadata.get("sub_session_id")
        if name and name not in seen:
            seen.add(name)
            used.include(session_usage(ledger, str(name)))
    return used


def session_usage(ledger: LedgerPort, session_id: str) -> Usage:
    """Return the usage of a session's exchanges, with its tools and sub-agents. Read-only.

    Args:
        ledger: contains the session.
        session_id: the session.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    used = Usage(ledger.query(session_id=session_id, event_type="EXCHANGE", with_content=False))
    used.include(tools_usage(ledger, session_id))
    return used
