"""Routes of virtual keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Query

from remit.gateway.auth import (
    ROLES,
    Directory,
    Identity,
    KeyStore,
    NewKey,
    VirtualKey,
    expiry_of,
    shown_keys,
)
from remit.gateway.budget import BudgetLimits, TokenBudgeter
from remit.providers.wire import PASSED_PATHS
from remit.server.api.requests import KeyQuery, KeyRequest, Rotation
from remit.server.api.responses.parties import KeyMade, KeyPage, KeyRevoked, KeyShape
from remit.server.api.routes import Caller, Routes, slice_of
from remit.server.refusals import HttpError

_WILD = re.compile(r"[*?\[]")


def key_routes(keys: KeyStore, budgeter: TokenBudgeter, directory: Directory) -> Routes:
    """Return the routes that create, list, revoke and rotate virtual keys.

    A caller can give a key no more than its own permissions; else the answer is 403.

    Args:
        keys: virtual keys of the root.
        budgeter: budgets of the keys.
        directory: names of their owners.
    """
    routes = Routes("keys")

    @routes.add("GET", "/keys", "List keys", needs="read", shape=KeyPage)
    def listed(query: Annotated[KeyQuery, Query()]) -> dict[str, Any]:
        """Return virtual keys sorted by name, without their secrets."""
        # A key that was revoked meanwhile still marks the place of a cursor.
        shown = [
            key
            for key in keys.list(include_revoked=True)
            if query.revoked or not key.revoked or key.key_id == query.cursor
        ]
        part, more = slice_of(shown, (key.key_id for key in shown), query.cursor, query.limit)
        return {"keys": list(shown_keys(part, directory, budgeter)), "next_cursor": more}

    @routes.add("GET", "/keys/{name_or_id:path}", "One key", needs="read", shape=KeyShape)
    def show(name_or_id: str) -> dict[str, Any]:
        """Return a key without its secret: permissions, limits and spending."""
        return next(shown_keys([keys.find(name_or_id)], directory, budgeter))

    @routes.add(
        "POST", "/keys", "Create a key", needs="manage_keys", shape=KeyMade, status=201, fails=[409]
    )
    def create(wanted: KeyRequest, caller: Caller) -> dict[str, Any]:
        """Create a key with at most your permissions. The secret is shown once."""
        _require_no_more(caller, wanted.role, wanted.models, wanted.agents, wanted.tiers)
        lists: dict[str, Any] = {
            "pass_through": tuple(wanted.pass_through),
            "pass_through_unpriced": tuple(wanted.pass_through_unpriced),
        }
        _require_no_more_paths(caller, VirtualKey(wanted.name, wanted.role, **lists))
        limits = BudgetLimits.of(
            usd=wanted.budget_usd,
            tokens=wanted.budget_tokens,
            rpm=wanted.rpm,
            tpm=wanted.tpm,
            window=wanted.window,
            time_zone=wanted.time_zone,
            on_short=wanted.on_short,
        )
        made = keys.create(
            wanted.name,
            role=wanted.role,
            models=wanted.models,
            agents=wanted.agents,
            tiers=wanted.tiers,
            **lists,
            user_id=wanted.user or "",
            team_id=wanted.team or "",
            organisation_id=wanted.organisation or "",
            expires=None if wanted.expires is None else expiry_of(wanted.expires),
            requested_by=_who(caller),
            in_transaction=budgeter.for_new_key(limits, _who(caller)),
        )
        return _made(made)

    @routes.add(
        "POST", "/keys/{name_or_id:path}/rotate", "Rotate a key",
        needs="manage_keys", shape=KeyMade, fails=[409],
    )  # fmt: skip
    def rotate(name_or_id: str, caller: Caller, how: Rotation | None = None) -> dict[str, Any]:
        """Give a key a new secret, which is shown once; everything else of the key stays."""
        key = keys.find(name_or_id)
        if key.key_id != caller.key_id:  # the caller gets the new secret
            _require_no_more(caller, key.role, key.models, key.agents, key.tiers)
            _require_no_more_paths(caller, key)
        grace_s = how.grace_s if how is not None else 0.0
        made = keys.rotate(key.key_id, grace_s=grace_s, requested_by=_who(caller))
        return _made(made)

    @routes.add(
        "DELETE", "/keys/{name_or_id:path}", "Revoke a key", needs="manage_keys", shape=KeyRevoked
    )
    def revoke(
        name_or_id: str,
        caller: Caller,
        reason: Annotated[str, Query(description="Reason, recorded permanently.")] = "",
    ) -> dict[str, Any]:
        """Revoke a key for good; every process refuses it within a second. A repetition has no
        effect.
        """
        key = keys.find(name_or_id)
        entry_id = keys.revoke(key.key_id, reason, requested_by=_who(caller))
        return {"id": key.key_id, "name": key.name, "entry": entry_id}

    return routes


def _require_no_more(
    caller: Identity,
    role: str,
    models: Sequence[str],
    agents: Sequence[str],
    tiers: Sequence[str],
) -> None:
    """Raise HttpError if a key would get permissions that its creator may not give.

    A creator may give its own permissions except the one to approve, which is given on the machine.
    """
    allowed = ROLES.get(role, frozenset())
    if more := sorted(name for name in allowed if not caller.may(name)):
        raise _too_much("role", f"the role {role} may {', '.join(more).replace('_', ' ')}")
    if "approve" in allowed:
        said = (
            f"A key of the role {role} may approve, so it can only be created on the "
            f"server's machine: run "
        )
        command = f"`remit key create --role {role}` or `remit key rotate`."
        raise HttpError(403, "forbidden", said + command, param="role")
    own: Identity | None = caller
    while own is not None:
        if own.models and not (models and all(_covers(own, model) for model in models)):
            raise _too_much("models", f"your models are {', '.join(own.models)}")
        if own.agents and not (agents and all(map(own.may_act_as, agents))):
            raise _too_much("agents", f"your agents are {', '.join(own.agents)}")
        if own.tiers and not (tiers and all(map(own.may_use_tier, tiers))):
            raise _too_much("tiers", f"your tiers are {', '.join(own.tiers)}")
        own = own.within


def _require_no_more_paths(caller: Identity, key: VirtualKey) -> None:
    """Raise HttpError if a key may pass on requests that its caller, another key, may not."""
    for row in PASSED_PATHS if caller.key_id else ():
        for unpriced in (False, True):
            if key.identity.may_pass(row, unpriced=unpriced) and not caller.may_pass(
                row, unpriced=unpriced
            ):
                raise _too_much("pass_through", f"yours does not list {row.name}")


def _covers(identity: Identity, model: str) -> bool:
    """Return True if a model id or pattern allows no more than the identity may use.

    A pattern may match more than another pattern that matches it, so only an equal one passes.
    """
    return model in identity.models or (not _WILD.search(model) and identity.may_use_model(model))


def _too_much(param: str, why: str) -> HttpError:
    return HttpError(
        403, "forbidden", f"That key has more permissions than yours: {why}.", param=param
    )


def _who(caller: Identity) -> str:
    return caller.key_id or caller.name


def _made(made: NewKey) -> dict[str, str]:
    return {"id": made.key_id, "name": made.name, "key": made.key}
