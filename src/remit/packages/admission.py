"""An archive that is to be installed, checked as far as it can be by itself (SPEC 10)."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.packages.archive import Archive, ArchiveLimits, read_archive
from remit.packages.errors import PackageError, SignatureError
from remit.packages.manifest import Manifest
from remit.packages.registry import SHIPPED_SOURCE
from remit.packages.trust import TrustPolicy
from remit.packages.verification import check_envelope

if TYPE_CHECKING:
    from remit.packages.shipped import ShippedPackages

__all__ = ["Candidate", "IncomingArchive", "admit"]

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
    def from_file(
        cls, path: Path, limit: int, *, expected_id: str = "", source: str = "archive"
    ) -> IncomingArchive:
        """An archive in a file, with the signatures beside it (``.intoto.json``).

        Args:
            path: the archive.
            limit: most bytes of it.
            expected_id: see the attribute.
            source: see the attribute.

        Raises:
            PackageError: ``unreadable`` or ``archive_too_large``.
        """
        try:
            data = _bytes(path, limit)
            beside = cls.envelope_file(path)
            envelope = _bytes(beside, limit) if beside.is_file() else b""
        except OSError as error:
            raise PackageError(
                "unreadable",
                f"{path} cannot be read: {error.strerror or error}.",
                next_step="Give the path of a package's archive.",
            ) from error
        return cls(data, envelope, source, expected_id)

    @staticmethod
    def envelope_file(archive: Path) -> Path:
        """Where the signatures of an archive are: beside it."""
        return archive.with_name(archive.name.removesuffix(".tar.gz") + _SIGNATURE_SUFFIX)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A package whose archive is sound and whose signatures were checked.

    Attributes:
        signature: as the ``INSTALLED`` entry records it.
    """

    archive: Archive
    envelope: bytes
    signature: Mapping[str, Any]
    source: str

    @property
    def manifest(self) -> Manifest:
        """What it says it is."""
        return self.archive.manifest

    @property
    def ships(self) -> bool:
        """Whether it comes with the distribution."""
        return self.source.startswith(SHIPPED_SOURCE)


def admit(
    incoming: IncomingArchive,
    policy: TrustPolicy,
    limits: ArchiveLimits,
    *,
    dev: bool,
    shipped: ShippedPackages | None = None,
    installed: bool = False,
    threshold: int | None = None,
    envelope_bytes: int | None = None,
) -> Candidate:
    """Check an archive (G0A: declared is actual, hashes) and its signatures.

    Args:
        incoming: what came.
        policy: whose signatures count.
        limits: what the archive may cost.
        dev: let a package pass that is not signed; its record says so. One that is signed has to
            be signed well all the same.
        shipped: what comes with the running distribution, which the root's own key signs.
        installed: it was let in before; only revoked keys count against it now.
        threshold: how many keys have to sign, where that is not what the policy says now.
        envelope_bytes: largest signature file; ``None`` where it was looked at before.

    Raises:
        PackageError: the archive is not a package, or is not safe.
        SignatureError: its signatures do not do.
    """
    archive = read_archive(
        io.BytesIO(incoming.data), limits, expected_id=incoming.expected_id, recorded=installed
    )
    if not incoming.envelope and shipped is not None:
        incoming = shipped.signed(incoming, archive)
    try:
        signed = check_envelope(
            incoming.envelope,
            archive_digest=archive.digest,
            manifest=archive.manifest,
            policy=policy,
            now=datetime.now(UTC),
            installed=installed,
            max_bytes=envelope_bytes,
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
        signature: dict[str, Any] = {
            "waived": True,
            "keyids": [],
            "threshold": 0,
            "envelope_sha256": "",
        }
    else:
        signature = {
            "waived": False,
            "keyids": list(signed.keyids),
            "threshold": signed.threshold,
            "envelope_sha256": signed.envelope_sha256,
        }
    return Candidate(archive, incoming.envelope, signature, incoming.source)


def _bytes(path: Path, limit: int) -> bytes:
    with path.open("rb") as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise PackageError(
            "archive_too_large",
            f"{path} has more than the {limit} bytes allowed.",
            next_step="Raise packages.compressed_bytes if you trust it.",
        )
    return data
