"""JSON that every reader understands alike, from any sender."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson

__all__ = ["parse_json"]

_MAX_DIGITS = 1000


def parse_json(data: bytes) -> Any:
    """The value in ``data``: UTF-8 without a byte order mark, no key twice in one object.

    Raises:
        ValueError: it is not such a text; the message ends a sentence that began "it …".
    """
    if data.startswith(b"\xef\xbb\xbf"):
        raise ValueError("begins with a byte order mark")
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_finite,
        )
        orjson.loads(data)  # refuses lone surrogates
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("has a key twice in one object")
    return found


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError("holds a number that is too long")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"is not JSON: {text[:20]} is not a number")
    return number
