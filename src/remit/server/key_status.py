"""``GET /v1/key``: the rights and remaining limits of the caller's key."""

from __future__ import annotations

import asyncio
from typing import Any

from remit.gateway import Identity
from remit.gateway.budget import BudgetScope, BudgetStatus, TokenBudgeter, usd_of
from remit.server.asgi import Receive, Scope, Send, reply_json
from remit.server.authentication import Authenticator
from remit.server.paths import Handler, paths_of

_OWNERS = ("user_id", "team_id", "organisation_id")


def own_key_routes(
    budgeter: TokenBudgeter, authenticator: Authenticator
) -> dict[tuple[str, str], Handler]:
    """Return the handler that shows callers their own key, keyed by ``GET`` and each path of
    ``/key`` (see :func:`paths_of`).

    Any valid key may read itself, whatever its role. The answer has the key's rights, owners and
    accounts with their remaining amounts, the widest account last. An agent's token has no
    accounts. Reading records nothing. The handler raises the HttpError of
    :meth:`Authenticator.caller` for a refused caller, and LedgerError if the accounts cannot be
    read.

    Args:
        budgeter: reads the accounts that pay for the key's calls.
        authenticator: authenticates the caller.
    """

    async def show(scope: Scope, receive: Receive, send: Send) -> None:
        caller = (await authenticator.caller(scope)).identity
        owners: dict[str, Any] = {
            name: getattr(caller, name) or None for name in ("key_id", *_OWNERS)
        }
        accounts: list[BudgetStatus] = []
        if any(owners.values()):  # An agent's token has no account.
            accounts = await asyncio.to_thread(budgeter.status, BudgetScope(**owners))
        await reply_json(send, _shown(caller, accounts))

    return {("GET", path): show for path in paths_of("/key")}


_LISTS = ("models", "agents", "tiers", "pass_through", "pass_through_unpriced")


def _shown(caller: Identity, accounts: list[BudgetStatus]) -> dict[str, Any]:
    return {
        "object": "key",
        "id": caller.key_id,
        "name": caller.name,
        "role": caller.role,
        "expires": caller.expires_at or None,
        **{name: list(getattr(caller, name)) for name in _LISTS},
        **{name: getattr(caller, name) or None for name in _OWNERS},
        "budgets": [_with_rest(account) for account in reversed(accounts)],
    }


def _with_rest(account: BudgetStatus) -> dict[str, Any]:
    """Return an account with the remaining amount of each limit; ``None`` without a limit."""
    nano, turns = account.nano_limit, account.turn_limit
    left = None if nano is None else nano - account.spent_nano - account.reserved_nano
    tokens = account.remaining
    return {
        **account.to_dict(),
        "remaining_usd": None if left is None else usd_of(max(0, left)),
        "remaining_tokens": None if tokens is None else max(0, tokens),
        "remaining_turns": None if turns is None else max(0, turns - account.turns),
    }
