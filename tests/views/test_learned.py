"""The learning report as a page: what it shows, where, and that the record is no markup."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

from remit.views import learning_page
from tests.views.test_page import HOSTILE, MARK, Page


def estimate(value: float, low: float, high: float, samples: int = 400) -> dict[str, Any]:
    return {"value": value, "low": low, "high": high, "samples": samples}


def effect(**more: Any) -> dict[str, Any]:
    return {
        "proposal_id": "PRP-1f2e", "kind": "prompt", "target": "PRC-A-001", "state": "adopted",
        "metric": "reward", "epoch": 1, "predicted": estimate(0.1, 0.05, 0.15), "realised": None,
        "held": None, "harmful": False, **more,
    }  # fmt: skip


def question(**more: Any) -> dict[str, Any]:
    shares = dict.fromkeys(("success", "repair", "disagreement", "unstated"), estimate(0, 0, 1, 0))
    return {
        "contract_id": "PRC-A-001", "contract_version": "1.0.0", "prompt_pack_id": "", **shares,
        "exchanges": 4, "missing": [], "wrong": False, **more,
    }  # fmt: skip


def cause(**more: Any) -> dict[str, Any]:
    return {
        "contract_id": "PRC-A-001", "contract_version": "1.0.0", "cause": "question",
        "question": estimate(0.8, 0.6, 1), "model": estimate(0, -0.2, 0.2), "exchanges": 90, **more,
    }  # fmt: skip


def report(**more: Any) -> dict[str, Any]:
    calibration = {"held": 1, "missed": 0, "open": 0}
    return {
        "policy_epoch": 1, "proposals": {"open": 0}, "adopted": [], "effects": [], "questions": [],
        "calibration": calibration, "attributions": [], "uncalibrated": [], "complete": True,
        **more,
    }  # fmt: skip


def test_intervals_stand_where_they_are() -> None:
    came = estimate(-0.4, -0.5, -0.3)
    worse = effect(realised=came, held=False, harmful=True)
    dear = effect(metric="cost", kind="head", realised=estimate(0.002, 0.001, 0.003), held=True)
    asked = question(disagreement=estimate(0.4, 0.25, 0.5), wrong=True)
    known = report(effects=[worse, dear], questions=[asked], attributions=[cause()])
    page = Page(learning_page(known))
    lines = [attrs for tag, attrs in page.elements if tag == "line"]
    placed = [(one["class"], one["x1"], one["x2"]) for one in lines]
    assert ("predicted", "55.00%", "65.00%") in placed  # the axis goes from -0.5 to 0.5
    assert ("came", "0.00%", "20.00%") in placed
    assert ("share", "25.00%", "50.00%") in placed
    assert ("another question", "80.00%", "100.00%") in placed
    assert ("another model", "40.00%", "60.00%") in placed
    assert len([one for one in placed if one[0] == "share"]) == 1  # no line without samples
    words = page.words()
    for part in (
        "made things worse", "as predicted", "US dollars saved per call", "+0.1 (+0.05 to +0.15)",
        "+$0.002 (+$0.001 to +$0.003)", "40% (25% to 50%) of 400", "no samples yet",
        "the question was the cause", "The answer looked right, the question was wrong.",
        "remit learn rollback PRP-1f2e",
    ):  # fmt: skip
        assert part in words, part
    digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    (policy,) = (a["content"] for _, a in page.elements if a.get("http-equiv"))
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def test_nothing_of_the_record_is_markup() -> None:
    decided = {"proposal_id": HOSTILE, "decided_by": HOSTILE, "decision_reason": HOSTILE}
    known = effect(proposal_id=HOSTILE, kind=HOSTILE, target=HOSTILE)
    missing = [{"kind": HOSTILE, "name": HOSTILE, "demanded_by": HOSTILE, "answers": 1}]
    asked = question(contract_id=HOSTILE, contract_version=HOSTILE, prompt_pack_id=HOSTILE,
                     missing=missing)  # fmt: skip
    judge = {"judge": HOSTILE, "contract_id": HOSTILE, "labelled": 1}
    caused = cause(contract_id=HOSTILE, contract_version=HOSTILE)
    text = learning_page(
        report(
            adopted=[decided], effects=[known], questions=[asked], attributions=[caused],
            uncalibrated=[judge],
        )
    )  # fmt: skip
    page = Page(text)
    assert not {tag for tag, _ in page.elements} & {"script", "img", "iframe", "form", "base"}
    assert not {name for _, attrs in page.elements for name in attrs if name.startswith("on")}
    assert text.count(MARK) == 15
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", text)


def test_before_anything_was_learned() -> None:
    words = Page(learning_page(report())).words()
    assert "No proposal has been adopted yet." in words
    assert "No recorded exchange uses a contract of this root." in words
