"""Recorded decisions: found, read, and computed again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

import orjson

from remit.kernel.canonical import canonical_json
from remit.kernel.errors import NotFoundError, RemitError
from remit.ledger import (
    EntryArchivedError,
    EntryNotFoundError,
    LedgerClient,
    LedgerEntry,
    LedgerReader,
    first_erased,
)
from remit.routing.canary import trials_agree
from remit.routing.candidate import Candidate
from remit.routing.decision import RULES_UNAVAILABLE, RoutingMode, compute_decision_hash
from remit.routing.errors import ErasedHeadError
from remit.routing.exploration import draws_agree
from remit.routing.learned_head import head_on_record
from remit.routing.scores import ScoringInputs, chain_of, score_candidates
from remit.routing.trail import ThoughtNotFoundError, get_thought_record
from remit.routing.weights import Weights, version_hash

EVENT = "THOUGHT_RECORD"
"""The type of the entry that holds a decision."""

_FIELDS: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("routing_mode", str), ("chosen_model_id", str), ("candidates_considered", list),
    ("scores", dict), ("fallback_attempts", int), ("rule_version_hash", str),
    ("decision_hash", str),
)  # fmt: skip
_NAMES = ("model_id", "code", "part", "stage")
_NEEDED = ("prompt", "context", "profiles", "content")


def find_decision(ledger: LedgerReader, name: str) -> LedgerEntry:
    """Return the ledger entry of a decision. Blocks.

    Args:
        ledger: the ledger.
        name: the decision's id (``DEC-…``), its entry's id, or the id of one of its ``EXCHANGE``
            entries.

    Raises:
        NotFoundError: there is no such decision, or no router chose the model of the call.
        EntryArchivedError: the entry is archived.
        TrailError: the thought of the decision lost its entry, or names another's.
        LedgerError: the ledger cannot be read.
    """
    try:
        if name.startswith("LED-"):
            entry = ledger.read(name)
            decision_id = entry.metadata.get("decision_id")
            if entry.event_type == EVENT and isinstance(decision_id, str):
                return entry
            if not isinstance(decision_id, str):
                raise NotFoundError(
                    f"{name} has the event type {entry.event_type}, and no router chose its model.",
                    next_step="Give a decision (DEC-…), its entry, or an EXCHANGE with a "
                    "decision_id.",
                )
            name = decision_id
        entry = ledger.read(get_thought_record(ledger, name).entry_id)
    except EntryArchivedError:
        raise
    except (ThoughtNotFoundError, EntryNotFoundError) as error:
        raise no_such_decision(name) from error
    if not isinstance(entry.metadata.get("decision_id"), str):
        raise NotFoundError(f"The thought {name!r} is not a routing decision.")
    return entry


def no_such_decision(name: str) -> NotFoundError:
    """Return the error for a name that leads to no decision."""
    return NotFoundError(
        f"The ledger has no decision {name!r}.",
        next_step="`remit ledger query --event-type THOUGHT_RECORD` lists decisions. A call that "
        "was interrupted during routing has none.",
    )


def fields_of(meta: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the 8 fields of a decision, as :meth:`RoutingDecisionRecord.to_dict` has them.

    The result is None if they are erased or have another form.

    Args:
        meta: metadata of the decision's entry.
    """
    content = meta.get("content")
    try:
        value = orjson.loads(content) if isinstance(content, str) else None
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        return None
    if not all(isinstance(value.get(name), kind) for name, kind in _FIELDS):
        return None
    scores = value["scores"]
    scored = all(
        isinstance(model, str) and is_number(scores.get(model))
        for model in value["candidates_considered"]
    )
    return value if scored else None


def chances_of(meta: Mapping[str, Any]) -> dict[str, float]:
    """Return the probability with which each candidate was to be the first of a recorded decision.

    Candidates that could not be drawn are left out. In a canary whose routes differ, the first
    models of both routes have one. The result is empty if nothing was drawn, or if the decision is
    erased.

    Args:
        meta: metadata of the decision's entry.
    """
    record, canary = fields_of(meta), meta.get("canary")
    share = float(meta.get("exploration", 0))
    if record is None:
        return {}
    chain = record["candidates_considered"]
    if isinstance(canary, Mapping) and canary["share"] and canary["other"] != chain[0]:
        return {chain[0]: meta["propensity"], canary["other"]: 1 - meta["propensity"]}
    drawable = [one for one in chain if one not in meta.get("not_drawn", ())] if share else []
    each = share / len(drawable) if drawable else 0.0
    return {one: each + (0 if place else 1 - share) for place, one in enumerate(drawable)}


def is_number(value: Any) -> bool:
    """Return True if a recorded value is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def scored_inputs(
    meta: Mapping[str, Any],
    ledger: LedgerClient | None = None,
    *,
    weights: Weights | None = None,
    balance_nano: int | None = None,
) -> ScoringInputs:
    """Return the recorded inputs of scoring.

    Args:
        meta: metadata of the decision's entry.
        ledger: the ledger that contains learned heads; None if no head is needed.
        weights: the rules of another route; None for the recorded ones.
        balance_nano: the balance of that route's spend; None for the recorded one.

    Raises:
        RemitError, KeyError, TypeError: the metadata cannot be used.
    """
    context = meta["context"]
    profiles: Mapping[str, Any] = meta["profiles"]
    return ScoringInputs(
        meta["prompt"],
        context["task"],
        context["operator_preference"],
        tuple(Candidate.from_profile(name, profile) for name, profile in profiles.items()),
        weights
        or Weights.from_document(
            context["weights"],
            None if ledger is None else lambda digest: head_on_record(ledger, digest),
        ),
        context.get("balance_nano", 0) if balance_nano is None else balance_nano,
        context.get("warm_nano", {}),
    )


def rows_of(meta: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return the rows of a list in a decision's metadata; empty if it is erased or no list.

    Items that are no objects are left out. Values of ``model_id``, ``code``, ``part`` and ``stage``
    that are no texts become empty texts.

    Args:
        meta: metadata of the decision's entry.
        name: the key of the list, such as ``attempts``.
    """
    found = meta.get(name)
    return [
        {key: one if key not in _NAMES or isinstance(one, str) else "" for key, one in row.items()}
        for row in (found if isinstance(found, list) else ())
        if isinstance(row, Mapping)
    ]


def replay(entry: LedgerEntry, ledger: LedgerClient | None = None) -> dict[str, Any]:
    """Compute scores, chain and hashes of a recorded decision again. Writes nothing.

    Args:
        entry: the decision's entry (:func:`find_decision`).
        ledger: the ledger that contains learned heads; needed if the rules name one. None without
            it.

    Returns:
        ``agrees``: whether something was computed and everything agrees with the record;
        ``erased``: whether something that the decision was made from was erased; ``decision_id``
        and ``entry_id``; ``checks``: the result for each part, None if it cannot be computed;
        ``recorded`` and ``recomputed``: values that differ; ``notes``: sentences, such as why a
        part cannot be computed. Without its 8 fields a decision has the check ``readable``, False.
    """
    meta = entry.metadata
    checks: dict[str, bool | None] = {}
    recorded: dict[str, Any] = {}
    recomputed: dict[str, Any] = {}
    notes: list[str] = []
    erased = [name for name in _NEEDED if first_erased([meta.get(name)]) is not None]
    if erased:
        were = "was" if len(erased) == 1 else "were"
        notes.append(
            f"{', '.join(erased)} of the decision {were} erased, so it cannot be recomputed."
        )
    else:
        try:
            record = fields_of(meta)
            if record is None:
                raise ValueError("its 8 fields are not there")
            for name, computed in _recomputed(meta, record, ledger, checks, notes, erased):
                checks[name] = record[name] == computed
                if not checks[name]:
                    recorded[name], recomputed[name] = record[name], computed
        except (RemitError, LookupError, TypeError, ValueError, AttributeError) as error:
            notes.append(f"What was recorded cannot be computed with: {error}")
            checks["readable"] = False
    return {
        "agrees": bool(checks) and False not in checks.values(),
        "erased": bool(erased),
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
    ledger: LedgerClient | None,
    checks: dict[str, bool | None],
    notes: list[str],
    erased: list[str],
) -> Iterator[tuple[str, Any]]:
    """Yield fields of the record as computed now; other results are added to the last three."""
    context: Mapping[str, Any] = meta["context"]
    if record["rule_version_hash"] == RULES_UNAVAILABLE:
        checks["rule_version_hash"] = None
        notes.append("The rule file could not be read at that time, so the defaults applied.")
    else:
        yield "rule_version_hash", version_hash(canonical_json(context["weights"]))
    hashed = {
        "prompt": meta["prompt"],
        "context": dict(context),
        "rule_version_hash": record["rule_version_hash"],
        "candidates_considered": record["candidates_considered"],
    }
    yield "decision_hash", compute_decision_hash(hashed, record["chosen_model_id"])
    checks["fields"] = _fields_agree(meta, record)
    checks["profiles"] = sorted(meta["profiles"]) == list(context["candidates"])
    checks["attempts"] = _attempts_agree(meta, record)
    if (agree := draws_agree(meta, record)) is not None:
        checks["propensity"] = agree
    if meta.get("scoring", "remit") != "remit":
        checks["scores"] = checks["candidates_considered"] = None
        notes.append(f"The scores came from {meta['scoring']}, which is not run again.")
        return
    try:
        if (agree := trials_agree(meta, record["candidates_considered"], ledger)) is not None:
            checks["canary"] = agree
        scoring = score_candidates(scored_inputs(meta, ledger))
    except ErasedHeadError as error:
        erased.append("head")
        checks["scores"] = checks["candidates_considered"] = None
        notes.append(f"{error.message} The scores cannot be computed again.")
        return
    yield "scores", dict(scoring.scores)
    yield "candidates_considered", list(chain_of(scoring))


def _fields_agree(meta: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Return True if a record has exactly its 8 fields, and its entry and content repeat them."""
    chosen = record["chosen_model_id"]
    return (
        record.keys() == {"type", *(name for name, _ in _FIELDS)}
        and record["type"] == "routing_decision"
        and record["routing_mode"] in get_args(RoutingMode)
        and meta["content"] == canonical_json(record).decode()
        and meta.get("thought_id", meta["decision_id"]) == meta["decision_id"]
        and meta.get("model_id", chosen) == chosen
    )


def _attempts_agree(meta: Mapping[str, Any], record: Mapping[str, Any]) -> bool | None:
    """Return True if the chosen model and the number of attempts match the recorded calls."""
    attempts, skipped = meta.get("attempts"), meta.get("skipped")
    if not isinstance(attempts, list) or not isinstance(skipped, list):
        return None
    attempts = rows_of(meta, "attempts")
    answered = {call["model_id"] for call in attempts if call.get("outcome") == "success"}
    if record["routing_mode"] == "fail":
        failed = [call for call in attempts if call.get("outcome") != "success"]
        count, chosen = len(failed) + len(skipped), not record["chosen_model_id"]
    else:
        count = max(0, len({call["model_id"] for call in attempts}) - 1)
        chosen = record["chosen_model_id"] in answered
    return chosen and bool(record["fallback_attempts"] == count)
