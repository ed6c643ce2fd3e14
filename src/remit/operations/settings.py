"""The operation that shows the settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remit.operations.operation import Operation, field
from remit.operations.ports import Caller, RootPort


class ShowSettings(Operation):
    """List every setting with its value and source."""

    command, tools = "config show", ("show_runtime_config",)

    meaning: bool = field("Explain each setting.", False)

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Return the settings."""
        from remit.kernel.settings import describe

        meanings = describe()
        return {"settings": [
            {"key": key, "value": value, "source": source, "meaning": _meaning(meanings, key)}
            for key, value, source in root.loaded.rows()
        ]}  # fmt: skip

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield each setting, with ``meaning`` also its description."""
        for row in found["settings"]:
            yield f"{row['key']} = {row['value']!r}  ({row['source']})"
            if self.meaning and row["meaning"]:
                yield f"    {row['meaning']}"


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
