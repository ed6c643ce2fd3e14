"""Operations on budgets: limits, spending, and their check against the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.message_text import count, dollars
from remit.operations import limits as limits_
from remit.operations.agent_tools import AgentTool, ToolCall, argument, session_argument
from remit.operations.operation import Answer, Feed, Field, feed_of, field, limit, verb
from remit.operations.ports import Caller, RootPort
from remit.operations.text import Note

if TYPE_CHECKING:
    from remit.gateway.budget import BudgetScope, BudgetStatus

_CALLERS = ("key:", "session:")
_OWNERS = ("key", "session", "user", "team", "organisation")


def _owner(text: str, **traits: Any) -> Any:
    return field(text, None, is_name=True, **traits)


_OWNER_FIELDS: dict[str, Field] = {
    "key": _owner("A virtual key, by name or id.", type=str | None),
    "session": _owner("A session.", type=str | None),
    "user": _owner("A user.", type=str | None),
    "team": _owner("A team.", type=str | None),
    "organisation": _owner("An organisation.", type=str | None),
}


def _scope(root: RootPort, agent: str | None, owners: Mapping[str, Any]) -> BudgetScope | None:
    """Return the named scope, or None if no owner is named.

    Raises:
        InvalidInputError: several owners are named, or an agent without a session.
        NotFoundError: no such key exists.
    """
    given = {name: owners[name] for name in _OWNERS if owners[name]}
    if len(given) > 1:
        raise InvalidInputError(f"Name only one of {', '.join(_OWNERS)}.")
    if agent and not owners["session"]:
        raise InvalidInputError(
            "The budget of an agent belongs to a session.", next_step="Name the session too."
        )
    return root.keys.budget_scope(*given.popitem(), agent=agent or "") if given else None


def _show_budget_lines(
    found: dict[str, Any], limit: int | None, *, with_sessions: bool
) -> Iterator[str]:
    """Yield a line for each budget; budgets of sessions only if they were requested."""
    most, states = limit or 50, found["scopes"]
    if not with_sessions:
        states = [one for one in states if not one["scope"].startswith("session:")]
    if hidden := len(found["scopes"]) - len(states):
        text = count(hidden, "session budget")
        yield Note(f"{text} not shown; --sessions shows all budgets.")
    for state in states[:most]:
        yield limits_.state_line(state, state["name"] or "")
    if not found["scopes"]:
        yield "No budgets. `remit budget set` creates one."
    if len(states) > most:
        yield Note(f"Only the first {most} are shown; raise --limit to see more.")


def _requested(call: ToolCall) -> dict[str, Any]:
    return {"session": call.given["session_id"]}


def _busiest(call: ToolCall, found: dict[str, Any]) -> dict[str, Any]:
    """Return the budgets with the highest spending first; the sums include the others."""
    scopes = found["scopes"]
    if call.given["session_id"] is None:
        scopes = [one for one in scopes if "/" not in one["scope"]]
        scopes.sort(key=lambda one: (-one["spent_usd"], -one["spent_tokens"], one["scope"]))
    unpriced = sum(one["unpriced_calls"] for one in scopes
                   if "/" not in one["scope"] and one["scope"].startswith(_CALLERS))  # fmt: skip
    return {"count": len(scopes), **found, "unpriced_calls": unpriced,
            "scopes": scopes[: call.given["max_scopes"]]}  # fmt: skip


def _say_budgets(output: dict[str, Any]) -> str:
    """Return the sums, and a line for each budget."""
    unpriced = output["unpriced_calls"]
    priced = f" and {unpriced} calls without a price" if unpriced else ""
    usd = dollars(output["spent_usd"])
    head = (f"{output['spent_tokens']} tokens were spent, {usd}{priced}; "
            f"there are {output['count']} budgets.")  # fmt: skip
    lines = (limits_.state_line(one, one["name"] or "") for one in output["scopes"])
    return "\n".join([head, *lines])


_TOOL = AgentTool(
    name="budget_status", label="budget", request=_requested, shape=_busiest,
    about="Show budgets: what was spent, is reserved and may be spent, in tokens and US dollars; "
    "of all keys, users and teams, or of one conversation.",
    arguments={
        "session_id": session_argument("only the budget of this session"),
        "max_scopes": argument("maximum number of budgets", 20, type=int, least=1, most=100),
    },
    examples=(
        "show the budget", "how much money was spent?", "is there budget left?",
        "what are the spending limits?", "are we close to the limit?",
    ),
    describe=_say_budgets,
)  # fmt: skip


@verb("budget show", more=_OWNER_FIELDS, agent_tools=(_TOOL,))
def show_budget(
    root: RootPort, caller: Caller, *,
    agent: str | None = _owner("An agent, in all sessions or in the named one."),
    sessions: bool = field("Show the budgets of sessions too (always with --json).", False),
    limit: int | None = limit(),
    **owners: Any,
) -> Answer:  # fmt: skip
    """Show limits, spending and reservations of one owner, or of all owners.

    The spending of owners without a budget, and of agents in all sessions, is also shown.

    Returns:
        ``scopes``, at most ``limit``, and sums over all. A session's budgets include those of its
        agents. In the sums, without an owner only budgets of callers count, so that no call counts
        twice; with an owner only its own budget. An agent without a session has no budget: its
        calls in all sessions are summed.

    Raises:
        InvalidInputError: several owners are named, or the owner has no budget and no calls; or
            this machine does not know the time zone of a budget.
        NotFoundError: no such key exists.
        AuthUnavailableError: the row of the key is damaged.
        LedgerError: the ledger cannot be read.
    """
    from remit.gateway.budget import usd_of

    session = owners["session"]
    is_agent = bool(agent and not session)
    if is_agent and any(owners.values()):
        raise InvalidInputError(f"Name only one of agent, {', '.join(_OWNERS)}.")
    scope = None if is_agent else _scope(root, agent, owners)
    if scope is None and not is_agent:
        states = root.budgeter.list("")
        # Each call counts once: by its key where there is one, else by its session.
        shown = [
            state for state in states if "/" not in state.scope and state.scope.startswith(_CALLERS)
        ]
    else:
        name = f"agent:{agent}" if scope is None else scope.key
        stored = [] if is_agent else root.budgeter.list(name)
        states = [state for state in stored if f"{state.scope}/".startswith(f"{name}/")]
        states = states or [_spending(root, name, session or "", agent)]
        shown = [state for state in states if state.scope == name]
    limits = [state.nano_limit for state in shown if state.nano_limit is not None]
    found = {
        "scopes": _named(root, states[:limit]),
        "spent_usd": usd_of(sum(state.spent_nano for state in shown)),
        "reserved_usd": usd_of(sum(state.reserved_nano for state in shown)),
        "limit_usd": usd_of(sum(limits)) if limits else None,
        "spent_tokens": sum(state.spent_tokens for state in shown),
    }
    lines = _show_budget_lines(found, limit, with_sessions=bool(sessions or session))
    return Answer(found, lines)


def _spending(root: RootPort, name: str, session: str, agent: str | None) -> BudgetStatus:
    """Return the spending of an owner without a budget.

    Raises:
        InvalidInputError: the owner made no call.
    """
    from remit.gateway.budget import BudgetStatus
    from remit.views import read_usage

    owner, _, value = name.partition(":")
    where = {owner: value}
    if owner == "session" and agent:
        where = {owner: session, "agent": agent}
    [used] = read_usage(root.ledger, where=where).rows
    if not used.calls:
        raise InvalidInputError(
            f"{name} has no budget and made no call.",
            next_step="`remit budget set` creates a budget.",
        )
    return BudgetStatus(
        name, None, None, used.input_tokens + used.output_tokens, 0, used.calls,
        spent_nano=used.nano, unpriced_calls=used.unpriced_calls,
    )  # fmt: skip


@verb(
    route="GET /budgets", summary="List budgets", form="PrefixQuery", result="BudgetPage",
    member="scopes", endpoint="budgets",
)  # fmt: skip
def list_budgets(
    root: RootPort, caller: Caller, *,
    prefix: str | None = field(
        "Beginning of the scope's name, such as `key:` or `session:SES-`.", None,
        is_name=True,
    ),
) -> Feed:  # fmt: skip
    """List every scope with a budget, sorted by name: limits, spending, reservations.

    Returns:
        A list, page by page: the state of each budget with the ``name`` of its owner, None if no
        name is known.

    Raises:
        InvalidInputError: the cursor is unknown; raised when the list is read.
        LedgerError: the ledger cannot be read.
    """
    return feed_of(
        root.budgeter.list(prefix or ""),
        lambda state: state.scope,
        lambda part: _named(root, part),
    )


def _set_budget_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the new state, and a note on the earlier limits."""
    yield limits_.state_line(found["scope"], found["scope"]["name"] or "")
    before = found["before"]
    was = "no budget" if before is None else limits_.limits_line(before)
    yield Note(f"Before: {was}. Set by {found['by']}, recorded as {found['entry']}.")


@verb(
    "budget set", "PUT /budgets", summary="Set limits", needs="manage_budgets", form="BudgetChange",
    result="BudgetSet", fails=(404,), endpoint="change", lines=_set_budget_lines,
    more={
        **_OWNER_FIELDS,
        "agent": _owner("An agent of a session, which must be given too.", type=str | None),
        **limits_.RATES,
    },
)  # fmt: skip
def set_budget(
    root: RootPort, caller: Caller, *,
    usd: float | None = limits_.usd(),
    tokens: int | None = limits_.count("Limit of tokens, input and output together."),
    turns: int | None = limits_.count("Limit of model calls."),
    unlimited: bool = field("Have no limits; usage is still counted.", False),
    **shared: Any,
) -> dict[str, Any]:  # fmt: skip
    """Set the limits of a budget; they replace all earlier limits.

    With a window, the dollar, token and call limits apply to each day, week or month. A change of
    the window starts a new window; any other change keeps what was spent.

    Returns:
        ``scope``, the new state; ``before``, the earlier limits (None without a budget); ``by`` and
        ``entry``, the recorded BUDGET_ALLOCATED.

    Raises:
        InvalidInputError: no limit or no owner is named, several owners are, an agent without a
            session is, a limit is invalid, or ``unlimited`` comes with a limit.
        NotFoundError: no such key exists.
        AuthUnavailableError: the row of the key is damaged.
        LedgerError: the ledger cannot be read or written.
    """
    from remit.gateway.budget import BudgetLimits

    rates = {name: shared[name] for name in limits_.RATES}
    limits = BudgetLimits.of(usd=usd, tokens=tokens, turns=turns, **rates)
    if limits.any == unlimited:
        raise InvalidInputError(
            "unlimited removes all limits and cannot be combined with a limit."
            if unlimited
            else "No limit was given.",
            next_step="Give usd, tokens, turns, rpm or tpm to replace all limits, or only "
            "unlimited to remove all limits.",
        )
    if (scope := _scope(root, shared["agent"], shared)) is None:
        raise InvalidInputError(f"Give a {', '.join(_OWNERS[:-1])} or {_OWNERS[-1]}.")
    entry_id = root.budgeter.allocate(scope, limits=limits, by=caller.name)
    (state,) = [one for one in root.budgeter.status(scope) if one.scope == scope.key]
    said = root.ledger.read(entry_id).metadata
    (shown,) = _named(root, [state])
    return {"entry": entry_id, "by": said["by"], "before": said.get("before"), "scope": shown}


def _check_budgets_lines(found: dict[str, Any]) -> Iterator[str]:
    for place, rows in (("scope", found["differences"]), ("row", found["usage"])):
        for row in rows:
            yield (f"{row[place]}  {row['field']}: stored {row['live']}, "
                   f"ledger {row['ledger']}")  # fmt: skip
    yield from found["problems"]
    head, verdict = (
        ("The", "match the ledger") if found["equal"]
        else ("MISMATCH: the", "do not match the ledger") if _has_problem(found)
        else ("The", "were repaired")
    )  # fmt: skip
    budgets, calls = count(found["scopes"], "budget"), count(found["held_calls"], "call")
    tokens = count(found["held_tokens"], "token")
    yield f"{head} balances of {budgets} {verdict}; {calls} in flight, {tokens} reserved."


def _has_problem(found: dict[str, Any]) -> bool:
    """Return True if a difference or problem remains after the check."""
    return bool(found["problems"]) or not (found["equal"] or found["repaired"])


@verb(
    "budget check", "GET /budgets/check", summary="Compare budgets with the ledger",
    needs="manage_budgets", result="Audit", lines=_check_budgets_lines, writes_with=("repair",),
    has_failed=_has_problem,
)  # fmt: skip
def check_budgets(
    root: RootPort, caller: Caller, *,
    repair: bool = field(
        "Set the stored balances to the sums of the ledger.", False, door="command"
    ),
    full: bool = field("Add up the whole ledger, whatever its size.", False, door="command"),
) -> dict[str, Any]:  # fmt: skip
    """Compare the stored balances with the ledger; exit 1 if they differ.

    In a large ledger ([gates] full_entries) the check continues from the last one. A problem
    counts as a difference, also after a repair, because problems are never repaired.

    Returns:
        ``equal`` (no difference and no problem), the ``differences`` of budgets, those of
        ``usage``, all three before a repair; ``problems`` as sentences; ``repaired`` (a repair was
        requested, and not all was equal); and the numbers ``scopes``, ``held_tokens`` and
        ``held_calls``. At the command line, an unreadable ledger is a
        problem, unless a repair is requested. ``repair`` implies ``full``.

    Raises:
        LedgerError: the ledger cannot be read, and the caller is not at the command line or
            requests a repair; or a repair cannot be written.
    """
    from remit.gateway.budget import BudgetAudit, audit_budgets
    from remit.ledger import LedgerError, reason_of

    try:
        great = root.ledger.count() > root.settings.gates.full_entries
        audit = audit_budgets(
            root.ledger, repair=repair, since_mark=great and not (full or repair),
            progress=root.progress("adding up"),
        )  # fmt: skip
    except Exception as error:
        # Whatever is stored, the command prints its report; other errors are not the ledger's.
        is_other = isinstance(error, RemitError) and not isinstance(error, LedgerError)
        if repair or is_other or not caller.is_local:
            raise
        audit = BudgetAudit(0, [], 0, 0, unread=[(None, reason_of(error))])
    found = asdict(audit)
    del found["calls"], found["unread"]
    return {
        "equal": audit.equal,
        **found,
        "repaired": repair and not audit.equal,
        "problems": [said if seq is None else f"seq {seq}: {said}" for seq, said in audit.unread],
        "usage": [one._asdict() for one in audit.usage],
        "differences": [_in_usd(difference) for difference in found["differences"]],
    }


def _named(root: RootPort, states: list[BudgetStatus]) -> list[dict[str, Any]]:
    names = root.directory.scope_names()
    return [{**state.to_dict(), "name": names.get(state.scope)} for state in states]


def _in_usd(difference: dict[str, Any]) -> dict[str, Any]:
    """Return a difference with money in US dollars."""
    from remit.gateway.budget import USD_NAMES, usd_of

    if difference["field"] not in USD_NAMES:
        return difference
    shown = {**difference, "field": USD_NAMES[difference["field"]]}
    for side in ("live", "ledger"):
        if isinstance(shown[side], int):
            shown[side] = usd_of(shown[side])
    return shown
