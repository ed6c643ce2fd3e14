"""The pages of keys, users, teams and organisations, with their limits and their changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal, cast, get_args
from urllib.parse import quote, urlencode

from remit.gateway.auth import OwnerKind, VirtualKey
from remit.gateway.budget import BudgetScope, BudgetStatus
from remit.kernel.errors import InvalidInputError
from remit.ledger import is_authentic
from remit.operations import Caller, Operation, limits_line, operations
from remit.server.asgi import Answer
from remit.server.console.forms import see
from remit.server.console.operation_forms import form_of, read_operation
from remit.server.console.pages import Asked, Page, Sources, View, page_of_list
from remit.server.refusals import HttpError

PATH = "/console/keys"

_LISTED = 50
_CHANGES = 10
_ALLOCATIONS = 1000  # entries searched for changes; a daily window adds one each day
_MIN_PERCENT = 1.0  # A bar shows that something was spent.
_CREATE: Mapping[OwnerKind, str] = {
    "user": "Create a user", "team": "Create a team", "organisation": "Create an organisation",
}  # fmt: skip
_MINUTE_S = 60
_Kind = Literal["key", "user", "team", "organisation"]
_KINDS: tuple[_Kind, ...] = get_args(_Kind)
_COMMANDS = {kind.command: kind for kind in operations() if kind.command}
_CREATED_WITH = ("name", "role", "budget_usd", "window", "user", "team")
_OF_OWNER = ("name", "id", "usd", "window")
_SHOWN_ONCE = "The secret is shown only now, because Remit does not store it."


def show(sources: Sources, asked: Asked) -> Page | Answer:
    """Return the list of keys or owners, or the page of a key or owner.

    Fifty are listed, sorted by name (keys) or id (owners). Revoked keys are not listed, but have a
    page. A page shows limits, spending, forms and the last ten changes of limits.

    Args:
        sources: the data sources.
        asked: the request; ``rest`` is a kind such as ``team`` (``key`` if empty), or kind and id
            such as ``team/payments``. Any other text is redirected to the key of that name. Its
            query may have ``from`` (the first name or id of the list), and ``changed`` (the entry
            of a change to show).

    Raises:
        NotFoundError: there is no such key or owner.
        LedgerError: the ledger cannot be read.
    """
    kind, _, name = asked.rest.partition("/")
    if kind in _KINDS and name:
        return _one(sources, asked, kind, name)
    if asked.rest and asked.rest not in _KINDS:
        return see(f"{PATH}/key/{quote(asked.rest, safe='')}")
    listed = asked.rest or "key"
    begin = asked.query.get("from", "").strip()
    begin = begin if begin.isprintable() else ""
    if listed == "key":
        found = sources.reads.keys.list(begin=begin, limit=_LISTED + 1)
        keys, more = page_of_list(found, _LISTED)
        rows = _key_rows(sources, keys)
        following = found[_LISTED].name if more else ""
        form = form_of(_COMMANDS["key create"], "Create a key", shown=_CREATED_WITH)
    else:
        owner_kind: OwnerKind = listed
        all_owners = [one for one in sources.reads.directory.list(owner_kind) if one.id >= begin]
        owners, more = page_of_list(all_owners, _LISTED)
        rows = _owner_rows(sources, sources.reads.directory.described(owners, ()))
        following = all_owners[_LISTED].id if more else ""
        form = form_of(_COMMANDS[f"{listed} create"], _CREATE[owner_kind], shown=_OF_OWNER)
    older = f"{PATH}/{listed}?{urlencode({'from': following})}" if following else ""
    return Page(
        "keys.html.j2",
        {
            "kinds": _KINDS,
            "kind": listed,
            "rows": rows,
            "begin": begin,
            "older": older,
            "form": form,
            "action": f"{PATH}/{listed}",
        },
    )


def change(sources: Sources, asked: Asked) -> Page | Answer:
    """Carry out the operation of a form in the name of the signed-in person.

    Keys and owners can be created, keys rotated and revoked, owners renamed, and limits set.

    Args:
        sources: the data sources, through whose runtime the change is written.
        asked: the request. Its ``rest`` names what is changed: ``KIND`` (``key`` or a kind of
            owner) for ``KIND create``, ``KIND/ID`` for rotate, revoke, rename and ``budget set``.
            Its form has ``operation`` (the command, such as ``key rotate``) and the operation's
            fields. The id of an existing key or owner is taken from ``rest``, not from the form.

    Returns:
        A redirect to the page of the key or owner; for a new secret, a page that shows it once.

    Raises:
        HttpError: 403, the person lacks the permission of the operation.
        InvalidInputError: a value cannot be used, or the operation does not belong to ``rest``.
        RemitError: the operation is refused, or cannot be recorded.
    """
    kind, _, name = asked.rest.partition("/")
    command = asked.form.get("operation", "")
    operation = _COMMANDS.get(command)
    verbs = ("rotate", "revoke", "rename") if name else ("create",)
    allowed = {f"{kind} {verb}" for verb in verbs} | ({"budget set"} if name else set())
    if kind not in _KINDS or operation is None or command not in allowed:
        raise InvalidInputError("This page has no such form.")
    if not asked.identity.may(operation.needs):
        raise _forbidden(asked, operation)
    fixed: dict[str, str] = {}
    if command == "budget set":
        fixed = {kind: name}
    elif name:
        fixed = {"name_or_id" if kind == "key" else "id": name}
    given = read_operation(operation, asked.form, **fixed)
    found = operation.value(sources.writes, Caller(asked.identity), **given)
    if "key" in found:
        return Page(
            "key_made.html.j2",
            {
                "made": found,
                "hint": _SHOWN_ONCE,
                "was_rotated": bool(name),
                "address": f"{PATH}/key/{quote(found['id'], safe='')}",
            },
        )
    entry = str(found.get("entry") or "")
    place = f"{PATH}/{kind}/{quote(name or str(found['id']), safe='')}"
    return see(f"{place}?{urlencode({'changed': entry})}" if entry else place)


def _forbidden(asked: Asked, operation: Operation) -> HttpError:
    said = f"The role {asked.identity.role} lacks the permission {operation.needs}."
    return HttpError(403, "forbidden", said)


def _one(sources: Sources, asked: Asked, kind: str, name: str) -> Page:
    forms: list[dict[str, Any]] = []
    times: list[tuple[str, str]] = []
    if kind == "key":
        key = sources.reads.keys.find(name)
        (row,) = _key_rows(sources, [key])
        name, scope = key.key_id, BudgetScope(key_id=key.key_id).key
        facts = _key_facts(key)
        times = [("created", key.created), ("expires", key.expires),
                 ("secret changed", key.rotated), ("revoked", key.revoked)]  # fmt: skip
        if row["state"] == "live":
            forms = [
                form_of(_COMMANDS["key rotate"], "Rotate the key", fixed=("name_or_id",)),
                form_of(_COMMANDS["key revoke"], "Revoke the key", fixed=("name_or_id",)),
            ]
    else:
        owner = sources.reads.directory.find(cast("OwnerKind", kind), name)
        (described,) = sources.reads.directory.described([owner], ())
        (row,) = _owner_rows(sources, [described])
        scope, facts = owner.scope, []
        if owner.entry:
            rename = _COMMANDS[f"{kind} rename"]
            forms = [form_of(rename, "Rename", fixed=("id",), values={"name": owner.name})]
    limits = form_of(
        _COMMANDS["budget set"],
        "Set the limits",
        fixed=("key", "session", "user", "team", "organisation", "agent"),
        values=_values(row["limits"]),
    )
    changes = _changes(sources, scope)
    recent = asked.query.get("changed", "")
    return Page(
        "key.html.j2",
        {
            "kind": kind,
            "row": row,
            "facts": facts,
            "times": [one for one in times if one[1]],
            "forms": [limits, *forms],
            "changes": changes,
            "changed": next((one for one in changes if one["id"] == recent), None),
            "was_changed": recent if recent.startswith("LED-") else "",
            "action": f"{PATH}/{kind}/{quote(name, safe='')}",
        },
    )


def _key_rows(sources: Sources, keys: Sequence[VirtualKey]) -> list[dict[str, Any]]:
    """Return the rows of keys, with their own budgets only: a ledger may have millions."""
    scopes = {key.key_id: BudgetScope(key_id=key.key_id).key for key in keys}
    states, now = _states(sources, scopes.values()), sources.reads.directory.now
    return [
        {
            "id": key.key_id,
            "name": key.name,
            "role": key.role,
            "state": key.state_at(now),
            "address": f"{PATH}/key/{quote(key.key_id, safe='')}",
            "calls": f"/console/calls?{urlencode({'key': key.key_id})}",
            "owners": [
                {"kind": kind, "id": owner, "address": f"{PATH}/{kind}/{quote(owner, safe='')}"}
                for kind in _KINDS[1:]
                if (owner := getattr(key, f"{kind}_id"))
            ],
            **_budget(states.get(scopes[key.key_id])),
        }
        for key in keys
    ]


def _owner_rows(sources: Sources, described: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of owners. One without a budget has the sums of its keys."""
    rows = []
    for one in described:
        keys = {key["id"]: BudgetScope(key_id=key["id"]).key for key in one["keys"]}
        states = _states(sources, [one["scope"], *keys.values()])
        own = states.pop(one["scope"], None)
        row = _budget(own)
        if own is None:
            row["spent"] = sum(state.spent_nano for state in states.values()) / 1e9
            row["last_used"] = max((_last_used(state) for state in states.values()), default="")
        kind = one["kind"]
        rows.append(
            {
                "id": one["id"],
                "name": one["name"] or "",
                "keys": one["keys"],
                "address": f"{PATH}/{kind}/{quote(one['id'], safe='')}",
                "calls": f"/console/calls?{urlencode({kind: one['id']})}",
                **row,
            }
        )
    return rows


def _states(sources: Sources, scopes: Iterable[str]) -> dict[str, BudgetStatus]:
    return {state.scope: state for state in sources.reads.budgeter.states(list(scopes))}


def _budget(state: BudgetStatus | None) -> dict[str, Any]:
    """Return the limits, bars and sums of a budget, for a page."""
    if state is None:
        return {"limits": {}, "limits_line": "", "meters": [], "spent": 0.0, "tokens": 0,
                "last_used": "", "ends": ""}  # fmt: skip
    shown = state.to_dict()
    meters = [
        _meter(unit, spent, held, limit)
        for unit, spent, held, limit in (
            ("USD", state.spent_nano, state.reserved_nano, state.nano_limit),
            ("tokens", state.spent_tokens, state.reserved_tokens, state.token_limit),
            ("calls", state.turns, 0, state.turn_limit),
        )
        if limit is not None
    ]
    return {
        "limits": state.limits.to_dict(),
        "limits_line": limits_line(state.limits.to_dict()),
        "meters": meters,
        "spent": state.spent_nano / 1e9,
        "tokens": state.spent_tokens,
        "last_used": _last_used(state),
        "ends": shown["window_end"] or "",
    }


def _meter(unit: str, spent: int, held: int, limit: int) -> dict[str, Any]:
    """Return a bar: amounts for people, and the widths of its parts in percent of the limit."""

    def percent(amount: int) -> float:
        share = 100 * amount / limit if limit else 100.0
        return min(100.0, max(share, _MIN_PERCENT)) if amount else 0.0

    used = percent(spent)
    scale = 1e9 if unit == "USD" else 1
    amounts = {"spent": spent, "held": held, "remaining": limit - spent - held, "limit": limit}
    return {
        "unit": unit,
        **{name: amount / scale if unit == "USD" else amount for name, amount in amounts.items()},
        "used_percent": f"{used:.2f}",
        "held_percent": f"{min(percent(held), 100 - used):.2f}",
        "is_full": spent + held >= limit,
    }


def _last_used(state: BudgetStatus) -> str:
    """Return the minute of the latest call; empty without a call."""
    if not state.minute:
        return ""
    return datetime.fromtimestamp(state.minute * _MINUTE_S, UTC).isoformat()


def _key_facts(key: VirtualKey) -> list[tuple[str, str]]:
    """Return the permissions of a key."""
    lists = (
        ("models", key.models or ("all",)),
        ("agents", key.agents or ("all",)),
        ("tiers", key.tiers or ("all",)),
        ("requests without a model call", key.pass_through or ("only reads",)),
    )
    return [
        ("role", key.role),
        ("secret begins with", key.prefix),
        *((label, ", ".join(value)) for label, value in lists),
    ]


def _values(limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return the present limits by the names of the operation's fields."""
    names = {"usd": "usd_limit", "tokens": "token_limit", "turns": "turn_limit",
             "rpm": "requests_per_minute", "tpm": "tokens_per_minute", "window": "window",
             "time_zone": "time_zone", "on_short": "on_short"}  # fmt: skip
    found = {name: limits.get(stated) for name, stated in names.items()}
    return {**found, "time_zone": found["time_zone"] if found["window"] else None}


def _changes(sources: Sources, scope: str) -> list[dict[str, Any]]:
    """Return the latest changes of a budget's limits, newest first, with the limits before each.

    Entries that begin or shorten a window of unchanged limits are left out.
    """
    entries = sources.ledger.query(
        event_type="BUDGET_ALLOCATED", submission_id=scope, order="desc", limit=_ALLOCATIONS,
        with_content=False,
    )  # fmt: skip
    found = (entry for entry in entries if is_authentic(entry) and entry.decision == "ALLOCATED")
    return [
        {
            "id": entry.id,
            "at": entry.timestamp,
            "by": entry.metadata.get("by", ""),
            "before": limits_line(before) if isinstance(before, dict) else "no budget",
            "after": limits_line(_stated(entry.metadata)),
        }
        for entry in islice(found, _CHANGES)
        for before in (entry.metadata.get("before"),)
    ]


def _stated(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits that an entry sets; a limit of None is none."""
    return {name: value for name, value in data.items() if value is not None}


VIEWS = (View(PATH, show, change, "read"),)
