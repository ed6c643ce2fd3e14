"""``manifest.json``: what a package is, needs, may do, and holds."""

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
    """Another package that has to be there, in a version that ``version`` allows.

    Attributes:
        version: comparators separated by commas, all of which hold: ``>=1.0.0,<2.0.0``.
    """

    package_id: str
    version: str


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of the package.

    Attributes:
        path: relative to the root, see :func:`remit.packages.path_problem`.
        sha256: ``sha256:`` and 64 lower-case hex digits.
        classification: what the file is: ``contract``, ``prompt_pack``, …
    """

    path: str
    sha256: str
    classification: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of one package.

    Attributes:
        modules: of the runtime, that it governs: ``remit.ledger``.
        supersedes: ids of packages that it takes the place of.
        digest: ``sha256:`` and the SHA-256 of the manifest's canonical JSON (RFC 8785) in hex;
            the way the file is laid out does not matter to it.
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
        """Whether it was proposed by a learner, and holds on top of what other packages brought."""
        return self.package_type == "learned"

    @classmethod
    def parse(cls, data: bytes, source: str = MANIFEST_NAME) -> Manifest:
        """The manifest in a JSON file.

        Args:
            data: the file's bytes: UTF-8 without a byte order mark.
            source: its name, for the errors.

        Raises:
            PackageError: it is not a manifest; the message names the field, and the next step
                says what is expected there.
        """
        return _manifest(read_manifest(data, source))

    @classmethod
    def recorded(cls, data: bytes) -> Manifest:
        """The manifest in bytes that went on record when they had been checked; reads them quickly.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: they are not those of a manifest.
        """
        return _manifest(orjson.loads(data))


_MANIFEST = TypeAdapter(Manifest)


def _manifest(value: Any) -> Manifest:
    digest = f"sha256:{sha256_hex(canonical_json(value))}"
    return _MANIFEST.validate_python({**value, "digest": digest})
