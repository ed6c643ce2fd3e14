"""Who asks, and in whose name: from the headers of a request to what the gateway is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from remit.gateway import MAX_ID_CHARS
from remit.gateway.auth import AuthProvider, AuthUnavailableError, Identity, token_from_headers
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest
from remit.providers.dialects.call import ClientCall
from remit.server.refusals import HttpError

__all__ = ["DEVELOPER", "AuthenticatedRequest", "Authenticator"]

DEVELOPER = Identity("developer", "operator", key_id="dev")
"""Whoever asks in dev mode."""

_HEADERS = {
    b"x-remit-session": "session_id",
    b"x-remit-agent": "agent_id",
    b"x-remit-work-order": "work_order_id",
    b"x-remit-contract": "contract_id",
    b"x-remit-subject": "subject_id",
    b"idempotency-key": "idempotency_key",
}
_BETA = b"anthropic-beta"
_WANTED = frozenset({*_HEADERS, b"authorization", b"x-api-key", b"content-length",
                     b"content-encoding", _BETA})  # fmt: skip
_UPSTREAM = ("base_url", "api_base", "api_key", "api_version", "custom_llm_provider")
_DAY_S = 86_400
_LOOKS_NEW = b"sk-remit-"


@dataclass(slots=True)
class AuthenticatedRequest:
    """One request at the door.

    Attributes:
        headers: those that matter, by name.
        identity: who asks.
    """

    headers: dict[bytes, bytes]
    identity: Identity

    def text(self, name: bytes) -> str:
        """A header as an id: printable ASCII, not too long; empty when it is not there.

        Raises:
            HttpError: it is anything else.
        """
        raw = self.headers.get(name)
        if raw is None:
            return ""
        value = raw.strip()
        if len(value) > MAX_ID_CHARS or not all(32 <= byte < 127 for byte in value):
            raise HttpError(
                400,
                "invalid_header",
                f"The header {name.decode()} is not printable ASCII of at most {MAX_ID_CHARS} "
                "characters.",
                param=name.decode(),
            )
        return value.decode("ascii")


class Authenticator:
    """Lets in who has a key, or everybody in dev mode.

    Args:
        keys: tells whose a key is; ``None`` in dev mode.
        contract_id: the contract of calls that name none.
        news_s: within this time a key that another process made is known here, in seconds.
        on_refused: told of each request that nobody known made.
    """

    def __init__(
        self,
        keys: AuthProvider | None,
        contract_id: str,
        news_s: float = 0.0,
        on_refused: Callable[[], None] | None = None,
    ) -> None:
        self._news_s = news_s
        self._on_refused = on_refused
        self._keys = keys
        self._contract_id = contract_id
        self._day = 0
        self._today = ""

    def enter(self, raw_headers: list[tuple[bytes, bytes]]) -> AuthenticatedRequest:
        """Who asks.

        Raises:
            HttpError: nobody known. Nothing is written: without a key nobody makes the disk work.
        """
        try:
            return self._known(raw_headers)
        except HttpError as error:
            if error.status == 401 and self._on_refused is not None:
                self._on_refused()
            raise

    def _known(self, raw_headers: list[tuple[bytes, bytes]]) -> AuthenticatedRequest:
        headers = {name: value for name, value in raw_headers if name in _WANTED}
        if self._keys is None:
            return AuthenticatedRequest(headers, DEVELOPER)
        authorization, api_key = headers.get(b"authorization"), headers.get(b"x-api-key")
        token = token_from_headers(
            authorization.decode("latin-1") if authorization is not None else None,
            api_key.decode("latin-1") if api_key is not None else None,
        )
        try:
            return AuthenticatedRequest(headers, self._keys.authenticate(token))
        except AuthUnavailableError as error:
            raise HttpError(503, "auth_unavailable", error.message, retry_after_s=1) from error
        except RemitError as error:
            raise HttpError(401, "invalid_api_key", error.message) from error

    async def authenticate(self, raw_headers: list[tuple[bytes, bytes]]) -> AuthenticatedRequest:
        """:meth:`enter`, and once more a moment later for a key that may have just been made.

        Raises:
            HttpError: nobody known.
        """
        try:
            return self._known(raw_headers)
        except HttpError as error:
            looks_new = any(_LOOKS_NEW in value for _, value in raw_headers)
            if error.status == 401 and looks_new:
                await asyncio.sleep(self._news_s)
        return self.enter(raw_headers)

    def request(self, visit: AuthenticatedRequest, call: ClientCall) -> PromptRequest:
        """What the gateway is asked, in the name of who asks.

        Raises:
            HttpError: a header cannot be used.
        """
        named = {field: visit.text(name) for name, field in _HEADERS.items()
                 if name in visit.headers}  # fmt: skip
        identity = visit.identity
        parameters = call.parameters
        for name in _UPSTREAM:
            if name in parameters:
                raise HttpError(
                    400, "invalid_request", f"{name}: only the configuration names upstreams.",
                    param=name,
                )  # fmt: skip
        if _BETA.decode() in parameters:
            raise HttpError(
                400, "invalid_request", "anthropic-beta is a header, not a field.",
                param=_BETA.decode(),
            )  # fmt: skip
        if _BETA in visit.headers and call.dialect == "anthropic":
            parameters = {**parameters, _BETA.decode(): visit.text(_BETA)}
        return PromptRequest(
            prompt="",
            prompt_pack_id="",
            contract_id=named.get("contract_id") or self._contract_id,
            agent_id=named.get("agent_id") or identity.name,
            agent_class="",
            framework_id="",
            package_id="",
            work_order_id=named.get("work_order_id", ""),
            session_id=named.get("session_id") or self.session_of(identity),
            tier="ho1",
            model_id=call.model,
            max_tokens=call.max_tokens,
            temperature=call.temperature,
            structured_output=call.response_schema,
            tools=call.tools or None,
            messages=call.messages,
            parameters=parameters,
            dialect=call.dialect,
            subject_id=named.get("subject_id") or None,
            idempotency_key=named.get("idempotency_key") or None,
        )

    def session_of(self, identity: Identity) -> str:
        """The session of calls that name none: one for each key and day."""
        day = int(time.time()) // _DAY_S
        if day != self._day:
            self._day, self._today = day, time.strftime("%Y%m%d", time.gmtime())
        owner = identity.key_id.removeprefix("KEY-") or "LOCAL"
        return f"SES-{owner.upper()}{self._today}"
