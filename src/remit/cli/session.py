"""The commands of ``remit session``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.shared import (
    LISTED,
    common,
    emit,
    indented,
    limited,
    note,
    open_ledger,
    print_json_list,
    reads,
    say_list,
    table,
    whoami,
)
from remit.kernel.words import count

if TYPE_CHECKING:
    from remit.agents.sessions import SessionOverview
    from remit.ledger import LedgerClient
    from remit.views import UsageRow

_COLUMNS = ("session", "started", "agent", "calls", "tokens", "cost", "turns")


@click.group()
def session() -> None:
    """Show, resume and cancel recorded conversations."""


@session.command("list")
@limited
@reads
def list_all(root: Path | None, as_json: bool, limit: int | None) -> None:
    """List sessions of agents and of gateway calls, newest first.

    Gateway calls that name no session have one session for each key and day. The list has the
    sessions of the latest 10,000 calls.
    """
    from remit.agents.sessions import sessions_with_calls
    from remit.views import UsageRow, instant_of, read_usage

    with open_ledger(root) as client:
        found = sessions_with_calls(client, limit=limit if as_json else (limit or LISTED) + 1)
        ids = [item.session_id for item in found]
        since = instant_of(min(item.started_at for item in found)) if found else None
        used = read_usage(client, since=since, by=["session"], where={"session": ids}).rows
    usage = {row.names["session"]: row for row in used}
    rows = [(item, usage.get(item.session_id, UsageRow())) for item in found]
    if as_json:
        listed = ({**item.to_dict(), **_used(row)} for item, row in rows)
        print_json_list("sessions", listed)
    else:
        head, *lines = table(_COLUMNS, map(_cells, *zip(*rows, strict=True)) if rows else [])
        if sys.stdout.isatty() and lines:
            note(head)
        say_list(lines, limit)


@session.command()
@click.argument("session_id", required=False)
@click.option("--last", is_flag=True, help="Show the latest session.")
@reads
def show(root: Path | None, as_json: bool, session_id: str | None, last: bool) -> None:
    """Show the messages of every turn of a session, and the tools and models it set aside."""
    from remit.agents.sessions import list_sessions, session_overview

    if (session_id is None) != last:
        raise click.UsageError("Give a session id, or --last.")
    with open_ledger(root) as client:
        if last:
            overview = next((o for o in list_sessions(client) if not o.caller_session_id), None)
        else:
            overview = session_overview(client, session_id or "")
        if overview is None:
            raise _unknown(session_id)
        turns = [
            {
                "turn_number": entry.metadata["turn_number"],
                "timestamp": entry.timestamp,
                "entry_id": entry.id,
                "user_message": entry.metadata["user_message"],
                "response": entry.metadata["response"],
            }
            for entry in client.query(session_id=overview.session_id, event_type="TURN_RECORDED")
        ]
        found = {
            **overview.to_dict(),
            "turn_list": turns,
            "unfinished_turn": _unfinished(client, overview),
            "set_aside": _set_aside(client, overview.session_id),
        }
        emit(as_json, found, _lines(found))


@session.command()
@click.argument("session_id")
@reads
def cancel(root: Path | None, as_json: bool, session_id: str) -> None:
    """Cancel the running, waiting or interrupted turn of a session."""
    from remit.agents.sessions import session_overview
    from remit.runtime import Runtime

    with Runtime.open(root, by=whoami()) as runtime:
        overview = session_overview(runtime.ledger, session_id)
        if overview is None:
            raise _unknown(session_id)
        # As the session's own agent: what is written belongs to it.
        shell = runtime.loaded.settings.chat.agent_id
        agent = runtime if overview.agent_id == shell else runtime.agent(overview.agent_id)
        cancelled = agent.session(session_id).cancel()
    line = "cancelled" if cancelled else "This session has no unfinished turn."
    emit(as_json, {"session_id": session_id, "cancelled": cancelled}, [line])


@session.command()
@click.argument("session_id")
@click.option("--model", help="The model that answers.")
@common
def resume(root: Path | None, session_id: str, model: str | None) -> None:
    """Resume a session and its unfinished turn; the same as `remit chat --session ID`."""
    from remit.cli.chat import run_chat

    run_chat(root, model, session_id)


def _unknown(session_id: str | None) -> click.ClickException:
    if not session_id:
        return click.ClickException("The ledger has no session yet. `remit chat` starts one.")
    return click.ClickException(
        f"The ledger has no session {session_id} of an agent. `remit session list` lists the "
        f"sessions, and `remit trace {session_id}` shows one of gateway calls."
    )


def _unfinished(client: LedgerClient, overview: SessionOverview) -> dict[str, Any] | None:
    """Return the session's unfinished turn as JSON, or None."""
    from remit.agents import ApprovalQueue
    from remit.agents.supervisor import unfinished_turn

    ledger = client.scoped(tier="ho2")
    turn = unfinished_turn(ledger, overview.session_id, overview.turns)
    if turn is None:
        return None
    queue = ApprovalQueue(client)
    return {
        "turn_number": turn.turn_number,
        "user_message": turn.message,
        "work_orders": [
            {"wo_id": work.order.wo_id, "step": work.step, "state": str(work.order.state)}
            for work in turn.orders
        ],
        "waiting_for": [queue.get(request).to_dict() for request in turn.waiting_for],
    }


def _set_aside(client: LedgerClient, session_id: str) -> list[dict[str, Any]]:
    """Return the models and tools that the session set aside.

    The key ``in_force`` is True if the session has not ended since.
    """
    from remit.agents.sessions import latest_of
    from remit.agents.supervisor import exclusion_entries

    end = latest_of(client, session_id, "SESSION_END")
    ended = -1 if end is None else end.seq
    names = ("dimension", "name", "instead", "until", "evidence")
    return [
        {
            "entry_id": step.id,
            "timestamp": step.timestamp,
            "work_order_id": step.submission_id,
            **{name: step.metadata.get(name) for name in ("kind", *names)},
            "in_force": step.seq > ended,
        }
        for step in exclusion_entries(client, session_id)
    ]


def _used(row: UsageRow) -> dict[str, Any]:
    tokens = row.input_tokens + row.output_tokens
    return {"calls": row.calls, "tokens": tokens, "cost_usd": row.nano / 1e9}


def _cells(item: SessionOverview, row: UsageRow) -> list[str]:
    from remit.views.wording import cents

    state = f"{item.turns:,}{', ended' if item.ended else ''}"
    tokens = f"{row.input_tokens + row.output_tokens:,}"
    cost = cents(row.nano / 1e9)
    return [item.session_id, item.started_at[:10], item.agent_id, f"{row.calls:,}", tokens, cost,
            state]  # fmt: skip


def _lines(session: Mapping[str, Any]) -> Iterator[str]:
    from remit.cli.turns import call_text
    from remit.views.wording import failures, set_aside

    turns = count(session["turns"], "turn")
    yield f"{session['session_id']}, {turns}, since {session['started_at']}"
    if session["archived"]:
        name = session["session_id"]
        yield f"archived; read it with `remit ledger query --session-id {name} --archive DIR`"
    for turn in session["turn_list"]:
        yield from ("", f"[{turn['turn_number']}] {turn['timestamp']} {turn['entry_id']}")
        yield from indented("user:  ", turn["user_message"])
        yield from indented("agent: ", turn["response"])
    for step in session["set_aside"]:
        over = "" if step["in_force"] else " (no longer set aside)"
        yield from ("", f"set aside: {set_aside(step)}{over}: {step['entry_id']}")
        yield f"failed: {', '.join(failures(step))}"
    unfinished = session["unfinished_turn"]
    if unfinished is None:
        return
    waiting = unfinished["waiting_for"]
    state = "waiting for approval" if waiting else "unfinished"
    yield from ("", f"[{unfinished['turn_number']}] {state}")
    yield from indented("user:  ", unfinished["user_message"])
    for request in waiting:
        called = call_text(request["tool_id"], request["arguments"])
        yield f"waiting: {called}: run `remit approve {request['request_id']}` (--deny to deny)"
