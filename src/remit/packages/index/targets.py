"""Where a package's files lie in an index, and what is said of them there.

A target is a file that an index vouches for (TUF 4.5): ``packages/PKG-X-001/1.0.0.tar.gz``, and
beside it ``packages/PKG-X-001/1.0.0.intoto.json`` when the package is signed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tuf.api.metadata import TargetFile

from remit.packages.versions import precedence

__all__ = ["ARCHIVE", "ENVELOPE", "Listed", "listed_in", "target_path"]

ARCHIVE = "tar.gz"
ENVELOPE = "intoto.json"

_ID = r"PKG-[A-Z0-9]+(?:-[A-Z0-9]+)*-[0-9]{3}"
_NUMBER = r"(?:0|[1-9][0-9]{0,17})"
_PRE = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PRE})?(?:\+{_PRE})?"
_ARCHIVE_PATH = re.compile(rf"packages/({_ID})/({_VERSION})\.tar\.gz")
_SHA256 = re.compile("[0-9a-f]{64}")
_PREFIXED = re.compile("sha256:[0-9a-f]{64}")


def target_path(package_id: str, version: str, ending: str) -> str:
    """The path of a package's :data:`ARCHIVE` or :data:`ENVELOPE` among an index's targets."""
    return f"packages/{package_id}/{version}.{ending}"


@dataclass(frozen=True, slots=True)
class Listed:
    """One version of a package as an index lists it.

    Attributes:
        digest: ``sha256:`` and the archive's SHA-256 in hex.
        length: of the archive, in bytes.
        signed: whether a signature lies beside it; whose counts is the root's to say.
        title: as its manifest gave it when it was published; empty when the index says nothing.
        manifest_sha256: likewise, ``sha256:…``.
    """

    package_id: str
    version: str
    title: str
    digest: str
    length: int
    signed: bool
    manifest_sha256: str


def listed_in(targets: Mapping[str, TargetFile]) -> dict[str, list[Listed]]:
    """The packages among an index's targets by id, the newest version of each first.

    The path says which package and version a file is; targets that are no packages, or come
    without a SHA-256, are left out.
    """
    found: dict[str, list[Listed]] = {}
    for path, target in targets.items():
        named = _ARCHIVE_PATH.fullmatch(path)
        digest = target.hashes.get("sha256", "")
        if named is None or not _SHA256.fullmatch(digest):
            continue
        package_id, version = named.groups()
        said = target.custom if isinstance(target.custom, dict) else {}
        title, manifest = said.get("title"), said.get("manifest_sha256")
        found.setdefault(package_id, []).append(
            Listed(
                package_id=package_id,
                version=version,
                title=title if isinstance(title, str) else "",
                digest=f"sha256:{digest}",
                length=target.length,
                signed=target_path(package_id, version, ENVELOPE) in targets,
                manifest_sha256=(
                    manifest if isinstance(manifest, str) and _PREFIXED.fullmatch(manifest) else ""
                ),
            )
        )
    for versions in found.values():
        versions.sort(key=lambda one: (precedence(one.version), one.version), reverse=True)
    return dict(sorted(found.items()))
