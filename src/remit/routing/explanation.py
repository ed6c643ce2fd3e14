"""Why a model was chosen: a decision read back, in words and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import orjson

from remit.kernel.errors import RemitError
from remit.ledger import EntryNotFoundError, Erased, LedgerClient, LedgerEntry
from remit.routing.candidate import Candidate
from remit.routing.errors import DecisionNotFoundError
from remit.routing.intent import Intent, read_intent
from remit.routing.scoring import ANY_TASK, score_parts
from remit.routing.trail import ThoughtNotFoundError, get_thought_record
from remit.routing.weights import Weights

__all__ = ["JUDGE_PART", "explain", "find_decision", "record_in"]

JUDGE_PART = "judge"
"""What the calls of an ensemble's judge are called among its attempts."""

_EVENT = "THOUGHT_RECORD"
_LONGEST_REASON = 300  # characters that a sentence quotes of a provider


def find_decision(ledger: LedgerClient, name: str) -> LedgerEntry:
    """The ledger entry of a decision.

    Args:
        ledger: where it is.
        name: its id (``DEC-…``), its entry's, or that of an ``EXCHANGE`` that came of it.

    Raises:
        DecisionNotFoundError: there is none.
    """
    try:
        if name.startswith("LED-"):
            entry = ledger.read(name)
            if entry.event_type == _EVENT and "decision_id" in entry.metadata:
                return entry
            decision_id = entry.metadata.get("decision_id")
            if not isinstance(decision_id, str):
                raise DecisionNotFoundError(
                    f"{name} is of type {entry.event_type}, and no router chose its model.",
                    next_step="Name a decision (DEC-…), its entry, or an EXCHANGE with a "
                    "decision_id.",
                )
            name = decision_id
        entry = ledger.read(get_thought_record(ledger, name).entry_id)
    except (ThoughtNotFoundError, EntryNotFoundError) as error:
        raise DecisionNotFoundError(
            f"There is no decision {name!r} on record.",
            next_step="`remit ledger query --event-type THOUGHT_RECORD` lists them. A call that "
            "was cut off while it was routed leaves none.",
        ) from error
    if "decision_id" not in entry.metadata:
        raise DecisionNotFoundError(f"The thought {name!r} is not of a router.")
    return entry


def record_in(entry: LedgerEntry) -> dict[str, Any] | None:
    """The 8 fields in a decision's entry; ``None`` where they have been erased."""
    content = entry.metadata.get("content")
    if not isinstance(content, str):
        return None
    value = orjson.loads(content)
    return value if isinstance(value, dict) else None


def explain(ledger: LedgerClient, name: str) -> dict[str, Any]:
    """Why a model was chosen, as JSON.

    Args:
        ledger: where the decision is.
        name: as :func:`find_decision` takes it.

    Returns:
        The record's fields, ``why`` (sentences), and ``candidates`` in the order of the chain:
        rank, score and its parts, what became of it (``answered``, ``failed``, ``skipped``,
        ``not_reached``), code and reason.

    Raises:
        DecisionNotFoundError: there is none.
    """
    entry = find_decision(ledger, name)
    meta = entry.metadata
    record = record_in(entry)
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
        under = f" under {erased.erasure_id}" if isinstance(erased, Erased) else ""
        return {**common, "erased": True, "why": [f"The decision's content was erased{under}."],
                "candidates": []}  # fmt: skip
    context = meta.get("context")
    context = context if isinstance(context, Mapping) else {}
    parts, intent = _parts(meta, context)
    candidates = _candidates(record, meta, parts)
    return {
        **common,
        "erased": False,
        **{key: value for key, value in record.items() if key not in ("type", "scores")},
        "scoring": meta.get("scoring", "remit"),
        "task": context.get("task", ""),
        "operator_preference": context.get("operator_preference", ""),
        "intent": asdict(intent) if intent else None,
        "why": _why(record, context, intent, candidates, meta),
        "candidates": candidates,
        "stages": [dict(one) for one in _list_of(meta, "stages")],
    }


def _parts(
    meta: Mapping[str, Any], context: Mapping[str, Any]
) -> tuple[dict[str, dict[str, float]], Intent | None]:
    """What each candidate's score is made of, and what the prompt was taken for."""
    prompt, profiles = meta.get("prompt"), meta.get("profiles")
    if isinstance(prompt, Erased) or not isinstance(profiles, Mapping) or prompt is None:
        return {}, None
    try:
        weights = Weights.from_document(context.get("weights"))
        intent = read_intent(prompt, weights)
        if meta.get("scoring", "remit") != "remit":
            return {}, intent
        found = {
            model: score_parts(
                Candidate.from_profile(model, profile),
                intent,
                str(context.get("task", ANY_TASK)),
                str(context.get("operator_preference", "")),
                weights,
            )
            for model, profile in profiles.items()
        }
    except RemitError:
        return {}, None
    return found, intent


def _candidates(
    record: Mapping[str, Any], meta: Mapping[str, Any], parts: Mapping[str, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """The chain in order, with what became of each."""
    calls: dict[str, list[Mapping[str, Any]]] = {}
    for call in _list_of(meta, "attempts"):
        if call.get("part") != JUDGE_PART:  # a judge's calls are no answers
            calls.setdefault(call["model_id"], []).append(call)
    skipped = {one["model_id"]: one for one in _list_of(meta, "skipped")}
    profiles = meta.get("profiles")
    rows = []
    for rank, model in enumerate(record["candidates_considered"], 1):
        profile = profiles.get(model, {}) if isinstance(profiles, Mapping) else {}
        row: dict[str, Any] = {
            "rank": rank,
            "model_id": model,
            "provider_id": profile.get("provider_id", ""),
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
            row["code"], row["reason"] = skipped[model]["code"], skipped[model]["reason"]
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
    for row in candidates:
        model, score = row["model_id"], row["score"]
        if row["status"] == "answered" and model == chosen:
            best = "the best score" if row["rank"] == 1 else f"rank {row['rank']}"
            sentences.append(f"{model} answered: it had {best} ({score:.6f}).")
            if record["routing_mode"] == "single":
                break
        elif row["status"] in ("failed", "skipped"):
            verb = "failed" if row["status"] == "failed" else "was passed over"
            reason = f": {_cut(row['reason'])}" if row["reason"] else ""
            sentences.append(f"{model} (rank {row['rank']}, {score:.6f}) {verb}, "
                             f"{row['code']}{reason}.")  # fmt: skip
        elif row["status"] == "answered":
            sentences.append(f"{model} (rank {row['rank']}, {score:.6f}) answered too.")
    for stage in _list_of(meta, "stages"):
        if "join" in stage:
            sentences += _joined(stage, meta)
        elif stage.get("model_id"):
            sentences.append(f"The stage {stage['stage']} was done by {stage['model_id']}.")
        else:
            sentences.append(f"No model did the stage {stage['stage']}.")
    if record["routing_mode"] == "fail":
        sentences.append(f"No model answered after {record['fallback_attempts']} attempts.")
    return sentences


def _joined(stage: Mapping[str, Any], meta: Mapping[str, Any]) -> list[str]:
    """How the answers of an ensemble became one."""
    answered = stage.get("answered") or ()
    if not answered:
        return [f"Of {', '.join(stage['members']) or 'no model'} none answered in time."]
    how = {
        "vote": "the one that most gave was taken",
        "fields": "one was made, field by field",
        "judge": "a judge chose one",
        "best_scored": "that of the best-scored was taken",
    }.get(str(stage.get("joined")), "one was made")
    agreed = stage.get("agreed") or ()
    more = f" ({', '.join(agreed)} agreed)" if len(agreed) > 1 else ""
    sentences = [f"Of the answers of {', '.join(answered)}, {how}{more}."]
    for call in _list_of(meta, "attempts"):
        if call.get("part") == JUDGE_PART:
            came = "judged" if call.get("outcome") == "success" else (
                f"was to judge, and failed ({call.get('error_code', '')})"
            )  # fmt: skip
            sentences.append(f"{call['model_id']} {came}: {call.get('exchange_entry_id', '')}.")
    return sentences


def _list_of(meta: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """A list of a decision's metadata; empty where it was erased."""
    found = meta.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _about(intent: Intent, context: Mapping[str, Any]) -> str:
    name = str(context.get("task", ANY_TASK)).partition("+")[0]
    task = intent.task if name == ANY_TASK else f"{name} (as stated)"
    also = [word for word, is_so in (("code", intent.code), ("mathematics", intent.mathematics))
            if is_so and word != task]  # fmt: skip
    plays = f", with {' and '.join(also)}" if also else ""
    language = f", in {intent.language!r}" if intent.language else ""
    return f"The prompt was taken for {task}{plays}{language}, about {intent.tokens} tokens."


def _cut(reason: str) -> str:
    """A reason as part of a sentence."""
    text = " ".join(reason.split()).rstrip(".?!")
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "(erased)" if value else ""
