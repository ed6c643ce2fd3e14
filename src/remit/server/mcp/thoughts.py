"""Thoughts on record: what an agent plans, finds, decides and learns, chained per task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from remit.agents.admin import Redactor, fit, plain
from remit.agents.tools import Tool
from remit.gateway import MAX_ID_CHARS
from remit.kernel.settings import Settings
from remit.ledger import LedgerClient
from remit.routing.trail import (
    ThoughtInput,
    ThoughtRecord,
    acreate_thought_record,
    get_thought_record,
    verify_trail,
)
from remit.routing.trail.record import read_input
from remit.server.mcp.caller import NotAllowedError, current_caller
from remit.server.mcp.offer import NAME_PATTERN, Offer
from remit.server.mcp.owners import TaskOwners
from remit.server.mcp.shares import Rate

__all__ = ["thought_offers"]

_MAX_THOUGHTS = 100
_MAX_PROBLEMS = 10
_MAX_OFFSET = 2**53 - 1  # what every JSON reader has exactly
_CUT_MARK_BYTES = 48  # what fit() puts where it cuts is shorter
_LEAST_CONTENT_BYTES = 512  # at least so much of a content is shown; fit() gets any text under it
_FIELDS = ("id", "type", "task_id", "agent_id", "session_id", "content", "timestamp", "prev_hash",
           "hash", "entry_id")  # fmt: skip
_TYPES = {
    "type": "string",
    "enum": ["plan", "analysis", "decision", "reflection"],
    "description": "plan: what is about to be done; analysis: what was found; decision: what was "
    "chosen and why; reflection: what was learned",
    "examples": ["decision"],
}
_THOUGHT = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in _FIELDS},
        "content": {"type": ["string", "object"], "description": "an object where it was erased"},
    },
    "required": [*_FIELDS],
}


def thought_offers(
    ledger: LedgerClient, owners: TaskOwners, settings: Settings, redactor: Redactor
) -> list[Offer]:
    """``thought_record``, ``thought_record_list`` and ``thought_verify``.

    Args:
        ledger: of the root.
        owners: whose tasks are whose.
        settings: limits.
        redactor: takes keys out of thoughts that are read back.
    """
    own = settings.mcp_server
    rate = Rate(own.thoughts_per_minute)

    async def thought_record(
        type: str,  # noqa: A002 - the record's own name for it
        task_id: str,
        content: str,
        agent_id: str = "",
        session_id: str = "",
    ) -> dict[str, Any]:
        caller = current_caller()
        agent_id, session_id = caller.agent_id(agent_id), caller.session_id(session_id)
        thought = read_input(  # before anything is claimed for it
            ThoughtInput(
                type=type,  # type: ignore[arg-type] # checked against the schema
                task_id=task_id,
                agent_id=agent_id,
                content=content,
                session_id=session_id,
            )
        )
        if caller.held:
            rate.take(caller.owner)
        await owners.claim(caller, task_id, session_id)
        record = await acreate_thought_record(ledger, thought, metadata=owners.mark(caller))
        told = _told(record)
        del told["content"]  # whoever sent it has it
        return told

    def thought_record_list(
        task_id: str | None = None, limit: int = 20, offset: int = 0
    ) -> dict[str, Any]:
        _require(owners, task_id)
        ids = _ids(ledger, task_id, limit + 1, offset)
        caller = current_caller()
        found = [
            (place, record)
            for place, record in enumerate(
                (get_thought_record(ledger, one) for one in ids[:limit]), offset
            )
            if owners.sees(caller, record)
        ]
        rows = [redactor.value(_told(record)) for _, record in found]
        shown, cut = _fitted(rows, own.max_output_bytes // 2)
        after: int | None = offset + limit if len(ids) > limit else None
        if len(shown) < len(rows):
            after = found[len(shown)][0]
        output: dict[str, Any] = {"count": len(shown), "thoughts": shown, "next_offset": after}
        if cut:
            output["note"] = "Cut to fit. Ask for fewer with limit to see more of each."
        return output

    def thought_verify(task_id: str | None = None) -> dict[str, Any]:
        _require(owners, task_id)
        report = verify_trail(ledger, task_id=task_id)
        return {
            "verified": report.verified,
            "records": report.records,
            "tasks": report.tasks,
            "erased": report.erased,
            "problems": [str(one) for one in report.problems[:_MAX_PROBLEMS]],
            "first_bad": report.first_bad,
        }

    task = {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_ID_CHARS,
        "pattern": NAME_PATTERN,
        "examples": ["migrate-billing"],
    }
    which = {**task, "description": "only this task; a key of the role agent has to name one"}
    return [
        Offer(
            tool=Tool(
                "thought_record",
                "Put a thought on the permanent, tamper-evident record: a plan before you act, an "
                "analysis of what you found, a decision with its reasons, a reflection on how it "
                "went. Use it at each step that somebody may later ask about. Thoughts of one "
                "task_id form a hash chain in the order they come; nothing can be changed or "
                "removed afterwards, so leave out secrets. Returns the record's id, its hash, the "
                "hash before it and the id of its ledger entry.",
                _object(
                    {
                        "type": _TYPES,
                        "task_id": {
                            **task,
                            "description": "the task that the thought belongs to; any text of "
                            "your choice, the same for all thoughts of a task",
                        },
                        "content": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": own.max_text_chars,
                            "description": "the thought, in full sentences",
                            "examples": ["Chose SQLite over PostgreSQL: one writer, no server."],
                        },
                        "agent_id": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": MAX_ID_CHARS,
                            "pattern": NAME_PATTERN,
                            "description": "who thinks; left out: the key's own agent",
                            "examples": ["researcher-1"],
                        },
                        "session_id": {
                            "type": "string",
                            "pattern": "^SES-[A-Za-z0-9_.-]+$",
                            "maxLength": MAX_ID_CHARS,
                            "description": "the Remit session it belongs to, if any",
                            "examples": ["SES-7K2M4QX9"],
                        },
                    },
                    "type",
                    "task_id",
                    "content",
                ),
                thought_record,
                timeout_s=own.timeout_s,
                max_output_bytes=own.max_output_bytes,
            ),
            title="Record a thought",
            needs=("call",),
            output_schema={
                "type": "object",
                "properties": {name: {"type": "string"} for name in _FIELDS if name != "content"},
                "required": [name for name in _FIELDS if name != "content"],
            },
            writes=True,
        ),
        Offer(
            tool=Tool(
                "thought_record_list",
                "Read thoughts back in the order they were recorded: what was planned, found and "
                "decided, by whom and when, with the hashes that chain them. Use it to go on with "
                "a task that you or another agent began. Ask for more with offset until "
                'next_offset is null. Erased thoughts read as {"$erased": …}; what looks like '
                "a key or password is hidden; long texts are cut to fit, and a note says so.",
                _object(
                    {
                        "task_id": which,
                        "limit": {
                            "type": "integer",
                            "minimum": 1,
                            "maximum": _MAX_THOUGHTS,
                            "default": 20,
                            "description": "how many at most",
                            "examples": [20],
                        },
                        "offset": {
                            "type": "integer",
                            "minimum": 0,
                            "maximum": _MAX_OFFSET,
                            "default": 0,
                            "description": "how many to pass over; next_offset of the call before",
                            "examples": [20],
                        },
                    }
                ),
                thought_record_list,
                on_unknown="retry",
                timeout_s=own.timeout_s,
                max_output_bytes=own.max_output_bytes,
            ),
            title="Read thoughts",
            needs=("read", "call"),
            output_schema={
                "type": "object",
                "properties": {
                    "count": {"type": "integer"},
                    "thoughts": {"type": "array", "items": _THOUGHT},
                    "next_offset": {"type": ["integer", "null"]},
                    "note": {"type": "string"},
                },
                "required": ["count", "thoughts", "next_offset"],
            },
        ),
        Offer(
            tool=Tool(
                "thought_verify",
                "Check that thoughts are as they were recorded: hashes every one again and checks "
                "that each task's chain is whole. Use it before relying on a trail, or to show "
                "that it holds. Returns verified, how many records and tasks were checked, how "
                "many of them were erased, and the first bad record with what is wrong.",
                _object({"task_id": which}),
                thought_verify,
                on_unknown="retry",
                timeout_s=own.timeout_s,
                max_output_bytes=own.max_output_bytes,
            ),
            title="Verify thoughts",
            needs=("verify", "read", "call"),
            output_schema={
                "type": "object",
                "properties": {
                    "verified": {"type": "boolean"},
                    "records": {"type": "integer"},
                    "tasks": {"type": "integer"},
                    "erased": {"type": "integer"},
                    "problems": {"type": "array", "items": {"type": "string"}},
                    "first_bad": {"type": ["string", "null"]},
                },
                "required": ["verified", "records", "tasks", "erased", "problems", "first_bad"],
            },
        ),
    ]


def _require(owners: TaskOwners, task_id: str | None) -> None:
    caller = current_caller()
    if not caller.held:
        return
    if task_id is None:
        raise NotAllowedError(
            "A key of the role agent reads one task at a time, of its own.",
            next_step="Name it with task_id.",
        )
    owners.require(caller, task_id)


def _ids(ledger: LedgerClient, task_id: str | None, most: int, offset: int) -> list[str]:
    """Ids of records from a place on. None before it is read, so late pages cost no more."""
    if task_id is None:
        sql = "SELECT thought_id FROM thoughts ORDER BY seq LIMIT ? OFFSET ?"
        return [row[0] for row in ledger.select(sql, (most, offset))]
    sql = "SELECT thought_id FROM thoughts WHERE task_id = ? ORDER BY position LIMIT ? OFFSET ?"
    return [row[0] for row in ledger.select(sql, (task_id, most, offset))]


def _fitted(rows: list[dict[str, Any]], most_bytes: int) -> tuple[list[dict[str, Any]], bool]:
    """As many rows as fit, at least one, their contents cut evenly; whether any was cut.

    Nothing but content is cut: ids and hashes are whole, or of no use.
    """
    bare, least, shown = 0, 0, 0
    for row in rows:
        size = len(orjson.dumps({**row, "content": ""})) + 1
        need = min(len(orjson.dumps(row["content"])) + _CUT_MARK_BYTES, _LEAST_CONTENT_BYTES)
        if shown and bare + size + least + need > most_bytes:
            break
        bare, least, shown = bare + size, least + need, shown + 1
    kept = rows[:shown]
    fitted = fit([row["content"] for row in kept], max(most_bytes - bare, shown + 1))
    contents = zip(kept, fitted.value, strict=True)
    return [{**row, "content": text} for row, text in contents], bool(fitted.cut)


def _told(record: ThoughtRecord) -> dict[str, Any]:
    return {name: plain(getattr(record, name)) for name in _FIELDS}


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [*required],
        "additionalProperties": False,
    }
