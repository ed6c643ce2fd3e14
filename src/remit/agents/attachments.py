"""Images and documents that a user sends with a message."""

from __future__ import annotations

import base64
import codecs
import mimetypes
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.contracts import fence
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import Message
from remit.kernel.json_text import sound_text

# Media types of text apart from text/*: data, markup and programs.
_TEXT_TYPE = re.compile(
    r"text/.*|.+[/+](json|xml|yaml)|"
    r"application/(x-)?(graphql|javascript|jsonl|ndjson|python|ruby|sh|sql|toml|typescript|yaml)"
)
_MEDIA_TYPE = re.compile(r"[!-.0-~]+/[!-.0-~]+( *;[ -~]*)?")
# Media types of images that providers accept, keyed by the first bytes of the data.
_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}
_MAX_IMAGE_BYTES = 3_700_000  # 5 MB of base64, the lowest limit among the large providers.
MAX_IMAGES = 20
"""Largest number of images in one result of a tool."""
_MAX_BYTES = 20 * 1024 * 1024  # Its base64 text fits into the largest request of each provider.


def image_of(data: bytes) -> dict[str, Any] | None:
    """Return the content block of an image that a tool returned; None if models cannot take it.

    The media type follows from the data: PNG, JPEG, GIF or WebP, of at most 3,700,000 bytes.

    Args:
        data: the bytes of the image.
    """
    is_webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    found = next((kind for start, kind in _IMAGES.items() if data.startswith(start)), "")
    media_type = "image/webp" if is_webp else found
    if not media_type or len(data) > _MAX_IMAGE_BYTES:
        return None
    return {"type": "image", "source": _source(media_type, data)}


def _source(media_type: str, data: bytes) -> dict[str, str]:
    encoded = base64.b64encode(data).decode()
    return {"type": "base64", "media_type": media_type, "data": encoded}


@dataclass(frozen=True, slots=True)
class File:
    """An image or a document. Text files, such as JSON, reach the model as text, between fences.

    The tokens of other documents, such as PDF, cannot be bounded in advance. Remit reserves the
    model's whole context for them. Immutable; :meth:`read` reads one from the disk, and
    :attr:`block` is its form for models.

    Attributes:
        data: the bytes.
        media_type: for example ``image/png`` or ``application/pdf``; lower case outside of
            parameters.
        name: name for the model and the record; lone surrogates in it are replaced.

    Raises:
        InvalidInputError: the file is empty, longer than 20 MiB or not bytes, the media type is
            invalid, or the name is not a text.
    """

    data: bytes
    media_type: str
    name: str = "file"

    def __post_init__(self) -> None:
        if not isinstance(self.data, bytes) or not 0 < len(self.data) <= _MAX_BYTES:
            raise InvalidInputError(
                f"The file {self.name!r} is empty, longer than 20 MiB, or not bytes."
            )
        if not isinstance(self.media_type, str) or not _MEDIA_TYPE.fullmatch(self.media_type):
            raise InvalidInputError(f"{self.media_type!r} is not a media type, such as image/png.")
        if not isinstance(self.name, str):
            raise InvalidInputError(f"The name of a file must be a text, not {self.name!r}.")
        kind, semicolon, parameters = self.media_type.partition(";")
        object.__setattr__(self, "media_type", f"{kind.lower()}{semicolon}{parameters}")
        object.__setattr__(self, "name", sound_text(self.name))

    @classmethod
    def read(cls, path: str | Path, media_type: str = "") -> File:
        """Return the file at ``path``; by default its extension determines the media type.

        Args:
            path: the file to read.
            media_type: its media type; if empty, guessed from the file's name.

        Raises:
            InvalidInputError: the file cannot be read, is empty or longer than 20 MiB, or its media
                type is unknown or invalid.
        """
        path = Path(path)
        found = media_type or mimetypes.guess_type(path.name)[0]
        if not found:
            raise InvalidInputError(
                f"The media type of {path.name} is unknown.",
                next_step="Pass it as an argument: File.read(path, 'application/pdf').",
            )
        try:
            return cls(path.read_bytes(), found, path.name)
        except OSError as error:
            raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from error

    @property
    def block(self) -> dict[str, Any]:
        """The file as a content block (:mod:`remit.kernel.exchange`).

        A text file becomes a fenced text after its name (``text``). Another file becomes an
        ``image``, without its name, or a ``document`` in base64 with its name as ``title``.
        A text is UTF-8, or UTF-16 if it begins with that byte order mark; other bytes become
        U+FFFD.
        """
        if _TEXT_TYPE.fullmatch(self.media_type.partition(";")[0].rstrip()):
            is_wide = self.data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            text = self.data.decode("utf-16" if is_wide else "utf-8-sig", "replace")
            # The fence ends its line, also for models whose blocks of text are joined.
            return {"type": "text", "text": f"{self.name}:\n{fence(text)}\n"}
        source = _source(self.media_type, self.data)
        if self.media_type.startswith("image/"):
            return {"type": "image", "source": source}
        return {"type": "document", "source": source, "title": self.name}

    def __str__(self) -> str:
        return f"[{self.name}: {self.media_type}, {len(self.data):,} bytes]"

    def __repr__(self) -> str:
        return f"File({self})"


UserMessage = str | Sequence[str | File]
"""What a user says: a text, or texts and files in order."""


def split_message(message: UserMessage) -> tuple[str, list[dict[str, Any]]]:
    """Return the text of a message and the content blocks of its files.

    In the text, ``[name: media type, size]`` stands for each file.

    Args:
        message: a text, or texts and files in order; the parts are joined by newlines.

    Raises:
        InvalidInputError: the message has no text, or contains something other than text and files.
    """
    parts = list(message) if isinstance(message, list | tuple) else [message]
    for part in parts:
        if not isinstance(part, str | File):
            raise InvalidInputError(
                f"A message may contain only texts and files, not {type(part).__name__}.",
                next_step="Use remit.File(data, media_type) or remit.File.read(path).",
            )
    if not any(isinstance(part, str) and part.strip() for part in parts):
        if any(isinstance(part, File) for part in parts):
            raise InvalidInputError(
                "The message has a file but no text.", next_step="State what to do with it."
            )
        raise InvalidInputError("The message is blank.", next_step="Pass a text.")
    return "\n".join(map(str, parts)), [part.block for part in parts if isinstance(part, File)]


def attached(messages: Sequence[Message], files: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return the messages with files in the user's last message, before its text.

    Unchanged without a user's message; the given messages are not modified. The content of the
    changed message becomes a list of blocks.

    Args:
        messages: the conversation; the content of the user's last message is a text.
        files: content blocks of the files.
    """
    blocks = [*map(dict, files)]
    return _in_last(messages, lambda text: [*blocks, {"type": "text", "text": text}])


def with_note(messages: Sequence[Message], note: str) -> list[Message]:
    """Return the messages with a note in the user's last message, before its text.

    Unchanged if the note is empty or there is no user's message; the given messages are not
    modified.

    Args:
        messages: the messages of a prompt; the content of the user's last message is a text.
        note: the text; two line breaks separate it from the user's.
    """
    return _in_last(messages, lambda text: f"{note}\n\n{text}") if note else list(messages)


def _in_last(messages: Sequence[Message], change: Callable[[str], Any]) -> list[Message]:
    done = list(messages)
    for place in reversed(range(len(done))):
        if done[place]["role"] == "user":
            done[place] = {"role": "user", "content": change(done[place]["content"])}
            break
    return done
