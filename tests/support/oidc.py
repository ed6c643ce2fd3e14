"""A strict OpenID Connect provider over real HTTP, which misbehaves on order.

It signs by real keys and checks what a client sends as the specifications have it: the registered
``redirect_uri``, PKCE by S256, the client's secret, each code once.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.warnings import InsecureKeyLengthWarning

from tests.support.listening import listening

__all__ = ["ANN", "OidcProvider", "oidc_provider", "signing_key"]

ANN = {
    "sub": "u-17",
    "email": "ann@example.org",
    "email_verified": True,
    "groups": ["staff", "ops"],
}

_MAKERS: dict[str, tuple[Callable[[], Any], Any]] = {
    "RS256": (lambda: rsa.generate_private_key(65537, 2048), RSAAlgorithm),
    "PS256": (lambda: rsa.generate_private_key(65537, 2048), RSAAlgorithm),
    "weak": (lambda: rsa.generate_private_key(65537, 1024), RSAAlgorithm),
    "ES256": (lambda: ec.generate_private_key(ec.SECP256R1()), ECAlgorithm),
    "EdDSA": (ed25519.Ed25519PrivateKey.generate, OKPAlgorithm),
}


class SigningKey:
    """A key pair: how tokens are signed with it, and what is published of it."""

    def __init__(self, algorithm: str, kid: str) -> None:
        make, kind = _MAKERS[algorithm]
        self.algorithm, self.kid = algorithm.replace("weak", "RS256"), kid
        self.private = make()
        self.public: dict[str, Any] = {
            **kind.to_jwk(self.private.public_key(), as_dict=True),
            "kid": kid, "use": "sig", "alg": self.algorithm,
        }  # fmt: skip

    def sign(self, claims: dict[str, Any]) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InsecureKeyLengthWarning)
            return jwt.encode(claims, self.private, self.algorithm, headers={"kid": self.kid})


def signing_key(algorithm: str = "RS256", kid: str = "one") -> SigningKey:
    return SigningKey(algorithm, kid)


class OidcProvider:
    """See the module. What it does may be changed in the middle of a test.

    Attributes:
        person: claims of who is signed in there.
        key: signs.
        published: the keys in its JWK Set; ``None``: that of ``key``.
        claims: changes of an ID token's claims; a value of ``None`` takes one away.
        token: makes the ID token of claims; ``None``: signed by ``key``.
        metadata: changes of the discovery document.
        answers: by path, answers in place of its own: status and body.
        delay_s: by path, seconds before the answer.
        forgets: takes a code again and again.
        asked: paths that were asked for.
    """

    def __init__(self) -> None:
        self.client_id, self.client_secret = "remit", "sh%u sh:ö!"
        self.redirect_uri = ""
        self.url = ""
        self.reset()

    def reset(self) -> None:
        self.person = dict(ANN)
        self.key = getattr(self, "key", None) or signing_key()
        self.published: list[dict[str, Any]] | None = None
        self.claims: dict[str, Any] = {}
        self.token: Callable[[dict[str, Any]], str] | None = None
        self.metadata: dict[str, Any] = {}
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.delay_s: dict[str, float] = {}
        self.forgets = False
        self.asked: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}

    def authorize(self, location: str, **changed: str) -> str:
        """A browser's visit by somebody who agrees: path and query that it is sent back to."""
        parts = urlsplit(location)
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{self.url}/authorize"
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        assert asked["client_id"] == self.client_id
        assert asked["redirect_uri"] == self.redirect_uri
        assert asked["response_type"] == "code"
        assert "openid" in asked["scope"].split()
        assert asked["code_challenge_method"] == "S256"
        assert len(asked["code_challenge"]) == 43
        assert min(len(asked["state"]), len(asked["nonce"])) >= 43
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        query = {"code": code, "state": asked["state"], "iss": self.url, **changed}
        return f"{urlsplit(self.redirect_uri).path}?{urlencode(query)}"

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        await asyncio.sleep(self.delay_s.get(request.path, 0))
        if request.path in self.answers:
            status, body = self.answers[request.path]
            return web.Response(status=status, body=body, content_type="application/json")
        if request.path == "/.well-known/openid-configuration":
            return web.json_response(
                {
                    "issuer": self.url,
                    "authorization_endpoint": f"{self.url}/authorize",
                    "token_endpoint": f"{self.url}/token",
                    "jwks_uri": f"{self.url}/keys",
                    "authorization_response_iss_parameter_supported": True,
                    **self.metadata,
                }
            )
        if request.path == "/authorize":  # where a browser is asked whether it agrees
            back = urlsplit(self.redirect_uri)._replace(path="", query="").geturl()
            place = escape(back + self.authorize(f"{self.url}{request.path_qs}"))
            page = "<!doctype html><title>Provider</title><link rel=icon href=data:,>"
            link = f'<a href="{place}">Allow</a>'
            return web.Response(text=page + link, content_type="text/html")
        if request.path == "/keys":
            published = [self.key.public] if self.published is None else self.published
            return web.json_response({"keys": published})
        if request.path == "/token" and request.method == "POST":
            return self._redeem(request, dict(await request.post()))  # type: ignore[arg-type]
        return web.json_response({}, status=404)

    def _redeem(self, request: web.Request, form: dict[str, str]) -> web.Response:
        if not self._is_client(request.headers.get("authorization", ""), form):
            return web.json_response({"error": "invalid_client"}, status=401)
        asked = (self._codes.get if self.forgets else self._codes.pop)(form.get("code", ""), None)
        challenge = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if (
            asked is None
            or form["grant_type"] != "authorization_code"
            or form["redirect_uri"] != asked["redirect_uri"]
            or base64.urlsafe_b64encode(challenge).decode().rstrip("=") != asked["code_challenge"]
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(time.time())
        claims = {**self.person, "iss": self.url, "aud": self.client_id, "iat": now,
                  "exp": now + 300, "nonce": asked["nonce"], **self.claims}  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        token = (self.token or self.key.sign)(claims)
        return web.json_response({"access_token": "at", "token_type": "Bearer", "id_token": token})

    def _is_client(self, authorization: str, form: dict[str, str]) -> bool:
        if not self.client_secret:  # a public client
            return not authorization and form.get("client_id") == self.client_id
        if "client_secret_post" in self.metadata.get("token_endpoint_auth_methods_supported", ()):
            given = form.get("client_id", ""), form.get("client_secret", "")
            return not authorization and given == (self.client_id, self.client_secret)
        user, _, password = base64.b64decode(authorization.removeprefix("Basic ")).partition(b":")
        given = unquote_plus(user.decode()), unquote_plus(password.decode())
        return "client_secret" not in form and given == (self.client_id, self.client_secret)


@contextmanager
def oidc_provider() -> Iterator[OidcProvider]:
    """A provider, in a thread of its own, until the block ends."""
    provider = OidcProvider()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", provider._answer)
    with listening(app) as provider.url:
        yield provider
