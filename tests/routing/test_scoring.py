"""Scores: pure, exact, the same however the candidates are given."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from remit.kernel.canonical import sha256_hex
from remit.kernel.errors import InvalidInputError, RemitError
from remit.routing import (
    RULES_UNAVAILABLE,
    Candidate,
    ScoringInputs,
    Weights,
    WeightsError,
    load_rules,
    read_intent,
    score_candidates,
)
from remit.routing.scores import chain_of, task_of

WEIGHTS = Weights.shipped()
PLAIN = Candidate("m", "p", {"general": 50})


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


def test_equal_scores_go_by_name() -> None:
    chain = chain_of(score_candidates(_inputs(*(Candidate(name, "p") for name in ("b", "c", "a")))))
    assert chain == ("a", "b", "c")


def test_one_candidate_wins_and_none_is_an_error() -> None:
    assert score_candidates(_inputs(PLAIN)).winner == "m"
    with pytest.raises(InvalidInputError, match=r"[Nn]o candidates"):
        score_candidates(_inputs())
    with pytest.raises(InvalidInputError, match="same name"):
        score_candidates(_inputs(PLAIN, Candidate("m", "other")))


def test_an_unknown_price_is_never_cheap() -> None:
    free = Candidate("free", "p", input_price=0, output_price=0)
    dear = Candidate("dear", "p", input_price=10**12, output_price=10**12)
    unknown = Candidate("unknown", "p")
    scores = score_candidates(_inputs(free, dear, unknown, operator_preference="cost")).scores
    assert scores["free"] > scores["dear"] > scores["unknown"]


def test_who_cannot_do_it_comes_last() -> None:
    small = Candidate("small", "p", {"general": 100}, context_tokens=100)
    blind = Candidate("blind", "p", {"general": 100})
    able = Candidate("able", "p", {"general": 1}, images=True)
    told = _inputs(small, blind, able, prompt="word " * 1000, task=task_of("", ["images"]))
    assert chain_of(score_candidates(told))[0] == "able"


def test_an_unknown_preference_is_an_error_that_names_the_known() -> None:
    with pytest.raises(InvalidInputError, match="quality"):
        score_candidates(_inputs(PLAIN, operator_preference="best"))


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


def test_of_a_conversation_the_last_user_message_tells_and_all_of_it_counts() -> None:
    messages = [
        {"role": "user", "content": "Write a Python function that parses JSON"},
        {"role": "assistant", "content": "def f(): ..." * 100},
        {"role": "user", "content": [{"type": "text", "text": "Thanks!"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "x"}]},
        {"role": "user", "content": [{"type": "tool_result", "content": "o" * 400}]},
    ]  # fmt: skip
    intent = read_intent(messages, WEIGHTS)
    assert intent.task == "chat"
    assert 400 < intent.tokens < 600


@pytest.mark.parametrize(
    "changes",
    [
        {"abilities": {"code": 101}}, {"abilities": {"code": 0.5}}, {"abilities": {"Code!": 1}},
        {"reliability": -1}, {"input_price": -1}, {"input_price": math.nan}, {"tokens_per_s": True},
        {"languages": ("english",)}, {"model_id": ""},
    ],
)  # fmt: skip
def test_candidates_that_are_none(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Candidate(**{"model_id": "m", "provider_id": "p", **changes})


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


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "nonsense", '{"features": NaN}', '{"intent": 1, "intent": 2}', "[" * 9999],
)  # fmt: skip
def test_rule_files_that_are_none(text: str) -> None:
    with pytest.raises(WeightsError):
        Weights.from_text(text, "rules")


def test_unknown_keys_are_named() -> None:
    with pytest.raises(WeightsError, match="featurs"):
        Weights.from_document({**WEIGHTS.document, "featurs": {}})


def test_rules_that_cannot_be_read_leave_the_defaults_in_force(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rules = load_rules(tmp_path / "missing.json")
    assert rules.version_hash == RULES_UNAVAILABLE == "rv:sha256:unavailable"
    assert rules.weights is WEIGHTS
    assert "missing.json" in caplog.text
    document = deepcopy(dict(WEIGHTS.document))
    document["features"]["cost"] = math.nan
    (tmp_path / "nan.json").write_text(json.dumps(document))
    assert load_rules(tmp_path / "nan.json").version_hash == RULES_UNAVAILABLE
    document["features"]["cost"] = 0.5
    (tmp_path / "other.json").write_text(json.dumps(document))
    other = load_rules(tmp_path / "other.json")
    assert other.version_hash.startswith("rv:sha256:")
    assert other.version_hash not in (RULES_UNAVAILABLE, WEIGHTS.rule_version_hash)


def test_errors_of_rules_are_remits_and_pythons() -> None:
    assert issubclass(WeightsError, RemitError)
    assert issubclass(WeightsError, ValueError)
