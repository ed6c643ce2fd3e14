"""What an index may cost, and how long what it signs holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from remit.kernel.settings import PackageSettings

__all__ = ["IndexLimits", "Lifetimes"]


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """What a client spends on an index at most.

    Attributes:
        metadata_bytes: of one metadata file, whatever length the index states for it.
        archive_bytes: of one package's archive or signature.
        root_rotations: new versions of the root metadata followed in one refresh.
        redirects: followed for one file.
        timeout_s: seconds that a server may be silent.
        download_s: seconds for one file as a whole.
        lock_timeout_s: seconds to wait for another process that uses the same index.
    """

    metadata_bytes: int
    archive_bytes: int
    root_rotations: int
    redirects: int
    timeout_s: float
    download_s: float
    lock_timeout_s: float

    @classmethod
    def from_settings(cls, settings: PackageSettings) -> Self:
        """The limits that ``[packages]`` and ``[packages.index]`` set."""
        index = settings.index
        return cls(
            metadata_bytes=index.metadata_bytes,
            archive_bytes=settings.compressed_bytes,
            root_rotations=index.root_rotations,
            redirects=index.redirects,
            timeout_s=index.timeout_s,
            download_s=index.download_s,
            lock_timeout_s=settings.lock_timeout_s,
        )


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Days after which what a publisher signed no longer counts (TUF 4.3: ``expires``).

    Attributes:
        timestamp: the longest time for which somebody in between can hide news from clients.
    """

    root: int
    targets: int
    snapshot: int
    timestamp: int

    @classmethod
    def from_settings(cls, settings: PackageSettings) -> Self:
        """The lifetimes that ``[packages.index]`` sets."""
        index = settings.index
        return cls(
            root=index.root_days,
            targets=index.targets_days,
            snapshot=index.snapshot_days,
            timestamp=index.timestamp_days,
        )
