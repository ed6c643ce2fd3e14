"""Request bodies that are not a model call's JSON: forms with files, and requests about stored
objects.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import orjson
from typing_extensions import override

from remit.kernel.json_text import load
from remit.providers.wire.body import Body, BodyError, Cut, object_in
from remit.providers.wire.endpoint import TRANSCRIPTIONS, TRANSLATIONS, Endpoint
from remit.providers.wire.sound import longest_seconds

__all__ = ["FormBody", "ObjectBody"]

_MAX_PARTS = 256
_MAX_HEADER_BYTES = 16_384
_BOUNDARY = re.compile(r'(?:^|;)\s*boundary\s*=\s*(?:"([^"]{1,200})"|([^\s;"]{1,200}))', re.I)
_DISPOSITION = re.compile(
    rb'(?:^|\r\n)content-disposition\s*:\s*form-data((?:\s*;\s*[\w*]+\s*=\s*(?:"[^"]*"|[^\s;"]+))*)',
    re.I,
)
_PARAMETER = re.compile(rb';\s*([\w*]+)\s*=\s*(?:"([^"]*)"|([^\s;"]+))')
_CONTENT_TYPE = re.compile(rb"(?:^|\r\n)content-type\s*:\s*([^\r\n]{1,200})", re.I)


class FormBody(Body):
    """A body of the type ``multipart/form-data``; ``content_type`` contains its boundary.

    ``value`` contains the text of each field, and ``filename``, ``content_type``, ``bytes`` and
    ``sha256`` of each file. A repeated name has a list. Only ``value`` is recorded.

    Attributes:
        places: start and end of each text field in ``raw``.
        seconds: longest duration of its sound files; None if unknown.
    """

    seconds: float | None = 0.0

    @classmethod
    def read_form(cls, endpoint: Endpoint, raw: bytes, content_type: str) -> FormBody:
        """Return the parsed form.

        Raises:
            BodyError: the form is malformed, lacks the model that the endpoint needs, or has a text
                field twice, since servers differ which of the two counts.
        """
        value: dict[str, Any] = {}
        places: dict[str, tuple[int, int]] = {}
        seconds: float | None = 0.0
        for name, head, start, end in _parts(raw, content_type):
            found = _read(head, raw[start:end])
            is_file = isinstance(found, dict)
            if not is_file:
                places[name] = (start, end)
            elif endpoint in (TRANSCRIPTIONS, TRANSLATIONS) and seconds is not None:
                more = longest_seconds(raw[start:end])
                seconds = None if more is None else seconds + more
            if name in value and not name.endswith("[]") and not (is_file and name not in places):
                raise BodyError(f"the form contains {name[:100]} twice.", name[:100])
            if name not in value:
                value[name] = found
            elif isinstance(value[name], list):
                value[name].append(found)
            else:
                value[name] = [value[name], found]
        body = cls(endpoint, raw, value, [], content_type, places=places, seconds=seconds)
        if endpoint.has_model and not (type(body.model) is str and body.model.strip()):
            raise BodyError("model is missing or not a string.", "model")
        return body

    @property
    @override
    def stream(self) -> bool:
        return self.endpoint.streams and self.value.get("stream") in ("true", "True", "1")

    @override
    def with_member(self, path: tuple[str, ...], text: bytes, reason: str) -> Body:
        name = path[0]
        place = (self.places or {}).get(name)
        value = load(text)
        if len(path) != 1 or place is None or not isinstance(value, str):
            raise BodyError(f"{name} cannot be changed in a form.", name)
        text = value.encode()
        if b"\n" in text:  # The text could contain the boundary.
            raise BodyError(f"{name} cannot be changed in a form.", name)
        start, end = place
        more = len(text) - (end - start)
        places = {
            other: (at + more * (at > start), stop + more * (at >= start))
            for other, (at, stop) in (self.places or {}).items()
        }
        changed = FormBody(
            self.endpoint, self.raw[:start] + text + self.raw[end:], {**self.value, name: value},
            [], self.content_type, places=places, seconds=self.seconds,
        )  # fmt: skip
        was = orjson.dumps(self.value[name]).decode()
        changed.changed = [*self.changed, {"path": f"/{name}", "reason": reason, "was": was}]
        return changed

    @override
    def without_member(self, path: tuple[str, ...], reason: str) -> Body:
        return self

    @override
    def cut(self) -> Cut:
        return Cut(orjson.dumps(self.value), {}, {})


class ObjectBody(Body):
    """A request about a stored object, such as the creation of a batch or the deletion of a file.

    Attributes:
        about: the recorded description of a request without a body; None with one.
        lines: the requests of a batch whose text is in a file, for the record.
    """

    about: dict[str, Any] | None = None
    lines: Sequence[bytes] = ()

    @classmethod
    def read_object(cls, endpoint: Endpoint, raw: bytes) -> ObjectBody:
        """Return the parsed JSON object.

        Raises:
            BodyError: the body is not a JSON object.
        """
        return cls(endpoint, raw, object_in(raw))

    @classmethod
    def without_text(cls, endpoint: Endpoint, about: dict[str, Any]) -> ObjectBody:
        """Return a request without a body."""
        return cls(endpoint, b"", {}, about=about)

    @property
    @override
    def stream(self) -> bool:
        return False

    @override
    def cut(self) -> Cut:
        if self.about is not None:
            return Cut(orjson.dumps(self.about), {}, {})
        cut = Body.cut(self)
        if self.lines:
            cut.pieces["prompt"] = list(self.lines)
        return cut


def _parts(raw: bytes, content_type: str) -> list[tuple[str, bytes, int, int]]:
    """Return name, header lines, and start and end of the content of each part.

    Raises:
        BodyError: the form is malformed or too large.
    """
    found = _BOUNDARY.search(content_type)
    if not content_type.lower().startswith("multipart/form-data") or found is None:
        raise BodyError("The body is not multipart/form-data with a boundary.")
    mark = b"--" + (found[1] or found[2]).encode("latin-1", "replace")
    at = 0 if raw.startswith(mark) else raw.find(b"\r\n" + mark) + 2
    if at == 1:
        raise BodyError("The form does not contain its boundary.")
    parts: list[tuple[str, bytes, int, int]] = []
    while True:
        at += len(mark)
        if raw[at : at + 2] == b"--":
            return parts
        start = raw.find(b"\r\n", at, at + 256)
        head_end = raw.find(b"\r\n\r\n", start, start + _MAX_HEADER_BYTES) if start >= 0 else -1
        end = raw.find(b"\r\n" + mark, head_end + 2) if head_end >= 0 else -1
        if end < 0 or len(parts) >= _MAX_PARTS:
            raise BodyError("The form is truncated or has too many parts.")
        head = raw[start + 2 : head_end]
        named = _DISPOSITION.search(head)
        name = dict(_parameters(named[1])).get("name", "") if named is not None else ""
        if not name:
            raise BodyError("A part of the form has no name.")
        parts.append((name, head, min(head_end + 4, end), end))
        at = end + 2


def _parameters(text: bytes) -> list[tuple[str, str]]:
    return [
        (name.decode().lower(), (quoted or bare).decode("utf-8", "replace"))
        for name, quoted, bare in _PARAMETER.findall(text)
    ]


def _read(head: bytes, content: bytes) -> Any:
    named = _DISPOSITION.search(head)
    parameters = dict(_parameters(named[1])) if named is not None else {}
    if "filename" not in parameters and "filename*" not in parameters:
        return content.decode("utf-8", "replace")
    kind = _CONTENT_TYPE.search(head)
    return {
        "filename": parameters.get("filename", parameters.get("filename*", "")),
        "content_type": kind[1].strip().decode("latin-1") if kind is not None else "",
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
