"""Packages: data that shapes agents, declared file by file (SPEC 10).

So far the manifest and the archive: what a package says it is, and how it travels.
"""

from remit.packages.archive import Archive, ArchiveLimits, pack, read_archive, write_archive
from remit.packages.errors import ArchiveError, ManifestError, PackageError, PackError
from remit.packages.manifest import (
    Asset,
    Dependency,
    Manifest,
    Permissions,
    in_range,
    path_problem,
)

__all__ = [
    "Archive",
    "ArchiveError",
    "ArchiveLimits",
    "Asset",
    "Dependency",
    "Manifest",
    "ManifestError",
    "PackError",
    "PackageError",
    "Permissions",
    "in_range",
    "pack",
    "path_problem",
    "read_archive",
    "write_archive",
]
