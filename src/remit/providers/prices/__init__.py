"""Prices of models: a governed table, exact costs, and bounds of what a call can cost (SPEC 5)."""

from remit.providers.prices.errors import PriceError
from remit.providers.prices.price import Price, Rates, Tier
from remit.providers.prices.table import PriceTable
from remit.providers.prices.usage import Usage

__all__ = ["Price", "PriceError", "PriceTable", "Rates", "Tier", "Usage"]
