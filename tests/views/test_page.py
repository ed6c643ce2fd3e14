"""Journeys and the learning report as pages: parsed, and opened in a browser where there is one."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from remit.contracts import ContractLoader
from remit.kernel.installed_files import InstalledFiles
from remit.kernel.message_text import dollars
from remit.ledger import EVENTS, LedgerClient, LedgerEntry
from remit.runtime import Runtime
from remit.server import refusals
from remit.views import (
    journey_page,
    learning_page,
    prompt_journey,
    wording,
)
from tests.support.browser import Browser, needs_browser
from tests.support.roots import new_root
from tests.views.story import SESSION, Story

HOSTILE = "</script></style></pre><img src=x onerror=alert(1)>\"' onload='x' &lt;\u202e\x00\x1b"
MARK = "&lt;img src=x onerror=alert(1)&gt;"
VOID = {"meta", "link", "img", "br", "input", "base"}


class Page(HTMLParser):
    """Elements with their attributes and text; fails where they are not nested."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.style = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.text.append(data)

    def having(self, name: str) -> list[dict[str, str | None]]:
        return [attrs for _, attrs in self.elements if name in str(attrs.get("class")).split()]

    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def _hostile(client: LedgerClient) -> str:
    """A session whose every field is hostile; gives its id."""
    story = Story(client, HOSTILE.replace("\x00", ""))
    tail = HOSTILE.replace("\x00", "")
    story.write("SESSION_START")
    order = story.plan(
        1, HOSTILE, step=HOSTILE, wo_type=HOSTILE, depends_on=[HOSTILE], attempt=HOSTILE,
        parent_wo_id=HOSTILE, acceptance_criteria={HOSTILE: HOSTILE}, tier_target=HOSTILE,
        constraints={"prompt_contract_id": HOSTILE},
        attention={"left_out": [dict.fromkeys(("kind", "ref", "why", "score"), HOSTILE), HOSTILE]},
    )  # fmt: skip
    story.begin(order, resumed=True)
    told: dict[str, Any] = dict.fromkeys(
        ("model_id", "provider_id", "requested_model_id", "finish_reason", "cost_certainty",
         "price_version", "decision_id", "key_id", "contract_id"), tail,
    )  # fmt: skip
    failed = story.fail(order, error_code=HOSTILE, **told)
    blocks = [
        {"type": "text", "text": HOSTILE}, {"type": "tool_use", "name": HOSTILE, "input": HOSTILE},
        {"type": "tool_result", "content": [{"type": HOSTILE, HOSTILE: HOSTILE}]}, HOSTILE,
    ]  # fmt: skip
    story.ask(order, prompt=[{"role": HOSTILE, "content": HOSTILE, HOSTILE: 1}], retry_of=failed,
              response=HOSTILE, content_blocks=blocks, tools=[{HOSTILE: HOSTILE}],
              parameters={HOSTILE: HOSTILE}, **told)  # fmt: skip
    story.fail(order, prompt=HOSTILE, error_message=HOSTILE, outcome=tail)
    story.intend(order, HOSTILE, tail, **{HOSTILE: HOSTILE})
    story.used(order, HOSTILE + "2", tail, status=HOSTILE, result={HOSTILE: [HOSTILE]},
               tool_error=HOSTILE)  # fmt: skip
    asked = story.write("APPROVAL_REQUESTED", "ho1", order, tool_id=HOSTILE, kind=HOSTILE,
                        arguments={HOSTILE: HOSTILE})  # fmt: skip
    story.write("APPROVAL_GRANTED", "hot", order, request_id=asked, decided_by=HOSTILE,
                decision_reason=HOSTILE)  # fmt: skip
    story.write(tail, "ho1", order, **{HOSTILE: HOSTILE})
    story.write("WO_FAILED", "ho1", order, error_code=HOSTILE, error_message=HOSTILE, cost={})
    story.gate(order, verdict=HOSTILE, reasons=[HOSTILE], trace_hash=HOSTILE)
    story.write("ESCALATION", "ho2", order, reasons=[HOSTILE])
    story.write("DEGRADATION", "ho2", order, error_code=HOSTILE, error_message=HOSTILE)
    story.exchange("", prompt=HOSTILE, response=HOSTILE)
    client.write(
        LedgerEntry("EXCHANGE_ORPHANED", "x", "x", "x", metadata={
            "session_id": story.session, "work_order_id": order, "settlement": HOSTILE,
            "settled_tokens": 0, "contract_id": tail, "dispatch_entry_id": HOSTILE})
    )  # fmt: skip
    story.write("THREAD_OPENED", title=HOSTILE)
    story.record(1, HOSTILE, HOSTILE, outcome=HOSTILE.replace("\x00", ""))
    return story.session


def test_the_page_tells_the_story(client: LedgerClient, story: Story) -> None:
    page = Page(journey_page(prompt_journey(client, session_id=SESSION)))
    words = page.words()
    for part in (
        f"{SESSION} agent admin-001", "Turn 1", "Turn 5", "compare the two reports", "read left",
        "calls read_file", "tool result", "Revenue grew by 4 %.",
        "Earlier attempt failed", "SERVER_ERROR: 529 overloaded", "You read reports.",
        "by grace", "the outbox was empty", "The order was resumed",
        "Escalated: no answer passed the quality gate", "Left out of the context: 2 items",
        "over the budget", "Waiting for approval.", "No answer is recorded yet.",
        "cost, 1 call without a price", "settled at 500 tokens", "Whether the tool ran is unknown",
        "were not recomputed",
    ):  # fmt: skip
        assert part in words, part
    assert len(page.having("turn")) == 5
    assert len(page.having("order")) == 8
    assert len(page.having("timeline")) == 4
    shown = set("".join(page.text).split())
    for name, entry_id in story.ids.items():
        assert any(entry_id in item for item in shown), name
    tags = [tag for tag, _ in page.elements]
    assert tags.count("main") == tags.count("h1") == tags.count("header") - 5 == 1
    assert ("html", {"lang": "en"}) in page.elements


def _spoken(client: LedgerClient) -> str:
    story = Story(client)
    story.turn(1)
    return story.session


def test_nothing_of_the_ledger_is_markup(client: LedgerClient) -> None:
    session = _hostile(client)
    journey = prompt_journey(client, session_id=session)
    journey["agent_id"] = HOSTILE
    journey["trace_hashes"] = [{"entry_id": HOSTILE, "agrees": False}]
    text = journey_page(journey)
    page = Page(text)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "img", "iframe", "object", "embed", "form", "base", "svg"}
    for tag, attrs in page.elements:
        assert set(attrs) <= {
            "class", "title", "lang", "charset", "http-equiv", "content", "name", "rel", "href",
            "id", "open", "tabindex", "scope", "aria-hidden",
        }, (tag, attrs)  # fmt: skip
        assert attrs.get("href", "#turns") in ("#turns", "data:,")
        assert re.fullmatch(r"[\w -]*", attrs.get("class") or ""), attrs
    assert text.count(MARK) > 60
    assert "<img" not in text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", text)
    assert r"\u202e" in text


def test_the_page_asks_nobody_for_anything(client: LedgerClient, story: Story) -> None:
    text = journey_page(prompt_journey(client, session_id=SESSION))
    page = Page(text)
    (policy,) = [
        attrs["content"] or ""
        for _, attrs in page.elements
        if attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert not re.search(r"(?i)https?://|url\(|@import|<script", text)
    assert "prefers-color-scheme: dark" in page.style
    assert "@media print" in page.style


@pytest.mark.parametrize(
    ("hashes", "tone", "words"),
    [
        (None, "wait", f"remit trace {SESSION} --verify"),
        ([], "wait", "This journey has no trace hashes"),
        (
            [{"entry_id": "LED-00000009", "agrees": True}],
            "good",
            "The recomputed trace hash matches",
        ),
        (
            [{"entry_id": "LED-00000009", "agrees": True}, {"entry_id": "LED-00000013"}],
            "bad",
            "1 of 2 trace hashes do not match the entries. LED-00000013",
        ),
    ],
)
def test_the_state_of_verification_is_as_given(
    client: LedgerClient, hashes: Any, tone: str, words: str
) -> None:
    journey = prompt_journey(client, session_id=_spoken(client))
    given = journey if hashes is None else {**journey, "trace_hashes": hashes}
    page = Page(journey_page(given))
    (state,) = page.having("state")
    assert state["class"] == f"state {tone}"
    assert words in page.words()


@needs_browser
def test_a_browser_shows_it_without_a_complaint(
    client: LedgerClient, browser: Browser, tmp_path: Path
) -> None:
    text = journey_page(prompt_journey(client, session_id=_hostile(client)))
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    page.write_text(text, "utf-8")
    browser.open(page.as_uri(), width=400)
    tags = browser.run("[...document.querySelectorAll('*')].map((one) => one.localName)")
    assert tags == [tag for tag, _ in Page(text).elements]
    browser.picture(picture)
    assert picture.stat().st_size > 10_000
    assert browser.complaints == browser.requests == []


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


CLASSIFY = "PRC-CLASSIFY-001"


@pytest.fixture
def contracts(tmp_path: Path) -> ContractLoader:
    root = new_root(tmp_path / "root", "")
    with Runtime.open(root) as runtime:
        return ContractLoader(runtime.root.tier("ho1"), installed=InstalledFiles(root))


def test_every_event_has_words() -> None:
    assert set(EVENTS) <= set(wording.WORDS)
    assert {*refusals.REJECTED, *refusals._FAILED} <= set(wording.WORDS)
    assert all(words[0].islower() or words.startswith("MCP") for words in wording.WORDS.values())


def test_amounts_have_two_decimals_or_more_and_the_sign_first() -> None:
    exact = {0: "$0.00", 3: "$3.00", 0.25: "$0.25", 1234.5: "$1,234.50", 0.00000375: "$0.00000375",
             -3: "-$3.00", -0.0001: "-$0.0001"}  # fmt: skip
    assert {value: dollars(value) for value in exact} == exact
    cents = {0: "$0.00", 0.004: "<$0.01", 3: "$3.00", -3: "-$3.00"}
    assert {value: wording.cents(value) for value in cents} == cents
