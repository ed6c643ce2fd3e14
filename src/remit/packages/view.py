"""A package as something to look at: its manifest and its files, wherever they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from remit.packages.archive import Archive
from remit.packages.directory import read_directory
from remit.packages.manifest import MANIFEST_NAME, Manifest

__all__ = ["PackageView"]


@dataclass(frozen=True, slots=True)
class PackageView:
    """One version of a package.

    Attributes:
        files: content by path, without the manifest.
    """

    manifest: Manifest
    files: Mapping[str, bytes]

    @classmethod
    def of_archive(cls, archive: Archive) -> Self:
        """What an archive holds."""
        return cls(archive.manifest, archive.files)

    @classmethod
    def of_directory(cls, directory: Path) -> Self:
        """What a package's directory holds.

        Raises:
            ManifestError, PackError: as :func:`remit.packages.pack`.
        """
        files = read_directory(directory)
        manifest = Manifest.parse(files.pop(MANIFEST_NAME), str(directory / MANIFEST_NAME))
        return cls(manifest, files)
