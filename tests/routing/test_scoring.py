"""Scores: pure, exact, the same however the candidates are given."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle
from copy import deepcopy
from typing import Any

import pytest
import rfc8785
from hypothesis import given, strategies as st

from remit.kernel.canonical import sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.routing import (
    Candidate,
    ScoringInputs,
    Weights,
    WeightsError,
    build_routing_decision_record,
    normalise_rule_version_hash,
    read_intent,
    score_candidates,
)
from remit.routing.scores import chain_of

WEIGHTS = Weights.shipped()


def _inputs(*candidates: Candidate, prompt: Any = "Hello", **changes: Any) -> ScoringInputs:
    fields: dict[str, Any] = {
        "task": "any", "operator_preference": "", "weights": WEIGHTS, **changes,
    }  # fmt: skip
    return ScoringInputs(prompt, candidates=candidates, **fields)


_candidates = st.builds(
    Candidate,
    model_id=st.text("abcdefgh", min_size=1, max_size=3),
    provider_id=st.just("p"),
    abilities=st.dictionaries(
        st.sampled_from(["general", "code", "mathematics"]), st.integers(0, 100)
    ),
    input_price=st.none() | st.integers(0, 10**12),
    output_price=st.none() | st.integers(0, 10**12),
    context_tokens=st.integers(0, 10**7),
    tokens_per_s=st.integers(0, 10**4),
    languages=st.lists(st.sampled_from(["en", "de", "ja"]), unique=True),
    tools=st.booleans(),
    images=st.booleans(),
    reliability=st.integers(0, 100),
)
_several = st.lists(_candidates, min_size=1, max_size=12, unique_by=lambda one: one.model_id)


@given(
    _several,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    st.sampled_from(["", "quality", "cost", "speed", "balanced"]),
    st.sampled_from(["any", "code", "any+tools", "any+images+tools"]),
    st.randoms(),
)
def test_every_candidate_has_a_score_whatever_their_order(
    candidates: list[Candidate], prompt: str, preference: str, task: str, random: Any
) -> None:
    asked: dict[str, Any] = {"prompt": prompt, "operator_preference": preference, "task": task}
    scoring = score_candidates(_inputs(*candidates, **asked))
    assert set(scoring.scores) == {one.model_id for one in candidates}
    shuffled = list(candidates)
    random.shuffle(shuffled)
    assert score_candidates(_inputs(*shuffled, **asked)) == scoring
    chain = chain_of(scoring)
    assert scoring.winner == chain[0]
    assert list(chain) == sorted(chain, key=lambda name: (-scoring.scores[name], name))
    for score in scoring.scores.values():
        assert math.isfinite(score)
        # At most 6 decimals, and the same number when read back from canonical JSON.
        assert round(score * 1_000_000) / 1_000_000 == score
        assert json.loads(rfc8785.dumps(score)) == score
    # As if nothing had been remembered of it: equal candidates, other objects.
    again = [Candidate.from_profile(one.model_id, one.profile()) for one in candidates]
    assert score_candidates(_inputs(*again, **asked)) == scoring


@pytest.mark.parametrize(
    ("prompt", "task", "language"),
    [
        ("Write a Python function that parses JSON", "code", "en"),
        ("What is 17 * 23 + 4? Calculate the total.", "mathematics", "en"),
        ("Translate this into German: good morning to you and the world", "translation", "en"),
        ("Hallo, wie ist das Wetter und was ist nicht gut?", "chat", "de"),
        ("Объясните это, пожалуйста", "chat", "ru"),
        ("東京の天気はどうですか", "chat", "ja"),
        ("Hello", "chat", ""),
        ("", "chat", ""),
    ],
)
def test_what_a_prompt_is_taken_for(prompt: str, task: str, language: str) -> None:
    intent = read_intent(prompt, WEIGHTS)
    assert (intent.task, intent.language) == (task, language)


# -- the rules -----------------------------------------------------------------------------


def test_the_version_is_the_hash_of_the_rules_canonical_json() -> None:
    digest = sha256_hex(rfc8785.dumps(dict(WEIGHTS.document)))
    assert WEIGHTS.rule_version_hash == f"rv:sha256:{digest}"


@pytest.mark.parametrize("number", [math.nan, math.inf, -1, 0.0000001, True, "1", None, 1e300])
def test_numbers_that_rules_do_not_take(number: Any) -> None:
    document = deepcopy(dict(WEIGHTS.document))
    document["features"] = {**document["features"], "ability": number}
    with pytest.raises(WeightsError, match=r"features\.ability"):
        Weights.from_document(document)


# -- The record and its hash, to the letter -------------------------------------------------------


FIELDS: dict[str, Any] = {
    "routing_mode": "single",
    "chosen_model_id": "b",
    "candidates_considered": ["b", "a"],
    "scores": {"a": 0.1, "b": 0.25},
    "fallback_attempts": 0,
    "rule_version_hash": "sha256:" + "0" * 64,
    "decision_hash": "f" * 64,
}


def test_normalising_adds_the_prefix_once() -> None:
    assert normalise_rule_version_hash("sha256:ab") == "rv:sha256:ab"
    assert normalise_rule_version_hash("rv:sha256:ab") == "rv:sha256:ab"
    for other in ("", "v7", "SHA256:ab"):
        assert normalise_rule_version_hash(other) == other
    for wrong in (None, 7):
        with pytest.raises(InvalidInputError):
            normalise_rule_version_hash(wrong)  # type: ignore[arg-type]


def test_the_record_has_exactly_eight_fields_and_is_frozen() -> None:
    record = build_routing_decision_record(**FIELDS)
    assert sorted(field.name for field in dataclasses.fields(record)) == sorted(["type", *FIELDS])
    assert set(record.to_dict()) == {"type", *FIELDS}
    assert len(record.to_dict()) == 8
    assert record.type == "routing_decision"
    assert record.rule_version_hash == "rv:sha256:" + "0" * 64
    assert record.candidates_considered == ("b", "a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.chosen_model_id = "a"  # type: ignore[misc]
    with pytest.raises(TypeError):
        record.scores["a"] = 9.0  # type: ignore[index]
    given = {"a": 1, "b": 2}
    other = build_routing_decision_record(**{**FIELDS, "scores": given})
    given["a"] = 9
    assert dict(other.scores) == {"a": 1.0, "b": 2.0}
    assert all(type(value) is float for value in other.scores.values())
    assert pickle.loads(pickle.dumps(record)) == record == copy.deepcopy(record)


def test_a_record_of_failure_names_no_model() -> None:
    record = build_routing_decision_record(
        **{**FIELDS, "routing_mode": "fail", "chosen_model_id": "", "fallback_attempts": 2}
    )
    assert record.chosen_model_id == ""
