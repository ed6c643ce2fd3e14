"""``message`` objects, to and from the neutral form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remit.kernel.exchange import text_of
from remit.providers.dialects.arguments import input_of
from remit.providers.dialects.citations import citations_of
from remit.providers.dialects.names import ToolNames
from remit.providers.dialects.seals import read_signature, signature_of
from remit.providers.dialects.unreadable import failed, shaped
from remit.providers.dialects.usage import messages_usage, reported
from remit.providers.protocol import ProviderResponse
from remit.providers.wire.messages import facts

__all__ = ["finish_word", "read_answer", "read_blocks", "whole", "write_block"]

_WORDS = {"length": "max_tokens", "tool_use": "tool_use", "content_filter": "refusal"}
_SEARCH = "web_search"


def finish_word(reason: str, kinds: set[str]) -> str:
    """Return a neutral finish reason in the API's words.

    Args:
        reason: the neutral reason.
        kinds: the kinds of the answer's blocks.
    """
    word = _WORDS.get(reason, "end_turn")
    if word == "end_turn" and "tool_use" in kinds:
        return "tool_use"
    return "refusal" if word == "end_turn" and "refusal" in kinds else word


def read_answer(answer: Mapping[str, Any]) -> ProviderResponse:
    """Return a ``message`` in neutral form.

    Raises:
        DialectError: the answer does not have the API's form.
        ProviderError: the answer reports an error.
    """
    if answer.get("type") == "error" or (answer.get("error") and "content" not in answer):
        raise failed(answer.get("error"))
    blocks = read_blocks(shaped(answer.get("content"), list, "content"))
    found = facts(answer)
    return ProviderResponse(
        content=text_of(blocks),
        model=str(answer.get("model") or ""),
        finish_reason=found.finish_reason,
        failure=found.failure,
        request_id=str(answer.get("id") or ""),
        content_blocks=tuple(blocks),
        **reported(found.usage),
    )


def read_blocks(content: Sequence[Any]) -> list[dict[str, Any]]:
    """Return an answer's blocks in neutral form; a search and its result become one block."""
    blocks: list[dict[str, Any]] = []
    queries: dict[Any, list[str]] = {}
    for index, block in enumerate(content):
        read = read_block(shaped(block, dict, f"content[{index}]"), f"content[{index}]", queries)
        if read is not None:
            blocks.append(read)
    return blocks


def read_block(
    block: dict[str, Any], where: str, queries: dict[Any, list[str]]
) -> dict[str, Any] | None:
    """Return one block of an answer in neutral form; None for blocks without meaning elsewhere.

    Args:
        block: the block.
        where: its place, for errors.
        queries: search queries, keyed by the search's id; added to.
    """
    kind = block.get("type")
    if kind == "text":
        text = {"type": kind, "text": shaped(block.get("text"), str, f"{where}.text")}
        cited = block.get("citations")
        return {**text, "citations": cited} if isinstance(cited, list) and cited else text
    if kind == "thinking":
        thought = shaped(block.get("thinking"), str, f"{where}.thinking")
        sealed = block.get("signature")
        seal = read_signature(sealed if isinstance(sealed, str) else "")
        return {"type": kind, "thinking": thought, **seal}
    if kind == "redacted_thinking":
        return {"type": kind, "data": shaped(block.get("data"), str, f"{where}.data")}
    if kind == "tool_use":
        return {
            "type": kind,
            "id": shaped(block.get("id"), str, f"{where}.id"),
            "name": shaped(block.get("name"), str, f"{where}.name"),
            "input": input_of(block.get("input")),
        }
    if kind == "server_tool_use" and block.get("name") == _SEARCH:
        asked = block.get("input")
        query = asked.get("query") if isinstance(asked, dict) else None
        queries[str(block.get("id"))] = [query] if isinstance(query, str) else []
    elif kind == "web_search_tool_result":
        return _search(block, queries)
    return None


def _search(block: dict[str, Any], queries: dict[Any, list[str]]) -> dict[str, Any]:
    identity = str(block.get("tool_use_id"))
    found = block.get("content")
    sources = [
        {key: result[key] for key in ("url", "title") if isinstance(result.get(key), str)}
        for result in (found if isinstance(found, list) else [])
        if isinstance(result, dict) and isinstance(result.get("url"), str)
    ]
    asked = queries.get(identity, [])
    return {"type": "server_tool", "id": identity, "queries": asked, "sources": sources}


def whole(value: dict[str, Any], answer: ProviderResponse) -> dict[str, Any]:
    """Return a ``message`` with the usage of the whole answer.

    Args:
        value: the sum of the message's stream.
        answer: the answer.
    """
    return {**value, "usage": messages_usage(answer)}


def write_block(block: Mapping[str, Any], names: ToolNames, search_id: str) -> list[dict[str, Any]]:
    """Return a neutral block of an answer as blocks of a ``message``.

    Args:
        block: the block.
        names: names of the call's tools.
        search_id: the id of a search that has no id of its own.
    """
    kind = block["type"]
    if kind == "text":
        text: dict[str, Any] = {"type": kind, "text": block["text"]}
        cited = citations_of(block)
        return [{**text, "citations": cited} if cited else text]
    if kind == "refusal":
        return [{"type": "text", "text": block["refusal"]}]
    if kind == "thinking":
        return [{"type": kind, "thinking": block["thinking"], "signature": signature_of(block)}]
    if kind == "redacted_thinking":
        return [{"type": kind, "data": block["data"]}]
    if kind == "tool_use":
        head = {"type": kind, "id": block["id"], "name": names.own(block["name"])}
        return [{**head, "input": block["input"]}]
    if kind == "server_tool":
        return _search_blocks(block, f"srvtoolu_{search_id}")
    return []


def _search_blocks(block: Mapping[str, Any], search_id: str) -> list[dict[str, Any]]:
    identity = block.get("id") or search_id
    query = " ".join(block.get("queries", ()))
    results = [
        {
            "type": "web_search_result",
            "url": source["url"],
            "title": source.get("title", source["url"]),
            "encrypted_content": "",
            "page_age": None,
        }
        for source in block.get("sources", ())
    ]
    asked = {"type": "server_tool_use", "id": identity, "name": _SEARCH, "input": {"query": query}}
    return [asked, {"type": "web_search_tool_result", "tool_use_id": identity, "content": results}]
