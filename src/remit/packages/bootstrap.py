"""``CP_BOOTSTRAP.tar.gz``: everything that a new root needs, as one file (SPEC 10)."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from email.parser import BytesHeaderParser
from importlib import resources
from pathlib import Path
from typing import Any

from remit.kernel.errors import RemitError
from remit.kernel.settings import PackageSettings
from remit.packages.archive import canonical_targz, read_archive
from remit.packages.dependencies import in_order
from remit.packages.gates.report import GateResult
from remit.packages.manifest import Manifest

__all__ = [
    "BootstrapError",
    "Bundle",
    "Bundled",
    "InstallReport",
    "Receipt",
    "build_bundle",
    "in_install_order",
    "read_bundle",
]

_MANIFEST = "BOOTSTRAP_MANIFEST.json"
_PACKAGES = "packages"
_SCHEMA_VERSION = "1.0"
_TEXTS = ("INSTALL.md", "README.md", "install.sh")
_PROGRAM = "install.sh"
_MODE, _PROGRAM_MODE = 0o644, 0o755
_AT_LEAST = re.compile(r">=\s*(3\.[0-9]+)")


class BootstrapError(RemitError):
    """A bootstrap cannot be made, or not installed."""


@dataclass(frozen=True, slots=True)
class Bundled:
    """A package's archive.

    Attributes:
        archive: its file name.
        data: its bytes.
    """

    archive: str
    manifest: Manifest
    data: bytes


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bootstrap.

    Attributes:
        data: ``CP_BOOTSTRAP.tar.gz``, byte by byte.
        version: of Remit.
        wheel: its file name.
        packages: in the order in which they are installed.
    """

    data: bytes
    version: str
    wheel: str
    packages: tuple[Bundled, ...]

    @property
    def sha256(self) -> str:
        """``sha256:`` and 64 hex digits of the whole."""
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """One package that is installed now.

    Attributes:
        receipt: path of its receipt, relative to the root.
    """

    package_id: str
    version: str
    receipt: str


@dataclass(frozen=True, slots=True)
class InstallReport:
    """The root after the installation."""

    receipts: tuple[Receipt, ...]
    gates: tuple[GateResult, ...]

    @property
    def passed(self) -> bool:
        """Whether something was installed and every gate passed."""
        return bool(self.receipts and self.gates) and all(gate.passed for gate in self.gates)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "passed": self.passed,
            "receipts": [asdict(receipt) for receipt in self.receipts],
            "gates": [
                {
                    "gate": gate.gate,
                    "passed": gate.passed,
                    "message": gate.message,
                    "errors": gate.errors,
                }
                for gate in self.gates
            ],
        }

    def lines(self) -> list[str]:
        """For people: a line for each receipt and each gate, and what is wrong."""
        width = max((len(item.package_id) for item in self.receipts), default=0)
        lines = [
            f"{item.package_id:<{width}}  {item.version}  {item.receipt}" for item in self.receipts
        ]
        for gate in self.gates:
            lines.append(f"{'ok  ' if gate.passed else 'FAIL'}  {gate.gate}: {gate.message}")
            lines += [f"      {error}" for error in gate.errors]
        count = sum(gate.passed for gate in self.gates)
        lines.append(f"{len(self.receipts)} packages installed, gates {count}/{len(self.gates)}")
        return lines


def build_bundle(
    wheel: tuple[str, bytes], archives: Mapping[str, bytes], limits: PackageSettings
) -> Bundle:
    """The bootstrap of one version of Remit: same input, same bytes, on any machine.

    Args:
        wheel: file name and content, see :func:`remit.packages.distribution.repack_wheel`.
        archives: the packages, by file name.
        limits: what reading one of them may cost.

    Raises:
        BootstrapError: the wheel has no metadata that can be used, or there are no packages.
        PackageError: a package is not one, or does not have what it needs.
    """
    name, wheel_data = wheel
    version, python = _metadata(name, wheel_data)
    packages = tuple(in_install_order(archives, limits))
    words = {"VERSION": version, "PYTHON": python, "WHEEL": name}
    files = {text: _filled(text, words) for text in _TEXTS}
    files[name] = wheel_data
    files |= {f"{_PACKAGES}/{item.archive}": item.data for item in packages}
    files = dict(sorted(files.items()))
    manifest = {
        "schema_version": _SCHEMA_VERSION,
        "remit_version": version,
        "files": [
            {"path": path, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
            for path, data in files.items()
        ],
        "packages": [
            {
                "package_id": item.manifest.package_id,
                "version": item.manifest.version,
                "archive": f"{_PACKAGES}/{item.archive}",
            }
            for item in packages
        ],
    }
    files = {_MANIFEST: f"{json.dumps(manifest, indent=2)}\n".encode(), **files}
    items = [
        (path, data, _PROGRAM_MODE if path == _PROGRAM else _MODE) for path, data in files.items()
    ]
    return Bundle(canonical_targz(items), version, name, packages)


def in_install_order(archives: Mapping[str, bytes], limits: PackageSettings) -> list[Bundled]:
    """The packages, each after those that it needs; the same order on any machine.

    Args:
        archives: content by file name.
        limits: what reading one may cost.

    Raises:
        BootstrapError: there is none, or a package is there twice.
        PackageError: one is not a package, or they do not have what they need of each other.
    """
    found: dict[str, Bundled] = {}
    for name, data in sorted(archives.items()):
        manifest = read_archive(io.BytesIO(data), limits).manifest
        if manifest.package_id in found:
            raise BootstrapError(
                f"{found[manifest.package_id].archive} and {name} are both of "
                f"{manifest.package_id}.",
                next_step="Keep one of them.",
            )
        found[manifest.package_id] = Bundled(name, manifest, data)
    if not found:
        raise BootstrapError(
            "There are no packages, so there is nothing to install.",
            next_step="Packages are files *.tar.gz; unpack CP_BOOTSTRAP.tar.gz again.",
        )
    in_order([item.manifest for item in found.values()], {})  # nothing is missing, no circle
    depths: dict[str, int] = {}
    for package_id in found:
        _depth(package_id, found, depths)
    return sorted(found.values(), key=lambda item: (depths[_id(item)], _id(item)))


def read_bundle(directory: Path, limits: PackageSettings) -> list[Path]:
    """The archives in the unpacked ``packages/``, each after those that it needs.

    Args:
        limits: what reading one archive may cost.

    Raises:
        BootstrapError: the directory cannot be read or holds no packages.
        PackageError: one is not a package, or they do not have what they need of each other.
    """
    archives: dict[str, bytes] = {}
    try:
        for path in sorted(directory.iterdir()):
            if path.name.endswith(".tar.gz"):
                with path.open("rb") as stream:  # one byte too many is refused by the reader
                    archives[path.name] = stream.read(limits.compressed_bytes + 1)
    except OSError as error:
        raise BootstrapError(
            f"{error.filename or directory} cannot be read: {error.strerror or error}.",
            next_step="Give the directory packages/ of the unpacked CP_BOOTSTRAP.tar.gz.",
        ) from error
    return [directory / item.archive for item in in_install_order(archives, limits)]


def _id(item: Bundled) -> str:
    return item.manifest.package_id


def _depth(package_id: str, found: Mapping[str, Bundled], depths: dict[str, int]) -> int:
    """How many packages are below this one in its longest chain of dependencies."""
    if package_id not in depths:
        needs: Sequence[str] = [item.package_id for item in found[package_id].manifest.dependencies]
        depths[package_id] = 1 + max((_depth(item, found, depths) for item in needs), default=-1)
    return depths[package_id]


def _filled(name: str, words: Mapping[str, str]) -> bytes:
    """A text of the distribution with its ``@WORDS@`` in place."""
    text = resources.files("remit").joinpath("assets", "bootstrap", name).read_text("utf-8")
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text.encode()


def _metadata(name: str, wheel: bytes) -> tuple[str, str]:
    """Version of the wheel, and the oldest Python that it runs on."""
    try:
        with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            name_ = next(
                item for item in archive.namelist() if item.endswith(".dist-info/METADATA")
            )
            metadata = BytesHeaderParser().parsebytes(archive.read(name_))
        python = _AT_LEAST.search(metadata["Requires-Python"])
        if python is not None and metadata["Version"]:
            return str(metadata["Version"]), python[1]
    except (zipfile.BadZipFile, StopIteration, TypeError):
        pass
    raise BootstrapError(
        f"{name} does not state its version and the Python that it needs.",
        next_step="Use a wheel made by `remit bootstrap build`.",
    )
