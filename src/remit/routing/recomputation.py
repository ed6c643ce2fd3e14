"""A decision computed again from what was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.kernel.errors import RemitError
from remit.ledger import Erased, LedgerEntry
from remit.routing.candidate import Candidate
from remit.routing.decision import RULES_UNAVAILABLE, compute_decision_hash
from remit.routing.explanation import record_in
from remit.routing.scoring import ScoringInputs, chain_of, score_candidates
from remit.routing.weights import Weights

__all__ = ["replay"]

_NEEDED = ("prompt", "context", "profiles", "content")


def replay(entry: LedgerEntry) -> dict[str, Any]:
    """Compute scores, chain and hashes of a recorded decision again.

    Args:
        entry: of the decision (:func:`remit.routing.find_decision`).

    Returns:
        ``agrees``: whether all that can be computed comes out as recorded; ``checks``: the
        same for each part, ``None`` where it cannot be; ``recorded`` and ``recomputed`` values of
        what differs; ``notes``.
    """
    meta = entry.metadata
    answer: dict[str, Any] = {
        "agrees": False,
        "decision_id": meta.get("decision_id", ""),
        "entry_id": entry.id,
        "checks": {},
        "recorded": {},
        "recomputed": {},
        "notes": [],
    }
    erased = [name for name in _NEEDED if isinstance(meta.get(name), Erased)]
    if erased:
        answer["notes"].append(
            f"{', '.join(erased)} of the decision have been erased: it cannot be computed again."
        )
        return answer
    try:
        _compare(meta, entry, answer)
    except (RemitError, KeyError, TypeError, ValueError) as error:
        answer["notes"].append(f"What was recorded cannot be computed with: {error}")
        answer["checks"]["readable"] = False
    answer["agrees"] = bool(answer["checks"]) and False not in answer["checks"].values()
    return answer


def _compare(meta: Mapping[str, Any], entry: LedgerEntry, answer: dict[str, Any]) -> None:
    record = record_in(entry)
    if record is None:
        raise ValueError("its 8 fields are not there")
    context: Mapping[str, Any] = meta["context"]
    weights = Weights.from_document(context["weights"])
    if record["rule_version_hash"] == RULES_UNAVAILABLE:
        answer["checks"]["rule_version_hash"] = None
        answer["notes"].append("The rule file could not be read then; defaults were in force.")
    else:
        _check(answer, "rule_version_hash", record, weights.rule_version_hash)
    inputs = {
        "prompt": meta["prompt"],
        "context": dict(context),
        "rule_version_hash": record["rule_version_hash"],
        "candidates_considered": record["candidates_considered"],
    }
    computed = compute_decision_hash(inputs, record["chosen_model_id"])
    _check(answer, "decision_hash", record, computed)
    profiles: Mapping[str, Any] = meta["profiles"]
    same = sorted(profiles) == list(context["candidates"])
    answer["checks"]["profiles"] = same
    _check_calls(meta, record, answer)
    if meta.get("scoring", "remit") != "remit":
        answer["checks"]["scores"] = answer["checks"]["candidates_considered"] = None
        answer["notes"].append(f"Scored by {meta['scoring']}, which is not run again.")
        return
    scoring = score_candidates(
        ScoringInputs(
            meta["prompt"],
            context["task"],
            context["operator_preference"],
            tuple(Candidate.from_profile(name, one) for name, one in profiles.items()),
            weights,
        )
    )
    _check(answer, "scores", record, dict(scoring.scores))
    _check(answer, "candidates_considered", record, list(chain_of(scoring)))


def _check_calls(
    meta: Mapping[str, Any], record: Mapping[str, Any], answer: dict[str, Any]
) -> None:
    """Whether the chosen model and the count of attempts are those of the calls on record."""
    attempts, skipped = meta.get("attempts"), meta.get("skipped")
    if not isinstance(attempts, list) or not isinstance(skipped, list):
        answer["checks"]["attempts"] = None
        return
    answered = {call["model_id"] for call in attempts if call.get("outcome") == "success"}
    if record["routing_mode"] == "fail":
        failed = [call for call in attempts if call.get("outcome") != "success"]
        count, chosen = len(failed) + len(skipped), not record["chosen_model_id"]
    else:
        count = max(0, len({call["model_id"] for call in attempts}) - 1)
        chosen = record["chosen_model_id"] in answered
    answer["checks"]["attempts"] = chosen and record["fallback_attempts"] == count


def _check(answer: dict[str, Any], name: str, record: Mapping[str, Any], computed: Any) -> None:
    same = record[name] == computed
    answer["checks"][name] = same
    if not same:
        answer["recorded"][name] = record[name]
        answer["recomputed"][name] = computed
