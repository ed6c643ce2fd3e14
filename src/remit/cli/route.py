"""``remit route``: explains and recomputes routing decisions, and scores a route's models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.route_fit import calibrate, fit
from remit.cli.route_learn import learn
from remit.cli.shared import emit, note, open_ledger, reads, settings_of, table, whoami
from remit.kernel.words import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


_DECISION = "DEC-… | LED-…"


@click.group()
def route() -> None:
    """Explain which model answers a call, and why."""


route.add_command(calibrate)
route.add_command(fit)
route.add_command(learn)


@route.command(name="explain")
@click.argument("decision", metavar=_DECISION)
@reads
def explain_(root: Path | None, as_json: bool, decision: str) -> None:
    """Explain a call: the requested name, models tried and skipped, changes and cost.

    ID is a decision, its ledger entry, or any entry of a call: EXCHANGE, DISPATCH,
    EXCHANGE_ORPHANED or PROMPT_REJECTED.
    """
    from remit.routing import explain

    prefixes = settings_of(root).model.prefixes
    with open_ledger(root) as ledger:
        found = explain(ledger, decision, prefixes)
    emit(as_json, found, _explanation(found))
    if found["candidates"] and not as_json:
        note("`remit route replay` recomputes the decision.")


@route.command(name="replay")
@click.argument("decision", metavar=_DECISION)
@reads
def replay_(root: Path | None, as_json: bool, decision: str) -> None:
    """Recompute a decision's scores and hashes from the record; exit 1 on a mismatch."""
    from remit.routing import find_decision, replay

    with open_ledger(root) as ledger:
        found = replay(find_decision(ledger, decision), ledger)
    emit(as_json, found, _replay_lines(found))
    raise SystemExit(0 if found["agrees"] else 1)


def _replay_lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield "agrees" if found["agrees"] else "DOES NOT AGREE"
    for name, same in found["checks"].items():
        yield f"  {name:<22} {'not computed' if same is None else 'same' if same else 'DIFFERS'}"
        if name in found["recorded"]:
            yield f"    recorded:   {found['recorded'][name]}"
            yield f"    recomputed: {found['recomputed'][name]}"
    for line in found["notes"]:
        yield f"  {line}"


@route.command(name="status")
@reads
def status(root: Path | None, as_json: bool) -> None:
    """Show routes, models with their properties, and open circuits."""
    from remit.runtime import Runtime

    with Runtime.open(root, by=whoami()) as runtime:
        found = runtime.router.status()
    emit(as_json, found, _status_lines(found))


def _status_lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"rules {found['rule_version_hash']} ({found['rules_file']})"
    for route in found["routes"]:
        preference = route["operator_preference"]
        prefers = f", prefers {preference}" if preference else ""
        models = ", ".join(route["models"]) or "no reachable model"
        yield f"route {route['name']}: {route['mode']}{prefers}: {models}"
        if best := route["best_single"]:
            yield f"  choosing by prompt has no proven benefit; using the best single model, {best}"
        elif first := route["first"]:
            yield f"  no measurements yet: {first} comes first by price, speed and the like;"
            yield "  to change the order, set abilities in [routing.models.NAME]"
    yield ""
    rows = [
        (
            model["model_id"],
            model["provider_id"],
            _usd(model["input_price"], model["output_price"]),
            f"{model['context_tokens']:,}" if model["context_tokens"] else "?",
            f"{model['tokens_per_s']}" if model["tokens_per_s"] else "?",
            f"{model['reliability']} %",
            _reach(model),
        )
        for model in found["models"]
    ]
    heads = ("model", "provider", "USD per M", "window", "tok/s", "reliable", "state")
    yield from _table(heads, rows)


@route.command(name="score")
@click.argument("prompt")
@click.option("--route", "name", default="auto", show_default=True, help="Route to score.")
@click.option("--task", default="", help="Task type to assume (default: detected from the prompt).")
@click.option("--prefer", default="", help="An operator preference: quality, cost, speed, …")
@reads
def score(root: Path | None, as_json: bool, prompt: str, name: str, task: str, prefer: str) -> None:
    """Show how a route would score its models for a prompt; nothing is sent or recorded."""
    from remit.runtime import Runtime

    with Runtime.open(root, by=whoami()) as runtime:
        found = runtime.router.score_text(prompt, route=name, task=task, operator_preference=prefer)
    intent = found["intent"]
    language = f" in {intent['language']!r}" if intent["language"] else ""
    rows = [(model, f"{found['scores'][model]:.6f}") for model in found["chain"]]
    emit(as_json, found, [
        f"detected task: {intent['task']}{language}, about {count(intent['tokens'], 'token')}",
        *_table(("model", "score"), rows),
    ])  # fmt: skip


def _explanation(found: Mapping[str, Any]) -> Iterator[str]:
    call = found.get("call")
    if call is not None:
        yield f"{call['entry_id']} ({call['event_type']}, {call['timestamp']})"
        for sentence in call["why"]:
            yield f"  {sentence}"
        if not found["decision_id"]:
            return
        yield ""
    yield f"{found['decision_id']} ({found['entry_id']}, {found['timestamp']})"
    for sentence in found["why"]:
        yield f"  {sentence}"
    candidates = found["candidates"]
    if not candidates:
        return
    yield ""
    parts = sorted({name for candidate in candidates for name in candidate.get("parts", ())})
    rows = [
        (
            str(candidate["rank"]),
            candidate["model_id"],
            f"{candidate['score']:.6f}",
            *(f"{candidate.get('parts', {}).get(name, 0):.3f}" for name in parts),
            candidate["status"].replace("_", " "),
            " ".join(
                str(candidate[key]) for key in ("code", "exchange_entry_id") if candidate[key]
            ),
        )
        for candidate in candidates
    ]
    yield from _table(("", "model", "score", *parts, "result", ""), rows)
    yield ""
    yield f"  rules {found['rule_version_hash']}"
    yield f"  hash  {found['decision_hash']}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    return (f"  {line}" for line in table(heads, rows))


def _usd(input_price: int | None, output_price: int | None) -> str:
    if input_price is None or output_price is None:
        return "unpriced"
    return f"{input_price / 1e9:g} / {output_price / 1e9:g}"


def _reach(model: Mapping[str, Any]) -> str:
    if not model["adapter"]:
        return "no provider"
    if model["circuit"] != "closed":
        wait = f", {model['retry_after_s']:.0f} s" if model["retry_after_s"] else ""
        return f"circuit {model['circuit'].replace('_', ' ')}{wait}"
    return "ready" if model["reachable"] else "not used here"
