"""Values and keys as TOML text."""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


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
