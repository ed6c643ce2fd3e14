"""How an ensemble joins the answers of its models: by vote, and field by field."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from remit.routing.ensemble import join_by_fields, join_by_vote


def test_the_vote_goes_to_what_most_say_and_ties_to_the_best_scored() -> None:
    assert join_by_vote(["Paris", "london", " LONDON \n"]) == 1
    assert join_by_vote(["a", "b"]) == 0
    assert join_by_vote(["a", "b", "c", "c", "b"]) == 1
    assert join_by_vote(["x"]) == 0


@given(st.lists(st.sampled_from(["a", "b", "c", "A "]), min_size=1, max_size=9))
def test_the_vote_is_for_a_largest_group(answers: list[str]) -> None:
    place = join_by_vote(answers)
    plain = [answer.strip().lower() for answer in answers]
    assert plain.count(plain[place]) == max(map(plain.count, plain))
    assert plain.index(plain[place]) == place


def test_fields_are_joined_one_by_one() -> None:
    answers = [
        '{"city": "Rome", "people": 3, "extra": true}',
        '```json\n{"city": "Paris", "people": 2}\n```',
        '{"people": 2, "city": "Paris", "list": [1, {"a": 1}]}',
        "nonsense",
    ]
    found = join_by_fields(answers)
    assert found is not None
    assert (found[0], json.loads(found[1])) == (1, {"city": "Paris", "people": 2})
    assert join_by_fields(["no", "[1]", '{"a": NaN}']) is None
