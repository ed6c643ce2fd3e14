"""Images and documents: Anthropic's sources, OpenAI's URLs and file data."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from remit.providers.dialects import _checks as checks
from remit.providers.dialects.errors import DialectError, cannot, foreign_part, words_of
from remit.providers.dialects.model_call import ModelCall

_TEXT = "text/plain"
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_MAGIC = {"iVBORw0K": _IMAGES[1], "/9j/": _IMAGES[0], "R0lGOD": _IMAGES[2], "UklGR": _IMAGES[3]}
"""The first base64 letters of each kind of image, which servers compare with the stated type."""
_TEXTUAL = ("application/json", "application/xml", "application/yaml", "application/x-yaml")
_FAILED = "Error: "


def source_of_url(url: str) -> dict[str, Any]:
    """Return the source that a URL or ``data:`` URL names."""
    if url.startswith("data:"):
        head, comma, data = url.partition(",")
        if comma and head.endswith(";base64"):
            kind = head[5:-7].partition(";")[0].strip().lower()
            return {"type": "base64", "media_type": kind, "data": data}
    return {"type": "url", "url": url}


def with_failure(block: Mapping[str, Any], content: Any) -> Any:
    """Return a tool result's content, which says that the tool failed if ``is_error`` does.

    "Error: " then precedes the text, or the first text of a list, unless that begins with "error".
    A list without text stays as it is.

    Args:
        block: the ``tool_result``.
        content: the content for an API without ``is_error``: a text, or a list of parts.
    """
    if block.get("is_error") is not True:
        return content
    if isinstance(content, str):
        return content if content[:5].lower() == "error" else f"{_FAILED}{content}"
    for part in content:
        if isinstance(part.get("text"), str):
            said = with_failure(block, part["text"])
            return [{**each, "text": said} if each is part else each for each in content]
    return content


def plain_document(block: Mapping[str, Any]) -> str | None:
    """Return a document that is text, its title first; None if it is anything else."""
    source = block["source"]
    data, kind = source.get("data"), source.get("type")
    if kind == "content":
        parts = source.get("content")
        if isinstance(parts, str):
            data = parts
        elif isinstance(parts, list) and all(
            isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts
        ):
            data = "\n\n".join(part["text"] for part in parts)
        else:
            return None
    elif kind != "text":
        return None
    if not isinstance(data, str):
        return None
    return "\n".join(text for text in (block.get("title"), data) if text)


def document_block(fields: Mapping[str, Any], where: str, *, url: Any = None) -> dict[str, Any]:
    """Return a document block for OpenAI's ``file_data``, ``file_id`` and ``filename``.

    The first of ``file_data``, ``file_id`` and ``url`` that is a text and not empty is the source;
    the others are ignored. Data without the head of a data URL is the base64 of a PDF. The URL is
    not fetched.

    Args:
        fields: the object with those members.
        where: its place, for errors.
        url: the document's URL; None without one.

    Raises:
        DialectError: no source is a text, or ``filename`` is not one.
    """
    block: dict[str, Any] = {"type": "document", "at": where}
    data, identity, title = (fields.get(key) for key in ("file_data", "file_id", "filename"))
    if title is not None:
        if not isinstance(title, str):
            raise checks.refuse("is not a text", f"{where}.filename")
        block["title"] = title
    if isinstance(data, str) and data:
        source = source_of_url(data)
        if source["type"] == "url":  # base64 without the head of a data URL
            source = {"type": "base64", "media_type": "application/pdf", "data": data}
        block["source"] = source
    elif isinstance(identity, str) and identity:
        block["source"] = {"type": "file", "file_id": identity}
    elif isinstance(url, str) and url:
        block["source"] = {"type": "url", "url": url}
    else:
        raise checks.refuse("holds no file", where)
    return block


def openai_part(
    call: ModelCall, block: Mapping[str, Any], where: str, *, flat: bool
) -> dict[str, Any]:
    """Return a block of a user, a system or a tool as a part of OpenAI's two dialects.

    Args:
        call: the request; hints that the part cannot have are added to its ``dropped``.
        block: the block.
        where: its place, for errors.
        flat: True for Responses, False for Chat Completions.

    Raises:
        DialectError: the API has no such part.
    """
    kind, text = block["type"], "input_text" if flat else "text"
    for name in ("cache_control", "citations", "context"):
        if block.get(name) and not (name == "citations" and kind == "document"):
            call.drop(name)
    if kind in ("text", "refusal"):
        return {"type": text, "text": block[kind]}
    if kind == "image":
        url = _image_url(block)
        if flat:
            detail = str(block.get("detail", "auto"))
            return {"type": "input_image", "image_url": url, "detail": detail}
        more = {"detail": block["detail"]} if "detail" in block else {}
        return {"type": "image_url", "image_url": {"url": url, **more}}
    where = str(block.get("at", where))
    words = words_of(block)
    if kind == "document":
        if (block.get("citations") or {}).get("enabled"):
            raise cannot(f"{where}.citations", "citations")
        if not flat or block["source"].get("type") == "content":
            words = plain_document(block)
        if words is None:
            fields = _file_fields(block)
            if flat:
                return {"type": "input_file", **fields}
            if "file_url" in fields:
                raise cannot(where, "a document by its URL")
            return {"type": "file", "file": fields}
    if words is None:
        raise foreign_part(block, where, "the Responses API" if flat else "Chat Completions")
    return {"type": text, "text": words}


def _image_url(block: Mapping[str, Any]) -> str:
    source = block["source"]
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return str(source["url"])
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        return f"data:{image_type(source) or 'image/png'};base64,{source['data']}"
    raise _foreign_file(block)


def _file_fields(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return OpenAI's fields for a document: ``file_data`` and ``filename``, or ``file_url``."""
    source = block["source"]
    kind, data, title = source.get("type"), source.get("data"), block.get("title")
    name = title if isinstance(title, str) and title else None
    if kind == "url" and isinstance(source.get("url"), str):
        return {"file_url": source["url"]}
    if kind == "base64" and isinstance(data, str):
        media, usual = str(source.get("media_type", "application/pdf")), "document.pdf"
    elif kind == "text" and isinstance(data, str):
        data = base64.b64encode(data.encode("utf-8", "replace")).decode()
        media, usual = _TEXT, "document.txt"
    else:
        raise _foreign_file(block)
    return {"filename": name or usual, "file_data": f"data:{media};base64,{data}"}


def messages_source(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``source`` of an image or document for the Messages API.

    The first bytes of an image decide on its type. A text file in base64 becomes plain text.

    Raises:
        DialectError: it is a file stored by another provider, of a kind that the API lacks, a URL
            of another scheme than http(s), or not base64 of text.
    """
    source, where = block["source"], str(block.get("at", ""))
    kind = source.get("type")
    if kind == "url":
        if not str(source.get("url")).startswith(("https://", "http://")):
            raise DialectError(
                f"{where} is neither an http(s) URL nor base64 data.", param=where or None
            )
        return {"type": "url", "url": source["url"]}
    if kind == "base64":
        media = source.get("media_type")
        if block["type"] == "image":
            if (kind := image_type(source)) not in _IMAGES:
                raise DialectError(
                    f"{where} is an image of a type that this provider does not accept; it accepts "
                    "JPEG, PNG, GIF and WebP.",
                    param=where or None,
                )
            return {"type": "base64", "media_type": kind, "data": source.get("data")}
        if block["type"] == "document" and media != "application/pdf":
            kind = str(media).partition(";")[0].lower()
            if kind.startswith("text/") or kind in _TEXTUAL:
                return {"type": "text", "media_type": _TEXT, "data": _decoded(source, where)}
            raise DialectError(
                f"{where} is a document that is neither PDF nor plain text.", param=where or None
            )
        return {"type": "base64", "media_type": media, "data": source.get("data")}
    if kind in ("text", "content") and block["type"] == "document":
        return dict(source)
    raise _foreign_file(block)


def image_type(source: Mapping[str, Any]) -> str:
    """Return the media type of an image in base64 by its first bytes, else as stated.

    ``image/jpg`` becomes ``image/jpeg``. Empty if neither tells it.
    """
    data, stated = source.get("data"), str(source.get("media_type") or "").lower()
    for start, kind in _MAGIC.items():
        if isinstance(data, str) and data.startswith(start):
            return kind
    return "image/jpeg" if stated == "image/jpg" else stated


def _decoded(source: Mapping[str, Any], where: str) -> str:
    try:
        return base64.b64decode(source.get("data", ""), validate=True).decode()
    except (binascii.Error, ValueError, TypeError) as error:
        raise DialectError(f"{where} is not base64 of UTF-8 text.", param=where or None) from error


def _foreign_file(block: Mapping[str, Any]) -> DialectError:
    where = str(block.get("at", "")) or "A block"
    return DialectError(
        f"{where} is neither data nor a URL, but something that only another provider knows.",
        param=where,
        next_step="Send the file's data.",
    )
