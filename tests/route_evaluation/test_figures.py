"""Evaluating: sets worked out by hand, and what must hold on every set."""

from __future__ import annotations

import io
import itertools
import json
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.kernel.errors import RemitError
from remit.providers.prices import PriceTable
from remit.routing import Candidate
from remit.routing.scores import Scoring, ScoringInputs
from remit.routing.weights import Weights
from tools.route_evaluation import (
    EvaluationError,
    Interval,
    ModelResult,
    Point,
    Policy,
    Row,
    area_under,
    arena_score,
    cost_at,
    evaluate,
    hull_of,
    open_set,
    preference_policies,
    quality_at,
    read_candidates,
    read_routerbench_csv,
    read_rows,
    scoring_policy,
    sweep,
)
from tools.route_evaluation.interval import of_difference, wilson

_MODELS = ("big", "mid", "small")


def _row(name: str, task: str, **results: tuple[float, float]) -> Row:
    return Row(
        name, f"prompt {name}", {model: ModelResult(*one) for model, one in results.items()}, task
    )


# Quality and cost of each model on four prompts.
_ROWS = (
    _row("1", "a", small=(1, 1), mid=(1, 2), big=(1, 10)),
    _row("2", "a", small=(0, 1), mid=(1, 4), big=(1, 10)),
    _row("3", "b", small=(0, 3), mid=(0, 2), big=(1, 20)),
    _row("4", "b", small=(0.5, 3), mid=(0, 4), big=(0, 20)),
)


def _policy(name: str, *choices: str, family: str = "") -> Policy:
    by_prompt = dict(zip((row.prompt for row in _ROWS), choices, strict=True))
    return Policy(name, lambda prompt, *_: by_prompt[prompt], family)


def test_a_set_worked_out_by_hand() -> None:
    mine = _policy("mine", "small", "mid", "mid", "small")
    found = evaluate(_ROWS, [mine])

    assert found.rows == 4
    assert found.tasks == {"a": 2, "b": 2}
    assert [(one.name, one.quality, one.cost_usd) for one in found.models] == [
        ("big", 0.75, 15), ("mid", 0.5, 3), ("small", 0.375, 2),
    ]  # fmt: skip
    assert (found.best_single, found.cheapest, found.dearest) == ("big", "small", "big")
    # The oracle: small, mid (cheaper than big), big, small.
    assert found.oracle.quality == 0.875
    assert found.oracle.cost_usd == (1 + 4 + 20 + 3) / 4
    assert found.oracle.shares == {"big": 0.25, "mid": 0.25, "small": 0.5}
    assert found.oracle.gap_closed == 1
    assert found.random.quality == pytest.approx((0.75 + 0.5 + 0.375) / 3)
    assert found.random.cost_usd == pytest.approx(20 / 3)
    assert found.random.shares == pytest.approx(dict.fromkeys(_MODELS, 1 / 3))

    mine_found = found.policy("mine")
    assert (mine_found.quality, mine_found.cost_usd) == (0.625, 2.5)
    assert mine_found.shares == {"big": 0, "mid": 0.5, "small": 0.5}
    assert mine_found.gap_closed == pytest.approx((0.625 - 0.75) / (0.875 - 0.75))
    assert [(one.rows, one.quality, one.cost_usd) for one in mine_found.tasks.values()] == [
        (2, 1, 2.5), (2, 0.25, 2.5),
    ]  # fmt: skip
    # Against big, row by row: 0, 0, -1, +0.5.
    assert mine_found.against_best.quality == -0.125
    spread = ((0.125**2) * 2 + 0.875**2 + 0.625**2) / 3
    half = 1.959963984540054 * (spread / 4) ** 0.5
    interval = mine_found.against_best.interval
    assert (interval.low, interval.high) == pytest.approx((-0.125 - half, -0.125 + half))


def test_the_frontier_of_the_single_models_comes_first() -> None:
    sweep_of = [
        _policy("cheap", "small", "small", "small", "small", family="swept"),
        _policy("clever", "small", "mid", "big", "small", family="swept"),
    ]
    alone, swept = evaluate(_ROWS, [*sweep_of, _policy("apart", *["mid"] * 4)]).frontiers
    assert alone.family == "single models"
    assert alone.hull == (Point(2, 0.375), Point(3, 0.5), Point(15, 0.75))
    # (0.375+0.5)/2 over 1 and (0.5+0.75)/2 over 12, of 13.
    assert alone.aiq == pytest.approx((0.4375 + 0.625 * 12) / 13)
    assert swept.points == (Point(2, 0.375), Point(7, 0.875))
    # (0.375+0.875)/2 over 5, then 0.875 over 8.
    assert swept.aiq == pytest.approx((0.625 * 5 + 0.875 * 8) / 13)


def test_ties_go_to_the_cheaper_and_then_to_the_first_name() -> None:
    rows = [_row("1", "", b=(1, 2), a=(1, 2), c=(1, 3))]
    found = evaluate(rows, [])
    assert (found.best_single, found.cheapest, found.dearest) == ("a", "a", "c")
    assert found.oracle.shares == {"a": 1, "b": 0, "c": 0}
    assert found.oracle.gap_closed is None  # there is no way to go


def test_only_the_models_that_can_be_chosen_count() -> None:
    found = evaluate(_ROWS, [], models=["small", "mid"])
    assert [one.name for one in found.models] == ["mid", "small"]
    assert found.oracle.quality == 0.625


def test_what_cannot_be_evaluated() -> None:
    with pytest.raises(EvaluationError, match="no rows"):
        evaluate([], [])
    with pytest.raises(EvaluationError, match="no models"):
        evaluate(_ROWS, [], models=[])
    with pytest.raises(EvaluationError, match="1 has no result of the model huge"):
        evaluate(_ROWS, [], models=["small", "huge"])
    with pytest.raises(EvaluationError, match=r"'huge' for 1, which is none"):
        evaluate(_ROWS, [_policy("wild", *["huge"] * 4)])
    with pytest.raises(EvaluationError, match="Two policies are called 'same'"):
        evaluate(_ROWS, [_policy("same", *["mid"] * 4)] * 2)
    assert issubclass(EvaluationError, RemitError)
    assert issubclass(EvaluationError, ValueError)


def test_a_policy_sees_neither_quality_nor_cost() -> None:
    asked: list[tuple[str, str, tuple[str, ...]]] = []

    def choose(prompt: str, task: str, models: Sequence[str], row_id: str) -> str:
        asked.append((prompt, task, tuple(models)))
        return models[0]

    evaluate(_ROWS[:1], [Policy("spy", choose)])
    assert asked == [("prompt 1", "a", _MODELS)]


def test_the_score_of_routerarena() -> None:
    # C is 1/2 at the geometric mean of 200 and 0.0044 dollars for 1,000 prompts: with A = 3/4,
    # 1.1 * 0.75 * 0.5 / (0.075 + 0.5).
    assert arena_score(0.75, (200 * 0.0044) ** 0.5 / 1000) == pytest.approx(0.4125 / 0.575)
    # GPT-5 on RouterArena's own leaderboard: accuracy 73.96, $10.02 for 1,000, score 64.32.
    assert arena_score(0.7396, 0.01002) == pytest.approx(0.6432, abs=5e-5)
    assert arena_score(1, 0.0000044) == pytest.approx(1)
    assert arena_score(0, 0.01) == 0
    assert [arena_score(0.5, cost) for cost in (0.0, 0.2, 7.0)] == [None] * 3


def test_robustness_and_the_number_of_models_chosen() -> None:
    rows = [
        replace(_ROWS[0], paraphrases=("prompt 1, please", "say prompt 1")),
        replace(_ROWS[1], paraphrases=("prompt 2, please",)),
        _ROWS[2],
    ]
    by_words = Policy("words", lambda prompt, *_: "mid" if "say" in prompt else "small")
    always = Policy("always", lambda *_: "big")
    found = evaluate(rows, [by_words, always])
    assert found.policy("words").robustness == pytest.approx(2 / 3)
    assert found.policy("always").robustness == 1
    # What is chosen for a paraphrase counts for nothing else.
    assert found.policy("words").models_chosen == 1
    assert (found.oracle.models_chosen, found.random.models_chosen) == (3, 3)
    assert evaluate(_ROWS, [always]).policy("always").robustness is None
    assert found.oracle.robustness is None


def test_wilson_by_hand() -> None:
    # 8 right of 10: the textbook's 0.490 to 0.943.
    found = wilson(0.8, 10)
    assert (found.low, found.high) == pytest.approx((0.4902, 0.9433), abs=5e-5)
    assert wilson(0, 10).low == 0
    assert wilson(1, 10).high == 1
    assert of_difference(1, 1, 1) == Interval(-1, 1)
    assert of_difference(2, 2, 4).low == pytest.approx(0.5 - 1.959963984540054 / 12**0.5)


def test_the_hull_by_hand() -> None:
    points = [
        Point(1, 0.2), Point(2, 0.3), Point(3, 0.8), Point(4, 0.7), Point(5, 0.9), Point(1, 0.1),
    ]  # fmt: skip
    hull = hull_of(points)
    assert hull == (Point(1, 0.2), Point(3, 0.8), Point(5, 0.9))
    assert quality_at(hull, 0.5) == 0
    assert quality_at(hull, 2) == pytest.approx(0.5)
    assert quality_at(hull, 9) == 0.9
    # From 1 to 7: 0.5 * 2 + 0.85 * 2 + 0.9 * 2, of 6.
    assert area_under(hull, 1, 7) == pytest.approx(4.5 / 6)
    # From 0 on the first sixth has nothing.
    assert area_under(hull, 0, 6) == pytest.approx((1 + 1.7 + 0.9) / 6)
    assert area_under(hull, 2, 2) == pytest.approx(0.5)
    assert area_under((), 0, 1) == 0
    for point in hull:
        assert cost_at(hull, point.quality) == pytest.approx(point.cost_usd)
    assert cost_at(hull, 0) == hull[0].cost_usd
    assert cost_at(hull, (hull[0].quality + hull[1].quality) / 2) == pytest.approx(
        (hull[0].cost_usd + hull[1].cost_usd) / 2
    )
    assert cost_at(hull, hull[-1].quality + 0.01) is None
    assert hull_of([]) == ()


_shares = st.floats(0, 1, allow_nan=False, width=32)
_results = st.builds(ModelResult, _shares, st.floats(0, 10, width=32))


@st.composite
def _sets(draw: st.DrawFn) -> tuple[list[Row], list[str]]:
    models = draw(st.lists(st.sampled_from("abcde"), min_size=1, max_size=5, unique=True))
    count = draw(st.integers(1, 12))
    rows = [
        Row(str(n), f"prompt {n}", {model: draw(_results) for model in models}, draw(
            st.sampled_from(["", "x", "y"])))
        for n in range(count)
    ]  # fmt: skip
    return rows, [draw(st.sampled_from(models)) for _ in rows]


@given(_sets())
def test_what_holds_on_every_set(case: tuple[list[Row], list[str]]) -> None:
    rows, choices = case
    by_prompt = {row.prompt: choice for row, choice in zip(rows, choices, strict=True)}
    mine = Policy("mine", lambda prompt, *_: by_prompt[prompt], "family")
    found = evaluate(rows, [mine])
    worst = sum(min(one.quality for one in row.results.values()) for row in rows) / len(rows)
    everyone = [*found.models, found.random, found.oracle, *found.policies]
    for one in everyone:
        assert one.quality <= found.oracle.quality + 1e-12
        assert one.quality >= worst - 1e-12
        assert 0 <= one.interval.low <= one.quality <= one.interval.high <= 1
        assert sum(one.shares.values()) == pytest.approx(1)
        assert one.against_best.interval.low <= one.against_best.interval.high
        assert sum(of.quality * of.rows for of in one.tasks.values()) == pytest.approx(
            one.quality * found.rows
        )
    assert max(one.quality for one in found.models) == found.model(found.best_single).quality
    mean = sum(one.quality for one in found.models) / len(found.models)
    assert found.random.quality == pytest.approx(mean)
    assert found == evaluate(rows, [mine])


_points = st.lists(
    st.builds(Point, st.integers(0, 50).map(float), st.integers(0, 16).map(lambda n: n / 16)),
    min_size=1, max_size=15,
)  # fmt: skip


@given(_points)
def test_a_hull_rises_bends_down_and_lies_over_its_points(points: list[Point]) -> None:
    hull = hull_of(points)
    assert set(hull) <= set(points)
    slopes = [
        (right.quality - left.quality) / (right.cost_usd - left.cost_usd)
        for left, right in itertools.pairwise(hull)
    ]
    assert all(slope > 0 for slope in slopes)
    assert slopes == sorted(slopes, reverse=True)
    for point in points:
        assert quality_at(hull, point.cost_usd) >= point.quality - 1e-12
    assert hull_of(hull) == hull
    low, high = hull[0].cost_usd, max(point.cost_usd for point in points)
    assert hull[0].quality - 1e-12 <= area_under(hull, low, high) <= hull[-1].quality + 1e-12


@given(_points, st.builds(Point, st.integers(0, 50).map(float), st.just(0.5)))
def test_another_point_never_makes_a_frontier_worse(points: list[Point], more: Point) -> None:
    before, after = hull_of(points), hull_of([*points, more])
    assert area_under(after, 0, 50) >= area_under(before, 0, 50) - 1e-12


# Reading sets.


def _line(**changes: Any) -> bytes:
    document = {
        "id": "1", "prompt": "p", "task": "t",
        "results": {"m": {"quality": 0.5, "cost_usd": 0.001}}, **changes,
    }  # fmt: skip
    return json.dumps(document).encode() + b"\n"


def _lines(*lines: bytes) -> list[Row]:
    return list(read_rows(io.BytesIO(b"".join(lines)), name="s"))


def test_json_lines_are_read() -> None:
    rows = _lines(_line(), b"\n", _line(id="2", more=1, results={"m": {"quality": True,
        "cost_usd": 0, "answer": "x"}}))  # fmt: skip
    assert rows[0] == Row("1", "p", {"m": ModelResult(0.5, 0.001)}, "t", "s, line 1")
    assert rows[1].results["m"] == ModelResult(1, 0)
    assert rows[1].place == "s, line 3"


def _result(**changes: Any) -> dict[str, Any]:
    return {"results": {"m": {"quality": 1, "cost_usd": 1, **changes}}}


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (b"{\n", "s, line 2: it is not JSON"),
        (b'{"id": "\xff"}\n', "s, line 2: it is not JSON"),
        (b'{"results": {"m": {"quality": NaN}}}\n', "s, line 2: it is not JSON"),
        (b"[]\n", "s, line 2: it is no object"),
        (_line(id="2", results={}), "s, line 2: results is missing or empty"),
        (_line(id="2", results={"m": 1}), r"s, line 2: results\.m is no object"),
        (_line(id=2), "s, line 2: id is missing or no text"),
        (_line(id="2", prompt=""), "s, line 2: prompt is missing or no text"),
        (_line(id="2", task=None), "s, line 2: task is missing or no text"),
        (_line(id="2", **_result(quality=1.01)), r"s, line 2: quality of m is 1\.01"),
        (_line(id="2", **_result(quality=-0.1)), r"s, line 2: quality of m is -0\.1"),
        (_line(id="2", **_result(quality="1")), "s, line 2: quality of m is '1', no finite"),
        (_line(id="2", **_result(cost_usd=-1)), "s, line 2: cost_usd of m is -1"),
        (_line(id="2", **_result(cost_usd=None)), "s, line 2: cost_usd of m is None"),
        (_line(id="2", **_result(cost_usd=True)), "s, line 2: cost_usd of m is True"),
        (_line(), "s, line 2: the id '1' stands twice"),
    ],
)
def test_a_wrong_line_is_named(second: bytes, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        _lines(_line(), second)


def test_a_model_that_a_later_row_lacks_is_named_with_its_line() -> None:
    other = _line(id="2", results={"n": {"quality": 1, "cost_usd": 1}})
    with pytest.raises(EvaluationError, match="s, line 2 has no result of the model m"):
        evaluate(read_rows(io.BytesIO(_line() + other), name="s"), [])


def test_rows_are_read_one_at_a_time() -> None:
    stream = io.BytesIO(_line() + b"not JSON\n")
    assert next(read_rows(stream)).id == "1"


def test_one_task_alone() -> None:
    stream = io.BytesIO(_line() + _line(id="2", task="u"))
    assert [row.id for row in open_set(stream, "jsonl", name="s", task="u")] == ["2"]
    with pytest.raises(EvaluationError, match="no format 'xml'"):
        open_set(stream, "xml", name="s")


_TABLE = (
    "sample_id,prompt,eval_name,a,b/c,a|model_response,b/c|model_response,"
    "a|total_cost,b/c|total_cost,oracle_model_to_route_to\n"
    'q.1,"two\nlines, here",gsm8k,1.0,False,x,y,0.001,2e-05,a\n'
    "q.2,plain,mmlu,0.25,True,x,y,0.002,0,b/c\n"
)


def _table(text: str) -> list[Row]:
    stream = io.BytesIO(text.encode())
    rows = list(read_routerbench_csv(stream, name="t"))
    assert not stream.closed
    return rows


def test_routerbench_as_csv() -> None:
    first, second = _table(_TABLE)
    results = {"a": ModelResult(1, 0.001), "b/c": ModelResult(0, 2e-05)}
    assert first == Row("q.1", "two\nlines, here", results, "gsm8k", "t, line 3")
    assert second.results == {"a": ModelResult(0.25, 0.002), "b/c": ModelResult(1, 0)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t: there is no column 'sample_id'"),
        ("sample_id,prompt\n", "no column that ends in"),
        ("sample_id,prompt,a|total_cost\n", "there is no column 'a'"),
        (_TABLE.replace("0.25", "nan"), "t, line 4: quality of a is nan"),
        (_TABLE.replace("0.25", "good"), "t, line 4: quality of a is 'good'"),
        (_TABLE.replace("0.002,0,", "0.002\n"), "t, line 4: cost_usd of b/c is None"),
        (_TABLE.replace("q.2", "q.1"), "t, line 4: the id 'q.1' stands twice"),
        (_TABLE.replace("plain", '"pl"ain'), "t, after line 3: it is no CSV"),
    ],
)
def test_a_wrong_table_is_named(text: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        _table(text)


def test_a_table_that_is_not_utf8() -> None:
    with pytest.raises(EvaluationError, match="no CSV in UTF-8"):
        list(read_routerbench_csv(io.BytesIO(_TABLE.encode("utf-16"))))


# Candidates and our own scoring.


def _file(folder: Path, text: str) -> Path:
    path = folder / "candidates.toml"
    path.write_text(text, "utf-8")
    return path


def test_a_candidates_file(tmp_path: Path) -> None:
    text = """
    [ledger]
    checkpoint_every = 5
    [routing.models."b/c"]
    provider = "p"
    input_usd_per_million = 0.15
    output_usd_per_million = 0.6
    abilities = { general = 60, code = 70 }
    languages = ["de"]
    [routing.models.gpt-4o-mini]
    provider = "openai"
    input_usd_per_million = 999.0
    output_usd_per_million = 999.0
    [routing.models.a]
    provider = "q"
    """
    first, second, third = read_candidates(_file(tmp_path, text))
    assert first == Candidate("a", "q")
    assert (second.model_id, second.provider_id) == ("b/c", "p")
    assert (second.input_price, second.output_price) == (150_000_000, 600_000_000)
    assert second.abilities == {"general": 60, "code": 70}
    listed = PriceTable.shipped().find("openai", "gpt-4o-mini")
    assert listed is not None
    assert third.input_price == listed.rates.input  # what is billed goes before what is stated
    assert third.context_tokens == listed.context_window


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("routing = 1", "states no model"),
        ("[routing.models]", "states no model"),
        ("[other]", "states no model"),
        ("x", "not TOML"),
        ("[routing.models]\na = 1", r"routing\.models\.a"),
        ("[routing.models.a]", r"routing\.models\.a\.provider"),
        ("[routing.models.a]\nprovider = 'p'\nprice = 1", r"routing\.models\.a\.price"),
        ("[routing.models.a]\nprovider = 'p'\ninput_usd_per_million = -1.0", "input_usd"),
        ("[routing.models.a]\nprovider = 'p'\nabilities = { code = 101 }", r"abilities\.code"),
        ("[routing.models.a]\nprovider = 'p'\nlanguages = ['German']", r"languages\.0"),
    ],
)
def test_a_wrong_candidates_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        read_candidates(_file(tmp_path, text))


def test_a_candidates_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="cannot be read"):
        read_candidates(tmp_path / "none.toml")


_PAIR = (
    Candidate("dear", "p", {"general": 90, "poetry": 20}, 10**10, 10**10),
    Candidate("cheap", "p", {"general": 40, "poetry": 80}, 10**7, 10**7),
)


def _chosen(policy: Policy, task: str = "") -> str:
    return policy.choose("Good morning.", task, ("cheap", "dear"), "1")


def test_our_scoring_as_a_policy() -> None:
    weights = Weights.shipped()
    assert _chosen(scoring_policy(_PAIR, weights, preference="quality")) == "dear"
    assert _chosen(scoring_policy(_PAIR, weights, preference="quality"), "poetry") == "dear"
    given_task = scoring_policy(_PAIR, weights, preference="quality", given_task=True)
    assert _chosen(given_task, "poetry") == "cheap"
    names = {one.name for one in preference_policies(_PAIR, weights)}
    assert names == {f"scoring, {name}" for name in weights.preferences}


def test_another_scoring_can_stand_in() -> None:
    def last(inputs: ScoringInputs) -> Scoring:
        return Scoring(inputs.candidates[-1].model_id, {})

    policy = scoring_policy(_PAIR, Weights.shipped(), scoring_fn=last)
    assert _chosen(policy) == "cheap"


def test_a_sweep_goes_from_quality_to_price() -> None:
    weights = Weights.shipped()
    ends = sweep(_PAIR, weights, family="f", ratios=[0, 100])
    assert [_chosen(one) for one in ends] == ["dear", "cheap"]
    assert [one.name for one in ends] == ["f 0", "f 100"]
    assert {one.family for one in ends} == {"f"}
    swept = sweep(_PAIR, weights)
    assert len({one.name for one in swept}) == len(swept) > 2


def test_memory_does_not_grow_with_the_prompts() -> None:
    def rows() -> Iterator[Row]:
        for number in range(3_000):
            yield Row(str(number), "x" * 10_000 + str(number), {"m": ModelResult(1, 1)})

    tracemalloc.start()
    try:
        assert evaluate(rows(), []).rows == 3_000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000  # all prompts are 30 MB
    finally:
        tracemalloc.stop()
