"""Publishing an index: a repository of ``tuf``, changed so that clients always see one state.

::

    DIRECTORY/                  what is served
      metadata/timestamp.json   the only file that changes; all else follows from it
      metadata/N.snapshot.json  N.targets.json  N.root.json
      targets/packages/PKG-X-001/SHA256.1.0.0.tar.gz
    KEYS/                       never in DIRECTORY
      ROLE.pem                  Ed25519, PKCS#8; more of a role as ROLE-KEYID.pem
      root.json                 the root metadata that DIRECTORY has to agree with
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import (
    Metadata,
    MetaFile,
    Root,
    Snapshot,
    Targets,
    Timestamp,
)
from tuf.repository import Repository
from typing_extensions import override

from remit.kernel.errors import InvalidInputError
from remit.kernel.settings import PackageSettings
from remit.packages.errors import PackageIndexError
from remit.packages.index.files import DRAFT, locked, write_file
from remit.packages.index.keys import PublisherKeys
from remit.packages.index.listing import (
    ARCHIVE,
    ENVELOPE,
    Listed,
    list_packages,
    package_targets,
    target_path,
)

__all__ = ["ROLES", "IndexPublisher"]

ROLES = ("root", "targets", "snapshot", "timestamp")

_KINDS: dict[str, type[Any]] = {
    "root": Root, "targets": Targets, "snapshot": Snapshot, "timestamp": Timestamp,
}  # fmt: skip
_PINNED = "root.json"
_LOCK = ".lock"


def _now() -> datetime:
    return datetime.now(UTC)


class IndexPublisher(Repository):
    """An index that this process may change.

    Every change holds a lock, and writes new files first, the timestamp that leads to them last:
    killed anywhere, clients see the state before or the state after. What is in the directory is
    verified by the root metadata beside the keys before anything is signed on top of it: whoever
    can write to the web server cannot have their packages signed.

    Args:
        directory: what is served.
        keys: directory of the private keys, outside of ``directory``.
        settings: limits of archives, and how many days a role's signatures hold.
        clock: the present, in UTC.

    Raises:
        InvalidInputError: the keys are in what is served.
    """

    def __init__(
        self,
        directory: Path,
        keys: Path,
        settings: PackageSettings,
        *,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        if keys.resolve().is_relative_to(directory.resolve()):
            raise InvalidInputError(
                f"The keys' directory {keys} lies in the index {directory}, which is there to be "
                "copied and served.",
                next_step="Give another one with --keys, outside of it.",
            )
        self._directory = directory
        self._keys = PublisherKeys(keys)
        self._settings = settings
        self._clock = clock
        self._parts: dict[str, Metadata[Any]] = {}
        self._metas: dict[str, MetaFile] = {}

    def create(self, thresholds: Mapping[str, int] | None = None) -> Path:
        """Makes an empty index, with new keys where there are none.

        Args:
            thresholds: by role, how many keys have to sign; 1 where it is not given.

        Returns:
            The root metadata, which clients have to be given on a way that they trust.

        Raises:
            InvalidInputError: there is no such role, or it would need no key.
            PackageIndexError: ``index_exists``; ``index_damaged``: it cannot be written.
        """
        needed = thresholds or {}
        for role, threshold in needed.items():
            if role not in ROLES or threshold < 1:
                raise InvalidInputError(
                    f"{role}={threshold} is no threshold.",
                    next_step=f"Roles are {', '.join(ROLES)}; a threshold is 1 or more.",
                )
        with self._changing():
            if self._metadata("timestamp.json").exists():
                raise PackageIndexError(
                    "index_exists",
                    f"There is an index in {self._directory} already.",
                    next_step="Use `remit package index publish`, or another directory.",
                )
            if self._pinned.exists() and not self._metadata("1.root.json").exists():
                raise PackageIndexError(
                    "index_exists",
                    f"{self._keys.directory} holds the keys of another index.",
                    next_step="Give each index keys of its own, in another directory.",
                )
            self._parts = {role: Metadata(kind()) for role, kind in _KINDS.items()}
            for part in self._parts.values():
                part.signed.version = 0  # close() increments it
            self.snapshot().meta.clear()
            self.timestamp().snapshot_meta.version = 0
            with self.edit_root() as root:
                for role in ROLES:
                    threshold = root.roles[role].threshold = needed.get(role, 1)
                    for signer in self._keys.of(role, at_least=threshold):
                        root.add_key(signer.public_key, role)
            self._sign_from("targets")
            return self._metadata("1.root.json")

    def publish(self, archive: Path, envelope: Path | None = None) -> Listed:
        """Puts one package into the index, see :meth:`publish_all`."""
        return self.publish_all([(archive, envelope)])[0]

    def publish_all(self, packages: Iterable[tuple[Path, Path | None]]) -> list[Listed]:
        """Puts packages into the index: all of them, or none.

        A version is published once: the same archive again changes nothing, another one is
        refused. Its signature may come later, or be replaced by one with more keys.

        Args:
            packages: archives and, where they are signed, their signatures' files.

        Raises:
            ArchiveError, ManifestError: an archive is no package.
            SignatureError: a signature is none of a package.
            PackageIndexError: ``index_exists``: another archive of that version is there;
                ``index_mixed``: a signature is of another archive; ``index_key``,
                ``index_not_added``, ``index_damaged``.
        """
        with self._changing():
            self._load()
            targets = self.targets().targets
            published: list[tuple[str, str]] = []
            new: dict[str, bytes] = {}
            for archive, envelope in packages:
                package_id, version, files = package_targets(archive, envelope, self._settings)
                published.append((package_id, version))
                for target, data in files:
                    before = targets.get(target.path)
                    if before is not None and before.hashes == target.hashes:
                        continue
                    if before is not None and target.path.endswith(ARCHIVE):
                        raise PackageIndexError(
                            "index_exists",
                            f"{package_id} {version} is in the index with other content.",
                            next_step="Give what changed a new version; a version that may be two "
                            "things is none.",
                        )
                    targets[target.path] = target
                    new[target.path] = data
            if new:
                self._check_keys(ROLES[1:])
                for path, data in new.items():
                    place = self._directory / "targets" / targets[path].get_prefixed_paths()[0]
                    place.parent.mkdir(parents=True, exist_ok=True)
                    write_file(place, data)
                self._sign_from("targets")
            listed = list_packages(targets)
            return [
                next(item for item in listed[package_id] if item.version == version)
                for package_id, version in published
            ]

    def withdraw(self, package_id: str, version: str) -> None:
        """Takes a version out of the index; its files stay, for clients that are fetching it.

        Raises:
            PackageIndexError: ``package_not_in_index``, or as :meth:`publish_all`.
        """
        with self._changing():
            self._load()
            self._check_keys(ROLES[1:])
            targets = self.targets().targets
            if targets.pop(target_path(package_id, version, ARCHIVE), None) is None:
                raise PackageIndexError(
                    "package_not_in_index",
                    f"The index does not have {package_id} {version}.",
                    next_step="`remit package index search` shows what it has.",
                )
            targets.pop(target_path(package_id, version, ENVELOPE), None)
            self._sign_from("targets")

    def refresh(self, *, everything: bool = False) -> dict[str, datetime]:
        """Signs the present state again, so that it does not expire.

        Args:
            everything: root and targets too, which takes their keys; else snapshot and timestamp.

        Returns:
            When each role expires, in UTC.

        Raises:
            PackageIndexError: ``index_key``, ``index_not_added``, ``index_damaged``.
        """
        with self._changing():
            self._load()
            self._check_keys(ROLES if everything else ROLES[2:])
            self._sign_from("root" if everything else "snapshot")
            return self._expiry()

    def expiry(self) -> dict[str, datetime]:
        """When each role expires, in UTC.

        Raises:
            PackageIndexError: ``index_not_added``, ``index_damaged``.
        """
        self._load()
        return self._expiry()

    def rotate(self, role: str) -> list[Path]:
        """Gives a role new keys; clients follow by themselves.

        All keys of a role sign, whether they count yet or not. So what the new root metadata asks
        for is signed by old and new keys before it is there, and no client ever finds a state
        that its root metadata does not accept.

        Returns:
            The files of the old keys, which are renamed.

        Raises:
            InvalidInputError: there is no such role.
            PackageIndexError: as :meth:`refresh`.
        """
        if role not in ROLES:
            raise InvalidInputError(f"There is no role {role}.", next_step=", ".join(ROLES))
        with self._changing():
            self._load()
            # The keys of a role that is rotated may be lost, but for those of root.
            self._check_keys(
                {"root", *ROLES[ROLES.index(role) + 1 :]} if role != "root" else {role}
            )
            # New ones even if an unused key is there: it may be an old one.
            threshold = self.root().roles[role].threshold
            made = [self._keys.make(role) for _ in range(threshold)]
            if role != "root":
                self._sign_from(role)
            with self.edit_root() as root:
                for keyid in list(root.roles[role].keyids):
                    root.revoke_key(keyid, role)
                for signer in made:
                    root.add_key(signer.public_key, role)
            return self._keys.retire(role, self.root().roles[role].keyids)

    @override
    def open(self, role: str) -> Metadata[Any]:
        return self._parts[role]

    @override
    def close(self, role: str, md: Metadata[Any]) -> None:
        days: int = getattr(self._settings.index, f"{role}_days")
        md.signed.version += 1
        md.signed.expires = self._clock().replace(microsecond=0) + timedelta(days=days)
        md.signatures.clear()
        for signer in self._keys.of(role):
            md.sign(signer, append=True)
        data = md.to_bytes()
        name = "timestamp.json" if role == "timestamp" else f"{md.signed.version}.{role}.json"
        write_file(self._metadata(name), data)
        if role == "root":
            write_file(self._pinned, data)
        self._metas[role] = MetaFile.from_data(md.signed.version, data, ["sha256"])

    @property
    @override
    def targets_infos(self) -> dict[str, MetaFile]:
        return {"targets.json": self._metas.get("targets") or self.snapshot().meta["targets.json"]}

    @property
    @override
    def snapshot_info(self) -> MetaFile:
        return self._metas.get("snapshot", self.timestamp().snapshot_meta)

    def _sign_from(self, first: str) -> None:
        """New versions of a role and of all that vouch for it, the timestamp last."""
        for role in ROLES[ROLES.index(first) : 2]:
            with self.edit(role):
                pass
        if first != "timestamp":
            self.do_snapshot(force=True)
        self.do_timestamp(force=True)

    def _check_keys(self, roles: Iterable[str]) -> None:
        """Fails, before anything is written, when a key of one of the roles is missing."""
        for role in roles:
            asked = self.root().roles[role]
            mine = {signer.public_key.keyid for signer in self._keys.of(role)}
            if (count := len(mine & set(asked.keyids))) < asked.threshold:
                raise PackageIndexError(
                    "index_key",
                    f"{self._keys.directory} holds {count} of the {asked.threshold} keys that "
                    f"have to sign {role} in this index.",
                    next_step=f"Put {role}.pem there, as `remit package index init` or `rotate` "
                    "made it.",
                )

    def _expiry(self) -> dict[str, datetime]:
        return {role: self._parts[role].signed.expires for role in ROLES}

    @property
    def _pinned(self) -> Path:
        return self._keys.directory / _PINNED

    def _metadata(self, name: str) -> Path:
        return self._directory / "metadata" / name

    def _load(self) -> None:
        """Reads the present state, verified by the pinned root metadata."""
        if not self._metadata("timestamp.json").exists():
            raise PackageIndexError(
                "index_not_added",
                f"There is no index in {self._directory}.",
                next_step="`remit package index init` makes one.",
            )
        self._metas.clear()
        try:
            self._parts = {"root": self._newest_root()}
            self._verify("timestamp", "timestamp.json", None)
            meta = self.timestamp().snapshot_meta
            self._verify("snapshot", f"{meta.version}.snapshot.json", meta)
            meta = self.snapshot().meta["targets.json"]
            self._verify("targets", f"{meta.version}.targets.json", meta)
        except (OSError, RepositoryError, KeyError) as error:
            raise PackageIndexError(
                "index_damaged",
                f"The index {self._directory} is not what its publisher signed: {error}.",
                next_step="Somebody else may have written to it. Put a good copy back; nothing "
                "was signed.",
            ) from error

    def _newest_root(self) -> Metadata[Root]:
        """The newest root metadata, by way of each version after the pinned one."""
        found = Metadata[Root].from_bytes(self._pinned.read_bytes())
        while (file := self._metadata(f"{found.signed.version + 1}.root.json")).exists():
            data = file.read_bytes()
            following = Metadata[Root].from_bytes(data)
            for root in (found.signed, following.signed):
                root.verify_delegate(Root.type, following.signed_bytes, following.signatures)
            if following.signed.version != found.signed.version + 1:
                raise RepositoryError(f"{file.name} holds another version")
            found = following
            write_file(self._pinned, data)
        return found

    def _verify(self, role: str, name: str, meta: MetaFile | None) -> None:
        data = self._metadata(name).read_bytes()
        if meta is not None:
            meta.verify_length_and_hashes(data)
        found: Metadata[Any] = Metadata.from_bytes(data)
        if not isinstance(found.signed, _KINDS[role]):
            raise RepositoryError(f"{name} holds {found.signed.type}")
        self.root().verify_delegate(role, found.signed_bytes, found.signatures)
        self._parts[role] = found

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            self._metadata("").mkdir(parents=True, exist_ok=True)
            with locked(self._directory / _LOCK, self._settings.lock_timeout_s):
                for folder in (self._directory, self._keys.directory):
                    for draft in folder.rglob(f".*{DRAFT}"):  # of a process that was killed
                        draft.unlink(missing_ok=True)
                yield
        except OSError as error:
            raise PackageIndexError(
                "index_damaged",
                f"The index {self._directory} or its keys cannot be read or written: {error}.",
                next_step="Check the free space and the permissions of both directories.",
            ) from error
