"""The packages that come with the running distribution, and the key of a root that signs them."""

from __future__ import annotations

import functools
import os
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from remit.kernel.root import Root
from remit.ledger import LedgerClient
from remit.packages.admission import IncomingArchive
from remit.packages.archive import Archive
from remit.packages.distribution import Distribution
from remit.packages.errors import PackageError
from remit.packages.files import check_folders
from remit.packages.lock import package_lock
from remit.packages.package_key import PackageKey
from remit.packages.registry import InstalledPackage
from remit.packages.signatures import sign
from remit.packages.trust import TrustPolicy, change_trust, read_trust, recorded_trust
from remit.packages.waivers import EDITABLE_INSTALL, record_waiver, waived

if TYPE_CHECKING:
    from remit.packages.manager import PackageManager

__all__ = [
    "ASIDE_FOLDER",
    "ShippedPackages",
    "found_packages",
    "install_shipped",
    "is_root_key",
    "move_aside",
    "root_key_path",
    "shipped_archives",
    "shipped_ids",
]

ASIDE_FOLDER = "before-packages"
_FOLDER = "assets/packages"
_KEY_NAME = "root"


def shipped_archives() -> dict[str, bytes]:
    """Each shipped package's archive, by its file name: ``PKG-KERNEL-001-1.0.0.tar.gz``."""
    return {f"{name}.tar.gz": archive.data for name, archive in sorted(_shipped().items())}


def shipped_ids() -> list[str]:
    """The ids of the packages that come with the distribution, sorted."""
    return sorted(archive.manifest.package_id for archive in _shipped().values())


def is_root_key(policy: TrustPolicy, key: PackageKey) -> bool:
    """Whether a key in the place of the root's own may sign, by the record."""
    known = policy.get(key.key_id)
    return known is not None and known.status == "active"


def root_key_path(root: Root) -> Path:
    """Where the root's own package key is."""
    return root.keys / "packages.pem"


class ShippedPackages:
    """What comes with the distribution, vouched for by the root's own key.

    The distribution's files are held against its RECORD first; of an editable install, which has
    no hashes, the waiver in the ledger speaks.

    Args:
        root: whose key signs.
    """

    def __init__(self, root: Root) -> None:
        self._root = root

    def signed(self, incoming: IncomingArchive, archive: Archive) -> IncomingArchive:
        """The archive with the root's signature, when it is what the distribution ships.

        Raises:
            PackageError: ``distribution_changed``: it is, but the distribution's files are not
                what was installed.
        """
        manifest = archive.manifest
        shipped = _shipped().get(f"{manifest.package_id}-{manifest.version}")
        if shipped is None or shipped.digest != archive.digest:
            return incoming
        key_path = root_key_path(self._root)
        if not key_path.is_file():
            return incoming
        distribution = _distribution()
        if problems := _problems():
            raise PackageError(
                "distribution_changed",
                f"The installed files of Remit are not what was installed: {problems[0]}",
                next_step="Install Remit again; `remit gate check --gate G0B` lists all changes.",
            )
        source = {"distribution": "remit", "version": distribution.version}
        envelope = sign(archive.digest, manifest, PackageKey.load(key_path), source=source)
        return IncomingArchive(
            incoming.data,
            envelope,
            f"distribution remit {distribution.version}",
            incoming.expected_id,
        )


def found_packages(
    root: Root, ledger: LedgerClient, *, by: str, wait_s: float, new_ledger: bool = False
) -> bool:
    """Make the root's own package key, and trust it for what ships; note what cannot be checked.

    Args:
        root: the installation.
        ledger: its record.
        by: who acts.
        wait_s: how long to wait for another operation, in seconds.
        new_ledger: the ledger was lost and begins again: trust the key that is there.

    Returns:
        Whether the running code is an editable install, which has no hashes to be held against.

    Raises:
        PackageError: ``foreign_key``: there is a key that the ledger does not know as trusted;
            or the key or ``trust.json`` cannot be written or read.
    """
    root_key_path(root).parent.mkdir(mode=0o700, exist_ok=True)
    file = root.path / TrustPolicy.FILE
    with package_lock(root.path, wait_s):
        first = new_ledger and not recorded_trust(ledger)
        key, made = _root_key(root, ledger, adopt=first)
        if first:
            _forget_unrecorded(file, key)
        change_trust(file, ledger, lambda policy: _with(policy, key), by)
        if made is not None:
            # Only a key on record gets the name: killed before, the next time makes another.
            made.replace(root_key_path(root))
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


def _root_key(root: Root, ledger: LedgerClient, *, adopt: bool) -> tuple[PackageKey, Path | None]:
    """The root's own key; and where it is while it does not have its name yet."""
    place = root_key_path(root)
    policy = read_trust(root.path / TrustPolicy.FILE, ledger) if not adopt else TrustPolicy()
    if os.path.lexists(place):
        key = PackageKey.load(place)
        if not adopt and not is_root_key(policy, key):
            raise PackageError(
                "foreign_key",
                f"{place} is not a key that the ledger knows: {key.key_id[:16]}… is "
                f"{_status(policy, key)}.",
                next_step="Move it away, and `remit init` makes a new one. If the ledger was "
                "lost: `remit init --new-ledger`.",
            )
        return key, None
    beside = place.with_name(f"{place.name}.new")
    if os.path.lexists(beside):
        if is_root_key(policy, key := PackageKey.load(beside)):
            return key, beside  # killed between the record and the name
        beside.unlink()
    return PackageKey.create(beside, _KEY_NAME), beside


def _status(policy: TrustPolicy, key: PackageKey) -> str:
    known = policy.get(key.key_id)
    return "not on record" if known is None else known.status


def _forget_unrecorded(file: Path, key: PackageKey) -> None:
    """Where the ledger is new, take away a list that says no more than this makes again."""
    if file.exists():
        policy = TrustPolicy.load(file)
        if policy.threshold == 1 and [one.key_id for one in policy.keys] == [key.key_id]:
            file.unlink()


def _with(policy: TrustPolicy, key: PackageKey) -> TrustPolicy:
    """The key trusted for what ships, and for what it was trusted for before."""
    known = policy.get(key.key_id)
    ships = [name for name in shipped_ids() if known is None or not known.may_sign(name)]
    if known is not None:
        if not ships:
            return policy
        return policy.with_key(key.public, known.name, packages=[*known.packages, *ships])
    # Another root's own key may be trusted here too: of a ledger that was imported.
    return policy.with_key(key.public, f"{_KEY_NAME} {key.key_id[:8]}", packages=ships)


def install_shipped(manager: PackageManager) -> list[InstalledPackage]:
    """Install all packages that come with the distribution, or put back what is missing."""
    return manager.install([IncomingArchive(data) for data in shipped_archives().values()])


def move_aside(root: Path) -> list[str]:
    """Move files in the way of shipped ones below ``before-packages/``; none is lost.

    Only for a root in which nothing was ever installed: one of a version before packages.

    Args:
        root: the root's directory.

    Returns:
        Paths of what was moved.

    Raises:
        PackageError: ``unwritable``, or ``linked_folder``.
    """
    moved = []
    files = {path: data for one in _shipped().values() for path, data in one.files.items()}
    try:
        for path, data in files.items():
            check_folders(root, path)
            file = root / path
            if not os.path.lexists(file) or (not file.is_symlink() and file.read_bytes() == data):
                continue
            target = root / ASIDE_FOLDER / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                continue  # an earlier try; installing says that the file is in the way
            os.replace(file, target)
            moved.append(path)
    except OSError as error:
        raise PackageError(
            "unwritable",
            f"{error.filename or root} cannot be moved: {error.strerror or error}.",
            next_step="Make the root writable for this user.",
        ) from error
    return moved


@functools.cache
def _shipped() -> dict[str, Archive]:
    """The packages by ``ID-VERSION``: read once in a process, as the files do not change."""
    found = {}
    with resources.as_file(resources.files("remit").joinpath(_FOLDER)) as folder:
        for directory in sorted(folder.iterdir()):
            if directory.joinpath("manifest.json").is_file():
                archive = Archive.from_directory(directory)
                found[f"{archive.manifest.package_id}-{archive.manifest.version}"] = archive
    return found


@functools.cache
def _distribution() -> Distribution:
    return Distribution.current()


@functools.cache
def _problems() -> tuple[str, ...]:
    distribution = _distribution()
    return () if distribution.editable else tuple(distribution.problems())
