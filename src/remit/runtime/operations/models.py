"""Operations on local models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.operations import Caller, Note, Operation, RootPort, field

if TYPE_CHECKING:
    from remit.kernel.settings import Settings


def _settings(root: RootPort) -> Settings:
    """Return the settings of the meant root, or the shipped settings if no root exists."""
    from remit.kernel.root import find_root
    from remit.kernel.settings import load_settings

    return load_settings(find_root(root.path).config).settings


class ListModels(Operation):
    """List installed models, and models that can be downloaded."""

    command = "model list"

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Return the models."""
        from remit.providers.weights import known_models
        from remit.runtime.providers import weight_store

        here = {path.stem: path for path in weight_store(_settings(root)).list()}
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
        return {"models": rows}

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield each model with its size and file."""
        for row in found["models"]:
            missing = "" if row["here"] else f"not installed ({row['title']}, {row['licence']})"
            yield f"{row['name']}  {row['bytes'] // 1_000_000} MB  {missing or row['path']}"


class _Stored(Operation):
    media_type = "text/plain"

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield a note on the installed file."""
        if found["path"] is not None:
            size = found["path"].stat().st_size
            yield Note(f"{found['path'].stem} is installed: {found['path']} ({size:,} bytes)")


class PullModel(_Stored):
    """Download a known model (default: the configured one) and check its SHA-256."""

    command = "model pull"

    name: str | None = field("Name of the model.", None, flag="", metavar="[NAME]")
    if_needed: bool = field("Do nothing unless the configured model is local.", False)

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Download the model, and return its file; None if it is not needed.

        Raises:
            RemitError: the model is unknown, cannot be downloaded, or has another hash.
        """
        from remit.runtime.providers import resolve_model, weight_store

        settings = _settings(root)
        if self.if_needed and resolve_model(settings)[1] != "local":
            return {"path": None}
        store, name = weight_store(settings), self.name or settings.local.model
        if name not in {path.stem for path in store.list()}:
            root.note(f"downloading {name} …")
        return {"path": store.pull(name, root.progress("unpacking"))}


class AddModel(_Stored):
    """Add a GGUF file of your own, for use with `remit chat --model NAME`."""

    command = "model add"

    file: Path = field("The file.", flag="", place="path")
    name: str | None = field("Name of the model (default: the file name).", None)

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Copy the file, and return its place.

        Raises:
            RemitError: the file cannot be read, or is not in the format GGUF.
        """
        from remit.runtime.providers import weight_store

        return {"path": weight_store(_settings(root)).add(self.file, self.name)}
