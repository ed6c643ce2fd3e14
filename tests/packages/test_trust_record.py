"""Trust on record: the ledger first, and whoever comes after a death finishes it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from remit.ledger import LedgerClient
from remit.packages.errors import TrustError
from remit.packages.package_key import PackageKey
from remit.packages.trust import (
    TrustPolicy,
    change_trust,
    read_trust,
    recorded_trust,
    restore_trust,
    sync_trust,
    trust_problem,
)
from tests.packages.making import sha256
from tests.packages.test_signing import key_of


@pytest.fixture
def key(tmp_path: Path) -> PackageKey:
    return key_of(tmp_path / "anna.pem", b"a" * 32, "anna")


@pytest.fixture
def other(tmp_path: Path) -> PackageKey:
    return key_of(tmp_path / "ben.pem", b"b" * 32, "ben")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "root"
    place.mkdir()
    return place / "trust.json"


def add(path: Path, ledger: LedgerClient, key: PackageKey) -> str:
    made = change_trust(path, ledger, lambda policy: policy.with_key(key.public, key.name), by="me")
    return made.entry_id


def code(call: object, *arguments: object) -> str:
    with pytest.raises(TrustError) as caught:
        call(*arguments)  # type: ignore[operator]
    assert caught.value.next_step
    return caught.value.code


def test_a_change_goes_on_record_and_into_the_file(
    ledger: LedgerClient, path: Path, key: PackageKey, other: PackageKey
) -> None:
    assert (recorded_trust(ledger), trust_problem(path, ledger)) == ("", "")
    assert read_trust(path, ledger) == TrustPolicy()
    first = add(path, ledger, key)
    entry = ledger.read(first)
    assert (entry.event_type, entry.submission_id) == ("CONFIG_CHANGED", "trust.json")
    assert (entry.decision, entry.reason) == (
        "CHANGED", f"key {key.key_id[:8]}… (anna) is trusted for all packages",
    )  # fmt: skip
    assert entry.metadata == {
        "file": "trust.json", "sha256": sha256(path.read_bytes()), "by": "me",
        "policy": path.read_text(),
    }  # fmt: skip
    assert recorded_trust(ledger) == sha256(path.read_bytes())
    add(path, ledger, other)
    gone = change_trust(
        path,
        ledger,
        lambda policy: policy.with_status(key.key_id, "revoked"),
        "me",
        reason="laptop lost",
    )
    assert gone.what == f"key {key.key_id[:8]}… (anna) is revoked: laptop lost"
    assert recorded_trust(ledger) == gone.policy.digest == sha256(path.read_bytes())
    assert read_trust(path, ledger) == gone.policy == TrustPolicy.load(path)
    both = change_trust(
        path,
        ledger,
        lambda policy: policy.with_key(key_of(path.with_name("c"), b"c" * 32).public, "carl",
                                       [f"PKG-{n}-*" for n in "ABCDE"]).with_threshold(2),
        "me",
    )  # fmt: skip
    assert both.what.endswith(
        "(carl) is trusted for PKG-A-*, PKG-B-*, PKG-C-* and 2 more; "
        "2 trusted keys have to sign, before 1"
    )
    assert ledger.verify_chain()[0]


def test_what_changes_nothing_is_not_recorded(
    ledger: LedgerClient, path: Path, key: PackageKey
) -> None:
    add(path, ledger, key)
    count = ledger.count()
    again = change_trust(path, ledger, lambda policy: policy.with_key(key.public, "anna"), "me")
    assert (again.entry_id, again.what, ledger.count()) == ("", "", count)


def test_what_cannot_be_changed_leaves_both_as_they_were(
    ledger: LedgerClient, path: Path, key: PackageKey
) -> None:
    add(path, ledger, key)
    before, count = path.read_bytes(), ledger.count()
    refused = code(
        change_trust, path, ledger, lambda policy: policy.with_status(key.key_id, "revoked"), "me"
    )
    assert refused == "threshold_unreachable"
    assert (path.read_bytes(), ledger.count()) == (before, count)


def test_a_file_that_was_changed_by_hand_is_not_believed(
    ledger: LedgerClient, path: Path, key: PackageKey, other: PackageKey
) -> None:
    path.write_bytes(TrustPolicy().with_key(other.public, "ben").encoded())
    for call in (read_trust, sync_trust):
        assert code(call, path, ledger) == "trust_changed"
    assert code(restore_trust, path, ledger) == "nothing_recorded"
    assert "was not made by Remit" in trust_problem(path, ledger)
    path.unlink()
    entry = add(path, ledger, key)
    kept = path.read_bytes()
    for content in (
        TrustPolicy.load(path).with_key(other.public, "ben").encoded(), kept + b"\n", b"",
    ):  # fmt: skip
        path.write_bytes(content)
        assert entry in trust_problem(path, ledger)
        assert code(read_trust, path, ledger) == "trust_changed"
        assert code(sync_trust, path, ledger) == "trust_changed"
        assert code(add, path, ledger, other) == "trust_changed"
        assert path.read_bytes() == content
        assert restore_trust(path, ledger).keys
        assert (path.read_bytes(), trust_problem(path, ledger)) == (kept, "")


def test_an_older_file_or_none_never_counts(
    ledger: LedgerClient, path: Path, key: PackageKey, other: PackageKey
) -> None:
    """Whoever puts back the file in which a revoked key was active gains nothing."""
    add(path, ledger, key)
    older = path.read_bytes()
    add(path, ledger, other)
    newest = change_trust(
        path, ledger, lambda policy: policy.with_status(key.key_id, "revoked"), "me"
    ).policy
    path.write_bytes(older)
    assert "is older than what is on record" in trust_problem(path, ledger)
    assert read_trust(path, ledger) == newest
    assert path.read_bytes() == older
    path.unlink()
    assert "is missing" in trust_problem(path, ledger)
    assert sync_trust(path, ledger) == newest
    assert (TrustPolicy.load(path), trust_problem(path, ledger)) == (newest, "")
    path.write_bytes(older)
    assert change_trust(path, ledger, lambda policy: policy, "me").policy == newest
    assert TrustPolicy.load(path) == newest


KILLED = """
import os, signal, sys
from pathlib import Path
from remit.ledger import LedgerClient
from remit.packages import trust_policy
from remit.packages.trust import change_trust

path, database, public, where = sys.argv[1:]
replace = os.replace

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
    path: Path, key: PackageKey, other: PackageKey, tmp_path: Path, where: str
) -> None:
    database = tmp_path / "ledger.db"
    with LedgerClient(database) as ledger:
        add(path, ledger, key)
    before = path.read_bytes()
    died = subprocess.run(
        [sys.executable, "-c", KILLED, path, database, other.public, where], check=False
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
    ledger: LedgerClient, path: Path, key: PackageKey, other: PackageKey
) -> None:
    """Two machines have one ledger and no lock in common."""

    def meanwhile(policy: TrustPolicy) -> TrustPolicy:
        add(path, ledger, other)
        return policy.with_key(key.public, "anna")

    assert code(change_trust, path, ledger, meanwhile, "me") == "trust_moved"
    assert [one.name for one in read_trust(path, ledger).keys] == ["ben"]
    assert trust_problem(path, ledger) == ""


def test_a_list_too_long_for_the_record(ledger: LedgerClient, path: Path, key: PackageKey) -> None:
    patterns = [f"PKG-{'A' * 120}-{number}" for number in range(100)]
    add(path, ledger, key)
    before, count = path.read_bytes(), ledger.count()

    def many(policy: TrustPolicy) -> TrustPolicy:
        for number in range(6):
            public = key_of(path.parent / "k", bytes([number]) * 32).public
            policy = policy.with_key(public, f"key {number}", patterns)
        return policy

    assert code(change_trust, path, ledger, many, "me") == "too_many_keys"
    assert (path.read_bytes(), ledger.count()) == (before, count)


def test_a_record_that_does_not_hold_what_it_says(
    ledger: LedgerClient, path: Path, key: PackageKey
) -> None:
    add(path, ledger, key)
    from remit.ledger import LedgerEntry

    told = {"file": "trust.json", "sha256": sha256(path.read_bytes()), "by": "x", "policy": "{}"}
    ledger.write(LedgerEntry("CONFIG_CHANGED", "trust.json", "CHANGED", "x", metadata=told))
    assert code(read_trust, path, ledger) == "trust_unreadable"
    assert code(restore_trust, path, ledger) == "trust_unreadable"
    assert json.loads(path.read_bytes())["keys"]
