"""Two tenants and their host in one server: nothing of one is seen from another."""

from __future__ import annotations

import dataclasses
import json
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.auth import AgentTokens, KeyStore, agent_secret
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from remit.kernel.root import Root
from remit.kernel.tenant import TenantFile
from remit.ledger import LedgerClient
from tests.server.conftest import QUICK, database_of
from tests.server.running import Served, new_session, serving
from tests.support.tenants import TENANTS, new_host, opened
from tests.support.upstream import Upstream
from tests.support.waiting import until

ALL = ("", *TENANTS)


@dataclass
class Shared:
    """A server with tenants, and of host (``""``) and tenants an admin's key and a ledger."""

    served: Served
    database: str
    keys: dict[str, str] = field(default_factory=dict)
    ledgers: dict[str, LedgerClient] = field(default_factory=dict)

    def root(self, name: str) -> Path:
        return self.served.root / "tenants" / name if name else self.served.root

    def key(self, name: str, *, usd_nano: int | None = None, role: str = "admin") -> str:
        ledger = self.ledgers[name]
        with KeyStore(ledger) as keys:
            made = keys.create(f"k-{time.monotonic_ns()}", role=role)
            limits = BudgetLimits(None, usd_nano, None, None, None)
            TokenBudgeter(ledger).allocate(BudgetScope(key_id=made.key_id), limits=limits)
        return made.key

    def get(self, name: str, path: str) -> tuple[int, Any]:
        status, body, _ = self.served.ask("GET", path, token=self.keys[name])
        return status, json.loads(body)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(
    request: pytest.FixtureRequest, upstream: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    database = database_of(request)
    place = tmp_path_factory.mktemp("shared") / "host"
    root = new_host(place, QUICK + "[auth]\nrevocation_s = 0.2\n", database=database)
    with serving(root, upstream.url, database=database) as served:
        made = Shared(served, database)
        for name in ALL:
            made.ledgers[name] = opened(made.root(name), database)
            made.keys[name] = made.key(name)
        try:
            yield made
        finally:
            for ledger in made.ledgers.values():
                assert ledger.verify().verified
                assert ledger.orphans() == []
                ledger.close()


def test_a_call_is_on_record_where_its_key_belongs_and_nowhere_else(shared: Shared) -> None:
    served = shared.served
    ids = {}
    for name in ALL:
        session, text = new_session(), f"secret of {name or 'host'}"
        for dialect in ("openai", "anthropic"):
            status, body, headers = served.call(
                dialect, text, session=session, token=shared.keys[name]
            )
            assert status == 200, body
            ids[name] = headers["x-remit-exchange"]
        for other in ALL:
            entries = list(shared.ledgers[other].query(session_id=session))
            assert [len(entries) > 0, other == name] in ([True, True], [False, False])
            assert any(shared.ledgers[other].query(text=f'"{text}"')) == (other == name)
        for other in ALL:
            status, body = shared.get(other, f"/api/ledger/entries?session_id={session}")
            assert status == 200, body
            assert bool(body["entries"]) == (other == name)
    _, listed = shared.get("acme", "/api/sessions")
    assert "globex" not in json.dumps(listed)


def test_usage_budgets_keys_and_metrics_are_each_ones_own(shared: Shared) -> None:
    served = shared.served
    poor = shared.key("acme", usd_nano=1)
    until(lambda: served.call("openai", "hi", token=poor)[0] == 402)
    served.call("openai", "hi", token=shared.keys["acme"], model="gpt-4o")
    for name in ("globex", ""):
        _, usage = shared.get(name, "/api/usage")
        assert 'gpt-4o"' not in json.dumps(usage)
        _, keys = shared.get(name, "/api/keys")
        listed = {one["prefix"] for one in keys["keys"]}
        of_tenants = ("sk-remit-acme_", "sk-remit-globex_")
        own = f"sk-remit-{name}_" if name else "sk-remit-"
        assert all(prefix.startswith(own) for prefix in listed)
        assert bool(name) == any(prefix.startswith(of_tenants) for prefix in listed)
        _, text, _ = served.ask("GET", "/metrics", token=shared.keys[name])
        assert b'model="gpt-4o"' not in text
    _, text, _ = served.ask("GET", "/metrics", token=shared.keys["acme"])
    assert b'model="gpt-4o"' in text
    assert b'tenant="' not in text
    _, text, _ = served.ask("GET", "/metrics", token=shared.keys[""])
    assert b'remit_tenant_calls_total{outcome="success",tenant="acme"}' in text
    assert shared.get("acme", "/v1/key")[1] != shared.get("globex", "/v1/key")[1]


def test_a_key_opens_its_own_tenant_alone(shared: Shared) -> None:
    served = shared.served
    secret = shared.keys["acme"].removeprefix("sk-remit-acme_")
    for token in (
        f"sk-remit-{secret}", f"sk-remit-globex_{secret}", f"sk-remit-nobody_{secret}",
        f"sk-remit-../acme_{secret}", f"sk-remit-_{secret}", f"sk-remit-acme_{'x' * 43}",
    ):  # fmt: skip
        answers = {served.ask("GET", path, token=token)[0]
                   for path in ("/v1/models", "/api/keys", "/v1/files")}  # fmt: skip
        assert answers == {401}
        assert served.call("openai", "hi", token=token)[0] == 401
    # Another header names no other tenant than the key does.
    named = {"x-remit-tenant": "globex"}
    status, body, _ = served.ask("GET", "/api/keys", token=shared.keys["acme"], headers=named)
    assert status == 200
    assert b"sk-remit-globex" not in body


def test_a_login_holds_in_the_console_of_its_tenant(shared: Shared) -> None:
    served = shared.served
    session = new_session()
    served.call("openai", "only for acme", session=session, token=shared.keys["acme"])
    for name in ("acme", "globex", ""):
        cookie = _signed_in(served, shared.keys[name])
        status, page, _ = served.ask(
            "GET", f"/console/sessions/{session}", token="", headers={"cookie": cookie}
        )
        assert (status == 200 and b"only for acme" in page) == (name == "acme")
        for other in ("acme", "globex", "nobody", ""):  # what is chosen opens nothing
            if other != name and (name or other in TENANTS):
                turned = _with_choice(cookie, other)
                status, _, _ = served.ask("GET", "/", token="", headers={"cookie": turned})
                assert status == 303
    both = "; ".join(_signed_in(served, shared.keys[name]) for name in ("acme", "globex"))
    status, _, _ = served.ask("GET", "/", token="", headers={"cookie": both})
    assert status == 200
    for name in ("acme", "nobody"):
        status, _, headers = served.ask("GET", f"/console/login?tenant={name}", token="")
        wanted = f"remit_tenant={name if name == 'acme' else ''};"
        assert (status, headers["set-cookie"].startswith(wanted)) == (200, True)
    status, page, _ = served.ask("POST", "/console/login", b"key=sk-remit-acme_x", token="",
                                 headers=_FORM)  # fmt: skip
    assert (status, b"unknown, expired or revoked" in page) == (403, True)


_FORM = {"content-type": "application/x-www-form-urlencoded"}


def _signed_in(served: Served, key: str) -> str:
    body = urllib.parse.urlencode({"key": key, "next": "/"}).encode()
    status, page, headers = served.ask("POST", "/console/login", body, token="", headers=_FORM)
    assert status == 303, page
    cookies = headers["set-cookie"].replace(", remit_", "\nremit_").splitlines()
    return "; ".join(one.partition(";")[0] for one in cookies)


def _with_choice(cookie: str, name: str) -> str:
    kept = [one for one in cookie.split("; ") if not one.startswith("remit_tenant=")]
    return "; ".join([*kept, f"remit_tenant={name}"])


def _heads(shared: Shared) -> Mapping[str, int]:
    found = {}
    for entry in shared.ledgers[""].query(event_type="TENANT_CHECKPOINT"):
        found[entry.metadata["tenant"]] = entry.metadata["size"]
    return found


def test_the_hosts_log_takes_the_heads_of_tenants_by_itself(shared: Shared) -> None:
    ledger = shared.ledgers["globex"]
    ledger.checkpoint()
    size = ledger.count()
    until(lambda: _heads(shared).get("globex", 0) >= size, within_s=30)


def test_the_host_lists_its_tenants_and_they_have_none(shared: Shared) -> None:
    served = shared.served
    assert served.call("openai", "hi", token=shared.keys["globex"])[0] == 200
    status, one = shared.get("", "/api/tenants/globex")
    assert (status, one["state"], one["removed"]) == (200, "served", None)
    assert one["spent_today_usd"] > 0
    assert one["entries"] == shared.ledgers["globex"].count()
    assert one["head"]["entries"] <= one["entries"]
    assert one["head"]["entry"].startswith("LED-")
    first = shared.get("", "/api/tenants?limit=1")[1]
    second = shared.get("", f"/api/tenants?limit=1&cursor={first['next_cursor']}")[1]
    assert [page["tenants"][0]["name"] for page in (first, second)] == ["acme", "globex"]
    assert second["next_cursor"] is None
    assert shared.get("", "/api/tenants/nobody")[0] == 404
    assert shared.get("", "/api/tenants/..")[0] == 404
    for name in TENANTS:
        assert shared.get(name, "/api/tenants") == (200, {"tenants": [], "next_cursor": None})
        assert shared.get(name, "/api/tenants/globex")[0] == 404
    agent = shared.key("", role="agent")
    until(lambda: served.ask("GET", "/api/tenants", token=agent)[0] == 403)
    # One that does not answer hides no other, and of none is a password shown.
    path = TenantFile.path(shared.root("acme"))
    kept = path.read_bytes()
    file = dataclasses.replace(
        TenantFile(**json.loads(kept)), database="postgresql://u:hush@127.0.0.1:1/x"
    )
    path.write_bytes(file.encoded())
    try:
        acme, globex = shared.get("", "/api/tenants")[1]["tenants"]
    finally:
        path.write_bytes(kept)
    assert (acme["entries"], globex["entries"]) == (None, one["entries"])
    assert "hush" not in json.dumps(acme)


def test_an_agents_token_counts_in_the_tenant_that_made_it(shared: Shared) -> None:
    served, acme = shared.served, Root(shared.root("acme"))
    token = AgentTokens(agent_secret(acme)).issue("scout", ttl_s=60)
    for named, status in (({"x-remit-tenant": "acme"}, 200), ({"x-remit-tenant": "globex"}, 401),
                          ({}, 401)):  # fmt: skip
        for path in ("/v1/models", "/v1/key"):
            assert served.ask("GET", path, token=token, headers=named)[0] == status
