"""The first line of an export, and the statement that its checkpoint signs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from remit.ledger.export_reader import require, require_members
from remit.ledger.record import is_plain_text
from remit.ledger.subjects import BEFORE
from remit.ledger.usage import DIMENSIONS, SUMS

EXPORT_FORMAT = "remit-ledger-export/1"
"""The ``format`` of the first line of an export."""

STATEMENT = "remit-export/1 "
"""The start of the checkpoint's line that signs the statement of an export."""

ARCHIVE_ORDER = "remit-archive/1"
"""The checkpoint's line that says that items in the parts of an archive are in order."""

_MAX_SUM = 1 << 62


class ExportHead(NamedTuple):
    """The first line of an export.

    Attributes:
        entries: number of entry lines and leaf lines.
        checkpoint: signed note; ``None`` if nothing was signed.
        verifier_key: the log's key as the export states it; ``None`` for a log without a key.
        subjects_before: sequence number of the first entry whose record names its subject.
        usage: usage rows of the hours with archived entries; ``None`` if nothing was archived.
        members: the members as they were read.
    """

    entries: int
    checkpoint: str | None
    verifier_key: str | None
    subjects_before: int
    usage: list[list[Any]] | None
    members: dict[str, Any]


def read_head(value: Any) -> ExportHead:
    """Return the first line of an export; raise ValueError if it is malformed.

    The error ends with the name of the broken condition in parentheses. Unknown members, and
    members that are null, are refused; ``checkpoint`` and ``verifier_key`` must be there but may be
    null. Neither is parsed or checked. ``entries`` is from 0 to below 2⁶², ``subjects_before`` at
    most ``entries``, which is also its value if it is missing. Each row of ``usage`` must have all
    its columns, and may be there once.

    Args:
        value: the parsed JSON of the line; any value.
    """
    is_export = type(value) is dict and value.get("format") == EXPORT_FORMAT
    require(is_export, "head-format", "this is not an export of a ledger")
    plain = {name: item for name, item in value.items() if item is not None}
    for name in ("checkpoint", "verifier_key"):
        require(name in value, "head-members", f"the first line has no member {name!r}")
    require(
        value.keys() - {"checkpoint", "verifier_key"} == plain.keys() - {"checkpoint",
        "verifier_key"}, "head-members", "a member of the first line is null",
    )  # fmt: skip
    require_members(
        plain, "head-members", "the first line", {"format": str, "entries": int},
        {"checkpoint": str, "verifier_key": str, BEFORE: int, "usage": list},
    )  # fmt: skip
    entries: int = value["entries"]
    require(0 <= entries < _MAX_SUM, "head-entries", "the number of entries is impossible")
    before: int = value.get(BEFORE, entries)
    require(0 <= before <= entries, "head-subjects", f"{BEFORE} is not in the range of entries")
    usage = value.get("usage")
    for row in usage or ():
        _check_usage(row)
    keys = [tuple(row[: -len(SUMS)]) for row in usage or ()]
    require(len(set(keys)) == len(keys), "head-usage", "a row of usage is there twice")
    return ExportHead(entries, value["checkpoint"], value["verifier_key"], before, usage, value)


def _check_usage(row: Any) -> None:
    is_row = type(row) is list and len(row) == 1 + len(DIMENSIONS) + len(SUMS)
    require(is_row, "head-usage", "a row of usage has not all its columns")
    numbers, names = [row[0], *row[-len(SUMS) :]], row[1 : -len(SUMS)]
    require(
        all(type(item) is int and abs(item) <= _MAX_SUM for item in numbers)
        and all(type(item) is str and is_plain_text(item) for item in names),
        "head-usage",
        "a row of usage has a column of another type",
    )


def statement_of(members: Mapping[str, Any], subjects: Collection[tuple[str, list[str]]]) -> bytes:
    """Return the SHA-256 digest (32 bytes) that the checkpoint of an export signs.

    The digest covers the members of the first line except the checkpoint, and the subjects that no
    record confirms. The order of the pairs does not matter; the order of the subjects in a pair
    changes the digest.

    Args:
        members: members of the first line.
        subjects: commitments of values, each with its unconfirmed subjects, which an export sorts.
    """
    stated = {name: item for name, item in members.items() if name != "checkpoint"}
    stated["subjects"] = sorted([commitment, *names] for commitment, names in subjects)
    text = json.dumps(stated, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()
