"""Prices of models: a governed table, exact costs, and bounds of what a call can cost (SPEC 5)."""

from remit.prices.errors import PriceError
from remit.prices.price import Price, Rates, Tier
from remit.prices.table import PriceTable
from remit.prices.usage import Usage

__all__ = ["Price", "PriceError", "PriceTable", "Rates", "Tier", "Usage"]
