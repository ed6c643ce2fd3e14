"""Authenticates HTTP requests, and makes the gateway's request from their headers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from msgspec import Struct

from remit.gateway import MAX_ID_CHARS, default_session
from remit.gateway.auth import (
    AgentTokenProvider,
    AgentTokens,
    AuthLimits,
    AuthProvider,
    AuthUnavailableError,
    Identity,
    KeyStore,
    agent_secret,
    token_from_headers,
)
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest
from remit.ledger import LedgerClient, LedgerEntry, Prepared
from remit.providers import Body
from remit.runtime import Runtime
from remit.server.refusals import HttpError
from remit.server.replies import PROVE, Scope
from remit.server.shares import SHARE, Share

Headers = list[tuple[bytes, bytes]]

DEVELOPER = Identity("developer", "operator", key_id="dev")
"""Every caller in dev mode."""

_HEADERS = {
    b"x-remit-session": "session_id",
    b"x-remit-agent": "agent_id",
    b"x-remit-work-order": "work_order_id",
    b"x-remit-contract": "contract_id",
    b"x-remit-subject": "subject_id",
    b"idempotency-key": "idempotency_key",
}
_PASSED_ON = {
    name.encode(): name
    for name in ("anthropic-beta", "anthropic-version", "openai-beta", "openai-organization",
                 "openai-project")
}  # fmt: skip
_WANTED = frozenset({*_HEADERS, b"authorization", b"x-api-key", b"content-length",
                     b"content-encoding", b"content-type", *_PASSED_ON})  # fmt: skip
_CREDENTIALS = (b"authorization", b"x-api-key")
_UPSTREAM = ("base_url", "api_base", "api_key", "api_version", "custom_llm_provider")
_BEARER = re.compile(rb"Bearer sk-remit-[\w-]{1,200}")
_PRINTABLE = re.compile(rb"[ -~]*")
_NO_OWNER = "", ""
_DAY_S = 86_400
_VIRTUAL_KEY = "sk-remit-"


class RequestContext(Struct, frozen=True, gc=False):
    """The session, the person and the caller for whom a request's content is recorded.

    Attributes:
        session_id: the session of ``x-remit-session``, of the caller's token, or of key and day.
        named_session_id: the session of ``x-remit-session``; empty without that header.
        subject_id: the person of ``x-remit-subject``; empty if the request names nobody.
        agent_id: the agent of ``x-remit-agent``, or the caller's name.
        key_id: the caller's key; empty for a token without one.
        work_order_id: the order of ``x-remit-work-order`` or of the token; may be empty.
    """

    session_id: str
    named_session_id: str
    subject_id: str
    agent_id: str
    key_id: str
    work_order_id: str

    def prepare(self, ledger: LedgerClient, entry: LedgerEntry) -> Prepared:
        """Prepare an entry that the request causes: with its session, person, agent and key.

        Raises:
            InvalidInputError: the entry cannot be recorded.
        """
        named = {"session_id": self.session_id, "agent_id": self.agent_id}
        if self.key_id:
            named["key_id"] = self.key_id
        entry.metadata = {**named, **entry.metadata}
        return ledger.prepare(entry, subject_id=self.subject_id or None)


@dataclass(slots=True)
class AuthenticatedRequest:
    """An authenticated request.

    Attributes:
        headers: the headers that Remit reads, by name.
        identity: the caller.
        token: the token it was authenticated by; ``None`` in dev mode without one.
        share: what it holds, where that is counted.
    """

    headers: dict[bytes, bytes]
    identity: Identity
    token: str | None = None
    share: Share | None = None

    def text(self, name: bytes) -> str:
        """Return a header as an id; empty if the header is missing.

        Raises:
            HttpError: the id is not printable ASCII, or is too long.
        """
        raw = self.headers.get(name)
        if raw is None:
            return ""
        value = raw.strip()
        if len(value) > MAX_ID_CHARS or not _PRINTABLE.fullmatch(value):
            raise HttpError(
                400,
                "invalid_header",
                f"The header {name.decode()} is not printable ASCII of at most {MAX_ID_CHARS} "
                "characters; leave the header out, or shorten its value.",
                param=name.decode(),
            )
        return value.decode("ascii")


def _named(caller: AuthenticatedRequest) -> dict[str, str]:
    """Return Remit's own headers of a request, by field; raise HttpError if one cannot be used."""
    return {field: caller.text(name) for name, field in _HEADERS.items() if name in caller.headers}


def open_keys(runtime: Runtime) -> KeyStore:
    """The virtual keys of an open root, with the freshness that its settings ask for."""
    auth = runtime.loaded.settings.auth
    return KeyStore(runtime.ledger, AuthLimits(auth.revocation_s, auth.stale_after_s))


def is_local(headers: Headers) -> bool:
    """Whether a request names this machine, and comes from no web page from elsewhere.

    A page may send its reader's browser here, even under its own host name (DNS rebinding).
    """
    for name, value in headers:
        if name in (b"host", b"origin"):
            text = value.decode("latin-1")
            try:
                host = urlsplit(text if name == b"origin" else f"//{text}").hostname
            except ValueError:
                return False
            if host not in ("localhost", "127.0.0.1", "::1"):
                return False
    return True


def from_elsewhere() -> HttpError:
    """Return the 403 for a client that is not local, in dev mode."""
    return HttpError(
        403,
        "forbidden",
        "Dev mode answers to localhost alone, and no web page; start the server without --dev.",
    )


def _two_credentials(name: bytes) -> HttpError:
    said = f"The header {name.decode()} stands twice, with two keys: send one."
    return HttpError(400, "invalid_header", said, param=name.decode())


class Authenticator:
    """Authenticates requests by their key; in dev mode everyone is the developer.

    Args:
        provider: authenticates tokens; ``None`` in dev mode.
        contract_id: the contract of calls that name none.
        new_key_wait_s: a key that another process made is known here within this time, seconds.
        on_refused: called for each request without a valid key.
        lookup: finds the owner of a virtual key without counting a refusal.
        owners: package and framework of each contract that a package brought.
    """

    def __init__(
        self,
        provider: AuthProvider | None,
        contract_id: str,
        new_key_wait_s: float = 0.0,
        on_refused: Callable[[], None] | None = None,
        lookup: Callable[[str], Identity | None] | None = None,
        owners: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        self.provider = provider
        self._owners = owners or {}
        self._owner = self._owners.get(contract_id, _NO_OWNER)
        self._contract_id = contract_id
        self._new_key_wait_s = new_key_wait_s
        self._on_refused = on_refused
        self._lookup = lookup
        self._day = 0
        self._today = ""

    @classmethod
    def of_root(
        cls,
        runtime: Runtime,
        keys: KeyStore,
        contract_id: str = "",
        *,
        dev: bool,
        on_refused: Callable[[], None] | None = None,
    ) -> Authenticator:
        """Authenticates by the virtual keys of a root, and by agent tokens made on their behalf.

        In dev mode everyone is the developer, who has no limits.
        """
        wait_s = runtime.loaded.settings.auth.revocation_s
        owners = runtime.owners.of_contracts
        if dev:
            runtime.allow_without_limits(DEVELOPER)
            return cls(None, contract_id, wait_s, on_refused, owners=owners)
        tokens = AgentTokens(agent_secret(runtime.root))
        provider = AgentTokenProvider(tokens, keys, others=keys)
        return cls(provider, contract_id, wait_s, on_refused, keys.lookup, owners)

    def known(self, raw_headers: Headers) -> AuthenticatedRequest | None:
        """The request with its caller, where their virtual key is known; else ``None``."""
        if self._lookup is None:
            return None
        headers, token = self._read(raw_headers)
        try:
            identity = self._lookup(token) if token is not None else None
        except AuthUnavailableError:
            return None
        return AuthenticatedRequest(headers, identity, token) if identity is not None else None

    def authenticate_now(self, raw_headers: Headers) -> AuthenticatedRequest:
        """The request with its caller.

        Raises:
            HttpError: 401 without a valid key, 400 with two, 503 when keys cannot be checked.
                Nothing is written: a request without a key causes no writes.
        """
        try:
            return self._authenticate(raw_headers)
        except HttpError as error:
            if error.status == 401 and self._on_refused is not None:
                self._on_refused()
            raise

    async def authenticate(self, raw_headers: Headers) -> AuthenticatedRequest:
        """:meth:`authenticate_now`; an unknown virtual key is given time, as it may be new.

        Raises:
            HttpError: as :meth:`authenticate_now`.
        """
        if (known := self.known(raw_headers)) is not None:
            return known
        _, token = self._read(raw_headers)
        if self._lookup is not None and token is not None and token.startswith(_VIRTUAL_KEY):
            await asyncio.sleep(self._new_key_wait_s)
        return self.authenticate_now(raw_headers)

    async def caller(self, scope: Scope) -> AuthenticatedRequest:
        """:meth:`authenticate`, of an ASGI request; its connection is known from then on."""
        found = await self.authenticate(scope["headers"])
        if PROVE in scope:
            scope[PROVE]()
        if (share := scope.get(SHARE)) is not None:
            share.begin(found.identity.key_id)
            found.share = share
        return found

    def has_ended(self, token: str | None) -> bool:
        """Whether a token that was good is so no more; while keys cannot be read none ends."""
        try:
            if self.provider is not None:
                self.provider.authenticate(token)
        except AuthUnavailableError:
            return False
        except RemitError:
            return True
        return False

    def _authenticate(self, raw_headers: Headers) -> AuthenticatedRequest:
        headers, token = self._read(raw_headers)
        if self.provider is None:
            return AuthenticatedRequest(headers, DEVELOPER)
        try:
            return AuthenticatedRequest(headers, self.provider.authenticate(token), token)
        except AuthUnavailableError as error:
            raise HttpError(503, "auth_unavailable", str(error), retry_after_s=1) from error
        except RemitError as error:
            raise HttpError(401, "invalid_api_key", str(error)) from error

    @staticmethod
    def _read(raw_headers: Headers) -> tuple[dict[bytes, bytes], str | None]:
        """The headers that Remit reads, and the token in them."""
        headers: dict[bytes, bytes] = {}
        for name, value in raw_headers:
            if name in _WANTED:
                if name in headers and name in _CREDENTIALS and headers[name] != value:
                    raise _two_credentials(name)
                headers[name] = value
        authorization, api_key = headers.get(b"authorization"), headers.get(b"x-api-key")
        if authorization is not None and _BEARER.fullmatch(authorization):
            return headers, authorization[7:].decode("ascii")
        token = token_from_headers(
            authorization.decode("latin-1") if authorization is not None else None,
            api_key.decode("latin-1") if api_key is not None else None,
        )
        return headers, token

    def context(self, caller: AuthenticatedRequest) -> RequestContext:
        """Return the context of a request; raise HttpError if a header cannot be used."""
        return self._context(_named(caller), caller.identity)

    def _context(self, named: Mapping[str, str], identity: Identity) -> RequestContext:
        session_id = named.get("session_id", "")
        return RequestContext(
            session_id=session_id or identity.session_id or self.session_of(identity),
            named_session_id=session_id,
            subject_id=named.get("subject_id", ""),
            agent_id=named.get("agent_id") or identity.name,
            key_id=identity.key_id,
            work_order_id=named.get("work_order_id") or identity.work_order_id,
        )

    def request(self, caller: AuthenticatedRequest, body: Body) -> PromptRequest:
        """The gateway's request, in the caller's name.

        Raises:
            HttpError: a header cannot be used, or the body names an upstream.
        """
        named: dict[str, str] = {}
        passed: dict[str, str] = {}
        for name in caller.headers:
            if name in _HEADERS:
                named[_HEADERS[name]] = caller.text(name)
            elif name in _PASSED_ON:
                passed[_PASSED_ON[name]] = caller.text(name)
        context = self._context(named, caller.identity)
        for field in _UPSTREAM:
            if field in body.value:
                raise HttpError(
                    400, "invalid_request", f"{field}: only the configuration names "
                        f"upstreams; leave this out.",
                    param=field,
                )  # fmt: skip
        contract_id, owner = self._contract_id, self._owner
        if b"x-remit-contract" in caller.headers:
            contract_id = named["contract_id"] or contract_id
            owner = self._owners.get(contract_id, _NO_OWNER)
        package_id, framework_id = owner
        return PromptRequest(
            prompt="",
            prompt_pack_id="",
            contract_id=contract_id,
            agent_id=context.agent_id,
            agent_class="",
            framework_id=framework_id,
            package_id=package_id,
            work_order_id=context.work_order_id,
            session_id=context.session_id,
            tier="ho1",
            model_id=body.model,
            max_tokens=None,
            temperature=None,
            body=body,
            headers=passed or None,
            subject_id=context.subject_id or None,
            idempotency_key=named.get("idempotency_key") or None,
        )

    def session_of(self, identity: Identity) -> str:
        """The session of calls that name none: one for each key and day."""
        day = int(time.time()) // _DAY_S
        if day != self._day:
            self._day, self._today = day, time.strftime("%Y%m%d", time.gmtime())
        return default_session(identity, self._today)
