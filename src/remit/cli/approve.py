"""``remit approve``: lists requests for approval and records a person's decision."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from remit.cli.operations import say_lines
from remit.cli.options import reads
from remit.cli.output import echo_json, note, say, say_text
from remit.cli.roots import confirm, open_ledger, open_settings, whoami
from remit.kernel.installed_files import InstalledFiles
from remit.operations import facts
from remit.views.wording import call_text, json_text, moment, pretty_json

if TYPE_CHECKING:
    from remit.agents import Approval, ApprovalQueue
    from remit.ledger import LedgerClient


_LONGEST_LINE = 100
_ID_LENGTH = len("LED-00000000")
_NOTHING_WAITS = "No tool call is waiting for approval."


@click.command()
@click.argument("request_id", required=False, metavar="[ID]")
@click.option("--deny", is_flag=True, help="Deny the call.")
@click.option("--edit", is_flag=True, help="Change the arguments in $EDITOR first.")
@click.option("--arguments", help="Arguments to run the tool with instead, as a JSON object.")
@click.option("--until", help="Expiry if unused: a duration such as 2h, or a time.")
@click.option(
    "--reason",
    default="",
    help="Reason (recorded permanently); the model sees the reason of a denial.",
)
@click.option(
    "--run",
    is_flag=True,
    help="Then resume the session here, if its agent is ADMIN or a package's.",
)
@click.option("--model", help="With --run: the model that answers.")
@click.option("--by", help="Person who decides (default: the current user).")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@reads
def approve(
    root: Path | None,
    as_json: bool,
    request_id: str | None,
    deny: bool,
    edit: bool,
    arguments: str | None,
    until: str | None,
    by: str | None,
    reason: str,
    yes: bool,
    run: bool,
    model: str | None,
) -> None:
    """Approve or deny a waiting tool call. Without an ID, list the waiting calls.

    ID is a request's id, a unique prefix of its number, or `last`. The call is shown with its
    arguments before a confirmation. The tool runs once the session is resumed, with --run here.

    The same person may repeat a decision that still counts, without --until, --reason and new
    arguments. This changes nothing.
    """
    from remit.agents import ApprovalQueue
    from remit.gateway.auth import expiry_of

    settings = open_settings(root)[1].settings.approvals
    if request_id is None:
        if deny or run or by or reason or edit or arguments or until:
            raise click.UsageError(
                "Name a request. `remit approve` without options lists the waiting calls."
            )
        with open_ledger(root) as client:
            waiting = ApprovalQueue(client, settings).pending()
        if as_json:
            echo_json({"approvals": [request.to_dict() for request in waiting]})
        else:
            print_waiting(waiting)
        return
    with open_ledger(root, signing=True) as client:
        queue = ApprovalQueue(client, settings)
        request = named_request(queue, request_id)
        agent_id = _agent_of(client, request)
        if not as_json:
            _print_request(request, agent_id)
        given = None if deny else request.arguments  # The grant covers the arguments shown.
        if edit or arguments is not None:
            given = parsed_arguments(edited(request.arguments) if edit else arguments or "")
            if not as_json:
                say(f"instead    {json_text(given)}")
        if request.state == "pending":
            # A program that names a request by its whole id has decided.
            yes = yes or (request_id == request.request_id and not sys.stdin.isatty())
            confirm("Deny this call?" if deny else "Approve this call?", yes=yes, err=as_json)
        queue.decide(
            request.request_id,
            granted=not deny,
            by=by or whoami(),
            reason=reason,
            arguments=given if isinstance(given, Mapping) else None,
            until=expiry_of(until, client.wall_time) if until else None,
            may_repeat=not (edit or arguments is not None or until or reason),
        )
        decided = queue.get(request.request_id)
    if not as_json and decided.state == "pending":
        say(f"approved by {', '.join(decided.signed_by)}; {decided.people} approvals are needed")
        return
    if not as_json:
        say(f"{decided.state} by {decided.decided_by}")
    when = _when(root, decided, agent_id)
    turn = _go_on(root, decided, agent_id, when, model, as_json) if run else None
    if as_json:
        echo_json({**decided.to_dict(), **({"turn": turn} if run else {})})
    elif not run:
        note(f"{continuing(decided)} {when}.")


def continuing(decided: Approval) -> str:
    """Return the beginning of the sentence that says when the order of a request continues."""
    without = " without this call" if decided.state == "denied" else ""
    return f"The order continues{without}"


def print_waiting(waiting: list[Approval], session_id: str = "") -> None:
    """Print a line for each request, in the given order; mark the requests of ``session_id``.

    Print a sentence instead if no request is given.
    """
    if not waiting:
        say(_NOTHING_WAITS)
        return
    for request in waiting:
        mark = "this session" if request.session_id == session_id else request.session_id
        asks = "" if request.kind == "approval" else "  (outcome unknown)"
        say(
            f"{request.request_id}  {moment(request.requested_at)}  {mark}  "
            f"{call_text(request.tool_id, request.arguments, _LONGEST_LINE)}{asks}"
        )
    note("\nDecide with `remit approve ID`, or `remit approve ID --deny --reason WHY`.")


def ask_person(
    tool_id: str, arguments: Any, kind: str = "approval"
) -> tuple[Literal["granted", "denied", "later"], Any]:
    """Ask a person in the terminal to decide on a tool call; only a clear yes lets the tool run.

    Input typed before the question is discarded. An empty answer is a denial; any other word is
    asked about again.

    Args:
        tool_id: the tool.
        arguments: arguments of the call.
        kind: ``unknown_outcome`` if the call may have run already, else ``approval``.

    Returns:
        The decision, and the arguments: unchanged, or as the person edited them. An interrupted
        prompt gives ``later``.
    """
    while True:
        full = call_text(tool_id, arguments)
        shown = call_text(tool_id, arguments, _LONGEST_LINE)
        if shown != full:
            say_text(full)
        question, words = f"Approve {shown}?", "[y/N/edit/later]"
        if kind == "unknown_outcome":
            say("The call started, but its outcome is unknown.")
            question, words = f"Run {shown} again?", "[y/N/later]"
        drop_typed_ahead()
        try:
            said = click.prompt(f"{question} {words}", default="n", show_default=False)
        except (click.Abort, KeyboardInterrupt):
            say("")
            return "later", arguments
        word = said.strip().lower()
        if word in ("y", "yes"):
            return "granted", arguments
        if word in ("n", "no"):
            return "denied", arguments
        if word in ("l", "later"):
            return "later", arguments
        if word in ("e", "edit") and kind == "approval":
            try:
                arguments = parsed_arguments(edited(arguments))
            except click.UsageError as wrong:
                note(wrong.message)


def drop_typed_ahead() -> None:
    """Discard input typed before a question, because such input is no answer."""
    try:
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    except (ImportError, OSError, ValueError):  # There is no terminal.
        pass


def edited(arguments: Any) -> str:
    """Return the JSON text of the arguments after a person changed it in an editor.

    Raises:
        click.UsageError: the person did not save a change.
    """
    text = click.edit(pretty_json(arguments) + "\n", extension=".json")
    if text is None:
        raise click.UsageError("The arguments were not changed.")
    return text


def parsed_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a JSON text.

    Raises:
        click.UsageError: the text is not JSON, or not a JSON object.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"The arguments are not JSON: {error}") from error
    if not isinstance(value, dict):
        raise click.UsageError("The arguments are not a JSON object.")
    return value


def named_request(queue: ApprovalQueue, name: str) -> Approval:
    """Return the request with an id, the start of its number, or the word ``last``.

    A full id finds a request in any state, a start or ``last`` only a pending one. ``last`` is the
    latest.

    Raises:
        ApprovalError: no request matches, or several requests match.
    """
    from remit.agents import ApprovalError

    if name.startswith("LED-") and len(name) >= _ID_LENGTH:
        return queue.get(name)
    waiting = queue.pending()
    if name.lower() == "last":
        if not waiting:
            raise ApprovalError(_NOTHING_WAITS)
        return waiting[-1]
    short = name.lower().removeprefix("led-").lstrip("0")
    found = [one for one in waiting if short and _short(one).startswith(short)]
    whole = [one for one in found if _short(one) == short]
    if len(found) > 1 and len(whole) != 1:
        raise ApprovalError(
            f"{name!r} is ambiguous: {', '.join(one.request_id for one in found)}.",
            next_step="Give the full id of one of them.",
        )
    return (whole or found)[0] if found else queue.get(name)


def _short(approval: Approval) -> str:
    """Return a request's id without ``LED-`` and leading zeros."""
    return approval.request_id.removeprefix("LED-").lstrip("0")


def _agent_of(client: LedgerClient, request: Approval) -> str:
    """Return the agent id of the request's session, whose program resumes the session."""
    from remit.agents.sessions import session_overview

    overview = session_overview(client, request.session_id)
    return overview.agent_id if overview is not None else request.agent_id


def _print_request(request: Approval, agent_id: str) -> None:
    arguments = request.arguments
    text = pretty_json(arguments) if isinstance(arguments, Mapping) else str(arguments)
    # The arguments are printed whole, because the grant covers them exactly.
    say_lines(facts({**request.to_dict(), "agent_id": agent_id, "arguments": text},
                    "requested_arguments"))  # fmt: skip


def _when(root: Path | None, request: Approval, agent_id: str) -> str:
    """Return a clause that says how the session of a request is resumed.

    Commands can resume sessions of the shell's own agent and of agents of packages.
    """
    place, loaded = open_settings(root)
    if agent_id == loaded.settings.chat.agent_id:
        return f"when you resume its session: `remit session resume {request.session_id}`"
    if InstalledFiles(place.path).owner(f"HO2/agents/{agent_id}.json"):
        return (
            "when you resume its session: "
            f"`remit chat --agent {agent_id} --session {request.session_id}`"
        )
    return (
        f"when the program of the agent {agent_id} resumes the session; a program that waits does "
        f'so itself, another calls `agent.session("{request.session_id}").resume()`'
    )


def _go_on(
    root: Path | None,
    request: Approval,
    agent_id: str,
    when: str,
    model: str | None,
    as_json: bool,
) -> dict[str, Any] | None:
    """Resume the session of a request and return the data of its turn.

    Return None after a note if the session has no unfinished turn, or if only the program that
    defines the agent can resume it.
    """
    from remit.cli.turn_display import TurnPrinter, turn_data
    from remit.runtime import Runtime

    with Runtime.open(root, model=model, by=whoami()) as runtime:
        if agent_id == runtime.loaded.settings.chat.agent_id:
            session, answers = runtime.session, runtime.default_model
        elif agent_id in runtime.packaged_agents():
            agent = runtime.packaged_agent(agent_id, model=model)
            session, answers = agent.session, agent.model
        else:
            note(f"No command can run the agent {agent_id}. {continuing(request)} {when}.")
            return None
        runtime.require_model(answers)
        with TurnPrinter(quiet=as_json) as printer:
            result = session(request.session_id).resume(on_event=printer)
        if result is None:
            note("The session has no unfinished turn.")
            return None
        printer.finish(result)
    return turn_data(result)
