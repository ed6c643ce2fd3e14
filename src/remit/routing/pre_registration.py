"""Pre-registered evaluations: a route's choices, recorded and witnessed before the answers.

A registration is an extract (:mod:`remit.ledger.extracts`) of one ``EVALUATION_REGISTERED`` entry
whose checkpoint is cosigned by witnesses, with the choices that the entry commits to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import InvalidInputError, RemitError, excerpt
from remit.kernel.message_text import count
from remit.ledger import (
    Extract,
    LedgerClient,
    LedgerEntry,
    LedgerFormatError,
    columns_of,
    instant,
    make_extract,
    read_extract,
)
from remit.ledger.tlog import VerifierKey

REGISTRATION_FORMAT = "remit-evaluation/1"
"""The ``format`` of a registration."""

_EVENT = "EVALUATION_REGISTERED"
_MEMBERS = ("id", "prompt", "task", "paraphrases")


def register_choices(
    ledger: LedgerClient,
    choose: Callable[[str, str], str],
    lines: Iterable[bytes],
    facts: dict[str, str],
) -> dict[str, Any]:
    """Record which model a route chooses for each prompt, and return the registration.

    Appends one ``EVALUATION_REGISTERED``, whose ``number`` counts registrations of these prompts.
    The result is the entry's extract with ``format`` and ``choices``.

    Args:
        ledger: the ledger.
        choose: returns the model for a prompt and its task; the task may be empty.
        lines: JSON objects with ``id``, ``prompt`` and optionally ``task`` and ``paraphrases``,
            which is ignored.
        facts: ``route``, ``code`` (hash of the running code) and ``rules`` (hash of the rules).

    Raises:
        InvalidInputError: a line is malformed or has other members, such as ``results``; an id
            comes twice; or there are no prompts.
        LedgerError: the entry cannot be written; or no checkpoint can be signed, and the entry is
            recorded already.
        RemitError: an error of ``choose``; nothing was recorded.
    """
    choices: dict[str, dict[str, str]] = {}
    for number, line in enumerate(lines, 1):
        row = _parsed(line)
        name, prompt, task = row.get("id", ""), row.get("prompt", ""), row.get("task", "")
        if others := row.keys() - _MEMBERS:
            raise InvalidInputError(
                f"Line {number} has the member {excerpt(min(others), 60)!r}: the answers may be "
                "open already.",
                next_step=f"Register a file with these members only: {', '.join(_MEMBERS)}.",
            )
        is_text = all(isinstance(one, str) for one in (name, prompt, task))
        if not is_text or not name or not prompt or name in choices:
            raise InvalidInputError(f"Line {number} is no prompt, or has an id that came before.")
        model = choose(prompt, task)
        choices[name] = {"id": name, "prompt": sha256_hex(prompt.encode()), "model": model}
    if not choices:
        raise InvalidInputError("There are no prompts to register.")
    rows = [*choices.values()]
    # In any order and under any ids, the same prompts are counted together.
    asked = sha256_hex(canonical_json(sorted(row["prompt"] for row in rows)))
    submission = f"EVA-{asked[:16]}"
    earlier = ledger.query(event_type=_EVENT, submission_id=submission, with_content=False)
    metadata = {**facts, "prompts": asked, "choices": sha256_hex(canonical_json(rows)),
                "count": len(rows), "number": 1 + sum(1 for _ in earlier)}  # fmt: skip
    were = "was" if len(rows) == 1 else "were"
    reason = f"{count(len(rows), 'choice')} of the route {facts['route']} {were} registered"
    entry = ledger.write(LedgerEntry(_EVENT, submission, "REGISTERED", reason, metadata=metadata))
    seq = int(entry.removeprefix("LED-"), 16)
    found = make_extract(ledger, {"first": seq, "end": seq + 1})
    return {**found, "format": REGISTRATION_FORMAT, "choices": rows}


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InvalidInputError(f"The file of prompts is not JSON lines: {error}.") from error
    return row if isinstance(row, dict) else {}


@dataclass(frozen=True, slots=True)
class Registration:
    """A registration that was verified.

    Attributes:
        extract: the extract of the entry, with ``choices`` as a member: rows of ``id``, ``prompt``
            (SHA-256 of the text) and ``model``.
        witnesses: name of each witness, and the time at which it had seen the entry (ISO 8601).
    """

    extract: Extract
    witnesses: Sequence[tuple[str, str]]

    @property
    def statement(self) -> str:
        """A sentence for people: the number of choices, the code, the witnesses and their times."""
        (entry,) = self.extract.records.values()
        meta, log = entry["metadata"], self.extract.signed.checkpoint.origin
        seen = " and ".join(
            f"the witness {name!r} had seen it at {at}" for name, at in self.witnesses
        )
        return (f"verified: {count(meta['count'], 'choice')} of the route {meta['route']!r} by the "
                f"code {meta['code']!r} and the rules {meta['rules']!r}, recorded as "
                f"{entry['id']} of {log!r}, and {seen or 'no witness is named'}; this is "
                f"registration {meta['number']!r} of these prompts")  # fmt: skip


def read_registration(
    data: bytes,
    key: VerifierKey | None,
    witnesses: Sequence[VerifierKey],
    before: str | None = None,
) -> Registration:
    """Return a registration if each choice is the recorded one and the witnesses saw it in time.

    Args:
        data: the file.
        key: the log's verifier key, as for :func:`~remit.ledger.read_extract`.
        witnesses: keys of witnesses that must have cosigned.
        before: time before which they must have, such as that of the answers (ISO 8601); ``None``
            for any time.

    Raises:
        InvalidInputError: ``before`` is not a time.
        LedgerFormatError: the file is malformed, or a condition does not hold.
    """
    limit = instant(before)
    extract = read_extract(data, key, more={"choices": list})
    (entry, *others), rows = extract.records.values(), extract.members["choices"]
    meta = entry["metadata"]
    is_one = extract.members["format"] == REGISTRATION_FORMAT and entry["event_type"] == _EVENT
    is_one = is_one and columns_of(meta).tier in (None, "hot") and meta.get("count") == len(rows)
    is_one = is_one and all(name in meta for name in ("route", "code", "rules", "number"))
    try:
        digest = sha256_hex(canonical_json(rows))
        cosigned = extract.signed.cosignatures(witnesses)
    except (ValueError, TypeError, RemitError) as error:
        raise LedgerFormatError(f"The registration does not verify: {error}.") from error
    if others or not is_one or digest != meta.get("choices"):
        raise LedgerFormatError("The choices are not those that the ledger recorded.")
    found = [(one.name, str(instant(datetime.fromtimestamp(at, UTC)))) for one, at in cosigned]
    for one in witnesses:
        if one not in [seen for seen, _ in cosigned]:
            raise LedgerFormatError(f"The witness {one.name} did not cosign the registration.")
    for name, at in found:
        if limit is not None and at >= limit:
            raise LedgerFormatError(f"The registration is too late: {name} saw it at {at}.")
    return Registration(extract, found)
