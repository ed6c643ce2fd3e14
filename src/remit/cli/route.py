"""``remit route``: why a model was chosen, and whether it comes out so again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.shared import echo_json, note, open_ledger, reads, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["route"]

_DECISION = "DEC-… | LED-…"


@click.group()
def route() -> None:
    """Which model answers a call, and why."""


@route.command(name="explain")
@click.argument("decision", metavar=_DECISION)
@reads
def explain_(root: Path | None, as_json: bool, decision: str) -> None:
    """Why a model was chosen: who was considered, who was tried, what became of each.

    Takes a decision's id, its ledger entry, or the EXCHANGE that came of it.
    """
    from remit.routing import explain

    with open_ledger(root) as ledger:
        told = explain(ledger, decision)
    if as_json:
        echo_json(told)
    else:
        _print_explanation(told)


@route.command(name="replay")
@click.argument("decision", metavar=_DECISION)
@reads
def replay_(root: Path | None, as_json: bool, decision: str) -> None:
    """Compute a decision's scores and hashes again from what was recorded; exit 1 on a mismatch."""
    from remit.routing import find_decision, replay

    with open_ledger(root) as ledger:
        told = replay(find_decision(ledger, decision))
    if as_json:
        echo_json(told)
    else:
        say("agrees" if told["agrees"] else "DOES NOT AGREE")
        for name, same in told["checks"].items():
            say(f"  {name:<22} {'not computed' if same is None else 'same' if same else 'DIFFERS'}")
            if name in told["recorded"]:
                say(f"    recorded:   {told['recorded'][name]}")
                say(f"    recomputed: {told['recomputed'][name]}")
        for line in told["notes"]:
            say(f"  {line}")
    raise SystemExit(0 if told["agrees"] else 1)


@route.command(name="status")
@reads
def status(root: Path | None, as_json: bool) -> None:
    """Routes, models, what is stated of them, and whose circuits are open."""
    from remit.runtime import Runtime

    with Runtime.open(root) as runtime:
        told = runtime.router.status()
    if as_json:
        echo_json(told)
        return
    say(f"rules {told['rule_version_hash']} ({told['rules_file']})")
    for one in told["routes"]:
        prefers = f", prefers {one['operator_preference']}" if one["operator_preference"] else ""
        models = ", ".join(one["models"]) or "no model that can be reached"
        say(f"route {one['name']}: {one['mode']}{prefers}: {models}")
    say("")
    rows = [
        (
            one["model_id"],
            one["provider_id"],
            _usd(one["input_price"], one["output_price"]),
            f"{one['context_tokens']:,}" if one["context_tokens"] else "?",
            f"{one['tokens_per_s']}" if one["tokens_per_s"] else "?",
            f"{one['reliability']} %",
            _reach(one),
        )
        for one in told["models"]
    ]
    _print_table(("model", "provider", "USD per M", "window", "tok/s", "reliable", "state"), rows)


@route.command(name="score")
@click.argument("prompt")
@click.option("--route", "name", default="auto", show_default=True, help="Of which route.")
@click.option("--task", default="", help="What it is, instead of what the prompt tells.")
@click.option("--prefer", default="", help="An operator preference: quality, cost, speed, …")
@reads
def score(root: Path | None, as_json: bool, prompt: str, name: str, task: str, prefer: str) -> None:
    """How a route would score its models for a prompt; nothing is sent or recorded."""
    from remit.runtime import Runtime

    with Runtime.open(root) as runtime:
        told = runtime.router.score_text(prompt, route=name, task=task, operator_preference=prefer)
    if as_json:
        echo_json(told)
        return
    intent = told["intent"]
    language = f" in {intent['language']!r}" if intent["language"] else ""
    say(f"taken for {intent['task']}{language}, about {intent['tokens']} tokens")
    rows = [(model, f"{told['scores'][model]:.6f}") for model in told["chain"]]
    _print_table(("model", "score"), rows)


def _print_explanation(told: Mapping[str, Any]) -> None:
    say(f"{told['decision_id']} ({told['entry_id']}, {told['timestamp']})")
    for sentence in told["why"]:
        say(f"  {sentence}")
    if not told["candidates"]:
        return
    say("")
    parts = sorted({name for one in told["candidates"] for name in one.get("parts", ())})
    rows = [
        (
            str(one["rank"]),
            one["model_id"],
            f"{one['score']:.6f}",
            *(f"{one.get('parts', {}).get(name, 0):.3f}" for name in parts),
            one["status"].replace("_", " "),
            " ".join(str(one[key]) for key in ("code", "exchange_entry_id") if one[key]),
        )
        for one in told["candidates"]
    ]
    _print_table(("", "model", "score", *parts, "what became of it", ""), rows)
    say("")
    say(f"  rules {told['rule_version_hash']}")
    say(f"  hash  {told['decision_hash']}")
    note("`remit route replay` computes it again.")


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    for row in (head, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        say("  " + "  ".join(cells).rstrip())


def _usd(input_price: int | None, output_price: int | None) -> str:
    if input_price is None or output_price is None:
        return "unpriced"
    return f"{input_price / 1e9:g} / {output_price / 1e9:g}"


def _reach(one: Mapping[str, Any]) -> str:
    if not one["adapter"]:
        return "no provider"
    if one["circuit"] != "closed":
        wait = f", {one['retry_after_s']:.0f} s" if one["retry_after_s"] else ""
        return f"circuit {one['circuit'].replace('_', ' ')}{wait}"
    return "ready" if one["reachable"] else "not asked here"
