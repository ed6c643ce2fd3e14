"""What a user, a developer or a provider gives: repaired or refused at once, in one sentence."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remit import File, Runtime, tool
from remit.kernel.errors import InvalidInputError, RemitError
from remit.runtime import Conversation, Schedule
from remit.testing import ScriptedModel, ToolUse
from remit.tools import Tool
from tests.support.agents import Scripted
from tests.support.roots import new_root
from tests.support.soak import sample
from tests.support.wire import Raw, Step, completion, completion_stream, message, serve, tool_use

HALF = "hi \ud83d"
WHOLE = "hi \ufffd"


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    place = tmp_path_factory.mktemp("outside") / "root"
    new_root(place)
    with Runtime.open(place, providers={"s": ScriptedModel(*["ok"] * 100)}) as opened:
        yield opened


def test_half_an_emoji_of_a_user_is_repaired_and_the_session_goes_on(runtime: Runtime) -> None:
    session = runtime.agent("a", model="s").session()
    for said in (HALF, [HALF, "there"], ["look", File(b"abc", "text/plain", HALF)], "hello"):
        result = session.turn(said)
        assert (result.response, result.error_code) == ("ok", "")
    said = [entry.metadata["user_message"] for entry in runtime.ledger.query(
        event_type="TURN_RECORDED", session_id=session.session_id)]  # fmt: skip
    assert said == [WHOLE, f"{WHOLE}\nthere", f"look\n[{WHOLE}: text/plain, 3 bytes]", "hello"]
    for task in (HALF, {"user_input": HALF}):
        assert session.work(task).state == "completed"
    assert session.feedback(1.0, reason=HALF).reason == WHOLE
    assert runtime.ledger.verify().verified


_begun: dict[int, Conversation[Any]] = {}


def _session(runtime: Runtime) -> Conversation[Any]:
    """Return the one session in which nothing is to be recorded."""
    if id(runtime) not in _begun:
        _begun[id(runtime)] = runtime.agent("a", model="s").session()
    return _begun[id(runtime)]


Refused = Callable[[Runtime], Any]
_REFUSED: list[Refused] = [
    *(lambda runtime, name=name, bad=bad: runtime.agent("a", model="s").session(**{name: bad})
      for name in ("user", "subject_id") for bad in (HALF, "a\0b", 3)),
    *(lambda runtime, name=name: runtime.agent("a", model="s").submit("do", **{name: HALF})
      for name in ("user", "subject_id", "key", "queue", "by", "for_key")),
    lambda runtime: _session(runtime).work("do", key=HALF),
    lambda runtime: _session(runtime).feedback(1.0, by=HALF),
    lambda runtime: Schedule(runtime.agent("a", model="s"), HALF, "do", every_s=60),
    lambda runtime: Schedule(runtime.agent("a", model="s"), "s", "do", every_s=60, user=HALF),
    *(lambda runtime, name=name, bad=bad: runtime.agent(**{"agent_id": "a", name: bad})
      for name in ("agent_id", "instructions", "tools", "mcp", "approve", "contract", "contracts",
                   "output_type", "model", "planner", "acceptance", "classify", "verify",
                   "max_retries", "shares_sessions", "session_tokens", "session_usd",
                   "order_tokens", "order_usd", "turn_limit", "timeout_s", "context_tokens")
      for bad in (object(), HALF, [None], {"no": 1}, b"a")),
    lambda runtime: runtime.agent(""),
    lambda runtime: runtime.agent("a" * 201),
    lambda runtime: Tool("a", None, {"type": "object"}, print),  # type: ignore[arg-type]
    lambda runtime: Tool("a", "A.", None, print),  # type: ignore[arg-type]
    lambda runtime: Tool("a", "A.", {"title": HALF}, print),
    lambda runtime: Tool("a", "A.", {}, None),  # type: ignore[arg-type]
    lambda runtime: File(b"a", "text/plain", None),  # type: ignore[arg-type]
    lambda runtime: File(b"a", "text/pl\ud83d"),
]  # fmt: skip


@pytest.mark.soak
def test_what_cannot_be_used_is_refused_in_one_sentence(runtime: Runtime) -> None:
    _session(runtime)
    before = runtime.ledger.count()
    for number in sample(range(len(_REFUSED)), 40):
        with pytest.raises(RemitError) as refused:
            _REFUSED[number](runtime)
        assert refused.value.message.endswith("."), number
        assert str(refused.value).isprintable(), number
    assert runtime.ledger.count() == before


def test_names_in_an_iterator_are_read_once(runtime: Runtime) -> None:
    def pay() -> str:
        """Pay."""
        return "paid"

    with pytest.raises(RemitError, match="is to be approved"):
        runtime.agent("a", tools=[pay], approve=iter(["charge"]))
    agent = runtime.agent("a", model="s", tools=iter([pay]), approve=iter(["pay"]))
    assert agent.tools == ("pay",)
    assert agent._shape.answer.approve == ("pay",)


_BROKEN: list[Step] = [
    Raw(b"<html>oops</html>", content_type="text/html"),
    Raw(b"<html>oops</html>"),
    Raw(b""),
    Raw(b"{}"),
    Raw(b'{"id": "x", "choices": []}'),
    Raw(b'{"error": {"message": "overloaded"}}'),
    completion_stream(completion("abcdefgh"), cut_after=2),
    completion_stream(completion("abcdefgh"), cut_after=3),
]


@pytest.mark.soak
def test_a_provider_that_fails_is_not_put_to_the_model_as_its_answer(tmp_path: Path) -> None:
    new_root(tmp_path / "root")
    script: list[Step] = []
    with serve(lambda _: script.pop(0)) as server:
        flags = {
            "providers.odd.kind": "openai", "providers.odd.base_url": f"{server.url}/v1",
            "providers.odd.default_model": "m", "model.default": "odd", "gateway.max_retries": 0,
            "gateway.failure_threshold": 1000,
        }  # fmt: skip
        with Runtime.open(tmp_path / "root", flags=flags) as runtime:
            cases = [(broken, streams) for broken in _BROKEN for streams in (False, True)]
            for broken, streams in sample(cases, 6):
                script[:] = [broken, completion(""), completion("fine")]
                server.calls.clear()
                session = runtime.agent("a", max_retries=2).session()
                if streams:
                    *_, last = session.stream("go")
                    result = last.result  # type: ignore[union-attr]
                else:
                    result = session.turn("go")
                assert result.response == "fine"
                first, again, after = (call.body["messages"] for call in server.calls)
                assert again == first, broken
                assert "the answer is empty" in str(after)  # the model's own answer is rejected


# Long texts of models in the wrong place: no error, prompt or reason repeats more than a part.


LONG = "n" * 200_000
_MOST = 5_000  # characters of any error, reason, or text of Remit's in a prompt


@tool
def visit(city: str) -> str:
    """Visit a city."""
    return "done"


def _tools() -> list[Tool]:
    words = {"kind": {"enum": ["a"]}, "code": {"pattern": "^a$"}, "days": {"type": "integer"}}
    schema = {"type": "object", "properties": words, "additionalProperties": False}
    return [visit, Tool("sweep", "Sweep.", schema, lambda **_: "done")]


ODD: dict[str, Any] = {
    "the name of a tool": ToolUse(LONG, {}),
    "the name of an argument, by a schema": ToolUse("sweep", {LONG: 1}),
    "the name of an argument, by a function": ToolUse("visit", {LONG: 1}),
    "many names": ToolUse("sweep", {f"n{number}": 1 for number in range(20_000)}),
    "many names, by a function": ToolUse("visit", {f"n{number}": 1 for number in range(20_000)}),
    "an argument of another type": ToolUse("sweep", {"days": LONG}),
    "an argument that is none of a few": ToolUse("sweep", {"kind": LONG}),
    "an argument without its pattern": ToolUse("sweep", {"code": LONG}),
    "an argument in a list": ToolUse("visit", {"city": [LONG]}),
    "a number without a source": f"Your order is {'7' * 200_000}.",
    "an error marker": f"Error: {LONG}",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root for all tests of the module: each makes sessions of its own."""
    return new_root(tmp_path_factory.mktemp("long") / "root")


def _play(root: Path, *answers: Any, **options: Any) -> tuple[str, list[str], list[str]]:
    """Return the caller's error, what prompts say that is not the model's, and what is recorded."""
    prompts: list[Any] = []

    def last(request: Any) -> str:
        prompts.extend(request.messages)
        return '{"amount": 1}' if "output_type" in options else "fine"

    model = ScriptedModel(*answers, *[last] * 3)
    with Runtime.open(root, providers={"s": model}) as runtime:
        session = runtime.agent(
            "a", max_retries=1, session_tokens=10**9, order_tokens=10**8, **options
        ).session()
        result = session.turn("go")
        entries = list(runtime.ledger.query(session_id=session.session_id))
    said = [
        block if isinstance(block, str) else str(block.get("content", block.get("text", "")))
        for message in prompts if message["role"] != "assistant"
        for block in ([message["content"]] if isinstance(message["content"], str)
                      else message["content"])
    ]  # fmt: skip
    said += [
        block["name"] for message in prompts if isinstance(message["content"], list)
        for block in message["content"] if block["type"] == "tool_use"
    ]  # fmt: skip
    recorded = [entry.reason for entry in entries]
    for entry in entries:
        for name in ("tool_id", "tool_error", "error_message", "reasons", "error", "detail"):
            recorded.append(str(entry.metadata.get(name, "")))
        result_of = entry.metadata.get("output_result")
        if isinstance(result_of, dict):
            recorded += [f"{one['tool_id']}{one['error']}" for one in result_of["tool_results"]]
    return result.error_detail or "", said, recorded


@pytest.mark.parametrize("name", ODD)
def test_a_long_text_of_a_model_is_quoted_in_part(root: Path, name: str) -> None:
    detail, prompts, recorded = _play(root, ODD[name], tools=_tools())
    assert prompts
    assert max(map(len, [detail, *prompts, *recorded])) < _MOST


# -- Images and documents in a message: sent to the provider, recorded whole ----------------------

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@tool
def look(what: str) -> str:
    """Look something up."""
    return what


def test_image_and_document_reach_model_and_record(scripted: Scripted, tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(PNG)
    use = message(tool_use("look", {"what": "dots"}))
    said: list[str | File] = [
        "What is in it?",
        File.read(tmp_path / "dot.png"),
        File(b"Green tea.", "text/plain", "note.txt"),
    ]
    with scripted(use, message("A dot.")) as (runtime, server):
        with runtime.agent("viewer", tools=[look], approve=["look"]).session() as session:
            asked = session.turn(said)
            assert not asked.failed, asked.error_detail
            runtime.approvals.decide(asked.waiting_for[0].request_id, granted=True, by="Ada")
            result = session.resume()
            assert result is not None
            assert result.response == "A dot."
            session.turn("And now?")
        (turn, _) = runtime.ledger.query(event_type="TURN_RECORDED")
        plan = next(iter(runtime.ledger.query(event_type="WO_PLANNED")))
        assert runtime.ledger.verify().verified
    for call in server.calls[:2]:
        image, document, text = call.body["messages"][0]["content"]
        assert base64.b64decode(image["source"]["data"]) == PNG
        assert document == {"type": "text", "text": "note.txt:\n```\nGreen tea.\n```\n"}
        assert "What is in it?" in text["text"]
        assert "[dot.png: image/png, 70 bytes]" in text["text"]
    assert "[dot.png: image/png" in json.dumps(server.calls[2].body["messages"][0])
    assert "[note.txt: text/plain, 10 bytes]" in turn.metadata["user_message"]
    assert base64.b64decode(plan.metadata["input_context"]["files"][0]["source"]["data"]) == PNG


@pytest.mark.parametrize(
    "wrong",
    [[], "  ", [""], [File(b"x", "image/png")], ["x", 3], ["x", b"y"], ["x", {"type": "image"}]],
)
def test_what_is_no_message_is_refused_before_any_work(scripted: Scripted, wrong: Any) -> None:
    with scripted(message("x")) as (runtime, server):
        with runtime.agent("viewer").session() as session, pytest.raises(InvalidInputError):
            session.turn(wrong)
        assert not server.calls


def test_files_that_a_tool_returns_reach_the_model(scripted: Scripted) -> None:
    @tool
    def scan() -> dict[str, Any]:
        """Scan the label."""
        pages = [File(PNG, "image/png", "label.png"), File(b"%PDF-1", "application/pdf", "a.pdf")]
        return {"pages": pages, "text": File(b"Sencha", "text/plain", "label.txt")}

    with scripted(message(tool_use("scan", {})), message("A dot.")) as (runtime, server):
        result = runtime.agent("viewer", tools=[scan]).run("What does it say?")
        assert not result.failed, result.error_detail
        (ended,) = runtime.ledger.query(event_type="TOOL_CALL")
    (given,) = server.calls[1].body["messages"][-1]["content"]
    text, image = given["content"]
    shown = {
        "pages": [
            "[label.png: image/png, 70 bytes]",
            "[a.pdf: application/pdf, 6 bytes, not shown]",
        ],
        "text": "label.txt:\n```\nSencha\n```\n",
    }  # fmt: skip
    assert json.loads(text["text"]) == ended.metadata["result"] == shown
    assert image["source"] == {
        "type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "media_type", "text"),
    [
        (b'{"tea": 1}', "application/json", '{"tea": 1}'),
        (b"tea: 1", "application/x-yaml", "tea: 1"),
        (b"<svg/>", "image/svg+xml", "<svg/>"),  # no provider takes it as an image
        (b"tea", "TEXT/Plain; charset=UTF-8", "tea"),
        (b"\xef\xbb\xbftea", "text/csv", "tea"),
        ("grün".encode("utf-16"), "text/csv", "grün"),
        (b"caf\xe9", "text/csv", "caf\ufffd"),
    ],
)
def test_text_of_any_media_type_and_encoding_is_text(
    data: bytes, media_type: str, text: str
) -> None:
    block = File(data, media_type, "a").block
    assert block == {"type": "text", "text": f"a:\n```\n{text}\n```\n"}


def test_a_media_type_may_be_in_capitals() -> None:
    assert File(PNG, "IMAGE/PNG").block["type"] == "image"
    assert File(PNG, "IMAGE/PNG").block["source"]["media_type"] == "image/png"


@pytest.mark.parametrize("wrong", [File(PNG, "image/png"), [File(PNG, "image/png"), " "]])
def test_a_message_of_files_alone_is_not_called_blank(scripted: Scripted, wrong: Any) -> None:
    with scripted(message("x")) as (runtime, server):
        session = runtime.agent("viewer").session()
        with pytest.raises(InvalidInputError, match=r"a file but no text\. State what to do"):
            session.turn(wrong)
        assert not server.calls


def test_a_file_that_cannot_be_one_says_why(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="empty"):
        File(b"", "image/png")
    with pytest.raises(InvalidInputError, match="media type"):
        File(b"x", "png")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        File.read(tmp_path / "missing.png")
    with pytest.raises(InvalidInputError, match="is unknown"):
        File.read(tmp_path / "missing.unknown")
