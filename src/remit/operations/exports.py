"""The operation that exports a ledger or an extract."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

from remit.kernel.errors import InvalidInputError
from remit.kernel.message_text import count
from remit.operations.files import archives
from remit.operations.operation import Answer, Document, field, verb
from remit.operations.ports import Caller, RootPort
from remit.operations.text import Note


@verb("ledger export", changes=True, media_type="text/plain")
def export_ledger(
    root: RootPort, caller: Caller, *,
    format: Literal["jsonl", "tiles"] = field(
        "jsonl: everything; tiles: a static C2SP tlog-tiles directory.", "jsonl"
    ),
    tiles: bool = field("The same as --format tiles.", False),
    target: str = field(
        "Output file or directory; - for standard output; with --cursor also the URL of a receiver "
        "of OpenTelemetry logs.", flag="--out", metavar="PATH|URL",
    ),
    session: str | None = field("Write an extract: all entries of a session.", None, metavar="ID"),
    order: str | None = field("Write an extract: all entries of a work order.", None, metavar="ID"),
    action: str | None = field("Write an extract: a tool action or model call.", None,
                               metavar="ID"),
    span: tuple[str, str] | None = field(
        "Write an extract: the entries from FIRST to before END.", None, flag="--range",
        metavar="FIRST END",
    ),
    cursor: Path | None = field(
        "Append the records after those of the last export with this file, which stores the place.",
        None,
    ),
    follow: bool = field("With --cursor: wait for new entries.", False, flag="-f --follow"),
    content: bool = field("With --cursor: add content, without secrets.", False),
    archives: list[Path] = archives(),
) -> Answer | Document:  # fmt: skip
    """Export the ledger with a signed checkpoint.

    With --archive, the export contains the archived entries too. An extract contains the records of
    a session, order, action or range, without content, and proves that none of them is missing.
    With --cursor, each run adds the records since the last one, with the same proof.

    Returns:
        The number of ``entries`` written, and of ``later`` ones that no checkpoint covers; with a
        cursor, ``entries`` and the id of the ``next`` one. An extract is a document.

    Raises:
        InvalidInputError: the format does not suit the target, several extracts are named, the
            range or action cannot be extracted, or an option requires or excludes the cursor.
        ConfigError: the receiver's URL is not valid, or OpenTelemetry is not installed.
        LedgerError: the entries of the extract do not exist, a checkpoint cannot be signed, or the
            cursor cannot be used.
        RemitError: the target or the cursor cannot be written, or the receiver did not accept
            the entries.
    """
    kind = "tiles" if tiles else format
    of = _extract(session, order, action, span)
    if cursor is not None and (of or kind != "jsonl"):
        raise InvalidInputError(
            "With --cursor, all entries are exported in one format. Leave out --format, "
            "--tiles, --session, --order, --action and --range."
        )
    if cursor is None:
        if follow or content:
            raise InvalidInputError("--follow and --content require --cursor FILE.")
        _check_target(kind, target, is_extract=bool(of))
    if archives:
        root.ledger.attach(archives)
    if cursor is not None:
        return _by_cursor(root, cursor, target, follow=follow, content=content)
    return _write_extract(root, of, target) if of else _write_ledger(root, kind, target)


def _check_target(kind: str, target: str, *, is_extract: bool) -> None:
    """Raise InvalidInputError if the format does not suit the target."""
    if is_extract and kind != "jsonl":
        raise InvalidInputError("An extract has one format. Leave out --format and --tiles.")
    if "://" in target:
        raise InvalidInputError("Only an export with --cursor can be sent to a URL.")
    if target == "-" and kind != "jsonl":
        raise InvalidInputError("Only jsonl can be written to standard output.")


def _write_extract(root: RootPort, of: dict[str, Any], target: str) -> Document:
    import orjson

    from remit.ledger import make_extract

    extract = make_extract(root.ledger, of)
    note = f"{count(len(extract['records']), 'record')} written to {target}."
    text = f"{orjson.dumps(extract).decode()}\n"
    return Document(text, None if target == "-" else Path(target), note)


def _write_ledger(root: RootPort, kind: Any, target: str) -> Answer:
    """Write the ledger, and return notes on the written entries, and on those not covered."""
    ledger = root.ledger
    if target == "-":
        number = ledger.export(sys.stdout.buffer)
    else:
        number = ledger.export(Path(target), format=kind, progress=root.progress("exporting"))
    later = ledger.count() - number
    lines = [Note(f"{count(number, 'entry')} written to {target}.")]
    if later > 0:
        lines.append(Note("Left out, because no checkpoint covers them: "
                          f"{count(later, 'later entry')}."))  # fmt: skip
    return Answer({"entries": number, "later": later}, lines)


def _by_cursor(
    root: RootPort, cursor: Path, target: str, *, follow: bool, content: bool
) -> Answer:  # fmt: skip
    """Export the entries after the cursor, and return their number and the next entry's id."""
    from remit.ledger import entry_id
    from remit.operations.cursors import export_by_cursor

    number, end = export_by_cursor(root, cursor, target, follow=follow, content=content)
    found = {"entries": number, "next": entry_id(end)}
    return Answer(found, [Note(f"{number} entries exported; the next one is {found['next']}.")])


def _extract(
    session: str | None, order: str | None, action: str | None, span: tuple[str, str] | None
) -> dict[str, Any]:
    """Return the entries that an extract is requested for; empty for a whole export.

    Raises:
        InvalidInputError: more than one of them is named, or the range has no entry ids.
    """
    from remit.ledger import parse_entry_id

    given = {"session_id": session, "work_order_id": order, "entry": action}
    found: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if span is not None:
        bounds = [
            int(one) if one.isdecimal() and len(one) < 19 else parse_entry_id(one) for one in span
        ]
        found |= dict(zip(("first", "end"), bounds, strict=True))
    if len(found) > (1 if span is None else 2):
        raise InvalidInputError("Give one of --session, --order, --action and --range.")
    if None in found.values():
        raise InvalidInputError("--range takes ids of entries, such as LED-0000002a, or numbers.")
    return found
