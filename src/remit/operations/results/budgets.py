"""The forms of budgets, their audit, and prices."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from remit.operations.results.page import Paged, listing


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


class Budget(BaseModel):
    """The state of one scope. A limit of null means no limit.

    `spent_` fields count ended calls of the window, `reserved_` fields running ones at their upper
    bound, `minute_` fields the current minute; money is in US dollars.
    """

    scope: str
    name: str | None = Field(
        None, description="Display name of the key, user, team or organisation."
    )
    token_limit: int | None
    turn_limit: int | None
    limit_usd: float | None
    requests_per_minute: int | None
    tokens_per_minute: int | None
    spent_tokens: int
    reserved_tokens: int
    spent_usd: float
    reserved_usd: float
    turns: int = Field(description="Number of model calls that began.")
    unpriced_calls: int = Field(description="Number of calls that ended without a known price.")
    minute: int = Field(
        description="Minute to which `minute_requests` and `minute_tokens` belong, in minutes "
        "since 1970."
    )
    minute_requests: int
    minute_tokens: int
    window: Literal["day", "week", "month"] | None = Field(
        description="Period of limits and spending; null if they never reset."
    )
    time_zone: str | None
    window_end: str | None = Field(description="End of the current period, in UTC.")
    on_short: Literal["refuse", "clamp"] = Field(
        description="Treatment of a call that may need more than the rest."
    )


BudgetPage = listing("BudgetPage", "Budgets, sorted by scope.", scopes=Budget)


class BudgetSet(BaseModel):
    """The scope after the change, and the entry that records it.

    `scope` is the new state, `before` the old limits, `entry` the record, and `by` its author.
    """

    entry: str
    by: str = Field(description="Person or key that set the limits.")
    before: Limits | None = Field(description="Earlier limits; null if there was no budget.")
    scope: Budget


class DifferenceShape(BaseModel):
    """A value that differs between the budgets and the ledger.

    `live` is the value of `field` in the budget of `scope`, `ledger` the sum of the entries.
    """

    scope: str
    field: str
    live: float | str | None
    ledger: float | str | None


class UsageDifferenceShape(BaseModel):
    """A value in the table `usage` that differs from the sum of the entries.

    `live` is the stored value of `field` in `row`, `ledger` the sum; null for a missing row.
    """

    row: str
    field: str
    live: Any
    ledger: Any


class Audit(BaseModel):
    """The comparison of all budgets with the ledger.

    `equal` is true if nothing differs; `scopes` counts the budgets; `held_tokens` and `held_calls`
    count reservations of calls in flight.
    """

    equal: bool
    scopes: int
    differences: list[DifferenceShape]
    usage: list[UsageDifferenceShape] = Field(
        description="Values in the table `usage` that differ, at most 1,000."
    )
    problems: list[str] = Field(description="Entries that cannot be read or added up.")
    held_tokens: int
    held_calls: int


class TierShape(BaseModel):
    """Prices of calls with a longer input, in US dollars per million tokens.

    The tier applies above `above_input_tokens`; the prices are exact text: `input`, `output`,
    `cached_input`, `cache_write`, `cache_write_long` (a cache of longer life) and `reasoning`.
    """

    above_input_tokens: int
    input: str
    output: str
    cached_input: str
    cache_write: str
    cache_write_long: str
    reasoning: str


class PriceShape(BaseModel):
    """Prices of a model in US dollars per million tokens, as exact text.

    `provider` and `model` name the model; `origin`, `date` and `source` tell where the price comes
    from; `tiers` are prices of longer inputs.
    """

    provider: str
    model: str = Field(description="Model name of the provider.")
    origin: Literal["own", "shipped"] = Field(
        description="`own` if the operator set the price, `shipped` if a package did."
    )
    date: str = Field(description="Date of the last check of the price.")
    source: str = Field(description="Source of the price.")
    input: str
    output: str
    cached_input: str
    cache_write: str
    cache_write_long: str
    reasoning: str
    audio_input: str | None = Field(
        None, description="Price of audio input; equal to `input` if omitted."
    )
    audio_output: str | None = Field(
        None, description="Price of audio output; equal to `output` if omitted."
    )
    per_second: str | None = Field(
        None, description="Price per second of audio, if audio is billed by length."
    )
    per_million_characters: str | None = Field(
        None, description="Price per million spoken characters, if speech is billed by characters."
    )
    tiers: list[TierShape] = Field([], description="Prices of longer inputs, sorted by length.")
    max_output_tokens: int | None = Field(
        description="Maximum number of output tokens; null if unknown."
    )
    context_window: int | None = Field(
        description="Maximum number of input and output tokens; null if unknown."
    )


class PricePage(Paged):
    """Prices in force, sorted by provider and model.

    `version` and `base_version` identify the prices, `entry` the operator's own.
    """

    version: str = Field(description="Version of the prices, as in `price_version` of an EXCHANGE.")
    base_version: str = Field(description="Version of the shipped prices.")
    entry: str | None = Field(
        description="Entry that contains the operator's prices; null if there are none."
    )
    prices: list[PriceShape]
