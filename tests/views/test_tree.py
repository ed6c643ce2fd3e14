"""The journey as a tree in the terminal, ``remit trace``, and recorded calls of each dialect."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.root import Root
from remit.ledger import Content, LedgerClient
from remit.views import journey_page, journey_text, open_journey, prompt_journey
from remit.views.wire_text import answered, asked, said
from tests.support.commands import run_remit
from tests.views.story import SESSION, Story, tell

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


def test_a_note_says_what_happened(client: LedgerClient) -> None:
    story = Story(client)
    why = {"error_code": "CIRCUIT_OPEN", "error_message": "openai failed 3 times"}
    story.write("PROMPT_REJECTED", "hot", "", **why)
    story.write("BUDGET_ALLOCATED", "hot", "", scope="s", usd_limit=5.0, token_limit=None)
    story.write("THOUGHT_RECORD", "hot", "", decision_id="DEC-1", scores={"a": 1})
    lines = _tree(client)
    assert "0 " not in lines[0].partition("UTC")[2]
    text = "\n".join(lines)
    for part in ("reason  circuit breaker open (CIRCUIT_OPEN: openai failed 3 times)", "  $5.00",
                 "routing decision", "DEC-1"):  # fmt: skip
        assert part in text, part
    assert "{" not in text


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


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def told(tmp_path: Path) -> dict[str, str]:
    root = Root(tmp_path / "root")
    root.create()
    with LedgerClient(root.path / "ledger.db") as client:
        story = Story(client)
        tell(story)
        Story(client, "SES-EMPTY00001").turn(1)
        other = Story(client, "SES-FORGED0001")
        order = other.plan(1)
        other.begin(order)
        other.gate(order, trace_hash="0" * 64)
        other.record(1)
    return story.ids


@pytest.fixture
def run(tmp_path: Path, told: dict[str, str]) -> Run:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_remit("trace", *arguments, "--root", tmp_path / "root", cwd=tmp_path)

    return run


def test_a_session_a_turn_an_order_an_entry(run: Run, told: dict[str, str]) -> None:
    whole = run(SESSION)
    assert whole.returncode == 0, whole.stderr
    assert whole.stdout.count("─ turn ") == 5
    assert "\x1b" not in whole.stdout
    assert run(SESSION, "--turn", "2").stdout.count("─ turn ") == 1
    for place in (told["left"], told["tool"]):
        shown = run(place)
        assert shown.stdout.count("─ turn ") == 1
        assert f"▶ {place}" in shown.stdout
    assert "You read reports." in run(SESSION, "--full").stdout
    assert "You read reports." not in whole.stdout


def test_the_latest_session(run: Run) -> None:
    # Only the story has a SESSION_START.
    assert run("--last", "--turn", "1").stdout.startswith(SESSION)


def test_json_holds_the_same(run: Run) -> None:
    told = json.loads(run(SESSION, "--json", "--verify").stdout)
    assert [turn["turn_number"] for turn in told["turns"]] == [1, 2, 3, 4, 5]
    assert [item["agrees"] for item in told["trace_hashes"]][1:] == [True] * 4
    assert told["turns"][2]["gates"][0]["trace_hash_agrees"] is True
    assert "trace_hashes" not in json.loads(run(SESSION, "--json").stdout)


def test_verify_names_a_mismatch(run: Run) -> None:
    forged = run("SES-FORGED0001", "--verify")
    assert forged.returncode == 1
    assert "DOES NOT MATCH" in forged.stdout
    page = run("SES-FORGED0001", "--verify", "--html", "-")
    assert page.returncode == 1
    assert "1 of 1 trace hashes do not match" in page.stdout
    assert "DOES NOT MATCH" in page.stderr
    honest = run("SES-EMPTY00001", "--verify")
    assert honest.returncode == 0
    assert " agrees" in honest.stdout
    none = run(SESSION, "--turn", "5", "--verify")
    assert none.returncode == 0
    assert "This journey has no trace hashes" in none.stdout


def test_a_page_is_written(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    result = run(SESSION, "--html", str(file))
    assert result.returncode == 0
    assert result.stdout == ""
    assert str(file) in result.stderr
    text = file.read_text("utf-8")
    assert text.startswith("<!doctype html>")
    assert text == run(SESSION, "--html", "-").stdout


DATA = "A" * 5000

CHAT: dict[str, Any] = {
    "wire": "openai.chat",
    "prompt": [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
        ]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}},
            {"id": "c2", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}},
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
        {"role": "user", "content": "And now?"},
    ],
    "answer": {"object": "chat.completion", "choices": [
        {"index": 0, "message": {
            "role": "assistant", "reasoning_content": "Hm.", "content": "A cat.",
            "refusal": "No more.",
            "annotations": [{"type": "url_citation",
                             "url_citation": {"title": "Cats", "url": "https://c.example"}}],
        }},
        {"index": 1, "message": {"role": "assistant", "content": "A dog.",
                                 "audio": {"id": "a", "data": DATA, "transcript": "woof"}}},
    ]},
}  # fmt: skip
RESPONSES: dict[str, Any] = {
    "wire": "openai.responses",
    "system": "Be short.",
    "prompt": [
        {"role": "user", "content": [{"type": "input_text", "text": "Look it up."}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "A plan."}],
         "encrypted_content": DATA},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "found"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": [
            {"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}]},
    ],
    "answer": {"object": "response", "output": [
        {"type": "reasoning", "summary": [], "encrypted_content": DATA},
        {"type": "custom_tool_call", "call_id": "e", "name": "apply_patch", "input": "*** Begin"},
        {"type": "web_search_call", "status": "completed"},
        {"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "Found.", "annotations": [
                {"type": "file_citation", "file_id": "f", "filename": "notes.md"}]},
            {"type": "refusal", "refusal": "Not that."},
        ]},
    ]},
}  # fmt: skip
MESSAGES: dict[str, Any] = {
    "wire": "anthropic.messages",
    "system": [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}],
    "prompt": [
        {"role": "user", "content": "Look it up."},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "I look.", "signature": DATA},
            {"type": "redacted_thinking", "data": DATA},
            {"type": "tool_use", "id": "t", "name": "look", "input": {"x": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "is_error": True,
             "content": [{"type": "text", "text": "gone"}]},
            {"type": "document", "source": {"type": "base64", "data": DATA}},
        ]},
    ],
    "answer": {"type": "message", "role": "assistant", "content": [
        {"type": "text", "text": "It is gone.", "citations": [
            {"type": "char_location", "cited_text": "gone", "document_title": "Doc"}]},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
    ]},
}  # fmt: skip
DIALECTS = [CHAT, RESPONSES, MESSAGES]


def test_chat() -> None:
    picture = "(5,022 characters of data)"
    assert said(CHAT) == [
        ("developer", "", "Be short."),
        ("user", "", "What is this?"),
        ("user", "image", {"type": "image_url", "image_url": {"url": picture}}),
        ("assistant", "calls look", '{"x":1}'),
        ("assistant", "calls shell", "ls -l"),
        ("tool", "result", "a cat"),
        ("user", "", "And now?"),
    ]
    assert answered(CHAT) == [
        ("assistant", "choice 0 thinking", "Hm."),
        ("assistant", "choice 0", "A cat."),
        ("assistant", "choice 0 refuses", "No more."),
        ("assistant", "choice 0 sources", "Cats https://c.example"),
        ("assistant", "choice 1", "A dog."),
        ("assistant", "choice 1 audio", "woof"),
    ]
    assert asked(CHAT) == "And now?"


def test_responses() -> None:
    assert said(RESPONSES) == [
        ("system", "", "Be short."),
        ("user", "", "Look it up."),
        ("assistant", "thinking", "A plan."),
        ("assistant", "calls look", "{}"),
        ("tool", "result", "found"),
        ("tool", "result", "one\ntwo"),
    ]
    assert answered(RESPONSES) == [
        ("assistant", "thinking", "(kept by the provider)"),
        ("assistant", "calls apply_patch", "*** Begin"),
        ("assistant", "web_search_call", {"type": "web_search_call", "status": "completed"}),
        ("assistant", "", "Found."),
        ("assistant", "sources", "notes.md f"),
        ("assistant", "refuses", "Not that."),
    ]
    assert said({"wire": "openai.responses", "prompt": "hi"}) == [("user", "", "hi")]


def test_messages() -> None:
    document = {"type": "base64", "data": "(5,000 characters of data)"}
    assert said(MESSAGES) == [
        ("system", "", "Be short."),
        ("user", "", "Look it up."),
        ("assistant", "thinking", "I look."),
        ("assistant", "thinking", "(kept by the provider)"),
        ("assistant", "calls look", {"x": 1}),
        ("tool", "failed result", "gone"),
        ("user", "document", {"type": "document", "source": document}),
    ]
    assert answered(MESSAGES) == [
        ("assistant", "", "It is gone."),
        ("assistant", "sources", "Doc gone"),
        ("assistant", "calls web_search", {"query": "x"}),
    ]


def test_completions_and_vectors() -> None:
    error = {"type": "error", "error": {"message": "overloaded"}}
    assert [line.role for line in answered({"answer": error, "outcome": "error"})] == ["provider"]
    assert answered({"answer": {"choices": [{"index": 0, "text": "more"}]}}) == [
        ("assistant", "", "more")
    ]
    vector = {"object": "embedding", "index": 0, "embedding": [0.5] * 1536}
    assert answered({"answer": {"object": "list", "data": [vector]}}) == [
        ("assistant", "data", {**vector, "embedding": "(1,536 values)"})
    ]


def _record(client: LedgerClient, call: dict[str, Any]) -> str:
    """The call as the gateway records it: every part as its exact text."""
    told: dict[str, Any] = {}
    for name, value in call.items():
        if name == "prompt" and isinstance(value, list):
            told[name] = Content.exact_list([json.dumps(item).encode() for item in value])
        else:
            told[name] = value if name == "wire" else Content.exact(json.dumps(value).encode())
    changed = [{"path": "/model", "reason": "gpt is a name for gpt-4o", "was": '"gpt"'}]
    parameters = Content.exact(b'{"messages":[], "model":"gpt-4o"}')
    more = {"changed": changed, "parameters": parameters}
    return Story(client).exchange(**{"response": "Its text.", **told, **more})


@pytest.mark.parametrize("call", DIALECTS, ids=lambda call: str(call["wire"]))
def test_trees_and_pages_show_the_call_whole(client: LedgerClient, call: dict[str, Any]) -> None:
    _record(client, call)
    tree = journey_text(
        open_journey(client, session_id=SESSION), colour=False, width=100, full=True
    )
    page = journey_page(prompt_journey(client, session_id=SESSION))
    text = "\n".join(tree)
    for line in (*said(call), *answered(call)):
        assert line.label in text
        assert line.label in page
        if isinstance(line.content, str):
            assert line.content.split("\n")[0] in text
            assert line.content.replace('"', "&#34;") in page
    assert DATA not in text + page
    assert "gpt is a name for gpt-4o" in page
    short = journey_text(open_journey(client, session_id=SESSION), colour=False, width=100)
    assert f"last of {len(said(call))} prompt messages, " in "\n".join(short)


def test_what_was_erased_or_is_not_asked_for_is_said(client: LedgerClient) -> None:
    exchange = _record(client, RESPONSES)
    bare = prompt_journey(client, session_id=SESSION, with_content=False)
    text = "\n".join(journey_text(bare, colour=False, width=100, full=True))
    assert text.count("[content not shown]") >= 3
    assert "[content not shown]" in journey_page(bare)
    client.erase(exchange, reason="r")
    journey = prompt_journey(client, session_id=SESSION)
    assert "[erased under LED-" in "\n".join(journey_text(journey, colour=False, width=100))
    assert "[erased under LED-" in journey_page(journey)


def test_an_answer_nested_deep_is_shown(client: LedgerClient) -> None:
    deep = b"[" * 700 + b"]" * 700
    Story(client).exchange(
        wire="openai.chat", prompt=Content.exact(deep), answer=Content.exact(b'{"x":%b}' % deep)
    )
    journey = prompt_journey(client, session_id=SESSION)
    assert "nested too deep" in "\n".join(journey_text(journey, colour=False, width=9999))
    assert "nested too deep" in journey_page(journey)
