"""What must hold after all the kills: provider, clients, accounts, orders and ledger agree."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Sequence

from tests.support.upstream import Upstream

from benchmarks.cluster.retrying import Clients
from benchmarks.overspend import NANO, Installation
from benchmarks.torture.fleet import Key
from benchmarks.torture.judge import Verdict
from remit.agents.queue import ORDERS
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.ledger import LedgerClient, check_tables

_TRACEBACK = re.compile(r"Traceback \(most recent call last\):(?:\n .*)*\n.*")
_SETTLED_S = 180.0
_HELD = ("in_flight", "holds", "orders")


def settled(address: str) -> float:
    """Wait until nothing is held, and no order is left, by what runs; how many seconds."""
    begun = time.monotonic()
    with LedgerClient(address, create=False) as ledger:
        while _held(ledger) and time.monotonic() - begun < _SETTLED_S:
            time.sleep(0.1)
    return time.monotonic() - begun


def _held(ledger: LedgerClient) -> int:
    return sum(ledger.select(f"SELECT count(*) FROM {table}")[0][0] for table in _HELD)


def checked(
    places: Sequence[Installation], clients: Clients, keys: Sequence[Key], provider: Upstream
) -> Verdict:
    """All of it, when all is at rest.

    Args:
        places: the roots; the first one's address is the ledger.
        clients: what was acknowledged.
        keys: of the callers, with their caps.
        provider: what it received.
    """
    verdict = Verdict()
    told, ends = Counter[str](), Counter[str]()
    dispatched, succeeded = Counter[str](), Counter[str]()  # by session
    submitted, done, turns = Counter[str](), Counter[str](), Counter[str]()  # by order
    sessions: dict[str, str] = {}
    cost: dict[str, int] = defaultdict(int)
    prompts: dict[str, str] = {}
    head, breaks = "", 0
    with LedgerClient(places[0].address, create=False) as ledger:
        for entry in ledger.query():
            told[entry.event_type] += 1
            breaks += entry.previous_hash != head
            head = entry.entry_hash
            session = str(entry.metadata.get("session_id", ""))
            match entry.event_type:
                case "DISPATCH":
                    dispatched[session] += 1
                case "EXCHANGE" | "EXCHANGE_ORPHANED" as kind:
                    ends[entry.metadata["dispatch_entry_id"]] += 1
                    cost[entry.metadata.get("key_id", "")] += round(
                        entry.metadata["cost_usd"] * NANO
                    )
                    if kind == "EXCHANGE" and entry.metadata["outcome"] == "success":
                        succeeded[session] += 1
                        prompts[entry.id] = str(entry.metadata["prompt"])
                case "ORDER_SUBMITTED":
                    submitted[entry.submission_id] += 1
                    sessions[entry.submission_id] = session
                case "ORDER_ENDED" if entry.decision == "COMPLETED":
                    done[entry.submission_id] += 1
                case "TURN_RECORDED":
                    turns[entry.metadata["provenance"]["session_id"]] += 1
        held = _held(ledger)
        budgeter = TokenBudgeter(ledger)
        accounts = {key.key_id: budgeter.status(BudgetScope(key_id=key.key_id))[0] for key in keys}
        ((entries, first, last),) = ledger.select(
            "SELECT count(*), min(seq), max(seq) FROM entries"
        )
        queue = list(check_tables(ledger, (ORDERS,)))
    calls = Counter(call["tag"] for call in provider.calls())
    verdict.hold(
        "calls at the provider <= dispatches = exchanges + orphans",
        calls.total() <= told["DISPATCH"] == told["EXCHANGE"] + told["EXCHANGE_ORPHANED"]
        and ends == Counter(list(ends)) and len(ends) == told["DISPATCH"],
        f"{calls.total()} <= {told['DISPATCH']} = {told['EXCHANGE']} + "
        f"{told['EXCHANGE_ORPHANED']}",
    )  # fmt: skip
    over = [call.tag for call in clients.calls if calls[call.tag] > dispatched[call.session]]
    verdict.hold("so it is for each call", not over, f"{len(clients.calls)} calls, not {over[:5]}")
    acknowledged = [call for call in clients.calls if call.exchange_id]
    lost = [call.tag for call in acknowledged
            if f"tag={call.tag} " not in prompts.get(call.exchange_id, "")]  # fmt: skip
    verdict.hold(
        "every acknowledged call is on record", bool(acknowledged) and not lost,
        f"{len(acknowledged)} acknowledged, {sum(c.replayed for c in acknowledged)} of them from "
        f"the record, {len(lost)} lost {lost[:5]}",
    )  # fmt: skip
    twice = [call.tag for call in clients.calls if succeeded[call.session] > 1]
    verdict.hold("none succeeded twice under its key", not twice, f"{len(twice)} {twice[:5]}")
    verdict.hold(
        "no gap in the sequence, no fork", last - first + 1 == entries and not breaks,
        f"{entries} entries, {first} to {last}, {breaks} broken links",
    )  # fmt: skip
    wrong = [order for order in clients.orders.values() if not (
        submitted[order] == done[order] == turns[sessions[order]] == succeeded[sessions[order]] == 1
    )]  # fmt: skip
    extra = set(submitted) - set(clients.orders.values())
    verdict.hold(
        "every order was done once", bool(clients.orders) and not (wrong or extra or queue),
        f"{len(clients.orders)} orders, {len(wrong)} otherwise {wrong[:3]}, {len(extra)} more than "
        f"were taken, queue {queue[:3]}",
    )  # fmt: skip
    for key in keys:
        account, spent = accounts[key.key_id], accounts[key.key_id].spent_nano
        verdict.hold(
            f"a key of {key.cap_nano / NANO:g} USD",
            spent <= key.cap_nano and spent == cost[key.key_id] and not account.reserved_nano,
            f"charged {spent / NANO:.4f}, on record {cost[key.key_id] / NANO:.4f}, reserved "
            f"{account.reserved_nano / NANO:g}",
        )  # fmt: skip
    check = places[0].told("budget", "check")
    verdict.hold("accounts equal the record", check["equal"], check.get("differences") or "")
    verdict.hold("nothing is held, no order is left", held == 0, held)
    reports = [place.told("ledger", "verify") for place in places]
    bad = [problem for report in reports for problem in report["problems"]]
    verdict.hold(
        f"`remit ledger verify` from each of {len(places)} roots",
        all(report["verified"] for report in reports), f"{reports[0]['entries']} entries {bad[:3]}",
    )  # fmt: skip
    verdict.hold("no client was told what it should not be", not clients.problems,
                 clients.problems[:3] or "")  # fmt: skip
    logs = [(place.root / "server.log").read_text(errors="replace") for place in places]
    traces = [trace for log in logs for trace in _TRACEBACK.findall(log)]
    verdict.hold("no traceback in a log", not traces, f"{len(traces)} {traces[:1] or ''}")
    return verdict
