"""The log of logs: the host's ledger records the checkpoints of tenants' ledgers.

Each ``TENANT_CHECKPOINT`` entry contains the signed head of a tenant's log, and the proof that it
extends the head recorded before. One signed head of the host and two inclusion proofs so answer for
an entry of any tenant.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import orjson

from remit.kernel.json_text import load_unique
from remit.ledger.entry import LedgerEntry, entry_id, parse_entry_id
from remit.ledger.entry_reader import as_bytes
from remit.ledger.errors import EntryNotFoundError, LedgerError
from remit.ledger.events import KERNEL_ROWS
from remit.ledger.export_reader import require, require_members
from remit.ledger.key_files import known_as
from remit.ledger.record import columns_of
from remit.ledger.store import Execute, Transaction
from remit.ledger.table_checks import Finding
from remit.ledger.tlog import (
    Checkpoint,
    SignedCheckpoint,
    TlogError,
    TlogProof,
    VerifierKey,
    verify_consistency,
)

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient

EVENT = "TENANT_CHECKPOINT"
PROOF_FORMAT = "remit-tenant-proof/1"
"""The ``format`` of a proof through both logs."""

_MAX_PROOF_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class TakenHead:
    """A tenant's head that the host recorded, as read from the host's entry.

    Attributes:
        seq: sequence number of the host's entry.
        taken: timestamp of that entry.
        signed: the tenant's checkpoint.
        key: the verifier key that signed it.
    """

    seq: int
    taken: str
    signed: SignedCheckpoint
    key: VerifierKey

    @property
    def checkpoint(self) -> Checkpoint:
        """The tenant's tree head, without its signatures: origin, size and root."""
        return self.signed.checkpoint

    @property
    def entry_id(self) -> str:
        """Id of the host's entry that took the head."""
        return entry_id(self.seq)


def latest_head(host: LedgerClient, name: str) -> TakenHead | None:
    """Return the last head that the host took of a tenant's log; ``None`` if none was.

    The head's signature is verified by the key in the entry, not by the tenant's own.

    Args:
        host: the log of logs.
        name: name of the tenant.

    Raises:
        TlogError: the entry that took the head is damaged, or its signature does not hold.
        LedgerError: the host's ledger cannot be read.
    """
    return _latest(host.select, name)


def _latest(execute: Execute, name: str) -> TakenHead | None:
    rows = execute(
        "SELECT seq, record FROM entries WHERE submission_id = ? AND event_type = ? "
        f"AND {KERNEL_ROWS} ORDER BY seq DESC LIMIT 1",
        (name, EVENT),
    )
    if not rows:
        return None
    ((seq, record),) = rows
    data = as_bytes(record)
    return TakenHead(int(seq), str(orjson.loads(data)["timestamp"]), *_head_in(data))


def _head_in(record: bytes) -> tuple[SignedCheckpoint, VerifierKey]:
    """Return the head in a host's record, and the key of its signature.

    Raises:
        TlogError: the record contains no head, or states another head than its checkpoint.
    """
    try:
        entry = orjson.loads(record)
        metadata = entry["metadata"]
        signed = SignedCheckpoint.parse(metadata["checkpoint"])
        key = VerifierKey.parse(metadata["verifier_key"])
        head = signed.checkpoint
        said = (metadata["origin"], metadata["size"], metadata["root"])
        tier = columns_of(metadata).tier
    except (ValueError, KeyError, TypeError, AttributeError, TlogError) as error:
        raise TlogError("The host's record holds no head of a tenant's log.") from error
    if entry.get("event_type") != EVENT or tier not in (None, "hot"):
        raise TlogError("The host's record does not record the head of a log.")
    if said != (head.origin, head.size, base64.b64encode(head.root).decode()):
        raise TlogError("The head in the host's record differs from the checkpoint in it.")
    signed.verify(key)
    return signed, key


def check_heads(ledger: LedgerClient, since_mark: bool) -> Iterator[Finding]:
    """Yield findings about heads taken of tenants' logs, as a :data:`~remit.ledger.StateCheck`.

    Each head must be signed by the key with which its tenant was made, under its first or a later
    origin (by any key that the entry states if no entry records the making). The head must extend
    the last one of the same origin that holds. Tenants' ledgers are not read.

    Args:
        ledger: the host's ledger, which is only read.
        since_mark: True to check nothing, as after a mark.

    Yields:
        The sequence number of an entry and a sentence about its fault, in ledger order; nothing if
        all heads hold.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    last: dict[str, Checkpoint] = {}
    if since_mark:
        return
    made = dict(
        ledger.select(
            "SELECT submission_id, record FROM entries WHERE event_type = 'TENANT_CREATED' "
            f"AND {KERNEL_ROWS} ORDER BY seq DESC"  # the first of a tenant counts
        )
    )
    for seq, name, record in ledger.select(
        "SELECT seq, submission_id, record FROM entries WHERE event_type = ? "
        f"AND {KERNEL_ROWS} ORDER BY seq",
        (EVENT,),
    ):
        try:
            signed, key = _head_in(as_bytes(record))
            if name in made:
                own = VerifierKey.parse(orjson.loads(made[name])["metadata"]["verifier_key"])
                if known_as(key, own.name) != own:
                    raise TlogError(f"{key} is not the key of the tenant {name}")
            head, metadata = signed.checkpoint, orjson.loads(record)["metadata"]
            old = last.get(head.origin)
            if old is not None:
                path = [base64.b64decode(item) for item in metadata["consistency"]]
                verify_consistency(old.size, head.size, path, old.root, head.root)
            last[head.origin] = head
        except (TlogError, ValueError, KeyError, TypeError) as error:
            said = error.message if isinstance(error, TlogError) else "it cannot be read"
            yield seq, f"the head of a tenant's log that it took does not hold: {said}"


def take_head(
    host: LedgerClient, name: str, log: LedgerClient, signed: SignedCheckpoint, *, key: VerifierKey
) -> str:
    """Record a head of a tenant's log in the host's ledger if it extends the one before.

    A ``TENANT_CHECKPOINT`` entry is appended, unless this head is the last recorded one. A log that
    was forked begins anew under its new origin. If another process records a head meanwhile, the
    proof is made anew.

    Args:
        host: the log of logs, which others may write meanwhile.
        name: name of the tenant.
        log: the tenant's ledger, which is only read.
        signed: a checkpoint of the tenant's ledger.
        key: the tenant's verifier key when the host made the tenant.

    Returns:
        The id of the entry that recorded this head, now or before.

    Raises:
        LedgerError: the head does not extend the one recorded before or is not signed by the
            tenant's key (nothing was recorded), the host cannot be written, or the tenant's ledger
            cannot be read.
        TlogError: the host's entry with the last head is damaged.
    """
    try:
        key = _signer_of(signed, log.verifier_key or key, key)
    except TlogError as error:
        raise _forked(name, error.message) from error
    while True:
        last = latest_head(host, name)
        path = _extension(name, log, last, signed.checkpoint)
        if path is None:
            assert last is not None
            return entry_id(last.seq)
        taken = host.transact(functools.partial(_take, host, name, last, signed, key, path))
        if taken:
            return str(taken)


def _signer_of(signed: SignedCheckpoint, now: VerifierKey, made_with: VerifierKey) -> VerifierKey:
    """Return the key that signed a head; raise TlogError if it is not the tenant's."""
    if known_as(now, made_with.name) != made_with:
        raise TlogError(f"Its log belongs to {now.name}, not to {made_with.name}.")
    key = known_as(now, signed.checkpoint.origin) or now
    signed.verify(key)
    return key


def _extension(
    name: str, log: LedgerClient, last: TakenHead | None, head: Checkpoint
) -> list[bytes] | None:
    """Return the proof that a head extends the last one; ``None`` if both are equal."""
    old = last.checkpoint if last is not None else None
    if old == head:
        return None
    try:
        if old is None or old.origin != head.origin:
            return _begun(log, last, head)
        if head.size < old.size:
            raise TlogError(f"It has {head.size} entries, and had {old.size} before.")
        path = log.checkpoints.prove_consistency(old.size, head.size)
        verify_consistency(old.size, head.size, path, old.root, head.root)
    except TlogError as error:
        raise _forked(name, error.message) from error
    return path


def _begun(log: LedgerClient, last: TakenHead | None, head: Checkpoint) -> list[bytes]:
    """Return the proof that a log begins with a head: the first head, or the first after a fork.

    Both logs record a fork under a name of its own.
    """
    if last is not None:
        forked = replace(last.key, name=head.origin)
        if known_as(forked, last.checkpoint.origin) is None:
            raise TlogError(f"{last.checkpoint.origin} was taken before {head.origin}.")
    if problem := log.checkpoints.lacks(head):
        raise TlogError(problem)
    return []


def _take(
    host: LedgerClient, name: str, last: TakenHead | None, signed: SignedCheckpoint,
    key: VerifierKey, path: list[bytes], tx: Transaction,
) -> str:  # fmt: skip
    """Append the entry that takes a head; return its id, empty if another process took one."""
    now = _latest(tx.execute, name)
    if (now.seq if now else -1) != (last.seq if last else -1):
        return ""
    head = signed.checkpoint
    is_fork = last is not None and last.checkpoint.origin != head.origin
    return tx.append(
        LedgerEntry(
            EVENT, name, "FORKED" if is_fork else "TAKEN", f"The head of the log of {name}",
            metadata={
                "tenant": name,
                "origin": head.origin,
                "size": head.size,
                "root": base64.b64encode(head.root).decode(),
                "checkpoint": str(signed),
                "verifier_key": str(key),
                "extends": last.checkpoint.size if last is not None and not is_fork else 0,
                "consistency": [base64.b64encode(item).decode() for item in path],
            },
        )
    )  # fmt: skip


def _forked(name: str, why: str) -> LedgerError:
    return LedgerError(
        f"The log of the tenant {name} does not extend its last recorded head: {why}",
        next_step="Nothing was recorded. The ledger is an older copy or another history: put the "
        "newer copy back. If that copy is lost, `remit ledger fork` in the tenant's root continues "
        "under a new origin, and records the fork.",
    )


@dataclass(frozen=True, slots=True)
class TenantProof:
    """The proof of a tenant's entry through both logs; ``str`` gives the text of its file, JSON.

    Attributes:
        record: canonical record of the entry.
        proof: proof that the record is in the tenant's tree.
        head_record: canonical record of the host's entry with the head of that tree.
        head_proof: proof that this record is in the host's tree.
    """

    record: bytes
    proof: TlogProof
    head_record: bytes
    head_proof: TlogProof

    def __str__(self) -> str:
        file = {
            "format": PROOF_FORMAT,
            "record": self.record.decode(),
            "proof": str(self.proof),
            "head": {"record": self.head_record.decode(), "proof": str(self.head_proof)},
        }
        return json.dumps(file, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def parse(cls, data: str | bytes) -> Self:
        """Return the proof in a file; its hashes and signatures are not verified.

        Args:
            data: the file's text; bytes are UTF-8.

        Raises:
            TlogError: the file is malformed, has other members, or is longer than 1,000,000
                characters or bytes; or one of its proofs is malformed.
        """
        if len(data) > _MAX_PROOF_BYTES:
            raise TlogError("The proof is too long.")
        try:
            file: Any = load_unique(data.encode() if isinstance(data, str) else data)
            kinds = {"format": str, "record": str, "proof": str, "head": dict}
            require_members(file, "tenant-members", "the proof", kinds)
            is_one = file["format"] == PROOF_FORMAT
            require(is_one, "tenant-members", f"its format is not {PROOF_FORMAT}")
            head = file["head"]
            require_members(head, "tenant-members", "head", {"record": str, "proof": str})
            records = (file["record"].encode(), head["record"].encode())
        except ValueError as error:
            raise TlogError(
                f"This is not a proof through two logs: {error}.",
                next_step="`remit tenant prove` writes one.",
            ) from error
        proofs = (file["proof"], head["proof"])
        return cls(
            records[0], TlogProof.parse(proofs[0]), records[1], TlogProof.parse(proofs[1])
        )  # fmt: skip

    def verify(self, key: VerifierKey) -> tuple[Checkpoint, Checkpoint]:
        """Return the heads of host and tenant, in this order, if the record is under both.

        The tenant's key is the one in the host's record.

        Args:
            key: the host's verifier key, the only trusted input.

        Raises:
            TlogError: the record is not under both, a signature does not hold, or the host's record
                states no head of a tenant.
        """
        host = self.head_proof.verify(self.head_record, key)
        signed, tenant_key = _head_in(self.head_record)
        if self.proof.signed.checkpoint != signed.checkpoint:
            raise TlogError("The proof does not lead to the head that the host recorded.")
        return host, self.proof.verify(self.record, tenant_key)


def prove_through(host: LedgerClient, name: str, log: LedgerClient, entry: str) -> TenantProof:
    """Return the proof of a tenant's entry from a head of the host.

    If no checkpoint of the host covers its entry yet, a new one is signed and stored.

    Args:
        host: the log of logs.
        name: name of the tenant.
        log: the tenant's ledger, which is only read.
        entry: id of the tenant's entry.

    Raises:
        EntryNotFoundError: the tenant has no such entry; EntryArchivedError if it is in a segment
            that is not attached.
        LedgerError: the host has no head yet that covers the entry.
        NoSignerError: the host has to sign a checkpoint and has no key.
        TlogError: the host's entry with the head is damaged.
        LedgerFormatError: records or stored hashes are missing.
    """
    record, seq = log.read_record(entry), parse_entry_id(entry)
    if seq is None:
        raise EntryNotFoundError(f"There is no entry {entry}.")
    head = latest_head(host, name)
    if head is None or head.checkpoint.size <= seq:
        raise LedgerError(
            f"The host has not recorded a head of {name} that covers {entry} yet.",
            next_step=f"`remit tenant checkpoint {name}` records one.",
        )
    proof = log.checkpoints.prove(seq, head.signed)
    taken = entry_id(head.seq)
    return TenantProof(record, proof, host.read_record(taken), TlogProof.parse(host.prove(taken)))
