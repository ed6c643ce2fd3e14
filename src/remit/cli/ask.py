"""``remit ask``."""

from __future__ import annotations

from pathlib import Path

import click

from remit.cli.shared import echo_json, note, reads


@click.command()
@click.argument("message", nargs=-1, required=True)
@click.option("--model", help="Which model answers: auto, a provider, a model, provider/model.")
@click.option("--session", "session_id", help="Go on with this session.")
@reads
def ask(
    root: Path | None,
    as_json: bool,
    message: tuple[str, ...],
    model: str | None,
    session_id: str | None,
) -> None:
    """One message, one answer.

    Exit 1 when no answer passed the quality gate, or when a tool waits for a person.
    """
    from remit.agents.supervisor import TurnPendingError
    from remit.cli.turns import TurnPrinter, turn_data
    from remit.runtime import Runtime

    with Runtime.open(root, model=model, create=True) as runtime:
        runtime.require_model()
        with runtime.session(session_id) as conversation:
            printer = TurnPrinter(quiet=as_json)
            try:
                result = conversation.turn(" ".join(message), on_event=printer)
            except TurnPendingError as pending:
                if as_json:
                    echo_json({"session_id": session_id, "waiting_for": [*pending.request_ids]})
                raise
            printer.finish(result)
    if as_json:
        echo_json(turn_data(result))
    else:
        note(f"session {result.session_id}, {result.cost_summary['total_tokens']} tokens")
    answered = result.quality_gate_passed or result.degraded
    raise SystemExit(0 if answered and not result.waiting else 1)
