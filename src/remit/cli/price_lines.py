"""The lines in which ``remit price`` prints prices and their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

COLUMNS = ("model", "provider", "input", "output", "cached", "window", "max out", "date", "source")


def row(data: Mapping[str, Any]) -> list[str]:
    """Return a price as a row of ``COLUMNS``."""
    names = ("model", "provider", "input", "output", "cached_input", "context_window",
             "max_output_tokens", "date", "origin")  # fmt: skip
    return [str(data[name] or "-") for name in names]


def change_lines(changes: Sequence[Mapping[str, Any]], counts: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each changed model, then for the counts of an import."""
    for one in changes:
        before, after = one["before"] or {}, one["after"] or {}
        head = f"{one['provider']}/{one['model']}"
        if not one["after"]:
            yield f"- {head}: no longer priced"
            continue
        parts = [
            f"{key} {text(before.get(key))} -> {text(after.get(key))}" if before
            else f"{key} {text(after[key])}"
            for key in {**before, **after}
            if before.get(key) != after.get(key)
        ]  # fmt: skip
        yield f"{'~' if before else '+'} {head}: {', '.join(parts)}"
    if not changes:
        yield "No differences."
    if "same" in counts:
        yield f"{counts['same']} prices in the file are already in effect"
    for why, count in counts.get("skipped", {}).items():
        yield f"{count} skipped: {why}"


def text(value: Any) -> str:
    """Return a value of a price as text in a line."""
    if isinstance(value, list):
        return (
            "; ".join(", ".join(f"{key} {part}" for key, part in tier.items()) for tier in value)
            or "none"
        )
    if isinstance(value, dict):
        return ", ".join(f"{key} {text(part)}" for key, part in value.items())
    return "none" if value is None else str(value)
