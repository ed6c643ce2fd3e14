"""What a provider may do to a sign-in: over real HTTP, without a server around it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from remit.gateway.auth import Identity
from remit.kernel.errors import ConfigError
from remit.kernel.settings import OidcSettings, load_settings
from remit.server.app import App
from remit.server.console.oidc import SignIn, SignInError, person_of
from tests.support.agents import anthropic_runtime
from tests.support.oidc import ANN, OidcProvider, oidc_provider, signing_key

CALLBACK = "/console/oidc/callback"
DISCOVERY = "/.well-known/openid-configuration"
MOST_BYTES = 256 * 1024


@pytest.fixture(scope="module")
def running() -> Iterator[OidcProvider]:
    with oidc_provider() as provider:
        provider.redirect_uri = f"http://127.0.0.1:4000{CALLBACK}"
        yield provider


@pytest.fixture
def provider(running: OidcProvider) -> Iterator[OidcProvider]:
    secret = running.client_secret
    yield running
    running.reset()
    running.client_secret = secret


def settings(provider: OidcProvider, **more: Any) -> OidcSettings:
    return OidcSettings.model_validate(
        {
            "issuer": provider.url,
            "client_id": provider.client_id,
            "client_secret": provider.client_secret,
            "public_url": "http://127.0.0.1:4000/",
            "roles": {"ops": "operator"},
            **more,
        },
        strict=False,
    )


def sign_in_with(provider: OidcProvider, **more: Any) -> SignIn:
    return SignIn(settings(provider, **more), b"s" * 32, callback=CALLBACK)


async def signed_in(sign_in: SignIn, provider: OidcProvider, following: str = "/") -> Identity:
    place, (_, cookie) = await sign_in.begin(following)
    path = provider.authorize(place)
    sent = [(b"cookie", cookie.partition(b";")[0])]
    person, came_to = await sign_in.finish(dict(parse_qsl(urlsplit(path).query)), sent)
    assert came_to == following
    return person


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"issuer": "https://evil.example"}, "another issuer"),
        ({"issuer": None}, "another issuer"),
        ({"token_endpoint": "http://example.org/token"}, "not https"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "not https"),
        ({"authorization_endpoint": "https://example.org/\r\nset-cookie: a=b"}, "not https"),
        ({"jwks_uri": "file:///etc/passwd"}, "not https"),
        ({"jwks_uri": None}, "not https"),
        ({"token_endpoint_auth_methods_supported": ["private_key_jwt"]}, "neither by"),
        ({"token_endpoint_auth_methods_supported": 7}, "neither by"),
    ],
)
async def test_metadata_that_cannot_be_used(
    provider: OidcProvider, metadata: dict[str, Any], said: str
) -> None:
    provider.metadata = metadata
    with pytest.raises(SignInError, match=said):
        await sign_in_with(provider).begin("/")
    # An endpoint of plain HTTP is on the issuer's own address.
    provider.metadata = {"token_endpoint": f"{provider.url}.example.org/token"}
    with pytest.raises(SignInError, match="not https"):
        await sign_in_with(provider).begin("/")


HUGE = b'{"a": "' + b"x" * MOST_BYTES + b'"}'


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, HUGE, "more than 262,144 bytes"),
        (200, b"<html>", "a JSON object"),
        (200, b"[" * 100_000, "a JSON object"),
        (200, b"[]", "a JSON object"),
        (200, b"\xff", "a JSON object"),
        (500, b"{}", "status 500"),
        (302, b"{}", "status 302"),
    ],
)
@pytest.mark.parametrize("path", [DISCOVERY, "/keys", "/token"])
async def test_an_answer_that_cannot_be_used(
    provider: OidcProvider, path: str, status: int, body: bytes, said: str
) -> None:
    provider.answers = {path: (status, body)}
    with pytest.raises(SignInError, match=said) as raised:
        await signed_in(sign_in_with(provider), provider)
    assert raised.value.status == 502


async def test_those_who_wait_for_the_provider_are_not_too_many(provider: OidcProvider) -> None:
    provider.delay_s = {DISCOVERY: 30}
    sign_in = sign_in_with(provider, timeout_s=0.5)
    failed = await asyncio.gather(*(sign_in.begin("/") for _ in range(60)), return_exceptions=True)
    statuses = [error.status for error in failed if isinstance(error, SignInError)]
    assert (statuses.count(503), statuses.count(502)) == (10, 50)


def claimed(provider: OidcProvider, claims: dict[str, Any], **more: Any) -> Identity:
    return person_of({**ANN, **claims}, settings(provider, **more))


def test_claims_may_lie_in_others_and_another_may_name_a_person(provider: OidcProvider) -> None:
    inside = {"realm_access": {"roles": ["ops"]}}
    assert claimed(provider, inside, role_claim="realm_access.roles").role == "operator"
    url = {"https://example.org/roles": ["ops"]}
    assert claimed(provider, url, role_claim="https://example.org/roles").role == "operator"
    for wrong in ({"realm_access": "ops"}, {"realm_access": {"roles": {"ops": 1}}}, {}):
        with pytest.raises(SignInError):
            claimed(provider, wrong, role_claim="realm_access.roles")
    named = claimed(provider, {"preferred_username": "ann", "email_verified": False},
                    name_claim="preferred_username")  # fmt: skip
    assert (named.name, named.user_id) == ("ann", "u-17")


GOOD: dict[str, Any] = {
    "issuer": "https://id.example.org",
    "client_id": "remit",
    "public_url": "https://remit.example.org",
    "roles": {"a": "admin"},
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"issuer": "http://id.example.org"}, "issuer is not an https URL"),
        ({"issuer": "https://id.example.org?x=1"}, "has a user, a query or a fragment"),
        ({"issuer": "https://[::1"}, "issuer is not a URL"),
        ({"issuer": "id.example.org"}, "issuer is not an https URL"),
        ({"public_url": ""}, "public_url is not an https URL"),
        ({"public_url": "http://remit.example.org"}, "http is for this machine only"),
        ({"public_url": "https://remit.example.org/remit"}, "at the top of its address"),
        ({"client_id": ""}, "needs a client_id"),
        ({"scopes": ["email"]}, "lack openid"),
        ({"roles": {}}, "nobody could sign in"),
        ({"roles": {"a": "agent"}}, "only devices"),
        ({"roles": {"a": "root"}}, "'auditor', 'operator' or 'admin'"),
        ({"issuer": "", "devices": True}, "devices need an issuer"),
        ({"lasts_s": 28_801}, "less than or equal to 28800"),
        ({"isuer": "x"}, "Unknown setting server.oidc.isuer"),
    ],
)
def test_settings_that_do_not_fit(changed: dict[str, Any], said: str) -> None:
    flags = {f"server.oidc.{key}": value for key, value in {**GOOD, **changed}.items()}
    with pytest.raises(ConfigError, match=said):
        load_settings(environment={}, flags=flags)


def test_a_server_names_the_missing_extra(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {f"server.oidc.{key}": value for key, value in GOOD.items()}
    monkeypatch.setattr("remit.server.app.find_spec", lambda name: None)
    with (
        anthropic_runtime(tmp_path / "root", monkeypatch, flags=flags) as (runtime, _),
        pytest.raises(ConfigError, match="extra 'oidc'"),
    ):
        App(runtime)


@pytest.mark.parametrize("path", [DISCOVERY, "/keys", "/token"])
async def test_a_slow_provider_is_not_waited_for(provider: OidcProvider, path: str) -> None:
    provider.delay_s = {path: 30}
    with pytest.raises(SignInError, match="does not answer in time"):
        await signed_in(sign_in_with(provider, timeout_s=0.3), provider)


async def test_keys_that_cannot_be_fetched_again_stay(provider: OidcProvider) -> None:
    sign_in = sign_in_with(provider)
    await signed_in(sign_in, provider)
    provider.answers = {"/keys": (503, b"")}
    provider.token = signing_key("RS256", "other").sign
    with pytest.raises(SignInError, match="status 503"):
        await signed_in(sign_in, provider)
    provider.token = None
    await signed_in(sign_in, provider)
