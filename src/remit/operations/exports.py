"""The operation that exports a ledger or an extract."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from remit.kernel.errors import InvalidInputError
from remit.kernel.words import count
from remit.operations.files import archives
from remit.operations.operation import Document, Note, Operation, field
from remit.operations.ports import Caller, RootPort


class ExportLedger(Operation):
    """Export the ledger with a signed checkpoint.

    With --archive, the export contains the archived entries too. An extract contains the records of
    a session, order, action or range, without content, and proves that none of them is missing.
    With --cursor, each run adds the records since the last one, with the same proof."""

    command, changes, media_type = "ledger export", True, "text/plain"

    format: Literal["jsonl", "parquet", "tiles"] = field(
        "jsonl: everything; parquet: a table; tiles: a static C2SP tlog-tiles directory.", "jsonl"
    )
    tiles: bool = field("The same as --format tiles.", False)
    target: str = field(
        "Output file or directory; - for standard output; with --cursor also the URL of a receiver "
        "of OpenTelemetry logs.", flag="--out", metavar="PATH|URL",
    )  # fmt: skip
    session: str | None = field("Write an extract: all entries of a session.", None, metavar="ID")
    order: str | None = field("Write an extract: all entries of a work order.", None, metavar="ID")
    action: str | None = field("Write an extract: a tool action or model call.", None,
                               metavar="ID")  # fmt: skip
    span: tuple[str, str] | None = field(
        "Write an extract: the entries from FIRST to before END.", None, flag="--range",
        metavar="FIRST END",
    )  # fmt: skip
    cursor: Path | None = field(
        "Append the records after those of the last export with this file, which stores the place.",
        None,
    )
    follow: bool = field("With --cursor: wait for new entries.", False, flag="-f --follow")
    content: bool = field("With --cursor: add content, without secrets.", False)
    archives: list[Path] = archives()

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any] | Document:
        """Write the export, and return the number of its entries; or return the extract.

        Raises:
            InvalidInputError: the format does not suit the target, several extracts are named, or
                an option requires or excludes the cursor.
            LedgerError: the entries of the extract do not exist, or the cursor cannot be used.
            RemitError: the target or the cursor cannot be written, or the receiver did not accept
                the entries.
        """
        import orjson

        from remit.ledger import make_extract

        kind = "tiles" if self.tiles else self.format
        of, is_piped = self._extract(), self.target == "-"
        if self.cursor is not None:
            return self._since(self.cursor, root, is_whole=not of and kind == "jsonl")
        if self.follow or self.content:
            raise InvalidInputError("--follow and --content require --cursor FILE.")
        if of and kind != "jsonl":
            raise InvalidInputError("An extract has one format. Leave out --format and --tiles.")
        if "://" in self.target:
            raise InvalidInputError("Only an export with --cursor can be sent to a URL.")
        if is_piped and kind != "jsonl":
            raise InvalidInputError("Only jsonl can be written to standard output.")
        ledger = root.ledger
        if self.archives:
            ledger.attach(self.archives)
        if of:
            extract = make_extract(ledger, of)
            note = f"{count(len(extract['records']), 'record')} written to {self.target}."
            text = f"{orjson.dumps(extract).decode()}\n"
            return Document(text, None if is_piped else Path(self.target), note)
        if is_piped:
            number = ledger.export(sys.stdout.buffer)
        else:
            number = ledger.export(
                Path(self.target), format=kind, progress=root.progress("exporting")
            )
        return {"entries": number, "later": ledger.count() - number}

    def _since(self, cursor: Path, root: RootPort, *, is_whole: bool) -> dict[str, Any]:
        """Export the entries after the cursor, and return their number and the next entry's id.

        Raises:
            InvalidInputError: an extract or another format is requested too.
        """
        from remit.ledger import entry_id
        from remit.operations.cursors import export_by_cursor

        if not is_whole:
            raise InvalidInputError(
                "With --cursor, all entries are exported in one format. Leave out --format, "
                "--tiles, --session, --order, --action and --range."
            )
        if self.archives:
            root.ledger.attach(self.archives)
        number, end = export_by_cursor(
            root, cursor, self.target, follow=self.follow, content=self.content
        )
        return {"entries": number, "next": entry_id(end)}

    def _extract(self) -> dict[str, Any]:
        """Return the entries that an extract is requested for; empty for a whole export.

        Raises:
            InvalidInputError: more than one of them is named, or the range has no entry ids.
        """
        from remit.ledger import parse_entry_id

        given = {"session_id": self.session, "work_order_id": self.order, "entry": self.action}
        found: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if self.span is not None:
            bounds = [
                int(one) if one.isdecimal() and len(one) < 19 else parse_entry_id(one)
                for one in self.span
            ]
            found |= dict(zip(("first", "end"), bounds, strict=True))
        if len(found) > (1 if self.span is None else 2):
            raise InvalidInputError("Give one of --session, --order, --action and --range.")
        if None in found.values():
            raise InvalidInputError(
                "--range takes ids of entries, such as LED-0000002a, or numbers."
            )
        return found

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield a note on the written entries, and on those without a checkpoint."""
        if self.cursor is not None:
            yield Note(f"{found['entries']} entries exported; the next one is {found['next']}.")
            return
        yield Note(f"{count(found['entries'], 'entry')} written to {self.target}.")
        if found["later"] > 0:
            left_out = count(found["later"], "later entry")
            yield Note(f"Left out, because no checkpoint covers them: {left_out}.")
