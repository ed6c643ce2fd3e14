"""The operation that verifies a ledger, an extract, an export by cursor or a registration."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.json_text import JsonTextError, load
from remit.kernel.message_text import count
from remit.operations.agent_tools import AgentTool, ToolCall
from remit.operations.files import archives, io_errors
from remit.operations.operation import Answer, field, verb
from remit.operations.ports import Caller, RootPort
from remit.operations.text import Note

if TYPE_CHECKING:
    from remit.ledger import Extract
    from remit.ledger.tlog import SignedCheckpoint, VerifierKey

_MAX_CHECKPOINT = 1_000_000
_STATUS = {
    "none": "The ledger has no signed checkpoint, so a truncation or a full rewrite cannot be "
    "detected. `remit init` creates a key.",
    "unchecked": "The stored checkpoints match the records, but their signatures were not "
    "checked because there is no key.",
    "stored": "Verified with the stored checkpoints, up to {size} entries. The owner of the key "
    "and the disk could still have rewritten everything. To detect a full rewrite, "
    "keep a checkpoint elsewhere and pass it with --checkpoint.",
    "outside": "Verified with the given checkpoint: its {size} entries are unchanged.",
    "failed": "",
}
_NOT_SHOWN = (
    "The file does not show that its log continues the checkpoint of {} entries that you kept "
    "(tree-root): that needs a file with {}, and this one's checkpoint covers {} entries."
)
_MEMBERS = (
    "verified", "entries", "archived", "unread", "last_full", "first_bad_seq",
    "problems", "problem_count", "contents", "erased", "erasures", "checkpoint",
    "checkpoint_size", "witnesses", "notes",
)  # fmt: skip


def _requested(call: ToolCall) -> dict[str, Any]:
    """Return the request of a full check; of a great ledger, from where the last check ended."""
    root = call.root
    return {"full": root.ledger.count() <= root.settings.gates.full_entries, "jobs": 1}


_TOOL = AgentTool(
    name="verify_ledger", label="verify", has_status=False, request=_requested,
    about="Check that the ledger is intact: every record, link and content value; of a great one, "
    "from where the last check ended.",
    examples=(
        "verify the ledger", "check the hash chain", "has anybody tampered with the ledger?",
        "is the integrity of the log intact?",
        "was anything in the record changed or altered after the fact?",
        "prove that the hash chain holds",
    ),
    note="Cut to fit. `remit ledger verify` prints all problems.",
)  # fmt: skip


def _lines(
    found: dict[str, Any], archives: Sequence[Path] = (), problems: Iterable[str] | None = None
) -> Iterator[str]:
    """Yield the numbers and notes on their meaning, or the problems.

    Args:
        found: the JSON object of the report.
        archives: the archives that were read.
        problems: the problems for people; those of ``found`` if None.
    """
    if not found["verified"]:
        yield (f"NOT VERIFIED: {count(found['problem_count'], 'problem')} in "
               f"{count(found['entries'], 'entry')}")  # fmt: skip
        yield from (f"  {problem}" for problem in problems or found["problems"])
        return
    yield (f"verified: {count(found['entries'], 'entry')}, "
           f"{count(found['contents'], 'content value')}, {found['erased']} erased")  # fmt: skip
    if found["archived"]:
        yield f"  archived: {count(found['archived'], 'more entry')}"
    for name, number in sorted(found["erasures"].items()):
        yield f"  content erased under {name}: {number}"
    yield from (f"  cosigned by {name}" for name in found["witnesses"])
    yield from (Note(f"Not checked: {said}.") for said in found["notes"])
    if found["last_full"]:
        yield Note(f"Verified earlier and not read again: {count(found['unread'], 'entry')}. "
                   "The last full check, including the database file, was on "
                   f"{found['last_full']}.")  # fmt: skip
    if found["archived"] and not archives:
        yield Note("Checked only by their hashes: "
                   f"{count(found['archived'], 'archived entry')}; add --archive DIR to read "
                   "them.")  # fmt: skip
    yield Note(_STATUS[found["checkpoint"]].format(size=found["checkpoint_size"]))


@verb("ledger verify", agent_tools=(_TOOL,), lines=_lines)
def verify_ledger(
    root: RootPort, caller: Caller, *,
    source: Path | None = field("Checkpoint kept elsewhere.", None, flag="--checkpoint",
                                metavar="FILE"),
    jobs: int | None = field("Processes (default: one per core).", None, least=1),
    full: bool = field(
        "Incremental continues from the last verification and rechecks only a sample of earlier "
        "entries (default: full).", True, flag="--full/--incremental",
    ),
    witnesses: list[str] = field(
        "Show if this witness cosigned the checkpoint; with --file, require it.", [],
        flag="--witness", metavar="VKEY",
    ),
    file: Path | None = field("Verify this extract or registration instead.", None),
    before: str | None = field("With --file of a registration: the latest time.", None,
                               metavar="TIME"),
    key: str | None = field("With --file: the log's verifier key.", None, metavar="VKEY"),
    archives: list[Path] = archives(),
) -> Answer:  # fmt: skip
    """Verify the whole ledger; exit 1 on a problem.

    The command checks records, hash chain, tree, content, erasures and checkpoints. With --file, it
    checks the file alone, without a root; without --key, it believes the key that the file states.

    Returns:
        The report; a ledger that cannot be opened does not verify. Its ``witnesses`` are the given
        ones that cosigned; a missing cosignature is no problem. With ``file`` (extract, export by
        cursor, registration), its proven range, log and receipts, or ``verified`` False and the
        problem: its log must continue ``source``; each witness must have cosigned a registration.

    Raises:
        InvalidInputError: an option has no effect with or without --file; a file that is no
            registration has witnesses or ``before``, or a registration ``before`` alone; or
            ``before`` cannot be read.
        RemitError: a file or the checkpoint cannot be read.
        TlogError: a key cannot be parsed; with --file also a malformed checkpoint, which otherwise
            is a problem of the report.
    """
    from remit.ledger import LedgerError, VerificationReport
    from remit.ledger.tlog import VerifierKey

    ignored = (
        {"--before": before is not None, "--key": key is not None} if file is None
        else {"--jobs": jobs is not None, "--incremental": not full, "--archive": bool(archives)}
    )  # fmt: skip
    if without_effect := [flag for flag, given in ignored.items() if given]:
        raise InvalidInputError(
            f"{without_effect[0]} has no effect {'without' if file is None else 'with'} --file. "
            "Leave it out."
        )
    keys = [VerifierKey.parse(text) for text in witnesses]
    if file is not None:
        return _verify_file(file, source, keys, before, key)
    held = None if source is None else _read_checkpoint(source)
    try:
        ledger, segments = root.ledger, VerificationReport()
        if archives:
            with segments.guard("the segments"):
                ledger.attach(archives)
        report = ledger.verify(
            checkpoint=held,
            jobs=jobs or os.cpu_count() or 1,
            witnesses=keys,
            since_mark=not full,
            progress=root.progress("verifying"),
        )
        report.merge(segments)
    except LedgerError as error:
        report = VerificationReport.of_failure(error)
        if error.next_step:
            root.note(f"next: {error.next_step}")
    found = {name: getattr(report, name) for name in _MEMBERS}
    found["problems"] = [str(problem) for problem in report.problems]
    return Answer(found, _lines(found, archives, report.lines()), not report.verified)


def _verify_file(
    file: Path, source: Path | None, witnesses: Sequence[VerifierKey], before: str | None,
    key: str | None,
) -> Answer:  # fmt: skip
    """Return the entries that a file proves, or the problem of a file that does not hold.

    Args:
        file: the extract, export by cursor or registration.
        source: file of a checkpoint that the file's log has to continue.
        witnesses: keys of witnesses that have to have cosigned a registration.
        before: the latest time of the cosignatures.
        key: verifier key of the log; None for the key that the file states.

    Raises:
        InvalidInputError: witnesses or a time are given, and the file is no registration; or
            the time is not valid.
        RemitError: the file or the checkpoint cannot be read.
        TlogError: a key or the checkpoint is malformed, or is of another log.
    """
    from remit.ledger import LedgerFormatError
    from remit.ledger.tlog import SignedCheckpoint, VerifierKey
    from remit.views import read_receipts

    log = None if key is None else VerifierKey.parse(key)
    held = SignedCheckpoint.parse(_read_checkpoint(source)) if source else None
    try:
        with io_errors(file):
            found, statement, batches = _read_proof(file, log, held, witnesses, before)
    except LedgerFormatError as error:
        failed = {"verified": False, "problems": [error.message]}
        return Answer(failed, [f"NOT VERIFIED: {error.message}"], has_failed=True)
    of, entries = dict(found.of), len(found.records)
    if batches is not None:
        of["first"], entries = batches.first, batches.end - batches.first
    head, receipts = found.signed.checkpoint, read_receipts(found)
    lines = [statement]
    for one in receipts:
        if one.entry_id == found.of.get("entry"):
            lines += one.lines()
    if held is not None:
        lines.append(Note(_STATUS["outside"].format(size=held.checkpoint.size)))
    if batches is not None and batches.unproven:
        lines.append(Note(f"{count(batches.unproven, 'more line')} without a proof yet."))
    if key is None:
        lines.append(Note(f"The file states the key {found.members['verifier_key']}. Compare it "
                          "with the key that you have from another source, or pass that with "
                          "--key."))  # fmt: skip
    value = {
        "verified": True, "of": of, "entries": entries, "end": found.end,
        "origin": head.origin, "size": head.size, "problems": [], "statement": statement,
        "receipts": [dataclasses.asdict(one) for one in receipts],
    }  # fmt: skip
    return Answer(value, lines)


def _read_proof(
    file: Path, log: VerifierKey | None, held: SignedCheckpoint | None,
    witnesses: Sequence[VerifierKey], before: str | None,
) -> tuple[Extract, str, Any]:  # fmt: skip
    """Return the verified extract of a file, its statement, and the proven lines of an export by
    cursor; None for other files.

    Raises:
        InvalidInputError: the file is an export; witnesses or a time are given, and it is no
            registration; or the time is not valid.
        LedgerFormatError: the file does not hold, or does not continue the checkpoint.
        OSError: the file cannot be read.
        TlogError: the checkpoint is of another log.
    """
    from remit.ledger import LedgerFormatError, entry_id, read_batches, read_extract
    from remit.ledger.tlog import VerifierKey
    from remit.routing import REGISTRATION_FORMAT, read_registration

    kept, batches = held.checkpoint if held else None, None
    with file.open("rb") as lines:
        start = lines.readline()
    if start.startswith(b'{"format":"remit-ledger-export/'):
        raise InvalidInputError(
            f"{file} is not an extract; it is an export of a whole ledger.",
            next_step=f"Run `python3 verify_standalone.py {file} --key KEY` (docs/verify.md).",
        )
    is_batches = b'"previous_hash":' in start  # an extract has this text in quotes only
    is_registration = not is_batches and _format_of(file) == REGISTRATION_FORMAT
    if (witnesses or before) and not is_registration:
        raise InvalidInputError(f"{file} is no registration, which --witness and --before need.")
    if before and not witnesses:
        raise InvalidInputError("--before needs the key of a witness (--witness).")
    if is_registration:
        read = read_registration(file.read_bytes(), log, witnesses, before)
        found, statement = read.extract, read.statement
    elif is_batches:
        with file.open("rb") as lines:
            batches = read_batches(lines, log, kept)
        found, statement = batches.last, batches.statement
    else:
        found = read_extract(file.read_bytes(), log)
        statement = found.statement
    if held is not None and kept is not None:
        held.verify(VerifierKey.parse(found.members["verifier_key"]))
        if not (batches.shows_kept if batches else found.shows(kept)):
            raise LedgerFormatError(_NOT_SHOWN.format(
                kept.size, entry_id(kept.size - 1), found.signed.checkpoint.size
            ))  # fmt: skip
    return found, statement, batches


def _format_of(file: Path) -> Any:
    """Return the member ``format`` of a JSON file; None if it has none."""
    try:
        value = load(file.read_bytes())
    except JsonTextError:
        return None
    return value.get("format") if isinstance(value, dict) else None


def _read_checkpoint(file: Path) -> bytes:
    """Return a checkpoint from a file; raise RemitError if it cannot be read."""
    step = "`remit ledger checkpoint --out FILE` writes one."
    if str(file).startswith(("http:", "https:")):
        step = "Save it to a file (`curl -o FILE URL`), and give the file."
    kind = functools.partial(RemitError, next_step=step)
    with io_errors(f"The checkpoint {file}", kind=kind), file.open("rb") as opened:
        return opened.read(_MAX_CHECKPOINT)
