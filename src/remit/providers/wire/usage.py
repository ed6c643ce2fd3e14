"""The usage that an answer states: one table of every provider's words, and its reader."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeGuard

from msgspec import Struct
from msgspec.structs import replace

from remit.kernel.canonical import MAX_SAFE_INTEGER

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "input": (
        "prompt_tokens", "input_tokens", "promptTokenCount", "inputTokens", "prompt_eval_count",
    ),
    "output": (
        "completion_tokens", "output_tokens", "candidatesTokenCount", "outputTokens", "eval_count",
    ),
    "total": ("total_tokens", "totalTokenCount", "totalTokens"),
    "cached": (
        "prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens",
        "input_token_details.cached_tokens", "cached_tokens", "prompt_cache_hit_tokens",
        "cache_read_input_tokens", "cacheReadInputTokens", "cachedContentTokenCount",
        "num_cached_tokens", "prompt_tokens_details.cache_read_input_tokens",
    ),
    "written": (
        "prompt_tokens_details.cache_write_tokens", "input_tokens_details.cache_write_tokens",
        "prompt_tokens_details.cache_creation_tokens", "cache_creation_input_tokens",
        "input_tokens_details.cache_creation_tokens", "cacheWriteInputTokens",
        "prompt_tokens_details.cache_creation_input_tokens", "cache_write_tokens",
    ),
    "written_short": (
        "cache_creation.ephemeral_5m_input_tokens",
        "prompt_tokens_details.cache_creation.ephemeral_5m_input_tokens",
        "prompt_tokens_details.cache_write_tokens_details.ttl_30m_tokens",
        "input_tokens_details.cache_write_tokens_details.ttl_30m_tokens",
    ),
    "written_long": (
        "cache_creation.ephemeral_1h_input_tokens",
        "prompt_tokens_details.cache_creation.ephemeral_1h_input_tokens",
        "prompt_tokens_details.cache_write_tokens_details.ttl_12h_tokens",
        "input_tokens_details.cache_write_tokens_details.ttl_12h_tokens",
    ),
    "input_added": ("citation_tokens", "toolUsePromptTokenCount"),
    "reasoning": (
        "completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens",
        "output_token_details.reasoning_tokens", "output_tokens_details.thinking_tokens",
    ),
    "reasoning_apart": ("reasoning_tokens",),
    "reasoning_added": ("thoughtsTokenCount",),
    "audio_input": (
        "prompt_tokens_details.audio_tokens", "input_tokens_details.audio_tokens",
        "input_token_details.audio_tokens", "promptTokensDetails.AUDIO",
    ),
    "audio_output": (
        "completion_tokens_details.audio_tokens", "output_tokens_details.audio_tokens",
        "output_token_details.audio_tokens", "candidatesTokensDetails.AUDIO",
    ),
    "image_input": (
        "prompt_tokens_details.image_tokens", "input_tokens_details.image_tokens",
        "input_token_details.image_tokens", "promptTokensDetails.IMAGE",
    ),
    "image_output": (
        "completion_tokens_details.image_tokens", "output_tokens_details.image_tokens",
        "output_token_details.image_tokens", "candidatesTokensDetails.IMAGE",
    ),
    "web_searches": ("num_search_queries",),
}  # fmt: skip
"""For each count, the members of a usage object that state it; a dot leads into a member, or to
the element of Gemini's list that has this modality.

A count that several members state is the largest of them. ``…_added`` stands next to the total of
its kind, never within it; ``reasoning_apart`` does if it exceeds the output. ``docs/budgets.md``
lists the same members by provider.
"""

SERVED = {
    "service_tier": "service_tier", "serviceTier": "service_tier",
    "inference_geo": "inference_geo", "inferenceGeo": "inference_geo", "speed": "speed",
}  # fmt: skip
"""Members of a usage object or an answer that state what was served → the field of a call that
changes its price."""

_SERVED = frozenset(SERVED)
_TOOL_USES = ("server_tool_use", "server_tool_use_details", "server_side_tool_usage_details")
_NAMES_OF_USES = frozenset(_TOOL_USES)
_TOOL_SUFFIXES = ("_requests", "_calls")
_MAX_TOOLS = 100  # Tool names of an answer enter its record, so their number is limited.
_LONGEST_TOOL = 100
_MAX_TOOL_USES = 10_000  # A larger number for one tool in one answer is not a count of uses.
_NOTHING: Mapping[str, int] = MappingProxyType({})
_NOT_SAID: Mapping[str, str] = MappingProxyType({})

PARTS = (
    "cached_input_tokens", "cache_write_tokens", "cache_write_short_tokens",
    "cache_write_long_tokens", "reasoning_tokens", "audio_input_tokens", "audio_output_tokens",
)  # fmt: skip
"""The counts of a :class:`ProviderResponse` that are parts of its tokens."""

_parts = operator.attrgetter(*PARTS)


def _tree() -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for count, paths in SPELLINGS.items():
        for path in paths:
            *outer, name = path.split(".")
            place = tree
            for each in outer:
                place = place.setdefault(each, {})
            place[name] = count
    return tree


_TREE = _tree()


class Usage(Struct, frozen=True):
    """The usage of one answer as its provider reported it. Parts are within their totals.

    Attributes:
        input_tokens: all input tokens, those read from and written to a cache included.
        output_tokens: all output tokens, reasoning included.
        cached_input_tokens: tokens read from a cache; here and below None if not reported.
        cache_write_tokens: tokens written to a cache. ``cache_write_short_tokens`` of them are kept
            for the ordinary time, ``cache_write_long_tokens`` for longer.
        reasoning_tokens: the part of the output that was reasoning.
        audio_input_tokens, audio_output_tokens, image_input_tokens, image_output_tokens: the parts
        that were sound and pictures.
        server_tool_uses: how often the provider ran a tool of its own: ``{"web_search": 2}``.
        served: the service that was given, keyed by the request field that asks for it.
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
    cache_write_long_tokens: int | None = None
    served: Mapping[str, str] = _NOT_SAID


class _UnreadableError(ValueError):
    """A count is not a number in range, so the whole usage is rejected."""


def read_usage(
    usage: Any,
    *,
    generates: bool = True,
    content: bool = False,
    cache_apart: bool = False,
    answer: Mapping[str, Any] = MappingProxyType({}),
) -> Usage | None:
    """Return the usage in a usage object, in the words of any provider (:data:`SPELLINGS`).

    Args:
        usage: the object, of any type.
        generates: True if a model read and wrote, so that its input is never 0.
        content: True if the answer has content, so that not all counts can be 0; if a model wrote
            it, neither can the output.
        cache_apart: True if the input excludes tokens read from and written to a cache, as in the
            Messages API.
        answer: the answer, which may state the service given.

    Returns:
        None if the usage is unreported, has counts other than whole numbers in range or a service
        that is no text, or is contradictory.
    """
    if type(usage) is not dict:
        return None
    uses, served = _NOTHING, _NOT_SAID
    try:
        counts = _counts(usage)
        if (runs := usage.get("iterations")) is not None and runs != []:
            counts.update(_of_runs(runs, counts))
        if "web_searches" in counts or not _NAMES_OF_USES.isdisjoint(usage):
            uses = _tool_uses(usage, counts)
        if not (_SERVED.isdisjoint(usage) and _SERVED.isdisjoint(answer)):
            served = _served(usage, answer)
    except _UnreadableError:
        return None
    get = counts.get
    given, made, total = get("input"), get("output"), get("total")
    if given is None:
        if generates or total is None:
            return None
        given = max(total - (made or 0), 0)
    if made is None:
        if generates and total is None:
            return None
        made = 0
    cached, written, short, long = (
        get("cached"), get("written"), get("written_short"), get("written_long")
    )  # fmt: skip
    if short is not None or long is not None:
        written = max(written or 0, (short or 0) + (long or 0))
    parts = (cached or 0) + (written or 0)
    added = get("reasoning_added", 0)
    made += added
    reasoning = max(get("reasoning", -1), get("reasoning_apart", -1), added or -1)
    thought = max(reasoning, 0)
    more = get("input_added", 0)
    if cache_apart:
        given += parts
    else:
        missing = total - given - made if total is not None else 0
        if missing >= more:
            missing -= more
        if missing > 0 and parts and missing in (parts, parts + thought) and get("output"):
            given += parts  # counted next to the input
            missing -= parts
        elif total is None and "prompt_tokens" not in usage and not usage.keys().isdisjoint(
            ("cache_read_input_tokens", "cacheReadInputTokens")
        ):  # fmt: skip
            given += parts  # The Messages API and Bedrock report cached tokens separately.
        apart = thought > made and (total is None or "reasoning_apart" in counts)
        made += max(missing, thought if apart else 0, 0)
    given += more
    heard, spoken = get("audio_input"), get("audio_output")
    seen, drawn = get("image_input"), get("image_output")
    if max(parts, heard or 0, seen or 0) > given or (generates and not given):
        return None
    if max(thought, spoken or 0, drawn or 0) > made or max(given, made) > MAX_SAFE_INTEGER:
        return None
    if content and not (made if generates else given + made):
        return None
    return Usage(
        given, made, cached, written, short, None if reasoning < 0 else reasoning, heard, spoken,
        seen, drawn, uses, long, served,
    )  # fmt: skip


def continued(before: Any, after: Any, *, cache_apart: bool = False) -> Any:
    """Return the usage of a stream as far as two of its events state it.

    The later count is the final one, whether it is higher or lower. A server that counts at one
    place only sends zeros at the others, so a 0 replaces a count only next to a later count of the
    input.

    Args:
        before: a usage object, or anything else that an earlier event stated.
        after: the same of a later event.
        cache_apart: as for :func:`read_usage`; then ``after`` may leave out what stays true.
    """
    if type(before) is not dict or type(after) is not dict:
        return after if type(after) is dict or before is None else before
    whole = bool(after.get("input_tokens")) if cache_apart else read_usage(after) is not None
    if whole and not cache_apart:
        return after
    merged = {**before}
    for name, value in after.items():
        if value is not None and (whole or value != 0 or not merged.get(name)):
            merged[name] = value
        else:
            merged.setdefault(name, value)
    if "cache_creation" not in after:
        kinds, written = before.get("cache_creation"), after.get("cache_creation_input_tokens")
        if type(kinds) is dict and is_count(written) and (whole or written):
            counts = [count for count in kinds.values() if is_count(count)]
            if sum(counts) > written:  # the parts of an estimate
                del merged["cache_creation"]
    return merged


def rerank_usage(answer: dict[str, Any]) -> Usage | None:
    """Return the usage of a ranking: that of ``usage``, else the tokens that ``meta`` states.

    ``meta`` states them in ``billed_units`` and ``tokens``, of which the larger counts apply. None
    if no tokens are stated, or they are unreadable.
    """
    if answer.get("usage") is not None:
        return read_usage(answer["usage"], generates=False, content=True)
    meta = answer.get("meta")
    stated = [meta.get(name) for name in ("billed_units", "tokens")] if type(meta) is dict else []
    try:
        counts = [_counts(each) for each in stated if type(each) is dict]
    except _UnreadableError:
        return None
    given, made = (max((each.get(name, 0) for each in counts), default=0)
                   for name in ("input", "output"))  # fmt: skip
    return Usage(given, made) if given else None


def units_of(answer: dict[str, Any]) -> Mapping[str, float]:
    """Return billed units other than tokens: ``seconds`` of sound (in ``usage``) and
    ``search_units`` of a ranking (in ``meta.billed_units``).

    A unit that is not a number above 0 is left out.
    """
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
    """Return ``usage`` with the input and output tokens of ``other`` added.

    Other members are those of ``usage``. The result is None if one is unknown, or if a sum exceeds
    2**53 - 1.
    """
    if usage is None or other is None:
        return None
    given = usage.input_tokens + other.input_tokens
    made = usage.output_tokens + other.output_tokens
    if max(given, made) > MAX_SAFE_INTEGER:
        return None
    return replace(usage, input_tokens=given, output_tokens=made)


def objects_in(value: Any) -> list[dict[str, Any]] | None:
    """Return the objects of a list, none for null; None if the value is anything else."""
    if value is None:
        return []
    is_list = type(value) is list and all(type(each) is dict for each in value)
    return value if is_list else None


def is_count(value: Any) -> TypeGuard[int]:
    """Return True if a value is a whole number in range."""
    return type(value) is int and 0 <= value <= MAX_SAFE_INTEGER


def _counts(
    usage: dict[str, Any], tree: dict[str, Any] = _TREE, found: dict[str, int] | None = None
) -> dict[str, int]:
    """Return the counts of a usage object, keyed by the names of :data:`SPELLINGS`.

    Raises:
        _UnreadableError: a count is no whole number in range.
    """
    if found is None:
        found = {}
    for name, value in usage.items():
        count = tree.get(name)
        if count is None or value is None:
            continue
        if type(count) is dict:
            if type(value) is list and name.endswith("TokensDetails"):
                value = _by_modality(value)
            if type(value) is not dict:
                raise _UnreadableError
            _counts(value, count, found)
        elif type(value) is int and 0 <= value <= MAX_SAFE_INTEGER:
            if value >= found.get(count, 0):
                found[count] = value
        else:
            raise _UnreadableError
    return found


def _by_modality(details: list[Any]) -> dict[str, int]:
    """Return the tokens of each modality in Gemini's details.

    Raises:
        _UnreadableError: an element is no object with a text and a whole number in range.
    """
    found: dict[str, int] = {}
    for each in details:
        if type(each) is not dict:
            raise _UnreadableError
        modality, count = each.get("modality"), each.get("tokenCount", 0)
        if type(modality) is not str or not is_count(count):
            raise _UnreadableError
        found[modality] = found.get(modality, 0) + count
    return found


def _of_runs(runs: Any, counts: dict[str, int]) -> dict[str, int]:
    """Return the counts of several model runs together, as far as the totals leave some out.

    Raises:
        _UnreadableError: a run is unreadable.
    """
    if type(runs) is not list or not all(type(run) is dict for run in runs):
        raise _UnreadableError
    each = [_counts(run) for run in runs]
    names = ("input", "cached", "written", "written_short", "written_long")
    sums = {name: sum(run.get(name, 0) for run in each) for name in (*names, "output")}
    most = {"output": max(sums.pop("output"), counts.get("output", 0))}
    whole = ("input", "cached", "written")
    if "input" not in counts or sum(sums[name] for name in whole) <= sum(
        counts.get(name, 0) for name in whole
    ):
        return most
    return {**most, **{name: count for name, count in sums.items()
                       if count or name == "input" or name in counts}}  # fmt: skip


def _served(usage: dict[str, Any], answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the service that was given, by the request field that asks for it.

    Raises:
        _UnreadableError: a service is neither a text nor null, so its price is unknown.
    """
    found: dict[str, str] = {}
    for place in (usage, answer):
        for name, field in SERVED.items():
            if name not in place or field in found:
                continue
            value = place[name]
            if type(value) is dict:  # Bedrock wraps the value in an object.
                value = value.get("type", value)
            if type(value) is float and field == "speed":  # Some servers count tokens a second.
                continue
            if type(value) is not str and value is not None:
                raise _UnreadableError
            if value:
                found[field] = value[:_LONGEST_TOOL].lower().removeprefix("service_tier_")
    return found


def _tool_uses(usage: dict[str, Any], counts: dict[str, int]) -> Mapping[str, int]:
    """Return the uses of the provider's tools that the usage counts.

    Raises:
        _UnreadableError: a count is not a number in range.
    """
    uses: dict[str, int] = {}
    for place in _TOOL_USES:
        stated = usage.get(place)
        if stated is None:
            continue
        if type(stated) is not dict or len(stated) > _MAX_TOOLS:
            raise _UnreadableError
        for name, times in stated.items():
            if len(name) > _LONGEST_TOOL:
                raise _UnreadableError
            suffix = next(filter(name.endswith, _TOOL_SUFFIXES), "")
            if not suffix or times is None:
                continue
            if not is_count(times) or times > _MAX_TOOL_USES:
                raise _UnreadableError
            if times:
                uses[name.removesuffix(suffix)] = times
    searches = counts.get("web_searches", 0)
    if searches > _MAX_TOOL_USES:
        raise _UnreadableError
    if searches:
        uses.setdefault("web_search", searches)
    return uses or _NOTHING


def reported(usage: Usage | None) -> dict[str, Any]:
    """Return the fields of a :class:`ProviderResponse` for the usage that an answer states.

    Without a usage the tokens are 0 and ``usage_reported`` is False. A part of 0 tokens is None.
    """
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0, "usage_reported": False}
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "server_tool_uses": usage.server_tool_uses,
        "served": usage.served,
        **{name: count or None for name, count in zip(PARTS, _parts(usage), strict=True)},
    }
