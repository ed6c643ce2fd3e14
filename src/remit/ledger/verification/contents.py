"""Checking content and message steps, range by range. Trusts nothing it reads.

Each function reads one range of ids and returns what it found as plain data, so that ranges can
be checked in several processes at once.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from remit.kernel.errors import RemitError
from remit.ledger.content import NO_STEP, StoredValue, commit, next_step
from remit.ledger.store import RawContent, RawStep, Store
from remit.ledger.verification.digests import RowDigest

_NONCE_BYTES = 32
_UNSHOWN = "no entry is noted to show the stored value"
_PAGE = 400
_STEPS = """
    SELECT s.step_id, s.step, s.parent_id, s.content_id, s.commitment, s.position,
           p.step, p.position, c.commitment, c.scope, pc.scope
    FROM message_steps AS s
    LEFT JOIN message_steps AS p ON p.step_id = s.parent_id
    LEFT JOIN contents AS c ON c.content_id = s.content_id
    LEFT JOIN contents AS pc ON pc.content_id = p.content_id
    WHERE s.step_id BETWEEN ? AND ? ORDER BY s.step_id"""


@dataclass(slots=True)
class Damage:
    """What is wrong with content and message steps, by their ids.

    Attributes:
        contents: by content id, what is wrong.
        steps: by message step id, what is wrong.
    """

    contents: dict[int, str] = field(default_factory=dict)
    steps: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class IdRange:
    """The findings in one range of content or message steps.

    Attributes:
        first: the first id of the range.
        count: how many rows there are.
        digest: of all that was read.
        bad: by id, what is wrong.
    """

    first: int
    count: int
    digest: str
    bad: dict[int, str]


def check_contents(store: Store, first: int, last: int, known: str) -> IdRange:
    """What is wrong with which content rows in a range of ids.

    Args:
        store: of the ledger.
        first: content id.
        last: content id.
        known: the digest of the range when it was sound; the same is not checked again.
    """
    return _check_pages(first, lambda: _content_pages(store, first, last), known)


def check_steps(store: Store, first: int, last: int, known: str) -> IdRange:
    """What is wrong with which message steps in a range of ids, as :func:`check_contents`."""
    return _check_pages(first, lambda: _step_pages(store, first, last), known)


class _Page(NamedTuple):
    """Some rows of a range: how many are of it, what was read, and what finds their problems."""

    number: int
    rows: list[tuple[Any, ...]]
    check: Callable[[], Iterable[tuple[int, str]]]


def _check_pages(first: int, pages: Callable[[], Iterable[_Page]], known: str) -> IdRange:
    # What is checked is what is hashed: nothing can change in between.
    for is_checking in (False, True) if known else (True,):
        found = IdRange(first, 0, "", {})
        digest = RowDigest()
        for page in pages():
            found.count += page.number
            digest.add(page.rows)
            if is_checking:
                for number, problem in page.check():
                    if problem:
                        found.bad.setdefault(number, problem)
        found.digest = str(digest)
        if found.digest == known:
            break
    return found


def _content_pages(store: Store, first: int, last: int) -> Iterator[_Page]:
    scan = store.scan_contents(first, last)
    while rows := list(itertools.islice(scan, _PAGE)):
        yield _Page(len(rows), list(map(tuple, rows)), functools.partial(_content_problems, rows))
    unshown = store.select(
        "SELECT c.content_id FROM contents AS c WHERE c.content_id BETWEEN ? AND ? AND NOT EXISTS "
        "(SELECT 1 FROM shown_contents AS s WHERE s.content_id = c.content_id)",
        (first, last),
    )
    yield _Page(0, unshown, lambda: ((row[0], _UNSHOWN) for row in unshown))


def _step_pages(store: Store, first: int, last: int) -> Iterator[_Page]:
    while rows := store.select(f"{_STEPS} LIMIT {_PAGE}", (first, last)):
        first = rows[-1][0] + 1
        yield _Page(len(rows), rows, functools.partial(_step_problems, store, rows))


def _content_problems(rows: list[RawContent]) -> Iterator[tuple[int, str]]:
    return ((row.content_id, _content_problem(row)) for row in rows)


def _step_problems(store: Store, rows: list[tuple[Any, ...]]) -> Iterator[tuple[int, str]]:
    steps = [RawStep(*row) for row in rows]
    erased = store.erasures(
        {str(step.commitment) for step in steps if step.content_commitment is None}
    )
    for step in steps:
        yield step.step_id, _step_problem(step, step.commitment in erased)


def _content_problem(row: RawContent) -> str:
    if row.problem:
        return row.problem
    try:
        encoded = StoredValue(row.codec, row.value).encoded()
    except RemitError as error:
        return error.message
    if len(row.nonce) != _NONCE_BYTES or commit(row.nonce, encoded) != row.commitment:
        return "the stored value does not match its commitment"
    if len(encoded) != row.length:
        return "the stored length is not the value's"
    if hashlib.sha256(encoded).digest() != row.digest:
        return "the digest that finds the value is not the value's"
    return ""


def _step_problem(step: RawStep, erased: bool) -> str:
    parent = NO_STEP if step.parent_id == 0 else step.parent_step
    before = 0 if step.parent_id == 0 else step.parent_position
    try:
        sound = (
            parent is not None
            and before is not None
            and next_step(parent, step.commitment) == step.step
            and step.position == before + 1
        )
    except (ValueError, TypeError):
        sound = False
    if not sound:
        return "a step of the message list is not the hash of the one before and its message"
    if None not in (step.scope, step.parent_scope) and step.scope != step.parent_scope:
        return "the messages of a list are of different sessions"
    if step.content_commitment is None:
        if erased and step.content_id is None:
            return ""
        return "a message of the list is missing and no ERASURE says why"
    if step.content_commitment != step.commitment:
        return "a message of the list is not the one committed to"
    return ""
