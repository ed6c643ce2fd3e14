"""The results of tools in the form for a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remit.agents.tools import ToolResult
from remit.agents.workorders import OrderRecordError
from remit.kernel.exchange import Message
from remit.kernel.json_text import dump
from remit.ledger import Erased, LedgerEntry

REPETITION_NOTE = (
    "this is its result from work that ended without an answer. It was not run a second time: "
    "call it once more only if it is to run twice."
)
"""The note on a result that is shown again."""

_NOTE = "(This result was left out to keep the conversation short. The tool has run.)"
_BYTES_PER_TOKEN = 4  # An estimate; the budget counts tokens exactly.


def shorten(messages: Sequence[Message], max_tokens: int) -> list[Message]:
    """Return the messages; if they are too long, with a note in place of the oldest tool results.

    A call keeps its (replaced) result; all results of one message are replaced together. The last
    message, which the model has not seen, is unchanged. A conversation that is too long is reduced
    to half of the limit, so that it then grows only at its end, as providers' prompt caches
    require. The result may still be above the limit if there are too few tool results. The given
    messages are not changed.

    Args:
        messages: the conversation.
        max_tokens: the limit, in estimated tokens.

    Raises:
        JsonTextError: the conversation is nested too deep.
    """
    result = list(messages)
    size = len(dump(result))
    if size <= max_tokens * _BYTES_PER_TOKEN:
        return result
    for index, message in enumerate(result[:-1]):
        blocks = message["content"]
        if not isinstance(blocks, list) or not any(map(_is_result, blocks)):
            continue
        if size <= max_tokens * _BYTES_PER_TOKEN // 2:
            break
        result[index] = {
            **message,
            "content": [{**one, "content": _NOTE} if _is_result(one) else one for one in blocks],
        }
        size += len(dump(result[index])) - len(dump(message))
    return result


def count_omitted(messages: Sequence[Message]) -> int:
    """Return the number of tool results that were replaced by a note.

    Args:
        messages: a conversation, in which old results may be replaced.
    """
    return sum(
        _is_result(block) and block["content"] == _NOTE
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
    )


def _is_result(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


def result_text(result: ToolResult) -> str:
    """Return a tool's result as text for the model.

    A result that is not ``ok`` becomes its status and error, such as ``refused: …``. A text is
    returned as it is, data become JSON. A note precedes the output in a line of its own, after "The
    tool ran;".

    Args:
        result: the result, with redacted output.

    Raises:
        JsonTextError: the output is nested too deep.
    """
    if result.status != "ok":
        return f"{result.status}: {result.error}"
    output = result.output
    text = output if isinstance(output, str) else dump(output).decode()
    return f"The tool ran; {result.note}\n{text}" if result.note else text


def with_images(text: str, result: ToolResult, takes_images: bool) -> str | list[dict[str, Any]]:
    """Return the content of a result: its text, and its images if the model accepts images.

    A text without images stays a text; otherwise a list of content blocks is returned. If the model
    accepts no images, the text says that they are left out.

    Args:
        text: the result as text.
        result: the result, with its images.
        takes_images: True if the model accepts images.
    """
    if not result.images:
        return text
    if not takes_images:
        return f"{text}\n(Images are left out: this model accepts none.)"
    return [{"type": "text", "text": text}, *map(dict, result.images)]


def recorded_result(entry: LedgerEntry) -> ToolResult:
    """Return the result that a ``TOOL_CALL`` recorded, without images and ``fault``.

    Args:
        entry: the entry, with its content.

    Raises:
        OrderRecordError: the content was erased.
    """
    data = entry.metadata
    if isinstance(data["result"], Erased) or isinstance(data["tool_error"], Erased):
        raise OrderRecordError(f"The order cannot continue: the content of {entry.id} was erased.")
    return ToolResult(
        data["status"],
        data["result"],
        data["tool_error"],
        note=_unless_erased(data.get("note")) or "",
    )


def result_data(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return an ended call as data for the order's result; erased content becomes None.

    The keys are ``tool_id``, ``status``, ``arguments``, ``output`` and ``error``.

    Args:
        recorded: metadata of the call's ``TOOL_CALL``.
    """
    return {
        "tool_id": recorded["tool_id"],
        "status": recorded["status"],
        "arguments": _unless_erased(recorded["arguments"]),
        "output": _unless_erased(recorded["result"]),
        "error": _unless_erased(recorded["tool_error"]),
    }


def _unless_erased(value: Any) -> Any:
    return None if isinstance(value, Erased) else value
