"""The journey as a page: parsed, and opened in a browser where there is one."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import LedgerClient, LedgerEntry
from remit.views import journey_page, open_journey, page_parts, prompt_journey
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
        "wants the tool read_file", "tool result", "Revenue grew by 4 %.",
        "Earlier attempt failed", "SERVER_ERROR: 529 overloaded", "You read reports.",
        "by grace", "the outbox was empty", "Another process resumed",
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


def test_bars_stand_where_their_time_is(client: LedgerClient) -> None:
    whole = {"elapsed_ms": 1000.0, "ended_at": "x"}
    journey = prompt_journey(client, session_id=_spoken(client))
    (turn,) = journey["turns"]
    (step,) = turn["work_orders"][0]["steps"]
    turn |= whole
    step |= {"offset_ms": 250.0, "elapsed_ms": 500.0}
    page = Page(journey_page({**journey, "turns": [turn]}))
    (bar,) = page.having("bar")
    assert bar["class"] == "bar model x50 w100"
    assert ".x50{left:25%}" in page.style
    assert ".w100{width:50%}" in page.style
    assert bar["title"] == "model call model-a from +250 ms, 500 ms"


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


def test_what_was_asked_for_stands_open(client: LedgerClient, story: Story) -> None:
    page = Page(journey_page(prompt_journey(client, entry_id=story.ids["tool"])))
    focused = page.having("focus")
    assert [item["class"] for item in focused] == ["order focus", "step tool focus"]
    assert all("open" in item for item in focused)
    whole = Page(journey_page(prompt_journey(client, session_id=SESSION)))
    assert not any("open" in attrs for attrs in whole.having("order"))


def test_erased_and_unshown_content_is_said(client: LedgerClient, story: Story) -> None:
    client.erase(story.ids["retried"], reason="asked for", requested_by="dpo")
    (erasure,) = client.read_by_event_type("ERASURE")
    page = Page(journey_page(prompt_journey(client, session_id=SESSION)))
    assert f"[erased under {erasure.id}]" in page.words()
    page = Page(journey_page(prompt_journey(client, session_id=SESSION, with_content=False)))
    assert "[content not shown]" in page.words()
    assert "Revenue" not in page.words()


def test_the_page_comes_in_parts(client: LedgerClient, story: Story) -> None:
    journey = open_journey(client, session_id=SESSION)
    parts: list[str] = []

    def turns() -> Iterator[dict[str, Any]]:
        for number, turn in enumerate(journey["turns"]):
            # Whoever asks for a turn has put out all before it.
            assert "".join(parts).count("</article>") == number
            yield turn

    for part in page_parts({**journey, "turns": turns()}):
        parts.append(part)
    assert "".join(parts) == journey_page(prompt_journey(client, session_id=SESSION))


def _browser() -> str | None:
    names = ("chromium", "google-chrome", "chromium-browser")
    return next((found for name in names if (found := shutil.which(name))), None)


@pytest.mark.skipif(_browser() is None, reason="there is no chromium on the PATH")
@pytest.mark.parametrize("width", [400, 1400])
def test_a_browser_shows_it_without_a_complaint(
    client: LedgerClient, tmp_path: Path, width: int
) -> None:
    browser = _browser()
    assert browser
    page = tmp_path / "page.html"
    text = journey_page(prompt_journey(client, session_id=_hostile(client)))
    page.write_text(text, "utf-8")

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--disable-quic", "--hide-scrollbars", "--enable-logging=stderr", "--v=0",
             f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},3000", *options,
             page.as_uri()],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip

    dumped = run("--dump-dom")
    assert "CONSOLE" not in dumped.stderr, dumped.stderr
    dom = Page(dumped.stdout)
    assert [tag for tag, _ in dom.elements] == [tag for tag, _ in Page(text).elements]
    picture = tmp_path / "page.png"
    shot = run(f"--screenshot={picture}")
    assert "CONSOLE" not in shot.stderr, shot.stderr
    assert picture.stat().st_size > 10_000
