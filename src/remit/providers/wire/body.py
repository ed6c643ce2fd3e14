"""A request body: its exact text, its parsed value, and the pieces that are recorded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from msgspec import Struct

from remit.kernel.errors import InvalidInputError
from remit.kernel.json_splice import elements, members, remove_member, set_member, spans, value_at
from remit.kernel.json_text import (
    JsonTextError,
    RepeatedNameError,
    has_more_values,
    has_wide_number,
    load,
    load_exact,
    load_unique,
)
from remit.providers.wire.endpoint_table import NESTED, SPEECH, Endpoint

_LONGEST_PLACE = 200  # characters of a place in a message
_LONGEST_WAS = 256  # bytes of a replaced value that the record repeats
# What one body may hold: in memory a value takes up to a hundred bytes, though on the wire two.
_MAX_VALUES = 500_000
_MAX_MEMBERS = 50_000  # Repeated top-level members count separately.
_DECISIVE = frozenset(
    {
        "model", "messages", "input", "prompt", "documents", "system", "instructions", "tools",
        "functions", "max_tokens", "max_completion_tokens", "max_output_tokens", "max_tool_calls",
        "n", "best_of", "stream", "stream_options", "stream_format", "service_tier", "speed",
        "inference_geo", "web_search_options", "mcp_servers", "modalities", "audio", "prediction",
        "previous_response_id", "conversation", "container", "background", "store", "models",
        "provider", "route", "plugins", "fallbacks", "search_parameters", "enable_search",
        "response_format", "output_config", "output_format", "text", "contents",
        "systemInstruction", "system_instruction", "generationConfig", "generation_config",
        "cachedContent", "cached_content", "requests", "reasoning", "thread", "agent",
        "agent_reference", *NESTED,
    }
)  # fmt: skip
"""Members on which money, the model or the way of a call rests."""
_BRINGS_TOOLS = re.compile(rb'"(?:additional_tools|tool_search_output|tool_addition)"')
"""Matches the text of a body whose prompt may define tools."""
_ESCAPED = re.compile(rb"\\u00[4-7]")
"""Matches an escape that may hide a letter or the underscore of such a name."""
OBJECT_NAMES = (
    "file_id", "file_ids", "container_id", "container", "vector_store_id", "vector_store_ids",
    "skill_id", "previous_message_id",
)  # fmt: skip
"""Members of calls that name an object of the provider."""
_NAMES_OBJECTS = re.compile(rb'"(?:%b)' % "|".join(OBJECT_NAMES).encode())
_LIST = re.compile(rb"\[[ \t\n\r]*[^ \t\n\r0-9-]")  # a list of tokens is one text
_MAX_INPUT_ITEMS = 20_000  # messages, or items of the input: each is a value of its own on record
_SNAKE_CASE = re.compile("[a-z][a-z0-9]*(?:_[a-z0-9]+)+")
_UNDERSCORE = re.compile("_([a-z0-9])")
_CAPITAL = re.compile("[A-Z]")
_CLIENT_OBJECTS = frozenset(
    {"args", "response", "labels", "headers", "parameters", "parametersJsonSchema",
     "responseSchema", "responseJsonSchema"}
)  # fmt: skip
"""Members of Gemini's bodies whose objects have names of the client's choice."""


class BodyError(InvalidInputError):
    """A body that cannot be sent.

    Args:
        message: the fault; quotes nothing of the body.
        param: the member at fault; None for the whole body.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


def object_in(raw: bytes, dialect: str = "") -> dict[str, Any]:
    """Return the members of a body that is a JSON object of bounded size.

    Args:
        raw: the exact text.
        dialect: the dialect of the body; names of ``gemini`` become camel case.

    Raises:
        BodyError: the body is not a JSON object, or has more than 500,000 values or 50,000 members
            at the top, or a member of Gemini's is there in two spellings.
    """
    if len(raw) > _MAX_VALUES and has_more_values(raw, _MAX_VALUES):
        raise BodyError(f"The body contains more than {_MAX_VALUES:,} values.")
    try:
        value = load(raw)
    except JsonTextError as error:
        raise BodyError(error.message) from error
    if type(value) is not dict:
        raise BodyError("The body is not a JSON object.")
    many = len(raw) > _MAX_MEMBERS and raw.count(b",") >= _MAX_MEMBERS
    if many and next(islice(members(raw), _MAX_MEMBERS, None), None) is not None:
        raise BodyError(f"The body has more than {_MAX_MEMBERS:,} members.")
    if dialect == "gemini":
        read_either_spelling(value)
    return value


def member_at(value: Any, path: str) -> Any:
    """Return the member at a dotted path, such as ``generationConfig.maxOutputTokens``; None if
    there is none.
    """
    for name in path.split("."):
        value = value.get(name) if type(value) is dict else None
    return value


def camel_case(name: str) -> str:
    """Return a name in camel case if it is in snake case, else the name itself."""
    if "_" not in name or _SNAKE_CASE.fullmatch(name) is None:
        return name
    return _UNDERSCORE.sub(lambda found: found[1].upper(), name)


def read_either_spelling(body: dict[str, Any]) -> None:
    """Rename the members of a body of Gemini, at all levels, to camel case.

    Google accepts each name in camel case and in snake case. Objects whose names the client chose,
    such as arguments of functions, stay as they are, with all that is in them.

    Args:
        body: the parsed body, which is changed.

    Raises:
        BodyError: an object has a member in both spellings, since servers may differ which of the
            two counts.
    """
    left: list[tuple[str, Any]] = [("", body)]
    while left:
        place, value = left.pop()
        if type(value) is list:
            left += [(f"{place}[{at}]", each) for at, each in enumerate(value)
                     if type(each) in (dict, list)]  # fmt: skip
        elif type(value) is dict:
            for name in [name for name in value if "_" in name]:
                if (renamed := camel_case(name)) == name:
                    continue
                if renamed in value:
                    at = f"{place}.{renamed}".lstrip(".")[:_LONGEST_PLACE]
                    raise BodyError(f"{at} is there in two spellings; send one of them.", at)
                value[renamed] = value.pop(name)
            left += [
                (f"{place}.{name}" if place else name, each)
                for name, each in value.items()
                if name not in _CLIENT_OBJECTS and type(each) in (dict, list)
            ]


def require_model(value: dict[str, Any], endpoint: Endpoint) -> None:
    """Refuse a body without a usable model; a missing one in the words of the provider.

    An endpoint that may lack a model also accepts ``null``. An endpoint with a model of its own
    accepts a missing member only.

    Raises:
        BodyError: the model is missing or ``null`` and needed, not a string, or blank.
    """
    model = value.get("model")
    if model is None and (endpoint.may_lack_model or (endpoint.model and "model" not in value)):
        return
    if model is None:
        anthropic = endpoint.dialect == "anthropic"
        said = "model: Field required" if anthropic else "you must provide a model parameter"
        raise BodyError(said, "model")
    if type(model) is not str or not model.strip():
        raise BodyError("model is not a string, or is empty.", "model")


def _require_unique(name: str, text: bytes) -> None:
    """Raise BodyError if servers may differ in how they read a member, such as ``tools``."""
    try:
        load_unique(text, repair=True)
    except RepeatedNameError:
        raise BodyError(f"An object in {name} has a duplicate member.", name) from None
    except JsonTextError as error:
        why = error.message.removeprefix("The text is not JSON: ")
        raise BodyError(f"{name} cannot be read by every server: {why}", name) from None


class Cut(Struct, frozen=True, gc=False):
    """A body cut into the pieces that are recorded; together they are the body, byte for byte.

    Attributes:
        parameters: the body's text with ``[]`` in place of each piece.
        pieces: the exact text of each element of a list, or of the single value, keyed by its name
            in the record.
        places: byte offset of the piece's ``[]`` in ``parameters``, keyed by its name in the
            record.
    """

    parameters: bytes
    pieces: dict[str, list[bytes] | bytes]
    places: dict[str, int]


class Body(Struct, gc=False):
    """A request body: its text and parsed value. Changes return copies and are noted in them.

    Attributes:
        endpoint: the endpoint whose form the body has.
        raw: the exact text.
        value: the parsed text; names of Gemini's members are in camel case.
        changed: the changes to the client's text, in order: ``path`` (a JSON pointer), ``reason``,
            and ``was``, the old text, if it has at most 256 bytes.
        content_type: the type of the text.
        digest: SHA-256 of the text, hex; empty if unknown.
        places: start and end of the members that costs depend on; None if unknown.
        model: the model that the client named, or the provider's own choice; may be empty.
        stream: whether the body asks for a stream.
    """

    endpoint: Endpoint
    raw: bytes
    value: dict[str, Any]
    changed: list[dict[str, str]] = []
    content_type: str = "application/json"
    digest: str = ""
    places: dict[str, tuple[int, int]] | None = None
    model: str = ""
    stream: bool = False

    def __post_init__(self) -> None:
        endpoint, value = self.endpoint, self.value
        self.model = value.get("model", endpoint.model)
        as_events = endpoint is SPEECH and value.get("stream_format") == "sse"
        self.stream = endpoint.streams and (value.get("stream") is True or as_events)

    @property
    def may_name_objects(self) -> bool:
        """True if a member of the text may be one of :data:`OBJECT_NAMES`, also an escaped one."""
        # A pattern that begins with one byte is found several times as fast as a longer text.
        raw = self.raw
        return _NAMES_OBJECTS.search(raw) is not None or (b"\\" in raw and b"\\u00" in raw)

    @property
    def exact(self) -> dict[str, Any]:
        """The members as :attr:`value` has them, with integers above 64 bits exact."""
        if self.content_type != "application/json" or not has_wide_number(self.raw):
            return self.value
        value: dict[str, Any] = load_exact(self.raw)
        if self.endpoint.dialect == "gemini":
            read_either_spelling(value)
        return value

    @classmethod
    def read(cls, endpoint: Endpoint, raw: bytes) -> Body:
        """Return the parsed body. Only members that costs depend on are checked.

        Args:
            endpoint: the endpoint to which the client sent the body.
            raw: the exact text.

        Raises:
            BodyError: the text is not a JSON object of bounded size; the model is missing as in
                :func:`require_model`; ``messages`` is missing or empty, or a prompt has over 20,000
                parts; an output limit is not a positive integer; ``stream`` is not a boolean;
                ``tools`` or a prompt that brings tools is ambiguous; or a member that costs depend
                on occurs twice or in two spellings, since servers differ which of the two counts.
        """
        value = object_in(raw, endpoint.dialect)
        try:
            places = spans(raw, _DECISIVE, unique=True)
        except RepeatedNameError as error:
            raise BodyError(error.message, error.message.partition(" ")[0]) from None
        has_two_spellings = endpoint.dialect == "gemini"
        read_once = endpoint.read_once
        if _BRINGS_TOOLS.search(raw) or (b"\\" in raw and _ESCAPED.search(raw)):
            read_once = (*read_once, endpoint.prompt)
        for name, (start, end) in places.items():
            if (camel_case(name) if has_two_spellings else name) in read_once:
                _require_unique(name, raw[start:end])
        model = value.get("model")
        if type(model) is not str or not model.strip():
            require_model(value, endpoint)
        asked = value.get(endpoint.prompt)
        if endpoint.prompt == "messages" and (type(asked) is not list or not asked):
            said = "messages must be a list with at least one message."
            if "input" in value:
                said += " A body with input is one of /v1/responses."
            raise BodyError(said, "messages")
        if type(asked) is list and len(asked) > _MAX_INPUT_ITEMS and type(asked[0]) is not int:
            raise BodyError(
                f"{endpoint.prompt} has more than {_MAX_INPUT_ITEMS:,} parts.", endpoint.prompt
            )
        for name in endpoint.output_limit:
            limit = member_at(value, name) if "." in name else value.get(name)
            if limit is not None and (type(limit) is not int or limit < 1):
                raise BodyError(f"{name} is not a positive integer.", name)
        if type(value.get("stream", False) or False) is not bool:
            raise BodyError("stream must be true or false.", "stream")
        return cls(endpoint, raw, value, places=places)

    @property
    def output_limit(self) -> int | None:
        """Most output tokens of one answer; None if the body states no limit."""
        for name in self.endpoint.output_limit:
            limit = member_at(self.value, name) if "." in name else self.value.get(name)
            if limit is not None:
                return int(limit)
        return None

    def with_member(self, path: tuple[str, ...], text: bytes, reason: str) -> Body:
        """Return a copy with one value set and the change noted. Missing objects are made.

        Args:
            path: names of the nested members; Gemini's names are in camel case.
            text: the new value as JSON, which is not checked against the endpoint.
            reason: the reason in the record.

        Raises:
            JsonTextError: a value on the way is not an object.
        """
        path = self._as_spelled(path)
        name, raw = path[0], self.raw
        if len(path) == 1 and name in self.value:  # found in one pass, and nothing read again
            known = self.places or {}
            start, end = known[name] if name in known else spans(raw, path)[name]
            change = _change(path, reason, raw[start:end])
            value = {**self.value, name: load(text)}
            more, places = len(text) - (end - start), None
            if name in known:
                places = {**known, name: (start, end + more)}
                for other, (first, last) in known.items():
                    if first > start:
                        places[other] = (first + more, last + more)
            return Body(
                self.endpoint, b"".join((raw[:start], text, raw[end:])), value,
                [*self.changed, change], places=places,
            )  # fmt: skip
        return self._changed(set_member(raw, path, text), path, reason)

    def with_elements_member(
        self, name: str, places: Iterable[int], member: str, text: bytes, reason: str
    ) -> Body:
        """Return a copy with a member set in some elements of a list and the changes noted.

        Args:
            name: the top-level member with the list.
            places: places of the elements, from 0.
            member: the member to set.
            text: the new value as JSON.
            reason: the reason in the record.
        """
        parts, changed = self._elements(name), [*self.changed]
        for place in places:
            path = (name, str(place), member)
            changed.append(_change(path, reason, value_at(parts[place], (member,))))
            parts[place] = set_member(parts[place], (member,), text)
        return self._listed(name, parts, changed)

    def with_elements(self, name: str, replaced: Mapping[int, bytes | None], reason: str) -> Body:
        """Return a copy with some elements of a list replaced or removed and the changes noted.

        The noted places are those of the list before the change.

        Args:
            name: the top-level member with the list.
            replaced: the new JSON text of each element, keyed by place from 0; None removes the
                element.
            reason: the reason in the record.
        """
        parts, changed = self._elements(name), [*self.changed]
        for place, new in replaced.items():
            why = reason if new is not None else f"{reason}; removed"
            changed.append(_change((name, str(place)), why, parts[place]))
        kept = (replaced.get(place, part) for place, part in enumerate(parts))
        return self._listed(name, [part for part in kept if part is not None], changed)

    def _elements(self, name: str) -> list[bytes]:
        start, end = spans(self.raw, (name,))[name]
        return elements(self.raw[start:end])

    def _listed(self, name: str, parts: list[bytes], changed: list[dict[str, str]]) -> Body:
        (start, end), raw = spans(self.raw, (name,))[name], self.raw
        listed = b"[%b]" % b",".join(parts)
        value = {**self.value, name: load(listed)}
        if self.endpoint.dialect == "gemini":
            read_either_spelling(value)
        return Body(self.endpoint, raw[:start] + listed + raw[end:], value, changed)

    def without_member(self, path: tuple[str, ...], reason: str) -> Body:
        """Return a copy without one member and the change noted.

        The result is the body itself if the member is missing.

        Args:
            path: names of the nested members.
            reason: the reason in the record.
        """
        raw = remove_member(self.raw, path)
        return self if raw == self.raw else self._changed(raw, path, reason)

    def _changed(self, raw: bytes, path: tuple[str, ...], reason: str) -> Body:
        """Return the body with another text, and note the change of the topmost new value."""
        inner: Any = load(self.raw) if self.endpoint.dialect == "gemini" else self.value
        for depth, name in enumerate(path):
            if type(inner) is not dict or name not in inner:
                path = path[: depth + (type(inner) is dict)]
                break
            inner = inner[name]
        change = _change(path, reason, value_at(self.raw, path))
        value = object_in(raw, self.endpoint.dialect)
        return Body(self.endpoint, raw, value, [*self.changed, change])

    def _as_spelled(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return a path with the names that the text has, if Gemini accepts two spellings."""
        found: tuple[str, ...] = ()
        for name in path:
            snake = _CAPITAL.sub(lambda letter: f"_{letter[0].lower()}", name)
            is_snake = snake != name and self.endpoint.dialect == "gemini"
            there = is_snake and value_at(self.raw, (*found, snake)) is not None
            found += (snake if there else name,)
        return found

    def cut(self) -> Cut:
        """Return the body cut into the pieces that are recorded. The body does not change.

        A prompt that is a list of anything but numbers has a piece for each element. Any other
        recorded member is one piece.
        """
        raw, endpoint = self.raw, self.endpoint
        pieces: dict[str, list[bytes] | bytes] = {}
        places: dict[str, int] = {}
        rest: list[bytes] = []
        done = size = 0
        members = self.places if self.places is not None else spans(raw, endpoint.pieces)
        for own, (start, end) in members.items():
            if (name := endpoint.pieces.get(own)) is None:
                continue
            text = raw[start:end]
            listed = elements(text) if own == endpoint.prompt and _LIST.match(text) else []
            pieces[name] = listed or text
            rest.append(raw[done:start])
            size += start - done
            places[name] = size
            size += 2
            done = end
        rest.append(raw[done:])
        return Cut(b"[]".join(rest), pieces, places)


def _change(path: tuple[str, ...], reason: str, before: bytes | None) -> dict[str, str]:
    """Return the record of a change; the old text is included only if it is short."""
    change = {"path": "/" + "/".join(path), "reason": reason}
    if before is not None and len(before) <= _LONGEST_WAS:
        change["was"] = before.decode()
    return change
