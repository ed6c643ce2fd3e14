"""Clients spell paths, methods and keys in several ways; each reaches the same endpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from remit.server.api.call_paths import paths_beside_the_api
from tests.server.conftest import QUICK
from tests.server.running import Served, prompt, serving
from tests.support.upstream import Upstream

_PAGE = "https://app.example.com"
_CORS = QUICK + f'\n[server]\ncors_origins = ["{_PAGE}"]\n'
_BODY = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}


@pytest.fixture(scope="module")
def crossing(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that a web page may call."""
    with serving(tmp_path_factory.mktemp("cors") / "root", upstream.url, toml=_CORS) as running:
        yield running


def test_a_path_of_a_call(served: Served) -> None:
    deployment = "/openai/deployments/gpt-4o-mini/chat/completions"
    for path in ("/v1/chat/completions/", "/openai/v1/chat/completions/", "/chat/completions/",
                 f"{deployment}?api-version=2026-10-01", f"{deployment}/"):  # fmt: skip
        body = _BODY if "deployments" in path else {**_BODY, "model": "gpt-4o-mini"}
        status, raw, _ = served.ask("POST", path, body)
        assert status == 200, raw
        assert json.loads(raw)["model"] == "gpt-4o-mini"


def test_the_deployment_of_a_path_is_the_model(served: Served, session: str) -> None:
    path = "/openai/deployments/{}gpt-4o-mini/chat/completions"
    status, raw, _ = served.ask(
        "POST", path.format("openai%2F"), {**_BODY, "model": "another"},
        headers={"x-remit-session": session},
    )  # fmt: skip
    assert status == 200, raw
    assert served.exchange(session).metadata["model_id"] == "gpt-4o-mini"
    for body in (b"", b"[]", b"{", b'{"messages": []}'):
        assert served.ask("POST", path.format(""), body)[0] == 400, body


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_client_of_azure(served: Served) -> None:
    with openai.AzureOpenAI(
        azure_endpoint=served.url, api_key=served.token, api_version="2026-10-01", max_retries=0
    ) as client:
        answer = client.chat.completions.create(
            model="gpt-4o-mini", messages=[{"role": "user", "content": "hi"}], max_tokens=9
        )
        assert answer.choices[0].message.content == "You said: hi"
        with client.chat.completions.create(
            model="gpt-4o-mini", messages=[{"role": "user", "content": "hi"}], max_tokens=9,
            stream=True,
        ) as stream:  # fmt: skip
            words = [part.choices[0].delta.content or "" for part in stream if part.choices]
        assert "".join(words) == "You said: hi"
        assert client.models.list().data


def test_slashes_and_base_urls(served: Served) -> None:
    for path in ("/v1/models/", "/models/", "/v1/models/gpt-4o-mini/", "/healthz/"):
        status, raw, _ = served.ask("GET", path)
        assert (status, raw) == served.ask("GET", path.rstrip("/"))[:2]
        assert status == 200
    assert served.ask("POST", "/v1/chat/completions//", prompt())[0] == 200
    for path, hint in (
        ("//v1//chat/completions", b"without a slash"), ("/v1//messages", b"without a slash"),
        ("/v1/messages/v1/messages", b"before /v1/messages"),
        ("/v1/chat/completions/chat/completions", b"before /chat/completions"),
        ("/v1/v1/messages", b"before /v1"), ("/v1/v1/chat/completions", b"before /v1"),
    ):  # fmt: skip
        status, raw, _ = served.ask("POST", path, prompt())
        assert (status, hint in raw) == (404, True), path


def test_head_is_get_without_a_body(served: Served) -> None:
    for path in ("/v1/models", "/healthz", "/readyz", "/v1/key", "/v1/files", "/api/keys",
                 "/v1/nothing"):  # fmt: skip
        status, raw, headers = served.ask("HEAD", path)
        expected, _, named = served.ask("GET", path)
        assert (status, raw) == (expected, b""), path
        assert headers.get("content-type") == named.get("content-type")


def test_a_key_in_another_header(served: Served) -> None:
    for headers in (
        {"api-key": "KEY"}, {"x-api-key": "KEY"},
        {"authorization": "Bearer dummy", "x-api-key": "KEY"},
        {"authorization": "Bearer dummy", "api-key": "KEY"},
        {"authorization": "Bearer KEY", "x-api-key": "dummy"},
        {"authorization": "Basic ZHVtbXk=", "x-api-key": "dummy", "api-key": "KEY"},
    ):  # fmt: skip
        named = {name: value.replace("KEY", served.token) for name, value in headers.items()}
        body = {**_BODY, "model": "gpt-4o-mini"}
        status, raw, _ = served.ask("POST", "/v1/chat/completions", body, token="", headers=named)
        assert status == 200, (headers, raw)


def test_no_page_of_another_origin_may_call(served: Served, crossing: Served) -> None:
    path = "/v1/chat/completions"
    status, _, headers = served.ask("OPTIONS", path, headers=_preflight(_PAGE))
    assert status in (404, 405)
    assert "access-control-allow-origin" not in headers
    _, _, headers = served.ask("GET", "/v1/models", headers={"origin": _PAGE})
    assert "access-control-allow-origin" not in headers
    other = _preflight("https://evil.example.com")
    status, _, headers = crossing.ask("OPTIONS", path, token="", headers=other)
    assert (status, "access-control-allow-origin" in headers) == (400, False)


def test_pages_of_a_named_origin_may_call(crossing: Served) -> None:
    path = "/v1/chat/completions"
    status, _, headers = crossing.ask("OPTIONS", path, token="", headers=_preflight(_PAGE))
    assert status == 200
    assert headers["access-control-allow-origin"] == _PAGE
    assert "authorization" in headers["access-control-allow-headers"].lower()
    assert "access-control-allow-credentials" not in headers
    for token, expected in ((crossing.token, 200), ("nobody", 401)):
        status, raw, headers = crossing.ask(
            "POST", path, {**_BODY, "model": "gpt-4o-mini"}, token=token, headers={"origin": _PAGE}
        )
        assert status == expected, raw
        assert headers["access-control-allow-origin"] == _PAGE
    assert "x-remit-exchange" in headers["access-control-expose-headers"]


def _preflight(origin: str) -> dict[str, str]:
    return {"origin": origin, "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type"}  # fmt: skip


SERVER = (Path(__file__).parents[2] / "docs/server.md").read_text()
OPERATIONS = [
    (method.upper(), path, told)
    for path, methods in paths_beside_the_api().items()
    for method, told in methods.items()
]
NOWHERE = b"does not exist. Remit serves "


@pytest.mark.parametrize(
    ("method", "path", "told"),
    OPERATIONS,
    ids=[f"{method} {path}" for method, path, _ in OPERATIONS],
)
def test_the_server_has_it(served: Served, method: str, path: str, told: dict[str, Any]) -> None:
    place = path.replace("{id}", "x-1")
    status, raw, _ = served.ask(method, place, b"" if method == "POST" else None)
    assert NOWHERE not in raw
    assert status != 405, raw
    without_key, _, _ = served.ask(method, place, token="")
    assert without_key == (200 if told.get("security") == [] else 401)
    # The page of the server has the same paths.
    table = SERVER.partition("## Endpoints")[2].partition("\n## ")[0]
    assert re.sub(r"/\{id\}.*", "", path) in table


def test_a_path_that_is_not_there_would_be_noticed(served: Served) -> None:
    status, raw, _ = served.ask("POST", "/v1/nothing", b"")
    assert status == 404
    assert NOWHERE in raw
    assert served.ask("PUT", "/v1/files")[0] == 405


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_an_example_is_a_call(served: Served, path: str) -> None:
    told = paths_beside_the_api()[path]["post"]
    status, raw, headers = served.ask(
        "POST", path, told["requestBody"]["content"]["application/json"]["example"]
    )
    assert status == 200, raw
    for header in ("x-remit-exchange", "x-remit-dispatch", "x-remit-cost-certainty"):
        assert header in headers
        assert header in told["responses"]["200"]["headers"]
