"""``remit trace``: shows the way from a prompt to an answer, step by step."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import click

from remit.agents.sessions import list_sessions, session_overview
from remit.agents.workorders import trace_hash
from remit.cli.shared import (
    no_colour,
    note,
    open_ledger,
    open_settings,
    print_json_list,
    reads,
    say,
)
from remit.contracts import ContractLoader
from remit.kernel.installation import InstalledFiles
from remit.ledger import LedgerClient
from remit.views import gates_of, journey_text, open_journey, page_parts

_COLUMNS = (120, 24)
"""Columns and lines of the output if it is not a terminal."""


@click.command()
@click.argument("place", metavar="[SESSION | WO-… | LED-…]", required=False)
@click.option("--last", is_flag=True, help="Show the latest session or gateway call.")
@click.option("--turn", type=click.IntRange(min=1), help="Only this turn of the session.")
@click.option("--verify", is_flag=True, help="Recompute every trace hash; exit 1 on a mismatch.")
@click.option("--full", is_flag=True, help="Show full texts, plans and prompts.")
@click.option(
    "--html",
    "page",
    type=click.File("w", encoding="utf-8", lazy=True, atomic=True),
    help="Write a self-contained HTML page; - is standard output.",
)
@reads
def trace(
    root: Path | None,
    as_json: bool,
    place: str | None,
    last: bool,
    turn: int | None,
    verify: bool,
    full: bool,
    page: IO[str] | None,
) -> None:
    """Show the journey of a prompt, from its plan to its answer.

    Give a session, or a work order or an entry to show its turn.
    """
    if (place is None) != last:
        raise click.UsageError("Give a session, a work order, an entry, or --last.")
    if as_json and page is not None:
        raise click.UsageError("Give --json or --html, not both.")
    with open_ledger(root) as client:
        which = _latest(client, turn) if place is None else _named(place)
        if turn is not None:
            if "session_id" not in which:
                raise click.UsageError("--turn requires a session.")
            which["turn"] = turn
        journey = open_journey(client, **which)
        hashes = _recompute(client, which) if verify else None
        if hashes is not None:
            journey = _with_hashes(journey, hashes)
        if page is not None:
            for part in page_parts(journey, _contracts(root)):
                page.write(part)
            if page.name != "-":
                note(f"written to {page.name}")
        elif as_json:
            rest = {key: value for key, value in journey.items() if key != "turns"}
            print_json_list("turns", journey["turns"], rest)
        else:
            print_trace(journey, full=full)
        if page is not None or not as_json:
            _print_hashes(hashes, to_stderr=page is not None)
    bad = [item for item in hashes or () if not item["agrees"]]
    raise SystemExit(1 if bad else 0)


def print_trace(journey: Mapping[str, Any], *, full: bool = False) -> None:
    """Print a journey as a tree, turn by turn; in colour on a terminal."""
    colour = sys.stdout.isatty() and not no_colour()
    width = shutil.get_terminal_size(_COLUMNS).columns
    for line in journey_text(journey, colour=colour, width=width, full=full):
        click.echo(line)


def _contracts(root: Path | None) -> ContractLoader:
    found, _ = open_settings(root)
    return ContractLoader(found.tier("ho1"), installed=InstalledFiles(found.path))


def _named(place: str) -> dict[str, Any]:
    """Return the keyword for an argument by its form: an entry, work order or session id."""
    if place.startswith("LED-"):
        return {"entry_id": place}
    return {"work_order_id": place} if place.startswith("WO-") else {"session_id": place}


def _latest(client: LedgerClient, turn: int | None) -> dict[str, Any]:
    """Return the keyword of the latest session with an agent, or of a later gateway call.

    If a turn is named, a session is meant.
    """
    own = next((one for one in list_sessions(client) if not one.caller_session_id), None)
    last = "" if own is None else max(own.started_at, own.last_turn_at)
    calls = (
        call
        for event in (("EXCHANGE", "PROMPT_REJECTED") if turn is None else ())
        for call in client.query(event_type=event, order="desc", limit=1, with_content=False)
        if session_overview(client, str(call.metadata.get("session_id", ""))) is None
    )
    call = max(calls, key=lambda one: one.timestamp, default=None)
    if call is not None and call.timestamp > last:
        return {"entry_id": call.id}
    if own is None:
        raise click.ClickException(
            "The ledger has no session and no model call yet. `remit chat` starts a session, and "
            "`remit serve` answers clients."
        )
    return {"session_id": own.session_id}


def _recompute(client: LedgerClient, which: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return for each gate a comparison of the trace hash with the present entries."""
    return [
        {
            "entry_id": gate["entry_id"],
            "agrees": trace_hash(client, gate.get("work_order_ids") or (), before=gate["entry_id"])
            == gate.get("trace_hash"),
        }
        for turn in open_journey(client, **which, with_content=False)["turns"]
        for gate in gates_of(turn)
    ]


def _with_hashes(journey: Mapping[str, Any], hashes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the journey with the recomputed hashes, as a list and at each gate."""
    agrees = {item["entry_id"]: item["agrees"] for item in hashes}

    def turns() -> Iterator[dict[str, Any]]:
        for turn in journey["turns"]:
            for gate in gates_of(turn):
                gate["trace_hash_agrees"] = agrees.get(gate["entry_id"])
            yield turn

    return {**journey, "trace_hashes": hashes, "turns": turns()}


def _print_hashes(hashes: list[dict[str, Any]] | None, *, to_stderr: bool) -> None:
    if hashes == []:
        (note if to_stderr else say)("This journey has no trace hashes.")
    for item in hashes or ():
        word = "agrees" if item["agrees"] else "DOES NOT MATCH"
        (note if to_stderr else say)(f"trace hash of {item['entry_id']} {word}")
