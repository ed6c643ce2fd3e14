"""The packages that come with the running distribution (SPEC 10)."""

from __future__ import annotations

import functools
from importlib import resources
from pathlib import Path

from remit.kernel.root import Root
from remit.packages.archive import Archive, pack
from remit.packages.distribution import Distribution
from remit.packages.errors import PackageError
from remit.packages.manifest import Manifest
from remit.packages.offer import Offer
from remit.packages.package_key import PackageKey
from remit.packages.signing import sign
from remit.packages.trust_policy import TrustPolicy

__all__ = ["ShippedPackages", "is_root_key", "root_key_path", "shipped_archives", "shipped_ids"]

_FOLDER = "assets/packages"


def shipped_archives() -> dict[str, bytes]:
    """Each shipped package's archive, by its file name: ``PKG-KERNEL-001-1.0.0.tar.gz``."""
    return {f"{name}.tar.gz": data for name, data in sorted(_archives().items())}


def shipped_ids() -> list[str]:
    """The ids of the packages that come with the distribution, sorted."""
    with resources.as_file(resources.files("remit").joinpath(_FOLDER)) as folder:
        return sorted(one.name for one in folder.iterdir() if (one / "manifest.json").is_file())


def is_root_key(policy: TrustPolicy, key: PackageKey) -> bool:
    """Whether a key that lies in the place of the root's own may sign, by the record."""
    known = policy.get(key.key_id)
    return known is not None and known.status == "active"


def root_key_path(root: Root) -> Path:
    """Where the root's own package key lies."""
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

    def signed(self, offer: Offer, archive: Archive) -> Offer:
        """The offer with the root's signature, when it is what the distribution ships.

        Raises:
            PackageError: ``distribution_changed``: it is, but the distribution's files are not
                what was installed.
        """
        manifest = archive.manifest
        if _archives().get(f"{manifest.package_id}-{manifest.version}") != archive.data:
            return offer
        key_path = root_key_path(self._root)
        if not key_path.is_file():
            return offer
        distribution = _distribution()
        if problems := _problems():
            raise PackageError(
                "distribution_changed",
                f"The installed files of Remit are not what was installed: {problems[0]}",
                next_step="Install Remit anew; `remit gate check --gate G0B` lists all changes.",
            )
        source = {"distribution": "remit", "version": distribution.version}
        envelope = sign(archive.digest, manifest, PackageKey.load(key_path), source=source)
        return Offer(
            offer.data, envelope, f"distribution remit {distribution.version}", offer.expected_id
        )


@functools.cache
def _archives() -> dict[str, bytes]:
    """The archives by ``ID-VERSION``: made once in a process, as the files do not change."""
    found = {}
    with resources.as_file(resources.files("remit").joinpath(_FOLDER)) as folder:
        for directory in sorted(folder.iterdir()):
            if directory.joinpath("manifest.json").is_file():
                data = pack(directory)
                found[f"{directory.name}-{_version(directory)}"] = data
    return found


def _version(directory: Path) -> str:
    return Manifest.parse(directory.joinpath("manifest.json").read_bytes()).version


@functools.cache
def _distribution() -> Distribution:
    return Distribution.current()


@functools.cache
def _problems() -> tuple[str, ...]:
    distribution = _distribution()
    return () if distribution.editable else tuple(distribution.problems())
