"""Old entries move to a segment: all of it is read, searched, proved, exported and erased."""

from __future__ import annotations

import base64
import contextlib
import random
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import orjson
import pytest

from remit.ledger import (
    TABLES,
    EntryArchivedError,
    EntryNotFoundError,
    ErasureError,
    LedgerClient,
    LedgerEntry,
    LedgerError,
    LedgerFormatError,
    entry_id,
)
from remit.ledger.segments import convert, cut_at, purge_all
from remit.ledger.segments.segment import segment_name
from remit.ledger.tlog import SignedCheckpoint, Signer, TlogProof, leaf_hash
from remit.server.extensions import HttpError
from remit.server.responses.chain import Turns
from tests.ledger.mutations import is_listed, mutations, no_weight
from tests.ledger.segments.writing import (
    attached,
    conversation_of,
    cut_off,
    problems,
    sessions,
)
from tests.support.soak import sample
from tests.support.standalone import load_standalone, standalone
from tests.support.stores import SIGNER, conversation, files_hold, outside

_LIVE = "SES-LIVE"
_FILE = "000000000000-000000000256.db"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """400 entries of old sessions, one that goes on, and others that stay; never changed."""
    target = str(tmp_path_factory.mktemp("made") / "ledger.db")
    if request.param == "postgresql":
        target = request.getfixturevalue("postgres").database()
    with LedgerClient(target, signer=SIGNER) as client:
        client.write(LedgerEntry("KEY_CREATED", "k", "CREATED", "r", metadata={"key_id": "k"}))
        conversation(client, _LIVE, 2)
        sessions(client, 66, leading=0)
        conversation(client, _LIVE, 3)
    return target


@pytest.fixture
def target(made: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A copy of it."""
    if "://" not in made:
        yield str(shutil.copy(made, tmp_path / "ledger.db"))
        return
    server = request.getfixturevalue("postgres")
    yield (url := server.database(made))
    server.drop(url)


@pytest.fixture
def client(target: str) -> Iterator[LedgerClient]:
    with LedgerClient(target, signer=SIGNER) as client:
        yield client


def _entries(client: LedgerClient, directory: Path | None = None, **filters: Any) -> list[Any]:
    filters = {"limit": None, **filters}
    if directory is None:
        return [entry.to_dict() for entry in client.query(**filters)]
    with attached(client, directory):
        return [entry.to_dict() for entry in client.query(**filters)]


def test_moved_entries_are_read_as_before(client: LedgerClient, tmp_path: Path) -> None:
    directory = tmp_path / "segments"
    first = client.checkpoint()
    whole, filters = _entries(client), {"session_id": "SES-7", "order": "desc", "limit": 4}
    some = _entries(client, **filters)
    exact = client.exact("LED-00000064")
    done = cut_off(client, directory, cut_at(client, "300"))
    assert (done.first, done.end, done.entries, done.stayed) == (0, 256, 252, 4)
    assert client.select("SELECT count(*) FROM entries WHERE seq < 256") == [(4,)]
    assert [path.name for path in directory.iterdir()] == [_FILE]
    assert problems(client, directory) == []
    assert client.verify().archived == 252
    after = _entries(client, directory)
    assert after[: len(whole)] == whole
    assert [entry["event_type"] for entry in after[len(whole) :]] == ["ARCHIVED"]
    assert _entries(client, directory, **filters) == some
    found = _entries(client, directory, since=whole[20]["timestamp"], until=whole[30]["timestamp"])
    assert found == whole[20:30]
    assert _entries(client, directory, with_content=False)[:9] == _entries(
        client, directory, with_content=False, limit=9
    )
    # A session that goes on is whole, one that was cut too, as its end is behind the cut.
    assert len(_entries(client, session_id=_LIVE)) == 5
    assert len(_entries(client, session_id="SES-42")) == 6
    with pytest.raises(EntryArchivedError, match="LED-00000064 was archived") as raised:
        client.read("LED-00000064")
    assert "--archive" in raised.value.next_step
    with attached(client, directory):
        assert client.read("LED-00000064").to_dict() == whole[100]
        assert client.exact("LED-00000064") == exact
        with pytest.raises(EntryNotFoundError):
            client.read("LED-0000ffff")
        for seq in (0, 1, 100, 255, 256, 399):
            proof = TlogProof.parse(client.prove(entry_id(seq)))
            proof.verify(client.read_record(entry_id(seq)), SIGNER.verifier_key)
    size = SignedCheckpoint.parse(first).checkpoint.size
    client.checkpoints.prove_consistency(size, client.count())
    client.checkpoints.prove_consistency(100, size)
    assert client.verify(checkpoint=first).checkpoint == "outside"
    assert client.verify(jobs=2).problems == []


def test_words_are_found_across_the_boundary(client: LedgerClient, tmp_path: Path) -> None:
    conversation(client, "SES-7", 2)
    before = _entries(client, text='"answer 0" SES')
    assert len(before) > 60
    cut_off(client, tmp_path)
    with attached(client, tmp_path):
        assert _entries(client, text='"answer 0" SES') == before
        client.erase(session_id="SES-7", reason="r")
        assert [*client.query(text='"of SES-7"')] == []
    assert files_hold(tmp_path, "question 0 of SES-7") == []


def test_a_segment_is_a_ledger_to_which_nothing_is_added(
    client: LedgerClient, tmp_path: Path
) -> None:
    """The ordinary client opens it alone; a root does not take it for its ledger."""
    whole = _entries(client)
    cut_off(client, tmp_path)
    with LedgerClient(tmp_path / _FILE, verifier_key=SIGNER.verifier_key) as segment:
        report = segment.verify()
        assert report.problems == []
        assert (report.entries, report.archived, report.checkpoint_size) == (252, 4, 256)
        assert "is a segment" in report.notes[0]
        assert segment.read("LED-00000064").to_dict() == whole[100]
        assert segment.count() == 256
        before = [*segment.query()]
        for write in (
            lambda: segment.write(LedgerEntry("NOTE", "S", "D", "r")),
            lambda: segment.transact(lambda tx: tx.append(LedgerEntry("NOTE", "S", "D", "r"))),
            lambda: segment.erase(session_id="SES-7", reason="r"),
        ):
            with pytest.raises(LedgerError):
                write()
        assert [*segment.query()] == before
        assert segment.export(tmp_path / "part.jsonl") == 256


def test_a_session_goes_on_after_its_beginning_left(client: LedgerClient, tmp_path: Path) -> None:
    directory = tmp_path / "segments"
    cut_off(client, directory)
    conversation(client, "SES-0", 7)  # says again what was said, as clients do
    assert problems(client, directory) == []
    assert len(_entries(client, directory, session_id="SES-0")) == 13
    # And again: what left first is in one range, what came later in another.
    client.write_many([LedgerEntry("NOTE", "S", "D", "r") for _ in range(110)])
    before = _entries(client, directory)
    assert cut_off(client, directory, cut_at(client, str(client.count()))).entries > 150
    assert _entries(client, directory)[:-1] == before
    assert problems(client, directory) == []
    (second,) = (path for path in directory.iterdir() if path.name != _FILE)
    for first, said in ((1, "is not the segment that its name says"), (0, "says another range")):
        other = second.rename(directory / segment_name(first, int(second.stem[13:])))
        if first:
            with pytest.raises(LedgerError, match=said):
                client.attach([directory])
        else:
            assert any(said in one for one in problems(client, directory))
        other.rename(second)
    (directory / _FILE).rename(tmp_path / _FILE)
    with attached(client, directory), pytest.raises(LedgerError, match="do not contain"):
        client.query()
    assert any("are not in the given segments" in one for one in problems(client, directory))
    assert problems(client, directory, tmp_path) == []


def test_nothing_leaves_that_is_in_use(client: LedgerClient, tmp_path: Path) -> None:
    """Rows of state that name a session or an entry, open work, and what a proposal learned."""
    provenance = {"agent_id": "a", "session_id": "SES-3"}
    client.write(LedgerEntry("WO_PLANNED", "WO-1", "P", "r", metadata={"provenance": provenance}))
    started = {"provenance": {"session_id": "SES-SUB"}, "caller": {"session_id": "SES-5"}}
    client.write(LedgerEntry("SESSION_START", "SES-SUB", "STARTED", "r", metadata=started))
    conversation(client, "SES-SUB", 1)
    learned = {"evidence": [entry_id(60)], "holds": []}
    client.write(LedgerEntry("SIGNAL_PROPOSED", "P", "P", "r", metadata=learned))
    client.write_many([LedgerEntry("NOTE", "S", "D", "r") for _ in range(200)])
    conversation(client, "SES-SUB", 1)
    # A conversation of the Responses API: it went on from an entry of an older session.
    middle = client.write(LedgerEntry("EXCHANGE", "P", "D", "r", metadata={
        "session_id": "SES-DAY2", "continues": entry_id(130)}))  # fmt: skip
    end = client.write(LedgerEntry("EXCHANGE", "P", "D", "r", metadata={
        "session_id": "SES-DAY3", "continues": middle}))  # fmt: skip

    def state(tx: Any) -> None:
        later = tx.now_ms + 10**7
        tx.execute("INSERT INTO leases VALUES ('SES-1', 'x', ?, 0)", (later,))
        tx.execute("INSERT INTO idempotency VALUES ('c', 'k', 'o', 't', ?, ?)",
                   (entry_id(16), later))  # fmt: skip
        tx.execute("INSERT INTO idempotency VALUES ('c', 'old', 'o', 't', ?, 1)", (entry_id(34),))
        for name, session, one in (("resp_new", "SES-DAY3", end), ("resp_old", "SES-30", 190)):
            led_to = one if isinstance(one, str) else entry_id(one)
            tx.execute("INSERT INTO response_ids VALUES (?, 'o', ?, ?)", (name, session, led_to))
        tx.execute("INSERT INTO provider_objects VALUES ('f', 'file', 'p', 'o', ?)",
                   (entry_id(42),))  # fmt: skip

    client.transact(state)
    done = cut_off(client, tmp_path / "archive", 512)
    left = {entry["metadata"]["session_id"] for entry in _entries(client, tmp_path / "archive")
            if entry["event_type"] == "EXCHANGE"}  # fmt: skip
    here = {entry["metadata"]["session_id"] for entry in _entries(client)
            if entry["event_type"] == "EXCHANGE"}  # fmt: skip
    stayed = {"SES-SUB", "SES-1", "SES-2", "SES-3", "SES-5", "SES-6", "SES-9", "SES-21",
              "SES-DAY2", "SES-DAY3"}  # fmt: skip
    assert here == stayed
    assert done.entries == 6 * len(left - stayed - {_LIVE}) + 5
    turns = Turns(client)
    found = turns.find("resp_new", "o")
    assert found is not None
    assert [turn.entry.id for turn in turns.chain(found)] == [entry_id(130), middle, end]
    with pytest.raises(HttpError, match="archived"):
        turns.find("resp_old", "o")


def test_erasure_reaches_segments(place: tuple[str, Path], tmp_path: Path) -> None:
    """By person, session and entry: under one entry with what is in the database, and for good."""
    target, files = place
    directory = tmp_path / "segments"
    with LedgerClient(target, signer=SIGNER) as client:
        sessions(client, 66, leading=0)
        assert any(client.query(text='"question 0 of SES-50"'))
        cut_off(client, directory)
        assert files_hold(files, "question 0 of SES-12") == []  # moved, index and all
        for given in ({"subject_id": "person1"}, {"session_id": "SES-2"}):
            with pytest.raises(ErasureError, match="archive"):
                client.erase(**given, reason="r")
        with pytest.raises(EntryArchivedError):
            client.erase(entry_id(20), reason="r")
        client.attach([directory])
        planned = client.erase(subject_id="person1", reason="r", dry_run=True)
        done = client.erase(subject_id="person1", reason="r")
        assert (done.values, done.entries) == (planned.values, planned.entries)
        # 17 sessions: six entries that each show two messages, an answer and the person's name.
        assert done.entries == 17 * 6
        assert client.erase(entry_id(24), reason="r").sessions == ["SES-4"]
        client.erase(session_id="SES-2", reason="r")
        assert client.verify().problems == []
        entries = {entry.id: entry for entry in client.query()}
        assert str(entries[entry_id(12)].metadata["response"]).startswith("[content erased under")
        assert str(entries[entry_id(6)].metadata["prompt"][0]).startswith("[content erased under")
        assert str(entries[entry_id(25)].metadata["prompt"][0]).startswith("[content erased under")
        assert entries[entry_id(25)].metadata["response"] == "answer 1 of SES-4"
        for said in ('of SES-1"', 'of SES-2"', 'question 0 of SES-4"', "person1"):
            assert files_hold(directory, said) == []
        assert files_hold(directory, "question 0 of SES-3") != []
        (report,) = client.retain({"EXCHANGE": 0})
        assert report.values > 100
        assert files_hold(directory, "question 0 of SES-3") == []
        assert client.verify().problems == []


def test_feedback_on_a_moved_entry_is_erased_with_it(tmp_path: Path) -> None:
    """And what is said again in the database is erased with the segment's."""
    with LedgerClient(tmp_path / "l.db", signer=SIGNER) as client:
        sessions(client, 66, leading=0)
        cut_off(client, tmp_path / "segments")
        metadata = {"session_id": "SES-3", "user_message": "it was question 0 of SES-3, and wrong"}
        quoted = client.write(LedgerEntry("FEEDBACK", entry_id(19), "D", "r", metadata=metadata))
        metadata = {"session_id": "SES-OTHER", "user_message": "a comment by somebody else"}
        rated = client.write(LedgerEntry("FEEDBACK", entry_id(18), "D", "r", metadata=metadata))
        client.attach([tmp_path / "segments"])
        client.erase(entry_id(18), reason="r")
        for one in (quoted, rated):
            said = str(client.read(one).metadata["user_message"])
            assert said.startswith("[content erased under"), one
        assert client.verify().problems == []


def test_an_approved_session_is_not_erased_in_the_database_alone(tmp_path: Path) -> None:
    """Its TOOL_INTENT stays, because the approval names it, although the session has left."""
    own = {"session_id": "SES-A", "response": "a secret of SES-A"}
    with LedgerClient(tmp_path / "l.db", signer=SIGNER) as client:
        asked = client.write(LedgerEntry("APPROVAL_REQUESTED", "P", "D", "r", metadata=dict(own)))
        client.write(LedgerEntry("APPROVAL_GRANTED", asked, "D", "r", metadata=dict(own)))
        for kind in ("TOOL_INTENT", "EXCHANGE"):
            client.write(LedgerEntry(kind, "P", "D", "r", metadata={**own, "result": kind}))
        sessions(client, 48)
        cut_off(client, tmp_path / "segments")
        here = [entry.event_type for entry in client.query(session_id="SES-A")]
        assert "TOOL_INTENT" in here
        assert "EXCHANGE" not in here
        with pytest.raises(ErasureError, match="segments may contain"):
            client.erase(session_id="SES-A", reason="r")
        with attached(client, tmp_path / "segments"):
            client.erase(session_id="SES-A", reason="r")
    assert files_hold(tmp_path, "a secret of SES-A") == []


def test_a_segment_of_another_ledger_is_not_read(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with LedgerClient(tmp_path / f"{name}.db", signer=SIGNER) as client:
            sessions(client, 48, leading=4 if name == "one" else 3)
            cut_off(client, tmp_path / name)
    with (
        LedgerClient(tmp_path / "one.db", verifier_key=SIGNER.verifier_key) as client,
        attached(client, tmp_path / "two"),
    ):
        with pytest.raises(LedgerError, match="do not contain their segment"):
            client.query()
        with pytest.raises(LedgerError, match="do not contain their segment"):
            client.erase(session_id="SES-4", reason="r")
        assert any(_FILE in str(problem) for problem in client.verify().problems)


def test_each_copy_of_a_segment_is_verified(client: LedgerClient, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    cut_off(client, one)
    shutil.copytree(one, two)
    assert problems(client, one, two) == []
    outside(str(two / _FILE), "UPDATE entries SET record = '{}' WHERE seq = 100")
    for places in ((one, two), (two, one)):
        found = problems(client, *places)
        assert found
        assert all(str(two / _FILE) in each for each in found)


def test_an_erasure_that_was_stopped_is_finished(client: LedgerClient, tmp_path: Path) -> None:
    """The entry is recorded, and the bytes are in the segment still: it does not verify."""
    directory, kept = tmp_path / "segments", tmp_path / "kept"
    cut_off(client, directory)
    shutil.copytree(directory, kept)
    with attached(client, directory):
        client.erase(session_id="SES-4", reason="r")
    (problem,) = problems(client, kept)
    assert "erased is still here" in problem
    assert purge_all(client, [kept]) == 6 + 6 + 5 + 6  # Messages, answers, repeated; the person.
    assert problems(client, kept) == []


def test_exports_cross_the_boundary(client: LedgerClient, tmp_path: Path) -> None:
    """Without the segments an export has leaf hashes; with them it is the whole ledger."""
    directory, file = tmp_path / "segments", tmp_path / "all.jsonl"
    kept = {"session_id": "SES-8", "response": "answer 0 of SES-8"}
    client.write(LedgerEntry("SESSION_END", "S", "D", "r", metadata=kept))
    client.write_many([LedgerEntry("NOTE", "S", "D", "r") for _ in range(200)])
    cut_off(client, directory, 512)
    with attached(client, directory):
        client.erase(session_id="SES-9", reason="r")
    with pytest.raises(LedgerError, match="were archived"):
        client.export(tmp_path / "x", format="tiles")
    assert client.export(file) == client.count()
    require_verified(file)
    with LedgerClient(tmp_path / "new.db", signer=SIGNER) as new:
        assert new.import_jsonl(file, key=SIGNER.verifier_key).checkpoint == "held"
        assert _entries(new, directory) == _entries(client, directory)
        assert new.select(_USAGE) == client.select(_USAGE)
        assert problems(new, directory) == []
        new.prove(entry_id(100))
    lines = file.read_bytes().splitlines(keepends=True)
    assert b'"leaf"' in lines[100]
    leaf = base64.b64encode(leaf_hash(client.read_record(entry_id(0)))).decode()
    more = orjson.dumps({"seq": 0, "leaf": leaf}) + b"\n"
    for forged, problem in (
        ([*lines[:100], *lines[101:]], "it is not entry 99"),
        ([lines[0], more, *lines[2:]], "an entry is away, and no ARCHIVED"),
    ):
        file.write_bytes(b"".join(forged))
        assert problem in standalone(file, "--key", str(SIGNER.verifier_key)).stderr
        with LedgerClient(tmp_path / "other.db") as new, pytest.raises(LedgerError, match=problem):
            new.import_jsonl(file, key=SIGNER.verifier_key)
    with attached(client, directory):
        everything = _entries(client)
        assert client.export(file) == client.count()
        assert client.export(tmp_path / "tiles", format="tiles") == client.count()
    assert b'"leaf"' not in file.read_bytes()
    require_verified(file)
    with LedgerClient(tmp_path / "all.db", signer=SIGNER) as new:
        assert new.import_jsonl(file, key=SIGNER.verifier_key).checkpoint == "held"
        assert _entries(new) == everything
        assert new.verify().problems == []
        assert new.archived_to == 0
    conversation(client, "SES-0", 1)  # Says again what was moved, with a nonce of its own.
    with attached(client, directory):
        client.export(file)
    require_verified(file)
    with (
        LedgerClient(tmp_path / "twice.db", signer=SIGNER) as new,
        pytest.raises(LedgerFormatError, match="SES-0 continued after its beginning moved"),
    ):
        new.import_jsonl(file, key=SIGNER.verifier_key)


def require_verified(file: Path, signer: Signer = SIGNER) -> None:
    """Have the stand-alone verifier read an export."""
    done = standalone(file, "--key", str(signer.verifier_key))
    assert done.stdout.endswith("VERIFIED\n"), done.stderr


_USAGE = "SELECT * FROM usage ORDER BY quarter, session_id, model_id"


def test_what_an_auditor_must_find(client: LedgerClient, target: str, tmp_path: Path) -> None:
    """A row more or less than left, and other hashes: each is named."""
    cut_off(client, tmp_path / "segments")
    stays = client.select("SELECT max(seq) FROM entries WHERE seq < 256")[0][0]
    for statement, kind in (
        (f"DELETE FROM entries WHERE seq = {stays}", "gap"),
        ("UPDATE ledger_info SET value = '512' WHERE name = 'archived_to'", "unreadable"),
        ("DELETE FROM ledger_info WHERE name = 'archived_to'", "gap"),
        ("DELETE FROM tree_hashes WHERE level = 0", "gap"),
        ("UPDATE tree_hashes SET hash = (SELECT t.hash FROM tree_hashes AS t WHERE level = 1 "
         "AND idx = 0) WHERE level = 0", "tree"),
        ("INSERT INTO tree_hashes SELECT 0, 1000, hash FROM tree_hashes WHERE level = 0", "tree"),
        ("INSERT INTO ledger_info VALUES ('segment', 'x')", "store"),
    ):  # fmt: skip
        copy = [outside(target, f"SELECT * FROM {name}") for name in _COPIED]
        outside(target, statement)
        report = client.verify()
        assert kind in {problem.kind for problem in report.problems}, statement
        _restore(client, copy)
        assert client.verify().problems == []


_COPIED = ("entries", "ledger_info", "tree_hashes")


def _restore(client: LedgerClient, copy: list[list[tuple[Any, ...]]]) -> None:
    def call(tx: Any) -> None:
        for name, rows in zip(_COPIED, copy, strict=True):
            if name == "ledger_info":
                rows = [row for row in rows if not row[0].startswith("writer")]
                tx.execute("DELETE FROM ledger_info WHERE name NOT LIKE 'writer%'")
            else:
                tx.execute(f"DELETE FROM {name}")
            for row in rows:
                marks = ", ".join("?" * len(row))
                tx.execute(f"INSERT INTO {name} VALUES ({marks}) ON CONFLICT DO NOTHING", row)

    client.transact(call)


@pytest.mark.soak
def test_an_edit_of_any_row_or_declaration_of_a_segment_is_named(tmp_path: Path) -> None:
    """Except what the format page lists as of no weight."""
    listed, missed = no_weight(), []
    with LedgerClient(tmp_path / "l.db", signer=SIGNER) as client:
        sessions(client, 48)
        client.erase(session_id="SES-3", reason="r")
        cut_off(client, tmp_path / "segments")
        file = tmp_path / "segments" / _FILE
        sound, tables = file.read_bytes(), [*TABLES.keys() - {"usage", "usage_keys"}]
        every = [
            one
            for one in mutations(str(file), rows=1, tables=sorted(tables))
            if not is_listed(one, listed)
        ]
        for one in sample(every, 10):
            before = _rows(file)
            with (
                contextlib.suppress(sqlite3.Error),
                contextlib.closing(sqlite3.connect(file)) as edited,
            ):
                edited.executescript(one.sql)
            if _rows(file) != before:
                try:
                    found = problems(client, tmp_path / "segments")
                except LedgerError as error:
                    found = [error.message]
                missed += [] if any(_FILE in said for said in found) else [one]
            file.write_bytes(sound)
        assert problems(client, tmp_path / "segments") == []
    assert missed == []


def _rows(file: Path) -> list[str]:
    """The statements that would make the file."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        return [*connection.iterdump()]


# -- After any sequence of appends, runs and erasures all verifies, is read and is proved ----


_PEOPLE = 3


_STEPS = st.lists(st.sampled_from(["grow", "archive", "subject", "session", "entry"]), min_size=3,
                  max_size=6)  # fmt: skip


@hypothesis.settings(max_examples=3)
@hypothesis.given(_STEPS, st.randoms(use_true_random=False))
@hypothesis.example(["archive", "subject", "grow", "archive", "entry", "session"], random.Random(3))
def test_any_sequence_verifies(steps: list[str], chance: random.Random) -> None:
    with (
        tempfile.TemporaryDirectory() as scratch,
        LedgerClient(Path(scratch, "ledger.db"), signer=SIGNER) as client,
    ):
        world = _World(client, Path(scratch, "archive"), chance)
        world.grow()
        for step in steps:
            getattr(world, step)()
        world.check()


class _World:
    def __init__(self, client: LedgerClient, directory: Path, chance: random.Random) -> None:
        self._client = client
        self._directory = directory
        self._chance = chance
        self._records: dict[str, bytes] = {}
        self._said: dict[str, str] = {}  # by entry, its answer; erased ones are taken out
        self._of: dict[str, tuple[str, str]] = {}  # session and person of an entry
        self._script = load_standalone()

    def grow(self) -> None:
        """Sessions that are new, and some that go on, interleaved; enough for a range more."""
        names = [f"SES-{self._chance.randrange(60)}" for _ in range(40)]
        for name in names:
            turns = self._chance.randint(3, 8)
            entries = conversation_of(name, turns)
            person = f"person-number-{int(name[4:]) % _PEOPLE}"
            for one in self._client.write_many(entries, subject_id=person):
                self._of[one] = (name, person)
            for entry in entries:
                self._records[entry.id] = self._client.read_record(entry.id)
                self._said[entry.id] = str(entry.metadata["response"])

    def archive(self) -> None:
        size = self._client.count()
        end = cut_at(self._client, str(self._chance.randint(size // 2, size)))
        self._client.detach()
        cut_off(self._client, self._directory, end)
        if self._client.archived_to:
            self._client.attach([self._directory])

    def subject(self) -> None:
        person = f"person-number-{self._chance.randrange(_PEOPLE)}"
        self._erase(subject_id=person)
        self._forget(lambda of: of[1] == person)

    def session(self) -> None:
        name = f"SES-{self._chance.randrange(60)}"
        self._erase(session_id=name)
        self._forget(lambda of: of[0] == name)

    def entry(self) -> None:
        one = self._chance.choice(list(self._of))
        if not self._erase(entry_id=one):  # An earlier erasure took what it quotes, too.
            self._said.pop(one, None)
            return
        # What is said there, is said wherever the session says it again.
        said = self._said.get(one)
        name = self._of[one][0]
        for other in [key for key, of in self._of.items() if of[0] == name]:
            if other == one or self._said.get(other) == said:
                self._said.pop(other, None)

    def _erase(self, **which: Any) -> bool:
        """Erase; return False if nothing is there."""
        try:
            self._client.erase(**which, reason="r")
        except ErasureError:
            return False
        return True

    def _forget(self, is_gone: Any) -> None:
        for one, of in self._of.items():
            if is_gone(of):
                self._said.pop(one, None)

    def check(self) -> None:
        client = self._client
        assert client.verify().problems == []
        entries = {entry.id: entry for entry in client.query()}
        assert len(entries) == client.count()
        assert list(entries) == [entry_id(seq) for seq in range(client.count())]
        for one in self._of:
            assert entries[one].metadata["session_id"] == self._of[one][0]
            if one in self._said:
                said = entries[one].metadata["response"]
                # An erasure of an entry takes what quotes it, which the model does not know.
                assert said == self._said[one] or str(said).startswith("[content erased")
            else:
                assert str(entries[one].metadata["response"]).startswith("[content erased under")
        key = str(SIGNER.verifier_key)
        for one in self._chance.sample(list(self._records), 6):
            assert self._script.check_proof(client.prove(one), self._records[one], key)


# -- archives of earlier versions ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_archives_of_earlier_versions_are_converted(tmp_path: Path, kind: str) -> None:
    """A ledger of 301 entries: 252 archived, one session erased before, another in the archive."""
    with tarfile.open(Path(__file__).parent / "archives" / f"archive-{kind}.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    directory = tmp_path / "archive"
    signer = Signer.from_pem(SIGNER.verifier_key.name, (tmp_path / "key.pem").read_bytes())
    with LedgerClient(tmp_path / "ledger.db", signer=signer) as client:
        assert client.verify().problems == []
        with pytest.raises(LedgerError, match="earlier version") as raised:
            client.attach([directory])
        assert "remit ledger segment --convert" in raised.value.next_step
        (part,) = directory.glob("*/part-*")
        sound = part.read_bytes()
        for damaged in (sound[:-9], sound[: len(sound) // 2], b""):
            part.write_bytes(damaged)
            with pytest.raises(LedgerError, match="could not be converted"):
                convert(client, directory)
            assert [path.name for path in directory.iterdir()] == [part.parent.name]
        part.write_bytes(sound)
        shutil.copytree(part.parent, tmp_path / "kept")
        assert convert(client, directory) == 1
        assert [path.name for path in directory.iterdir()] == [_FILE]
        assert convert(client, directory) == 0
        assert problems(client, directory) == []
        entries = _entries(client, directory)
        assert len(entries) == client.count()
        assert entries[100]["metadata"]["response"] == "answer 1 of SES-16"
        for seq, name in ((22, "SES-3"), (28, "SES-4")):
            assert entries[seq]["metadata"]["session_id"] == name
            assert "erased" in str(entries[seq]["metadata"]["response"])
        # A run that was killed before it removed the archive is finished.
        (tmp_path / "kept").rename(part.parent)
        assert convert(client, directory) == 1
        with attached(client, directory):
            assert client.export(tmp_path / "all.jsonl") == client.count()
            assert client.erase(session_id="SES-7", reason="r").values == 23
            assert client.verify().problems == []
    require_verified(tmp_path / "all.jsonl", signer)
