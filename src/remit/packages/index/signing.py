"""Signing the parts of an index, in an order in which what leads to a part comes after it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import Metadata, MetaFile, Root, Snapshot, Targets

from remit.packages.index.keys import ROLES, PublisherKeys
from remit.packages.index.limits import Lifetimes
from remit.packages.index.served import Served, Signatures

__all__ = ["StateSigner"]


class StateSigner:
    """Makes new versions of what an index signs.

    Args:
        clock: the present, in UTC.
    """

    def __init__(
        self,
        served: Served,
        keys: PublisherKeys,
        lifetimes: Lifetimes,
        clock: Callable[[], datetime],
    ) -> None:
        self._served = served
        self._keys = keys
        self._lifetimes = lifetimes
        self._clock = clock

    def check(self, root: Root, roles: Iterable[str]) -> None:
        """Fails, before anything is written, when a key of one of the roles will be missing.

        Raises:
            PackageIndexError: ``index_key``.
        """
        for role in roles:
            self._signers(root, role)

    def sign(
        self, state: Signatures, first: str, *, successors: Sequence[CryptoSigner] = ()
    ) -> None:
        """New versions of a role and of all that vouch for it, the timestamp last.

        Args:
            first: ``targets``, ``snapshot`` or ``timestamp``.
            successors: keys that will replace those of ``first``. Both sign; of the old ones,
                those that are still there.

        Raises:
            PackageIndexError: ``index_key``; nothing was written.
        """
        plan = []
        for role in ROLES[ROLES.index(first) :]:
            more = successors if role == first else ()
            plan.append((role, [*self._signers(state.root, role, lost_ok=bool(more)), *more]))
        for role, signers in plan:
            part = state.of(role)
            part.version += 1
            part.expires = self._expires(role)
            data = self._served.write(role, _signed(part, signers))
            meta = MetaFile(part.version, len(data), {"sha256": hashlib.sha256(data).hexdigest()})
            if role == Targets.type:
                state.snapshot.meta["targets.json"] = meta
            elif role == Snapshot.type:
                state.timestamp.snapshot_meta = meta

    def sign_root(self, root: Root, before: Root) -> None:
        """Signs by the keys that the version before names, and by those that it names itself.

        Raises:
            PackageIndexError: ``index_key``; nothing was written.
        """
        root.expires = self._expires(Root.type)
        signers = {
            signer.public_key.keyid: signer
            for one in (before, root)
            for signer in self._signers(one, Root.type)
        }
        self._served.write(Root.type, _signed(root, signers.values()))

    def _signers(self, root: Root, role: str, *, lost_ok: bool = False) -> list[CryptoSigner]:
        asked = root.roles[role]
        return self._keys.signers(role, asked.keyids, 0 if lost_ok else asked.threshold)

    def _expires(self, role: str) -> datetime:
        days: int = getattr(self._lifetimes, role)
        return self._clock().replace(microsecond=0) + timedelta(days=days)


def _signed(part: Any, signers: Iterable[CryptoSigner]) -> Metadata[Any]:
    metadata: Metadata[Any] = Metadata(part)
    for signer in signers:
        metadata.sign(signer, append=True)
    return metadata
