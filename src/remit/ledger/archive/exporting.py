"""A ledger and its archive as one export: the same lines as before anything was archived."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from remit.ledger.archive.reading import Archive
from remit.ledger.client import LedgerClient
from remit.ledger.errors import LedgerError
from remit.ledger.exports import Lines, header_of, require_accounted
from remit.ledger.record import columns_of
from remit.ledger.report import Progress
from remit.ledger.store import Filter
from remit.ledger.tlog import SignedCheckpoint

__all__ = ["export_whole"]

_PAGE = 200


def export_whole(
    ledger: LedgerClient, archive: Archive, path: Path, progress: Progress | None = None
) -> int:
    """Write all entries as JSON lines, those of the archive in their places; returns how many.

    Args:
        ledger: with its key.
        archive: all of it.
        path: of the file.
        progress: called with the entries done and their total.

    Raises:
        LedgerError: a part of the archive is missing, or the file cannot be written.
    """
    archive.require(ledger.archived_ranges())
    signed = SignedCheckpoint.parse(ledger.checkpoint())
    size, end = signed.checkpoint.size, ledger.archived_to
    temporary = path.with_name(f".{path.name}.new")
    expected = 0
    try:
        with temporary.open("wb") as out:
            out.write(orjson.dumps(header_of(ledger._store, signed, ledger.verifier_key)) + b"\n")
            merged = heapq.merge(
                _here(ledger, size), _archived(archive), key=lambda item: int(item[0]["seq"])
            )
            had = _Had(ledger, end)
            for line, is_archived in merged:
                if line["seq"] == expected - 1:  # archived, and not removed yet
                    continue
                if line["seq"] != expected:
                    raise LedgerError(
                        f"Entry {expected} is neither in the ledger nor in the archive.",
                        next_step="Run `remit ledger verify --archive DIR`.",
                    )
                out.write(orjson.dumps(had.without(line, is_archived=is_archived)) + b"\n")
                expected += 1
                if progress is not None and expected % _PAGE == 0:
                    progress(expected, size)
        require_accounted(ledger._store, size)
        temporary.replace(path)
    except OSError as error:
        raise LedgerError(
            f"The export cannot be written to {path}: {error.strerror or error}.",
            next_step="Check the free space and the permissions.",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return size


_Item = tuple[dict[str, Any], bool]


def _here(ledger: LedgerClient, size: int) -> Iterator[_Item]:
    lines, after = Lines(ledger._store), -1
    while rows := ledger._store.page(Filter(after=after), _PAGE):
        after = rows[-1].seq
        for line in lines.of([row for row in rows if row.seq < size]):
            yield line, False
        if after >= size:
            return


def _archived(archive: Archive) -> Iterator[_Item]:
    for line in archive.lines():
        found = line.to_dict()
        del found["since"]
        yield found, True


class _Had:
    """Which values that are both here and in the archive a line had: no other may have them."""

    def __init__(self, ledger: LedgerClient, end: int) -> None:
        self._ledger = ledger
        self._end = end
        self._macs: set[str] = set()
        self._goes_on: dict[str, bool] = {}

    def without(self, line: dict[str, Any], *, is_archived: bool) -> dict[str, Any]:
        """A line with what is new in it."""
        contents = [
            item
            for item in line["contents"]
            if "erased" in item or item["commitment"] not in self._macs
        ]
        is_shared = not is_archived and line["seq"] < self._end
        for item in contents:
            if item.pop("kept", False) or is_shared or (is_archived and self._is_of_more(line)):
                self._macs.add(item["commitment"])
        return {**line, "contents": contents}

    def _is_of_more(self, line: dict[str, Any]) -> bool:
        """Whether the session of an archived line has gone on here."""
        name = columns_of(orjson.loads(line["record"])["metadata"]).session_id or ""
        if name not in self._goes_on:
            sql = "SELECT 1 FROM entries WHERE session_id = ? AND seq >= ? LIMIT 1"
            self._goes_on[name] = bool(self._ledger.select(sql, (name, self._end)))
        return self._goes_on[name]
