"""Values and keys as TOML text, and reading of TOML."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from datetime import date
from typing import Any

MAX_DEPTH = 100
"""No document of Remit's has tables and lists nested more deeply."""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TOO_DEEP = "it is nested too deeply"


def load_toml(text: str, *, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Return a TOML document, in which values are nested at most 100 deep.

    Args:
        text: the document.
        parse_float: makes a value of the text of a number with a fraction or exponent.

    Raises:
        ValueError: the text is not TOML, an integer is too long, or the nesting is too deep. A
            dotted key nests as deep as it has parts.
    """
    try:
        document = tomllib.loads(text, parse_float=parse_float)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        inner = [each for one in level for each in (one.values() if type(one) is dict else one)]
        level = [each for each in inner if type(each) is dict or type(each) is list]
        if not level:
            return document
    raise ValueError(_TOO_DEEP)


def toml_key(name: str) -> str:
    """Return a key, in quotation marks if TOML demands them."""
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)


def toml_value(value: Any) -> str:
    """Return a boolean, number, day, text, list or dict on one line; anything else as its text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, date)):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{toml_key(k)} = {toml_value(v)}' for k, v in value.items())} }}"
    # TOML forbids DEL in a string, and JSON does not escape it.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
