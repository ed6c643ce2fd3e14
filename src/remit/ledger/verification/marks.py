"""Marks: results of a check, stored with the root's key, from which the next check continues.

A mark is not part of the record and proves nothing to others; it saves this root's own checks from
reading entries twice. It lies outside the ledger's database and is authenticated by the ledger's
private key: write access to the database is not enough to make a mark or to move one between roots.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from remit._version import __version__
from remit.kernel.durable_files import write_over
from remit.kernel.errors import RemitError
from remit.ledger.clock import utc_now
from remit.ledger.entry import entry_id
from remit.ledger.errors import EntryArchivedError
from remit.ledger.key_files import LedgerKey

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient

_PURPOSE = b"remit mark of a check, 2\0"


class Marks:
    """The marks of a root: a file for each kind of check.

    The MAC key is read on first use and held. Reading and writing never raise an error of the
    files.

    Args:
        directory: directory of the files, made with the first.
        key: key of the root's ledger. Without its private key no mark is read or written.
        place: path or URL of the ledger; marks of another place are not valid.
    """

    def __init__(self, directory: Path, key: LedgerKey, place: str) -> None:
        self._directory = directory
        self._key = key
        self._place = place

    @functools.cached_property
    def _secret(self) -> bytes:
        """The key of the marks' MAC; empty if the root has no key."""
        try:
            signer = self._key.signer()
        except RemitError:
            return b""
        return hashlib.sha256(_PURPOSE + signer.to_pem() + self._place.encode()).digest()

    def read(self, name: str) -> dict[str, Any]:
        """Return the mark of a kind of check; an empty dict if there is no valid one.

        Marks of other roots, changed or unreadable marks, and marks of other versions of Remit are
        not valid. Without the ledger's private key, no mark is valid. The ledger itself is not
        compared.

        Args:
            name: name of the check.
        """
        try:
            mac, _, data = self.path(name).read_bytes().partition(b"\n")
        except OSError:
            return {}
        if not self._secret or not hmac.compare_digest(mac, self._mac(name, data)):
            return {}
        found: dict[str, Any] = orjson.loads(data)
        return found

    def write(self, name: str, mark: dict[str, Any]) -> None:
        """Replace the mark of a kind of check, in one step; the directory is made if it is missing.

        The mark is authenticated by a MAC under the ledger's private key. Without that key nothing
        is written, and a failure to write is ignored, so the mark may stay as it was.

        Args:
            name: name of the check and of its file.
            mark: the result of the check, as JSON values; others raise TypeError.
        """
        if not self._secret:
            return
        data = orjson.dumps(mark)
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, exist_ok=True)
            write_over(self.path(name), self._mac(name, data) + b"\n" + data, 0o600)

    def path(self, name: str) -> Path:
        """Return the path of a kind's file, ``NAME.mark`` in the directory; the file need not
        exist.

        Args:
            name: name of the check.
        """
        return self._directory / f"{name}.mark"

    def _mac(self, name: str, data: bytes) -> bytes:
        said = f"{name}\0{__version__}\0".encode() + data
        return hmac.digest(self._secret, said, "sha256").hex().encode()


def read_mark(ledger: LedgerClient, name: str) -> dict[str, Any]:
    """Return the mark that :func:`keep_mark` wrote; an empty dict if there is none.

    A mark over entries that are archived, different or more than there are is ignored. A ledger
    client without a root has no marks.

    Args:
        ledger: the ledger.
        name: name of the check.

    Returns:
        The result of the check, with ``size``, ``entry_hash`` and ``verified`` (the time).

    Raises:
        EntryNotFoundError: the last entry under the mark is missing amid the ledger.
        LedgerError: the ledger cannot be read.
    """
    found = ledger.marks.read(name) if ledger.marks is not None else {}
    size = found.get("size", 0)
    if not 0 < size <= ledger.count():
        return {}
    try:
        return found if found["entry_hash"] == _hash_before(ledger, size) else {}
    except EntryArchivedError:
        return {}


def keep_mark(ledger: LedgerClient, name: str, size: int, found: dict[str, Any]) -> None:
    """Write the result of a check of the first ``size`` entries of a ledger as a mark.

    An earlier mark of the check is replaced; a failure to write the file is ignored.

    Args:
        ledger: the ledger; nothing is written if it has no marks.
        name: name of the check.
        size: number of checked entries; nothing is written for 0.
        found: the result, to which size, hash of the last entry and time are added; it is not
            changed.

    Raises:
        EntryNotFoundError: the last of these entries is missing or archived.
        LedgerError: the ledger cannot be read.
    """
    if ledger.marks is not None and size:
        of = {"size": size, "entry_hash": _hash_before(ledger, size), "verified": utc_now()}
        ledger.marks.write(name, {**found, **of})


def _hash_before(ledger: LedgerClient, seq: int) -> str:
    return ledger.read(entry_id(seq - 1), with_content=False).entry_hash
