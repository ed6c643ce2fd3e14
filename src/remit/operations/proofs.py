"""Operations on proofs of entries, and on receipts of actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import orjson

from remit.kernel.errors import InvalidInputError, NotFoundError
from remit.operations.files import archives, io_errors
from remit.operations.ledger import read_verifier_key
from remit.operations.operation import field, verb
from remit.operations.ports import Caller, RootPort

_OUT: Any = field("Write to this file (default: standard output).", None, door="command")
_ENTRY_ID: Any = field("Id of the entry.", flag="")


@verb(
    "ledger prove", "GET /ledger/entries/{entry_id}/proof", summary="Proof of inclusion",
    needs="verify", changes=True, media_type="text/plain", endpoint="proof",
)  # fmt: skip
def prove_entry(
    root: RootPort, caller: Caller, *,
    entry_id: str = _ENTRY_ID,
    out: Path | None = _OUT,
) -> str:  # fmt: skip
    """Prove that an entry is recorded (C2SP tlog-proof), for offline verification.

    `remit ledger show ID --record` prints the record that the proof is for.

    Returns:
        The proof, for the command to write. A new checkpoint is signed if none covers the entry.

    Raises:
        EntryNotFoundError: the ledger has no such entry.
        NoSignerError: no checkpoint covers the entry, and there is no key to sign one.
    """
    return root.ledger.prove(entry_id)


@verb(
    "receipt", "GET /ledger/receipts/{action_id}", summary="Receipt of an action",
    media_type="application/json", changes=True, endpoint="receipt",
)  # fmt: skip
def write_receipt(
    root: RootPort, caller: Caller, *,
    action_id: str = field(
        "Entry that ends the action, such as a `TOOL_CALL` or `EXCHANGE`. A session or work order "
        "gives all of its receipts.", flag="", metavar="ID",
    ),
    format: Literal["remit", "agentboundary", "agentboundary-0.2", "capsule"] = field(
        "Format of the receipt.", "remit"
    ),
    out: Path | None = _OUT,
    archives: list[Path] = archives(),
) -> str:  # fmt: skip
    """Write the receipt of a tool action or call, or all of a run.

    A receipt contains no content. `remit` is an extract, which proves the action and its place in
    the run; `remit ledger verify --file` checks it. The other formats are for public verifiers, and
    contain hashes of arguments.

    Returns:
        The receipt as JSON; for a session or work order one extract, or in other formats a list of
        receipts. If the run has grown, its index is recorded first (INDEXED). If the root is
        read-only, the last index serves, and a note gives the number of a run's later entries.

    Raises:
        EntryNotFoundError: the ledger has no such entry or run.
        InvalidInputError: the entry ends no action of a run; in other formats than `remit`, also a
            call that was refused because the session is another caller's.
        LedgerError: the index cannot be written, or no key can sign the checkpoint that it needs;
            or a run has later entries than the last index of a read-only root, and the format
            cannot state that.
    """
    from remit.ledger import LedgerWriteError, make_extract, read_extract
    from remit.views import public_receipts, read_receipts

    ledger, name = root.ledger, action_id
    if archives:
        ledger.attach(archives)
    kind = {"LED": "entry", "WO-": "work_order_id"}.get(name[:3], "session_id")

    def lacks(count: int) -> None:
        what = "1 later entry is" if count == 1 else f"{count} later entries are"
        said = f"The root is read-only, so {what} not covered."
        if format != "remit":
            raise LedgerWriteError(
                f"{said} Receipts in the format {format} cannot state that.",
                next_step="Use `--format remit`, or copy the root to a place that can be written, "
                "and run the command there.",
            )
        root.note(said)

    whole = make_extract(ledger, {kind: name}, later=None if kind == "entry" else lacks)
    if format == "remit":
        return _as_json(whole)
    if kind == "entry":
        whole = make_extract(ledger, read_extract(_as_json(whole), None).run)
    receipts = read_receipts(read_extract(_as_json(whole), None))
    made = [*public_receipts(ledger, receipts, format)]
    ids = [one.entry_id for one in receipts]
    if kind == "entry" and name not in ids:
        raise InvalidInputError(f"{name} is no action of its session; use `--format remit`.")
    return _as_json(made[ids.index(name)] if kind == "entry" else made)


@verb(
    "ledger check-proof", changes=True,
    prints="verified: the record is entry {entry_id} of {origin}, by a checkpoint of {size} "
    "entries",
)  # fmt: skip
def check_proof(
    root: RootPort, caller: Caller, *,
    proof: str = field("File of the proof, or id of an entry of this root.", flag=""),
    record: Path | None = field(
        "File of the record, from `remit ledger show ID --record`; omit it for an id.", None
    ),
    key: str | None = field(
        "Verifier key of the log (default: the key of this root).", None, metavar="VKEY"
    ),
) -> dict[str, Any]:  # fmt: skip
    """Check a proof of `remit ledger prove` against the record of its entry.

    PROOF is the file of a proof, or the id of an entry, which is then proved first. With a file and
    --key, no root is needed. Get the key from a source that the operator cannot change.

    Returns:
        ``verified``, which is True, with the entry, its log and the key.

    Raises:
        TlogError: the record is not the entry that the proof names, another key signed the
            checkpoint, or a file or the key is malformed.
        NotFoundError: no key is given and the root has none, or a proof's file without a record.
        EntryNotFoundError, NoSignerError: no record is given, and the entry cannot be proved.
        RemitError: a file cannot be read.
    """
    from remit.ledger import tlog

    if record is not None:
        data, text = _bytes_of(record), _bytes_of(Path(proof))
    elif Path(proof).is_file():
        raise NotFoundError(f"{proof} is a file.", next_step="Add `--record FILE`, with the record "
                            "from `remit ledger show ID --record`.")  # fmt: skip
    else:
        data, text = root.ledger.read_record(proof), root.ledger.prove(proof).encode()
    stated = tlog.TlogProof.parse(text)
    known = read_verifier_key(root, caller).strip() if key is None else key
    checkpoint = stated.verify(data, tlog.VerifierKey.parse(known))
    found = {"verified": True, "entry_id": f"LED-{stated.index:08x}", "index": stated.index,
             "origin": checkpoint.origin, "size": checkpoint.size, "key": known}  # fmt: skip
    if key is None:
        root.note("The key is this root's. With --key, pass one from another source.")
    return found


def _as_json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"


def _bytes_of(file: Path) -> bytes:
    with io_errors(file):
        return file.read_bytes()
