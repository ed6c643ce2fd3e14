"""Prices of models: a governed table, exact costs, and upper bounds of a call's cost."""

from remit.kernel.errors import RemitError
from remit.providers.prices.litellm import Imported, is_litellm, read_litellm
from remit.providers.prices.overlay import Overlay, parse_decimal
from remit.providers.prices.price import Price, Rates, Tier
from remit.providers.prices.shown import differences, price_data
from remit.providers.prices.table import PriceTable
from remit.providers.prices.usage import Usage

__all__ = [
    "Imported",
    "Overlay",
    "Price",
    "PriceTable",
    "Rates",
    "Tier",
    "Usage",
    "differences",
    "is_litellm",
    "parse_decimal",
    "price_data",
    "read_litellm",
]

# Earlier names, for programs that catch them; they end with version 1.0.
PriceError = RemitError
