"""``RECORD``: what an installer wrote down of each file it placed."""

from __future__ import annotations

import base64
import binascii
import csv
import re
from dataclasses import dataclass

__all__ = ["Row", "parse_record", "record_line"]

_HASH = "sha256"
_DIGEST_BYTES = 32
_SIZE = re.compile("[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class Row:
    """One file.

    Attributes:
        sha256: 64 lower-case hex digits; empty where the installer wrote none.
        size: in bytes; ``None`` where the installer wrote none.
    """

    sha256: str
    size: int | None


def parse_record(data: bytes) -> tuple[dict[str, Row], list[str]]:
    """The rows of a RECORD by path, and what is wrong with it.

    Paths are relative to the directory that packages are installed in, as the
    specification of recorded projects has them; what lies outside of it (a script) begins
    with ``..`` or ``/``. A row that cannot be understood is a problem and not among the rows.
    """
    rows: dict[str, Row] = {}
    problems: list[str] = []
    try:
        lines = list(csv.reader(data.decode().splitlines(), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        return {}, [f"RECORD is not a table in UTF-8: {error}."]
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        problem = _problem(line, rows)
        if problem:
            problems.append(f"RECORD, line {number}: {problem}.")
            continue
        path, digest, size = line
        rows[path] = Row(_hex(digest), int(size) if size else None)
    return rows, problems


def record_line(path: str, sha256: bytes, size: int) -> list[str]:
    """The three columns of one file."""
    digest = base64.urlsafe_b64encode(sha256).rstrip(b"=").decode()
    return [path, f"{_HASH}={digest}", str(size)]


def _problem(line: list[str], rows: dict[str, Row]) -> str:
    if len(line) != 3:
        return f"it has {len(line)} columns, not 3"
    path, digest, size = line
    inside = path.lstrip("/")
    while inside.startswith("../"):
        inside = inside[3:]
    if "\\" in path or "\0" in path or any(p in ("", ".", "..") for p in inside.split("/")):
        return f"{path!a} is not a path written in one way"
    if path in rows:
        return f"{path!a} is there twice"
    if size and not _SIZE.fullmatch(size):
        return f"the size of {path!a} is {size!a}"
    if digest and not _hex(digest):
        return f"the hash of {path!a} is {digest!a}; it has to be {_HASH}= and unpadded base64url"
    return ""


def _hex(digest: str) -> str:
    """As hex digits, or nothing when it is not a hash of the kind expected."""
    name, _, value = digest.partition("=")
    if name != _HASH or not value.isascii():
        return ""
    try:
        raw = base64.b64decode(value + "=", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return ""
    # Only one text stands for these bytes: unused bits are not a place to write in.
    if len(raw) != _DIGEST_BYTES or record_line("", raw, 0)[1] != digest:
        return ""
    return raw.hex()
