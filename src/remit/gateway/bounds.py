"""Upper bounds of the charge for a call, computed from its text, its media and its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from remit.gateway.field_bounds import (
    NO_LIMITS,
    ORDINARY,
    OTHER_MODELS,
    SCHEMAS,
    ToolLimits,
    answers_of,
    predicted_bytes,
    tool_lists,
    tools_of,
    unpriced_field,
)
from remit.kernel.budget_values import Amount
from remit.kernel.canonical import MAX_SAFE_INTEGER
from remit.providers.prices import Price
from remit.providers.wire import ENDPOINTS, NESTED, is_reference, member_at

IMAGE_TOKENS = 49_152
"""The most that one image can count for."""

SERVER_TOOL_USES = 10
"""How often a call may use a tool that the provider runs, where neither it nor config says."""

MESSAGE_TOKENS = 16
"""What a provider may add to each message by itself."""

_NEUTRAL_LIMITS = ("max_tokens",)
_NO_OUTPUT = frozenset(
    {
        "openai.embeddings",
        "openai.moderations",
        "openai.rerank",
        "anthropic.count_tokens",
        "gemini.count_tokens",
        "gemini.embed",
        "gemini.batch_embed",
    }
)
_PICTURES = frozenset({"openai.images", "openai.image_edits", "openai.image_variations"})
_SOUND_IN = frozenset({"openai.transcriptions", "openai.translations"})
_UNLIMITED = frozenset({"openai.speech", "openai.transcriptions", "openai.translations"})
"""Endpoints whose calls cannot say how long an answer may be."""

_FREE = frozenset({"openai.moderations", "anthropic.count_tokens", "gemini.count_tokens"})
_BY_REFERENCE = ("previous_response_id", "conversation", "container")

_DEARER = ("service_tier", "speed", "inference_geo")
_SPECIAL = frozenset(
    {
        "tools", "web_search_options", "mcp_servers", "max_tool_calls", "modalities", "audio", "n",
        "chunking_strategy", "context_management", "best_of", "prediction", "prompt", "thread",
        *SCHEMAS,
        *OTHER_MODELS, *_DEARER, *_BY_REFERENCE, *NESTED,
    }
)  # fmt: skip
"""Fields that change a bound; most calls have none of them."""

_OPEN = {"service_tier": ("priority",), "inference_geo": ("us",)}
"""Services that an account at the provider may give to a call that names none, or ``auto``."""

_ORDINARY_UNASKED = ("google",)
"""Providers that give the ordinary service to every call that names none."""


UsageBound = tuple[int, int, int | None]
"""The most input tokens, output tokens, and nano-dollars of the provider's tools.

The last is None if the provider runs no tools, and ``MAX_SAFE_INTEGER`` if nothing limits them.
"""

_IMAGES = frozenset(
    {"image", "image_url", "input_image", "computer_screenshot", "image_generation_call"}
)

_TEXTUAL = frozenset(
    {
        None, "text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal",
        "thinking", "redacted_thinking", "reasoning", "compaction", "search_result",
        "tool_reference", "tool_use", "server_tool_use", "mcp_tool_use", "function_call",
        "custom_tool_call", "web_search_call", "file_search_call", "code_interpreter_call",
        "computer_call", "local_shell_call", "local_shell_call_output", "shell_call",
        "shell_call_output", "apply_patch_call", "apply_patch_call_output", "mcp_call",
        "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "tool_search_call",
        "tool_search_output", "web_search_tool_result", "code_execution_tool_result",
        "bash_code_execution_tool_result", "text_editor_code_execution_tool_result",
        "tool_search_tool_result", "mcp_tool_result",
    }
)  # fmt: skip
"""Blocks and items whose tokens are bounded by their bytes."""

_OF_A_MESSAGE = frozenset({"role", "content"})

_TEXTS_OF_CONVERSE = frozenset(
    {"text", "json", "toolUse", "toolResult", "cachePoint", "reasoningContent", "citationsContent",
     "searchResult"}
)  # fmt: skip

_INSIDE = {"tool_result": "content", "message": "content", "function_call_output": "output",
           "custom_tool_call_output": "output", "computer_call_output": "output"}  # fmt: skip
"""Where such a block or item holds others."""

_HOLDERS_OF_GEMINI = ("contents", "systemInstruction", "content", "requests")

_HOLDERS = ("parts", "content", "functionResponse")

_PARTS_OF_TEXT = frozenset(
    {"text", "thought", "thoughtSignature", "functionCall", "executableCode",
     "codeExecutionResult", "role", "id", "name", "response", "model", "taskType", "title",
     "outputDimensionality", "willContinue", "scheduling"}
)  # fmt: skip


class Media(Struct, gc=False):
    """The parts of a body that are not text.

    Attributes:
        images: number of images.
        data: bytes of their base64, which say nothing about tokens.
        other: the first part whose tokens only the context window bounds; empty without one.
        seconds: longest duration of the sound files; None if unknown.
        tools: definitions of tools that the conversation adds.
    """

    images: int = 0
    data: int = 0
    other: str = ""
    seconds: float | None = 0.0
    tools: tuple[Any, ...] = ()


def media_of(body: Mapping[str, Any]) -> Media:
    """Return the parts of a body's conversation that are not text, in any dialect.

    Blocks of an unknown type count as ``other``, because their bytes do not bound their tokens.
    ``seconds`` stays 0: sound files are not measured here.

    Args:
        body: the parsed body; ``messages``, ``input``, ``system``, ``contents``,
            ``systemInstruction``, ``content`` and ``requests`` are searched.
    """
    found = Media()
    for holder in _HOLDERS_OF_GEMINI:
        if holder not in body:
            continue
        for number, part in enumerate(_parts(body[holder])):
            _look_at(part, f"{holder} (part {number + 1})", found)
    for name in ("messages", "input", "system"):
        value = body.get(name)
        if isinstance(value, (list, tuple)):
            _look(value, name, found)
    return found


def _parts(holder: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in Gemini's contents: parts, results of functions, and their parts."""
    left: list[Any] = [holder]
    while left:
        value = left.pop()
        if isinstance(value, (list, tuple)):
            left += value
        elif isinstance(value, Mapping):
            left += [value[name] for name in _HOLDERS if name in value]
            yield value


def _look_at(part: Mapping[str, Any], where: str, found: Media) -> None:
    for name, value in part.items():
        if name == "inlineData" and isinstance(value, Mapping):
            kind = value.get("mimeType")
            if isinstance(kind, str) and kind.lower().startswith("image/"):
                data = value.get("data")
                found.images += 1
                found.data += len(data) if isinstance(data, str) else 0
                continue
        if name not in _PARTS_OF_TEXT and name not in _HOLDERS:
            found.other = found.other or f"{where}.{name[:40]}"


def _look(blocks: Sequence[Any], at: str, found: Media) -> None:
    for number, block in enumerate(blocks):
        if type(block) is dict:
            if type(block.get("content")) is str and "audio" not in block and "type" not in block:
                continue  # a message of text
        elif not isinstance(block, Mapping):
            continue
        kind = block.get("type")
        kind = kind if isinstance(kind, str) else None
        if kind is None and at != "input" and block.keys().isdisjoint(_OF_A_MESSAGE):
            _look_at_converse(block, f"{at}[{number}]", found)
            continue
        inside = _INSIDE.get(kind or "message")
        if kind is None and at == "input" and is_reference(block):
            found.other = found.other or f"{at}[{number}] (a reference)"
            continue
        if kind in _IMAGES:
            found.images += 1
            found.data += _inline(block)
        elif inside is not None:
            if block.get("audio") is not None:
                found.other = found.other or f"{at}[{number}].audio"
            value = block.get(inside)
            if isinstance(value, Mapping):
                value = [value]
            if isinstance(value, (list, tuple)):
                _look(value, f"{at}[{number}].{inside}", found)
        elif kind == "document" and _source(block) in ("text", "content"):
            value = block["source"].get("content")
            if isinstance(value, (list, tuple)):
                _look(value, f"{at}[{number}].source.content", found)
        elif kind not in _TEXTUAL:
            found.other = found.other or f'{at}[{number}] (type "{str(kind)[:40]}")'
            if kind == "tool_addition" and (tool := member_at(block, "tool.definition")):
                found.tools = (*found.tools, tool)


def _look_at_converse(block: Mapping[str, Any], at: str, found: Media) -> None:
    """Add the media in a block of Converse, which names its kind by its only member."""
    for name, value in block.items():
        data = member_at(value, "source.bytes")
        if name == "image" and isinstance(data, str):
            found.images += 1
            found.data += len(data)
        elif name == "toolResult" and isinstance(inner := member_at(value, "content"), list):
            _look(inner, f"{at}.{name}.content", found)
        elif name not in _TEXTS_OF_CONVERSE:
            found.other = found.other or f"{at}.{str(name)[:40]}"


def _source(block: Mapping[str, Any]) -> Any:
    source = block.get("source")
    return source.get("type") if isinstance(source, Mapping) else None


def _inline(block: Mapping[str, Any]) -> int:
    """Return the bytes of an image that the body contains."""
    source, url = block.get("source"), block.get("image_url") or block.get("result")
    if isinstance(url, Mapping):
        url = url.get("url")
    data = source.get("data") if isinstance(source, Mapping) else None
    if data is None and (block.get("result") or (isinstance(url, str) and url[:5] == "data:")):
        data = url
    return len(data) if isinstance(data, str) else 0


class Bound(Struct, frozen=True, gc=False):
    """The upper bound of one call.

    Immutable.

    Attributes:
        amount: tokens and money, and the part that is unbounded.
        usage: the usage that a provider may report.
        limits: limits that the body must state for the bound to hold.
    """

    amount: Amount
    usage: UsageBound
    limits: ToolLimits = NO_LIMITS

    @property
    def tokens(self) -> tuple[int, int]:
        """Input and output tokens."""
        return self.usage[:2]


class _AmountOf(Struct, frozen=True, gc=False):
    """Computes the amount of a call for an output limit.

    A Struct without garbage collection, because each call makes one.
    """

    tokens_in: int
    more: int
    answers: int
    nothing: bool
    price: Price | None
    percent: int
    nano_tools: int
    unbounded: str
    model: tuple[str, ...] | None

    def __call__(self, output: int) -> Amount:
        tokens_in, price = self.tokens_in, self.price
        tokens_out = (output + self.more) * self.answers
        nano: int | None = None
        if self.nothing:
            nano = 0
        elif price is not None:
            nano = -(-price.bound_nano(tokens_in, tokens_out) * self.percent // 100)
            nano = min(nano + self.nano_tools, MAX_SAFE_INTEGER)
        return Amount(
            min(tokens_in + tokens_out, MAX_SAFE_INTEGER), nano, not self.unbounded,
            self.unbounded, self.model, output, self if output > 1 else None,
        )  # fmt: skip


def call_bound(
    endpoint: str,
    body: Mapping[str, Any],
    size: int,
    price: Price | None,
    *,
    uses: int = SERVER_TOOL_USES,
    model: tuple[str, str] | None = None,
    free: bool = False,
    seconds: float | None = 0.0,
) -> Bound:
    """Return the upper bound of the charge for a call.

    The input has at most one token for each byte, plus tokens that providers add unseen. If bytes
    say nothing (documents, sound, files by reference), the model's context window is the bound. The
    output is the call's limit for each answer, else the model's largest. Money is the dearest price
    of both, and the provider's tools as often as the call allows. After each use of a tool the
    model may run again with a full window. A call that no number bounds has an amount with
    ``bounded`` False, whose ``unbounded`` names the field.

    Args:
        endpoint: its name, such as ``openai.chat``.
        body: the parsed body, in the dialect of the endpoint.
        size: bytes of the body.
        price: the model's price; None if it has none.
        uses: how often a tool of the provider may be used if the call does not say.
        model: provider and model, for bounds that earlier bills have raised; None to ignore them.
        free: whether the provider bills nothing.
        seconds: longest duration of sound files in the body; None if unknown.
    """
    media = media_of(body)
    media.seconds = seconds
    return bound_of(endpoint, body, size - media.data, media, price, uses, model, free)


def bound_of(
    endpoint: str,
    body: Mapping[str, Any],
    size: int,
    media: Media,
    price: Price | None,
    uses: int,
    model: tuple[str, str] | None,
    free: bool,
) -> Bound:
    """Return :func:`call_bound` for a body whose media are already known.

    Args:
        endpoint: its name, such as ``openai.chat``.
        body: the parsed body.
        size: bytes of the body without the data of images.
        media: the parts of the body that are not text.
        price: the model's price; None if it has none.
        uses: how often a tool of the provider may be used if the call does not say.
        model: provider and model; None to ignore raised bounds.
        free: whether the provider bills nothing.
    """
    asked = body.get("messages") or body.get("input") or body.get("contents")
    pieces = len(asked) if isinstance(asked, (list, tuple)) else 1
    tokens_in = size + MESSAGE_TOKENS * (pieces + 1) + IMAGE_TOKENS * media.images
    writes = endpoint not in _NO_OUTPUT
    unbounded, other, nano_tools, nano_uses = "", media.other, 0, None
    percent, answers, more, runs, limits, cause = 100, 1, 0, 0, NO_LIMITS, ""
    if price is not None and not free and (price.surcharges or "serviceTier" in body):
        percent, unbounded = _percent(body, price)
    if "reasoning" in body and member_at(body, "reasoning.mode") not in (None, "standard"):
        unbounded = unbounded or "reasoning.mode"  # The model runs several times.
    brings_tools = "input" in body and tool_lists(endpoint, body)
    if not _SPECIAL.isdisjoint(body) or media.tools or brings_tools:
        tools = tools_of(endpoint, body, price, uses, media.tools)
        tokens_in += tools.tokens
        nano_tools, limits, cause = tools.nano, tools.limits, tools.fills
        unbounded = tools.unbounded or unbounded or unpriced_field(body, price)
        runs = tools.runs
        other = other or next((name for name in _BY_REFERENCE if body.get(name)), "")
        if isinstance(body.get("prompt"), Mapping):
            # A template that the provider keeps may bring tools of its own.
            unbounded = unbounded or "prompt (a template stored at the provider)"
        if body.get("thread") and member_at(body, "thread.type") != "create":
            unbounded = unbounded or "thread (a conversation stored at the provider, with tools)"
        if unbounded or limits.field:
            nano_uses = MAX_SAFE_INTEGER
        elif runs:
            nano_uses = nano_tools
        if writes:
            answers, odd = answers_of(endpoint, body)
            unbounded = unbounded or odd
            more = predicted_bytes(body)
    if endpoint in _SOUND_IN and (price is None or not price.per_second):
        other = other or "file"  # bytes say nothing of its tokens
        if body.get("chunking_strategy") not in (None, ""):
            # Each piece is a run of its own, and the provider says not how many there are.
            unbounded = unbounded or "chunking_strategy"
    # Why the bound may prove too low, besides the text of the call.
    cause = cause or ("files" if other else "images" if media.images else "tokens")
    window = price.context_window if price is not None and writes else None
    if window is not None:
        tokens_in = (window if other else min(tokens_in, window)) + runs * window
    elif other or runs:
        unbounded = unbounded or other or "tools"
    limit = 0
    if writes:
        limit = _limit(endpoint, body)
        if not limit and price is not None:
            limit = price.max_output_tokens or price.context_window or 0
        if endpoint in _PICTURES:  # Pictures sent in a form are input.
            files = [value for given in body.values()
                     for value in (given if isinstance(given, list) else [given])]  # fmt: skip
            tokens_in += IMAGE_TOKENS * sum(isinstance(value, Mapping) for value in files)
            limit = max(limit, IMAGE_TOKENS)
        if price is not None and endpoint in _UNLIMITED:
            if endpoint in _SOUND_IN and price.per_second:
                if media.seconds is None or body.get("url"):
                    field = "file (its length is unreadable)" if not body.get("url") else "url"
                    unbounded = unbounded or field
                cause, nano_tools = "sound", nano_tools + price.sound_nano(media.seconds or 0)
                tokens_in, limit = 0, 1
            elif price.per_character:
                nano_tools += price.sound_nano(characters=size)
                tokens_in, limit = 0, 1
        if not limit:
            unbounded = unbounded or (
                "choose a model whose largest answer is known" if endpoint in _UNLIMITED
                else "send max_tokens (its largest answer is unknown)"
            )  # fmt: skip
    amount = _AmountOf(
        tokens_in, more, answers, free or endpoint in _FREE, price, percent, nano_tools, unbounded,
        None if model is None else (*model, cause),
    )(limit)  # fmt: skip
    # As far as accounts and records count: a client may name any limit.
    tokens_out = min((limit + more) * answers, MAX_SAFE_INTEGER)
    return Bound(amount, (tokens_in, tokens_out, nano_uses), limits)


def service_of(body: Mapping[str, Any], name: str) -> Any:
    """Return the service that a call asks for.

    Args:
        body: the fields of the call. Gemini's ``serviceTier`` stands for ``service_tier``; Converse
            has an object there, which is ignored.
        name: ``service_tier``, ``speed`` or ``inference_geo``.
    """
    tier = body.get("serviceTier") if name == "service_tier" else None
    if tier is None or isinstance(tier, Mapping):
        return body.get(name)
    return tier.lower().removeprefix("service_tier_") if isinstance(tier, str) else tier


def _percent(body: Mapping[str, Any], price: Price) -> tuple[int, str]:
    """Return by how many hundredths the service of a call multiplies the price, and the first
    field that names a service without a price."""
    percent = 100
    for name in _DEARER:
        value = service_of(body, name) if "serviceTier" in body else body.get(name)
        known = price.surcharges.get(name, {})
        if value is None or value == "auto":
            for one in () if price.provider in _ORDINARY_UNASKED else _OPEN.get(name, ()):
                percent = max(percent, -(-percent * known.get(one, 100) // 100))
            continue
        if value in ORDINARY or (name == "speed" and isinstance(value, (int, float))):
            continue  # For speech, `speed` is the speaking rate.
        dearer = known.get(value) if isinstance(value, str) else None
        if dearer is None:
            return percent, f'{name} "{str(value)[:40]}"'
        # A discount may not be given, so it lowers no bound.
        percent = -(-percent * max(dearer, 100) // 100)
    return percent, ""


def _limit(endpoint: str, body: Mapping[str, Any]) -> int:
    """Return the output limit that a call states; 0 without one.

    A limit under another API's name is ignored, as providers ignore unknown names.
    """
    known = ENDPOINTS.get(endpoint)
    limit = 0
    for name in _NEUTRAL_LIMITS if known is None else known.output_limit:
        value = member_at(body, name) if "." in name else body.get(name)
        if type(value) is int and value > limit:
            limit = value
    return limit
