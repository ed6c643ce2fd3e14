"""``remit model``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.shared import common, emit, note, progress, reads, settings_of

if TYPE_CHECKING:
    from remit.providers.weights import WeightStore


def _store(root: Path | None) -> WeightStore:
    from remit.runtime import weight_store

    return weight_store(settings_of(root))


@click.group()
def model() -> None:
    """Local models: what there is, and getting more."""


@model.command("list")
@reads
def list_models(root: Path | None, as_json: bool) -> None:
    """Models that are here, and those that can be pulled."""
    from remit.providers.weights import known_models

    here = {path.stem: path for path in _store(root).list()}
    rows: list[dict[str, Any]] = [
        {"name": name, "here": True, "bytes": path.stat().st_size, "path": str(path)}
        for name, path in here.items()
    ]
    rows += [
        {"name": item.name, "here": False, "bytes": item.bytes, "title": item.title,
         "licence": item.licence, "note": item.note}
        for item in known_models().values()
        if item.name not in here
    ]  # fmt: skip
    emit(as_json, {"models": rows}, map(_line, rows))


def _line(row: Mapping[str, Any]) -> str:
    where = row["path"] if row["here"] else f"pull it ({row['title']}, {row['licence']})"
    return f"{row['name']}  {row['bytes'] // 1_000_000} MB  {where}"


@model.command()
@click.argument("name", required=False)
@click.option("--if-needed", is_flag=True, help="Only when the configured model is a local one.")
@common
def pull(name: str | None, if_needed: bool, root: Path | None) -> None:
    """Fetch a known model (default: the configured one), check its SHA-256, keep it."""
    from remit.runtime import resolve_model

    settings = settings_of(root)
    if if_needed and resolve_model(settings)[1] != "local":
        return
    store = _store(root)
    name = name or settings.local.model
    if name not in {path.stem for path in store.list()}:
        note(f"fetching the weights of {name} …")
    _note_stored(store.pull(name, progress("unpacking")))


@model.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", help="Its name; the file's when left out.")
@common
def add(file: Path, name: str | None, root: Path | None) -> None:
    """Take a GGUF file of your own; then `remit chat --model NAME`."""
    _note_stored(_store(root).add(file, name))


def _note_stored(path: Path) -> None:
    note(f"{path.stem} is here: {path} ({path.stat().st_size:,} bytes)")
