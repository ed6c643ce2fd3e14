"""JSON lines: out, and in again."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient
from remit.routing.trail import (
    ThoughtInput,
    ThoughtLineError,
    ThoughtRecord,
    create_thought_record,
    export_thought_records,
    hash_thought,
    import_thought_records,
    list_thought_records,
    verify_trail,
)

Told = list[dict[str, Any]]
BAD = "f" * 64


def _lines(ledger: LedgerClient, task_id: str | None = None) -> Told:
    out = io.StringIO()
    export_thought_records(ledger, out, task_id)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def _stream(told: Told) -> io.BytesIO:
    return io.BytesIO("".join(json.dumps(item) + "\n" for item in told).encode())


def test_what_goes_on_behind_what_is_there(
    ledger: LedgerClient, chain: list[ThoughtRecord], tmp_path: Path
) -> None:
    told = _lines(ledger)
    with LedgerClient(tmp_path / "other.db") as other:
        assert import_thought_records(other, _stream(told[:4])) == 4
        for start in (3, 5):  # one again; one left out
            with pytest.raises(ThoughtLineError):
                import_thought_records(other, _stream(told[start:]))
        assert import_thought_records(other, _stream(told[4:])) == 3
        assert verify_trail(other).verified
        assert _lines(other) == told


def _changed(index: int, **changes: Any) -> Callable[[Told], Any]:
    return lambda told: told[index].update(changes)


def _without(name: str) -> Callable[[Told], Any]:
    return lambda told: told[3].pop(name)


def _rehashed(told: Told, index: int, **changes: Any) -> None:
    """A change by who knows the rule, of one line."""
    item = told[index]
    item.update(changes)
    item["hash"] = hash_thought(
        item["id"], item["type"], item["task_id"], item["content"], item["timestamp"],
        item["prev_hash"],
    )  # fmt: skip


def _alone(told: Told, **changes: Any) -> None:
    """Only the first line, changed by who knows the rule."""
    del told[1:]
    _rehashed(told, 0, **changes)


# By name: the line where it shows, and the change. Lines 1, 2, 4, 5, 7 are the task's.
DAMAGE: dict[str, tuple[int, Callable[[Told], Any]]] = {
    "content": (4, _changed(3, content="other")),
    "link": (4, _changed(3, prev_hash=BAD)),
    "hash": (4, _changed(3, hash=BAD)),
    "first link": (1, lambda told: _alone(told, prev_hash=BAD)),
    "rehashed": (5, lambda told: _rehashed(told, 3, content="other")),
    "removed": (4, lambda told: told.pop(3)),
    "doubled": (5, lambda told: told.insert(4, dict(told[3]))),
    "same id": (5, lambda told: _rehashed(told, 4, id=told[3]["id"])),
    "unknown type": (4, _changed(3, type="thought")),
    "no hash": (4, _without("hash")),
    "more": (4, _changed(3, more=1)),
    "erased and not": (4, _changed(3, erased="LED-00000001")),
    "erased by whom": (4, _changed(3, content=None, erased="me")),
    "long task": (4, _changed(3, task_id="t" * 513)),
    "surrogate": (4, _changed(3, content="\ud800")),
    "no object": (4, lambda told: told.__setitem__(3, [1])),
}


@pytest.fixture(scope="module")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Seven lines of two tasks."""
    with LedgerClient(tmp_path_factory.mktemp("seven") / "ledger.db") as ledger:
        for number, task_id in enumerate("AABAABA"):
            told = ThoughtInput("plan", f"TASK-{task_id}", "agent", f"thought number {number}")
            create_thought_record(ledger, told)
        return _lines(ledger)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_line_is_named_and_nothing_is_written(
    seven: Told, tmp_path: Path, damage: str
) -> None:
    line, change = DAMAGE[damage]
    told = [dict(item) for item in seven]
    change(told)
    with LedgerClient(tmp_path / "other.db") as other:
        with pytest.raises(ThoughtLineError, match=f"^Line {line}: ") as raised:
            import_thought_records(other, _stream(told))
        assert raised.value.line == line
        assert isinstance(raised.value, InvalidInputError)
        assert other.count() == 0
        assert list_thought_records(other) == []


@pytest.mark.parametrize(
    "more",
    ['"content":"other"', '"agent_id":"other"', '"hash":null', '"content":[[7]]'],
)
def test_a_key_that_is_given_twice(seven: Told, tmp_path: Path, more: str) -> None:
    lines = [json.dumps(item) for item in seven]
    lines[3] = lines[3].replace("{", f"{{{more},", 1)
    with LedgerClient(tmp_path / "other.db") as other:
        with pytest.raises(ThoughtLineError, match=r"^Line 4: .*twice"):
            import_thought_records(other, lines)
        assert other.count() == 0


def test_an_import_that_does_not_fit_is_refused_whole(
    ledger: LedgerClient, chain: list[ThoughtRecord], tmp_path: Path
) -> None:
    told = _lines(ledger, "TASK-A")
    with LedgerClient(tmp_path / "other.db") as other:
        ours = create_thought_record(
            other, ThoughtInput("plan", "OTHER", "a", "b"), id_fn=lambda: chain[4].id
        )
        with pytest.raises(ThoughtLineError, match=r"^Line 5: .* already"):
            import_thought_records(other, _stream(told))
        assert list_thought_records(other) == [ours]
        create_thought_record(other, ThoughtInput("plan", "TASK-A", "a", "b"))
        with pytest.raises(ThoughtLineError, match=r"^Line 1: the task 'TASK-A' already exists"):
            import_thought_records(other, _stream(told))
        with pytest.raises(ThoughtLineError, match=r"^Line 1: it does not follow the last"):
            import_thought_records(other, _stream(told[1:]))
        assert other.count() == 2
        assert verify_trail(other).verified
    with pytest.raises(ThoughtLineError, match=r"^Line 1: .* already exists"):
        import_thought_records(ledger, _stream(told))
    assert verify_trail(ledger).records == 7


@pytest.mark.parametrize("stream", ["a text", None, Path("trail.jsonl"), [{"id": 1}]])
def test_what_is_no_stream_of_lines_is_refused(ledger: LedgerClient, stream: Any) -> None:
    with pytest.raises(InvalidInputError):
        import_thought_records(ledger, stream)
