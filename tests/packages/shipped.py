"""What ships as packages, as the checks see it."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from remit.packages import Framework, InstalledPackage, Manifest, Registry

SHIPPED = Path(str(resources.files("remit").joinpath("assets/packages")))
RECORD = Path(__file__).with_name("shipped_versions.json")
"""Every version of every package that was ever shipped, with the SHA-256 of its archive. Roots have
it installed, so its content never changes again. A version with several digests is from before
this record was kept."""


def read_versions(data: bytes) -> dict[str, dict[str, list[str]]]:
    """Return the digests in a record of versions, keyed by package id and version."""
    read: dict[str, dict[str, list[str]]] = json.loads(data)
    return read


@functools.cache
def manifests() -> Mapping[str, Manifest]:
    found = {}
    for directory in sorted(SHIPPED.iterdir()):
        found[directory.name] = Manifest.parse((directory / "manifest.json").read_bytes())
    return MappingProxyType(found)


@functools.cache
def files() -> Mapping[str, bytes]:
    """Every shipped file by its path in a root."""
    return MappingProxyType(
        {
            asset.path: (SHIPPED / name / asset.path).read_bytes()
            for name, manifest in manifests().items()
            for asset in manifest.assets
        }
    )


class Shipped:
    """The shipped files as the checks read them."""

    def read(self, path: str) -> bytes:
        if path not in files():
            raise FileNotFoundError(path)
        return files()[path]


@functools.cache
def registry() -> Registry:
    return Registry(
        {
            name: InstalledPackage(
                manifest,
                f"sha256:{'0' * 64}",
                "archive",
                {"waived": True, "keyids": [], "threshold": 0, "envelope_sha256": ""},
                "LED-00000000",
            )
            for name, manifest in manifests().items()
        }
    )


def of_kind(kind: str) -> list[tuple[str, str, bytes]]:
    """Package, path and bytes of each shipped file of one classification."""
    return [
        (name, asset.path, files()[asset.path])
        for name, manifest in manifests().items()
        for asset in manifest.assets
        if asset.classification == kind
    ]


def frameworks() -> dict[str, Framework]:
    parsed = [Framework.parse(data, path) for _, path, data in of_kind("framework")]
    return {one.framework_id: one for one in parsed}


def needs(package_id: str) -> set[str]:
    """All packages that one needs, directly or not."""
    found: set[str] = set()
    waiting = [package_id]
    while waiting:
        for dependency in manifests()[waiting.pop()].dependencies:
            if dependency.package_id not in found:
                found.add(dependency.package_id)
                waiting.append(dependency.package_id)
    return found
