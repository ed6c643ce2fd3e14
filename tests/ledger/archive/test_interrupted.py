"""An archive run that is interrupted anywhere: no entry is in neither place, the next run ends it.

``REMIT_SOAK=1`` interrupts at every operation, and prints how many were tried.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remit.ledger import LedgerClient, LedgerError, entry_id
from remit.ledger.archive import Archive, check_archive, finish, joined
from remit.ledger.archive.files import Kind
from remit.ledger.tlog import TlogProof
from tests.ledger.archive.faults import DISK_FAULTS, Faults, archive_all, archive_with_fault
from tests.ledger.archive.writing import sessions, unguarded
from tests.support.processes import run_forked
from tests.support.soak import sample
from tests.support.stores import SIGNER

Copies = Callable[[], str]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def copies(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Copies]:
    """Make copies of one ledger of 280 entries, on both stores."""
    if request.param == "sqlite":
        place = tmp_path_factory.mktemp("ledger")
        _fill(str(place / "ledger.db"))
        count = iter(range(10**6))

        def copy() -> str:
            path = place / f"{next(count)}.db"
            shutil.copy(place / "ledger.db", path)
            return str(path)

        yield copy
        return
    server = request.getfixturevalue("postgres")
    template = server.database()
    _fill(template)
    made: list[str] = []

    def make() -> str:
        while made:
            server.drop(made.pop())
        made.append(server.database(template))
        return made[-1]

    yield make


def _fill(target: str) -> None:
    with LedgerClient(target, signer=SIGNER) as client:
        sessions(client, 47)
        client.index_text()


def _hashes(client: LedgerClient, directory: Path) -> list[str]:
    """The hash of each entry, wherever it is, in the order of the ledger."""
    archived = client.archived_to and any(directory.glob("????????????-????????????"))
    entries = joined(client, Archive([directory]), None) if archived else client.query(limit=None)
    return [one.entry_hash for one in entries if one.event_type != "ARCHIVED"]


def _require_whole(target: str, directory: Path, whole: list[str], *, done: bool) -> None:
    """Every entry is in the database or in the archive; all of it is checked once a run ended."""
    with LedgerClient(target, signer=SIGNER) as client:
        assert _hashes(client, directory) == whole
        report = client.verify()
        assert report.problems == []
        if not done:
            return
        assert (report.archived, report.notes) == (252, [])
        found = check_archive(client, [directory])
        assert found.problems == []
        assert all("interrupted run" in note for note in found.notes)
        records = Archive([directory])
        for seq in (3, 200):
            proof = TlogProof.parse(client.prove(entry_id(seq)))
            proof.verify(records.read_record(entry_id(seq)), SIGNER.verifier_key)
        assert client.export(directory.with_name("export.jsonl")) == client.count()
        assert finish(client, [], guard=unguarded) == (0, "")
        assert archive_all(client, directory).archived_id == ""


def _whole(target: str) -> list[str]:
    with LedgerClient(target, signer=SIGNER) as client:
        return [entry.entry_hash for entry in client.query(limit=None)]


def _operations(copies: Copies, directory: Path, kind: Kind) -> dict[str, int]:
    with LedgerClient(copies(), signer=SIGNER) as client, Faults(directory) as faults:
        archive_all(client, directory, kind)
    shutil.rmtree(directory)
    return {**faults.counts}


@pytest.mark.soak
@pytest.mark.parametrize("fault", [*DISK_FAULTS, "database full"])
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_an_error_of_any_operation_loses_nothing(
    copies: Copies, tmp_path: Path, fault: str, kind: Kind
) -> None:
    directory = tmp_path / "out" / "archive"
    count = _operations(copies, directory, kind)["database" if "data" in fault else "file"]
    tried = 0
    for at in sample(range(count), 1):
        target = copies()
        whole = _whole(target)
        with LedgerClient(target, signer=SIGNER) as client:
            faults = Faults(directory, fault, at)
            try:
                with faults:
                    archive_all(client, directory, kind)
            except LedgerError as error:
                assert _says_where_entries_are(error), error
        tried += bool(faults.failed)
        _require_whole(target, directory, whole, done=False)
        with LedgerClient(target, signer=SIGNER) as client:
            archive_all(client, directory, kind)
        _require_whole(target, directory, whole, done=True)
        shutil.rmtree(directory)
    print(f"{fault} at {tried} operations ({kind}): entries missing 0")


def _says_where_entries_are(error: LedgerError) -> bool:
    places = ("in the database", "in their archive", "nothing is archived", "did not take")
    return any(place in error.message for place in places) and bool(error.next_step)


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["kill", "database kill"])
def test_killed_at_any_operation_the_next_run_ends_it(
    copies: Copies, tmp_path: Path, fault: str
) -> None:
    directory = tmp_path / "out" / "archive"
    count = _operations(copies, directory, "jsonl")["database" if "data" in fault else "file"]
    killed = 0
    for at in sample(range(count), 2):
        target = copies()
        whole = _whole(target)
        given = (target, SIGNER.to_pem(), str(directory), "jsonl", fault, at)
        ended = run_forked(archive_with_fault, *given, environment=os.environ)
        assert ended.returncode in (-signal.SIGKILL, 0), ended.stderr
        killed += ended.returncode != 0
        _require_whole(target, directory, whole, done=False)
        with LedgerClient(target, signer=SIGNER) as client:
            archive_all(client, directory)
        _require_whole(target, directory, whole, done=True)
        shutil.rmtree(directory)
    print(f"{fault} at {killed} operations: entries missing 0")
