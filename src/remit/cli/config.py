"""``remit config``."""

from __future__ import annotations

from pathlib import Path

import click

from remit.cli.shared import echo_json, open_settings, reads


@click.group()
def config() -> None:
    """Look at the settings."""


@config.command()
@click.option("--meaning", is_flag=True, help="Say what each setting means.")
@reads
def show(root: Path | None, as_json: bool, meaning: bool) -> None:
    """Every setting, its value, and where that came from."""
    from remit.kernel.settings import describe

    _, loaded = open_settings(root)
    meanings = describe()
    rows = [
        {"key": key, "value": value, "source": source, "meaning": _meaning(meanings, key)}
        for key, value, source in loaded.rows()
    ]
    if as_json:
        echo_json({"settings": rows})
        return
    for row in rows:
        click.echo(f"{row['key']} = {row['value']!r}  ({row['source']})")
        if meaning and row["meaning"]:
            click.echo(f"    {row['meaning']}")


def _meaning(meanings: dict[str, str], key: str) -> str:
    """What a setting means; of one whose name a user chose, what its table does."""
    while key:
        if key in meanings:
            return meanings[key]
        for pattern, text in meanings.items():
            table, star, option = pattern.partition(".*.")
            if star and key.startswith(f"{table}.") and key.endswith(f".{option}"):
                return text
        key = key.rpartition(".")[0]
    return ""
