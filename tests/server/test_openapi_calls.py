"""What ``/api/openapi.json`` tells of the paths outside ``/api`` is what the server answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from remit.server.api.call_paths import paths_beside_the_api
from tests.server.running import Served

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
