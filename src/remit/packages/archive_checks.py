"""Checks of a single archive before its installation: content, hashes and signatures."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remit.packages.archive import Archive, read_archive
from remit.packages.errors import PackageError
from remit.packages.manifest import Manifest
from remit.packages.registry import SHIPPED_SOURCE, InstalledPackage
from remit.packages.signatures import check_envelope
from remit.packages.trust_policy import TrustPolicy

if TYPE_CHECKING:
    from remit.kernel.settings import PackageSettings

_SIGNATURE_SUFFIX = ".intoto.json"


@dataclass(frozen=True, slots=True)
class IncomingArchive:
    """An archive to install, as received and not checked; immutable.

    Attributes:
        data: the archive's bytes.
        envelope: its signatures, a DSSE envelope; empty if there are none.
        source: the origin, for the ledger: ``archive``, ``proposal ID``, ``index NAME``, or
            ``distribution remit VERSION`` for a package that Remit ships.
        expected_id: the requested package id; empty to accept any.
    """

    data: bytes
    envelope: bytes = b""
    source: str = "archive"
    expected_id: str = ""

    @classmethod
    def from_file(cls, path: Path, limit: int, *, expected_id: str = "") -> IncomingArchive:
        """Read an archive from a file, with the signatures next to it (``.intoto.json``) if they
        exist.

        Nothing is verified. The source is ``archive``.

        Args:
            path: the archive.
            limit: most bytes of each file. One byte more is read, so that :func:`admit` refuses a
                larger file.
            expected_id: the requested package id; empty to accept any.

        Raises:
            PackageError: ``unreadable``: the archive or its signatures cannot be read.
        """
        envelope = cls.envelope_file(path)
        try:
            data = _read(path, limit)
            return cls(
                data, _read(envelope, limit) if envelope.is_file() else b"", expected_id=expected_id
            )
        except OSError as error:
            raise PackageError(
                "unreadable",
                f"{path} cannot be read: {error.strerror or error}.",
                next_step="Give the path of a package's archive.",
            ) from error

    @staticmethod
    def envelope_file(archive: Path) -> Path:
        """Return the path of an archive's signatures, which is next to the archive.

        The ending ``.tar.gz`` becomes ``.intoto.json``, which is appended to any other name. The
        file need not exist.

        Args:
            archive: path of the archive.
        """
        return archive.with_name(archive.name.removesuffix(".tar.gz") + _SIGNATURE_SUFFIX)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A package whose archive and signatures :func:`admit` has checked; immutable.

    Attributes:
        archive: the package's files and manifest.
        envelope: its signatures; empty if they were waived.
        package: the package as its ``INSTALLED`` entry would record it, without the fields that
            only the entry gives.
    """

    archive: Archive
    envelope: bytes
    package: InstalledPackage

    @property
    def manifest(self) -> Manifest:
        """The manifest of the archive."""
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
    """Check the files of an archive against its manifest (gate G0A), and its signatures.

    Writes nothing. Dependencies, permissions and the root are not checked.

    Args:
        incoming: the archive.
        policy: the trusted keys.
        limits: limits of the archive and of its signatures.
        dev: True to accept a package without signatures, which is recorded as waived. Signatures
            that exist must be valid all the same.
        shipped: returns an archive signed with the root's own key if the running distribution ships
            it, and any other archive unchanged; called for an archive without signatures. Its
            errors are raised. ``None`` for none.
        installed: True if the package was installed before: signatures of keys that were retired
            since are valid, expiry and the size of the signatures are not checked again, and the
            archive keeps its bytes as ``recorded``.
        threshold: the number of keys that must sign; ``None`` for the number in the policy. One
            signature is enough for a package that came with the distribution.

    Returns:
        The checked package. Its signature record is that of :func:`check_envelope`, or, if the
        signatures were waived, ``waived`` is True, ``keyids`` and ``envelope_sha256`` are empty and
        ``threshold`` is 0.

    Raises:
        PackageError: an error of :func:`read_archive` or :func:`check_envelope`;
            ``path_too_long``: a path does not fit into the canonical archive; ``unsigned``: there
            are no signatures, and ``dev`` is False.
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
            # Only the root's own key signs packages of the distribution.
            threshold=1 if incoming.source.startswith(SHIPPED_SOURCE) else threshold,
        )
    except PackageError as error:
        if error.code != "unsigned":
            raise
        if not dev:
            who = f"{archive.manifest.package_id} {archive.manifest.version}"
            raise PackageError(
                "unsigned", f"{who} is not signed.", next_step=error.next_step
            ) from error
        signature = {"waived": True, "keyids": [], "threshold": 0, "envelope_sha256": ""}
    package = InstalledPackage(archive.manifest, archive.digest, incoming.source, signature)
    return Candidate(archive, incoming.envelope, package)


def _read(path: Path, limit: int) -> bytes:
    with path.open("rb") as stream:
        return stream.read(limit + 1)
