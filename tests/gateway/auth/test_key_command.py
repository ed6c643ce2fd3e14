"""``remit key``, as a user runs it: a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.auth import AuthenticationError, AuthLimits, KeyStore
from remit.ledger import LedgerClient
from tests.support.commands import run_remit
from tests.support.roots import new_root

LIMITS = AuthLimits(revocation_s=0.5, stale_after_s=5, refused_log_s=60)


class Shell:
    """Runs ``remit key`` on a root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        new_root(root)

    def remit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_remit(*arguments, environment={"USER": "ann", "LOGNAME": "ann"})

    def key(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.remit("key", *arguments, "--root", str(self.root))

    def json(self, *arguments: str) -> Any:
        result = self.key(*arguments, "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def wrong(self, *arguments: str) -> str:
        result = self.key(*arguments)
        assert result.returncode == 2, result.stderr + result.stdout
        assert not result.stdout
        assert "Traceback" not in result.stderr
        return result.stderr

    def ledger(self) -> LedgerClient:
        (path,) = self.root.rglob("*.db")
        return LedgerClient(path, create=False)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "root")


def test_the_life_of_a_key(shell: Shell) -> None:
    made = shell.json(
        "create", "--name", "team-a", "--role", "operator", "--models", "gpt-4o*, gpt-4o*, o3",
        "--agents", "writer", "--tiers", "ho1,ho2", "--expires", "30d", "--user", "u",
        "--team", "t", "--organisation", "o",
    )  # fmt: skip
    assert list(made) == ["id", "name", "key"]
    assert re.fullmatch(r"sk-remit-[A-Za-z0-9_-]{43}", made["key"])
    assert re.fullmatch(r"KEY-[A-Z0-9]{16}", made["id"])
    with shell.ledger() as ledger, KeyStore(ledger, LIMITS) as keys:
        someone = keys.authenticate(made["key"])
        assert (someone.key_id, someone.name, someone.role) == (made["id"], "team-a", "operator")
        assert (someone.models, someone.agents) == (("gpt-4o*", "o3"), ("writer",))
        assert (someone.tiers, someone.user_id) == (("ho1", "ho2"), "u")
        assert (someone.team_id, someone.organisation_id) == ("t", "o")
        ends = datetime.fromisoformat(someone.expires_at)
        assert abs(ends - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=10)
        (entry,) = ledger.query(event_type="KEY_CREATED")
        assert entry.metadata["requested_by"] == "ann"

        (shown,) = shell.json("list")["keys"]
        assert shown["prefix"] == made["key"][:13]
        assert (shown["id"], shown["name"], shown["state"]) == (made["id"], "team-a", "live")
        assert shown["models"] == ["gpt-4o*", "o3"]
        table = shell.key("list").stdout.splitlines()
        assert len(table) == 2
        assert made["id"] in table[1]
        assert "team-a  operator" in table[1]

        again = shell.json("rotate", "team-a", "--grace", "1h")
        assert (again["id"], again["name"]) == (made["id"], "team-a")
        gone = shell.json("revoke", made["id"], "--reason", "over")
        assert gone == {"id": made["id"], "name": "team-a", "entry": gone["entry"]}
        assert ledger.read(gone["entry"]).reason == "over"
        assert shell.json("revoke", "team-a") == gone
    with shell.ledger() as ledger, KeyStore(ledger, LIMITS) as keys:
        for token in (made["key"], again["key"]):
            with pytest.raises(AuthenticationError):
                keys.authenticate(token)
    assert shell.json("list") == {"keys": []}
    (old,) = shell.json("list", "--all")["keys"]
    assert old["state"] == "revoked"
    both = json.dumps(old) + shell.key("list", "--all").stdout
    assert made["key"][13:] not in both
    assert again["key"][13:] not in both


def test_wrong_use(shell: Shell) -> None:
    for arguments, told in {
        ("create",): "--name",
        ("create", "--name", ""): "name",
        ("create", "--name", "k", "--role", "root"): "root",
        ("create", "--name", "k", "--expires", "soon"): "soon",
        ("create", "--name", "k", "--expires", "1999-01-01"): "in the past",
        ("create", "--name", "k", "--models", "a,,b"): "empty",
        ("create", "--name", "k", "--budget-usd", "much"): "much",
        ("create", "--name", "k", "--budget-usd", "NaN"): "NaN",
        ("create", "--name", "k", "--budget-usd", "-1"): "-1",
        ("rotate", "k", "--grace", "-5"): "-5",
        ("rotate", "k", "--grace", "5"): "15m",
    }.items():
        assert told in shell.wrong(*arguments), arguments
    assert shell.json("list", "--all") == {"keys": []}
