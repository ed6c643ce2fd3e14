"""The operation that shows the settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remit.operations.operation import Answer, field, verb
from remit.operations.ports import Caller, RootPort


def _show_settings_lines(found: dict[str, Any], meaning: bool) -> Iterator[str]:
    """Yield each setting, with ``meaning`` also its description."""
    for row in found["settings"]:
        yield f"{row['key']} = {row['value']!r}  ({row['source']})"
        if meaning and row["meaning"]:
            yield f"    {row['meaning']}"


@verb("config show", tools=("show_runtime_config",))
def show_settings(
    root: RootPort, caller: Caller, *, meaning: bool = field("Explain each setting.", False)
) -> Answer:
    """List every setting with its value and source."""
    from remit.kernel.settings import describe

    meanings = describe()
    found = {"settings": [
        {"key": key, "value": value, "source": source, "meaning": _meaning(meanings, key)}
        for key, value, source in root.loaded.rows()
    ]}  # fmt: skip
    return Answer(found, _show_settings_lines(found, meaning))


def _meaning(meanings: Mapping[str, str], key: str) -> str:
    """Return the description of a setting, or an empty text.

    A setting under a name that the user chose has the description of its table.
    """
    while key:
        if key in meanings:
            return meanings[key]
        for pattern, text in meanings.items():
            table, star, option = pattern.partition(".*.")
            if star and key.startswith(f"{table}.") and key.endswith(f".{option}"):
                return text
        key = key.rpartition(".")[0]
    return ""
