"""The forms of results. Times are ISO 8601, UTC; money is in US dollars."""

from remit.operations.results.budgets import PricePage
from remit.operations.results.page import Error, Flag, Page, Paged, Printable, listing
from remit.operations.results.parties import TenantPage, TenantShape

__all__ = [
    "Error", "Flag", "Page", "Paged", "PricePage", "Printable", "TenantPage", "TenantShape",
    "listing",
]  # fmt: skip
