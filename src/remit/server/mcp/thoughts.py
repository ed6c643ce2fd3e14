"""The tools of the decision trail: an agent's plans, findings, decisions and reflections."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import orjson
from pydantic import Field

from remit.agents import Redactor, cut_to_fit, plain_value
from remit.gateway import MAX_ID_CHARS
from remit.kernel.settings import Settings
from remit.ledger import LedgerClient
from remit.routing.trail import (
    ThoughtInput,
    ThoughtRecord,
    acreate_thought_record,
    get_thought_record,
    read_input,
    verify_trail,
)
from remit.server.mcp.callers import CallerError, RateLimit, TaskOwners, current_caller
from remit.server.mcp.tools import McpTool, Name, SessionId, made_tool, object_schema

_MAX_THOUGHTS = 100
_MAX_PROBLEMS = 10
_MAX_OFFSET = 2**53 - 1  # JSON readers have integers up to it exactly
_CUT_MARK_BYTES = 48  # the mark that fit() leaves where it cuts is shorter
_MIN_CONTENT_BYTES = 512
_FIELDS = ("id", "type", "task_id", "agent_id", "session_id", "content", "timestamp", "prev_hash",
           "hash", "entry_id")  # fmt: skip
_STRING, _INTEGER = {"type": "string"}, {"type": "integer"}
_THOUGHT = object_schema(
    dict.fromkeys(_FIELDS, _STRING)
    | {"content": {"type": ["string", "object"], "description": "an object where it was erased"}}
)

_LISTED = object_schema(
    {
        "count": _INTEGER, "thoughts": {"type": "array", "items": _THOUGHT},
        "next_offset": {"type": ["integer", "null"]}, "note": _STRING,
    },
    optional=("note",),
)  # fmt: skip
_VERIFIED = object_schema({
    "verified": {"type": "boolean"}, "records": _INTEGER, "tasks": _INTEGER, "erased": _INTEGER,
    "problems": {"type": "array", "items": _STRING},
    "first_bad": {"type": ["string", "null"]},
})  # fmt: skip

_TaskId = Annotated[Name, Field(max_length=MAX_ID_CHARS, examples=["migrate-billing"])]
_OneTask = Annotated[
    _TaskId, Field(description="Id of one task; required for a key of the role agent.")
]


class ThoughtTools:
    """The tools ``thought_record``, ``thought_record_list`` and ``thought_verify``.

    Args:
        ledger: ledger of the root, which holds the thoughts.
        settings: settings of the root, for limits.
        redactor: hides secrets in thoughts that are read.
    """

    def __init__(self, ledger: LedgerClient, settings: Settings, redactor: Redactor) -> None:
        self._ledger = ledger
        self._owners = TaskOwners(ledger)
        self._redactor = redactor
        self._settings = settings
        self._rate = RateLimit(settings.mcp_server.thoughts_per_minute)

    def tools(self) -> list[McpTool]:
        """Return the tools."""
        recorded = object_schema({name: _STRING for name in _FIELDS if name != "content"})
        return [
            made_tool(method, title, self._settings, returns=returns)
            for method, title, returns in (
                (self.thought_record, "Record a thought", recorded),
                (self.thought_record_list, "Read thoughts", _LISTED),
                (self.thought_verify, "Verify thoughts", _VERIFIED),
            )
        ]

    async def thought_record(
        self,
        type: Annotated[  # noqa: A002 - the record's own name for it
            Literal["plan", "analysis", "decision", "reflection"], Field(examples=["decision"])
        ],
        task_id: _TaskId,
        content: Annotated[
            str,
            Field(min_length=1, examples=["Chose SQLite over PostgreSQL: one writer, no server."]),
        ],
        agent_id: Annotated[Name, Field(max_length=MAX_ID_CHARS, examples=["researcher-1"])] = "",
        session_id: Annotated[SessionId, Field(max_length=MAX_ID_CHARS)] = "",
    ) -> dict[str, Any]:
        """Put a thought on the permanent, tamper-evident record: a plan before you act, an
        analysis of what you found, a decision with its reasons, a reflection on how it
        went. Use it at each step that somebody may later ask about. Thoughts of one
        task_id form a hash chain in the order they come; nothing can be changed or
        removed afterwards, so leave out secrets. Returns the record's id, its hash, the
        hash before it and the id of its ledger entry.

        Args:
            type: plan: what is about to be done; analysis: what was found; decision: what was
                chosen and why; reflection: what was learned
            task_id: the task that the thought belongs to; any text of your choice, the same for
                all thoughts of a task
            content: the thought, in full sentences
            agent_id: who thinks; left out: the key's own agent
            session_id: the Remit session it belongs to, if any
        """
        caller = current_caller.get()
        thought = read_input(  # before anything is claimed for it
            ThoughtInput(
                type=type,
                task_id=task_id,
                agent_id=caller.agent_id(agent_id),
                content=content,
                session_id=caller.session_id(session_id),
            )
        )
        if caller.restricted:
            self._rate.take(caller.owner)
        await self._owners.claim(caller, task_id, thought.session_id)
        record = await acreate_thought_record(
            self._ledger,
            thought,
            metadata=self._owners.mark(caller),
            subject_id=caller.subject_id or None,
        )
        shown = _shown(record)
        del shown["content"]  # the caller has it
        return shown

    def thought_record_list(
        self,
        task_id: _OneTask = "",
        limit: Annotated[int, Field(ge=1, le=_MAX_THOUGHTS, examples=[20])] = 20,
        offset: Annotated[int, Field(ge=0, le=_MAX_OFFSET, examples=[20])] = 0,
    ) -> dict[str, Any]:
        """Read thoughts back in the order they were recorded: what was planned, found and
        decided, by whom and when, with the hashes that chain them. Use it to go on with
        a task that you or another agent began. Ask for more with offset until
        next_offset is null. Erased thoughts read as {"$erased": …}; what looks like
        a key or password is hidden; long texts are cut to fit, and a note says so.

        Args:
            limit: how many at most
            offset: how many to pass over; next_offset of the call before
        """
        self._require_readable(task_id)
        ids = self._ids(task_id, limit + 1, offset)
        caller = current_caller.get()
        found = [
            (place, record)
            for place, record in enumerate(
                (get_thought_record(self._ledger, thought_id) for thought_id in ids[:limit]), offset
            )
            if self._owners.sees(caller, record)
        ]
        rows = [self._redactor.value(_shown(record)) for _, record in found]
        shown, cut = _fitted(rows, self._settings.mcp_server.max_output_bytes // 2)
        after: int | None = offset + limit if len(ids) > limit else None
        if len(shown) < len(rows):
            after = found[len(shown)][0]
        output: dict[str, Any] = {"count": len(shown), "thoughts": shown, "next_offset": after}
        if cut:
            output["note"] = "Texts are cut to fit; request fewer with limit to see more of each."
        return output

    def thought_verify(self, task_id: _OneTask = "") -> dict[str, Any]:
        """Check that thoughts are as they were recorded: hashes every one again and checks
        that each task's chain is intact. Use it before relying on a trail, or to show
        that it holds. Returns verified, how many records and tasks were checked, how
        many of them were erased, and the first bad record with what is wrong.
        """
        self._require_readable(task_id)
        report = verify_trail(self._ledger, task_id=task_id or None)
        return {
            "verified": report.verified,
            "records": report.records,
            "tasks": report.tasks,
            "erased": report.erased,
            "problems": [str(problem) for problem in report.problems[:_MAX_PROBLEMS]],
            "first_bad": report.first_bad,
        }

    def _require_readable(self, task_id: str) -> None:
        caller = current_caller.get()
        if caller.restricted and not task_id:
            raise CallerError(
                "A key of the role agent can only read its own tasks, one at a time.",
                next_step="Name the task with task_id.",
            )
        self._owners.require(caller, task_id)

    def _ids(self, task_id: str, most: int, offset: int) -> list[str]:
        """Return ids of records from ``offset`` on without reading the records."""
        where, order = ("WHERE task_id = ?", "position") if task_id else ("", "seq")
        rows = self._ledger.select(
            f"SELECT thought_id FROM thoughts {where} ORDER BY {order} LIMIT ? OFFSET ?",
            (*([task_id] if task_id else ()), most, offset),
        )
        return [row[0] for row in rows]


def _fitted(rows: list[dict[str, Any]], most_bytes: int) -> tuple[list[dict[str, Any]], bool]:
    """Return as many rows as fit, at least one, and whether contents were cut.

    Contents are cut evenly; ids and hashes are never cut.
    """
    bare, least, shown = 0, 0, 0
    for row in rows:
        size = len(orjson.dumps({**row, "content": ""})) + 1
        need = min(len(orjson.dumps(row["content"])) + _CUT_MARK_BYTES, _MIN_CONTENT_BYTES)
        if shown and bare + size + least + need > most_bytes:
            break
        bare, least, shown = bare + size, least + need, shown + 1
    kept = rows[:shown]
    fitted = cut_to_fit([row["content"] for row in kept], max(most_bytes - bare, shown + 1))
    contents = zip(kept, fitted.value, strict=True)
    return [{**row, "content": text} for row, text in contents], bool(fitted.cut)


def _shown(record: ThoughtRecord) -> dict[str, Any]:
    return {name: plain_value(getattr(record, name)) for name in _FIELDS}
