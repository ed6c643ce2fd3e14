"""``remit session``."""

from __future__ import annotations

from pathlib import Path

import click

from remit.cli.shared import common, echo_json, open_ledger, print_json_list, reads


@click.group()
def session() -> None:
    """Conversations on record."""


@session.command("list")
@click.option("--limit", type=click.IntRange(min=1), help="Most sessions.")
@reads
def list_all(root: Path | None, as_json: bool, limit: int | None) -> None:
    """Sessions, the latest first."""
    from remit.sessions import list_sessions

    with open_ledger(root) as client:
        found = (item.to_dict() for item in list_sessions(client, limit=limit))
        if as_json:
            print_json_list("sessions", found)
            return
        for item in found:
            state = "ended" if item["ended"] else "open"
            click.echo(
                f"{item['session_id']}  {item['started_at']}  {item['turns']:>4} turns  {state}"
            )


@session.command()
@click.argument("session_id", required=False)
@click.option("--last", is_flag=True, help="The latest session.")
@reads
def show(root: Path | None, as_json: bool, session_id: str | None, last: bool) -> None:
    """Both sides of every turn of a session."""
    from remit.sessions import list_sessions, session_overview

    if (session_id is None) != last:
        raise click.UsageError("Give a session id, or --last.")
    with open_ledger(root) as client:
        if last:
            overview = next(list_sessions(client, limit=1), None)
        else:
            overview = session_overview(client, session_id or "")
        if overview is None:
            raise click.ClickException("The ledger has no such session; see `remit session list`.")
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
        if as_json:
            echo_json({**overview.to_dict(), "turn_list": turns})
            return
        click.echo(f"{overview.session_id}, {overview.turns} turns, since {overview.started_at}")
        for turn in turns:
            click.echo(f"\n[{turn['turn_number']}] {turn['timestamp']} {turn['entry_id']}")
            click.echo(f"user:  {turn['user_message']}")
            click.echo(f"agent: {turn['response']}")


@session.command()
@click.argument("session_id")
@click.option("--model", help="Which model answers.")
@common
def resume(root: Path | None, session_id: str, model: str | None) -> None:
    """Go on with a session: the same as `remit chat --session ID`."""
    from remit.cli.chat import run_chat

    run_chat(root, model, session_id)
