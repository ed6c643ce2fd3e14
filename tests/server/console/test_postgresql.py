"""The console of a root whose ledger is on PostgreSQL."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from remit.ledger import LedgerEntry
from tests.server.console.client import VIEWS
from tests.server.console.conftest import Inside

FILTERS = (
    "since", "until", "zone", "key", "user", "team", "organisation", "agent", "session",
    "contract", "model", "provider", "outcome", "error", "min_usd", "word", "sort", "before",
)  # fmt: skip


@pytest.mark.parametrize("path", [*VIEWS, "/console/calls?agent=nobody"])
def test_pages_without_entries(inside_postgresql: Inside, path: str) -> None:
    assert inside_postgresql.get(path).status == 200


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("value", ["\0", "a\0b", "nobody"])
def test_a_filter_with_any_text(inside_postgresql: Inside, name: str, value: str) -> None:
    shown = inside_postgresql.get(f"/console/calls?{urlencode({name: value})}")
    assert shown.status in (200, 400)


def test_a_call_whose_key_is_not_printable_is_listed(inside_postgresql: Inside) -> None:
    metadata = {"session_id": "SES-1", "agent_id": "a", "key_id": "\0"}
    for event in ("EXCHANGE", "PROMPT_REJECTED"):
        inside_postgresql.ledger.write(LedgerEntry(event, "SES-1", "SUCCESS", "x",
                                                   metadata=dict(metadata)))  # fmt: skip
    assert inside_postgresql.get("/console/calls").text.count("/console/journey/LED-") == 2
    assert inside_postgresql.get("/").status == 200
