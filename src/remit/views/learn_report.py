"""The learning report as a self-contained HTML page with pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from remit.views.page import environment, style_hash, style_sheet

_VERDICTS = {
    True: ("good", "as predicted"),
    False: ("bad", "not as predicted"),
    None: ("wait", "not enough data yet"),
}
_SHARES = (
    ("success", "Valid answers"),
    ("repair", "Q1: the user corrects the answer or asks again"),
    ("disagreement", "Q2: the same question gets different answers"),
    ("unstated", "Q3: the contract requires something that the prompt does not state"),
)
_CAUSES = {
    "question": "the question was the cause",
    "model": "the model was the cause",
    "both": "either change helps",
    "neither": "neither change helps",
    "undecided": "not enough exchanges to decide",
}
_STEPS = (1, 2, 5)  # times a power of ten: where an axis may end


def learning_page(report: Mapping[str, Any]) -> str:
    """Return a learning report as a single HTML page with pictures and its style sheet.

    The page has no script and loads nothing. All text from the ledger is escaped, with invisible
    characters written out.

    Args:
        report: the JSON data of :func:`remit.learning.meta.read_report`.

    Raises:
        KeyError: the report lacks a key.
    """
    style = style_sheet("page.css", "learning.css")
    shown = {**learning_shown(report), "style": style, "style_hash": style_hash(style)}
    return environment().get_template("learning.html.j2").render(shown)


def learning_shown(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that ``learned.html.j2`` shows of a report.

    Keys: ``report``, ``sums`` (pairs of label and number), ``pictures`` (as of
    :func:`pictures_of`), ``questions`` (the report's, each with ``rows`` of shares) and ``causes``
    (the report's attributions, each with ``bars`` and a ``verdict`` in words).

    Args:
        report: the report as JSON data, which is not changed.

    Raises:
        KeyError: the report lacks a key.
    """
    calibration = report["calibration"]
    sums = {"policy epoch": report["policy_epoch"]}
    sums |= {f"proposals {name.replace('_', ' ')}": n for name, n in report["proposals"].items()}
    sums |= {
        "predictions confirmed": calibration["held"],
        "predictions missed": calibration["missed"],
        "predictions still open": calibration["open"],
    }
    decided = {one["proposal_id"]: one for one in report["adopted"]}
    return {
        "report": report,
        "sums": sums.items(),
        "pictures": list(pictures_of(report["effects"], decided)),
        "questions": [_question(one) for one in report["questions"]],
        "causes": [_cause(one) for one in report["attributions"]],
    }


def pictures_of(
    effects: Iterable[Mapping[str, Any]], decided: Mapping[str, Mapping[str, Any]]
) -> Iterable[dict[str, Any]]:
    """Yield a picture for each metric with effects: reward, then cost.

    A metric without effects has no picture. A picture has ``title``, ``rows`` (an effect each, with
    its bars and a verdict) and ``ticks``, three labels of the axis that its rows share, with 0 in
    the middle.

    Args:
        effects: predicted and realised effects of proposals.
        decided: adopted proposals, keyed by id; a row's ``decided`` is empty for a missing one.

    Raises:
        KeyError: an effect lacks a key; raised while iterating.
    """
    found = list(effects)
    for metric, title in (("reward", "Reward, 0 to 1"), ("cost", "US dollars saved per call")):
        of = [one for one in found if one["metric"] == metric]
        ends = [
            abs(known[end])
            for one in of
            for known in (one["predicted"], one["realised"])
            if known
            for end in ("low", "high")
        ]
        if not of:
            continue
        reach = _axis_end(max(ends, default=1.0))
        rows = [_effect(one, reach, metric, decided.get(one["proposal_id"], {})) for one in of]
        ticks = [_amount(value, metric) for value in (-reach, 0.0, reach)]
        yield {"title": title, "rows": rows, "ticks": ticks}


def _effect(
    one: Mapping[str, Any], reach: float, metric: str, decided: Mapping[str, Any]
) -> dict[str, Any]:
    bars = [
        {"name": name, "words": _interval(known, metric), **_place(known, -reach, reach)}
        for name, known in (("predicted", one["predicted"]), ("came", one["realised"]))
        if known
    ]
    tone, verdict = ("bad", "made things worse") if one["harmful"] else _VERDICTS[one["held"]]
    return {**one, "bars": bars, "tone": tone, "verdict": verdict, "decided": decided}


def _question(one: Mapping[str, Any]) -> dict[str, Any]:
    rows = [
        {"label": label, "words": _share(one[name]), **_place(one[name], 0, 1)}
        for name, label in _SHARES
    ]
    return {**one, "rows": rows}


def _cause(one: Mapping[str, Any]) -> dict[str, Any]:
    bars = [
        {"name": name, "words": _interval(one[side], "reward"), **_place(one[side], -1, 1)}
        for name, side in (("another question", "question"), ("another model", "model"))
    ]
    return {**one, "bars": bars, "verdict": _CAUSES[one["cause"]]}


def _place(known: Mapping[str, Any], low: float, high: float) -> dict[str, Any]:
    """Return the position of an interval on an axis in percent; empty without samples."""
    if not known["samples"]:
        return {}
    places = {
        name: min(100.0, max(0.0, 100 * (known[end] - low) / (high - low)))
        for name, end in (("left", "low"), ("dot", "value"), ("right", "high"))
    }
    return {name: f"{place:.2f}%" for name, place in places.items()}


def _axis_end(value: float) -> float:
    """The smallest round number that is no smaller."""
    for power in range(-9, 7):
        for step in _STEPS:
            if step * 10.0**power >= value:
                return step * 10.0**power
    return value


def _amount(value: float, metric: str) -> str:
    sign = "+" if value > 0 else "\u2212" if value < 0 else ""
    if metric == "cost":
        return f"{sign}${abs(value):.3g}"
    return f"{sign}{abs(value):.3g}"


def _interval(known: Mapping[str, Any], metric: str) -> str:
    value, low, high = (_amount(known[name], metric) for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def _share(known: Mapping[str, Any]) -> str:
    if not known["samples"]:
        return "no samples yet"
    value, low, high = (f"{known[name]:.0%}" for name in ("value", "low", "high"))
    return f"{value} ({low} to {high}) of {known['samples']:,}"
