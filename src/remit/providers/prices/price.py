"""The price of a model and the cost of its calls: exact integers, rounded up once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from remit.kernel.errors import InvalidInputError
from remit.providers.prices.usage import Usage

__all__ = ["RATES", "Price", "Rates", "Tier"]

RATES = ("input", "output", "cached_input", "cache_write", "cache_write_long", "reasoning")

_MILLION = 1_000_000  # the unit in which providers quote


@dataclass(frozen=True, slots=True)
class Rates:
    """Nano-dollars per 1,000,000 tokens of each class; 150,000,000 is 0.15 USD per million.

    ``cache_write_long`` is the rate for what is kept longer than ordinarily; a model with one
    write rate has it twice. A class that the provider does not price apart has the rate of
    input or output.
    """

    input: int
    output: int
    cached_input: int
    cache_write: int
    cache_write_long: int
    reasoning: int


@dataclass(frozen=True, slots=True)
class Tier:
    """Rates for all of a call whose input exceeds ``above_input_tokens``."""

    above_input_tokens: int
    rates: Rates


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one model of one provider, and the sizes that bound its calls.

    Args:
        model: the model's name in the table.
        provider: the provider's name in the table.
        date: the day the price was last checked, ``YYYY-MM-DD``.
        rates: in force up to the first tier.
        tiers: by rising ``above_input_tokens``.
        max_output_tokens: the most that one answer can hold; None when it is not known.
        context_window: the most tokens that a call can hold; None when it is not known.
        source: where the price was read, and what is peculiar about it; may be empty.
        thinks: whether it thinks before it answers, without a word of it in the answer.
        max_completion_tokens: whether Chat Completions takes its output limit by this name alone,
            and no temperature.
        server_tools: what the provider bills for one use of a tool of its own, in nano-dollars.
        audio_input: what a token of sound costs that comes in, nano-dollars per 1,000,000; 0 where
            sound has no price apart.
        audio_output: the same of sound that goes out.
        per_second: what a second of sound costs, in nano-dollars, where that is what is billed.
        per_character: what 1,000,000 characters to be spoken cost, in nano-dollars.
        surcharges: by field of a call and its value, what rates are multiplied by, in hundredths.
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
    surcharges: Mapping[str, Mapping[str, int]] = field(default_factory=dict, hash=False)

    @property
    def bare_name(self) -> str:
        """The provider's own name of the model."""
        return self.model.removeprefix(f"{self.provider}/")

    def cost_nano(self, usage: Usage) -> int:
        """Return the cost of a call in nano-dollars, rounded up once, at the end.

        The number of input tokens picks the tier, and the tier prices all of the call.
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

    def sound_nano(self, seconds: float = 0, characters: int = 0) -> int:
        """Return the cost of sound that is billed by length, or by the spoken text."""
        return math.ceil(seconds) * self.per_second + -(
            -characters * self.per_character // _MILLION
        )

    def bound_nano(self, input_tokens: int, output_tokens: int) -> int:
        """Return the highest cost of a call with at most so many tokens, in nano-dollars.

        Every token at the dearest class it may turn out to be, in the dearest tier that a call
        of at most so much input can fall into: no `cost_nano` within the limits is above it, and
        it never falls as the limits rise.

        Raises:
            InvalidInputError: a limit is negative or no integer.
        """
        for count in (input_tokens, output_tokens):
            if type(count) is not int or count < 0:
                raise InvalidInputError(f"{count!r} is not a number of tokens (0 or more).")
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
