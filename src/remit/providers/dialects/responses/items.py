"""Items of a Responses input in neutral form, including items of earlier outputs."""

from __future__ import annotations

from typing import Any

from remit.providers.dialects import _checks as checks
from remit.providers.dialects.arguments import read_arguments
from remit.providers.dialects.errors import DialectError
from remit.providers.dialects.media import document_block, source_of_url
from remit.providers.dialects.names import namespaced
from remit.providers.dialects.responses.client_tools import read_call, read_output
from remit.providers.dialects.seals import read_seal

__all__ = ["read_item"]

ENDPOINT = "openai.responses"
_ROLES = ("user", "assistant", "system", "developer")
_TEXTS = ("input_text", "output_text", "text")


def read_item(item: Any, where: str) -> tuple[str, Any]:
    """Return the role and the content of an item in neutral form.

    The role of a tool's result is ``tool``.

    Args:
        item: the item.
        where: its place, for errors.

    Raises:
        DialectError: the item is invalid, or refers to an item that the provider stored.
    """
    if type(item) is not dict:
        raise checks.refuse("is not an object", where)
    kind = item.get("type")
    if kind is None:
        kind = "message" if "role" in item else "item_reference"
    if kind == "message":
        return _message(item, where)
    if kind == "item_reference":
        raise DialectError(
            f"{where} refers to an item that only another provider has.",
            param=where,
            next_step="Send the item itself, or previous_response_id.",
        )
    if kind in ("function_call", "custom_tool_call"):
        return "assistant", [_call(item, kind, where)]
    if kind in ("function_call_output", "custom_tool_call_output"):
        return "tool", [_output(item, kind, where)]
    if kind == "reasoning":
        return "assistant", [_thinking(item, where)]
    if not isinstance(kind, str):
        raise checks.refuse("is not a text", f"{where}.type")
    if (call := read_call(item, kind)) is not None:
        return "assistant", [call]
    if (output := read_output(item, kind)) is not None:
        return "tool", [output]
    if kind == "web_search_call":
        return "assistant", [_search(item, where)]
    return "assistant", [_other(item, where)]


def _other(value: Any, where: str) -> dict[str, Any]:
    return {"type": "other", "endpoint": ENDPOINT, "value": value, "at": where}


def _message(item: dict[str, Any], where: str) -> tuple[str, Any]:
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or role not in _ROLES:
        raise checks.refuse("is none of the roles of the API", f"{where}.role")
    read = checks.content(content, f"{where}.content", _part)
    if role == "assistant" and isinstance(read, str):
        return role, [{"type": "text", "text": read}]
    return role, read


def _part(part: dict[str, Any], kind: str, where: str) -> dict[str, Any]:
    if kind in _TEXTS:
        block: dict[str, Any] = {
            "type": "text",
            "text": checks.text(part, "text", where, empty=True),
        }
        if cited := checks.optional(part, "annotations", list, where):
            block["citations"] = cited
        return block
    if kind == "refusal":
        return {"type": kind, kind: checks.text(part, kind, where, empty=True)}
    if kind == "input_image":
        return _image(part, where)
    if kind == "input_file":
        return document_block(part, where, url=part.get("file_url"))
    return _other(part, where)


def _image(part: dict[str, Any], where: str) -> dict[str, Any]:
    block: dict[str, Any]
    url = checks.optional(part, "image_url", str, where)
    if url:
        block = {"type": "image", "source": source_of_url(url), "at": where}
    else:
        identity = checks.text(part, "file_id", where)
        source = {"type": "file", "file_id": identity}
        block = {"type": "image", "source": source, "at": f"{where}.file_id"}
    if isinstance(part.get("detail"), str):
        block["detail"] = part["detail"]
    return block


def _call(item: dict[str, Any], kind: str, where: str) -> dict[str, Any]:
    name = checks.text(item, "name", where)
    if namespace := checks.optional(item, "namespace", str, where):
        name = namespaced(namespace, name)
    block: dict[str, Any] = {
        "type": "tool_use",
        "id": checks.text(item, "call_id", where),
        "name": name,
    }
    if kind == "custom_tool_call":
        value = checks.text(item, "input", where, empty=True)
        return {**block, "input": {"input": value}, "custom": True}
    return {**block, "input": read_arguments(checks.text(item, "arguments", where, empty=True))}


def _output(item: dict[str, Any], kind: str, where: str) -> dict[str, Any]:
    identity = checks.text(item, "call_id", where)
    content = checks.content(item.get("output"), f"{where}.output", _part)
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": identity, "content": content}
    return {**block, "custom": True} if kind == "custom_tool_call_output" else block


def _thinking(item: dict[str, Any], where: str) -> dict[str, Any]:
    sealed = checks.optional(item, "encrypted_content", str, where)
    raw = _texts(item, "content", where)
    block: dict[str, Any] = {"type": "thinking"}
    if raw:
        block |= {"thinking": "".join(raw), "raw": True}
    else:
        block["thinking"] = "\n\n".join(_texts(item, "summary", where))
    block |= read_seal(sealed or "", "encrypted")
    if sealed and block.get("encrypted") == sealed and isinstance(item.get("id"), str):
        block["item_id"] = item["id"]
    return block


def _texts(item: dict[str, Any], key: str, where: str) -> list[str]:
    parts = checks.optional(item, key, list, where) or []
    texts = []
    for index, part in enumerate(parts):
        if type(part) is not dict:
            raise checks.refuse("is not an object", f"{where}.{key}[{index}]")
        texts.append(checks.text(part, "text", f"{where}.{key}[{index}]", empty=True))
    return texts


def _search(item: dict[str, Any], where: str) -> dict[str, Any]:
    """Return a search that the provider made, with its queries and results."""
    action = item.get("action")
    action = action if isinstance(action, dict) else {}
    queries = action.get("queries")
    if not isinstance(queries, list):
        queries = [action["query"]] if isinstance(action.get("query"), str) else []
    sources = action.get("sources")
    urls = [
        {"url": source["url"]}
        for source in (sources if isinstance(sources, list) else [])
        if isinstance(source, dict) and isinstance(source.get("url"), str)
    ]
    identity = item.get("id")
    return {
        "type": "server_tool",
        "id": identity if isinstance(identity, str) else "",
        "endpoint": ENDPOINT,
        "value": item,
        "at": where,
        "queries": [query for query in queries if isinstance(query, str)],
        "sources": urls,
    }
