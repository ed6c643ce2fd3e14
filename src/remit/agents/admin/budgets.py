"""What may be used, and what has been."""

from __future__ import annotations

from typing import Any

from remit.agents.admin.asking import SESSION_ID
from remit.agents.tools import Tool, ToolError
from remit.gateway.budget import BudgetScope, BudgetStatus, TokenBudgeter, usd_of
from remit.ledger import LedgerClient

__all__ = ["budget_tools"]

_MAX_SCOPES = 100


def budget_tools(ledger: LedgerClient) -> list[Tool]:
    """``budget_status``.

    Args:
        ledger: in whose database the budgets are.
    """

    def budget_status(session_id: str | None = None, max_scopes: int = 20) -> dict[str, Any]:
        budgeter = TokenBudgeter(ledger)
        if session_id is None:
            found = [one for one in budgeter.list() if "/" not in one.scope]
            counted = [one for one in found if one.scope.startswith("session:")]
            # The busiest are what one asks for; the rest is in the sums.
            found.sort(key=lambda one: (-one.spent_nano, -one.spent_tokens, one.scope))
        else:
            top = BudgetScope(session_id).key
            found = [
                one for one in budgeter.list(top)
                if one.scope == top or one.scope.startswith(f"{top}/")
            ]  # fmt: skip
            counted = [one for one in found if one.scope == top]
            if not found:
                raise ToolError(f"There is no budget for the session {session_id}.")
        return {
            "status": "ok",
            "count": len(found),
            "spent_usd": usd_of(sum(one.spent_nano for one in counted)),
            "reserved_usd": usd_of(sum(one.reserved_nano for one in counted)),
            "spent_tokens": sum(one.spent_tokens for one in counted),
            "unpriced_calls": sum(one.unpriced_calls for one in counted),
            "scopes": [_row(one) for one in found[:max_scopes]],
        }

    return [
        Tool(
            "budget_status",
            "Show budgets: what was spent, is reserved and may be spent, in tokens and US dollars; "
            "of all keys, users and teams, or of one conversation.",
            {
                "type": "object",
                "properties": {
                    "session_id": {**SESSION_ID, "description": "only the budget of this session"},
                    "max_scopes": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": _MAX_SCOPES,
                        "default": 20,
                    },
                },
                "additionalProperties": False,
            },
            budget_status,
            (
                ("show the budget", {}),
                ("how much money was spent?", {}),
                ("is there budget left?", {}),
                ("what are the spending limits?", {}),
            ),
            _describe,
            "budget",
            on_unknown="retry",
        )
    ]


def _row(state: BudgetStatus) -> dict[str, Any]:
    return {
        "scope": state.scope,
        "spent_usd": usd_of(state.spent_nano),
        "reserved_usd": usd_of(state.reserved_nano),
        "limit_usd": None if state.nano_limit is None else usd_of(state.nano_limit),
        "spent_tokens": state.spent_tokens,
        "reserved_tokens": state.reserved_tokens,
        "token_limit": state.token_limit,
        "turns": state.turns,
        "turn_limit": state.turn_limit,
        "requests_per_minute": state.requests_per_minute,
        "tokens_per_minute": state.tokens_per_minute,
        "unpriced_calls": state.unpriced_calls,
        "closed": bool(state.closed),
    }


def _describe(output: dict[str, Any]) -> str:
    priced = f"{output['spent_usd']:.4f} US dollars"
    if output["unpriced_calls"]:
        priced += f" and {output['unpriced_calls']} calls without a price"
    return (
        f"{output['spent_tokens']} tokens were spent, {priced}; there are {output['count']} "
        "budgets."
    )
