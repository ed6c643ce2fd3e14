"""The boundary between a model's answer and an agent.

Arguments are read or refused, a refusal or a cut answer becomes an error with the model's words,
and tool calls get distinct ids.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from remit.agents.worker.execution import WorkFailedError
from remit.agents.workorders import Answer
from remit.kernel.errors import excerpt
from remit.kernel.exchange import Message
from remit.kernel.json_text import JsonTextError, load_unique, sound_text

IGNORABLE = re.compile(  # by Unicode's Default_Ignorable_Code_Point, with U+2800, a blank
    "[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""Characters that nobody sees."""

_MOST_WORDS = 2_000  # characters of a model's own words in an error
_LONGEST_ID = 4_096  # some providers put a signature into the id of a call
_KINDS = {type(None): "null", bool: "true or false", str: "a text", list: "a list"}


def tool_arguments(given: Any, schema: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the arguments of a tool call, and why the tool cannot be run with them.

    The reason is empty if it can. Blank and absent arguments are ``{}``; ``null`` is too, for a
    tool without parameters.

    Args:
        given: the ``input`` of a model's ``tool_use`` block: an object, or ``{"_unparsed": text}``
            for a text that the dialect could not read as one. Providers in Python may give the
            text itself.
        schema: JSON Schema of the tool's arguments.
    """
    text = given if isinstance(given, str) else unparsed_text(given)
    if isinstance(given, dict) and text is None:
        return given, ""
    value = given
    if text is not None:
        text = sound_text(text)
        try:
            value = load_unique(text, repair=True) if text.strip() else {}
        except JsonTextError as error:
            why = error.message.removeprefix("The text is not JSON: ").rstrip(".")
            return {"_unparsed": text}, f"The arguments are not JSON ({why}): {excerpt(text)!r}."
    if value is None and not (schema.get("properties") or schema.get("required")):
        return {}, ""
    if isinstance(value, dict) and isinstance(given, str):
        return value, ""
    text = str(value) if text is None else text
    if isinstance(value, dict):
        why = "they are nested too deep, or hold a member '_unparsed'"
        return {"_unparsed": text}, f"The arguments are JSON that cannot be used: {why}."
    kind = _KINDS.get(type(value), "a number")
    problem = f"The arguments are not a JSON object but {kind}: {excerpt(text)!r}."
    return {"_unparsed": text}, problem


def unparsed_text(given: Any) -> str | None:
    """Return the text of arguments that are not a JSON object; ``None`` for all others."""
    if isinstance(given, dict) and len(given) == 1:
        text = given.get("_unparsed")
        return text if isinstance(text, str) else None
    return None


def visible(text: str) -> str:
    """Return a text without the characters that nobody sees, and space at its ends."""
    return (text if text.isascii() else IGNORABLE.sub("", text)).strip().strip("\0")


def stop_problem(answer: Answer) -> WorkFailedError | None:
    """Return why a model stopped without an answer that can be used; ``None`` if it did not.

    A text that was cut at its length is an answer still, unless it is empty or must be data; see
    :func:`cut_short`. No tool runs that an answer without its end asks for.
    """
    refusals = [str(block.get("refusal", "")) for block in answer.blocks
                if block.get("type") == "refusal"]  # fmt: skip
    words = excerpt(" ".join(filter(None, [answer.text, *refusals])), _MOST_WORDS)
    if refusals:
        return WorkFailedError("refusal", f"the model refused to answer: {words}".rstrip(": "))
    if answer.finish_reason == "content_filter":
        said = f"; as far as it came: {words}" if visible(words) else ""
        why = "the model refused, or a content filter stopped its answer"
        return WorkFailedError("content_filter", f"{why}{said}")
    uses_tools = any(block.get("type") == "tool_use" for block in answer.blocks)
    if answer.finish_reason == "length" and (uses_tools or not visible(answer.text)):
        return cut_short(answer)
    return None


def cut_short(answer: Answer) -> WorkFailedError:
    """Return the error of an answer that reached its longest length before its end."""
    said = (
        f"; as far as it came: {excerpt(answer.text, _MOST_WORDS)}" if visible(answer.text) else ""
    )
    return WorkFailedError(
        "length", f"the answer was cut at the most tokens that it may have (max_tokens){said}"
    )


def with_distinct_ids(
    blocks: Sequence[Mapping[str, Any]], messages: Sequence[Message]
) -> list[dict[str, Any]]:
    """Return an answer's blocks, in which no tool call has the id of another.

    Providers refuse a conversation in which two calls have one id. The same blocks after the same
    messages get the same ids, so a resumed order sends what it sent before.

    Args:
        messages: the conversation that the answer continues.
    """
    known = {
        str(block.get("id"))
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if block.get("type") == "tool_use"
    }
    found = []
    for block in map(dict, blocks):
        if block.get("type") == "tool_use":
            given = str(block.get("id") or "call")
            given = given if len(given) <= _LONGEST_ID else "call"
            names = itertools.chain([given], (f"{given}_{n}" for n in itertools.count(2)))
            block["id"] = next(name for name in names if name not in known)
            known.add(block["id"])
        found.append(block)
    return found
