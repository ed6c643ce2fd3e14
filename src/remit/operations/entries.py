"""Operations that query and show entries of the ledger."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson

from remit.kernel.errors import InvalidInputError, nearest
from remit.kernel.json_text import dump
from remit.kernel.message_text import cut, dollars
from remit.operations.entry_tools import QUERY_LEDGER, QUERY_LEDGER_FULL
from remit.operations.files import archives
from remit.operations.operation import Document, Feed, field, limit, verb
from remit.operations.ports import Caller, RootPort

if TYPE_CHECKING:
    from remit.ledger import LedgerClient, LedgerEntry


_LINE_CHARS = 100
_POLL_S = 0.3
# Metadata that the line of an entry shows; of other entries, the first three values.
_SHOWN = {
    "EXCHANGE": ("model_id", "input_tokens", "output_tokens", "cost_usd", "latency_ms"),
    "TOOL_CALL": ("tool_id", "status"),
}


def _only(text: str) -> Any:
    return field(text, None)


_ENTRY_ID: Any = field("Id of the entry.", flag="")


def _entry_line(entry: LedgerEntry) -> str:
    """Return an entry as a line of a list: id, time, event type, reason and some metadata."""
    metadata = entry.metadata
    keys = _SHOWN.get(entry.event_type)
    if isinstance(usd := metadata.get("cost_usd"), int | float):
        metadata = {**metadata, "cost_usd": dollars(usd)}
    plain = [key for key in keys or metadata
             if type(value := metadata.get(key)) in (str, int, float) and value != ""]  # fmt: skip
    names = plain[: None if keys else 3]
    shown = " ".join(f"{'cost' if key == 'cost_usd' else key}="
                     f"{cut(metadata[key], _LINE_CHARS // 3)}" for key in names)  # fmt: skip
    text = f"{entry.id}  {entry.timestamp}  {entry.event_type:<18} {entry.reason}  {shown}"
    return text if len(text) <= 2 * _LINE_CHARS else f"{text[: 2 * _LINE_CHARS - 1]}…"


@verb(
    "ledger query", "GET /ledger/entries", summary="Query entries", form="EntryQuery",
    result="EntryPage", member="entries", endpoint="entries", line=_entry_line,
    agent_tools=(QUERY_LEDGER, QUERY_LEDGER_FULL),
)  # fmt: skip
def query_ledger(
    root: RootPort, caller: Caller, *,
    event_type: str | None = _only("Event type, such as `EXCHANGE`."),
    submission_id: str | None = _only("Contract, session or work order of the entry."),
    session_id: str | None = _only("Session of the entry."),
    work_order_id: str | None = _only("Work order of the entry."),
    agent_id: str | None = _only("Agent of the entry."),
    tier: str | None = _only("Tier: `hot`, `ho2` or `ho1`."),
    framework_id: str | None = _only("Framework of the entry."),
    contract_id: str | None = _only("Contract of the entry."),
    model_id: str | None = _only("Model of the entry."),
    outcome: str | None = _only("Outcome of the exchange: `success`, `error` or `timeout`."),
    since: str | None = _only("Start of the range, inclusive, in ISO 8601."),
    until: str | None = _only("End of the range, exclusive, in ISO 8601."),
    after: str | None = field("Only entries after this entry id.", None, door="command"),
    text: str | None = _only("Words that the content must contain; write a phrase in double "
                             "quotes."),
    order: Literal["asc", "desc"] = field("Order by time: `asc` is oldest first, `desc` newest "
                                          "first.", "asc"),
    content: bool = field("Return the content instead of its commitments.", False, door="route"),
    archives: list[Path] = archives(),
    limit: int | None = limit(),
) -> Feed:  # fmt: skip
    """List entries that match all filters, in ledger order.

    Over HTTP, content is omitted unless it is requested.

    Returns:
        A list, page by page. With ``text``, new content is indexed first, over HTTP at each page.

    Raises:
        InvalidInputError: a filter cannot be used (when read), or a command's type is misspelt.
        LedgerError: the ledger or a segment cannot be read, or the index cannot be written.
    """
    ledger = root.ledger
    conditions: dict[str, Any] = {
        "event_type": event_type, "submission_id": submission_id, "session_id": session_id,
        "work_order_id": work_order_id, "agent_id": agent_id, "tier": tier,
        "framework_id": framework_id, "contract_id": contract_id, "model_id": model_id,
        "outcome": outcome, "since": since, "until": until, "text": text, "order": order,
        "with_content": caller.is_local or content,
    }  # fmt: skip
    if archives:
        ledger.attach(archives)
    note = _query_notes(root, event_type, text, archives) if caller.is_local else ""

    def read(cursor: str | None, most: int | None) -> Iterator[tuple[str, LedgerEntry]]:
        # Content streams in small batches, so that a page may be full before its number is.
        for entry in ledger.query(
            **conditions, after=cursor or after, limit=None if content else most
        ):
            yield entry.id, entry

    return Feed(read, note=note)


def _query_notes(
    root: RootPort, event_type: str | None, text: str | None, archives: list[Path]
) -> str:
    """Return notes on an unknown event type and on archived entries, after indexing the text.

    Raises:
        InvalidInputError: a similar event type exists.
    """
    notes = [] if event_type is None else [_check_event_type(root.ledger, event_type)]
    if text is not None:
        root.ledger.index_text(root.progress("indexing"))
    if (end := root.ledger.archived_to) and not archives:
        notes.append(f"Entries before LED-{end:08x} may be in a segment; add --archive DIR to read "
                     "them.")  # fmt: skip
    return "\n".join(filter(None, notes))


def _check_event_type(ledger: LedgerClient, name: str) -> str:
    """Return a note if neither Remit nor the ledger has the event type; else an empty text.

    Raises:
        InvalidInputError: a similar event type exists.
    """
    from remit.ledger import EVENTS

    if name in EVENTS or any(ledger.query(event_type=name, limit=1, with_content=False)):
        return ""
    if near := nearest(name, {*EVENTS, *ledger.count_by_event()}):
        raise InvalidInputError(f"Unknown event type {name!r}.", next_step=f"Did you mean {near}?")
    return f"Unknown event type {name!r}: Remit does not write it, and no entry has it."


@verb("ledger tail", command_member="entries", line=_entry_line)
def tail_ledger(
    root: RootPort, caller: Caller, *,
    number: int = field("Number of entries.", 10, least=0, flag="-n"),
    follow: bool = field("Keep printing new entries (with --json, one line each).", False,
                         flag="-f --follow"),
) -> Feed:  # fmt: skip
    """Show the latest entries.

    Returns:
        A list in ledger order, with ``follow`` endless. Call and reading may raise LedgerError.
    """
    ledger, end = root.ledger, root.ledger.count()
    first = max(0, end - number)

    def read(cursor: str | None, most: int | None) -> Iterator[tuple[str, LedgerEntry]]:
        last = end - 1
        for entry in itertools.islice(ledger.query(after=first - 1), end - first):
            yield entry.id, entry
        while follow:
            time.sleep(_POLL_S)
            for entry in ledger.query(after=last):
                yield entry.id, entry
                last = entry.seq

    return Feed(read, is_endless=follow)


def _show_entry_lines(found: LedgerEntry) -> Iterator[str]:
    """Yield each field, then the metadata; values that are no text are JSON."""
    stated = found.to_dict()
    inner = {f"  {key}": value for key, value in stated.pop("metadata").items()}
    for key, value in {**stated, "metadata": "", **inner}.items():
        text = (value if isinstance(value, str)
                else dollars(value) if isinstance(value, float) and key.endswith("_usd")
                else dump(value, str, orjson.OPT_PASSTHROUGH_DATACLASS).decode())  # fmt: skip
        yield f"{key}: {text}".rstrip()


@verb(
    "ledger show", "GET /ledger/entries/{entry_id}", summary="One entry", result="EntryShape",
    endpoint="entry", instead_of_json=("record", "body", "answer"),
    lines=_show_entry_lines,
)  # fmt: skip
def show_entry(
    root: RootPort, caller: Caller, *,
    entry_id: str = _ENTRY_ID,
    content: bool = field("Return the content; if false, its commitments.", True, door="route"),
    record: bool = field("Write the canonical record's exact bytes.", False, door="command"),
    body: bool = field("Write the exact request body of a call.", False, door="command"),
    answer: bool = field("Write the exact response body of a call.", False, door="command"),
    archives: list[Path] = archives(),
) -> LedgerEntry | Document:  # fmt: skip
    """Show an entry with its content, or write one of its exact byte strings.

    For a stream, the answer is the combined response.

    Returns:
        The entry, with marks for erased content; or the requested bytes as a document.

    Raises:
        InvalidInputError: several byte strings are requested, or the entry has no body or answer.
        EntryNotFoundError: the ledger has no such entry; EntryArchivedError if it was archived.
        LedgerError: a part of the requested body or answer was erased.
    """
    from remit.ledger import call_answer, call_body

    ledger = root.ledger
    exact: dict[str, tuple[bool, Callable[[str], bytes]]] = {
        "record": (record, ledger.read_record), "body": (body, partial(call_body, ledger)),
        "answer": (answer, partial(call_answer, ledger)),
    }  # fmt: skip
    wanted = [name for name, (is_wanted, _) in exact.items() if is_wanted]
    if len(wanted) > 1:
        raise InvalidInputError(f"--{' and --'.join(wanted)} cannot be written to one output.")
    if archives:
        ledger.attach(archives)
    if wanted:
        return Document(exact[wanted[0]][1](entry_id))
    if content:
        return ledger.read(entry_id)
    ledger.read_record(entry_id)  # raises if the entry does not exist
    before = int(entry_id[4:], 16) - 1
    return next(ledger.query(after=before, limit=1, with_content=False))


@verb(
    route="GET /ledger/entries/{entry_id}/record", summary="Canonical record",
    media_type="application/octet-stream", endpoint="record",
)  # fmt: skip
def read_record(root: RootPort, caller: Caller, *, entry_id: str = _ENTRY_ID) -> bytes:
    """Return the canonical record: the exact bytes that the entry's hash and the tree cover.

    Raises:
        EntryNotFoundError: the ledger has no such entry; LedgerError if it cannot be read.
    """
    return root.ledger.read_record(entry_id)
