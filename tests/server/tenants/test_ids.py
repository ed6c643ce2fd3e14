"""What one tenant made, by its id, is nothing that another or the host can name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from remit.gateway.auth import KeyStore
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.gateway.provider_objects import objects_named
from remit.providers import Body
from remit.providers.wire import MESSAGES
from tests.server.conftest import QUICK
from tests.server.running import FORM, Served, form, new_session, prompt, serving
from tests.support.keeping import Asked, Keeper, keeping
from tests.support.tenants import TENANTS, new_host, opened
from tests.support.wire import completion, response

_LINE = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
         "body": prompt()}  # fmt: skip
_UPLOAD = form(purpose="batch", file=json.dumps(_LINE).encode())


class _Ids:
    """A server with two tenants, whose ``acme`` made one of each thing that has an id."""

    def __init__(self, served: Served, keeper: Keeper) -> None:
        self.served, self.keeper = served, keeper
        self.keys: dict[str, str] = {}
        for name in ("", *TENANTS):
            root = served.root / "tenants" / name if name else served.root
            with opened(root) as ledger, KeyStore(ledger) as keys:
                made = keys.create("k", role="operator")
                TokenBudgeter(ledger).allocate(BudgetScope(key_id=made.key_id))
            self.keys[name] = made.key
        self.session = new_session()
        keeper.replies["responses"] = lambda _: response("secret of acme")
        keeper.replies["chat/completions"] = lambda _: completion("ok")
        self.file = self.do("acme", "POST", "/v1/files", _UPLOAD)["id"]
        batch = {"input_file_id": self.file, "endpoint": "/v1/chat/completions",
                 "completion_window": "24h"}  # fmt: skip
        self.batch = self.do("acme", "POST", "/v1/batches", batch)["id"]
        asked = {"model": "gpt-4o-mini", "input": "hi", "store": True}
        self.response = self.do("acme", "POST", "/v1/responses", asked)["id"]
        self.conversation = self.do("acme", "POST", "/v1/conversations", {})["id"]
        self.entry = self.do("acme", "GET", "/api/ledger/entries?limit=1")["entries"][0]["id"]

    def sent(self) -> list[Asked]:
        """What reached the provider; each process lists its models in its own time."""
        return [one for one in self.keeper.asked if not one.path.startswith("/v1/models")]

    def ask(self, name: str, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        data = json.dumps(body).encode() if isinstance(body, dict) else body or b""
        is_form = isinstance(body, bytes)
        headers = {"x-remit-session": self.session} if name == "acme" else {}
        status, raw, _ = self.served.ask(
            method, path, data, token=self.keys[name], headers=headers | (FORM if is_form else {})
        )
        return status, raw

    def do(self, name: str, method: str, path: str, body: Any = None) -> Any:
        status, raw = self.ask(name, method, path, body)
        assert status == 200, raw
        return json.loads(raw)


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Ids]:
    with keeping() as keeper:
        root = new_host(tmp_path_factory.mktemp("ids") / "host", QUICK)
        with serving(root, keeper.url) as served:
            yield _Ids(served, keeper)


_PATHS = (
    "GET /v1/files/{file}", "GET /v1/files/{file}/content", "DELETE /v1/files/{file}",
    "GET /v1/batches/{batch}", "POST /v1/batches/{batch}/cancel",
    "GET /v1/responses/{response}", "GET /v1/responses/{response}?stream=true&starting_after=1",
    "GET /v1/responses/{response}/input_items", "POST /v1/responses/{response}/cancel",
    "DELETE /v1/responses/{response}", "GET /v1/conversations/{conversation}",
    "GET /v1/conversations/{conversation}/items", "GET /api/sessions/{session}",
)  # fmt: skip


@pytest.mark.parametrize("path", _PATHS)
def test_an_id_of_a_tenant_is_unknown_elsewhere(ids: _Ids, path: str) -> None:
    method, _, path = path.format(**vars(ids)).partition(" ")
    asked = len(ids.sent())
    for other in ("globex", ""):
        status, raw = ids.ask(other, method, path)
        assert (status, b"secret" in raw) == (404, False), raw
    assert len(ids.sent()) == asked  # no provider was asked either
    if method == "GET":
        assert ids.ask("acme", method, path)[0] == 200


def test_nothing_goes_on_from_what_another_tenant_made(ids: _Ids) -> None:
    asked = len(ids.keeper.asked)
    block = {"type": "file", "file": {"file_id": ids.file}}
    chat = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": [block]}]}
    answer = {"model": "gpt-4o-mini", "input": "go on"}
    batch = {"input_file_id": ids.file, "endpoint": "/v1/chat/completions",
             "completion_window": "24h"}  # fmt: skip
    refused = (
        ("/v1/chat/completions", chat),
        ("/v1/responses", answer | {"previous_response_id": ids.response}),
        ("/v1/responses", answer | {"conversation": ids.conversation}),
        ("/v1/batches", batch),
    )
    for other in ("globex", ""):
        for path, body in refused:
            status, raw = ids.ask(other, "POST", path, body)
            assert (status in (400, 404), b"secret" in raw) == (True, False), raw
        for path in ("/v1/files", "/v1/batches", "/api/sessions", "/api/ledger/entries",
                     "/api/approvals", "/api/orders"):  # fmt: skip
            raw = ids.ask(other, "GET", path)[1]
            assert not any(x.encode() in raw for x in (ids.file, ids.batch, ids.session)), path
    assert not any(one.method == "POST" for one in ids.keeper.asked[asked:])
    assert ids.ask("acme", "POST", "/v1/chat/completions", chat)[0] == 200  # its own
    # The argument of a tool is no file of a provider's.
    use = {"type": "tool_use", "id": "t", "name": "show", "input": {"file_id": "42"}}
    body = {"model": "claude-sonnet-4-5", "max_tokens": 5,
            "messages": [{"role": "assistant", "content": [use]}]}  # fmt: skip
    assert objects_named(Body.read(MESSAGES, json.dumps(body).encode())) == []
