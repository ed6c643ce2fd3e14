"""Packages in the running distribution, and the root's own key, which signs them."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from remit.kernel.errors import InvalidInputError
from remit.kernel.root import Root
from remit.ledger import LedgerClient
from remit.packages.archive import Archive
from remit.packages.archive_checks import IncomingArchive
from remit.packages.config_changes import EDITABLE_INSTALL, record_waiver, waived
from remit.packages.distribution import Distribution
from remit.packages.errors import PackageError
from remit.packages.journal import check_folders, disk_errors, package_lock
from remit.packages.registry import InstalledPackage
from remit.packages.signatures import sign
from remit.packages.signing_key import PackageKey
from remit.packages.trust import change_trust, read_trust, recorded_trust
from remit.packages.trust_policy import TrustPolicy

if TYPE_CHECKING:
    from remit.packages.manager import PackageManager

ASIDE_FOLDER = "before-packages"
_KEY_NAME = "root"


def shipped_archives() -> dict[str, bytes]:
    """Return the archive of each shipped package by file name, such as
    ``PKG-KERNEL-001-1.0.0.tar.gz``.

    The names are sorted. The bytes are canonical archives without signatures. A process reads the
    packages once.

    Raises:
        PackageError: a shipped package is not valid, as :meth:`Archive.from_directory`.
    """
    return {f"{name}.tar.gz": archive.data for name, archive in sorted(_shipped().items())}


def shipped_ids() -> list[str]:
    """Return the ids of the shipped packages, sorted."""
    return sorted(archive.manifest.package_id for archive in _shipped().values())


def is_root_key(policy: TrustPolicy, key: PackageKey) -> bool:
    """Return True if a policy contains a key with the status ``active``.

    The packages that the key may sign are not compared.

    Args:
        policy: the policy.
        key: the key.
    """
    known = policy.get(key.key_id)
    return known is not None and known.status == "active"


def root_key_path(root: Root) -> Path:
    """Return the path of the root's own package key, ``packages.pem`` in the root's folder of keys.

    The file need not exist.

    Args:
        root: the root.
    """
    return root.keys / "packages.pem"


def signed_by_root(
    root: Root, archive: Archive, source: str, pattern: str
) -> tuple[IncomingArchive, Callable[[TrustPolicy], TrustPolicy]]:
    """Return an archive signed with the root's own key, and the change of trust that it needs.

    Both are arguments of :meth:`~remit.packages.PackageManager.install`. The change lets the key
    sign packages of a pattern. An unrecorded key stays untrusted, so that the installation refuses
    the archive. Nothing is written.

    Args:
        root: the installation.
        archive: the archive.
        source: the origin, for the ledger.
        pattern: a package id, or a pattern that ends with ``*``.

    Raises:
        PackageError: an error of :meth:`PackageKey.load` (``key_missing``, ``key_open``,
            ``bad_key``). The returned change raises ``revoked_key`` if the key was revoked.
    """
    key = PackageKey.load(root_key_path(root))

    def trusting(policy: TrustPolicy) -> TrustPolicy:
        known = policy.get(key.key_id)
        if known is None or known.may_sign(pattern.replace("*", "ROUTING-001")):
            return policy
        return policy.with_key(key.public, known.name, packages=[*known.packages, pattern])

    envelope = sign(archive.digest, archive.manifest, key)
    package_id = archive.manifest.package_id
    return IncomingArchive(archive.data, envelope, source, package_id), trusting


def sign_shipped(root: Root, incoming: IncomingArchive, archive: Archive) -> IncomingArchive:
    """Return an archive signed with the root's own key if the distribution ships it.

    Before it signs, the function compares the distribution's files with its RECORD; the result, a
    fault too, holds for the process. An editable install has no hashes, for which a waiver is
    recorded elsewhere. No file is written.

    Args:
        root: the installation, with or without a key of its own.
        incoming: the archive as received.
        archive: the same archive, parsed.

    Returns:
        A copy of ``incoming`` with signature and source; ``incoming`` itself if the distribution
        does not ship exactly this archive or the root has no key.

    Raises:
        PackageError: ``distribution_changed``: files of the distribution differ from its RECORD;
            ``key_open`` or ``bad_key``, as :meth:`PackageKey.load`; or a shipped package is not
            valid.
        OSError: a source of the distribution cannot be examined.
    """
    manifest = archive.manifest
    shipped = _shipped().get(f"{manifest.package_id}-{manifest.version}")
    key_path = root_key_path(root)
    if shipped is None or shipped.digest != archive.digest or not key_path.is_file():
        return incoming
    version, problems = _distribution()
    if problems:
        raise PackageError(
            "distribution_changed",
            f"The installed files of Remit were changed: {problems[0]}",
            next_step="Install Remit again; `remit gate check --gate G0B` lists all changes.",
        )
    source = {"distribution": "remit", "version": version}
    envelope = sign(archive.digest, manifest, PackageKey.load(key_path), source=source)
    return replace(incoming, envelope=envelope, source=f"distribution remit {version}")


def found_packages(
    root: Root, ledger: LedgerClient, *, by: str, wait_s: float, new_ledger: bool = False
) -> bool:
    """Create the root's own package key if necessary, and trust it for the shipped packages.

    Takes the packages' lock. A change of trust appends a ``CONFIG_CHANGED`` entry and writes
    ``trust.json``. If the running code is an editable install without a waiver, a waiver is
    recorded too, after the lock is released. The private key is a new file with mode 0600, which
    gets its name after its trust is recorded; a repetition completes an interrupted call. An
    existing, trusted key stays; no package is installed.

    Args:
        root: the installation.
        ledger: the root's ledger.
        by: the acting person or program.
        wait_s: seconds to wait for another operation on packages.
        new_ledger: True if the ledger was lost and begins again. If it records no trusted keys, the
            existing key is trusted, and a ``trust.json`` that lists only this key is replaced.

    Returns:
        True if the running code is an editable install, which has no hashes to compare it with.

    Raises:
        PackageError: ``foreign_key``: the existing key is not a trusted one; ``busy``: another
            process holds the lock; ``unwritable``: the lock's file cannot be opened; an error of
            :func:`change_trust`, :meth:`PackageKey.load` or :meth:`PackageKey.create`; or a shipped
            package is not valid.
        OSError: the folder of the keys or the key's final name cannot be made.
        LedgerError: the ledger cannot be read or written.
    """
    place, file = root_key_path(root), root.path / TrustPolicy.FILE
    place.parent.mkdir(mode=0o700, exist_ok=True)
    with package_lock(root.path, wait_s):
        first = new_ledger and not recorded_trust(ledger)
        key, made = _root_key(place, None if first else read_trust(file, ledger))
        if first and file.exists():
            # A list with only this key says nothing beyond the entry that follows.
            policy = TrustPolicy.load(file)
            if policy.threshold == 1 and [one.key_id for one in policy.keys] == [key.key_id]:
                file.unlink()
        change_trust(file, ledger, lambda policy: _with(policy, key), by)
        # The key gets its name once it is recorded; after an earlier kill, a new key is made.
        made.replace(place)
    distribution = Distribution.current()
    if distribution.editable and not waived(ledger, EDITABLE_INSTALL):
        record_waiver(
            ledger,
            EDITABLE_INSTALL,
            "The running code is an editable install: it has no hashes to be held against.",
            by=by,
            distribution_version=distribution.version,
        )
    return distribution.editable


def _root_key(place: Path, policy: TrustPolicy | None) -> tuple[PackageKey, Path]:
    """Return the root's own key and its present file, and create the key if there is none.

    An existing key must be active in ``policy``, unless that is ``None``. Raises PackageError
    (``foreign_key``).
    """
    if os.path.lexists(place):
        key = PackageKey.load(place)
        if policy is not None and not is_root_key(policy, key):
            known = policy.get(key.key_id)
            raise PackageError(
                "foreign_key",
                f"{place} is not a trusted key: {key.key_id[:16]}… is "
                f"{known.status if known else 'not recorded'}.",
                next_step="Move it out of the root, and `remit init` makes a new one. If no copy "
                "of the ledger exists any more: `remit init --new-ledger`.",
            )
        return key, place
    new_file = place.with_name(f"{place.name}.new")
    if os.path.lexists(new_file):
        key = PackageKey.load(new_file)
        if policy is not None and is_root_key(policy, key):
            return key, new_file  # The process was killed before it renamed the key.
        new_file.unlink()
    return PackageKey.create(new_file, _KEY_NAME), new_file


def _with(policy: TrustPolicy, key: PackageKey) -> TrustPolicy:
    """Return a policy that trusts the key for the shipped packages, and for its earlier ones."""
    known = policy.get(key.key_id)
    ships = [name for name in shipped_ids() if known is None or not known.may_sign(name)]
    if known is None:
        # An imported ledger also trusts the own key of another root, so the name needs the id.
        return policy.with_key(key.public, f"{_KEY_NAME} {key.key_id[:8]}", packages=ships)
    if not ships:
        return policy
    return policy.with_key(key.public, known.name, packages=[*known.packages, *ships])


def install_shipped(manager: PackageManager) -> list[InstalledPackage]:
    """Install all packages that the distribution ships, and write their missing files.

    Effects and locks are those of :meth:`~remit.packages.PackageManager.install`.

    Args:
        manager: the manager of the root.

    Returns:
        All shipped packages as installed, also those that were installed already.

    Raises:
        PackageError: as :meth:`~remit.packages.PackageManager.install` and
            :func:`shipped_archives`; ``unsigned``: the root has no key of its own.
        LedgerError, OSError: as :meth:`~remit.packages.PackageManager.install`.
    """
    return manager.install([IncomingArchive(data) for data in shipped_archives().values()])


def move_aside(root: Path) -> None:
    """Move files that differ from shipped ones into ``before-packages/``, under the same path.

    For roots of versions before packages, in which nothing was ever installed. Links are moved too.
    A file that exists in ``before-packages/`` already is not moved.

    Args:
        root: the root's directory.

    Raises:
        PackageError: ``unwritable``: a file cannot be read or moved; ``linked_folder``: a part
            above a file is a link or file.
    """
    files = {path: data for one in _shipped().values() for path, data in one.files.items()}
    with disk_errors():
        for path, data in files.items():
            check_folders(root, path)
            file, target = root / path, root / ASIDE_FOLDER / path
            if not os.path.lexists(file) or (not file.is_symlink() and file.read_bytes() == data):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():  # Otherwise the installation reports the file.
                file.replace(target)


@functools.cache
def _shipped() -> dict[str, Archive]:
    """Return the shipped packages by ``ID-VERSION``; a process reads the files once."""
    with resources.as_file(resources.files("remit").joinpath("assets/packages")) as folder:
        archives = [Archive.from_directory(file.parent) for file in folder.glob("*/manifest.json")]
    return {f"{one.manifest.package_id}-{one.manifest.version}": one for one in archives}


@functools.cache
def _distribution() -> tuple[str, list[str]]:
    """Return the running version, and the faults of its files if they have hashes."""
    distribution = Distribution.current()
    return distribution.version, [] if distribution.editable else distribution.problems()


def copy_files(name: str, place: Path) -> None:
    """Copy a folder for people from the distribution: files for operators, or an example.

    Folders ``__pycache__`` are left out.

    Args:
        name: ``deploy``, or an example such as ``examples/support_agent``.
        place: the directory to create.

    Raises:
        InvalidInputError: ``place`` exists.
        PackageError: ``unwritable``: a file cannot be read or written, or the distribution has no
            such folder; files that were copied stay.
    """
    assets = Path(__file__).parents[1] / "assets"
    # A wheel contains the folders; an editable installation reads them in the source tree.
    source = (assets if (assets / "deploy").is_dir() else assets.parents[2]) / name
    if os.path.lexists(place):
        raise InvalidInputError(
            f"{place} exists.", next_step="Choose a directory that does not exist."
        )
    with disk_errors():
        shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
