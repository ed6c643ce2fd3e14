"""What was held, and what was lost."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.overspend import MODELS, Installation
from benchmarks.torture.clients import EXPECTED, Answer, Clients
from benchmarks.torture.fleet import NANO, Member, is_flat, third
from benchmarks.torture.provider import Provider
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.ledger import LedgerClient
from remit.providers.prices import PriceTable, Usage

_TRACEBACK = re.compile(r"Traceback \(most recent call last\):(?:\n .*)*\n.*")


@dataclass
class Verdict:
    """By promise, whether it was held, and what was seen of it."""

    rows: list[tuple[str, bool, str]] = field(default_factory=list)

    def hold(self, promise: str, held: bool, seen: object) -> None:
        """Note one."""
        self.rows.append((promise, held, str(seen)))

    @property
    def held(self) -> bool:
        """Whether all were."""
        return all(held for _, held, _ in self.rows)

    def __str__(self) -> str:
        width = max(len(promise) for promise, _, _ in self.rows)
        lines = [
            f"{promise:<{width}}  {'held' if held else 'LOST'}  {seen}"
            for promise, held, seen in self.rows
        ]
        return "\n".join([*lines, "", "HELD" if self.held else "LOST"])


def judge(
    installation: Installation,
    members: Sequence[Member],
    clients: Clients,
    provider: Provider,
    *,
    undisturbed: bool,
) -> Verdict:
    """Hold provider, clients, accounts and ledger against one another, when all is at rest.

    ``undisturbed``: no process was killed and nothing spoiled, so that no call may be an orphan,
    whatever its client was told.
    """
    verdict = Verdict()
    calls, answers = provider.calls(), clients.answers
    told: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    cost: dict[str, int] = defaultdict(int)
    prompts: dict[str, str] = {}
    orphans: set[str] = set()
    with LedgerClient(installation.address, create=False) as ledger:
        for entry in ledger.query():
            told[entry.event_type] += 1
            if entry.event_type not in ("EXCHANGE", "EXCHANGE_ORPHANED"):
                continue
            ended[entry.metadata["dispatch_entry_id"]] += 1
            cost[entry.metadata.get("key_id", "")] += round(entry.metadata["cost_usd"] * NANO)
            if entry.event_type == "EXCHANGE":
                prompts[entry.id] = str(entry.metadata["prompt"])
            else:
                orphans.add(entry.metadata["dispatch_entry_id"])
        held = sum(ledger.select(f"SELECT count(*) FROM {table}")[0][0]
                   for table in ("in_flight", "holds"))  # fmt: skip
        budgeter = TokenBudgeter(ledger)
        accounts = {key.key_id: budgeter.status(BudgetScope(key_id=key.key_id))[0]
                    for key in clients.keys}  # fmt: skip
        verified = ledger.verify()
    whole = [answer for answer in answers if answer.whole]
    lost = [answer for answer in whole
            if f"tag={answer.order.tag} " not in prompts.get(answer.exchange_id, "")]  # fmt: skip
    verdict.hold("an acknowledged answer is on record", not lost and bool(whole),
                 f"{len(whole)} acknowledged, {len(lost)} lost {_some(lost)}")  # fmt: skip
    live = [answer for answer in answers if answer.dispatch_id in orphans and answer.ended
            and (answer.whole or not answer.killed)]  # fmt: skip
    verdict.hold("no live call is settled as dead", not live and not (undisturbed and orphans),
                 f"{len(orphans)} orphans, {len(live)} of them live {_some(live)}")  # fmt: skip
    verdict.hold(
        "calls at the provider <= dispatches = exchanges + orphans",
        len(calls) <= told["DISPATCH"] == told["EXCHANGE"] + told["EXCHANGE_ORPHANED"]
        == len(ended),
        f"{len(calls)} calls, {told['DISPATCH']} dispatches, {told['EXCHANGE']} exchanges, "
        f"{told['EXCHANGE_ORPHANED']} orphans",
    )  # fmt: skip
    billed = _billed(clients, calls)
    for key in clients.keys:
        account, cap = accounts[key.key_id], key.cap_nano
        spent = account.spent_nano
        verdict.hold(
            f"a key of {cap / NANO:g} USD",
            billed[key.key_id] <= spent <= cap and spent == cost[key.key_id]
            and account.reserved_nano == 0,
            f"billed {billed[key.key_id] / NANO:.4f} <= charged {spent / NANO:.4f}, on record "
            f"{cost[key.key_id] / NANO:.4f}, reserved {account.reserved_nano / NANO:.4f}",
        )  # fmt: skip
    check = installation.told("budget", "check")
    verdict.hold("accounts equal the record", check["equal"], check.get("differences") or "")
    verdict.hold("nothing is held", held == 0, held)
    problems = [str(problem) for problem in verified.problems[:3]]
    verdict.hold("the ledger verifies", verified.verified, f"{verified.entries} entries {problems}")
    odd = [a for a in answers if a.status not in EXPECTED or _is_odd(a)]
    statuses = dict(sorted(Counter(answer.status for answer in answers).items()))
    verdict.hold(
        "calls are answered or refused for a reason", not odd, f"{statuses} {_some(odd)}"
    )  # fmt: skip
    log = (installation.root / "server.log").read_text(errors="replace")
    # An interpreter that may open nothing cannot start.
    traces = [trace for trace in _TRACEBACK.findall(log) if "<frozen importlib" not in trace]
    verdict.hold("no traceback in a log", not traces, f"{len(traces)} {traces[:1] or ''}")
    watched = members[-1]
    verdict.hold(
        "memory is flat", is_flat(watched.rss_mb),
        " -> ".join(f"{third(watched.rss_mb, part):.0f}" for part in range(3)) + " MB, most "
        f"{max(watched.rss_mb, default=0):.0f}",
    )  # fmt: skip
    verdict.hold(
        "open files are flat", is_flat(watched.files, 40),
        " -> ".join(f"{third(watched.files, part):.0f}" for part in range(3)),
    )  # fmt: skip
    return verdict


def _is_odd(answer: Answer) -> bool:
    """Whether a call was refused without a cause: nothing here exceeds a rate, or asks wrongly."""
    if answer.status == 429:
        return answer.order.do != "limit" and "minute" in answer.said
    return answer.status == 400 and answer.order.do != "refuse"


def _some(answers: Sequence[Answer]) -> str:
    return "; ".join(f"{a.order.tag} {a.order.do} {a.status} {a.exchange_id or a.dispatch_id} "
                     f"{a.said[:120]!r}" for a in answers[:3])  # fmt: skip


def _billed(clients: Clients, calls: Sequence[dict[str, Any]]) -> Counter[str]:
    """By key, what the provider bills, in nano-dollars, for calls whose clients stayed."""
    prices, billed = PriceTable.shipped(), Counter[str]()
    for call in calls:
        order = clients.orders[call["tag"]]
        if not order.stays:
            continue
        price = prices.find(order.dialect, MODELS[order.dialect])
        assert price is not None
        used = Usage(call["in"], call["out"], 0, 0, 0, 0)
        billed[order.key.key_id] += price.cost_nano(used)
    return billed
