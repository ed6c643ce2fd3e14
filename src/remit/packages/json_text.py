"""JSON that every reader understands alike, from whoever sent it."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

import orjson

__all__ = ["parse_json"]


def parse_json(data: bytes, *, whole: bool = True) -> Any:
    """The value in ``data``: UTF-8 without a byte order mark, no key twice in one object.

    Args:
        data: the text.
        whole: refuse numbers that are not whole or have more than 16 digits: nothing that is
            signed or trusted needs others.

    Raises:
        ValueError: it is not such a text; the message ends a sentence that began "it …".
    """
    if data.startswith(b"\xef\xbb\xbf"):
        raise ValueError("begins with a byte order mark")
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_object,
            parse_int=_short if whole else _exact,
            parse_float=_refused if whole else _finite,
            parse_constant=_refused if whole else _not_json,
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


def _short(text: str) -> int:
    if len(text) > 16:
        raise ValueError("holds a number that not every reader keeps exact")
    return int(text)


def _exact(text: str) -> int:
    if len(text) > 1000:
        raise ValueError("holds a number that is too long")
    return int(text)


def _refused(text: str) -> NoReturn:
    raise ValueError("holds a number that is not whole")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _not_json(text)


def _not_json(text: str) -> NoReturn:
    raise ValueError(f"is not JSON: {text[:20]} is not a number")
