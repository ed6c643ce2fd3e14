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


@pytest.mark.parametrize(
    "path",
    ["/v1/chat/completions/", "/openai/v1/chat/completions/", "/chat/completions/",
     "/openai/deployments/gpt-4o-mini/chat/completions?api-version=2026-10-01",
     "/openai/deployments/gpt-4o-mini/chat/completions/"],
)  # fmt: skip
def test_a_path_of_a_call(served: Served, path: str) -> None:
    body = _BODY if "deployments" in path else {**_BODY, "model": "gpt-4o-mini"}
    status, raw, _ = served.ask("POST", path, body)
    assert status == 200, raw
    assert json.loads(raw)["model"] == "gpt-4o-mini"


def test_the_deployment_of_a_path_is_the_model(served: Served) -> None:
    path = "/openai/deployments/openai%2Fgpt-4o-mini/chat/completions"
    session = "SES-DEPLOYMENT1"
    status, raw, _ = served.ask(
        "POST", path, {**_BODY, "model": "another"}, headers={"x-remit-session": session}
    )
    assert status == 200, raw
    assert served.exchange(session).metadata["model_id"] == "gpt-4o-mini"


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"messages": []}'])
def test_a_bad_body_at_a_deployment(served: Served, body: bytes) -> None:
    path = "/openai/deployments/gpt-4o-mini/chat/completions"
    assert served.ask("POST", path, body)[0] == 400


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


@pytest.mark.parametrize(
    "path", ["/v1/models/", "/models/", "/v1/models/gpt-4o-mini/", "/healthz/"]
)
def test_a_trailing_slash(served: Served, path: str) -> None:
    status, raw, _ = served.ask("GET", path)
    assert (status, raw) == served.ask("GET", path.rstrip("/"))[:2]
    assert status == 200


def test_slashes_after_the_path_of_a_call(served: Served) -> None:
    assert served.ask("POST", "/v1/chat/completions//", prompt())[0] == 200


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("//v1//chat/completions", b"without a slash"),
        ("/v1//messages", b"without a slash"),
        ("/v1/v1/messages", b"before /v1"),
    ],
)
def test_a_base_url_that_is_wrong_is_named(served: Served, path: str, hint: bytes) -> None:
    status, raw, _ = served.ask("POST", path, prompt())
    assert status == 404
    assert hint in raw


@pytest.mark.parametrize(
    "path",
    ["/v1/models", "/healthz", "/readyz", "/v1/key", "/v1/files", "/api/keys", "/v1/nothing"],
)
def test_head_is_get_without_a_body(served: Served, path: str) -> None:
    status, raw, headers = served.ask("HEAD", path)
    assert raw == b""
    expected, _, named = served.ask("GET", path)
    assert status == expected
    assert headers.get("content-type") == named.get("content-type")


@pytest.mark.parametrize(
    "headers",
    [
        {"api-key": "KEY"},
        {"x-api-key": "KEY"},
        {"authorization": "Bearer dummy", "x-api-key": "KEY"},
        {"authorization": "Bearer dummy", "api-key": "KEY"},
        {"authorization": "Bearer KEY", "x-api-key": "dummy"},
        {"authorization": "Basic ZHVtbXk=", "x-api-key": "dummy", "api-key": "KEY"},
    ],
    ids=str,
)
def test_a_key_in_another_header(served: Served, headers: dict[str, str]) -> None:
    named = {name: value.replace("KEY", served.token) for name, value in headers.items()}
    status, raw, _ = served.ask(
        "POST", "/v1/chat/completions", {**_BODY, "model": "gpt-4o-mini"}, token="", headers=named
    )
    assert status == 200, raw


def test_without_a_setting_no_page_may_call(served: Served) -> None:
    status, _, headers = served.ask("OPTIONS", "/v1/chat/completions", headers=_preflight(_PAGE))
    assert status in (404, 405)
    assert "access-control-allow-origin" not in headers
    _, _, headers = served.ask("GET", "/v1/models", headers={"origin": _PAGE})
    assert "access-control-allow-origin" not in headers


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


def test_pages_of_other_origins_may_not(crossing: Served) -> None:
    other = "https://evil.example.com"
    status, _, headers = crossing.ask(
        "OPTIONS", "/v1/chat/completions", token="", headers=_preflight(other)
    )
    assert status == 400
    assert "access-control-allow-origin" not in headers


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
    status, raw, _ = served.ask(
        method, path.replace("{id}", "x-1"), b"" if method == "POST" else None
    )
    assert NOWHERE not in raw
    assert status != 405, raw
    without_key, _, _ = served.ask(method, path.replace("{id}", "x-1"), token="")
    assert without_key == (200 if told.get("security") == [] else 401)


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


def test_the_page_of_the_server_has_the_same_paths() -> None:
    table = SERVER.partition("## Endpoints")[2].partition("\n## ")[0]
    for _, path, _ in OPERATIONS:
        short = re.sub(r"/\{id\}.*", "", path)
        assert short in table, path
