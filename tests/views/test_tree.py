"""The journey as a tree in the terminal."""

from __future__ import annotations

import re

from remit.ledger import LedgerClient
from remit.views import journey_text, open_journey, prompt_journey
from remit.views.page import sums_of
from tests.views.story import SESSION, Story

HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\x00\x9b31m\u202egnp.exe\u2066 </script>"
NAMED = HOSTILE.replace("\x00", "")  # what an indexed column takes


def _tree(client: LedgerClient, width: int = 100, **more: bool) -> list[str]:
    journey = open_journey(client, session_id=SESSION)
    return list(journey_text(journey, **{"colour": False, **more}, width=width))


def test_the_tree_tells_the_story(client: LedgerClient, story: Story) -> None:
    lines = _tree(client, 200)
    text = "\n".join(lines)
    assert lines[0].startswith(f"{SESSION}  admin-001  ")
    assert "5 turns  8 model calls  4 tool calls  700 → 140 tokens" in lines[0]
    assert "$0.007 and 1 call without a price" in lines[0]
    for part in (
        "├─ turn 2  answered", "├─ user  compare the two reports", "left out  2 items",
        "read left  PRC-SYNTHESIZE-001 1.2.0  completed", "tool  read_file  ok",
        'arguments  {"path":"left.txt"}', "earlier attempt  model-a",
        "SERVER_ERROR: 529 overloaded", "cost unknown", "tool  send_mail  unknown",
        "resumed  ", "question  send_mail  granted  by grace",
        "reason  the outbox was empty", "gate  reject", "escalation", "turn 5  waiting",
        "approval  delete_file  waiting", "the process died", "settled at 500 tokens",
        "answer  Left grew by 4 %, right is flat.",
    ):  # fmt: skip
        assert part in text, part
    for name in ("first", "tool", "retried", "failed", "gate", "late", "granted", "asked"):
        assert story.ids[name] in text, name


def test_an_answer_of_text_blocks_is_its_text(client: LedgerClient) -> None:
    story = Story(client)
    order = story.plan(1)
    story.ask(order, response="Plain.", content_blocks=[{"type": "text", "text": "Plain."}])
    assert any(line.endswith("└─ answer  Plain.") for line in _tree(client))


def test_prices_of_tools_are_shown_without_a_model_call(client: LedgerClient) -> None:
    story = Story(client)
    order = story.plan(1)
    story.write("BUDGET_DEBIT", "ho1", order, cost_usd=0.25)
    assert sum("$0.25" in line for line in _tree(client, 200)) == 3  # session, turn and order
    totals = prompt_journey(client, session_id=SESSION)["totals"]
    assert ("cost", "$0.25") in sums_of(totals)


def test_branches_are_closed(client: LedgerClient, story: Story) -> None:
    lines = _tree(client)
    for line, following in zip(lines[1:], [*lines[2:], ""], strict=True):
        stem = re.match(r"[│ ]*(├─|└─) ", line)
        assert stem, line
        column = stem.end() - 3
        beneath = following[column : column + 1]
        assert (beneath in "│├└" and beneath != "") == (stem[1] == "├─"), (line, following)


def test_long_texts_are_cut_to_the_width(client: LedgerClient) -> None:
    story = Story(client)
    story.turn(1, "word " * 400, "日本語" * 300)
    lines = _tree(client, 80)
    cut = [line for line in lines if line.endswith("…")]
    assert len(cut) >= 4
    assert all(len(line) <= 80 for line in cut)
    assert all(len(line) <= 60 for line in cut if "日本" in line)  # each takes two columns
    assert "word " * 400 in "\n".join(_tree(client, 80, full=True)).replace("word\n", "word \n")


def test_full_shows_plans_and_whole_prompts(client: LedgerClient, story: Story) -> None:
    assert "You read reports." not in "\n".join(_tree(client))
    text = "\n".join(_tree(client, full=True))
    assert "system  You read reports." in text
    assert "over the budget" in text
    assert '"token_budget":1000' in text
    assert "…" not in text.replace("…LED-", "")


def test_what_the_ledger_holds_never_moves_the_terminal(client: LedgerClient) -> None:
    story = Story(client)
    order = story.plan(1, HOSTILE, step=HOSTILE, wo_type=HOSTILE, depends_on=[HOSTILE])
    story.begin(order)
    call = story.fail(order, error_code=HOSTILE, model_id=NAMED)
    story.ask(order, prompt=[{"role": HOSTILE, "content": HOSTILE}], response=HOSTILE,
              model_id=NAMED, retry_of=call, finish_reason=HOSTILE)  # fmt: skip
    story.used(order, HOSTILE, HOSTILE, status=HOSTILE, result=HOSTILE, tool_error=HOSTILE)
    story.write("APPROVAL_REQUESTED", "ho1", order, tool_id=HOSTILE, kind=HOSTILE)
    story.write(NAMED, "ho1", order, anything=HOSTILE)
    story.gate(order, verdict="reject", reasons=[HOSTILE])
    story.write("DEGRADATION", "ho2", order, error_code=HOSTILE, error_message=HOSTILE)
    story.record(1, HOSTILE, HOSTILE, outcome=NAMED)
    for full in (False, True):
        text = "".join(_tree(client, full=full))
        assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
        assert r"\x1b]0;owned\x07" in text
        assert r"\u202egnp.exe" in text


def test_colour_is_asked_for(client: LedgerClient, story: Story) -> None:
    plain = _tree(client)
    coloured = _tree(client, colour=True)
    assert "\x1b[" not in "".join(plain)
    assert "\x1b[32mcompleted\x1b[0m" in "".join(coloured)
    assert [re.sub(r"\x1b\[\d*m", "", line) for line in coloured] == plain


def test_what_was_asked_for_is_marked(client: LedgerClient, story: Story) -> None:
    journey = prompt_journey(client, entry_id=story.ids["tool"])
    marked = [line for line in journey_text(journey, colour=False, width=100) if "▶" in line]
    assert len(marked) == 1
    assert "tool  read_file  ok" in marked[0]
    assert f"▶ {story.ids['tool']}" in marked[0]
