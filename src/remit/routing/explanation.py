"""A decision read back: why a model was chosen, and whether it comes out the same again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import orjson

from remit.kernel.errors import RemitError
from remit.ledger import EntryNotFoundError, Erased, LedgerClient, LedgerEntry
from remit.routing.call_explanation import explain_call
from remit.routing.calls import JUDGE_PART
from remit.routing.candidate import Candidate
from remit.routing.decision import RULES_UNAVAILABLE, compute_decision_hash
from remit.routing.errors import DecisionNotFoundError
from remit.routing.intent import Intent, read_intent
from remit.routing.scoring import (
    ANY_TASK,
    ScoringInputs,
    chain_of,
    score_candidates,
    score_parts,
)
from remit.routing.trail import ThoughtNotFoundError, get_thought_record
from remit.routing.weights import Weights

_EVENT = "THOUGHT_RECORD"
_LONGEST_REASON = 300  # characters that a sentence quotes of a provider
_OF_CALL = ("entry_id", "timestamp", "agent_id", "session_id")
_NEEDED = ("prompt", "context", "profiles", "content")  # to compute a decision again


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
        raise _not_found(name) from error
    if "decision_id" not in entry.metadata:
        raise DecisionNotFoundError(f"The thought {name!r} is not of a router.")
    return entry


def explain(
    ledger: LedgerClient, name: str, prefixes: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Why a model was chosen, or what became of a call that names its model, as JSON.

    Args:
        ledger: where it is.
        name: of a decision, as :func:`find_decision` takes it, or the id of an entry of a call.
        prefixes: model name prefix → provider, as they are set now.

    Returns:
        Of a decision the record's fields, ``why`` (sentences), and ``candidates`` in the order of
        the chain: rank, score and its parts, what became of it (``answered``, ``failed``,
        ``skipped``, ``not_reached``), code and reason. Of an entry of a call also ``call``: see
        :func:`explain_call`; where no router chose its model, ``decision_id`` is empty and ``why``
        the call's own.

    Raises:
        DecisionNotFoundError: there is none.
    """
    call = None
    if name.startswith("LED-"):
        named = _entry(ledger, name)
        if named.event_type != _EVENT:
            call = explain_call(ledger, named, prefixes)
            if not call.get("decision_id"):
                return {
                    "decision_id": "",
                    **{key: call[key] for key in _OF_CALL},
                    "erased": False,
                    "why": call["why"],
                    "candidates": [],
                    "call": call,
                }
    told = _explained(find_decision(ledger, name if call is None else call["decision_id"]))
    return told if call is None else {**told, "call": call}


def _entry(ledger: LedgerClient, entry_id: str) -> LedgerEntry:
    try:
        return ledger.read(entry_id)
    except EntryNotFoundError as error:
        raise _not_found(entry_id) from error


def _not_found(name: str) -> DecisionNotFoundError:
    return DecisionNotFoundError(
        f"There is no decision {name!r} on record.",
        next_step="`remit ledger query --event-type THOUGHT_RECORD` lists them. A call that "
        "was cut off while it was routed leaves none.",
    )


def _explained(entry: LedgerEntry) -> dict[str, Any]:
    meta = entry.metadata
    record = _record_of(meta)
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
    parts, intent = _parts(meta)
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
        "stages": [dict(stage) for stage in _list_of(meta, "stages")],
    }


def _record_of(meta: Mapping[str, Any]) -> dict[str, Any] | None:
    """The 8 fields; ``None`` where they have been erased."""
    content = meta.get("content")
    value = orjson.loads(content) if isinstance(content, str) else None
    return value if isinstance(value, dict) else None


def _scored(meta: Mapping[str, Any]) -> ScoringInputs:
    """What was scored; raises :class:`RemitError`, ``KeyError`` or ``TypeError`` where unusable."""
    context = meta["context"]
    profiles: Mapping[str, Any] = meta["profiles"]
    return ScoringInputs(
        meta["prompt"],
        context["task"],
        context["operator_preference"],
        tuple(Candidate.from_profile(name, profile) for name, profile in profiles.items()),
        Weights.from_document(context["weights"]),
    )


def _parts(meta: Mapping[str, Any]) -> tuple[dict[str, dict[str, float]], Intent | None]:
    """What each candidate's score is made of, and what the prompt was taken for."""
    try:
        inputs = _scored(meta)
        intent = read_intent(inputs.prompt, inputs.weights)
        if meta.get("scoring", "remit") != "remit":
            return {}, intent
        task, preference = inputs.task, inputs.operator_preference
        return {
            candidate.model_id: score_parts(candidate, intent, task, preference, inputs.weights)
            for candidate in inputs.candidates
        }, intent
    except (RemitError, KeyError, TypeError, AttributeError):  # erased, or not of this version
        return {}, None


def _candidates(
    record: Mapping[str, Any], meta: Mapping[str, Any], parts: Mapping[str, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """The chain in order, with what became of each."""
    calls: dict[str, list[Mapping[str, Any]]] = {}
    for call in _list_of(meta, "attempts"):
        if call.get("part") != JUDGE_PART:  # a judge's calls are no answers
            calls.setdefault(call["model_id"], []).append(call)
    skipped = {entry["model_id"]: entry for entry in _list_of(meta, "skipped")}
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
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


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


def replay(entry: LedgerEntry) -> dict[str, Any]:
    """Compute scores, chain and hashes of a recorded decision again.

    Args:
        entry: of the decision (:func:`find_decision`).

    Returns:
        ``agrees``: whether all that can be computed comes out as recorded; ``checks``: the
        same for each part, ``None`` where it cannot be; ``recorded`` and ``recomputed`` values of
        what differs; ``notes``.
    """
    meta = entry.metadata
    checks: dict[str, bool | None] = {}
    recorded: dict[str, Any] = {}
    recomputed: dict[str, Any] = {}
    notes: list[str] = []
    erased = [name for name in _NEEDED if isinstance(meta.get(name), Erased)]
    if erased:
        notes.append(
            f"{', '.join(erased)} of the decision have been erased: it cannot be computed again."
        )
    else:
        try:
            record = _record_of(meta)
            if record is None:
                raise ValueError("its 8 fields are not there")
            for name, computed in _recomputed(meta, record, checks, notes):
                checks[name] = record[name] == computed
                if not checks[name]:
                    recorded[name], recomputed[name] = record[name], computed
        except (RemitError, KeyError, TypeError, ValueError) as error:
            notes.append(f"What was recorded cannot be computed with: {error}")
            checks["readable"] = False
    return {
        "agrees": bool(checks) and False not in checks.values(),
        "decision_id": meta.get("decision_id", ""),
        "entry_id": entry.id,
        "checks": checks,
        "recorded": recorded,
        "recomputed": recomputed,
        "notes": notes,
    }


def _recomputed(
    meta: Mapping[str, Any],
    record: Mapping[str, Any],
    checks: dict[str, bool | None],
    notes: list[str],
) -> Iterator[tuple[str, Any]]:
    """Fields of the record as they are computed now; what is no field goes into ``checks``."""
    context: Mapping[str, Any] = meta["context"]
    inputs = _scored(meta)
    if record["rule_version_hash"] == RULES_UNAVAILABLE:
        checks["rule_version_hash"] = None
        notes.append("The rule file could not be read then; defaults were in force.")
    else:
        yield "rule_version_hash", inputs.weights.rule_version_hash
    hashed = {
        "prompt": meta["prompt"],
        "context": dict(context),
        "rule_version_hash": record["rule_version_hash"],
        "candidates_considered": record["candidates_considered"],
    }
    yield "decision_hash", compute_decision_hash(hashed, record["chosen_model_id"])
    checks["profiles"] = sorted(meta["profiles"]) == list(context["candidates"])
    checks["attempts"] = _attempts_agree(meta, record)
    if meta.get("scoring", "remit") != "remit":
        checks["scores"] = checks["candidates_considered"] = None
        notes.append(f"Scored by {meta['scoring']}, which is not run again.")
        return
    scoring = score_candidates(inputs)
    yield "scores", dict(scoring.scores)
    yield "candidates_considered", list(chain_of(scoring))


def _attempts_agree(meta: Mapping[str, Any], record: Mapping[str, Any]) -> bool | None:
    """Whether the chosen model and the count of attempts are those of the calls on record."""
    attempts, skipped = meta.get("attempts"), meta.get("skipped")
    if not isinstance(attempts, list) or not isinstance(skipped, list):
        return None
    answered = {call["model_id"] for call in attempts if call.get("outcome") == "success"}
    if record["routing_mode"] == "fail":
        failed = [call for call in attempts if call.get("outcome") != "success"]
        count, chosen = len(failed) + len(skipped), not record["chosen_model_id"]
    else:
        count = max(0, len({call["model_id"] for call in attempts}) - 1)
        chosen = record["chosen_model_id"] in answered
    return chosen and bool(record["fallback_attempts"] == count)
