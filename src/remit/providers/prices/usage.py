"""The tokens of one call, as they are billed."""

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
    """Tokens of one call as a provider counted them; parts are within their totals.

    Some providers report the parts beside each other instead: the Messages API's ``input_tokens``
    leaves out what it read from and wrote to its cache, so its adapter adds the three.

    Args:
        input_tokens: all input tokens, those read from and written to a cache included.
        output_tokens: all output tokens, reasoning included.
        cached_input_tokens: the part of the input that was read from a cache.
        cache_write_tokens: the part of the input that was written to a cache. Where a model has
            several write rates, these cost the dearest, except for:
        cache_write_short_tokens: the part of ``cache_write_tokens`` that is known to be at the
            ordinary write rate, not the one for long retention.
        reasoning_tokens: the part of the output that was reasoning.
        audio_input_tokens: the part of the input that was sound; ``audio_output_tokens`` that of
            the output.

    Raises:
        InvalidInputError: a count is negative or no integer, or parts exceed their total.
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
                raise InvalidInputError(f"{name} is {count!r}; it is a count of tokens, 0 or more.")
        for names, total in _PARTS:
            parts, limit = sum(getattr(self, name) for name in names), getattr(self, total)
            if parts > limit:
                raise InvalidInputError(
                    f"{' and '.join(names)} are {parts} but {total} only {limit}: a part exceeds"
                    " its total.",
                    next_step=f"{total} counts everything, its parts included.",
                )
