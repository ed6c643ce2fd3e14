"""Routes of prices of models."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from remit.ledger import LedgerClient
from remit.packages import recorded_prices
from remit.runtime.prices import RootPrices
from remit.server.api.requests import PriceQuery
from remit.server.api.routes import Routes, slice_of


def price_routes(ledger: LedgerClient, prices: RootPrices) -> Routes:
    """Return the route that lists the prices that this process charges.

    Args:
        ledger: ledger of the root, for the entry that records the prices.
        prices: the prices, read when the root was opened.
    """
    routes = Routes("prices")

    @routes.add("GET", "/prices", "List prices", needs="read", shape="PricePage")
    def listed(query: Annotated[PriceQuery, Query()]) -> dict[str, Any]:
        """Return the prices in force, sorted by provider and model, with source and date."""
        chosen = prices.chosen(provider=query.provider, pattern=query.model or "*", own=query.own)
        names = (f"{price.provider}/{price.model}" for price in chosen)
        part, more = slice_of(chosen, names, query.cursor, query.limit)
        recorded = recorded_prices(ledger)
        is_recorded = not prices.packaged and prices.file.matches(recorded)
        return {
            **prices.versions,
            "entry": (recorded.entry_id or None) if is_recorded else None,
            "prices": [prices.shown(price) for price in part],
            "next_cursor": more,
        }

    return routes
