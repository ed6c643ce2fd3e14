"""Devices that sign in for a person: Claude Code's gateway protocol over real HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from aiohttp import web

from remit.gateway.auth import Directory, Identity, KeyStore, agent_secret
from remit.kernel.errors import ConflictError, NotFoundError
from remit.kernel.root import Root
from remit.runtime import Runtime
from remit.server.console.device import change
from remit.server.console.pages import Asked
from remit.server.device_codes import LASTS_S, DeviceCodes, is_device_key, key_name
from remit.server.device_sign_in import PAGE, DeviceSignIn
from remit.server.extensions import Authenticator
from tests.server.asgi import AsgiRequest
from tests.server.console.client import Answered
from tests.server.console.test_oidc import CALLBACK, PUBLIC, SECRET, Person, settings
from tests.server.running import Served, prompt, serving
from tests.support.clocks import shared_clock
from tests.support.commands import run_remit
from tests.support.listening import listening
from tests.support.oidc import ANN, OidcProvider, oidc_provider
from tests.support.roots import new_root
from tests.support.upstream import Upstream

GRANT = "urn:ietf:params:oauth:grant-type:device_code"
MORE = """
devices = true
teams = { ops = "platform" }
lasts_s = 3600
[server.oidc.managed_settings."*"]
model = "haiku"
[server.oidc.managed_settings.platform]
model = "opus"
[server.oidc.managed_settings.platform.permissions]
deny = ["WebFetch"]
"""
OIDC = f"""issuer = "https://id.example.org"
client_id = "remit"
public_url = "{PUBLIC}"
roles = {{ all = "agent" }}
"""
ROLES = '"ops" = "agent"\n"all" = "auditor"'
FORM = {"content-type": "application/x-www-form-urlencoded"}
CHAT = prompt(model="claude-haiku-4-5")


@pytest.fixture(scope="module")
def running() -> Iterator[OidcProvider]:
    with oidc_provider() as provider:
        provider.redirect_uri = f"{PUBLIC}{CALLBACK}"
        provider.client_secret = SECRET
        yield provider


@pytest.fixture
def provider(running: OidcProvider) -> Iterator[OidcProvider]:
    yield running
    running.reset()


@pytest.fixture(scope="module")
def served(
    running: OidcProvider, upstream: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    with serving(
        tmp_path_factory.mktemp("devices") / "root", upstream.url,
        toml=settings(running, MORE, ROLES),
        environment={"REMIT_SERVER__OIDC__CLIENT_SECRET": SECRET},
    ) as found:  # fmt: skip
        yield found


def command(served: Served, *arguments: str) -> str:
    """Run a command on the server's root and return its output."""
    done = run_remit(*arguments, "--root", served.root)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Device:
    """A program that signs in, with the paths of the discovery document alone."""

    def __init__(self, served: Served) -> None:
        self.served = served
        status, raw, _ = served.ask("GET", "/.well-known/oauth-authorization-server", token="")
        assert status == 200
        self.metadata = json.loads(raw)
        path = urlsplit(self.metadata["device_authorization_endpoint"]).path
        status, raw, headers = served.ask(
            "POST", path, urlencode({"client_id": "claude-code"}).encode(), token="", headers=FORM
        )
        assert (status, headers["cache-control"]) == (200, "no-store")
        self.issued: dict[str, Any] = json.loads(raw)

    def poll(self, **changed: str) -> tuple[int, dict[str, Any]]:
        form = {"grant_type": GRANT, "device_code": self.issued["device_code"],
                "client_id": "claude-code", **changed}  # fmt: skip
        path = urlsplit(self.metadata["token_endpoint"]).path
        status, raw, _ = self.served.ask(
            "POST", path, urlencode(form).encode(), token="", headers=FORM
        )
        return status, json.loads(raw)

    def wait(self) -> tuple[int, dict[str, Any]]:
        """Poll until the answer is not to poll later."""
        while True:
            status, found = self.poll()
            if found.get("error") != "slow_down":
                return status, found
            time.sleep(0.5)

    @property
    def page(self) -> str:
        place = urlsplit(self.issued["verification_uri_complete"])
        assert f"{place.scheme}://{place.netloc}" == PUBLIC
        return f"{place.path}?{place.query}"


def decide(served: Served, provider: OidcProvider, device: Device, decision: str) -> Answered:
    """The person opens the page, signs in with the provider, and decides."""
    person = Person(served)
    to_login = person.get(device.page)
    assert to_login.status == 303
    following = parse_qs(urlsplit(to_login.headers["location"]).query)["next"][0]
    assert following == device.page
    person.take(person.sign_in(provider, following))
    shown = person.get(device.page)
    assert device.issued["user_code"] in shown.text
    return person.post(
        "/console/device", {**person.form_of(device.page), "decision": decision},
        sec_fetch_site="same-origin",
    )  # fmt: skip


def test_a_person_signs_a_device_in_and_is_billed(served: Served, provider: OidcProvider) -> None:
    device = Device(served)
    assert re.fullmatch(r"[B-Z]{4}(-[B-Z]{4}){2}", device.issued["user_code"])
    assert device.poll()[1]["error"] == "authorization_pending"
    assert "is signed in" in decide(served, provider, device, "approve").text
    status, token = device.wait()
    assert (status, token["token_type"]) == (200, "Bearer")
    assert 3500 < token["expires_in"] <= 3600
    key = token["access_token"]

    command(served, "budget", "set", "--team", "platform", "--usd", "5")
    status, raw, _ = served.ask("POST", "/v1/messages", CHAT, token=key)
    assert status == 200, raw
    status, raw, _ = served.ask("GET", "/v1/key", token=key)
    shown = json.loads(raw)
    assert (shown["role"], shown["user_id"], shown["team_id"]) == ("agent", ANN["sub"], "platform")
    said = command(served, "usage", "--by", "user")
    assert ANN["sub"] in said
    assert ANN["email"] in said

    status, raw, headers = served.ask("GET", "/managed/settings", token=key)
    managed = json.loads(raw)
    assert managed["settings"] == {"model": "opus", "permissions": {"deny": ["WebFetch"]}}
    assert managed["checksum"] == managed["uuid"]
    for tag in (headers["etag"], f"W/{headers['etag']}", f'"other", {headers["etag"]}'):
        known = {"if-none-match": tag}
        assert served.ask("GET", "/managed/settings", token=key, headers=known)[:2] == (304, b"")
    other = {"if-none-match": '"other"'}
    assert served.ask("GET", "/managed/settings", token=key, headers=other)[0] == 200
    for signal in ("metrics", "logs", "traces"):
        assert served.ask("POST", f"/v1/{signal}", b"{}", token=key)[0] == 200

    # The code is used up: neither the device nor a person can use it again.
    assert device.wait() == (400, {"error": "invalid_grant", "error_description": "The device code "
                                   "was used before: sign in again."})  # fmt: skip
    assert decide(served, provider, device, "approve").status == 409
    assert served.ask("GET", "/v1/key", token=key)[0] == 200

    said = command(served, "ledger", "erase", "--subject", ANN["sub"], "--yes", "--reason", "asked")
    assert "erased" in said.lower()


@pytest.mark.parametrize("path", ["", "/v1/traces"])
def test_telemetry_reaches_the_collector(upstream: Upstream, tmp_path: Path, path: str) -> None:
    received = []

    async def collect(request: web.Request) -> web.Response:
        received.append((request.path, request.headers["content-type"], await request.read()))
        return web.Response(status=307, headers={"location": "http://127.0.0.1:1/"})

    app = web.Application()
    app.router.add_post("/{path:.*}", collect)
    with listening(app) as url:
        toml = f'[telemetry]\notlp_endpoint = "{url}{path}"\n[server.oidc]\ndevices = true\n{OIDC}'
        with serving(tmp_path / "root", upstream.url, toml=toml) as served:
            for signal in ("metrics", "logs", "traces"):
                sent = {"content-type": "application/x-protobuf"}
                answered = served.ask("POST", f"/v1/{signal}", signal.encode(), headers=sent)
                assert answered[:2] == (200, b"{}")
    assert received == [(f"/v1/{signal}", "application/x-protobuf", signal.encode())
                        for signal in ("metrics", "logs", "traces")]  # fmt: skip


def test_what_gives_a_device_nothing(served: Served, provider: OidcProvider) -> None:
    device = Device(served)
    assert "is denied" in decide(served, provider, device, "deny").text
    assert device.wait()[1]["error"] == "access_denied"
    device, person = Device(served), Person(served)
    person.take(person.sign_in(provider))
    fields = {**person.form_of(device.page), "decision": "approve"}
    assert person.post("/console/device", fields, sec_fetch_site="cross-site").status == 403
    forged = {**fields, "token": "x"}
    assert person.post("/console/device", forged, sec_fetch_site="same-origin").status == 403
    with_key = Person(served)
    with_key.take(with_key.try_key(served.key(role="operator").key, "/console/device"))
    assert with_key.get("/console/device").status == 400
    provider.person["groups"] = ["all"]  # a role that may not call
    assert decide(served, provider, device, "approve").status == 403
    assert device.wait()[1]["error"] == "authorization_pending"


def test_a_device_that_asks_too_often_is_slowed_down(served: Served) -> None:
    device = Device(served)
    assert any(device.poll()[1]["error"] == "slow_down" for _ in range(50))
    assert device.wait()[1]["error"] == "authorization_pending"


def test_a_person_who_may_only_call_reads_nothing(served: Served, provider: OidcProvider) -> None:
    person = Person(served)
    person.take(person.sign_in(provider))
    assert {person.get(path).status for path in ("/", "/console/spend", "/console/verify")} == {403}
    assert person.get("/console/device").status == 200


def test_codes_that_were_not_issued_are_refused(served: Served, provider: OidcProvider) -> None:
    device = Device(served)
    code = device.issued["device_code"]
    for wrong in ("", "x", "é", code[:-1], f"{code}0", code.replace(".", ""), "A" * 5_000):
        assert device.poll(device_code=wrong)[1]["error"] == "invalid_grant", wrong
    assert device.poll(grant_type="password")[1]["error"] == "unsupported_grant_type"
    assert device.poll(grant_type="refresh_token")[0] == 401
    other = DeviceCodes(b"y" * 32).issue()
    assert device.poll(device_code=other[0])[1]["error"] == "invalid_grant"
    person = Person(served)
    person.take(person.sign_in(provider))
    for typed in (other[1], "BCDF-GHJK-LMNP", "<script>", "B" * 4_000):
        shown = person.get(f"/console/device?{urlencode({'user_code': typed})}")
        assert "not valid" in shown.text
        assert "<script>" not in shown.text


def test_codes_end(served: Served) -> None:
    clock = SimpleNamespace(now=time.time() - LASTS_S - 1)
    codes = DeviceCodes(agent_secret(Root(served.root)), lambda: clock.now)
    old, _ = codes.issue()
    clock.now -= LASTS_S
    _, older = codes.issue()
    clock.now = time.time()
    assert Device(served).poll(device_code=old)[1]["error"] == "expired_token"
    assert codes.user_code_of(older) == ""
    _, new = codes.issue()
    assert codes.user_code_of(f" {new.lower()} ") == new.replace("-", "")


def decision(user_code: str, name: str) -> Asked:
    person = Identity(ANN["email"], "agent", user_id=ANN["sub"])
    return Asked(PAGE, "", person, form={"user_code": user_code, "decision": name})


def test_every_described_endpoint_is_served(served: Served) -> None:
    status, raw, headers = served.ask("GET", "/protocol", token="")
    assert (status, headers["content-type"]) == (200, "text/markdown; charset=utf-8")
    rows = re.findall(r"^\| (`/.*`) \| ([A-Z, ]+) \| (.*?) \|", raw.decode(), re.MULTILINE)
    asked = {
        (method, path): access
        for paths, methods, access in rows
        for path in re.findall(r"`([^`]+)`", paths)
        for method in methods.split(", ")
    }
    assert {path for _, path in asked} == {
        "/.well-known/oauth-authorization-server", "/oauth/device_authorization", "/console/device",
        "/oauth/token", "/v1/messages", "/v1/messages/count_tokens", "/managed/settings",
        "/v1/models", "/v1/metrics", "/v1/logs", "/v1/traces",
    }  # fmt: skip
    for (method, path), access in asked.items():
        status, raw, _ = served.ask(method, path, b"" if method == "POST" else None, token="")
        is_refused = access == "bearer" or (method, path) == ("POST", "/console/device")
        assert (status == 401) == is_refused
        assert status not in (404, 405)
        if path.startswith(("/managed", "/v1/messages")):
            assert json.loads(raw)["error"]["type"] == "authentication_error"


@pytest.fixture
def desk(running: OidcProvider, tmp_path: Path) -> Iterator[Any]:
    """The data sources of the page, without a server around it."""
    root = new_root(tmp_path / "root", settings(running, MORE, ROLES))
    with Runtime.open(root) as runtime:
        writes = SimpleNamespace(directory=Directory(runtime.ledger))
        yield SimpleNamespace(runtime=runtime, writes=writes)


def new_code(desk: Any) -> str:
    return DeviceCodes(agent_secret(desk.runtime.root)).issue()[1]


def test_a_failed_denial_leaves_no_living_key(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyStore, "revoke", Mock(side_effect=OSError))
    with pytest.raises(OSError):
        change(desk, decision(new_code(desk), "deny"))
    (key,) = KeyStore(desk.runtime.ledger).list()
    lasts = datetime.fromisoformat(key.expires) - datetime.fromisoformat(key.created)
    assert lasts <= timedelta(seconds=2)


def test_a_code_denied_meanwhile_stays_denied(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    code = new_code(desk)
    change(desk, decision(code, "deny"))
    # The second person's request looked for the key before the first one made it.
    monkeypatch.setattr(KeyStore, "find", Mock(side_effect=NotFoundError("no key")))
    with pytest.raises(ConflictError, match="used before"):
        change(desk, decision(code, "approve"))
    assert KeyStore(desk.runtime.ledger).list() == []


@pytest.mark.parametrize("apart_s", [3000, -3000])
def test_a_machine_with_another_clock_accepts_the_code_of_another(desk: Any, apart_s: int) -> None:
    clock = SimpleNamespace(now=time.time() + apart_s)
    with shared_clock(lambda: clock.now), KeyStore(desk.runtime.ledger) as keys:
        codes = DeviceCodes(agent_secret(desk.runtime.root), lambda: clock.now)
        device_code, user_code = codes.issue()
        change(desk, decision(user_code, "approve"))
        assert redeem(desk, keys, device_code) == 200


def redeem(desk: Any, keys: KeyStore, device_code: str) -> int:
    form = urlencode({"grant_type": GRANT, "device_code": device_code}).encode()
    process = DeviceSignIn(desk.runtime, keys, Authenticator(None, ""))
    handler = process.routes()["POST", "/oauth/token"]
    return asyncio.run(AsgiRequest([form]).to(handler, "POST", "/oauth/token")).status


def test_two_processes_redeem_a_code_once(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device_code, user_code = DeviceCodes(agent_secret(desk.runtime.root)).issue()
    change(desk, decision(user_code, "approve"))
    keys = KeyStore(desk.runtime.ledger)
    # Both processes read the key before either gives it a new secret.
    monkeypatch.setattr(KeyStore, "find", Mock(return_value=keys.list()[0]))
    assert [redeem(desk, keys, device_code) for _ in range(2)] == [200, 400]


def test_only_the_key_of_a_device_is_one() -> None:
    assert is_device_key(key_name("BCDFGHJKLMNP"))
    assert not any(map(is_device_key, ("device", "device lab", "device 0123456789abcdefg")))


def test_forms_that_cannot_be_read(served: Served) -> None:
    for path, body, status in (
        ("/oauth/token", b"\xff", 400), ("/oauth/token", b"&".join([b"a=1"] * 100), 400),
        ("/oauth/device_authorization", b"a=" + b"x" * 20_000, 413),
    ):  # fmt: skip
        answered, raw, headers = served.ask("POST", path, body, token="", headers=FORM)
        assert (answered, headers["cache-control"]) == (status, "no-store")
        assert json.loads(raw).keys() == {"error", "error_description"}
