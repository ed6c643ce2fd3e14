"""Images and documents: Anthropic's sources, OpenAI's URLs and file data."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from remit.providers.dialects import _checks as checks
from remit.providers.dialects.dialect_error import DialectError

__all__ = ["document_block", "file_fields", "image_url", "messages_source", "source_of_url"]

_TEXT = "text/plain"


def source_of_url(url: str) -> dict[str, Any]:
    """Return the source that a URL or ``data:`` URL names."""
    if url.startswith("data:"):
        head, comma, data = url.partition(",")
        if comma and head.endswith(";base64"):
            return {"type": "base64", "media_type": head[5:-7], "data": data}
    return {"type": "url", "url": url}


def image_url(block: Mapping[str, Any]) -> str:
    """Return an image block's URL; base64 data becomes a ``data:`` URL.

    Raises:
        DialectError: the image is a file stored by another provider.
    """
    source = block["source"]
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return str(source["url"])
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        return f"data:{source.get('media_type', 'image/png')};base64,{source['data']}"
    raise _foreign_file(block)


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


def file_fields(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return OpenAI's fields for a document: ``file_data`` and ``filename``, or ``file_url``.

    Raises:
        DialectError: the document is a file stored by another provider, or consists of blocks.
    """
    source = block["source"]
    kind = source.get("type")
    if kind == "url" and isinstance(source.get("url"), str):
        return {"file_url": source["url"]}
    title = block.get("title")
    if kind == "base64" and isinstance(source.get("data"), str):
        media = str(source.get("media_type", "application/pdf"))
        name = title if isinstance(title, str) and title else "document.pdf"
        return {"filename": name, "file_data": f"data:{media};base64,{source['data']}"}
    if kind == "text" and isinstance(source.get("data"), str):
        name = title if isinstance(title, str) and title else "document.txt"
        data = base64.b64encode(source["data"].encode("utf-8", "replace")).decode()
        return {"filename": name, "file_data": f"data:{_TEXT};base64,{data}"}
    raise _foreign_file(block)


def messages_source(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``source`` of an image or document for the Messages API.

    Raises:
        DialectError: it is a file stored by another provider, or of a kind that the API lacks.
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
        if block["type"] == "document" and media != "application/pdf":
            if isinstance(media, str) and media.partition(";")[0] == _TEXT:
                return {"type": "text", "media_type": _TEXT, "data": _decoded(source, where)}
            raise DialectError(
                f"{where} is a document that is neither PDF nor plain text.", param=where or None
            )
        return {"type": "base64", "media_type": media, "data": source.get("data")}
    if kind in ("text", "content") and block["type"] == "document":
        return dict(source)
    raise _foreign_file(block)


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
