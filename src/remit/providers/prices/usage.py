"""The billed tokens of one call."""

from __future__ import annotations

from msgspec import Struct

from remit.kernel.errors import InvalidInputError

__all__ = ["Usage"]

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
