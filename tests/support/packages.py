"""Brings files into a root the way that packages do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from remit.kernel.canonical import sha256_hex
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.ledger import open_root_ledger
from remit.packages import PLACES, IncomingArchive, InstalledPackage, pack
from remit.runtime import package_manager
from remit.runtime.state_tables import check_state


def lay_out(root: Root) -> None:
    """The shipped contracts and packs as plain files, for a loader that asks no registry."""
    root.create()
    for package in resources.files("remit").joinpath("assets/packages").iterdir():
        shipped = Path(str(package)) / "HO1"
        if shipped.is_dir():
            shutil.copytree(shipped, root.tier("ho1"), dirs_exist_ok=True)


def manifest_of(
    files: Mapping[str, bytes], package_id: str = "PKG-TEST-001", **changes: Any
) -> dict[str, Any]:
    """A manifest that declares ``files``; of a policy package, as these may be anywhere in HOT."""
    hot = any(path.startswith("HOT/") for path in files)
    return {
        "package_id": package_id,
        "version": "1.0.0",
        "schema_version": "1.0",
        "title": "For a test",
        "package_type": "policy" if hot else "agent",
        "spec_id": "SPEC-POLICY-001" if hot else "SPEC-AGENT-001",
        "framework_id": "FMWK-POLICY-001" if hot else "FMWK-AGENT-001",
        "plane_id": "hot" if hot else "ho2",
        "layer": 9,
        "dependencies": [],
        "permissions": {},
        "assets": [
            {
                "path": path,
                "sha256": f"sha256:{sha256_hex(data)}",
                "classification": next(
                    (kind for place, kind in PLACES.items() if path.startswith(place)), "document"
                ),
            }
            for path, data in files.items()
        ],
        **changes,
    }


def archive_of(directory: Path, files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> bytes:
    """The archive of these files, by way of a new ``directory``."""
    for path, data in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
    directory.mkdir(exist_ok=True)
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return pack(directory)


def bring(
    root: Path, scratch: Path, files: Mapping[str, bytes], package_id: str = "PKG-TEST-001",
    **changes: Any,
) -> InstalledPackage:  # fmt: skip
    """Install ``files`` in a package of their own."""
    manifest = manifest_of(files, package_id, **changes)
    data = archive_of(scratch / f"{package_id}-{manifest['version']}", files, manifest)
    place = Root(root)
    loaded = load_settings(place.config)
    with open_root_ledger(place, loaded.settings.ledger, checks=(check_state,)) as ledger:
        manager = package_manager(place, ledger, loaded, by="test")
        return manager.install([IncomingArchive(data)], dev=True, approve=True)[0]
