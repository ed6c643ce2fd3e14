"""Operations on signed checkpoints of the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import NotFoundError
from remit.operations.operation import field, verb
from remit.operations.ports import Caller, RootPort

if TYPE_CHECKING:
    from remit.ledger import LedgerClient
    from remit.ledger.tlog import SignedCheckpoint, VerifierKey


_OUT: Any = field("Write to this file (default: standard output).", None, door="command")


@verb(
    route="GET /ledger/checkpoint", summary="Latest checkpoint", needs="verify",
    media_type="text/plain", fails=(404,), endpoint="checkpoint",
)  # fmt: skip
def latest_checkpoint(root: RootPort, caller: Caller) -> str:
    """Return the latest signed checkpoint (C2SP tlog-checkpoint) with its cosignatures.

    Raises:
        NotFoundError: no checkpoint was signed yet; LedgerError if the ledger cannot be read.
    """
    if (latest := root.ledger.checkpoints.latest()) is None:
        raise NotFoundError("No checkpoint was signed yet. POST to this path signs one.")
    return str(latest)


@verb(
    "ledger checkpoint", "POST /ledger/checkpoint", summary="Sign a checkpoint",
    needs="manage_keys", media_type="text/plain", status=201, endpoint="sign",
)  # fmt: skip
def sign_checkpoint(
    root: RootPort, caller: Caller, *,
    out: Path | None = _OUT,
    witnesses: list[tuple[str, str]] = field(
        "Request a cosignature of this witness. Repeat for several witnesses.", [],
        flag="--witness", metavar="URL VKEY", door="command",
    ),
) -> str:  # fmt: skip
    """Sign a checkpoint of the ledger. Keep it where the operator cannot change it.

    Returns:
        The signed checkpoint in the text format of C2SP, with the requested cosignatures. A command
        without witnesses adds stored cosignatures of the same checkpoint.

    Raises:
        TlogError, InvalidInputError: the key or the URL of a witness cannot be used.
        WitnessError: a witness refuses or does not answer; all that was signed before is stored.
        LedgerError: the ledger cannot be read or written; NoSignerError without a key.
    """
    from remit.ledger.tlog import SignedCheckpoint, VerifierKey

    keys = [(url, VerifierKey.parse(text)) for url, text in witnesses]
    signed = SignedCheckpoint.parse(root.ledger.checkpoint())
    if keys:
        return str(cosigned(root.ledger, signed, keys))
    latest = root.ledger.checkpoints.latest()
    is_same = latest is not None and latest.note.text == signed.note.text
    return str(latest if is_same and caller.is_local else signed)


def cosigned(
    ledger: LedgerClient, signed: SignedCheckpoint, keys: list[tuple[str, VerifierKey]]
) -> SignedCheckpoint:
    """Return a signed checkpoint with cosignatures of witnesses, requested over HTTP.

    Each cosignature is stored in the ledger as soon as the witness gives it.

    Args:
        ledger: the ledger.
        signed: the signed checkpoint.
        keys: URL and public key of each witness; they are asked in order until one fails.

    Raises:
        InvalidInputError: a URL cannot be used, or a key is a log's.
        WitnessError: a witness refuses or does not answer.
        LedgerError, TlogError: the proof cannot be made, or a cosignature cannot be stored.
    """
    from remit.kernel.loops import run_blocking
    from remit.ledger.witness import request_cosignature

    prove = ledger.checkpoints.prove_consistency
    for url, witness in keys:
        signed = run_blocking(request_cosignature(url, signed, witness, prove))
        ledger.checkpoints.add_cosignature(signed, witness)  # Stored now: the next may fail.
    return signed
