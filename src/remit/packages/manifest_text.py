"""The text of ``manifest.json``: strict JSON, and where each part of it stands."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from remit.packages.errors import ManifestError
from remit.packages.paths import unseen

__all__ = ["ManifestText", "Place", "shown"]

Place = tuple[str | int, ...]

_DEEPEST = 4  # lists and objects inside one another that a manifest can need
_MAX_SAID = 300  # characters of a problem; the rest of a quoted value helps nobody
_MAX_QUOTED = 100

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_WHOLE = re.compile(r"-?[0-9]{1,16}|true|false|null")


class ManifestText:
    """A manifest's text, its value, and where in the text each part of the value stands.

    Attributes:
        value: what the JSON says; a number that is not whole never gets here.
        places: of each part of it, as ``("assets", 0, "path")``, the offset in the text; of
            a key's value that of the key.

    Raises:
        ManifestError: it is not JSON that every reader understands alike.
    """

    def __init__(self, data: bytes, source: str) -> None:
        self.source = source
        self.text = ""
        if data.startswith(b"\xef\xbb\xbf"):
            self.fail(
                "manifest_encoding", 0, "begins with a byte order mark", "Save it as plain UTF-8."
            )
        try:
            self.text = data.decode()
        except UnicodeDecodeError as error:
            self.text = data[: error.start].decode()
            self.fail("manifest_encoding", error.start, "is not UTF-8", "Save it as plain UTF-8.")
        try:
            # Only whole numbers have a place in it; the walk below says where another stands.
            self.value: Any = json.loads(
                self.text,
                parse_float=lambda _: 0,
                parse_constant=lambda _: 0,
                parse_int=lambda text: int(text) if _WHOLE.fullmatch(text) else 0,
            )
        except json.JSONDecodeError as error:
            self.fail("manifest_json", error.pos, f"is not JSON: {error.msg}")
        except RecursionError:
            self.fail("manifest_json", 0, "is nested too deeply")
        self.places: dict[Place, int] = {}
        self._walk()

    def fail(self, code: str, offset: int, problem: str, expected: str = "") -> NoReturn:
        """Raises what is wrong at that character of the text."""
        before = self.text[:offset]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise ManifestError(
            code,
            f"{self.source}, line {line}, column {column}: {_brief(problem)}.",
            line=line,
            column=column,
            next_step=expected,
        )

    def _walk(self) -> None:
        """Notes where everything stands, and refuses what ``json`` lets pass."""
        frames: list[list[Any]] = []  # of each open object its key, of each open list its index
        place: Place = ()
        is_key = False
        for found in _TOKEN.finditer(self.text):
            part, offset = found[0], found.start()
            if part in "}]":
                frames.pop()
                is_key = False
            elif part == ",":
                if isinstance(frames[-1][0], int):
                    frames[-1][0] += 1
                else:
                    is_key = True
            elif part == ":":
                is_key = False
            elif is_key:
                frames[-1][0] = self._string(part, offset)
                place = tuple(frame[0] for frame in frames)
                if place in self.places:
                    self.fail(
                        "manifest_duplicate_key",
                        offset,
                        f"the key {shown(str(place[-1]))} stands twice in one object",
                        "Keep one of them.",
                    )
                self.places[place] = offset
            else:
                place = tuple(frame[0] for frame in frames)
                self.places.setdefault(place, offset)
                if part in "{[":
                    if len(frames) == _DEEPEST:
                        self.fail("manifest_json", offset, "is nested too deeply")
                    # A key that no object has, until the first is read.
                    frames.append([0 if part == "[" else ""])
                    is_key = part == "{"
                elif part[0] == '"':
                    self._string(part, offset)
                elif not _WHOLE.fullmatch(part):
                    self.fail(
                        "manifest_number",
                        offset,
                        f"{part[:40]} is not a whole number that every reader keeps exact",
                        "Write a whole number of at most 16 digits, or a string.",
                    )

    def _string(self, literal: str, offset: int) -> str:
        text: str = json.loads(literal)
        if found := unseen(text):
            self.fail(
                "manifest_text",
                offset,
                f"the text holds the character U+{ord(found):04X}, which nobody sees",
                "Take it out.",
            )
        return text


def shown(text: str) -> str:
    """Quoted, with what cannot be seen escaped, and not too much of it."""
    text = text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"
    return ascii(text) if not text.isprintable() else repr(text)


def _brief(problem: str) -> str:
    return problem if len(problem) <= _MAX_SAID else f"{problem[:_MAX_SAID]}…"
