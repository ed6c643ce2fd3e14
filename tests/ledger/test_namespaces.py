"""Schemas of a PostgreSQL database for further ledgers."""

from __future__ import annotations

import pytest

from remit.ledger import LedgerError, drop_schema, has_schema, make_schema
from tests.support.postgres import PostgresServer


def test_a_schema_is_recognised_by_its_mark(postgres: PostgresServer) -> None:
    url, mark = postgres.database(), "the o'log's \\ mark"
    for _ in range(2):
        make_schema(url, "remit_x", mark)
    with pytest.raises(LedgerError, match="already exists"):
        make_schema(url, "remit_x", "the ologs \\ mark")
    drop_schema(url, "remit_x", "the ologs \\ mark")
    assert has_schema(url, "remit_x")
    drop_schema(url, "remit_x", mark)
    assert not has_schema(url, "remit_x")
    postgres.drop(url)
