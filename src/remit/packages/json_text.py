"""JSON that every reader understands alike, from whoever sent it."""

from __future__ import annotations

import json
from typing import Any, NoReturn

__all__ = ["parse_json"]


def parse_json(data: bytes) -> Any:
    """The value in ``data``: UTF-8 without a byte order mark, no key twice in one object.

    Numbers are whole and small (at most 16 digits): nothing signed or trusted needs others.

    Raises:
        ValueError: it is not such a text; the message ends a sentence that began "it …".
    """
    if data.startswith(b"\xef\xbb\xbf"):
        raise ValueError("begins with a byte order mark")
    try:
        return json.loads(
            data.decode(),
            object_pairs_hook=_object,
            parse_int=_whole,
            parse_float=_no_number,
            parse_constant=_no_number,
        )
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("has a key twice in one object")
    return found


def _whole(text: str) -> int:
    if len(text) > 16:
        raise ValueError("holds a number that not every reader keeps exact")
    return int(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError("holds a number that is not whole")
