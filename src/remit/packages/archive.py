"""A package as one file: a gzip-compressed ustar archive with one way of writing it (SPEC 10).

Writing is in :mod:`remit.packages.ustar` and :mod:`remit.packages.gzipping`, reading in
:mod:`remit.packages.tar_reader`.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from remit.kernel.canonical import sha256_hex
from remit.packages.directory import read_directory
from remit.packages.limits import ArchiveLimits
from remit.packages.manifest import MANIFEST_NAME, Manifest
from remit.packages.paths import folded
from remit.packages.tar_reader import CHUNK, TarReader, refuse
from remit.packages.ustar import stored_targz

__all__ = ["Archive", "ArchiveLimits", "pack", "read_archive", "write_archive"]

_MODE = 0o644  # of every file, a constant of the format


@dataclass(frozen=True, slots=True)
class Archive:
    """A package whose every file is what its manifest says.

    Attributes:
        files: content by path, without the manifest, in the order of the archive.
        manifest_json: the manifest's bytes as they came.
        digest: ``sha256:`` and the SHA-256 of the whole archive in hex; what a signature is over.
    """

    manifest: Manifest
    files: Mapping[str, bytes]
    digest: str
    manifest_json: bytes


def pack(directory: Path) -> bytes:
    """The package in ``directory`` as an archive: same content, same bytes, on any machine.

    Raises:
        ManifestError: ``manifest.json`` is not a manifest.
        PackError: the directory holds anything but what the manifest declares; names the file.
    """
    stream = io.BytesIO()
    write_archive(directory, stream)
    return stream.getvalue()


def write_archive(directory: Path, stream: BinaryIO) -> str:
    """Writes what :func:`pack` returns to ``stream``.

    Nothing is written before the whole directory has been checked.

    Returns:
        The archive's digest, ``sha256:`` and 64 hex digits.

    Raises:
        ManifestError, PackError: as :func:`pack`.
    """
    content = read_directory(directory)
    digest = hashlib.sha256()
    for piece in stored_targz((name, data, _MODE) for name, data in content.items()):
        digest.update(piece)
        stream.write(piece)
    return f"sha256:{digest.hexdigest()}"


def read_archive(
    stream: BinaryIO, limits: ArchiveLimits, *, expected_id: str | None = None
) -> Archive:
    """The package in an archive, verified whole; nothing is written anywhere.

    Memory: the archive's own bytes and those of the files it declares, both within ``limits``.

    Args:
        expected_id: the ``package_id`` that was asked for.

    Raises:
        ArchiveError: it is not a package, is not safe, or is beyond ``limits``.
        ManifestError: its manifest is not one.
    """
    data = _read(stream, limits)
    tar = TarReader(data, limits)
    first = tar.member()
    if first is None:
        refuse("manifest_missing", "The archive is empty: there is no manifest.json.")
    name, size = first
    if name != MANIFEST_NAME:
        refuse(
            "manifest_not_first",
            f"The archive begins with {name!r}; manifest.json is missing or comes later.",
        )
    if size > limits.manifest_bytes:
        refuse(
            "manifest_too_large",
            f"manifest.json has {size} bytes, more than the {limits.manifest_bytes} allowed.",
            "Split the package, or raise the limit if you trust it.",
        )
    manifest_json = tar.content(name, size)
    manifest = Manifest.parse(manifest_json)
    if expected_id is not None and manifest.package_id != expected_id:
        refuse(
            "wrong_id",
            f"The archive holds {manifest.package_id}, not {expected_id}.",
            "Check what you asked for, and where the archive came from.",
        )
    if len(manifest.assets) >= limits.files:
        refuse(
            "too_many_files",
            f"The package declares {len(manifest.assets) + 1} files with its manifest, more than "
            f"the {limits.files} allowed.",
            "Split the package, or raise the limit if you trust it.",
        )
    files = _files(tar, manifest)
    tar.end()
    return Archive(manifest, files, f"sha256:{sha256_hex(data)}", manifest_json)


def _files(tar: TarReader, manifest: Manifest) -> dict[str, bytes]:
    declared = {asset.path: asset.sha256 for asset in manifest.assets}
    twins = {folded(path): path for path in declared}
    files: dict[str, bytes] = {}
    last = b""
    while (member := tar.member()) is not None:
        name, size = member
        if name == MANIFEST_NAME:
            refuse("manifest_twice", "The archive holds manifest.json twice.")
        if name in files:
            refuse("duplicate_member", f"The archive holds {name!r} twice.")
        if name not in declared:
            if twin := twins.get(folded(name)):
                refuse(
                    "twin_member",
                    f"{name!r} in the archive is one file with {twin!r} where case does not count.",
                )
            refuse(
                "undeclared_file", f"The archive holds {name!r}, which its manifest does not name."
            )
        if name.encode() < last:
            refuse("wrong_order", f"{name!r} in the archive is not in the order of bytes.")
        last = name.encode()
        content = tar.content(name, size)
        found = f"sha256:{sha256_hex(content)}"
        if found != declared[name]:
            refuse(
                "wrong_hash",
                f"{name!r} in the archive has the hash {found}, its manifest says "
                f"{declared[name]}.",
                "Get the archive anew; if it stays so, do not trust where it came from.",
            )
        files[name] = content
    if missing := sorted(set(declared) - set(files)):
        refuse(
            "missing_asset",
            f"The archive lacks {len(missing)} of the files in its manifest, first {missing[0]!r}.",
        )
    return files


def _read(stream: BinaryIO, limits: ArchiveLimits) -> bytes:
    pieces = bytearray()
    while piece := stream.read(CHUNK):
        pieces += piece
        if len(pieces) > limits.compressed_bytes:
            refuse(
                "archive_too_large",
                f"The archive has more than the {limits.compressed_bytes} bytes allowed.",
                "Raise the limit if you trust it.",
            )
    return bytes(pieces)
