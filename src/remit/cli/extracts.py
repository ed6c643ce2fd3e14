"""Extracts on the command line: ``remit ledger export --session`` and ``verify --file``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.shared import emit, note
from remit.kernel.errors import RemitError

if TYPE_CHECKING:
    from remit.ledger.tlog import VerifierKey


def verify_file(file: Path, key: VerifierKey | None, as_json: bool) -> None:
    """Verify an extract and print its range and the facts of an action; exit 1 if it does not hold.

    Args:
        file: path of the extract.
        key: the log's verifier key; ``None`` uses the key that the file states, and says so.
        as_json: True to print JSON.

    Raises:
        RemitError: the file cannot be read.
    """
    from remit.ledger import LedgerFormatError, read_extract
    from remit.views import read_receipts

    try:
        data = file.read_bytes()
    except OSError as error:
        raise RemitError(f"{file} cannot be read: {error.strerror or error}.") from error
    try:
        found = read_extract(data, key)
    except LedgerFormatError as error:
        emit(as_json, {"verified": False, "problems": [error.message]},
             [f"NOT VERIFIED: {error.message}"])  # fmt: skip
        raise SystemExit(1) from None
    head = found.signed.checkpoint
    receipts = read_receipts(found)
    said = {
        "verified": True, "of": dict(found.of), "entries": len(found.records), "end": found.end,
        "origin": head.origin, "size": head.size, "problems": [],
        "receipts": [dataclasses.asdict(one) for one in receipts],
    }  # fmt: skip
    of_action = receipts[0].lines() if "entry" in found.of else ()
    emit(as_json, said, [found.statement, *of_action])
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
