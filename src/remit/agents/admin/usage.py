"""Sums of usage and cost by key, user, agent, model or day."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from remit.agents.admin.output import Toolset
from remit.agents.tools import current_call, tool
from remit.kernel.budget_values import usd_of
from remit.kernel.message_text import fixed
from remit.ledger import LedgerEntry
from remit.ledger.usage import SUMS, usage_of
from remit.views import UsageRow, read_usage

_MAX_ROWS = 100
_NOBODY = "(none)"

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
    cost = f"{fixed(one['usd'])} US dollars"
    if one["unpriced_calls"]:
        cost = f"{cost} and {one['unpriced_calls']} calls of unknown price"
    return f"{one['calls']} calls, {one['tokens']} tokens, {cost}"


class UsageTools(Toolset):
    """The tool ``usage``, which sums up calls, tokens and cost."""

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

        The result has ``status`` (``ok``), ``by``, ``days``, the sums of these days, ``today``, and
        at most 100 ``rows`` (``count`` of them) with ``name`` (``(none)`` without one): of the
        latest days, oldest first, or the dearest. In a session it also has ``this_session``, and
        ``last_turn`` once a turn has ended. Each sum and row has ``calls``, ``failed``,
        ``input_tokens``, ``output_tokens``, ``tokens``, ``usd``, ``exact`` and ``unpriced_calls``;
        ``usd`` leaves out calls without a price, which the last counts.

        Args:
            by: what is added up
            days: of today and the days before (UTC), so many

        Raises:
            LedgerError: the ledger cannot be read.
        """
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        since = today - timedelta(days=days - 1)
        found = read_usage(self.ledger, since=since, by=[by], limit=_MAX_ROWS)
        return {
            "status": "ok",
            "by": by,
            "days": days,
            **self._here(),
            "today": _shown(read_usage(self.ledger, since=today).rows[0]),
            **_shown(read_usage(self.ledger, since=since).rows[0]),
            "count": len(found.rows),
            "rows": [{"name": row.names[by] or _NOBODY, **_shown(row)} for row in found.rows],
        }

    def _here(self) -> dict[str, Any]:
        """Return the usage of the current session and its last turn; empty outside a session."""
        call = current_call()
        if call is None:
            return {}
        ended = [entry.id for entry in self.ledger.query(
            session_id=call.session_id, event_type="TURN_RECORDED", order="desc", limit=2,
            with_content=False,
        )]  # fmt: skip
        first = next(self.ledger.query(session_id=call.session_id, limit=1, with_content=False))
        since = datetime.fromisoformat(first.timestamp)
        session = read_usage(self.ledger, since=since, where={"session": call.session_id}).rows[0]
        if not ended:
            return {"this_session": _shown(session)}
        calls = self.ledger.query(
            session_id=call.session_id,
            event_type="EXCHANGE",
            with_content=False,
            after=ended[1] if len(ended) > 1 else None,
        )
        turn = itertools.takewhile(lambda entry: _seq(entry.id) < _seq(ended[0]), calls)
        return {"this_session": _shown(session), "last_turn": _shown(_added(turn))}


def _added(calls: Iterable[LedgerEntry]) -> UsageRow:
    """Return the sums of a few exchanges as one row."""
    rows = [usage_of(one.event_type, one.metadata, one.metadata) for one in calls]
    sums = [sum(column) for column in zip(*(row[-len(SUMS) :] for row in rows if row), strict=True)]
    found = dict(zip(SUMS, sums, strict=False))
    nano = found.pop("nano", 0)
    return UsageRow(measured_nano=nano, **found)


def _shown(row: UsageRow) -> dict[str, Any]:
    return {
        "calls": row.calls,
        "failed": row.failed,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "tokens": row.input_tokens + row.output_tokens,
        "usd": usd_of(row.nano),
        "exact": row.exact,
        "unpriced_calls": row.unpriced_calls,
    }


def _seq(entry_id: str) -> int:
    return int(entry_id[4:], 16)
