"""``remit config``: the settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from remit.cli.shared import emit, open_settings, reads


@click.group()
def config() -> None:
    """Show the settings."""


@config.command()
@click.option("--meaning", is_flag=True, help="Explain each setting.")
@reads
def show(root: Path | None, as_json: bool, meaning: bool) -> None:
    """List every setting with its value and source."""
    from remit.kernel.settings import describe

    _, loaded = open_settings(root)
    meanings = describe()
    rows = [
        {"key": key, "value": value, "source": source, "meaning": _meaning(meanings, key)}
        for key, value, source in loaded.rows()
    ]
    emit(as_json, {"settings": rows}, _setting_lines(rows, meaning))


def _setting_lines(rows: Iterable[Mapping[str, Any]], meaning: bool) -> Iterator[str]:
    for row in rows:
        yield f"{row['key']} = {row['value']!r}  ({row['source']})"
        if meaning and row["meaning"]:
            yield f"    {row['meaning']}"


def _meaning(meanings: dict[str, str], key: str) -> str:
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
