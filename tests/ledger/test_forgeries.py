"""What careful forgers and unlucky timings tried; each was once missed."""

from __future__ import annotations

import copy
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from remit.kernel.errors import InvalidInputError
from remit.kernel.root import Root
from remit.kernel.settings import default_settings
from remit.ledger import (
    Erased,
    LedgerClient,
    LedgerClosedError,
    LedgerEntry,
    LedgerError,
    LedgerFormatError,
    VerificationReport,
    masked,
    remember_place,
)
from remit.ledger.record_builder import prepare
from tests.support.postgres import PostgresServer
from tests.support.stores import SIGNER, conversation, files_hold, outside


def _verify(target: str, **more: Any) -> VerificationReport:
    with LedgerClient(target, verifier_key=SIGNER.verifier_key) as client:
        return client.verify(**more)


@pytest.fixture
def talked(target: str) -> str:
    with LedgerClient(target, signer=SIGNER) as client:
        for number in range(6):
            conversation(client, f"SES-{number}", 4)
    return target


@pytest.fixture(scope="module")
def long_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "ledger.db"
    with LedgerClient(path, signer=SIGNER) as client:
        for number in range(60):
            conversation(client, f"SES-{number}", 5)
        client.erase("LED-00000003", reason="r")
    return path


# -- rows where no range looks -------------------------------------------------------------------


def test_a_row_far_away_neither_passes_nor_stops_verification(talked: str) -> None:
    outside(talked, "UPDATE entries SET seq = 9223372036854775807 WHERE seq = 20")
    outside(talked, "UPDATE contents SET content_id = 4611686018427387904 WHERE content_id = 3")
    started = time.monotonic()
    report = _verify(talked)
    assert report.first_bad_seq == 1
    assert any(problem.seq == 20 and problem.kind == "gap" for problem in report.problems)
    assert time.monotonic() - started < 60


def test_a_tree_hash_put_in_beforehand_does_not_stop_the_ledger(target: str) -> None:
    with LedgerClient(target, signer=SIGNER) as client:
        client.write(LedgerEntry("N", "S", "D", "r", metadata={"prompt": "p"}))
        outside(target, "INSERT INTO tree_hashes VALUES (1, 0, (SELECT digest FROM contents))")
        client.write_many(LedgerEntry("N", "S", "D", "r") for _ in range(300))
        assert client.verify().verified


@pytest.mark.parametrize(
    "definition",
    [
        "CREATE TRIGGER sqlite_stat1 AFTER INSERT ON entries BEGIN DELETE FROM usage; END",
        "CREATE VIEW sqlite_stat1 AS SELECT seq AS tbl FROM entries",
        "CREATE TABLE sqlite_stat1(tbl, idx, stat, kept)",
    ],
)
def test_only_the_statistics_of_sqlite_may_have_their_name(
    tmp_path: Path, long_ledger: Path, definition: str
) -> None:
    target = shutil.copy(long_ledger, tmp_path / "ledger.db").as_posix()
    outside(target, "ANALYZE")
    assert _verify(target).verified
    kind = definition.split()[1].lower()
    on = "entries" if kind == "trigger" else "sqlite_stat1"
    page = "(SELECT rootpage FROM sqlite_schema WHERE name = 'migrations')"
    outside(
        target,
        "DROP TABLE sqlite_stat1",
        "PRAGMA writable_schema = ON",
        f"INSERT INTO sqlite_schema VALUES ('{kind}', 'sqlite_stat1', '{on}', "
        f"{page if kind == 'table' else 0}, '{definition}')",
    )
    said = [str(problem) for problem in _verify(target).problems]
    assert any("sqlite_stat1" in one for one in said), said


@pytest.mark.parametrize("table", ["entries", "migrations", "ledger_info", "holds"])
def test_a_view_without_end_in_the_place_of_a_table_is_not_read(talked: str, table: str) -> None:
    is_sqlite = "://" not in talked
    endless = (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
        "SELECT n AS seq, n AS version, n AS name, n AS value FROM r"
    )
    outside(
        talked,
        f"DROP TABLE {table} {'' if is_sqlite else 'CASCADE'}",
        f"CREATE VIEW {table.upper()} AS {endless}",
    )
    with pytest.raises(LedgerFormatError, match=f"a view in the place of the table {table}"):
        _verify(talked)


# -- unlucky timings -----------------------------------------------------------------------------


def test_an_erasure_and_a_write_of_the_same_text_in_one_commit(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LedgerClient(target, signer=SIGNER) as client:
        keys = frozenset(default_settings().ledger.content_keys)

        def said(session: str) -> LedgerEntry:
            return LedgerEntry("E", "S", "D", "r",
                               metadata={"session_id": session,
                                         "prompt": "the same words"})  # fmt: skip

        client.write(said("s1"))
        monkeypatch.setattr(client._store, "compact", lambda: (False, ""))

        def erase(tx: Any) -> Any:
            inner = copy.copy(client)
            monkeypatch.setattr(inner, "transact", lambda call: call(tx))
            return inner.erase(session_id="s1", reason="r", requested_by="x")

        results: list[Any] = []

        def both(tx: Any) -> None:
            results.append(erase(tx))
            tx.append(prepare(said("s1"), keys))

        client.transact(both)
        client.write(said("s2"))
        assert client.read("LED-00000002").metadata["prompt"] == "the same words"
        assert client.read("LED-00000000").metadata["prompt"] == Erased("LED-00000001")
        assert client.verify().verified


def test_writers_of_one_text_and_an_eraser(target: str) -> None:
    with LedgerClient(target, signer=SIGNER) as client:
        stop = threading.Event()
        wrong: list[str] = []

        def write() -> None:
            while not stop.is_set():
                entry_id = client.write(
                    LedgerEntry("E", "S", "D", "r",
                                metadata={"session_id": "s", "prompt": "the same words again"})
                )  # fmt: skip
                value = client.read(entry_id).metadata["prompt"]
                if isinstance(value, Erased) and (value.erasure_id or "") < entry_id:
                    wrong.append(entry_id)

        threads = [threading.Thread(target=write) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(12):
            time.sleep(0.05)
            try:
                client.erase(session_id="s", reason="r")
            except LedgerError:
                continue
        stop.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        report = client.verify()
        assert report.verified, report.problems


def test_an_older_snapshot_keeps_erased_rows_and_that_is_said(tmp_path: Path) -> None:

    server = PostgresServer(tmp_path / "data")
    url = server.database()
    quick = default_settings().ledger.model_copy(update={"lock_timeout_s": 1.0})

    with LedgerClient(url, settings=quick) as client:
        secret = "a sentence about zinnias in Zanzibar"
        entry_id = client.write(LedgerEntry("E", "S", "D", "r", metadata={"prompt": secret}))
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            other.execute("SELECT count(*) FROM entries")
            report = client.erase(entry_id, reason="r")
            assert "remit ledger compact" in report.remainder
        assert client.compact() == ""
        assert files_hold(server.data, secret) == []
    server.stop()


def test_a_very_long_value_does_not_stop_the_search(target: str) -> None:
    words = " ".join("щ" * 40 + f"{number:05}" for number in range(16_380))
    with LedgerClient(target) as client:
        for prompt in (words, "an ordinary one"):
            client.write(LedgerEntry("E", "S", "D", "r", metadata={"prompt": prompt}))
        assert [e.id for e in client.query(text="ordinary")] == ["LED-00000001"]
        assert [e.id for e in client.query(text="щ" * 40 + "00000")] == ["LED-00000000"]
        with pytest.raises(InvalidInputError, match="at most"):
            list(client.query(text="word " * 60_000))


def test_a_transaction_in_a_transaction_is_an_error_not_a_deadlock(ledger: LedgerClient) -> None:
    with pytest.raises(LedgerError, match="cannot wait"):
        ledger.transact(lambda tx: ledger.write(LedgerEntry("E", "S", "D", "r")))
    ledger.write(LedgerEntry("E", "S", "D", "r"))
    assert ledger.count() == 1


def test_a_client_in_a_forked_child_is_refused(ledger: LedgerClient) -> None:
    ledger.write(LedgerEntry("E", "S", "D", "r"))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ledger.write(LedgerEntry("E", "S", "D", "r"))
        except LedgerClosedError:
            ledger.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ledger.count() == 1


def test_garbage_among_the_checkpoints_does_not_stop_new_ones(target: str) -> None:
    often = default_settings().ledger.model_copy(update={"checkpoint_every_entries": 5})
    with LedgerClient(target, settings=often, signer=SIGNER) as client:
        outside(target, "INSERT INTO checkpoints VALUES (1000000, 'x', 'garbage')")
        for _ in range(12):
            client.write(LedgerEntry("E", "S", "D", "r"))
        client.flush()
        sizes = [row[0] for row in client.select("SELECT size FROM checkpoints ORDER BY size")]
        assert sizes == [5, 10, 1000000]
        assert "\n10\n" in client.prove("LED-00000007")
        assert not client.verify().verified


def test_filters_and_people_are_texts_that_a_database_can_hold(ledger: LedgerClient) -> None:
    for wrong in ("\ud800", "a\0b", 5):
        with pytest.raises(InvalidInputError):
            list(ledger.query(session_id=wrong))  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError):
            ledger.erase(session_id=wrong, reason="r")  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError, match="subject_id"):
            ledger.write(LedgerEntry("E", "S", "D", "r"), subject_id=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword"):
        ledger.query(**{"1=1 OR event_type": "x"})  # type: ignore[arg-type]
    assert ledger.count() == 0


# -- exports -------------------------------------------------------------------------------------


def test_an_export_signed_before_an_erasure_is_refused(talked: str, tmp_path: Path) -> None:
    with LedgerClient(talked, signer=SIGNER) as client:
        client.checkpoint()
    with LedgerClient(talked, verifier_key=SIGNER.verifier_key) as client:
        client.erase("LED-00000003", reason="r")
        with pytest.raises(LedgerError, match="erased under"):
            client.export(tmp_path / "e.jsonl")
        assert not (tmp_path / "e.jsonl").exists()
    with LedgerClient(talked, signer=SIGNER) as client:
        client.export(tmp_path / "e.jsonl")


# -- what is said --------------------------------------------------------------------------------


_CLEAR_URLS = [
    "postgresql://user:SECRET@host/db",
    "postgresql://user:pa/ssSECRET@host/db",
    "postgresql://user:pa?SECRET@host/db",
    "postgresql://user:pa#SECRET@host/db",
    "postgresql://u:[SECRET@h/db",
    "postgresql://user@host/db?password=SECRET&x=1",
    "postgresql://user@host/db?PASSWORD=SECRET",
    "postgresql://user@host/db?passwo%72d=SECRET",
    "postgresql://user@host/db?sslpassword=SECRET",
    "postgresql://user:one@SECRET@host/db",
    "postgresql://user:SECRET@host/db#part",
    "postgresql://user@host/db?password=SECRET@x",
]
_UNCLEAR_TEXTS = [
    "postgresql://host/db?password=p@SECRET",
    "postgresql:///db?user=u&password=SECRET@x",
    "postgresql://host/db?user=u&x=1&password=SECRET@x#y@z",
    "postgresql://host/db#SECRET@x",
    "postgresql://user:SECRET?p@host/db",
    "postgresql://user:SECRET?x=1@host/db",
    "postgresql://user:SECRET?password=1@host/db",
    "postgresql://host/db;password=SECRET",
    "postgresql://host/db password=SECRET",
    "postgresql://host/db?x=1 password=SECRET",
    "host=h password=SECRET",
    "host=h password=SECRET@x",
    "host=h password=SECRET://x",
    "user:SECRET@host/db",
    "SECRET",
    "",
]


def test_no_password_is_ever_shown() -> None:
    for text in (*_CLEAR_URLS, *_UNCLEAR_TEXTS):
        assert "SECRET" not in masked(text), text
    assert all(masked(url).startswith("postgresql://") for url in _CLEAR_URLS)


@pytest.mark.parametrize(
    ("url", "noted"),
    [
        ("postgresql://u:SECRET@h:5432/db?x=1", "db at h:5432"),
        ("postgresql://u:SECRET/x@h/db", "db at h"),
        ("postgresql://u:12/SECRET@h/db", "db at h"),
        ("postgresql://u:12?SECRET@h/db", "(default) at …"),
        ("postgresql://u:SECRET#x@h/db", "db at h"),
        ("postgresql://u:x@SECRET/y@h/db", "db at h"),
        ("postgresql://h1:1,h2:2/db?password=a%40SECRET", "db at h1:1,h2:2"),
        ("postgresql://h1:1,h2:2/db?password=a@SECRET", "(default) at …"),
        ("postgresql://:5433", "(default) at localhost:5433"),
        ("postgresql:///db?host=/run", "db at localhost"),
    ],
)
def test_the_noted_place_of_a_database_has_no_password(
    url: str, noted: str, tmp_path: Path
) -> None:
    remember_place(Root(tmp_path), default_settings().ledger.model_copy(update={"path": url}))
    assert (tmp_path / "ledger.place").read_text() == f"the PostgreSQL database {noted}\n"
