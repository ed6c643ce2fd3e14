"""Prices of models: a governed table, exact costs, and upper bounds of a call's cost.

:class:`PriceTable` finds the :class:`Price` of a model, :class:`Overlay` edits an operator's own
table, and :func:`read_litellm` converts LiteLLM's list to one.
"""

from remit.kernel.errors import RemitError
from remit.providers.prices.litellm import is_litellm, read_litellm
from remit.providers.prices.overlay import Overlay, parse_decimal
from remit.providers.prices.price import Price, Rates, Tier, Usage, price_data
from remit.providers.prices.table import PriceTable, differences

__all__ = [
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
