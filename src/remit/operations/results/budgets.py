"""The forms of budgets, their audit, and prices."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from remit.gateway.budget import BudgetStatus
from remit.operations.results.page import Open, Paged, form


class Limits(BaseModel):
    """The limits that are set; other limits are omitted.

    Limits of US dollars, tokens and turns apply to a `window` (none: for ever) in `time_zone`;
    rates to a minute; `on_short` is present if calls are clamped.
    """

    usd_limit: float | None = None
    token_limit: int | None = None
    turn_limit: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    window: Literal["day", "week", "month"] | None = None
    time_zone: str | None = None
    on_short: Literal["clamp"] | None = None


Budget = form(
    "Budget", "The state of one scope. A limit of null means no limit; money is in US dollars.",
    of=BudgetStatus, nano_limit=None, spent_nano=None, reserved_nano=None, period=None,
    window_number=None,
    name=(str | None, "Display name of the key, user, team or organisation.", None),
    limit_usd=float | None,
    spent_usd=(float, "Cost of ended calls in the window."),
    reserved_usd=(float, "Upper bound of the cost of running calls."),
    window=(Literal["day", "week", "month"] | None,
            "Period of limits and spending; null if they never reset."),
    time_zone=str | None,
    window_end=(str | None, "End of the current period, in UTC."),
    on_short=(Literal["refuse", "clamp"], "Treatment of a call that may need more than the rest."),
)  # fmt: skip
BudgetPage = form("BudgetPage", "Budgets, sorted by scope.", base=Paged, scopes=[Budget])
BudgetSet = form(
    "BudgetSet", "The scope after the change, and the entry that records it.",
    entry=str,
    by=(str, "Person or key that set the limits."),
    before=(Limits | None, "Earlier limits; null if there was no budget."),
    scope=(Budget, "The new state."),
)  # fmt: skip

_DIFFERENCE: dict[str, Any] = {
    "field": str, "live": (Any, "The stored value; null for a missing row."),
    "ledger": (Any, "The sum of the entries."),
}  # fmt: skip
DifferenceShape = form(
    "DifferenceShape", "A value that differs between the budgets and the ledger.",
    scope=str, **_DIFFERENCE,
)  # fmt: skip
UsageDifferenceShape = form(
    "UsageDifferenceShape",
    "A value in the table `usage` that differs from the sum of the entries.",
    row=str, **_DIFFERENCE,
)  # fmt: skip
Audit = form(
    "Audit", "The comparison of all budgets with the ledger.",
    equal=(bool, "True if nothing differs."),
    scopes=(int, "Number of budgets."),
    differences=[DifferenceShape],
    usage=([UsageDifferenceShape], "Values in the table `usage` that differ, at most 1,000."),
    problems=([str], "Entries that cannot be read or added up."),
    held_tokens=(int, "Number of tokens reserved for calls in flight."),
    held_calls=(int, "Number of calls in flight."),
)  # fmt: skip

_RATES: dict[str, Any] = dict.fromkeys(
    ("input", "output", "cached_input", "cache_write", "cache_write_long", "reasoning"), str
)
TierShape = form(
    "TierShape", "Prices of calls with a longer input, as exact text.",
    above_input_tokens=(int, "The prices apply above this number of input tokens."), **_RATES,
)  # fmt: skip
PriceShape = form(
    "PriceShape",
    "Prices of a model in US dollars per million tokens, as exact text. `audio_input`, "
    "`audio_output`, `per_second` and `per_million_characters` are omitted if they do not apply.",
    base=Open,
    provider=str,
    model=(str, "Model name of the provider."),
    origin=(Literal["own", "shipped"],
            "`own` if the operator set the price, `shipped` if a package did."),
    date=(str, "Date of the last check of the price."),
    source=(str, "Source of the price."),
    **_RATES,
    tiers=([TierShape], "Prices of longer inputs, sorted by length; may be absent.", []),
    max_output_tokens=(int | None, "Maximum number of output tokens; null if unknown."),
    context_window=(int | None, "Maximum number of input and output tokens; null if unknown."),
)  # fmt: skip
PricePage = form(
    "PricePage", "Prices in force, sorted by provider and model.", base=Paged,
    version=(str, "Version of the prices, as in `price_version` of an EXCHANGE."),
    base_version=(str, "Version of the shipped prices."),
    entry=(str | None, "Entry that contains the operator's prices; null if there are none."),
    prices=[PriceShape],
)  # fmt: skip
