"""Views of the ledger: lists of entries, full content, verification and journeys of prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Annotated, Any

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from remit.agents.admin.output import (
    Positive,
    SessionId,
    Toolset,
    caller_session,
    cut_to_fit,
    plain_value,
)
from remit.agents.sessions import session_overview
from remit.agents.tools import ToolError, tool
from remit.kernel.errors import NotFoundError
from remit.kernel.json_text import dump
from remit.ledger import EVENTS, EntryNotFoundError, LedgerEntry
from remit.routing import explain
from remit.views import open_journey

_EntryId = Annotated[str, Field(pattern="^LED-[0-9a-f]{8,}$")] | SkipJsonSchema[None]
_OrderId = Annotated[str, Field(pattern="^WO-[A-Za-z0-9_.-]+$")] | SkipJsonSchema[None]
_Event = Annotated[str, Field(json_schema_extra={"enum": list(EVENTS)})] | SkipJsonSchema[None]

_MAX_PROBLEMS = 10
_MAX_TURNS = 20
# The other fields of an entry serve verification and are not shown.
_ENTRY_FIELDS = (
    "id", "event_type", "submission_id", "decision", "reason", "timestamp", "prompts_used",
    "metadata",
)  # fmt: skip
_TURN_FIELDS = (
    "kind", "turn_number", "entry_id", "user_message", "response", "outcome", "started_at",
    "elapsed_ms", "llm_calls", "tool_calls", "input_tokens", "output_tokens", "cost_usd",
    "escalation", "degradation",
)  # fmt: skip
_ORDER_FIELDS = (
    "wo_id", "wo_type", "step", "attempt", "contract_id", "contract_version", "state",
    "waiting_for", "elapsed_ms", "cost_usd",
)  # fmt: skip
_STEP_FIELDS = (
    "kind", "event_type", "entry_id", "dispatch_entry_id", "intent_entry_ids", "offset_ms",
    "elapsed_ms", "model_id", "outcome", "finish_reason", "input_tokens", "output_tokens",
    "cost_usd", "tool_id", "status", "arguments", "result", "tool_error", "response",
    "error_code", "error_message", "replayed", "decided", "decision_id",
)  # fmt: skip
_GATE_FIELDS = ("verdict", "reasons", "attempt", "trace_hash", "entry_id")


def _describe_entries(output: dict[str, Any]) -> str:
    rows = output["entries"]
    if not rows:
        return "There are no such entries."
    count = output.get("total", "more" if output.get("more") else len(rows))
    noun = "is 1 such entry" if count == 1 else f"are {count} such entries"
    lines = [
        f"{row['timestamp']}  {row['id']}  {row['event_type']}: {row['reason']}" for row in rows
    ]
    return "\n".join([f"There {noun}; the latest {len(rows)}:", *lines])


def _describe_contents(output: dict[str, Any]) -> str:
    rows = output["entries"]
    if not rows:
        return "There are no such entries."
    return "\n".join(dump(row).decode() for row in rows)


def _describe_verification(output: dict[str, Any]) -> str:
    if output["verified"]:
        return f"The ledger verifies: {output['entries']} entries, no problem."
    return f"The ledger does not verify: {'; '.join(output['problems'][:2])}."


def _describe_journey(output: dict[str, Any]) -> str:
    turns = output["turns"]
    if not turns:
        return "There is no turn in that journey."
    last = turns[-1]
    orders = ", ".join(
        f"{order.get('step') or order.get('wo_type')} {order.get('state')}"
        for order in last["work_orders"]
        if isinstance(order, Mapping)
    )
    return (
        f"The prompt {last.get('user_message', '')!r} took {last.get('llm_calls', 0)} model calls "
        f"and {last.get('tool_calls', 0)} tools; its steps: {orders or 'none'}."
    )


def _describe_explanation(output: dict[str, Any]) -> str:
    call = output.get("call")
    why = call["why"] if isinstance(call, Mapping) else output["why"]
    return " ".join(str(sentence) for sentence in why)


class LedgerTools(Toolset):
    """Tools that read entries.

    The tools are ``query_ledger`` (the present session), ``query_ledger_full``, ``verify_ledger``,
    ``trace_prompt_journey`` and ``explain_route``. None appends an entry.
    """

    @tool(
        label="events",
        examples=(
            ("show the ledger", {}),
            ("what happened recently?", {}),
            ("show the latest 5 events", {"max_entries": 5}),
            ("what was written to the log most recently?", {}),
            ("how many records are there?", {}),
            ("which TOOL_CALL entries were recorded?", {"event_type": "TOOL_CALL"}),
            ("query the ledger for SESSION_END events", {"event_type": "SESSION_END"}),
            ("how many EXCHANGE entries are there?", {"event_type": "EXCHANGE"}),
        ),
        describe=_describe_entries,
        on_unknown="retry",
    )
    def query_ledger(
        self,
        event_type: _Event = None,
        max_entries: Annotated[int, Field(ge=1, le=100)] = 10,
        session_id: SessionId = None,
        work_order_id: _OrderId = None,
    ) -> dict[str, Any]:
        """Show the latest entries recorded in the ledger, a line each, the newest first.

        Args:
            event_type: only this event type
            session_id: only entries of this session
            work_order_id: only entries of this work order
        """
        rows = [
            {
                "id": entry.id,
                "event_type": entry.event_type,
                "submission_id": entry.submission_id,
                "decision": entry.decision,
                "reason": self.redactor.text(str(entry.reason))[: self.settings.reason_chars],
                "timestamp": entry.timestamp,
                "metadata_keys": sorted(entry.metadata),
            }
            for entry in self._latest(max_entries + 1, event_type, session_id, work_order_id)
        ]
        more: dict[str, Any] = {"more": True} if len(rows) > max_entries else {}
        rows = rows[:max_entries]
        if session_id is None and work_order_id is None:
            counts = self.ledger.count_by_event()
            more["total"] = counts.get(event_type, 0) if event_type else sum(counts.values())
        return {"status": "ok", "count": len(rows), **more, "entries": rows}

    @tool(
        label="content",
        examples=(
            ("show the full content of LED-0000002a", {"entry_id": "LED-0000002a"}),
            ("whole text of LED-00000010", {"entry_id": "LED-00000010"}),
            ("full TOOL_CALL with its content", {"event_type": "TOOL_CALL"}),
            ("open the entry LED-00000007 in full", {"entry_id": "LED-00000007"}),
            ("when was LED-00000007 written?", {"entry_id": "LED-00000007"}),
        ),
        describe=_describe_contents,
        on_unknown="retry",
    )
    def query_ledger_full(
        self,
        entry_id: _EntryId = None,
        event_type: _Event = None,
        max_entries: Annotated[int, Field(ge=1, le=20)] = 3,
        session_id: SessionId = None,
        work_order_id: _OrderId = None,
    ) -> dict[str, Any]:
        """Read the full content, the whole text of a record: one by its id, or of the latest
        few. What is too long is cut, and it is said where.

        Args:
            entry_id: this one entry
            event_type: only this event type
            session_id: only entries of this session
            work_order_id: only entries of this work order
        """
        found: Iterable[LedgerEntry]
        if entry_id is None:
            found = self._latest(max_entries, event_type, session_id, work_order_id)
        else:
            try:
                found = [self.ledger.read(entry_id)]
            except EntryNotFoundError as error:
                raise ToolError(f"The ledger has no entry {entry_id}.") from error
        rows = [
            self.redactor.value({name: plain_value(getattr(entry, name)) for name in _ENTRY_FIELDS})
            for entry in found
        ]
        fitted = cut_to_fit(rows, self.max_bytes)
        output = {"status": "ok", "count": len(rows), "entries": fitted.value}
        if fitted.cut:
            output["cut"] = [_place(rows, path) for path in fitted.cut[:_MAX_PROBLEMS]]
            output["note"] = (
                "Cut to fit. Ask for one entry by its entry_id to see more of it; "
                "`remit ledger show ID` prints all of it."
            )
        return output

    @tool(
        label="verify",
        examples=(
            ("verify the ledger", {}),
            ("check the hash chain", {}),
            ("has anybody tampered with the ledger?", {}),
            ("is the integrity of the log intact?", {}),
            ("was anything in the record changed or altered after the fact?", {}),
            ("prove that the hash chain holds", {}),
        ),
        describe=_describe_verification,
        on_unknown="retry",
    )
    def verify_ledger(self) -> dict[str, Any]:
        """Check that the ledger is intact: every record, link and content value; of a great one,
        from where the last check ended."""
        great = self.ledger.count() > self.loaded.settings.gates.full_entries
        report = self.ledger.verify(since_mark=great)
        return {
            "verified": report.verified,
            "entries": report.entries,
            **({"all_checked_on": report.last_full} if report.last_full else {}),
            "first_bad_seq": report.first_bad_seq,
            "problems": [str(problem) for problem in report.problems[:_MAX_PROBLEMS]],
        }

    @tool(
        label="trace",
        examples=(
            ("trace the journey of the last prompt", {}),
            ("trace LED-0000002a", {"entry_id": "LED-0000002a"}),
            ("how did my question turn into an answer?", {}),
            ("follow LED-00000007 step by step", {"entry_id": "LED-00000007"}),
            ("trace turn 2 of SES-7K2M4QX9", {"session_id": "SES-7K2M4QX9", "turn": 2}),
        ),
        describe=_describe_journey,
        on_unknown="retry",
    )
    def trace_prompt_journey(
        self,
        session_id: SessionId = None,
        work_order_id: _OrderId = None,
        entry_id: _EntryId = None,
        turn: Positive = None,
    ) -> dict[str, Any]:
        """Trace how a prompt became an answer: planned, dispatched, asked, answered, tools
        used, checked, delivered, with the ids of what is on record. With nothing named, the
        last turn.

        Args:
            session_id: such as SES-7K2M4QX9; this session when left out
            turn: only this turn of the session
        """
        which: dict[str, Any] = {"work_order_id": work_order_id, "entry_id": entry_id}
        named = [name for name, value in which.items() if value]
        if len(named) > 1:
            raise ToolError("Name a work order or an entry, not both.")
        if not named:
            which = {"session_id": caller_session(session_id), "turn": turn}
            if session_id is None and turn is None:
                which["turn"] = self._last_turn(which["session_id"])
        try:
            journey = open_journey(self.ledger, **which)
            turns = [_turn(found) for found in islice(journey["turns"], _MAX_TURNS)]
        except NotFoundError as error:
            raise ToolError(error.message) from error
        shown = self.redactor.value(plain_value({**journey, "turns": turns}))
        fitted = cut_to_fit(shown, self.max_bytes)
        output = {"status": "ok", **fitted.value}
        notes = []
        if (left := journey["totals"]["turns"] - len(turns)) > 0:
            notes.append(f"{left} more turns: ask for one by its number with turn.")
        if fitted.cut:
            notes.append(
                "Texts are cut to fit; query_ledger_full with an entry_id shows more of one."
            )
        if notes:
            output["note"] = " ".join(notes)
        return output

    @tool(
        label="why",
        examples=(
            ("why did this model answer?", {}),
            ("why did you choose this model?", {}),
            ("which model or LLM was used for the last answer?", {}),
            ("who or what decided which model answers?", {}),
            ("why was that picked and not another, smaller one?", {}),
            ("why not a bigger model?", {}),
            ("explain the routing of LED-0000002a", {"entry_id": "LED-0000002a"}),
            ("the routing decision behind LED-00000007", {"entry_id": "LED-00000007"}),
            ("which model was passed over, and why?", {}),
            ("why was that model chosen in SES-7K2M4QX9?", {"session_id": "SES-7K2M4QX9"}),
        ),
        describe=_describe_explanation,
        on_unknown="retry",
    )
    def explain_route(
        self, entry_id: _EntryId = None, session_id: SessionId = None
    ) -> dict[str, Any]:
        """Explain why a model answered a call: by which name it was asked for, which models were
        passed over, what was changed, what it cost. With nothing named, the last call.

        Args:
            entry_id: any entry of the call, or of a routing decision
            session_id: the last call of this session; this session when left out
        """
        if entry_id is None:
            session = caller_session(session_id)
            found = next(iter(self._latest(1, "EXCHANGE", session, None)), None)
            if found is None:
                raise ToolError("There is no call in that session; name an entry_id.")
            entry_id = found.id
        try:
            why = explain(self.ledger, entry_id, self.loaded.settings.model.prefixes)
        except NotFoundError as error:
            raise ToolError(error.message) from error
        fitted = cut_to_fit(self.redactor.value(plain_value(why)), self.max_bytes)
        return {"status": "ok", **fitted.value}

    def _latest(
        self,
        limit: int,
        event_type: str | None,
        session_id: str | None,
        work_order_id: str | None,
    ) -> Iterable[LedgerEntry]:
        return self.ledger.query(
            event_type=event_type,
            session_id=session_id,
            work_order_id=work_order_id,
            order="desc",
            limit=limit,
        )

    def _last_turn(self, session_id: str) -> int:
        found = session_overview(self.ledger, session_id)
        if found is None or not found.turns:
            raise ToolError("This session has no earlier turn; name a session_id.")
        return found.turns


def _place(rows: list[dict[str, Any]], path: str) -> str:
    """A place in the list of entries, by the entry's id."""
    number, _, below = path.partition(".")
    return f"{rows[int(number)]['id']}: {below}" if number.isdigit() and below else "entries"


def _turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    """Return a summary of a turn: its steps in order, without prompts."""
    return {
        **_picked(turn, _TURN_FIELDS),
        "work_orders": [
            {
                **_picked(order, _ORDER_FIELDS),
                "steps": [_picked(step, _STEP_FIELDS) for step in order["steps"]],
            }
            for order in turn["work_orders"]
        ],
        "calls": [_picked(call, _STEP_FIELDS) for call in turn["calls"]],
        "gates": [_picked(gate, _GATE_FIELDS) for gate in turn["gates"]],
        "left_out": len(turn["left_out"]),
    }


def _picked(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: values[name] for name in names if values.get(name) not in (None, [], "")}
