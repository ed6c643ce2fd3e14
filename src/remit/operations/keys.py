"""Operations on virtual keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from remit.kernel.errors import InvalidInputError
from remit.operations import limits as limits_
from remit.operations.operation import Feed, feed_of, field, verb
from remit.operations.ports import Caller, ForbiddenError, RootPort
from remit.operations.text import Note

if TYPE_CHECKING:
    from remit.gateway.auth import Identity, NewKey, VirtualKey

_WILD = re.compile(r"[*?\[]")
_PASSED = (
    "Requests without a model call that the key may make, such as '/vector_stores*' or "
    "'POST /uploads*'; reads are always allowed."
)
_UNPRICED = "Like pass-through requests, but also allowed for keys with a limit in US dollars."


def _seconds(text: str) -> float:
    from remit.gateway.auth import duration_of

    return duration_of(text).total_seconds()


def _key(help: str = "Name or id of the key.") -> Any:
    return field(help, flag="")


def _list(text: str, **traits: Any) -> Any:
    return field(text, [], separator=",", metavar="A,B", **traits)


def _patterns(text: str) -> Any:
    return field(text, [], metavar="PATTERN")


def _secret(found: dict[str, Any]) -> Iterator[str]:
    yield found["key"]
    yield Note(
        f"This is the secret of the key {found['name']} ({found['id']}). It is not stored and will "
        "not be shown again."
    )


@verb(
    "key create", "POST /keys", summary="Create a key", needs="manage_keys", form="KeyRequest",
    result="KeyMade", status=201, fails=(409,), lines=_secret, more=limits_.PERIOD,
)  # fmt: skip
def create_key(
    root: RootPort, caller: Caller, *,
    name: str = field("Display name."),
    role: Literal["admin", "operator", "agent", "auditor"] = field("Role of the key.", "agent"),
    budget_usd: float | None = limits_.usd(),
    budget_tokens: int | None = limits_.count("Limit of tokens, input and output together."),
    budget_turns: int | None = limits_.count("Limit of model calls."),
    rpm: int | None = limits_.count("Limit of calls per minute."),
    tpm: int | None = limits_.count("Limit of tokens per minute."),
    models: list[str] = _list("Models that the key may call; gpt-4o* is a pattern (default: all)."),
    agents: list[str] = _list("Agents that the key may act for (default: all)."),
    tiers: list[Literal["hot", "ho2", "ho1"]] = _list(
        "Tiers that the key may act in: hot, ho2, ho1 (default: all)."
    ),
    pass_through: list[str] = _patterns(_PASSED),
    pass_through_unpriced: list[str] = _patterns(_UNPRICED),
    expires: str | None = field(
        "Expiry: a duration such as 30d, 12h, 15m or 90s, or a time in ISO 8601 (UTC if no zone is "
        "given).", None,
    ),
    user: str | None = field("Id of the user that the key belongs to.", None, is_name=True),
    team: str | None = field("Id of the team that the key belongs to.", None, is_name=True),
    organisation: str | None = field(
        "Id of the organisation that the key belongs to.", None, is_name=True
    ),
    **period: Any,
) -> dict[str, str]:  # fmt: skip
    """Create a key, whose secret is shown only once.

    Over HTTP, a key can have at most the permissions of its creator.

    Returns:
        ``id``, ``name`` and ``key``, the secret, of which only a hash is stored. The ledger records
        KEY_CREATED and the limits in one transaction.

    Raises:
        ForbiddenError: over HTTP, the key would have more permissions than its creator, or its role
            may approve.
        InvalidInputError: a name, pattern, limit or expiry cannot be used.
        ConflictError: the name is taken.
        LedgerError: the ledger cannot be read or written.
    """
    from remit.gateway.auth import VirtualKey, expiry_of
    from remit.gateway.budget import BudgetLimits

    lists: dict[str, Any] = {
        "models": tuple(models), "agents": tuple(agents), "tiers": tuple(tiers),
        "pass_through": tuple(pass_through),
        "pass_through_unpriced": tuple(pass_through_unpriced),
    }  # fmt: skip
    _require_no_more(caller, VirtualKey(name, role, **lists))
    limits = BudgetLimits.of(
        usd=budget_usd, tokens=budget_tokens, turns=budget_turns, rpm=rpm, tpm=tpm, **period
    )
    made = root.keys.create(
        name, role=role, **lists, user_id=user or "", team_id=team or "",
        organisation_id=organisation or "",
        expires=None if expires is None else expiry_of(expires, root.ledger.wall_time),
        requested_by=caller.id, in_transaction=root.budgeter.for_new_key(limits, caller.id),
    )  # fmt: skip
    for kind, owner in (("user", user), ("team", team), ("organisation", organisation)):
        if owner and caller.is_local and f"{kind}:{owner}" not in root.directory.declared():
            root.note(f"The {kind} {owner} is not declared; `remit {kind} create --id {owner} "
                      "--name NAME` declares it, with a budget if you state one.")  # fmt: skip
    return _made(made)


@verb("key set", changes=True)
def set_key(
    root: RootPort, caller: Caller, *,
    name_or_id: str = _key(),
    pass_through: list[str] = _patterns(_PASSED),
    pass_through_unpriced: list[str] = _patterns(_UNPRICED),
    no_pass_through: bool = field("Empty both lists, so that only reads remain.", False),
) -> dict[str, Any]:  # fmt: skip
    """Set which requests without a model call a key may make. The secret stays.

    Returns:
        The key as recorded, by a KEY_CREATED with the decision CHANGED. A list that is not given
        stays as it is.

    Raises:
        InvalidInputError: no list is given, or a list and ``no_pass_through``; or a pattern covers
            no path.
        NotFoundError: no such key exists.
        ConflictError: the key is revoked or expired.
        AuthUnavailableError: the row of the key is damaged.
        LedgerError: the ledger cannot be read or written.
    """
    given = {"pass_through": pass_through,
             "pass_through_unpriced": pass_through_unpriced}  # fmt: skip
    if any(given.values()) == no_pass_through:
        raise InvalidInputError(
            "Give pass_through, pass_through_unpriced, or no_pass_through alone."
        )
    lists: dict[str, Any] = {
        name: tuple(each) for name, each in given.items() if each or no_pass_through
    }
    changed = root.keys.change(name_or_id, **lists, requested_by=caller.id)
    return changed.to_dict(root.ledger.wall_time)


@verb(
    "key list", "GET /keys", summary="List keys", form="KeyQuery", result="KeyPage",
    member="keys", endpoint="listed",
    nothing="No keys. `remit key create --name NAME --budget-usd N` creates one.",
    columns=(
        "id", "name",
        ("role", lambda one: one["role"] if one["state"] == "live"
         else f"{one['role']}, {one['state']}"),
        ("team", lambda one: one["team_name"] or one["team_id"]),
        ("limits", lambda one: limits_.limits_line(one["limits"])),
    ),
)  # fmt: skip
def list_keys(
    root: RootPort, caller: Caller, *,
    revoked: bool = field("Include revoked keys.", False, flag="--all"),
) -> Feed:  # fmt: skip
    """List keys by name, without secrets.

    Returns:
        A list, page by page, with the limits and the spending of each key.

    Raises:
        InvalidInputError: the cursor is unknown; raised when the list is read.
        LedgerError: the ledger cannot be read; raised at the call or when the list is read.
    """
    from remit.gateway.auth import shown_keys

    # A key that was revoked meanwhile still marks the place of a cursor.
    return feed_of(
        root.keys.list(include_revoked=True),
        lambda key: key.key_id,
        lambda part: shown_keys(part, root.directory, root.budgeter),
        lambda key: revoked or not key.revoked,
    )


@verb(
    "key show", "GET /keys/{name_or_id:path}", summary="One key", result="KeyShape",
    lines=limits_.owner_lines,
)  # fmt: skip
def show_key(root: RootPort, caller: Caller, *, name_or_id: str = _key()) -> dict[str, Any]:
    """Show a key's permissions, limits and spending, without its secret.

    Returns:
        The key with the names of its owners, its ``limits`` (those that are set) and its
        ``budget``, None without one. Of keys with the same name, the one that is not revoked.

    Raises:
        NotFoundError: no such key exists.
        AuthUnavailableError: the row of the key is damaged.
        LedgerError: the ledger cannot be read.
    """
    from remit.gateway.auth import shown_keys

    return next(shown_keys([root.keys.find(name_or_id)], root.directory, root.budgeter))


@verb(
    "key rotate", "POST /keys/{name_or_id:path}/rotate", summary="Rotate a key",
    needs="manage_keys", form="Rotation", result="KeyMade", fails=(409,), lines=_secret,
)  # fmt: skip
def rotate_key(
    root: RootPort, caller: Caller, *,
    name_or_id: str = _key(),
    grace_s: float = field(
        "Number of seconds for which the old secret stays valid.", 0.0, least=0, flag="--grace",
        read=_seconds, flag_default="0s",
        flag_help="How long the old secret stays valid: 24h, 15m.",
    ),
) -> dict[str, str]:  # fmt: skip
    """Give a key a new secret. Its id, permissions, budget and history stay.

    Returns:
        ``id``, ``name`` and ``key``, the new secret. Without a grace period, the old secret is
        invalid at once.

    Raises:
        ForbiddenError: the key has more permissions than the caller, who gets its secret.
        NotFoundError: no such key exists.
        ConflictError: the key is revoked or expired.
        AuthUnavailableError: the row of the key is damaged.
        LedgerError: the ledger cannot be read or written.
    """
    key = root.keys.find(name_or_id)
    if key.key_id != caller.identity.key_id:
        _require_no_more(caller, key)
    made = root.keys.rotate(key.key_id, grace_s=grace_s, requested_by=caller.id)
    return _made(made)


@verb(
    "key revoke", "DELETE /keys/{name_or_id:path}", summary="Revoke a key", needs="manage_keys",
    result="KeyRevoked", prints="{id}  {name}  revoked ({entry})",
)  # fmt: skip
def revoke_key(
    root: RootPort, caller: Caller, *,
    name_or_id: str = _key(),
    reason: str = field("Reason (recorded permanently).", ""),
) -> dict[str, str]:  # fmt: skip
    """Revoke a key permanently; all servers refuse it within a second.

    A repetition has no effect.

    Returns:
        ``id``, ``name`` and ``entry``, the id of the KEY_REVOKED, an earlier one if repeated.

    Raises:
        NotFoundError: no such key exists.
        InvalidInputError: the reason cannot be recorded.
        AuthUnavailableError: the row of the key is damaged.
        LedgerError: the ledger cannot be read or written.
    """
    key = root.keys.find(name_or_id)
    entry_id = root.keys.revoke(key.key_id, reason, requested_by=caller.id)
    return {"id": key.key_id, "name": key.name, "entry": entry_id}


def _made(made: NewKey) -> dict[str, str]:
    return {"id": made.key_id, "name": made.name, "key": made.key}


def _require_no_more(caller: Caller, key: VirtualKey) -> None:
    """Raise ForbiddenError if a key would have permissions that its creator may not give.

    A creator may give its own permissions except the one to approve, which is given on the machine.
    """
    from remit.gateway.auth import ROLES
    from remit.providers.wire import PASSED_PATHS

    if caller.is_local:
        return
    allowed = ROLES.get(key.role, frozenset())
    if more := sorted(name for name in allowed if not caller.identity.may(name)):
        raise _too_much("role", f"the role {key.role} may {', '.join(more).replace('_', ' ')}")
    if "approve" in allowed:
        raise ForbiddenError(
            f"A key of the role {key.role} may approve, so it can only be created on the server's "
            f"machine: run `remit key create --role {key.role}` or `remit key rotate`.",
            param="role",
        )
    own: Identity | None = caller.identity
    while own is not None:
        if own.models and not (key.models and all(_covers(own, model) for model in key.models)):
            raise _too_much("models", f"your models are {', '.join(own.models)}")
        if own.agents and not (key.agents and all(map(own.may_act_as, key.agents))):
            raise _too_much("agents", f"your agents are {', '.join(own.agents)}")
        if own.tiers and not (key.tiers and all(map(own.may_use_tier, key.tiers))):
            raise _too_much("tiers", f"your tiers are {', '.join(own.tiers)}")
        own = own.within
    for row in PASSED_PATHS if caller.identity.key_id else ():
        for unpriced in (False, True):
            if key.identity.may_pass(row, unpriced=unpriced) and not caller.identity.may_pass(
                row, unpriced=unpriced
            ):
                raise _too_much("pass_through", f"yours does not list {row.name}")


def _covers(identity: Identity, model: str) -> bool:
    """Return True if a model id or pattern allows no more than the identity may use.

    A pattern may match more than another pattern that matches it, so only an equal one passes.
    """
    return model in identity.models or (not _WILD.search(model) and identity.may_use_model(model))


def _too_much(param: str, why: str) -> ForbiddenError:
    return ForbiddenError(f"That key has more permissions than yours: {why}.", param=param)
