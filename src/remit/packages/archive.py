"""A package as an archive or a directory: its manifest, and exactly the files that it declares."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from remit.kernel.canonical import sha256_hex
from remit.packages.errors import ArchiveError, PackageError, PackError
from remit.packages.manifest import MANIFEST_NAME, Manifest
from remit.packages.paths import folded
from remit.packages.tarball import ArchiveLimits, canonical_targz, read_targz, refuse

__all__ = ["Archive", "ArchiveLimits", "pack", "paths_in", "plain_file", "read_archive"]

_MODE = 0o644  # of every file, a constant of the format
_UPDATE = "Take it out of the directory or correct 'assets': `remit package pack --update` does."
_DOWNLOAD = "Download it again; if it stays so, do not trust its source."


@dataclass(frozen=True)
class Archive:
    """A package whose every file is what its manifest says.

    Attributes:
        manifest_json: the manifest's bytes as they came.
        files: content by path, without the manifest.
        recorded: the archive's bytes where these are on record in another than the canonical
            form, as earlier versions kept them; empty otherwise.
    """

    manifest: Manifest
    manifest_json: bytes
    files: Mapping[str, bytes]
    recorded: bytes = b""

    @functools.cached_property
    def data(self) -> bytes:
        """The archive in its canonical form, whatever form it came in."""
        if self.recorded:
            return self.recorded
        ordered = sorted(self.files.items(), key=lambda item: item[0].encode())
        content = [(MANIFEST_NAME, self.manifest_json), *ordered]
        return canonical_targz((name, data, _MODE) for name, data in content)

    @functools.cached_property
    def digest(self) -> str:
        """``sha256:`` and 64 hex digits of :attr:`data`: what a signature is over."""
        return f"sha256:{sha256_hex(self.data)}"

    @classmethod
    def from_directory(cls, directory: Path) -> Self:
        """The package in a directory.

        Raises:
            ManifestError: ``manifest.json`` is not a manifest.
            PackError: the directory holds anything but what the manifest declares.
        """
        manifest_json = b""
        try:
            manifest_json = plain_file(directory / MANIFEST_NAME, MANIFEST_NAME)
            manifest = Manifest.parse(manifest_json, str(directory / MANIFEST_NAME))
            declared = {asset.path for asset in manifest.assets}
            files = {}
            for path in paths_in(directory):
                _check_plain(directory / path, path)
                if path != MANIFEST_NAME:
                    # What is not declared is refused below, and need not be read for that.
                    known = path in declared
                    files[path] = plain_file(directory / path, path) if known else b""
        except OSError as error:
            raise PackError(
                "unreadable" if manifest_json else "manifest_missing",
                f"{error.filename or directory} cannot be read: {error.strerror}.",
                next_step="A package is a directory with a manifest.json that you can read.",
            ) from error
        _check_declared(manifest, files, str(directory), PackError, _UPDATE)
        return cls(manifest, manifest_json, files)


def pack(directory: Path) -> bytes:
    """The package in ``directory`` as an archive: same content, same bytes, on any machine.

    Raises:
        ManifestError, PackError: as :meth:`Archive.from_directory`.
    """
    return Archive.from_directory(directory).data


def read_archive(
    stream: BinaryIO, limits: ArchiveLimits, *, expected_id: str = "", recorded: bool = False
) -> Archive:
    """The package in any safe ``.tar.gz``, verified before anything is written anywhere.

    Memory: a few times the bytes of the archive, packed and unpacked, both within ``limits``.

    Args:
        expected_id: the ``package_id`` that was asked for; empty for any.
        recorded: these bytes are on record as they are; see :class:`Archive`.

    Raises:
        ArchiveError: it is not a package, is not safe, or is beyond ``limits``.
        ManifestError: its manifest is not one.
    """
    data = b""
    while piece := stream.read(limits.compressed_bytes + 1 - len(data)):
        data += piece
    if len(data) > limits.compressed_bytes:
        refuse(
            "archive_too_large",
            f"The archive has more than the {limits.compressed_bytes} bytes allowed.",
            "Raise the limit if you trust it.",
        )
    files = read_targz(data, limits)
    if MANIFEST_NAME not in files:
        refuse("manifest_missing", "There is no manifest.json at the top of the archive.")
    manifest_json = files.pop(MANIFEST_NAME)
    manifest = Manifest.parse(manifest_json)
    if expected_id and manifest.package_id != expected_id:
        refuse(
            "wrong_id",
            f"The archive holds {manifest.package_id}, not {expected_id}.",
            "Check what you asked for, and where the archive came from.",
        )
    _check_declared(manifest, files, "the archive", ArchiveError, _DOWNLOAD)
    return Archive(manifest, manifest_json, files, data if recorded else b"")


def _check_declared(
    manifest: Manifest,
    files: Mapping[str, bytes],
    where: str,
    error: type[PackageError],
    next_step: str,
) -> None:
    """Declared is actual, and every hash is right (gate G0A)."""
    declared = {asset.path: asset.sha256 for asset in manifest.assets}
    twins = {folded(path): path for path in declared}
    for path in sorted(files):
        if path not in declared:
            if twin := twins.get(folded(path)):
                code, problem = "twin_member", f"differs from {twin!r} only in case"
            else:
                code, problem = "undeclared_file", "is not in the manifest"
            raise error(code, f"{path!a} in {where} {problem}.", next_step=next_step)
    for path, digest in declared.items():
        if path not in files:
            raise error(
                "missing_asset",
                f"{path!r} is in the manifest, but not in {where}.",
                next_step=next_step,
            )
        if (found := f"sha256:{sha256_hex(files[path])}") != digest:
            raise error(
                "wrong_hash",
                f"{path!r} in {where} has the hash {found}, the manifest says {digest}.",
                next_step=next_step,
            )


def paths_in(directory: Path) -> Iterator[str]:
    """Every path under ``directory`` but those of directories themselves; no link is followed."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with os.scandir(directory / below) as entries:
            for entry in entries:
                path = f"{below}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{path}/")
                else:
                    yield path


def plain_file(path: Path, name: str) -> bytes:
    """A plain file's bytes.

    Raises:
        PackError: ``link`` or ``not_a_file``.
        OSError: it cannot be read.
    """
    _check_plain(path, name)
    # Without following or waiting, should it have been replaced since.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:
        return stream.read()


def _check_plain(path: Path, name: str) -> None:
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode):
        linked = stat.S_ISLNK(mode)
        what = "a link" if linked else "a directory, device, pipe or socket"
        raise PackError(
            "link" if linked else "not_a_file",
            f"{name!a} is {what}; a package holds only plain files.",
            next_step="Put the file itself in its place.",
        )
