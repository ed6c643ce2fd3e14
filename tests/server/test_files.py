"""Files of both dialects by the official SDKs: byte for byte, on record, seen by their owners."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import openai
import pytest
from aiohttp import web

from tests.server.running import FORM, Served, form
from tests.server.sdks import anthropic_at, openai_at
from tests.support import wire
from tests.support.keeping import Asked, Keeper

BEFORE = "keeper"
DATA = b'{"a": 1}\r\n--not-a-boundary\r\n\x00\xff\xfe'


def test_a_file_is_unchanged_and_recorded(served: Served, keeper: Keeper, session: str) -> None:
    client = openai_at(served, session=session)
    made = client.files.create(file=("my data.jsonl", DATA), purpose="batch")
    assert keeper.files[made.id][1] == DATA
    assert keeper.asked[-1].headers["Authorization"] == "Bearer sk-upstream-openai"
    assert client.files.retrieve(made.id).filename == "my data.jsonl"
    assert client.files.content(made.id).content == DATA
    entry = served.exchange(session)
    told = entry.metadata
    assert (entry.decision, told["wire"], told["provider_id"]) == (
        "SUCCESS", "openai.files", "openai",
    )  # fmt: skip
    assert told["cost_usd"] == 0
    assert told["cost_certainty"] == "measured"
    assert told["parameters"]["purpose"] == "batch"
    file = told["parameters"]["file"]
    assert (file["filename"], file["bytes"]) == ("my data.jsonl", len(DATA))
    assert file["sha256"] == hashlib.sha256(DATA).hexdigest()
    assert told["answer"]["id"] == made.id
    assert client.files.delete(made.id).deleted
    gone = served.entries("EXCHANGE", session)[1].metadata
    assert gone["parameters"] == {"method": "DELETE", "path": f"/files/{made.id}"}
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made.id)
    assert len(served.entries("EXCHANGE", session)) == 2


def test_files_of_anthropic(served: Served, keeper: Keeper, session: str) -> None:
    client = anthropic_at(served, session=session)
    made = client.beta.files.upload(
        file=("notes.txt", DATA, "text/plain"), betas=["files-api-2025-04-14"]
    )
    assert keeper.files[made.id][1] == DATA
    assert keeper.asked[-1].headers["x-api-key"] == "sk-upstream-anthropic"
    assert "files-api" in keeper.asked[-1].headers["anthropic-beta"]
    assert client.beta.files.retrieve_metadata(made.id).filename == "notes.txt"
    assert served.exchange(session).metadata["wire"] == "anthropic.files"
    assert made.id in [file.id for file in client.beta.files.list()]
    assert client.beta.files.delete(made.id).type == "file_deleted"


@pytest.mark.parametrize("anthropic", [False, True])
def test_a_file_of_the_other_dialect(served: Served, keeper: Keeper, anthropic: bool) -> None:
    file = ("notes.txt", DATA, "text/plain")
    if anthropic:
        file_id = anthropic_at(served).beta.files.upload(file=file).id
        other = {"openai-beta": "x"}
    else:
        file_id = openai_at(served).files.create(file=file, purpose="user_data").id
        other = {"anthropic-version": "2023-06-01"}
    asked = len(keeper.asked)
    for method, tail in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        status, raw, _ = served.ask(method, f"/v1/files/{file_id}{tail}", headers=other)
        assert status == 404, raw
        assert (json.loads(raw).get("type") == "error") is not anthropic
        assert file_id in raw.decode()
    assert len(keeper.asked) == asked
    assert file_id in keeper.files


def test_another_key_sees_nothing_of_it(served: Served, keeper: Keeper) -> None:
    client = openai_at(served)
    made = client.files.create(file=("a.txt", b"a"), purpose="user_data")
    other = openai_at(served, served.key().key)
    asked = len(keeper.asked)
    for call in (other.files.retrieve, other.files.delete, other.files.content):
        with pytest.raises(openai.NotFoundError) as refused:
            call(made.id)
        assert refused.value.body["param"] == "id"  # type: ignore[index]
    assert len(keeper.asked) == asked
    assert list(other.files.list()) == []
    assert made.id in [file.id for file in client.files.list()]


def test_a_refusal_of_the_provider_comes_without_its_key(
    served: Served, keeper: Keeper, session: str
) -> None:
    said = {"error": {"message": "no such purpose", "type": "invalid_request_error",
                      "param": "purpose", "code": None}}  # fmt: skip
    told = {"error": {"message": "Incorrect API key provided: sk-upstream-openai"}}
    file = openai_at(served).files.create(file=DATA, purpose="batch").id
    keeper.refuse = lambda request: web.json_response(said, status=400)
    odd: Any = "odd"
    try:
        with pytest.raises(openai.BadRequestError) as refused:
            openai_at(served, session=session).files.create(file=("a", b"a"), purpose=odd)
        keeper.refuse = lambda request: web.json_response(told, status=401)
        for path in ("/v1/files", f"/v1/files/{file}", f"/v1/files/{file}/content"):
            for method in ("GET", "DELETE", "POST"):
                status, raw, _ = served.ask(method, path, form(a="b"), headers=FORM)
                assert status in (405, 502), raw
                assert b"sk-upstream" not in raw
    finally:
        keeper.refuse = lambda request: None
    assert refused.value.body == said["error"]
    assert served.exchange(session).decision == "ERROR"


@pytest.fixture(scope="module")
def other(served: Served) -> str:
    """The token of another key."""
    return served.key().key


def _of_code(asked: Asked) -> web.Response:
    """An answer of a call whose code ran at the provider: whole, or as a stream."""
    body = json.loads(asked.body)
    if "messages" in body:
        block = {"type": "bash_code_execution_output", "file_id": "file_plot_1"}
        content = {"type": "bash_code_execution_result", "content": [block], "stdout": "",
                   "stderr": "", "return_code": 0}  # fmt: skip
        result = {"type": "bash_code_execution_tool_result", "tool_use_id": "t",
                  "content": content}  # fmt: skip
        container = {"id": "container_1", "expires_at": "2030-01-01T00:00:00Z"}
        made = {**wire.message(result), "model": body["model"], "container": container}
        return web.json_response(made)
    ran = {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "status": "completed",
           "container_id": "cntr_2" if body.get("stream") else "cntr_1",
           "outputs": None}  # fmt: skip
    response = {**wire.response(ran), "model": body["model"]}
    if not body.get("stream"):
        return web.json_response(response)
    event = {"type": "response.completed", "sequence_number": 0, "response": response}
    return web.Response(body=wire.sse([event])[0], content_type="text/event-stream")


@pytest.mark.parametrize(
    ("path", "asked", "made", "others"),
    [
        ("messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
         ("container_1", "file_plot_1"),
         [{"container": "container_1"}, {"container": {"id": "container_1", "skills": []}},
          {"messages": [{"role": "user", "content": [
              {"type": "container_upload", "file_id": "file_plot_1"}]}]}]),
        ("responses", {"input": "hi"}, ("cntr_1",),
         [{"tools": [{"type": "code_interpreter", "container": "cntr_1"}]},
          {"tools": [{"type": "shell", "environment": {
              "type": "container_reference", "container_id": "cntr_1"}}]},
          {"input": [{"type": "code_interpreter_call", "id": "ci_2", "code": "1",
                      "status": "completed", "container_id": "cntr_1", "outputs": None}]},
          {"type": "tool_use", "input": [{"role": "user", "content": [
              {"type": "input_file", "file_id": "cntr_1"}]}]}]),
        ("responses", {"input": "hi", "stream": True}, ("cntr_2",),
         [{"tools": [{"type": "code_interpreter", "container": "cntr_2"}]}]),
    ],
)  # fmt: skip
def test_a_container_is_its_callers_wherever_a_body_names_it(
    served: Served, keeper: Keeper, path: str, asked: dict[str, Any], made: tuple[str, ...],
    others: list[dict[str, Any]], other: str,
) -> None:  # fmt: skip
    model = "claude-sonnet-4-5" if path == "messages" else "gpt-4o-mini"
    asked = {"model": model, **asked}
    keeper.replies[path] = _of_code
    before = set(served.ledger.select("SELECT object_id FROM provider_objects"))
    try:
        status, raw, _ = served.ask("POST", f"/v1/{path}", asked)
        assert status == 200, raw
        after = set(served.ledger.select("SELECT object_id FROM provider_objects"))
        assert after - before == {(name,) for name in made}
        for more in others:
            for escaped in (False, True):
                body = json.dumps({**asked, **more}).encode()
                if escaped:
                    body = body.replace(b"container", b"c\\u006fntainer")
                sent = len(keeper.asked)
                status, raw, _ = served.ask("POST", f"/v1/{path}", body, token=other)
                assert (status, json.loads(raw)["error"]["code"]) == (404, "file_not_found"), raw
                assert len(keeper.asked) == sent
        # What was made without Remit is nobody's: whether there is such a thing, the provider says.
        body = json.dumps({**asked, **others[0]}).replace(made[0], "made-elsewhere").encode()
        assert served.ask("POST", f"/v1/{path}", body, token=other)[0] == 200
        assert served.ledger.verify().problems == []
    finally:
        del keeper.replies[path]


def test_a_limit_that_is_none_is_passed_over(served: Served) -> None:
    for path in ("/v1/files", "/v1/batches"):
        for limit in ("%C2%B2", "9" * 5000, "-1", "x"):
            _, raw, _ = served.ask("GET", f"{path}?limit={limit}")
            assert b"internal_error" not in raw
