"""What reading an archive may cost."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from remit.kernel.settings import PackageSettings

__all__ = ["ArchiveLimits"]


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What an archive may cost before it is known to be a package.

    Attributes:
        compressed_bytes: of the archive as it came.
        unpacked_bytes: of the tar archive in it, headers and all.
        ratio: unpacked bytes for each byte of the archive.
        files: with ``manifest.json``.
        file_bytes: of one file.
        manifest_bytes: of ``manifest.json``.
        path_bytes: of one path, in UTF-8.
    """

    compressed_bytes: int
    unpacked_bytes: int
    ratio: int
    files: int
    file_bytes: int
    manifest_bytes: int
    path_bytes: int

    @classmethod
    def from_settings(cls, settings: PackageSettings) -> Self:
        """The limits that ``[packages]`` sets."""
        return cls(**{one.name: getattr(settings, one.name) for one in fields(cls)})
