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
    """One message, one answer; exit 1 when no answer passed the quality gate."""
    from remit.cli.printing import TurnPrinter
    from remit.runtime import Runtime

    with Runtime.open(root, model=model, create=True) as runtime:
        runtime.require_model()
        with runtime.session(session_id) as conversation:
            printer = TurnPrinter(quiet=as_json)
            result = conversation.turn(" ".join(message), on_event=printer)
            printer.finish(result)
    if as_json:
        echo_json(
            {
                "response": result.response,
                "session_id": result.session_id,
                "quality_gate_passed": result.quality_gate_passed,
                "degraded": result.degraded,
                "tool_results": result.tool_results,
                "classification": result.classification,
                "cost": result.cost_summary,
                "work_orders": result.wo_chain_summary,
                "turn_entry_id": result.turn_entry_id,
            }
        )
    else:
        note(f"session {result.session_id}, {result.cost_summary['total_tokens']} tokens")
    raise SystemExit(0 if result.quality_gate_passed or result.degraded else 1)
