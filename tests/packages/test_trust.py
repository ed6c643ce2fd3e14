"""The list of trusted keys: what it may be, and how the ledger holds it."""

from __future__ import annotations

import copy
import json
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from remit.cli.package_trust import key as key_commands
from remit.cli.package_trust import trust
from remit.kernel.root import Root
from remit.kernel.schemas import shipped_schema
from remit.kernel.settings import load_settings
from remit.ledger import LedgerClient, LedgerEntry, ledger_key, open_root_ledger
from remit.packages import PackageError, PackageKey, TrustError
from remit.packages.trust import (
    TrustPolicy,
    change_trust,
    read_trust,
    recorded_trust,
    restore_trust,
    sync_trust,
    trust_problem,
)
from tests.packages.making import changing, key_of, sha256


@pytest.fixture(scope="module")
def ben(keys: dict[str, PackageKey]) -> PackageKey:
    return keys["ben"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "root"
    place.mkdir()
    return place / "trust.json"


def trusting(*keys: PackageKey, threshold: int = 1) -> TrustPolicy:
    policy = TrustPolicy()
    for key in keys:
        policy = policy.with_key(key.public, key.name)
    return policy.with_threshold(threshold)


def code(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(PackageError) as caught:
        call(*arguments)
    assert caught.value.next_step
    assert caught.value.message.isprintable()
    return caught.value.code


def add(path: Path, ledger: LedgerClient, key: PackageKey) -> str:
    made = change_trust(path, ledger, lambda policy: policy.with_key(key.public, key.name), by="me")
    return made[1]


def revoking(key: PackageKey) -> Callable[[TrustPolicy], TrustPolicy]:
    return lambda policy: policy.with_status(key.key_id, "revoked")


# -- the policy ------------------------------------------------------------------------


def test_a_policy_is_saved_and_read_back(keys: dict[str, PackageKey], path: Path) -> None:
    assert TrustPolicy.load(path) == TrustPolicy()
    ben = keys["ben"]
    policy = trusting(*keys.values(), threshold=3)
    policy = policy.with_key(ben.public, "ben", ["PKG-B-*", "PKG-C-001"])
    policy.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert TrustPolicy.load(path) == policy
    assert [file.name for file in path.parent.iterdir()] == ["trust.json"]
    value = json.loads(path.read_bytes())
    assert (value["schema_version"], value["threshold"]) == ("1.0", 3)
    assert [one["key_id"] for one in value["keys"]] == sorted(key.key_id for key in keys.values())
    found = next(one for one in value["keys"] if one["name"] == "ben")
    changed = datetime.strptime(found.pop("changed"), "%Y-%m-%dT%H:%M:%S%z")
    assert abs(datetime.now(UTC) - changed) < timedelta(days=1)
    assert found == {
        "key_id": ben.key_id, "name": "ben", "public": ben.public, "status": "active",
        "packages": ["PKG-B-*", "PKG-C-001"],
    }  # fmt: skip


def test_changes_leave_the_old_policy_as_it_was(anna: PackageKey, ben: PackageKey) -> None:
    first = trusting(anna, ben)
    kept = first.encoded()
    retired = first.with_status(anna.key_id, "retired")
    assert first.encoded() == kept
    assert retired.find(anna.key_id[:8]).status == "retired"
    # What changes nothing gives the same, times included.
    assert first.with_key(anna.public, "anna") is first
    assert retired.with_status(anna.key_id, "retired") is retired
    assert first.with_threshold(1) is first
    again = retired.with_key(anna.public, "anna")
    assert again.find(anna.key_id).status == "active"
    revoked = first.with_status(anna.key_id, "revoked")
    assert revoked.with_status(anna.key_id, "revoked") is revoked
    assert code(revoked.with_key, anna.public, "anna") == "revoked_key"
    assert code(revoked.with_status, anna.key_id, "retired") == "revoked_key"


def test_a_threshold_stays_within_reach(keys: dict[str, PackageKey]) -> None:
    anna, ben, carl, _ = keys.values()
    two = trusting(anna, ben, threshold=2)
    for policy, method, *arguments in (
        (two, "with_status", anna.key_id, "retired"),
        (two, "with_status", anna.key_id, "revoked"),
        (two, "with_threshold", 3),
        (two, "with_threshold", 0),
        (trusting(anna), "with_status", anna.key_id, "revoked"),
        (TrustPolicy(), "with_threshold", 2),
    ):
        assert code(getattr(policy, str(method)), *arguments) == "threshold_unreachable"
    rotated = two.with_key(carl.public, "carl").with_status(anna.key_id, "retired")
    value = json.loads(rotated.encoded())
    value["threshold"] = 3  # more than there are: nothing can be installed, and that is safe
    unreachable = TrustPolicy.parse(json.dumps(value).encode())
    for policy in (rotated, unreachable):
        revoked = policy.with_status(anna.key_id, "revoked")
        assert revoked.find(anna.key_id).status == "revoked"


def test_changes_that_cannot_be_made(keys: dict[str, PackageKey]) -> None:
    anna, ben, carl, _ = keys.values()
    policy = trusting(anna, ben)
    for arguments, expected in (
        ((carl.public, "anna"), "name_taken"),
        ((carl.public, "a\nb"), "bad_trust"),
        ((carl.public, ""), "bad_trust"),
        ((carl.public, "c", []), "bad_trust"),
        ((carl.public, "c", ["pkg-*"]), "bad_trust"),
        (("ed25519:x", "c"), "bad_key"),
    ):
        assert code(policy.with_key, *arguments) == expected
    for given in ("0" * 64, anna.key_id[:7], ""):
        assert code(policy.find, given) == "no_such_key"


BAD_POLICIES = [
    changing("schema_version", to="2.0"),
    *(changing("threshold", to=value) for value in (0, True, "1")),
    changing("comment", to="x"),
    *(changing("keys", 0, "status", to=value) for value in ("trusted", "active ")),
    changing("keys", 0, "note", to=""),
    *(changing("keys", 0, "packages", to=value) for value in ("*", ["PKG-A\n"])),
    changing("keys", 0, "name", to="a\u202eb"),
    changing("keys", 0, "key_id", to="0" * 64),
    *(
        changing("keys", 0, "public", to=f"ed25519:{value}")
        for value in ("0" * 64, "0" * 63 + "\n")
    ),
    changing("keys", 0, "changed", to="yesterday"),
    lambda value: value["keys"].reverse(),
    lambda value: value["keys"].append(value["keys"][-1]),
    lambda value: value["keys"].append({**value["keys"][-1], "name": "twin"}),
    lambda value: value["keys"][0].update(name=value["keys"][1]["name"]),
    lambda value: value.pop("threshold"),
]


def test_files_that_are_no_policy(anna: PackageKey, ben: PackageKey, path: Path) -> None:
    right = json.loads(trusting(anna, ben).encoded())
    files = [b"", b"\xff", b"[", b"[" * 99_999, b'{"keys":[],"keys":[]}', b"[]"]
    for change in BAD_POLICIES:
        value: Any = copy.deepcopy(right)
        change(value)
        files.append(json.dumps(value).encode())
    for data in files:
        path.write_bytes(data)
        with pytest.raises(TrustError, match=str(path)) as caught:
            TrustPolicy.load(path)
        assert caught.value.code == "bad_trust", data[:1000]
        assert caught.value.message.isprintable()
    path.unlink()
    path.mkdir()
    assert code(TrustPolicy.load, path) == "bad_trust"
    assert code(TrustPolicy().save, path) == "trust_unwritable"


def test_the_schema_describes_every_property() -> None:
    def visit(inner: Any) -> None:
        assert inner["description"]
        if inner.get("type") == "object":
            assert inner["additionalProperties"] is False
            assert set(inner["required"]) == set(inner["properties"])
        for child in [*inner.get("properties", {}).values(), inner.get("items")]:
            if child is not None:
                visit(child)

    visit(shipped_schema("trust"))


# -- on record -------------------------------------------------------------------------


def test_a_change_goes_on_record_and_into_the_file(
    ledger: LedgerClient, path: Path, keys: dict[str, PackageKey]
) -> None:
    anna, ben, carl, _ = keys.values()
    assert (recorded_trust(ledger), trust_problem(path, ledger)) == ("", "")
    assert read_trust(path, ledger) == TrustPolicy()
    entry = ledger.read(add(path, ledger, anna))
    assert (entry.event_type, entry.submission_id, entry.decision, entry.reason) == (
        "CONFIG_CHANGED", "trust.json", "CHANGED",
        f"key {anna.key_id[:8]}… (anna) is trusted for all packages",
    )  # fmt: skip
    assert entry.metadata == {
        "file": "trust.json", "sha256": sha256(path.read_bytes()), "by": "me",
        "policy": path.read_text(),
    }  # fmt: skip
    # What changes nothing is not recorded, and what cannot be changed changes nothing.
    before, count = path.read_bytes(), ledger.count()
    again = change_trust(path, ledger, lambda policy: policy.with_key(anna.public, "anna"), "me")
    assert again[1:] == ("", "")
    assert code(change_trust, path, ledger, revoking(anna), "me") == "threshold_unreachable"
    assert (path.read_bytes(), ledger.count()) == (before, count)
    add(path, ledger, ben)
    gone = change_trust(path, ledger, revoking(anna), "me", reason="laptop lost")
    assert gone[2] == f"key {anna.key_id[:8]}… (anna) is revoked: laptop lost"
    assert recorded_trust(ledger) == sha256(path.read_bytes())
    assert read_trust(path, ledger) == gone[0] == TrustPolicy.load(path)
    patterns = [f"PKG-{letter}-*" for letter in "ABCDE"]
    both = change_trust(
        path,
        ledger,
        lambda policy: policy.with_key(carl.public, "carl", patterns).with_threshold(2),
        "me",
    )
    assert both[2].endswith(
        "(carl) is trusted for PKG-A-*, PKG-B-*, PKG-C-* and 2 more; "
        "2 trusted keys have to sign, before 1"
    )
    assert ledger.verify_chain()[0]


def test_a_file_that_was_changed_by_hand_is_not_believed(
    ledger: LedgerClient, path: Path, anna: PackageKey, ben: PackageKey
) -> None:
    path.write_bytes(trusting(ben).encoded())
    for call in (read_trust, sync_trust):
        assert code(call, path, ledger) == "trust_changed"
    assert code(restore_trust, path, ledger) == "nothing_recorded"
    assert "was not made by Remit" in trust_problem(path, ledger)
    path.unlink()
    entry = add(path, ledger, anna)
    kept = path.read_bytes()
    for content in (trusting(anna, ben).encoded(), kept + b"\n", b""):
        path.write_bytes(content)
        assert entry in trust_problem(path, ledger)
        for call, *more in ((read_trust,), (sync_trust,), (add, ben)):
            assert code(call, path, ledger, *more) == "trust_changed"
        assert path.read_bytes() == content
        assert restore_trust(path, ledger).keys
        assert (path.read_bytes(), trust_problem(path, ledger)) == (kept, "")


def test_an_older_file_or_none_never_counts(
    ledger: LedgerClient, path: Path, anna: PackageKey, ben: PackageKey
) -> None:
    """Whoever puts back the file in which a revoked key was active gains nothing."""
    add(path, ledger, anna)
    older = path.read_bytes()
    add(path, ledger, ben)
    newest = change_trust(path, ledger, revoking(anna), "me")[0]
    path.write_bytes(older)
    assert "is older than the recorded one" in trust_problem(path, ledger)
    assert read_trust(path, ledger) == newest
    assert path.read_bytes() == older
    path.unlink()
    assert "is missing" in trust_problem(path, ledger)
    assert sync_trust(path, ledger) == newest
    assert (TrustPolicy.load(path), trust_problem(path, ledger)) == (newest, "")
    path.write_bytes(older)
    assert change_trust(path, ledger, lambda policy: policy, "me")[0] == newest
    assert TrustPolicy.load(path) == newest


KILLED = """
import os, signal, sys
from pathlib import Path
from remit.ledger import LedgerClient
from remit.packages import trust_policy
from remit.packages.trust import change_trust

path, database, public, where = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if where == "before the file":
    trust_policy.replace_file = die
elif where == "within the file":
    os.replace = die
with LedgerClient(database) as ledger:
    change_trust(Path(path), ledger, lambda policy: policy.with_key(public, "ben"), "me")
    die()
"""


@pytest.mark.parametrize("where", ["before the file", "within the file", "after the file"])
def test_a_process_that_is_killed_leaves_what_the_next_one_finishes(
    path: Path, anna: PackageKey, ben: PackageKey, tmp_path: Path, where: str
) -> None:
    database = tmp_path / "ledger.db"
    with LedgerClient(database) as ledger:
        add(path, ledger, anna)
    before = path.read_bytes()
    died = subprocess.run(
        [sys.executable, "-c", KILLED, path, database, ben.public, where], check=False
    )
    assert died.returncode == -signal.SIGKILL
    with LedgerClient(database) as ledger:
        assert len(read_trust(path, ledger).keys) == 2
        if where != "after the file":
            assert path.read_bytes() == before
            assert "was not finished" in trust_problem(path, ledger)
        sync_trust(path, ledger)
        assert len(TrustPolicy.load(path).keys) == 2
        assert trust_problem(path, ledger) == ""
        assert [file.name for file in path.parent.iterdir()] == ["trust.json"]
        assert ledger.verify_chain()[0]


def test_two_changes_at_once_do_not_undo_each_other(
    ledger: LedgerClient, path: Path, anna: PackageKey, ben: PackageKey
) -> None:
    """Two machines have one ledger and no lock in common."""

    def meanwhile(policy: TrustPolicy) -> TrustPolicy:
        add(path, ledger, ben)
        return policy.with_key(anna.public, "anna")

    assert code(change_trust, path, ledger, meanwhile, "me") == "trust_moved"
    assert [one.name for one in read_trust(path, ledger).keys] == ["ben"]
    assert trust_problem(path, ledger) == ""


def test_a_list_too_long_for_the_record(
    ledger: LedgerClient, path: Path, keys: dict[str, PackageKey]
) -> None:
    patterns = [f"PKG-{'A' * 120}-{number}" for number in range(100)]
    add(path, ledger, keys["anna"])
    before, count = path.read_bytes(), ledger.count()

    def many(policy: TrustPolicy) -> TrustPolicy:
        for number in range(6):
            public = key_of(path.parent / "k", bytes([9 + number]) * 32).public
            policy = policy.with_key(public, f"key {number}", patterns)
        return policy

    assert code(change_trust, path, ledger, many, "me") == "too_many_keys"
    assert (path.read_bytes(), ledger.count()) == (before, count)


def test_a_record_that_does_not_hold_what_it_states(
    ledger: LedgerClient, path: Path, anna: PackageKey
) -> None:
    add(path, ledger, anna)
    stated = {"file": "trust.json", "sha256": sha256(path.read_bytes()), "by": "x", "policy": "{}"}
    ledger.write(LedgerEntry("CONFIG_CHANGED", "trust.json", "CHANGED", "x", metadata=stated))
    assert code(read_trust, path, ledger) == "trust_unreadable"
    assert code(restore_trust, path, ledger) == "trust_unreadable"
    assert json.loads(path.read_bytes())["keys"]


# -- ``trust`` and ``key``, run on a real root ---------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = Root(tmp_path / "root")
    place.create()
    settings = load_settings(place.config).settings.ledger
    ledger_key(place, settings).create()
    open_root_ledger(place, settings, create=True).close()
    return place.path


def run(root: Path, *arguments: str, group: object = trust) -> Result:
    command, *rest = arguments
    return CliRunner().invoke(group, [command, "--root", str(root), *rest])  # type: ignore[arg-type]


def ok(root: Path, *arguments: str, group: object = trust) -> str:
    found = run(root, *arguments, group=group)
    assert found.exit_code == 0, (found.output, found.exception)
    return found.stdout


def wrong(root: Path, *arguments: str, group: object = trust) -> str:
    found = run(root, *arguments, group=group)
    assert found.exit_code == 1
    assert isinstance(found.exception, PackageError), found.exception
    return found.exception.code


def entries(root: Path) -> list[str]:
    with LedgerClient(root / "ledger.db", create=False) as ledger:
        return [entry.reason for entry in ledger.read_by_submission("trust.json")]


def test_keys_are_made_and_shown(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "team.pem"
    made = run(root, "new", "--out", str(file), "--name", "team", group=key_commands)
    assert made.exit_code == 0
    public = PackageKey.load(file).public
    assert made.stdout == f"{public}\n"
    assert str(file) in made.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert ok(root, "show", str(file), group=key_commands) == f"{public}\n"
    assert json.loads(ok(root, "show", str(file), "--json", group=key_commands)) == {
        "key_id": PackageKey.load(file).key_id, "name": "team", "public": public,
    }  # fmt: skip
    again = ("new", "--out", str(file), "--name", "team")
    assert wrong(root, *again, group=key_commands) == "key_exists"
    assert wrong(root, "show", str(tmp_path / "none"), group=key_commands) == "key_missing"
    own = PackageKey.create(root / "HOT/keys/packages.pem", "root")
    assert ok(root, "show", group=key_commands) == f"{own.public}\n"


def test_trust_from_the_first_key_to_a_rotation(root: Path, tmp_path: Path) -> None:
    assert ok(root, "show") == "a package must be signed by 1 trusted key\nno key is trusted\n"
    old = key_of(tmp_path / "old.pem", b"o" * 32)
    new = key_of(tmp_path / "new.pem", b"n" * 32)
    told = ok(root, "add", old.public, "--name", "team 2029")
    assert re.fullmatch(
        rf"key {old.key_id[:8]}… \(team 2029\) is trusted for all packages \(LED-[0-9a-f]{{8}}\)\n",
        told,
    )
    assert "no change" in ok(root, "add", old.public, "--name", "team 2029")
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
    assert run(root, "revoke", old.key_id).exit_code == 2  # a reason is asked for
    ok(root, "revoke", old.key_id, "--reason", "laptop lost")
    assert wrong(root, "add", old.public, "--name", "again") == "revoked_key"
    lines = ok(root, "show").splitlines()
    assert any(re.search(r"team 2029  revoked  since \S+Z  \*$", line) for line in lines)
    assert entries(root)[-1].endswith("(team 2029) is revoked: laptop lost")
    assert len(entries(root)) == 8


@pytest.mark.parametrize("public", ["x", "ed25519:abc", "a" * 64])
def test_wrong_use(root: Path, public: str) -> None:
    found = run(root, "add", public, "--name", "x")
    assert (found.exit_code, "64 hex digits" in found.stderr) == (2, True)
    assert not entries(root)


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
    assert (found.exit_code, "is missing" in found.stderr) == (0, True)
    assert "team" in found.stdout
    assert json.loads(ok(root, "restore", "--json"))["keys"]
    assert file.read_bytes() == kept
