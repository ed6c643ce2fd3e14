"""Requests that name no model: Remit's default is sent, or the provider's own words refuse them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.running import Served
from tests.support.object_store import ObjectStore

BEFORE = "store"


def _ask(served: Served, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    given = {"content-type": "application/json"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    status, raw, _ = served.ask("POST", path, body, headers=given)
    return status, json.loads(raw)


@pytest.mark.parametrize("text", ['{"prompt" : "a cat"}', '{"model":null,"prompt" : "a cat"}'])
def test_an_image_gets_a_recorded_model(text: str, served: Served, store: ObjectStore) -> None:
    _ask(served, "/v1/images/generations", text.encode())
    sent = json.loads(store.asked[-1].body)
    assert sent == {"model": "gpt-image-2.5-flare", "prompt": "a cat"}
    entry = next(served.ledger.query(event_type="EXCHANGE", order="desc", limit=1))
    (changed,) = entry.metadata["changed"]
    assert (changed["path"], changed["reason"]) == ("/model", "the client named no model")
    assert entry.metadata["model_id"] == "gpt-image-2.5-flare"


@pytest.mark.parametrize("before", [b"", b"a preamble\r\n"])
@pytest.mark.parametrize("path", ["/v1/images/edits", "/v1/images/variations"])
def test_a_form_without_a_model_gets_one_more_part(
    path: str, before: bytes, served: Served, store: ObjectStore
) -> None:
    form = (b'--B\r\nContent-Disposition: form-data; name="prompt"\r\n\r\na cat\r\n'
            b'--B\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n\x89\r\n'
            b"--B--\r\n")  # fmt: skip
    _ask(served, path, before + form, content_type="multipart/form-data; boundary=B")
    part = b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\ngpt-image-2.5-flare\r\n'
    assert store.asked[-1].body == part + form


def test_responses_and_moderations_get_a_default(served: Served, store: ObjectStore) -> None:
    _ask(served, "/v1/responses", {"input": "hello"})
    _ask(served, "/v1/responses", {"input": "hello", "model": "gpt-4o-mini"})
    named, unnamed = served.ledger.query(event_type="EXCHANGE", order="desc", limit=2)
    assert named.metadata["model_id"] == "gpt-4o-mini"
    assert unnamed.metadata["model_id"]
    assert "the client named no model" in str(unnamed.metadata["changed"])
    assert _ask(served, "/v1/responses/input_tokens", {"input": "hello"})[0] == 200
    _ask(served, "/v1/moderations", b'{"input":"x"}')  # the provider's own
    assert store.asked[-1].body == b'{"input":"x"}'
