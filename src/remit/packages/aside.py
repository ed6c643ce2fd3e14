"""A root of a version before packages: what lies in the way of shipped files is kept elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path

from remit.packages.errors import PackageError
from remit.packages.files import check_folders
from remit.packages.manifest import MANIFEST_NAME

__all__ = ["ASIDE_FOLDER", "set_aside", "shipped_files"]

ASIDE_FOLDER = "before-packages"


def shipped_files() -> Iterator[tuple[str, bytes]]:
    """Path and content of every file that comes with Remit."""
    with resources.as_file(resources.files("remit").joinpath("assets/packages")) as folder:
        for package in sorted(folder.iterdir()):
            for file in sorted(package.rglob("*")):
                path = file.relative_to(package).as_posix()
                if file.is_file() and path != MANIFEST_NAME:
                    yield path, file.read_bytes()


def set_aside(root: Path, files: Iterable[tuple[str, bytes]]) -> list[str]:
    """Move files that are in the way of others below ``before-packages/``; none is lost.

    Only for a root in which nothing was ever installed.

    Args:
        root: the root's directory.
        files: path and content of what is to be installed.

    Returns:
        Paths of what was moved.

    Raises:
        PackageError: ``unwritable``, or ``linked_folder``.
    """
    moved = []
    try:
        for path, data in files:
            check_folders(root, path)
            file = root / path
            if not os.path.lexists(file) or (not file.is_symlink() and file.read_bytes() == data):
                continue
            target = root / ASIDE_FOLDER / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                continue  # an earlier try; installing says that the file is in the way
            os.replace(file, target)
            moved.append(path)
    except OSError as error:
        raise PackageError(
            "unwritable",
            f"{error.filename or root} cannot be moved: {error.strerror or error}.",
            next_step="Make the root writable for this user.",
        ) from error
    return moved
