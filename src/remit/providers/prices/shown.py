"""Prices as plain data, and what differs between two tables, for people and programs."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from remit.providers.prices.parsing import RATES
from remit.providers.prices.price import Price
from remit.providers.prices.table import PriceTable

__all__ = ["differences", "price_data", "rate_data", "usd_text"]

_NANO = 1_000_000_000


def usd_text(nano: int) -> str:
    """US dollars of a sum in nano-dollars, exact, without an exponent: ``0.15``."""
    text = f"{Decimal(nano) / _NANO:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def rate_data(price: Price) -> dict[str, Any]:
    """What a price charges, in US dollars as exact text: per million tokens of each class, per
    second of sound, per million characters; and its tiers."""
    shown: dict[str, Any] = {rate: usd_text(getattr(price.rates, rate)) for rate in RATES}
    for name in ("audio_input", "audio_output", "per_second"):
        if nano := getattr(price, name):
            shown[name] = usd_text(nano)
    if price.per_character:
        shown["per_million_characters"] = usd_text(price.per_character)
    if price.tiers:
        shown["tiers"] = [
            {
                "above_input_tokens": tier.above_input_tokens,
                **{rate: usd_text(getattr(tier.rates, rate)) for rate in RATES},
            }
            for tier in price.tiers
        ]
    return shown


def price_data(price: Price) -> dict[str, Any]:
    """All that a table says of one model."""
    return {
        "provider": price.provider,
        "model": price.model,
        "date": price.date,
        **rate_data(price),
        "max_output_tokens": price.max_output_tokens,
        "context_window": price.context_window,
        "source": price.source,
    }


def differences(before: PriceTable, after: PriceTable) -> list[dict[str, Any]]:
    """The models that two tables charge differently, by provider and name.

    Returns:
        ``{"provider", "model", "before", "after"}`` of each, rates as :func:`rate_data` gives
        them; ``None`` where a table has no price.
    """
    names = {(price.provider, price.model) for table in (before, after) for price in table}
    found = []
    for provider, model in sorted(names):
        bare = model.removeprefix(f"{provider}/")
        old, new = (table.find(provider, bare) for table in (before, after))
        sides = [None if price is None else _charged(price) for price in (old, new)]
        if sides[0] != sides[1]:
            found.append(
                {"provider": provider, "model": bare, "before": sides[0], "after": sides[1]}
            )
    return found


def _charged(price: Price) -> dict[str, Any]:
    """What a call costs and how it is bounded."""
    return {
        **rate_data(price),
        "max_output_tokens": price.max_output_tokens,
        "context_window": price.context_window,
    }
