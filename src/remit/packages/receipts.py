"""Receipts: what was installed, beside the archive that it came from (SPEC 10).

A receipt follows from the ``INSTALLED`` entry alone, to the byte; gate G5 holds the two together.
"""

from __future__ import annotations

import json

from remit.packages.files import INSTALLED_FOLDER
from remit.packages.registry import InstalledPackage

__all__ = ["archive_path", "envelope_path", "receipt_bytes", "receipt_path"]


def receipt_path(package_id: str) -> str:
    """Where a package's receipt is, relative to the root."""
    return f"{INSTALLED_FOLDER}/{package_id}/receipt.json"


def archive_path(package_id: str, version: str) -> str:
    """Where the archive of an installed version is kept, relative to the root."""
    return f"{INSTALLED_FOLDER}/{package_id}/archives/{version}.tar.gz"


def envelope_path(package_id: str, version: str) -> str:
    """Where its signatures are kept; there is no such file where they were waived."""
    return f"{INSTALLED_FOLDER}/{package_id}/archives/{version}.intoto.json"


def receipt_bytes(package: InstalledPackage) -> bytes:
    """The receipt: JSON, two spaces deep, keys in order."""
    manifest = package.manifest
    receipt = {
        "schema_version": "1.0",
        "package_id": manifest.package_id,
        "version": manifest.version,
        "title": manifest.title,
        "plane_id": manifest.plane_id,
        "layer": manifest.layer,
        "spec_id": manifest.spec_id,
        "framework_id": manifest.framework_id,
        "operation": package.operation,
        "operation_id": package.operation_id,
        "installed_at": package.installed_at,
        "entry_id": package.entry_id,
        "source": package.source,
        "archive_sha256": package.archive_sha256,
        "manifest_sha256": manifest.digest,
        "signature": dict(package.signature),
        "approved_by": package.approved_by,
        "assets": [{"path": one.path, "sha256": one.sha256} for one in manifest.assets],
    }
    return json.dumps(receipt, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"
