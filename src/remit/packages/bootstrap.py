"""``CP_BOOTSTRAP.tar.gz``: one file with everything that a new root needs."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping
from email.parser import BytesHeaderParser
from importlib import resources
from pathlib import Path
from typing import Any

from remit.kernel.canonical import sha256_hex
from remit.kernel.settings import PackageSettings
from remit.packages.archive import canonical_targz, read_archive
from remit.packages.archive_checks import IncomingArchive
from remit.packages.dependencies import in_order
from remit.packages.errors import PackageError
from remit.packages.manifest import Manifest

_TEXTS = ("INSTALL.md", "README.md", "install.sh")
_PROGRAM = "install.sh"
_MODE, _PROGRAM_MODE = 0o644, 0o755
_OLDEST_PYTHON = re.compile(r">=\s*(3\.[0-9]+)")


def build_bundle(
    wheel: tuple[str, bytes], archives: Mapping[str, bytes], limits: PackageSettings
) -> tuple[bytes, dict[str, Any]]:
    """Return the bootstrap of one version of Remit: same input, same bytes, on any machine.

    Writes no file. The archive holds the wheel, the packages without signatures, the install script
    and texts, and a manifest with their hashes.

    Args:
        wheel: file name and content, from :func:`remit.packages.distribution.repack_wheel`.
        archives: the packages' archives, by file name.
        limits: limits for reading one archive.

    Returns:
        The bytes of ``CP_BOOTSTRAP.tar.gz``, and its ``BOOTSTRAP_MANIFEST.json`` as a value:
        ``schema_version``, ``remit_version``, ``files`` (``path``, ``sha256`` in bare hex,
        ``bytes``) sorted by path, without the manifest itself, and ``packages`` (``package_id``,
        ``version``, ``archive``) in the order of installation.

    Raises:
        PackageError: ``bad_wheel``: the wheel is no ZIP file, lacks the metadata of its name and
            version, or states no oldest Python (``>=3.N``); ``path_too_long``: a file name is too
            long; or an error of :func:`in_install_order`.
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
    return canonical_targz(items), manifest


def in_install_order(archives: Mapping[str, bytes], limits: PackageSettings) -> dict[str, Manifest]:
    """Return manifests by file name, each package after its dependencies; the same everywhere.

    Signatures are not checked.

    Args:
        archives: content by file name.
        limits: limits for reading one archive.

    Returns:
        Manifests by file name; packages that do not depend on each other are in a fixed order.

    Raises:
        PackageError: ``no_packages``: ``archives`` is empty; ``offered_twice``: two archives have
            the same package id; an error of :func:`read_archive`; ``missing_dependency``: a needed
            package is not among them; ``dependency_version``: it has a version outside the range;
            ``dependency_cycle``: packages need each other in a circle; ``superseded``: one of them
            replaces another.
    """
    found: dict[str, tuple[str, Manifest]] = {}
    for name, data in sorted(archives.items()):
        manifest = read_archive(io.BytesIO(data), limits).manifest
        other, _ = found.setdefault(manifest.package_id, (name, manifest))
        if other != name:
            raise PackageError(
                "offered_twice",
                f"Both {other} and {name} contain {manifest.package_id}.",
                next_step="Keep one of them.",
            )
    if not found:
        raise PackageError(
            "no_packages",
            "No packages were found, so nothing was installed.",
            next_step="Packages are *.tar.gz files; unpack CP_BOOTSTRAP.tar.gz again.",
        )
    return dict(found[name] for name in in_order([each for _, each in found.values()], {}))


def read_bundle(directory: Path, limits: PackageSettings) -> list[IncomingArchive]:
    """Return the archives in a bootstrap's ``packages/``, each after its dependencies.

    Files without the ending ``.tar.gz`` are ignored. Signatures are read if they exist, and not
    verified.

    Args:
        directory: the folder ``packages/`` of the unpacked bootstrap.
        limits: limits for reading one archive.

    Raises:
        PackageError: ``unreadable``: the directory or an archive cannot be read; or an error of
            :func:`in_install_order`.
    """
    try:
        names = sorted(path for path in directory.iterdir() if path.name.endswith(".tar.gz"))
    except OSError as error:
        raise PackageError(
            "unreadable",
            f"{directory} cannot be read: {error.strerror or error}.",
            next_step="Give the directory packages/ of the unpacked CP_BOOTSTRAP.tar.gz.",
        ) from error
    limit = limits.compressed_bytes
    archives = {path.name: IncomingArchive.from_file(path, limit) for path in names}
    order = in_install_order({name: each.data for name, each in archives.items()}, limits)
    return [archives[name] for name in order]


def _filled(name: str, **words: str) -> bytes:
    """Return a text of the distribution with its ``@WORDS@`` replaced."""
    text = resources.files("remit").joinpath("assets", "bootstrap", name).read_text("utf-8")
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text.encode()


def _metadata(name: str, wheel: bytes) -> tuple[str, str]:
    """Return the version of the wheel and the oldest Python that the wheel supports."""
    try:
        with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            info = "-".join(name.split("-")[:2])
            headers = BytesHeaderParser().parsebytes(archive.read(f"{info}.dist-info/METADATA"))
        return str(headers["Version"]), str(_OLDEST_PYTHON.findall(headers["Requires-Python"])[0])
    except (zipfile.BadZipFile, LookupError, TypeError) as error:
        raise PackageError(
            "bad_wheel",
            f"{name} does not state its version and the Python that it needs.",
            next_step="Use a wheel made by `remit bootstrap build`.",
        ) from error
