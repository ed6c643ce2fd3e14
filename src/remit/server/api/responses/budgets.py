"""The forms of budgets, their audit, and prices."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from remit.server.api.responses.page import Paged, listing


class Limits(BaseModel):
    """The limits that are set; others are left out."""

    usd_limit: float | None = None
    token_limit: int | None = None
    turn_limit: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    window: Literal["day", "week", "month"] | None = None
    time_zone: str | None = None
    on_short: Literal["clamp"] | None = None


class Budget(BaseModel):
    """The state of one scope. A limit of null means no limit."""

    scope: str
    name: str | None = Field(None, description="what its key, user, team or organisation is called")
    token_limit: int | None
    turn_limit: int | None
    limit_usd: float | None
    requests_per_minute: int | None
    tokens_per_minute: int | None
    spent_tokens: int
    reserved_tokens: int
    spent_usd: float
    reserved_usd: float
    turns: int = Field(description="model calls begun")
    unpriced_calls: int = Field(description="calls that ended without a known price")
    minute: int = Field(description="the minute since 1970 that the two counts after it are of")
    minute_requests: int
    minute_tokens: int
    window: Literal["day", "week", "month"] | None = Field(
        description="what limits and spending are of; null: for ever"
    )
    time_zone: str | None
    window_end: str | None = Field(description="when the window ends, UTC")
    on_short: Literal["refuse", "clamp"] = Field(
        description="what becomes of a call that may need more than is left"
    )


BudgetPage = listing("BudgetPage", "Budgets, sorted by scope.", scopes=Budget)


class BudgetSet(BaseModel):
    """The scope after the change, and the entry that records it."""

    entry: str
    by: str = Field(description="who set them")
    before: Limits | None = Field(description="the limits before; null where there was no budget")
    scope: Budget


class DifferenceShape(BaseModel):
    """A figure that differs between the budgets and the ledger."""

    scope: str
    field: str
    live: float | str | None
    ledger: float | str | None


class UsageDifferenceShape(BaseModel):
    """A figure of a row of `usage` that differs from the sum of the entries."""

    row: str
    field: str
    live: Any
    ledger: Any


class Audit(BaseModel):
    """The comparison of all budgets with the ledger."""

    equal: bool
    scopes: int
    differences: list[DifferenceShape]
    usage: list[UsageDifferenceShape] = Field(
        description="rows of the table `usage` that differ, at most a thousand figures"
    )
    problems: list[str] = Field(description="entries that cannot be read or added up")
    held_tokens: int
    held_calls: int


class TierShape(BaseModel):
    """Prices of calls with a longer input, in US dollars per million tokens."""

    above_input_tokens: int
    input: str
    output: str
    cached_input: str
    cache_write: str
    cache_write_long: str
    reasoning: str


class PriceShape(BaseModel):
    """Prices of a model in US dollars per million tokens, as exact text."""

    provider: str
    model: str = Field(description="as the provider calls it")
    origin: Literal["own", "shipped"] = Field(description="the operator's, or a package's")
    date: str = Field(description="the day it was last checked")
    source: str = Field(description="where it comes from")
    input: str
    output: str
    cached_input: str
    cache_write: str
    cache_write_long: str
    reasoning: str
    audio_input: str | None = Field(None, description="left out: as `input`")
    audio_output: str | None = Field(None, description="left out: as `output`")
    per_second: str | None = Field(None, description="of sound, where its length is billed")
    per_million_characters: str | None = Field(None, description="spoken, where these are billed")
    tiers: list[TierShape] = Field([], description="by length of the input, rising")
    max_output_tokens: int | None = Field(description="most of one answer; null: not known")
    context_window: int | None = Field(description="most of one call; null: not known")


class PricePage(Paged):
    """Prices in force, sorted by provider and model."""

    version: str = Field(description="of the prices, as `price_version` of an EXCHANGE")
    base_version: str = Field(description="of the shipped prices")
    entry: str | None = Field(description="the entry with the operator's prices; null: none")
    prices: list[PriceShape]
