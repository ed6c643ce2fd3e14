"""Admission of a call: the identity and rights of its caller, and the accounts that pay.

Nothing is written here, and only the rows that are cached are read: the virtual keys. Owners of
sessions, limits and idempotency keys are read in one go by the transaction that begins the call
(:class:`remit.gateway.call_transactions.Calls`), so that no other call can change them in between.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import replace
from typing import Any

from remit.gateway.auth import AuthProvider, Identity, KeyStore, LocalOperator
from remit.gateway.key_queries import hidden_name
from remit.gateway.recorded_answers import asked_hash
from remit.gateway.session_owners import NotYoursError, Ownership, ownership_of
from remit.gateway.validation import Sent, check_request, encode_sent, ids_of
from remit.gateway.values import Call, Refusal, RefusedError
from remit.kernel.budget_values import path_of as scopes_of
from remit.kernel.errors import InvalidInputError, RemitError

_MAX_KNOWN = 4_096  # Clients name sessions and orders, so the cache has a limit.


class Admission:
    """The check of requests and callers before anything is sent.

    :meth:`admit` is the only method; it writes nothing. The results for repeated callers with equal
    ids are cached, at most 4,096.

    Args:
        auth: authenticates tokens; None if no provider is configured.
        dev_mode: True to skip authentication.
        keys: the virtual keys.
    """

    def __init__(self, auth: AuthProvider | None, dev_mode: bool, keys: KeyStore) -> None:
        self._auth = auth
        self._dev_mode = dev_mode
        self._keys = keys
        self._known: dict[Any, tuple[Identity, Ownership | None, tuple[str, ...]]] = {}

    def admit(self, call: Call) -> None:
        """Check a call's request and its caller, and set the fields that the next steps need.

        Nothing is written. A request with an idempotency key gets a claim with a new random token.

        Args:
            call: the call. Its ``sent``, ``request_hash``, ``identity``, ``ownership``, ``path``
                and ``claim`` are set. If ``sent`` is set already, the request is not encoded.

        Raises:
            RefusedError: the request is invalid (``INVALID_INPUT``), the caller may not make the
                call (``AUTH_ERROR``), or the work order names another session
                (``SESSION_NOT_YOURS``).
        """
        request, identity = call.request, call.identity
        # A body was checked when it was read. Other checks depend on the caller and ids alone.
        name: Any = None
        if (
            identity is not None
            and request.body is not None
            and request.max_tokens is None
            and request.temperature is None
            and request.input_schema is None
        ):
            payers = (request.user_id, request.charged_to, request.for_key_id)
            name = (id(identity), ids_of(request), payers)
            if (known := self._known.get(name)) is not None:
                _, call.ownership, call.path = known
                if call.sent is None:
                    raw = request.body.raw
                    digest = request.body.digest or hashlib.sha256(raw).hexdigest()
                    call.sent = Sent((), b"", digest, len(raw))
                call.request_hash = call.sent.context_hash
                return
        if problem := check_request(request):
            raise RefusedError(Refusal("INVALID_INPUT", problem))
        try:
            sent = call.sent = call.sent or encode_sent(request)
        except InvalidInputError as error:
            raise RefusedError(Refusal("INVALID_INPUT", error.message)) from error
        call.request_hash = sent.context_hash
        if problem := authenticate(call, self._auth, self._dev_mode, self._keys):
            raise RefusedError(Refusal("AUTH_ERROR", problem))
        try:
            call.ownership = ownership_of(
                call.identity, request.session_id, request.work_order_id or ""
            )
        except NotYoursError as error:
            raise RefusedError(Refusal("SESSION_NOT_YOURS", error.message)) from error
        call.path = path_of(call)
        if request.idempotency_key:
            call.request_hash = asked_hash(request, sent)
            caller = caller_of(call)
            key = hidden_name(caller, request.idempotency_key)
            call.claim = (caller, key, secrets.token_hex(8))
        elif name is not None and identity is not None and call.identity is identity:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            # The identity is kept: another one cannot get its id().
            self._known[name] = (identity, call.ownership, call.path)


def authenticate(call: Call, auth: AuthProvider | None, dev_mode: bool, keys: KeyStore) -> str:
    """Set ``call.identity`` and return why the caller may not make the call; empty if it may.

    Never raises for a failed authentication, nor for an error of ``auth`` or ``keys``: the reason
    names it. An identity that is set already is not authenticated again. A call that an operator
    makes for a virtual key is limited by that key as it is now, which reads the database. Role,
    agent, session, work order and tier of the request must be allowed to the identity. In dev mode
    without an identity, nothing is checked but the key to act for.

    Args:
        call: the call; its request has the token and, if any, the key to act for.
        auth: authenticates tokens; None if no provider is configured.
        dev_mode: True to skip authentication.
        keys: the virtual keys.
    """
    request = call.request
    if call.identity is None and not dev_mode:
        if auth is None:
            return "no authentication provider is configured, and this is not dev mode"
        try:
            call.identity = auth.authenticate(request.auth_token)
        except RemitError as error:
            return error.message
        except Exception as error:  # noqa: BLE001 - an authenticator that fails admits no caller
            return f"the authentication provider failed ({type(error).__name__})"
    if request.for_key_id:
        asks = call.identity or LocalOperator().authenticate(None)
        if asks.key_id:
            return "a caller with a key cannot act for another user"
        try:
            key = keys.current(request.for_key_id)
        except RemitError as error:
            return error.message
        call.identity = replace(
            asks, user_id=key.user_id, team_id=key.team_id,
            organisation_id=key.organisation_id, within=key,
        )  # fmt: skip
    identity = call.identity
    if identity is None:
        return ""
    if not identity.may("call"):
        return f"the role {identity.role} cannot make model calls; use a key with the role agent"
    is_limited = identity.within is not None
    if (identity.agents or is_limited) and not identity.may_act_as(request.agent_id):
        return "this key may not act as that agent; send an allowed agent in x-remit-agent"
    if identity.session_id and request.session_id != identity.session_id:
        return "this token was issued for another session; send it in x-remit-session, or none"
    if identity.work_order_id and request.work_order_id != identity.work_order_id:
        return "this token was issued for another work order; send that work order, or none"
    if (identity.tiers or is_limited) and not identity.may_use_tier(request.tier):
        return "this key may not act in that tier; use an allowed tier"
    return ""


def path_of(call: Call) -> tuple[str, ...]:
    """Return every budget scope that the call counts in, the narrowest last.

    These are organisation, team, user and key of the identity, the accounts in ``charged_to``, and
    session, work order and agent of the request. The identity's user takes precedence over the
    request's; without an identity only the request counts.

    Args:
        call: the call, with its identity.
    """
    request, identity = call.request, call.identity
    session_id, order, agent_id = request.session_id, request.work_order_id, request.agent_id
    also = request.charged_to
    if identity is None:
        return scopes_of(session_id, order, agent_id, None, request.user_id, None, None, also)
    return scopes_of(
        session_id, order, agent_id, identity.key_id, identity.user_id or request.user_id,
        identity.team_id, identity.organisation_id, also,
    )  # fmt: skip


def caller_of(call: Call) -> str:
    """Return the name of the caller that an idempotency key belongs to.

    The result is ``key:{id}`` for a caller with a virtual key, otherwise
    ``name:{name}/session:{session}``.

    Args:
        call: the call, with its identity; the name is empty without one.
    """
    identity = call.identity
    if identity is not None and identity.key_id:
        return f"key:{identity.key_id}"
    name = identity.name if identity is not None else ""
    return f"name:{name}/session:{call.request.session_id}"
