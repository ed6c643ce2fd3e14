"""Authentication of HTTP requests, and the gateway's request built from their headers.

A caller sends a virtual key or an agent's token, as ``Authorization: Bearer``, ``x-api-key`` or
``x-goog-api-key``. In dev mode the server asks for none, and every caller is the developer.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from remit.gateway import default_session
from remit.gateway.auth import (
    CREDENTIAL_HEADERS,
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
from remit.providers import Body
from remit.runtime import Runtime
from remit.server.asgi import PROVE, Scope
from remit.server.device_codes import is_device_key
from remit.server.in_flight_limits import SHARE
from remit.server.refusals import HttpError
from remit.server.request_context import AuthenticatedRequest, RequestContext

Headers = list[tuple[bytes, bytes]]

DEVELOPER = Identity("developer", "operator", key_id="dev", pass_through=("*",))
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
_WANTED = frozenset({*_HEADERS, *CREDENTIAL_HEADERS, b"content-length", b"content-encoding",
                     b"content-type", *_PASSED_ON})  # fmt: skip
_UPSTREAM = ("base_url", "api_base", "api_key", "api_version", "custom_llm_provider")
_BEARER = re.compile(rb"Bearer sk-remit-[\w-]{1,200}")
_NO_OWNER = "", ""
_DAY_S = 86_400
_SIGNED = b"AWS4-HMAC-SHA256 "
_SIGNATURE = ("The request is signed with AWS keys, which Remit does not know. Set "
              "AWS_BEARER_TOKEN_BEDROCK to a virtual key, or send one as x-api-key.")  # fmt: skip
_VIRTUAL_KEY = "sk-remit-"


def _named(caller: AuthenticatedRequest) -> dict[str, str]:
    """Return Remit's own headers, keyed by field; raise HttpError 400 if a value is invalid."""
    return {field: caller.text(name) for name, field in _HEADERS.items() if name in caller.headers}


def _subject(named: Mapping[str, str], identity: Identity) -> str:
    """Return the subject of the content: the header's, else the person of a device, else empty."""
    if "subject_id" in named:
        return named["subject_id"]
    is_person = bool(identity.user_id) and is_device_key(identity.name)
    return identity.user_id if is_person else ""


def open_keys(runtime: Runtime) -> KeyStore:
    """Return the virtual keys of an open root, with the cache times of ``[auth]``.

    The caller closes the result.

    Args:
        runtime: the open root.

    Raises:
        LedgerError: the ledger cannot be read.
        AuthUnavailableError: the row of a key is damaged.
        InvalidInputError: ``[auth]`` has a time that cannot be used.
    """
    auth = runtime.loaded.settings.auth
    return KeyStore(runtime.ledger, AuthLimits(auth.revocation_s, auth.stale_after_s))


def is_local(headers: Headers) -> bool:
    """Return True if ``Host`` and ``Origin``, as far as they are sent, name this machine.

    Dev mode answers only such requests. A web page can send its reader's browser to this server,
    even under a host name of its own (DNS rebinding); such a request names another host or origin.
    The port does not matter. A request with neither header is local, and an unreadable one is not.

    Args:
        headers: headers of the request, names in lower case.
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
    """Return (not raise) the 403 for a request that names another machine, in dev mode."""
    return HttpError(
        403,
        "forbidden",
        "Dev mode answers only requests for localhost; start the server without --dev.",
    )


def _two_credentials(name: bytes) -> HttpError:
    said = f"The header {name.decode()} was sent twice with different keys; send one."
    return HttpError(400, "invalid_header", said, param=name.decode())


class Authenticator:
    """Authentication of requests by their key; in dev mode every caller is the developer.

    :meth:`authenticate` finds the caller, :meth:`request` and :meth:`context` read the headers of
    an authenticated request. Requests write nothing to the ledger. The default sessions of the day
    are cached.

    Args:
        provider: authenticates tokens; ``None`` in dev mode.
        contract_id: contract of calls that name none.
        new_key_wait_s: longest time until this process knows a key that another process made, in
            seconds.
        on_refused: called for each request refused with 401.
        lookup: returns the owner of a virtual key, or ``None``, without counting a refusal.
        owners: package and framework of each contract that a package brought, keyed by contract.
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
        self._sessions: dict[str, str] = {}  # Sessions of today, keyed by key id.

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
        """Return the authenticator of a root: virtual keys, and agent tokens made on their behalf.

        With ``dev`` every caller is the developer; an account without limits is opened and recorded
        for that identity, if it has none. Otherwise the file with the secret of agent tokens is
        made, if it is missing.

        Args:
            runtime: the open root.
            keys: the root's virtual keys.
            contract_id: contract of calls that name none.
            dev: True for dev mode.
            on_refused: called for each request refused with 401; None for none.

        Raises:
            RemitError: the secret of agent tokens cannot be read or made, or the installed packages
                cannot be read.
            LedgerError: the ledger cannot be read or written.
        """
        wait_s = runtime.loaded.settings.auth.revocation_s
        owners = runtime.owners.of_contracts
        if dev:
            runtime.allow_without_limits(DEVELOPER)
            return cls(None, contract_id, wait_s, on_refused, owners=owners)
        tokens = AgentTokens(agent_secret(runtime.root), lambda: keys.now_s)
        provider = AgentTokenProvider(tokens, keys, others=keys)
        return cls(provider, contract_id, wait_s, on_refused, keys.lookup, owners)

    def known(self, raw_headers: Headers) -> AuthenticatedRequest | None:
        """Return the request with its caller if its token is a known virtual key, else ``None``.

        ``None`` is also returned if keys cannot be read, and in dev mode. No refusal is counted.

        Args:
            raw_headers: all headers, names in lower case.

        Raises:
            HttpError: 400, a credential header is sent twice with different values.
        """
        if self._lookup is None:
            return None
        headers, token = self._read(raw_headers)
        try:
            identity = self._lookup(token) if token is not None else None
        except AuthUnavailableError:
            return None
        return AuthenticatedRequest(headers, identity, token) if identity is not None else None

    def authenticate_now(self, raw_headers: Headers) -> AuthenticatedRequest:
        """Return the request with its caller, after a single check. Writes nothing to the ledger.

        In dev mode the caller is the developer, whatever the headers are. ``on_refused`` is called
        before a 401 is raised.

        Args:
            raw_headers: all headers, names in lower case.

        Raises:
            HttpError: 401 without a valid key, 400 with two different keys, 503 if keys cannot be
                checked.
        """
        try:
            return self._authenticate(raw_headers)
        except HttpError as error:
            if error.status == 401 and self._on_refused is not None:
                self._on_refused()
            raise

    async def authenticate(self, raw_headers: Headers) -> AuthenticatedRequest:
        """Return the request with its caller, as :meth:`authenticate_now`.

        An unknown virtual key is checked a second time after ``new_key_wait_s``, because another
        process may have made the key a moment ago. Other tokens are checked once, without a wait.

        Args:
            raw_headers: all headers, names in lower case.

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
        """Authenticate an ASGI request, count the request under the caller's key, and return both.

        The scope's :data:`~remit.server.asgi.PROVE` is called, so that the connection is no
        longer the first to be closed, and the scope's share is begun. The application ends the
        share after its answer.

        Args:
            scope: ASGI's scope of the request.

        Returns:
            The authenticated request, with its share. If the scope has none, nothing is counted.

        Raises:
            HttpError: as :meth:`authenticate`; 429, the key or its tenant has too many requests in
                flight.
        """
        found = await self.authenticate(scope["headers"])
        if PROVE in scope:
            scope[PROVE]()
        if (share := scope.get(SHARE)) is not None:
            share.begin(found.identity.key_id)
            found.share = share
        return found

    def has_ended(self, token: str | None) -> bool:
        """Return True if a token is not accepted any more: revoked, expired or unknown.

        False while keys cannot be read, and in dev mode. The check counts no refusal.

        Args:
            token: a key or token that was accepted before. ``None`` counts as ended, except in dev
                mode.
        """
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
            signed = headers.get(b"authorization", b"").startswith(_SIGNED)
            said = _SIGNATURE if signed else str(error)
            raise HttpError(401, "invalid_api_key", said) from error

    @staticmethod
    def _read(raw_headers: Headers) -> tuple[dict[bytes, bytes], str | None]:
        """Return the headers that Remit reads, and their token; ``None`` without a token.

        Raises:
            HttpError: 400, a credential header is sent twice with different values.
        """
        headers: dict[bytes, bytes] = {}
        for name, value in raw_headers:
            if name in _WANTED:
                if name in headers and name in CREDENTIAL_HEADERS and headers[name] != value:
                    raise _two_credentials(name)
                headers[name] = value
        authorization = headers.get(b"authorization")
        if authorization is not None and _BEARER.fullmatch(authorization):
            return headers, authorization[7:].decode("ascii")
        shown = [headers.get(name, b"").decode("latin-1") for name in CREDENTIAL_HEADERS]
        token = token_from_headers(*shown)
        return headers, token

    def context(self, caller: AuthenticatedRequest) -> RequestContext:
        """Return the session, person, agent and key for which a request's content is recorded.

        Agent, session and work order are those of the headers, else those of the caller's token. A
        caller without a session gets :meth:`session_of`. The person is the header's, else the owner
        of a device's key, else none.

        Args:
            caller: the authenticated request.

        Raises:
            HttpError: 400, a header of Remit is invalid.
        """
        named, identity = _named(caller), caller.identity
        session_id = named.get("session_id", "")
        return RequestContext(
            session_id=session_id or identity.session_id or self.session_of(identity),
            named_session_id=session_id,
            subject_id=_subject(named, identity),
            agent_id=named.get("agent_id") or identity.name,
            key_id=identity.key_id,
            work_order_id=named.get("work_order_id") or identity.work_order_id,
        )

    def request(self, caller: AuthenticatedRequest, body: Body) -> PromptRequest:
        """Return the gateway's request for a body, in the caller's name. Nothing is sent.

        Names that the headers leave out are the caller's, as in :meth:`context`. The contract is
        the header's, else the default, with the package that brought the contract. Temperature and
        output limit are those of the body.

        Args:
            caller: the authenticated request, whose headers name session, agent, order and
                contract.
            body: the parsed body.

        Raises:
            HttpError: 400, a header is invalid, or the body names an upstream's address or key.
        """
        named: dict[str, str] = {}
        passed: dict[str, str] = {}
        for name in caller.headers:
            if name in _HEADERS:
                named[_HEADERS[name]] = caller.text(name)
            elif name in _PASSED_ON:
                passed[_PASSED_ON[name]] = caller.text(name)
        identity = caller.identity
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
            agent_id=named.get("agent_id") or identity.name,
            agent_class="",
            framework_id=framework_id,
            package_id=package_id,
            work_order_id=named.get("work_order_id") or identity.work_order_id,
            session_id=(
                named.get("session_id") or identity.session_id or self.session_of(identity)
            ),
            tier="ho1",
            model_id=body.model,
            max_tokens=None,
            temperature=None,
            body=body,
            headers=passed or None,
            subject_id=_subject(named, identity) or None,
            idempotency_key=named.get("idempotency_key") or None,
        )

    def session_of(self, identity: Identity) -> str:
        """Return the default session id of a caller, which is the same for a key and day (UTC).

        Calls that name no session belong to this session. Callers without a key share one. The ids
        of the present day are cached; nothing is written.

        Args:
            identity: the caller.
        """
        day = int(time.time()) // _DAY_S
        if day != self._day:
            self._day, self._today = day, time.strftime("%Y%m%d", time.gmtime())
            self._sessions.clear()
        session_id = self._sessions.get(identity.key_id)
        if session_id is None:
            session_id = default_session(identity, self._today)
            self._sessions[identity.key_id] = session_id
        return session_id
