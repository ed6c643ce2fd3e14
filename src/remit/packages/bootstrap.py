"""``CP_BOOTSTRAP.tar.gz``: everything that a new root needs, as one file."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from importlib import resources
from pathlib import Path

from remit.kernel.canonical import sha256_hex
from remit.kernel.errors import RemitError
from remit.kernel.settings import PackageSettings
from remit.packages.admission import IncomingArchive
from remit.packages.archive import canonical_targz, read_archive
from remit.packages.dependencies import in_order
from remit.packages.manifest import Manifest

_TEXTS = ("INSTALL.md", "README.md", "install.sh")
_PROGRAM = "install.sh"
_MODE, _PROGRAM_MODE = 0o644, 0o755
_AT_LEAST = re.compile(r">=\s*(3\.[0-9]+)")


class BootstrapError(RemitError):
    """A bootstrap cannot be made, or not installed."""


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
    packages: tuple[Manifest, ...]


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
    name, data = wheel
    version, python = _metadata(name, data)
    packages = in_install_order(archives, limits)
    files = {text: _filled(text, VERSION=version, PYTHON=python, WHEEL=name) for text in _TEXTS}
    files[name] = data
    files |= {f"packages/{archive}": archives[archive] for archive in packages}
    files = dict(sorted(files.items()))
    manifest = {
        "schema_version": "1.0",
        "remit_version": version,
        "files": [
            {"path": path, "sha256": sha256_hex(content), "bytes": len(content)}
            for path, content in files.items()
        ],
        "packages": [
            {
                "package_id": package.package_id,
                "version": package.version,
                "archive": f"packages/{archive}",
            }
            for archive, package in packages.items()
        ],
    }
    files = {"BOOTSTRAP_MANIFEST.json": f"{json.dumps(manifest, indent=2)}\n".encode(), **files}
    items = (
        (path, content, _PROGRAM_MODE if path == _PROGRAM else _MODE)
        for path, content in files.items()
    )
    return Bundle(canonical_targz(items), version, name, tuple(packages.values()))


def in_install_order(archives: Mapping[str, bytes], limits: PackageSettings) -> dict[str, Manifest]:
    """The packages by file name, each after those that it needs; one order on any machine.

    Args:
        archives: content by file name.
        limits: what reading one may cost.

    Raises:
        BootstrapError: there is none, or a package is there twice.
        PackageError: one is not a package, or they do not have what they need of each other.
    """
    found: dict[str, tuple[str, Manifest]] = {}
    for name, data in sorted(archives.items()):
        manifest = read_archive(io.BytesIO(data), limits).manifest
        other, _ = found.setdefault(manifest.package_id, (name, manifest))
        if other != name:
            raise BootstrapError(
                f"{other} and {name} are both of {manifest.package_id}.",
                next_step="Keep one of them.",
            )
    if not found:
        raise BootstrapError(
            "There are no packages, so there is nothing to install.",
            next_step="Packages are files *.tar.gz; unpack CP_BOOTSTRAP.tar.gz again.",
        )
    return dict(found[name] for name in in_order([each for _, each in found.values()], {}))


def read_bundle(directory: Path, limits: PackageSettings) -> list[IncomingArchive]:
    """The archives in a bootstrap's ``packages/``, each after those that it needs.

    Args:
        limits: what reading one archive may cost.

    Raises:
        BootstrapError: the directory cannot be read or holds no packages.
        PackageError: one is not a package, or they do not have what they need of each other.
    """
    try:
        names = sorted(path for path in directory.iterdir() if path.name.endswith(".tar.gz"))
    except OSError as error:
        raise BootstrapError(
            f"{directory} cannot be read: {error.strerror or error}.",
            next_step="Give the directory packages/ of the unpacked CP_BOOTSTRAP.tar.gz.",
        ) from error
    most = limits.compressed_bytes
    archives = {path.name: IncomingArchive.from_file(path, most) for path in names}
    order = in_install_order({name: each.data for name, each in archives.items()}, limits)
    return [archives[name] for name in order]


def _filled(name: str, **words: str) -> bytes:
    """A text of the distribution with its ``@WORDS@`` in place."""
    text = resources.files("remit").joinpath("assets", "bootstrap", name).read_text("utf-8")
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text.encode()


def _metadata(name: str, wheel: bytes) -> tuple[str, str]:
    """Version of the wheel, and the oldest Python that it runs on."""
    try:
        with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            info = "-".join(name.split("-")[:2])
            headers = BytesHeaderParser().parsebytes(archive.read(f"{info}.dist-info/METADATA"))
        return str(headers["Version"]), str(_AT_LEAST.findall(headers["Requires-Python"])[0])
    except (zipfile.BadZipFile, LookupError, TypeError) as error:
        raise BootstrapError(
            f"{name} does not state its version and the Python that it needs.",
            next_step="Use a wheel made by `remit bootstrap build`.",
        ) from error
