"""Rules of single providers that others of their dialect do not have, applied to outgoing bodies.

A client that changes models within a conversation sends one provider's data to another: ids of
calls, signatures of thoughts, incomplete arguments. Sources: Anthropic's "extended thinking" and
"versions", OpenAI's reference of Chat Completions and Responses, Google's "thought signatures",
Mistral's and OpenRouter's API reference.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import orjson

from remit.kernel.exchange import text_of
from remit.kernel.json_text import dump
from remit.providers.dialects.client_tools import anthropic_function
from remit.providers.dialects.errors import words_of
from remit.providers.dialects.media import plain_document
from remit.providers.dialects.messages.request_writer import in_plain_round
from remit.providers.dialects.schemas import SCHEMA_RULES, SchemaRules, tool_schema
from remit.providers.dialects.seals import google_extra, is_marked, is_marked_gemini, thought_seal
from remit.providers.dialects.tool_calls import ASIDE, json_text, read_arguments, wire_id
from remit.providers.wire.body import Body, member_at
from remit.providers.wire.converse import message_block, message_of

_NINE = re.compile("[A-Za-z0-9]{9}")
_MISTRAL = re.compile("(^|/)(mistral|devstral|codestral|magistral|ministral|pixtral)")
_SIGNING_GEMINI = re.compile("gemini-([3-9]|[1-9][0-9])")
_FOREIGN_CALL = "skip_thought_signature_validator"
"""Google's signature for calls that another model made, or whose signature a client lost."""
_OPENAI_MODEL = re.compile("(gpt-|chatgpt|o[134](-|$)|codex)")
_SYSTEM_ONLY = re.compile("deepseek|glm|kimi|minimax|moonshot|qwen")
_CLAUDE = re.compile("claude|sonnet|opus|haiku|fable|mythos")
_REASON = "this provider refuses what another provider made"
_PLAIN_ROUND = "a round of tools that began without this provider's thoughts ends without them"
_SCHEMA = "this provider refuses keywords of the tool's schema"
_LONG = "this provider accepts only a shorter text, so its SHA-256 is sent"
_OLDER_FIELD = "this version of the API refuses the field"
_SIGNATURES = frozenset(("thoughtSignature", "thought_signature"))
_THOUGHTS = ("reasoning_content", "reasoning")
_DONE = {"role": "assistant", "content": "Done."}
_SAMPLING = ("temperature", "top_p", "top_k")
_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_OWN_ITEM = re.compile("rs_[0-9a-f-]{32,64}_[0-9]+")
_ANTHROPIC_SEAL = re.compile("E[g-v][AEIMQUYcgkosw048][A-Za-z0-9+/]+={0,2}")
_OPENAI_SEAL = "gAAAA"
_MOST_ITEM_ID = 64
_ITEM_IDS = {"message": "msg", "function_call": "fc", "custom_tool_call": "ctc"}
MAY_CHANGE = re.compile(
    rb'"(?:tool_|function_call|custom_tool_call|(?:redacted_)?thinking"|reasoning|tools"|cache_|id"'
    rb'|developer"|system"\s*[,}]|functionCall"|thought|prompt_cache_key"|safety_id|user(?:_id)?"\s*:)'
)
"""Matches each body that may change for its provider; fast, as all alternatives follow one byte."""


@dataclass(frozen=True, slots=True)
class Target:
    """A provider's rules for a body of its dialect.

    Attributes:
        takes_any_arguments: the arguments of a call need not be JSON.
        takes_thoughts: assistant messages of Chat Completions may have ``reasoning_content``.
        takes_details: they may have ``reasoning_details`` (OpenRouter).
        takes_google: tool calls may have ``extra_content`` with Google's signatures.
        takes_developer: messages of Chat Completions may have the role ``developer``.
        takes_user_after_tool: a user's message may follow the results of tools.
        needs_google: the first call of each message must have one (Gemini 3 and later).
        takes_hints: parts, messages and tools of Chat Completions may have ``cache_control``.
        takes_older_fields: the version of the Messages API is before 2026-10-21. From then on the
            body has no ``temperature``, ``top_p`` and ``top_k``, an assistant's message no
            documents, and a user's text no ``citations``.
        needs_signature: a thinking block of the Messages API needs the provider's signature.
        takes_openai_seals: reasoning items of Responses may be encrypted by OpenAI.
        needs_openai_ids: ids of items of Responses must begin as OpenAI's do.
        nine_letters: ids of tool calls are exactly nine letters and digits (Mistral).
        knows_anthropic: tools of Anthropic's that the client runs, references to tools, and system
            messages between turns may be sent to the Messages API.
        schemas: the rules for the schemas of tools.
        longest_user: most characters of the end user's id and of keys of the cache; None for any.
        most_stops: most texts that end an answer; None for any.
    """

    takes_any_arguments: bool = False
    takes_thoughts: bool = True
    takes_details: bool = False
    takes_google: bool = False
    takes_developer: bool = True
    takes_user_after_tool: bool = True
    needs_google: bool = False
    takes_hints: bool = True
    takes_older_fields: bool = True
    needs_signature: bool = False
    takes_openai_seals: bool = True
    needs_openai_ids: bool = False
    nine_letters: bool = False
    knows_anthropic: bool = True
    schemas: SchemaRules = SCHEMA_RULES[""]
    longest_user: int | None = None
    most_stops: int | None = None

    def call_id(self, identity: str) -> str:
        """Return a tool call's id in the provider's form, the same for a call and its result."""
        if not self.nine_letters:
            return wire_id(identity)
        if _NINE.fullmatch(identity):
            return identity
        return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:9]


def target_of(name: str, base_url: str, model: str) -> Target:
    """Return the rules of a provider, known from its id, its host and the model's name.

    Args:
        name: the provider's id in the settings.
        base_url: the provider's base URL.
        model: the provider's name of the model.
    """
    host = urlsplit(base_url).hostname or ""
    mistral = name == "mistral" or host.endswith("mistral.ai") or bool(_MISTRAL.search(model))
    groq = name == "groq" or host.endswith("groq.com")
    google = name in ("gemini", "google") or host.endswith("googleapis.com")
    router = name == "openrouter" or host.endswith("openrouter.ai")
    at_openai = host.endswith((".openai.com", ".azure.com"))
    hosted = name == "openai" or at_openai  # some run another server under this name
    openai = hosted or bool(not router and _OPENAI_MODEL.match(model))
    claude = "claude" in model
    schemas = "anthropic" if claude else "google" if google else "openai" if hosted else ""
    return Target(
        takes_any_arguments=hosted,
        takes_thoughts=not (groq or mistral or at_openai),
        takes_details=router,
        takes_google=google,
        takes_developer=not (mistral or _SYSTEM_ONLY.search(f"{name} {host} {model}")),
        takes_user_after_tool=not mistral,
        needs_google=google and bool(_SIGNING_GEMINI.search(model)),
        takes_hints=not (groq or mistral or at_openai or google),
        needs_signature=claude,
        takes_openai_seals=openai,
        needs_openai_ids=hosted,
        nine_letters=mistral,
        knows_anthropic=bool(_CLAUDE.search(model)),
        schemas=SCHEMA_RULES[schemas],
        longest_user=64 if hosted else 128 if router else 256 if claude else None,
        most_stops=4 if hosted or groq else 5 if google else None,
    )


def fitted_body(body: Body, target: Target) -> Body:
    """Return a client's body adapted to the provider, with the changes noted; itself if there are
    none.

    Only bodies with a conversation are adapted.
    """
    if (endpoint := _FORMS.get(body.endpoint.name, body.endpoint.name)) not in _MESSAGES:
        return body
    if not target.takes_older_fields and body.endpoint.dialect == "anthropic":
        for name in _SAMPLING:
            if name in body.value:
                body = body.without_member((name,), _OLDER_FIELD)
        if type(messages := body.value.get("messages")) is list and _all_newer(messages):
            newer = _all_newer(body.exact["messages"])
            body = body.with_elements("messages", newer, _OLDER_FIELD)
    given = exact = body.value
    fitted = fitted_value(endpoint, given, target)
    if any(new is not given[name] for name, new in fitted.items()):
        exact = body.exact  # An element written anew keeps its integers above 64 bits.
        fitted = fitted if exact is given else fitted_value(endpoint, exact, target)
    for name, new in fitted.items():
        old = exact[name]
        if new is old:
            continue
        if type(old) is not list:
            body = body.with_member((name,), dump(new), _LONG)
            continue
        changed = {
            place: None if one is None else _texts(one)
            for place, (one, before) in enumerate(zip(new, old, strict=True))
            if one is not before
        }
        body = body.with_elements(name, changed, _SCHEMA if name == "tools" else _REASON)
    path: tuple[str, ...] = ("thinking",)
    turns = body.value.get("messages")
    may_be_plain = target.needs_signature or turns is not given.get("messages")
    if body.endpoint.name == "bedrock.converse":
        path = ("additionalModelRequestFields", "thinking")
        listed = turns if type(turns) is list else ()
        turns = [message_of({"output": {"message": turn}}) for turn in listed]
    enabled = member_at(given, ".".join((*path, "type"))) == "enabled"
    if enabled and may_be_plain and in_plain_round(turns or ()):
        body = body.without_member(path, _PLAIN_ROUND)
    return body


def fitted_value(
    endpoint: str, given: Mapping[str, Any], target: Target, *, translated: bool = False
) -> dict[str, Any]:
    """Return the members of a body as the provider takes them, in a new dict.

    The conversation, the tools and the ids of users may change; all else is the same object. A
    message of which nothing is left is None, and a message that needs another before it is a list
    of both.

    Args:
        endpoint: the endpoint whose form the body has.
        given: the body, or a client's value of any form.
        target: the provider's rules.
        translated: True for a translated body. Arguments are then JSON in all of them, because no
            client wrote these texts.
    """
    if translated:
        target = replace(target, takes_any_arguments=False)
    fitted = dict(given)
    found = _MESSAGES.get(endpoint)
    if found is None:
        return fitted
    name, fit = found
    if type(listed := given.get(name)) is list:
        if translated and endpoint == "anthropic.messages" and not target.takes_older_fields:
            listed = [new for new in map(_newer, listed) if new is not None]
        messages = [fit(one, target) if type(one) is dict else one for one in listed]
        if endpoint == "openai.chat" and not target.takes_user_after_tool:
            for place in range(1, len(messages)):
                if _role(listed[place]) == "user" and _role(listed[place - 1]) == "tool":
                    messages[place] = [_DONE, messages[place]]
        fitted[name] = _same_list(listed, messages)
    if type(tools := given.get("tools")) is list:
        fitted["tools"] = _same_list(tools, [_tool(endpoint, tool, target) for tool in tools])
    if (most := target.longest_user) is not None:
        for name in ("user", "prompt_cache_key", "safety_identifier"):
            if type(text := given.get(name)) is str and len(text) > most:
                fitted[name] = _hash(text)
        metadata = given.get("metadata")
        user = metadata.get("user_id") if type(metadata) is dict else None
        if endpoint == "anthropic.messages" and type(user) is str and len(user) > most:
            fitted["metadata"] = {**metadata, "user_id": _hash(user)}  # type: ignore[dict-item]
    return fitted


def _role(message: Any) -> Any:
    return message.get("role") if type(message) is dict else None


def _texts(value: Any) -> bytes:
    """Return the JSON text of an element of a list, or of several in its place."""
    return b",".join(map(dump, value)) if type(value) is list else dump(value)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _same_list(given: list[Any], fitted: list[Any]) -> list[Any]:
    same = all(one is other for one, other in zip(given, fitted, strict=True))
    return given if same else fitted


def _tool(endpoint: str, tool: Any, target: Target) -> Any:
    """Return a tool whose schema the provider accepts."""
    if type(tool) is not dict:
        return tool
    holder: Any = tool
    schema_name = "parameters"
    if endpoint == "openai.chat":
        holder = tool.get("function")
    elif endpoint == "anthropic.messages":
        schema_name = "input_schema"
        if not target.knows_anthropic and (function := anthropic_function(tool)) is not None:
            return {**function, **{k: tool[k] for k in ("cache_control",) if k in tool}}
    schema = holder.get(schema_name) if type(holder) is dict else None
    dropped = ("cache_control",) if endpoint == "openai.chat" and not target.takes_hints else ()
    if type(schema) is not dict:
        return _with(tool, {}, dropped)
    wire = tool_schema(schema, target.schemas)
    if holder is tool:
        return _with(tool, {schema_name: wire}, dropped)
    return _with(tool, {"function": _with(holder, {schema_name: wire}, dropped)}, dropped)


def _chat_message(message: dict[str, Any], target: Target) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    if message.get("role") == "developer" and not target.takes_developer:
        changed["role"] = "system"
    if message.get("role") == "tool" and type(identity := message.get("tool_call_id")) is str:
        changed["tool_call_id"] = target.call_id(identity)
    calls = message.get("tool_calls")
    if type(calls) is list:
        fitted = [_chat_call(call, target) for call in calls]
        first = fitted[0] if target.needs_google and fitted else None
        if type(first) is dict and thought_seal(first) is None:
            fitted[0] = {**first, "extra_content": google_extra(_FOREIGN_CALL)}
        changed["tool_calls"] = _same_list(calls, fitted)
    dropped: set[str] = set()
    if not target.takes_thoughts:
        dropped.update(_THOUGHTS)
    if not target.takes_details:
        dropped.add("reasoning_details")
    if not target.takes_hints:
        dropped.add("cache_control")
        content = message.get("content")
        if type(content) is list:
            parts = [_with(p, {}, ("cache_control",)) if type(p) is dict else p for p in content]
            changed["content"] = _same_list(content, parts)
    return _with(message, changed, dropped)


def _chat_call(call: Any, target: Target) -> Any:
    if type(call) is not dict:
        return call
    changed: dict[str, Any] = {}
    if type(identity := call.get("id")) is str:
        changed["id"] = target.call_id(identity)
    function = call.get("function")
    if type(function) is dict:
        text = function.get("arguments")
        if type(text) is str and (whole := _arguments(text, target)) is not text:
            changed["function"] = {**function, "arguments": whole}
    return _with(call, changed, () if target.takes_google else ("extra_content",))


def _arguments(text: str, target: Target) -> str:
    """Return a call's arguments as the provider takes them: the same text if they are JSON."""
    if target.takes_any_arguments:
        return text
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return json_text(read_arguments(text))
    return text


def _message(message: dict[str, Any], target: Target) -> dict[str, Any] | None:
    content = message.get("content")
    if message.get("role") == "system" and not target.knows_anthropic:
        aside = ASIDE.format(text_of(content))
        if type(content) is not list or all(_kind(block) == "text" for block in content):
            return {"role": "user", "content": aside}
        others = [block for block in content if _kind(block) != "text"]
        return {"role": "user", "content": [{"type": "text", "text": aside}, *others]}
    if type(content) is not list:
        return message
    said = message.get("role") == "assistant"
    kept = [_block(block, target, said) for block in content]
    if all(one is block for one, block in zip(kept, content, strict=True)):
        return message
    kept = [block for block in kept if block is not None]
    return {**message, "content": kept} if kept else None


def _kind(block: Any) -> Any:
    return block.get("type") if type(block) is dict else None


def _all_newer(messages: list[Any]) -> dict[int, bytes | None]:
    """Return the JSON text of each message that :func:`_newer` changes, by its place."""
    newer = ((place, one, _newer(one)) for place, one in enumerate(messages))
    return {place: new and dump(new) for place, one, new in newer if new is not one}


def _newer(message: Any) -> Any:
    """Return a message as the Messages API takes it since 2026-10-21; None if nothing is left.

    A document of an assistant becomes text, or is left out if it is not text.
    """
    content = message.get("content") if type(message) is dict else None
    if type(content) is not list:
        return message
    newer = []
    for block in content:
        kind = _kind(block)
        if kind == "document" and message.get("role") == "assistant":
            source, title = block.get("source"), block.get("title")
            titled = {"source": source, "title": title if type(title) is str else None}
            if type(source) is dict and (text := plain_document(titled)):
                newer.append({"type": "text", "text": text})
            continue
        if message.get("role") == "user" and kind == "text":
            block = _with(block, {}, ("citations",) if block.get("citations") else ())
        elif kind == "tool_result" and type(block.get("content")) is list:
            inner = _newer({"role": "user", "content": block["content"]})
            block = _with(block, {"content": inner["content"]}, ())
        newer.append(block)
    if len(newer) == len(content) and _same_list(content, newer) is content:
        return message
    return {**message, "content": newer} if newer else None


def _block(block: Any, target: Target, said: bool) -> Any:
    if type(block) is dict and "reasoningContent" in block:  # a thought in Converse
        return None if _block(message_block(block), target, said) is None else block
    kind = _kind(block)
    if kind in ("thinking", "redacted_thinking"):
        seal = block.get("signature" if kind == "thinking" else "data")
        if target.needs_signature:
            foreign = kind == "thinking" and not seal
        else:
            foreign = type(seal) is str and _ANTHROPIC_SEAL.fullmatch(seal) is not None
        return None if foreign or is_marked(seal) else block
    if kind == "text" and said and target.needs_signature:
        # Other models write empty texts before a call, which Anthropic refuses.
        text = block.get("text")
        return None if type(text) is str and not text.strip() else block
    name = {"tool_use": "id", "tool_result": "tool_use_id"}.get(str(kind))
    if name is None or type(identity := block.get(name)) is not str:
        return block
    changed: dict[str, Any] = {name: target.call_id(identity)}
    inner = block.get("content")
    if kind == "tool_result" and type(inner) is list and not target.knows_anthropic:
        changed["content"] = _same_list(inner, [_in_words(part) for part in inner])
    return _with(block, changed, ())


def _in_words(part: Any) -> Any:
    """Return a reference to a tool as a text; any other part itself."""
    words = words_of({"value": part}) if type(part) is dict else None
    return part if words is None else {"type": "text", "text": words}


def _content(content: dict[str, Any], target: Target) -> dict[str, Any] | None:
    """Return a turn of Gemini's without the seals of other providers.

    The first call of a turn gets a signature if the model demands one.
    """
    parts = content.get("parts")
    if type(parts) is not list:
        return content
    kept, called = [], False
    for part in parts:
        if type(part) is dict:
            if any(map(is_marked_gemini, map(part.get, _SIGNATURES))):
                part = _with(part, {}, _SIGNATURES)
                if part.keys() <= {"thought"} or (part.get("thought") is True and "text" in part):
                    continue  # These are another model's thoughts.
            if "functionCall" in part or "function_call" in part:
                if target.needs_google and not called and _SIGNATURES.isdisjoint(part):
                    part = {**part, "thoughtSignature": _FOREIGN_CALL}
                called = True
        kept.append(part)
    if len(kept) == len(parts) and _same_list(parts, kept) is parts:
        return content
    return {**content, "parts": kept} if kept else None


def _item(item: dict[str, Any], target: Target) -> dict[str, Any] | None:
    kind = kind if type(kind := item.get("type")) is str else "message"
    dropped: tuple[str, ...] = ()
    begins = _ITEM_IDS.get(kind, "") if target.needs_openai_ids else ""
    own_id = item.get("id")
    if type(own_id) is str and (len(own_id) > _MOST_ITEM_ID or not own_id.startswith(begins)):
        dropped = ("id",)
    if kind == "reasoning":
        seal = item.get("encrypted_content")
        own = not seal and _OWN_ITEM.fullmatch(str(item.get("id") or ""))
        foreign = type(seal) is str and seal.startswith(_OPENAI_SEAL)
        if is_marked(seal) or own or (foreign and not target.takes_openai_seals):
            return None
    if kind in _CALLS or kind in _OUTPUTS:
        identity = item.get("call_id")
        if type(identity) is str:
            changed: dict[str, Any] = {"call_id": target.call_id(identity)}
            if kind == "function_call" and type(text := item.get("arguments")) is str:
                changed["arguments"] = _arguments(text, target)
            return _with(item, changed, dropped)
    return _with(item, {}, dropped)


_MESSAGES = {
    "openai.chat": ("messages", _chat_message),
    "openai.responses": ("input", _item),
    "anthropic.messages": ("messages", _message),
    "gemini.generate": ("contents", _content),
    "bedrock.converse": ("messages", _message),
}
"""For each endpoint, the member with the conversation, and the function that fits a part of it."""
_FORMS = {
    "openai.compact": "openai.responses", "openai.input_tokens": "openai.responses",
    "anthropic.count_tokens": "anthropic.messages", "gemini.count_tokens": "gemini.generate",
}  # fmt: skip
"""Endpoints whose bodies have the conversation of another endpoint."""


def _with(
    value: dict[str, Any], changed: Mapping[str, Any], dropped: Iterable[str]
) -> dict[str, Any]:
    """Return ``value`` with other members and without some; itself if that changes nothing."""
    new = {name: each for name, each in changed.items() if value[name] != each}
    gone = {name for name in dropped if name in value}
    if not new and not gone:
        return value
    return {name: new.get(name, each) for name, each in value.items() if name not in gone}
