"""Claude Code's gateway protocol: sign-in of devices, managed settings and telemetry.

A device signs in as OAuth 2.0 prescribes for devices without a browser (RFC 8628):

1. The device reads ``/.well-known/oauth-authorization-server``, asks for a code at
   ``/oauth/device_authorization``, and opens ``/console/device`` in the person's browser.
2. The person signs in there with the provider of ``[server.oidc]`` and approves the code
   (:mod:`remit.server.console.device`). The approval creates a virtual key for the person.
3. The device asks ``/oauth/token`` until the key exists. The first answer gives the key a new
   secret, which is the device's access token.

The key is the only state. Budgets, revocation, usage by person and the record apply as to any key.
There is no refresh token: the key ends after ``lasts_s``, and the person signs in again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qsl

from remit.gateway.auth import KeyStore, agent_secret
from remit.kernel.canonical import canonical_json
from remit.kernel.errors import ConflictError, NotFoundError
from remit.runtime import Runtime
from remit.server.asgi import (
    Answer,
    Receive,
    Scope,
    Send,
    json_answer,
    limits_of,
    read_body,
    reply,
)
from remit.server.authentication import Authenticator
from remit.server.device_codes import LASTS_S, DeviceCodes, key_name
from remit.server.extensions import Handler
from remit.server.refusals import HttpError

PAGE = "/console/device"
"""Path of the page on which a person approves a device."""

_log = logging.getLogger("remit.server")
_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_DISCOVERY, _CODE, _TOKEN = (
    "/.well-known/oauth-authorization-server", "/oauth/device_authorization", "/oauth/token",
)  # fmt: skip
_SIGNALS = ("metrics", "logs", "traces")
_INTERVAL_S = 5  # between two polls of a device
_EARLY_S = 0.5  # A poll may come this much earlier, for delays on the network differ.
_MAX_FORM_BYTES, _MAX_SIGNAL_BYTES, _BODY_S = 16 * 1024, 4 * 1024 * 1024, 10.0
_MAX_DEVICES = 10_000
_FORWARD_S = 5.0
_DOCUMENT = """# Gateway protocol of Remit

Remit serves the gateway protocol of Claude Code. All paths are below `{base}`. Errors of the OAuth
endpoints have the form `{{"error", "error_description"}}`; all others that of the Messages API.

| endpoint | method | authentication | purpose |
|---|---|---|---|
| `/.well-known/oauth-authorization-server` | GET | none | metadata (RFC 8414) |
| `/oauth/device_authorization` | POST | none | a device code and a user code (RFC 8628) |
| `/console/device` | GET, POST | the person's browser | approval of the user code |
| `/oauth/token` | POST | none | the access token of an approved device code; no refresh token |
| `/v1/messages` | POST | bearer | inference, streamed as it arrives |
| `/v1/messages/count_tokens` | POST | bearer | the number of input tokens |
| `/managed/settings` | GET | bearer | managed settings of the person's team (`ETag`), or 404 |
| `/v1/models` | GET | bearer | the models that the person may use |
| `/v1/metrics`, `/v1/logs`, `/v1/traces` | POST | bearer | telemetry (OTLP over HTTP) |

A bearer is sent as `Authorization: Bearer TOKEN` and valid for {lasts_s} seconds. Forwarded request
headers: `anthropic-version`, `anthropic-beta`. Unknown headers are ignored.
"""


class DeviceSignIn:
    """The endpoints of Claude Code's gateway protocol other than model calls.

    Serves the sign-in of devices (RFC 8628) and managed settings, and forwards telemetry. Codes are
    signed and not stored; only the virtual key of an approved device is. A device may poll every
    five seconds; the latest polls of 10,000 devices are kept in memory for that.

    Args:
        runtime: the open root.
        keys: the virtual keys of the root.
        authenticator: finds the caller of the endpoints that require a key.

    Raises:
        RemitError: the root's secret, which signs the codes, cannot be read or made.
    """

    def __init__(self, runtime: Runtime, keys: KeyStore, authenticator: Authenticator) -> None:
        settings = runtime.loaded.settings
        self._settings = settings.server.oidc
        # The setting is for spans, so its path may be that of spans.
        self._collector = settings.telemetry.otlp_endpoint.rstrip("/").removesuffix("/v1/traces")
        self._base = self._settings.public_url.rstrip("/")
        self._keys = keys
        self._authenticator = authenticator
        self._codes = DeviceCodes(agent_secret(runtime.root), lambda: keys.now_s)
        self._polled: dict[str, float] = {}

    def routes(self) -> dict[tuple[str, str], Handler]:
        """Return the handlers, keyed by (method, path); none unless ``issuer`` and ``devices`` are
        set.

        The paths are ``/protocol``, the OAuth endpoints, ``/managed/settings`` and the three of
        telemetry.
        """
        if not (self._settings.issuer and self._settings.devices):
            return {}
        return {
            ("GET", "/protocol"): self._describe,
            ("GET", _DISCOVERY): self._discover,
            ("POST", _CODE): self._issue,
            ("POST", _TOKEN): self._redeem,
            ("GET", "/managed/settings"): self._manage,
            **{("POST", f"/v1/{signal}"): self._collect for signal in _SIGNALS},
        }

    async def _describe(self, scope: Scope, receive: Receive, send: Send) -> None:
        text = _DOCUMENT.format(base=self._base, lasts_s=self._settings.lasts_s)
        await reply(send, Answer(200, text.encode(), b"text/markdown; charset=utf-8"))

    async def _discover(self, scope: Scope, receive: Receive, send: Send) -> None:
        metadata = {
            "issuer": self._base,
            "device_authorization_endpoint": f"{self._base}{_CODE}",
            "token_endpoint": f"{self._base}{_TOKEN}",
            "grant_types_supported": [_GRANT],
            "response_types_supported": [],
            "token_endpoint_auth_methods_supported": ["none"],
            "gateway_protocol_version": 1,
        }
        await reply(send, json_answer(metadata))

    async def _issue(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, send, self._issued)

    async def _issued(self, form: Mapping[str, str]) -> dict[str, object]:
        """Return the answer with a new device code and its user code."""
        device_code, user_code = self._codes.issue()
        page = f"{self._base}{PAGE}"
        return {
            "device_code": device_code,
            "user_code": user_code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?user_code={user_code}",
            "expires_in": LASTS_S,
            "interval": _INTERVAL_S,
        }

    async def _redeem(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, send, self._token)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send,
        make: Callable[[Mapping[str, str]], Awaitable[dict[str, object]]],
    ) -> None:  # fmt: skip
        """Answer a form with what ``make`` returns, or with its error as OAuth prescribes."""
        status, headers = 200, [(b"cache-control", b"no-store")]
        try:
            answer = await make(await self._form(scope, receive))
        except HttpError as error:  # RFC 6749, section 5.2; RFC 8628, section 3.5
            answer = {"error": error.code, "error_description": error.message}
            status = error.status
            headers += limits_of(error)
        await reply(send, json_answer(answer, status, headers))

    async def _token(self, form: Mapping[str, str]) -> dict[str, object]:
        """Return the token answer for a form; raise HttpError if there is no token (yet)."""
        grant = form.get("grant_type", "")
        if grant == "refresh_token":
            raise HttpError(401, "invalid_grant", "There are no refresh tokens: sign in again.")
        if grant != _GRANT:
            raise HttpError(400, "unsupported_grant_type", f"grant_type must be {_GRANT}.")
        found = self._codes.read(form.get("device_code", ""))
        if found is None:
            raise HttpError(400, "invalid_grant", "This server did not issue the device code.")
        user_code, until = found
        if self._keys.now_s >= until:
            raise HttpError(400, "expired_token", "The device code has expired: sign in again.")
        self._require_interval(user_code)
        return await asyncio.to_thread(self._key_of, user_code)

    def _require_interval(self, user_code: str) -> None:
        """Note a poll; raise HttpError if the device's last noted poll was too recent."""
        now, polled = time.monotonic(), self._polled
        if now - polled.get(user_code, -math.inf) < _INTERVAL_S - _EARLY_S:
            raise HttpError(400, "slow_down", f"Ask every {_INTERVAL_S} seconds.")
        polled.pop(user_code, None)
        while len(polled) >= _MAX_DEVICES:  # The least recent poll comes first.
            del polled[next(iter(polled))]
        polled[user_code] = now

    def _key_of(self, user_code: str) -> dict[str, object]:
        """Return the token answer of an approved code. Its key gets a new secret. Blocks.

        Raises:
            HttpError: the code waits for its approval, was denied, or was redeemed before.
        """
        try:
            key = self._keys.find(key_name(user_code))
        except NotFoundError:
            raise HttpError(400, "authorization_pending", "Nobody has approved the code.") from None
        now = datetime.fromtimestamp(self._keys.now_s, UTC)
        if key.state_at(now) != "live":
            raise HttpError(400, "access_denied", "The sign-in was denied.")
        rest = datetime.fromisoformat(key.expires) - now
        try:
            made = self._keys.rotate(key.key_id, requested_by="device sign-in", once=True)
        except ConflictError:
            said = "The device code was used before: sign in again."
            raise HttpError(400, "invalid_grant", said) from None
        return {
            "access_token": made.key,
            "token_type": "Bearer",
            "expires_in": max(1, int(rest.total_seconds())),
        }

    async def _manage(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._authenticator.caller(scope)
        known = self._settings.managed_settings
        settings = known.get(caller.identity.team_id or "*", known.get("*"))
        if settings is None:
            raise HttpError(404, "not_found", "There are no managed settings for your team.")
        checksum = f"sha256:{hashlib.sha256(canonical_json(settings)).hexdigest()}"
        tag = f'"{checksum}"'.encode()
        # A proxy may mark the tag as weak, and a client may send several.
        if checksum.encode() in dict(scope["headers"]).get(b"if-none-match", b""):
            await reply(send, Answer(304, b"", headers=[(b"etag", tag)]))
            return
        managed = {"uuid": checksum, "checksum": checksum, "settings": settings}
        await reply(send, json_answer(managed, headers=[(b"etag", tag)]))

    async def _collect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward telemetry to ``telemetry.otlp_endpoint``, or discard it if there is none.

        A failure of the collector is logged and not answered: the device could not act on it.
        """
        caller = await self._authenticator.caller(scope)
        headers = dict(scope["headers"])
        length = headers.get(b"content-length")
        body = await read_body(receive, length, _MAX_SIGNAL_BYTES, _BODY_S, caller.share)
        if self._collector:
            import aiohttp  # The import is slow, and most roots have no collector.

            signal = scope["path"].rpartition("/")[2]
            named = (b"content-type", b"content-encoding")
            sent = {one.decode(): headers[one].decode("latin-1") for one in named if one in headers}
            try:
                async with (
                    aiohttp.ClientSession(
                        cookie_jar=aiohttp.DummyCookieJar(),
                        timeout=aiohttp.ClientTimeout(total=_FORWARD_S),
                    ) as session,
                    session.post(
                        f"{self._collector}/v1/{signal}", data=body, headers=sent,
                        allow_redirects=False,
                    ) as answer,
                ):  # fmt: skip
                    if answer.status >= 300:
                        _log.warning("the collector refused %s with %d", signal, answer.status)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                _log.warning("%s cannot be forwarded: %s", signal, type(error).__name__)
        await reply(send, json_answer({}))

    async def _form(self, scope: Scope, receive: Receive) -> dict[str, str]:
        """Return the fields of a form; raise HttpError if it is too long, slow, or not a form."""
        length = dict(scope["headers"]).get(b"content-length")
        body = await read_body(receive, length, _MAX_FORM_BYTES, _BODY_S, None)
        try:
            return dict(parse_qsl(body.decode(), max_num_fields=20))
        except ValueError as error:
            raise HttpError(400, "invalid_request", "The form cannot be read.") from error
