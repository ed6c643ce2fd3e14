"""The record of a witness: its key, its latest cosigned trees, and evidence against logs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from typing_extensions import override

from remit.kernel.durable_files import publish
from remit.kernel.errors import RemitError
from remit.ledger.key_files import KeyFiles
from remit.ledger.tlog import EMPTY_ROOT, SignedCheckpoint, Signer, VerifierKey
from remit.ledger.tlog.note import COSIGNATURE

MAX_EVIDENCE_ROWS = 1_000
"""Maximum number of stored requests of one log; later ones are dropped."""

MAX_EVIDENCE_BYTES = 16_000_000
"""Maximum bytes of stored requests of one log, which must not fill its witness's disk."""

FORK = "fork"
"""Two signed trees of one size: proof by itself."""

UNPROVEN = "unproven"
"""A signed tree that was not shown to extend the one before: a hint, for anyone can send it
with a wrong proof."""

_BUSY_S = 10.0
_SEEN = "SELECT origin, size, root, note, updated FROM seen"
_VERSION = 1  # The file stores it as user_version.
_CREATE = f"""
    CREATE TABLE seen(
        origin TEXT PRIMARY KEY,
        size INTEGER NOT NULL CHECK (size >= 0),
        root BLOB NOT NULL CHECK (length(root) = 32),
        note TEXT NOT NULL,
        updated TEXT NOT NULL) STRICT;
    CREATE TABLE evidence(
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        origin TEXT NOT NULL,
        received TEXT NOT NULL,
        reason TEXT NOT NULL,
        body BLOB NOT NULL,
        held TEXT NOT NULL,
        digest BLOB NOT NULL,
        UNIQUE (origin, reason, digest)) STRICT;
    PRAGMA user_version={_VERSION};
"""


class WitnessError(RemitError):
    """A witness cannot run, cannot be reached, does not answer correctly, or contradicts this log.

    Args:
        message: the fault, as a sentence.
        next_step: advice; empty if there is none.
        witness_size: as the attribute.
        size: as the attribute.

    Attributes:
        witness_size: number of entries that the witness has seen, if it has cosigned a tree that
            this log's tree does not extend; None for every other fault.
        size: number of entries in this log's checkpoint; None without ``witness_size``.
    """

    def __init__(
        self, message: str, *, next_step: str = "", witness_size: int | None = None,
        size: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message, next_step=next_step)
        self.witness_size = witness_size
        self.size = size


WitnessConflictError = WitnessError  # The earlier name, until 1.0.


@dataclass(frozen=True, slots=True)
class Seen:
    """The latest tree of a log that the witness cosigned; immutable.

    Attributes:
        origin: name of the log.
        size: number of leaves; 0 if nothing was cosigned yet.
        root: 32 bytes; the root of the empty tree if nothing was cosigned yet.
        note: the checkpoint with the signatures of the log and this witness; empty if nothing was
            cosigned yet.
        updated: time of the cosignature, RFC 3339; empty if nothing was cosigned yet.
    """

    origin: str
    size: int = 0
    root: bytes = EMPTY_ROOT
    note: str = ""
    updated: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A refused request that its log had signed, as the record stores it; immutable.

    Attributes:
        origin: name of the log.
        received: time of the request, RFC 3339.
        reason: ``fork`` or ``unproven``.
        body: the request.
        held: the cosigned checkpoint that it contradicts.
    """

    origin: str
    received: str
    reason: str
    body: bytes
    held: str


class WitnessState:
    """The open record of a witness, a SQLite file. Threads may share the object, and processes the
    file.

    The file is opened by the constructor, never made, and closed by :meth:`close`.

    Args:
        path: a file that :func:`create_state` made.

    Raises:
        WitnessError: the file is missing, damaged, or of another version.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            # The record is never made here: a witness without memory would cosign a fork.
            raise WitnessError(
                f"The witness's record {path} is missing.",
                next_step="Restore its newest copy. If there is no copy, create another witness "
                "with a new key: with this key and no record, it would cosign a rewritten log.",
            )
        self._path = path
        self._lock = threading.RLock()
        with self._translated():
            self._connection = sqlite3.connect(
                path.absolute().as_uri() + "?mode=rw", uri=True, isolation_level=None,
                timeout=_BUSY_S, check_same_thread=False,
            )  # fmt: skip
        try:
            self._execute("PRAGMA synchronous=FULL")
            ((version,),) = self._execute("PRAGMA user_version")
        except BaseException:
            self._connection.close()
            raise
        if version != _VERSION:
            self._connection.close()
            raise WitnessError(
                f"{path} is not a witness's record of version {_VERSION}.",
                next_step="Use the version of Remit that created it.",
            )

    def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        with self._lock:
            self._connection.close()

    def seen(self, origin: str) -> Seen:
        """Return the latest cosigned tree of a log; an empty tree if none was cosigned.

        Args:
            origin: name of the log.

        Raises:
            WitnessError: the record cannot be read.
        """
        found = self._execute(f"{_SEEN} WHERE origin = ?", origin)
        return Seen(*found[0]) if found else Seen(origin)

    def all_seen(self) -> list[Seen]:
        """Return the latest tree of each cosigned log, sorted by origin.

        Raises:
            WitnessError: the state cannot be read.
        """
        return [Seen(*row) for row in self._execute(f"{_SEEN} ORDER BY origin")]

    def update(
        self, before: Seen, signed: SignedCheckpoint, cosign: Callable[[], SignedCheckpoint]
    ) -> SignedCheckpoint | None:
        """Replace ``before`` by a new cosigned tree in a single durable transaction.

        Nothing is changed if ``before`` is no longer the latest tree. The same tree may be cosigned
        again. The cosignature is made inside the transaction, so no larger tree of this log was
        cosigned before its time. The cosignature is not visible before it is on disk. Evidence that
        the same checkpoint was unproven is deleted.

        Args:
            before: the result of :meth:`seen` that ``signed`` was shown to extend, which is not
                checked here.
            signed: the new checkpoint.
            cosign: returns the checkpoint with this witness's cosignature; its error undoes the
                change.

        Returns:
            The result of ``cosign``; ``None`` if another request was first.

        Raises:
            WitnessError: the record cannot be written, ``signed`` is smaller or of another origin,
                or is another tree of the same size.
        """
        new = signed.checkpoint
        if new.origin != before.origin or new.size < before.size:
            raise WitnessError(f"A checkpoint of {new.size} leaves would roll the record back.")
        if new.size == before.size and new.root != before.root:
            raise WitnessError(f"Two trees of {new.size} leaves: a fork is not recorded as seen.")
        with self._transaction():
            now = self.seen(new.origin)
            if (now.size, now.root) != (before.size, before.root):
                return None
            cosigned = cosign()
            self._execute(
                "INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?, ?)",
                *(new.origin, new.size, new.root, str(cosigned), _now()),
            )
            self._execute(  # somebody had sent it with a wrong proof
                "DELETE FROM evidence WHERE origin = ? AND reason = ? AND digest = ?",
                *(new.origin, UNPROVEN, _digest(signed)),
            )
        return cosigned

    def keep_evidence(self, reason: str, body: bytes, signed: SignedCheckpoint, held: Seen) -> bool:
        """Store a refused request that its log's key signed, once for each signed text and reason.

        A log has room for 1,000 requests and 16,000,000 bytes, the contradicted checkpoints
        included. If there is no room, the newest unproven requests are deleted for a fork, as many
        as it needs, or all; they stay deleted if even that gives no room.

        Args:
            reason: :data:`FORK` or :data:`UNPROVEN`.
            body: the request.
            signed: the checkpoint in the request, whose signature the caller has verified.
            held: the cosigned tree that it contradicts.

        Returns:
            True if the request was stored; False if it was stored before or there is no room.

        Raises:
            WitnessError: the record cannot be written.
        """
        origin = held.origin
        # The signed text alone: with other proofs and foreign signatures around it, anyone could
        # send one checkpoint often enough to leave no room.
        digest = _digest(signed)
        with self._transaction():
            if self._execute(
                "SELECT 1 FROM evidence WHERE origin = ? AND reason = ? AND digest = ?",
                *(origin, reason, digest),
            ):
                return False
            while not self._has_room(origin, len(body) + len(held.note.encode())):
                if reason != FORK or not self._execute(
                    "DELETE FROM evidence WHERE id = (SELECT max(id) FROM evidence "
                    "WHERE origin = ? AND reason = ?) RETURNING id",
                    *(origin, UNPROVEN),
                ):
                    return False
            self._execute(
                "INSERT INTO evidence (origin, received, reason, body, held, digest) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                *(origin, _now(), reason, body, held.note, digest),
            )
        return True

    def evidence(self, origin: str) -> list[Evidence]:
        """Return the evidence against a log, oldest first; empty if there is none.

        Args:
            origin: origin of the log.

        Raises:
            WitnessError: the state cannot be read.
        """
        rows = self._execute(
            "SELECT origin, received, reason, body, held FROM evidence WHERE origin = ? "
            "ORDER BY id",
            origin,
        )
        return [Evidence(*row) for row in rows]

    def evidence_counts(self) -> dict[tuple[str, str], int]:
        """Return the number of stored requests, keyed by ``(origin, reason)``.

        Raises:
            WitnessError: the state cannot be read.
        """
        rows = self._execute("SELECT origin, reason, count(*) FROM evidence GROUP BY 1, 2")
        return {(origin, reason): number for origin, reason, number in rows}

    def _has_room(self, origin: str, more: int) -> bool:
        ((rows, size),) = self._execute(
            "SELECT count(*), coalesce(sum(length(body) + length(CAST(held AS BLOB))), 0) "
            "FROM evidence WHERE origin = ?",
            origin,
        )
        return bool(rows < MAX_EVIDENCE_ROWS and size + more <= MAX_EVIDENCE_BYTES)

    def _execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._lock, self._translated():
            return self._connection.execute(sql, parameters).fetchall()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._execute("BEGIN IMMEDIATE")
            try:
                yield
                self._execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise WitnessError(
                f"The witness's record {self._path} cannot be used: {error}.",
                next_step="Check the free space and the permissions, and that it is undamaged.",
            ) from error


class WitnessDirectory(KeyFiles):
    """The files of a witness: its key (``witness.key``, ``witness.vkey``) and its record
    (``witness.db``).

    The errors of :class:`KeyFiles` are WitnessErrors here. Making the object touches no file.

    Args:
        path: the directory, which :meth:`create` makes.

    Attributes:
        state: path of the record.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "witness", COSIGNATURE, WitnessError)
        self.state = path / "witness.db"

    def create(self, name: str) -> VerifierKey:
        """Make the directory, the record and the key; return the public key.

        The private key is written last. If it exists, everything was made, and a missing record was
        lost and must not be replaced by an empty one. A record without a key, left by a failed
        call, is replaced.

        Args:
            name: name of the witness, a URL without its scheme.

        Raises:
            WitnessError: the directory contains a witness already, or cannot be written.
            TlogError: ``name`` cannot be the name of a key.
        """
        signer = Signer.generate(name, COSIGNATURE)
        try:
            with self.locked():
                if self.exists:
                    raise WitnessError(
                        f"A witness already exists in {self.directory}.",
                        next_step="`remit witness key` prints its key. For another witness, use "
                        "another directory.",
                    )
                self.state.unlink(missing_ok=True)
                create_state(self.state)
                self.write(signer)
        except OSError as error:
            raise WitnessError(
                f"{self.directory} cannot be written: {error}.",
                next_step="Check the permissions of that directory.",
            ) from error
        return signer.verifier_key

    @override
    def verifier_key(self) -> VerifierKey:
        """Return the witness's public key.

        Raises:
            WitnessError: there is no witness in the directory, or its file is unreadable, damaged
                or a log's key.
        """
        key = super().verifier_key()
        if key is None:
            raise WitnessError(
                f"There is no witness in {self.directory}.",
                next_step="`remit witness init` creates one.",
            )
        return key


def create_state(path: Path) -> None:
    """Make an empty record with mode 0600; a file at the path is never replaced.

    The file is made under a temporary name, which is removed after a failure.

    Args:
        path: a file in an existing directory.

    Raises:
        WitnessError: the file exists, its directory is missing, or it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with contextlib.closing(sqlite3.connect(temporary, isolation_level=None)) as made:
            made.execute("PRAGMA synchronous=FULL")
            made.executescript(f"BEGIN; {_CREATE} COMMIT;")
            made.execute("PRAGMA journal_mode=WAL")
        publish(temporary, path)
    except (OSError, sqlite3.Error) as error:
        raise WitnessError(
            f"The witness's record {path} cannot be created: {error}.",
            next_step="Check the free space and the permissions of its directory; a record that "
            "exists is never replaced.",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _digest(signed: SignedCheckpoint) -> bytes:
    return hashlib.sha256(signed.note.text.encode()).digest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
