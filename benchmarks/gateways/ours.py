"""How Remit is started: a new root, a virtual key with a budget, both records of each call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.gateways.environments import UnavailableError
from benchmarks.gateways.launch import Launch, bearer, chat_url
from benchmarks.gateways.processes import free_port
from benchmarks.gateways.target import Target
from benchmarks.gateways.wire import MODEL
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.ledger import open_root_ledger

BUDGET_USD = "100000"
_NAME, _SESSION, _ORDER = "bench", "SES-BENCH001", "WO-bench-1"
_USER, _TEAM, _ORGANISATION = "bench-user", "bench-team", "bench-organisation"
_CANDIDATES = {MODEL: (60, 0.15), "gpt-4.1": (76, 2.0), "gpt-4o": (70, 2.5)}


def remit(
    upstream: str,
    directory: Path,
    *,
    workers: int | None = None,
    environment: Mapping[str, str] | None = None,
    owners: bool = False,
    python: str = sys.executable,
) -> Launch:
    """A key with a budget in US dollars.

    Args:
        upstream: its base URL, without ``/v1``.
        directory: gets the root.
        workers: for ``--workers``; None leaves it out.
        environment: more variables, such as ``REMIT_DATABASE_URL``.
        owners: whether the key is given to a user of a team of an organisation.
        python: the interpreter, whose Remit is started.
    """
    port, root = free_port(), directory / "root"
    variables = {
        "OPENAI_BASE_URL": f"{upstream}/v1",
        "OPENAI_API_KEY": "x",
        **(environment or {}),
    }
    program: list[str | Path] = [python, "-m", "remit"]
    ask([*program, "init", root], variables)
    create = ["key", "create", "--name", _NAME, "--budget-usd", BUDGET_USD, "--json"]
    if owners:
        create += ["--user", _USER, "--team", _TEAM, "--organisation", _ORGANISATION]
    key = json.loads(ask([*program, *create, "--root", root], variables))["key"]
    command = [*program, "serve", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--root", root]
    if workers:
        command += ["--workers", str(workers)]
    return Launch(command, Target(chat_url(port), bearer(key)), variables)


def with_order(upstream: str, directory: Path) -> Launch:
    """Each call names a work order, sixteen calls the same one."""
    return _naming(remit(upstream, directory), {"x-remit-work-order": "WO-bench-{group}"})


def with_budgets(upstream: str, directory: Path) -> Launch:
    """Limits for the session, the work order, the agent, the key and all to whom it belongs."""
    launch = remit(upstream, directory, owners=True)
    limits = BudgetLimits(tokens=10**15, nano=10**15)
    scopes = (
        BudgetScope(_SESSION),
        BudgetScope(_SESSION, _ORDER),
        BudgetScope(_SESSION, _ORDER, _NAME),
        BudgetScope(user_id=_USER),
        BudgetScope(team_id=_TEAM),
        BudgetScope(organisation_id=_ORGANISATION),
    )
    root = Root(directory / "root")
    with open_root_ledger(root, load_settings(root.config).settings.ledger) as ledger:
        for scope in scopes:
            TokenBudgeter(ledger).allocate(scope, limits=limits)
    named = {"x-remit-session": _SESSION, "x-remit-work-order": _ORDER, "x-remit-agent": _NAME}
    return _naming(launch, named)


def routed(upstream: str, directory: Path) -> Launch:
    """The router chooses one of three models, and its decision is recorded."""
    launch = remit(upstream, directory)
    with (directory / "root" / "remit.toml").open("a") as settings:
        for name, (ability, usd) in _CANDIDATES.items():
            settings.write(
                f'\n[routing.models."{name}"]\nprovider = "openai"\n'
                f"abilities = {{ general = {ability} }}\ninput_usd_per_million = {usd}\n"
            )
    return replace(launch, target=replace(launch.target, model="auto"))


def _naming(launch: Launch, headers: dict[str, str]) -> Launch:
    target = launch.target
    return replace(launch, target=replace(target, headers=target.headers | headers))


def ask(command: Sequence[str | Path], environment: Mapping[str, str]) -> str:
    """What a command prints."""
    done = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        words = " ".join(str(part) for part in command[1:4])
        raise UnavailableError(f"{words} failed: {done.stderr.strip()[-300:]}")
    return done.stdout
