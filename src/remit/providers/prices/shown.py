"""Prices as JSON data, and the differences of two tables."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from remit.providers.prices.price import RATES, Price, Rates
from remit.providers.prices.table import PriceTable

__all__ = ["differences", "price_data", "rate_data", "usd_text"]

_NANO = 1_000_000_000


def usd_text(nano: int) -> str:
    """Return nano-dollars as US dollars, exact and without an exponent: ``0.15``."""
    text = f"{Decimal(nano) / _NANO:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _rates(rates: Rates) -> dict[str, Any]:
    return {rate: usd_text(getattr(rates, rate)) for rate in RATES}


def rate_data(price: Price) -> dict[str, Any]:
    """Return the rates and tiers of a price in US dollars, as exact text."""
    sound = {
        "audio_input": price.audio_input,
        "audio_output": price.audio_output,
        "per_second": price.per_second,
        "per_million_characters": price.per_character,
    }
    tiers = [
        {"above_input_tokens": tier.above_input_tokens, **_rates(tier.rates)}
        for tier in price.tiers
    ]
    return {
        **_rates(price.rates),
        **{name: usd_text(nano) for name, nano in sound.items() if nano},
        **({"tiers": tiers} if tiers else {}),
    }


def charge_data(price: Price) -> dict[str, Any]:
    """Return the rates of a price and the sizes that bound the cost of a call."""
    return {
        **rate_data(price),
        "max_output_tokens": price.max_output_tokens,
        "context_window": price.context_window,
    }


def price_data(price: Price) -> dict[str, Any]:
    """Return a price as JSON data."""
    return {
        "provider": price.provider,
        "model": price.model,
        "date": price.date,
        **charge_data(price),
        "source": price.source,
    }


def differences(before: PriceTable, after: PriceTable) -> list[dict[str, Any]]:
    """Return the models that two tables charge differently, sorted by provider and name.

    Returns:
        ``{"provider", "model", "before", "after"}`` of each model, as :func:`charge_data` has
        them; ``None`` if a table has no price.
    """
    found = []
    for provider, model in sorted({(one.provider, one.model) for one in (*before, *after)}):
        bare = model.removeprefix(f"{provider}/")
        old, new = (table.find(provider, bare) for table in (before, after))
        sides = [price and charge_data(price) for price in (old, new)]
        if sides[0] != sides[1]:
            found.append(
                {"provider": provider, "model": bare, "before": sides[0], "after": sides[1]}
            )
    return found
