"""People who sign in to the console with a provider: a real server, a strict real provider."""

from __future__ import annotations

import base64
import hmac
import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from remit.agents import ApprovalQueue
from remit.agents.tools import tool
from remit.gateway.auth import KeyStore, agent_secret
from remit.kernel.root import Root
from tests.server.console.client import Answered, Visitor
from tests.server.running import Served, new_session, serving
from tests.support.oidc import OidcProvider, oidc_provider, signing_key
from tests.support.upstream import Upstream
from tests.support.waiting import until

PUBLIC = "https://remit.example.org"
CALLBACK = "/console/oidc/callback"
SECRET = "never-to-be-logged-77"
LEEWAY_S = 60
ROLES = """
"ops" = "operator"
"all" = "auditor"
"lead" = "admin"
"""


JSON = {"content-type": "application/json"}


@tool
def refund(order: int) -> str:
    """Pay an order back."""
    return str(order)


def settings(provider: OidcProvider, more: str = "", roles: str = '"ops" = "operator"') -> str:
    return f"""
[approvals.tools.refund]
people = 2
[server]
log_level = "info"
[server.oidc]
issuer = "{provider.url}"
client_id = "{provider.client_id}"
public_url = "{PUBLIC}"
timeout_s = 5
{more}
[server.oidc.roles]
{roles}
"""


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
    root = tmp_path_factory.mktemp("oidc") / "root"
    with serving(
        root, upstream.url, toml=settings(running, roles=ROLES),
        environment={"REMIT_SERVER__OIDC__CLIENT_SECRET": SECRET},
    ) as found:  # fmt: skip
        yield found
        said = found.errors.read_text()
        assert SECRET not in said
        assert "ann@example.org" not in said
        assert "code=" not in said


@pytest.fixture(scope="module")
def moved(
    running: OidcProvider, upstream: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A server whose settings change, and are put back."""
    with serving(
        tmp_path_factory.mktemp("moved") / "root", upstream.url, toml=settings(running),
        environment={"REMIT_SERVER__OIDC__CLIENT_SECRET": SECRET},
    ) as found:  # fmt: skip
        yield found


class Person(Visitor):
    """A browser that can go to the provider and back."""

    def begin(self, following: str = "/") -> str:
        """To the provider; where it was sent."""
        answered = self.get(f"/console/oidc/login?next={following}")
        assert answered.status == 303, answered.text
        self.cookie = _cookie(answered)
        return answered.headers["location"]

    def come_back(self, path: str) -> Answered:
        return self.get(path)

    def sign_in(self, provider: OidcProvider, following: str = "/") -> Answered:
        return self.come_back(provider.authorize(self.begin(following)))

    def take(self, answered: Answered) -> Person:
        """Keep the login of an answer."""
        assert answered.status == 303, answered.text
        self.cookie = _cookie(answered)
        return self


def _cookie(answered: Answered, name: str = "") -> str:
    """What is set and not taken away; the test's client joins several headers by a comma."""
    found = re.findall(r"(?:^|, )([\w-]+=[\w.=-]+);", answered.headers["set-cookie"])
    (kept,) = [one for one in found if one.startswith(name)]
    return str(kept)


def signed_in(served: Served, provider: OidcProvider) -> Person:
    person = Person(served)
    return person.take(person.sign_in(provider))


def test_a_person_signs_in_and_comes_to_their_page(served: Served, provider: OidcProvider) -> None:
    page = Visitor(served).get("/console/login?next=/console/spend").text
    assert f"Sign in with {urlsplit(provider.url).netloc}" in page
    assert 'href="/console/oidc/login?next=/console/spend"' in page
    assert "Virtual key" in page
    person = Person(served)
    answered = person.sign_in(provider, "/console/spend?by=user")
    assert answered.headers["location"] == "/console/spend?by=user"
    cookies = answered.headers["set-cookie"]
    kept = "HttpOnly; SameSite=Lax; Secure"
    ended = rf"__Host-remit_console_oidc_[\w-]+=; Path=/; Max-Age=0; {re.escape(kept)}"
    assert re.search(ended, cookies)
    login = _cookie(answered, "remit_console_")
    assert f"{login}; Path=/; Max-Age=28800; {kept}" in cookies
    person.cookie = login
    assert "ann@example.org</span><span>operator" in person.get("/console/spend").text
    name, claims = _claims_of(person)
    assert claims.pop("until") <= time.time() + 28_800
    assert (len(claims["nonce"]), len(claims["settings"])) == (16, 64)
    assert claims.items() >= {"issuer": provider.url, "subject": "u-17", "name": "ann@example.org",
                              "role": "operator", "team": ""}.items()  # fmt: skip
    assert len(claims) == 7
    assert person.decide("/console/logout", {}).headers["location"] == "/console/login"
    for lasts_s, status in ((60, 200), (-1, 303)):  # A login ends.
        person.cookie = f"{name}={_signed(served, b'remit console login v1', claims, lasts_s)}"
        assert person.get("/").status == status


def _claims_of(person: Person) -> tuple[str, dict[str, Any]]:
    """The name of a person's cookie, and what it says."""
    name, _, value = person.cookie.partition("=")
    return name, json.loads(base64.urlsafe_b64decode(value.partition(".")[0] + "=="))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"groups": ["staff"]}, "no role here"),
        ({"groups": None}, "no role here"),
        ({"groups": {"ops": True}}, "no role here"),
        ({"groups": ["admin", "operator"]}, "no role here"),
        ({"email_verified": False}, "not verified"),
        ({"email_verified": "false"}, "not verified"),
        ({"email": None}, "does not say who you are"),
        ({"email": "  "}, "does not say who you are"),
        ({"email": ["ann@example.org"]}, "does not say who you are"),
        ({"email": "ann\u202e@example.org"}, "does not say who you are"),
        ({"email": "x" * 201}, "does not say who you are"),
        ({"sub": ""}, "does not say who you are"),
    ],
)
def test_who_has_no_name_or_no_role_is_refused(
    served: Served, provider: OidcProvider, changed: dict[str, Any], said: str
) -> None:
    provider.claims = changed
    refused(Person(served).sign_in(provider), 403, said)


def refused(answered: Answered, status: int, said: str) -> None:
    """A page says why, and nobody is signed in."""
    assert answered.status == status, answered.text
    assert said in answered.text
    assert "Sign in with" in answered.text
    assert not re.search(r"remit_console_[\w-]{8}=[^;]", answered.headers.get("set-cookie", ""))


def _now(seconds: int) -> int:
    return int(time.time()) + seconds


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        (lambda p: {"nonce": "x" * 43}, "another sign-in"),
        (lambda p: {"nonce": None}, "another sign-in"),
        (lambda p: {"nonce": 7}, "another sign-in"),
        (lambda p: {"aud": "other"}, "another client"),
        (lambda p: {"aud": None}, "is not valid"),
        (lambda p: {"aud": ["other", "more"]}, "another client"),
        (lambda p: {"aud": [p.client_id, "other"]}, "another client"),
        (lambda p: {"aud": [p.client_id, "other"], "azp": "other"}, "another client"),
        (lambda p: {"azp": "other"}, "another client"),
        (lambda p: {"iss": "https://evil.example"}, "another issuer"),
        (lambda p: {"iss": f"{p.url}/"}, "another issuer"),
        (lambda p: {"exp": _now(-LEEWAY_S - 5)}, "expired ID token"),
        (lambda p: {"exp": None}, "is not valid"),
        (lambda p: {"exp": "soon"}, "is not valid"),
        (lambda p: {"iat": _now(LEEWAY_S + 60)}, "clocks may differ"),
        (lambda p: {"nbf": _now(LEEWAY_S + 60)}, "clocks may differ"),
        (lambda p: {"iat": None}, "is not valid"),
        (lambda p: {"sub": None}, "is not valid"),
    ],
)
def test_a_token_for_something_else_signs_nobody_in(
    served: Served,
    provider: OidcProvider,
    claims: Callable[[OidcProvider], dict[str, Any]],
    said: str,
) -> None:
    provider.claims = claims(provider)
    refused(Person(served).sign_in(provider), 400 if said == "another sign-in" else 502, said)


def _as_hmac(provider: OidcProvider, claims: dict[str, Any]) -> str:
    """HS256 by the public key's text, as a verifier that takes any algorithm would have it."""
    pem = provider.key.private.public_key().public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )
    head, body = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
                  for part in ({"alg": "HS256", "typ": "JWT", "kid": provider.key.kid},
                               claims))  # fmt: skip
    signature = jwt.get_algorithm_by_name("HS256").sign(f"{head}.{body}".encode(), pem)
    return f"{head}.{body}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def _by_another(provider: OidcProvider, claims: dict[str, Any]) -> str:
    return signing_key(provider.key.algorithm, provider.key.kid).sign(claims)


def _unpublished(provider: OidcProvider, claims: dict[str, Any]) -> str:
    return signing_key("RS256", "unpublished").sign(claims)


def _published(algorithm: str, **changed: Any) -> Callable[[OidcProvider, dict[str, Any]], str]:
    def token(provider: OidcProvider, claims: dict[str, Any]) -> str:
        key = signing_key(algorithm, f"{algorithm} {changed}")
        provider.published = [{**key.public, **changed}, provider.key.public]
        return key.sign(claims)

    return token


def _by_shared_key(provider: OidcProvider, claims: dict[str, Any]) -> str:
    """A symmetric key that was published, which a token says is an RSA key."""
    secret = b"k" * 32
    shared = base64.urlsafe_b64encode(secret).decode().rstrip("=")
    provider.published = [{"kty": "oct", "k": shared, "kid": "shared", "alg": "HS256"},
                          provider.key.public]  # fmt: skip
    return jwt.encode(claims, secret, "HS256", headers={"kid": "shared"})


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (lambda p, c: jwt.encode(c, None, "none", headers={"kid": p.key.kid}), "algorithm"),
        (_as_hmac, "algorithm"),
        (_by_shared_key, "algorithm"),
        (_published("PS256"), "algorithm"),
        (_published("weak"), "is not valid"),
        (_published("RS256", use="enc"), "does not publish"),
        (_published("RS256", alg="ES256"), "does not publish"),
        (_unpublished, "does not publish"),
        (_by_another, "is not valid"),
        (lambda p, c: p.key.sign(c)[:-8] + "AAAAAAAA", "is not valid"),
        (lambda p, c: p.key.sign(c).rpartition(".")[0] + ".", "is not valid"),
        (lambda p, c: "a.b.c", "cannot be read"),
        (lambda p, c: "", "cannot be read"),
        (lambda p, c: "é", "cannot be read"),
        (lambda p, c: base64.urlsafe_b64encode(b'{"alg":' + b"[" * 50_000).decode() + ".e30.",
         "cannot be read"),
    ],
)  # fmt: skip
def test_a_token_that_is_not_signed_by_the_providers_keys_signs_nobody_in(
    served: Served,
    provider: OidcProvider,
    token: Callable[[OidcProvider, dict[str, Any]], str],
    said: str,
) -> None:
    provider.token = lambda claims: token(provider, claims)
    refused(Person(served).sign_in(provider), 502, said)


def test_an_answer_counts_in_the_browser_that_began(served: Served, provider: OidcProvider) -> None:
    mallory, victim = Person(served), Person(served)
    path = provider.authorize(mallory.begin())
    refused(victim.come_back(path), 400, "No sign-in was started in this browser")
    victim.begin()
    refused(victim.come_back(path), 400, "another sign-in")
    for state in ("", "x", "%C3%A9", "%ED%A0%80"):
        other = re.sub(r"state=[^&]*", f"state={state}", path)
        refused(mallory.come_back(other), 400, "another")
    mallory.cookie = mallory.cookie[:-1] + ("A" if mallory.cookie[-1] != "A" else "B")
    refused(mallory.come_back(path), 400, "No sign-in was started in this browser")
    assert "/token" not in provider.asked


def test_a_sign_in_ends_once_and_with_its_own_code(served: Served, provider: OidcProvider) -> None:
    mallory, victim = Person(served), Person(served)
    stolen = parse_qs(urlsplit(provider.authorize(victim.begin())).query)["code"][0]
    path = re.sub(r"code=[^&]*", f"code={stolen}", provider.authorize(mallory.begin()))
    refused(mallory.come_back(path), 400, "refuses this sign-in")  # by PKCE
    provider.forgets = True  # so that it is refused here
    path = provider.authorize(victim.begin())
    assert victim.come_back(path).status == 303
    refused(victim.come_back(path), 400, "already used")


def _signed(served: Served, purpose: bytes, claims: dict[str, Any], lasts_s: int) -> str:
    """Return the value of a cookie of these claims, as the root signs one that lasts so long."""

    def text(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    secret = hmac.digest(agent_secret(Root(served.root)), purpose, "sha256")
    said = text(json.dumps({**claims, "until": int(time.time()) + lasts_s}).encode())
    return f"{said}.{text(hmac.digest(secret, said.encode(), 'sha256'))}"


def test_what_was_begun_too_long_ago_is_refused(served: Served, provider: OidcProvider) -> None:
    person = Person(served)
    path = provider.authorize(person.begin())
    name, claims = _claims_of(person)
    assert 0 < claims.pop("until") - time.time() <= 600
    person.cookie = f"{name}={_signed(served, b'remit console oidc v1', claims, -1)}"
    refused(person.come_back(path), 400, "has expired")
    person.cookie = f"{name}={_signed(served, b'remit console oidc v1', claims, 60)}"
    # A cookie of one kind is none of the other.
    own, begun = signed_in(served, provider).cookie.partition("=")[0], Person(served)
    begun.cookie = f"{own}={person.cookie.partition('=')[2]}"
    assert begun.get("/").status == 303
    assert person.come_back(path).status == 303


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        ({"error": "<script>alert(1)</script>"}, 403, "did not sign you in: an error"),
        ({"iss": "https://evil.example"}, 400, "did not come from the provider"),
        ({"code": "guessed"}, 400, "refuses this sign-in"),
    ],
)
def test_what_the_provider_did_not_say_signs_nobody_in(
    served: Served, provider: OidcProvider, changed: dict[str, str], status: int, said: str
) -> None:
    person = Person(served)
    path = provider.authorize(person.begin(), error_description="<b>x</b>", **changed)
    answered = person.come_back(path)
    refused(answered, status, said)
    assert "<b>" not in answered.text
    assert "<script>alert" not in answered.text


def test_only_a_visit_signs_in_and_to_no_elsewhere(served: Served, provider: OidcProvider) -> None:
    for path in ("/console/oidc/login", CALLBACK):
        assert Visitor(served).post(path, {}).status == 405
    for place in ("https://example.com/", "//example.com", "/\\example.com", "x", "/consoles",
                  "javascript:alert(1)", "/console/" + "x" * 2000):  # fmt: skip
        assert Person(served).sign_in(provider, place).headers["location"] == "/", place


def _waiting(served: Served) -> str:
    """A request for a refund that nobody has decided."""
    queue = ApprovalQueue(served.ledger)
    asked = queue.request(refund, {"order": 12}, session_id=new_session(), agent_id="clerk")
    return asked.request_id


def test_what_a_person_decides_stands_in_their_name(served: Served, provider: OidcProvider) -> None:
    request = _waiting(served)
    path = f"/console/approvals/{request}"
    ann = signed_in(served, provider)
    assert ann.decide(path, {"verdict": "grant", "reason": "fine"}).status == 303
    (signed,) = served.ledger.query(event_type="APPROVAL_SIGNED", submission_id=request)
    assert signed.metadata["decided_by"] == "ann@example.org"
    assert signed.metadata["person"] == "u-17"

    # A person is one person: under a new address, and with a key of their own.
    provider.person["email"] = "ann.lee@example.org"
    again = signed_in(served, provider).decide(path, {"verdict": "grant"})
    assert again.status == 409
    assert "granted by ann.lee@example.org already" in again.text
    with_key = Visitor(served)
    made = with_key.try_key(served.key(role="operator", user="Ann@example.org").key)
    with_key.cookie = made.headers["set-cookie"].partition(";")[0]
    until(lambda: with_key.get("/").status == 200)
    assert with_key.decide(path, {"verdict": "grant"}).status == 409

    # Her key makes no other over the network that may approve. One that a key made under an
    # earlier version counts as her, whatever user it names.
    hers = served.key(role="operator", user="u-17")
    wanted = {"name": new_session(), "role": "operator", "user": "u-18"}
    assert served.ask("POST", "/api/keys", wanted, token=hers.key, headers=JSON)[0] == 403
    with KeyStore(served.ledger) as keys:
        other = keys.create(
            new_session(), role="operator", user_id="u-18", requested_by=hers.key_id
        ).key
    until(lambda: served.ask("GET", "/v1/models", token=other)[0] == 200)
    granting = served.ask(
        "POST", f"/api/approvals/{request}", {"grant": True}, token=other, headers=JSON
    )
    assert granting[0] == 409

    provider.person |= {"sub": "u-18", "email": "bo@example.org"}
    bo = signed_in(served, provider)
    assert bo.decide(path, {"verdict": "grant"}).status == 303
    (granted,) = served.ledger.query(event_type="APPROVAL_GRANTED", submission_id=request)
    assert granted.metadata["decided_by"] == "bo@example.org"
    assert "bo@example.org" in bo.get(path).text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"ops" = "operator"', '"ops" = "auditor"'),
        ('"ops" = "operator"', '"other" = "auditor"\n"ops" = "operator"'),
        ('client_id = "remit"', 'client_id = "other"'),
        ("127.0.0.1", "localhost"),
        ("timeout_s = 5", 'role_claim = "roles"'),
        ("[server.oidc]", "[server.oidc]\nlasts_s = 60"),
    ],
)
def test_a_login_ends_with_the_settings_it_rests_on(
    moved: Served, provider: OidcProvider, before: str, after: str
) -> None:
    """Read again on SIGHUP; other settings may change."""
    config = moved.root / "remit.toml"
    original = config.read_text()
    person = signed_in(moved, provider)
    try:
        assert before in original
        config.write_text(original.replace(before, after, 1))
        moved.process.send_signal(signal.SIGHUP)
        until(lambda: person.get("/").status == 303)
    finally:
        config.write_text(original)
        moved.process.send_signal(signal.SIGHUP)
    until(lambda: person.get("/").status == 200)


DISCOVERY = "/.well-known/openid-configuration"


def test_changed_keys_are_fetched(served: Served, provider: OidcProvider) -> None:
    signed_in(served, provider)
    provider.key = signing_key("ES256", "new")
    provider.asked.clear()
    signed_in(served, provider)
    assert provider.asked == ["/token", DISCOVERY, "/keys"]
    signed_in(served, provider)
    assert provider.asked == ["/token", DISCOVERY, "/keys", "/token"]
