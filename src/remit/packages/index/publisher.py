"""Publishing an index: what is signed, in an order that leaves clients a whole state (TUF 6.2)."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from tuf.api.metadata import Root, Snapshot, TargetFile, Targets, Timestamp

from remit.packages.archive import ArchiveLimits, read_archive
from remit.packages.envelope import read_envelope, read_statement
from remit.packages.errors import PackageIndexError
from remit.packages.index.files import clear_drafts, locked, write_whole
from remit.packages.index.keys import ROLES, PublisherKeys, thresholds_of
from remit.packages.index.limits import Lifetimes
from remit.packages.index.served import Served, Signatures
from remit.packages.index.signing import StateSigner
from remit.packages.index.targets import ARCHIVE, ENVELOPE, Listed, listed_in, target_path

__all__ = ["IndexPublisher"]

_HASHES = ["sha256"]
_LOCK = ".lock"


def _now() -> datetime:
    return datetime.now(UTC)


class IndexPublisher:
    """An index that this process may change.

    Every change holds a lock, and writes new files first, the timestamp that leads to them last:
    killed anywhere, clients see the state before or the state after.

    Args:
        directory: what is served.
        keys: directory of the private keys, outside of ``directory``.
        lifetimes: of what is signed from now on.
        limits: of archives.
        envelope_bytes: largest signature.
        lock_timeout_s: seconds to wait for another publisher.
        clock: the present, in UTC.

    Raises:
        InvalidInputError: the keys lie in what is served.
    """

    def __init__(
        self,
        directory: Path,
        keys: Path,
        *,
        lifetimes: Lifetimes,
        limits: ArchiveLimits,
        envelope_bytes: int,
        lock_timeout_s: float,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self._served = Served(directory, keys)
        self._keys = PublisherKeys(keys)
        self._keys.outside(directory)
        self._limits = limits
        self._envelope_bytes = envelope_bytes
        self._lock_timeout_s = lock_timeout_s
        self._signing = StateSigner(self._served, self._keys, lifetimes, clock)

    def create(self, thresholds: Mapping[str, int] | None = None) -> Path:
        """Makes an empty index, with new keys where there are none.

        Args:
            thresholds: by role, how many keys have to sign; 1 where nothing is said.

        Returns:
            The root metadata, which clients have to be given on a way that they trust.

        Raises:
            PackageIndexError: ``index_exists``; ``index_damaged``: it cannot be written.
        """
        needed = thresholds_of(thresholds or {})
        with self._writing():
            if self._served.complete:
                raise PackageIndexError(
                    "index_exists",
                    f"There is an index in {self._served.directory} already.",
                    next_step="Use `remit package index publish`, or another directory.",
                )
            if self._served.pinned_elsewhere:
                raise PackageIndexError(
                    "index_exists",
                    f"{self._keys.directory} holds the keys of another index.",
                    next_step="Give each index keys of its own, in another directory.",
                )
            root = Root(version=1, consistent_snapshot=True)
            for role in ROLES:
                signers = self._keys.of(role)
                while len(signers) < needed[role]:
                    made = self._keys.make(role)
                    signers[made.public_key.keyid] = made
                for signer in signers.values():
                    root.add_key(signer.public_key, role)
                root.roles[role].threshold = needed[role]
            self._signing.sign_root(root, root)
            state = Signatures(root, Targets(), Snapshot(), Timestamp())
            for part in (state.targets, state.snapshot, state.timestamp):
                part.version = 0  # signing counts on
            self._signing.sign(state, "targets")
            return self._served.metadata("1.root.json")

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
        with self._writing():
            state = self._served.read()
            published: list[tuple[str, str]] = []
            new: dict[str, bytes] = {}
            for archive, envelope in packages:
                files, named = self._read(archive, envelope)
                for path, (target, data) in files.items():
                    before = state.targets.targets.get(path)
                    if before is not None and before.hashes == target.hashes:
                        continue
                    if before is not None and path.endswith(ARCHIVE):
                        raise PackageIndexError(
                            "index_exists",
                            f"{named[0]} {named[1]} is in the index with other content.",
                            next_step="Give what changed a new version; a version that may be two "
                            "things is none.",
                        )
                    state.targets.targets[path] = target
                    new[path] = data
                published.append(named)
            if new:
                self._signing.check(state.root, ROLES[1:])
                for path, data in new.items():
                    place = self._served.target(state.targets.targets[path].get_prefixed_paths()[0])
                    place.parent.mkdir(parents=True, exist_ok=True)
                    write_whole(place, data)
                self._signing.sign(state, "targets")
            listed = listed_in(state.targets.targets)
            return [
                next(one for one in listed[package_id] if one.version == version)
                for package_id, version in published
            ]

    def withdraw(self, package_id: str, version: str) -> None:
        """Takes a version out of the index; its files stay, for clients in the middle of it.

        Raises:
            PackageIndexError: ``package_not_in_index``, or as :meth:`publish_all`.
        """
        with self._writing():
            state = self._served.read()
            if state.targets.targets.pop(target_path(package_id, version, ARCHIVE), None) is None:
                raise PackageIndexError(
                    "package_not_in_index",
                    f"The index does not have {package_id} {version}.",
                    next_step="`remit package index search` shows what it has.",
                )
            state.targets.targets.pop(target_path(package_id, version, ENVELOPE), None)
            self._signing.sign(state, "targets")

    def refresh(self, *, everything: bool = False) -> dict[str, datetime]:
        """Signs the present state anew, so that it does not expire.

        Args:
            everything: root and targets too, which takes their keys; else snapshot and timestamp.

        Returns:
            When each role expires, in UTC.

        Raises:
            PackageIndexError: ``index_key``, ``index_not_added``, ``index_damaged``.
        """
        with self._writing():
            state = self._served.read()
            self._signing.check(state.root, ROLES if everything else ROLES[2:])
            if everything:
                before = copy.deepcopy(state.root)
                state.root.version += 1
                self._signing.sign_root(state.root, before)
            self._signing.sign(state, "targets" if everything else "snapshot")
            return {role: state.of(role).expires for role in ROLES}

    def expiry(self) -> dict[str, datetime]:
        """When each role expires, in UTC.

        Raises:
            PackageIndexError: ``index_not_added``, ``index_damaged``.
        """
        state = self._served.read()
        return {role: state.of(role).expires for role in ROLES}

    def rotate(self, role: str) -> list[Path]:
        """Gives a role new keys; clients follow by themselves.

        Until the new root metadata is there, what it will ask for is signed by old and new keys,
        so that no client ever finds a state that its root metadata does not accept.

        Returns:
            The files of the old keys, set aside.

        Raises:
            InvalidInputError: there is no such role.
            PackageIndexError: as :meth:`refresh`.
        """
        thresholds_of({role: 1})
        with self._writing():
            state = self._served.read()
            before = copy.deepcopy(state.root)
            self._signing.check(before, [Root.type])
            # Never one that lies there already: it may be an old one that was to be set aside.
            made = [self._keys.make(role) for _ in range(before.roles[role].threshold)]
            for keyid in list(before.roles[role].keyids):
                state.root.revoke_key(keyid, role)
            for signer in made:
                state.root.add_key(signer.public_key, role)
            state.root.version += 1
            if role != Root.type:
                interim = Signatures(before, state.targets, state.snapshot, state.timestamp)
                self._signing.sign(interim, role, successors=made)
            self._signing.sign_root(state.root, before)
            return self._keys.retire(role, state.root.roles[role].keyids)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        directory = self._served.directory
        try:
            self._served.metadata("").mkdir(parents=True, exist_ok=True)
            with locked(directory / _LOCK, self._lock_timeout_s):
                clear_drafts(self._served.metadata(""))
                self._keys.clear_drafts()
                for folder in self._served.target("packages").glob("*"):
                    clear_drafts(folder)
                yield
        except OSError as error:
            raise PackageIndexError(
                "index_damaged",
                f"The index {directory} or its keys cannot be read or written: {error}.",
                next_step="Check the free space and the permissions of both directories.",
            ) from error

    def _read(
        self, archive: Path, envelope: Path | None
    ) -> tuple[dict[str, tuple[TargetFile, bytes]], tuple[str, str]]:
        """What becomes of one package: targets and their bytes by path; its id and version."""
        with archive.open("rb") as file:
            data = file.read(self._limits.compressed_bytes + 1)
        found = read_archive(io.BytesIO(data), self._limits)
        manifest = found.manifest
        named = manifest.package_id, manifest.version
        custom = {
            "package_id": manifest.package_id,
            "version": manifest.version,
            "title": manifest.title,
            "manifest_sha256": manifest.digest,
        }
        files = {target_path(*named, ARCHIVE): found.data}
        if envelope is not None:
            with envelope.open("rb") as file:
                signature = file.read(self._envelope_bytes + 1)
            signed = read_envelope(signature, self._envelope_bytes)
            statement = read_statement(signed.payload)
            if statement.archive_digest != found.digest:
                raise PackageIndexError(
                    "index_mixed",
                    f"The signature {envelope} is of another archive than {archive}.",
                    next_step="Sign the archive that you publish: `remit package sign`.",
                )
            files[target_path(*named, ENVELOPE)] = signature
        targets = {}
        for path, content in files.items():
            target = TargetFile.from_data(path, content, _HASHES)
            target.unrecognized_fields["custom"] = custom
            targets[path] = target, content
        return targets, named
