"""How soon a change counts, in this process and in others, and what happens without a database."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.auth import (
    AuthenticationError,
    AuthLimits,
    AuthUnavailableError,
    KeyStore,
)
from remit.gateway.auth.virtual_key import KeyRow
from remit.kernel.errors import RemitError
from remit.ledger import LedgerClient
from tests.support.postgres import PostgresServer
from tests.support.processes import Program
from tests.support.stores import outside
from tests.support.waiting import until

LIMITS = AuthLimits(revocation_s=0.5, stale_after_s=5, refused_log_s=60)

_CALLER = """
import sys, time
from remit.gateway.auth import AuthenticationError, AuthLimits, KeyStore
from remit.ledger import LedgerClient
with LedgerClient(sys.argv[1], create=False) as ledger:
    with KeyStore(ledger, AuthLimits(0.5, 5, 60)) as keys:
        print("in", keys.authenticate(sys.argv[2]).key_id, flush=True)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                keys.authenticate(sys.argv[2])
            except AuthenticationError:
                print("refused", time.monotonic(), flush=True)
                break
            time.sleep(0.001)
"""


def _lets_in(keys: KeyStore, token: str) -> bool:
    try:
        keys.authenticate(token)
    except RemitError:
        return False
    return True


def test_another_process_refuses_a_revoked_key_soon(target: str) -> None:
    with LedgerClient(target) as ledger, KeyStore(ledger) as keys:
        made = keys.create("k")
        with Program("-c", _CALLER, target, made.key, environment=os.environ) as caller:
            assert caller.stdout.readline().split() == ["in", made.key_id]
            time.sleep(0.7)  # it has looked at the database more than once since
            assert caller.poll() is None
            began = time.monotonic()  # one clock for all processes of a machine
            keys.revoke("k")
            word, moment = caller.stdout.read().split()
            assert word == "refused"
            assert float(moment) - began < 10  # half a second where nothing else runs
            assert caller.wait(60) == 0


def test_another_client_sees_new_keys_and_new_secrets(target: str) -> None:
    with (
        LedgerClient(target) as here,
        LedgerClient(target) as there,
        KeyStore(here, LIMITS) as keys,
        KeyStore(there, LIMITS) as others,
    ):
        first = keys.create("k")
        assert _lets_in(keys, first.key)
        until(lambda: _lets_in(others, first.key))
        second = others.rotate("k", grace_s=60)
        assert _lets_in(others, second.key)
        until(lambda: _lets_in(keys, second.key))
        assert _lets_in(keys, first.key)
        for made in (first, second):  # each by its own secret, the old one while it counts
            assert keys.identity_of(made.key_id, keys.mark_of(made.key)).name == "k"
        with pytest.raises(AuthenticationError):
            keys.identity_of(first.key_id, "")
        third = keys.create("l")
        others.revoke("k")
        until(lambda: not _lets_in(keys, second.key) and not _lets_in(keys, first.key))
        until(lambda: _lets_in(others, third.key))


def test_an_older_row_does_not_bring_a_key_back(target: str) -> None:
    with LedgerClient(target) as ledger, KeyStore(ledger, LIMITS) as keys:
        made = keys.create("k")
        (row,) = ledger.select(KeyRow.SELECT)
        keys.revoke("k")
        assert keys._cache is not None
        keys._cache.apply([KeyRow.of(row)])  # read before, arriving after
        assert not _lets_in(keys, made.key)


def test_a_restored_database_counts_as_it_is(target: str) -> None:
    with LedgerClient(target) as ledger, KeyStore(ledger, LIMITS) as keys:
        kept, lost = keys.create("kept"), keys.create("lost")
        for number in range(3):
            keys.create(f"later {number}")
        outside(
            target,
            "DELETE FROM virtual_keys WHERE changed > 1",
            "UPDATE key_epoch SET epoch = 1",
        )
        until(lambda: not _lets_in(keys, lost.key))
        assert _lets_in(keys, kept.key)


@pytest.mark.parametrize("way", ["tables gone", "rows unreadable"])
def test_nobody_is_let_in_when_keys_cannot_be_read_for_long(
    target: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    harm, mend = {
        "tables gone": (
            "ALTER TABLE key_epoch RENAME TO away",
            "ALTER TABLE away RENAME TO key_epoch",
        ),
        "rows unreadable": (
            "UPDATE virtual_keys SET models = 'x', changed = changed + 1",
            "UPDATE virtual_keys SET models = '[]'",
        ),
    }[way]
    limits = AuthLimits(revocation_s=0.1, stale_after_s=1.5, refused_log_s=60)
    with LedgerClient(target) as ledger, KeyStore(ledger, limits) as keys:
        made = keys.create("k")
        outside(target, harm)
        if way == "rows unreadable":
            outside(target, "UPDATE key_epoch SET epoch = epoch + 1")
        assert _lets_in(keys, made.key)  # for a while the last view counts
        until(lambda: not _lets_in(keys, made.key))
        with pytest.raises(AuthUnavailableError, match=r"1\.5 s"):
            keys.authenticate(made.key)
        with pytest.raises(AuthUnavailableError):
            keys.identity_of(made.key_id)
        assert keys.refused == 0  # nobody was found to be wrong
        outside(target, mend)
        until(lambda: _lets_in(keys, made.key))
    said = [record.getMessage() for record in caplog.records if record.name == "remit.auth"]
    assert len(said) == 2  # once when it failed, once when it was well again
    assert made.key not in caplog.text


def test_a_server_that_is_gone_lets_nobody_in_and_back_again_does(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path / "server")
    limits = AuthLimits(revocation_s=0.1, stale_after_s=1, refused_log_s=60)
    try:
        with LedgerClient(server.database()) as ledger, KeyStore(ledger, limits) as keys:
            made = keys.create("k")
            server.kill()
            until(lambda: not _lets_in(keys, made.key))
            server.start()
            until(lambda: _lets_in(keys, made.key), 60)
    finally:
        server.stop()


def test_a_store_whose_ledger_was_closed_lets_nobody_in(tmp_path: Path) -> None:
    ledger = LedgerClient(tmp_path / "ledger.db")
    keys = KeyStore(ledger, LIMITS)
    made = keys.create("k")
    ledger.close()
    until(lambda: not _lets_in(keys, made.key))
    keys.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_let_nobody_in_by(tmp_path: Path) -> None:
    with LedgerClient(tmp_path / "ledger.db") as ledger, KeyStore(ledger, LIMITS) as keys:
        made = keys.create("k")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                keys.authenticate(made.key)
            except AuthUnavailableError:
                keys.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert _lets_in(keys, made.key)


def test_refusals_are_told_as_a_number(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    limits = AuthLimits(revocation_s=0.1, stale_after_s=5, refused_log_s=600)
    with LedgerClient(tmp_path / "ledger.db") as ledger:
        with KeyStore(ledger, limits) as keys:
            assert not _lets_in(keys, "sk-remit-mine")
            until(lambda: "refused" in caplog.text)
            for _ in range(500):
                assert not _lets_in(keys, "sk-remit-mine")
            time.sleep(0.5)  # the next line is due in ten minutes, or at the end
            told = [record.getMessage() for record in caplog.records]
            assert told == ["refused 1 call without a valid key"]
        told = [record.getMessage() for record in caplog.records]
        assert told[1:] == ["refused 500 calls without a valid key"]
        assert "mine" not in caplog.text


def test_authenticating_never_asks_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LedgerClient(tmp_path / "ledger.db") as ledger, KeyStore(ledger, LIMITS) as keys:
        made = keys.create("k")
        callers: list[str] = []
        select = ledger.select

        def noted(*arguments: Any) -> list[tuple[Any, ...]]:
            callers.append(threading.current_thread().name)
            return select(*arguments)

        monkeypatch.setattr(ledger, "select", noted)
        until(lambda: bool(callers))
        for _ in range(100):
            keys.authenticate(made.key)
            keys.identity_of(made.key_id)
            with pytest.raises(AuthenticationError):
                keys.authenticate("sk-remit-none")
        assert set(callers) == {"remit-auth"}
