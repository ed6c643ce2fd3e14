"""Prices of the operator's own in a running server: taken up, charged, named on the record."""

from __future__ import annotations

import json
from typing import Any

from remit.gateway.auth import KeyStore
from remit.ledger import LedgerEntry
from remit.providers.prices import PriceTable, Usage
from tests.server.conftest import Serve
from tests.server.running import Served, new_session
from tests.support.commands import run_remit
from tests.support.waiting import until


def _set(served: Served, *rates: str) -> None:
    done = run_remit("price", "set", "gpt-4o-mini", *rates, "--root", served.root)
    assert done.returncode == 0, done.stderr


def _listed(served: Served, query: str) -> Any:
    with KeyStore(served.ledger) as keys:
        auditor = keys.create(new_session(), role="auditor").key
    status, body, _ = served.ask("GET", f"/api/prices?{query}", token=auditor)
    assert status == 200, body
    return json.loads(body)


def test_a_running_server_takes_a_price_up_and_names_it(serve: Serve) -> None:
    with serve() as served:
        before = new_session()
        assert served.call("openai", "hi", session=before)[0] == 200
        shipped = PriceTable.shipped().version
        (exchange,) = served.entries("EXCHANGE", before)
        assert exchange.metadata["price_version"] == shipped
        _set(served, "--input", "100", "--output", "200")

        paid_by: list[LedgerEntry] = []

        def taken_up() -> bool:
            session = new_session()
            assert served.call("openai", "hi", session=session)[0] == 200
            paid_by[:] = served.entries("EXCHANGE", session)
            return bool(paid_by[0].metadata["price_version"] != shipped)

        until(taken_up)
        own = PriceTable.from_file(served.root / "prices.toml")
        price = own.find("openai", "gpt-4o-mini")
        assert price is not None
        said = paid_by[0].metadata
        assert said["price_version"] == f"{own.version};{shipped}"
        paid = price.cost_nano(Usage(said["input_tokens"], said["output_tokens"]))
        assert said["cost_usd"] == paid / 1e9
        assert paid > 0

        page = _listed(served, "own=true")
        listed = run_remit("price", "list", "--own", "--json", "--root", served.root)
        assert page["prices"] == json.loads(listed.stdout)["prices"]
        assert (page["version"], page["base_version"]) == (said["price_version"], shipped)
        (change,) = served.ledger.read_by_submission("prices")
        assert page["entry"] == change.id
        (one,) = page["prices"]
        assert (one["model"], one["input"], one["origin"]) == ("gpt-4o-mini", "100", "own")
        of_4o = _listed(served, "provider=openai&model=gpt-4o&limit=1")["prices"][0]
        assert (of_4o["model"], of_4o["origin"]) == ("gpt-4o", "shipped")
        first = _listed(served, "provider=openai&limit=1")
        second = _listed(served, f"provider=openai&limit=1&cursor={first['next_cursor']}")
        names = [page["prices"][0]["model"] for page in (first, second)]
        assert names == sorted({*names})
        assert len(names) == 2
