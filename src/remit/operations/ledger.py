"""Operations on the ledger: entries, their proofs, receipts, checkpoints, key and counts."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson

from remit.kernel.errors import InvalidInputError, NotFoundError, nearest
from remit.kernel.json_text import dump
from remit.kernel.message_text import cut, dollars
from remit.operations.entry_tools import QUERY_LEDGER, QUERY_LEDGER_FULL
from remit.operations.files import archives, io_errors
from remit.operations.operation import Document, Feed, field, limit, verb
from remit.operations.ports import Caller, RootPort

if TYPE_CHECKING:
    from remit.ledger import LedgerClient, LedgerEntry
    from remit.ledger.tlog import SignedCheckpoint, VerifierKey

_LINE_CHARS = 100
_POLL_S = 0.3
# Metadata that the line of an entry shows; of other entries, the first three values.
_SHOWN = {
    "EXCHANGE": ("model_id", "input_tokens", "output_tokens", "cost_usd", "latency_ms"),
    "TOOL_CALL": ("tool_id", "status"),
}


def _only(text: str) -> Any:
    return field(text, None)


_OUT: Any = field("Write to this file (default: standard output).", None, door="command")


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
        receipts. If the run has grown, its index is recorded first (INDEXED).

    Raises:
        EntryNotFoundError: the ledger has no such entry or run.
        InvalidInputError: the entry ends no action of a run; in other formats than `remit`, also a
            call that was refused because the session is another caller's.
        LedgerError: the index cannot be written, or no key can sign the checkpoint that it needs.
    """
    from remit.ledger import make_extract, read_extract
    from remit.views import public_receipts, read_receipts

    ledger, name = root.ledger, action_id
    if archives:
        ledger.attach(archives)
    kind = {"LED": "entry", "WO-": "work_order_id"}.get(name[:3], "session_id")
    whole = make_extract(ledger, {kind: name})
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


@verb(
    "ledger key", "GET /ledger/key", summary="Verifier key", needs="verify",
    media_type="text/plain", fails=(404,),
)  # fmt: skip
def read_verifier_key(root: RootPort, caller: Caller) -> str:
    """Print the key (origin+hash+key) that verifies checkpoints and proofs of this ledger.

    For independent proof, get the key from a place that the operator cannot change.

    Raises:
        NotFoundError: the ledger has no signing key.
        LedgerKeyError: the key's file is damaged, or the key is of another origin.
    """
    from remit.ledger import ledger_key

    if (key := ledger_key(root.place, root.settings.ledger).verifier_key()) is None:
        raise NotFoundError("The ledger has no signing key.", next_step="`remit init` creates one.")
    return f"{key}\n"


@verb("ledger stats", "GET /ledger/stats", summary="Number of entries", result="Stats")
def count_entries(root: RootPort, caller: Caller) -> dict[str, Any]:
    """Count entries by event type.

    Returns:
        ``entries`` (archived ones included), ``events`` (by event type, without archived ones),
        ``archived``, ``head`` (``seq`` and ``entry_hash``, None without entries) and ``location``.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    ledger = root.ledger
    head, events, entries = ledger.head(), ledger.count_by_event(), ledger.count()
    return {
        "entries": entries, "events": events, "archived": entries - sum(events.values()),
        "head": {"seq": head[0], "entry_hash": head[1]} if head else None,
        "location": ledger.location,
    }  # fmt: skip


def _as_json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"


def _bytes_of(file: Path) -> bytes:
    with io_errors(file):
        return file.read_bytes()
