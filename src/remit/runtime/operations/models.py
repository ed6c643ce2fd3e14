"""Operations on local models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remit.operations import Caller, RootPort, field, verb
from remit.operations.files import settings_at


@verb("model list")
def list_models(root: RootPort, caller: Caller) -> dict[str, Any]:
    """List installed models, and models that can be downloaded.

    Returns:
        ``models``: each with ``name``, ``here`` (True if it is installed) and ``bytes``; installed
        ones come first with ``path``, others with ``title``, ``licence`` and ``note``.

    Raises:
        RemitError: the settings cannot be loaded.
    """
    from remit.providers.weights import known_models
    from remit.runtime.providers import weight_store

    here = {path.stem: path for path in weight_store(settings_at(root.path)).list()}
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


def _stored_lines(found: dict[str, Any]) -> Iterator[str]:
    if found["path"] is not None:
        size = found["path"].stat().st_size
        yield f"{found['path'].stem} is installed: {found['path']} ({size:,} bytes)"


@verb("model pull", media_type="text/plain", lines=_stored_lines)
def pull_model(
    root: RootPort, caller: Caller, *,
    name: str | None = field("Name of the model.", None, flag="", metavar="[NAME]"),
    if_needed: bool = field("Do nothing unless the configured model is local.", False),
) -> dict[str, Any]:  # fmt: skip
    """Download a known model (default: the configured one) and check its SHA-256.

    A stored file with the right hash is not downloaded again; another file of the name is replaced.

    Returns:
        ``path`` of the stored file; None if nothing is needed.

    Raises:
        RemitError: the settings cannot be loaded; or the model is unknown, cannot be downloaded, or
            has another hash.
        OSError: the file cannot be written. After any error, a stored file stays.
    """
    from remit.providers.weights import known_models
    from remit.runtime.providers import resolve_model, weight_store

    settings = settings_at(root.path)
    if if_needed and resolve_model(settings)[1] != "local":
        return {"path": None}
    store, wanted = weight_store(settings), name or settings.local.model
    if wanted in known_models() and wanted not in {path.stem for path in store.list()}:
        root.note(f"downloading {wanted} …")
    return {"path": store.pull(wanted, root.progress("unpacking"))}


@verb("model add", media_type="text/plain", lines=_stored_lines)
def add_model(
    root: RootPort, caller: Caller, *,
    file: Path = field("The file.", flag="", place="path"),
    name: str | None = field("Name of the model (default: the file name).", None),
) -> dict[str, Any]:  # fmt: skip
    """Add a GGUF file of your own, for use with `remit chat --model NAME`.

    The copy goes to the user's store, in `[local] cache_dir` or the user's cache. No root is
    needed. The default name is the file's, without suffix, in lower case, with hyphens for spaces.

    Returns:
        ``path`` of the copy.

    Raises:
        RemitError: the settings or the file cannot be read, the copy cannot be written, the file is
            not in the format GGUF, or the name is taken, cannot be used, or is that of a known
            model with another hash.
    """
    from remit.runtime.providers import weight_store

    return {"path": weight_store(settings_at(root.path)).add(file, name)}
