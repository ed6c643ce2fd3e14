"""Citations of a text: by block in Anthropic's and Bedrock's APIs, as annotations in OpenAI's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.providers.dialects.errors import check_members, shaped
from remit.providers.wire.answer import texts

_OPENAI = ("url_citation", "file_citation", "container_file_citation", "file_path")
_MEMBERS: dict[str, type] = {
    **dict.fromkeys(("cited_text", "encrypted_index", "url", "source", "title", "document_title",
                     "file_id", "filename", "container_id"), str),
    **dict.fromkeys(("document_index", "search_result_index", "start_char_index", "end_char_index",
                     "start_page_number", "end_page_number", "start_block_index",
                     "end_block_index", "start_index", "end_index", "index"), int),
}  # fmt: skip
"""The members of citations of all types, and their types."""

_PLACES = {
    "documentChar": ("char_location", "document_index", "start_char_index", "end_char_index"),
    "documentPage": ("page_location", "document_index", "start_page_number", "end_page_number"),
    "documentChunk": ("content_block_location", "document_index", "start_block_index",
                      "end_block_index"),
    "searchResultLocation": ("search_result_location", "search_result_index", "start_block_index",
                             "end_block_index"),
}  # fmt: skip
"""Locations in Converse → in the Messages API: type, and the members for index, start and end."""


def message_citation(citation: dict[str, Any]) -> dict[str, Any] | None:
    """Return a citation of Converse in the form of the Messages API; None if that API cannot
    express its location.

    Raises:
        DialectError: the location is not an object.
    """
    location = shaped(citation.get("location") or {}, dict, "citation.location")
    kind = next(iter(location), "")
    place = shaped(location.get(kind) or {}, dict, "citation.location")
    title, said = citation.get("title"), texts(citation.get("sourceContent"))
    if kind == "web" and (url := place.get("url")) is not None:
        web = {"type": "web_search_result_location", "url": url, "title": title}
        return {**web, "cited_text": said, "encrypted_index": ""}
    name, index, start, end = _PLACES.get(kind, ("", "", "", ""))
    number = place.get("documentIndex", place.get("searchResultIndex"))
    at = {index: number, start: place.get("start"), end: place.get("end")}
    if not name or None in at.values():
        return None
    if index == "search_result_index":
        source = citation.get("source") or ""
        return {"type": name, "cited_text": said, "title": title, "source": source, **at}
    return {"type": name, "cited_text": said, "document_title": title, "file_id": None, **at}


def read_citations(cited: list[Any]) -> list[dict[str, Any]]:
    """Return the citations of an answer's text, in the API's own form.

    Raises:
        DialectError: a citation is not an object with a type, or a member has another type than in
            the API.
    """
    for citation in cited:
        shaped(shaped(citation, dict, "citations").get("type"), str, "citations.type")
        check_members(citation, _MEMBERS, "citations")
    return cited


def _cited(block: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a text block's citations that are objects."""
    cited = block.get("citations")
    listed = cited if isinstance(cited, (list, tuple)) else ()
    return [citation for citation in listed if isinstance(citation, Mapping)]


def annotations_of(block: Mapping[str, Any], start: int) -> list[dict[str, Any]]:
    """Return a text block's citations as annotations of Responses; empty if there are none.

    A citation with a URL becomes a ``url_citation``, one of a document a ``file_citation``. Those
    of OpenAI are copied with moved offsets. A ``url_citation`` without a URL is left out.

    Args:
        block: the text block.
        start: offset of its text in the part that it goes into, in characters.
    """
    end = start + len(block["text"])
    annotations = []
    for citation in _cited(block):
        kind = citation.get("type")
        if kind in _OPENAI[1:]:
            annotations.append(_moved(citation, start))
        elif isinstance(citation.get("url"), str):
            given = _moved(citation, start) if kind == _OPENAI[0] else {}
            first, last = given.get("start_index"), given.get("end_index")
            annotations.append(
                {
                    **given,
                    "type": _OPENAI[0],
                    "url": citation["url"],
                    "title": str(citation.get("title") or citation["url"]),
                    "start_index": first if type(first) is int else start,
                    "end_index": last if type(last) is int else end,
                }
            )
        elif kind == _OPENAI[0]:
            continue
        else:
            number = citation.get("document_index", citation.get("search_result_index", 0))
            title = citation.get("document_title") or citation.get("title")
            annotations.append(
                {
                    "type": "file_citation",
                    "file_id": str(citation.get("file_id") or f"document_{number}"),
                    "filename": str(title or f"document_{number}"),
                    "index": end,
                }
            )
    return annotations


def _moved(citation: Mapping[str, Any], start: int) -> dict[str, Any]:
    moved = dict(citation)
    if start:
        for key in ("start_index", "end_index", "index"):
            if type(moved.get(key)) is int:
                moved[key] += start
    return moved


def citations_of(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a text block's citations in the Messages API's form; empty if there are none.

    OpenAI's citations of files, and of the web without a URL, are left out.
    """
    citations: list[dict[str, Any]] = []
    for citation in _cited(block):
        if citation.get("type") in _OPENAI[1:]:
            continue
        if citation.get("type") != _OPENAI[0]:
            citations.append(dict(citation))
        elif isinstance(citation.get("url"), str):
            start, end = citation.get("start_index"), citation.get("end_index")
            span = slice(start, end) if type(start) is int and type(end) is int else slice(None)
            citations.append(
                {
                    "type": "web_search_result_location",
                    "url": citation["url"],
                    "title": citation.get("title"),
                    "cited_text": block["text"][span],
                    "encrypted_index": "",
                }
            )
    return citations
