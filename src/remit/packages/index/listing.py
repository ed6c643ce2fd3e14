"""Where a package's files are in an index, and what the index says of them.

A target is a file that an index vouches for (TUF 4.5): ``packages/PKG-X-001/1.0.0.tar.gz``, and
beside it ``packages/PKG-X-001/1.0.0.intoto.json`` when the package is signed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tuf.api.metadata import TargetFile

from remit.kernel.settings import PackageSettings
from remit.packages.archive import ArchiveLimits, read_archive
from remit.packages.errors import PackageIndexError
from remit.packages.signing import read_envelope, read_statement
from remit.packages.versions import precedence

__all__ = ["ARCHIVE", "ENVELOPE", "Listed", "list_packages", "package_targets", "target_path"]

ARCHIVE = "tar.gz"
ENVELOPE = "intoto.json"

_ID = r"PKG-[A-Z0-9]+(?:-[A-Z0-9]+)*-[0-9]{3}"
_NUMBER = r"(?:0|[1-9][0-9]{0,17})"
_PRE = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PRE})?(?:\+{_PRE})?"
_ARCHIVE_PATH = re.compile(rf"packages/({_ID})/({_VERSION})\.tar\.gz")
_HEX = re.compile("[0-9a-f]{64}")
_DIGEST = re.compile("sha256:[0-9a-f]{64}")


def target_path(package_id: str, version: str, ending: str) -> str:
    """The path of a package's :data:`ARCHIVE` or :data:`ENVELOPE` among an index's targets."""
    return f"packages/{package_id}/{version}.{ending}"


@dataclass(frozen=True, slots=True)
class Listed:
    """One version of a package as an index lists it.

    Attributes:
        digest: ``sha256:`` and the archive's SHA-256 in hex.
        length: of the archive, in bytes.
        signed: whether the index has a signature for it; the root decides whose counts.
        title: from its manifest when it was published; empty when the index has none.
        manifest_sha256: likewise, ``sha256:…``.
    """

    package_id: str
    version: str
    title: str
    digest: str
    length: int
    signed: bool
    manifest_sha256: str


def list_packages(targets: Mapping[str, TargetFile]) -> dict[str, list[Listed]]:
    """The packages among an index's targets by id, the newest version of each first.

    Targets that are no packages, or come without a SHA-256, are left out.
    """
    found: dict[str, list[Listed]] = {}
    for path, target in targets.items():
        match = _ARCHIVE_PATH.fullmatch(path)
        digest = target.hashes.get("sha256", "")
        if match is None or not _HEX.fullmatch(digest):
            continue
        package_id, version = match.groups()
        custom = target.custom if isinstance(target.custom, dict) else {}
        title, manifest = custom.get("title"), custom.get("manifest_sha256")
        found.setdefault(package_id, []).append(
            Listed(
                package_id=package_id,
                version=version,
                title=title if isinstance(title, str) else "",
                digest=f"sha256:{digest}",
                length=target.length,
                signed=target_path(package_id, version, ENVELOPE) in targets,
                manifest_sha256=(
                    manifest if isinstance(manifest, str) and _DIGEST.fullmatch(manifest) else ""
                ),
            )
        )
    for versions in found.values():
        versions.sort(key=lambda item: (precedence(item.version), item.version), reverse=True)
    return dict(sorted(found.items()))


def package_targets(
    archive: Path, envelope: Path | None, settings: PackageSettings
) -> tuple[str, str, list[tuple[TargetFile, bytes]]]:
    """The id and version of a package to be published, and its targets with their bytes.

    Raises:
        ArchiveError, ManifestError, SignatureError: the files are no package, or no signature.
        PackageIndexError: ``index_mixed``: the signature is of another archive.
    """
    with archive.open("rb") as file:
        data = file.read(settings.compressed_bytes + 1)
    found = read_archive(io.BytesIO(data), ArchiveLimits.from_settings(settings))
    manifest = found.manifest
    files = {ARCHIVE: found.data}
    if envelope is not None:
        with envelope.open("rb") as file:
            signature = file.read(settings.envelope_bytes + 1)
        signed = read_envelope(signature, settings.envelope_bytes)
        if read_statement(signed.payload).archive_digest != found.digest:
            raise PackageIndexError(
                "index_mixed",
                f"The signature {envelope} is of another archive than {archive}.",
                next_step="Sign the archive that you publish: `remit package sign`.",
            )
        files[ENVELOPE] = signature
    targets = []
    for ending, content in files.items():
        path = target_path(manifest.package_id, manifest.version, ending)
        target = TargetFile.from_data(path, content, ["sha256"])
        target.unrecognized_fields["custom"] = {
            "package_id": manifest.package_id,
            "version": manifest.version,
            "title": manifest.title,
            "manifest_sha256": manifest.digest,
        }
        targets.append((target, content))
    return manifest.package_id, manifest.version, targets
