"""Prices and changes of them, as ``remit price`` prints them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

COLUMNS = ("model", "provider", "input", "output", "cached", "window", "most out", "date", "whose")


def row(data: Mapping[str, Any]) -> list[str]:
    """A price as a row under ``COLUMNS``."""
    names = ("model", "provider", "input", "output", "cached_input", "context_window",
             "max_output_tokens", "date", "origin")  # fmt: skip
    return [str(data[name] or "-") for name in names]


def change_lines(changes: Sequence[Mapping[str, Any]], counts: Mapping[str, Any]) -> Iterator[str]:
    """A line for each model that is charged otherwise; ``counts`` of an imported file: ``same``,
    and ``skipped`` by reason."""
    for one in changes:
        before, after = one["before"] or {}, one["after"] or {}
        head = f"{one['provider']}/{one['model']}"
        if not one["after"]:
            yield f"- {head}: no price any more"
            continue
        parts = [
            f"{key} {text(before.get(key))} -> {text(after.get(key))}" if before
            else f"{key} {text(after[key])}"
            for key in {**before, **after}
            if before.get(key) != after.get(key)
        ]  # fmt: skip
        yield f"{'~' if before else '+'} {head}: {', '.join(parts)}"
    if not changes:
        yield "no difference"
    if "same" in counts:
        yield f"{counts['same']} prices of the file are in force already"
    for why, count in counts.get("skipped", {}).items():
        yield f"{count} left out: {why}"


def text(value: Any) -> str:
    """A value of a price in a line."""
    if isinstance(value, list):
        return (
            "; ".join(", ".join(f"{key} {part}" for key, part in tier.items()) for tier in value)
            or "none"
        )
    if isinstance(value, dict):
        return ", ".join(f"{key} {text(part)}" for key, part in value.items())
    return "none" if value is None else str(value)
