"""``python -m benchmarks.overspend --calls 1000 --cap 5 --store sqlite [--kill]``: is it kept?

One virtual key with a cap in US dollars, two ``remit serve`` processes on one root, and so many
calls at once that would cost several times the cap: both dialects, whole answers and streams,
some refused, some cut off by the provider. What is refused for want of money is sent again, until
the cap is all but used up. With ``--kill`` one of the two servers is killed (``SIGKILL``) halfway.

What the provider billed is counted from its own log, by the table of prices, and held against
the cap, the live account and the ledger.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import copy
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
from tests.support.roots import new_root
from tests.support.upstream import Upstream, upstream

from benchmarks.machine import describe_machine
from benchmarks.postgres import PostgresServer
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.ledger import LedgerClient
from remit.providers.prices import PriceTable, Usage

__all__ = ["Answer", "Installation", "Order", "Report", "Server", "ask", "examine", "overspend"]

NANO = 10**9
WAVES = 6
SETTLED_S = 60.0
_END_S = 120
MODELS = {"openai": "gpt-4", "anthropic": "claude-3-opus"}
_KEY_NAME = "capped"
_EXCHANGE = re.compile(r"x-remit-exchange=(LED-[0-9a-f]+)")
_SETTINGS = {
    "REMIT_GATEWAY__RECOVER_EVERY_S": "0.5",
    "REMIT_GATEWAY__RETRY_BASE_MS": "1",
    "REMIT_GATEWAY__RETRY_MAX_MS": "5",
    "REMIT_GATEWAY__FAILURE_THRESHOLD": "1000000",  # it is the budget that shall refuse
}


@dataclass(frozen=True, slots=True)
class Order:
    """One call to make, and what its provider is told to do.

    Attributes:
        tokens: words of the answer; the most that the call allows is up to twice that.
        orders: further directives of the upstream.
        words: how many words the provider bills of each attempt.
    """

    tag: str
    dialect: str
    tokens: int
    max_tokens: int
    stream: bool
    orders: str
    words: int

    @classmethod
    def draw(cls, source: random.Random, tag: str, *, slow: bool = False) -> Order:
        """Any of them."""
        tokens = source.randint(20, 640)
        dialect = source.choice(["openai", "openai", "anthropic"])
        stream = source.random() < 0.5
        orders, words = "", tokens
        match source.randrange(10):
            case 0:
                orders, words = f"status={source.choice([400, 429, 500])}", 0
            case 1 if stream:
                words = source.randint(1, tokens - 1)
                orders = f"cut={words}"
            case 1:
                orders = "cut=1"
            case 2 | 3:
                orders = f"delay={source.uniform(0.05, 0.4):.2f}"
            case 4 if slow:
                orders = "slow=0.002"
        limit = tokens * source.choice([1, 1, 2])
        return cls(tag, dialect, tokens, limit, stream, orders, words)

    @property
    def text(self) -> str:
        """What the user says."""
        return f"[[tokens={self.tokens} tag={self.tag} {self.orders}]] Write so much."

    @property
    def billed_nano(self) -> int:
        """What the provider bills for one attempt, in nano-dollars."""
        if not self.words:
            return 0
        price = PriceTable.shipped().find(self.dialect, MODELS[self.dialect])
        assert price is not None
        return price.cost_nano(Usage(-(-len(self.text) // 4), self.words, 0, 0, 0, 0))

    @property
    def request(self) -> tuple[str, dict[str, Any]]:
        """Path and body."""
        path = "/v1/chat/completions" if self.dialect == "openai" else "/v1/messages"
        return path, {
            "model": MODELS[self.dialect],
            "max_tokens": self.max_tokens,
            "messages": [{"role": "user", "content": self.text}],
            "stream": self.stream,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client got: 0 when the connection broke before a status; ``whole`` to its end."""

    order: Order
    status: int
    exchange_id: str = ""
    whole: bool = False
    body: str = ""


@dataclass(slots=True)
class Server:
    """One ``remit serve``."""

    process: subprocess.Popen[str]
    url: str

    def kill(self) -> None:
        """``kill -9``."""
        self.process.kill()
        self._wait()

    def end(self) -> None:
        """SIGTERM, and wait."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self._wait()

    def _wait(self) -> None:
        try:
            self.process.wait(_END_S)
        finally:  # nothing of it outlives a run, though that fails
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()


class Installation:
    """A root with one key, and the commands on it.

    Args:
        directory: for the root; it must not be there.
        upstream_url: in place of both providers.
        cap_usd: most dollars that the key may spend.
        database: a PostgreSQL URL instead of a file.

    Attributes:
        environment: all variables of its programs.
    """

    def __init__(self, directory: Path, upstream_url: str, cap_usd: float, database: str) -> None:
        self.root = directory
        self.address = database or str(directory / "ledger.db")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("REMIT_")},
            **_SETTINGS,
            "OPENAI_API_KEY": "sk-upstream",
            "OPENAI_BASE_URL": f"{upstream_url}/v1",
            "ANTHROPIC_API_KEY": "sk-upstream",
            "ANTHROPIC_BASE_URL": upstream_url,
            **({"REMIT_DATABASE_URL": database} if database else {}),
        }
        new_root(directory, database=database)
        made = self.told("key", "create", "--name", _KEY_NAME, "--budget-usd", str(cap_usd))
        self.key, self.key_id = str(made["key"]), str(made["id"])

    def told(self, *arguments: str) -> dict[str, Any]:
        """What a command says with ``--json``, and its exit as ``exit``."""
        done = self._run(*arguments, "--json", "--root", str(self.root))
        return {**json.loads(done.stdout), "exit": done.returncode}

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "remit", *arguments],
            env=self.environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.stdout or not done.returncode, done.stderr
        return done

    def copied(self, directory: Path) -> Installation:
        """The same ledger, key and keys from a copy of the root, as on another machine."""
        shutil.copytree(self.root, directory, symlinks=True)
        other = copy.copy(self)
        other.root = directory
        return other

    def serve(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Server:
        """Start a server; it listens when this returns.

        Args:
            arguments: more of the command line.
            environment: more variables.
        """
        return self._started("serve", "listens on", ("--port", "0", *arguments), environment)

    def work(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Server:
        """Start a worker, in the same way; it takes orders when this returns."""
        return self._started("worker", "takes orders", arguments, environment)

    def _started(
        self, command: str, says: str, arguments: Sequence[str],
        environment: Mapping[str, str] | None,
    ) -> Server:  # fmt: skip
        with (self.root / "server.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "remit", command, "--root", str(self.root), *arguments],
                env={**self.environment, **(environment or {})}, stdout=subprocess.PIPE,
                stderr=log, text=True,
            )  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        if says not in line:
            Server(process, "").kill()
            raise AssertionError((self.root / "server.log").read_text()[-2000:])
        return Server(process, line.split()[-1])

    @contextlib.contextmanager
    def servers(self, number: int, *, apart: bool = False) -> Iterator[list[Server]]:
        """So many; those that are in the list at the end are ended.

        Args:
            apart: each on a root of its own, for a ledger on PostgreSQL.
        """
        places = [self] * number
        if apart:
            names = [f"{self.root.name}-{place}" for place in range(1, number)]
            places[1:] = [self.copied(self.root.with_name(name)) for name in names]
        running = [place.serve() for place in places]
        try:
            yield running
        finally:
            for server in running:
                server.end()


async def ask(session: aiohttp.ClientSession, url: str, key: str, order: Order) -> Answer:
    """Make one call, as a client without an SDK does."""
    path, body = order.request
    status = 0
    try:
        headers = {"authorization": f"Bearer {key}"}
        async with session.post(url + path, json=body, headers=headers) as response:
            status = response.status
            told = response.headers.get("x-remit-exchange", "")
            text = (await response.read()).decode()
    except (aiohttp.ClientError, ConnectionError):
        return Answer(order, status)
    found = _EXCHANGE.search(text)
    ended = '"message_stop"' in text or "[DONE]" in text if order.stream else True
    exchange_id = told or (found[1] if found else "")
    return Answer(order, status, exchange_id, status == 200 and ended, text[:300])


@dataclass(slots=True)
class Report:
    """Figures of a run, and what is wrong with them."""

    figures: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def hold(self, true: bool, problem: str) -> None:
        """Note a problem unless something is true."""
        if not true:
            self.problems.append(problem)

    def __str__(self) -> str:
        lines = [f"  {name}: {value}" for name, value in self.figures.items()]
        return "\n".join([*lines, *(f"  WRONG: {problem}" for problem in self.problems)])


def wait_until_settled(address: str) -> float:
    """Wait until the servers on a ledger hold nothing any more; how long that took, in seconds."""
    begun = time.monotonic()
    with LedgerClient(address, create=False) as ledger:
        while time.monotonic() - begun < SETTLED_S:
            if ledger.select("SELECT count(*) FROM in_flight") == [(0,)]:
                break
            time.sleep(0.1)
    return time.monotonic() - begun


def examine(
    installation: Installation,
    provider: Upstream,
    orders: Sequence[Order],
    answers: Sequence[Answer],
) -> Report:
    """Hold provider, clients, live accounts and ledger against one another."""
    report = Report()
    by_tag = {order.tag: order for order in orders}
    calls = provider.calls()
    billed = sum(by_tag[call["tag"]].billed_nano for call in calls)
    with LedgerClient(installation.address, create=False) as ledger:
        told: Counter[str] = Counter()
        cost, uncertain, ended = 0, Counter[str](), Counter[str]()
        prompts: dict[str, str] = {}
        for entry in ledger.query():
            told[entry.event_type] += 1
            if entry.event_type in ("EXCHANGE", "EXCHANGE_ORPHANED"):
                cost += round(entry.metadata["cost_usd"] * NANO)
                uncertain[entry.metadata["cost_certainty"]] += 1
                ended[entry.metadata["dispatch_entry_id"]] += 1
            if entry.event_type == "EXCHANGE":
                prompts[entry.id] = str(entry.metadata["prompt"])
        held = ledger.select("SELECT count(*) FROM in_flight")[0][0]
        held += ledger.select("SELECT count(*) FROM holds")[0][0]
        (live,) = TokenBudgeter(ledger).status(BudgetScope(key_id=installation.key_id))
        verified = ledger.verify()
    check = installation.told("budget", "check")
    whole = [answer for answer in answers if answer.whole]
    lost = [
        answer.exchange_id
        for answer in whole
        if f"tag={answer.order.tag} " not in prompts.get(answer.exchange_id, "")
    ]
    report.figures = {
        "clients heard": dict(sorted(Counter(answer.status for answer in answers).items())),
        "upstream calls": len(calls),
        "dispatches": told["DISPATCH"],
        "exchanges": told["EXCHANGE"],
        "orphans": told["EXCHANGE_ORPHANED"],
        "rejected": told["PROMPT_REJECTED"],
        "cap USD": None if live.nano_limit is None else live.nano_limit / NANO,
        "billed by the provider USD": billed / NANO,
        "live spent USD": live.spent_nano / NANO,
        "by the ledger USD": cost / NANO,
        "certainty": dict(uncertain),
        "reserved": (live.reserved_tokens, live.reserved_nano),
        "calls still held": held,
        "budget check equal": check["equal"],
        "answers acknowledged": len(whole),
        "of these not on record": len(lost),
        "entries verified": verified.entries if verified.verified else False,
    }
    limit = live.nano_limit or 0
    report.hold(billed <= limit, "the provider billed more than the cap")
    report.hold(billed <= live.spent_nano, "the provider billed more than was charged")
    report.hold(live.spent_nano <= limit, "more than the cap was charged")
    report.hold(cost == live.spent_nano, "ledger and live account differ")
    report.hold((live.reserved_tokens, live.reserved_nano) == (0, 0), "something is reserved")
    report.hold(held == 0, "something is held")
    report.hold(check["equal"] and check["exit"] == 0, f"budget check: {check['differences']}")
    report.hold(len(calls) <= told["DISPATCH"], "a call without a dispatch")
    report.hold(
        told["DISPATCH"] == told["EXCHANGE"] + told["EXCHANGE_ORPHANED"] == len(ended),
        "dispatches are not exchanges and orphans, each once",
    )
    report.hold(not lost, f"answered and not on record: {lost[:5]}")
    report.hold(verified.verified, f"the ledger: {verified.problems[:5]}")
    return report


async def _load(
    installation: Installation,
    servers: list[Server],
    orders: Sequence[Order],
    kill_after: int | None,
) -> list[Answer]:
    answers: list[Answer] = []

    async def one(session: aiohttp.ClientSession, number: int, order: Order) -> Answer:
        answer = await ask(session, servers[number % len(servers)].url, installation.key, order)
        answers.append(answer)
        return answer

    async def kill() -> None:
        """Kill a server when enough was answered and it has calls out."""
        pid = servers[0].process.pid
        with LedgerClient(installation.address) as ledger:
            while True:
                await asyncio.sleep(0.01)
                owners = ledger.select("SELECT owner FROM in_flight")
                out = any(f"|{pid}|" in owner for (owner,) in owners)
                if out and sum(a.status == 200 for a in answers) >= (kill_after or 0):
                    servers.pop(0).kill()
                    return

    killer = None if kill_after is None else asyncio.create_task(kill())

    timeout = aiohttp.ClientTimeout(total=240)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=timeout
    ) as session:
        waiting = list(orders)
        for _ in range(WAVES):
            wave = await asyncio.gather(*(one(session, *item) for item in enumerate(waiting)))
            waiting = [answer.order for answer in wave if answer.status == 402]
            if not waiting:
                break
    if killer is not None:
        killer.cancel()
    return answers


def overspend(
    directory: Path, *, calls: int, cap_usd: float, database: str = "", kill: bool = False,
    seed: int = 7, gateways: int = 2, apart: bool = False,
) -> Report:  # fmt: skip
    """One run.

    Args:
        directory: for the root; it must not be there.
        calls: how many, all at once.
        cap_usd: of the key that all of them use.
        database: a new PostgreSQL database; SQLite when left out.
        kill: whether to kill a server when one in fifty of the calls has been answered.
        gateways: servers.
        apart: each on a root of its own, for a ledger on PostgreSQL.
    """
    source = random.Random(seed)
    orders = [Order.draw(source, f"c{number}") for number in range(calls)]
    if kill:  # those of the server that is killed are out when it comes
        orders[::gateways] = [
            replace(one, orders="delay=1.5", words=one.tokens) for one in orders[::gateways]
        ]
    with upstream() as provider:
        installation = Installation(directory, provider.url, cap_usd, database)
        with installation.servers(gateways, apart=apart) as servers:
            begun = time.monotonic()
            kill_after = calls // 50 if kill else None
            answers = asyncio.run(_load(installation, servers, orders, kill_after))
            took = time.monotonic() - begun
            settled = wait_until_settled(installation.address)
        report = examine(installation, provider, orders, answers)
    worth = sum(order.billed_nano for order in orders)
    report.figures = {
        "calls": calls,
        "worth USD": worth / NANO,
        "seconds": round(took, 1),
        "seconds until nothing was held": round(settled, 1),
        **report.figures,
    }
    refused = [answer for answer in answers if answer.status == 402]
    report.hold(bool(refused), "no call was refused: the cap was not tried")
    report.hold(
        all("budget_exhausted" in answer.body for answer in refused), "refused for another reason"
    )
    if kill:
        # None where the one that was killed had just nothing to do: then the run shows less.
        report.figures["connections that the kill broke"] = sum(
            answer.status == 0 for answer in answers
        )
    return report


def main() -> None:
    """Run, print the figures, end with 1 where anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overspend", description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--cap", type=float, default=5.0)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="overspend-"))
    try:
        print(describe_machine(scratch), flush=True)
        with contextlib.ExitStack() as stack:
            database = ""
            if given.store == "postgresql":
                server = stack.enter_context(PostgresServer(scratch / "postgres"))
                database = stack.enter_context(server.database())
            report = overspend(
                scratch / "root", calls=given.calls, cap_usd=given.cap, database=database,
                kill=given.kill, seed=given.seed,
            )  # fmt: skip
        print(f"{given.store}{', one of two servers killed' if given.kill else ''}\n{report}")
        sys.exit(1 if report.problems else 0)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
