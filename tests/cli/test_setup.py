"""``remit setup`` and ``remit doctor``: from nothing to a call, and what is missing."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import LedgerClient
from tests.cli.conftest import Run, parsed
from tests.support.commands import require_said, run_remit
from tests.support.postgres import PostgresServer
from tests.support.roots import new_root
from tests.support.terminal import Terminal
from tests.support.upstream import Upstream, upstream as run_upstream

SECRET = "sk-of-the-provider"


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with run_upstream() as running:
        yield running


@pytest.fixture
def root(work: Path) -> Path:
    return new_root(work / ".remit")


@pytest.fixture
def nothing(tmp_path: Path) -> dict[str, str]:
    """An environment in which no provider is found."""
    return {"XDG_CACHE_HOME": str(tmp_path / "empty"), "OLLAMA_HOST": "127.0.0.1:9"}


def _exchange(root: Path, entry_id: str) -> Any:
    with LedgerClient(root / "ledger.db") as ledger:
        return ledger.read(entry_id).metadata


def test_from_nothing_to_a_call_with_a_key_and_its_cost(
    remit: Run, work: Path, upstream: Upstream, nothing: dict[str, str]
) -> None:
    env = {**nothing, "OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": f"{upstream.url}/v1"}
    told = parsed(remit("setup", "--budget-usd", "3", "--client", "langchain", "--json", **env))
    assert (told["provider"], told["model"]) == ("openai", "gpt-4o-mini")
    assert told["key"]["key"] in told["snippet"]
    assert "http://127.0.0.1:4000/v1" in told["snippet"]
    call, root = told["call"], work / ".remit"
    said = _exchange(root, call["exchange"])
    assert said["key_id"] == told["key"]["id"]
    assert (said["outcome"], said["cost_usd"]) == ("success", call["cost_usd"])
    assert call["cost_usd"] > 0
    spent = parsed(remit("budget", "show", "--key", "first", "--json"))
    assert (spent["limit_usd"], spent["spent_usd"]) == (3, call["cost_usd"])
    shown = parsed(remit("key", "show", told["console_key"]["name"], "--json"))
    assert (shown["name"], shown["role"]) == ("console", "operator")
    assert SECRET not in (root / "remit.toml").read_text()
    assert remit("gate", "check", "--all", "--enforce", **env).returncode == 0
    again = remit("setup", "--no-call", "--yes", **env)
    assert again.returncode == 0
    assert again.stdout.startswith("sk-remit-")
    assert "first-2" in again.stderr
    assert "operator key" not in again.stderr  # the first one is live


def test_a_failed_first_call_hides_no_key(
    remit: Run, work: Path, upstream: Upstream, nothing: dict[str, str]
) -> None:
    ordered = ("setup", "--base-url", f"{upstream.url}/v1", "--model")
    failed = remit(*ordered, "m@status=401", "--yes", **nothing)
    require_said(failed, "The first call failed with status ", "operator key 'console'")
    assert failed.stdout.startswith("sk-remit-")
    assert failed.stderr.index("sk-remit-") < failed.stderr.index("The first call failed")
    again = remit(*ordered, "m", "--yes", **nothing)
    assert again.returncode == 0, again.stderr
    assert "sk-remit-" not in again.stderr.replace(again.stdout.split()[0], "")


def test_a_failed_first_call_hides_no_key_in_json(
    remit: Run, work: Path, upstream: Upstream, nothing: dict[str, str]
) -> None:
    ordered = ("setup", "--base-url", f"{upstream.url}/v1", "--model", "m@status=401", "--json")
    failed = remit(*ordered, **nothing)
    require_said(failed, "The first call failed with status ")
    said = json.loads(failed.stdout)
    assert said["call"] is None
    for name in ("key", "console_key"):
        assert said[name]["key"].startswith("sk-remit-")


def test_setup_says_when_an_open_circuit_is_tried_again(
    remit: Run, work: Path, upstream: Upstream, nothing: dict[str, str]
) -> None:
    for _ in range(6):
        done = remit("setup", "--base-url", f"{upstream.url}/v1", "--model", "m@status=500",
                     "--yes", **nothing)  # fmt: skip
        assert done.returncode == 1
        if "its circuit is open" in done.stderr:
            break
    require_said(done, "its circuit is open")
    assert re.search(r"next: Try again in \d+ seconds\. The key ", done.stderr), done.stderr


def test_a_bad_amount_is_asked_again(work: Path, upstream: Upstream, tmp_path: Path) -> None:
    environment = {
        "XDG_CACHE_HOME": str(tmp_path),
        "OPENAI_API_KEY": SECRET,
        "OPENAI_BASE_URL": f"{upstream.url}/v1",
        "REMIT_ROOT": str(work / "root"),
    }
    command = [sys.executable, "-m", "remit", "setup", "--no-call", "--provider", "openai"]
    with Terminal(command, {**os.environ, **environment}) as terminal:
        question = "Budget of the key in US dollars"
        terminal.wait_for(question)
        terminal.type("much\r")
        terminal.wait_for("not an amount")
        terminal.wait_for(question)
        assert terminal.end("7\r") == 0
    spent = parsed(run_remit("budget", "show", "--key", "first", "--json", "--root", work / "root"))
    assert spent["limit_usd"] == 7


def test_a_key_of_the_provider_is_kept_only_when_asked_for(
    remit: Run, work: Path, nothing: dict[str, str]
) -> None:
    env = {**nothing, "ANTHROPIC_API_KEY": SECRET}
    require_said(
        remit("setup", "--no-call", "--yes", **env),
        "`remit serve` requires ANTHROPIC_API_KEY in its environment.",
        code=0,
    )
    config = work / ".remit" / "remit.toml"
    assert SECRET not in config.read_text()
    done = remit("setup", "--no-call", "--yes", "--save-key", **env)
    assert done.returncode == 0
    assert f'api_key = "{SECRET}"' in config.read_text()
    assert "in its environment" not in done.stderr
    assert config.stat().st_mode & 0o777 == 0o600
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 1, "No provider was found"),
        (["--provider", "openai"], 1, "Set OPENAI_API_KEY"),
        (["--provider", "opnai"], 2, "Did you mean openai?"),
        (["--provider", "ollama"], 1, "lists no model"),
        (["--base-url", "office.example"], 2, "not an http(s) URL"),
        (["--budget-usd", "much"], 2, "not an amount"),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_made(
    remit: Run, work: Path, nothing: dict[str, str], arguments: list[str], code: int, said: str
) -> None:
    done = remit("setup", *arguments, **nothing)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert not (work / ".remit").exists()


def test_without_a_terminal_nothing_is_asked(work: Path, nothing: dict[str, str]) -> None:
    """Standard input that never ends: it would wait for ever."""
    process = subprocess.Popen(
        [sys.executable, "-m", "remit", "setup", "--provider", "openai"],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=work, env=nothing,
    )  # fmt: skip
    with process:
        assert process.wait(120) == 1
        assert process.stderr is not None
        assert b"Set OPENAI_API_KEY" in process.stderr.read()


def _doctor(remit: Run, **env: str) -> tuple[int, dict[str, Any]]:
    done = remit("doctor", "--json", **env)
    return done.returncode, {check["check"]: check for check in json.loads(done.stdout)["checks"]}


def test_doctor_advises(remit: Run, root: Path) -> None:
    env = {"ANTHROPIC_API_KEY": "k"}
    code, checks = _doctor(remit, **env)
    assert code == 0, checks
    assert {check["state"] for check in checks.values()} <= {"ok", "advice"}
    (root / "remit.toml").chmod(0o644)
    remit("team", "create", "--name", "Red", "--budget-tokens", "0")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        env["REMIT_SERVER__PORT"] = str(taken.getsockname()[1])
        code, checks = _doctor(remit, **env)
    assert code == 0
    advised = {name for name, check in checks.items() if check["state"] == "advice"}
    assert advised == {"modes", "budgets", "port"}
    assert all(checks[name]["next_step"] for name in advised)
    assert "Red" in checks["budgets"]["message"]
    (root / "prices.toml").write_text("version = 2026-12-01\n")
    code, checks = _doctor(remit, **env)
    assert (code, checks["prices"]["state"]) == (1, "fail")


def test_a_root_remembers_that_its_ledger_is_in_a_database(
    remit: Run, work: Path, postgres: PostgresServer
) -> None:
    url = postgres.database()
    assert remit("init", REMIT_DATABASE_URL=url).returncode == 0
    for command in (["ledger", "stats"], ["init"], ["ask", "hi"], ["key", "list"]):
        done = remit(*command)
        assert done.returncode == 1, (command, done.stdout)
        assert "is in the PostgreSQL database" in done.stderr
        assert "Set REMIT_DATABASE_URL=" in done.stderr
    assert not (work / ".remit" / "ledger.db").exists()
    kept = (work / ".remit" / "ledger.place").read_text()
    assert "@" not in kept
    assert "postgresql://" not in kept
    assert remit("ledger", "stats", REMIT_DATABASE_URL=url).returncode == 0


def test_every_door_asks_the_provider_that_the_registry_names(
    remit: Run, work: Path, upstream: Upstream, nothing: dict[str, str]
) -> None:
    new_root(
        work / ".remit",
        f"""
[providers.acme]
kind = "openai"
base_url = "{upstream.url}/v1"

[routing.models.gpt-test-1]
provider = "acme"
served_as = "gpt-own"
""",
    )
    done = parsed(remit("ask", "--model", "gpt-test-1", "Hello", "--json", **nothing))
    assert done["response"] == "You said: Hello"
    checks = parsed(remit("doctor", "--json", REMIT_MODEL__DEFAULT="gpt-test-1", **nothing))
    said = {check["check"]: check["message"] for check in checks["checks"]}
    assert said["model"] == "acme/gpt-own"


def test_a_model_that_cannot_answer_has_one_line(
    remit: Run, root: Path, nothing: dict[str, str]
) -> None:
    done = remit("doctor", REMIT_MODEL__DEFAULT="gpt-5", **nothing)
    assert done.returncode == 1
    found = [line for line in done.stdout.splitlines() if "  model: " in line]
    assert [line.partition(" ")[0] for line in found] == ["FAIL"]
    assert "routing rules: present" in done.stdout
    assert "prices: table of 20" in done.stdout


def test_an_unknown_model_is_not_downloaded(remit: Run, root: Path) -> None:
    done = remit("model", "pull", "nosuch")
    assert done.returncode == 1
    assert "downloading" not in done.stderr
