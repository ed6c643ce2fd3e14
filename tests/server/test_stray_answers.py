"""One answer of a provider that says little about the next: a stray 404, a time to come again."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from tests.server.running import Served, serving
from tests.support.raw_provider import RawProvider, whole
from tests.support.wire import completion, response

BEFORE = "provider"
TOML = "[gateway]\nretry_base_ms = 1\nretry_max_ms = 1000\n"
_CHAT = completion("translated")
_NATIVE = response("native")


def _replies(provider: RawProvider, *answers: bytes) -> list[str]:
    """Have the provider give ``answers`` in turn, the last for ever; the paths it is asked."""
    left, paths = list(answers), []

    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        paths.append(path)
        connection.sendall(left.pop(0) if len(left) > 1 else left[0])
        return True

    provider.answer = answer
    return paths


def _responses(served: Served) -> str:
    body = {"model": "gpt-4o-mini", "max_output_tokens": 50, "input": "hi"}
    status, raw, _ = served.ask("POST", "/v1/responses", body)
    assert status == 200, raw
    text: str = json.loads(raw)["output"][0]["content"][0]["text"]
    return text


def test_a_stray_404_turns_the_responses_api_off_for_one_call(
    served: Served, provider: RawProvider
) -> None:
    missing = whole(b"<html>404</html>", "text/html", "404 Not Found")
    native, chat = (whole(json.dumps(answer).encode()) for answer in (_NATIVE, _CHAT))
    _replies(provider, missing, chat, native)
    assert _responses(served) == "translated"
    assert _responses(served) == "native"
    # A server that says so again and again has none: its calls are translated at once.
    for _ in range(3):
        _replies(provider, missing, chat)
        assert _responses(served) == "translated"
    paths = _replies(provider, chat)
    assert _responses(served) == "translated"
    assert paths == ["/v1/chat/completions"]


def test_a_missing_endpoint_costs_no_retry(provider: RawProvider, tmp_path: Path) -> None:
    missing = whole(b"<html>404</html>", "text/html", "404 Not Found", "retry-after: 90\r\n")
    chat = whole(json.dumps(_CHAT).encode())
    with serving(tmp_path / "root", provider.url, toml="[gateway]\nmax_retries = 0\n") as served:
        paths = _replies(provider, missing, chat)
        assert _responses(served) == "translated"
        assert paths == ["/v1/responses", "/v1/chat/completions"]
        paths = _replies(provider, missing)
        body = {"model": "gpt-4o-mini", "max_output_tokens": 50, "input": "hi"}
        assert served.ask("POST", "/v1/responses", body)[0] == 400
        assert paths == ["/v1/responses", "/v1/chat/completions"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("form", ["seconds", "date", "milliseconds"])
def test_a_provider_is_not_asked_again_before_the_time_that_it_names(
    served: Served, provider: RawProvider, form: str, path: str
) -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    more = {
        "seconds": "retry-after: 90",
        "date": f"retry-after: {at}",
        "milliseconds": "retry-after-ms: 90000",
    }[form]
    error = b'{"error":{"message":"Rate limit reached","type":"rate_limit_error"}}'
    paths = _replies(provider, whole(error, status="429 Too Many Requests", more=f"{more}\r\n"))
    body: dict[str, Any] = {"model": "gpt-4o-mini", "max_tokens": 20}
    body["messages"] = [{"role": "user", "content": "hi"}]
    status, raw, headers = served.ask("POST", path, body)
    assert status == 429, raw
    assert len(paths) == 1
    assert "retry-after" in headers or "retry-after-ms" in headers
