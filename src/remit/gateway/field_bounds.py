"""The part of a call's upper bound that fields of its body cause: tools, more answers, extras."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from remit.providers.prices import Price
from remit.providers.wire import member_at

SCHEMAS = ("functions", "response_format", "output_config", "output_format", "text",
           "generationConfig", "outputConfig")  # fmt: skip
"""Fields that hold schemas, which providers may put into the prompt in words of their own."""

_MAX_DIGITS = 16
# A provider may add this many tokens when tools are offered, and for each tool of its own.
_TOOLS_TOKENS = 1_024
_DATED = re.compile(r"_(\d{8}|\d{4}_\d{2}_\d{2})$")

_CLIENT_TOOLS = frozenset(
    {
        None, "function", "custom", "bash", "text_editor", "computer", "memory", "computer_use",
        "computer_use_preview", "computer_toolset", "browser_toolset", "local_shell", "apply_patch",
        "functionDeclarations",
    }
)  # fmt: skip
"""Types of tools, without their dates, that the client runs: they cost tokens and no more."""

DEFINITIONS = (None, "function", "custom", "toolSpec", "cachePoint")
"""Kinds of tools that the client runs, counted by their bytes alone."""

_OF_THE_CLIENT = frozenset({"name", "function", "input_schema", "custom", "description"})
"""Members of a tool without a type that the client runs."""

_KINDS_AS_MEMBERS = frozenset({"gemini.generate", "bedrock.converse"})
"""Endpoints whose tools name their kinds by their members; one tool may have several."""

_GOOGLES = {
    "googleSearch": "web_search", "google_search": "web_search",
    "googleSearchRetrieval": "web_search", "google_search_retrieval": "web_search",
    "googleMaps": "google_maps",
}  # fmt: skip
"""Names of Google's tools in the price table, if they differ from the member of the request."""

_CONTAINERS = {"code_interpreter": "container", "shell": "environment"}
"""OpenAI's tools that run in a container, and the member that names it or states its size."""

_SIZES = (None, "auto", "1024x1024", "1024x1536", "1536x1024")
"""Sizes of pictures that the price of OpenAI's image generation covers."""

_TAKES_MAX_USES = frozenset({"web_search", "web_fetch"})
"""Anthropic's tools whose uses a request can limit."""

_INCLUDES_CODE = "20260209"
"""First version of Anthropic's search and fetch next to which code execution is free."""

_MAX_RUNS = 10
"""How often Anthropic runs a model for one request at most, by its documentation of
``pause_turn``."""

OTHER_MODELS = ("models", "provider", "route", "plugins", "fallbacks", "search_parameters",
                 "enable_search", "agent", "agent_reference", "cachedContent")  # fmt: skip
"""By these, servers let a call choose another model than the one that is priced, or a tool that the
call does not name."""

_OF_MODELS = ("anthropic_beta", "output_config", "thinking", "top_k")
"""Additional fields of Converse that cost no more than the output limit allows."""

ORDINARY = ("default", "standard", "standard_only", "global")
"""Services at the price of the table."""


class ToolLimits(Struct, frozen=True):
    """Limits that a request must state for its bound to hold, and lacks.

    Immutable.

    Attributes:
        uses: the limit.
        tools: places in ``tools`` that get the limit as ``max_uses``.
        of_call: whether the request gets the limit as ``max_tool_calls``.
    """

    uses: int = 0
    tools: tuple[int, ...] = ()
    of_call: bool = False

    @property
    def field(self) -> str:
        """The first missing field; empty if none is missing."""
        if self.tools:
            return f"tools[{self.tools[0]}].max_uses"
        return "max_tool_calls" if self.of_call else ""


NO_LIMITS = ToolLimits()


class Tools(Struct):
    """The part of a bound that the tools of a call cause.

    Mutable while :func:`tools_of` adds the tools up.

    Attributes:
        tokens: tokens of definitions.
        nano: nano-dollars for uses of the provider's tools.
        fills: the kind of the first tool that can fill the context window; empty without one.
        runs: how often the model may then run again, each time with a full window.
        unbounded: the first field without a bound; empty without one.
        limits: missing limits.
    """

    tokens: int = 0
    nano: int = 0
    fills: str = ""
    runs: int = 0
    unbounded: str = ""
    limits: ToolLimits = NO_LIMITS


def tools_of(
    endpoint: str, body: Mapping[str, Any], price: Price | None, uses: int,
    added: Sequence[Any] = (),
) -> Tools:  # fmt: skip
    """Return the part of a call's bound that its tools cause.

    Uses of a tool that the provider runs are bounded only by a limit that the endpoint's API
    enforces: ``max_uses`` of Anthropic's search and fetch, ``max_tool_calls`` of the Responses API.
    A missing limit is in ``limits``. Anthropic's other tools count as ten uses, Gemini's that are
    priced by the call as one. Any other tool that the provider runs, or one without a price, is
    unbounded.

    Args:
        endpoint: its name, such as ``openai.chat``.
        body: the parsed body.
        price: the model's price; None if it has none.
        uses: how often a tool of the provider may be used if the call does not say.
        added: tools that the conversation adds.
    """
    found = Tools()
    prices: list[tuple[int, int]] = []
    if endpoint == "openai.responses":
        most = count_of(body.get("max_tool_calls"))
        if most is None or most < 0:
            found.limits, most = ToolLimits(uses, of_call=True), uses
        uses = most
    for where, number, kind, tool in offered_tools(endpoint, body, added):
        _add(endpoint, where, number, kind, tool, price, uses, found, prices)
    if body.get("web_search_options") is not None:  # nothing limits the searches of a model
        found.unbounded = found.unbounded or "web_search_options"
    if body.get("mcp_servers"):
        _server_tool("mcp_servers", "mcp_servers", _MAX_RUNS, price, found, prices)
    if tool_lists(endpoint, body) or any(body.get(name) for name in SCHEMAS):
        found.tokens += _TOOLS_TOKENS
    if endpoint == "openai.responses":
        found.nano = max((per_use for per_use, _ in prices), default=0) * uses
        found.runs = uses if prices else 0
        if not prices:
            found.limits = NO_LIMITS
    else:
        found.nano = sum(per_use * times for per_use, times in prices)
        found.runs = min(sum(times for _, times in prices), _MAX_RUNS - 1)
    return found


def tool_lists(endpoint: str, body: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the lists of tools in a body, each after its place, without empty ones.

    A place is a path such as ``tools`` or ``input[3].tools``; a list may be any other JSON value.
    Items in the input of the Responses API bring tools too.
    """
    lists: list[tuple[str, Any]] = []
    if tools := body.get("tools"):
        lists.append(("tools", tools))
    if "toolConfig" in body and (tools := member_at(body, "toolConfig.tools")):
        lists.append(("toolConfig.tools", tools))
    items = body.get("input") if endpoint == "openai.responses" else None
    for number, item in enumerate(items if isinstance(items, (list, tuple)) else ()):
        if isinstance(item, Mapping) and (tools := item.get("tools")):
            lists.append((f"input[{number}].tools", tools))
    return lists


def offered_tools(
    endpoint: str, body: Mapping[str, Any], added: Sequence[Any] = ()
) -> Iterator[tuple[str, int, Any, Mapping[str, Any]]]:
    """Yield place, number in its list, kind and definition of each tool, those of namespaces and of
    ``added`` too.

    A tool of Gemini or Converse is yielded once for each of its members, whose names are the kinds.
    A kind may be any JSON value, or None. Items that are no objects are left out. A list of tools
    that is no list counts as an empty tool of the kind ""; for Gemini and Converse, as one tool.

    Args:
        endpoint: its name, such as ``openai.chat``.
        body: the parsed body.
    """
    left = [*tool_lists(endpoint, body), ("tool_addition", added)]
    while left:
        at, tools = left.pop(0)
        if not isinstance(tools, (list, tuple)):
            if endpoint not in _KINDS_AS_MEMBERS:
                yield at, 0, "", {}
                continue
            tools = [tools]  # Google reads a single object as a list of one.
        for number, kind, tool in _kinds(endpoint, tools):
            where = f"{at}[{number}]"
            if kind == tool.get("type") == "namespace":
                left += [(f"{where}.tools", tool["tools"])] if tool.get("tools") else []
            else:
                yield where, number, kind, tool


def _add(
    endpoint: str, where: str, number: int, kind: Any, tool: Mapping[str, Any],
    price: Price | None, uses: int, found: Tools, prices: list[tuple[int, int]],
) -> None:  # fmt: skip
    if kind in DEFINITIONS:
        return
    if not tool:
        found.unbounded = found.unbounded or where
        return
    name = _DATED.sub("", str(kind))
    if _is_clients(kind, tool):
        found.tokens += _TOOLS_TOKENS
        return
    label = f'{where} (type "{str(kind)[:60]}"'
    name, times = _sized(_GOOGLES.get(name, name), tool), uses
    if endpoint == "anthropic.messages" and name in _TAKES_MAX_USES:
        named = count_of(tool.get("max_uses"))
        if named is not None and named >= 0:
            times = named
        elif price is not None and name in price.server_tools:
            if where != f"tools[{number}]":
                found.unbounded = found.unbounded or f"send {where}.max_uses"
            found.limits = ToolLimits(uses, (*found.limits.tools, number))
    elif endpoint == "anthropic.messages":
        times = _MAX_RUNS
    elif endpoint == "gemini.generate" and price and name in price.tools_per_call:
        times = 1
    elif endpoint != "openai.responses":
        found.unbounded = found.unbounded or f"{label}, without a limit)"
    _server_tool(name, f"{label})", times, price, found, prices)


def billed_uses(uses: Mapping[str, int], asked: Mapping[str, Any], price: Price) -> dict[str, int]:
    """Return uses of the provider's tools, keyed by name in the price table.

    A use counts as the dearest variant and size of container that a tool of the request asks for.
    A variant without a price has a count of 0 at least, because the cost is then estimated. A shell
    is not billed if each shell of the request is local, and Anthropic's code execution is not
    billed if the request has a search or fetch of a version that includes code.

    Args:
        uses: billed uses, keyed by type of tool.
        asked: the fields of the request.
        price: the model's price.
    """
    names: dict[str, list[str]] = {}
    for _, _, kind, tool in offered_tools("openai.responses", asked):
        kind = kind if isinstance(kind, str) else ""
        name = _DATED.sub("", kind)
        version = kind.removeprefix(f"{name}_")
        if name in _TAKES_MAX_USES and version.isdigit() and version >= _INCLUDES_CODE:
            names["code_execution"] = []
        if name == "code_execution":
            continue
        sized = names.setdefault(name.removesuffix("_preview"), [])
        if not _is_local(name, tool):
            sized.append(_sized(name, tool))
    billed: dict[str, int] = {}
    for kind, times in uses.items():
        variants = names.get(kind, [kind])
        if variants:
            most = max([kind, *variants], key=lambda name: price.server_tools.get(name, 0))
            billed[most] = billed.get(most, 0) + times
            for unpriced in set(variants) - price.server_tools.keys():
                billed.setdefault(unpriced, 0)
    return billed


def runs_at_provider(items: Sequence[Any]) -> bool:
    """Return True if input items of the Responses API bring a tool that the provider runs.

    Args:
        items: the parsed items; elements of other types count as none.
    """
    tools = offered_tools("openai.responses", {"input": items})
    return not all(_is_clients(kind, tool) for _, _, kind, tool in tools)


def _is_clients(kind: Any, tool: Mapping[str, Any]) -> bool:
    """Return True if the client runs a tool itself."""
    name = _DATED.sub("", kind) if isinstance(kind, str) else kind
    known = name is None or (isinstance(name, str) and name in _CLIENT_TOOLS)
    return known or _is_local(name, tool)


def _is_local(kind: Any, tool: Mapping[str, Any]) -> bool:
    """Return True if a tool that the provider or the client can run is left to the client.

    Args:
        kind: the tool's type, without its date.
        tool: the tool.
    """
    if kind == "tool_search":
        return tool.get("execution") == "client"
    return bool(kind == "shell" and member_at(tool, "environment.type") == "local")


def _sized(kind: str, tool: Mapping[str, Any]) -> str:
    """Return the name of a tool in the price table.

    The table has a name for each size of container, and none for pictures that are larger than
    usual, move, or have a second author.
    """
    if kind == "image_generation":
        usual = tool.get("size") in _SIZES and tool.get("output_format") not in ("gif", "svg")
        return kind if usual else f"{kind}_other"
    place = tool.get(_CONTAINERS.get(kind, ""))
    if isinstance(place, str) or member_at(place, "container_id") is not None:
        return f"{kind}_by_id"
    size = member_at(place, "memory_limit")
    return kind if size in (None, "1g") else f"{kind}_{size}"


def _kinds(endpoint: str, tools: Sequence[Any]) -> Iterator[tuple[int, Any, Mapping[str, Any]]]:
    """Yield each kind of each tool, with the tool and its place."""
    for number, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            continue
        if endpoint in _KINDS_AS_MEMBERS:
            for name, value in tool.items():
                if value is not None:
                    yield number, name, tool
            continue
        kind = tool.get("type")
        if kind is None and tool and _OF_THE_CLIENT.isdisjoint(tool):
            kind = next(iter(tool))
        yield number, kind, tool


def _server_tool(
    name: str, where: str, times: int, price: Price | None, found: Tools,
    prices: list[tuple[int, int]],
) -> None:  # fmt: skip
    per_use = None if price is None else price.server_tools.get(name)
    if per_use is None:
        found.unbounded = found.unbounded or where
        return
    prices.append((per_use, times))
    found.fills = found.fills or name


def count_of(value: Any) -> int | None:
    """Return a count in any form that lenient providers accept (``3``, ``3.0``, ``"3"``), else
    None.

    Fractions are rounded up. True and False count as 1 and 0. Texts of 16 characters or more, NaN
    and infinity give None.

    Args:
        value: any value.
    """
    if type(value) is str and len(value) < _MAX_DIGITS:
        try:
            value = float(value)
        except ValueError:
            return None
    if type(value) is float and math.isfinite(value):
        value = math.ceil(value)
    return int(value) if isinstance(value, int) else None


def unpriced_field(body: Mapping[str, Any], price: Price | None) -> str:
    """Return the first field that buys something the price table does not cover; empty if none
    does.
    """
    if price is None or not price.audio_output:
        if body.get("modalities") not in (None, ["text"]):
            return "modalities"
        if body.get("audio") is not None:
            return "audio"
    if _makes_media(body, price):
        return "generationConfig.responseModalities"
    if field := _unpriced_of_converse(body):
        return field
    if _compacts(body.get("context_management")):
        return "context_management"
    return next((name for name in OTHER_MODELS if body.get(name)), "")


def _makes_media(body: Mapping[str, Any], price: Price | None) -> bool:
    """Return True if a call of Gemini asks for an answer that is neither text nor priced sound."""
    kinds = member_at(body, "generationConfig.responseModalities")
    priced = ("TEXT", "AUDIO") if price is not None and price.audio_output else ("TEXT",)
    listed = kinds if isinstance(kinds, (list, tuple)) else [kinds or "TEXT"]
    return any(not isinstance(kind, str) or kind.upper() not in priced for kind in listed)


def _unpriced_of_converse(body: Mapping[str, Any]) -> str:
    """Return the first field of Converse that buys something without a price, or may raise the
    output limit; empty without one.
    """
    for name in ("guardrailConfig", "promptVariables"):
        if body.get(name):
            return name
    if member_at(body, "serviceTier.type") not in (None, *ORDINARY):
        return "serviceTier"
    if member_at(body, "performanceConfig.latency") not in (None, *ORDINARY):
        return "performanceConfig"
    more = body.get("additionalModelRequestFields")
    odd = (name for name in more if name not in _OF_MODELS) if isinstance(more, Mapping) else ()
    return next((f"additionalModelRequestFields.{str(name)[:40]}" for name in odd), "")


def _compacts(managed: Any) -> bool:
    """Return True if a provider may sum the conversation up first, in a run without a limit."""
    edits = managed.get("edits") if isinstance(managed, Mapping) else managed
    return isinstance(edits, (list, tuple)) and any(
        isinstance(edit, Mapping) and str(edit.get("type", "")).startswith("compact")
        for edit in edits
    )


def answers_of(endpoint: str, body: Mapping[str, Any]) -> tuple[int, str]:
    """Return how many answers a call asks for, and the field that states no whole number."""
    answers, odd = 1, ""
    for name in ("n", "best_of", "generationConfig.candidateCount"):
        value = member_at(body, name)
        for each in value if type(value) is list else [value]:  # a form may hold it twice
            count = 1 if each is None else count_of(each)
            if count is None:
                odd = odd or f'{name} "{str(each)[:40]}"'
            else:
                answers = max(answers, count)
    prompts = body.get("prompt")
    if endpoint != "openai.completions" or not isinstance(prompts, (list, tuple)):
        return answers, odd
    return answers * (1 if isinstance(next(iter(prompts), 0), int) else len(prompts)), odd


def predicted_bytes(body: Mapping[str, Any]) -> int:
    """Return the bytes of a prediction, whose unused part is billed as output."""
    prediction = body.get("prediction")
    content = prediction.get("content") if isinstance(prediction, Mapping) else None
    parts = content if isinstance(content, (list, tuple)) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return sum(len(text.encode(errors="replace")) for text in texts if isinstance(text, str))
