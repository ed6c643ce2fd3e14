"""What a call costs, and that no call within a bound costs more than the bound."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace as changed

from remit.gateway import call_bound
from remit.kernel.errors import InvalidInputError
from remit.providers.prices import Price, PriceTable, Rates, Tier, Usage

SHIPPED = list(PriceTable.shipped())
COUNTS = st.integers(0, 3_000_000)
RATE = st.integers(0, 1_000_000_000_000)
RATES = st.builds(Rates, RATE, RATE, RATE, RATE, RATE, RATE)


@st.composite
def usages(draw: st.DrawFn, most_in: int = 3_000_000, most_out: int = 1_000_000) -> Usage:
    total = draw(st.integers(0, most_in))
    cached = draw(st.integers(0, total))
    written = draw(st.integers(0, total - cached))
    output = draw(st.integers(0, most_out))
    return Usage(
        input_tokens=total,
        output_tokens=output,
        cached_input_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=draw(st.integers(0, output)),
        cache_write_short_tokens=draw(st.integers(0, written)),
    )


@st.composite
def any_price(draw: st.DrawFn) -> Price:
    """Any rates and tiers, cheaper tiers above dearer ones too."""
    above = sorted(draw(st.sets(st.integers(1, 3_000_000), max_size=3)))
    tiers = tuple(Tier(limit, draw(RATES)) for limit in above)
    return Price("model", "provider", "2026-11-22", draw(RATES), tiers)


PRICES = st.one_of(st.sampled_from(SHIPPED), any_price())


def exact(price: Price, usage: Usage) -> Fraction:
    """The cost in nano-dollars, said another way: class by class, in fractions."""
    reached = [tier.rates for tier in price.tiers if usage.input_tokens > tier.above_input_tokens]
    rates = [price.rates, *reached][-1]
    long_rate = max(rates.cache_write, rates.cache_write_long)
    long_written = usage.cache_write_tokens - usage.cache_write_short_tokens
    fresh = usage.input_tokens - usage.cached_input_tokens - usage.cache_write_tokens
    classes = [
        (fresh, rates.input),
        (usage.cached_input_tokens, rates.cached_input),
        (usage.cache_write_short_tokens, rates.cache_write),
        (long_written, long_rate),
        (usage.output_tokens - usage.reasoning_tokens, rates.output),
        (usage.reasoning_tokens, rates.reasoning),
    ]
    assert sum(n for n, _ in classes) == usage.input_tokens + usage.output_tokens
    return sum((Fraction(n * rate, 1_000_000) for n, rate in classes), Fraction(0))


@given(PRICES, usages())
def test_the_cost_is_exact_and_rounded_up_once(price: Price, usage: Usage) -> None:
    assert price.cost_nano(usage) == ceil(exact(price, usage))


@given(PRICES, usages(), COUNTS, COUNTS)
def test_no_call_within_its_bound_costs_more(
    price: Price, usage: Usage, more_in: int, more_out: int
) -> None:
    cost = price.cost_nano(usage)
    assert cost <= price.bound_nano(usage.input_tokens, usage.output_tokens)
    assert cost <= price.bound_nano(usage.input_tokens + more_in, usage.output_tokens + more_out)


def test_prices_as_the_providers_quote_them() -> None:
    table = PriceTable.shipped()
    mini = table.find("openai", "gpt-4o-mini")
    sonnet = table.find("anthropic", "claude-sonnet-4-5")
    haiku = table.find("anthropic", "claude-haiku-5-5")
    assert mini is not None
    assert sonnet is not None
    assert haiku is not None
    assert mini.cost_nano(Usage(1_000_000, 0)) == 150_000_000
    assert mini.cost_nano(Usage(0, 1_000_000)) == 600_000_000
    assert mini.cost_nano(Usage(1_000_000, 0, cached_input_tokens=1_000_000)) == 75_000_000
    # 600 fresh at 3, 300 cached at 0.30, 100 written for an hour at 6, 500 out at 15
    written = Usage(1000, 500, cached_input_tokens=300, cache_write_tokens=100)
    assert sonnet.cost_nano(written) == 1_800_000 + 90_000 + 600_000 + 7_500_000
    # the same 100 written for five minutes, at 3.75
    assert sonnet.cost_nano(changed(written, cache_write_short_tokens=100)) == 9_765_000
    assert sonnet.bound_nano(1000, 500) == 6_000_000 + 7_500_000
    assert haiku.cost_nano(Usage(100_000, 0)) == 10_000_000
    assert haiku.cost_nano(Usage(100_001, 0)) == 50_000_500


def test_a_part_of_a_nano_dollar_is_a_whole_one() -> None:
    price = Price("m", "p", "2026-11-22", Rates(1, 1, 1, 1, 1, 1))
    assert price.cost_nano(Usage(0, 0)) == 0
    assert price.cost_nano(Usage(1, 1)) == 1  # two millionths, rounded once
    assert price.cost_nano(Usage(1_000_000, 1)) == 2
    assert price.bound_nano(1, 0) == 1


def test_a_tier_begins_above_its_limit_and_prices_the_whole_call() -> None:
    cheap, dear = Rates(10**9, 0, 0, 0, 0, 0), Rates(2 * 10**9, 0, 0, 0, 0, 0)
    price = Price("m", "p", "2026-11-22", cheap, (Tier(1000, dear),))
    assert price.cost_nano(Usage(1000, 0)) == 1_000_000
    assert price.cost_nano(Usage(1001, 0)) == 2_002_000
    discount = replace(price, rates=dear, tiers=(Tier(1000, cheap),))
    assert discount.cost_nano(Usage(1001, 0)) == 1_001_000
    assert discount.bound_nano(1001, 0) == 2_002_000  # the call may also stay below the tier


@pytest.mark.parametrize(
    ("counts", "named"),
    [
        ({"input_tokens": -1}, "input_tokens"),
        ({"output_tokens": -1}, "output_tokens"),
        ({"input_tokens": 1.5}, "input_tokens"),
        ({"input_tokens": True}, "input_tokens"),
        ({"cached_input_tokens": 11}, "cached_input_tokens"),
        ({"cached_input_tokens": 6, "cache_write_tokens": 5}, "cache_write_tokens"),
        ({"cache_write_tokens": 3, "cache_write_short_tokens": 4}, "cache_write_short_tokens"),
        ({"reasoning_tokens": 11}, "reasoning_tokens"),
    ],
)
def test_counts_that_cannot_be_are_refused(counts: dict[str, int], named: str) -> None:
    with pytest.raises(InvalidInputError, match=named):
        Usage(**{"input_tokens": 10, "output_tokens": 10, **counts})


# -- What sound costs: by its tokens, its length, or the text that is spoken -------------------


_TABLE = PriceTable.shipped()


def _price(model: str) -> Price:
    found = _TABLE.find("openai", model)
    assert found is not None
    return found


def test_prices_of_sound() -> None:
    assert _price("tts-1").sound_nano(characters=1_000_000) == 15_000_000_000
    assert _price("whisper-1").sound_nano(seconds=59.2) == 6_000_000
    spoken = Usage(1_000, 1_000, audio_input_tokens=400, audio_output_tokens=600)
    # 600 x 2.50 + 400 x 40 in, 400 x 10 + 600 x 80 out, in US dollars per million.
    assert _price("gpt-4o-audio-preview").cost_nano(spoken) == 69_500_000
    assert _price("gpt-4o-audio-preview").cost_nano(Usage(1_000, 1_000)) == 12_500_000


@given(st.integers(0, 10**6), st.integers(0, 10**5), st.data())
def test_the_bound_of_sound_holds(tokens_in: int, tokens_out: int, data: st.DataObject) -> None:
    price = _price("gpt-4o-audio-preview")
    heard = data.draw(st.integers(0, tokens_in))
    cached = data.draw(st.integers(0, tokens_in))
    said = data.draw(st.integers(0, tokens_out))
    usage = Usage(tokens_in, tokens_out, cached, audio_input_tokens=heard, audio_output_tokens=said)
    assert 0 <= price.cost_nano(usage) <= price.bound_nano(tokens_in, tokens_out)


def test_sound_by_a_url_has_no_bound_and_in_a_chat_one_where_it_has_a_price() -> None:
    body: dict[str, Any] = {"model": "whisper-1", "url": "https://x"}
    amount = call_bound("openai.transcriptions", body, 500, _price("whisper-1")).amount
    assert amount.unbounded == "url"
    body = {"modalities": ["text", "audio"], "messages": [{"role": "user", "content": "hi"}]}
    assert call_bound("openai.chat", body, 200, _price("gpt-4o-audio-preview")).amount.bounded
