"""Root metadata: which keys an index's signatures have to be of (TUF 4.3)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root

from remit.packages.errors import PackageIndexError

__all__ = ["RootMetadata"]


@dataclass(frozen=True, slots=True)
class RootMetadata:
    """What a root metadata file says, for a person to compare before trusting it.

    Attributes:
        sha256: ``sha256:…`` of the file.
        threshold: how many of ``keyids`` have to sign the next root metadata.
    """

    version: int
    sha256: str
    keyids: tuple[str, ...]
    threshold: int
    expires: datetime

    @classmethod
    def parse(cls, data: bytes) -> RootMetadata:
        """Reads it and checks that its own keys signed it.

        Raises:
            PackageIndexError: ``index_bad_signature``.
        """
        try:
            found = Metadata[Root].from_bytes(data)
            if not isinstance(found.signed, Root):
                raise RepositoryError(f"it is metadata of the kind {found.signed.type}")
            found.signed.verify_delegate(Root.type, found.signed_bytes, found.signatures)
        except RepositoryError as error:
            raise PackageIndexError(
                "index_bad_signature",
                f"The file is no root metadata that its own keys signed ({error}).",
                next_step="Get N.root.json from who publishes the index, on a way that you trust.",
            ) from error
        role = found.signed.roles[Root.type]
        return cls(
            version=found.signed.version,
            sha256=f"sha256:{hashlib.sha256(data).hexdigest()}",
            keyids=tuple(sorted(role.keyids)),
            threshold=role.threshold,
            expires=found.signed.expires,
        )
