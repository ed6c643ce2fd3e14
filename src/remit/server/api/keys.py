"""Routes of virtual keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from remit.gateway.auth import ROLES, Identity, KeyStore, NewKey, VirtualKey
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter, nano_of
from remit.kernel.errors import InvalidInputError
from remit.ledger import Transaction
from remit.server.api.access import Caller, allow, failures
from remit.server.api.pages import answer, slice_of
from remit.server.api.requests import KeyQuery, KeyRequest, Rotation
from remit.server.api.responses import KeyMade, KeyPage, KeyRevoked
from remit.server.refusals import HttpError

__all__ = ["key_routes"]

_MANAGE = [allow("manage_keys")]
_DURATION = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_WILD = re.compile(r"[*?\[]")


def key_routes(keys: KeyStore, budgeter: TokenBudgeter) -> APIRouter:
    """Makes, lists, revokes and rotates virtual keys."""
    routes = APIRouter(prefix="/api/keys", tags=["keys"])

    @routes.get(
        "", response_model=KeyPage, responses=failures(), dependencies=[allow("read")],
        summary="List keys",
    )  # fmt: skip
    def listed(query: Annotated[KeyQuery, Query()]) -> Response:
        """Virtual keys by name, without their secrets."""
        # A key that was revoked meanwhile still marks the place of a cursor.
        shown = [
            key
            for key in keys.list(include_revoked=True)
            if query.revoked or not key.revoked or key.key_id == query.cursor
        ]
        part, more = slice_of(shown, (key.key_id for key in shown), query.cursor, query.limit)
        return answer({"keys": [_plain(key) for key in part], "next_cursor": more})

    @routes.post(
        "", response_model=KeyMade, responses=failures(409), dependencies=_MANAGE,
        status_code=201, summary="Make a key",
    )  # fmt: skip
    def create(wanted: KeyRequest, caller: Caller) -> Response:
        """Make a key that may do no more than yours. Its secret is shown once."""
        _require_no_more(caller, wanted.role, wanted.models, wanted.agents, wanted.tiers)
        limits = BudgetLimits(
            wanted.budget_tokens,
            None if wanted.budget_usd is None else nano_of(wanted.budget_usd),
            None,
            wanted.rpm,
            wanted.tpm,
        )

        def set_limits(tx: Transaction, key_id: str) -> dict[str, Any]:
            budgeter.allocate(BudgetScope(key_id=key_id), limits=limits, tx=tx)
            return {}

        made = keys.create(
            wanted.name,
            role=wanted.role,
            models=wanted.models,
            agents=wanted.agents,
            tiers=wanted.tiers,
            user_id=wanted.user or "",
            team_id=wanted.team or "",
            organisation_id=wanted.organisation or "",
            expires=None if wanted.expires is None else _moment(wanted.expires),
            requested_by=_who(caller),
            in_transaction=set_limits,
        )
        return answer(_made(made), 201)

    @routes.post(
        "/{name_or_id:path}/rotate", response_model=KeyMade, responses=failures(404, 409),
        dependencies=_MANAGE, summary="Renew a key's secret",
    )  # fmt: skip
    def rotate(name_or_id: str, caller: Caller, how: Rotation | None = None) -> Response:
        """Give a key a new secret, which is in the answer, this once; all else of it stays."""
        key = keys.find(name_or_id)
        # Whoever rotates a key holds it: that must not be a way to more permissions.
        _require_no_more(caller, key.role, key.models, key.agents, key.tiers)
        grace_s = how.grace_s if how is not None else 0.0
        made = keys.rotate(key.key_id, grace_s=grace_s, requested_by=_who(caller))
        return answer(_made(made))

    @routes.delete(
        "/{name_or_id:path}", response_model=KeyRevoked, responses=failures(404),
        dependencies=_MANAGE, summary="Revoke a key",
    )  # fmt: skip
    def revoke(
        name_or_id: str,
        caller: Caller,
        reason: Annotated[str, Query(description="why; stays on record")] = "",
    ) -> Response:
        """End a key for good, everywhere within a second. Doing it twice changes nothing."""
        key = keys.find(name_or_id)
        entry_id = keys.revoke(key.key_id, reason, requested_by=_who(caller))
        return answer({"id": key.key_id, "name": key.name, "entry": entry_id})

    return routes


def _require_no_more(
    caller: Identity,
    role: str,
    models: Sequence[str],
    agents: Sequence[str],
    tiers: Sequence[str],
) -> None:
    """A caller makes or rotates only keys that may do no more than its own."""
    more = sorted(name for name in ROLES.get(role, ()) if not caller.may(name))
    if more:
        raise _too_much("role", f"the role {role} may {', '.join(more).replace('_', ' ')}")
    own: Identity | None = caller
    while own is not None:
        if own.models and not (models and all(_covers(own, model) for model in models)):
            raise _too_much("models", f"your models are {', '.join(own.models)}")
        if own.agents and not (agents and all(map(own.may_act_as, agents))):
            raise _too_much("agents", f"your agents are {', '.join(own.agents)}")
        if own.tiers and not (tiers and all(map(own.may_use_tier, tiers))):
            raise _too_much("tiers", f"your tiers are {', '.join(own.tiers)}")
        own = own.within


def _covers(identity: Identity, model: str) -> bool:
    """Whether a model id or pattern allows no more than the identity may use.

    A pattern may match more than another pattern that matches it, so only the same one passes.
    """
    return model in identity.models or (not _WILD.search(model) and identity.may_use_model(model))


def _too_much(param: str, why: str) -> HttpError:
    return HttpError(403, "forbidden", f"That key may do more than yours: {why}.", param=param)


def _who(caller: Identity) -> str:
    return caller.key_id or caller.name


def _made(made: NewKey) -> dict[str, str]:
    return {"id": made.key_id, "name": made.name, "key": made.key}


def _plain(key: VirtualKey) -> dict[str, Any]:
    shown = asdict(key)
    return {"id": shown.pop("key_id"), "state": key.state, **shown}


def _moment(text: str) -> datetime:
    """A duration from now, or an ISO date or time; without a zone it is UTC."""
    try:
        if found := _DURATION.fullmatch(text):
            return datetime.now(UTC) + timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"expires is {text!r}, which is no time.",
            next_step="Write 30d or 12h, or a date such as 2027-01-31T00:00:00Z.",
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
