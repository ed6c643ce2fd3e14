"""The commands of ``remit model``, for local models."""

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
    """List, download and add local models."""


@model.command("list")
@reads
def list_models(root: Path | None, as_json: bool) -> None:
    """List installed models, and models that can be downloaded."""
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
    where = row["path"] if row["here"] else f"not installed ({row['title']}, {row['licence']})"
    return f"{row['name']}  {row['bytes'] // 1_000_000} MB  {where}"


@model.command()
@click.argument("name", required=False)
@click.option("--if-needed", is_flag=True, help="Do nothing unless the configured model is local.")
@common
def pull(name: str | None, if_needed: bool, root: Path | None) -> None:
    """Download a known model (default: the configured one) and check its SHA-256."""
    from remit.runtime import resolve_model

    settings = settings_of(root)
    if if_needed and resolve_model(settings)[1] != "local":
        return
    store = _store(root)
    name = name or settings.local.model
    if name not in {path.stem for path in store.list()}:
        note(f"downloading {name} …")
    _note_stored(store.pull(name, progress("unpacking")))


@model.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the model (default: the file name).")
@common
def add(file: Path, name: str | None, root: Path | None) -> None:
    """Add a GGUF file of your own, for use with `remit chat --model NAME`."""
    _note_stored(_store(root).add(file, name))


def _note_stored(path: Path) -> None:
    note(f"{path.stem} is installed: {path} ({path.stat().st_size:,} bytes)")
