"""Images and documents in a message: sent to the provider, recorded whole, named in the text."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from remit import File, tool
from remit.kernel.errors import InvalidInputError
from tests.support.agents import Scripted
from tests.support.wire import message, tool_use

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@tool
def look(what: str) -> str:
    """Look something up."""
    return what


def test_an_image_and_a_document_reach_the_model_and_the_record(
    scripted: Scripted, tmp_path: Path
) -> None:
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
        assert document == {"type": "text", "text": "note.txt:\n```\nGreen tea.\n```"}
        assert "What is in it?" in text["text"]
        assert "[dot.png: image/png, 70 bytes]" in text["text"]
    assert "[dot.png: image/png" in json.dumps(server.calls[2].body["messages"][0])
    assert "[note.txt: text/plain, 10 bytes]" in turn.metadata["user_message"]
    assert base64.b64decode(plan.metadata["input_context"]["files"][0]["source"]["data"]) == PNG


@pytest.mark.parametrize(
    "wrong",
    [[], "  ", [""], [File(b"x", "image/png")], ["x", 3], ["x", b"y"], ["x", {"type": "image"}]],
)
def test_what_is_no_message_is_refused_before_anything_is_done(
    scripted: Scripted, wrong: Any
) -> None:
    with scripted(message("x")) as (runtime, server):
        with runtime.agent("viewer").session() as session, pytest.raises(InvalidInputError):
            session.turn(wrong)
        assert not server.calls


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
