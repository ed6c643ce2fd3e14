"""``manifest.json``: identity, dependencies, permissions and files of a package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import TypeAdapter

from remit.kernel.canonical import canonical_json, sha256_hex
from remit.packages.manifest_file import read_manifest
from remit.packages.paths import MANIFEST_NAME
from remit.packages.permissions import Permissions

__all__ = ["MANIFEST_NAME", "Asset", "Dependency", "Manifest", "Permissions"]


@dataclass(frozen=True, slots=True)
class Dependency:
    """Another package that must be installed.

    Attributes:
        package_id: the other package.
        version: comparators separated by commas, all of which must hold: ``>=1.0.0,<2.0.0``.
    """

    package_id: str
    version: str


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of a package.

    Attributes:
        path: relative to the root; see :func:`remit.packages.path_problem`.
        sha256: ``sha256:`` and 64 lower-case hex digits.
        classification: the kind of file: ``contract``, ``prompt_pack``, …
    """

    path: str
    sha256: str
    classification: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of one package.

    Attributes:
        modules: dotted names of the runtime's modules that the package governs: ``remit.ledger``.
        supersedes: ids of packages that this one replaces.
        digest: ``sha256:`` and the SHA-256 of the manifest's canonical JSON (RFC 8785) in hex,
            which does not depend on the file's layout.
    """

    package_id: str
    version: str
    schema_version: str
    title: str
    package_type: str
    spec_id: str
    framework_id: str
    plane_id: str
    layer: int
    dependencies: tuple[Dependency, ...]
    permissions: Permissions
    assets: tuple[Asset, ...]
    modules: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()
    digest: str = ""

    @property
    def learned(self) -> bool:
        """True if a learner proposed the package, which changes content of other packages."""
        return self.package_type == "learned"

    @classmethod
    def parse(cls, data: bytes, source: str = MANIFEST_NAME) -> Manifest:
        """Return the manifest in a JSON file.

        Args:
            data: the file's bytes: UTF-8 without a byte order mark.
            source: the file's name, for errors.

        Raises:
            PackageError: the file is not a manifest. The message names the field, and the next step
                the expected value.
        """
        return _manifest(read_manifest(data, source))

    @classmethod
    def recorded(cls, data: bytes) -> Manifest:
        """Return the manifest in bytes that were checked before they were recorded; reads them
        quickly.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: the bytes are not a manifest.
        """
        return _manifest(orjson.loads(data))


_MANIFEST = TypeAdapter(Manifest)


def _manifest(value: Any) -> Manifest:
    digest = f"sha256:{sha256_hex(canonical_json(value))}"
    return _MANIFEST.validate_python({**value, "digest": digest})
