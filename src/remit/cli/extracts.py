"""Extracts on the command line: ``remit ledger export --session`` and ``verify --file``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.shared import emit, note
from remit.kernel.errors import RemitError

if TYPE_CHECKING:
    from remit.ledger.tlog import VerifierKey


def verify_file(file: Path, key: VerifierKey | None, as_json: bool) -> None:
    """Verify an extract or an export by cursor, and print its range; exit 1 if it does not hold.

    Args:
        file: path of the extract, or of the JSON lines of the export.
        key: the log's verifier key; ``None`` uses the key that the file states, and says so.
        as_json: True to print JSON.

    Raises:
        RemitError: the file cannot be read.
    """
    from remit.ledger import LedgerFormatError, read_batches, read_extract

    unproven = 0
    try:
        with file.open("rb") as lines:
            if is_batch := b'"previous_hash":' in lines.readline():
                lines.seek(0)
                batches = read_batches(lines, key)
                found, entries, unproven = (
                    batches.last,
                    batches.end - batches.first,
                    batches.unproven,
                )
                of, statement = {"first": batches.first, "end": batches.end}, batches.statement
        if not is_batch:
            found = read_extract(file.read_bytes(), key)
            of, entries, statement = dict(found.of), len(found.records), found.statement
    except OSError as error:
        raise RemitError(f"{file} cannot be read: {error.strerror or error}.") from error
    except LedgerFormatError as error:
        emit(as_json, {"verified": False, "problems": [error.message]},
             [f"NOT VERIFIED: {error.message}"])  # fmt: skip
        raise SystemExit(1) from None
    head = found.signed.checkpoint
    said = {
        "verified": True, "of": of, "entries": entries, "end": found.end,
        "origin": head.origin, "size": head.size, "problems": [],
    }  # fmt: skip
    emit(as_json, said, [statement])
    if unproven and not as_json:
        note(f"{unproven} more lines have no proof yet.")
    if key is None and not as_json:
        note(f"The file states the key {found.members['verifier_key']}. Compare it with the key "
             "that you have from another source, or pass that with --key.")  # fmt: skip


def extract_of(
    session: str | None, order: str | None, action: str | None, span: tuple[str, str] | None
) -> dict[str, Any]:
    """Return the entries that an extract is requested for; empty for a whole export.

    Args:
        session: id of a session.
        order: id of a work order.
        action: id of the entry that ends a tool action or model call.
        span: first entry of a range and the entry after its last, as ids or sequence numbers.

    Raises:
        UsageError: more than one of them is given.
    """
    from remit.ledger import parse_entry_id

    found: dict[str, Any] = {}
    given = {"session_id": session, "work_order_id": order, "entry": action}
    found |= {name: value for name, value in given.items() if value is not None}
    if span is not None:
        bounds = [
            int(one) if one.isdecimal() and len(one) < 19 else parse_entry_id(one) for one in span
        ]
        found |= dict(zip(("first", "end"), bounds, strict=True))
    if len(found) > (1 if span is None else 2):
        raise click.UsageError("Give one of --session, --order, --action and --range.")
    if None in found.values():
        raise click.UsageError("--range takes ids of entries, such as LED-0000002a, or numbers.")
    return found
