"""The tokens of a call, the price of a model, and the cost: exact integers, rounded up once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from msgspec import Struct

from remit.kernel.errors import InvalidInputError

RATES = ("input", "output", "cached_input", "cache_write", "cache_write_long", "reasoning")

_MILLION = 1_000_000  # Providers quote prices for a million tokens.
_NANO = 1_000_000_000
_INTEGERS = {int}
_PARTS = (
    (("cached_input_tokens", "cache_write_tokens"), "input_tokens"),
    (("cache_write_short_tokens",), "cache_write_tokens"),
    (("reasoning_tokens",), "output_tokens"),
    (("audio_input_tokens",), "input_tokens"),
    (("audio_output_tokens",), "output_tokens"),
)


class Usage(Struct, frozen=True):
    """The tokens of one call as the provider counted them. Parts are included in their totals.

    The Messages API reports ``input_tokens`` without the tokens read from and written to a cache,
    so its adapter adds the three.

    Args:
        input_tokens: all input tokens, including cached ones.
        output_tokens: all output tokens, including reasoning.
        cached_input_tokens: input tokens that were read from a cache.
        cache_write_tokens: input tokens that were written to a cache.
        cache_write_short_tokens: the part of ``cache_write_tokens`` that certainly has the ordinary
            write rate; the rest is charged at the dearest write rate.
        reasoning_tokens: output tokens that were reasoning.
        audio_input_tokens: input tokens that were audio.
        audio_output_tokens: output tokens that were audio.

    Raises:
        InvalidInputError: a count is negative or not an integer, or parts exceed their total.
    """

    input_tokens: int
    output_tokens: int
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_short_tokens: int = 0
    audio_input_tokens: int = 0
    audio_output_tokens: int = 0

    def __post_init__(self) -> None:
        counts = (
            self.input_tokens, self.output_tokens, self.cached_input_tokens,
            self.cache_write_tokens, self.reasoning_tokens, self.cache_write_short_tokens,
            self.audio_input_tokens, self.audio_output_tokens,
        )  # fmt: skip
        if set(map(type, counts)) == _INTEGERS and min(counts) >= 0:
            given, made, cached, written, thought, short, heard, spoken = counts
            if (
                cached + written <= given
                and short <= written
                and thought <= made
                and heard <= given
                and spoken <= made
            ):
                return
        self._complain()

    def _complain(self) -> None:
        for name in self.__struct_fields__:
            count = getattr(self, name)
            if type(count) is not int or count < 0:
                raise InvalidInputError(
                    f"{name} is {count!r}; it must be a number of tokens, 0 or more."
                )
        for names, total in _PARTS:
            parts, limit = sum(getattr(self, name) for name in names), getattr(self, total)
            if parts > limit:
                raise InvalidInputError(
                    f"{' and '.join(names)} are {parts} in all, more than {total}, {limit}.",
                    next_step=f"{total} counts everything, its parts included.",
                )


@dataclass(frozen=True, slots=True)
class Rates:
    """Nano-dollars per 1,000,000 tokens of each class; 150,000,000 is 0.15 USD per million.

    A class that the provider does not price separately has the rate of input or output.

    Attributes:
        cached_input: input tokens that were read from a cache.
        cache_write: input tokens that were written to a cache.
        cache_write_long: input tokens that were written to a cache for long retention; equal to
            ``cache_write`` if the model has one write rate.
        reasoning: output tokens that were reasoning.
    """

    input: int
    output: int
    cached_input: int
    cache_write: int
    cache_write_long: int
    reasoning: int


@dataclass(frozen=True, slots=True)
class Tier:
    """Rates for all tokens of a call whose input exceeds ``above_input_tokens``."""

    above_input_tokens: int
    rates: Rates


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one model of one provider, and the sizes that bound its calls; immutable.

    No value is checked here.

    Args:
        model: the key of the model's entry in the table.
        provider: the provider's name in the table.
        date: the day on which the price was last checked, ``YYYY-MM-DD``.
        rates: rates up to the first tier.
        tiers: tiers, sorted by ``above_input_tokens``.
        max_output_tokens: the largest number of tokens in an answer; ``None`` if it is unknown.
        context_window: the largest number of tokens in a call; ``None`` if it is unknown.
        source: the origin of the price, with remarks; may be empty.
        thinks: True if the model reasons before it answers and hides the reasoning.
        max_completion_tokens: True if Chat Completions accepts the output limit only under this
            name and accepts no temperature.
        server_tools: nano-dollars for one use of a tool that the provider runs, by type of tool.
        audio_input: nano-dollars per 1,000,000 tokens of audio input; 0 if they cost the same as
            text.
        audio_output: nano-dollars per 1,000,000 tokens of audio output; 0 if they cost the same as
            text.
        per_second: nano-dollars for a second of audio; 0 if audio is not billed by length.
        per_character: nano-dollars for 1,000,000 characters of text to be spoken; 0 if speech is
            not billed by characters.
        tools_per_call: the tools that are billed once for a call, however often they ran.
        assumes_tools: True if ``server_tools`` are another provider's, whose model of this name is.
        surcharges: factors of the rates in hundredths, by field of a call and value of the field.
    """

    model: str
    provider: str
    date: str
    rates: Rates
    tiers: tuple[Tier, ...] = field(default=())
    max_output_tokens: int | None = None
    context_window: int | None = None
    source: str = ""
    thinks: bool = False
    max_completion_tokens: bool = False
    audio_input: int = 0
    audio_output: int = 0
    per_second: int = 0
    per_character: int = 0
    server_tools: Mapping[str, int] = field(default_factory=dict, hash=False)
    tools_per_call: frozenset[str] = frozenset()
    assumes_tools: bool = False
    surcharges: Mapping[str, Mapping[str, int]] = field(default_factory=dict, hash=False)

    @property
    def bare_name(self) -> str:
        """The provider's own name of the model."""
        return self.model.removeprefix(f"{self.provider}/")

    def cost_nano(self, usage: Usage) -> int:
        """Return the cost of a call in nano-dollars, rounded up once, at the end; never below 0.

        The number of input tokens selects the tier, and the tier prices the whole call. Audio
        tokens cost the audio rate, in every tier, if the model has one. Tokens written to a cache
        cost the dearest write rate unless they count as short. Server tools, surcharges and audio
        billed by length are not part of the cost.
        """
        rates = self.rates
        for tier in self.tiers:
            if usage.input_tokens <= tier.above_input_tokens:
                break
            rates = tier.rates
        cached, written = usage.cached_input_tokens, usage.cache_write_tokens
        # Nano-dollars times 1,000,000, exact; every token is charged once, in one class.
        charged = (
            (usage.input_tokens - cached - written) * rates.input
            + cached * rates.cached_input
            + usage.cache_write_short_tokens * rates.cache_write
            + (written - usage.cache_write_short_tokens)
            * max(rates.cache_write, rates.cache_write_long)
            + (usage.output_tokens - usage.reasoning_tokens) * rates.output
            + usage.reasoning_tokens * rates.reasoning
        )
        if self.audio_input:
            charged += usage.audio_input_tokens * (self.audio_input - rates.input)
        if self.audio_output:
            charged += usage.audio_output_tokens * (self.audio_output - rates.output)
        return max(0, -(-charged // _MILLION))

    def tools_nano(self, uses: Mapping[str, int]) -> int:
        """Return the cost in nano-dollars of uses of the provider's tools, by type of tool.

        A tool without a price costs 0. A tool in ``tools_per_call`` is charged once, however often
        it ran.
        """
        once = self.tools_per_call
        return sum(
            self.server_tools.get(name, 0) * (min(times, 1) if name in once else times)
            for name, times in uses.items()
        )

    def sound_nano(self, seconds: float = 0, characters: int = 0) -> int:
        """Return the cost of audio billed by its length or by the spoken text, in whole
        nano-dollars.

        The two costs are added. Neither number is checked.

        Args:
            seconds: length of the audio, rounded up to whole seconds.
            characters: number of characters of the spoken text, whose cost is rounded up.
        """
        return math.ceil(seconds) * self.per_second + -(
            -characters * self.per_character // _MILLION
        )

    def bound_nano(self, input_tokens: int, output_tokens: int) -> int:
        """Return the highest cost of a call with at most so many tokens, in nano-dollars.

        Each token counts in its dearest class, in the dearest tier that the input can reach. So no
        ``cost_nano`` within the limits is higher, and the bound never falls as the limits rise.
        Server tools, surcharges and audio billed by length are not part of the bound.

        Raises:
            InvalidInputError: a limit is negative or not an integer.
        """
        for count in (input_tokens, output_tokens):
            if type(count) is not int or count < 0:
                raise InvalidInputError(
                    f"{count!r} is not a number of tokens; it must be 0 or more."
                )
        reached, most = [self.rates], 0
        for tier in self.tiers:
            if input_tokens > tier.above_input_tokens:
                reached.append(tier.rates)
        for rates in reached:
            read = max(rates.input, rates.cached_input, rates.cache_write, rates.cache_write_long)
            written = max(rates.output, rates.reasoning)
            most = max(most, input_tokens * read + output_tokens * written)
        # Each token may be sound.
        most += input_tokens * max(0, self.audio_input - self.rates.input)
        most += output_tokens * max(0, self.audio_output - self.rates.output)
        return -(-most // _MILLION)


def usd_text(nano: int) -> str:
    """Return nano-dollars as US dollars, exact and without an exponent: ``0.15``."""
    text = f"{Decimal(nano) / _NANO:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _rates(rates: Rates) -> dict[str, Any]:
    return {rate: usd_text(getattr(rates, rate)) for rate in RATES}


def rate_data(price: Price) -> dict[str, Any]:
    """Return the rates and tiers of a price in US dollars, as exact text, with the keys of a price
    table.

    Rates of audio are omitted if they are 0, and ``tiers`` if there are none. Sizes, server tools
    and surcharges are not included.
    """
    sound = {
        "audio_input": price.audio_input,
        "audio_output": price.audio_output,
        "per_second": price.per_second,
        "per_million_characters": price.per_character,
    }
    tiers = [
        {"above_input_tokens": tier.above_input_tokens, **_rates(tier.rates)}
        for tier in price.tiers
    ]
    return {
        **_rates(price.rates),
        **{name: usd_text(nano) for name, nano in sound.items() if nano},
        **({"tiers": tiers} if tiers else {}),
    }


def charge_data(price: Price) -> dict[str, Any]:
    """Return the rates of a price (:func:`rate_data`) and the two sizes that bound a call.

    The keys of the sizes are ``max_output_tokens`` and ``context_window``; None if unknown.
    """
    return {
        **rate_data(price),
        "max_output_tokens": price.max_output_tokens,
        "context_window": price.context_window,
    }


def price_data(price: Price) -> dict[str, Any]:
    """Return a price as JSON data.

    The keys are ``provider``, ``model``, ``date``, ``source``, the rates by their names in a price
    table, ``max_output_tokens`` and ``context_window`` (None if unknown). Money is exact text in US
    dollars. Server tools, surcharges, and audio that costs nothing are omitted.
    """
    return {
        "provider": price.provider,
        "model": price.model,
        "date": price.date,
        **charge_data(price),
        "source": price.source,
    }
