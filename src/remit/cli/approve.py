"""``remit approve``: what waits for a person, and the person's word."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from remit.cli.shared import (
    echo_json,
    note,
    open_ledger,
    open_settings,
    reads,
    say,
    whoami,
)
from remit.cli.turns import TurnPrinter, call_text, turn_data
from remit.views.wording import moment, pretty_json, visible

if TYPE_CHECKING:
    from remit.agents.approvals import Approval
    from remit.ledger import LedgerClient


_LONGEST_LINE = 100


@click.command()
@click.argument("request_id", required=False, metavar="[ID]")
@click.option("--deny", is_flag=True, help="Say no.")
@click.option("--by", help="Who decides (default: the user who runs this).")
@click.option("--reason", default="", help="A word for the record, and for the model when denied.")
@click.option("--yes", is_flag=True, help="Do not ask in a terminal.")
@click.option("--run", is_flag=True, help="Then go on with the session, here and at once.")
@click.option("--model", help="With --run: which model answers.")
@reads
def approve(
    root: Path | None,
    as_json: bool,
    request_id: str | None,
    deny: bool,
    by: str | None,
    reason: str,
    yes: bool,
    run: bool,
    model: str | None,
) -> None:
    """Let a tool run that waits for a person, or not. Without an ID: what waits."""
    from remit.agents.approvals import ApprovalQueue

    if request_id is None:
        if deny or run or by or reason:
            raise click.UsageError("Name a request; `remit approve` alone lists what waits.")
        with open_ledger(root) as client:
            waiting = ApprovalQueue(client).pending()
        if as_json:
            echo_json({"approvals": [request.to_dict() for request in waiting]})
        else:
            print_waiting(waiting)
        return
    with open_ledger(root, signing=True) as client:
        queue = ApprovalQueue(client)
        request = queue.get(request_id)
        agent_id = _agent_of(client, request)
        if not as_json:
            _print_request(request, agent_id)
        if request.state == "pending" and not yes and sys.stdin.isatty():
            click.confirm("Deny it?" if deny else "Let it run?", abort=True, err=as_json)
        queue.decide(request_id, granted=not deny, by=by or whoami(), reason=reason)
        decided = queue.get(request_id)
    if not as_json:
        say(f"{decided.state} by {decided.decided_by}")
    when = _when(root, decided, agent_id)
    turn = _go_on(root, decided, agent_id, when, model, as_json) if run else None
    if as_json:
        echo_json({**decided.to_dict(), **({"turn": turn} if run else {})})
    elif not run:
        note(f"Its order goes on {when}.")


def print_waiting(waiting: list[Approval], session_id: str = "") -> None:
    """A line for each request; those of ``session_id`` are marked."""
    if not waiting:
        click.echo("Nothing waits for a person.")
        return
    for request in waiting:
        mark = "this session" if request.session_id == session_id else request.session_id
        asks = "" if request.kind == "approval" else "  (may have run before a crash)"
        say(
            f"{request.request_id}  {moment(request.requested_at)}  {mark}  "
            f"{call_text(request.tool_id, request.arguments, _LONGEST_LINE)}{asks}"
        )
    note("\nDecide with `remit approve ID`, or `remit approve ID --deny --reason WHY`.")


def ask_person(
    tool_id: str, arguments: Any, kind: str = "approval"
) -> Literal["granted", "denied", "later"]:
    """The question in a terminal; nothing but a clear yes lets the tool run."""
    full = call_text(tool_id, arguments)
    shown = call_text(tool_id, arguments, _LONGEST_LINE)
    if shown != full:
        click.echo(full)
    if kind == "unknown_outcome":
        click.echo("It began before a crash; it is not known whether it took effect.")
        question = f"Let {shown} run again?"
    else:
        question = f"Let {shown} run?"
    while True:
        try:
            said = click.prompt(f"{question} [y/N/later]", default="n", show_default=False)
        except (click.Abort, KeyboardInterrupt):
            click.echo()
            return "later"
        word = said.strip().lower()
        if word in ("y", "yes"):
            return "granted"
        if word in ("n", "no"):
            return "denied"
        if word in ("l", "later"):
            return "later"


def _agent_of(client: LedgerClient, request: Approval) -> str:
    """The agent of the request's session: who can go on with it."""
    from remit.agents.sessions import session_overview

    overview = session_overview(client, request.session_id)
    return overview.agent_id if overview is not None else request.agent_id


def _print_request(request: Approval, agent_id: str) -> None:
    say(f"request    {request.request_id}, {moment(request.requested_at)}, {request.state}")
    say(f"session    {request.session_id} of {visible(agent_id)}")
    say(f"order      {request.wo_id}")
    say(f"tool       {visible(request.tool_id)}")
    if request.kind == "unknown_outcome":
        click.echo("           it began before a crash; it is not known whether it took effect")
    arguments = request.arguments
    text = pretty_json(arguments) if isinstance(arguments, Mapping) else str(arguments)
    for number, line in enumerate(visible(text, lines=True).splitlines()):
        say(f"{'' if number else 'arguments':<11}{line}")
    if request.decided_by:
        say(f"decided    {request.decided_at} by {visible(request.decided_by)}")


def _when(root: Path | None, request: Approval, agent_id: str) -> str:
    """When the order goes on: this program has only the shell's own agent."""
    _, loaded = open_settings(root)
    if agent_id == loaded.settings.chat.agent_id:
        return f"when its session is resumed: `remit session resume {request.session_id}`"
    return (
        f"when {request.session_id} is resumed by the program of the agent {agent_id}: "
        "`conversation.resume()`"
    )


def _go_on(
    root: Path | None,
    request: Approval,
    agent_id: str,
    when: str,
    model: str | None,
    as_json: bool,
) -> dict[str, Any] | None:
    from remit.runtime import Runtime

    with Runtime.open(root, model=model) as runtime:
        if agent_id != runtime.loaded.settings.chat.agent_id:
            note(f"It is decided. Its order goes on {when}.")
            raise SystemExit(1)
        runtime.require_model()
        printer = TurnPrinter(quiet=as_json)
        result = runtime.session(request.session_id).resume(on_event=printer)
        if result is None:
            note("The session has no unfinished turn.")
            return None
        printer.finish(result)
    return turn_data(result)
