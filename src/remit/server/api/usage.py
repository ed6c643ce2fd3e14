"""Routes of usage."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

import orjson
from fastapi import Query
from pydantic import Field

from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient
from remit.operations.results import Page
from remit.server.api.routes import Routes
from remit.views import BY, instant_of, read_usage

_OWNERS = (
    "key", "user", "team", "organisation", "agent", "session", "contract", "provider", "model",
    "certainty",
)  # fmt: skip


class UsageQuery(Page):
    """Conditions on calls, and the names to group by.

    `since`, `until` and `time_zone` bound the calls; `by` groups them; each other field counts only
    calls with that value: `key`, `user`, `team`, `organisation`, `agent`, `session`, `contract`,
    `provider`, `model` and `certainty`.
    """

    since: str = Field(
        "7d",
        max_length=64,
        description="Start of the range: `today`, `yesterday`, `24h`, or ISO 8601.",
    )
    until: str = Field(
        "now", max_length=64, description="End of the range, exclusive, in the same forms."
    )
    by: str = Field(
        "model", max_length=256, description=f"Dimensions separated by commas: {', '.join(BY)}"
    )
    time_zone: str = Field(
        "UTC", max_length=64, description="Time zone whose midnight begins a day."
    )
    key: str = Field(
        "",
        max_length=512,
        description="Count only calls of the key with this id; the other filters work alike.",
    )
    user: str = Field("", max_length=512)
    team: str = Field("", max_length=512)
    organisation: str = Field("", max_length=512)
    agent: str = Field("", max_length=512)
    session: str = Field("", max_length=512)
    contract: str = Field("", max_length=512)
    provider: str = Field("", max_length=512)
    model: str = Field("", max_length=512)
    certainty: str = Field("", max_length=16)


def usage_routes(ledger: LedgerClient) -> Routes:
    """Return the route that adds up usage; it only reads.

    Args:
        ledger: ledger of the root.
    """
    routes = Routes("usage")

    @routes.add("GET", "/usage", "Add up usage", needs="read", shape="UsagePage")
    def usage(query: Annotated[UsageQuery, Query()]) -> dict[str, Any]:
        """Return calls, tokens and costs, grouped by time, caller, model or certainty.

        Costs are separate by their certainty. Only sums that were stored with each call are read.
        """
        by = [name for one in query.by.split(",") if (name := one.strip())]
        span: dict[str, Any] = {
            "since": instant_of(query.since, query.time_zone),
            "until": instant_of(query.until, query.time_zone),
            "where": {name: value for name in _OWNERS if (value := getattr(query, name))},
        }
        found = read_usage(
            ledger, by=by, time_zone=query.time_zone, order="name", limit=query.limit,
            after=_place(query.cursor), **span,
        )  # fmt: skip
        total = None if query.cursor else read_usage(ledger, **span).rows[0].to_dict()
        return {
            "since": found.since.isoformat(),
            "until": found.until.isoformat(),
            "time_zone": query.time_zone,
            "by": by,
            "rows": [row.to_dict() for row in found.rows],
            "total": total,
            "next_cursor": None if found.more is None else _cursor(found.more),
        }

    return routes


def _cursor(place: tuple[str, ...]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(place)).decode()


def _place(cursor: str | None) -> list[str] | None:
    if cursor is None:
        return None
    try:
        place = orjson.loads(base64.urlsafe_b64decode(cursor))
    except (ValueError, binascii.Error):
        place = None
    if not isinstance(place, list) or not all(isinstance(one, str) for one in place):
        raise InvalidInputError("The cursor is unknown.", next_step="Begin again without one.")
    return place
