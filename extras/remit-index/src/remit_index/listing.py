"""Which targets of an index are packages.

A target is a file that an index vouches for (TUF 4.5): ``packages/PKG-X-001/1.0.0.tar.gz``, and
beside it ``packages/PKG-X-001/1.0.0.intoto.json`` when the package is signed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuf.api.metadata import TargetFile

from remit.packages import precedence

ARCHIVE = "tar.gz"
ENVELOPE = "intoto.json"

_PATH = re.compile(r"packages/(PKG-[A-Z0-9]+(?:-[A-Z0-9]+)+)/([0-9][0-9A-Za-z.+-]{0,99})\.tar\.gz")
_HEX = re.compile("[0-9a-f]{64}")


def target_path(package_id: str, version: str, ending: str) -> str:
    """The path of a package's :data:`ARCHIVE` or :data:`ENVELOPE` among an index's targets."""
    return f"packages/{package_id}/{version}.{ending}"


@dataclass(frozen=True, slots=True)
class Listed:
    """One version of a package as an index lists it.

    Attributes:
        title: from its manifest when it was published; empty when the index has none.
        digest: ``sha256:`` and the archive's SHA-256 in hex.
        length: of the archive, in bytes.
        signed: whether the index has a signature for it; the root decides whose counts.
        manifest_sha256: as ``title``; ``sha256:…``.
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
        match = _PATH.fullmatch(path)
        digest = target.hashes.get("sha256", "")
        if match is None or not _HEX.fullmatch(digest):
            continue
        package_id, version = match.groups()
        try:
            precedence(version)
        except ValueError:
            continue
        custom: Mapping[str, Any] = target.custom if isinstance(target.custom, dict) else {}
        title, manifest = custom.get("title"), str(custom.get("manifest_sha256"))
        found.setdefault(package_id, []).append(
            Listed(
                package_id=package_id,
                version=version,
                title=title if isinstance(title, str) else "",
                digest=f"sha256:{digest}",
                length=target.length,
                signed=target_path(package_id, version, ENVELOPE) in targets,
                manifest_sha256=manifest
                if _HEX.fullmatch(manifest.removeprefix("sha256:"))
                else "",
            )
        )
    for versions in found.values():
        versions.sort(key=lambda item: (precedence(item.version), item.version), reverse=True)
    return dict(sorted(found.items()))
