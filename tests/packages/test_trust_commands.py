"""``trust`` and ``key``, run on a real root."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.ledger import LedgerClient, ledger_key, open_root_ledger
from remit.packages import PackageError, PackageKey
from remit.packages.trust import TrustPolicy
from tests.packages.hostile import remit
from tests.packages.making import key_of
from tests.support.commands import run_remit


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = Root(tmp_path / "root")
    place.create()
    settings = load_settings(place.config).settings.ledger
    ledger_key(place, settings).create()
    open_root_ledger(place, settings, create=True).close()
    return place.path


def run(root: Path, *arguments: str, group: str = "trust") -> CompletedProcess[str]:
    return run_remit("package", group, *arguments, "--root", root)


def ok(root: Path, *arguments: str, group: str = "trust") -> str:
    done = run(root, *arguments, group=group)
    assert done.returncode == 0, done
    return done.stdout


def wrong(root: Path, *arguments: str, group: str = "trust") -> str:
    code, error, said = remit(root, [group, *arguments])
    assert code == 1
    assert isinstance(error, PackageError), said
    return error.code


def entries(root: Path) -> list[str]:
    with LedgerClient(root / "ledger.db", create=False) as ledger:
        return [entry.reason for entry in ledger.read_by_submission("trust.json")]


def test_keys_are_made_and_shown(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "team.pem"
    made = run(root, "new", "--out", str(file), "--name", "team", group="key")
    assert made.returncode == 0
    public = PackageKey.load(file).public
    assert made.stdout == f"{public}\n"
    assert str(file) in made.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert ok(root, "show", str(file), group="key") == f"{public}\n"
    assert json.loads(ok(root, "show", str(file), "--json", group="key")) == {
        "key_id": PackageKey.load(file).key_id, "name": "team", "public": public,
    }  # fmt: skip
    again = ("new", "--out", str(file), "--name", "team")
    assert wrong(root, *again, group="key") == "key_exists"
    assert wrong(root, "show", str(tmp_path / "none"), group="key") == "key_missing"
    own = PackageKey.create(root / "HOT/keys/packages.pem", "root")
    assert ok(root, "show", group="key") == f"{own.public}\n"


def test_trust_from_the_first_key_to_a_rotation(root: Path, tmp_path: Path) -> None:
    assert ok(root, "show") == "threshold: 1\n"
    old = key_of(tmp_path / "old.pem", b"o" * 32)
    new = key_of(tmp_path / "new.pem", b"n" * 32)
    told = ok(root, "add", old.public, "--name", "team 2029")
    assert re.match(
        rf"key {old.key_id[:8]}… \(team 2029\) is trusted for all packages \(LED-[0-9a-f]{{8}}\)\n",
        told,
    )
    assert ok(root, "add", old.public, "--name", "team 2029").startswith("no change: ")
    added = json.loads(
        ok(root, "add", new.public, "--name", "team 2030", "--packages", "PKG-ACME-*",
           "--packages", "PKG-B-001", "--json")
    )  # fmt: skip
    assert added["changed"].endswith("(team 2030) is trusted for PKG-ACME-*, PKG-B-001")
    renamed = ok(root, "add", new.public, "--name", "ACME 2030")  # its packages stay
    assert "(ACME 2030) is trusted for PKG-ACME-*, PKG-B-001" in renamed
    ok(root, "add", new.public, "--name", "team 2030")
    assert ok(root, "threshold", "2").startswith("2 trusted keys have to sign, before 1")
    assert wrong(root, "retire", old.key_id) == "threshold_unreachable"
    assert wrong(root, "threshold", "3") == "threshold_unreachable"
    ok(root, "threshold", "1")
    ok(root, "retire", old.key_id[:12])
    shown = json.loads(ok(root, "show", "--json"))
    assert shown["threshold"] == 1
    assert {(one["name"], one["status"]) for one in shown["keys"]} == {
        ("team 2029", "retired"), ("team 2030", "active"),
    }  # fmt: skip
    assert run(root, "revoke", old.key_id).returncode == 2  # a reason is asked for
    ok(root, "revoke", old.key_id, "--reason", "laptop lost")
    assert wrong(root, "add", old.public, "--name", "again") == "revoked_key"
    lines = ok(root, "show").splitlines()
    assert any(re.search(r"team 2029 .* revoked .* \*( |$)", line) for line in lines)
    assert entries(root)[-1].endswith("(team 2029) is revoked: laptop lost")
    assert len(entries(root)) == 8


def test_a_changed_file_is_reported_and_restored(root: Path, tmp_path: Path) -> None:
    old = key_of(tmp_path / "old.pem", b"o" * 32)
    evil = key_of(tmp_path / "evil.pem", b"e" * 32)
    ok(root, "add", old.public, "--name", "team")
    file = root / "trust.json"
    kept = file.read_bytes()
    TrustPolicy.load(file).with_key(evil.public, "evil").save(file)
    assert wrong(root, "show") == "trust_changed"
    assert wrong(root, "add", evil.public, "--name", "evil") == "trust_changed"
    assert "team" in ok(root, "restore")
    assert file.read_bytes() == kept
    file.unlink()
    found = run(root, "show")
    assert (found.returncode, "is missing" in found.stderr) == (0, True)
    assert "team" in found.stdout
    assert json.loads(ok(root, "restore", "--json"))["keys"]
    assert file.read_bytes() == kept
