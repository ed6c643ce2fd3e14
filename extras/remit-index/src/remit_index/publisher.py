"""Publishing an index: signed metadata of TUF, written so that clients always see one state.

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
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from securesystemslib.signer import CryptoSigner
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, MetaFile, Root, Snapshot, TargetFile, Targets, Timestamp

from remit.kernel.errors import InvalidInputError
from remit.kernel.settings import PackageSettings
from remit.packages import (
    IncomingArchive,
    Manifest,
    PackageKey,
    PackageKeyError,
    file_lock,
    read_archive,
    read_envelope,
    replace_file,
)
from remit_index.errors import index_error
from remit_index.listing import ARCHIVE, ENVELOPE, Listed, list_packages, target_path

_KINDS: tuple[type[Any], ...] = (Root, Targets, Snapshot, Timestamp)
_ROLES = tuple(kind.type for kind in _KINDS)  # in the order in which they are written
_PUBLIC, _PRIVATE = 0o644, 0o600  # modes of files
_SHORT = 12  # characters of a key's id in its file's name


class IndexPublisher:
    """An index that this process may change.

    Every change holds a lock, and writes new files first, the timestamp that leads to them last:
    killed anywhere, clients see the state before or the state after. What is in the directory is
    verified by the root metadata beside the keys before anything is signed on top of it:
    write access to the web server is not enough to have a package signed.

    All keys of a role that are there sign; which of them count, the root metadata says. So a key
    can be made before it counts, and one that is not needed can be elsewhere: that of ``root`` is
    needed for ``rotate`` and ``renew --all`` alone.

    Args:
        directory: what is served.
        keys: directory of the private keys, outside of ``directory``.
        settings: limits of archives, and how many days a role's signatures hold.
        clock: the present, in UTC.

    Raises:
        InvalidInputError: the keys are in what is served; by methods: there is no such role.
        PackageIndexError: by methods, with the codes of ``docs/package-index.md``.
    """

    def __init__(
        self,
        directory: Path,
        keys: Path,
        settings: PackageSettings,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if keys.resolve().is_relative_to(directory.resolve()):
            raise InvalidInputError(
                f"The keys' directory {keys} is in the index {directory}, which is there to be "
                "copied and served.",
                next_step="Give a directory outside of the index.",
            )
        self._directory = directory
        self._metadata = directory / "metadata"
        self._keys = keys
        self._pinned = keys / "root.json"
        self._settings = settings
        self._clock = clock
        self._parts: dict[str, Metadata[Any]] = {}

    def create(self, thresholds: Mapping[str, int] | None = None) -> Path:
        """Makes an empty index, with new keys where there are none.

        Args:
            thresholds: by role, how many keys have to sign; 1 where it is not given.

        Returns:
            The root metadata, which clients have to be given through a channel that they trust.
        """
        needed = dict.fromkeys(_ROLES, 1) | dict(thresholds or {})
        for role, threshold in needed.items():
            if role not in _ROLES or threshold < 1:
                raise InvalidInputError(
                    f"{role}={threshold} is no threshold.",
                    next_step=f"Roles are {', '.join(_ROLES)}; a threshold is 1 or more.",
                )
        with self._changing():
            first = self._metadata / "1.root.json"
            if self._exists:
                raise index_error(
                    "index_exists", f"There is an index in {self._directory} already."
                )
            if self._pinned.exists() and not first.exists():
                raise index_error("index_exists", f"{self._keys} holds the keys of another index.")
            self._parts = {kind.type: Metadata(kind()) for kind in _KINDS}
            for role, threshold in needed.items():
                self._parts[role].signed.version = 0  # _write() increments it
                self._root.roles[role].threshold = threshold
                signers = list(self._signers(role).values())
                signers += [self._make_key(role) for _ in range(threshold - len(signers))]
                for signer in signers:
                    self._root.add_key(signer.public_key, role)
            self._write_from("root")
            return first

    def publish(self, *archives: Path) -> list[Listed]:
        """Puts packages into the index: all of them, or none.

        A version is published once: the same archive again changes nothing, another one is
        refused. Its signature may come later, or be replaced by one with more keys.

        Args:
            archives: files; where they are signed, the signatures (``.intoto.json``) are beside
                them.

        Raises:
            PackageError: ``unreadable``, ``archive_too_large``; or an archive is no package.
            SignatureError: a signature is none of a package.
        """
        with self._changing():
            self._load()
            targets = self._parts["targets"].signed.targets
            published: list[tuple[str, str]] = []
            new: dict[str, bytes] = {}
            for archive in archives:
                manifest, files = self._read(archive)
                published.append((manifest.package_id, manifest.version))
                for target, data in files:
                    before = targets.get(target.path)
                    if before is not None and before.hashes == target.hashes:
                        continue
                    if before is not None and target.path.endswith(ARCHIVE):
                        raise index_error(
                            "index_exists",
                            f"{manifest.package_id} {manifest.version} is in the index with other "
                            "content.",
                        )
                    targets[target.path] = target
                    new[target.path] = data
            if new:
                self._check_keys(_ROLES[1:])
                for path, data in new.items():
                    place = self._directory / "targets" / targets[path].get_prefixed_paths()[0]
                    place.parent.mkdir(parents=True, exist_ok=True)
                    replace_file(place, data, _PUBLIC)
                self._write_from("targets")
        listed = {
            (item.package_id, item.version): item
            for versions in list_packages(targets).values()
            for item in versions
        }
        return [listed[each] for each in published]

    def withdraw(self, package_id: str, version: str) -> None:
        """Takes a version out of the index; its files stay, for clients that are fetching it."""
        with self._changing():
            self._load()
            targets = self._parts["targets"].signed.targets
            self._check_keys(_ROLES[1:])
            if targets.pop(target_path(package_id, version, ARCHIVE), None) is None:
                raise index_error(
                    "package_not_in_index", f"The index does not have {package_id} {version}."
                )
            targets.pop(target_path(package_id, version, ENVELOPE), None)
            self._write_from("targets")

    def renew(self, *, everything: bool = False) -> dict[str, datetime]:
        """Signs the present state again, so that it does not expire.

        Args:
            everything: root and targets too, which takes their keys; else snapshot and timestamp.

        Returns:
            When each role expires, in UTC.
        """
        with self._changing():
            self._load()
            self._check_keys(_ROLES if everything else _ROLES[2:])
            self._write_from("root" if everything else "snapshot")
        return self.expiry

    @property
    def expiry(self) -> dict[str, datetime]:
        """When each role expires, in UTC, as of the operation before."""
        return {role: self._parts[role].signed.expires for role in _ROLES}

    def rotate(self, role: str) -> list[Path]:
        """Gives a role new keys; clients follow by themselves.

        What the new root metadata asks for is signed by old and new keys before it is there: no
        client ever finds a state that its root metadata does not accept.

        Returns:
            The files of the old keys, which are renamed.
        """
        if role not in _ROLES:
            raise InvalidInputError(f"There is no role {role}.", next_step=", ".join(_ROLES))
        with self._changing():
            self._load()
            # The keys of a role that is rotated may be lost, but for those of root.
            others = _ROLES[_ROLES.index(role) + 1 :] if role != "root" else ()
            self._check_keys(("root", *others))
            # New ones even if an unused key is there: it may be an old one.
            made = [self._make_key(role) for _ in range(self._root.roles[role].threshold)]
            if role != "root":
                self._write_from(role)
            for keyid in list(self._root.roles[role].keyids):
                self._root.revoke_key(keyid, role)
            for signer in made:
                self._root.add_key(signer.public_key, role)
            self._write("root")
            return [
                file.rename(
                    file.with_name(f"{role}-{signer.public_key.keyid[:_SHORT]}.pem.retired")
                )
                for file, signer in self._signers(role).items()
                if signer.public_key.keyid not in self._root.roles[role].keyids
            ]

    @property
    def _root(self) -> Root:
        root: Root = self._parts["root"].signed
        return root

    @property
    def _exists(self) -> bool:
        return (self._metadata / "timestamp.json").exists()

    def _read(self, archive: Path) -> tuple[Manifest, list[tuple[TargetFile, bytes]]]:
        """A package's manifest, and its targets with their bytes."""
        incoming = IncomingArchive.from_file(archive, self._settings.compressed_bytes)
        found = read_archive(io.BytesIO(incoming.data), self._settings)
        manifest = found.manifest
        files = {ARCHIVE: found.data}
        if IncomingArchive.envelope_file(archive).exists():
            signed = read_envelope(incoming.envelope, self._settings.envelope_bytes)
            if signed.statement().archive_digest != found.digest:
                problem = f"The signature beside {archive} is of another archive."
                raise index_error("index_mixed", problem)
            files[ENVELOPE] = incoming.envelope
        custom = {
            "package_id": manifest.package_id,
            "version": manifest.version,
            "title": manifest.title,
            "manifest_sha256": manifest.digest,
        }
        targets = []
        for ending, data in files.items():
            path = target_path(manifest.package_id, manifest.version, ending)
            target = TargetFile.from_data(path, data, ["sha256"])
            target.unrecognized_fields["custom"] = custom
            targets.append((target, data))
        return manifest, targets

    def _make_key(self, role: str) -> CryptoSigner:
        signer = CryptoSigner.generate_ed25519()
        self._keys.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = self._keys / f"{role}.pem"
        if file.exists():
            file = file.with_name(f"{role}-{signer.public_key.keyid[:_SHORT]}.pem")
        replace_file(file, signer.private_bytes, _PRIVATE)
        return signer

    def _signers(self, role: str) -> dict[Path, CryptoSigner]:
        name = re.compile(rf"{role}(-[0-9a-f]+)?\.pem")
        files = [file for file in sorted(self._keys.glob("*.pem")) if name.fullmatch(file.name)]
        try:
            return {file: PackageKey.load(file).signer for file in files}
        except PackageKeyError as error:
            raise index_error("index_key", error.message) from error

    def _check_keys(self, roles: Iterable[str]) -> None:
        """Fails, before anything is written, when a key of one of the roles is missing."""
        for role in roles:
            needed = self._root.roles[role]
            mine = {signer.public_key.keyid for signer in self._signers(role).values()}
            if (count := len(mine & set(needed.keyids))) < needed.threshold:
                raise index_error(
                    "index_key",
                    f"{self._keys} holds {count} of the {needed.threshold} keys that have to sign "
                    f"{role} in this index.",
                )

    def _write_from(self, first: str) -> None:
        """New versions of a role and of all that vouch for it, the timestamp last."""
        made: MetaFile | None = None
        for role in _ROLES[_ROLES.index(first) :]:
            if made is not None and role == "snapshot":
                self._parts[role].signed.meta["targets.json"] = made
            elif made is not None and role == "timestamp":
                self._parts[role].signed.snapshot_meta = made
            made = self._write(role)

    def _write(self, role: str) -> MetaFile:
        part = self._parts[role]
        days: int = getattr(self._settings.index, f"{role}_days")
        part.signed.version += 1
        part.signed.expires = self._clock().replace(microsecond=0) + timedelta(days=days)
        part.signatures.clear()
        for signer in self._signers(role).values():
            part.sign(signer, append=True)
        data = part.to_bytes()
        name = "timestamp.json" if role == "timestamp" else f"{part.signed.version}.{role}.json"
        replace_file(self._metadata / name, data, _PUBLIC)
        if role == "root":
            replace_file(self._pinned, data, _PUBLIC)
        return MetaFile.from_data(part.signed.version, data, ["sha256"])

    def _load(self) -> None:
        """Reads the present state, verified by the pinned root metadata."""
        if not self._exists:
            raise index_error("index_not_added", f"There is no index in {self._directory}.")
        try:
            self._parts = {"root": Metadata.from_bytes(self._pinned.read_bytes())}
            while (file := self._metadata / f"{self._root.version + 1}.root.json").exists():
                self._read_part("root", file.name)
                replace_file(self._pinned, file.read_bytes(), _PUBLIC)
            meta = self._read_part("timestamp", "timestamp.json").snapshot_meta
            snapshot = self._read_part("snapshot", f"{meta.version}.snapshot.json", meta)
            meta = snapshot.meta["targets.json"]
            self._read_part("targets", f"{meta.version}.targets.json", meta)
        except (OSError, RepositoryError, KeyError) as error:
            raise index_error(
                "index_damaged",
                f"The index {self._directory} is not what its publisher signed: {error}. Somebody "
                "else may have written to it; nothing was signed.",
            ) from error

    def _read_part(self, role: str, name: str, meta: MetaFile | None = None) -> Any:
        data = (self._metadata / name).read_bytes()
        if meta is not None:
            meta.verify_length_and_hashes(data)
        part: Metadata[Any] = Metadata.from_bytes(data)
        if part.signed.type != role or name not in (
            f"{role}.json", f"{part.signed.version}.{role}.json"
        ):  # fmt: skip
            raise RepositoryError(f"{name} holds {part.signed.type} {part.signed.version}")
        for root in (self._root, part.signed) if role == "root" else (self._root,):
            root.verify_delegate(role, part.signed_bytes, part.signatures)
        self._parts[role] = part
        return part.signed

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            self._metadata.mkdir(parents=True, exist_ok=True)
            with file_lock(self._directory / ".lock", self._settings.lock_timeout_s):
                for folder in (self._directory, self._keys):
                    for draft in folder.rglob(".*.new"):  # of a process that was killed
                        draft.unlink(missing_ok=True)
                yield
        except OSError as error:
            raise index_error(
                "index_damaged",
                f"The index {self._directory} or its keys cannot be read or written: {error}.",
            ) from error
