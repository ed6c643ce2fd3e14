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
from remit.providers.wire.audio_duration import longest_seconds
from remit.providers.wire.body import Body, BodyError, Cut, object_in, require_model
from remit.providers.wire.endpoint_table import TRANSCRIPTIONS, TRANSLATIONS, Endpoint

_MAX_PARTS = 256
_MAX_HEADER_BYTES = 16_384
_MAX_TEXT_BYTES = 1 << 20
_AFTER_END = "The form has text after its last boundary, where servers differ; send no such text."
_BOUNDARY = re.compile(r'(?:^|;)\s*boundary\s*=\s*(?:"([^"]{1,200})"|([^\s;"]{1,200}))', re.I)
_DISPOSITION = re.compile(
    rb'(?:^|\r\n)content-disposition\s*:\s*form-data((?:\s*;\s*[\w*]+\s*=\s*(?:"[^"]*"|[^\s;"]+))*)',
    re.I,
)
_PARAMETER = re.compile(rb';\s*([\w*]+)\s*=\s*(?:"([^"]*)"|([^\s;"]+))')
_DISPOSITIONS = re.compile(rb"(?:^|[\r\n])[ \t]*content-disposition[ \t]*:", re.I)
_ENCODED = re.compile(
    rb"(?:^|[\r\n])[ \t]*content-transfer-encoding[ \t]*:"
    rb"(?!\s*(?:7bit|8bit|binary)\s*(?:[\r\n]|$))",
    re.I,
)
_CONTENT_TYPE = re.compile(rb"(?:^|\r\n)content-type\s*:\s*([^\r\n]{1,200})", re.I)


class FormBody(Body):
    """A body of the type ``multipart/form-data``; ``content_type`` contains its boundary.

    ``value`` contains the text of each field, and ``filename``, ``content_type``, ``bytes`` and
    ``sha256`` of each file. A repeated name has a list. Only ``value`` is recorded.

    Attributes:
        places: start and end of each text field in ``raw``.
        seconds: longest possible duration of all sound files together; 0 if the endpoint is not for
            transcription or translation; None if that of a file is unknown.
    """

    seconds: float | None = 0.0

    @classmethod
    def read_form(cls, endpoint: Endpoint, raw: bytes, content_type: str) -> FormBody:
        """Return the parsed form.

        Raises:
            BodyError: as :meth:`ArrivingForm.feed`; the content type is not ``multipart/form-data``
                with one boundary; or the form lacks the model that the endpoint needs.
        """
        form = ArrivingForm.of(endpoint, content_type)
        form.feed(raw)
        form.feed(b"")
        sounds = form.files if endpoint in (TRANSCRIPTIONS, TRANSLATIONS) else ()
        lengths = [longest_seconds(raw[start:end]) for start, end in sounds]
        known = [length for length in lengths if length is not None]
        seconds = sum(known) if len(known) == len(lengths) else None
        value = form.value
        body = cls(endpoint, raw, value, [], content_type, places=form.places, seconds=seconds)
        if endpoint.has_model:
            require_model(value, endpoint)
        return body

    @override
    def __post_init__(self) -> None:
        Body.__post_init__(self)
        self.stream = self.endpoint.streams and self.value.get("stream") in ("true", "True", "1")

    @override
    def with_member(self, path: tuple[str, ...], text: bytes, reason: str) -> Body:
        """Return a copy with one text field set and the change noted; a missing model is added.

        Args:
            path: the name of the field alone.
            text: the new value, a text as JSON.
            reason: the reason in the record.

        Raises:
            BodyError: the path is nested, the form has no such text field, or the new value is not
                a text of one line.
        """
        name = path[0]
        if path == ("model",) and name not in self.value:
            return self._with_model(load(text), reason)
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

    def _with_model(self, model: str, reason: str) -> Body:
        """Return a copy with a model as its first part. Bytes before the first part are removed."""
        mark = _mark_of(self.content_type)
        head = mark + b'\r\nContent-Disposition: form-data; name="model"\r\n\r\n'
        start = 0 if self.raw.startswith(mark) else self.raw.find(b"\r\n" + mark) + 2
        part = head + model.encode() + b"\r\n"
        raw, more = part + self.raw[start:], len(part) - start
        places = {
            name: (at + more, stop + more) for name, (at, stop) in (self.places or {}).items()
        }
        places["model"] = (len(head), len(part) - 2)
        changed = [*self.changed, {"path": "/model", "reason": reason}]
        return FormBody(
            self.endpoint, raw, {"model": model, **self.value}, changed, self.content_type,
            places=places, seconds=self.seconds,
        )  # fmt: skip

    @override
    def without_member(self, path: tuple[str, ...], reason: str) -> Body:
        return self

    @override
    def cut(self) -> Cut:
        return Cut(orjson.dumps(self.value), {}, {})


class ObjectBody(Body):
    """A request about a stored object, such as the creation of a batch or the deletion of a file.

    :meth:`read_object` and :meth:`without_text` make the request. It is never streamed.

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

    @override
    def __post_init__(self) -> None:
        Body.__post_init__(self)
        self.stream = False

    @override
    def cut(self) -> Cut:
        """Return the description alone, if any, else the pieces; of ``lines``, a piece each."""
        if self.about is not None:
            return Cut(orjson.dumps(self.about), {}, {})
        cut = Body.cut(self)
        if self.lines:
            cut.pieces["prompt"] = list(self.lines)
        return cut


class ArrivingForm(Body):
    """A form that is sent while it arrives, so that its files need no memory.

    ``raw`` is empty. ``value`` grows as :meth:`feed` reads the form, and is that of a
    :class:`FormBody` at the end. Only ``value`` is recorded.

    Attributes:
        places: start and end of each text field in the form.
        files: start and end of each file.
    """

    files: list[tuple[int, int]] = []  # noqa: RUF012 - each instance gets its own
    _mark: bytes = b""
    _unread: bytes = b"\r\n"  # The boundary may be the first line.
    _at: int = -2  # offset of the unread bytes
    _head: bytes | None = None  # The head of the part that is read; empty before the first.
    _is_new: bool = False
    _name: str = ""
    _text: bytes = b""
    _file: Any = None
    _size: int = 0
    _parts: int = 0
    _ended: bool = False

    @classmethod
    def of(cls, endpoint: Endpoint, content_type: str) -> ArrivingForm:
        """Return a form of which nothing has arrived.

        Raises:
            BodyError: the type is not ``multipart/form-data``, or has no boundary.
        """
        mark = b"\r\n" + _mark_of(content_type)
        return cls(endpoint, b"", {}, [], content_type, places={}, _mark=mark)

    def feed(self, data: bytes) -> list[tuple[str, str]]:
        """Read more of the form; return name and text of the text fields that are whole now.

        Args:
            data: the next bytes; empty at the end of the form.

        Raises:
            BodyError: the form is malformed or cut off, has text after its end, more than 256
                parts, a text field of more than 1 MiB, or a text field twice whose name does not
                end with ``[]``.
        """
        found: list[tuple[str, str]] = []
        self._unread += data
        while not self._ended and self._step(found):
            pass
        if self._ended and self._unread.strip():
            raise BodyError(_AFTER_END)
        if not data and not self._ended:
            raise BodyError("The form is truncated or has too many parts.")
        return found

    def _step(self, found: list[tuple[str, str]]) -> bool:
        """Read up to the end of a head or of a content; return False if more bytes are needed."""
        unread, mark = self._unread, self._mark
        if self._head == b"":  # behind a boundary
            if unread.startswith(b"--"):
                self._ended = True
                self._skip(2)
                return False
            start = unread.find(b"\r\n", 0, 256)
            end = unread.find(b"\r\n\r\n", max(start, 0), _MAX_HEADER_BYTES)
            if start < 0 or end < 0:
                if len(unread) > _MAX_HEADER_BYTES or (start < 0 and len(unread) > 256):
                    raise BodyError("The form is truncated or has too many parts.")
                return False
            self._begin(unread[start + 2 : end])
            self._skip(end + 4)
            return True
        if self._is_new:
            if len(unread) < len(mark):
                return False
            self._is_new = False
            if unread.startswith(mark[2:]):  # The line end of the head is that of the boundary.
                self._unread = unread = b"\r\n" + unread
                self._at -= 2
        end = unread.find(mark)
        content = unread[:end] if end >= 0 else unread[: max(0, len(unread) - len(mark))]
        if self._head is not None:
            self._add(content)
        self._skip(len(content))
        if end < 0:
            return False
        if self._head is not None:
            self._end(found)
        self._skip(len(mark))
        self._head = b""
        return True

    def _skip(self, size: int) -> None:
        self._unread = self._unread[size:]
        self._at += size

    def _begin(self, head: bytes) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise BodyError("The form is truncated or has too many parts.")
        self._head, self._name, self._text, self._size = head, _name_of(head), b"", 0
        self._is_new = True
        self._file = hashlib.sha256() if isinstance(_read(head, b""), dict) else None

    def _add(self, content: bytes) -> None:
        self._size += len(content)
        if self._file is not None:
            self._file.update(content)
            return
        self._text += content
        if self._size > _MAX_TEXT_BYTES:
            raise BodyError(f"A text field of the form has more than {_MAX_TEXT_BYTES:,} bytes.")

    def _end(self, found: list[tuple[str, str]]) -> None:
        name, part = self._name, _read(self._head or b"", self._text)
        place = (self._at - self._size, self._at)
        if isinstance(part, dict):
            part |= {"bytes": self._size, "sha256": self._file.hexdigest()}
            self.files.append(place)
        else:
            found.append((name, part))
            assert self.places is not None
            self.places[name] = place
        known = self.value.get(name)
        if known is None:
            self.value[name] = part
        elif (isinstance(part, str) or isinstance(known, str)) and not name.endswith("[]"):
            raise BodyError(f"the form contains {name[:100]} twice.", name[:100])
        else:
            self.value[name] = [*(known if isinstance(known, list) else [known]), part]

    @override
    def __post_init__(self) -> None:
        Body.__post_init__(self)
        self.stream = False

    @override
    def cut(self) -> Cut:
        return Cut(orjson.dumps(self.value), {}, {})


def _mark_of(content_type: str) -> bytes:
    """Return two hyphens and the boundary of a form.

    Raises:
        BodyError: the type is not that of a form, or has no boundary.
    """
    found = _BOUNDARY.search(content_type)
    is_form = content_type.lower().startswith("multipart/form-data")
    if not is_form or found is None or len(_BOUNDARY.findall(content_type)) > 1:
        raise BodyError("The body is not multipart/form-data with one boundary.")
    return b"--" + (found[1] or found[2]).encode("latin-1", "replace")


def _name_of(head: bytes) -> str:
    """Return the name of a part.

    Raises:
        BodyError: the part has no name, two dispositions, or an encoded text. Servers differ in how
            they read the latter two, so an id could be hidden from the check of owners.
    """
    if len(_DISPOSITIONS.findall(head)) > 1:
        raise BodyError("A part of the form has two Content-Disposition headers.")
    named = _DISPOSITION.search(head)
    name = dict(_parameters(named[1])).get("name", "") if named is not None else ""
    if not name:
        raise BodyError("A part of the form has no name.")
    if _ENCODED.search(head) is not None and isinstance(_read(head, b""), str):
        raise BodyError(f"The text {name[:100]} is encoded; send it as it is.", name[:100])
    return name


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
    }
