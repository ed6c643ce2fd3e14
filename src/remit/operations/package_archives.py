"""Operations on archives of packages: make, build, sign, verify, show and compare them."""

from __future__ import annotations

import io
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError
from remit.operations.files import io_errors
from remit.operations.operation import field, verb
from remit.operations.ports import Caller, RootPort

if TYPE_CHECKING:
    from remit.kernel.settings import PackageSettings
    from remit.packages import Archive


def package_settings(path: Path | None) -> PackageSettings:
    """Return ``[packages]`` of the meant root, or the defaults if no root exists.

    Args:
        path: the directory that a command names, which must contain a root; None for the default.

    Raises:
        RemitError: the named directory contains no root, or the settings are invalid.
    """
    from remit.kernel.root import find_root
    from remit.kernel.settings import load_settings

    place = find_root(path)
    if path is None and not place.exists():
        return load_settings().settings.packages
    return load_settings(place.require().config).settings.packages


_DIRECTORY: Any = field("Directory of the package.", flag="", metavar="DIRECTORY", place="folder")


@verb(
    "package new", media_type="text/plain", prints="{package_id} {version}",
    then="Edit the files, then run `remit package pack DIRECTORY --update`.",
)  # fmt: skip
def new_package(
    root: RootPort, caller: Caller, *,
    directory: Path = _DIRECTORY,
    package_id: str = field("The package's id.", flag="--id", metavar="PKG-…"),
    title: str = field("One-line description.", ""),
) -> dict[str, Any]:  # fmt: skip
    """Create a package with a working example agent.

    Returns:
        The members of the new manifest.

    Raises:
        PackageError: the directory is not empty or cannot be written, or the id or title cannot be
            used.
    """
    from remit import packages

    return asdict(packages.new_package(directory, package_id, title=title))


@verb("package pack")
def pack_package(
    root: RootPort, caller: Caller, *,
    directory: Path = _DIRECTORY,
    target: Path | None = field(
        "Output file (default: PKG-…-VERSION.tar.gz in the current directory).", None, flag="--out"
    ),
    update: bool = field("Update the file hashes in manifest.json first.", False),
) -> dict[str, Any]:  # fmt: skip
    """Build a package archive. The build is reproducible.

    Returns:
        ``package_id``, ``version``, ``archive`` (the path; an existing file is replaced, missing
        folders are made), ``digest`` and ``bytes``.

    Raises:
        PackageError: the package is not valid or exceeds the limits of ``[packages]``, or a file
            cannot be written. After ``update``, the new manifest stays.
        RemitError: the named root does not exist, or its settings are invalid.
    """
    from remit.kernel.canonical import sha256_hex
    from remit.packages import PackageError, pack, read_archive, replace_file, update_hashes

    if update:
        update_hashes(directory)
    data = pack(directory)
    # An archive that others would refuse is refused here, where it can be changed.
    manifest = read_archive(io.BytesIO(data), package_settings(root.path)).manifest
    target = target or Path(f"{manifest.package_id}-{manifest.version}.tar.gz")
    step = "Choose another file with `remit package pack --out FILE`."
    with io_errors(target, "written", partial(PackageError, "unreadable", next_step=step)):
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, data)
    return {
        "package_id": manifest.package_id, "version": manifest.version,
        "archive": str(target), "digest": f"sha256:{sha256_hex(data)}", "bytes": len(data),
    }  # fmt: skip


@verb("package sign")
def sign_archive(
    root: RootPort, caller: Caller, *,
    archive: Path = field("The archive.", flag="", metavar="ARCHIVE"),
    key_file: Path = field("File of the private key.", flag="--key"),
    expires: datetime | None = field(
        "Day (UTC) from which installs no longer accept the signature.", None
    ),
) -> dict[str, Any]:  # fmt: skip
    """Sign an archive; write or extend the signature file ARCHIVE.intoto.json.

    Returns:
        ``signature`` (the path), ``key_id`` and ``archive_sha256``. Whether the key is trusted is
        not checked. An earlier signature of the same key is replaced.

    Raises:
        InvalidInputError: an expiry is given, and the signature file exists.
        PackageError: the archive, its signature file or the key cannot be read or used, or the
            archive exceeds the default limits; those of a root have no effect.
        OSError: the signature file cannot be written.
    """
    from remit.kernel.settings import default_settings
    from remit.packages import IncomingArchive, PackageKey, read_archive, replace_file, sign

    limits = default_settings().packages
    incoming = IncomingArchive.from_file(archive, limits.compressed_bytes)
    if incoming.envelope and expires is not None:
        raise InvalidInputError("The expiry of an existing signature file cannot be changed.")
    key = PackageKey.load(key_file)
    read = read_archive(io.BytesIO(incoming.data), limits)
    ends = None if expires is None else expires.replace(tzinfo=UTC)
    target = IncomingArchive.envelope_file(archive)
    envelope = sign(read.digest, read.manifest, key, expires=ends, envelope=incoming.envelope)
    replace_file(target, envelope)
    return {"signature": str(target), "key_id": key.key_id, "archive_sha256": read.digest}


@verb("package verify", repairs=True)
def verify_archive(
    root: RootPort, caller: Caller, *,
    archive: Path = field("The archive.", flag="", metavar="ARCHIVE"),
    package_id: str = field("Refuse anything but this package.", "", flag="--id"),
) -> dict[str, Any]:  # fmt: skip
    """Verify an archive and its signatures against the trusted keys, without unpacking.

    Returns:
        ``verified``, which is True, with ``package_id``, ``version``, ``archive_sha256``, ``files``
        (their number), ``keyids`` (the keys that signed) and ``threshold`` (the required number).

    Raises:
        PackageError: the archive is not valid, is of another package than ``package_id``, or too
            few trusted keys signed it; or ``trust.json`` has content that no entry records.
        LedgerError: the ledger cannot be read.
    """
    from remit.packages import IncomingArchive, TrustPolicy, admit, read_trust

    limits = root.settings.packages
    incoming = IncomingArchive.from_file(archive, limits.compressed_bytes, expected_id=package_id)
    policy = read_trust(root.place.path / TrustPolicy.FILE, root.ledger)
    found = admit(incoming, policy, limits, dev=False)
    manifest, signature = found.manifest, found.package.signature
    return {
        "verified": True, "package_id": manifest.package_id, "version": manifest.version,
        "archive_sha256": found.archive.digest, "files": len(found.archive.files),
        "keyids": signature["keyids"], "threshold": signature["threshold"],
    }  # fmt: skip


@verb("package show")
def show_archive(
    root: RootPort, caller: Caller, *,
    package: str = field("An archive, a directory, or the id of an installed package.", flag="",
                         metavar="ARCHIVE|DIRECTORY"),
) -> dict[str, Any]:  # fmt: skip
    """Show a package: description, dependencies, permissions and files.

    Returns:
        The members of its manifest, with ``manifest_digest``. Signatures are not checked.

    Raises:
        PackageError: no such package exists, or the content is not a valid package.
        LedgerError: the ledger cannot be read.
    """
    manifest = _view(root, package).manifest
    found = asdict(manifest)
    del found["digest"]
    return {**found, "manifest_digest": manifest.digest}


def _view(root: RootPort, argument: str) -> Archive:
    """Return the package in an archive or a directory, or an installed package by its id.

    Raises:
        PackageError: no such package exists, or the content is not a valid package.
    """
    from remit.packages import Archive, PackageError, Registry, archive_path, read_archive

    path = Path(argument)
    if path.is_dir():
        return Archive.from_directory(path)
    if argument.startswith("PKG-") and not argument.endswith(".tar.gz") and not path.exists():
        installed = Registry.from_ledger(root.ledger).require(argument)
        path = root.place.path / archive_path(installed)
    step = "Give a package archive, a directory, or the id of an installed package."
    kind = partial(PackageError, "unreadable", next_step=step)
    with io_errors(path, kind=kind), path.open("rb") as stream:
        return read_archive(stream, package_settings(root.path))
