"""A package as a directory: its manifest, and the files that this declares."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from remit.kernel.canonical import sha256_hex
from remit.packages.errors import PackError
from remit.packages.manifest import MANIFEST_NAME, Manifest

__all__ = ["paths_in", "plain_file", "read_directory"]


def read_directory(directory: Path) -> dict[str, bytes]:
    """What a package's directory holds, by path: ``manifest.json`` first, then the files in order.

    Raises:
        ManifestError: ``manifest.json`` is not a manifest.
        PackError: the directory holds anything but what the manifest declares; names the file.
    """
    manifest_json = b""
    found: dict[str, bytes] = {}
    try:
        manifest_json = plain_file(directory / MANIFEST_NAME, MANIFEST_NAME)
        manifest = Manifest.parse(manifest_json, str(directory / MANIFEST_NAME))
        declared = {asset.path: asset.sha256 for asset in manifest.assets}
        for path in paths_in(directory):
            if path == MANIFEST_NAME:
                continue
            _check_plain(directory / path, path)
            if path not in declared:
                raise PackError(
                    "undeclared_file",
                    f"{path!a} in {directory} is not in the manifest.",
                    next_step="Take it out of the directory, or add it to 'assets': "
                    "`remit package pack --update` does.",
                )
            found[path] = plain_file(directory / path, path)
            actual = f"sha256:{sha256_hex(found[path])}"
            if actual != declared[path]:
                raise PackError(
                    "wrong_hash",
                    f"{path!r} in {directory} has the hash {actual}, the manifest says "
                    f"{declared[path]}.",
                    next_step="Write the file's hash into the manifest if the file is right: "
                    "`remit package pack --update` does.",
                )
    except OSError as error:
        raise PackError(
            "manifest_missing" if not manifest_json else "unreadable",
            f"{error.filename or directory} cannot be read: {error.strerror}.",
            next_step="A package is a directory with a manifest.json that you can read.",
        ) from error
    if missing := sorted(set(declared) - set(found)):
        raise PackError(
            "missing_asset",
            f"{missing[0]!r} is in the manifest, but not in {directory}.",
            next_step="Add the file, or take it out of 'assets'.",
        )
    ordered = sorted(found.items(), key=lambda item: item[0].encode())
    return {MANIFEST_NAME: manifest_json, **dict(ordered)}


def paths_in(directory: Path) -> Iterator[str]:
    """Every path under ``directory`` but those of directories themselves; no link is followed."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with os.scandir(directory / below) as entries:
            for entry in entries:
                path = f"{below}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{path}/")
                else:
                    yield path


def _check_plain(path: Path, name: str) -> None:
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode):
        linked = stat.S_ISLNK(mode)
        what = "a link" if linked else "a directory, device, pipe or socket"
        raise PackError(
            "link" if linked else "not_a_file",
            f"{name!a} is {what}; a package holds only plain files.",
            next_step="Put the file itself in its place.",
        )


def plain_file(path: Path, name: str) -> bytes:
    """A plain file's bytes."""
    _check_plain(path, name)
    # Without following or waiting, should it have been replaced since.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:
        return stream.read()
