"""Virtual keys: made, found, rotated, revoked; on both stores."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.auth import AuthenticationError, AuthLimits, AuthUnavailableError, KeyStore
from remit.kernel.errors import ConflictError, InvalidInputError
from remit.kernel.loops import run_blocking
from remit.ledger import LedgerClient, Transaction
from remit.server.extensions import Authenticator, HttpError
from tests.support.commands import remit_json, require_said, run_remit
from tests.support.roots import new_root
from tests.support.stores import files_hold, outside
from tests.support.waiting import until

LIMITS = AuthLimits(revocation_s=0.5, stale_after_s=5, refused_log_s=60)


@pytest.fixture
def keys(ledger: LedgerClient) -> Iterator[KeyStore]:
    with KeyStore(ledger, LIMITS) as store:
        yield store


def _tomorrow() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


def _refused(keys: KeyStore, token: Any) -> bool:
    try:
        keys.authenticate(token)
    except AuthenticationError:
        return True
    return False


def test_only_the_very_key_counts(keys: KeyStore) -> None:
    key = keys.create("k").key

    def changed(place: int) -> str:
        return key[:place] + ("A" if key[place] != "A" else "B") + key[place:][1:]

    wrong = [
        None, "", "sk-remit-", key[:-1], key + "A", changed(51), changed(30), " " + key, key + "\n",
        key.upper(), changed(9), changed(0), "sk-remit-" + "A" * 43, "\u00e4" * 52,
        "\udc80" * 52, "\x00" * 52, key.encode(), 5, "x" * 1_000_000,
    ]  # fmt: skip
    assert all(_refused(keys, token) for token in wrong)
    assert keys.refused == len(wrong)
    assert keys.authenticate(key)
    assert keys.refused == len(wrong)


def test_an_unknown_key_that_the_server_gives_time_counts_once(ledger: LedgerClient) -> None:
    with KeyStore(ledger, LIMITS) as keys:
        authenticator = Authenticator(keys, "PRC-PASSTHROUGH-001", 0.01, lookup=keys.lookup)
        unknown = keys.create("k").key[:-1] + "~"
        for header in (b"sk-remit-short", unknown.encode(), b"other"):
            with pytest.raises(HttpError):
                run_blocking(authenticator.authenticate([(b"x-api-key", header)]))
        assert keys.refused == 3


def test_what_a_key_leaves_on_record(keys: KeyStore, ledger: LedgerClient) -> None:
    made = keys.create("k", models=["m"], user_id="u", expires=_tomorrow(), requested_by="ann")
    keys.rotate("k", grace_s=60, requested_by="bob")
    entry_id = keys.revoke("k", "lost laptop", requested_by="cy")
    first, second, last = ledger.read_all()
    assert [e.event_type for e in (first, second, last)] == [
        "KEY_CREATED",
        "KEY_CREATED",
        "KEY_REVOKED",
    ]
    assert {e.submission_id for e in (first, second, last)} == {made.key_id}
    found = keys.find("k")
    assert first.metadata == {
        "key_id": made.key_id,
        "name": "k",
        "prefix": made.key[:13],
        "requested_by": "ann",
        "role": "agent",
        "models": ["m"],
        "agents": [],
        "tiers": [],
        "expires": found.expires,
        "user_id": "u",
        "team_id": "",
        "organisation_id": "",
        "hash": hashlib.sha256(made.key.encode()).hexdigest(),
        "at": found.created,
        "changed": 1,
    }
    assert second.metadata["rotated"] is True
    assert second.metadata["at"] == found.rotated
    assert second.metadata["old_until"] > found.rotated
    assert second.metadata["prefix"] == found.prefix
    assert last.metadata == {
        "key_id": made.key_id,
        "name": "k",
        "prefix": found.prefix,
        "requested_by": "cy",
        "at": found.revoked,
        "changed": 3,
    }
    assert (last.id, last.reason) == (entry_id, "lost laptop")
    assert ledger.verify().verified


def test_the_secret_lies_nowhere(
    request: pytest.FixtureRequest,
    target: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    with LedgerClient(target) as ledger, KeyStore(ledger, LIMITS) as keys:
        made = [keys.create("k"), keys.rotate("k", grace_s=60)]
        keys.authenticate(made[0].key)
        wrong = made[1].key[:-2] + "__"
        with pytest.raises(AuthenticationError) as caught:
            keys.authenticate(wrong)
        shown = repr((keys, vars(keys), made, keys.list(), keys.find("k"), keys.authenticate))
        shown += str(caught.value) + repr(caught.value) + str([e.to_dict() for e in ledger.query()])
        secrets = [key.key.removeprefix(key.key[:13]) for key in (*made,)] + [wrong[13:]]
    place = tmp_path
    if target.startswith("postgresql://"):
        server = request.getfixturevalue("postgres")
        server.execute("CHECKPOINT")
        place = server.data
    assert files_hold(place, made[0].key[:13])  # the search does find what is there
    for secret in secrets:
        assert secret not in shown
        assert secret not in caplog.text
        assert not files_hold(place, secret)


def test_names_are_unique_among_keys_that_are_not_revoked(keys: KeyStore) -> None:
    first = keys.create("k")
    with pytest.raises(ConflictError, match="already"):
        keys.create("k")
    keys.revoke("k")
    second = keys.create("k")
    assert keys.find("k").key_id == second.key_id
    assert keys.find(first.key_id).revoked
    assert [key.key_id for key in keys.list()] == [second.key_id]
    assert {key.key_id for key in keys.list(include_revoked=True)} == {
        first.key_id,
        second.key_id,
    }


def test_a_revoked_key_ends_at_once_and_for_good(keys: KeyStore, ledger: LedgerClient) -> None:
    made = keys.create("k")
    entry_id = keys.revoke(made.key_id)
    assert _refused(keys, made.key)
    with pytest.raises(AuthenticationError):
        keys.identity_of(made.key_id)
    assert keys.revoke("k", "again") == keys.revoke(made.key_id) == entry_id
    assert ledger.count() == 2
    with pytest.raises(ConflictError, match="revoked"):
        keys.rotate("k")
    assert keys.list() == []


def test_a_rotated_key_is_the_same_key_with_another_secret(keys: KeyStore) -> None:
    first = keys.create("k", models=["m"])
    before = keys.authenticate(first.key)
    second = keys.rotate("k")
    assert (second.key_id, second.name) == (first.key_id, "k")
    assert second.key != first.key
    assert _refused(keys, first.key)
    assert keys.authenticate(second.key) == before
    assert keys.find("k").prefix == second.key[:13]


def test_the_old_secret_counts_for_its_grace(keys: KeyStore, ledger: LedgerClient) -> None:
    first = keys.create("k")
    second = keys.rotate("k", grace_s=60)
    third = keys.rotate("k", grace_s=0.3)
    assert _refused(keys, first.key)  # only one old secret at a time
    assert keys.authenticate(second.key).key_id == keys.authenticate(third.key).key_id
    with KeyStore(ledger, LIMITS) as other:  # reads it from the database
        assert other.authenticate(second.key)
        until(lambda: _refused(keys, second.key) and _refused(other, second.key))
        assert other.authenticate(third.key)
    assert keys.authenticate(third.key)
    keys.rotate("k", grace_s=60)
    keys.revoke("k")
    assert _refused(keys, third.key)


def test_an_expired_key_is_refused(keys: KeyStore, ledger: LedgerClient) -> None:
    made = keys.create("k", expires=datetime.now(UTC) + timedelta(seconds=0.4))
    with KeyStore(ledger, LIMITS) as other:
        assert other.authenticate(made.key)
        assert keys.authenticate(made.key)
        until(lambda: _refused(keys, made.key) and _refused(other, made.key))
    assert [key.state_at(ledger.wall_time) for key in keys.list()] == ["expired"]
    with pytest.raises(AuthenticationError):
        keys.identity_of(made.key_id)
    with pytest.raises(ConflictError, match="expired"):
        keys.rotate("k")
    with KeyStore(ledger, LIMITS) as later:
        assert _refused(later, made.key)
    keys.revoke("k")


def test_refusals_do_not_tell_why(keys: KeyStore) -> None:
    gone = keys.create("gone").key
    keys.revoke("gone")
    short = keys.create("short", expires=datetime.now(UTC) + timedelta(seconds=0.2)).key
    until(lambda: _refused(keys, short))
    told = set()
    for token in (gone, short, "sk-remit-" + "A" * 43, "nonsense"):
        with pytest.raises(AuthenticationError) as caught:
            keys.authenticate(token)
        told.add(str(caught.value))
    assert len(told) == 1


def test_what_belongs_to_a_key_is_done_with_it(keys: KeyStore, ledger: LedgerClient) -> None:
    def budget(tx: Transaction, key_id: str) -> dict[str, Any]:
        tx.execute("CREATE TABLE IF NOT EXISTS mine (key_id TEXT)")
        tx.execute("INSERT INTO mine VALUES (?)", (key_id,))
        return {"limits": {"usd": "5"}}

    made = keys.create("k", in_transaction=budget)
    (entry,) = ledger.read_all()
    assert entry.metadata["limits"] == {"usd": "5"}
    assert ledger.select("SELECT key_id FROM mine") == [(made.key_id,)]

    def broken(tx: Transaction, key_id: str) -> dict[str, Any]:
        budget(tx, key_id)
        raise InvalidInputError("no such budget")

    def meddling(tx: Transaction, key_id: str) -> dict[str, Any]:
        budget(tx, key_id)
        return {"role": "admin"}

    for call in (broken, meddling):
        with pytest.raises(InvalidInputError):
            keys.create("other", in_transaction=call)
    assert ledger.count() == 1
    assert len(ledger.select("SELECT key_id FROM mine")) == 1
    assert [key.name for key in keys.list()] == ["k"]
    keys.create("other")


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": " k"},
        {"name": "a\nb"},
        {"name": "\udc80"},
        {"name": "a\u200bb"},
        {"name": "a" * 129},
        {"name": 5},
        {"name": "KEY-0123456789ABCDEF"},
        {"role": "root"},
        {"team_id": "t" * 129},
        {"models": "gpt-4o"},
        {"models": [""]},
        {"agents": ["a\nb"]},
        {"tiers": ["ho3"]},
        {"expires": "2000-01-01T00:00:00Z"},
        {"expires": "2999-01-01T00:00:00"},
        {"expires": "soon"},
        {"requested_by": ""},
        {"models": [f"{n:04}" + "m" * 120 for n in range(600)]},
    ],
)
def test_what_cannot_be_a_key_is_an_error(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with LedgerClient(tmp_path / "ledger.db") as ledger, KeyStore(ledger, LIMITS) as keys:
        with pytest.raises(InvalidInputError):
            keys.create(**{"name": "k", **wrong})
        assert ledger.count() == 0
        assert keys.list() == []


def test_a_store_without_limits_lets_nobody_in(ledger: LedgerClient) -> None:
    before = threading.active_count()
    with KeyStore(ledger) as keys:
        made = keys.create("k")
        assert threading.active_count() == before
        with pytest.raises(AuthUnavailableError):
            keys.authenticate(made.key)


def test_limits_that_make_no_sense_are_refused() -> None:
    for wrong in ((0, 5, 60), (0.5, -1, 60), (0.5, 5, float("nan")), (0.5, 5, float("inf")),
                  (6, 5, 60)):  # fmt: skip
        with pytest.raises(InvalidInputError):
            AuthLimits(*wrong)


@pytest.mark.parametrize(
    "damage", ["hash = 'nonsense'", "models = '['", "tiers = '5'", "expires = 'soon'"]
)
def test_a_damaged_row_lets_nobody_in(target: str, damage: str) -> None:
    with LedgerClient(target) as ledger:
        with KeyStore(ledger) as keys:
            made = keys.create("k")
        outside(target, f"UPDATE virtual_keys SET {damage}")
        with pytest.raises(AuthUnavailableError, match=made.key_id):
            KeyStore(ledger, LIMITS)
        with pytest.raises(AuthUnavailableError, match=made.key_id):
            KeyStore(ledger).list()


# -- ``remit key``, as a user runs it: a process of its own ---------------------------------------


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("USER", "LOGNAME"):
        monkeypatch.setenv(name, "ann")
    return new_root(tmp_path / "root")


def test_the_life_of_a_key(root: Path) -> None:
    def key(*arguments: str) -> Any:
        return remit_json("key", *arguments, "--root", root)

    made = key(
        "create", "--name", "team-a", "--role", "operator", "--models", "gpt-4o*, gpt-4o*, o3",
        "--agents", "writer", "--tiers", "ho1,ho2", "--expires", "30d", "--user", "u",
        "--team", "t", "--organisation", "o",
    )  # fmt: skip
    assert list(made) == ["id", "name", "key"]
    assert re.fullmatch(r"sk-remit-[A-Za-z0-9_-]{43}", made["key"])
    assert re.fullmatch(r"KEY-[A-Z0-9]{16}", made["id"])
    with LedgerClient(root / "ledger.db") as ledger, KeyStore(ledger, LIMITS) as keys:
        someone = keys.authenticate(made["key"])
        assert (someone.key_id, someone.name, someone.role) == (made["id"], "team-a", "operator")
        assert (someone.models, someone.agents) == (("gpt-4o*", "o3"), ("writer",))
        assert (someone.tiers, someone.user_id) == (("ho1", "ho2"), "u")
        assert (someone.team_id, someone.organisation_id) == ("t", "o")
        ends = datetime.fromisoformat(someone.expires_at)
        assert abs(ends - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=10)
        (entry,) = ledger.query(event_type="KEY_CREATED")
        assert entry.metadata["requested_by"] == "ann"

        (shown,) = key("list")["keys"]
        assert shown["prefix"] == made["key"][:13]
        assert (shown["id"], shown["name"], shown["state"]) == (made["id"], "team-a", "live")
        assert shown["models"] == ["gpt-4o*", "o3"]
        table = run_remit("key", "list", "--root", root).stdout.splitlines()
        assert len(table) == 2
        assert made["id"] in table[1]
        assert "team-a  operator" in table[1]

        again = key("rotate", "team-a", "--grace", "1h")
        assert (again["id"], again["name"]) == (made["id"], "team-a")
        gone = key("revoke", made["id"], "--reason", "over")
        assert gone == {"id": made["id"], "name": "team-a", "entry": gone["entry"]}
        assert ledger.read(gone["entry"]).reason == "over"
        assert key("revoke", "team-a") == gone
    with LedgerClient(root / "ledger.db") as ledger, KeyStore(ledger, LIMITS) as keys:
        for token in (made["key"], again["key"]):
            with pytest.raises(AuthenticationError):
                keys.authenticate(token)
    assert key("list") == {"keys": []}
    (old,) = key("list", "--all")["keys"]
    assert old["state"] == "revoked"
    both = json.dumps(old) + run_remit("key", "list", "--all", "--root", root).stdout
    assert made["key"][13:] not in both
    assert again["key"][13:] not in both


def test_wrong_use(root: Path) -> None:
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
        done = run_remit("key", *arguments, "--root", root)
        require_said(done, told, code=2)
        assert not done.stdout
        assert "Traceback" not in done.stderr
    assert remit_json("key", "list", "--all", "--root", root) == {"keys": []}
