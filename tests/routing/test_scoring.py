"""Scores: pure, exact, the same however the candidates are given."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from typing import Any

import pytest
import rfc8785
from hypothesis import given, strategies as st

from remit.kernel.canonical import sha256_hex
from remit.routing import (
    Candidate,
    ScoringInputs,
    Weights,
    WeightsError,
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


def test_a_score_by_hand() -> None:
    one = Candidate(
        "m", "p", {"general": 60, "code": 80}, 2_000_000_000, 6_000_000_000, 8000, 80, ("en",),
        reliability=90,
    )  # fmt: skip
    # code 80 %; reliability 90 %; price 2 * 0.75 + 6 * 0.25 = 3 USD: half; 80 tokens/s: half; no
    # language shown.
    assert score_candidates(_inputs(one, prompt="x", task="code")).scores == {
        "m": 0.8 + 0.5 * 0.9 + 0.3 * 0.5 + 0.1 * 0.5 + 0.1
    }


def test_an_unknown_price_is_never_cheap() -> None:
    free = Candidate("free", "p", input_price=0, output_price=0)
    dear = Candidate("dear", "p", input_price=10**12, output_price=10**12)
    unknown = Candidate("unknown", "p")
    scores = score_candidates(_inputs(free, dear, unknown, operator_preference="cost")).scores
    assert scores["free"] > scores["dear"] > scores["unknown"]


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
