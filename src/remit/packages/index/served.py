"""An index's files as its publisher keeps them (TUF 6, consistent snapshots).

::

    DIRECTORY/
      metadata/timestamp.json   the only file that changes; all else follows from it
      metadata/N.snapshot.json  N.targets.json  N.root.json
      targets/packages/PKG-X-001/SHA256.1.0.0.tar.gz
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, MetaFile, Root, Signed, Snapshot, Targets, Timestamp

from remit.packages.errors import PackageIndexError
from remit.packages.index.files import write_whole

__all__ = ["Served", "Signatures"]

_PINNED = "root.json"


@dataclass
class Signatures:
    """The signed parts of one state, to be changed and signed anew."""

    root: Root
    targets: Targets
    snapshot: Snapshot
    timestamp: Timestamp

    def of(self, role: str) -> Signed:
        """The part of that name."""
        found: Signed = getattr(self, role)
        return found


class Served:
    """The directory that a web server serves, and the root metadata pinned beside the keys.

    What lies in the directory is verified by the pinned root before anything is signed on top
    of it: whoever can write to the web server cannot have their packages signed.
    """

    def __init__(self, directory: Path, pinned: Path) -> None:
        self.directory = directory
        self._pinned = pinned / _PINNED

    @property
    def complete(self) -> bool:
        """Whether an index was made here, to the end."""
        return self.metadata("timestamp.json").exists()

    @property
    def pinned_elsewhere(self) -> bool:
        """Whether the keys' directory pins root metadata, but none was ever written here."""
        return self._pinned.exists() and not self.metadata("1.root.json").exists()

    def metadata(self, name: str) -> Path:
        """The place of a metadata file."""
        return self.directory / "metadata" / name

    def target(self, path: str) -> Path:
        """The place of a target, its name begun with its hash."""
        return self.directory / "targets" / path

    def read(self) -> Signatures:
        """The present state.

        Raises:
            PackageIndexError: ``index_not_added``: there is no index; ``index_damaged``: it is
                not one that the pinned root metadata vouches for.
        """
        if not self.complete:
            raise PackageIndexError(
                "index_not_added",
                f"There is no index in {self.directory}.",
                next_step="`remit package index init` makes one.",
            )
        try:
            root = self._root()
            timestamp = self._verified(root, Timestamp, "timestamp.json")
            version = timestamp.snapshot_meta.version
            snapshot = self._verified(
                root, Snapshot, f"{version}.snapshot.json", timestamp.snapshot_meta
            )
            meta = snapshot.meta["targets.json"]
            targets = self._verified(root, Targets, f"{meta.version}.targets.json", meta)
        except (OSError, RepositoryError, KeyError) as error:
            raise PackageIndexError(
                "index_damaged",
                f"The index {self.directory} is not what its publisher signed: {error}.",
                next_step="Somebody else may have written to it. Put a good copy back; nothing "
                "was signed.",
            ) from error
        return Signatures(root, targets, snapshot, timestamp)

    def write(self, role: str, signed: Metadata[Any]) -> bytes:
        """Puts a part there; ``timestamp`` is what makes the others count."""
        data = signed.to_bytes()
        version = signed.signed.version
        name = f"{role}.json" if role == Timestamp.type else f"{version}.{role}.json"
        write_whole(self.metadata(name), data)
        if role == Root.type:
            write_whole(self._pinned, data)
        return data

    def _root(self) -> Root:
        """The newest, by way of each version after the pinned one."""
        found = Metadata[Root].from_bytes(self._pinned.read_bytes())
        while (file := self.metadata(f"{found.signed.version + 1}.root.json")).exists():
            data = file.read_bytes()
            following = Metadata[Root].from_bytes(data)
            for by in (found.signed, following.signed):
                by.verify_delegate(Root.type, following.signed_bytes, following.signatures)
            if following.signed.version != found.signed.version + 1:
                raise RepositoryError(f"{file.name} holds another version")
            found = following
            write_whole(self._pinned, data)
        return found.signed

    def _verified(
        self, root: Root, kind: type[Signed], name: str, meta: MetaFile | None = None
    ) -> Any:
        data = self.metadata(name).read_bytes()
        if meta is not None:
            meta.verify_length_and_hashes(data)
        found: Metadata[Any] = Metadata.from_bytes(data)
        if not isinstance(found.signed, kind):
            raise RepositoryError(f"{name} holds {found.signed.type}")
        root.verify_delegate(kind.type, found.signed_bytes, found.signatures)
        return found.signed
