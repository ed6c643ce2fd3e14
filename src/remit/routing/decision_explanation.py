"""A decision read back: why a model was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from remit.kernel.errors import NotFoundError, RemitError, excerpt
from remit.ledger import EntryArchivedError, EntryNotFoundError, Erased, LedgerClient, LedgerEntry
from remit.routing.call_explanation import explain_call
from remit.routing.decision_replay import (
    EVENT,
    fields_of,
    find_decision,
    is_number,
    no_such_decision,
    rows_of,
    scored_inputs,
)
from remit.routing.ensemble import JUDGE_PART
from remit.routing.intent import Intent, read_intent
from remit.routing.scores import ANY_TASK, is_single, learned_parts, measured, score_parts

_SINGLE = "Choosing by prompt has no proven benefit, so the best single model comes first."
_UNMEASURED = (
    "No abilities are stated for {}; it comes first by price, speed and similar properties."
)
_LONGEST_REASON = 300  # characters that a sentence quotes of a provider
_OF_CALL = ("entry_id", "timestamp", "agent_id", "session_id")


def explain(
    ledger: LedgerClient, name: str, prefixes: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return why a model was chosen, or the fate of a call that names its model, as JSON. Blocks.

    Args:
        ledger: the ledger.
        name: a name of a decision, as :func:`find_decision` takes it, or the id of an entry of a
            call.
        prefixes: the present provider of each model name prefix; None for none.

    Returns:
        For a decision: the record's fields, ``why`` (sentences), and ``candidates`` in the order of
        the chain: rank, score and its parts, result (``answered``, ``failed``, ``skipped``,
        ``not_reached``), code and reason. For an entry of a call also ``call``: see
        :func:`explain_call`. If no router chose its model, ``decision_id`` is empty and ``why`` is
        the call's own. An erased decision has ``erased`` and no fields or candidates.

    Raises:
        NotFoundError: there is no such decision or call.
        EntryArchivedError: the entry is archived.
        TrailError: the thought of the decision lost its entry, or names another's.
        LedgerError: the ledger cannot be read.
    """
    named = _entry(ledger, name) if name.startswith("LED-") else None
    if named is None or named.event_type == EVENT:
        return _explained(find_decision(ledger, name), ledger)
    call = explain_call(ledger, named, prefixes)
    why = call["why"]
    if decision_id := call.get("decision_id"):
        try:
            return {**_explained(find_decision(ledger, decision_id), ledger), "call": call}
        except NotFoundError:
            why = [f"The decision {decision_id} of this call is not recorded.", *why]
    return {
        "decision_id": "",
        **{key: call[key] for key in _OF_CALL},
        "erased": False,
        "why": why,
        "candidates": [],
        "call": call,
    }


def _entry(ledger: LedgerClient, entry_id: str) -> LedgerEntry:
    try:
        return ledger.read(entry_id)
    except EntryArchivedError:
        raise
    except EntryNotFoundError as error:
        raise no_such_decision(entry_id) from error


def _explained(entry: LedgerEntry, ledger: LedgerClient) -> dict[str, Any]:
    meta = entry.metadata
    record = fields_of(meta)
    common = {
        "decision_id": meta["decision_id"],
        "entry_id": entry.id,
        "timestamp": entry.timestamp,
        "task_id": meta.get("task_id", ""),
        "agent_id": meta.get("agent_id", ""),
        "session_id": meta.get("session_id", ""),
        "route": meta.get("route", ""),
    }
    if record is None:
        erased = meta.get("content")
        why = (
            f"The decision's content was erased under {erased.erasure_id}."
            if isinstance(erased, Erased)
            else "This entry is not a routing decision."
        )
        return {**common, "erased": isinstance(erased, Erased), "why": [why], "candidates": []}
    context = meta.get("context")
    context = context if isinstance(context, Mapping) else {}
    parts, intent, neighbours, stated = _parts(meta, ledger)
    candidates = _candidates(record, meta, parts)
    return {
        **common,
        "erased": False,
        **{key: value for key, value in record.items() if key not in ("type", "scores")},
        "scoring": meta.get("scoring", "remit"),
        "task": context.get("task", ""),
        "operator_preference": context.get("operator_preference", ""),
        "intent": asdict(intent) if intent else None,
        "why": [
            *_single(stated, candidates),
            *_why(record, context, intent, candidates, meta),
            *_alike(neighbours),
        ],
        "neighbours": neighbours,
        "candidates": candidates,
        "stages": [dict(stage) for stage in rows_of(meta, "stages")],
    }


def _single(stated: frozenset[str] | None, candidates: list[dict[str, Any]]) -> list[str]:
    if stated is None or not candidates:
        return []
    first = candidates[0]["model_id"]
    return [_SINGLE if first in stated else _UNMEASURED.format(first)]


def _alike(neighbours: list[dict[str, Any]]) -> list[str]:
    if not neighbours:
        return []
    named = ", ".join(f"{one['exchange_id']} ({one['similarity']:.2f})" for one in neighbours)
    return [f"The quality was predicted from graded answers to similar prompts: {named}."]


def _parts(
    meta: Mapping[str, Any], ledger: LedgerClient
) -> tuple[dict[str, dict[str, float]], Intent | None, list[dict[str, Any]], frozenset[str] | None]:
    """Return the parts of each score, the intent, the nearest known prompts, and measured models.

    The last value is None unless one model is best for all tasks.
    """
    try:
        inputs = scored_inputs(meta, ledger)
        intent = read_intent(inputs.prompt, inputs.weights)
        if meta.get("scoring", "remit") != "remit":
            return {}, intent, [], None
        if inputs.weights.head is not None:
            parts, nearest = learned_parts(inputs)
            return parts, intent, nearest, None
        task, preference = inputs.task, inputs.operator_preference
        return (
            {
                candidate.model_id: score_parts(candidate, intent, task, preference, inputs.weights)
                for candidate in inputs.candidates
            },
            intent,
            [],
            measured(inputs) if is_single(inputs) else None,
        )
    except (
        RemitError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
    ):  # erased, or not of this version
        return {}, None, [], None


def _candidates(
    record: Mapping[str, Any], meta: Mapping[str, Any], parts: Mapping[str, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """The chain in order, with what became of each."""
    calls: dict[str, list[Mapping[str, Any]]] = {}
    for call in rows_of(meta, "attempts"):
        if call.get("part") != JUDGE_PART:  # a judge's calls are no answers
            calls.setdefault(call.get("model_id", ""), []).append(call)
    skipped = {entry.get("model_id", ""): entry for entry in rows_of(meta, "skipped")}
    profiles = meta.get("profiles")
    rows = []
    for rank, model in enumerate(record["candidates_considered"], 1):
        profile = profiles.get(model) if isinstance(profiles, Mapping) else None
        row: dict[str, Any] = {
            "rank": rank,
            "model_id": model,
            "provider_id": profile.get("provider_id", "") if isinstance(profile, Mapping) else "",
            "score": record["scores"].get(model),
            "status": "not_reached",
            "code": "",
            "reason": "",
            "exchange_entry_id": "",
            "latency_ms": None,
        }
        if model in parts:
            row["parts"] = dict(parts[model])
        if made := calls.get(model):
            good = [call for call in made if call.get("outcome") == "success"]
            last = (good or made)[-1]
            row["status"] = "answered" if last.get("outcome") == "success" else "failed"
            row["code"] = last.get("error_code", "")
            row["reason"] = _text(last.get("error_message", ""))
            row["exchange_entry_id"] = last.get("exchange_entry_id", "")
            row["latency_ms"] = last.get("latency_ms")
        elif model in skipped:
            row["status"] = "skipped"
            row["code"] = skipped[model].get("code", "")
            row["reason"] = _text(skipped[model].get("reason", ""))
        rows.append(row)
    return rows


def _why(
    record: Mapping[str, Any],
    context: Mapping[str, Any],
    intent: Intent | None,
    candidates: list[dict[str, Any]],
    meta: Mapping[str, Any],
) -> list[str]:
    """The decision in sentences."""
    chosen = record["chosen_model_id"]
    sentences = []
    if intent is not None:
        sentences.append(_about(intent, context))
    preference = context.get("operator_preference")
    if preference:
        sentences.append(f"The operator prefers {preference}.")
    share, propensity = meta.get("exploration"), meta.get("propensity")
    if share and is_number(share) and is_number(propensity):
        sentences.append(
            f"{100 * share:g}% of such decisions explore: the first model was drawn with "
            f"probability {propensity:g}."
        )
    if isinstance(canary := meta.get("canary"), Mapping):
        sentences.append(_tried(canary))
    for row in candidates:
        model, score = row["model_id"], row["score"]
        if row["status"] == "answered" and model == chosen:
            best = "the best score" if row["rank"] == 1 else f"rank {row['rank']}"
            sentences.append(f"{model} answered with {best} ({score:.6f}).")
            if record["routing_mode"] == "single":
                break
        elif row["status"] in ("failed", "skipped"):
            verb = "failed" if row["status"] == "failed" else "was skipped"
            reason = f": {_cut(row['reason'])}" if row["reason"] else ""
            sentences.append(
                f"{model} (rank {row['rank']}, score {score:.6f}) {verb} ({row['code']}{reason})."
            )
        elif row["status"] == "answered":
            sentences.append(f"{model} (rank {row['rank']}, score {score:.6f}) answered too.")
    for stage in rows_of(meta, "stages"):
        if "join" in stage:
            sentences += _joined(stage, meta)
        elif stage.get("model_id"):
            sentences.append(f"Stage {stage.get('stage')}: {stage['model_id']} answered.")
        else:
            sentences.append(f"Stage {stage.get('stage')}: no model answered.")
    if record["routing_mode"] == "fail":
        sentences.append(f"No model answered after {record['fallback_attempts']} attempts.")
    return sentences


def _tried(canary: Mapping[str, Any]) -> str:
    """Return the sentence on the canary that the decision belongs to."""
    took, other = ("proposed", "current") if canary.get("arm") == "new" else ("current", "proposed")
    return (
        f"A canary of {canary.get('proposal_id')} drew the {took} route (share of the proposed "
        f"route: {canary.get('share')}); the {other} route puts {canary.get('other')} first."
    )


def _joined(stage: Mapping[str, Any], meta: Mapping[str, Any]) -> list[str]:
    """Return sentences that say how the answers of an ensemble were joined."""
    answered = _names(stage.get("answered"))
    if not answered:
        members = ", ".join(_names(stage.get("members")))
        return [f"None of the models answered in time: {members or 'no model was asked'}."]
    how = {
        "vote": "the most frequent one was chosen",
        "fields": "one was combined field by field",
        "judge": "a judge chose one",
        "best_scored": "that of the model with the best score was chosen",
    }.get(str(stage.get("joined")), "one was combined")
    agreed = _names(stage.get("agreed"))
    more = f" ({', '.join(agreed)} agreed)" if len(agreed) > 1 else ""
    sentences = [f"Of the answers of {', '.join(answered)}, {how}{more}."]
    for call in rows_of(meta, "attempts"):
        if call.get("part") == JUDGE_PART:
            came = "judged" if call.get("outcome") == "success" else (
                f"failed as judge ({call.get('error_code', '')})"
            )  # fmt: skip
            sentences.append(f"{call.get('model_id')} {came}: {call.get('exchange_entry_id', '')}.")
    return sentences


def _about(intent: Intent, context: Mapping[str, Any]) -> str:
    name = str(context.get("task", ANY_TASK)).partition("+")[0]
    task = intent.task if name == ANY_TASK else f"{name} (as stated)"
    also = [word for word, is_so in (("code", intent.code), ("mathematics", intent.mathematics))
            if is_so and word != task]  # fmt: skip
    plays = f", with {' and '.join(also)}" if also else ""
    language = f", in {intent.language!r}" if intent.language else ""
    return f"The detected task was {task}{plays}{language}, about {intent.tokens} tokens."


def _cut(reason: str) -> str:
    """A reason as part of a sentence."""
    text = " ".join(reason.split()).rstrip(".?!")
    return excerpt(text, _LONGEST_REASON)


def _names(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "(erased)" if value else ""
