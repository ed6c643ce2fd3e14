"""Tenants are opened on demand, few at one time; no tenant names what another made."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.auth import KeyStore
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.gateway.provider_objects import objects_named
from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.tenant import TenantFile
from remit.providers import Body
from remit.providers.wire import MESSAGES
from remit.runtime.tenants import find_tenant
from remit.server.extensions import HttpError
from remit.server.in_flight_limits import Share, Shares
from remit.server.telemetry import CallMetrics
from remit.server.tenants.open_tenants import OpenTenants
from tests.server.conftest import QUICK
from tests.server.running import FORM, Served, form, new_session, prompt, serving
from tests.support.commands import run_remit
from tests.support.keeping import Asked, Keeper, keeping
from tests.support.stores import outside
from tests.support.tenants import TENANTS, new_host, opened
from tests.support.upstream import Upstream
from tests.support.waiting import until
from tests.support.wire import completion, response

_TOML = QUICK + "[auth]\nrevocation_s = 0.2\n[server]\nopen_tenants = 1\n"


def _key(root: Path) -> str:
    with opened(root) as ledger, KeyStore(ledger) as keys:
        made = keys.create("k")
        TokenBudgeter(ledger).allocate(BudgetScope(key_id=made.key_id))
    return made.key


def opened_size(path: Path) -> int:
    ((size,),) = outside(str(path), "SELECT count(*) FROM entries")
    return int(size)


def test_tenants_come_and_go_while_the_server_runs(upstream: Upstream, tmp_path: Path) -> None:
    root = new_host(tmp_path / "host", _TOML)
    keys = {name: _key(root / "tenants" / name) for name in TENANTS}
    (root / "tenants").rename(tmp_path / "later")
    with serving(root, upstream.url, environment={"REMIT_LOG": "INFO"}) as served:

        def file_of(name: str) -> TenantFile:
            file = TenantFile.read(root / "tenants" / name)
            assert file is not None
            return file

        def call(name: str) -> int:
            return served.call("openai", "hi", token=keys[name])[0]

        assert call("acme") == 401
        (tmp_path / "later").rename(root / "tenants")
        until(lambda: call("acme") == 200)
        for name in (*TENANTS, *TENANTS):  # there is room for one
            assert call(name) == 200
        assert served.call("openai", "hi", token=keys["acme"][:-1] + "!")[0] == 401
        assert served.call("openai", "hi")[0] == 200
        ledger = root / "tenants/acme/ledger.db"
        ledger.rename(tmp_path / "away.db")  # while it is closed
        status, body, headers = served.call("openai", "hi", token=keys["acme"])
        assert (status, headers["retry-after"]) == (503, "1")
        assert b"tenant_unavailable" in body
        assert str(root).encode() not in body
        assert [call("globex"), served.call("openai", "hi")[0]] == [200, 200]
        (tmp_path / "away.db").rename(ledger)
        until(lambda: call("acme") == 200)
        # It is not served from the ledger of another, nor with a key that the host did not record.
        vkey = root / "tenants/acme/HOT/keys/ledger.vkey"
        for file, data in (
            (TenantFile.path(root / "tenants/acme"),
             TenantFile.path(root / "tenants/acme").read_bytes().replace(
                 b'"ledger.db"', b'"../globex/ledger.db"')),
            (vkey, (root / "tenants/globex/HOT/keys/ledger.vkey").read_bytes().replace(
                b"globex", b"acme")),
        ):  # fmt: skip
            kept = file.read_bytes()
            served.call("openai", "hi", token=keys["globex"])  # closes acme
            file.write_bytes(data)
            until(lambda: call("acme") == 503)
            file.write_bytes(kept)
            until(lambda: call("acme") == 200)
            assert call("globex") == 200
        (root / "tenants/acme/moving.json").write_text("{")  # which is acme's alone
        assert call("globex") == 200
        assert call("acme") == 503
        (root / "tenants/acme/moving.json").unlink()
        until(lambda: call("acme") == 200)
        # A move waits for the calls that run, and the server follows it.
        done = run_remit("tenant", "move", "acme", "--to", tmp_path / "new", "--root", root)
        assert done.returncode == 0, done.stderr
        size = opened_size(tmp_path / "new/ledger.db")
        until(lambda: call("acme") == 200)
        assert opened_size(tmp_path / "new/ledger.db") > size
        # So it is with a removal: what was interrupted before its record is undone by the server.
        removal = {"file": dataclasses.asdict(file_of("globex")), "removal_id": "1", "by": "t"}
        (root / "tenants/globex/removing.json").write_text(json.dumps(removal))
        assert call("globex") == 200
        assert not (root / "tenants/globex/removing.json").exists()
        done = run_remit("tenant", "remove", "globex", "--reason", "r", "--yes", "--root", root)
        assert done.returncode == 0, done.stderr
        until(lambda: call("globex") == 401)
        assert call("acme") == 200
    with opened(root) as ledger_of_host:
        taken = ledger_of_host.query(event_type="TENANT_CHECKPOINT")
        assert {entry.metadata["tenant"] for entry in taken} == set(TENANTS)  # as it ended


def test_a_tenant_that_floods_has_its_share_of_a_process() -> None:
    process = Shares(4, 1024, of="tenant")
    flood, other = (Shares(4, 1024, (process, name)) for name in ("acme", "globex"))
    held = [Share(flood) for _ in range(3)]
    for number, share in enumerate(held):
        share.begin(f"key {number}")
    with pytest.raises(HttpError, match="This tenant has 3 requests"):
        Share(flood).begin("one more key")
    Share(other).begin("a key")
    most = process.bytes_of_one
    held[0].take(most // 2)
    held[1].take(most - most // 2)
    with pytest.raises(HttpError) as refused:
        held[2].take(70_000)
    assert refused.value.status == 429
    for share in held:
        share.end()
    assert not process.bytes_of
    assert not flood.bytes_of
    assert process.calls_of == {"globex": 1}


def test_a_tenant_whose_database_does_not_answer_keeps_nobody_from_theirs(tmp_path: Path) -> None:
    root = new_host(tmp_path / "host")
    key = _key(root / "tenants/globex")
    deaf = socket.create_server(("127.0.0.1", 0))
    url = f"postgresql://u@127.0.0.1:{deaf.getsockname()[1]}/x"
    file = TenantFile.read(root / "tenants/acme")
    assert file is not None
    there = dataclasses.replace(file, database=url, ledger="remit_tenant_acme")
    TenantFile.path(root / "tenants/acme").write_bytes(there.encoded())

    async def ask() -> None:
        shares = Shares(4, 1024, of="tenant")
        tenants = OpenTenants(Root(root), 4, {}, "t", shares, lambda _: None, CallMetrics())
        wrong = f"sk-remit-acme_{'x' * 43}"
        asking = [asyncio.create_task(tenants.of("acme", wrong)) for _ in range(120)]
        await asyncio.sleep(0)
        found = asyncio.create_task(tenants.of("globex", key))
        await asyncio.wait([found, *asking[:100]], return_when=asyncio.FIRST_COMPLETED)
        assert found.done()
        assert sum(task.done() for task in asking) == 20  # for whom there was no place
        deaf.close()
        answers = await asyncio.gather(*asking, return_exceptions=True)
        assert {getattr(one, "status", 0) for one in answers} == {503}
        await tenants.stop(at_once=True)

    asyncio.run(ask())


def test_a_damaged_tenant_keeps_no_other_heads_from_the_host(tmp_path: Path) -> None:
    root = new_host(tmp_path / "host")
    folder = root / "tenants"
    for name in TENANTS:
        with opened(folder / name) as ledger:
            ledger.checkpoint()
    shutil.copytree(folder / "acme", folder / "acme.bak")
    file = (folder / "acme/tenant.json").read_bytes()
    with opened(root) as ledger:
        shares = Shares(4, 1024, of="tenant")
        tenants = OpenTenants(Root(root), 4, {}, "t", shares, lambda _: None, CallMetrics())
        (folder / "acme/tenant.json").write_bytes(
            file.replace(b'"database": ""', b'"database": "elsewhere"')
        )
        with pytest.raises(RemitError, match=r"tenant\.json is damaged"):
            find_tenant(Root(root), "acme")
        for damaged in (b"{", file.replace(b"acme", b"globex")):
            (folder / "acme/tenant.json").write_bytes(damaged)
            tenants.take_heads(ledger)
        taken = [one.metadata["tenant"] for one in ledger.query(event_type="TENANT_CHECKPOINT")]
    assert taken == ["globex"]
    with pytest.raises(RemitError, match="belongs to the tenant globex"):
        find_tenant(Root(root), "acme")


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
