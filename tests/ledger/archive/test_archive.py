"""Old entries leave the database for an archive: all of it is read, proved and erased as before."""

from __future__ import annotations

import base64
import importlib.util
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import hypothesis.strategies as st
import orjson
import pytest

from remit.ledger import (
    EntryArchivedError,
    ErasureError,
    LedgerClient,
    LedgerEntry,
    LedgerError,
    entry_id,
)
from remit.ledger.archive import (
    Archive,
    ArchiveReport,
    archive,
    check_archive,
    cut_at,
    erase_archived,
    finish,
    joined,
    purge,
    read_either,
    retain_archived,
)
from remit.ledger.archive.files import Kind, write_part
from remit.ledger.tlog import Checkpoint, SignedCheckpoint, TlogProof, leaf_hash
from remit.server.extending import HttpError
from remit.server.responses.turns import Turns
from tests.ledger.archive.writing import conversation_of, sessions, unguarded
from tests.support.stores import SIGNER, conversation, files_hold, outside

_LIVE = "SES-LIVE"


def cut_off(client: LedgerClient, directory: Path, end: int, kind: Kind = "jsonl") -> ArchiveReport:
    """Archive what is before ``end``."""
    return archive(
        client, end, directory, by="ann", carry=lambda *_: {}, guard=unguarded, kind=kind
    )


@pytest.fixture
def client(target: str) -> Iterator[LedgerClient]:
    """400 entries of old sessions, one that goes on, and others that stay."""
    with LedgerClient(target, signer=SIGNER) as client:
        client.write(LedgerEntry("KEY_CREATED", "k", "CREATED", "r", metadata={"key_id": "k"}))
        conversation(client, _LIVE, 2)
        sessions(client, 66, leading=0)
        conversation(client, _LIVE, 3)
        yield client


def _entries(client: LedgerClient, directory: Path | None = None, **filters: Any) -> list[Any]:
    filters = {"limit": None, **filters}
    found = (
        client.query(**filters)
        if directory is None
        else joined(client, Archive([directory]), **filters)
    )
    return [entry.to_dict() for entry in found]


def _is_sound(client: LedgerClient, directory: Path) -> bool:
    report = client.verify()
    assert report.problems == []
    found = check_archive(client, [directory])
    assert found.problems == []
    return True


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_what_left_is_read_as_before(client: LedgerClient, tmp_path: Path, kind: Kind) -> None:
    directory = tmp_path / "archive"
    first = client.checkpoint()
    whole, filters = _entries(client), {"session_id": "SES-7", "order": "desc", "limit": 4}
    some = _entries(client, **filters)
    done = cut_off(client, directory, cut_at(client, "300"), kind)
    assert (done.first, done.end, done.entries, done.stayed) == (0, 256, 252, 4)
    assert client.select("SELECT count(*) FROM entries WHERE seq < 256") == [(4,)]
    assert _is_sound(client, directory)
    assert client.verify().archived == 252
    after = _entries(client, directory)
    assert after[: len(whole)] == whole
    assert [entry["event_type"] for entry in after[len(whole) :]] == ["ARCHIVED"]
    assert _entries(client, directory, **filters) == some
    assert _entries(client, directory, since=whole[20]["timestamp"], until=whole[30]["timestamp"])
    assert _entries(client, directory, with_content=False)[:9] == _entries(
        client, directory, with_content=False, limit=9
    )
    # A session that goes on is whole, one that was cut too, as its end is behind the cut.
    assert len(_entries(client, session_id=_LIVE)) == 5
    assert len(_entries(client, session_id="SES-42")) == 6
    with pytest.raises(EntryArchivedError, match="LED-00000064 was archived") as raised:
        client.read("LED-00000064")
    assert "--archive" in raised.value.next_step
    assert read_either(client, Archive([directory]), "LED-00000064").to_dict() == whole[100]
    records = Archive([directory])
    for seq in (0, 1, 100, 255, 256, 399):
        proof = TlogProof.parse(client.prove(entry_id(seq)))
        name = entry_id(seq)
        is_here = client.select("SELECT 1 FROM entries WHERE seq = ?", (seq,))
        record = client.read_record(name) if is_here else records.read_record(name)
        proof.verify(record, SIGNER.verifier_key)
    size = SignedCheckpoint.parse(first).checkpoint.size
    client.checkpoints.prove_consistency(size, client.count())
    client.checkpoints.prove_consistency(100, size)
    assert client.verify(checkpoint=first).checkpoint == "outside"
    assert client.verify(first=256).problems == client.verify(first=100, jobs=2).problems == []


def test_a_session_goes_on_after_its_beginning_left(client: LedgerClient, tmp_path: Path) -> None:
    directory = tmp_path / "archive"
    cut_off(client, directory, 256)
    conversation(client, "SES-0", 7)  # says again what was said, as clients do
    assert _is_sound(client, directory)
    assert len(_entries(client, directory, session_id="SES-0")) == 13
    # And again: what left first is in one range, what came later in another.
    client.write_many([LedgerEntry("NOTE", "S", "D", "r") for _ in range(110)])
    before = _entries(client, directory)
    assert cut_off(client, directory, cut_at(client, str(client.count()))).entries > 150
    assert _entries(client, directory)[:-1] == before
    assert _is_sound(client, directory)


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


def test_erasure_reaches_the_archive(place: tuple[str, Path], tmp_path: Path) -> None:
    """By person, session and entry: under one entry with what is in the database, and for good."""
    target, files = place
    directory = tmp_path / "archive"
    with LedgerClient(target, signer=SIGNER) as client:
        sessions(client, 66, leading=0)
        secret = client.query(text='"question 0 of SES-50"')
        assert any(secret)
        cut_off(client, directory, 256, "parquet")
        assert files_hold(files, "question 0 of SES-12") == []  # moved, index and all
        found = Archive([directory])
        for given in ({"subject_id": "person1"}, {"session_id": "SES-2"}):
            with pytest.raises(ErasureError, match="archive"):
                client.erase(**given, reason="r")
        with pytest.raises(EntryArchivedError):
            client.erase(entry_id(20), reason="r")
        planned = erase_archived(
            client, found, subject_id="person1", reason="r", guard=unguarded, dry_run=True
        )
        done = erase_archived(client, found, subject_id="person1", reason="r", guard=unguarded)
        assert (done.values, done.entries) == (planned.values, planned.entries)
        # 17 sessions: six entries that each show two messages, an answer and the person's name.
        assert done.entries == 17 * 6
        gone = erase_archived(client, found, entry_id(24), reason="r", guard=unguarded)  # of SES-4
        assert gone.sessions == ["SES-4"]
        erase_archived(client, found, session_id="SES-2", reason="r", guard=unguarded)
        client.erase(session_id="SES-60", reason="r") if not client.has_left("SES-60") else None
        assert _is_sound(client, directory)
        entries = {entry.id: entry for entry in joined(client, found, None)}
        assert str(entries[entry_id(12)].metadata["response"]).startswith("[content erased under")
        assert str(entries[entry_id(6)].metadata["prompt"][0]).startswith("[content erased under")
        assert str(entries[entry_id(25)].metadata["prompt"][0]).startswith("[content erased under")
        assert entries[entry_id(25)].metadata["response"] == "answer 1 of SES-4"
        texts = b"".join(orjson.dumps(line.to_dict()) for line in found.lines())
        for said in (b'of SES-1"', b'of SES-2"', b'question 0 of SES-4"', b"person1"):
            assert said not in texts
        assert b"question 0 of SES-3" in texts
        days = {"EXCHANGE": 0}
        (report,) = retain_archived(client, found, days, guard=unguarded)
        assert report.values > 100
        assert not any("nonce" in item for line in found.lines() for item in line.contents)
        assert _is_sound(client, directory)


def _two_turns(client: LedgerClient) -> None:
    """Write entries that name one value twice, and show a message that no record names itself."""
    for turn in range(2):
        metadata = {"session_id": "SES-TWICE", "response": "the same",
                    "prompt": [{"role": "user", "content": f"again {turn}"}]}  # fmt: skip
        client.write(LedgerEntry("EXCHANGE", "P", "SUCCESS", "done", metadata=metadata))
    sessions(client, 48)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_erased_lines_do_not_depend_on_when_they_were_archived(tmp_path: Path, kind: Kind) -> None:
    """An erased value has an item in each line that names it, and an erased message has none."""
    found: list[list[tuple[int, bool]]] = []
    for name in ("before", "after"):
        directory = tmp_path / name
        with LedgerClient(tmp_path / f"{name}.db", signer=SIGNER) as client:
            _two_turns(client)
            if name == "before":
                client.erase(session_id="SES-TWICE", reason="r")
            cut_off(client, directory, 256, kind)
            if name == "after":
                there = Archive([directory])
                erase_archived(client, there, session_id="SES-TWICE", reason="r", guard=unguarded)
            assert _is_sound(client, directory)
        found.append([
            (len(line.contents), all("erased" in one for one in (*line.contents, *line.steps)))
            for line in Archive([directory]).lines()
            if line.seq < 2
        ])  # fmt: skip
    assert found[0] == found[1] == [(1, True), (1, True)]


@pytest.mark.parametrize("edit", ["drop", "add"])
def test_items_of_erased_values_are_exact(tmp_path: Path, edit: str) -> None:
    """No line lacks such an item because an earlier one has it, and none has one of a message."""
    directory = tmp_path / "archive"
    with LedgerClient(tmp_path / "l.db", signer=SIGNER) as client:
        _two_turns(client)
        cut_off(client, directory, 256)
        erase_archived(
            client, Archive([directory]), session_id="SES-TWICE", reason="r", guard=unguarded
        )
        assert _is_sound(client, directory)
        (part,) = directory.glob("*/part-*")
        lines = list(Archive([directory]).lines())
        (step,) = lines[1].steps
        message = {name: step[name] for name in ("commitment", "erased")}
        contents = [] if edit == "drop" else [*lines[1].contents, message]
        contents.sort(key=lambda item: str(item["commitment"]))
        write_part(part, [lines[0], lines[1]._replace(contents=contents), *lines[2:]])
        (problem,) = check_archive(client, [directory]).problems
        condition = "item-missing" if edit == "drop" else "item-needed"
        assert f"({condition})" in problem.message


def test_an_archive_of_an_earlier_version_may_have_other_items(tmp_path: Path) -> None:
    """Its checkpoint does not have the line that says that they are exact."""
    directory = tmp_path / "archive"
    with LedgerClient(tmp_path / "l.db", signer=SIGNER) as client:
        _two_turns(client)
        cut_off(client, directory, 256)
        found = Archive([directory])
        erase_archived(client, found, session_id="SES-TWICE", reason="r", guard=unguarded)
        (part,), (note,) = directory.glob("*/part-*"), directory.glob("*/checkpoint")
        first, second, *others = found.lines()
        message = {name: second.steps[0][name] for name in ("commitment", "erased")}
        write_part(part, [first, second._replace(contents=[message]), *others])
        assert check_archive(client, [directory]).problems != []
        head = SignedCheckpoint.parse(note.read_bytes()).checkpoint
        note.write_text(str(Checkpoint(head.origin, head.size, head.root).sign(SIGNER)))
        assert _is_sound(client, directory)
        erase_archived(client, found, session_id="SES-3", reason="r", guard=unguarded)
        assert len(next(line for line in found.lines() if line.seq == 1).contents) == 2
        assert _is_sound(client, directory)


def test_an_erasure_that_was_stopped_is_finished(client: LedgerClient, tmp_path: Path) -> None:
    """The entry is on record, and the bytes are in the archive still: that is no sound archive."""
    directory = tmp_path / "archive"
    cut_off(client, directory, 256)
    kept = tmp_path / "kept"
    shutil.copytree(directory, kept)
    erase_archived(client, Archive([directory]), session_id="SES-4", reason="r", guard=unguarded)
    (problem, *_) = check_archive(client, [kept]).problems
    assert "erased is still here" in problem.message
    assert (
        purge(client, Archive([kept]).parts(), unguarded) == 6 + 6 + 5 + 6
    )  # said by both, and repeated; who it is
    assert check_archive(client, [kept]).problems == []


def test_an_export_comes_back_as_it_was(client: LedgerClient, tmp_path: Path) -> None:
    """What left stays in the archive: an export has its hashes, and the archive goes with it."""
    directory, file = tmp_path / "archive", tmp_path / "all.jsonl"
    kept = {"session_id": "SES-8", "response": "answer 0 of SES-8"}
    client.write(LedgerEntry("SESSION_END", "S", "D", "r", metadata=kept))
    client.write_many([LedgerEntry("NOTE", "S", "D", "r") for _ in range(200)])
    cut_off(client, directory, 512)
    conversation(client, "SES-0", 7)
    erase_archived(client, Archive([directory]), session_id="SES-9", reason="r", guard=unguarded)
    with pytest.raises(LedgerError, match="were archived"):
        client.export(tmp_path / "x", format="tiles")
    assert client.export(file) == client.count()
    said = run_standalone(file, "--key", str(SIGNER.verifier_key))
    assert said.endswith("VERIFIED\n"), said
    with LedgerClient(tmp_path / "new.db", signer=SIGNER) as new:
        assert new.import_jsonl(file, key=SIGNER.verifier_key).checkpoint == "held"
        assert _entries(new, directory) == _entries(client, directory)
        assert new.select(_USAGE) == client.select(_USAGE)
        assert _is_sound(new, directory)
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
        assert problem in run_standalone(file, "--key", str(SIGNER.verifier_key))
        with LedgerClient(tmp_path / "other.db") as new, pytest.raises(LedgerError, match=problem):
            new.import_jsonl(file, key=SIGNER.verifier_key)


def run_standalone(*arguments: object) -> str:
    """What it says: with an environment of Python alone."""
    script = Path(__file__).parents[3] / "docs/verify_standalone.py"
    command = [sys.executable, "-I", "-S", str(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout + done.stderr


_USAGE = "SELECT * FROM usage ORDER BY quarter, session_id, model_id"


def test_one_archive_of_a_sound_ledger(client: LedgerClient, target: str, tmp_path: Path) -> None:
    directory = tmp_path / "archive"
    cut_off(client, directory, 256)
    assert cut_off(client, directory, 256).archived_id == ""
    assert cut_at(client, "LED-00000101") == 256
    assert cut_at(client, "2000-01-01") == 256
    assert cut_at(client, "10000") == client.count() // 256 * 256
    assert finish(client, [], guard=unguarded) == (0, "")
    (place,) = directory.iterdir()
    shutil.rmtree(place)
    with pytest.raises(LedgerError, match="No archive"):
        Archive([directory])
    assert check_archive(client, [directory]).problem_count == 1
    outside(
        target, "DELETE FROM contents WHERE content_id = (SELECT max(content_id) FROM contents)"
    )
    with pytest.raises(LedgerError, match="does not verify"):
        cut_off(client, directory, 384)


def test_what_an_auditor_must_find(client: LedgerClient, target: str, tmp_path: Path) -> None:
    """A row more or less than left, other hashes, other files: each is named."""
    directory = tmp_path / "archive"
    cut_off(client, directory, 256)
    (part,) = directory.glob("*/part-*")
    (bundle,) = directory.glob("*/tile/entries/000")
    (checkpoint,) = directory.glob("*/checkpoint")
    lines = [json.loads(line.to_dict()["record"]) for line in Archive([directory]).lines()]
    assert lines[0]["seq"] == 3
    stays = client.select("SELECT max(seq) FROM entries WHERE seq < 256")[0][0]
    for statement, kind in (
        (f"DELETE FROM entries WHERE seq = {stays}", "gap"),
        ("UPDATE ledger_info SET value = '512' WHERE name = 'archived_to'", "unreadable"),
        ("DELETE FROM ledger_info WHERE name = 'archived_to'", "gap"),
        ("DELETE FROM tree_hashes WHERE level = 0", "gap"),
        ("UPDATE tree_hashes SET hash = (SELECT t.hash FROM tree_hashes AS t WHERE level = 1 "
         "AND idx = 0) WHERE level = 0", "tree"),
        ("INSERT INTO tree_hashes SELECT 0, 1000, hash FROM tree_hashes WHERE level = 0", "tree"),
    ):  # fmt: skip
        copy = [outside(target, f"SELECT * FROM {name}") for name in _COPIED]
        outside(target, statement)
        report = client.verify()
        assert kind in {problem.kind for problem in report.problems}, statement
        _restore(client, copy)
        assert client.verify().problems == []
    for file, old, new in (
        (bundle, b"EXCHANGE", b"EXCHANGF"),
        (checkpoint, b"\n256\n", b"\n257\n"),
        (part, b"", b"x"),
    ):
        data = file.read_bytes()
        file.write_bytes(data.replace(old, new, 1) if old else data[:-9])
        assert check_archive(client, [directory]).problem_count
        file.write_bytes(data)
    for name in ("tile/0/009", "tile/2/000.p/1", "tile/entries/009"):
        file = part.parent / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_bytes(bytes(32))
        (problem,) = check_archive(client, [directory]).problems
        assert f"{name} is no tile of these entries" in str(problem)
        file.unlink()
    assert check_archive(client, [directory]).problems == []
    changed = [
        line._replace(contents=[{**item, "jcs": '"other"'} for item in line.contents])
        for line in Archive([directory]).lines()
    ]
    write_part(part, changed)
    assert "does not match its commitment" in str(check_archive(client, [directory]).problems[0])
    with pytest.raises(LedgerError, match="differs from the record"):
        Archive([directory]).read(entry_id(100))
    write_part(part, [line._replace(record=line.record[:-1] + b" }") for line in changed])
    with pytest.raises(LedgerError, match="does not match its hash"):
        list(Archive([directory]).query(with_content=False))


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


# -- After any sequence of appends, archives and erasures all verifies, is read and is proved ----


_SCRIPT = Path(__file__).parents[3] / "docs/verify_standalone.py"
_PEOPLE = 3


def _standalone() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verify_standalone", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
        self._script = _standalone()

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
        archive(
            self._client,
            end,
            self._directory,
            by="a",
            carry=lambda *_: {},
            guard=unguarded,
            kind="jsonl",
        )

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
            if self._client.archived_to:
                erase_archived(
                    self._client, Archive([self._directory]), **which, reason="r", guard=unguarded
                )
            else:
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
        if client.archived_to:
            assert check_archive(client, [self._directory]).problems == []
            found = Archive([self._directory])
            entries = {entry.id: entry for entry in joined(client, found, None)}
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
