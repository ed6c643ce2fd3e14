"""An archive that is to be installed, checked as far as it can be by itself."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remit.packages.archive import Archive, read_archive
from remit.packages.errors import PackageError, SignatureError
from remit.packages.manifest import Manifest
from remit.packages.registry import SHIPPED_SOURCE, InstalledPackage
from remit.packages.trust import TrustPolicy
from remit.packages.verification import check_envelope

if TYPE_CHECKING:
    from remit.kernel.settings import PackageSettings

_SIGNATURE_SUFFIX = ".intoto.json"


@dataclass(frozen=True, slots=True)
class IncomingArchive:
    """An archive as it came.

    Attributes:
        data: its bytes.
        envelope: its signatures, a DSSE envelope; empty when there are none.
        source: where it came from, for the record.
        expected_id: the package that was asked for; empty when any will do.
    """

    data: bytes
    envelope: bytes = b""
    source: str = "archive"
    expected_id: str = ""

    @classmethod
    def from_file(cls, path: Path, limit: int, *, expected_id: str = "") -> IncomingArchive:
        """An archive in a file, with the signatures beside it (``.intoto.json``).

        Args:
            path: the archive.
            limit: most bytes of it; one more is read, so that the reader refuses it.
            expected_id: see the attribute.

        Raises:
            PackageError: ``unreadable``.
        """
        beside = cls.envelope_file(path)
        try:
            data = _read(path, limit)
            return cls(
                data, _read(beside, limit) if beside.is_file() else b"", expected_id=expected_id
            )
        except OSError as error:
            raise PackageError(
                "unreadable",
                f"{path} cannot be read: {error.strerror or error}.",
                next_step="Give the path of a package's archive.",
            ) from error

    @staticmethod
    def envelope_file(archive: Path) -> Path:
        """Where the signatures of an archive are: beside it."""
        return archive.with_name(archive.name.removesuffix(".tar.gz") + _SIGNATURE_SUFFIX)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A package whose archive is sound and whose signatures were checked.

    Attributes:
        package: as its ``INSTALLED`` entry would record it, without what only the entry says.
    """

    archive: Archive
    envelope: bytes
    package: InstalledPackage

    @property
    def manifest(self) -> Manifest:
        """What it says it is."""
        return self.archive.manifest


def admit(
    incoming: IncomingArchive,
    policy: TrustPolicy,
    limits: PackageSettings,
    *,
    dev: bool,
    shipped: Callable[[IncomingArchive, Archive], IncomingArchive] | None = None,
    installed: bool = False,
    threshold: int | None = None,
) -> Candidate:
    """Check an archive (G0A: declared is actual, hashes) and its signatures.

    Args:
        incoming: what came.
        policy: whose signatures count.
        limits: what the archive and its signatures may cost.
        dev: let a package pass that is not signed; its record says so. One that is signed has to
            be signed well all the same.
        shipped: signs what comes with the running distribution by the root's own key.
        installed: it was let in before; only revoked keys count against it now.
        threshold: how many keys have to sign, where that is not what the policy says now.

    Raises:
        PackageError: the archive is not a package, or is not safe.
        SignatureError: its signatures are not sufficient.
    """
    archive = read_archive(
        io.BytesIO(incoming.data), limits, expected_id=incoming.expected_id, recorded=installed
    )
    if not incoming.envelope and shipped is not None:
        incoming = shipped(incoming, archive)
    try:
        signature = check_envelope(
            incoming.envelope,
            archive_digest=archive.digest,
            manifest=archive.manifest,
            policy=policy,
            installed=installed,
            max_bytes=None if installed else limits.envelope_bytes,
            # What came with the distribution is vouched for by the root alone.
            threshold=1 if incoming.source.startswith(SHIPPED_SOURCE) else threshold,
        )
    except SignatureError as error:
        if error.code != "unsigned":
            raise
        if not dev:
            who = f"{archive.manifest.package_id} {archive.manifest.version}"
            raise SignatureError(
                "unsigned", f"{who} is not signed.", next_step=error.next_step
            ) from error
        signature = {"waived": True, "keyids": [], "threshold": 0, "envelope_sha256": ""}
    package = InstalledPackage(archive.manifest, archive.digest, incoming.source, signature)
    return Candidate(archive, incoming.envelope, package)


def _read(path: Path, limit: int) -> bytes:
    with path.open("rb") as stream:
        return stream.read(limit + 1)
