"""What an answer says it used, in each API's own words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeGuard

from msgspec import Struct
from msgspec.structs import replace

from remit.kernel.canonical import MAX_SAFE_INTEGER

_USUAL = frozenset(
    {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details",
     "completion_tokens_details"}
)  # fmt: skip
_TOTALS = ("prompt_tokens", "completion_tokens", "total_tokens")
_OF_INPUT = ("cached_tokens", "audio_tokens", "image_tokens", "cache_write_tokens")
_OF_OUTPUT = ("reasoning_tokens", "audio_tokens", "image_tokens")
_MOST_TOOLS = 100  # of one provider: what an answer names stands in its record
_LONGEST_TOOL = 100
_NOTHING: Mapping[str, int] = MappingProxyType({})


class Usage(Struct, frozen=True):
    """Usage of one answer as its provider reported it; parts are within their totals.

    Attributes:
        input_tokens: all of them, those read from and written to a cache included.
        output_tokens: all of them, reasoning included.
        cached_input_tokens: read from a cache; ``None`` here and below: not reported.
        cache_write_tokens: written to one; ``cache_write_short_tokens`` of them are known to be
            kept for the ordinary, short time.
        reasoning_tokens: the part of the output that was reasoning.
        audio_input_tokens, audio_output_tokens, image_input_tokens, image_output_tokens: the
            parts that were sound and pictures.
        server_tool_uses: how often the provider ran a tool of its own: ``{"web_search": 2}``.
    """

    input_tokens: int
    output_tokens: int
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_short_tokens: int | None = None
    reasoning_tokens: int | None = None
    audio_input_tokens: int | None = None
    audio_output_tokens: int | None = None
    image_input_tokens: int | None = None
    image_output_tokens: int | None = None
    server_tool_uses: Mapping[str, int] = _NOTHING


class _UnreadableError(ValueError):
    """A count is none; then nothing of the usage is believed."""


def openai_usage(usage: Any, *, generates: bool, content: bool = False) -> Usage | None:
    """Usage as OpenAI's APIs report it, and the many that speak like them.

    Args:
        usage: the answer's ``usage``; of any type.
        generates: a model read and wrote: its input is never 0.
        content: the answer holds something, so not all counts can be 0, and where a model wrote
            it, the output is not.

    Returns:
        ``None`` where it is unreported, holds anything but whole numbers in range, or cannot be
        true.
    """
    if type(usage) is not dict:
        return None
    try:
        return _openai(usage, generates, content)
    except _UnreadableError:
        return None


def anthropic_usage(usage: Any, *, content: bool = False) -> Usage | None:
    """Usage as the Messages API reports it: see :func:`openai_usage`.

    The API counts cached tokens beside ``input_tokens``; here they are a part of them. Where it
    lists what each of several model runs used, all of these count: the totals beside the list
    leave some out.
    """
    if type(usage) is not dict:
        return None
    try:
        return _anthropic(usage, content)
    except _UnreadableError:
        return None


def rerank_usage(answer: dict[str, Any]) -> Usage | None:
    """Usage of a ranking: ``usage.total_tokens``, or the tokens that ``meta`` tells of."""
    if answer.get("usage") is not None:
        return openai_usage(answer["usage"], generates=False, content=True)
    try:
        meta = _part(answer, "meta")
        billed, tokens = _part(meta, "billed_units"), _part(meta, "tokens")
        given = _most(_number(billed, "input_tokens"), _number(tokens, "input_tokens"))
        made = _most(_number(billed, "output_tokens"), _number(tokens, "output_tokens"))
    except _UnreadableError:
        return None
    return Usage(given, made or 0) if given else None


def units_of(answer: dict[str, Any]) -> Mapping[str, float]:
    """What is billed that is no token: ``seconds`` of sound, ``search_units`` of a ranking."""
    usage, meta = answer.get("usage"), answer.get("meta")
    billed: Any = meta.get("billed_units") if type(meta) is dict else None
    units: dict[str, float] = {}
    for place, name in ((usage, "seconds"), (billed, "search_units")):
        value: Any = place.get(name) if type(place) is dict else None
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if is_number and 0 < value <= MAX_SAFE_INTEGER:
            units[name] = value
    return units


def plus(usage: Usage | None, other: Usage | None) -> Usage | None:
    """Both together, ``None`` where one is unknown; what ``other`` has in parts is left out."""
    if usage is None or other is None:
        return None
    return _checked(
        replace(
            usage,
            input_tokens=usage.input_tokens + other.input_tokens,
            output_tokens=usage.output_tokens + other.output_tokens,
        )
    )


def fallen(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether a count of a stream is less than it was, and not 0: then neither is believed."""
    return any(
        type(count) is int and type(old := before.get(name)) is int and 0 < count < old
        for name, count in after.items()
    )


def is_count(value: Any) -> TypeGuard[int]:
    """Whether it is a whole number in range."""
    return type(value) is int and 0 <= value <= MAX_SAFE_INTEGER


def _openai(usage: dict[str, Any], generates: bool, content: bool) -> Usage | None:
    # Chat and completions speak of prompts and completions, the others of input and output.
    given, made, total = _numbers(usage, _TOTALS)
    usual = usage.keys() <= _USUAL
    if not usual:
        given = _most(given, _number(usage, "input_tokens"))
        made = _most(made, _number(usage, "output_tokens"))
    if given is None:
        if generates or total is None:
            return None
        given = max(total - (made or 0), 0)
    if made is None:
        if generates and total is None:
            return None
        made = 0
    of_input, of_output = (
        _part(usage, "prompt_tokens_details"),
        _part(usage, "completion_tokens_details"),
    )
    if not usual:
        of_input = (
            of_input or _part(usage, "input_tokens_details") or _part(usage, "input_token_details")
        )
        of_output = (
            of_output
            or _part(usage, "output_tokens_details")
            or _part(usage, "output_token_details")
        )
    cached = written = short = heard = seen = reasoning = spoken = drawn = None
    if of_input:
        cached, heard, seen, written = _numbers(of_input, _OF_INPUT)
        if written is None and "cache_creation_tokens" in of_input:
            written = _number(of_input, "cache_creation_tokens")
        if "cache_write_tokens_details" in of_input:
            short = _number(_part(of_input, "cache_write_tokens_details"), "ttl_30m_tokens")
    if of_output:
        reasoning, spoken, drawn = _numbers(of_output, _OF_OUTPUT)
    if not usual:
        if cached is None:  # DeepSeek; gateways that speak for the Messages API
            cached = _number(usage, "prompt_cache_hit_tokens")
        if cached is None:
            cached = _number(usage, "cache_read_input_tokens")
        if written is None:
            written = _number(usage, "cache_creation_input_tokens")
        if reasoning is None:
            reasoning = _number(usage, "reasoning_tokens")
    parts = (cached or 0) + (written or 0)
    thought = reasoning or 0
    missing = total - given - made if total is not None else 0
    citations = 0 if usual else _number(usage, "citation_tokens") or 0  # Perplexity
    if missing >= citations:
        missing -= citations
    if missing > 0 and parts and missing in (parts, parts + thought):
        given += parts  # counted beside the input
        missing -= parts
    elif total is None and "prompt_tokens" not in usage and "cache_read_input_tokens" in usage:
        given += parts  # as the Messages API counts
    given += citations
    beside = thought > made and (total is None or "reasoning_tokens" in usage)
    made += max(missing, thought if beside else 0, 0)
    if max(parts, heard or 0, seen or 0) > given or (generates and not given):
        return None
    if max(thought, spoken or 0, drawn or 0) > made:
        return None
    if content and not (made if generates else given + made):
        return None
    if given > MAX_SAFE_INTEGER or made > MAX_SAFE_INTEGER:
        return None
    return Usage(
        given, made, cached, written, None if short is None else min(short, written or 0),
        reasoning, heard, spoken, seen, drawn, _NOTHING if usual else _tool_uses(usage),
    )  # fmt: skip


def _anthropic(usage: dict[str, Any], content: bool) -> Usage | None:
    given, made = _number(usage, "input_tokens"), _number(usage, "output_tokens")
    if given is None or made is None:
        return None
    cached, written, short = _cache(usage)
    given += (cached or 0) + (written or 0)
    runs = usage.get("iterations")
    if type(runs) is list and runs:
        sums = [0, 0, 0, 0, 0]
        for run in runs:
            if type(run) is not dict:
                raise _UnreadableError
            read, wrote, briefly = _cache(run)
            inputs = (_number(run, "input_tokens") or 0) + (read or 0) + (wrote or 0)
            outputs = _number(run, "output_tokens") or 0
            for at, more in enumerate((inputs, outputs, read, wrote, briefly)):
                sums[at] += more or 0
        if sums[0] > given:
            given, cached, written, short = sums[0], *(part or None for part in sums[2:])
        made = max(made, sums[1])
    elif runs is not None and runs != []:
        raise _UnreadableError
    thought = _number(_part(usage, "output_tokens_details"), "thinking_tokens")
    if not given or (content and not made) or (thought or 0) > made:
        return None
    return _checked(
        Usage(
            given,
            made,
            cached,
            written,
            short,
            thought,
            server_tool_uses=_tool_uses(usage),
        )
    )


def _cache(usage: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
    """Tokens read from a cache, written to one, and of these for the short time."""
    cached = _number(usage, "cache_read_input_tokens")
    written = _number(usage, "cache_creation_input_tokens")
    kinds = _part(usage, "cache_creation")
    if not kinds:
        return cached, written, None
    short = _number(kinds, "ephemeral_5m_input_tokens")
    by_age = (short or 0) + (_number(kinds, "ephemeral_1h_input_tokens") or 0)
    return cached, _most(written, by_age), short


def _tool_uses(usage: dict[str, Any]) -> Mapping[str, int]:
    """Uses of the provider's tools that the usage itself counts."""
    counts = _part(usage, "server_tool_use")
    searches = _number(usage, "num_search_queries")  # Perplexity
    if not counts and not searches:
        return _NOTHING
    if len(counts) > _MOST_TOOLS or any(len(name) > _LONGEST_TOOL for name in counts):
        raise _UnreadableError
    uses: dict[str, int] = {}
    for name in counts:
        if name.endswith("_requests") and (times := _number(counts, name)):
            uses[name.removesuffix("_requests")] = times
    if searches:
        uses.setdefault("web_search", searches)
    return uses


def _number(counts: dict[str, Any], name: str) -> int | None:
    value = counts.get(name)
    if value is None or (type(value) is int and 0 <= value <= MAX_SAFE_INTEGER):
        return value
    raise _UnreadableError


def _numbers(counts: dict[str, Any], names: tuple[str, ...]) -> list[int | None]:
    found: list[int | None] = []
    for name in names:
        value = counts.get(name)
        if value is not None and not (type(value) is int and 0 <= value <= MAX_SAFE_INTEGER):
            raise _UnreadableError
        found.append(value)
    return found


def _part(counts: dict[str, Any], name: str) -> dict[str, Any]:
    value = counts.get(name)
    if value is None:
        return {}
    if type(value) is dict:
        return value
    raise _UnreadableError


def _most(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def _checked(usage: Usage) -> Usage | None:
    """``None`` where a sum is out of range."""
    if usage.input_tokens > MAX_SAFE_INTEGER or usage.output_tokens > MAX_SAFE_INTEGER:
        return None
    return usage
