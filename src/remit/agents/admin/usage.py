"""What calls used and cost, added up from the record: by key, user, agent, model or day."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from remit.agents.admin.output import Toolset
from remit.agents.tools import current_call, tool
from remit.kernel.budget import usd_of
from remit.ledger import LedgerEntry, is_authentic

_MAX_ROWS = 100
_NOBODY = "(none)"
_FIELDS = {"key": "key_id", "agent": "agent_id", "model": "model_id"}

By = Literal["key", "user", "agent", "model", "day"]


def _describe_usage(output: dict[str, Any]) -> str:
    sums = {
        "The last turn": output.get("last_turn"),
        "This session": output.get("this_session"),
        "Today": output["today"],
        f"The last {output['days']} days": output,
    }
    said = [f"{name}: {_in_words(one)}." for name, one in sums.items() if one]
    said += [f"By {output['by']}: {row['name']}, {_in_words(row)}." for row in output["rows"]]
    return "\n".join(said)


def _in_words(one: Mapping[str, Any]) -> str:
    cost = f"{one['usd']:.6f} US dollars"
    if one["unpriced_calls"]:
        cost = f"{cost} and {one['unpriced_calls']} calls of unknown price"
    return f"{one['calls']} calls, {one['tokens']} tokens, {cost}"


class UsageTools(Toolset):
    """Tools that add up calls."""

    @tool(
        label="usage",
        examples=(
            ("usage by model", {"by": "model"}),
            ("usage per day for 31 days", {"by": "day", "days": 31}),
            ("which agent is the most expensive?", {"by": "agent"}),
            ("which user has the biggest bill?", {"by": "user"}),
            ("how much money did we spend this week?", {}),
            ("break down the costs of the last 7 days", {"days": 7}),
            ("dollars used today", {}),
            ("usage by key", {"by": "key"}),
            ("what did that cost?", {}),
            ("how much did my last question cost?", {}),
            ("how many tokens has this session used?", {}),
        ),
        describe=_describe_usage,
        on_unknown="retry",
    )
    def usage(
        self, by: By = "model", days: Annotated[int, Field(ge=1, le=366)] = 7
    ) -> dict[str, Any]:
        """Add up what calls used and cost: by key, user, agent, model or day, the dearest first;
        of this session and its last turn too.

        Args:
            by: what is added up
            days: of today and the days before (UTC), so many
        """
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        since = today - timedelta(days=days - 1)
        users = self._users() if by == "user" else {}
        sums: dict[str, _Sum] = {}
        total, of_today = _Sum(), _Sum()
        for event in ("EXCHANGE", "EXCHANGE_ORPHANED"):
            for entry in self.ledger.query(event_type=event, since=since, with_content=False):
                total.add(entry)
                if entry.timestamp[:10] == today.date().isoformat():
                    of_today.add(entry)
                sums.setdefault(_name(entry, by, users), _Sum()).add(entry)
        ranked = sorted(sums.items(), key=lambda row: (-row[1].nano, -row[1].tokens, row[0]))
        return {
            "status": "ok",
            "by": by,
            "days": days,
            **self._here(),
            "today": of_today.shown(),
            **total.shown(),
            "count": len(ranked),
            "rows": [{"name": name, **one.shown()} for name, one in ranked[:_MAX_ROWS]],
        }

    def _here(self) -> dict[str, Any]:
        """What this session used, and its last turn that has ended."""
        call = current_call()
        if call is None:
            return {}
        ended = [entry.id for entry in self.ledger.query(
            session_id=call.session_id, event_type="TURN_RECORDED", order="desc", limit=2,
            with_content=False,
        )]  # fmt: skip
        begin, end = (ended[1] if len(ended) > 1 else ""), (ended[0] if ended else "")
        session, turn = _Sum(), _Sum()
        for entry in self.ledger.query(
            session_id=call.session_id, event_type="EXCHANGE", with_content=False
        ):
            session.add(entry)
            if _seq(begin) < _seq(entry.id) < _seq(end):
                turn.add(entry)
        return {"this_session": session.shown(), **({"last_turn": turn.shown()} if ended else {})}

    def _users(self) -> dict[str, str]:
        """Who owns each key."""
        made = filter(is_authentic, self.ledger.query(event_type="KEY_CREATED"))
        return {
            str(entry.metadata.get("key_id")): str(entry.metadata.get("user_id") or "")
            for entry in made
        }


class _Sum:
    """Calls added up; money in nano-dollars."""

    def __init__(self) -> None:
        self.calls = self.failed = self.unpriced = 0
        self.input = self.output = self.tokens = self.nano = 0

    def add(self, entry: LedgerEntry) -> None:
        meta = entry.metadata
        self.calls += 1
        self.failed += meta.get("outcome") != "success"
        self.input += _count(meta.get("input_tokens"))
        self.output += _count(meta.get("output_tokens"))
        self.tokens = self.input + self.output
        cost = meta.get("cost_usd")
        if isinstance(cost, (int, float)) and not isinstance(cost, bool):
            self.nano += round(cost * 1e9)
        else:
            self.unpriced += 1

    def shown(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "failed": self.failed,
            "input_tokens": self.input,
            "output_tokens": self.output,
            "tokens": self.tokens,
            "usd": usd_of(self.nano),
            "unpriced_calls": self.unpriced,
        }


def _name(entry: LedgerEntry, by: By, users: Mapping[str, str]) -> str:
    meta = entry.metadata
    if by == "day":
        return entry.timestamp[:10]
    if by == "user":
        found = meta.get("user_id") or users.get(str(meta.get("key_id")))
    else:
        found = meta.get(_FIELDS[by])
    return str(found) if found else _NOBODY


def _seq(entry_id: str) -> int:
    return int(entry_id[4:], 16) if entry_id else -1


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0
