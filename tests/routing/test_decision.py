"""The record and its hash, to the letter."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import pickle
from typing import Any

import pytest
import rfc8785
from hypothesis import given, strategies as st

from remit.kernel.errors import InvalidInputError
from remit.routing import (
    build_routing_decision_record,
    compute_decision_hash,
    normalise_rule_version_hash,
)

INPUTS: dict[str, Any] = {
    "prompt": "Grüße, 世界 🌍",
    "context": {"task": "any", "operator_preference": "", "candidates": ["a", "b"],
                "weights": {"features": {"ability": 0.3, "cost": 1}}},
    "rule_version_hash": "rv:sha256:unavailable",
    "candidates_considered": ["b", "a"],
}  # fmt: skip
FIELDS: dict[str, Any] = {
    "routing_mode": "single",
    "chosen_model_id": "b",
    "candidates_considered": ["b", "a"],
    "scores": {"a": 0.1, "b": 0.25},
    "fallback_attempts": 0,
    "rule_version_hash": "sha256:" + "0" * 64,
    "decision_hash": "f" * 64,
}


def test_the_hash_is_of_canonical_json_followed_by_the_model() -> None:
    expected = hashlib.sha256(rfc8785.dumps(INPUTS) + b"b").hexdigest()
    assert compute_decision_hash(INPUTS, "b") == expected
    reordered = dict(reversed(INPUTS.items()))
    assert compute_decision_hash(reordered, "b") == expected


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text("abc", min_size=1))
def test_any_change_changes_the_hash(prompt: str, model: str) -> None:
    whole = compute_decision_hash({**INPUTS, "prompt": prompt}, model)
    assert whole != compute_decision_hash({**INPUTS, "prompt": prompt + "."}, model)
    assert whole != compute_decision_hash({**INPUTS, "prompt": prompt}, model + "d")


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
