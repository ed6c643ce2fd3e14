"""The list of trusted keys: what it may be, and how the ledger holds it."""

from __future__ import annotations

import copy
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import LedgerClient, LedgerEntry
from remit.packages import PackageError, PackageKey, TrustError, trust_policy
from remit.packages.trust import (
    TrustPolicy,
    change_trust,
    read_trust,
    recorded_trust,
    restore_trust,
    sync_trust,
    trust_problem,
)
from tests.packages.install.killing import forked
from tests.packages.making import changing, sha256, trusting


@pytest.fixture(scope="module")
def ben(keys: dict[str, PackageKey]) -> PackageKey:
    return keys["ben"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "root"
    place.mkdir()
    return place / "trust.json"


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


def test_changes_that_cannot_be_made(keys: dict[str, PackageKey]) -> None:
    anna, ben, carl, _ = keys.values()
    policy = trusting(anna, ben)
    assert code(policy.with_key, carl.public, "anna") == "name_taken"
    for arguments in ((carl.public, "a\nb"), (carl.public, "c", []), (carl.public, "c", ["pkg-*"])):
        assert code(policy.with_key, *arguments) == "bad_trust"
    for given in ("0" * 64, anna.key_id[:7], ""):
        assert code(policy.find, given) == "no_such_key"


# -- the policy ------------------------------------------------------------------------


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
    assert "Remit did not write" in trust_problem(path, ledger)
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


@pytest.mark.parametrize("where", ["before the file", "within the file", "after the file"])
def test_a_process_that_is_killed_leaves_what_the_next_one_finishes(
    path: Path, anna: PackageKey, ben: PackageKey, tmp_path: Path, where: str
) -> None:
    database = tmp_path / "ledger.db"
    with LedgerClient(database) as ledger:
        add(path, ledger, anna)
    before = path.read_bytes()

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def doomed() -> None:
        if where == "before the file":
            trust_policy.replace_file = die
        elif where == "within the file":
            os.replace = die
        with LedgerClient(database) as ledger:
            add(path, ledger, ben)
            die()

    assert forked(doomed) == -signal.SIGKILL
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


def test_a_record_without_its_content(ledger: LedgerClient, path: Path, anna: PackageKey) -> None:
    add(path, ledger, anna)
    stated = {"file": "trust.json", "sha256": sha256(path.read_bytes()), "by": "x", "policy": "{}"}
    ledger.write(LedgerEntry("CONFIG_CHANGED", "trust.json", "CHANGED", "x", metadata=stated))
    assert code(read_trust, path, ledger) == "trust_unreadable"
    assert code(restore_trust, path, ledger) == "trust_unreadable"
    assert json.loads(path.read_bytes())["keys"]
