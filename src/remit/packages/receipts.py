"""Receipts: what was installed, beside the archive that it came from (SPEC 10).

A receipt follows from the ``INSTALLED`` entry alone, to the byte; gate G5 compares the two.
"""

from __future__ import annotations

import json

from remit.packages.files import INSTALLED_FOLDER
from remit.packages.registry import InstalledPackage


def receipt_path(package_id: str) -> str:
    """Where a package's receipt is, relative to the root."""
    return f"{INSTALLED_FOLDER}/{package_id}/receipt.json"


def archive_path(package: InstalledPackage) -> str:
    """Where the archive of an installed version is kept, relative to the root."""
    return f"{INSTALLED_FOLDER}/{package.package_id}/archives/{package.version}.tar.gz"


def envelope_path(package: InstalledPackage) -> str:
    """Where its signatures are kept; there is no such file where they were waived."""
    return f"{INSTALLED_FOLDER}/{package.package_id}/archives/{package.version}.intoto.json"


def receipt_bytes(package: InstalledPackage) -> bytes:
    """The receipt: JSON, two spaces deep, keys in order."""
    manifest = package.manifest
    of_manifest = (
        "package_id", "version", "title", "plane_id", "layer", "spec_id", "framework_id",
    )  # fmt: skip
    of_package = (
        "operation", "operation_id", "installed_at", "entry_id", "source", "archive_sha256",
        "approved_by",
    )  # fmt: skip
    receipt = {
        "schema_version": "1.0",
        **{name: getattr(manifest, name) for name in of_manifest},
        **{name: getattr(package, name) for name in of_package},
        "manifest_sha256": manifest.digest,
        "signature": dict(package.signature),
        "assets": [{"path": asset.path, "sha256": asset.sha256} for asset in manifest.assets],
    }
    return json.dumps(receipt, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"
